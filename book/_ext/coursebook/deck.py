"""A deck of slides as one HTML file that needs no network: reveal.js moves it, MathJax sets its formulas.

Both come with packages that are installed anyway, sphinx-revealjs and sphinx-mathjax-offline. The template
beside this file says how a deck looks.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from course.batch import notebooks
from course.grading.plain import citations
from coursebook.portions import parser
from coursebook.slides import Code, Part, Picture, Printed, Slide, slides_of
from vsecore.data.files import write_atomically
from vsecore.paths import ROOT

SLIDES_FOLDER = ROOT / "build" / "slides"
TEMPLATE = "deck.html.jinja"


def write_slides(names: Iterable[str] = (), folder: Path = SLIDES_FOLDER) -> list[Path]:
    """Write the slides of stored notebooks, each deck a file that a browser opens without a network.

    Args:
        names: beginnings of notebooks' names, such as "04"; none: all.
        folder: where the decks go; an older deck is written over.

    Returns:
        The decks.

    Raises:
        ValueError: a name fits no notebook, or a notebook does not begin with a heading.
    """
    cite, made = citations(), []
    for path in notebooks(names):
        try:
            slides = slides_of(nbformat.read(path, as_version=4), cite)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error
        made.append(folder / f"{path.stem}.html")
        with write_atomically(made[-1], "w") as file:
            file.write(deck(slides))
    return made


def deck(slides: Sequence[Slide]) -> str:
    """The HTML of a deck: a column for each heading of the notebook, the slides below it underneath.

    Args:
        slides: what `slides_of` gives, the first one with the title.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    reveal = resources.files("sphinx_revealjs") / "_static" / "revealjs"
    mathjax = resources.files("sphinx-mathjax-offline") / "static" / "mathjax" / "tex-svg.js"
    starts = [place for place, slide in enumerate(slides) if slide.level < 3]
    return environment.get_template(TEMPLATE).render(
        title=slides[0].title,
        columns=[slides[begin:end] for begin, end in pairwise([*starts, len(slides)])],
        words=_words,
        line=_line,
        shown=_shown,
        styles=[
            Markup((reveal / "dist" / name).read_text(encoding="utf-8"))
            for name in ("reset.css", "reveal.css")
        ],
        code_style=Markup(_formatter().get_style_defs()),
        scripts=[
            _inline(file.read_text(encoding="utf-8"))
            for file in (reveal / "dist" / "reveal.js", reveal / "plugin" / "notes" / "notes.js", mathjax)
        ],
    )


def _inline(script: str) -> Markup:
    """A script as it may stand in a page, where a closing tag within a text would end it."""
    return Markup(re.sub(r"</(script)", r"<\\/\1", script, flags=re.IGNORECASE))


def _formatter() -> HtmlFormatter[str]:
    return HtmlFormatter(style="a11y-high-contrast-light", nobackground=True)


def _shown(part: Part) -> Markup:
    """The HTML of a part of a slide."""
    if isinstance(part, Picture):
        return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(part.png, part.alt)
    if isinstance(part, Printed):
        return Markup('<pre class="printed">{}</pre>').format(part.text)
    if isinstance(part, Code):
        return Markup(highlight(part.source, PythonLexer(), _formatter()))
    return _words(part.text)


def _words(text: str) -> Markup:
    return Markup(_READER.render(text))


def _line(text: str) -> Markup:
    return Markup(_READER.renderInline(text))


def _without_ways_out(state: StateCore) -> None:
    """Make words of links to other notebooks and pages, which do not lie beside a deck."""
    for block in state.tokens:
        inside: list[bool] = []
        kept: list[Token] = []
        for token in block.children or []:
            if token.type == "link_open":
                inside.append(bool(re.match(r"https?:", str(token.attrGet("href")))))
            leads = inside.pop() if token.type == "link_close" else bool(inside and inside[-1])
            if token.type not in ("link_open", "link_close") or leads:
                kept.append(token)
        if block.children is not None:
            block.children = kept


def _formula(renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: object) -> str:
    """A formula between the marks that MathJax looks for."""
    content = html.escape(tokens[index].content.strip())
    return f"\\({content}\\)" if tokens[index].type == "math_inline" else f"<p>\\[{content}\\]</p>\n"


_READER = parser()
_READER.core.ruler.push("without_ways_out", _without_ways_out)
for _kind in ("math_inline", "math_inline_double", "math_block", "math_block_label"):
    _READER.add_render_rule(_kind, _formula)
