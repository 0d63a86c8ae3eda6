"""Fill the instructor page with what comes from the notebooks and their exercises: times, weeks and hints."""

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

from course.batch import notebooks
from course.checks import EXERCISES, Exercise
from course.grading.plain import Directive, blocks
from course.wording import counted, table
from vsecore.paths import ROOT

GLUE = "\N{NO-BREAK SPACE}"
"""Keeps a number and its unit on one line."""
WORDS_A_MINUTE = 120
"""Of a text with formulas and code, read to be understood."""

_CARD = re.compile(r"\*\*It takes\*\* about (half a|\d+) minutes? and (\d+) GB")


@dataclass(frozen=True)
class LessonPlan:
    """What an instructor needs to know of a notebook to plan with it.

    That is its number and title, its `name`, which is a link if the book has it, the minutes to read its
    words, the minutes and gigabytes of a run, if its card says them, and its exercises by their keys.
    """

    title: str
    name: str
    reading: float
    cost: tuple[float, float] | None
    exercises: dict[str, Exercise]

    @property
    def working(self) -> int:
        """Minutes that its exercises take."""
        return sum(task.minutes for task in self.exercises.values())


def instructor_page(text: str) -> str:
    """Fill the placeholders of the instructor page.

    `{{ timings }}` is a table of the notebooks, and `{{ mistakes }}` a list of all hints. In a course's plan,
    `{{ week 02 03a }}` names a week's notebooks, here 02 and the first half of 03, and the hours that they
    take, in two cells of a table; the second half is 03b.
    """
    in_book = (ROOT / "book" / "_toc.yml").read_text(encoding="utf-8")
    pages = set(re.findall(r"notebooks/(\w+)", str(yaml.safe_load(in_book))))
    plans = {path.name[:2]: plan_of(path, path.stem in pages) for path in notebooks()}

    def filled(place: re.Match[str]) -> str:
        match place[1].split():
            case ["timings"]:
                return _timings_table(plans)
            case ["mistakes"]:
                return _hints_list(plans)
            case ["week", *parts] if parts and {part.rstrip("ab") for part in parts} <= plans.keys():
                return _week(parts, plans)
        raise ValueError(f"the instructor page has {place[0]}: it must be timings, mistakes or week 02 03a")

    return re.sub(r"\{\{(.*?)\}\}", filled, text)


def plan_of(path: Path, in_book: bool) -> LessonPlan:
    """Read a stored notebook's plan."""
    words, title, cost = 0, "", None
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "markdown":
            words += len(cell.source.split())
            continue
        for block in blocks(cell.source):
            words += len((block.source if isinstance(block, Directive) else block).split())
        if heading := re.search(r"^# (.+)$", cell.source, re.MULTILINE):
            title = title or heading[1]
        if card := _CARD.search(cell.source):
            cost = 0.5 if card[1] == "half a" else float(card[1]), float(card[2])
    number = path.name[:2]
    title = f"{number} {_quoted(title)}"
    return LessonPlan(
        title,
        f"[{title}](notebooks/{path.name})" if in_book else title,
        words / WORDS_A_MINUTE,
        cost,
        {key: task for key, task in EXERCISES.items() if key.startswith(f"{number}.")},
    )


def _timings_table(plans: dict[str, LessonPlan]) -> str:
    rows = []
    for plan in plans.values():
        cost = ["not measured yet", "–"]
        if plan.cost is not None:
            cost = [f"{plan.cost[0]:g}{GLUE}min", f"{plan.cost[1]:g}{GLUE}GB"]
        rest = [f"{plan.reading:.0f}{GLUE}min", str(len(plan.exercises)), f"{plan.working}{GLUE}min"]
        rows.append([plan.name, *cost, *rest])
    heads = ["notebook", "to run", "memory", "to read", "exercises", "to do them"]
    return f"""{table(heads, rows)}

To run and memory: as the notebook itself says, at tier lesson on two processor cores with no GPU.
To read: estimated at {WORDS_A_MINUTE} words and pieces of code a minute. To do the exercises: the
sum of the minutes that each of them says."""


def _week(parts: list[str], plans: dict[str, LessonPlan]) -> str:
    minutes, shown = 0.0, []
    for part in parts:
        plan, half = plans[part[:2]], part[2:]
        minutes += (plan.reading + plan.working) / (2 if half else 1)
        shown.append(plan.name + {"": "", "a": ", first half", "b": ", second half"}[half])
    return f"{'; '.join(shown)} | {minutes / 60:.1f}{GLUE}h"


def _hints_list(plans: dict[str, LessonPlan]) -> str:
    lines = []
    for plan in filter(lambda plan: plan.exercises, plans.values()):
        lines += [f"::::{{dropdown}} {plan.title}", ""]
        for key, task in plan.exercises.items():
            minutes, points = counted(task.minutes, "minute"), counted(len(task.trials), "point")
            lines += [f"**{_quoted(task.title)}** (`{key}`; {task.kind}, about {minutes}, {points})", ""]
            lines += [f"- Often: {_quoted(mistake.hint)}" for mistake in task.mistakes]
            lines += [f"- Point {point}: {_quoted(trial.hint)}" for point, trial in enumerate(task.trials, 1)]
            lines += [""]
        lines += ["::::", ""]
    return "\n".join(lines).rstrip()


def _quoted(text: str) -> str:
    """Plain words as Markdown that shows just these words, and as code what stands between backticks."""
    return re.sub(r"(`[^`]+`)|([\\`*_{}\[\]<>$|#~])", lambda one: one[1] or f"\\{one[2]}", text)
