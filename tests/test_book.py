"""The book: the way of the executed notebooks into it, and what is laid beside them."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np
import pytest
import yaml
from ipywidgets.embed import embed_data
from pypdf import PdfReader
from sphinx.builders.html._assets import _JavaScript as JavaScript

from course import batch
from course.batch import CourseError
from course.widgets import explorer
from coursebook import build, extension, print_book
from coursebook.browser import browser, open_page, settle
from vsecore import scenes
from vsecore.paths import ROOT
from watched import need_chromium


def test_a_figures_words_become_the_books_alt_text() -> None:
    picture = {"image/png": "AAAA", "text/plain": ["A curve ", "that falls."]}
    cell = {"metadata": {}, "outputs": [{"output_type": "display_data", "data": picture}]}
    build._give_alt_text(cell)
    assert cell["metadata"]["mystnb"]["image"]["alt"] == "A curve that falls."
    silent = {"metadata": {}, "outputs": [{"output_type": "stream", "text": "x"}]}
    build._give_alt_text(silent)
    assert silent["metadata"] == {}


def test_a_page_shows_the_parameters_once(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "metadata": {"tags": [tag]}, "source": "seed = 0", "outputs": []}
        for tag in ("parameters", "injected-parameters")
    ]
    for stored in batch.notebooks():
        (tmp_path / stored.name).write_text(json.dumps({"cells": cells}))
    build.lay_notebooks(tmp_path, tmp_path / "laid")
    for page in (tmp_path / "laid").iterdir():
        own, injected = json.loads(page.read_text())["cells"]
        assert "remove-cell" in injected["metadata"]["tags"]
        assert own == cells[0]


def test_the_widgets_front_end_is_served_from_the_book(tmp_path: Path) -> None:
    build.lay_widgets(tmp_path / "widgets")
    front_end = (tmp_path / "widgets" / "extension.js").read_text(encoding="utf-8")
    assert "load_ipython_extension" in front_end
    assert (tmp_path / "widgets" / "extension.js.LICENSE.txt").stat().st_size > 0


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
def test_launch_buttons_know_the_repository_of_this_clone_alone(
    origin: str | None, address: str | None, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)
    assert build.repository_of(tmp_path) == address


def test_without_a_repository_there_is_no_button_that_leads_nowhere(tmp_path: Path) -> None:
    config = tmp_path / "_config.yml"
    config.write_text("sphinx: {config: {html_theme_options: {show_toc_level: 2}}}")
    build.configure(config, None)
    assert "launch_buttons" not in config.read_text()
    build.configure(config, "https://github.com/someone/course")
    options = yaml.safe_load(config.read_text())["sphinx"]["config"]["html_theme_options"]
    assert options["repository_url"] == "https://github.com/someone/course"
    assert options["launch_buttons"]["binderhub_url"] and options["show_toc_level"] == 2


def test_the_title_page_shows_a_search_and_a_scene_of_each_place(tmp_path: Path) -> None:
    build.lay_title_page(ROOT / "notebooks", tmp_path / "generated")
    assert "pictures found for" in (tmp_path / "generated" / "found.md").read_text()
    assert len(list((tmp_path / "generated").glob("scene*.png"))) == len(scenes.PLACES)
    (tmp_path / build.FIRST_NOTEBOOK).write_text('{"cells": []}')
    with pytest.raises(ValueError, match="two boats"):
        build.lay_title_page(tmp_path, tmp_path / "again")


def test_every_module_has_its_place_among_the_packages_pages() -> None:
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


def test_a_notebooks_page_offers_the_learners_copy() -> None:
    address = "https://mybinder.org/v2/gh/a/b/main?urlpath=lab/tree/notebooks/00_start_here.ipynb"
    launch = {"type": "group", "label": "launch-buttons", "buttons": [{"text": "Binder", "url": address}]}
    for buttons in ([], [launch]):
        context: dict[str, Any] = {"header_buttons": buttons}
        extension.offer_local_lab(None, "notebooks/00_start_here", "page.html", context, None)
        [group] = context["header_buttons"]
        assert group["label"] == "launch-buttons"
        for button in group["buttons"]:
            assert button["url"].endswith("lab/tree/build/learner/00_start_here.ipynb")
    assert len(group["buttons"]) == 2
    context = {"header_buttons": []}
    extension.offer_local_lab(None, "notation", "page.html", context, None)
    assert context == {"header_buttons": []}


def test_the_parameters_of_a_signature_are_no_list_of_definitions() -> None:
    line = "<dd><em>x</em>: <span>int</span>,</dd>\n"
    true_list = "<dl><dt>word</dt>\n<dd>what it is</dd>\n</dl>"
    context: dict[str, Any] = {"body": f"<dt>f(<dl>\n{line}{line}</dl>\n)</dt>{true_list}"}
    extension.mend_lists(None, "api", "page.html", context, None)
    assert context["body"].count("<dl>") == 1 and true_list in context["body"]
    assert context["body"].count('<span class="parameter-line"><em>x</em>: <span>int</span>,</span>') == 2


def test_a_source_link_leads_to_the_module_that_wrote_the_name() -> None:
    assert extension.find_source(None, "vsecore.losses", "triplet") == "vsecore.losses.hinge"
    assert extension.find_source(None, "course.datasets", "DATASETS") == "course.datasets"
    assert extension.find_source(None, "vsecore.training", "Run.model") == "vsecore.training"


def test_no_script_of_thebe_is_loaded() -> None:
    started = JavaScript("", body="const thebe_selector = '.thebe'")
    state = JavaScript("", type="application/vnd.jupyter.widget-state+json", body='{"a picture": "xThEbEx"}')
    files = ["_static/sphinx-thebe.js", "_static/search.js", started, state]
    context = {"script_files": files, "css_files": []}
    extension.leave_out_thebe(None, "index", "page.html", context, None)
    assert context["script_files"] == ["_static/search.js", state]


def test_where_no_chromium_is_the_reader_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "index.html").write_text("<p>x")
    with pytest.raises(CourseError, match="apt-get install chromium"):
        print_book(tmp_path, tmp_path / "book.pdf")
    with pytest.raises(FileNotFoundError, match="make book"):
        print_book(tmp_path / "nowhere", tmp_path / "book.pdf")


@pytest.fixture
def chromium() -> None:
    need_chromium()


@pytest.mark.usefixtures("chromium")
def test_the_pdf_has_every_page_in_order_with_bookmarks_numbers_and_links(tmp_path: Path) -> None:
    contents = '<nav class="bd-links"><a class="internal" href="second.html#part">2</a></nav>'
    for name, words in (("index", "First words"), ("second", "Second words")):
        (tmp_path / f"{name}.html").write_text(
            f"<html lang='en'><title>{name} — The book</title>{contents}<h1>{words}</h1>"
        )
    (tmp_path / "left_out.html").write_text("<p>Not in the contents")
    bound = PdfReader(print_book(tmp_path, tmp_path / "book.pdf", tell=lambda line: None))
    assert [entry.title for entry in bound.outline] == ["index", "second"]
    assert [bound.get_destination_page_number(entry) for entry in bound.outline] == [0, 1]
    pages = [page.extract_text() for page in bound.pages]
    assert len(pages) == 2 and "First words" in pages[0] and "Second words" in pages[1]
    assert pages[0].rstrip().endswith("1") and pages[1].rstrip().endswith("2")
    link = bound.pages[0]["/Annots"][0].get_object()
    assert "/A" not in link and link["/Dest"][0].get_object() == bound.pages[1].get_object()


@pytest.mark.usefixtures("chromium")
def test_widgets_live_on_a_page_with_no_kernel_and_no_network(tmp_path: Path) -> None:
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
    errors: list[str] = []
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
