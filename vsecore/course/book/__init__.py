"""The book: built from the notebooks, read with no network, printed as a PDF, shown as slides."""

from vsecore.course.book.browser import find_chromium
from vsecore.course.book.build import build_book
from vsecore.course.book.deck import SLIDES_FOLDER, write_slides
from vsecore.course.book.pdf import print_book

__all__ = ["SLIDES_FOLDER", "build_book", "find_chromium", "print_book", "write_slides"]
