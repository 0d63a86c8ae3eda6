"""The exercises of notebook 01, *Pictures and captions*."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of
from vsecore import scenes
from vsecore.scenes import Form, Scene

SHOWN = 12
"""The picture of the test split that the notebook looks at."""
LOOKALIKES = (37, 60)
"""Two more beaches with umbrellas."""
PICTURES = 200
"""How many pictures of the test split a sentence is tried on: all that tier smoke has."""


@cache
def _scenes() -> tuple[Scene, ...]:
    """The first scenes of the test split, by their rows."""
    return tuple(picture.scene for picture in scenes.generate(PICTURES, split="test"))


def _true_of(sentence: str) -> set[int]:
    """The rows of the first scenes of which a sentence is true."""
    form = scenes.parse(sentence)
    return {row for row, scene in enumerate(_scenes()) if scenes.holds(form, scene)}


def _careless(form: Form, scene: Scene) -> bool:
    """Like `scenes.holds`, but one thing may be matched with two entities."""
    carried = {i for name, i, _ in scene.relations if name == "on"}
    if form.place not in (None, scene.place) or form.mark not in (None, scene.mark):
        return False
    choices: list[list[tuple[int, ...]]] = []
    for entity in form.entities:
        fitting = tuple(i for i, thing in enumerate(scene.things) if entity.fits(thing, i in carried))
        if entity.count == 1:
            choices.append([(i,) for i in fitting])
        else:
            choices.append([fitting] if len(fitting) == entity.count else [])
    return any(
        all(
            (name, a, b) in scene.relations
            for name, i, j in form.relations
            for a in given[i]
            for b in given[j]
        )
        for given in itertools.product(*choices)
    )


def _fools(sentence: str) -> bool:
    form, scene = scenes.parse(sentence), _scenes()[SHOWN]
    return _careless(form, scene) and not scenes.holds(form, scene)


Relation = tuple[str, int, int]
Case = tuple[list[tuple[int, ...]], list[Relation], list[Relation]]
"""The things of each entity, the relations claimed, those of the scene."""


def _consistent(
    matched: Sequence[Sequence[int]], claimed: Sequence[Relation], facts: Sequence[Relation]
) -> bool:
    """Whether no thing is matched twice, and what is claimed of entities holds for the things matched."""
    taken = list(itertools.chain.from_iterable(matched))
    return len(taken) == len(set(taken)) and all(
        (name, a, b) in facts for name, i, j in claimed for a in matched[i] for b in matched[j]
    )


def _decides(answer: Callable[..., Any], *cases: Case) -> bool:
    """Whether an answer says of each case, and says with a truth value, what is right."""
    made = [answer(*case) for case in cases]
    return all(isinstance(one, bool | np.bool_) for one in made) and made == [
        _consistent(*case) for case in cases
    ]


ONE_THING: Case = ([(2,)], [], [("left of", 0, 1)])
TWICE: Case = ([(2,), (2,)], [], [])
TWICE_IN_GROUPS: Case = ([(0, 1), (3,), (1,)], [], [])
HOLDING: Case = ([(2,), (0,)], [("holding", 0, 1)], [("left of", 0, 2), ("holding", 2, 0)])
HELD: Case = ([(2,), (0,)], [("holding", 1, 0)], [("left of", 0, 2), ("holding", 2, 0)])
NUMBERS_TAKEN_FOR_THINGS: Case = ([(2,), (0,)], [("holding", 0, 1)], [("holding", 0, 1)])
ONE_OF_TWO_CLAIMS: Case = ([(2,), (0,)], [("holding", 0, 1), ("left of", 0, 1)], [("holding", 2, 0)])
ONE_OF_TWO_DOGS: Case = ([(0, 1), (2,)], [("left of", 0, 1)], [("left of", 0, 2)])
BOTH_DOGS: Case = ([(0, 1), (2,)], [("left of", 0, 1)], [("left of", 0, 2), ("left of", 1, 2)])
"""What the trials of `01.true` try."""


def _random_world(pictures: int, captions_each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which caption is true of which picture, (Nc, Ni), and the owner of each, (Nc,): drawn at random."""
    owner = np.repeat(np.arange(pictures), captions_each)
    truth = np.random.default_rng(seed).random((len(owner), pictures)) < 0.3
    truth[np.arange(len(owner)), owner] = True
    return truth, owner


def _expected_false_negatives(truth: np.ndarray, owner: np.ndarray, batch: int) -> float:
    """The expected false negatives in a batch of so many pairs, each of another picture."""
    captions, pictures = truth.shape
    foreign = truth.sum() - truth[np.arange(captions), owner].sum()
    return float(batch * (batch - 1) * foreign / (captions * (pictures - 1)))


def _counts(answer: Callable[..., Any], batch: int, captions_each: int) -> bool:
    world = _random_world(pictures=9, captions_each=captions_each, seed=batch)
    return near(answer(*world, batch), _expected_false_negatives(*world, batch), 1e-6)


def _with_all_true(answer: Callable[..., Any], batch: int) -> float:
    """An answer for six pictures with a caption each, where every caption is true of every picture."""
    return float(answer(np.ones((6, 6), dtype=bool), np.arange(6), batch))


EXERCISES: dict[str, Exercise] = {
    "01.true": Exercise(
        "Is it true?",
        "code",
        12,
        (
            Trial(
                lambda answer: _decides(answer, ONE_THING),
                "One entity and no claimed relation: neither rule can be broken. Return True.",
            ),
            Trial(
                lambda answer: _decides(answer, TWICE),
                "Two entities may not be matched with the same thing (rule 2): return False there.",
            ),
            Trial(
                lambda answer: _decides(answer, HOLDING, HELD),
                "A claimed relation must be among the facts, and its direction counts.",
            ),
            Trial(
                lambda answer: _decides(answer, ONE_OF_TWO_CLAIMS),
                "Every claimed relation must hold, not only one of them.",
            ),
            Trial(
                lambda answer: _decides(answer, ONE_OF_TWO_DOGS, BOTH_DOGS),
                "An entity may have several things: what is claimed must hold for each of them.",
            ),
            Trial(
                lambda answer: _decides(answer, TWICE_IN_GROUPS),
                "A thing may also come twice in groups of several: look at all numbers together.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: answer(*NUMBERS_TAKEN_FOR_THINGS) and not answer(*HOLDING),
                "A relation is claimed of entities, and the facts are about things: look up in matched which "
                "things the entities are.",
            ),
            Trial(
                lambda answer: answer(*BOTH_DOGS) and answer(*ONE_OF_TWO_DOGS) and not answer(*HELD),
                "You accept a group if one of its things fits: every one must.",
            ),
            Trial(
                lambda answer: answer(*HELD) and answer(*HOLDING) and not answer(*TWICE),
                "You forgot rule 3, or the direction: who holds whom makes a difference.",
            ),
        ),
        reference=_consistent,
    ),
    "01.share": Exercise(
        "Count what the protocol calls false",
        "compute",
        4,
        (
            Trial(
                lambda answer: 0 < float(answer) <= 100,
                "Give a percentage above 0: how many of a hundred true pairs are called false?",
            ),
            Trial(
                lambda answer: near(answer, 40),
                "Count the ones; take away those of each caption with its own picture; divide by the ones.",
            ),
        ),
        mistakes=(
            Trial(lambda answer: near(answer, 0.4), "That is right as a share; give it in percent."),
            Trial(
                lambda answer: near(answer, 60),
                "That is the share of the true pairs that the protocol knows; give the share of the others.",
            ),
            Trial(
                lambda answer: near(answer, 100 * 4 / 12, 0.1),
                "You divided by all pairs that the protocol calls false; divide by the number of true pairs.",
            ),
            Trial(
                lambda answer: near(answer, 100 * 4 / 18, 0.1),
                "You divided by all cells of the matrix; divide by the number of true pairs.",
            ),
            Trial(lambda answer: near(answer, 4), "That is how many there are; give the percentage."),
        ),
    ),
    "01.sentence": Exercise(
        "One picture only",
        "code",
        6,
        (
            Trial(
                lambda answer: bool(scenes.parse(answer)),
                "The world cannot read this: name its things as the captions do.",
            ),
            Trial(
                lambda answer: SHOWN in _true_of(answer),
                "This is not true of the picture: look at it, and at its facts, again.",
            ),
            Trial(
                lambda answer: _true_of(answer).isdisjoint(LOOKALIKES),
                "This is also true of another beach with an umbrella: say what the other one lacks.",
            ),
            Trial(
                lambda answer: _true_of(answer) == {SHOWN},
                "This is also true of some other picture: try it in the cell above, and say more.",
            ),
            Trial(
                lambda answer: len(answer.split()) <= 8,
                "This is true of picture 12 alone, but it is too long: leave out what is not needed.",
            ),
        ),
    ),
    "01.predict": Exercise(
        "A prediction",
        "predict",
        2,
        one_of("terse", "counter", "place first", "relations", "detail"),
        difficulty="easy",
        message=NOTED,
    ),
    "01.batch": Exercise(
        "Expect false negatives",
        "code",
        12,
        (
            Trial(
                lambda answer: (
                    (made := answer(np.eye(6, dtype=bool), np.arange(6), 4)) is not None and near(made, 0)
                ),
                "Return a number: 0 where each caption is true of its own picture alone.",
            ),
            Trial(
                lambda answer: near(_with_all_true(answer, 1), 0),
                "A batch of one pair has nothing off its diagonal.",
            ),
            Trial(
                lambda answer: near(_with_all_true(answer, 4), 12),
                "If every caption is true of every picture, every cell off the diagonal of the batch is a "
                "false negative.",
            ),
            Trial(
                lambda answer: _counts(answer, batch=5, captions_each=1),
                "Multiply the cells off the diagonal by the share of foreign pairs that are true.",
            ),
            Trial(
                lambda answer: _counts(answer, batch=5, captions_each=3),
                "With several captions a picture it is wrong: use owner, and divide by all foreign pairs.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer(np.eye(6, dtype=bool), np.arange(6), 4), 12 / 6),
                "You took a share of all pairs; a caption and its own picture are not a foreign pair.",
            ),
            Trial(
                lambda answer: near(_with_all_true(answer, 4), 16),
                "You counted the diagonal: a pair is not its own negative.",
            ),
            Trial(
                lambda answer: near(_with_all_true(answer, 4), 6),
                "You counted half of the cells: row 1, column 2 and row 2, column 1 are two cells.",
            ),
            Trial(
                lambda answer: near(_with_all_true(answer, 4), 1),
                "That is the share; multiply it by the number of cells off the diagonal.",
            ),
        ),
        reference=_expected_false_negatives,
    ),
    "01.break": Exercise(
        "Break it",
        "break",
        8,
        (
            Trial(
                lambda answer: bool(scenes.parse(answer)),
                "The world cannot read this: name its things as the captions do.",
            ),
            Trial(
                _fools,
                "Name one thing of the picture twice, as if it were two: what else could it be called?",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: scenes.holds(scenes.parse(answer), _scenes()[SHOWN]),
                "Both judges call this true, and they are right: say something false.",
            ),
            Trial(
                lambda answer: any(entity.count > 1 for entity in scenes.parse(answer).entities),
                "Both judges count things before they match them: use no number.",
            ),
            Trial(
                lambda answer: len(scenes.parse(answer).entities) < 2,
                "Your sentence speaks of one thing only: speak of two, so that one can be matched twice.",
            ),
            Trial(
                lambda answer: not _careless(scenes.parse(answer), _scenes()[SHOWN]),
                "Both judges call this false: all that you say must fit something in the picture.",
            ),
        ),
    ),
    "01.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
