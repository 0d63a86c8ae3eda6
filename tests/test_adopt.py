"""AdOpt: how many negatives, by both rules, and what is learned from them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsecore.losses import adopt, adopt_k, alignment, info_nce, uniformity
from vsecore.losses.adopt import _hardest

RULES = ["released", "printed"]
each_rule = pytest.mark.parametrize("rule", RULES)


def batch(seed, size=6, captions=None, several=False, dtype=torch.float64):
    """Cosines of random unit vectors, and what belongs together: pairs, or several captions a picture."""
    generator = torch.Generator().manual_seed(seed)
    captions = captions or size
    v = torch.nn.functional.normalize(torch.randn(size, 4, generator=generator, dtype=dtype), dim=1)
    t = torch.nn.functional.normalize(torch.randn(captions, 4, generator=generator, dtype=dtype), dim=1)
    positives = torch.zeros(size, captions, dtype=torch.bool)
    positives[torch.arange(captions) % size, torch.arange(captions)] = True
    if several:
        positives |= torch.rand(size, captions, generator=generator) < 0.15
    return v @ t.T, positives


def constant(size, own, others, dtype=torch.float64):
    """Scores of a batch whose pairs all score `own`, and everything else `others`."""
    scores = torch.full((size, size), others, dtype=dtype)
    return scores.fill_diagonal_(own)


def k_by_loop(scores, positives, rule):
    pairs = [
        (float(scores[b, c]), bool(positives[b, c]))
        for b in range(scores.shape[0])
        for c in range(scores.shape[1])
    ]
    own = [s for s, together in pairs if together]
    align = math.fsum(own) / len(own)
    size = min(scores.shape)
    if rule == "printed":
        uniform = math.log(math.fsum(math.exp(s) for s, _ in pairs) / len(pairs))
        k = math.floor(size * math.cos((align + uniform) * math.pi / 4))
    else:
        uniform = math.fsum(math.exp(0 if together else -s) for s, together in pairs) / len(pairs)
        k = math.floor(size * math.cos((align + uniform) ** 1.25)) + 1
    return max(1, min(k, size - 1)), align, uniform


def loss_by_loop(scores, positives, k, temperature, in_denominator, margin):
    total, pairs = [], 0
    rows, columns = scores.shape
    for b in range(rows):
        for c in range(columns):
            if not positives[b, c]:
                continue
            pairs += 1
            for negatives in (
                [float(scores[b, n]) for n in range(columns) if not positives[b, n]],
                [float(scores[n, c]) for n in range(rows) if not positives[n, c]],
            ):
                hardest = sorted(negatives, reverse=True)[:k]
                if not hardest:
                    continue
                own = math.exp(float(scores[b, c]) / temperature)
                wrong = math.fsum(math.exp((s + margin) / temperature) for s in hardest)
                total.append(-math.log(own / (wrong + (own if in_denominator else 0))))
    return math.fsum(total) / pairs


@given(
    seed=st.integers(0, 10_000),
    rule=st.sampled_from(RULES),
    captions=st.sampled_from([6, 9]),
    several=st.booleans(),
    temperature=st.sampled_from([0.05, 0.5]),
    in_denominator=st.booleans(),
    margin=st.sampled_from([0.0, 0.2]),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_loops(seed, rule, captions, several, temperature, in_denominator, margin):
    scores, positives = batch(seed, captions=captions, several=several)
    k, align, uniform = k_by_loop(scores, positives, rule)
    assert adopt_k(scores, rule, positives) == k
    assert float(alignment(scores, positives)) == pytest.approx(align)
    assert float(uniformity(scores, rule, positives)) == pytest.approx(uniform)
    expected = loss_by_loop(scores, positives, k, temperature, in_denominator, margin)
    loss = adopt(scores, temperature, rule, in_denominator, margin, positives)
    assert float(loss) == pytest.approx(expected)


def test_the_two_rules_are_not_the_same_thing():
    # A well-trained, well-spread batch: pairs score 0.94; the mean of e^s over all is e^0.03.
    others = math.log((128 * math.exp(0.03) - math.exp(0.94)) / 127)
    scores = constant(128, 0.94, others)
    assert float(alignment(scores)) == pytest.approx(0.94)
    assert float(uniformity(scores, "printed")) == pytest.approx(0.03)
    assert adopt_k(scores, "printed") == 92
    assert adopt_k(scores, "released") == 1


def test_a_collapsed_batch_and_an_inverted_one():
    ones = torch.ones(128, 128)
    assert adopt_k(ones, "printed") == 1
    # All in one point the released rule takes for half-way: its uniformity falls as the alignment rises.
    assert adopt_k(ones, "released") == math.floor(128 * math.cos((1 + (127 / math.e + 1) / 128) ** 1.25)) + 1
    assert adopt_k(constant(128, -1.0, 1.0), "released") == 127  # worse than nothing: as raw as can be
    assert 1 <= adopt_k(constant(128, -1.0, 1.0), "printed") <= 127


def test_the_released_rule_asks_for_fewer_negatives_as_training_goes():
    generator = torch.Generator().manual_seed(0)
    v, noise = (torch.nn.functional.normalize(torch.randn(128, 64, generator=generator)) for _ in range(2))
    trained = [
        v @ torch.nn.functional.normalize(noise + share * v).T for share in (0, 0.3, 0.6, 1, 1.5, 2.5, 5)
    ]
    released = [adopt_k(scores) for scores in trained]
    assert released == sorted(released, reverse=True)
    assert released[0] > 60
    assert released[-1] == 1
    assert adopt_k(trained[-1], "printed") > 80  # the print still asks for most of them


def test_closed_forms():
    # K = 1: a softmax of two.
    scores = constant(128, 0.94, 0.01)
    assert adopt_k(scores) == 1
    gap = (0.94 - 0.01) / 0.05
    assert float(adopt(scores)) == pytest.approx(2 * math.log1p(math.exp(-gap)))
    assert float(adopt(scores, positive_in_denominator=False)) == pytest.approx(-2 * gap)
    assert float(adopt(scores, margin=0.2)) == pytest.approx(2 * math.log1p(math.exp(0.2 / 0.05 - gap)))
    # All alike: K + 1 of a kind.
    zeros = torch.zeros(128, 128, dtype=torch.float64)
    assert float(adopt(zeros)) == pytest.approx(2 * math.log(1 + 70))
    assert float(adopt(zeros, positive_in_denominator=False)) == pytest.approx(2 * math.log(70))


@each_rule
def test_only_the_pairs_and_their_hardest_negatives_learn(rule):
    scores, _ = batch(1, size=8)
    scores = (scores * 0.3).fill_diagonal_(0.6).requires_grad_()
    k = adopt_k(scores, rule)
    (gradient,) = torch.autograd.grad(adopt(scores, rule=rule, temperature=1.0), scores)
    negatives = scores.detach().masked_fill(torch.eye(8, dtype=torch.bool), -math.inf)
    learns = torch.eye(8, dtype=torch.bool)
    learns |= torch.zeros(8, 8).scatter(1, negatives.topk(k, 1).indices, 1).bool()
    learns |= torch.zeros(8, 8).scatter(0, negatives.topk(k, 0).indices, 1).bool()
    assert torch.equal(gradient != 0, learns)
    assert (gradient.diagonal() < 0).all()
    assert (gradient[learns & ~torch.eye(8, dtype=torch.bool)] > 0).all()


def test_a_positive_is_never_a_negative_however_low_the_others_score():
    # The released code hides the positive behind a 0, which outranks every negative here.
    scores = constant(4, 0.9, -0.5).requires_grad_()
    (gradient,) = torch.autograd.grad(adopt(scores, rule="printed"), scores)
    assert (gradient.diagonal() < 0).all()
    expected = loss_by_loop(scores.detach(), torch.eye(4), adopt_k(scores, "printed"), 0.05, True, 0.0)
    assert adopt(scores, rule="printed").item() == pytest.approx(expected)


@given(
    seed=st.integers(0, 10_000),
    k=st.sampled_from([1, 2, 4, 100]),
    captions=st.sampled_from([6, 9]),
    several=st.booleans(),
    in_denominator=st.booleans(),
    margin=st.sampled_from([0.0, 0.2]),
)
@settings(max_examples=40, deadline=None)
def test_a_fixed_number_of_negatives_takes_the_place_of_the_rule(
    seed, k, captions, several, in_denominator, margin
):
    scores, positives = batch(seed, captions=captions, several=several)
    expected = loss_by_loop(scores, positives, k, 0.05, in_denominator, margin)
    for rule in RULES:
        loss = adopt(scores, 0.05, rule, in_denominator, margin, positives, negatives=k)
        assert float(loss) == pytest.approx(expected)


def test_one_negative_is_a_choice_between_two_and_all_are_info_nce():
    scores, _ = batch(5, size=8)
    own, others = scores.diagonal(), scores.masked_fill(torch.eye(8, dtype=torch.bool), -math.inf)
    choices = [torch.nn.functional.softplus((others.amax(dim) - own) / 0.05).mean() for dim in (0, 1)]
    torch.testing.assert_close(adopt(scores, negatives=1), sum(choices))
    torch.testing.assert_close(adopt(scores, negatives=7), 2 * info_nce(scores))
    torch.testing.assert_close(adopt(scores, negatives=1000), 2 * info_nce(scores))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_hardest_are_the_same_wherever_their_number_is_known(dim, k):
    scores, _ = batch(seed=0)
    known, on_device = (_hardest(scores, dim, number) for number in (k, torch.tensor(k)))
    assert known.shape[dim] == k
    torch.testing.assert_close(known.sort(dim, descending=True).values, on_device.narrow(dim, 0, k))
    assert (on_device.narrow(dim, k, scores.shape[dim] - k) == -math.inf).all()
