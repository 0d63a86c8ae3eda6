"""Print the built book as one PDF: each page through Chromium, then bound, numbered and given bookmarks."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urldefrag

from coursebook.browser import browser, open_page, settle
from vsecore.data.files import write_atomically

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pypdf import PdfWriter


def print_book(html: Path, out: Path, tell: Callable[[str], None] = print) -> Path:
    """Print a built book.

    Solutions are printed open, since paper cannot be unfolded; folded set-up code is left out.

    Args:
        html: the folder of the built book, with its `index.html`.
        out: the PDF to write.
        tell: called with a line about what is done.

    Returns:
        `out`.

    Raises:
        CourseError: there is no Chromium; the message says how to get one.
        FileNotFoundError: the book is not built.
    """
    title_page = html / "index.html"
    if not title_page.is_file():
        raise FileNotFoundError(f"{title_page} is missing; build the book first: make book")
    from pypdf import PdfReader, PdfWriter

    bound = PdfWriter()
    starts: dict[str, int] = {}  # address of a page of the book -> its first page on paper
    with browser() as running:
        page = open_page(running, color_scheme="light", viewport={"width": 1024, "height": 1400})
        page.goto(title_page.as_uri())
        for address in _reading_order(page):
            page.goto(address)
            settle(page)
            starts[address] = len(bound.pages)
            printed = PdfReader(io.BytesIO(_print(page)))
            bound.append(printed, outline_item=page.title().split(" — ")[0], import_outline=False)
            tell(f"printed {address.rsplit('/', 1)[-1]}, {len(printed.pages)} pages")
        numbers = PdfReader(io.BytesIO(_page_numbers(page, len(bound.pages))))
    for sheet, number in zip(bound.pages, numbers.pages, strict=True):
        sheet.merge_page(number)
    _link_within(bound, starts)
    bound.add_metadata({"/Title": "Visual-semantic embedding"})
    with write_atomically(out) as file:
        bound.write(file)
    return out


def _print(page: Page) -> bytes:
    return page.pdf(
        format="A4",
        margin={"top": "18mm", "bottom": "20mm", "left": "16mm", "right": "16mm"},
        scale=0.85,  # a line of code of 96 letters fits
        print_background=True,
    )


def _reading_order(page: Page) -> list[str]:
    """List the addresses of the book's pages as its contents do, the open title page first."""
    links = page.eval_on_selector_all("nav.bd-links a.internal", "(links) => links.map((link) => link.href)")
    return list(dict.fromkeys([page.url, *(urldefrag(link).url for link in links)]))


def _page_numbers(page: Page, count: int) -> bytes:
    """Print `count` sheets with nothing on them but their numbers."""
    sheets = "".join(
        f"<div style='break-after: page; height: 100vh; position: relative'>"
        f"<p style='position: absolute; bottom: 6mm; width: 100%; text-align: center'>{number}</p></div>"
        for number in range(1, count + 1)
    )
    page.set_content(f"<body style='margin: 0; font: 8pt sans-serif; color: #555'>{sheets}")
    return page.pdf(format="A4", page_ranges=f"1-{count}")


def _link_within(bound: PdfWriter, starts: dict[str, int]) -> None:
    """Let links from one page of the book to another lead there on paper too, not to a file."""
    from pypdf.generic import ArrayObject, NameObject

    for sheet in bound.pages:
        for reference in sheet.get("/Annots", ()):
            link = reference.get_object()
            address = urldefrag(str(link.get("/A", {}).get("/URI", ""))).url
            if address in starts:
                del link["/A"]
                target = bound.pages[starts[address]].indirect_reference
                link[NameObject("/Dest")] = ArrayObject([target, NameObject("/Fit")])
