"""Print the built book as one PDF: each page through Chromium, then bound, numbered and given bookmarks."""

import io
from pathlib import Path
from urllib.parse import urldefrag

import typer
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject

from coursebook.browser import browser, open_page, settle
from vsecore.data.files import write_atomically

NUMBER = (
    "<div style='break-after: page; height: 100vh; position: relative'>"
    "<p style='position: absolute; bottom: 6mm; width: 100%; text-align: center'>{}</p></div>"
)


def print_book(html: Path, out: Path) -> Path:
    """Print a built book, the folder with its `index.html`, and return the PDF.

    Solutions are printed open, since paper cannot be unfolded; folded set-up code is left out.
    """
    bound = PdfWriter()
    starts: dict[str, int] = {}  # address of a page of the book -> its first page on paper
    with browser() as running:
        page = open_page(running, color_scheme="light", viewport={"width": 1024, "height": 1400})
        page.goto((html / "index.html").as_uri())
        found = page.eval_on_selector_all(
            "nav.bd-links a.internal", "(links) => links.map(({ href }) => href)"
        )
        for address in dict.fromkeys([page.url, *(urldefrag(link).url for link in found)]):
            page.goto(address)
            settle(page)
            starts[address] = len(bound.pages)
            # At this scale a line of code of 96 letters fits.
            made = page.pdf(
                format="A4",
                margin={"top": "18mm", "bottom": "20mm", "left": "16mm", "right": "16mm"},
                scale=0.85,
                print_background=True,
            )
            printed = PdfReader(io.BytesIO(made))
            bound.append(printed, outline_item=page.title().split(" — ")[0], import_outline=False)
            typer.echo(f"printed {address.rsplit('/', 1)[-1]}, {len(printed.pages)} pages")
        sheets = "".join(map(NUMBER.format, range(1, len(bound.pages) + 1)))
        page.set_content(f"<body style='margin: 0; font: 8pt sans-serif; color: #555'>{sheets}")
        numbers = page.pdf(format="A4", page_ranges=f"1-{len(bound.pages)}")
    for sheet, number in zip(bound.pages, PdfReader(io.BytesIO(numbers)).pages, strict=True):
        sheet.merge_page(number)
        for link in (reference.get_object() for reference in sheet.get("/Annots", ())):
            address = urldefrag(str(link.get("/A", {}).get("/URI", ""))).url
            if address in starts:  # on paper too it leads to a page, not to a file
                target = bound.pages[starts[address]].indirect_reference
                link[NameObject("/Dest")] = ArrayObject([target, NameObject("/Fit")])
                del link["/A"]
    bound.add_metadata({"/Title": "Visual-semantic embedding"})
    with write_atomically(out) as file:
        bound.write(file)
    return out
