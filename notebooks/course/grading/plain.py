"""Turn the book's Markdown (MyST) into the plain Markdown that every notebook program shows.

The stored notebooks are also the pages of the book, so their text holds what only the book understands:
exercises, boxes, and references to papers.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pybtex.database import parse_file
from pybtex.richtext import Text

from course.checks import EXERCISES
from course.checks.comparing import Gradient
from course.wording import counted
from vsecore.paths import ROOT

_BOX = re.compile("admonition|attention|caution|danger|error|hint|important|note|tip|warning")
_FENCE = re.compile(r"(?P<fence>`{3,}|~{3,}|:{3,})\s*(?:\{(?P<name>[\w:-]+)\})?(?P<argument>[^`]*)")
_BOOK_PAGE = re.compile(r"\[([^\]]+)\]\(\.\./[\w/]+\.md(?:#[\w-]*)?\)")
_ROLE = re.compile(r"(?<!`)\{(cite(?::[pt])?|ref|numref|eq|doc|term|math|prf:ref)\}`([^`]+)`")


@dataclass(frozen=True)
class Directive:
    """A fenced block of a Markdown text: of MyST if it has a name, of code or nothing if not.

    The argument stands behind the name, and the options are the `:name: value` lines at its beginning; the
    body has the other lines between the fences, and the source all of them, as they were written.
    """

    name: str
    argument: str
    options: dict[str, str]
    body: tuple[str, ...]
    source: str


def blocks(text: str) -> Iterator[str | Directive]:
    """Split a Markdown text into stretches of text and fenced blocks, in order.

    A fence that is never closed reaches to the end of the text, as in CommonMark.
    """
    lines = text.split("\n")
    row = begun = 0  # begun: the first line that was not yet given
    while row < len(lines):
        opening = _FENCE.fullmatch(lines[row])
        if opening is None:
            row += 1
            continue
        if row > begun:
            yield "\n".join(lines[begun:row])
        closing = re.compile(rf"{opening['fence']}{opening['fence'][0]}*\s*")
        last = next((at for at in range(row + 1, len(lines)) if closing.fullmatch(lines[at])), len(lines))
        body, options = lines[row + 1 : last], {}
        while opening["name"] and body and (option := re.fullmatch(r":([\w-]+):\s*(.*)", body[0])):
            options[option[1]] = option[2]
            body = body[1:]
        source = "\n".join(lines[row : last + 1])
        yield Directive(opening["name"] or "", opening["argument"].strip(), options, tuple(body), source)
        row = begun = last + 1
    if row > begun:
        yield "\n".join(lines[begun:])


def plain_markdown(text: str) -> str:
    """Say a text of the book, without solutions, in plain Markdown.

    Exercises get a heading, boxes become quoted blocks, citations names and years, and other references
    words, those to the book's own pages too. What it does not know stays as it is; a link to another notebook
    does, which JupyterLab opens.
    """
    made: list[str] = []
    for block in blocks(text):
        if isinstance(block, str):
            said = _ROLE.sub(lambda role: _words(role[1], " ".join(role[2].split())), block)
            made.append(_BOOK_PAGE.sub(r"\1 of the book", said))
            continue
        if block.name != "exercise" and not _BOX.fullmatch(block.name):
            made.append(block.source)
            continue
        body = plain_markdown("\n".join(block.body))
        if block.name == "exercise":
            key = key_of_label(block.options.get("label", ""))
            made += [f"### Exercise: {block.argument}", ""]
            made += [facts_of(key), ""] if key in EXERCISES else []
            made += [body] if body.strip() else []
        else:
            title = block.argument if block.name == "admonition" else block.name.capitalize()
            if "dropdown" in block.options.get("class", ""):
                made.append(folded(title, body))
            else:
                made += [f"> {line}".rstrip() for line in f"**{title}**\n\n{body}".split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(made)).strip("\n")


def folded(title: str, body: str) -> str:
    """Markdown that opens at a click on its title. The room below parts it from what follows."""
    opening = f'<details style="margin-bottom: 1em">\n<summary>{html.escape(title)}</summary>'
    return f"{opening}\n\n{body.strip()}\n\n</details>"


def key_of_label(label: str) -> str:
    """The key of an exercise by its label in the book: that of "ex-10-token" is "10.token"."""
    return label.strip().removeprefix("ex-").replace("-", ".", 1)


def facts_of(key: str) -> str:
    """An exercise's key, what it asks for, how hard it is, its minutes and what it is worth, in a line.

    It also says if the last point is for gradients, since the exercise itself may not.
    """
    task = EXERCISES[key]
    minutes, points = counted(task.minutes, "minute"), counted(len(task.trials), "point")
    trained = any(isinstance(trial.check, Gradient) for trial in task.trials)
    flow = "; gradients must flow through it" if trained else ""
    return f"*{key}: {task.kind}, {task.difficulty}; about {minutes}; {points}{flow}.*"


def _words(role: str, content: str) -> str:
    """What a role says without the book: `{ref}`the title <label>`` is "the title"."""
    if role.startswith("cite"):
        return cite(content)
    if role == "math":
        return f"${content}$"
    return re.sub(r"\s*<[^>]*>$", "", content)


def cite(keys: str, bibliography: Path = ROOT / "book" / "references.bib") -> str:
    """Say keys of a BibTeX file, parted by commas, as "(Chen et al., 2020; Yan, 2019)".

    Each paper is a link to where it can be read, if the file says where; an unknown key is a ValueError.
    """
    entries, said = _entries(bibliography), []
    for key in (part.strip() for part in keys.split(",")):
        if key not in entries:
            raise ValueError(f"{bibliography.name} has no entry {key!r}, which a notebook cites")
        people = entries[key].persons.get("author") or entries[key].persons.get("editor") or []
        names = [" ".join([*person.prelast_names, *person.last_names]) for person in people]
        names = [str(Text.from_latex(name)) for name in names]  # LaTeX's accents and braces undone
        who = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        words = ", ".join(part for part in (who, entries[key].fields.get("year", "")) if part)
        url, doi = (entries[key].fields.get(field, "") for field in ("url", "doi"))
        address = url or (f"https://doi.org/{doi}" if doi else "")
        said.append(f"[{words}]({address})" if address else words)
    return f"({'; '.join(said)})"


@cache
def _entries(bibliography: Path) -> Any:
    return parse_file(str(bibliography), bib_format="bibtex").entries
