"""What an instructor should read: cells that look for what they should not, and what stopped a cell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import nbformat
from nbformat import NotebookNode

from course.batch import notebooks
from course.checks import EXERCISES
from course.grading.parts import BEGINS, key_of, with_import, without_marks, without_parts
from course.grading.ready_made import ready_made_in

LONGEST_MESSAGE = 400  # characters
LONGEST_QUOTE = 40
# What a learner's own code has no reason to name, and what it could be after.
_OUTSIDE: Mapping[str, str] = {
    "the grader's parts": (
        r"vsecore\.course\.grading|vsecore\.course\.checks(?! import (?:check|exercise)\b)|"
        r"vsecore\.course import .*\b(?:checks|grading)\b|\b(?:EXERCISES|Judgement|judge_answer|hand_over)\b|"
        r"\bdef check\b|\bcheck\s*=(?!=)"
    ),
    "answers or solutions kept elsewhere": (
        r"\b(?:from|import)\s+(?:tests|answers)\b|[\"'/](?:tests|answers)\b|\btests[./]|"
        r"\.ipynb\b|[\"'/]notebooks?\b"
    ),
    "what Python has loaded, and where from": (
        r"\bsys\.(?:modules|path|_getframe)\b|\b__(?:import|file|path|globals|closure|code|subclasses|mro|bases|"
        r"dict)__\b|\b(?:import_module|get_ipython|inspect|gc|weakref|pickle|ctypes)\b|"
        r"(?<![.\w])(?:exec|eval|vars|globals|locals|setattr)\(|\b(?:Tensor|Module)\.\w+\s*=(?!=)"
    ),
    "other processes, or the environment": (
        r"\bsubprocess\b|\bmultiprocessing\b|\b_exit\b|\bos\.(?:fork|kill|exec|spawn|system|environ|getppid|setsid)|"
        r"/proc\b|\bsignal\.|^\s*[!%]"
    ),
    "what computes elsewhere than where it is called": (
        r"\bthreading\b|\b(?:import [^\n]*|from )\b(?:queue|_thread|asyncio|contextvars|concurrent)\b|"
        r"\btorch\.(?:library|ops|overrides)\b|\bfrom torch import [^\n]*\b(?:library|ops|overrides)\b|"
        r"\bcustom_op\b|\bTorch(?:Function|Dispatch)Mode\b|__torch_(?:function|dispatch)__|\bshowwarning\b"
    ),
    "every exception, also the interrupt": r"\bexcept\s*:|\bBaseException\b|\bKeyboardInterrupt\b",
}


@dataclass(frozen=True)
class Cell:
    """A code cell as its learner knows it.

    Attributes:
        number: its number in the learner's own file, Markdown counted, from 1.
        source: its code.
    """

    number: int
    source: str

    def __str__(self) -> str:
        """Its number, and how it begins."""
        lines = [line.strip() for line in self.source.splitlines() if line.strip()]
        first = next((line for line in lines if not line.startswith("#")), "")
        return f"Cell {self.number} ({one_line(first, LONGEST_QUOTE)})" if first else f"Cell {self.number}"


def one_line(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """A learner's text on one line: nothing moves a terminal's cursor, and the end of a long one is cut."""
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def suspicions(cells: Iterable[Cell], exercises: Iterable[str] = ()) -> list[str]:
    """What to read before a grade is trusted: copies of solutions, cells that look outside or name too much.

    Args:
        cells: a learner's.
        exercises: the keys of those that they should hold. Cells that the learner changed are searched for
            what does their work already.
    """
    remarks, copied, maybe_chance = [], [], []
    exercises = list(exercises)
    for cell in cells:
        if solution := _published_solutions().get(_shape(cell.source)):
            if solution.says_much:
                copied.append(solution.exercise)
            elif not solution.says_little:
                maybe_chance.append(solution.exercise)
        for what, pattern in _OUTSIDE.items():
            if named := re.search(pattern, cell.source, re.MULTILINE):
                remarks.append(f"{cell} names {what}: {one_line(named[0], LONGEST_QUOTE)!r}. Read it.")
        if _shape(cell.source) not in _published_cells():
            names, keys = ready_made_in(cell.source, exercises, _published_lines())
            if names:
                does = "does" if len(names) == 1 else "do"
                remarks.append(
                    f"{cell} names {_listed(names)}, which {does} the work of {_listed(keys)}. Read it."
                )
    if copied:
        remarks.append(f"Word for word the published solution: {', '.join(copied)}.")
    if maybe_chance:
        remarks.append(
            f"Word for word the published solution: {', '.join(maybe_chance)}. "
            "In so short an answer that may be chance."
        )
    return remarks


def what_stopped(cells: Mapping[int, Cell], trouble: Mapping[int, str]) -> list[str]:
    """A line for each cell that was stopped; the cells that then lack a name of it share one more.

    Args:
        cells: the cells by their places.
        trouble: what stopped each, by its place, in the order of the run; "" if nothing did.
    """
    remarks: list[tuple[int, str]] = []
    causes: dict[int, int] = {}
    followed: dict[int, list[tuple[int, str]]] = {}
    for place, why in trouble.items():
        missing = re.match(r"NameError: name '(\w+)' is not defined", why)
        makers = [other for other in causes if missing and missing[1] in _bound(cells[other].source)]
        if missing and makers:
            causes[place] = causes[makers[-1]]
            followed.setdefault(causes[place], []).append((place, missing[1]))
        elif why:
            causes[place] = place
            remarks.append((place, f"{cells[place]}: {one_line(why)}"))
    for cause, lacking in followed.items():
        numbers = _listed([str(cells[place].number) for place, _ in lacking])
        names = _listed(list(dict.fromkeys(name for _, name in lacking)))
        which = "Cell" if len(lacking) == 1 else "Cells"
        said = f"{which} {numbers} then lacked {names}, as a consequence of cell {cells[cause].number}."
        remarks.append((cause, said))
    return [said for _, said in sorted(remarks, key=lambda remark: remark[0])]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _bound(source: str) -> set[str]:
    """The names that a cell would have given a value."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"^(?:def |class )?(\w+)", source, re.MULTILINE))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names


@dataclass(frozen=True)
class _Solution:
    """A published solution.

    Attributes:
        exercise: the key of what it solves.
        lines: how many of its lines are the learner's to write.
    """

    exercise: str
    lines: int

    @property
    def says_little(self) -> bool:
        """Whether anybody who answers rightly may well write just this: an option, or a number."""
        return self.lines == 1 and EXERCISES[self.exercise].kind in ("predict", "compute")

    @property
    def says_much(self) -> bool:
        """Whether nobody writes just this by chance: three lines of code, or sentences."""
        return self.lines >= 3 or EXERCISES[self.exercise].kind == "explore"


@cache
def _published_solutions() -> dict[str, _Solution]:
    """The published solutions by their shapes."""
    found = {}
    for source in _published_code():
        if key := key_of(source):
            gone = source.count("\n") - without_parts(source).count("\n")  # a part, with its second mark
            found[_shape(without_marks(source))] = _Solution(key, gone - 1 if gone else source.count(BEGINS))
    return found


@cache
def _published_cells() -> frozenset[str]:
    """The shapes of all code cells as they are published, and as they are handed out."""
    sources = _published_code()
    handed_out = [without_parts(with_import(source)) for source in sources]
    solved = [without_marks(with_import(source)) for source in sources]
    return frozenset(map(_shape, [*sources, *handed_out, *solved]))


@cache
def _published_lines() -> frozenset[str]:
    return frozenset(line.strip() for source in _published_code() for line in source.split("\n"))


@cache
def _published_code() -> tuple[str, ...]:
    return tuple(
        cell.source
        for path in notebooks()
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
    )


def is_tagged(cell: NotebookNode, tag: str) -> bool:
    """Whether a code cell has a tag."""
    return cell["cell_type"] == "code" and tag in cell["metadata"].get("tags", [])


def _shape(source: str) -> str:
    """Code without its comments and layout; unchanged if it is no Python."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
