"""Losses: what a step of training should have brought closer together, or kept apart. One idea a file.

The functions take tensors. Around each stands a thin module that a recipe can name: it owns the defaults,
reads what it needs of a `Step`, and may hold parameters or state.
"""

from vsecore.losses.adopt import AdOpt, Rule, adopt, adopt_k, alignment, negatives_kept, uniformity
from vsecore.losses.contrastive import InfoNCE, info_nce
from vsecore.losses.step import Step
from vsecore.losses.triplet import Triplet, triplet
from vsecore.registry import Registry

LOSSES = Registry(
    "loss",
    {"triplet": Triplet, "info_nce": InfoNCE, "adopt": AdOpt},
    context=("dim", "target_dim", "vocabulary_size"),
)
"""Every loss by the name that recipes know it by."""

__all__ = [
    "LOSSES",
    "AdOpt",
    "InfoNCE",
    "Rule",
    "Step",
    "Triplet",
    "adopt",
    "adopt_k",
    "alignment",
    "info_nce",
    "negatives_kept",
    "triplet",
    "uniformity",
]
