"""Losses for sets and Gaussians: right against loops, closed forms and gradients."""

import itertools
import math
import sys

import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import Normal, kl_divergence

from vsecore.embedding import Embedding
from vsecore.losses import (
    LOSSES,
    Step,
    Triplet,
    gram_diversity,
    mmd,
    sample_gaussians,
    set_diversity,
    soft_contrastive,
)
from vsecore.losses.distances import distances, squared_distances
from vsecore.similarity import SmoothChamfer, smooth_chamfer


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def step_of(v, t, v_extra=None, t_extra=None, owners=None, similarity=None):
    """A step whose captions belong to pictures `owners`; or row by row."""
    owners = torch.arange(len(t)) if owners is None else owners
    positives = torch.arange(len(v))[:, None] == owners[None]
    similarity = similarity or SmoothChamfer()
    pictures, captions = Embedding(v, extra=v_extra or {}), Embedding(t, extra=t_extra or {})
    scores = torch.zeros(positives.shape, dtype=torch.float64)
    return Step(scores, positives, pictures, captions, (), None, None, similarity, 5)


# Distances.


def test_distances_are_euclidean():
    x, y = drawn(4, 5), drawn(6, 5, seed=1)
    torch.testing.assert_close(distances(x, y), torch.cdist(x, y))
    torch.testing.assert_close(squared_distances(x, y), torch.cdist(x, y).square())


def test_equal_vectors_are_at_distance_0_with_a_finite_gradient():
    x = torch.eye(3).requires_grad_()
    apart = distances(x, x.detach())
    (gradient,) = torch.autograd.grad(apart.sum(), x)
    assert not apart.diagonal().any() and gradient.isfinite().all()


# MMD.


def mmd_by_loop(x, y, gamma, squared):
    def kernel(a, b):
        d = math.dist(a, b)
        return math.exp(-gamma * (d * d if squared else d))

    def mean(first, second):
        return math.fsum(kernel(a, b) for a, b in itertools.product(first, second)) / (
            len(first) * len(second)
        )

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_mmd_agrees_with_the_double_loop(gamma, squared):
    x, y = drawn(4, 3), drawn(6, 3, seed=1)
    expected = mmd_by_loop(x.tolist(), y.tolist(), gamma, squared)
    assert float(mmd(x, y, gamma, squared)) == pytest.approx(expected, rel=1e-6)
    assert float(mmd(x, y, gamma, squared)) != pytest.approx(
        mmd_by_loop(x.tolist(), y.tolist(), 1.0, squared)
    )


@pytest.mark.parametrize("squared", [False, True])
def test_mmd_is_0_for_equal_clouds_and_grows_as_they_part(squared):
    x = drawn(8, 3)
    assert float(mmd(x, x.flip(0), squared=squared)) == pytest.approx(0, abs=1e-7)
    assert float(mmd(x, torch.cat([x, x]), squared=squared)) == pytest.approx(0, abs=1e-7)
    apart = [float(mmd(x, x + shift, squared=squared)) for shift in (0.0, 0.5, 1.0, 5.0)]
    assert apart == sorted(apart) and apart[1] > 1e-3
    assert float(mmd(x, drawn(8, 3, seed=1), squared=squared)) > 0


def test_mmd_in_parts_is_mmd(monkeypatch):
    def run():
        x, y = drawn(9, 3).requires_grad_(), drawn(7, 3, seed=1).requires_grad_()
        loss = mmd(x, y)
        return loss.detach(), *torch.autograd.grad(loss, (x, y))

    whole = run()
    monkeypatch.setattr(sys.modules["vsecore.losses.mmd"], "KEPT", 20)
    for one, other in zip(run(), whole, strict=True):
        torch.testing.assert_close(one, other)


def test_mmd_of_a_step_takes_every_element_of_every_set():
    v, t = drawn(3, 2, 4), drawn(5, 2, 4, seed=1)
    assert torch.equal(LOSSES.build("mmd", {})(step_of(v, t)), mmd(v.view(6, 4), t.view(10, 4)))
    options = {"gamma": 2.0, "squared": True}
    expected = mmd(v[:, 0], t[:, 0], 2.0, True)
    assert torch.equal(LOSSES.build("mmd", options)(step_of(v[:, 0], t[:, 0])), expected)


# Diversity.


def test_set_diversity_agrees_with_the_loop():
    slots = drawn(3, 4, 5)
    terms = []
    for one in slots:
        x = [[a / math.hypot(*row) for a in row] for row in one.tolist()]
        terms += [math.exp(-2 * math.dist(x[i], x[j]) ** 2) for i in range(4) for j in range(i + 1, 4)]
    assert float(set_diversity(slots)) == pytest.approx(math.fsum(terms) / len(terms))


def test_set_diversity_is_1_for_one_direction_and_least_for_opposite_ones():
    same = drawn(1, 1, 5).expand(2, 3, 5) * torch.tensor([1.0, 2.0, 5.0]).view(1, 3, 1)
    assert float(set_diversity(same)) == pytest.approx(1)
    assert float(set_diversity(torch.eye(4)[None])) == pytest.approx(math.exp(-4))  # right angles
    x = drawn(2, 1, 5)
    assert float(set_diversity(torch.cat([x, -x], 1))) == pytest.approx(math.exp(-8))


def test_gram_diversity_agrees_with_the_loop():
    slots = drawn(3, 4, 5)
    terms = []
    for one in slots:
        x = [[a / math.hypot(*row) for a in row] for row in one.tolist()]
        cosines = [dot(x[i], x[j]) for i, j in itertools.permutations(range(4), 2)]
        terms.append(math.hypot(*cosines) / 16)
    assert float(gram_diversity(slots)) == pytest.approx(math.fsum(terms) / 3)


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def test_gram_diversity_is_0_at_right_angles_only():
    assert float(gram_diversity(torch.eye(4)[None])) == 0
    x = drawn(2, 1, 5)
    opposite = torch.cat([x, -x], 1)
    assert float(gram_diversity(opposite)) == pytest.approx(math.sqrt(2) / 4)


@pytest.mark.parametrize("function", [set_diversity, gram_diversity])
def test_diversity_knows_directions_alone_and_no_order(function):
    slots = drawn(3, 4, 5)
    expected = function(slots)
    torch.testing.assert_close(function(slots[:, [2, 0, 3, 1]]), expected)
    torch.testing.assert_close(function(7 * slots), expected)
    assert gradcheck(function, (slots.requires_grad_(),))


@pytest.mark.parametrize(
    ("name", "function"), [("diversity", set_diversity), ("gram_diversity", gram_diversity)]
)
def test_diversity_of_a_step_is_that_of_both_sides_slots(name, function):
    v, t = drawn(3, 4, 5), drawn(6, 2, 5, seed=1)
    step = step_of(v, t, {"slots": v + 1}, {"slots": t + 1}, torch.arange(6) // 2)
    assert torch.equal(LOSSES.build(name, {})(step), function(v + 1) + function(t + 1))


# The soft contrastive loss.


def soft_contrastive_by_loop(v, t, scale, shift, positives):
    total = 0.0
    for b, c in itertools.product(range(len(v)), range(len(t))):
        pairs = list(itertools.product(v[b].tolist(), t[c].tolist()))
        matching = [1 / (1 + math.exp(scale * math.dist(x, y) - shift)) for x, y in pairs]
        probability = math.fsum(matching) / len(matching)
        total -= math.log(probability if positives[b, c] else 1 - probability)
    return total


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 2.0), (3.0, 5.0)])
def test_soft_contrastive_agrees_with_the_double_loop(scale, shift):
    v, t = drawn(3, 2, 4), drawn(6, 5, 4, seed=1)
    positives = torch.arange(3)[:, None] == (torch.arange(6) // 2)[None]
    expected = soft_contrastive_by_loop(v, t, scale, shift, positives)
    assert float(soft_contrastive(v, t, scale, shift, positives)) == pytest.approx(expected)
    square = soft_contrastive_by_loop(v, t[:3], scale, shift, torch.eye(3, dtype=torch.bool))
    assert float(soft_contrastive(v, t[:3], scale, shift)) == pytest.approx(square)


def test_what_is_half_likely_costs_the_logarithm_of_two():
    assert float(soft_contrastive(drawn(2, 3, 4), drawn(2, 3, 4, seed=1), 0.0, 0.0)) == pytest.approx(
        4 * math.log(2)
    )


def test_soft_contrastive_stays_finite_far_away():
    v, t = torch.zeros(2, 3, 4).requires_grad_(), torch.full((2, 3, 4), 1e4)
    loss = soft_contrastive(v, t, 30.0, 30.0)
    loss.backward()
    assert loss.isfinite() and v.grad.isfinite().all() and v.grad.any()


def test_samples_have_the_mean_and_the_variance_asked_for():
    torch.manual_seed(0)
    mean, log_variance = drawn(3, 4), drawn(3, 4, seed=1)
    points = sample_gaussians(mean, log_variance, 20_000)
    assert points.shape == (3, 20_000, 4)
    torch.testing.assert_close(points.mean(1), mean, atol=0.05, rtol=0)
    torch.testing.assert_close(points.var(1), log_variance.exp(), atol=0.02, rtol=0.05)
    assert not torch.equal(points, sample_gaussians(mean, log_variance, 20_000))


def kl_to_standard(mean, log_variance):
    return kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0)).sum()


def test_soft_contrastive_of_a_step_draws_its_points_and_counts_both_directions():
    v, t = drawn(3, 4), drawn(6, 4, seed=1)
    v_spread, t_spread = drawn(3, 4, seed=2), drawn(6, 4, seed=3)
    step = step_of(v, t, {"log_variance": v_spread}, {"log_variance": t_spread}, torch.arange(6) // 2)
    loss = LOSSES.build("soft_contrastive", {"samples": 5, "scale": 3.0, "shift": 4.0, "kl_weight": 0.1})
    torch.manual_seed(0)
    found = loss(step)
    torch.manual_seed(0)
    points = sample_gaussians(v, v_spread, 5), sample_gaussians(t, t_spread, 5)
    divergence = kl_to_standard(v, v_spread) + kl_to_standard(t, t_spread)
    expected = 2 * soft_contrastive(*points, 3.0, 4.0, step.positives) + 0.1 * divergence
    torch.testing.assert_close(found, expected, check_dtype=False)
    found.backward()
    assert loss.scale.grad and loss.shift.grad


# The triplet loss of sets, with all captions of each picture.


def test_the_hardest_triplet_of_a_batch_of_pictures_is_equation_9():
    """Every caption of a picture against the hardest caption of another, and the hardest other picture."""
    v, t, owner = drawn(4, 2, 6), drawn(12, 2, 6, seed=1), torch.arange(12) // 3
    scores, margin, total = smooth_chamfer(v, t), 0.2, 0.0
    for c in range(12):
        p = int(owner[c])
        own = float(scores[p, c])
        caption = max(float(scores[p, n]) for n in range(12) if owner[n] != p)
        picture = max(float(scores[n, c]) for n in range(4) if n != p)
        total += max(0.0, margin + caption - own) + max(0.0, margin + picture - own)
    step = step_of(v, t, owners=owner)
    step.scores = scores
    assert float(Triplet(margin)(step)) == pytest.approx(total)
    assert float(Triplet(margin, reduction="mean")(step)) == pytest.approx(total / 12)


# What they share.


@pytest.mark.parametrize("function", [set_diversity, gram_diversity])
def test_a_zero_slot_keeps_the_gradient_finite(function):
    slots = torch.zeros(2, 3, 4).requires_grad_()
    function(slots).backward()
    assert slots.grad.isfinite().all()
