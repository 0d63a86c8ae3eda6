"""Search: an index of pictures, asked by a sentence or by another picture.

>>> from vsecore.search import Engine, Index
>>> index = Index.build("holidays", Engine.of_recipe("clip_base_patch32"), "holidays-index")
>>> index.search("two dogs on the beach", k=5)
"""

from vsecore.retriever import Source
from vsecore.search.engine import Engine, Seen
from vsecore.search.index import Found, Index, Report

__all__ = ["Engine", "Found", "Index", "Report", "Seen", "Source"]
