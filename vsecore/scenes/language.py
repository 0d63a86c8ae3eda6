"""Says what is in a scene, as five people would, and reads such sentences back.

A `_Planner` decides what an annotator speaks of; a `Speaker` writes the words and the logical form side by
side: whatever it says it enters into the form, and nothing else. So every caption is true of its own scene,
and its form is exactly what its words claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vsecore.scenes import grammar
from vsecore.scenes.annotators import ANNOTATORS, Annotator
from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.facts import Scene
from vsecore.scenes.layout import Dice
from vsecore.scenes.parsing import known_words, parse
from vsecore.scenes.speaking import Link, Speaker, Unit
from vsecore.scenes.truth import NOUNS, Entity, Form, holds

__all__ = ["ANNOTATORS", "Caption", "Entity", "Form", "describe", "known_words", "parse"]

FEWEST_WORDS, MOST_WORDS = 4, 18


@dataclass(frozen=True)
class Caption:
    """A sentence about a picture.

    Attributes:
        text: the sentence.
        form: what it claims.
        annotator: the name of the one who said it, a key of `ANNOTATORS`.
    """

    text: str
    form: Form
    annotator: str


# how willingly a thing is spoken of, and put first
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
_ORDER = {noun: len(kinds) for noun, kinds in NOUNS.items()}


def describe(
    scene: Scene, dice: Dice, ambiguity: float | None = None, unlike: Scene | None = None
) -> tuple[Caption, ...]:
    """Five captions by the five annotators of `ANNOTATORS`, in their order, each true of the scene.

    A scene with a mark gets captions that name it.

    Args:
        scene: what is described.
        dice: all chance comes from it; equal dice give equal captions.
        ambiguity: 0 to 1: the higher, the wider the words and the less is said, so that more scenes fit.
            None is the annotators' own habit, the same as one half.
        unlike: a scene with the same things in the same order, of which other relations are true. Every
            caption then names a relation that tells the two apart, and is false of `unlike`.

    Raises:
        ValueError: ambiguity is outside 0 to 1, or no relation tells the two scenes apart in words.
    """
    if ambiguity is not None and not 0 <= ambiguity <= 1:
        raise ValueError(f"ambiguity is {ambiguity}; a number from 0 to 1 or None is wanted.")
    level = 0.5 if ambiguity is None else ambiguity
    deciding = _deciding(scene, unlike) if unlike is not None else ()
    captions: list[Caption] = []
    for name, habit in ANNOTATORS.items():
        for attempt in range(160):
            # What is too long gets fewer things; what does not tell the twin apart is said more exactly.
            vagueness = level if unlike is None or attempt < 8 else 0.0
            caption = _caption(scene, dice, name, habit, vagueness, 5 - attempt // 3 % 4, deciding)
            long_enough = FEWEST_WORDS <= len(caption.text.split()) <= MOST_WORDS
            said_before = attempt < 8 and any(caption.text == other.text for other in captions)
            if long_enough and not said_before and (unlike is None or not holds(caption.form, unlike)):
                captions.append(caption)
                break
        else:
            raise ValueError(
                "unlike cannot be told apart from scene by the relation of two things that words name."
            )
    return tuple(captions)


def _deciding(scene: Scene, unlike: Scene) -> tuple[tuple[str, int, int], ...]:
    """The relations that are true of a scene and not of the other."""
    deciding = tuple(relation for relation in scene.relations if relation not in unlike.relations)
    if not deciding:
        raise ValueError("unlike has every relation that scene has, so no relation can tell the two apart.")
    return deciding


def _caption(
    scene: Scene,
    dice: Dice,
    name: str,
    habit: Annotator,
    ambiguity: float,
    most: int,
    deciding: Sequence[tuple[str, int, int]],
) -> Caption:
    planner = _Planner(scene, dice, habit, ambiguity)
    units, links = planner.plan(deciding, most)
    speaker = Speaker(scene, dice, habit, units, links, dice.chance(planner.lean(habit.place)))
    return Caption(speaker.speak(), speaker.form(), name)


@dataclass
class _Planner:
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
        """How willingly a relation is named; few speak of where a cloud is, or what another holds."""
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
        nouns = sorted(
            (noun for noun, kinds in NOUNS.items() if thing.kind in kinds), key=lambda noun: _ORDER[noun]
        )
        common = {"palm": "tree"}.get(thing.kind, thing.kind)
        usual = [noun for noun in nouns if _ORDER[noun] <= _ORDER[common]]
        wider = [noun for noun in nouns if _ORDER[noun] > _ORDER[common]]
        if wider and self.dice.chance(self.lean(self.habit.wide, vague=True)):
            noun = self.dice.choice(wider)
        else:
            noun = self.dice.choice(usual, [3] * (len(usual) - 1) + [2])
        like = [i for i, other in enumerate(self.scene.things) if other.kind in NOUNS[noun]]
        if (
            alone
            or len(like) == 1
            or self.used.intersection(like)
            or not self.dice.chance(self.habit.together)
        ):
            rows: tuple[int, ...] = (row,)
        else:
            rows = tuple(like)
        self.used.update(rows)
        return Unit(rows, replace(self._attributes(rows), noun=noun, count=len(rows)))

    def _attributes(self, rows: Sequence[int]) -> Entity:
        """Attributes that the things share and this annotator cares to say; the noun is decided elsewhere."""
        said: dict[str, Any] = {}
        for attribute, percent in (
            ("colour", self.habit.colour),
            ("size", self.habit.size),
            ("facing", self.habit.facing),
        ):
            values = {getattr(self.scene.things[row], attribute) for row in rows}
            if len(values) == 1 and None not in values and self.dice.chance(self.lean(percent)):
                said[attribute] = values.pop()
        return Entity("person", **said)

    def _candidates(self, units: Sequence[Unit], links: Sequence[Link]) -> list[Link]:
        """The relations that can be added: each thing is named once, so each is the object of one at most."""
        subjects = [link.subject for link in links]
        objects = [link.object for link in links]
        found = []
        for relation in _LINK_WEIGHTS:
            for i in range(len(units)):
                for j in range(len(units)):
                    if i != j and self._all_stand(relation, units[i], units[j]):
                        link = self._turned(relation, i, j, units)
                        free = link.object not in subjects and link.object not in objects
                        # one that is an object already may have a link of its own only if nothing holds it
                        chained = any(
                            other.object == link.subject
                            and (other.relation in ("holding", "on") or other.subject in objects)
                            for other in links
                        )
                        if (
                            free
                            and subjects.count(link.subject) < (1 if link.subject in objects else 2)
                            and not chained
                        ):
                            found.append(link)
        return found

    def _all_stand(self, relation: str, one: Unit, other: Unit) -> bool:
        return all((relation, a, b) in self.scene.relations for a in one.rows for b in other.rows)

    def _turned(self, relation: str, i: int, j: int, units: Sequence[Unit]) -> Link:
        """The link with the more salient thing as its subject, most of the time."""
        first, second = (_SALIENCE[_group(self.scene, units[unit].rows[0])] for unit in (i, j))
        turn = self.dice.chance(85 if second > first else 12)
        if relation in ("left of", "right of"):
            other = "right of" if relation == "left of" else "left of"
            return Link(other, False, j, i) if turn else Link(relation, False, i, j)
        if relation == "beside":
            return Link(relation, False, j, i) if turn else Link(relation, False, i, j)
        if (relation, True) not in grammar.PREPOSITIONS or (
            relation == "holding" and not self.dice.chance(10)
        ):
            return Link(relation, False, i, j)
        return Link(relation, True, j, i) if turn else Link(relation, False, i, j)


def _group(scene: Scene, row: int) -> str:
    return CATALOGUE[scene.things[row].kind].group
