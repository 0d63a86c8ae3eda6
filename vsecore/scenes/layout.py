"""Invents scenes: which things a picture holds and where they stand.

A scene is drawn by chance, thing after thing, each on the first spot where all `laws` hold. Chance is a pure
function of the seed and the scene's number, so that any scene can be made alone, on every machine.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from vsecore.scenes import laws
from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.facts import PLACES, SIDE, Facing, Kind, Scene, Size, Thing
from vsecore.scenes.laws import Box, Relation

T = TypeVar("T")

_ONE_OF_A_KIND = ("sun", "moon", "bus", "sandcastle")
_WEIGHTS = {"person": 30, "animal": 22, "vehicle": 17, "plant": 11, "toy": 13, "sky": 11, "building": 9}


class Dice:
    """Chance that is the same for a key on every machine and in every version of Python.

    Stands on `random.Random(key).random()` alone, the one method whose numbers Python promises to keep.
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


# --- Finding room --------------------------------------------------------------------------------------


def _boxes(
    place: str, thing: Thing, things: Sequence[Thing], tie: Relation | None, dice: Dice
) -> Iterator[Thing]:
    """The thing at every spot where its carrier allows it, in an order drawn by chance."""
    kind = CATALOGUE[thing.kind]
    if tie is not None:
        bearer = things[laws.borne_and_bearer(tie)[1]]
        if tie[0] == "holding":
            yield replace(thing, depth=bearer.depth, box=laws.held_box(bearer, kind, thing.size))
            return
        start, stop, bottom = laws.deck(bearer)
        width, height = laws.extent(kind, thing.size, bearer.depth)
        margin = width // 4  # the feet are narrower than the box
        for left in dice.shuffle(range(start - margin, max(stop + margin - width, start - margin) + 1)):
            yield replace(thing, depth=bearer.depth, box=(left, bottom - height, left + width, bottom))
        return
    for depth in dice.shuffle(laws.depths(place, kind)):
        width, height = laws.extent(kind, thing.size, depth)
        for left in _across(width, depth, things, dice):
            if laws.flies(thing):
                top = dice.between(2, max(2, (laws.SKY_BOTTOM if kind.stands == "air" else 38) - height))
            else:
                top = laws.GROUND_LINES[place][kind.stands][depth] + dice.between(0, 2) - height
            yield replace(thing, depth=depth, box=(left, top, left + width, top + height))


def _across(width: int, depth: int, things: Sequence[Thing], dice: Dice) -> list[int]:
    """Left edges to try: often close to a thing of the same depth first, so that things meet."""
    spots = dice.shuffle(range(1, SIDE - width, 2))
    neighbours = [thing.box for thing in things if thing.depth == depth]
    if neighbours and dice.chance(45):
        step = dice.between(laws.APART, laws.NEAR - 2)
        spots = [box[0] - step - width for box in neighbours] + [box[2] + step for box in neighbours] + spots
    return spots


def _add(
    place: str, thing: Thing, tie: Relation | None, things: list[Thing], ties: list[Relation], dice: Dice
) -> bool:
    """Puts one more thing where all laws hold; False where there is no room."""
    new_ties = ties if tie is None else [*ties, tie]
    borne = laws.borne_by(new_ties)
    row = len(things)
    stands = [not laws.flies(one) and other not in borne for other, one in enumerate([*things, thing])]
    bearer = None if tie is None else laws.borne_and_bearer(tie)[1]
    for spot in _boxes(place, thing, things, tie, dice):
        if not laws.can_be_drawn(spot.box):
            continue
        if any(
            laws.judge(other, spot, stands[index], stands[row]) is None
            for index, other in enumerate(things)
            if index != bearer
        ):
            continue
        if laws.all_seen([*things, spot], new_ties):
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


def _kinds(place: str, count: int, dice: Dice) -> list[Kind]:
    """Kinds of the things that stand by themselves; often several of one kind."""
    natives = [kind for kind in CATALOGUE.values() if place in kind.places]
    kinds: list[Kind] = []
    while len(kinds) < count:
        group = dice.choice(tuple(_WEIGHTS), tuple(_WEIGHTS.values()))
        options = [kind for kind in natives if kind.group == group]
        kind = dice.choice(options, [1 + (len(PLACES) - len(kind.places)) // 2 for kind in options])
        if kind.name in _ONE_OF_A_KIND:
            if kind not in kinds:
                kinds.append(kind)
            continue
        copies = dice.choice((1, 2, 3), (72, 21, 7))
        kinds += [kind] * min(copies, count - len(kinds))
    return kinds


def _carry(bearer: int, things: list[Thing], ties: list[Relation], place: str, dice: Dice) -> None:
    """Sets something on a thing, if there is room for it."""
    riders = [rider for rider, bearers in laws.RIDERS.items() if things[bearer].kind in bearers]
    riders = [rider for rider in riders if place in CATALOGUE[rider].places]
    if riders:
        thing = _fresh(CATALOGUE[dice.choice(riders)], dice)
        _add(place, thing, ("on", len(things), bearer), things, ties, dice)


def _worth_seeing(things: Sequence[Thing], ties: Sequence[Relation]) -> bool:
    """Whether something stands in the place, and not all that stands or flies by itself looks the same."""
    borne = laws.borne_by(ties)
    alone = [thing for row, thing in enumerate(things) if row not in borne]
    looks = {(thing.kind, thing.colour, thing.size, thing.facing) for thing in alone}
    return len(looks) > 1 and not all(laws.flies(thing) for thing in alone)


def invent(seed: int, index: int, split: str = "train") -> Scene:
    """A scene of a world, by their numbers: the same for the same arguments, on every machine.

    It is lawful (see `laws`). Splits share no scene but by chance.
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
                held = _fresh(dice.choice([one for one in CATALOGUE.values() if one.held]), dice)
                _add(place, held, ("holding", row, len(things)), things, ties, dice)
            elif len(things) < wanted and kind.name in laws.DECKS and dice.chance(38):
                _carry(row, things, ties, place, dice)
        relations = laws.relate(things, ties)
        if relations is not None and _worth_seeing(things, ties):
            return Scene(place, tuple(things), relations, None, look)


# --- Scenes that differ in little ----------------------------------------------------------------------


def _resized(thing: Thing, size: Size | None, kind: Kind) -> Thing:
    """The thing as another kind or size on the same spot, feet where they were."""
    width, height = laws.extent(kind, size, thing.depth)
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


def variant(scene: Scene, dice: Dice) -> Scene:
    """A near duplicate: a scene in which exactly one fact is another.

    The fact is the place, or one thing's colour, kind, size or facing. All relations stay as they are.
    """
    if dice.chance(12):
        for place in dice.shuffle(PLACES):
            moved = replace(scene, place=place)
            if (
                place != scene.place
                and laws.GROUND_LINES[place] == laws.GROUND_LINES[scene.place]
                and laws.lawful(moved)
            ):
                return moved
    for row in dice.shuffle(range(len(scene.things))):
        for changed in _changes(scene, row, dice):
            other = replace(scene, things=(*scene.things[:row], changed, *scene.things[row + 1 :]))
            if laws.lawful(other):
                return other
    raise ValueError("scene: got one in which no single fact can change, want a scene of `invent`")


def statements(scene: Scene) -> Counter[tuple[object, ...]]:
    """The relations as a viewer sees them: between kinds, colours, sizes and facings, not between rows."""
    looks = [(thing.kind, thing.colour, thing.size, thing.facing) for thing in scene.things]
    return Counter((relation, looks[i], looks[j]) for relation, i, j in scene.relations)


def mirror_relation(scene: Scene, dice: Dice) -> Scene:
    """A scene with the same things in the same place, of which other relations are true.

    Two things change places where that is possible; otherwise all things are set anew.
    """
    old = statements(scene)
    ties = laws.ties_of(scene.relations)
    bound = {row for _, i, j in ties for row in (i, j)}
    free = [row for row in range(len(scene.things)) if row not in bound]
    for i, j in dice.shuffle([(i, j) for i in free for j in free if i < j]):
        things = list(scene.things)
        things[i], things[j] = _swapped(things[i], things[j])
        relations = laws.relate(things, ties)
        if relations is not None:
            other = replace(scene, things=tuple(things), relations=relations)
            if statements(other) != old and laws.lawful(other):
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
    tie_of = laws.borne_by(ties)
    rows = dice.shuffle([row for row in range(len(scene.things)) if row not in tie_of])
    rows += sorted(tie_of)
    seat = {row: new for new, row in enumerate(rows)}
    things: list[Thing] = []
    new_ties: list[Relation] = []
    for row in rows:
        tie = tie_of.get(row)
        if tie is not None:
            tie = (tie[0], seat[tie[1]], seat[tie[2]])
        elif scene.place not in CATALOGUE[scene.things[row].kind].places:
            return None
        if not _add(scene.place, scene.things[row], tie, things, new_ties, dice):
            return None
    ordered = tuple(things[seat[row]] for row in range(len(rows)))
    relations = laws.relate(ordered, ties)
    return None if relations is None else replace(scene, things=ordered, relations=relations)
