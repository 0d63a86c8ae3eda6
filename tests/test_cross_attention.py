"""Cross-attention: SCAN and BFAN as their papers write them, whatever the padding and the blocks."""

import itertools

import pytest
import torch
from torch.nn.functional import leaky_relu, normalize

from vsecore.embedding import Embedding
from vsecore.similarity import CrossAttention, FocalAttention, cross_attention, focal_attention

DIRECTIONS, AGGREGATES, SLOPES, FOCI = ("t2i", "i2t"), ("lse", "mean"), (0.1, 0.0), ("equal", "prob")
OPTIONS = [
    {"direction": direction, "aggregate": aggregate, "negative_slope": slope}
    for direction, aggregate, slope in itertools.product(DIRECTIONS, AGGREGATES, SLOPES)
]
EVERY = [(cross_attention, options) for options in OPTIONS] + [
    (focal_attention, {"focus": focus}) for focus in FOCI
]


def sets(lengths, dim=5, seed=0):
    """Random elements, (rows, most, dim), of which so many are real in each row; and the mask."""
    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), dim, generator=dice, dtype=torch.float64)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def scored(function, options, v, t):
    return function(v[0], v[1], t[0], t[1], **options)


# The papers, one pair of a picture and a caption at a time, of unit vectors and without padding.


def attention(query, context, smooth, slope):
    """Each query element's weights over the context, (L, S)."""
    clipped = leaky_relu(query @ context.T, slope)
    shares = (clipped / clipped.norm(dim=0)).nan_to_num()  # over the query's elements
    return (smooth * shares).softmax(1)


def answers(query, context, weights):
    """Each query element's cosine with the weighted sum of the context, (L,)."""
    return torch.cosine_similarity(query, weights @ context, dim=1)


def scan(v, t, direction="t2i", smooth=9.0, aggregate="lse", lse=6.0, negative_slope=0.1):
    query, context = (t, v) if direction == "t2i" else (v, t)
    found = answers(query, context, attention(query, context, smooth, negative_slope))
    return found.mean() if aggregate == "mean" else (lse * found).logsumexp(0) / lse


def bfan(v, t, focus="equal", smooth=20.0):
    total = 0.0
    for query, context in ((t, v), (v, t)):
        a = attention(query, context, smooth, 0.1)  # (L, S)
        trust = torch.ones_like(a) if focus == "equal" else a.sqrt()
        focal = ((a.unsqueeze(2) - a.unsqueeze(1)) * trust.unsqueeze(1)).sum(2)  # F_j
        kept = torch.where((focal > 0) | (a >= (1 - 1e-12) * a.amax(1, keepdim=True)), a, 0)
        total += answers(query, context, kept / kept.sum(1, keepdim=True)).mean()
    return total


def by_pairs(function, options, v, t):
    one = scan if function is cross_attention else bfan
    pictures, captions = ([normalize(x[m], dim=1) for x, m in zip(*side, strict=True)] for side in (v, t))
    return torch.stack([torch.stack([one(x, y, **options) for y in captions]) for x in pictures])


@pytest.mark.parametrize(("function", "options"), EVERY)
def test_agrees_with_the_paper_pair_by_pair(function, options):
    for v, t in (([4, 2, 6], [3, 5, 1, 3]), ([1, 1], [4, 2]), ([5, 3], [1, 1])):
        v, t = sets(v), sets(t, seed=1)
        found, wanted = scored(function, options, v, t), by_pairs(function, options, v, t)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_an_attended_vector_of_length_zero_scores_zero():
    v = torch.tensor([[[0.0, 1.0], [0.0, -1.0]]], requires_grad=True)
    score = cross_attention(v, None, torch.tensor([[[1.0, 0.0]]]), None, aggregate="mean")
    score.sum().backward()
    assert score.item() == 0 and v.grad.isfinite().all()


@pytest.mark.parametrize("smooth", [29.0, 31.0, 500.0])
def test_attention_may_be_as_sharp_as_one_likes(smooth):
    v, t = sets([4, 6]), sets([3, 5], seed=1)
    options = {"smooth": smooth}
    single = [(x.float(), mask) for x, mask in (v, t)]
    for function in (cross_attention, focal_attention):
        exact = by_pairs(function, options, v, t)
        torch.testing.assert_close(scored(function, options, v, t), exact)
        torch.testing.assert_close(scored(function, options, *single).double(), exact, rtol=1e-3, atol=1e-3)


def test_equal_weights_all_stay_in_focus():
    v = torch.ones(1, 3, 4, dtype=torch.float64)
    t = sets([2], dim=4, seed=1)[0]
    for focus in FOCI:
        weights = FocalAttention(focus).weights(Embedding(None, v), Embedding(None, t))
        torch.testing.assert_close(weights, torch.full((1, 2, 3), 1 / 3, dtype=torch.float64))


def scores_by(weights, v, t, direction, combine):
    """The scores of rows (B,) from their weights (B, M, N), by the attended vectors themselves."""
    scores = []
    for w, x, m, y, n in zip(weights, *v, *t, strict=True):
        w, x, y = w[n][:, m], normalize(x[m], dim=-1), normalize(y[n], dim=-1)
        query, attended = (y, w @ x) if direction == "t2i" else (x, w.T @ y)
        scores.append(combine(torch.cosine_similarity(query, attended, dim=-1)))
    return torch.stack(scores)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_weights_add_up_to_one_and_give_the_score(direction):
    v, t = sets([4, 2, 6]), sets([3, 5, 1], seed=1)
    sides = Embedding(None, *v), Embedding(None, *t)
    module = CrossAttention(direction)
    both = [FocalAttention(), FocalAttention("prob")]
    along = 2 if direction == "t2i" else 1
    real = t[1] if direction == "t2i" else v[1]
    of_both = [(focal.weights(*sides), focal.weights(*sides[::-1]).mT) for focal in both]
    for found in (module.weights(*sides), *(ways[DIRECTIONS.index(direction)] for ways in of_both)):
        assert found.shape == (3, 5, 6)
        torch.testing.assert_close(found.sum(along), real.double())
        assert not found[~(t[1][:, :, None] & v[1][:, None, :])].any()
    expected = scores_by(module.weights(*sides), v, t, direction, lambda r: (6.0 * r).logsumexp(0) / 6.0)
    torch.testing.assert_close(module.pairs(*sides), expected)
    for focal, ways in zip(both, of_both, strict=True):
        total = sum(scores_by(one, v, t, way, torch.mean) for one, way in zip(ways, DIRECTIONS, strict=True))
        torch.testing.assert_close(focal.pairs(*sides), total)
