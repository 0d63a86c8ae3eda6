"""Slides of a stored notebook through nbconvert and reveal.js: each deck is one file that needs no network.

A heading begins a slide, and so does what follows a figure, and text beyond `MOST_WORDS`. Hints and folded
boxes are the speaker's notes. Solutions, folded or long code and widgets are left out.
"""

import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import nbformat
from nbconvert.exporters import SlidesExporter
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from course.batch import notebooks
from course.grading.copies import learner_copy
from course.grading.parts import key_of
from vsecore.data.files import write_whole
from vsecore.paths import ROOT

SLIDES_FOLDER = ROOT / "build" / "slides"
MOST_WORDS = 80
LONGEST_CODE = 15  # lines that people at the back can read

_ADDRESS = re.compile(r'<(?:link|script) [^>]*"(revealjs|mathjax)/([^"]+)"[^>]*>(?:</script>)?')
# A slide may end between paragraphs, but not in a folded box or a fence.
_PARAGRAPH = re.compile(r"(?ms)<details\b.*?</details>|^(`{3,}).*?^\1|(?:(?!\n\s*\n|^<details\b|^```).)+")


def write_slides(names: Iterable[str] = (), folder: Path = SLIDES_FOLDER) -> list[Path]:
    """Write the slides of stored notebooks, and return the decks; an older deck is written over."""
    bare = ("exclude_input_prompt", "exclude_output_prompt", "exclude_anchor_links")
    options = {"reveal_url_prefix": "revealjs", "reveal_theme": "white", **dict.fromkeys(bare, True)}
    template = (Path(__file__).parent / "deck.html.jinja").read_text(encoding="utf-8")
    exporter = SlidesExporter(raw_template=template, **options)
    made = []
    for path in notebooks(names):
        page, _ = exporter.from_notebook_node(slides_of(nbformat.read(path, as_version=4)))
        made.append(folder / f"{path.stem}.html")
        write_whole(made[-1], _ADDRESS.sub(_inlined, page))
    return made


def _inlined(link: re.Match[str]) -> str:
    """A style sheet or script as it may stand in a page: its fonts are fetched, and a closing tag ends it."""
    place = {"revealjs": "sphinx_revealjs/_static", "mathjax": "sphinx-mathjax-offline/static"}[link[1]]
    package, inner = place.split("/")
    text = (resources.files(package) / inner / link[1] / link[2]).read_text(encoding="utf-8")
    if link[2].endswith(".css"):
        return f"<style>{re.sub('@import.*?;', '', text)}</style>"
    script = re.sub("</(?=script)", r"<\\/", text, flags=re.IGNORECASE)
    return f"<script>{script}</script>"


def slides_of(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook cut into slides, as nbconvert wants it; the stored one is not changed."""
    made = learner_copy(notebook, solutions=False, outputs=True)
    cells: list[NotebookNode] = []
    # Of the slide so far: its words, whether it has a figure, and whether it ends with a colon.
    words, full, announced = 0, True, False
    for cell in made.cells:
        tags = set(cell.metadata.get("tags", []))
        if cell.cell_type == "markdown":
            for text in filter(None, (found[0].strip() for found in _PARAGRAPH.finditer(cell.source))):
                count = len(re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL).split())
                kind = "subslide" if (full or words + count > MOST_WORDS) and not announced else "-"
                if heading := re.match("#+", text):
                    kind = "slide" if len(heading[0]) <= 2 else "subslide"
                elif text.startswith("<details"):
                    kind = "notes"
                if kind != "notes":
                    words = count + (words if kind == "-" else 0)
                    full, announced = False, text.endswith(":")
                cells.append(new_markdown_cell(text, metadata={"slideshow": {"slide_type": kind}}))
        elif cell.cell_type == "code" and not tags & {"parameters", "injected-parameters", "remove-cell"}:
            figures_only = bool(key_of(cell.source)) or "remove-output" in tags
            cell.outputs = [one for one in cell.outputs if _is_shown(one, figures_only)]
            if folded := "hide-input" in tags or cell.source.count("\n") >= LONGEST_CODE:
                cell.metadata["transient"] = {"remove_source": True}
            if cell.outputs or not folded:
                kind = "subslide" if full and cell.outputs and not announced else "-"
                cell.metadata["slideshow"] = {"slide_type": kind}
                full, announced = bool(cell.outputs) or full, False
                cells.append(cell)
    made.cells = cells
    made.metadata["title"] = re.sub(r"^# (.*)|.+", r"\1", cells[0].source) if cells else ""
    return made


def _is_shown(output: NotebookNode, figures_only: bool) -> bool:
    """Whether a slide shows an output. A figure's words, stored beside it, go to screen readers."""
    data = output.get("data", {})
    if "image/png" in data:
        output.metadata["image/png"] = {"alt": data.get("text/plain", "")}
        return True
    widget = "application/vnd.jupyter.widget-view+json" in data
    return not (figures_only or widget or output.get("name") == "stderr")
