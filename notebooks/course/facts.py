"""All facts of a drawn scene, each with the scene in which it alone is different, and who says them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from vsecore import scenes
from vsecore.scenes import Picture
from vsecore.scenes.facts import Scene

Fact = tuple[str, str, Scene]
"""The kind of a fact, its words, and the scene in which it alone is different."""
_MIRRORED = {"left of": "right of", "right of": "left of", "beside": "beside"}


def without(scene: Scene, i: int) -> Scene:
    """Return the scene in which thing i is not there."""
    rest = [j for j in range(len(scene.things)) if j != i]
    kept = [relation for relation in scene.relations if i not in relation[1:]]
    relations = tuple((name, rest.index(a), rest.index(b)) for name, a, b in kept)
    return replace(scene, things=tuple(scene.things[j] for j in rest), relations=relations)


def changed(scene: Scene, i: int, **attribute: str) -> Scene:
    """Return the scene in which thing i has another colour, size or facing."""
    things = list(scene.things)
    things[i] = replace(things[i], **attribute)  # type: ignore[arg-type]
    return replace(scene, things=tuple(things))


def unrelated(scene: Scene, *gone: tuple[str, int, int]) -> Scene:
    """Return the scene in which these relations do not hold."""
    return replace(scene, relations=tuple(one for one in scene.relations if one not in gone))


def facts(scene: Scene) -> Iterator[Fact]:
    """Yield each fact of a scene.

    "A left of B" and "B right of A" are one fact; where there are two flowers, "exactly two" is a fact of its
    own.
    """
    yield "place", scene.place, replace(scene, place="elsewhere")
    kinds = [thing.kind for thing in scene.things]
    counts = Counter(kinds)
    names = [one if counts[one] == 1 else f"{one} {kinds[:i].count(one)}" for i, one in enumerate(kinds, 1)]
    for i, (name, thing) in enumerate(zip(names, scene.things, strict=True)):
        yield "thing", name, without(scene, i)
        for what in ("colour", "size", "facing"):
            if (value := getattr(thing, what)) is not None:
                words = f"{name}: looks {value}" if what == "facing" else f"{name}: {value}"
                yield what, words, changed(scene, i, **{what: "otherwise"})
    for kind, count in counts.items():
        if count > 1:
            one_more = (*scene.things, scene.things[kinds.index(kind)])
            yield "count", f"{kind}: {count}, no more", replace(scene, things=one_more)
    for relation, a, b in scene.relations:
        twin = (_MIRRORED.get(relation, ""), b, a)
        if twin not in scene.relations or a < b:
            kind = "holding" if relation == "holding" else "relation"
            yield kind, f"{names[a]} {relation} {names[b]}", unrelated(scene, (relation, a, b), twin)


def says(picture: Picture) -> tuple[list[Fact], np.ndarray]:
    """Return the facts of a picture, and which of its captions says which, bool (facts, captions)."""
    found = list(facts(picture.scene))
    said = [[not scenes.holds(one.form, other) for one in picture.captions] for _, _, other in found]
    return found, np.array(said)
