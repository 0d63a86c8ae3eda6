"""Losses: what a score matrix should have been, one idea a file."""

from vsecore.losses.adopt import adopt, adopt_k, alignment, uniformity
from vsecore.losses.contrastive import info_nce
from vsecore.losses.triplet import triplet

__all__ = ["adopt", "adopt_k", "alignment", "info_nce", "triplet", "uniformity"]
