"""Slides from a stored notebook: which words, code and figures an instructor shows, and which are notes.

A slide has a title, what leads to its one object, and that object: a figure, a table, a few lines of code. Of
a paragraph the slide shows the first sentence. The whole paragraph is in the speaker's notes, and so are
folded boxes. A slide holds about sixty words (see `portions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from markdown_it.token import Token
from nbformat import NotebookNode

from course.checks import EXERCISES
from course.grading.parts import key_of, without_parts
from course.grading.plain import Directive, blocks, facts_of, key_of_label, plain_markdown
from coursebook.portions import MOST_WORDS, gist, pieces, portions, words_in

LONGEST_CODE = 15  # lines that people at the back can read
LONGEST_PRINT = 12
MOST_SENTENCES = 4  # on a slide without an object
MOST_BESIDE = 2  # above an object
CODE_BESIDE = 4  # lines of code above the figure that they make


@dataclass(frozen=True)
class Words:
    """Markdown; `whole` where it is a table, a list or a formula rather than a sentence."""

    text: str
    whole: bool = False


@dataclass(frozen=True)
class Code:
    """Lines of Python."""

    source: str


@dataclass(frozen=True)
class Printed:
    """What a cell printed."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A figure as the base64 text of a PNG, and what is said of it to who cannot see it."""

    png: str
    alt: str


Part = Words | Code | Printed | Picture


@dataclass
class Slide:
    """A slide.

    Attributes:
        title: a line of Markdown.
        level: 1 for the first slide, 2 for a heading of the notebook, 3 for what stands below it.
        parts: what it shows, from top to bottom.
        notes: what the speaker sees, as paragraphs of Markdown.
        full: whether whatever comes next needs a slide of its own.
    """

    title: str
    level: int
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    full: bool = False

    @property
    def words(self) -> int:
        """How many words of prose it shows."""
        return sum(words_in(part.text) for part in self.parts if isinstance(part, Words))


def slides_of(notebook: NotebookNode, cite: Callable[[str], str]) -> list[Slide]:
    """Turn a notebook into slides.

    Solutions and folded code are left out, and the learner's part of an exercise is cut out of its cell.
    Hints and folded boxes are in the speaker's notes. Every figure is shown, also one that an answer's cell
    made.

    Args:
        notebook: a stored notebook, with its outputs; it is not changed.
        cite: see `grading.plain.citations`.

    Raises:
        ValueError: the notebook does not begin with a heading, a part for the learner begins or ends where
            it should not, or the bibliography lacks a cited paper.
    """
    deck = _Deck()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for block in blocks(cell.source):
                _tell(deck, block, cite)
        elif cell.cell_type == "code":
            _show(deck, cell)
    return [slide for slide in deck.slides if slide.parts or slide.level < 3]


class _Deck:
    """The slides so far, and how a sentence or an object joins them."""

    def __init__(self) -> None:
        self.slides: list[Slide] = []
        self.title = ""  # of the heading that we are below

    def begin(self, title: str, level: int) -> None:
        if level < 3:
            self.title = title
        self.slides.append(Slide(title, level))

    def last(self) -> Slide:
        if not self.slides:
            raise ValueError("the notebook does not begin with a heading, which its first slide needs")
        if self.slides[-1].full:
            self.begin(self.title, 3)
        return self.slides[-1]

    def close(self) -> None:
        """End a slide that shows something: what comes next gets its own."""
        if self.slides and self.slides[-1].parts:
            self.slides[-1].full = True

    def say(self, sentence: str, paragraph: str) -> None:
        """Add a sentence; one that says what a figure shows stands below the figure."""
        slide = self.slides[-1] if self.slides else self.last()
        fits = not slide.parts or slide.words + words_in(sentence) <= MOST_WORDS
        said_of_figure = slide.parts and isinstance(slide.parts[-1], Picture) and sentence[-1:] in ".!?)"
        if not (said_of_figure and fits):
            slide = self.last()
            if len(slide.parts) >= MOST_SENTENCES or not fits:
                self.close()
                slide = self.last()
        slide.parts.append(Words(sentence))
        slide.notes.append(paragraph)

    def note(self, text: str) -> None:
        """Add to what only the speaker sees."""
        slide = self.slides[-1] if self.slides else self.last()
        slide.notes.append(text)

    def tell(self, text: str) -> None:
        """Add a list, a box, a formula; what the slide has no room for goes on more, under the same title."""
        slide = self.last()
        title = slide.title
        if slide.parts and slide.words + words_in(text) > MOST_WORDS:
            leads = slide.parts.pop() if _announces(slide.parts[-1]) else None
            if slide.parts:
                self.begin(title, 3)
            self.slides[-1].parts += [leads] if leads else []
        for number, portion in enumerate(portions(text, self.slides[-1].words)):
            if number:
                self.begin(title, 3)
            self.slides[-1].parts.append(Words(portion, whole=True))

    def put(self, part: Part) -> None:
        """Put an object below the words that lead to it, and no more than these."""
        slide = self.last()
        above = slide.parts[-1] if slide.parts else None
        if isinstance(above, Code) and (
            isinstance(part, Printed) or (above.source.count("\n") < CODE_BESIDE and len(slide.parts) < 3)
        ):
            slide.parts.append(part)
        else:
            if len(slide.parts) > MOST_BESIDE:
                leads = slide.parts.pop() if _announces(slide.parts[-1]) else None
                slide.full = True
                slide = self.last()
                slide.parts += [leads] if leads else []
            slide.parts.append(part)
        # What code makes may still follow it.
        slide.full = not isinstance(part, Code)


def _announces(part: Part) -> bool:
    return isinstance(part, Words) and not part.whole and part.text.endswith(":")


# ---------------------------------------------------------------- Markdown cells


def _tell(deck: _Deck, block: str | Directive, cite: Callable[[str], str]) -> None:
    """Add a stretch of text or a fenced block."""
    if isinstance(block, str):
        for piece in pieces(plain_markdown(block, cite)):
            _tell_piece(deck, piece)
    elif block.name == "exercise":
        key = key_of_label(block.options.get("label", ""))
        deck.begin(f"Try it: {block.argument}", 3)
        if body := plain_markdown("\n".join(_unfolded(block)), cite).strip():
            deck.tell(body)
        if key in EXERCISES:
            deck.last().notes.append(facts_of(key))
    elif block.name and block.name != "solution":
        title = block.argument if block.name == "admonition" else block.name.capitalize()
        body = plain_markdown("\n".join(block.body), cite)
        text = f"**{title}**\n\n{body}"
        if block.name == "hint" or _is_folded(block):
            deck.note(text)
        else:
            deck.close()
            deck.tell(text)
            deck.close()
    elif not block.name and len(block.body) <= LONGEST_CODE:
        deck.put(Code("\n".join(block.body)))


def _unfolded(box: Directive) -> Iterator[str]:
    """The lines of a box without the folded boxes in it."""
    for block in blocks("\n".join(box.body)):
        if isinstance(block, str):
            yield block
        elif block.name not in ("hint", "solution") and not _is_folded(block):
            yield block.source


def _is_folded(box: Directive) -> bool:
    return "dropdown" in box.options.get("class", "")


def _tell_piece(deck: _Deck, piece: tuple[Token, str]) -> None:
    token, text = piece
    if token.type == "heading_open":
        deck.begin(text.lstrip("# "), min(int(token.tag[1:]), 3))
    elif token.type == "paragraph_open":
        deck.say(gist(text), text)
    elif token.type == "table_open":
        deck.put(Words(text, whole=True))
    elif token.type != "hr":
        deck.tell(text)


# ---------------------------------------------------------------- code cells


def _show(deck: _Deck, cell: NotebookNode) -> None:
    """Add a cell's code if it is open and short, and what the cell made."""
    tags = set(cell.metadata.get("tags", []))
    if tags & {"parameters", "injected-parameters", "remove-cell"}:
        return
    key = key_of(cell.source)
    source = without_parts(cell.source) if key else cell.source
    source = re.sub(r"^from vsecore\.course\.checks import .*\n+", "", source, flags=re.M).strip()
    made = [part for output in cell.outputs if (part := _made(output))]
    if key:  # it belongs to the task on the slide before it
        deck.last().parts.append(Code(source))
        deck.close()
    elif not (
        tags & {"hide-input", "hide-cell", "remove-input"}
        or source.count("\n") >= LONGEST_CODE
        or any(isinstance(part, Words) for part in made)  # code that only asks for a table
    ):
        deck.put(Code(source))
    if not tags & {"hide-output", "remove-output"}:
        for part in made:
            if isinstance(part, Words) and words_in(part.text):
                deck.close()
                deck.tell(part.text)
            elif isinstance(part, Picture) or not key:
                deck.put(part)
    deck.close()


def _made(output: NotebookNode) -> Part | None:
    """What a slide shows of an output: a figure, a table, a few printed lines."""
    data = output.get("data", {})
    if "image/png" in data:
        return Picture(data["image/png"].replace("\n", ""), data.get("text/plain", ""))
    if "application/vnd.jupyter.widget-view+json" in data:
        return None
    if "text/markdown" in data:
        return Words(data["text/markdown"], whole=True)
    text = output.get("text", "") if output.get("name") == "stdout" else data.get("text/plain", "")
    return Printed(text.rstrip()) if text.strip() and text.count("\n") < LONGEST_PRINT else None
