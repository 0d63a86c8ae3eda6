"""Losses: what a score matrix should have been, one idea a file."""

from vsecore.losses.contrastive import info_nce
from vsecore.losses.triplet import triplet

__all__ = ["info_nce", "triplet"]
