"""The exercises of notebook 13, *Sets: more than one vector*."""

import torch
from torch import inf, nan

from course.checks.comparing import between, divided, equals, gradient, holds, like, passed, same, shape
from course.checks.kinds import break_it, code, compute, explore, no_gradient_at, predict
from course.checks.samples import normal, real
from vsecore.losses import soft_contrastive
from vsecore.sets import weighted_means

COMPROMISE = {
    "A cosine is wanted: a number from -1 to 1.": between(-1.001, 1.001),
    "The bisector lies less than a right angle from each of them.": between(0, inf),
    "The best vector halves the angle of 120 degrees. What is the cosine of half of it?": equals(0.5),
    "That is the cosine between the two pictures. The vector between them halves the angle.": -0.5,
    "That is the cosine of 60 radians: the angle is in degrees.": -0.952413,
    "Right. The caption is no nearer to either of its pictures than one half.": passed,
}


def heads(x, mask, W1, W2):
    return weighted_means(lambda rows: (rows @ W1).tanh() @ W2, x, mask)[1]  # type: ignore[arg-type]


def attended(counts=(5, 3), filler=0.0, sharpness=1.0):
    """Elements (B, 5, 6) whose padding holds `filler`, their mask, and weights (6, 7) and (7, 3)."""
    x, W1, W2 = normal((len(counts), 5, 6), (6, 7), (7, 3), seed=13)
    mask = real(counts, 5)
    return x.masked_fill(~mask[..., None], filler), mask, 2 * W1, 2 * sharpness * W2


HEADS = {
    "Return one vector for each head, (B, K, D).": shape(counts=[5, 5]),
    "With W2 = 0 every head is the mean of the elements. Over which dimension does the softmax go?": same(
        counts=[5, 5], sharpness=0.0
    ),
    "A head's logits are tanh(x W1) W2. Their softmax over the elements weighs x.": same(counts=[5, 5]),
    "Padding must have no weight, and the real weights must add up to 1.": same(counts=[5, 3, 1]),
    "Padding may hold anything, also infinity and NaN. Zero times NaN is NaN: clear the padding first.": same(
        *({"filler": filler} for filler in (7.0, nan, inf)), counts=[5, 3, 1]
    ),
    no_gradient_at("the elements or at W2"): gradient(0, 3),
    "The weights already add up to one: sum the elements, do not take their mean.": divided(heads, 5),
    "Your softmax goes over the heads, so that they share out each element. In PIE-Net each head has a "
    "softmax of its own over the elements. (The next notebook lets them share.)": like(
        lambda x, mask, W1, W2: ((x @ W1).tanh() @ W2).softmax(2).mT @ x, counts=[5, 5]
    ),
    "You cleared or hid the real elements: mask is True where an element is real, so ~mask is what must "
    "go.": like(
        lambda x, mask, W1, W2: heads(x, ~mask, W1, W2),
        lambda x, mask, W1, W2: heads(x.masked_fill(mask[..., None], 0), mask, W1, W2),
        lambda *given: nan * heads(*given),
        by=1,  # the row with padding
        filler=2.0,
    ),
    "Right. This is the attention of vsecore.sets.PIENet.": passed,
}


SPARSE = {
    "Two whole numbers: of the 16 cosines, then of the 8 vectors.": holds(
        lambda answer: len(answer) == 2 and all(float(one) == int(one) for one in answer), wrong=[(1, 2, 3)]
    ),
    "The gradient of a maximum goes to what is largest. How many of the cosines are that?": holds(
        lambda answer: int(answer[0]) == 1, wrong=[(3, 2)]
    ),
    "A cosine is made of two vectors: a picture's and a caption's.": equals((1, 2), wrong=[(1, 1), (1, 8)]),
    "All of them would learn from a mean. This is a maximum.": (16, 8),
    "MIL takes one maximum over all 16 cosines, not one for each vector.": like((4, 4), (8, 8)),
    "That holds where each vector of one side looks for its best partner, as in the Chamfer similarity. MIL "
    "takes one maximum over all pairs.": (4, 8),
    "Right: one in sixteen cosines, and a quarter of the vectors.": passed,
}


def gaussians(noise=1.0, log=1.0):
    """Means (2, 3), logarithms of variances (2, 3) and noise (2, 4, 3), the latter two times a factor."""
    mean, log_variance, drawn = normal((2, 3), (2, 3), (2, 4, 3), seed=13)
    return mean, log * log_variance, noise * drawn


def points_of(mean, log_variance, noise):
    return mean[:, None] + (log_variance / 2).exp()[:, None] * noise


SAMPLE = {
    "Return every point of every Gaussian, (B, J, D).": shape(),
    "Without noise all points of a Gaussian lie at its mean.": same(noise=0.0),
    "A log variance of 0 is a standard deviation of 1: a point is then mean plus noise.": same(log=0.0),
    "Multiply the noise by the standard deviation. Its logarithm is half of the log variance.": same(),
    no_gradient_at("the mean or at the log variance"): gradient(0, 1),
    "Right. It gives what vsecore.losses.sample_gaussians gives, for this noise.": passed,
}


def clouds(scale=3.0, shift=4.0, points=5):
    """Points of two pictures (2, J, 3) and of four captions (4, 4, 3), and which belong together."""
    v, t = normal((2, points, 3), (4, 4, 3), seed=5)
    return v, t, scale, shift, torch.arange(2)[:, None] == torch.arange(4) // 3


def mean_of_logs(v, t, scale, shift, positives):
    p = (shift - scale * (v[:, None, :, None] - t[None, :, None]).norm(dim=-1)).sigmoid()  # (B, C, J, L)
    return -torch.where(positives[..., None, None], p, 1 - p).log().mean((2, 3)).sum()


def positives_only(v, t, scale, shift, positives):
    p = (shift - scale * (v[:, None, :, None] - t[None, :, None]).norm(dim=-1)).sigmoid()
    return -p.mean((2, 3)).log()[positives].sum()


SOFT = {
    "Return one number, the sum over all pictures and captions.": shape(),
    "With scale 0, every p is sigmoid(shift). The loss is a sum over the pairs, not a mean.": same(scale=0.0),
    "A pair of points matches with probability sigmoid(shift − scale · distance); a picture and a caption "
    "with the mean over their points.": same(),
    no_gradient_at("the points"): gradient(0, 1),
    "You took the logarithm of every pair of points. First the mean probability of a picture and a caption, "
    "then its logarithm.": mean_of_logs,
    "You left out the pairs that do not belong together: of these, 1 − p counts.": positives_only,
    "You took 1 − p of the pairs that belong together, and p of the others: it is the other way round.": (
        lambda v, t, scale, shift, positives: soft_contrastive(v, t, scale, shift, ~positives)
    ),
    "You left out the minus before the logarithm.": lambda *given: -soft_contrastive(*given),
    "Right. It gives what vsecore.losses.soft_contrastive gives.": passed,
}

BREAK = {
    "A set of four vectors holds one, two, three or four different ones.": holds(
        lambda answer: 1 <= int(answer) <= 4 and float(answer) == int(answer)
    ),
    "What could make two heads differ? They begin alike, see the same elements, and each counts the same in "
    "the loss. Compare their gradients.": equals(1),
    "Training can only pull apart what gets different gradients. Which head would get another gradient than "
    "its neighbour?": 4,
    "Which two, and why these? Nothing tells any head from another.": 2,
    "Right: what begins alike and gets the same gradient stays alike.": passed,
}

EXERCISES = {
    "13.fits": predict("How many pictures fit", 3, "1", "10", "50"),
    "13.compromise": compute("A vector between two", 6, COMPROMISE, difficulty="easy"),
    "13.heads": code("Heads of attention", 12, HEADS, heads, attended),
    "13.sparse": compute("Who learns?", 6, SPARSE, difficulty="easy"),
    "13.film": predict("Two sets on a circle", 4, "MIL", "match probability", "Chamfer", "smooth-Chamfer"),
    "13.break": break_it("Break it", 6, BREAK, difficulty="easy"),
    "13.sample": code("Points of a Gaussian", 8, SAMPLE, points_of, gaussians),
    "13.soft": code("The soft contrastive loss", 15, SOFT, soft_contrastive, clouds),
    "13.explore": explore("A steeper sigmoid", 12, difficulty="hard"),
}
