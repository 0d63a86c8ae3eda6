"""The book: built from the notebooks, read with no network, printed as a PDF, shown as slides."""
