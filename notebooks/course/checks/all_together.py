"""The exercises of notebook 17, *All together*."""

import operator

import torch
from torch import inf

from course.checks.comparing import between, equals, holds, like, passed, same, shape
from course.checks.kinds import break_it, code, compute, explore, predict
from vsecore.recipes import Recipe, get


def parts_of(combine):
    """What a learner makes of VSE++: reasoners, pools, losses, and whether all else stayed."""
    plain = get("vsepp_grid_gru")
    made = combine(plain)
    if not isinstance(made, Recipe):
        return [made]
    parts = [
        ["" if part is None else part.name for part in both]
        for both in ((made.image.reasoner, made.text.reasoner), (made.image.pool, made.text.pool))
    ]
    rest = operator.attrgetter("image.encoder", "text.encoder", "similarity", "training", "dim", "shared")
    return [*parts, [part.name for part in made.losses], rest(made) == rest(plain)]


def combine(recipe):
    """VSE++ with a Transformer over its regions, AdPool and AdOpt."""
    pools = {"image.pool": "adpool", "text.pool": "adpool"}
    return recipe.override(pools | {"image.reasoner": "transformer", "losses": "adopt"})


COMBINE = {
    "Return the recipe that `recipe.override` makes of the changes.": same(by=len),
    "The Transformer reasons in the pictures' tower alone: the field is `image.reasoner`.": same(by=0),
    "AdPool belongs in both towers: the fields are `image.pool` and `text.pool`.": same(by=1),
    "`losses` should be AdOpt alone, in place of the triplet loss.": same(by=2),
    "The encoders, the similarity and the training stay as they are.": same(by=3),
    "That is VSE++ as it was: `override` returns a new recipe. Return that one.": lambda recipe: recipe,
    "Right. A system is a row of choices, and so is this one.": passed,
}


def queries(pictures=6, seed=0):
    """The first picture and the owner of each caption, in any order, and which caption is true of which."""
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(pictures).repeat(2)[torch.randperm(2 * pictures, generator=generator)]
    other = torch.randint(pictures, owner.shape, generator=generator)
    first = torch.where(torch.rand(owner.shape, generator=generator) < 0.4, owner, other)
    truth = torch.rand(2 * pictures, pictures, generator=generator) < 0.4
    return first, owner, truth | torch.nn.functional.one_hot(owner, pictures).bool()


def found_first(first, owner, truth):
    true = truth.gather(1, first[:, None])
    return 100 * (first == owner).float().mean(), 100 * true.float().mean()


FIRST = {
    "Return two numbers: the share of own pictures, and the share of true ones.": same(by=len),
    "The first number is R@1 from text to picture in percent: for how many captions is their own picture "
    "first?": same({}, {"seed": 1}, {"pictures": 9}, by=0),
    "R@1 is right. For the second number, look up in `truth` whether each caption is true of its first "
    "picture.": same({}, {"seed": 1}, {"pictures": 9}, by=1),
    "Both are right as shares; give percentages.": lambda *given: [x / 100 for x in found_first(*given)],
    "Right. The two numbers can be far apart.": passed,
}


def failures(kinds=3, captions=40, seed=0):
    """Which first pictures are true, which would be without each kind of claim, and who claims it."""
    generator = torch.Generator().manual_seed(seed)
    said = torch.rand(kinds, captions, generator=generator) < 0.5
    true = torch.rand(captions, generator=generator) < 0.4
    repaired = true | (said & (torch.rand(kinds, captions, generator=generator) < 0.5))
    return true, repaired, said


def broken_alone(true, repaired, said):
    return 100 * (~true & repaired & said).sum(1) / said.sum(1)


BROKEN = {
    "Return one number for each kind of claim.": shape(),
    "Count a caption if its first picture is false and would be true without the claim, and divide by the "
    "captions that make such a claim.": same({}, {"seed": 1}, {"kinds": 5, "captions": 60}),
    "That is right as a share; give it in percent.": lambda *given: broken_alone(*given) / 100,
    "You divide by all captions; only those that make the claim can break it.": lambda true, repaired, said: (
        100 * (~true & repaired & said).float().mean(1)
    ),
    "A caption whose first picture is true breaks nothing: `repaired` counts it too, so leave it "
    "out.": lambda true, repaired, said: 100 * (repaired & said).sum(1) / said.sum(1),
    "You divide by the failures. Divide by all captions that make the claim, so that systems with fewer "
    "failures can be compared with others.": lambda true, repaired, said: (
        100 * (~true & repaired & said).sum(1) / (~true & said).sum(1)
    ),
    "Right. Each kind of claim has its own number.": passed,
}

BREAK = {
    "Write one of the rates of the figure, as a number.": holds(
        lambda rate: any(abs(float(rate) / one - 1) < 0.01 for one in (0.001, 0.002, 0.004, 0.008)),
        wrong=[0.1],
    ),
    "At this rate VSRN is above VSE++. At which one is its line below?": equals(0.001, 1e-5, wrong=[0.004]),
    "That is close, but VSRN is still a little above VSE++ there. One step to the left it is not.": like(
        0.002, tolerance=1e-5
    ),
    "Right. With that rate for everybody, VSRN would look worse than the system it improves on.": passed,
}

BEYOND = {
    "Give a number of points above 0: how far do both together fall short?": between(0, inf),
    "Add up what each idea brings alone, and subtract what both bring together; each is measured from "
    "426.0.": equals(19.1, 0.15),
    "That is what both bring. How much more would their single gains be?": 83.0,
    "That is the sum of the single gains. Subtract what both bring together.": 102.1,
}

EXERCISES = {
    "17.break": break_it("One rate for all", 4, BREAK, difficulty="easy"),
    "17.predict": predict("Do gains add up?", 3, "more", "as much", "less"),
    "17.beyond": compute("What an unfinished baseline does", 5, BEYOND, difficulty="easy"),
    "17.combine": code("Three ideas in one recipe", 8, COMBINE, combine, caller=parts_of),
    "17.first": code("What R@1 does not count", 10, FIRST, found_first, queries),
    "17.broken": code("Which claim is broken?", 10, BROKEN, broken_alone, failures),
    "17.explore": explore("Leave one idea out", 15),
}
