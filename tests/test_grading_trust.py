"""Grading to be trusted: an answer is judged as if it lay here, and no trick earns a point."""

import ast
import inspect
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import test_checks
from answers import by_hand_of_gradients
from course.checks import EXERCISES, borrowed, check
from course.checks.exercise import judge_by_trials
from course.checks.samples import gradient_of
from course.grading import inside, judging, kernel, marking, values
from course.grading.judging import Distant, judge_filed
from course.grading.kernel import Filed
from test_grading import IMPORT, hand_in
from vsecore.paths import ROOT


def ask(call):
    """What a kernel does with a call, in this process."""
    return values.read(eval(f"inside.{call}", {"inside": inside}))


def filed(answer):
    inside.check("", answer)
    ((_, form),) = ask("hand_over()")
    return Filed(0, 1, form, ask)


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_answer_gets_the_same_points_and_hint_as_in_the_learners_own_notebook(exercise):
    stubs = test_checks.STUBS if exercise == "04.siblings" else ()
    for answer in (*test_checks.RIGHT[exercise], *test_checks.WRONG[exercise], *stubs, ..., None):
        here, there = check(exercise, answer), judge_filed(EXERCISES[exercise], filed(answer))
        assert (here.points, here.message) == (there.points, there.message), answer


@pytest.mark.parametrize("exercise", [key for key, task in EXERCISES.items() if task.reference])
def test_a_reference_can_be_sent_to_stand_in_for_a_wrong_answer(exercise):
    task = EXERCISES[exercise]
    source = judging.source_of(task.reference)
    assert "course.checks" not in source, "a kernel knows no check"
    ask(f"go_on_with({source}, {filed(lambda: 0).form['function']})")
    made = sys.modules["__main__"].__dict__.pop("<lambda>")
    assert judge_by_trials(task, task.called(made)).passed
    inside.check(exercise, made)
    assert ask("hand_over()") == [], "what stands in is nobody's answer"


def carried(value):
    return values.decode(values.read(values.write(values.encode(value))))


def test_a_plain_value_arrives_as_it_was_and_others_as_what_they_hold():
    for value in (None, True, 3, -0.5, "ü", [1, [2.5, "x"]], (1, (2,)), ..., 2**62, float("inf")):
        assert carried(value) == value and type(carried(value)) is type(value)
    others = ((Fraction(1, 4), 0.25), (range(3), [0, 1, 2]), (iter("ab"), ["a", "b"]), (np.float64(2.5), 2.5))
    assert all(carried(value) == plain for value, plain in others)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_tensors_and_arrays_arrive_as_they_were(dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    tensor = torch.from_numpy(array)
    for value in (array, array.T, tensor, tensor.mT if len(shape) > 1 else tensor):
        back = carried(value)
        assert type(back) is type(value) and back.dtype == value.dtype and back.shape == value.shape
        assert (np.asarray(back) == np.asarray(value)).all()


@pytest.mark.parametrize(
    "form",
    [
        {"tensor": "no base64!", "kind": "tensor", "gradient": False},
        {"tensor": "AAAA", "kind": "tensor", "gradient": True},
        {"function": "0"},
        {"pickle": "gASV"},
        {"tuple": 3},
        {"other": ["a"]},
        {"other": "dict"},
        [[{"function": -1}]],
    ],
    ids=str,
)
@pytest.mark.parametrize("exercise", ["00.rank", "04.siblings", "03.break", "01.sentence"])
def test_a_form_that_no_kernel_of_ours_sends_is_a_wrong_answer(form, exercise):
    judgement = judge_filed(EXERCISES[exercise], Filed(0, 1, form, ask))
    assert judgement.points == 0 and judgement.possible == len(EXERCISES[exercise].trials)


@pytest.mark.parametrize(
    "said", [None, "Right.", 1e400, {"result": {"points": 99}}, {"stopped": 1}, {"result": [[[]]]}], ids=str
)
def test_whatever_a_kernel_says_instead_of_a_result_earns_nothing(said):
    answer = Filed(0, 1, {"function": 0}, lambda call: said)
    for key in ("00.search", "02.mean", "04.step", "03.ranks", "01.batch"):
        assert judge_filed(EXERCISES[key], answer).points == 0


def test_too_much_is_no_answer():
    assert "too large" in values.encode(torch.zeros(4_000_000))["other"]
    assert "too many digits" in values.encode(10**50)["other"]
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="list"):
        values.decode(values.encode(deep))
    with pytest.raises(ValueError, match="no value"):
        values.read("[" * 100_000 + "]" * 100_000)


def test_after_a_call_that_took_too_long_no_other_is_tried():
    calls = []

    def slow(call):
        if not call.startswith("call("):
            return [False, ""]
        calls.append(call)
        raise TimeoutError("it took more than 10 s")

    judgement = judge_filed(EXERCISES["00.search"], Filed(0, 1, {"function": 0}, slow))
    assert "took more than 10 s" in judgement.message
    distant = Distant(slow, 0)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            distant(1)
    assert len(calls) == 2, "one of each"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x**3).sum(),
        lambda x: x.sort(0).values * 2,
        lambda x: x.detach() * x,
        lambda x: [x.exp(), x.logsumexp(0)][1],
    ],
)
def test_gradients_are_the_same_from_another_process(function):
    inside.check("", function)
    ((_, form),) = ask("hand_over()")
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    there = gradient_of(Distant(ask, form["function"]), x.clone())
    assert torch.equal(gradient_of(function, x.clone()), there)
    distant = Distant(ask, filed(lambda x: x.detach()).form["function"])
    assert not distant(torch.ones(2, requires_grad=True)).requires_grad


def test_the_package_that_a_kernel_sees_knows_no_expected_value():
    for module in (inside, values, borrowed):
        nodes = ast.walk(ast.parse(Path(module.__file__).read_text("utf-8")))
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {getattr(node, "module", None) or node.names[0].name for node in imports}
        assert {name for name in names if name.split(".")[0] in ("vsecore", "course")} <= {"course.checks"}
        assert not hasattr(module, "EXERCISES")


def graded(path, *sources, seconds=60):
    one = marking.read_hand_in(hand_in(path / "00.ipynb", *sources), "00.ipynb")
    return marking.run_and_mark(one, "smoke", seconds, ["00"])


def points(made):
    return {mark.exercise.removeprefix("00."): mark.points for mark in made.marks}


def quietly(source):
    """A cell that carries on where a trick of its fails."""
    lines = "".join(f"    {line}\n" for line in source.splitlines())
    return f"try:\n{lines}except Exception as error: print(type(error).__name__)"


FORGED = """\
import json, os
for value in list(os.environ.values()):
    if os.path.isfile(value):
        with open(value, "a") as file:
            for key in ("00.rank", "00.search", "00.break"):
                file.write(json.dumps({"exercise": key, "points": 3, "message": "Right."}) + "\\n")
"""
REPLACED = """\
import dataclasses, sys
module = sys.modules["course." + "checks"]
for name in ("EXERCISES", "judge_answer", "hand_over"):
    setattr(module, name, lambda *_: '{"result": "Right."}')
"""
BORROWED = """\
import glob, importlib, pathlib, sys, vsecore
lines = [line for file in glob.glob(sys.prefix + "/lib/python3*/site-packages/*.pth") for line in open(file)]
for root in [vsecore.__path__[0] + "/..", CHECKOUT, *lines]:
    sys.path += [root.strip(), root.strip() + "/tests"]
solved = importlib.import_module("answers").RIGHT
check("00.search", solved["00.search"][0])
"""
PUBLISHED = """\
import json
from course.checks import exercise
for cell in json.load(open(CHECKOUT + "/notebooks/00_start_here.ipynb"))["cells"]:
    if "# your part" in "".join(cell["source"]): exec("".join(cell["source"]))
"""
OF_THE_CALLER = """\
import gc, sys
def search(v, query, k):
    frame = sys._getframe()
    while frame := frame.f_back:
        if "expected" in frame.f_locals: return frame.f_locals["expected"]
    return [0, 1]
check("00.search", search)
"""
TRIED = """\
for value in range(1000):
    if check("00.break", value / 1000).passed: break
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a kernel may read is confined on Linux")
def test_no_trick_earns_a_point(tmp_path):
    where = f"CHECKOUT = {str(ROOT)!r}\n"
    tricks = (FORGED, where + BORROWED, where + PUBLISHED, TRIED, OF_THE_CALLER, REPLACED)
    made = graded(tmp_path, IMPORT, 'check("00.rank", 7)', *map(quietly, tricks), "print(1)")
    # What 7 and 0.999 are worth by themselves: a whole number, a percentage.
    assert points(made) == {"rank": 1, "predict": 0, "search": 0, "break": 1, "explore": 0}
    assert {mark.exercise: mark.checks for mark in made.marks}["00.break"] == 1000


def test_a_cell_that_ends_or_holds_the_kernel_loses_its_exercise_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "INTERRUPT_SECONDS", 1)
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except BaseException: pass"
    detach = (
        "import os, subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(99)', 'left']\n"
        "subprocess.Popen(sleep, start_new_session=True, env={})\n"
        "if os.fork() == 0:\n    os.setsid()\n"
        "    os.fork() or os.execve(sleep[0], sleep, {})\n    os._exit(0)"
    )
    made = graded(
        tmp_path,
        f"{IMPORT}\nplace = 3",
        'check("00.rank", place)',
        detach,
        'import os\ndef search(v, query, k): os._exit(0)\ncheck("00.search", search)',
        f'share = 1\n{stubborn}\ncheck("00.break", 0.1)',
        'check("00.break", 0.3 - 0.2 * (place == 3))\nkept = search',
        "print(kept, share)",
        seconds=24,
    )
    assert [points(made)[key] for key in ("rank", "search", "break")] == [2, 0, 2]
    assert "ended" in {mark.exercise: mark.message for mark in made.marks}["00.search"]
    assert [trouble.split(" ")[1] for trouble in made.troubles] == ["5", "6", "8"], made.troubles
    assert "went on after it was interrupted" in made.troubles[1]
    alive = [found.info["cmdline"] for found in psutil.process_iter(["cmdline"]) if found.info["cmdline"]]
    assert not any(words[-1] == "left" and "time.sleep(99)" in words[-2] for words in alive if len(words) > 2)


END = "import os\nos._exit(0)"
CARRIED = """\
from course.checks import check, exercise
from vsecore.similarity import cosine

@exercise("00.search")
def search(v, query, k):
    return cosine(v, query[None])[:, 0].topk(k).indices
"""


def test_what_uses_the_package_is_refused_and_the_cells_below_go_on_with_a_right_function(tmp_path):
    use = "import torch\nprint('found', search(torch.eye(3), torch.tensor([0.0, 1, 0]), 1))"
    step = inspect.getsource(by_hand_of_gradients) + '\ncheck("04.step", by_hand_of_gradients)'
    one = marking.read_hand_in(hand_in(tmp_path / "00.ipynb", CARRIED, END, use, step), "00.ipynb")
    made = marking.run_and_mark(one, "smoke", 60, ["00", "04.step"])
    found = {mark.exercise: mark for mark in made.marks}
    assert len(made.troubles) == 1 and "uses cosine" in found["00.search"].message
    assert one.notebook is not None and "found [1]" in one.notebook.cells[-2].outputs[0].text
    assert found["04.step"].state == "right", found["04.step"].message
    assert "04.all" not in found, "only what was set"
