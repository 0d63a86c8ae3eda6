"""Pictures of the embedded world with their captions, by number, before they are drawn.

Picture number 7 of a split depends on the seed, the split, the knobs and its number alone. So every size is
the beginning of every larger one, and several processes can make blocks of pictures at once.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from vsecore.scenes.facts import Scene
from vsecore.scenes.language import Caption, describe
from vsecore.scenes.layout import Dice, invent, mirror_relation, variant

FAMILY = 20  #: A near duplicate is of one of at most so many pictures before it, and like none of them

PATIENCE = 40  #: How often chance is asked for a scene with a rare property


@dataclass(frozen=True)
class Picture:
    """One picture before it is drawn: its facts and what five annotators say of it."""

    scene: Scene
    captions: tuple[Caption, ...]


@dataclass(frozen=True)
class Knobs:
    """What can be turned about the world, each for one paper's claim: numbers from 0 to 1."""

    near_duplicates: float = 0.0
    """Share of the pictures that differ from an earlier one in exactly one fact; such families follow each
    other, so that every part of the world has its share."""
    ambiguity: float | None = None
    """How little the captions say, so that each fits more pictures; None: as each annotator likes, which is
    one half."""
    relations_only: float = 0.0
    """Share of the pictures that stand in pairs of the same things, told apart by relations alone; all
    their captions name it."""
    shortcut: float = 0.0
    """Share of the pictures with a mark of their own, drawn in the picture and written in its captions."""

    def __post_init__(self) -> None:
        """Refuse what the world cannot do."""
        for name, value in vars(self).items():
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}: wanted a number from 0 to 1")
        if self.near_duplicates + self.relations_only > 1:
            raise ValueError(
                f"near_duplicates + relations_only is {self.near_duplicates + self.relations_only}: "
                "a picture has one role, so their sum is at most 1"
            )


def generate(count: int, *, seed: int = 0, split: str = "train", **knobs: Any) -> list[Picture]:
    """Invent pictures and caption them; nothing is drawn yet (`drawing.draw` does that).

    Args:
        count: how many, at least 1. The first of them are those that a smaller count gives.
        seed: another seed is another world of the same laws.
        split: any name: splits share no chance, so their pictures are independent.
        knobs: see `Knobs`. With `relations_only`, pictures 2k and 2k + 1 are a pair.

    Returns:
        The pictures, each with five captions.

    Raises:
        ValueError: a count below 1 or a knob outside its range.
    """
    if count < 1:
        raise ValueError(f"count is {count}: wanted 1 or more pictures")
    stream = Stream(seed, split, Knobs(**knobs))
    return [stream.picture(index) for index in range(count)]


class Stream:
    """The pictures of one seed, split and setting of the knobs, by number."""

    def __init__(self, seed: int, split: str, knobs: Knobs) -> None:
        self.seed, self.split, self.knobs = seed, split, knobs
        self.made: dict[int, Picture] = {}

    def picture(self, index: int) -> Picture:
        """The picture of this number: a pure function of it."""
        if index not in self.made:
            if self._in_pair(index):
                first = index - index % 2
                self.made[first], self.made[first + 1] = self._pair(first)
            else:
                scene = self._marked(self._scene(index), index)
                captions = describe(scene, self._dice(index, "captions"), self.knobs.ambiguity)
                self.made[index] = Picture(scene, captions)
        return self.made[index]

    def _dice(self, index: int, purpose: str) -> Dice:
        return Dice(f"{purpose} {self.seed} {self.split} {index}")

    def _happens(self, share: float, index: int, purpose: str) -> bool:
        return self._dice(index, purpose).between(0, 999_999) < share * 1_000_000

    def _marked(self, scene: Scene, index: int) -> Scene:
        """The scene with its mark, which is the picture's number, where the shortcut is laid."""
        return replace(scene, mark=index if self._happens(self.knobs.shortcut, index, "mark") else None)

    def _in_pair(self, index: int) -> bool:
        return self._happens(self.knobs.relations_only, index // 2, "pair")

    def _near(self, index: int) -> bool:
        # Pictures in pairs cannot be near duplicates: the others make up for it, so that the share is kept.
        share = self.knobs.near_duplicates / max(1 - self.knobs.relations_only, 1e-9)
        if index == 0 or (share >= 1 and index % FAMILY == 0):  # else all would be one family
            return False
        return not self._in_pair(index) and self._happens(share, index, "near")

    def _scene(self, index: int) -> Scene:
        """A new scene, or a near duplicate of an earlier one."""
        if self._near(index):
            first = index - 1
            while self._near(first) and index - first < FAMILY:
                first -= 1
            family = [replace(self.picture(member).scene, mark=None) for member in range(first, index)]
            dice = self._dice(index, "variant")
            for _ in range(PATIENCE):
                with suppress(ValueError):  # there may be one in which no single fact can change
                    changed = variant(dice.choice(family), dice)
                    if all(_facts(changed) != _facts(member) for member in family):
                        return changed
        return invent(self.seed, index, self.split)

    def _pair(self, first: int) -> tuple[Picture, Picture]:
        """Two pictures of the same things, and captions of which each is true of its own picture alone."""
        for attempt in range(PATIENCE):
            dice = self._dice(first, f"relations {attempt}")
            scene = invent(self.seed, first, f"{self.split} {attempt}" if attempt else self.split)
            # These things may stand in one way only, or words may not reach what tells the two apart.
            with suppress(ValueError):
                one, other = self._marked(scene, first), self._marked(mirror_relation(scene, dice), first + 1)
                return self._told_apart(one, other, dice), self._told_apart(other, one, dice)
        raise RuntimeError(f"no two scenes could be told apart at picture {first} of split {self.split!r}")

    def _told_apart(self, scene: Scene, other: Scene, dice: Dice) -> Picture:
        """The picture of a scene whose captions are false of the other scene, whatever its mark is."""
        unmarked = replace(other, mark=scene.mark)
        return Picture(scene, describe(scene, dice, self.knobs.ambiguity, unlike=unmarked))


def _facts(scene: Scene) -> tuple[object, ...]:
    """What captions can speak of; where things stand to the pixel is not of it."""
    things = tuple((thing.kind, thing.colour, thing.size, thing.facing) for thing in scene.things)
    return scene.place, things, scene.relations
