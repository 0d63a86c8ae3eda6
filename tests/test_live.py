"""The search in the book: its JavaScript against PyTorch, in a browser with the network cut."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor

from course.engine import first_engine
from course.explainer import lay_explainer
from course.explainer.laying import FIRST_EXAMPLES as EXAMPLES
from coursebook.browser import open_page
from coursebook.live import PLACE, put_search_first
from vsecore import scenes
from vsecore.data.words import tokenize
from vsecore.paths import ROOT
from vsecore.similarity import cosine
from vsecore.training import encode
from watched import opened_without_complaint

ODD = [
    "",
    "   ",
    "?!",
    "TWO Boats, on the LAKE!!",
    "a dog's ball isn't here, 'tis",
    "don’t can't n't N'T ain'tx won't_ 'n't",
    "un chien à côté d'un château; naïve CAFÉ",
    "İSTANBUL ΣΊΣΥΦΟΣ straße ǅ",
    "ब हिन्दी 漢字 かな ٣ ² ½ Ⅷ a_b __ snake_case",
    "a\u0301 e\u0301t\u00e9 \U0001f6a2 boat\u200dboat\ttab\nline",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with nothing but the search, and what the book lays beside it."""
    folder = tmp_path_factory.mktemp("live")
    lay_explainer(folder / "explainer", ())
    shutil.copytree(ROOT / "book" / "_static", folder / "_static")
    (folder / "page.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Search</title>'
        '<script src="_static/live.js"></script><link rel="stylesheet" href="_static/live.css">'
        f'<main class="bd-article">{PLACE}</main></html>',
        encoding="utf-8",
    )
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Page]:
    with opened_without_complaint(folder / "page.html", ".live-results img") as page:
        yield page


@pytest.fixture(scope="module")
def index() -> Tensor:
    model, vocabulary = first_engine()
    vectors = encode(model, scenes.load(train=1, dev=1).test, vocabulary)[0].vectors
    assert vectors is not None
    return vectors


def scores_of(sentences: list[str], index: Tensor) -> Tensor:
    """PyTorch's scores, (C, Ni)."""
    model, vocabulary = first_engine()
    with torch.no_grad():
        queries = model.encode_captions(*vocabulary.encode(sentences)).vectors
    assert queries is not None
    return cosine(index, queries).T


def test_a_hundred_queries_find_the_same_ten_pictures(page: Page, index: Tensor) -> None:
    captions = [picture.captions[row % 5].text for row, picture in enumerate(scenes.pictures("test")[:90])]
    queries = [*captions, *ODD]
    assert len(queries) == 100
    wanted = scores_of(queries, index)
    got = torch.tensor(
        page.evaluate(
            "(queries) => queries.map((query) => [...vseLive.engine.scores(vseLive.engine.readText(query))])",
            queries,
        )
    )
    assert (got - wanted).abs().max() < 1e-2
    first = page.evaluate(
        "(queries) => queries.map((query) => vseLive.engine.search(query, 10).map(({ row }) => row))", queries
    )
    assert [set(rows) for rows in first] == [set(rows) for rows in wanted.topk(10).indices.tolist()]


def test_words_are_pythons(page: Page) -> None:
    letters = "".join(chr(code) for code in range(32, 0x3000) if chr(code).isprintable())
    texts = [*ODD, *letters, letters]
    assert page.evaluate("(texts) => texts.map(vseMaths.tokenize)", texts) == [
        tokenize(text) for text in texts
    ]


def test_a_sentence_is_typed_and_searched_by_keys_alone(page: Page) -> None:
    box = page.get_by_label("Type a sentence")
    box.focus()
    box.fill("a Red kite, above the BEACH")
    page.keyboard.press("Enter")
    said = page.locator(".live-said")
    assert said.get_attribute("aria-live") == "polite"
    assert "nearest pictures for “a Red kite, above the BEACH”" in (said.text_content() or "")
    pictures = page.locator(".live-results img")
    assert pictures.count() == 8
    page.wait_for_function(
        "[...document.images].every((image) => image.complete && image.naturalWidth === 112)"
    )
    page.keyboard.press("Tab")  # to the button beside the box
    page.keyboard.press("Tab")  # to the first example
    page.keyboard.press("Enter")
    assert box.input_value() == EXAMPLES[0]


def test_of_an_example_the_page_says_what_is_true(page: Page) -> None:
    truth = [scenes.holds(scenes.parse(EXAMPLES[2]), picture.scene) for picture in scenes.pictures("test")]
    page.get_by_role("button", name=EXAMPLES[2]).click()
    found = page.evaluate("(query) => vseLive.engine.search(query, 8).map(({ row }) => row)", EXAMPLES[2])
    hits = sum(truth[row] for row in found)
    said = page.locator(".live-said").text_content() or ""
    assert f"true of {hits} of them, and of {sum(truth)} of all" in said
    assert page.locator(".live-true").count() == hits


def test_unknown_words_are_named_and_an_empty_box_is_answered(page: Page) -> None:
    box, said = page.get_by_label("Type a sentence"), page.locator(".live-said")
    box.fill("a Zeppelin above the château")
    box.press("Enter")
    assert "not learned “zeppelin”, “château”" in (said.text_content() or "")
    assert page.locator(".live-results img").count() == 8
    for nothing, answer in (
        ("zeppelin", "knows no word"),
        ("", "Type a sentence"),
        ("<b>?!", "not learned “b”"),
    ):
        box.fill(nothing)
        box.press("Enter")
        assert answer in (said.text_content() or "")
        assert page.locator(".live-results img").count() == 0


def test_without_javascript_the_page_says_what_it_would_do(folder: Path, page: Page) -> None:
    assert page.context.browser is not None
    silent = open_page(page.context.browser, java_script_enabled=False)
    silent.goto((folder / "page.html").as_uri())
    assert silent.get_by_text("needs JavaScript, which is off here").is_visible()
    silent.context.close()


def test_a_missing_script_is_told(folder: Path, page: Page, tmp_path: Path) -> None:
    shutil.copytree(folder / "_static", tmp_path / "_static")
    shutil.copy(folder / "page.html", tmp_path)
    assert page.context.browser is not None
    broken = open_page(page.context.browser)
    broken.goto((tmp_path / "page.html").as_uri())
    broken.get_by_text("explainer/maths.js is missing").wait_for()
    broken.context.close()


def test_the_search_stands_below_the_title() -> None:
    assert put_search_first("# Start here\n\nText") == f"# Start here\n\n{PLACE}\nText"
    assert put_search_first("## Later\n\nText") == "## Later\n\nText"
