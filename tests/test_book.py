"""The book: the way of the executed notebooks into it, and what is laid beside them."""

import json
import re
import shutil
import subprocess

import ipywidgets
import numpy as np
import pytest
from ipywidgets.embed import embed_data
from pypdf import PdfReader

from course import batch
from course.widgets import explorer
from coursebook import build
from coursebook.browser import browser, open_page, settle
from coursebook.pdf import print_book
from vsecore.paths import ROOT
from watched import need_chromium


def test_a_figures_words_become_the_books_alt_text():
    picture = {"image/png": "AAAA", "text/plain": ["A curve ", "that falls."]}
    cell = {"metadata": {}, "outputs": [{"output_type": "display_data", "data": picture}]}
    build._give_alt_text(cell)
    assert cell["metadata"]["mystnb"]["image"]["alt"] == "A curve that falls."
    silent = {"metadata": {}, "outputs": [{"output_type": "stream", "text": "x"}]}
    build._give_alt_text(silent)
    assert silent["metadata"] == {}


def test_no_line_of_a_text_begins_with_a_percent_sign_which_makes_it_a_comment_in_the_book():
    folders = (("book", "*.md"), ("book/evidence", "*.md*"), ("notebooks/text", "*.py"))
    for path in [path for folder, pattern in folders for path in (ROOT / folder).glob(pattern)]:
        lost = re.findall(r"^(?:# )?%(?!%).*", path.read_text(), flags=re.MULTILINE)
        assert not lost, path


def test_a_page_shows_the_parameters_once_and_folds_an_answer(tmp_path):
    cells = [
        {"cell_type": "code", "metadata": {"tags": [tag]}, "source": "seed = 0", "outputs": []}
        for tag in ("parameters", "injected-parameters")
    ]
    cells.append(cells[0] | {"source": '@exercise("04.all")\ndef f(S):\n    # your part'})
    for stored in batch.notebooks():
        (tmp_path / stored.name).write_text(json.dumps({"cells": cells}))
    build.lay_notebooks(tmp_path, tmp_path / "laid")
    for page in (tmp_path / "laid").iterdir():
        own, injected, answer = json.loads(page.read_text())["cells"]
        assert "remove-cell" in injected["metadata"]["tags"]
        assert own == cells[0] and "hide-input" in answer["metadata"]["tags"]


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://github.com/someone/course.git", "https://github.com/someone/course"),
        ("https://someone:secret@github.com/someone/course", "https://github.com/someone/course"),
        ("git@github.com:someone/course.git", "https://github.com/someone/course"),
        ("https://github.com.elsewhere.net/someone/course", None),
        ("/home/someone/course", None),
        (None, None),
    ],
)
def test_launch_buttons_know_the_repository_of_this_clone_alone(origin, address, tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)
    assert build.repository_of(tmp_path) == address


def test_every_module_has_its_place_among_the_packages_pages():
    pages = "".join(page.read_text() for page in (ROOT / "book" / "api").iterdir())
    named = re.findall(r"automodule:: (\S+)", pages)
    told = set(named)
    assert len(told) == len(named), "a module stands on two pages"
    houses = (ROOT / "vsecore", ROOT / "notebooks" / "course", ROOT / "book" / "_ext" / "coursebook")
    modules = {
        ".".join(path.relative_to(house.parent).with_suffix("").parts).removesuffix(".__init__")
        for house in houses
        for path in house.rglob("*.py")
    }
    assert told <= modules
    # The command line is told by --help; a package tells for what is inside it.
    untold = modules - {"vsecore", "vsecore.data", "vsecore.cli", "vsecore.__main__", "course.__main__"}
    inside = {*told, "vsecore.cli"}
    untold -= {module for module in modules if any(module.startswith(f"{package}.") for package in inside)}
    assert untold - told == set(), "name it on a page of book/api"


def test_a_package_says_what_it_exports_without_which_its_page_would_be_empty():
    houses = {"vsecore": ROOT, "course": ROOT / "notebooks", "coursebook": ROOT / "book" / "_ext"}
    pages = "".join(page.read_text() for page in (ROOT / "book" / "api").iterdir())
    for name in re.findall(r"automodule:: (\S+)", pages):
        own = houses[name.split(".")[0]].joinpath(*name.split("."), "__init__.py")
        content = own.read_text() if own.is_file() else ""
        exports = f"\nfrom {name}." not in content or "\n__all__ = [" in content
        assert exports, f"{name} needs __all__, since autodoc leaves out what is imported"


@pytest.fixture
def chromium():
    need_chromium()


@pytest.mark.usefixtures("chromium")
def test_the_pdf_has_every_page_in_order_with_bookmarks_numbers_and_links(tmp_path):
    contents = '<nav class="bd-links"><a class="internal" href="second.html#part">2</a></nav>'
    for name, words in (("index", "First words"), ("second", "Second words")):
        (tmp_path / f"{name}.html").write_text(
            f"<html lang='en'><title>{name} — The book</title>{contents}<h1>{words}</h1>"
        )
    (tmp_path / "left_out.html").write_text("<p>Not in the contents")
    bound = PdfReader(print_book(tmp_path, tmp_path / "book.pdf"))
    assert [entry.title for entry in bound.outline] == ["index", "second"]
    assert [bound.get_destination_page_number(entry) for entry in bound.outline] == [0, 1]
    pages = [page.extract_text() for page in bound.pages]
    assert len(pages) == 2 and "First words" in pages[0] and "Second words" in pages[1]
    assert pages[0].rstrip().endswith("1") and pages[1].rstrip().endswith("2")
    link = bound.pages[0]["/Annots"][0].get_object()
    assert "/A" not in link and link["/Dest"][0].get_object() == bound.pages[1].get_object()


@pytest.mark.usefixtures("chromium")
def test_widgets_live_on_a_page_with_no_kernel_and_no_network(tmp_path):
    shades = [np.full((8, 8, 3), shade, np.uint8) for shade in (0, 120)]
    box = explorer(shades, ["dark words", "grey words $x^2$"], ["night", "dusk"])
    said = ipywidgets.Output(outputs=({"output_type": "stream", "name": "stdout", "text": "said before"},))
    state = embed_data(views=[box, said])
    build.lay_widgets(tmp_path / "widgets")
    shutil.copytree(ROOT / "book" / "_static", tmp_path / "_static")
    kind = "application/vnd.jupyter.widget"
    views = "".join(
        f'<script type="{kind}-view+json">{json.dumps(view)}</script>' for view in state["view_specs"]
    )
    (tmp_path / "page.html").write_text(
        '<html lang="en"><meta charset="utf-8"><script src="_static/widgets.js"></script>'
        f'<script type="{kind}-state+json">{json.dumps(state["manager_state"])}</script><body>{views}'
    )
    errors = []
    with browser() as running:
        page = open_page(running)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((tmp_path / "page.html").as_uri())
        settle(page)
        page.get_by_text("said before").wait_for()
        assert page.get_by_text("dark words").is_visible() and page.get_by_text("grey words").is_hidden()
        choice = page.get_by_role("group", name="Choose what is shown below")
        choice.get_by_role("button", name="night", pressed=True).wait_for()
        choice.get_by_role("button", name="dusk").click()
        choice.get_by_role("button", name="dusk", pressed=True).wait_for()
        page.get_by_text("grey words").wait_for()
        assert page.get_by_text("dark words").is_hidden()
        assert page.locator("img:visible").get_attribute("alt") == "dusk"
    assert not errors
