"""Exercises of notebook 16: a multiplier that holds a loss at its bound."""

from torch import inf

from course.checks.comparing import between, equals, holds, like, passed, same
from course.checks.kinds import break_it, code, compute, explore, predict

WEIGHT = {
    "Which factor stands before the loss in equation 9?": between(1, inf),
    "Differentiate equation 9 with respect to the reconstruction loss.": equals(5),
    "Divide by the bound, not by its inverse.": 0.2,
    "The -1 in the bracket does not depend on the loss: it drops out of the derivative.": 4,
    "Right. A tight bound also makes the gradient of each unit of λ larger.": passed,
}


def path(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):
    value, velocity, used = initial, 0.0, []
    for step, one in enumerate(rec):
        used.append(value)
        gradient = one / bound - 1
        velocity = gradient if step == 0 else momentum * velocity + (1 - momentum) * gradient
        value = min(max(value + lr * velocity, 0.0), maximum)
    return used


RISES = (0.9, 0.7, 0.8, 0.6, 0.65, 0.7)
FALLS = (0.02,) * 30 + (0.8,) * 8
"""Losses: above a bound of 0.2 all the time; and far below it first, so that the multiplier ends at zero."""
FAST = (0.2, 1.0, 0.1)
"""A bound, an initial value and a learning rate that shows in a few steps."""
STEEP = (0.2, 1.0, 9.0, 0.9, 30.0)
"""The same, with a momentum and a maximum that the multiplier reaches."""


def losses(rec=RISES, options=FAST):
    return list(rec), *options


def free(rec, bound, initial=1.0, lr=5e-3):
    """The multiplier moves without limits, and is brought between them where it is used."""
    above = path(rec, bound, initial + 1000, lr, maximum=inf)  # so high that it does not reach zero
    return [min(max(value - 1000, 0.0), 100.0) for value in above]


PATH = {
    "Return as many values as there are losses.": same(by=len, rec=[0.3] * 3, options=[0.2]),
    "The first step uses the initial value: a multiplier is used first, then moved.": same(
        by=0, rec=[0.9, 0.9], options=[0.2, 0.7]
    ),
    "If the loss stays at 0.3 and the bound is 0.2, every step adds lr (0.3 / 0.2 - 1), the first one "
    "too.": same(rec=[0.3] * 5, options=[0.2]),
    "After the first step, the velocity is momentum times the old one plus (1 - momentum) times the new "
    "gradient.": same({}, {"options": (*FAST, 0.5)}),
    "The multiplier is between 0 and the maximum after each step.": same({"rec": FALLS}, {"options": STEEP}),
    "Yours falls while the loss is above its bound: ascend, add the gradient.": (
        lambda rec, bound, *rest: path([2 * bound - one for one in rec], bound, *rest)
    ),
    "The gradient of equation 9 with respect to λ is rec / bound - 1, not rec - bound.": (
        lambda rec, bound, initial, lr: path(rec, bound, initial, lr * bound)
    ),
    "The new gradient counts by 1 - momentum, or the velocity adds up to ten times the gradient.": (
        lambda rec, bound, initial, lr: path([bound, *rec], bound, initial, 10 * lr)[1:]
    ),
    "Yours moves freely and only the used value is kept between the limits. Then it winds up: keep the "
    "multiplier itself between them.": like(free, rec=FALLS),
    "Right. It is the path of vsecore.losses.LagrangeMultiplier.": passed,
}

WINDUP = {
    "Give a number of steps.": between(0, inf),
    "First work out where the multiplier is after the thousand steps: below zero.": between(99.99, inf),
    "Each step adds lr (rec / bound - 1). At first that is negative, later positive.": between(299.5, 301.5),
    "You forgot that the multiplier starts at 1: it falls by 2.5, to -1.5.": 500,
    "At twice the bound, rec / bound - 1 is 1, not 2.": 150,
    "A projected one stands there already; this one is free.": 0,
    "Right. A projected multiplier stands at zero and needs one step.": passed,
}

BREAK = {
    "A bound is above zero.": between(0, inf),
    "With this bound the loss of 0.3 meets it, and the multiplier falls.": between(-inf, 0.3),
    "Each of the 100 steps must add at least 0.99 to the multiplier: 0.005 (0.3 / bound - 1).": holds(
        lambda answer: path([0.3] * 101, float(answer))[-1] >= 100 - 1e-6
    ),
    "Right. The gradient of the reconstruction now has a weight of 100 divided by your bound.": passed,
}

EXERCISES = {
    "16.weight": compute("The weight behind the multiplier", 5, WEIGHT, difficulty="easy", tolerance=1e-6),
    "16.multiplier": code("The multiplier's path", 15, PATH, path, losses, difficulty="hard", tolerance=1e-4),
    "16.windup": compute("How long it takes to come back", 8, WINDUP, solution=300, tolerance=1),
    "16.bounds": predict("Which objective serves retrieval best?", 3, "0.05", "0.2", "dual"),
    "16.break": break_it("A bound that cannot be met", 8, BREAK, solution=0.001),
    "16.explore": explore("Change one thing", 20, difficulty="hard"),
}
