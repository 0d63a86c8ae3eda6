"""How much text a slide shows: the gist of a paragraph, and portions of what is too long for one slide."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

MOST_WORDS = 60  # of prose on a slide
SHORT = 40  # words: such a paragraph is shown whole
LEAST_LETTERS = 50  # "Look at the left panel." says nothing alone

# No sentence ends within a formula, code, emphasis or brackets, nor with these abbreviations.
_NO_END = re.compile(r"\$[^$]*\$|`[^`]*`|\*\*[^*]+\*\*|\*[^*]+\*|\([^()]*\)|\b(?:e\.g|i\.e|et al|vs)\.")
_END = re.compile(r"[.!?][\"”’]*(?=\s|$)")
_NO_PROSE = re.compile(r"\$\$.*?\$\$|^(`{3,}).*?^\1|^\|.*?$|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE)
_FORMULA = re.compile(r"\$[^$\n]+\$")


def parser() -> MarkdownIt:
    """What reads the notebooks' Markdown: CommonMark with tables and formulas between dollars."""
    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, allow_labels=True)


def pieces(text: str) -> Iterator[tuple[Token, str]]:
    """The paragraphs, headings, formulas, lists and tables of a text: how each begins, and its lines."""
    lines = text.split("\n")
    for token in parser().parse(text):
        if token.level == 0 and token.map and token.nesting >= 0:
            yield token, "\n".join(lines[slice(*token.map)]).strip()


def words_in(text: str) -> int:
    """How many words of a text are read as prose: none of a table, of code or of a formula on its own."""
    return len(re.findall(r"\S*\w\S*", _FORMULA.sub("x", _NO_PROSE.sub(" ", text))))


def gist(paragraph: str) -> str:
    """A short paragraph whole; of a long one the first sentence, its point, and the last, its result.

    A first sentence of a few words takes the next one along. Without the last one if both are too long.
    """
    flat = " ".join(paragraph.split())
    if words_in(flat) <= SHORT:
        return flat
    ends = _ends(flat)
    first = next((place for place, end in enumerate(ends) if end >= LEAST_LETTERS), len(ends) - 1)
    said = flat[: ends[first]]
    announces = flat[-1:] not in (*'.!?)"”’',)
    if first < len(ends) - 1 and (announces or words_in(said + flat[ends[-2] :]) <= MOST_WORDS):
        between = "" if first == len(ends) - 2 else " …"
        said += between + flat[ends[-2] :]
    return said


def portions(text: str, before: int = 0) -> list[str]:
    """Split a text so that each part fits on a slide, and all are about equally long.

    It is split between its paragraphs and between the items of its lists. Only a paragraph that is too long
    for a slide is split between its sentences.

    Args:
        text: Markdown.
        before: the words that the first slide has already.

    Returns:
        The parts in their order, at least one. A part has more than `MOST_WORDS` only if it cannot be split.
    """
    units = list(_units(text))
    fewest = len(_packed(units, before, MOST_WORDS))
    limits = range(1, MOST_WORDS + 1)
    return next(parts for limit in limits if len(parts := _packed(units, before, limit)) == fewest)


def _packed(units: list[tuple[str, str]], before: int, limit: int) -> list[str]:
    """Join units until the next one would be too much."""
    parts: list[str] = []
    taken = before
    for gap, unit in units:
        count = words_in(unit)
        if parts and taken + count <= limit:
            parts[-1] += gap + unit
        else:
            taken = 0 if parts else before
            parts.append(unit)
        taken += count
    return parts or [""]


def _units(text: str) -> Iterator[tuple[str, str]]:
    """What a slide can begin with, each after the space that parts it from what stands before it."""
    for token, piece in pieces(text):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            gap = "\n\n"
            for item in _items(piece):
                yield gap, item
                gap = "\n"
        elif token.type == "paragraph_open" and words_in(piece) > MOST_WORDS:
            gap, begun = "\n\n", 0
            for end in _ends(piece):
                yield gap, piece[begun:end].strip()
                gap, begun = " ", end
        else:
            yield "\n\n", piece


def _items(text: str) -> Iterator[str]:
    """The items of a list, with their marks."""
    lines = text.split("\n")
    for token in parser().parse(text):
        if token.type == "list_item_open" and token.level == 1 and token.map:
            yield "\n".join(lines[slice(*token.map)]).strip()


def _ends(text: str) -> list[int]:
    """Where the sentences of a paragraph end."""
    hidden = _NO_END.sub(lambda found: "x" * len(found[0]), text)
    ends = [found.end() for found in _END.finditer(hidden)]
    return ends if ends and ends[-1] >= len(text) else [*ends, len(text)]
