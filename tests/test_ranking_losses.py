"""Losses on scores: right against loops, closed forms and gradients, whatever belongs together."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from steps import step_of_scores
from vsecore.losses import (
    LOSSES,
    ScaledInfoNCE,
    SigmoidLoss,
    adopt,
    adopt_k,
    alignment,
    info_nce,
    triplet,
    uniformity,
)

RULES = ["released", "printed"]


def hardest(scores, positives=None):
    return triplet(scores, positives=positives)


def all_negatives(scores, positives=None):
    return triplet(scores, hardest=False, positives=positives)


each_loss = pytest.mark.parametrize("loss", [hardest, all_negatives, info_nce])
seeds = st.integers(0, 10_000)


def batch(seed, rows=4, columns=6, ties=False, several=True):
    """Cosines, and positives of every kind: at least one in each row and column, or several."""
    generator = torch.Generator().manual_seed(seed)
    v, t = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (rows, columns))
    scores = normalize(v, dim=1) @ normalize(t, dim=1).T
    positives = torch.rand(rows, columns, generator=generator) < 0.2 * several
    positives[torch.arange(columns) % rows, torch.arange(columns)] = True
    return (3 * scores).round() / 3 if ties else scores, positives


def constant(size, own, others):
    """Scores of a batch whose pairs all score `own`, and everything else `others`."""
    return torch.full((size, size), others, dtype=torch.float64).fill_diagonal_(own)


def questions(scores, positives):
    """For each positive pair and direction: its score, and those of its negatives."""
    rows, columns = scores.shape
    for b, c in positives.nonzero().tolist():
        own = float(scores[b, c])
        yield own, [float(scores[b, n]) for n in range(columns) if not positives[b, n]]
        yield own, [float(scores[n, c]) for n in range(rows) if not positives[n, c]]


def triplet_by_loop(scores, positives, margin, keep):
    """What each negative costs: the worst, or the sum."""
    return math.fsum(
        keep([max(0.0, margin - own + wrong) for wrong in negatives] or [0.0])
        for own, negatives in questions(scores, positives)
    )


def info_nce_by_loop(scores, positives, temperature):
    """Minus the log of each pair's share against its negatives."""
    losses = []
    for own, negatives in questions(scores, positives):
        losses.append(math.log1p(math.fsum(math.exp((wrong - own) / temperature) for wrong in negatives)))
    return math.fsum(losses) / len(losses)


def adopt_by_loop(scores, positives, k, temperature=0.05, in_denominator=True, margin=0.0):
    """The same against the K hardest negatives, with the margin added to them."""
    total = []
    for own, negatives in questions(scores, positives):
        if worst := sorted(negatives, reverse=True)[:k]:
            wrong = math.fsum(math.exp((s + margin - own) / temperature) for s in worst)
            total.append(math.log(wrong + in_denominator))
    return math.fsum(total) / int(positives.sum())


@given(seed=seeds, ties=st.booleans(), number=st.sampled_from([0.05, 0.2, 1.5]))
@settings(max_examples=30, deadline=None)
def test_triplet_and_info_nce_agree_with_the_loops(seed, ties, number):
    scores, positives = batch(seed, ties=ties)
    for kind, keep in ((True, max), (False, sum)):
        expected = triplet_by_loop(scores, positives, number, keep)
        assert float(triplet(scores, number, kind, positives)) == pytest.approx(expected)
        mean = float(triplet(scores, number, kind, positives, "mean"))
        assert mean == pytest.approx(expected / int(positives.sum()))
    expected = info_nce_by_loop(scores, positives, number)
    assert float(info_nce(scores, number, positives)) == pytest.approx(expected)


@each_loss
def test_the_diagonal_is_what_belongs_together_unless_told(loss):
    scores, _ = batch(0, columns=4)
    assert torch.equal(loss(scores), loss(scores, positives=torch.eye(4, dtype=torch.bool)))


@pytest.mark.parametrize("pairs", [2, 32])
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_collapsed_model_rests_at_a_closed_form(pairs, score):
    scores = torch.full((pairs, pairs), score, dtype=torch.float64)
    assert float(triplet(scores, margin=0.2)) == pytest.approx(2 * pairs * 0.2)
    assert float(triplet(scores, margin=0.2, hardest=False)) == pytest.approx(2 * pairs * (pairs - 1) * 0.2)
    assert float(info_nce(scores)) == pytest.approx(math.log(pairs))


def test_only_the_pair_and_its_hardest_negatives_learn_from_the_hardest_triplet():
    scores = torch.tensor([[0.5, 0.6, 0.1], [0.4, 0.9, 0.2], [0.2, 0.3, 0.9]], requires_grad=True)
    triplet(scores, margin=0.2).backward()
    # picture 0 is nearer to caption 1, and picture 1 within the margin of caption 0; all others win clearly
    assert scores.grad.tolist() == [[-2, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_info_nce_is_cross_entropy_both_ways_and_the_hardest_triplet_when_cold():
    scores, target = batch(0, columns=4)[0], torch.arange(4)
    expected = (cross_entropy(scores / 0.1, target) + cross_entropy(scores.T / 0.1, target)) / 2
    torch.testing.assert_close(info_nce(scores, temperature=0.1), expected)
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


def test_the_sigmoid_loss_agrees_with_the_double_loop():
    scores, positives = batch(0, rows=2, columns=4)
    signed = torch.where(positives, 1.0, -1.0) * (7.0 * scores - 2.0)
    total = math.fsum(math.log1p(math.exp(-x)) for x in signed.flatten().tolist())
    loss = SigmoidLoss(7, -2).double()
    assert float(loss(step_of_scores(scores, positives)).detach()) == pytest.approx(total / 4)
    # All cosines 0 at the start: each positive costs about 10, each of the many negatives about e^-10.
    assert float(SigmoidLoss()(step_of_scores(torch.zeros(64, 64))).detach()) == pytest.approx(10, rel=1e-3)


def test_what_a_recipe_says_of_scale_and_bias_comes_before_what_the_towers_bring():
    for kind in (SigmoidLoss, ScaledInfoNCE):
        assert kind(scale=20.0, pretrained_scale=50.0).log_scale.item() == pytest.approx(math.log(20))
        assert kind(pretrained_scale=50.0).log_scale.item() == pytest.approx(math.log(50))
    assert SigmoidLoss(bias=0.0, pretrained_bias=-5.0).bias.item() == 0
    ScaledInfoNCE(pretrained_scale=100.00001)  # published weights are rounded


def test_the_scale_is_never_used_above_its_most():
    scores, loss = batch(0, columns=4)[0].float(), ScaledInfoNCE(scale=50.0, most=60.0)
    loss.log_scale.data.fill_(9.0)
    value = loss(step_of_scores(scores))
    torch.testing.assert_close(value, info_nce(scores, 1 / 60))
    assert torch.autograd.grad(value, loss.log_scale)[0] != 0, "the scale can fall again"
    with pytest.raises(ValueError, match="scale is"):
        ScaledInfoNCE(scale=200.0)


def k_by_loop(scores, positives, rule):
    pairs = list(zip(scores.flatten().tolist(), positives.flatten().tolist(), strict=True))
    own = [s for s, together in pairs if together]
    align, size = math.fsum(own) / len(own), min(scores.shape)
    if rule == "printed":
        uniform = math.log(math.fsum(math.exp(s) for s, _ in pairs) / len(pairs))
        k = math.floor(size * math.cos((align + uniform) * math.pi / 4))
    else:
        uniform = math.fsum(math.exp(0 if together else -s) for s, together in pairs) / len(pairs)
        k = math.floor(size * math.cos((align + uniform) ** 1.25)) + 1
    return max(1, min(k, size - 1)), align, uniform


@given(
    seed=seeds,
    rule=st.sampled_from(RULES),
    columns=st.sampled_from([6, 9]),
    several=st.booleans(),
    temperature=st.sampled_from([0.05, 0.5]),
    in_denominator=st.booleans(),
    margin=st.sampled_from([0.0, 0.2]),
    fixed=st.sampled_from([None, 1, 2, 4, 100]),
)
@settings(max_examples=80, deadline=None)
def test_adopt_agrees_with_the_loops(
    seed, rule, columns, several, temperature, in_denominator, margin, fixed
):
    scores, positives = batch(seed, 6, columns, several=several)
    k, align, uniform = k_by_loop(scores, positives, rule)
    assert adopt_k(scores, rule, positives) == k
    assert float(alignment(scores, positives)) == pytest.approx(align)
    assert float(uniformity(scores, rule, positives)) == pytest.approx(uniform)
    expected = adopt_by_loop(scores, positives, fixed or k, temperature, in_denominator, margin)
    loss = adopt(scores, temperature, rule, in_denominator, margin, positives, fixed)
    assert float(loss) == pytest.approx(expected)


def test_the_two_rules_are_not_the_same_thing():
    # A well-trained, well-spread batch: pairs score 0.94; the mean of e^s over all is e^0.03.
    scores = constant(128, 0.94, math.log((128 * math.exp(0.03) - math.exp(0.94)) / 127))
    assert float(alignment(scores)) == pytest.approx(0.94)
    assert float(uniformity(scores, "printed")) == pytest.approx(0.03)
    assert (adopt_k(scores, "printed"), adopt_k(scores, "released")) == (92, 1)
    ones = torch.ones(128, 128)
    assert adopt_k(ones, "printed") == 1
    # All in one point the released rule takes for half-way: its uniformity falls as the alignment rises.
    assert adopt_k(ones, "released") == math.floor(128 * math.cos((1 + (127 / math.e + 1) / 128) ** 1.25)) + 1
    assert adopt_k(constant(128, -1.0, 1.0), "released") == 127  # worse than nothing: as raw as can be
    assert adopt_k(torch.full((8, 8), math.nan)) == 1  # the loss will show them


def test_a_loss_of_a_step_is_its_function_with_its_options():
    step = replace(step_of_scores(constant(128, 0.1, 0.0)), epoch=2)
    adapted = {"temperature": 0.3, "margin": 0.1, "positive_in_denominator": False}
    for name, function, options, more in (
        ("triplet", triplet, {"margin": 0.3, "reduction": "mean"}, {"warmup_epochs": 2}),
        ("triplet", partial(triplet, hardest=False), {"margin": 0.3}, {"warmup_epochs": 3}),
        ("info_nce", info_nce, {"temperature": 0.3}, {}),
        ("adopt", adopt, {"margin": 0.1}, {}),
        ("adopt", adopt, adapted | {"rule": "printed"}, {}),
        ("adopt", adopt, adapted | {"negatives": 3}, {}),
    ):
        found = LOSSES.build(name, options | more)(step)
        assert torch.equal(found, function(step.scores, **options)), name


def test_a_positive_is_never_a_negative_however_low_the_others_score():
    # The released code hides the positive behind a 0, which outranks every negative here.
    scores = constant(4, 0.9, -0.5).requires_grad_()
    loss = adopt(scores, rule="printed")
    (gradient,) = torch.autograd.grad(loss, scores)
    assert (gradient.diagonal() < 0).all()
    expected = adopt_by_loop(scores.detach(), torch.eye(4), adopt_k(scores, "printed"))
    assert loss.item() == pytest.approx(expected)
