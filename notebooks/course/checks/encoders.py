"""The exercises of notebook 02, *Encoders*."""

import torch
from torch import inf, nan

from course.checks.comparing import gradient, passed, same, shape
from course.checks.kinds import NO_GRADIENT, code, explore, no_gradient_at, predict
from course.checks.samples import normal, padded
from vsecore.pooling import MeanPool


def mean_of_real(x, mask):
    return MeanPool()(x, mask)


def elements(counts=(5, 1, 3), filler=0.0, flipped=False):
    """Elements (B, 5, 4) with something in the padding, which comes first if they are flipped, and a mask."""
    sides = padded(counts, 5, 4, filler)
    return tuple(side.flip(1) for side in sides) if flipped else sides


MEAN = {
    "Return one vector for each row of the batch, (B, D): the mean of its elements.": shape(),
    "Without padding it must be the plain mean over dimension 1.": same(counts=[5, 5, 5]),
    "Zeros in the padding change your mean: divide by the number of real elements, not by N.": same(),
    "The values in the padding get into your sum: use the mask to leave them out.": same(filler=1e4),
    "Padding may come anywhere, not only last: use the mask, not counts.": same(filler=7.0, flipped=True),
    "Zero times NaN is NaN: choose with torch.where or masked_fill instead of multiplying.": same(
        {"filler": nan}, {"filler": inf}
    ),
    NO_GRADIENT: gradient(),
    "Right. It gives what vsecore.pooling.MeanPool gives.": passed,
}


def step(x, h, W, U, w, u):
    return torch.gru_cell(x, h, W, U, w, u)


def words(reset=0.0, update=0.0):
    """Words (5, 4), states (5, 3) and weights in the exercise's order; two numbers move the gates."""
    x, h, W, U, w, u = normal((5, 4), (5, 3), (9, 4), (9, 3), (9,), (9,), seed=2)
    w[:3] += reset
    w[3:6] += update
    return [x, h, W, U, w, u]


def mixed(mix):
    """Make a step that mixes its state of h, r, z, what the word brings, and a function of what h brings."""

    def step(x, h, W, U, w, u):
        word = x @ W.T + w
        r, z = torch.sigmoid(word + h @ U.T + u)[:, :6].chunk(2, 1)
        return mix(h, r, z, word[:, 6:], lambda state: (state @ U.T + u)[:, 6:])

    return step


GRU = {
    "Return one new state for each caption, (C, D).": shape(),
    "Where z is one, the past stays: the new state is the old one, equation (7).": same(reset=50, update=50),
    "Where z is zero and r is one, the new state is tanh(W x + U h), with both biases: equation (8).": same(
        reset=50, update=-50
    ),
    "Where z and r are zero, the new state is tanh(W x + w): the gate r multiplies U h with its bias.": same(
        reset=-50, update=-50
    ),
    "With gates between zero and one the states still differ: look at r, equation (5).": same(),
    no_gradient_at("the words, at the state or at U"): gradient(0, 1, 3),
    "Both biases, w and u, belong to all three: to r, to z and to the proposal.": (
        lambda x, h, W, U, w, u: torch.gru_cell(x, h, W, U)
    ),
    "z says how much of the past stays: you gave it to the proposal.": mixed(
        lambda h, r, z, n, m: torch.lerp(h, (n + r * m(h)).tanh(), z)
    ),
    "The first third of W and U makes r, the second makes z.": mixed(
        lambda h, z, r, n, m: torch.lerp((n + r * m(h)).tanh(), h, z)
    ),
    "That is what the paper prints, U times (r ⊙ h). Here r multiplies U h with its bias.": mixed(
        lambda h, r, z, n, m: torch.lerp((n + m(r * h)).tanh(), h, z)
    ),
    "Right. It gives what torch.nn.GRUCell gives.": passed,
}


EXERCISES = {
    "02.mean": code("A mean that padding cannot touch", 10, MEAN, mean_of_real, elements),
    "02.far": predict("The farthest thing", 3, "rarely", "half the time", "mostly"),
    "02.explore": explore("Ask another question", 15, difficulty="hard"),
    "02.gru": code("One step of a GRU", 15, GRU, step, words, instead=("GRU", "GRUCell", "gru", "gru_cell")),
}
