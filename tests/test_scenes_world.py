"""The embedded world: its facts obey its laws, and its pictures show its facts."""

import hashlib
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

import numpy as np
import pytest

from vsecore.scenes.drawing import PALETTE, draw
from vsecore.scenes.facts import COLOURS, PLACES, RELATIONS, SIDE, Scene, Thing
from vsecore.scenes.laws import DECKS, GROUND_LINES, depths, extent, flies, hand, lawful, relate
from vsecore.scenes.layout import CATALOGUE, Dice, invent, mirror_relation, statements, variant

ATTRIBUTES = ("kind", "colour", "size", "facing")


@lru_cache(maxsize=1)
def world():
    return tuple(invent(0, index) for index in range(2000))


def alone(kind_name, colour):
    """A scene of one thing in the middle of the first place where it may be, at its largest."""
    kind = CATALOGUE[kind_name]
    place = kind.places[0]
    size, facing = "large" if kind.sized else None, "right" if kind.faces else None
    thing = Thing(kind_name, colour, size, facing, (0, 0, 0, 0), depths(place, kind)[0])
    bottom = 48 if flies(thing) else GROUND_LINES[place][kind.stands][thing.depth]
    width, height = extent(kind, size, thing.depth)
    left = (SIDE - width) // 2
    return Scene(place, (replace(thing, box=(left, bottom - height, left + width, bottom)),), ())


def obeys(scene):
    kinds = [CATALOGUE[thing.kind] for thing in scene.things]
    return lawful(scene) and all(
        thing.colour in kind.colours
        and (thing.size is not None, thing.facing is not None) == (kind.sized, kind.faces)
        for thing, kind in zip(scene.things, kinds, strict=True)
    )


def test_every_scene_obeys_the_laws_of_the_world():
    assert all(map(obeys, world()))


def test_every_place_kind_colour_and_relation_appears():
    things = [thing for scene in world() for thing in scene.things]
    assert {scene.place for scene in world()} == set(PLACES)
    assert {thing.kind for thing in things} == set(CATALOGUE)
    assert {thing.colour for thing in things} == set(COLOURS)
    assert {relation for scene in world() for relation, _, _ in scene.relations} == set(RELATIONS)
    assert {len(scene.things) for scene in world()} == {2, 3, 4, 5}
    several = [max(Counter(thing.kind for thing in scene.things).values()) > 1 for scene in world()]
    assert np.mean(several) > 1 / 3, "or there would be little to count"


def test_every_pair_stands_in_some_relation_and_the_symmetric_ones_both_ways():
    opposite = {"left of": "right of", "right of": "left of", "beside": "beside"}
    for scene in world():
        told = {frozenset((i, j)) for _, i, j in scene.relations}
        assert told == {frozenset(pair) for pair in combinations(range(len(scene.things)), 2)}
        for relation, i, j in scene.relations:
            if relation in opposite:
                assert (opposite[relation], j, i) in scene.relations


def test_what_a_relation_says_is_plain_from_the_boxes():
    for scene in world():
        for relation, i, j in scene.relations:
            a, b = scene.things[i], scene.things[j]
            overlap = min(a.box[2], b.box[2]) - max(a.box[0], b.box[0])
            if relation == "left of":
                assert b.box[0] - a.box[2] >= 3
            elif relation == "above":
                assert a.box[3] < b.box[1] and overlap > 0
            elif relation == "in front of":
                assert a.depth < b.depth and overlap > 0
            elif relation == "beside":
                assert a.depth == b.depth and 3 <= -overlap <= 12
            elif relation == "on":
                assert b.kind in DECKS and b.box[1] <= a.box[3] < b.box[3] and overlap > 0
            elif relation == "holding":
                x, y = hand(a, b.kind)
                assert b.box[0] <= x < b.box[2] and b.box[1] <= y < b.box[3]


def test_a_scene_depends_on_its_number_alone():
    forwards = [invent(3, index) for index in range(20)]
    backwards = [invent(3, index) for index in reversed(range(20))][::-1]
    assert forwards == backwards
    assert len(set(forwards)) == 20
    assert invent(3, 0, "test") != invent(3, 0, "train") != invent(4, 0, "train")


def test_facts_are_the_same_on_every_machine():
    facts = repr([invent(0, index, split) for split in ("train", "test") for index in range(50)])
    assert (
        hashlib.sha256(facts.encode()).hexdigest()
        == "b4dcb5379eadae6052cc3ca4d8fabf7b847db876edd12f5cd2938eb99d063505"
    )


def test_a_variant_differs_in_exactly_one_fact():
    changed = Counter[str]()
    for index, scene in enumerate(world()[:600]):
        other = variant(scene, Dice(f"variant {index}"))
        assert obeys(other)
        facts = [
            (row, name)
            for row, (old, new) in enumerate(zip(scene.things, other.things, strict=True))
            for name in ATTRIBUTES
            if getattr(old, name) != getattr(new, name)
        ]
        facts += [(-1, "place")] if scene.place != other.place else []
        assert len(facts) == 1
        assert other.relations == scene.relations
        changed[facts[0][1]] += 1
    assert set(changed) == {"colour", "kind", "size", "facing", "place"}


def test_a_mirrored_relation_leaves_all_else_as_it_was():
    for index, scene in enumerate(world()[:600]):
        other = mirror_relation(scene, Dice(f"mirror {index}"))
        assert lawful(other)
        assert statements(other) != statements(scene)
        assert (other.place, other.look) == (scene.place, scene.look)
        for old, new in zip(scene.things, other.things, strict=True):
            assert [getattr(old, name) for name in ATTRIBUTES] == [getattr(new, name) for name in ATTRIBUTES]


def test_a_scene_that_breaks_a_law_is_not_lawful():
    scene = world()[0]
    first, rest = scene.things[0], scene.things[1:]
    left, top, right, bottom = first.box
    assert not lawful(replace(scene, place="moon")) and not lawful(replace(scene, relations=()))
    for box in ((left, top, right + 1, bottom), (left - 200, top, right - 200, bottom)):
        assert not lawful(replace(scene, things=(replace(first, box=box), *rest)))


def test_a_doubtful_pair_has_no_relations_and_is_refused():
    man = Thing("man", "red", None, "left", (20, 56, 40, 106), 0)
    for left, doubtful in ((26, False), (36, True), (41, True), (43, False)):
        far = Thing("man", "blue", None, "left", (left, 48, left + 16, 89), 1)
        assert (relate((man, far)) is None) == doubtful  # only the gap from left to right counts
    for left, doubtful in ((54, True), (59, False)):  # at the same depth it is beside, or plainly not
        near = Thing("man", "blue", None, "left", (left, 56, left + 20, 106), 0)
        assert (relate((man, near)) is None) == doubtful


def _difference(first, second):
    """How much each pixel differs between two pictures: (112, 112)."""
    return np.abs(draw(first).astype(int) - draw(second).astype(int)).sum(-1)


@pytest.mark.parametrize("kind", list(CATALOGUE))
def test_a_thing_is_drawn_in_its_box_fills_it_and_has_its_colour(kind):
    for colour in CATALOGUE[kind].colours:
        scene = alone(kind, colour)
        left, top, right, bottom = scene.things[0].box
        change = _difference(scene, replace(scene, things=()))
        inside = change[top:bottom, left:right]
        assert inside.sum() > 0.85 * change.sum()
        seen = inside > 40
        assert seen.any(0).mean() > 0.85 and seen.any(1).mean() > 0.85  # it reaches all four sides
        pixels = draw(scene)[top:bottom, left:right].astype(int)
        close = (np.abs(pixels - np.array(PALETTE[colour])).sum(-1) < 110) & (inside > 30)
        assert close.mean() > 0.06, f"{colour} {kind}"


def test_only_the_changed_thing_looks_different():
    for index, scene in enumerate(world()[:120]):
        other = variant(scene, Dice(f"seen {index}"))
        rows = [row for row, thing in enumerate(scene.things) if thing != other.things[row]]
        change = _difference(scene, other)
        assert change.sum() > 300  # whatever differs in the facts can be seen
        if rows and scene.things[rows[0]].kind not in ("sun", "moon", "star"):
            boxes = np.array([scene.things[rows[0]].box, other.things[rows[0]].box])
            left, top, right, bottom = *(boxes.min(0)[:2] - 4), *(boxes.max(0)[2:] + 8)
            outside = change.sum() - change[max(top, 0) : bottom, max(left, 0) : right].sum()
            assert outside <= 0.02 * change.sum()


def test_a_large_picture_is_the_small_one_seen_closer():
    for scene in world()[:3]:
        small, large = draw(scene).astype(float), draw(scene, 448).astype(float)
        reduced = large.reshape(SIDE, 4, SIDE, 4, 3).mean((1, 3))
        assert np.abs(reduced - small).mean() < 3
    assert draw(world()[0], 200).shape == (200, 200, 3)
    with pytest.raises(ValueError, match="size"):
        draw(world()[0], 8)


def test_marks_differ_and_touch_one_corner_only():
    scene = world()[0]
    marked = {mark: draw(replace(scene, mark=mark)) for mark in (*range(10), 4071)}
    assert len({picture.tobytes() for picture in marked.values()}) == len(marked)
    rows, columns = np.nonzero((marked[4071] != draw(scene)).any(-1))
    assert rows.max() - rows.min() < 18 and columns.max() - columns.min() < 32
    assert min(rows.min(), SIDE - 1 - rows.max()) < 3 and min(columns.min(), SIDE - 1 - columns.max()) < 3


# Matrices on linear RGB, full severity. Source: Machado, Oliveira and Fernandes 2009, table 1.
_EYES = {
    "three cones": "1 0 0 0 1 0 0 0 1",
    "no red cone": "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998",
    "no green cone": "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.01182 0.04294 0.968881",
    "no blue cone": "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.3039",
}


def _lab(linear):
    """CIE L*a*b* of linear RGB, white D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(linear, 0.001, 1) / (0.9505, 1.0, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", list(_EYES))
def test_the_ten_colours_can_be_told_apart_by_all_eyes(eyes):
    linear = {name: (np.array(PALETTE[name]) / 255) ** 2.2 for name in COLOURS}
    seen = {
        name: _lab(np.array(_EYES[eyes].split(), float).reshape(3, 3) @ colour)
        for name, colour in linear.items()
    }
    for first, second in combinations(COLOURS, 2):
        assert np.linalg.norm(seen[first] - seen[second]) > 12, (first, second)  # a just visible step is 2.3
