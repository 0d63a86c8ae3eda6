"""Similarities of sets: as in plain loops, at their limits, and whatever the blocks."""

import math

import pytest
import torch

from vsecore.similarity import (
    MatchProbability,
    chamfer,
    match_probability,
    max_sim,
    mil,
    smooth_chamfer,
    unit,
)


def drawn(rows, elements, dim=6, seed=0, dtype=torch.float64):
    return torch.randn(rows, elements, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture
def v():
    return drawn(3, 2)


@pytest.fixture
def t():
    return drawn(5, 3, seed=1)


# The papers, from the cosines (K, L) of one pair of sets at a time.


def smooth(c, alpha):
    """Equation 6, as it is printed."""
    of_pictures, of_captions = (alpha * c).logsumexp(1), (alpha * c).logsumexp(0)
    return of_pictures.sum() / (2 * alpha * c.shape[0]) + of_captions.sum() / (2 * alpha * c.shape[1])


AGREE = {
    "mil": (mil, torch.max),
    "match_probability": (
        lambda v, t: match_probability(v, t, 5.0, -1.0),
        lambda c: (5 * c - 1).sigmoid().mean(),
    ),
    "its sum": (
        lambda v, t: match_probability(v, t, 5.0, -1.0, reduce="sum"),
        lambda c: (5 * c - 1).sigmoid().sum(),
    ),
    "chamfer": (chamfer, lambda c: (c.amax(1).mean() + c.amax(0).mean()) / 2),
    "smooth_chamfer": (smooth_chamfer, lambda c: smooth(c, 16.0)),
    "smooth_chamfer, sharp": (lambda v, t: smooth_chamfer(v, t, 200.0), lambda c: smooth(c, 200.0)),
    "max_sim": (max_sim, lambda c: c.amax(0).sum()),
    "max_sim, i2t": (lambda v, t: max_sim(v, t, "i2t", "mean"), lambda c: c.amax(1).mean()),
}


@pytest.mark.parametrize(("function", "of_a_pair"), AGREE.values(), ids=AGREE)
def test_agrees_with_the_paper_pair_by_pair(function, of_a_pair, v, t):
    wanted = torch.stack([torch.stack([of_a_pair(unit(x) @ unit(y).T) for y in t]) for x in v])
    torch.testing.assert_close(function(v, t), wanted, rtol=1e-9, atol=1e-9)


# Limits.


def test_chamfer_is_the_limit_of_smooth_chamfer(v, t):
    expected, most = chamfer(v, t), (math.log(v.shape[1]) + math.log(t.shape[1])) / 2
    for alpha in (1.0, 16.0, 79.0, 81.0, 1e4):
        above = smooth_chamfer(v, t, alpha) - expected
        assert above.min() >= -1e-9 and above.max() <= most / alpha + 1e-9
    torch.testing.assert_close(smooth_chamfer(v, t, 1e6), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("alpha", [1.0, 16.0, 64.0, 79.9, 80.1, 1e3, 1e5])
def test_smooth_chamfer_stays_finite_at_every_alpha(alpha):
    v = drawn(2, 3, dtype=torch.float32)
    t = torch.cat([v, -v]).requires_grad_()  # cosines of 1 and of -1
    scores = smooth_chamfer(v, t, alpha)
    (gradient,) = torch.autograd.grad(scores.sum(), t)
    assert scores.isfinite().all() and gradient.isfinite().all()
    expected = smooth_chamfer(v.double(), t.double(), alpha)
    torch.testing.assert_close(scores.double(), expected, atol=1e-5, rtol=0)


def test_match_probability_learns_its_scale_and_shift_unless_told():
    for learned in (True, False):
        weights = MatchProbability(learned=learned).named_parameters()
        assert {name: (weight.item(), weight.requires_grad) for name, weight in weights} == {
            "scale": (1.0, learned),
            "shift": (0.0, learned),
        }
