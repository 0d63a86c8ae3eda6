"""Reasoning: elements look at each other before they are pooled.

Every reasoner is called as `reasoner(elements, mask)` with elements (B, N, D) and a bool mask (B, N), True
where an element is real (None: all are), and returns the elements with their mask. It may add an element,
such as a summary in front. Anything else, and an option out of its range, is refused by a ValueError.
"""

from vsecore.encoders.reasoning.region_graph import RegionGraph
from vsecore.encoders.reasoning.transformer import TransformerReasoner
from vsecore.registry import Registry

REASONERS = Registry(
    "reasoner", {"transformer": TransformerReasoner, "region_graph": RegionGraph}, context=("dim",)
)
"""Reasoners by name."""

__all__ = ["REASONERS", "RegionGraph", "TransformerReasoner"]
