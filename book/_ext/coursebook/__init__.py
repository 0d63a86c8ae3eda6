"""The book: built from the notebooks, read with no network, printed as a PDF, shown as slides."""

from coursebook.browser import find_chromium
from coursebook.build import build_book
from coursebook.pdf import print_book
from coursebook.slides import SLIDES_FOLDER, write_slides

__all__ = ["SLIDES_FOLDER", "build_book", "find_chromium", "print_book", "write_slides"]
