"""Tables, and numbers with what they count, as the pages of evidence write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], style: str = "") -> str:
    """A Markdown table, if need be of a class of the stylesheet's; a bar within a cell stays one."""
    lines = [heads, ["---"] * len(heads), *rows]
    text = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
    return f":::{{table}}\n:class: {style}\n\n{text}\n:::" if style else text


def signed(value: float) -> str:
    """A difference with its sign; none that is 0 is negative."""
    return f"{round(value, 1) + 0.0:+.1f}"


def seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def trainings(count: int) -> str:
    return f"{count} training{'' if count == 1 else 's'}"
