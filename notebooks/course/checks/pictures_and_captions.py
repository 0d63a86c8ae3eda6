"""The exercises of notebook 01, *Pictures and captions*."""

import itertools
from functools import cache

import numpy as np

from course.checks.comparing import between, equals, holds, like, same
from course.checks.kinds import break_it, code, compute, explore, predict
from vsecore import scenes

SHOWN = 12
"""The picture of the test split that the notebook looks at."""
LOOKALIKES = (37, 60)
"""Two more beaches with umbrellas."""
PICTURES = 200
"""How many pictures of the test split a sentence is tried on: all that tier smoke has."""


def consistent(matched, claimed, facts):
    taken = list(itertools.chain.from_iterable(matched))
    return len(taken) == len(set(taken)) and claims_hold(matched, claimed, facts)


def claims_hold(matched, claimed, facts):
    return all((name, a, b) in facts for name, i, j in claimed for a in matched[i] for b in matched[j])


def case(matched=((2,), (0,)), claimed=(("holding", 0, 1),), facts=(("left of", 0, 2), ("holding", 2, 0))):
    """The things of each entity, the relations claimed, those of the scene."""
    return [*matched], [*claimed], [*facts]


def truth_value(made):
    return made if isinstance(made, bool | np.bool_) else None


NO_CLAIM: dict = {"claimed": []}
TWICE = NO_CLAIM | {"matched": [(2,), (2,)]}
HELD = {"claimed": [("holding", 1, 0)]}
DOGS = {"matched": [(0, 1), (2,)], "claimed": [("left of", 0, 1)]}
ONE_OF_TWO_DOGS = DOGS | {"facts": [("left of", 0, 2)]}
BOTH_DOGS = DOGS | {"facts": [("left of", 0, 2), ("left of", 1, 2)]}
OF_ONE_OF_TWO = DOGS | {"claimed": [("right of", 1, 0)], "facts": [("right of", 2, 0)]}

TRUE = {
    "One entity and no claimed relation: neither rule can be broken. Return True.": same(
        NO_CLAIM, matched=[(2,)], by=truth_value
    ),
    "Two entities may not be matched with the same thing (rule 2): return False there.": same(
        TWICE, by=truth_value
    ),
    "A claimed relation must be among the facts, and its direction counts.": same({}, HELD, by=truth_value),
    "Every claimed relation must hold, not only one of them.": same(
        claimed=[("holding", 0, 1), ("left of", 0, 1)], facts=[("holding", 2, 0)], by=truth_value
    ),
    "An entity may have several things: what is claimed must hold for each of them.": same(
        ONE_OF_TWO_DOGS, BOTH_DOGS, OF_ONE_OF_TWO, by=truth_value
    ),
    "A thing may also come twice in groups of several: look at all numbers together.": same(
        NO_CLAIM, matched=[(0, 1), (3,), (1,)], by=truth_value
    ),
    "A relation is claimed of entities, and the facts are about things: look up in matched which things the "
    "entities are.": like(
        lambda matched, claimed, facts: consistent(matched, [], facts) and set(claimed) <= set(facts),
        when=lambda answer: answer(*case(facts=[("holding", 0, 1)])) and not answer(*case()),
    ),
}

SHARE = {
    "Give a percentage above 0: how many of a hundred true pairs are called false?": between(0, 100.01),
    "Count the ones; take away those of each caption with its own picture; divide by the ones.": equals(40),
    "That is right as a share; give it in percent.": 0.4,
    "That is the share of the true pairs that the protocol knows; give the share of the others.": 60,
    "You divided by all pairs that the protocol calls false; divide by the number of true pairs.": 400 / 12,
    "You divided by all cells of the matrix; divide by the number of true pairs.": 100 * 4 / 18,
    "That is how many there are; give the percentage.": 4,
}


@cache
def shown_scenes():
    """The first scenes of the test split, by their rows."""
    return tuple(picture.scene for picture in scenes.generate(PICTURES, split="test"))


def true_of(sentence):
    """The rows of the first scenes of which a sentence is true."""
    form = scenes.parse(sentence)
    return {row for row, scene in enumerate(shown_scenes()) if scenes.holds(form, scene)}


UNREADABLE = "The world cannot read this: name its things as the captions do."

SENTENCE = {
    UNREADABLE: holds(scenes.parse, wrong=["A zebra on the beach", 7]),
    "This is not true of the picture: look at it, and at its facts, again.": holds(
        lambda answer: SHOWN in true_of(answer), wrong=["A girl holds a kite."]
    ),
    "This is also true of another beach with an umbrella: say what the other one lacks.": holds(
        lambda answer: true_of(answer).isdisjoint(LOOKALIKES), wrong=["Umbrella on the beach"]
    ),
    "This is also true of some other picture: try it in the cell above, and say more.": holds(
        lambda answer: true_of(answer) == {SHOWN}, wrong=["A girl and a bench"]
    ),
    "This is true of picture 12 alone, but it is too long: leave out what is not needed.": holds(
        lambda answer: len(answer.split()) <= 8,
        wrong=["A girl in a green coat holds a purple umbrella on the beach."],
    ),
}


def expected_false_negatives(truth, owner, batch):
    captions, pictures = truth.shape
    foreign = truth.sum() - truth[np.arange(captions), owner].sum()
    return float(batch * (batch - 1) * foreign / (captions * (pictures - 1)))


def world(each=3, batch=5, share=0.3):
    """Which caption is true of which picture, by chance, (Nc, 9), their owners (Nc,) and a batch size."""
    owner = np.repeat(np.arange(9), each)
    truth = np.random.default_rng(batch).random((len(owner), 9)) < share
    truth[np.arange(len(owner)), owner] = True
    return truth, owner, batch


def times(cells):
    """Make an answer that multiplies the share of true pairs by a wrong number of cells."""
    return lambda truth, owner, batch: cells(batch) * expected_false_negatives(truth, owner, 2) / 2


BATCH = {
    "Return a number: 0 where each caption is true of its own picture alone.": same(each=1, batch=4, share=0),
    "A batch of one pair has nothing off its diagonal.": same(each=1, batch=1, share=1),
    "If every caption is true of every picture, every cell off the diagonal of the batch is a false "
    "negative.": same(each=1, batch=4, share=1),
    "Multiply the cells off the diagonal by the share of foreign pairs that are true.": same(each=1),
    "With several captions a picture it is wrong: use owner, and divide by all foreign pairs.": same(),
    "You took a share of all pairs; a caption and its own picture are not a foreign pair.": like(
        lambda truth, owner, batch: batch * (batch - 1) * truth.mean(), each=1, batch=4, share=0
    ),
    "You counted the diagonal: a pair is not its own negative.": like(
        times(lambda batch: batch**2), each=1, batch=4, share=1
    ),
    "That is the share; multiply it by the number of cells off the diagonal.": like(
        times(lambda batch: 1), each=1, batch=4, share=1
    ),
}


def careless(form, scene):
    """Like `scenes.holds`, but one thing may be matched with two entities."""
    carried = {i for name, i, _ in scene.relations if name == "on"}
    if form.place not in (None, scene.place) or form.mark not in (None, scene.mark):
        return False
    choices = []
    for entity in form.entities:
        fitting = tuple(i for i, thing in enumerate(scene.things) if entity.fits(thing, i in carried))
        all_of_them = [fitting] if len(fitting) == entity.count else []
        choices.append([(i,) for i in fitting] if entity.count == 1 else all_of_them)
    return any(claims_hold(given, form.relations, scene.relations) for given in itertools.product(*choices))


def called(judge, sentence):
    return judge(scenes.parse(sentence), shown_scenes()[SHOWN])


BREAK = {
    UNREADABLE: holds(scenes.parse, wrong=["A zebra and another zebra"]),
    "Name one thing of the picture twice, as if it were two: what else could it be called?": holds(
        lambda answer: called(careless, answer) and not called(scenes.holds, answer)
    ),
    "This is true, with rule 2 and without it: say something false.": like(
        "A girl on the beach", when=lambda answer: called(scenes.holds, answer)
    ),
    "Things are counted before they are matched, so rule 2 changes nothing: use no number.": like(
        "two girls", when=lambda answer: any(entity.count > 1 for entity in scenes.parse(answer).entities)
    ),
    "Your sentence speaks of one thing only: speak of two, so that one can be matched twice.": like(
        "a boy", when=lambda answer: len(scenes.parse(answer).entities) < 2
    ),
    "This is false, with rule 2 and without it: all that you say must fit something in the picture.": like(
        "a boy and a man", when=lambda answer: not called(careless, answer)
    ),
}

EXERCISES = {
    "01.true": code("Is it true?", 12, TRUE, consistent, case),
    "01.share": compute("Count what the protocol calls false", 4, SHARE),
    "01.sentence": code("One picture only", 6, SENTENCE, None, solution="A girl holds a purple umbrella."),
    "01.predict": predict("A prediction", 2, "terse", "counter", "place first", "relations", "detail"),
    "01.batch": code("Expect false negatives", 12, BATCH, expected_false_negatives, world),
    "01.break": break_it("Break it", 8, BREAK, solution="There is a girl and another girl."),
    "01.explore": explore("Change one thing", 15),
}
