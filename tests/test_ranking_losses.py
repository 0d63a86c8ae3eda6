"""Losses on pairs: right against loops, closed forms and gradients, whatever belongs together."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from vsecore.losses import info_nce, triplet


def hardest(scores, positives=None):
    return triplet(scores, positives=positives)


def all_negatives(scores, positives=None):
    return triplet(scores, hardest=False, positives=positives)


each_loss = pytest.mark.parametrize("loss", [hardest, all_negatives, info_nce])


def batch(seed, rows=4, columns=6, ties=False):
    """Scores, and positives of every kind: several a row or column, and at least one in each."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    if ties:
        scores = scores.round()
    positives = torch.rand(rows, columns, generator=generator) < 0.2
    positives[torch.arange(columns) % rows, torch.arange(columns)] = True
    return scores, positives


def triplet_by_loop(scores, positives, margin=0.2, keep=max):
    """For each positive pair: what each negative of its row and column costs; the worst, or the sum."""
    rows, columns = scores.shape
    total = 0.0
    for b in range(rows):
        for c in range(columns):
            if not positives[b, c]:
                continue
            own = float(scores[b, c])
            captions = [margin - own + float(scores[b, n]) for n in range(columns) if not positives[b, n]]
            pictures = [margin - own + float(scores[n, c]) for n in range(rows) if not positives[n, c]]
            for costs in (captions, pictures):
                total += keep([max(0.0, cost) for cost in costs] or [0.0])
    return total


def info_nce_by_loop(scores, positives, temperature=0.05):
    """For each positive pair and direction: minus the log of its share against its negatives."""
    rows, columns = scores.shape
    losses = []
    for b in range(rows):
        for c in range(columns):
            if not positives[b, c]:
                continue
            for negatives in (
                [float(scores[b, n]) for n in range(columns) if not positives[b, n]],
                [float(scores[n, c]) for n in range(rows) if not positives[n, c]],
            ):
                logits = [float(scores[b, c]) / temperature] + [s / temperature for s in negatives]
                top = max(logits)
                losses.append(top + math.log(sum(math.exp(s - top) for s in logits)) - logits[0])
    return math.fsum(losses) / len(losses)


@given(seed=st.integers(0, 10_000), ties=st.booleans(), margin=st.sampled_from([0.0, 0.2, 1.5]))
@settings(max_examples=30, deadline=None)
def test_triplet_agrees_with_the_loop(seed, ties, margin):
    scores, positives = batch(seed, ties=ties)
    pairs = int(positives.sum())
    for kind, keep in ((True, max), (False, sum)):
        expected = triplet_by_loop(scores, positives, margin, keep)
        assert float(triplet(scores, margin, kind, positives)) == pytest.approx(expected)
        assert float(triplet(scores, margin, kind, positives, "mean")) == pytest.approx(expected / pairs)


@given(seed=st.integers(0, 10_000), ties=st.booleans(), temperature=st.sampled_from([0.05, 0.5, 3.0]))
@settings(max_examples=30, deadline=None)
def test_info_nce_agrees_with_the_loop(seed, ties, temperature):
    scores, positives = batch(seed, ties=ties)
    expected = info_nce_by_loop(scores, positives, temperature)
    assert float(info_nce(scores, temperature, positives)) == pytest.approx(expected)


@each_loss
def test_the_diagonal_is_what_belongs_together_unless_told(loss):
    scores, _ = batch(0, columns=4)
    assert torch.equal(loss(scores), loss(scores, positives=torch.eye(4, dtype=torch.bool)))


@pytest.mark.parametrize("pairs", [2, 5, 32])
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_collapsed_model_rests_at_a_closed_form(pairs, score):
    scores = torch.full((pairs, pairs), score, dtype=torch.float64)
    assert float(triplet(scores, margin=0.2)) == pytest.approx(2 * pairs * 0.2)
    assert float(triplet(scores, margin=0.2, reduction="mean")) == pytest.approx(2 * 0.2)
    assert float(triplet(scores, margin=0.2, hardest=False)) == pytest.approx(2 * pairs * (pairs - 1) * 0.2)
    assert float(info_nce(scores)) == pytest.approx(math.log(pairs))


def test_only_the_pair_and_its_hardest_negatives_learn():
    scores = torch.tensor([[0.5, 0.6, 0.1], [0.4, 0.9, 0.2], [0.2, 0.3, 0.9]], requires_grad=True)
    triplet(scores, margin=0.2).backward()
    # picture 0 is nearer to caption 1, and picture 1 within the margin of caption 0; all others win clearly
    assert scores.grad.tolist() == [[-2, 1, 0], [1, 0, 0], [0, 0, 0]]


@each_loss
def test_other_captions_of_the_picture_are_never_negatives(loss):
    scores = torch.tensor([[0.5, 0.5, 0.4], [0.6, 0.4, 0.4]], dtype=torch.float64, requires_grad=True)
    positives = torch.tensor([[True, True, False], [False, False, True]])
    (gradient,) = torch.autograd.grad(loss(scores, positives=positives), scores)
    assert (gradient[positives] < 0).all() and (gradient[~positives] >= 0).all()
    # raised without end, the second caption wins its own questions and presses on nothing else
    for height in (10.0, 100.0):
        raised = scores.detach().clone()
        raised[0, 1] = height
        (gradient,) = torch.autograd.grad(loss(raised.requires_grad_(), positives=positives), raised)
        assert gradient[0, 1].abs() < 1e-12
        assert gradient[0, 0] < 0


def test_the_diagonal_alone_restores_the_released_count():
    """Two captions of one picture in a batch: by the diagonal they are each other's hardest negatives."""
    scores = torch.tensor([[0.9, 0.9, 0.0], [0.9, 0.9, 0.0], [0.0, 0.0, 0.9]])
    owner = torch.tensor([0, 0, 1])
    assert float(triplet(scores)) == pytest.approx(4 * 0.2)
    assert float(triplet(scores, positives=owner[:, None] == owner)) == 0


@each_loss
def test_a_pair_without_negatives_costs_nothing_and_keeps_gradients_finite(loss):
    alone = torch.tensor([[0.3]], requires_grad=True)
    value = loss(alone)
    value.backward()
    assert value == 0 and alone.grad == 0
    # the first picture owns every caption: it has no negative, its captions still have one each
    scores = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64, requires_grad=True)
    positives = torch.tensor([[True, True], [False, True]])
    loss(scores, positives=positives).backward()
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 0] < 0 < scores.grad[1, 0]
    assert scores.grad[0, 1] == 0  # neither its picture nor it has a negative


def test_info_nce_is_cross_entropy_both_ways():
    scores, _ = batch(0, columns=4)
    target = torch.arange(4)
    expected = (cross_entropy(scores / 0.1, target) + cross_entropy(scores.T / 0.1, target)) / 2
    torch.testing.assert_close(info_nce(scores, temperature=0.1), expected)


def test_cold_info_nce_is_the_hardest_triplet_without_margin():
    scores, positives = batch(3)
    cold = 1e-4 * info_nce(scores, temperature=1e-4, positives=positives)
    limit = triplet(scores, margin=0.0, positives=positives, reduction="mean") / 2
    torch.testing.assert_close(cold, limit, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_info_nce_stays_finite_at_any_temperature(temperature):
    scores = batch(0, columns=4)[0].float().requires_grad_()
    loss = info_nce(scores, temperature)
    loss.backward()
    assert loss.isfinite() and scores.grad.isfinite().all()
