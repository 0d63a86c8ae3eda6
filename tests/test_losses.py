"""What every loss promises, whatever it reads of a step."""

import math
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import pad

from steps import SIBLINGS, a_step, build
from vsecore.embedding import Embedding
from vsecore.losses import (
    LOSSES,
    Loss,
    adaptive_offline_quintuplet,
    adopt,
    alignment,
    captioning_loss,
    info_nce,
    mmd,
    node_cross_attention_loss,
    node_pooling_loss,
    offline_triplet,
    sample_gaussians,
    set_diversity,
    soft_contrastive,
    triplet,
    uniformity,
)
from vsecore.registry import names_read

SIBLING = [name for name in LOSSES if LOSSES.takes(name, "siblings_are_negatives")]
DECODERS = ("captioning", "input_target", "latent_target")
VARIANTS = (
    ("triplet", {"warmup_epochs": 9}),
    ("triplet", {"reduction": "mean"}),
    *((name, {"siblings_are_negatives": True}) for name in SIBLING),
    ("adopt", {"rule": "printed", "positive_in_denominator": False}),
    ("adopt", {"negatives": 2}),
    ("node_pooling", {"shared": False}),
    ("mmd", {"squared": True}),
    ("offline_triplet", {"warmup_epochs": 9}),
    ("offline_triplet", {"online": False}),
    ("offline_quintuplet", {"online_quintuplet": True}),
    ("adaptive_offline_quintuplet", {"weights": "clamped", "against": "positive"}),
    ("latent_target", {"bound": 0.4}),
    ("input_target", {"bound": 0.4}),
)
each = pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in LOSSES), *VARIANTS], ids=str)


def value(loss, step):
    """The loss, with the same noise each time, and the same multiplier."""
    torch.manual_seed(0)
    return loss.eval()(step)


def tensors(step):
    """Everything in a step that may get a gradient."""
    sides = (step.v, step.t, *(side for pair in step.offline for side in pair))
    embedded = [x for side in sides for x in (side.vectors, side.elements, *side.extra.values())]
    return [step.scores, *embedded]


def with_tensors(step, given):
    """The step with other tensors in their place, in the order of `tensors`."""
    scores, *rest = given
    sides = (step.v, step.t, *(side for pair in step.offline for side in pair))
    names = list(step.v.extra)
    new = []
    for place, side in enumerate(sides):
        vectors, elements, *extra = rest[place * (2 + len(names)) :][: 2 + len(names)]
        new.append(Embedding(vectors, elements, side.mask, dict(zip(names, extra, strict=True))))
    offline = tuple(zip(new[2::2], new[3::2], strict=True))
    return replace(step, scores=scores, v=new[0], t=new[1], offline=offline)


def changed(step, change):
    """The step with every floating-point tensor changed."""
    new = with_tensors(step, [change(x) for x in tensors(step)])
    return replace(new, targets=change(step.targets))


@each
def test_it_is_a_finite_scalar_and_what_it_reads_and_all_its_weights_learn(name, options):
    loss, step = build(name, **options).double(), a_step()
    step = with_tensors(step, [x.requires_grad_() for x in tensors(step)])
    found = value(loss, step)
    assert found.shape == () and found.isfinite() and found.dtype == torch.float64
    found.backward()
    assert all((weight.grad != 0).any() for weight in loss.parameters())
    grads = [x.grad for x in tensors(step) if x.grad is not None]
    assert any((grad != 0).any() for grad in grads) and all(grad.isfinite().all() for grad in grads)


@each
def test_gradient_is_that_of_the_values(name, options):
    loss, step = build(name, **options).double(), a_step()
    inputs = [x.requires_grad_() for x in tensors(step)]
    assert torch.autograd.gradcheck(
        lambda *given: value(loss, with_tensors(step, given)), inputs, fast_mode=True
    )


@each
def test_the_order_of_the_batch_changes_nothing(name, options):
    loss, order = build(name, **options).double(), torch.tensor([3, 0, 4, 2, 1])
    step = a_step(range(5) if name == "captioning" else SIBLINGS)  # which reads any copy of a picture
    offline = tuple((v[order], t[order]) for v, t in step.offline)
    turned = replace(
        step,
        **{key: getattr(step, key)[order][:, order] for key in ("scores", "positives")},
        **{key: getattr(step, key)[order] for key in ("v", "t", "targets", "tokens", "token_mask")},
        offline=offline,
    )
    if name != "soft_contrastive":  # its noise has an order
        torch.testing.assert_close(value(loss, turned), value(loss, step))


@each
@pytest.mark.parametrize("junk", [1e6, math.inf, math.nan])
def test_neither_what_is_in_the_padding_nor_how_much_there_is_changes_anything(name, options, junk):
    loss, step = build(name, **options).double(), a_step()

    def loud(side):
        x = torch.where(side.mask.unsqueeze(-1), side.elements, junk)
        return replace(
            side, elements=pad(x, (0, 0, 0, 2), value=junk).requires_grad_(), mask=pad(side.mask, (0, 2))
        )

    longer = {"tokens": pad(step.tokens, (0, 2), value=3), "token_mask": pad(step.token_mask, (0, 2))}
    padded = replace(step, v=loud(step.v), t=loud(step.t), **longer)
    found = value(loss, padded)
    torch.testing.assert_close(found, value(loss, step))
    if "elements" in names_read(loss):
        found.backward()
        for side in (padded.v, padded.t):
            grad = side.elements.grad
            assert grad is None or (grad.isfinite().all() and not grad[~side.mask].any())


@each
def test_it_reads_what_it_says_and_nothing_else(name, options):
    loss, step = build(name, **options).double(), a_step()
    names = {*names_read(loss), *(["vectors"] if loss.reads_offline else [])}  # which the similarity reads
    least = replace(step, v=step.v.only(names), t=step.t.only(names))
    if "tokens" not in names:
        least = replace(least, tokens=None, token_mask=None)
    if not loss.reads_offline:
        least = replace(least, offline=())
    assert isinstance(loss, Loss) and torch.equal(value(loss, least), value(loss, step))
    for missing in names_read(loss):
        rest = names - {missing}
        less = replace(step, v=step.v.only(rest), t=step.t.only(rest))
        if missing == "tokens":
            less = replace(step, tokens=None)
        with pytest.raises(ValueError, match=missing):
            loss(less)


@each
def test_one_pair_has_a_finite_loss_and_gradient(name, options):
    loss, step = build(name, **options).double(), a_step([0])
    step = with_tensors(step, [x.requires_grad_() for x in tensors(step)])
    found = value(loss, step)
    found.backward()
    assert found.isfinite()
    assert all(x.grad is None or x.grad.isfinite().all() for x in tensors(step))
    if (name in SIBLING and name != "sigmoid") or name.startswith("node"):
        assert found == 0  # there is no negative


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_lifted_and_autocast_changes_nothing(name, options, dtype):
    if name in (*DECODERS, "scaled_info_nce"):
        pytest.skip("has weights of its own, and a step is in float32")
    loss, step = build(name, **options), a_step(dtype=dtype)
    whole = value(loss, changed(step, lambda x: x.float()))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(value(loss, changed(step, lambda x: x.float())), whole)
    if name != "soft_contrastive":  # its noise depends on the precision it is drawn in
        found = value(loss, step)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, whole)


@each
@pytest.mark.parametrize("epoch", [0, 5])
def test_no_loss_asks_a_gpu_for_a_number_or_keeps_much_for_the_backward_pass(name, options, epoch):
    """Tensors that pretend to be on a GPU have no numbers. Each pair meets each negative of its row, but what
    is kept for the backward pass grows with B·C, not with B·C²."""
    if name in ("captioning", "input_target"):
        pytest.skip("a GRU wants to know the GPU")
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with FakeTensorMode(), torch.device("cuda"):
        loss, step = (
            build(name, **options),
            a_step([*range(128)], dtype=torch.float32, device="cuda", epoch=epoch),
        )
        step.scores.requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            found = loss(step)
    assert found.shape == () and found.device.type == "cuda"
    if name in SIBLING or loss.reads_offline:
        assert sum(kept.values()) < 16 * step.scores.nbytes


@pytest.mark.parametrize("name", SIBLING)
def test_siblings_are_negatives_on_the_diagonal_alone_and_only_where_a_batch_is_of_pairs(name):
    loss, step = build(name, siblings_are_negatives=True).double(), a_step()
    diagonal = replace(step, positives=torch.eye(5, dtype=torch.bool))
    assert torch.equal(loss(step), build(name).double()(diagonal))
    assert not torch.isclose(loss(step), build(name).double()(step))
    with pytest.raises(ValueError, match="siblings_are_negatives"):
        loss(a_step([0, 1], [0, 1, 1]))


@pytest.mark.parametrize("name", [name for name in LOSSES if not LOSSES[name].reads_offline])
def test_a_batch_may_be_of_pictures_with_all_their_captions(name):
    assert build(name).double()(a_step([0, 1, 2], [0, 0, 1, 2, 2, 2])).isfinite()


S, X, ROW = torch.zeros(2, 2), torch.zeros(2, 3, 4), torch.zeros(2)
MASK = torch.ones(2, 3, dtype=torch.bool)
WORD = torch.ones(2, 3, dtype=torch.long)
PAIRS = torch.eye(2, dtype=torch.bool)


@pytest.mark.parametrize("loss", [triplet, info_nce, adopt, alignment, uniformity])
@pytest.mark.parametrize(
    ("name", "scores", "positives"),
    [
        *[("scores", scores, None) for scores in (ROW, S.long(), S[:0], S[None])],
        *[("positives", S, wrong) for wrong in (S, PAIRS[:1], PAIRS & False, PAIRS & PAIRS[:1], PAIRS.int())],
        ("positives", S[:1], None),
        ("positives", S, torch.tensor([[True, False]] * 2)),
    ],
)
def test_a_batch_that_cannot_be_learned_from_is_named(loss, name, scores, positives):
    with pytest.raises(ValueError, match=f"^{name} "):
        loss(scores, positives=positives)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("reduction", lambda: triplet(S, reduction="none")),
        ("rule", lambda: uniformity(S, "guessed")),
        ("negatives", lambda: adopt(S, negatives=True)),
        ("online_text", lambda: offline_triplet(ROW, S, ROW, ROW, ROW)),
        ("swapped_pair", lambda: adaptive_offline_quintuplet(*[ROW] * 6, ROW[:1])),
        ("y", lambda: mmd(X[0], X[0][:, :2])),
        ("slots", lambda: set_diversity(X[0])),
        ("t", lambda: soft_contrastive(X, X[0], 1.0, 1.0)),
        ("scale", lambda: soft_contrastive(X, X, torch.ones(6), 1.0)),
        ("log_variance", lambda: sample_gaussians(S, S[:1], 1)),
        ("captions", lambda: node_pooling_loss(X, X[:, :2], S)),
        ("t_mask", lambda: node_cross_attention_loss(X, MASK, X, MASK & False, S)),
        ("mask", lambda: captioning_loss(X[0], WORD, MASK.int())),
        ("tokens", lambda: build("captioning").decoder(X[..., :3], None, WORD[0], MASK, ROW.long())),
        ("captions", lambda: build("input_target").decoder(X[..., :3], WORD, MASK)),
    ],
)
def test_what_does_not_fit_is_named(name, call):
    with pytest.raises(ValueError, match=rf"\b{name} (is|must|has)"):
        call()


def test_what_a_step_lacks_is_named():
    with pytest.raises(ValueError, match="targets"):
        build("latent_target")(replace(a_step(dtype=torch.float32), targets=None))
    with pytest.raises(ValueError, match="pred is"):  # sets have no single vector to decode from
        build("latent_target")(a_step(dtype=torch.float32, sets=True))
    with pytest.raises(ValueError, match="captions is"):
        build("input_target")(a_step(dtype=torch.float32, sets=True))
