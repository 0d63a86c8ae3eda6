"""Losses for sets and Gaussians: right against loops, closed forms and gradients."""

import itertools
import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from steps import step_of_scores
from vsecore.embedding import Embedding, unit
from vsecore.losses import LOSSES, gram_diversity, mmd, sample_gaussians, set_diversity, soft_contrastive
from vsecore.losses.distances import distances, squared_distances

OWNER = torch.arange(6) // 2
POSITIVES = torch.arange(3)[:, None] == OWNER


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def step_of(v, t, v_extra=None, t_extra=None):
    step = step_of_scores(torch.zeros(3, 6, dtype=torch.float64), POSITIVES)
    step.v, step.t = Embedding(v, extra=v_extra or {}), Embedding(t, extra=t_extra or {})
    return step


def test_distances_are_euclidean_and_their_gradient_stays_finite():
    x, y = drawn(4, 5), drawn(6, 5, seed=1)
    torch.testing.assert_close(distances(x, y), torch.cdist(x, y))
    torch.testing.assert_close(squared_distances(x, y), torch.cdist(x, y).square())
    for width in (3, 64, 256, 1024):
        equal = drawn(100, width).requires_grad_()
        apart = distances(equal, equal.detach())
        (gradient,) = torch.autograd.grad(apart.diagonal().sum(), equal)
        assert not apart.diagonal().any() and not gradient.any()
        near = (equal + 0.01 * drawn(100, width, seed=1)).float().detach()
        found, wanted = (of(equal.float(), near) for of in (distances, torch.cdist))
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_mmd_is_the_mean_kernel_within_less_that_between(gamma, squared):
    def kernel(x, y):
        return (-gamma * torch.cdist(x, y) ** (1 + squared)).exp().mean()

    x, y = drawn(4, 3), drawn(6, 3, seed=1)
    expected = kernel(x, x) + kernel(y, y) - 2 * kernel(x, y)
    torch.testing.assert_close(mmd(x, y, gamma, squared), expected)


def test_mmd_of_a_step_takes_every_element_of_every_set():
    v, t = drawn(3, 2, 4), drawn(6, 2, 4, seed=1)
    assert torch.equal(LOSSES.build("mmd", {})(step_of(v, t)), mmd(v.view(6, 4), t.view(12, 4)))
    options = {"gamma": 2.0, "squared": True}
    found = LOSSES.build("mmd", options)(step_of(v[:, 0], t[:, 0]))
    assert torch.equal(found, mmd(v[:, 0], t[:, 0], **options))


@pytest.mark.parametrize("function", [set_diversity, gram_diversity])
def test_diversity_agrees_with_the_loop_and_knows_directions_alone(function):
    slots, costs = drawn(3, 4, 5), []
    for x in unit(slots):
        if function is set_diversity:
            costs.append((-2 * torch.pdist(x) ** 2).exp().mean())  # of the pairs
        else:
            costs.append((x @ x.T - torch.eye(4)).norm() / 16)
    expected = float(sum(costs)) / 3
    assert float(function(slots)) == pytest.approx(expected)
    for same in (slots[:, [2, 0, 3, 1]], 7 * slots):
        assert float(function(same)) == pytest.approx(expected)
    zero = torch.zeros(2, 3, 4).requires_grad_()
    function(zero).backward()
    assert zero.grad.isfinite().all()


def test_diversity_in_closed_forms():
    same = drawn(1, 1, 5).expand(2, 3, 5) * torch.tensor([1.0, 2.0, 5.0]).view(1, 3, 1)
    x, right_angles = drawn(2, 1, 5), torch.eye(4)[None]
    opposite = torch.cat([x, -x], 1)
    assert float(set_diversity(same)) == pytest.approx(1)
    assert float(set_diversity(right_angles)) == pytest.approx(math.exp(-4))
    assert float(set_diversity(opposite)) == pytest.approx(math.exp(-8))
    assert float(set_diversity(x)) == 0  # one element has no other
    assert float(gram_diversity(right_angles)) == 0
    assert float(gram_diversity(opposite)) == pytest.approx(math.sqrt(2) / 4)


@pytest.mark.parametrize(
    ("name", "function"), [("diversity", set_diversity), ("gram_diversity", gram_diversity)]
)
def test_diversity_of_a_step_is_that_of_both_sides_slots(name, function):
    v, t = drawn(3, 4, 5), drawn(6, 2, 5, seed=1)
    step = step_of(v, t, {"slots": v + 1}, {"slots": t + 1})
    assert torch.equal(LOSSES.build(name, {})(step), function(v + 1) + function(t + 1))


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 2.0), (3.0, 5.0)])
def test_soft_contrastive_agrees_with_the_double_loop(scale, shift):
    v, t = drawn(3, 2, 4), drawn(6, 5, 4, seed=1)

    def by_loop(t, positives):
        total = 0.0
        for b, c in itertools.product(range(3), range(len(t))):
            probability = (shift - scale * torch.cdist(v[b], t[c])).sigmoid().mean()
            total -= float((probability if positives[b, c] else 1 - probability).log())
        return total

    assert float(soft_contrastive(v, t, scale, shift, POSITIVES)) == pytest.approx(by_loop(t, POSITIVES))
    assert float(soft_contrastive(v, t[:3], scale, shift)) == pytest.approx(by_loop(t[:3], torch.eye(3)))
    alone = torch.zeros(3, len(t), dtype=torch.bool)  # no pair need belong together
    assert float(soft_contrastive(v, t, scale, shift, alone)) == pytest.approx(by_loop(t, alone))


def test_what_is_half_likely_costs_the_logarithm_of_two_and_far_away_it_stays_finite():
    half = soft_contrastive(drawn(2, 3, 4), drawn(2, 3, 4, seed=1), 0.0, 0.0)
    assert float(half) == pytest.approx(4 * math.log(2))
    v, t = torch.zeros(2, 3, 4).requires_grad_(), torch.full((2, 3, 4), 1e4)
    loss = soft_contrastive(v, t, 30.0, 30.0)
    loss.backward()
    assert loss.isfinite() and v.grad.isfinite().all() and v.grad.any()


def test_samples_have_the_mean_and_the_variance_asked_for():
    torch.manual_seed(0)
    centre, log_variance = drawn(3, 4), drawn(3, 4, seed=1)
    points = sample_gaussians(centre, log_variance, 20_000)  # (3, 20000, 4)
    torch.testing.assert_close(points.mean(1), centre, atol=0.05, rtol=0)
    torch.testing.assert_close(points.var(1), log_variance.exp(), atol=0.02, rtol=0.05)


def test_soft_contrastive_of_a_step_draws_its_points_and_counts_both_directions():
    v, t, v_spread, t_spread = (drawn(n, 4, seed=seed) for seed, n in enumerate((3, 6, 3, 6)))
    step = step_of(v, t, {"log_variance": v_spread}, {"log_variance": t_spread})
    loss = LOSSES.build("soft_contrastive", {"samples": 5, "scale": 3.0, "shift": 4.0, "kl_weight": 0.1})
    torch.manual_seed(0)
    found = loss(step)
    torch.manual_seed(0)
    points = sample_gaussians(v, v_spread, 5), sample_gaussians(t, t_spread, 5)
    divergence = sum(
        kl_divergence(Normal(centre, (spread / 2).exp()), Normal(0.0, 1.0)).sum()
        for centre, spread in ((v, v_spread), (t, t_spread))
    )
    expected = 2 * soft_contrastive(*points, 3.0, 4.0, POSITIVES) + 0.1 * divergence
    torch.testing.assert_close(found, expected, check_dtype=False)
