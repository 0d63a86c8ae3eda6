"""Invents scenes: which things a picture holds, where they stand and what is therefore true of them.

A scene is drawn by chance and then held to the laws of the world, which `check` states. The laws leave
nothing in doubt: two things are either plainly apart from left to right or plainly overlap, so that every
relation that a caption may speak of can be seen, and every relation that is not listed is plainly false.
All arithmetic is on whole numbers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from vsecore.data.scenes.catalogue import CATALOGUE
from vsecore.data.scenes.facts import COLOURS, PLACES, RELATIONS, SIDE, Facing, Kind, Scene, Size, Thing

__all__ = [
    "CATALOGUE",
    "Dice",
    "check",
    "drawing_order",
    "hand",
    "invent",
    "mirror_relation",
    "relate",
    "variant",
]

T = TypeVar("T")
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
AIR_DEPTHS = (1, 2)
SET_BACK = ("house",)  # too large for the front of the picture
NEARNESS = {0: 100, 1: 82, 2: 68, SKY_DEPTH: 100}  # percent of the full height
SMALL = 64  # percent of the large size
SMALLEST = 9  # pixels: nothing is drawn narrower or lower, or nobody could name it

# What makes a relation plain (pixels, percent of the narrower thing's width, percent of a box's area).
APART = 3  # at least this gap: left of, right of
NEAR, NOT_NEAR = 12, 18  # at the same depth, up to here is beside, from here it is not
OVERLAP = 40  # at least this overlap: above or in front of
CLEARANCE = 2  # above: at least this much air between the two
HIDDEN = 35  # no thing is hidden by more than this

# Kinds that may stand on another thing: where its top is (percent from its box's top) and from where to
# where (percent of its width, as it looks to the right) one may stand there.
_DECKS = {
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
_RIDERS = {
    "bird": ("bench", "house", "car", "bus", "truck", "boat", "horse", "cow", "snowman", "lamp", "sledge"),
    "cat": ("bench", "car", "house"),
    "dog": ("bench", "boat", "sledge"),
    "man": ("boat",),
    "woman": ("boat",),
    "boy": ("boat", "sledge"),
    "girl": ("boat", "sledge"),
    "ball": ("bench",),
    "flower": (),
}
_ONE_OF_A_KIND = ("sun", "moon", "bus", "sandcastle")
_WEIGHTS = {"person": 30, "animal": 22, "vehicle": 17, "plant": 11, "toy": 13, "sky": 11, "building": 9}


class Dice:
    """Chance that is the same on every machine and in every version of Python.

    Stands on `random.Random(key).random()` alone, the one method whose numbers Python promises to keep.

    Args:
        key: any text; equal keys give equal throws.
    """

    def __init__(self, key: str) -> None:
        self._random = random.Random(key).random

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred throws."""
        return self._random() * 100 < percent

    def choice(self, options: Sequence[T], weights: Sequence[int] | None = None) -> T:
        """One of the options, each as likely as its weight."""
        if not options:
            raise ValueError("options: got an empty sequence, want at least one option to choose from")
        if weights is None:
            return options[int(self._random() * len(options))]
        left = self._random() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            left -= weight
            if left < 0:
                return option
        return options[-1]

    def shuffle(self, options: Sequence[T]) -> list[T]:
        """The options in a new order, as a new list."""
        order = list(options)
        for last in range(len(order) - 1, 0, -1):
            other = int(self._random() * (last + 1))
            order[last], order[other] = order[other], order[last]
        return order

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """So many different options, in a random order."""
        if not 0 <= count <= len(options):
            raise ValueError(f"count: got {count}, want from 0 to the number of options, {len(options)}")
        return self.shuffle(options)[:count]


# --- What is true of two boxes ------------------------------------------------------------------------


def _gap(a: Box, b: Box) -> int:
    """Pixels from left to right between two boxes; negative where they overlap."""
    return max(a[0], b[0]) - min(a[2], b[2])


def _hides(a: Box, b: Box) -> int:
    """Area, in pixels, that two boxes share."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0


def _flies(thing: Thing) -> bool:
    return CATALOGUE[thing.kind].stands in ("air", "sky")


def _judge(a: Thing, b: Thing, a_stands: bool, b_stands: bool) -> list[tuple[str, bool]] | None:
    """How two things stand to each other, or None where a viewer could doubt it.

    `a_stands` says that a stands on the scene's ground, road or water; otherwise it flies, is held or
    stands on another thing. Returns (relation, True where it reads from a to b).
    """
    gap = _gap(a.box, b.box)
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
    if a.depth == b.depth or (_flies(a) and not a_stands) or (_flies(b) and not b_stands):
        return None
    return [("in front of", a.depth < b.depth)]


def _ties_of(relations: Sequence[Relation]) -> tuple[Relation, ...]:
    """The relations that are arranged and not read from the boxes: holding and on."""
    return tuple(relation for relation in relations if relation[0] in ("holding", "on"))


def _borne(ties: Sequence[Relation]) -> set[int]:
    """The things that another thing holds or carries."""
    return {j if relation == "holding" else i for relation, i, j in ties}


def relate(things: Sequence[Thing], ties: Sequence[Relation] = ()) -> tuple[Relation, ...] | None:
    """Every relation that holds between things.

    Args:
        things: the things of a scene.
        ties: the ("holding", i, j) and ("on", i, j) among them.

    Returns:
        The relations, sorted, ties included; None where some pair leaves room for doubt.
    """
    borne = _borne(ties)
    tied = {frozenset((i, j)) for _, i, j in ties}
    stands = [not _flies(thing) and row not in borne for row, thing in enumerate(things)]
    relations = list(ties)
    for i in range(len(things)):
        for j in range(i + 1, len(things)):
            if frozenset((i, j)) in tied:
                continue
            found = _judge(things[i], things[j], stands[i], stands[j])
            if found is None:
                return None
            relations += [(name, i, j) if forward else (name, j, i) for name, forward in found]
    return tuple(sorted(relations))


def drawing_order(things: Sequence[Thing], ties: Sequence[Relation]) -> list[int]:
    """Rows of the things from the farthest to the nearest; what is held or carried comes after its bearer."""
    borne = _borne(ties)
    return sorted(range(len(things)), key=lambda row: (-things[row].depth, row in borne, row))


def _all_seen(things: Sequence[Thing], ties: Sequence[Relation]) -> bool:
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
    return across, top + (bottom - top) * (56 if held == "ball" else 38) // 100


def _held_box(holder: Thing, kind: Kind, size: Size | None) -> Box:
    """The box of a thing in a person's hand: a ball is centred on it, anything else ends in it."""
    across, down = hand(holder, kind.name)
    width, height = extent(kind, size, holder.depth)
    left = across - width // 2
    bottom = down + (height + 1) // 2 if kind.name == "ball" else down + 1
    return left, bottom - height, left + width, bottom


def _deck(bearer: Thing) -> tuple[int, int, int]:
    """Where one may stand on a thing: from, to, and how far down, in pixels."""
    down, start, stop = _DECKS[bearer.kind]
    if bearer.facing == "left":
        start, stop = 100 - stop, 100 - start
    left, top, right, bottom = bearer.box
    width = right - left
    return left + width * start // 100, left + width * stop // 100, top + (bottom - top) * down // 100


def _inside(box: Box) -> bool:
    return box[0] >= 1 and box[1] >= 1 and box[2] <= SIDE - 1 and box[3] <= SIDE - 1


def _ground(place: str, kind: Kind) -> list[int]:
    """The depths at which a kind may stand in a place."""
    lines = GROUND_LINES[place].get(kind.stands, {})
    return [depth for depth in sorted(lines) if depth > 0 or kind.name not in SET_BACK]


def _too_small(box: Box) -> bool:
    return box[2] - box[0] < SMALLEST or box[3] - box[1] < SMALLEST


def _boxes(
    place: str, thing: Thing, things: Sequence[Thing], tie: Relation | None, dice: Dice
) -> Iterator[Thing]:
    """The thing at every spot where its carrier allows it, in an order drawn by chance."""
    kind = CATALOGUE[thing.kind]
    if tie is not None:
        bearer = things[tie[1] if tie[0] == "holding" else tie[2]]
        if tie[0] == "holding":
            yield replace(thing, depth=bearer.depth, box=_held_box(bearer, kind, thing.size))
            return
        start, stop, bottom = _deck(bearer)
        width, height = extent(kind, thing.size, bearer.depth)
        margin = width // 4  # the feet are narrower than the box
        for left in dice.shuffle(range(start - margin, max(stop + margin - width, start - margin) + 1)):
            yield replace(thing, depth=bearer.depth, box=(left, bottom - height, left + width, bottom))
        return
    if kind.stands == "sky":
        depths = [SKY_DEPTH]
    elif kind.stands == "air":
        depths = dice.shuffle(AIR_DEPTHS)
    else:
        depths = dice.shuffle(_ground(place, kind))
    for depth in depths:
        width, height = extent(kind, thing.size, depth)
        for left in _across(width, depth, things, dice):
            if kind.stands in ("air", "sky"):
                top = dice.between(2, max(2, (SKY_BOTTOM if kind.stands == "air" else 38) - height))
            else:
                top = GROUND_LINES[place][kind.stands][depth] + dice.between(0, 2) - height
            yield replace(thing, depth=depth, box=(left, top, left + width, top + height))


def _across(width: int, depth: int, things: Sequence[Thing], dice: Dice) -> list[int]:
    """Left edges to try: often close to a thing of the same depth first, so that things meet."""
    spots = dice.shuffle(range(1, SIDE - width, 2))
    neighbours = [thing.box for thing in things if thing.depth == depth]
    if neighbours and dice.chance(45):
        step = dice.between(APART, NEAR - 2)
        spots = [box[0] - step - width for box in neighbours] + [box[2] + step for box in neighbours] + spots
    return spots


def _add(
    place: str, thing: Thing, tie: Relation | None, things: list[Thing], ties: list[Relation], dice: Dice
) -> bool:
    """Puts one more thing where all laws hold; False where there is no room."""
    new_ties = ties if tie is None else [*ties, tie]
    borne = _borne(new_ties)
    row = len(things)
    stands = [not _flies(one) and other not in borne for other, one in enumerate([*things, thing])]
    bearer = None if tie is None else tie[1] if tie[0] == "holding" else tie[2]
    for spot in _boxes(place, thing, things, tie, dice):
        if not _inside(spot.box) or _too_small(spot.box):
            continue
        if any(
            _judge(other, spot, stands[index], stands[row]) is None
            for index, other in enumerate(things)
            if index != bearer
        ):
            continue
        if _all_seen([*things, spot], new_ties):
            things.append(spot)
            ties[:] = new_ties
            return True
    return False


# --- Inventing -------------------------------------------------------------------------------------------


def _fresh(kind: Kind, dice: Dice, colour: str | None = None) -> Thing:
    """A thing of a kind with attributes drawn by chance; it has no place yet."""
    size: Size | None = dice.choice(("small", "large")) if kind.sized else None
    facing: Facing | None = dice.choice(("left", "right")) if kind.faces else None
    return Thing(kind.name, colour or dice.choice(kind.colours), size, facing, (0, 0, 0, 0), 0)


def _native(place: str) -> list[Kind]:
    return [kind for kind in CATALOGUE.values() if place in kind.places]


def _kinds(place: str, count: int, dice: Dice) -> list[Kind]:
    """Kinds of the things that stand by themselves; often several of one kind."""
    natives = _native(place)
    kinds: list[Kind] = []
    while len(kinds) < count:
        group = dice.choice(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))
        options = [kind for kind in natives if kind.group == group]
        if not options:
            continue
        kind = dice.choice(options, [1 + (len(PLACES) - len(kind.places)) // 2 for kind in options])
        if kind.name in _ONE_OF_A_KIND:
            if kind not in kinds:
                kinds.append(kind)
            continue
        copies = dice.choice((1, 2, 3), (72, 21, 7))
        kinds += [kind] * min(copies, count - len(kinds))
    return kinds


def _hold(holder: int, things: list[Thing], ties: list[Relation], place: str, dice: Dice) -> None:
    """Gives a person something to hold, if there is room for it."""
    kind = dice.choice([kind for kind in CATALOGUE.values() if kind.held])
    _add(place, _fresh(kind, dice), ("holding", holder, len(things)), things, ties, dice)


def _carry(bearer: int, things: list[Thing], ties: list[Relation], place: str, dice: Dice) -> None:
    """Sets something on a thing, if there is room for it."""
    riders = [rider for rider, bearers in _RIDERS.items() if things[bearer].kind in bearers]
    riders = [rider for rider in riders if place in CATALOGUE[rider].places]
    if riders:
        thing = _fresh(CATALOGUE[dice.choice(riders)], dice)
        _add(place, thing, ("on", len(things), bearer), things, ties, dice)


def _worth_seeing(things: Sequence[Thing], ties: Sequence[Relation]) -> bool:
    """Whether something stands in the place, and not all that stands or flies by itself looks the same."""
    borne = _borne(ties)
    alone = [thing for row, thing in enumerate(things) if row not in borne]
    looks = {(thing.kind, thing.colour, thing.size, thing.facing) for thing in alone}
    return len(looks) > 1 and not all(_flies(thing) for thing in alone)


def invent(seed: int, index: int, split: str = "train") -> Scene:
    """A scene of the world: the same for the same arguments, on every machine.

    Args:
        seed: which world.
        index: which of its scenes, from 0.
        split: "train", "dev" or "test"; splits share no scene but by chance.

    Returns:
        A scene that obeys every law that `check` states.
    """
    dice = Dice(f"scene {seed} {split} {index}")
    place = dice.choice(PLACES)
    look = dice.between(0, 9999)
    while True:
        wanted = dice.choice((2, 3, 4, 5), (15, 35, 30, 20))
        things: list[Thing] = []
        ties: list[Relation] = []
        previous: Thing | None = None
        for kind in _kinds(place, wanted, dice):
            if len(things) >= wanted:
                break
            same = previous is not None and previous.kind == kind.name and dice.chance(50)
            thing = _fresh(kind, dice, previous.colour if same and previous else None)
            if not _add(place, thing, None, things, ties, dice):
                continue
            previous = thing
            row = len(things) - 1
            if len(things) < wanted and kind.group == "person" and dice.chance(42):
                _hold(row, things, ties, place, dice)
            elif len(things) < wanted and kind.name in _DECKS and dice.chance(38):
                _carry(row, things, ties, place, dice)
        relations = relate(things, ties)
        if relations is not None and _worth_seeing(things, ties):
            return Scene(place, tuple(things), relations, None, look)


# --- Scenes that differ in little ----------------------------------------------------------------------


def _resized(thing: Thing, size: Size | None, kind: Kind) -> Thing:
    """The thing as another kind or size on the same spot, feet where they were."""
    width, height = extent(kind, size, thing.depth)
    left = (thing.box[0] + thing.box[2] - width) // 2
    bottom = thing.box[3]
    return replace(thing, kind=kind.name, size=size, box=(left, bottom - height, left + width, bottom))


def _changes(scene: Scene, row: int, dice: Dice) -> Iterator[Thing]:
    """Things that differ from one thing of a scene in one fact."""
    thing = scene.things[row]
    kind = CATALOGUE[thing.kind]
    for what in dice.shuffle(("colour", "colour", "kind", "kind", "size", "facing")):
        if what == "colour" and len(kind.colours) > 1:
            yield replace(thing, colour=dice.choice([c for c in kind.colours if c != thing.colour]))
        elif what == "facing" and thing.facing is not None:
            yield replace(thing, facing="right" if thing.facing == "left" else "left")
        elif what == "size" and thing.size is not None:
            yield _resized(thing, "large" if thing.size == "small" else "small", kind)
        elif what == "kind":
            likes = [
                like
                for like in CATALOGUE.values()
                if like.stands == kind.stands
                and like.name != kind.name
                and like.held >= (("holding", row) in {(r, j) for r, _, j in scene.relations})
                and (like.sized, like.faces) == (kind.sized, kind.faces)
                and thing.colour in like.colours
                and scene.place in like.places
            ]
            yield from (_resized(thing, thing.size, like) for like in dice.shuffle(likes)[:4])


def _lawful(scene: Scene) -> bool:
    try:
        check(scene)
    except ValueError:
        return False
    return True


def variant(scene: Scene, dice: Dice) -> Scene:
    """A near duplicate: a scene in which exactly one fact is another.

    The fact is the place, or one thing's colour, kind, size or facing. All relations stay as they are.

    Args:
        scene: the scene to change.
        dice: decides which fact changes.
    """
    if dice.chance(12):
        for place in dice.shuffle(PLACES):
            moved = replace(scene, place=place)
            if place != scene.place and GROUND_LINES[place] == GROUND_LINES[scene.place] and _lawful(moved):
                return moved
    for row in dice.shuffle(range(len(scene.things))):
        for changed in _changes(scene, row, dice):
            other = replace(scene, things=(*scene.things[:row], changed, *scene.things[row + 1 :]))
            if _lawful(other):
                return other
    raise ValueError("scene: got one in which no single fact can change, want a scene of `invent`")


def statements(scene: Scene) -> Counter[tuple[object, ...]]:
    """The relations as a viewer sees them: between kinds, colours, sizes and facings, not between rows."""
    looks = [(thing.kind, thing.colour, thing.size, thing.facing) for thing in scene.things]
    return Counter((relation, looks[i], looks[j]) for relation, i, j in scene.relations)


def mirror_relation(scene: Scene, dice: Dice) -> Scene:
    """A scene with the same things in the same place, of which other relations are true.

    Two things change places where that is possible; otherwise all things are set anew.

    Args:
        scene: the scene to change.
        dice: decides which things move.
    """
    old = statements(scene)
    ties = _ties_of(scene.relations)
    bound = {row for _, i, j in ties for row in (i, j)}
    free = [row for row in range(len(scene.things)) if row not in bound]
    for i, j in dice.shuffle([(i, j) for i in free for j in free if i < j]):
        things = list(scene.things)
        things[i], things[j] = _swapped(things[i], things[j])
        relations = relate(things, ties)
        if relations is not None:
            other = replace(scene, things=tuple(things), relations=relations)
            if statements(other) != old and _lawful(other):
                return other
    for attempt in range(400):
        arranged = _rearranged(scene, ties if attempt < 60 else (), dice)
        if arranged is not None and statements(arranged) != old:
            return arranged
    raise ValueError("scene: got one whose things stand in one way only, want a scene of `invent`")


def _swapped(a: Thing, b: Thing) -> tuple[Thing, Thing]:
    """Two things with their places from left to right exchanged; the depths stay."""

    def at(thing: Thing, box: Box) -> Thing:
        width = thing.box[2] - thing.box[0]
        left = (box[0] + box[2] - width) // 2
        return replace(thing, box=(left, thing.box[1], left + width, thing.box[3]))

    return at(a, b.box), at(b, a.box)


def _rearranged(scene: Scene, ties: Sequence[Relation], dice: Dice) -> Scene | None:
    """The same things set anew, in the same rows; what was held or carried keeps its bearer if tied."""
    bearer_of = {(j if relation == "holding" else i): (relation, i, j) for relation, i, j in ties}
    rows = dice.shuffle([row for row in range(len(scene.things)) if row not in bearer_of])
    rows += sorted(bearer_of)
    seat = {row: new for new, row in enumerate(rows)}
    things: list[Thing] = []
    new_ties: list[Relation] = []
    for row in rows:
        tie = bearer_of.get(row)
        if tie is not None:
            tie = (tie[0], seat[tie[1]], seat[tie[2]])
        elif scene.place not in CATALOGUE[scene.things[row].kind].places:
            return None
        if not _add(scene.place, scene.things[row], tie, things, new_ties, dice):
            return None
    ordered = tuple(things[seat[row]] for row in range(len(rows)))
    relations = relate(ordered, ties)
    return None if relations is None else replace(scene, things=ordered, relations=relations)


# --- The laws ---------------------------------------------------------------------------------------------


def check(scene: Scene) -> None:
    """States the laws of the world.

    Raises:
        ValueError: the scene breaks one; the message names it.
    """
    if scene.place not in PLACES:
        raise ValueError(f"scene.place: got {scene.place!r}, want one of {', '.join(PLACES)}")
    if not 2 <= len(scene.things) <= 5:
        raise ValueError(f"scene.things: got {len(scene.things)} things, want 2 to 5")
    ties = _ties_of(scene.relations)
    for relation, i, j in scene.relations:
        if relation not in RELATIONS or not {i, j} <= set(range(len(scene.things))) or i == j:
            raise ValueError(f"scene.relations: got {(relation, i, j)}, want a known relation of two things")
    tie_of = {(j if relation == "holding" else i): (relation, i, j) for relation, i, j in ties}
    if len(tie_of) != len(ties):
        raise ValueError("scene.relations: a thing is held or carried twice, want one bearer at most")
    for row, thing in enumerate(scene.things):
        _check_thing(scene, row, thing, tie_of.get(row))
    if not _all_seen(scene.things, ties):
        raise ValueError(f"scene.things: a thing is hidden by more than {HIDDEN} percent")
    relations = relate(scene.things, ties)
    if relations is None:
        raise ValueError("scene.things: two things stand so that their relation is in doubt")
    if relations != scene.relations:
        wrong = sorted(set(relations) ^ set(scene.relations))
        raise ValueError(
            f"scene.relations: want exactly what the boxes say, sorted; the two differ in {wrong}"
        )


def _check_thing(scene: Scene, row: int, thing: Thing, tie: Relation | None) -> None:
    name = f"scene.things[{row}]"
    kind = CATALOGUE.get(thing.kind)
    if kind is None:
        raise ValueError(f"{name}.kind: got {thing.kind!r}, want a kind of the catalogue")
    if thing.colour not in kind.colours or thing.colour not in COLOURS:
        raise ValueError(f"{name}.colour: got {thing.colour!r}, want one of {', '.join(kind.colours)}")
    if (thing.size in ("small", "large")) != kind.sized or (thing.facing in ("left", "right")) != kind.faces:
        raise ValueError(f"{name}: size {thing.size!r} and facing {thing.facing!r} do not suit a {kind.name}")
    if not _inside(thing.box):
        raise ValueError(f"{name}.box: got {thing.box}, want it inside the picture with one pixel to spare")
    if _too_small(thing.box):
        raise ValueError(f"{name}.box: got {thing.box}, want at least {SMALLEST} pixels each way")
    width, height = thing.box[2] - thing.box[0], thing.box[3] - thing.box[1]
    if thing.depth not in NEARNESS or (width, height) != extent(kind, thing.size, thing.depth):
        raise ValueError(f"{name}.box: {width} x {height} pixels do not suit its kind, size and depth")
    if tie is not None:
        _check_tie(scene, name, thing, tie)
    elif scene.place not in kind.places:
        raise ValueError(f"{name}.kind: a {kind.name} does not belong in the place {scene.place}")
    elif kind.stands in ("air", "sky"):
        depths = AIR_DEPTHS if kind.stands == "air" else (SKY_DEPTH,)
        if thing.depth not in depths or thing.box[3] > SKY_BOTTOM + 2:
            raise ValueError(
                f"{name}: a {kind.name} at depth {thing.depth} and {thing.box} is not up in the air"
            )
    else:
        depths = _ground(scene.place, kind)
        line = GROUND_LINES[scene.place][kind.stands][thing.depth] if thing.depth in depths else None
        if line is None or not line <= thing.box[3] <= line + 2:
            raise ValueError(
                f"{name}: a {kind.name} at depth {thing.depth} does not stand on the {kind.stands}"
            )


def _check_tie(scene: Scene, name: str, thing: Thing, tie: Relation) -> None:
    kind = CATALOGUE[thing.kind]
    if tie[0] == "holding":
        holder = scene.things[tie[1]]
        if not kind.held or CATALOGUE[holder.kind].group != "person":
            raise ValueError(f"{name}: a {holder.kind} cannot hold a {kind.name}")
        if thing.depth != holder.depth or thing.box != _held_box(holder, kind, thing.size):
            raise ValueError(f"{name}.box: got {thing.box}, want it to touch the hand of its holder")
        return
    bearer = scene.things[tie[2]]
    if bearer.kind not in _RIDERS.get(kind.name, ()) or thing.depth != bearer.depth:
        raise ValueError(f"{name}: a {kind.name} cannot stand on a {bearer.kind}")
    start, stop, down = _deck(bearer)
    margin = (thing.box[2] - thing.box[0]) // 4
    if (
        thing.box[3] != down
        or thing.box[0] < start - margin
        or thing.box[2] > max(stop + margin, start - margin + thing.box[2] - thing.box[0])
    ):
        raise ValueError(f"{name}.box: got {thing.box}, want its feet on the {bearer.kind}")
