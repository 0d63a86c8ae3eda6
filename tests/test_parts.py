"""The learner's parts: cut out of the copies, folded beneath them, and judged where they stand."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course import checks
from course.checks import EXERCISES, check, exercise
from course.checks.borrowed import borrowed, is_stub
from course.checks.exercise import NOT_ANSWERED, Exercise, Trial, judge_answer
from course.grading.learner import learner_copy
from course.grading.parts import key_of, without_marks, without_parts
from course.grading.plain import plain_markdown

SOLVED = """\
from course.checks import exercise


@exercise("10.kmax")
def your_kmax(x, mask, k):
    # your part
    top = x.topk(k, dim=1).values
    return top.mean(1)
    # end of your part"""


def cite(keys):
    return f"({keys})"


def twice(x):
    """Stands above an exercise."""
    return 2 * x


# ---------------------------------------------------------------- cutting


def test_dots_stand_where_the_learners_part_was():
    assert without_parts(SOLVED).endswith("def your_kmax(x, mask, k):\n    ...  # your part")
    value = 'your_rank = 3  # your part: counted from 0\ncheck("00.rank", your_rank)'
    assert without_parts(value) == 'your_rank = ...  # your part: counted from 0\ncheck("00.rank", your_rank)'
    assert without_parts("x = 3  # your partner") == "x = 3  # your partner"
    compile(without_parts(SOLVED), "a learner's cell", "exec")


def test_a_solution_has_no_marks():
    assert "your part" not in without_marks(SOLVED) and "return top.mean(1)" in without_marks(SOLVED)
    assert without_marks("a = 3  # your part: a number") == "a = 3"


@pytest.mark.parametrize(
    "source", ["# your part\nx = 1", "# end of your part", "# your part\n# your part\n# end of your part"]
)
def test_marks_that_do_not_match_are_refused(source):
    with pytest.raises(ValueError, match="part"):
        without_parts(source)


def test_a_part_belongs_to_one_exercise():
    assert key_of(SOLVED) == "10.kmax" and key_of("x = 1") == ""
    for source in ("x = 1  # your part", f'{SOLVED}\ncheck("00.rank", 1)'):
        with pytest.raises(ValueError, match="exercises, not one"):
            key_of(source)


def copied(*below, **options):
    exercise_text = "```{exercise} k-max\n:label: ex-10-kmax\n\nWrite it.\n```"
    cells = [new_markdown_cell(exercise_text), new_code_cell(SOLVED), *map(new_markdown_cell, below)]
    return [cell.source for cell in learner_copy(new_notebook(cells=cells), cite, **options).cells]


SOLUTION = "Before.\n\n````{solution} ex-10-kmax\n:class: dropdown\n\nHide it first.\n````\n\nAfter."


def test_the_solution_stands_folded_beneath_with_its_words_and_its_code():
    task, cell, below = copied(SOLUTION)
    facts = EXERCISES["10.kmax"]
    assert task.startswith("### Exercise: k-max\n\n*10.kmax: code, ") and f"{facts.minutes} minutes" in task
    assert "..." in cell and "topk" not in cell
    before, folded = below.split("<details>")
    inside, after = folded.split("</details>")
    assert (before.strip(), after.strip()) == ("Before.", "After.")
    assert "<summary>Solution</summary>" in inside and "Hide it first." in inside
    assert f"```python\n{without_marks(SOLVED)}\n```" in inside


def test_for_homework_no_solution_is_left():
    everything = "\n".join(copied(SOLUTION, solutions=False))
    assert "topk" not in everything and "Hide it first" not in everything
    assert "Before." in everything and "After." in everything


def test_an_exercise_and_its_solution_need_each_other():
    with pytest.raises(ValueError, match=r"'10.kmax' has no solution"):
        copied()
    with pytest.raises(ValueError, match="no cell above it"):
        copied(SOLUTION, SOLUTION.replace("10-kmax", "10-break"))


def test_a_box_that_is_folded_in_the_book_is_folded_in_the_copy():
    said = plain_markdown("```{admonition} A proof & more\n:class: note dropdown\n\nBecause.\n```", cite)
    assert said == "<details>\n<summary>A proof &amp; more</summary>\n\nBecause.\n\n</details>"


# ---------------------------------------------------------------- whose work it is


def test_what_was_left_empty_is_not_answered():
    def returns_nothing(x):
        """Say nothing."""

    def returns_dots(x):
        return ...

    def counts(x):
        return 0

    for empty in (..., None, (1, ...), returns_nothing, returns_dots, lambda x: None):
        assert is_stub(empty)
        assert judge_answer(EXERCISES["10.kmax"], empty).message.startswith(NOT_ANSWERED)
    for answer in (0, (), [1], counts, lambda x: x):
        assert not is_stub(answer)


def test_what_the_notebook_defined_above_is_no_answer():
    trial = Trial(lambda answer: answer(1) == 2, "Twice.")
    task = Exercise("Double it", "code", 1, (trial,), defined_above=("twice",))
    assert judge_answer(task, lambda x: x + x).passed
    refused = judge_answer(task, lambda x: twice(x))
    assert not refused.passed and "uses twice" in refused.message
    assert not borrowed(twice, ("twice",))  # a learner may call the answer what it was called above


def test_after_a_restart_the_check_says_what_to_run_first():
    space = {}
    exec("def answer(x, mask, k):\n    return torch.topk(x, k).values", space)
    message = check("10.kmax", space["answer"]).message
    assert "name 'torch' is not defined" in message and "Run All Above" in message


# ---------------------------------------------------------------- the notebook goes on


@pytest.fixture
def doubling(monkeypatch):
    """An exercise with a right answer that stands in."""
    trial = Trial(lambda answer: answer(3) == 6, "Twice.")
    task = Exercise("Double it", "code", 1, (trial,), reference=twice, message="Right, and quick.")
    monkeypatch.setitem(checks.EXERCISES, "99.double", task)


def test_a_right_answer_is_used_below(doubling, capsys):
    answer = exercise("99.double")(lambda x: x + x)
    assert answer(3) == 6 and answer is not twice
    assert capsys.readouterr().out == "✓ Double it: 1 of 1. Right, and quick.\n"


def test_until_then_one_that_is_right_stands_in(doubling, capsys):
    def tripled(x):
        return 3 * x

    assert exercise("99.double")(tripled) is twice
    said = capsys.readouterr().out
    assert said.startswith("… Double it: 0 of 1. Twice.") and "use the solution's `tripled`." in said


def test_an_unknown_kind_or_difficulty_is_refused():
    for field in ("kind", "difficulty"):
        with pytest.raises(ValueError, match=field):
            Exercise("?", **({"kind": "code"} | {"minutes": 1, "trials": ()} | {field: "odd"}))


def test_copies_of_notebooks_stay_valid():
    made = learner_copy(new_notebook(cells=[new_code_cell("x = 1")]), cite)
    nbformat.validate(made)
