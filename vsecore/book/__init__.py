"""The book: built from the notebooks, read with no network, printed as a PDF."""

from vsecore.book.build import build_book

__all__ = ["build_book"]
