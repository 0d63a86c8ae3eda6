"""The built book in a browser with the network cut: every page, on a desk and on a phone.

`make browser` builds the book first. Without a Chromium or a built book the tests are skipped and say why.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from watched import Complaints

from vsecore.course.batch import CourseError
from vsecore.course.book.browser import browser, find_chromium, open_page, settle
from vsecore.paths import ROOT

HTML = ROOT / "book" / "_build" / "html"
PAGES = sorted(
    page.relative_to(HTML).as_posix() for page in HTML.rglob("*.html") if "_static" not in page.parts
)
VIEWS = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not PAGES, reason="the book is not built: make book"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    try:
        find_chromium()
    except CourseError as error:
        pytest.skip(str(error))
    with browser() as running:
        yield running


@pytest.fixture(scope="module", params=VIEWS)
def page(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Page]:
    opened = open_page(chromium, viewport=VIEWS[request.param], color_scheme="light")
    opened.set_default_timeout(20_000)
    yield opened
    opened.context.close()


# Each is asked of the open page and answers with what is wrong, as a list.
TOO_WIDE = """() => {
  const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  return over > 0 ? [`the page is ${over} pixels wider than the window`] : [];
}"""
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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_with_no_network(name: str, page: Page) -> None:
    with Complaints(page) as complaints:
        page.goto((HTML / name).as_uri())
        settle(page)
        for question in (TOO_WIDE, PICTURES, FORMULAS, UNSET, WIDGETS):
            complaints += page.evaluate(question)
    assert not complaints


@pytest.mark.parametrize("name", PAGES)
def test_no_link_within_the_book_leads_nowhere(name: str) -> None:
    text = (HTML / name).read_text(encoding="utf-8")
    for link in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', text):
        if not re.match(r"\w+:", link):
            assert (HTML / name).parent.joinpath(link).exists(), link


def test_the_book_has_every_kind_of_page() -> None:
    wanted = {"index.html", "notation.html", "references.html", "api.html", "search.html", "genindex.html"}
    notebooks = {f"notebooks/{path.stem}.html" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert wanted | notebooks <= set(PAGES)


@pytest.mark.parametrize("query", ["triplet", "hardest negative"])
def test_search_finds_something_from_a_folder(query: str, page: Page) -> None:
    with Complaints(page) as complaints:
        page.goto((HTML / "index.html").as_uri())
        page.keyboard.press("Control+k")
        page.locator("dialog input[type=search], .search-button__search-container input").first.fill(query)
        page.keyboard.press("Enter")
        page.locator("#search-results ul.search li a[href*=learning_to_rank]").first.wait_for()
    assert not complaints


def test_the_dark_is_dark_and_both_are_readable(page: Page) -> None:
    page.goto((HTML / "notation.html").as_uri())
    brightness = {}
    for _ in range(3):  # the button goes through automatic, light and dark
        page.locator("button.theme-switch-button:visible").first.click()
        theme = page.evaluate("document.documentElement.dataset.theme")
        paper, ink = (
            page.evaluate(f"getComputedStyle(document.{node}).{colour}")
            for node, colour in (("body", "backgroundColor"), ("querySelector('article p')", "color"))
        )
        brightness[theme] = _luminance(paper)
        low, high = sorted((_luminance(paper), _luminance(ink)))
        assert (high + 0.05) / (low + 0.05) >= 7, f"{theme}: {ink} on {paper}"
    assert brightness["dark"] < 0.05 and brightness["light"] > 0.9


def _luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, as WCAG 2 defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
