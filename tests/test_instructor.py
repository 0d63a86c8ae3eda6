"""The instructor page: what it says of notebooks and exercises is what they say themselves."""

import re

import nbformat
import pytest

from course.batch import notebooks
from course.checks import EXERCISES
from coursebook import instructor
from coursebook.instructor import instructor_page
from vsecore.paths import ROOT

TEXT = (ROOT / "book" / "instructor.md").read_text("utf-8")


@pytest.fixture(scope="module")
def page():
    return instructor_page(TEXT).replace(instructor.GLUE, " ")


def test_the_page_is_filled_from_notebooks_and_exercises(page):
    assert "{{" not in page
    for task in EXERCISES.values():
        assert instructor._quoted(task.title) in page
        for trial in (*task.trials, *task.mistakes):
            assert instructor._quoted(trial.hint) in page


def test_minutes_agree_in_cards_exercises_tables_and_plans(page):
    hours = {}
    for path in notebooks():
        row = re.search(rf"^\| \[?{path.name[:2]} .*min \|$", page, re.MULTILINE)[0].strip("| ").split(" | ")
        tasks = [task for key, task in EXERCISES.items() if key.startswith(path.name[:2])]
        card = nbformat.read(path, as_version=4).cells[0].source
        about = row[1].replace("0.5 min", "half a min").removesuffix(" min")
        assert re.search(rf"takes\*\* about {about} minutes? and {row[2]} of memory", card), (path, row)
        assert row[4:] == [str(len(tasks)), f"{sum(task.minutes for task in tasks)} min"]
        hours[path.name[:2]] = int(row[3].removesuffix(" min")) + sum(task.minutes for task in tasks)
    weeks = [re.findall(r"\w+", found[1]) for found in re.finditer(r"\{\{ week\((.*?)\) \}\}", TEXT)]
    told = [float(said) for said in re.findall(r"\| ([\d.]+) h \|", page)]
    for parts, said in zip(weeks, told, strict=True):
        minutes = sum(hours[part[:2]] / (2 if part[2:] else 1) for part in parts)
        assert abs(60 * said - minutes) <= 3 + len(parts) / 2, parts
