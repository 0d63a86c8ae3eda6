"""Node losses: equal to plain loops, safe under padding, with the negatives of the global scores."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsecore.embedding import Embedding
from vsecore.losses import (
    NodePooling,
    node_alignment,
    node_cross_attention_loss,
    node_pooling_loss,
)
from vsecore.similarity import Cosine

PICTURES, CAPTIONS, DIM = 4, 6, 3


def batch(seed=0, ties=False):
    """Elements of both sides with masks, global scores that have nothing to do with them, and positives."""
    dice = torch.Generator().manual_seed(seed)
    v = torch.randn(PICTURES, 5, DIM, generator=dice, dtype=torch.float64)
    t = torch.randn(CAPTIONS, 7, DIM, generator=dice, dtype=torch.float64)
    masks = []
    for x in (v, t):
        mask = torch.rand(x.shape[:2], generator=dice) < 0.6
        mask[torch.arange(len(x)), torch.randint(x.shape[1], (len(x),), generator=dice)] = True
        masks.append(mask)
    scores = torch.randn(PICTURES, CAPTIONS, generator=dice, dtype=torch.float64)
    positives = torch.rand(PICTURES, CAPTIONS, generator=dice) < 0.2
    positives[torch.arange(CAPTIONS) % PICTURES, torch.arange(CAPTIONS)] = True
    return v, masks[0], t, masks[1], scores.round() if ties else scores, positives


def dot(x, y):
    return math.fsum(a * b for a, b in zip(map(float, x), map(float, y), strict=True))


def directed(x):
    length = math.sqrt(dot(x, x))
    return [float(a) / length for a in x]


def pool_by_loop(weights, elements):
    """p_i = Σ_j softmax_j(w_i·x_j) x_j, for each pool i."""
    pools = []
    for w in weights:
        shares = [math.exp(dot(w, x)) for x in elements]
        pools.append(
            [math.fsum(s * float(x[d]) for s, x in zip(shares, elements, strict=True)) / sum(shares)
             for d in range(len(w))]
        )  # fmt: skip
    return pools


def found_by_loop(element, others):
    """v·v' with v' = Σ_j softmax_j(v·u_j) u_j, the attended vector written out."""
    shares = [math.exp(dot(element, u)) for u in others]
    attended = [
        math.fsum(s * u[d] for s, u in zip(shares, others, strict=True)) / sum(shares)
        for d in range(len(element))
    ]
    return dot(element, attended)


def loss_by_loop(scores, positives, cost_of_caption, cost_of_picture):
    """Over all positive pairs and both directions; the negative is the hardest of the global scores."""
    total = []
    for b, c in itertools.product(range(PICTURES), range(CAPTIONS)):
        if not positives[b, c]:
            continue
        wrong_captions = [n for n in range(CAPTIONS) if not positives[b, n]]
        if wrong_captions:
            total += cost_of_caption(b, c, max(wrong_captions, key=lambda n: float(scores[b, n])))
        wrong_pictures = [n for n in range(PICTURES) if not positives[n, c]]
        if wrong_pictures:
            total += cost_of_picture(b, c, max(wrong_pictures, key=lambda n: float(scores[n, c])))
    return math.fsum(total)


@given(seed=st.integers(0, 10_000), margin=st.sampled_from([0.0, 0.2, 1.5]))
@settings(max_examples=15, deadline=None)
def test_node_pooling_agrees_with_the_loop(seed, margin):
    v, v_mask, t, t_mask, scores, positives = batch(seed)
    pool = NodePooling(DIM, 2).double()
    p = [pool_by_loop(pool.weight.detach(), x[real]) for x, real in zip(v, v_mask, strict=True)]
    q = [pool_by_loop(pool.weight.detach(), x[real]) for x, real in zip(t, t_mask, strict=True)]

    def cosine(b, c, i):
        return dot(directed(p[b][i]), directed(q[c][i]))

    def of_caption(b, c, n):
        return [max(0.0, margin + cosine(b, n, i) - cosine(b, c, i)) for i in range(2)]

    def of_picture(b, c, n):
        return [max(0.0, margin + cosine(n, c, i) - cosine(b, c, i)) for i in range(2)]

    expected = loss_by_loop(scores, positives, of_caption, of_picture)
    loss = node_pooling_loss(pool(v, v_mask), pool(t, t_mask), scores, margin, positives)
    assert float(loss.detach()) == pytest.approx(expected, abs=1e-10)


def cross_attention_by_loop(v, v_mask, t, t_mask, scores, positives, margin):
    pictures = [[directed(x) for x in rows[real]] for rows, real in zip(v, v_mask, strict=True)]
    captions = [[directed(x) for x in rows[real]] for rows, real in zip(t, t_mask, strict=True)]

    def of_caption(b, c, n):
        return [
            max(0.0, margin + found_by_loop(x, captions[n]) - found_by_loop(x, captions[c]))
            for x in pictures[b]
        ]

    def of_picture(b, c, n):
        return [
            max(0.0, margin + found_by_loop(x, pictures[n]) - found_by_loop(x, pictures[b]))
            for x in captions[c]
        ]

    return loss_by_loop(scores, positives, of_caption, of_picture)


@given(seed=st.integers(0, 10_000), margin=st.sampled_from([0.0, 0.2, 1.5]))
@settings(max_examples=15, deadline=None)
def test_node_cross_attention_agrees_with_the_loop(seed, margin):
    v, v_mask, t, t_mask, scores, positives = batch(seed)
    expected = cross_attention_by_loop(v, v_mask, t, t_mask, scores, positives, margin)
    loss = node_cross_attention_loss(v, v_mask, t, t_mask, scores, margin, positives)
    assert float(loss) == pytest.approx(expected, abs=1e-10)


WEIGHT = torch.tensor([[1.0, -0.5, 0.2], [0.3, 0.8, -1.0]], dtype=torch.float64)


def pooling(v, v_mask, t, t_mask, scores, positives=None):
    pool = NodePooling(DIM, 2).double()
    pools = [
        torch.func.functional_call(pool, {"weight": WEIGHT}, each) for each in ((v, v_mask), (t, t_mask))
    ]
    return node_pooling_loss(*pools, scores, positives=positives)


def cross_attention(v, v_mask, t, t_mask, scores, positives=None):
    return node_cross_attention_loss(v, v_mask, t, t_mask, scores, positives=positives)


each_loss = pytest.mark.parametrize("loss", [pooling, cross_attention])


@each_loss
def test_the_global_scores_choose_the_negatives_and_get_no_gradient(loss):
    v, v_mask, t, t_mask, scores, positives = batch()
    scores.requires_grad_()
    plain = loss(v.requires_grad_(), v_mask, t, t_mask, scores, positives)
    plain.backward()
    assert scores.grad is None
    # Any scores in the same order name the same negatives; the opposite order names others.
    with torch.no_grad():
        torch.testing.assert_close(loss(v, v_mask, t, t_mask, scores.exp(), positives), plain.detach())
        assert not torch.isclose(loss(v, v_mask, t, t_mask, -scores, positives), plain)


@each_loss
def test_a_sibling_is_never_a_negative(loss):
    """Picture 0 owns captions 0 and 1. However high the score of one, the other never learns from it."""
    v, v_mask, t, t_mask, scores, _ = batch()
    positives = torch.zeros(PICTURES, CAPTIONS, dtype=torch.bool)
    positives[torch.tensor([0, 0, 1, 2, 3, 3]), torch.arange(CAPTIONS)] = True
    plain = loss(v, v_mask, t, t_mask, scores, positives)
    raised = loss(v, v_mask, t, t_mask, torch.where(positives, scores + 100, scores), positives)
    assert torch.equal(plain, raised)


def test_one_word_and_one_region_are_compared_by_their_cosine():
    """Attention over one thing is that thing, so that both losses are the triplet loss of their cosines."""
    v, _, t, _, _, _ = batch()
    v, t = v[:, :1], t[:PICTURES, :1]
    cosines = Cosine()(Embedding(v[:, 0]), Embedding(t[:, 0]))
    wrong = cosines.masked_fill(torch.eye(PICTURES, dtype=torch.bool), -torch.inf)
    expected = sum((0.2 + wrong.amax(axis) - cosines.diagonal()).relu().sum() for axis in (0, 1))
    torch.testing.assert_close(cross_attention(v, None, t, None, cosines), expected)
    torch.testing.assert_close(pooling(v, None, t, None, cosines), 2 * expected)  # two pools, both the word


def test_pools_begin_near_the_mean_and_a_sharp_one_finds_its_element():
    v, v_mask, _, _, _, _ = batch()
    pool = NodePooling(DIM, 2).double()
    weights = pool.weights(v, v_mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(PICTURES, 2, dtype=torch.float64))
    assert (weights.masked_select(~v_mask.unsqueeze(1)) == 0).all()
    with torch.no_grad():
        pool.weight.zero_()
        mean = (v * v_mask.unsqueeze(-1)).sum(1) / v_mask.sum(1, keepdim=True)
        torch.testing.assert_close(pool(v, v_mask), mean.unsqueeze(1).expand(-1, 2, -1))
        pool.weight[0, 0] = 1e4
        chosen = v[..., 0].masked_fill(~v_mask, -torch.inf).argmax(1)
        torch.testing.assert_close(pool(v, v_mask)[:, 0], v[torch.arange(PICTURES), chosen])


def test_in_blocks_of_pictures_it_is_the_same(monkeypatch):
    """What a GPU does, where positive pairs cannot be listed: a few pictures meet all captions."""
    v, v_mask, t, t_mask, scores, positives = batch()
    plain = cross_attention(v.requires_grad_(), v_mask, t.requires_grad_(), t_mask, scores, positives)
    gradients = torch.autograd.grad(plain, (v, t))
    monkeypatch.setattr(node_alignment, "ROWS", 3)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    blocks = cross_attention(v, v_mask, t, t_mask, scores, positives)
    torch.testing.assert_close(blocks, plain)
    for block, gradient in zip(torch.autograd.grad(blocks, (v, t)), gradients, strict=True):
        torch.testing.assert_close(block, gradient)
