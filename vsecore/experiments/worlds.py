"""The worlds of drawn scenes that experiments are run in, by the name that their records give the data."""

from __future__ import annotations

from typing import Any

SCENES = "scenes"
"""The world of most experiments; elsewhere also the name for the scenes of any world."""
NEAR_DUPLICATES = "scenes_near_duplicates"
"""A world in which half of the pictures differ from an earlier one in exactly one fact."""
AMBIGUOUS = "scenes_ambiguous"
"""A world in which a caption says less, and fits several pictures."""
WORLDS: dict[str, dict[str, Any]] = {
    SCENES: {},
    NEAR_DUPLICATES: {"near_duplicates": 0.5},
    AMBIGUOUS: {"ambiguity": 0.6},
}
"""The knobs of each world, as `scenes.load` takes them."""


def collection_of(data: str) -> str:
    """Return "scenes" for the name of any world of scenes, and every other name as it is."""
    return SCENES if data in WORLDS else data
