"""The laws of the world: where a thing may be, and what is true of two things by where they are.

The laws leave nothing in doubt. Two things are either plainly apart from left to right or plainly overlap,
so that every relation that a caption may speak of can be seen, and every relation that is not listed is
plainly false. All arithmetic is on whole numbers.
"""

from collections.abc import Sequence

from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.facts import SIDE, Kind, Scene, Size, Thing

Box = tuple[int, int, int, int]
Relation = tuple[str, int, int]

# Where the feet are, in pixels from the top, at each depth that a carrier has in a place.
GROUND_LINES: dict[str, dict[str, dict[int, int]]] = {
    "beach": {"water": {2: 70}, "ground": {1: 89, 0: 106}},
    "park": {"ground": {2: 75, 1: 89, 0: 106}},
    "street": {"ground": {2: 75, 0: 107}, "road": {1: 92}},
    "harbour": {"water": {2: 70, 1: 85}, "ground": {0: 106}},
    "snow": {"ground": {2: 75, 1: 89, 0: 106}},
    "farm": {"ground": {2: 75, 0: 107}, "road": {1: 92}},
    "lake": {"water": {2: 70, 1: 85}, "ground": {0: 106}},
    "night": {"ground": {2: 75, 0: 107}, "road": {1: 92}},
}
SKY_BOTTOM = 50  # flying things and the things of the sky stay above this line
SKY_DEPTH = 3  # the sun, the moon, the clouds: behind everything
ALOFT = {"air": (1, 2), "sky": (SKY_DEPTH,)}  # the depths of what does not stand on anything
SET_BACK = ("house",)  # too large for the front of the picture
NEARNESS = {0: 100, 1: 82, 2: 68, SKY_DEPTH: 100}  # percent of the full height
SMALL = 64  # percent of the large size
SMALLEST = 9  # pixels: nothing is drawn narrower or lower, or nobody could name it

# How far down a person's hand is that holds a thing, in percent of the person's height.
HAND_HEIGHTS = {"kite": 14, "balloon": 14, "umbrella": 38, "ball": 58, "flower": 58}

# What makes a relation plain (pixels, percent of the narrower thing's width, percent of a box's area).
APART = 3  # at least this gap: left of, right of
NEAR, NOT_NEAR = 12, 18  # at the same depth, up to here is beside, from here it is not
OVERLAP = 40  # at least this overlap: above or in front of
CLEARANCE = 2  # above: at least this much air between the two
STACKED = 30  # percent of its height: a far thing whose feet alone are covered seems to stand on the near one
HIDDEN = 35  # no thing is hidden by more than this

# Kinds that may stand on another thing: where its top is (percent from its box's top) and from where to
# where (percent of its width, as it looks to the right) one may stand there.
DECKS = {
    "bench": (56, 10, 90),
    "house": (2, 38, 62),
    "car": (3, 28, 66),
    "bus": (2, 12, 88),
    "truck": (4, 6, 58),
    "boat": (58, 10, 56),
    "sledge": (28, 12, 78),
    "horse": (33, 16, 50),
    "cow": (14, 20, 60),
    "snowman": (2, 40, 60),
    "lamp": (2, 36, 64),
}
RIDERS = {
    "bird": ("bench", "house", "car", "bus", "truck", "boat", "horse", "cow", "snowman", "lamp", "sledge"),
    "cat": ("bench", "car", "house"),
    "dog": ("bench", "boat", "sledge"),
    "man": ("boat",),
    "woman": ("boat",),
    "boy": ("boat", "sledge"),
    "girl": ("boat", "sledge"),
    "ball": ("bench",),
}


# --- What is true of two boxes ------------------------------------------------------------------------


def _hides(a: Box, b: Box) -> int:
    """Area, in pixels, that two boxes share."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0


def flies(thing: Thing) -> bool:
    return CATALOGUE[thing.kind].stands in ("air", "sky")


def judge(a: Thing, b: Thing, a_stands: bool, b_stands: bool) -> list[tuple[str, bool]] | None:
    """How two things stand to each other, or None where a viewer could doubt it.

    `a_stands` says that a stands on the scene's ground, road or water; otherwise it flies, is held or
    stands on another thing. Returns (relation, True where it reads from a to b).
    """
    gap = max(a.box[0], b.box[0]) - min(a.box[2], b.box[2])  # negative where they overlap
    if gap >= APART:
        a_left = a.box[0] < b.box[0]
        found = [("left of", a_left), ("right of", not a_left)]
        if a_stands and b_stands and a.depth == b.depth:
            if gap <= NEAR:
                return [*found, ("beside", True), ("beside", False)]
            if gap < NOT_NEAR:
                return None
        return found
    if -gap * 100 < OVERLAP * min(a.box[2] - a.box[0], b.box[2] - b.box[0]):
        return None
    if not a_stands and a.box[3] + CLEARANCE <= b.box[1]:
        return [("above", True)]
    if not b_stands and b.box[3] + CLEARANCE <= a.box[1]:
        return [("above", False)]
    if a.depth == b.depth or (flies(a) and not a_stands) or (flies(b) and not b_stands):
        return None
    near, far = (a, b) if a.depth < b.depth else (b, a)
    covered = far.box[3] - near.box[1]  # of the far thing's height, from its feet up
    if covered >= -CLEARANCE and covered * 100 <= STACKED * (far.box[3] - far.box[1]):
        return None
    return [("in front of", near is a)]


def ties_of(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """The relations that are arranged and not read from the boxes: holding and on."""
    return tuple(relation for relation in relations if relation[0] in ("holding", "on"))


def borne_and_bearer(tie: Relation) -> tuple[int, int]:
    """The thing that is held or carried, and the one that holds or carries it."""
    relation, i, j = tie
    return (j, i) if relation == "holding" else (i, j)


def borne_by(ties: Sequence[Relation]) -> dict[int, Relation]:
    """The things that another thing holds or carries, each with the tie that says so."""
    return {borne_and_bearer(tie)[0]: tie for tie in ties}


def relate(things: Sequence[Thing], ties: Sequence[Relation] = ()) -> tuple[Relation, ...] | None:
    """Every relation that holds between things, sorted, with the `ties` ("holding" and "on") that are given.

    None where some pair leaves room for doubt.
    """
    borne = borne_by(ties)
    tied = {frozenset((i, j)) for _, i, j in ties}
    stands = [not flies(thing) and row not in borne for row, thing in enumerate(things)]
    relations = list(ties)
    for i in range(len(things)):
        for j in range(i + 1, len(things)):
            if frozenset((i, j)) in tied:
                continue
            found = judge(things[i], things[j], stands[i], stands[j])
            if found is None:
                return None
            relations += [(name, i, j) if forward else (name, j, i) for name, forward in found]
    return tuple(sorted(relations))


def drawing_order(things: Sequence[Thing], ties: Sequence[Relation]) -> list[int]:
    """Rows of the things from the farthest to the nearest; what is held or carried comes after its bearer."""
    borne = borne_by(ties)
    return sorted(range(len(things)), key=lambda row: (-things[row].depth, row in borne, row))


def all_seen(things: Sequence[Thing], ties: Sequence[Relation]) -> bool:
    """Whether no box is hidden by more than `HIDDEN` percent; what a person holds hides nothing of them."""
    order = drawing_order(things, ties)
    held = {(i, j) for relation, i, j in ties if relation == "holding"}
    for place, row in enumerate(order):
        box = things[row].box
        nearer = [other for other in order[place + 1 :] if (row, other) not in held]
        hidden = sum(_hides(box, things[other].box) for other in nearer)
        if hidden * 100 > HIDDEN * (box[2] - box[0]) * (box[3] - box[1]):
            return False
    return True


# --- Where one thing may be ----------------------------------------------------------------------------


def extent(kind: Kind, size: Size | None, depth: int) -> tuple[int, int]:
    """Width and height at a depth, in pixels."""
    percent = NEARNESS[depth] * (SMALL if size == "small" else 100)
    return (kind.width * percent + 5000) // 10000, (kind.height * percent + 5000) // 10000


def hand(holder: Thing, held: str) -> tuple[int, int]:
    """The point where a person's hand holds a thing, in pixels of the 112-pixel picture."""
    left, top, right, bottom = holder.box
    across = left + 1 if holder.facing == "left" else right - 2
    return across, top + (bottom - top) * HAND_HEIGHTS[held] // 100


def held_box(holder: Thing, kind: Kind, size: Size | None) -> Box:
    """The box of a thing in a person's hand: a ball is centred on it, anything else ends in it.

    A flower leans away from the face, so that both can be seen.
    """
    across, down = hand(holder, kind.name)
    width, height = extent(kind, size, holder.depth)
    lean = (-1 if holder.facing == "left" else 1) * (width // 5 if kind.name == "flower" else 0)
    left = across - width // 2 + lean
    bottom = down + (height + 1) // 2 if kind.name == "ball" else down + 1
    return left, bottom - height, left + width, bottom


def deck(bearer: Thing) -> tuple[int, int, int]:
    """Where one may stand on a thing: from, to, and how far down, in pixels."""
    down, start, stop = DECKS[bearer.kind]
    if bearer.facing == "left":
        start, stop = 100 - stop, 100 - start
    left, top, right, bottom = bearer.box
    width = right - left
    return left + width * start // 100, left + width * stop // 100, top + (bottom - top) * down // 100


def can_be_drawn(box: Box) -> bool:
    """Whether a box is inside the picture, with one pixel to spare, and not too small."""
    left, top, right, bottom = box
    inside = left >= 1 and top >= 1 and right <= SIDE - 1 and bottom <= SIDE - 1
    return inside and right - left >= SMALLEST and bottom - top >= SMALLEST


def depths(place: str, kind: Kind) -> list[int]:
    """The depths at which a kind may be in a place."""
    if kind.stands in ALOFT:
        return [*ALOFT[kind.stands]]
    lines = GROUND_LINES[place].get(kind.stands, {})
    return [depth for depth in sorted(lines) if depth > 0 or kind.name not in SET_BACK]


# --- The laws ---------------------------------------------------------------------------------------------


def lawful(scene: Scene) -> bool:
    """Whether things are where they may be and can be seen, and relations are what the boxes say.

    Colour, size and facing are not looked at.
    """
    things, ties = scene.things, ties_of(scene.relations)
    tie_of = borne_by(ties)
    return (
        all(_in_place(scene, thing, tie_of.get(row)) for row, thing in enumerate(things))
        and all_seen(things, ties)
        and relate(things, ties) == scene.relations
    )


def _in_place(scene: Scene, thing: Thing, tie: Relation | None) -> bool:
    """Whether a thing is as large as its kind, and where this may be: tied to a bearer, or by itself."""
    kind, box = CATALOGUE[thing.kind], thing.box
    width, height = extent(kind, thing.size, thing.depth)
    if not can_be_drawn(box) or (box[2] - box[0], box[3] - box[1]) != (width, height):
        return False
    if tie is None:
        if scene.place not in kind.places or thing.depth not in depths(scene.place, kind):
            return False
        if flies(thing):
            return box[3] <= SKY_BOTTOM + 2
        line = GROUND_LINES[scene.place][kind.stands][thing.depth]
        return line <= box[3] <= line + 2
    bearer = scene.things[borne_and_bearer(tie)[1]]
    if thing.depth != bearer.depth:
        return False
    if tie[0] == "holding":
        may_hold = kind.held and CATALOGUE[bearer.kind].group == "person"
        return may_hold and box == held_box(bearer, kind, thing.size)
    if bearer.kind not in RIDERS.get(kind.name, ()):
        return False
    start, stop, down = deck(bearer)
    first = start - width // 4
    return box[3] == down and first <= box[0] and box[2] <= max(stop + width // 4, first + width)
