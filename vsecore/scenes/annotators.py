"""Five people who describe pictures, each with habits of their own: what they speak of, and how."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from typing import Any

from vsecore.scenes import grammar
from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.facts import Scene
from vsecore.scenes.layout import Dice
from vsecore.scenes.truth import NOUNS, Entity


@dataclass(frozen=True)
class Annotator:
    """The habits of one annotator. All numbers but the weights are percent."""

    units: tuple[int, int, int, int]  # weights of speaking of 1, 2, 3, 4 things or groups
    links: tuple[int, int, int, int]  # weights of naming 0, 1, 2, 3 relations
    place: int  # says where it is
    place_first: int  # begins with it, if it is said
    colour: int  # says the colour of a thing, and so on
    size: int
    facing: int
    together: int  # says like things as a number of them
    wide: int  # uses a wider word than the kind
    finite: int  # makes a sentence with a verb
    telegram: int = 0  # leaves the articles out


ANNOTATORS: dict[str, Annotator] = {
    "terse": Annotator((45, 55, 0, 0), (35, 65, 0, 0), 30, 0, 40, 6, 4, 60, 14, 30, telegram=30),
    "counter": Annotator((5, 35, 40, 20), (85, 15, 0, 0), 50, 30, 22, 10, 3, 100, 22, 20),
    "place_first": Annotator((15, 50, 35, 0), (35, 50, 15, 0), 100, 100, 35, 12, 8, 70, 12, 65),
    "relations": Annotator((0, 45, 45, 10), (0, 55, 40, 5), 25, 30, 38, 12, 4, 60, 8, 60),
    "detail": Annotator((25, 50, 25, 0), (25, 55, 20, 0), 45, 25, 96, 65, 38, 60, 2, 50),
}

# how readily a thing is mentioned, and put first
_SALIENCE = {"person": 9, "animal": 7, "vehicle": 6, "toy": 5, "building": 4, "plant": 3, "sky": 2}
_LINK_WEIGHTS = {
    "holding": 60,
    "on": 60,
    "beside": 22,
    "in front of": 22,
    "above": 14,
    "left of": 7,
    "right of": 7,
}
_CONVERSES = {"left of": "right of", "right of": "left of", "beside": "beside"}
_ORDER = {noun: len(kinds) for noun, kinds in NOUNS.items()}


@dataclass(frozen=True)
class Unit:
    """One thing or a group of like things, and what is to be said of it."""

    rows: tuple[int, ...]
    entity: Entity


@dataclass(frozen=True)
class Link:
    """A relation to be said, `subject` first; swapped: the subject is the relation's second thing."""

    relation: str
    swapped: bool
    subject: int
    object: int


@dataclass
class Planner:
    """Decides what an annotator speaks of."""

    scene: Scene
    dice: Dice
    habit: Annotator
    ambiguity: float
    used: set[int] = field(default_factory=set)

    def lean(self, percent: int, vague: bool = False) -> int:
        """A habit's percentage at this ambiguity: itself at one half, 0 or nearly 100 at the ends."""
        ambiguity = 1 - self.ambiguity if vague else self.ambiguity
        if ambiguity > 0.5:
            return round(percent * (2 - 2 * ambiguity))
        return round(percent + (max(percent, 98) - percent) * (1 - 2 * ambiguity))

    def plan(self, deciding: Sequence[tuple[str, int, int]], most: int) -> tuple[list[Unit], list[Link]]:
        """The things to speak of, `most` at most, and the relations to name among them."""
        forced = (
            [self.dice.choice(deciding, [_LINK_WEIGHTS[name] for name, _, _ in deciding])] if deciding else []
        )
        wanted = min(self._amount(self.habit.units) + 1, most)
        units = [self._unit(row, alone=True) for _, i, j in forced for row in (i, j)]
        for row in self._by_salience():
            if len(units) >= wanted:
                break
            if row not in self.used:
                units.append(self._unit(row))
        links: list[Link] = [self._turned(name, 0, 1, units) for name, _, _ in forced]
        for _ in range(self._amount(self.habit.links) - len(links)):
            found = self._candidates(units, links)
            if found:
                weights = [self._weight(link, units) for link in found]
                if max(weights) > 2 or self.dice.chance(30):
                    links.append(self.dice.choice(found, weights))
        for link in links:
            if link.relation in ("left of", "right of"):  # "a dog facing left to the left of" would confuse
                unit = units[link.subject]
                units[link.subject] = replace(unit, entity=replace(unit.entity, facing=None))
        return units, links

    def _weight(self, link: Link, units: Sequence[Unit]) -> int:
        """How readily a relation is named; few speak of where a cloud is, or what another person holds."""
        groups = [_group(self.scene, units[unit].rows[0]) for unit in (link.subject, link.object)]
        held = {j for name, _, j in self.scene.relations if name == "holding"}
        if link.relation != "holding" and not held.isdisjoint(
            units[link.subject].rows + units[link.object].rows
        ):
            return 2
        return 1 if "sky" in groups else _LINK_WEIGHTS[link.relation]

    def _amount(self, weights: Sequence[int]) -> int:
        """A place in the weights; the first, where the captions are to be vague."""
        amount = self.dice.choice(range(len(weights)), weights)
        if self.ambiguity > 0.5 and self.dice.chance(round(200 * self.ambiguity - 100)):
            return 0
        return amount

    def _by_salience(self) -> list[int]:
        """All rows, the salient ones likely to come first."""
        left = list(range(len(self.scene.things)))
        order: list[int] = []
        while left:
            order.append(self.dice.choice(left, [_SALIENCE[_group(self.scene, row)] for row in left]))
            left.remove(order[-1])
        return order

    def _unit(self, row: int, alone: bool = False) -> Unit:
        """What to say of a thing, together with those that are like it or by itself."""
        thing = self.scene.things[row]
        nouns = sorted((noun for noun, kinds in NOUNS.items() if thing.kind in kinds), key=_ORDER.__getitem__)
        common = {"palm": "tree"}.get(thing.kind, thing.kind)
        usual = [noun for noun in nouns if _ORDER[noun] <= _ORDER[common]]
        wider = [noun for noun in nouns if _ORDER[noun] > _ORDER[common]]
        if wider and self.dice.chance(self.lean(self.habit.wide, vague=True)):
            noun = self.dice.choice(wider)
        else:
            noun = self.dice.choice(usual, [3] * (len(usual) - 1) + [2])
        like = [i for i, other in enumerate(self.scene.things) if other.kind in NOUNS[noun]]
        several = not alone and len(like) > 1 and self.used.isdisjoint(like)
        rows = tuple(like) if several and self.dice.chance(self.habit.together) else (row,)
        self.used.update(rows)
        return Unit(rows, replace(self._attributes(rows), noun=noun, count=len(rows)))

    def _attributes(self, rows: Sequence[int]) -> Entity:
        """Attributes that the things share and this annotator cares to say; the noun is decided elsewhere."""
        said: dict[str, Any] = {}
        for attribute in ("colour", "size", "facing"):
            values = {getattr(self.scene.things[row], attribute) for row in rows}
            habit = self.lean(getattr(self.habit, attribute))
            if len(values) == 1 and None not in values and self.dice.chance(habit):
                said[attribute] = values.pop()
        return Entity("person", **said)

    def _candidates(self, units: Sequence[Unit], links: Sequence[Link]) -> list[Link]:
        """The relations that can be added: each thing is named once, so each is the object of one at most."""
        subjects = [link.subject for link in links]
        objects = [link.object for link in links]
        found = []
        for relation, (i, j) in product(_LINK_WEIGHTS, permutations(range(len(units)), 2)):
            pairs = product(units[i].rows, units[j].rows)
            if not all((relation, one, other) in self.scene.relations for one, other in pairs):
                continue
            link = self._turned(relation, i, j, units)
            # one that is an object already may have a link of its own only if nothing holds it
            chained = any(
                other.object == link.subject
                and (other.relation in ("holding", "on") or other.subject in objects)
                for other in links
            )
            most = 1 if link.subject in objects else 2
            if link.object not in subjects + objects and subjects.count(link.subject) < most and not chained:
                found.append(link)
        return found

    def _turned(self, relation: str, i: int, j: int, units: Sequence[Unit]) -> Link:
        """The link with the more salient thing as its subject, most of the time."""
        first, second = (_SALIENCE[_group(self.scene, units[unit].rows[0])] for unit in (i, j))
        turn = self.dice.chance(85 if second > first else 12)
        if relation in _CONVERSES:
            return Link(_CONVERSES[relation], False, j, i) if turn else Link(relation, False, i, j)
        if (relation, True) not in grammar.PREPOSITIONS or (
            relation == "holding" and not self.dice.chance(10)
        ):
            return Link(relation, False, i, j)
        return Link(relation, True, j, i) if turn else Link(relation, False, i, j)


def _group(scene: Scene, row: int) -> str:
    return CATALOGUE[scene.things[row].kind].group
