"""What is true in a scene: the place, the things in it and how they stand to each other.

Facts come first and everything else is made from them: `layout` invents them, `drawing` paints them,
`language` says them and `truth` decides which sentence is true of which scene. All facts are small whole
numbers and words, so that they are equal on every machine.
"""

from dataclasses import dataclass
from typing import Literal

Facing = Literal["left", "right"]
Size = Literal["small", "large"]

SIDE = 112  # pixels: every box is measured in a picture of this width and height
PLACES = ("beach", "park", "street", "harbour", "snow", "farm", "lake", "night")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "white", "black", "brown", "grey")
RELATIONS = ("left of", "right of", "above", "on", "in front of", "beside", "holding")


@dataclass(frozen=True)
class Kind:
    """One kind of thing and where it belongs."""

    name: str  #: its one word, as stored in every fact ("boat")
    group: Literal["person", "animal", "vehicle", "plant", "toy", "sky", "building"]  #: the wider word
    stands: Literal["ground", "road", "water", "air", "sky"]  #: what carries it; the sun is in the sky
    places: tuple[str, ...]  #: where it may stand
    colours: tuple[str, ...]  #: those that it may have; a person's is that of the coat
    width: int  #: as it is drawn at full nearness, in pixels of a 112-pixel picture
    height: int
    held: bool = False  #: whether a person may hold it
    sized: bool = True  #: whether it comes small and large (a person and the sun do not)
    faces: bool = False  #: whether it looks left or right (a tree does not)


@dataclass(frozen=True)
class Thing:
    """One thing of a scene. Coordinates are pixels of the 112-pixel picture."""

    kind: str
    colour: str
    size: Size | None  # None where the kind has one size only
    facing: Facing | None  # None where the kind has no front
    box: tuple[int, int, int, int]  # left, top, right, bottom; right and bottom are outside
    depth: int  # 0 is nearest to the viewer; farther things are drawn first and smaller


@dataclass(frozen=True)
class Scene:
    """All facts of one picture."""

    place: str  #: one of `PLACES`
    things: tuple[Thing, ...]  #: 2 to 5, in no meaningful order
    relations: tuple[tuple[str, int, int], ...]
    """Every relation that holds, as (relation, i, j): thing i stands so to thing j. All others are false."""
    mark: int | None = None  #: the number of the mark drawn in the corner (the `shortcut` knob)
    look: int = 0  #: seeds the details that no caption speaks of (clouds, waves, hair)
