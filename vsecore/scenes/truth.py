"""What a sentence claims, and of which scenes it is true.

A `Form` is a sentence without its words. It is small, exact and can be stored as JSON; `holds` decides by
search whether it is true of a scene. Because every caption carries its form, the true relevance between
all captions and all pictures is known, and with it every false negative.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.facts import COLOURS, PLACES, RELATIONS, Scene, Thing

SIZES = ("small", "large")
FACINGS = ("left", "right")
_WIDER = {
    "child": ("girl", "boy"),
    "adult": ("woman", "man"),
    "pet": ("dog", "cat"),
    "bird": ("bird", "duck"),  # whoever says "a bird" of a duck is right,
    "boat": ("boat", "sailboat"),  # and so with boats
    "tree": ("tree", "palm"),  # and trees
    "toy": ("ball", "kite", "balloon", "sledge"),  # the group "toy" holds umbrellas too, which are none
}


# Each noun that a form may use -> the kinds it is true of.
NOUNS: dict[str, frozenset[str]] = {
    **{kind: frozenset([kind]) for kind in CATALOGUE},
    **{noun: frozenset(kinds) for noun, kinds in _WIDER.items()},
    **{
        group: frozenset(name for name, kind in CATALOGUE.items() if kind.group == group)
        for group in ("person", "animal", "vehicle", "plant")
    },
}


def _standing(*carriers: str) -> frozenset[str]:
    return frozenset(name for name, kind in CATALOGUE.items() if kind.stands in carriers)


# What may be said of a thing by itself beside its attributes -> the kinds of which it is true, as long as
# the thing is not on another thing (a bird on a bench does not fly).
STATES: dict[str, frozenset[str]] = {
    "flying": _standing("air"),
    "in the sky": _standing("air", "sky"),
    "on the water": _standing("water"),
    "floating": _standing("water") | {"balloon", "cloud"},
    "sailing": frozenset(["boat", "sailboat"]),
    "on the road": _standing("road"),
    "parked": _standing("road") | {"bicycle", "tractor"},
    "shining": frozenset(["sun", "moon", "star"]),
    "growing": frozenset(["tree", "palm", "bush"]),
}


@dataclass(frozen=True)
class Entity:
    """One thing, or so many like things, that a sentence speaks of. None: it is not said."""

    noun: str  #: a kind ("girl") or a wider word ("child", "person"); one of `NOUNS`
    count: int = 1  #: 1 says that there is at least one; n > 1 says that there are exactly n
    colour: str | None = None  #: as in the facts (a person's colour is the colour of the coat)
    size: str | None = None  #: "small" or "large"
    facing: str | None = None  #: "left" or "right"
    state: str | None = None  #: one of `STATES` ("flying")

    def __post_init__(self) -> None:
        """Refuse an entity that could never be judged."""
        _one_of("noun", self.noun, NOUNS)
        if self.count < 1:
            raise ValueError(f"count is {self.count}; an entity needs at least 1.")
        for field, known in {"colour": COLOURS, "size": SIZES, "facing": FACINGS, "state": STATES}.items():
            if (value := getattr(self, field)) is not None:
                _one_of(field, value, known)

    def kinds(self) -> frozenset[str]:
        """The kinds of which the noun and the state can be true."""
        return NOUNS[self.noun] & STATES[self.state] if self.state else NOUNS[self.noun]

    def fits(self, thing: Thing, carried: bool = False) -> bool:
        """Whether all that is said is true of a thing; `carried` says that it is on another thing."""
        return (
            thing.kind in self.kinds()
            and not (carried and self.state)
            and self.colour in (None, thing.colour)
            and self.size in (None, thing.size)
            and self.facing in (None, thing.facing)
        )


@dataclass(frozen=True)
class Form:
    """The logical form of a sentence: exactly what it claims and nothing more.

    A form is true of a scene when all of this holds at once:

    - the scene is at `place` and bears `mark`, where they are said;
    - each entity of count 1 can be given one thing of the scene that fits its noun, attributes and state;
    - each entity of count n > 1 is given all things that fit, and they are exactly n ("two dogs" is false
      of three dogs; "a dog" is true of them);
    - no thing is given to two entities: different noun phrases speak of different things;
    - for each relation (name, i, j), every thing given to entity i stands so to every thing given to
      entity j.
    """

    place: str | None = None  #: one of `facts.PLACES`; None: not said
    entities: tuple[Entity, ...] = ()  #: in the order of mention
    relations: tuple[tuple[str, int, int], ...] = ()
    """As (relation, i, j), i and j places in `entities`; sorted, without repetition, so that equal claims in
    another order are equal forms."""
    mark: int | None = None  #: the number of the picture's mark; None: not said

    def __post_init__(self) -> None:
        """Refuse a form that could never be judged; put the relations in order."""
        if self.place is not None:
            _one_of("place", self.place, PLACES)
        for name, i, j in self.relations:
            _one_of("relation", name, RELATIONS)
            if not (0 <= i < len(self.entities) and 0 <= j < len(self.entities) and i != j):
                raise ValueError(
                    f"relation {(name, i, j)} must join two of the {len(self.entities)} entities."
                )
        object.__setattr__(self, "relations", tuple(sorted(set(self.relations))))

    def to_dict(self) -> dict[str, Any]:
        """The form in JSON's types; what is not said is left out."""

        def said(of: Entity | Form, usual: Entity | Form) -> dict[str, Any]:
            return {name: x for name, x in vars(of).items() if x != getattr(usual, name)}

        entities = [{"noun": one.noun, **said(one, Entity(one.noun))} for one in self.entities]
        relations = [list(relation) for relation in self.relations]
        rest = {name: x for name, x in said(self, Form()).items() if name not in ("entities", "relations")}
        return {"entities": entities, **({"relations": relations} if relations else {}), **rest}


def holds(form: Form, scene: Scene) -> bool:
    """Whether a form is true of a scene, by exact search. `Form` says what true means."""
    if form.place not in (None, scene.place) or form.mark not in (None, scene.mark):
        return False
    carried = {i for name, i, _ in scene.relations if name == "on"}
    choices: list[list[tuple[int, ...]]] = []  # for each entity, the sets of things it may be given
    for entity in form.entities:
        fitting = tuple(i for i, thing in enumerate(scene.things) if entity.fits(thing, i in carried))
        if entity.count == 1:
            choices.append([(i,) for i in fitting])
        elif len(fitting) == entity.count:
            choices.append([fitting])
        else:
            return False
        if not choices[-1]:
            return False
    true_relations = frozenset(scene.relations)

    def relations_hold(given: list[tuple[int, ...]]) -> bool:
        """Whether the relations that the newest entity completes are true."""
        newest = len(given) - 1
        return all(
            (name, a, b) in true_relations
            for name, i, j in form.relations
            if max(i, j) == newest
            for a in given[i]
            for b in given[j]
        )

    def search(given: list[tuple[int, ...]], taken: frozenset[int]) -> bool:
        """Whether the entities after those given can be given things too."""
        if len(given) == len(choices):
            return True
        return any(
            relations_hold([*given, things]) and search([*given, things], taken.union(things))
            for things in choices[len(given)]
            if taken.isdisjoint(things)
        )

    return search([], frozenset())


def relevance(captions: Sequence[Any], scenes: Sequence[Scene]) -> np.ndarray:
    """Which of C captions, or of things with a `form`, is true of which of S scenes, (C, S) bool, fast.

    Each condition of a form is first looked up for all scenes at once (place, mark, how many things fit an
    entity, whether some pair of fitting things stands in a relation). These conditions are necessary; the
    few scenes that meet them all are then decided by `holds`.
    """
    table = _SceneTable(scenes)
    true = np.zeros((len(captions), len(scenes)), dtype=bool)
    decided: dict[Form, np.ndarray] = {}
    for row, caption in enumerate(captions):
        form = caption.form
        if form not in decided:
            possible = table.possible(form)  # (S,)
            if not _needs_search(form):
                decided[form] = possible
            else:
                decided[form] = np.zeros(len(scenes), dtype=bool)
                survivors = [s for s in np.flatnonzero(possible).tolist() if holds(form, scenes[s])]
                decided[form][survivors] = True
        true[row] = decided[form]
    return true


def _needs_search(form: Form) -> bool:
    """Whether the look-ups alone cannot decide: two entities may want one thing, or relations share one."""
    if len(form.relations) > 1 or any(entity.count > 1 for entity in form.entities if form.relations):
        return True
    kinds = [entity.kinds() for entity in form.entities]
    return any(not a.isdisjoint(b) for row, a in enumerate(kinds) for b in kinds[:row])


class _SceneTable:
    """The facts of all scenes in flat arrays, one row a thing and one row a relation.

    T things and R relations in all.
    """

    def __init__(self, scenes: Sequence[Scene]) -> None:
        self.scenes = len(scenes)
        self.places = np.array([scene.place for scene in scenes], dtype=object)  # (S,)
        self.marks = np.array([scene.mark for scene in scenes], dtype=object)  # (S,)
        things = [(s, thing) for s, scene in enumerate(scenes) for thing in scene.things]
        self.owner = np.array([s for s, _ in things], dtype=np.int64)  # (T,)   each thing's scene
        self.facts = {
            name: np.array([getattr(thing, name) for _, thing in things], dtype=object)  # (T,)
            for name in ("kind", "colour", "size", "facing")
        }
        first = np.cumsum([0, *(len(scene.things) for scene in scenes)])  # (S+1,)
        relations = [(n, first[s] + i, first[s] + j) for s, x in enumerate(scenes) for n, i, j in x.relations]
        self.relation = np.array([name for name, _, _ in relations], dtype=object)  # (R,)
        self.ends = np.array([(i, j) for _, i, j in relations], dtype=np.int64).reshape(-1, 2)  # (R, 2)
        self.carried = np.zeros(len(things), dtype=bool)  # (T,)   on another thing
        self.carried[self.ends[self.relation == "on", 0]] = True
        self.of_kind = {kind: self.facts["kind"] == kind for kind in CATALOGUE}
        self.fitting = lru_cache(maxsize=None)(self._fitting)
        self.enough = lru_cache(maxsize=None)(self._enough)
        self.related = lru_cache(maxsize=None)(self._related)

    def _fitting(self, entity: Entity) -> np.ndarray:
        """(T,) bool: the things of which all that an entity says is true."""
        fit = np.zeros(len(self.owner), dtype=bool)
        for kind in entity.kinds():
            fit |= self.of_kind[kind]
        if entity.state:
            fit &= ~self.carried
        for name in ("colour", "size", "facing"):
            if (said := getattr(entity, name)) is not None:
                fit &= self.facts[name] == said
        return fit

    def _enough(self, entity: Entity) -> np.ndarray:
        """(S,) bool: the scenes with as many fitting things as the entity wants."""
        count = np.bincount(self.owner[self.fitting(entity)], minlength=self.scenes)
        return count == entity.count if entity.count > 1 else count > 0

    def _related(self, name: str, one: Entity, other: Entity) -> np.ndarray:
        """(S,) bool: the scenes in which some thing that fits `one` stands so to one that fits `other`."""
        true = self.relation == name
        true &= self.fitting(one)[self.ends[:, 0]] & self.fitting(other)[self.ends[:, 1]]
        possible = np.zeros(self.scenes, dtype=bool)
        possible[self.owner[self.ends[true, 0]]] = True
        return possible

    def possible(self, form: Form) -> np.ndarray:
        """(S,) bool: the scenes that meet every condition of the form taken by itself."""
        possible = np.ones(self.scenes, dtype=bool)
        if form.place is not None:
            possible &= self.places == form.place
        if form.mark is not None:
            possible &= self.marks == form.mark
        for entity in form.entities:
            possible &= self.enough(entity)
        for name, i, j in form.relations:
            possible &= self.related(name, form.entities[i], form.entities[j])
        return possible


def _one_of(field: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise ValueError(f"{field} is {value!r}; it must be one of {', '.join(known)}.")
