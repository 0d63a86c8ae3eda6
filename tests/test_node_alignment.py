"""Node losses: equal to plain loops, safe under padding, with the negatives of the global scores."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steps import step_of_scores
from vsecore.embedding import Embedding, unit
from vsecore.losses import LOSSES, NodePooling, node_alignment, node_cross_attention_loss, node_pooling_loss
from vsecore.similarity import Cosine

PICTURES, CAPTIONS, DIM = 4, 6, 3


def batch(seed=0):
    """Elements of both sides with masks, global scores that have nothing to do with them, and positives."""
    dice = torch.Generator().manual_seed(seed)
    sides = []
    for rows, count in ((PICTURES, 5), (CAPTIONS, 7)):
        mask = torch.rand(rows, count, generator=dice) < 0.6
        mask[torch.arange(rows), torch.randint(count, (rows,), generator=dice)] = True
        sides += [torch.randn(rows, count, DIM, generator=dice, dtype=torch.float64), mask]
    scores = torch.randn(PICTURES, CAPTIONS, generator=dice, dtype=torch.float64)
    positives = torch.rand(PICTURES, CAPTIONS, generator=dice) < 0.2
    positives[torch.arange(CAPTIONS) % PICTURES, torch.arange(CAPTIONS)] = True
    positives[:, 0] |= seed % 2 == 1  # this caption fits all pictures: it has no negative
    return *sides, scores, positives


def attend(questions, x):
    """Σ_j softmax_j(q·x_j) x_j of questions (P, D) and elements (N, D): (P, D)."""
    return (questions @ x.T).softmax(1) @ x


def loss_by_loop(scores, positives, margin, of_picture, of_caption):
    """Over all positive pairs and both directions; the negative is the hardest of the global scores.

    `of_picture(b, c)` and `of_caption(b, c)` say how near each part of one is to the other.
    """
    total = 0.0
    for b, c in positives.nonzero().tolist():
        captions = [(float(scores[b, n]), b, n) for n in range(CAPTIONS) if not positives[b, n]]
        pictures = [(float(scores[n, c]), n, c) for n in range(PICTURES) if not positives[n, c]]
        for near, negatives in ((of_picture, captions), (of_caption, pictures)):
            if negatives:
                _, *wrong = max(negatives)
                total += float((margin + near(*wrong) - near(b, c)).relu().sum())
    return total


def real_elements(x, mask):
    return [rows[real] for rows, real in zip(x, mask, strict=True)]


each_batch = given(seed=st.integers(0, 10_000), margin=st.sampled_from([0.0, 0.2, 1.5]))


@each_batch
@settings(max_examples=15, deadline=None)
@torch.no_grad()
def test_node_pooling_agrees_with_the_loop(seed, margin):
    v, v_mask, t, t_mask, scores, positives = batch(seed)
    pool = NodePooling(DIM, 2).double()
    p, q = (
        [unit(attend(pool.weight, x)) for x in real_elements(*side)] for side in ((v, v_mask), (t, t_mask))
    )

    def near(b, c):
        return (p[b] * q[c]).sum(1)

    assert float(NodePooling(400, 50).weight.std()) == pytest.approx(1 / 20, rel=0.1)
    loss = node_pooling_loss(pool(v, v_mask), pool(t, t_mask), scores, margin, positives)
    assert float(loss) == pytest.approx(loss_by_loop(scores, positives, margin, near, near))


@each_batch
@settings(max_examples=15, deadline=None)
def test_node_cross_attention_agrees_with_the_loop(seed, margin):
    v, v_mask, t, t_mask, scores, positives = batch(seed)
    pictures, captions = (list(map(unit, real_elements(*side))) for side in ((v, v_mask), (t, t_mask)))

    def of_picture(b, c):
        return (pictures[b] * attend(pictures[b], captions[c])).sum(1)

    def of_caption(b, c):
        return (captions[c] * attend(captions[c], pictures[b])).sum(1)

    expected = loss_by_loop(scores, positives, margin, of_picture, of_caption)
    loss = node_cross_attention_loss(v, v_mask, t, t_mask, scores, margin, positives)
    assert float(loss) == pytest.approx(expected)


def of_a_step(loss, v, v_mask, t, t_mask, scores, positives=None):
    step = step_of_scores(scores, positives)
    step.v, step.t = Embedding(None, v, v_mask), Embedding(None, t, t_mask)
    return loss(step)


node_pooling = LOSSES.build("node_pooling", {"pools": 2, "margin": 0.7}, dim=DIM).double()
node_pooling.pool.weight.data = torch.tensor([[1.0, -0.5, 0.2], [0.3, 0.8, -1.0]], dtype=torch.float64)
pooling = partial(of_a_step, node_pooling)
cross_attention = partial(of_a_step, LOSSES.build("node_cross_attention", {"margin": 0.7}))
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


def test_one_word_and_one_region_are_compared_by_their_cosine():
    """Attention over one thing is that thing, so that both losses are the triplet loss of their cosines."""
    v, _, t, _, _, _ = batch()
    v, t = v[:, :1], t[:PICTURES, :1]
    cosines = Cosine()(Embedding(v[:, 0]), Embedding(t[:, 0]))
    wrong = cosines.masked_fill(torch.eye(PICTURES, dtype=torch.bool), -torch.inf)
    expected = sum((0.7 + wrong.amax(axis) - cosines.diagonal()).relu().sum() for axis in (0, 1))
    torch.testing.assert_close(cross_attention(v, None, t, None, cosines), expected)
    torch.testing.assert_close(pooling(v, None, t, None, cosines), 2 * expected)  # two pools, both the word


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
