"""The instructor page: what it says of notebooks and exercises is what they say themselves."""

import re
from pathlib import Path

import nbformat
import pytest

from course.batch import notebooks
from course.checks import EXERCISES
from coursebook import instructor
from coursebook.instructor import instructor_page
from vsecore.paths import ROOT

TEXT = (ROOT / "book" / "instructor.md").read_text("utf-8")
NUMBERS = [path.name[:2] for path in notebooks()]


@pytest.fixture(scope="module")
def page() -> str:
    return instructor_page(TEXT).replace(instructor.GLUE, " ")


def test_the_page_is_filled_from_notebooks_and_exercises(page: str) -> None:
    assert "{{" not in page
    for task in EXERCISES.values():
        assert instructor._quoted(task.title) in page
        for trial in (*task.trials, *task.mistakes):
            assert instructor._quoted(trial.hint) in page
    for wrong in ("{{ nonsense }}", "{{ week 99 }}", "{{ week }}"):
        with pytest.raises(ValueError, match="week"):
            instructor_page(wrong)


def test_minutes_agree_in_cards_exercises_tables_and_plans(page: str) -> None:
    hours = {}
    for path in notebooks():
        row = re.search(rf"^\| \[?{path.name[:2]} .*min \|$", page, re.MULTILINE)[0].strip("| ").split(" | ")
        tasks = [task for key, task in EXERCISES.items() if key.startswith(path.name[:2])]
        card = nbformat.read(path, as_version=4).cells[0].source
        about = row[1].replace("0.5 min", "half a min").removesuffix(" min")
        assert re.search(rf"takes\*\* about {about} minutes? and {row[2]} of memory", card), (path, row)
        assert row[4:] == [str(len(tasks)), f"{sum(task.minutes for task in tasks)} min"]
        hours[path.name[:2]] = int(row[3].removesuffix(" min")) + sum(task.minutes for task in tasks)
    weeks = [found[1].split() for found in re.finditer(r"\{\{ week (.*?) \}\}", TEXT)]
    told = [float(said) for said in re.findall(r"\| ([\d.]+) h \|", page)]
    for parts, said in zip(weeks, told, strict=True):
        minutes = sum(hours[part[:2]] / (2 if part[2:] else 1) for part in parts)
        assert abs(60 * said - minutes) <= 3 + len(parts) / 2, parts


def test_a_course_is_in_order_even_and_whole(page: str) -> None:
    for length, plan in zip((3, 6, 12), re.split("### .* weeks: ", TEXT)[1:], strict=True):
        weeks = [found[1].split() for found in re.finditer(r"\{\{ week (.*?) \}\}", plan)]
        parts = [part for week in weeks for part in week]
        assert len(weeks) == length and parts == sorted(set(parts))
        assert {part[:2] + "b" for part in parts if part[2:] == "a"} == {
            part for part in parts if part[2:] == "b"
        }
        shown = instructor_page("\n".join(f"| {{{{ week {' '.join(week)} }}}} |" for week in weeks))
        hours = [float(said) for said in re.findall(rf"([\d.]+){instructor.GLUE}h", shown)]
        assert max(hours) <= 1.5 * sum(hours) / length, "no week asks for much more than the others"
    assert {part[:2] for part in parts} == set(NUMBERS), "the longest has them all"


def test_a_notebook_that_was_not_measured_says_so(tmp_path: Path) -> None:
    path = tmp_path / "00_start.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Start")]), path)
    assert "| 00 Start | not measured yet |" in instructor._timings_table(
        {"00": instructor.plan_of(path, False)}
    )


def test_every_notebook_has_something_to_talk_about() -> None:
    talk = TEXT.split("## To talk about")[1].split("\n## ")[0]
    assert re.findall(r"^\*\*(\d\d) ", talk, re.MULTILINE) == NUMBERS
