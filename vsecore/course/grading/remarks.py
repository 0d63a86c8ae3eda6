"""What an instructor should read: cells that look for what they should not, and what stopped a cell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import nbformat
from nbformat import NotebookNode

from vsecore.course.batch import notebooks
from vsecore.course.grading.parts import key_of, without_marks

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
        r"(?<![.\w])(?:exec|eval|vars|setattr)\(|\b(?:Tensor|Module)\.\w+\s*=(?!=)"
    ),
    "other processes, or the environment": (
        r"\bsubprocess\b|\bmultiprocessing\b|\b_exit\b|\bos\.(?:fork|kill|exec|spawn|system|environ|getppid|setsid)|"
        r"/proc\b|\bsignal\.|^\s*[!%]"
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


def suspicions(cells: Iterable[Cell]) -> list[str]:
    """What to read before a grade is trusted: copies of published solutions, cells that look outside."""
    remarks, published = [], []
    for cell in cells:
        if key := _published_solutions().get(_shape(cell.source)):
            published.append(key)
        for what, pattern in _OUTSIDE.items():
            if named := re.search(pattern, cell.source, re.MULTILINE):
                remarks.append(f"{cell} names {what}: {one_line(named[0], LONGEST_QUOTE)!r}. Read it.")
    if published:
        remarks.append(
            f"Word for word the published solution: {', '.join(published)}. "
            "In a short answer that may be chance."
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


def in_quotes(text: str, source: str) -> bool:
    """Whether code holds a text in quotes, such as an exercise's key."""
    return f'"{text}"' in source or f"'{text}'" in source


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


@cache
def _published_solutions() -> dict[str, str]:
    """The shape of each published solution, and the exercise that it solves."""
    found = {}
    for path in notebooks():
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and (key := key_of(cell.source)):
                found[_shape(without_marks(cell.source))] = key
    return found


def is_tagged(cell: NotebookNode, tag: str) -> bool:
    """Whether a code cell has a tag."""
    return cell["cell_type"] == "code" and tag in cell["metadata"].get("tags", [])


def _shape(source: str) -> str:
    """Code without its comments and layout; unchanged if it is no Python."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
