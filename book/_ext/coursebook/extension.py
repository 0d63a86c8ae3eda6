"""What the book asks of Sphinx beyond jupyter-book: a page's way to its notebook, and nothing from afar."""

import operator
import re
from importlib import import_module
from typing import Any

from sphinx.application import Sphinx

# Where `make lab` and Binder serve the learner's copies.
LOCAL_LAB = "http://localhost:8888/lab/tree/build/learner"
STORED, COPIES = "lab/tree/notebooks/", "lab/tree/build/learner/"


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx; called by it."""
    # After the theme, which makes the list of buttons and adds its own.
    app.connect("html-page-context", offer_local_lab, priority=900)
    app.connect("html-page-context", leave_out_thebe, priority=900)
    app.connect("html-page-context", mend_lists)
    app.connect("autodoc-process-signature", leave_out_empty_signature)
    app.connect("viewcode-follow-imported", find_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def offer_local_lab(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Give each notebook's page a button that opens the learner's copy of it, here or on Binder."""
    if not page.startswith("notebooks/"):
        return
    local = {
        "type": "link",
        "text": "JupyterLab",
        "tooltip": "Open your copy in JupyterLab, after: make learner && make lab",
        "icon": "fas fa-laptop-code",
        "url": f"{LOCAL_LAB}/{page.removeprefix('notebooks/')}.ipynb",
        "label": "launch-local-lab",
    }
    buttons = context["header_buttons"]
    for group in buttons:
        if group.get("label") == "launch-buttons":
            for button in group["buttons"]:
                button["url"] = button["url"].replace(STORED, COPIES)
            group["buttons"].insert(0, local)
            return
    group = {"type": "group", "tooltip": "Open this notebook", "icon": "fas fa-rocket"}
    buttons.insert(0, group | {"buttons": [local], "label": "launch-buttons"})


def leave_out_thebe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Drop Thebe's scripts, which jupyter-book always adds: a book without a kernel has no use for them."""

    def wanted(file: Any) -> bool:
        attributes = getattr(file, "attributes", {})
        if attributes.get("type", "").endswith("json"):
            return True  # what a page's widgets hold, where pictures in base 64 may spell any word
        return "thebe" not in f"{getattr(file, 'filename', file)}{attributes}".lower()

    context["script_files"] = [file for file in context["script_files"] if wanted(file)]
    context["css_files"] = [file for file in context["css_files"] if wanted(file)]


def mend_lists(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Write lists as HTML wants them: nested where they belong, no list of definitions without terms."""
    if body := context.get("body"):
        for written, wanted in (
            ("</li>\n<ul>", "\n<ul>"),  # of modules; an item ends by itself where its list does
            (' role="doc-biblioentry"', ""),  # ARIA has given it up
            ('<div role="list" class="citation-list">', '<div class="citation-list">'),
        ):
            body = body.replace(written, wanted)
        context["body"] = _PARAMETERS.sub(_lines, body)


# The parameters of a long signature, one a line.
_PARAMETERS = re.compile(r"<dl>\s*((?:<dd>(?:(?!</?d[ldt]\b).)*</dd>\s*)+)</dl>", flags=re.DOTALL)


def _lines(parameters: re.Match[str]) -> str:
    lines = parameters[1].replace("<dd>", '<span class="parameter-line">').replace("</dd>", "</span>")
    return f'<span class="parameter-lines">{lines}</span>'


def leave_out_empty_signature(*told: Any) -> tuple[str, str | None] | None:
    """Write a module that takes no argument as such, in place of what torch's base class would accept."""
    *_, signature, returns = told
    return ("()", returns) if signature == "(*args: ~typing.Any, **kwargs: ~typing.Any)" else None


def find_source(app: Sphinx, module: str, name: str) -> str:
    """Name the module whose source a name links to: the package's own that wrote it, or that holds it."""
    try:
        writer = getattr(operator.attrgetter(name)(import_module(module)), "__module__", None)
    except AttributeError:  # a field without a default exists on instances alone
        return module
    return writer if isinstance(writer, str) and writer.startswith("vsecore.") else module
