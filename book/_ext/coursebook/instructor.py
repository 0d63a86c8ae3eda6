"""Fill the instructor page with what comes from the notebooks and their exercises: times, weeks and hints."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import nbformat
from jinja2 import StrictUndefined, Template

from course.batch import notebooks
from course.checks import EXERCISES, Exercise
from course.wording import counted, table

GLUE = "\N{NO-BREAK SPACE}"
"""Keeps a number and its unit on one line."""
WORDS_A_MINUTE = 120
"""Of a text with formulas and code, read to be understood."""

_CARD = re.compile(r"# (.+)\n[\s\S]*\*\*It takes\*\* about (half a|\d+) minutes? and (\d+) GB")


@dataclass(frozen=True)
class LessonPlan:
    """What an instructor needs to know of a notebook to plan with it.

    That is its number and title, a link to its page, the minutes to read its words, the minutes and gigabytes
    of a run, and its exercises by their keys.
    """

    title: str
    link: str
    reading: float
    cost: tuple[str, str]
    exercises: dict[str, Exercise]

    @property
    def working(self) -> int:
        """Minutes that its exercises take."""
        return sum(task.minutes for task in self.exercises.values())


def instructor_page(text: str) -> str:
    """Fill the placeholders of the instructor page.

    `{{ timings }}` is a table of the notebooks, and `{{ mistakes }}` a list of all hints. In a course's plan,
    `{{ week("02", "03a") }}` names a week's notebooks, here 02 and the first half of 03, and the hours that
    they take, in two cells of a table; the second half is 03b.
    """
    plans = {path.name[:2]: plan_of(path) for path in notebooks()}
    page = Template(text, undefined=StrictUndefined, keep_trailing_newline=True)
    return page.render(timings=_timings_table(plans), mistakes=_hints_list(plans), week=partial(_week, plans))


def plan_of(path: Path) -> LessonPlan:
    """Read a stored notebook's plan; its first cell has its title, and says what a run takes."""
    cells, number = nbformat.read(path, as_version=4).cells, path.name[:2]
    ((heading, minutes, gigabytes),) = _CARD.findall(cells[0].source)
    title = f"{number} {_quoted(heading)}"
    return LessonPlan(
        title,
        f"[{title}](notebooks/{path.name})",
        sum(len(cell.source.split()) for cell in cells) / WORDS_A_MINUTE,
        (minutes.replace("half a", "0.5"), gigabytes),
        {key: task for key, task in EXERCISES.items() if key.startswith(f"{number}.")},
    )


def _timings_table(plans: dict[str, LessonPlan]) -> str:
    rows = []
    for plan in plans.values():
        cost = [f"{plan.cost[0]}{GLUE}min", f"{plan.cost[1]}{GLUE}GB"]
        rest = [f"{plan.reading:.0f}{GLUE}min", str(len(plan.exercises)), f"{plan.working}{GLUE}min"]
        rows.append([plan.link, *cost, *rest])
    heads = ["notebook", "to run", "memory", "to read", "exercises", "to do them"]
    return f"""{table(heads, rows)}

To run and memory: as the notebook itself says, at tier lesson on two processor cores with no GPU.
To read: estimated at {WORDS_A_MINUTE} words and pieces of code a minute. To do the exercises: the
sum of the minutes that each of them says."""


def _week(plans: dict[str, LessonPlan], *parts: str) -> str:
    minutes, shown = 0.0, []
    for part in parts:
        plan, half = plans[part[:2]], part[2:]
        minutes += (plan.reading + plan.working) / (2 if half else 1)
        shown.append(plan.link + {"": "", "a": ", first half", "b": ", second half"}[half])
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
