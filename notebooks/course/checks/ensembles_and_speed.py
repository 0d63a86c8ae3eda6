"""The exercises of notebook 12, *Ensembles*."""

import torch

from course.checks.comparing import between, equals, passed, same, shape
from course.checks.kinds import break_it, code, compute, explore, predict
from course.checks.samples import normal
from vsecore.similarity import cosine, unit

LEAD = {
    "It is between 1, for systems that always agree, and the root of 3, for systems without "
    "correlation.": between(0.999, 3**0.5 + 1e-6),
    "Put M = 3 and ρ = 0.5 into the formula for the standard deviation of a mean.": equals(1.5**0.5),
    "That is for systems without any correlation: these have a correlation of 0.5.": 3**0.5,
    "That is for the variance: the standard deviation is its root.": 1.5,
    "That is the standard deviation of the mean: the lead is divided by it.": 1.5**-0.5,
}


def as_one(several, weights=None):
    each = weights or [1.0] * len(several)
    scales = [(weight / sum(each)) ** 0.5 for weight in each]
    return torch.cat([scale * unit(rows) for scale, rows in zip(scales, several, strict=True)], -1)


def systems(widths=(5, 2), weights=None):
    """Vectors (7, width) of one side by systems of these widths, and weights, if there are any.

    No vector has length one: the last system would outvote all others.
    """
    several = [4.0**place * rows.double() for place, rows in enumerate(normal(*((7, w) for w in widths)))]
    return (several,) if weights is None else (several, list(weights))


def cosines(made):
    return cosine(made, made)


AS_ONE = {
    "Return one matrix for the side that you are given, as wide as all its systems together.": shape(),
    "With a single system it must be that system's cosine.": same(widths=[6], by=cosines),
    "Without weights it must be the mean of the cosines: no system may count more because its vectors are "
    "longer.": same(widths=[5, 5], by=cosines),
    "With other weights the result is not yet the weighted mean: how often is a weight in the product of the "
    "two sides?": same(widths=[5, 2, 4], weights=[1.0, 4.0, 2.0], by=cosines),
    "The cosine is right, but the rows are not of length one: divide the weights by their sum. Without "
    "weights, each of M systems has the weight 1 / M.": same(
        {}, {"weights": [1.0, 3.0]}, widths=[4, 3], by=lambda made: made.norm(dim=-1)
    ),
    "Right. An ensemble of cosines is itself a cosine.": passed,
}

BREAK = {
    "Half of the mean is noise without a lead. So the mean leads by less than the good member, but by more "
    "than nothing.": between(0, 3),
    "The lead of the mean is the mean of the leads. Its standard deviation is that of a "
    "mean of two without correlation.": equals(3 / 2**0.5),
    "That is the lead in standard deviations of one member: the mean has a smaller one of its own.": 1.5,
    "That is for two members that both lead by 3: the collapsed one has no lead.": 3 * 2**0.5,
}


EXERCISES = {
    "12.gain": predict("The larger gain", 2, "RGP", "PPP", "the same"),
    "12.lead": compute("The lead of three", 5, LEAD, difficulty="easy", tolerance=3e-2),
    "12.one": code("An ensemble as one embedding", 12, AS_ONE, as_one, systems),
    "12.break": break_it("A vote for noise", 8, BREAK, tolerance=3e-2),
    "12.explore": explore("A vote with weights", 15),
}
