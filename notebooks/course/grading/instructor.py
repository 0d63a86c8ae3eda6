"""Fill the instructor page with tables that come from the notebooks, their records and their exercises."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
import yaml

from course.batch import notebooks
from course.checks import EXERCISES, Exercise
from course.grading.plain import Directive, blocks, counted
from vsecore.paths import ROOT

GLUE = "\N{NO-BREAK SPACE}"  # keeps a number and its unit on one line
WORDS_A_MINUTE = 120  # of a text with formulas and code, read to be understood

# For each length of a course in weeks: a week's notebooks, all of which exist, and what the week is for. One
# that stands in two weeks is read half in each.
COURSES: dict[int, tuple[tuple[tuple[str, ...], str], ...]] = {
    3: (
        (("00", "01"), "See the goal, then the data, and what five captions leave out."),
        (("02", "03"), "From a picture and a sentence to two vectors; how retrieval is measured."),
        (("03", "04"), "What measures miss. The loss that later systems start from: predict, then measure."),
    ),
    6: (
        (("00", "01"), "Before the meeting, see the goal in notebook 00; then the data."),
        (("02", "03"), "Encoders and measures."),
        (("03", "04"), "What measures miss; the hardest negative, and how a training collapses."),
        (("05", "06"), "Relations: the Transformer block, and losses that align parts with words."),
        (("07", "10"), "Every word looks at every box; then the other way, from many vectors to one."),
        (
            ("11", "12"),
            "How many negatives to learn from; what a query costs. Learners present ablations of their own, "
            "in groups of four or as posters.",
        ),
    ),
    12: (
        (("00", "01"), "See the goal: everybody trains a search engine and breaks it. Then the data."),
        (("02", "03"), "Encoders and measures."),
        (("03", "04"), "What measures miss; the hardest negative, and how a training collapses."),
        (("05", "06"), "Relations: the Transformer block, and a first loss that aligns parts with words."),
        (("06", "07"), "A second such loss; then every word looks at every box, and what that costs."),
        (
            ("08", "09"),
            "The hardest negatives of the whole training set, and a first loss that learns from them. Plan "
            "projects.",
        ),
        (("09", "10"), "That loss term by term, with gradients by hand; from many vectors to one."),
        (
            ("11", "12"),
            "How many negatives to learn from; what an ensemble gains, and what a query costs. Projects: run "
            "the experiments, ask for help.",
        ),
        (("13", "14"), "Sets: more than one vector, and how they collapse; then slots that compete."),
        (
            ("14", "15"),
            "A similarity that trains all slots; what a contrastive loss leaves out, and the gradient that "
            "shows why.",
        ),
        (
            ("16", "17"),
            "A second loss, and the multiplier that holds it at a bound; then all systems side by side, and "
            "when one may be called better.",
        ),
        (
            ("18", "19"),
            "Full scale: costs, resuming, many GPUs; then from a folder to an engine. Projects: groups of "
            "four, or posters, show what was predicted and what came out.",
        ),
    ),
}

_CARD = re.compile(r"\*\*It takes\*\* about (half a|\d+) minutes? and (\d+) GB")


@dataclass(frozen=True)
class LessonPlan:
    """What an instructor needs to know of a notebook to plan with it.

    Attributes:
        stem: its file's name, such as "04_learning_to_rank".
        title: its first heading.
        reading: minutes to read it, by its words.
        cost: minutes and gigabytes that a run takes, as its card says; None if the card does not say.
        exercises: its exercises by their keys.
    """

    stem: str
    title: str
    reading: float
    cost: tuple[float, float] | None
    exercises: dict[str, Exercise]

    @property
    def number(self) -> str:
        """Its two digits."""
        return self.stem[:2]

    @property
    def working(self) -> int:
        """Minutes that its exercises take."""
        return sum(task.minutes for task in self.exercises.values())


def instructor_page(text: str) -> str:
    """Fill the placeholders of the instructor page, such as `{{ timings }}`.

    Raises:
        ValueError: a placeholder that nothing fills, or a table that the page has no place for.
    """
    tables = instructor_tables()
    asked = re.findall(r"\{\{ *(\w+) *\}\}", text)
    if odd := set(asked) ^ set(tables):
        raise ValueError(
            f"the instructor page and its tables differ in {min(odd)!r}; there are {', '.join(tables)}"
        )
    return re.sub(r"\{\{ *(\w+) *\}\}", lambda place: tables[place[1]], text)


def instructor_tables() -> dict[str, str]:
    """The instructor page's tables as MyST Markdown, by their placeholders."""
    lessons = {path.name[:2]: _plan_of(path) for path in notebooks()}
    in_book = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    pages = set(re.findall(r"notebooks/(\w+)", str(in_book)))
    named = _naming(lessons, pages)
    return {
        "timings": _timings_table(lessons, named),
        **{f"weeks_{length}": _weeks_table(length, lessons, named) for length in COURSES},
        "mistakes": _hints_list(lessons),
    }


def _plan_of(path: Path) -> LessonPlan:
    words, title, cost = 0, path.stem, None
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            for block in blocks(cell.source):
                words += len((block.source if isinstance(block, Directive) else block).split())
            heading = re.search(r"^# (.+)$", cell.source, re.MULTILINE)
            title = heading[1] if heading and title == path.stem else title
            if card := _CARD.search(cell.source):
                cost = 0.5 if card[1] == "half a" else float(card[1]), float(card[2])
        else:
            words += len(cell.source.split())
    return LessonPlan(
        path.stem,
        title,
        words / WORDS_A_MINUTE,
        cost,
        {key: task for key, task in EXERCISES.items() if key.startswith(f"{path.name[:2]}.")},
    )


def _naming(lessons: dict[str, LessonPlan], pages: set[str]) -> Callable[[str], str]:
    """Return what names a notebook, with a link if the book has it."""

    def named(number: str) -> str:
        lesson = lessons[number]
        words = f"{number} {_quoted(lesson.title)}"
        return f"[{words}](notebooks/{lesson.stem}.ipynb)" if lesson.stem in pages else words

    return named


def _timings_table(lessons: dict[str, LessonPlan], named: Callable[[str], str]) -> str:
    lines = [
        "| notebook | to run | memory | to read | exercises | to do them |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for number, lesson in lessons.items():
        cells = [named(number), "not measured yet", "–"]
        if lesson.cost is not None:
            minutes, gigabytes = lesson.cost
            cells[1:] = [f"{minutes:g}{GLUE}min", f"{gigabytes:g}{GLUE}GB"]
        cells += [f"{lesson.reading:.0f}{GLUE}min", str(len(lesson.exercises)), f"{lesson.working}{GLUE}min"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "To run and memory: as the notebook itself says, at tier lesson on two processor cores with no GPU.",
        f"To read: estimated at {WORDS_A_MINUTE} words and pieces of code a minute. To do the exercises: the",
        "sum of the minutes that each of them says.",
    ]
    return "\n".join(lines)


def _weeks_table(length: int, lessons: dict[str, LessonPlan], named: Callable[[str], str]) -> str:
    lines = ["| week | notebooks | to read and do | what for |", "| --- | --- | --- | --- |"]
    every = [number for numbers, _ in COURSES[length] for number in numbers]
    begun: set[str] = set()
    for week, (numbers, purpose) in enumerate(COURSES[length], start=1):
        minutes, shown = 0.0, []
        for number in numbers:
            halves = every.count(number)
            minutes += (lessons[number].reading + lessons[number].working) / halves
            half = f", {'second' if number in begun else 'first'} half" if halves == 2 else ""
            shown.append(f"{named(number)}{half}")
        begun |= set(numbers)
        time = f"{minutes / 60:.1f}{GLUE}h" if numbers else "–"
        lines.append(f"| {week} | {'; '.join(shown) or '–'} | {time} | {purpose} |")
    return "\n".join(lines)


def _hints_list(lessons: dict[str, LessonPlan]) -> str:
    lines = []
    for lesson in lessons.values():
        if lesson.exercises:
            lines += [f"### {lesson.number} {_quoted(lesson.title)}", ""]
        for key, task in lesson.exercises.items():
            minutes, points = counted(task.minutes, "minute"), counted(len(task.trials), "point")
            facts = f"`{key}`; {task.kind}, about {minutes}, {points}"
            lines += [f"**{_quoted(task.title)}** ({facts})", ""]
            lines += [f"- Often: {_quoted(mistake.hint)}" for mistake in task.mistakes]
            lines += [f"- Point {point}: {_quoted(trial.hint)}" for point, trial in enumerate(task.trials, 1)]
            lines += [""]
    return "\n".join(lines).rstrip()


def _quoted(text: str) -> str:
    """Plain words as Markdown that shows just these words."""
    return re.sub(r"([\\`*_{}\[\]<>$|#~])", r"\\\1", text)
