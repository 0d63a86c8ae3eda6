"""The learner's parts: cut out of the copies, folded beneath them, and judged where they stand."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course import checks
from course.checks import EXERCISES, exercise
from course.checks.exercise import Check, Exercise, Trial
from course.grading.copies import learner_copy
from course.grading.parts import key_of, without_marks, without_parts
from course.grading.plain import cite

SOLVED = """\
from course.checks import exercise


@exercise("10.kmax")
def your_kmax(x, mask, k):
    # your part
    top = x.topk(k, dim=1).values
    return top.mean(1)
    # end of your part"""


def twice(x):
    """Stands above an exercise."""
    return 2 * x


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
    "source",
    [
        "# your part\nx = 1",
        "# end of your part",
        "# your part\n# your part\n# end of your part",
        "f(3)  # your part",
    ],
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
    return [cell.source for cell in learner_copy(new_notebook(cells=cells), **options).cells]


SOLUTION = "Before.\n\n````{solution} ex-10-kmax\n:class: dropdown\n\nHide it first.\n````\n\nAfter."


def test_the_solution_stands_folded_beneath_with_its_words_and_its_code():
    task, cell, below = copied(SOLUTION)
    facts = EXERCISES["10.kmax"]
    assert task.startswith("### Exercise: k-max\n\n*10.kmax: code, ") and f"{facts.minutes} minutes" in task
    assert "..." in cell and "topk" not in cell
    before, folded = below.split("<details ")
    inside, after = folded.split("</details>")
    assert (before.strip(), after.strip()) == ("Before.", "After.")
    assert "<summary>Solution</summary>" in inside and "Hide it first." in inside
    assert f"```python\n{without_marks(SOLVED)}\n```" in inside


def test_an_exercise_and_its_solution_need_each_other():
    with pytest.raises(ValueError, match=r"'10.kmax' has no solution"):
        copied()
    with pytest.raises(ValueError, match="no cell above it"):
        copied(SOLUTION, SOLUTION.replace("10-kmax", "10-break"))


def test_citations_are_names_years_and_links(tmp_path):
    bibliography = tmp_path / "some.bib"
    bibliography.write_text(
        '@misc{one, author={G{\\"o}del, Kurt}, year={1931}, doi={10.1000/182}, url={https://one.org/a_b}}\n'
        "@misc{two, author={van den Oord, A. and Li, Y.}, year={2018}, doi={10.1000/182}}\n"
        "@misc{three, author={A, B. and C, D. and E, F.}, year={2020}}\n"
    )
    assert cite("one, two,three", bibliography) == (
        "([Gödel, 1931](https://one.org/a_b); [van den Oord and Li, 2018](https://doi.org/10.1000/182); "
        "A et al., 2020)"
    )
    with pytest.raises(ValueError, match="four"):
        cite("four", bibliography)


@pytest.fixture
def doubling(monkeypatch):
    """An exercise with a right answer that stands in."""
    trial = Trial(Check(lambda answer: answer(3) == 6), "Twice.")
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
