"""The built book in a browser with the network cut: every page, on a desk and on a phone, in light and dark.

`make browser` builds the book first. Without a Chromium or a built book the tests are skipped and say why.
"""

import re

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from coursebook.browser import browser, open_page, settle
from vsecore.paths import ROOT
from watched import Complaints, need_chromium

HTML = ROOT / "book" / "_build" / "html"
PAGES = sorted(
    page.relative_to(HTML).as_posix() for page in HTML.rglob("*.html") if "_static" not in page.parts
)
LISTINGS = [name for name in PAGES if name.startswith("_modules/")]
# Listings of code all come out of one template: the longest stands for them.
LOOKED_AT = [
    *(name for name in PAGES if name not in LISTINGS),
    *sorted(LISTINGS, key=lambda name: (HTML / name).stat().st_size)[-1:],
]
VIEWS = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}

pytestmark = pytest.mark.browser
needs_book = pytest.mark.skipif(not PAGES, reason="the book is not built: make book")


@pytest.fixture(scope="module")
def chromium():
    need_chromium()
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def reader(chromium):
    opened = open_page(chromium, color_scheme="light", reduced_motion="reduce")
    opened.set_default_timeout(20_000)
    yield opened
    opened.context.close()


@pytest.fixture(params=VIEWS)
def page(request, reader):
    reader.set_viewport_size(VIEWS[request.param])
    return reader


# Each is asked of the open page and answers with what is wrong, as a list.
TOO_WIDE = """() => {
  const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  return over > 0 ? [`the page is ${over} pixels wider than the window`] : [];
}"""
OVERLAPPING = """() => [...document.querySelectorAll("td, th")]
  .filter((cell) => cell.scrollWidth > cell.clientWidth + 1 && cell.checkVisibility())
  .map((cell) => `${cell.textContent.trim()} is wider than its cell`)"""
PICTURES = """() => [...document.images]
  .filter((image) => !(image.complete && image.naturalWidth > 0 && image.alt.trim()))
  .map((image) => `${image.src.slice(0, 200)} alt=${JSON.stringify(image.alt)}`)"""
FORMULAS = """() => [...document.querySelectorAll("span.math, div.math")]
  .filter((formula) => !formula.querySelector("mjx-container") || formula.querySelector("mjx-merror"))
  .map((formula) => formula.textContent)"""
UNSET = """() => {
  const article = (document.querySelector("article") || document.body).cloneNode(true);
  article.querySelectorAll("pre, code, script, mjx-container").forEach((node) => node.remove());
  return article.textContent.match(/.{0,40}(\\$\\$|\\\\\\(|\\\\\\[|\\\\begin).{0,40}/g) || [];
}"""
WIDGETS = """() => [...document.querySelectorAll('script[type="application/vnd.jupyter.widget-view+json"]')]
  .map((script) => script.textContent)"""


UNFOLD = """() => {
  document.querySelectorAll("details").forEach((box) => { box.open = true; });
  document.querySelectorAll(".toggle-button-hidden").forEach((button) => button.click());
}"""
# A window takes a new size some frames after it was asked to, and what scrolls in it is measured after that.
DRAWN = """async (width) => {
  const article = document.querySelector("article") || document.body;
  for (let before = -1, still = 0, frames = 0; still < 3 && frames < 300; frames += 1) {
    await new Promise((done) => requestAnimationFrame(done));
    const now = innerWidth === width ? article.clientWidth : -1;
    still = now >= 0 && now === before ? still + 1 : 0;
    before = now;
  }
}"""

# What WCAG 2.1 asks at the levels A and AA, as far as a machine can say.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
COLOURS = ["color-contrast", "link-in-text-block"]
# Every page is looked at in both views and both themes. What all pages share, the menus and the frame,
# has its colours looked at in each view and theme, on one page of each kind.
RUNS = [("desk", "light", RULES), ("phone", "dark", RULES)]
CROSSED = [*RUNS, ("desk", "dark", COLOURS), ("phone", "light", COLOURS)]
OF_EACH_KIND = {"index.html", "notebooks/04_learning_to_rank.html", "evidence/2ad.html", "api/parts.html"}
AXE = """(rules) => axe.run(
  document, { runOnly: rules, resultTypes: ["violations"], preload: false, iframes: false })
  .then((found) => found.violations.flatMap(({ id, nodes }) => nodes.map(
    ({ target, any, all, none }) => `${id}: ${target} ${[...any, ...all, ...none][0]?.message}`)))"""
# Code is thousands of words in a few colours: one of each stays, which makes axe several times as fast.
ONE_OF_A_COLOUR = """() => {
  const seen = new Set();
  for (const word of document.querySelectorAll("div.highlight pre span, dl.py dt span")) {
    seen.has(word.className) ? word.replaceWith(...word.childNodes) : seen.add(word.className);
  }
}"""
# Rows of tables, entries of lists and formulas that differ in their words alone: two of each stay, since
# stripes alternate. That makes axe five to ten times as fast on pages with hundreds.
TWO_OF_A_SHAPE = """() => {
  const look = (node) => {
    const filled = [...node.attributes].map(({ name, value }) => name + (value.trim() ? "=" : ""));
    const words = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    return [node.tagName, node.className, node.getAttribute("style"), words, ...filled].join(" ");
  };
  const parts = (node) => (node.tagName === "MJX-CONTAINER" ? "" : [...node.children].map(shape));
  const shape = (node) => `${look(node)}(${parts(node)})`;
  const place = (node) => node ? `${place(node.parentElement)}>${look(node)}` : "";
  const repeated = ["tr + tr", "p", "dl.py", "dl.py > dd > *", "em.sig-param", "mjx-container", ".copybtn"];
  const seen = new Map();
  for (const node of document.querySelectorAll(["li + li", ...repeated.map((one) => `article ${one}`)])) {
    if (node.isConnected) {
      const kind = place(node.parentElement) + shape(node);
      seen.set(kind, (seen.get(kind) || 0) + 1);
      if (seen.get(kind) > 2) node.remove();
    }
  }
}"""


@needs_book
@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_is_whole_and_open_to_everyone_with_no_network(name, reader):
    with Complaints(reader) as complaints:
        reader.set_viewport_size(VIEWS["desk"])
        reader.goto((HTML / name).as_uri())
        settle(reader)
        reader.evaluate(UNFOLD)
        for view in VIEWS:
            show(reader, view)
            for question in (TOO_WIDE, OVERLAPPING, PICTURES, FORMULAS, UNSET, WIDGETS):
                complaints += [f"{view}: {answer}" for answer in reader.evaluate(question)]
        complaints += violations(reader, CROSSED if name in OF_EACH_KIND else RUNS)
    assert not complaints


def show(page, view):
    page.set_viewport_size(VIEWS[view])
    page.evaluate(DRAWN, VIEWS[view]["width"])


def violations(page, runs):
    """What axe-core has to say against an open page in some views and themes, by some rules."""
    page.evaluate(ONE_OF_A_COLOUR)
    page.evaluate(TWO_OF_A_SHAPE)
    page.evaluate(AXE_SCRIPT)
    found = []
    for view, theme, rules in runs:
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        show(page, view)
        found += [f"{view}, {theme}: {one}" for one in page.evaluate(AXE, rules)]
    return found


@pytest.mark.parametrize(
    ("markup", "rule"),
    [
        ('<button class="copybtn"></button>', "button-name"),
        ('<p style="color: #999; background: #fff">pale</p>', "color-contrast"),
        ('<details><summary>More</summary><img src="data:,"></details>', "image-alt"),
        ("<p>good</p>" * 3 + '<p style="color: #999; background: #fff">pale</p>', "color-contrast"),
        (
            "<p>good</p>" * 3 + '<div style="background: #999; color: #888"><p>pale</p></div>',
            "color-contrast",
        ),
        ('<ul><li><a href="#">a link</a></li>' * 3 + '<li><a href="#"></a></li></ul>', "link-name"),
        (f'<table><tr><td style="display: block; width: 20px">{"wide" * 9}</table>', "wider than its cell"),
    ],
)
def test_what_shuts_somebody_out_is_noticed(markup, rule, reader, tmp_path):
    page = tmp_path / "page.html"
    whole = f'<html lang="en"><title>A page</title><main><article>{markup}</article></main></html>'
    page.write_text(whole, encoding="utf-8")
    reader.goto(page.as_uri())
    reader.evaluate(UNFOLD)
    assert any(rule in one for one in reader.evaluate(OVERLAPPING) + violations(reader, RUNS))


@needs_book
@pytest.mark.parametrize("name", PAGES)
def test_no_link_within_the_book_leads_nowhere(name):
    text = (HTML / name).read_text(encoding="utf-8")
    for link in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', text):
        if not re.match(r"\w+:", link):
            assert (HTML / name).parent.joinpath(link).exists(), link


@needs_book
def test_the_book_has_every_kind_of_page():
    wanted = {"index.html", "notation.html", "references.html", "api.html", "search.html", "genindex.html"}
    notebooks = {f"notebooks/{path.stem}.html" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert wanted | notebooks | OF_EACH_KIND <= set(PAGES)


@needs_book
@pytest.mark.parametrize("query", ["triplet", "hardest negative"])
def test_search_finds_something_from_a_folder(query, page):
    with Complaints(page) as complaints:
        page.goto((HTML / "index.html").as_uri())
        page.keyboard.press("Control+k")
        page.locator("dialog input[type=search], .search-button__search-container input").first.fill(query)
        page.keyboard.press("Enter")
        page.locator("#search-results ul.search li a[href*=learning_to_rank]").first.wait_for()
    assert not complaints


@needs_book
def test_the_first_thing_on_the_first_notebooks_page_is_a_search(page):
    with Complaints(page) as complaints:
        page.goto((HTML / "notebooks" / "00_start_here.html").as_uri())
        assert page.locator("article h1 + .live-search, article h1 + * .live-search").count() == 1
        page.get_by_label("Type a sentence").fill("a green tree in the park")
        page.keyboard.press("Enter")
        page.get_by_text("nearest pictures for “a green tree in the park”").wait_for()
        assert page.locator(".live-results img").count() == 8
    assert not complaints
