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
    """One kind of thing and where it belongs.

    Attributes:
        name: the kind's one-word name, as stored in every fact ("boat").
        group: the wider word that is also true of it ("vehicle").
        stands: what carries it: "ground", "road", "water", "air" or "sky" (the sun, the moon).
        places: the places in which it may stand.
        colours: the colours that it may have (a person's colour is the colour of the coat).
        width: its drawn width at full nearness, in pixels of a 112-pixel picture.
        height: its drawn height at full nearness.
        held: whether a person may hold it.
        sized: whether it comes small and large (a person and the sun do not).
        faces: whether it looks left or right (a tree does not).
    """

    name: str
    group: Literal["person", "animal", "vehicle", "plant", "toy", "sky", "building"]
    stands: Literal["ground", "road", "water", "air", "sky"]
    places: tuple[str, ...]
    colours: tuple[str, ...]
    width: int
    height: int
    held: bool = False
    sized: bool = True
    faces: bool = False


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
    """All facts of one picture.

    Attributes:
        place: one of `PLACES`.
        things: 2 to 5 things, in no meaningful order.
        relations: every relation that holds, as (relation, i, j): thing i stands so to thing j.
            Complete: a triple that is not listed is false.
        mark: the number of the unique mark drawn in the corner (the `shortcut` knob), or None.
        look: seeds the details that no caption speaks of (clouds, waves, hair).
    """

    place: str
    things: tuple[Thing, ...]
    relations: tuple[tuple[str, int, int], ...]
    mark: int | None = None
    look: int = 0
