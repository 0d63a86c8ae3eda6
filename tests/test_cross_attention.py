"""Cross-attention: SCAN and BFAN as their papers write them, whatever the padding and the blocks."""

import itertools
import math

import pytest
import torch
from torch.nn.functional import normalize

from vsecore.embedding import Embedding
from vsecore.similarity import (
    CrossAttention,
    FocalAttention,
    cross_attention,
    focal_attention,
)

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


# The papers in plain loops, one pair of a picture and a caption at a time.


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine_of(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def attention_by_loops(query, context, smooth, slope):
    """Each query element's weights over the context."""
    clipped = [[max(s, slope * s) for s in (cosine_of(q, c) for c in context)] for q in query]
    norms = [math.sqrt(sum(row[j] ** 2 for row in clipped)) for j in range(len(context))]
    rows = []
    for row in clipped:
        raised = [math.exp(smooth * (s / norm if norm else 0)) for s, norm in zip(row, norms, strict=True)]
        rows.append([w / sum(raised) for w in raised])
    return rows


def answers_by_loops(query, context, weights):
    """Each query element's cosine with the weighted sum of the context's unit vectors."""
    units = [[x / math.sqrt(dot(c, c)) for x in c] for c in context]
    found = []
    for q, row in zip(query, weights, strict=True):
        attended = [sum(w * c[d] for w, c in zip(row, units, strict=True)) for d in range(len(q))]
        found.append(cosine_of(q, attended))
    return found


def scan_by_loops(v, t, direction="t2i", smooth=9.0, aggregate="lse", lse=6.0, negative_slope=0.1):
    query, context = (t, v) if direction == "t2i" else (v, t)
    found = answers_by_loops(query, context, attention_by_loops(query, context, smooth, negative_slope))
    if aggregate == "mean":
        return sum(found) / len(found)
    return math.log(sum(math.exp(lse * r) for r in found)) / lse


def refocused_by_loops(row, focus):
    trust = [1.0 if focus == "equal" else math.sqrt(a) for a in row]
    kept = [
        a
        if sum((a - b) * g for b, g in zip(row, trust, strict=True)) > 0 or a >= (1 - 1e-12) * max(row)
        else 0.0
        for a in row
    ]
    return [a / sum(kept) for a in kept]


def bfan_by_loops(v, t, focus="equal", smooth=20.0):
    total = 0.0
    for query, context in ((t, v), (v, t)):
        weights = [refocused_by_loops(row, focus) for row in attention_by_loops(query, context, smooth, 0.1)]
        found = answers_by_loops(query, context, weights)
        total += sum(found) / len(found)
    return total


def by_loops(function, options, v, t):
    one = scan_by_loops if function is cross_attention else bfan_by_loops
    rows = [
        [one(x[m].tolist(), y[n].tolist(), **options) for y, n in zip(*t, strict=True)]
        for x, m in zip(*v, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("function", "options"), EVERY)
def test_agrees_with_the_triple_loop(function, options):
    for v, t in (([4, 2, 6], [3, 5, 1, 3]), ([1, 1], [4, 2]), ([5, 3], [1, 1])):
        v, t = sets(v), sets(t, seed=1)
        found, wanted = scored(function, options, v, t), by_loops(function, options, v, t)
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
        exact = by_loops(function, options, v, t)
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
    for found in (module.weights(*sides), *(focal.weights(*sides, direction=direction) for focal in both)):
        assert found.shape == (3, 5, 6)
        torch.testing.assert_close(found.sum(along), real.double())
        assert not found[~(t[1][:, :, None] & v[1][:, None, :])].any()
    with pytest.raises(ValueError, match="direction"):
        both[0].weights(*sides, direction="up")
    expected = scores_by(module.weights(*sides), v, t, direction, lambda r: (6.0 * r).logsumexp(0) / 6.0)
    torch.testing.assert_close(module.pairs(*sides), expected)
    for focal in both:
        ways = ((focal.weights(*sides, direction=way), way) for way in DIRECTIONS)
        total = sum(scores_by(weights, v, t, way, torch.mean) for weights, way in ways)
        torch.testing.assert_close(focal.pairs(*sides), total)
