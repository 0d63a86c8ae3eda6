"""The search in the book: its JavaScript against PyTorch, in a browser with the network cut."""

import shutil

import pytest
import torch

from course.engine import first_engine
from course.explainer.laying import FIRST_EXAMPLES as EXAMPLES
from course.explainer.laying import lay_explainer
from coursebook.build import LIVE_SEARCH as PLACE
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
def folder(tmp_path_factory):
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
def page(folder):
    with opened_without_complaint(folder / "page.html", ".live-results img") as page:
        yield page


@pytest.fixture(scope="module")
def index():
    model, vocabulary = first_engine()
    vectors = encode(model, scenes.load(train=1, dev=1).test, vocabulary)[0].vectors
    assert vectors is not None
    return vectors


def scores_of(sentences, index):
    """PyTorch's scores, (C, Ni)."""
    model, vocabulary = first_engine()
    with torch.no_grad():
        queries = model.encode_captions(*vocabulary.encode(sentences)).vectors
    assert queries is not None
    return cosine(index, queries).T


def test_a_hundred_queries_find_the_same_ten_pictures(page, index):
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


def test_words_are_pythons(page):
    letters = "".join(chr(code) for code in range(32, 0x3000) if chr(code).isprintable())
    texts = [*ODD, *letters, letters]
    assert page.evaluate("(texts) => texts.map(vseMaths.tokenize)", texts) == [
        tokenize(text) for text in texts
    ]


def test_a_sentence_is_typed_and_searched_by_keys_alone(page):
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
