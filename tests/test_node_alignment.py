"""Node losses: equal to plain loops, safe under padding, with the negatives of the global scores."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from vsecore.embedding import Embedding
from vsecore.losses import (
    LOSSES,
    NodePooling,
    NodePoolingLoss,
    Step,
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
def test_gradient_is_that_of_the_values(loss):
    v, v_mask, t, t_mask, scores, positives = batch()
    assert torch.autograd.gradcheck(
        lambda v, t: loss(v, v_mask, t, t_mask, scores, positives), (v.requires_grad_(), t.requires_grad_())
    )


def test_gradient_of_the_pools_is_that_of_the_values():
    v, v_mask, _, _, _, _ = batch()
    pool = NodePooling(DIM, 2).double()

    def pooled(weight, x):
        return torch.func.functional_call(pool, {"weight": weight}, (x, v_mask))

    weight = pool.weight.detach().requires_grad_()
    assert torch.autograd.gradcheck(pooled, (weight, v.requires_grad_()))


@each_loss
@pytest.mark.parametrize("junk", [1e6, math.inf, math.nan])
def test_neither_what_is_in_the_padding_nor_how_much_there_is_changes_anything(loss, junk):
    v, v_mask, t, t_mask, scores, positives = batch()
    plain = loss(v, v_mask, t, t_mask, scores, positives)
    padded = []
    for x, mask in ((v, v_mask), (t, t_mask)):
        x = torch.where(mask.unsqueeze(-1), x, junk)
        x = torch.cat([x, torch.full((len(x), 3, DIM), junk, dtype=x.dtype)], 1).requires_grad_()
        padded += [x, nn.functional.pad(mask, (0, 3))]
    loud = loss(*padded, scores, positives)
    torch.testing.assert_close(loud, plain, rtol=1e-12, atol=0)
    loud.backward()
    for x, mask in (padded[:2], padded[2:]):
        assert (x.grad[~mask] == 0).all() and x.grad[mask].isfinite().all()


@each_loss
def test_no_mask_means_all_are_real(loss):
    v, _, t, _, scores, positives = batch()
    full = [torch.ones(x.shape[:2], dtype=torch.bool) for x in (v, t)]
    torch.testing.assert_close(
        loss(v, None, t, None, scores, positives), loss(v, full[0], t, full[1], scores, positives)
    )


@each_loss
def test_the_order_of_elements_changes_nothing(loss):
    v, v_mask, t, t_mask, scores, positives = batch()
    turned = loss(v.flip(1), v_mask.flip(1), t.flip(1), t_mask.flip(1), scores, positives)
    torch.testing.assert_close(turned, loss(v, v_mask, t, t_mask, scores, positives))


@each_loss
def test_the_diagonal_is_what_belongs_together_unless_told(loss):
    v, v_mask, t, t_mask, scores, _ = batch()
    some = (v, v_mask, t[:PICTURES], t_mask[:PICTURES], scores[:, :PICTURES])
    assert torch.equal(loss(*some), loss(*some, torch.eye(PICTURES, dtype=torch.bool)))


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


@each_loss
def test_a_batch_without_negatives_costs_nothing(loss):
    v, v_mask, t, t_mask, scores, _ = batch()
    v = v[:1].requires_grad_()
    cost = loss(v, v_mask[:1], t, t_mask, scores[:1], torch.ones(1, CAPTIONS, dtype=torch.bool))
    cost.backward()
    assert cost == 0 and (v.grad == 0).all()


def test_one_word_and_one_region_are_compared_by_their_cosine():
    """Attention over one thing is that thing, so that both losses are the triplet loss of their cosines."""
    v, _, t, _, _, _ = batch()
    v, t = v[:, :1], t[:PICTURES, :1]
    cosines = Cosine()(Embedding(v[:, 0]), Embedding(t[:, 0]))
    wrong = cosines.masked_fill(torch.eye(PICTURES, dtype=torch.bool), -torch.inf)
    expected = sum((0.2 + wrong.amax(axis) - cosines.diagonal()).relu().sum() for axis in (0, 1))
    torch.testing.assert_close(cross_attention(v, None, t, None, cosines), expected)
    torch.testing.assert_close(pooling(v, None, t, None, cosines), 2 * expected)  # two pools, both the word


def test_at_collapse_every_pool_and_every_element_costs_the_margin():
    v = torch.ones(PICTURES, 5, DIM, dtype=torch.float64)
    t = torch.ones(PICTURES, 7, DIM, dtype=torch.float64)
    scores = torch.zeros(PICTURES, PICTURES, dtype=torch.float64)
    assert float(pooling(v, None, t, None, scores)) == pytest.approx(2 * 2 * PICTURES * 0.2)
    assert float(cross_attention(v, None, t, None, scores)) == pytest.approx((5 + 7) * PICTURES * 0.2)


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


def a_step(v, v_mask, t, t_mask, scores, positives):
    pictures, captions = Embedding(None, v, v_mask), Embedding(None, t, t_mask)
    return Step(scores, positives, pictures, captions, (), None, None, Cosine(), 0)


def test_one_set_of_pools_serves_both_sides_unless_told():
    parts = batch()
    torch.manual_seed(0)
    loss = NodePoolingLoss(DIM, pools=3).double()
    v, v_mask, t, t_mask, scores, positives = parts
    assert [tuple(weight.shape) for weight in loss.parameters()] == [(3, DIM)]
    by_hand = node_pooling_loss(loss.pool(v, v_mask), loss.pool(t, t_mask), scores, 0.2, positives)
    assert torch.equal(loss(a_step(*parts)), by_hand)
    apart = NodePoolingLoss(DIM, pools=3, shared=False).double()
    assert len(list(apart.parameters())) == 2
    assert not torch.isclose(apart(a_step(*parts)), by_hand)
    loss(a_step(*parts)).backward()
    assert (loss.pool.weight.grad != 0).any()


def test_the_module_of_node_cross_attention_is_the_function():
    parts = batch()
    loss = LOSSES.build("node_cross_attention", {"margin": 0.5})
    expected = node_cross_attention_loss(*parts[:5], margin=0.5, positives=parts[5])
    assert torch.equal(loss(a_step(*parts)), expected)


def test_in_blocks_of_pictures_it_is_the_same(monkeypatch):
    """What a GPU does, where positive pairs cannot be listed: a few pictures meet all captions."""
    v, v_mask, t, t_mask, scores, positives = batch()
    plain = cross_attention(v.requires_grad_(), v_mask, t.requires_grad_(), t_mask, scores, positives)
    gradients = torch.autograd.grad(plain, (v, t))
    monkeypatch.setattr(node_alignment, "ROWS", 3)
    monkeypatch.setattr(node_alignment, "_listed", lambda v: False)
    blocks = cross_attention(v, v_mask, t, t_mask, scores, positives)
    torch.testing.assert_close(blocks, plain)
    for block, gradient in zip(torch.autograd.grad(blocks, (v, t)), gradients, strict=True):
        torch.testing.assert_close(block, gradient)


@pytest.mark.parametrize("name", ["node_pooling", "node_cross_attention"])
def test_no_node_loss_asks_a_gpu_for_a_number(name):
    with FakeTensorMode():
        v, t = torch.rand(4, 5, DIM, device="cuda"), torch.rand(6, 7, DIM, device="cuda")
        masks = [torch.ones(x.shape[:2], dtype=torch.bool, device="cuda") for x in (v, t)]
        scores = torch.rand(4, 6, device="cuda")
        with torch.device("cuda"):
            loss = LOSSES.build(name, {}, dim=DIM)
        cost = loss(a_step(v, masks[0], t, masks[1], scores, scores > 0))
    assert cost.shape == () and cost.device.type == "cuda"


V, T, S = torch.rand(2, 3, 4), torch.rand(2, 5, 4), torch.rand(2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NodePooling(4, 0), "pools is 0: it must be a whole number of at least 1"),
        (lambda: NodePooling(0, 2), "dim is 0: it must be"),
        (lambda: NodePooling(5, 2)(V), r"x is torch.float32 \(2, 3, 4\): it must be .*\(B, N, 5\)"),
        (lambda: NodePooling(4, 2)(V, torch.ones(2, 4, dtype=torch.bool)), r"must be bool \(2, 3\)"),
        (lambda: NodePooling(4, 2)(V, torch.zeros(2, 3, dtype=torch.bool)), "row 0 of x has no real element"),
        (lambda: node_pooling_loss(V, T, S), r"captions is \(2, 5, 4\): it must have the pools"),
        (lambda: node_pooling_loss(V, V, torch.rand(2, 3)), r"scores is \(2, 3\): it must be \(2, 2\)"),
        (lambda: node_pooling_loss(V, V, S, margin=-1.0), "margin is -1.0: it must be a number >= 0"),
        (lambda: NodePoolingLoss(4, margin=math.nan), "margin is nan"),
        (lambda: node_pooling_loss(V, V, S, margin=None), "margin is None: it must be a number >= 0"),
        (lambda: node_cross_attention_loss(V, None, T[..., :3], None, S), "it must have the width of v"),
        (lambda: node_cross_attention_loss(V, None, T[:1], None, S), r"it must be \(2, 1\)"),
        (lambda: node_cross_attention_loss(V.long(), None, T, None, S), "v is torch.int64"),
        (lambda: node_cross_attention_loss(V[:, :0], None, T, None, S), "with N > 0"),
        (lambda: LOSSES.build("node_cross_attention", {"margin": -0.1}), "margin is -0.1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
