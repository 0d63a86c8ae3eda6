"""Decoding a caption's latent target or its words, as a term of the loss or as a constraint."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from small import assert_resumes_with_the_same_bits, recipe, small_split, train
from steps import step_of_scores
from vsecore.data.splits import Dataset
from vsecore.embedding import Embedding
from vsecore.losses import InputTargetDecoder, LagrangeMultiplier, LatentTargetDecoder, reconstruction_loss
from vsecore.losses.input_target import InputTarget
from vsecore.losses.lagrange import Constraint
from vsecore.losses.latent_target import LatentTarget
from vsecore.pooling import GRUPool, ProjectedPool


def path(losses, **options):
    multiplier = LagrangeMultiplier(**options)
    values = []
    for loss in losses:
        values.append(float(multiplier.value))
        multiplier.step(torch.tensor(loss))
    return values


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("momentum, dampening", [(0.9, 0.9), (0.9, 0.0), (0.0, 0.0)])
def test_the_multiplier_takes_the_steps_of_torchs_sgd(projected, momentum, dampening):
    losses = [3.0] * 30 + torch.linspace(0.4, 0.05, 600).tolist() + [2.0] * 400
    options = {"lr": 0.05, "momentum": momentum, "dampening": dampening}
    raw = torch.tensor(1.0, requires_grad=True)
    optimizer = torch.optim.SGD([raw], maximize=True, **options)
    expected = []
    for loss in losses:
        expected.append(float(raw.detach().clamp(0, 2)))
        optimizer.zero_grad()
        (raw * (loss / 0.5 - 1)).backward()
        optimizer.step()
        if projected:
            with torch.no_grad():
                raw.clamp_(0, 2)
    found = path(losses, bound=0.5, maximum=2.0, projected=projected, **options)
    assert found == pytest.approx(expected, abs=1e-4)
    assert min(found) == 0 and max(found) == 2, "both limits are met, or the test would say little"


def test_the_multiplier_is_the_papers_unless_it_is_told_otherwise():
    said = {"initial": 1.0, "lr": 5e-3, "momentum": 0.9, "dampening": 0.9, "maximum": 100.0}
    losses = [400.0] * 40 + [0.0] * 400
    found = path(losses, bound=0.5)
    assert found == path(losses, bound=0.5, projected=True, **said) and max(found) == 100
    assert (
        LatentTarget(bound=0.5, projected=False, dim=4, target_dim=3).constraint.multiplier.projected is False
    )


def test_a_constraint_uses_its_multiplier_then_moves_it_and_only_in_training():
    constraint, rec = Constraint(0.25), torch.tensor(0.5)
    assert constraint(rec) == 1 and constraint.reconstruction == 0.5
    moved = float(constraint.multiplier.value)
    assert moved == pytest.approx(1.005) and constraint(rec) == pytest.approx(moved)
    moved = float(constraint.multiplier.value)
    assert constraint.eval()(rec) == constraint(rec) == pytest.approx(moved)
    assert Constraint()(rec) == rec, "without a bound it is the dual objective"
    faster = LatentTarget(bound=0.25, multiplier_lr=0.2, dim=4, target_dim=3).constraint
    assert faster(rec) == 1 and float(faster.multiplier.value) == pytest.approx(1.2)
    constraint(rec.clone().requires_grad_())
    assert not constraint.reconstruction.requires_grad, "what is logged must not keep a step's graph alive"


def test_the_reconstruction_loss_is_the_mean_cosine_distance():
    torch.manual_seed(0)
    pred, target = torch.randn(5, 7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    expected = sum(1 - float(p @ t / (p.norm() * t.norm())) for p, t in zip(pred, target, strict=True)) / 5
    assert reconstruction_loss(pred, target).item() == pytest.approx(expected, abs=1e-12)
    assert reconstruction_loss(3 * target, target).item() == pytest.approx(0, abs=1e-12)
    assert reconstruction_loss(-target, target).item() == pytest.approx(2)
    half, kept = pred.bfloat16(), target.float()  # a decoder's output under autocast
    torch.testing.assert_close(reconstruction_loss(half, kept), reconstruction_loss(half.float(), kept))


def test_the_decoder_is_equation_5():
    torch.manual_seed(0)
    decoder = LatentTargetDecoder(4, 6, hidden=5).double()
    first, second, third = (layer.weight for layer in decoder.layers[::2])
    z = torch.randn(3, 4, dtype=torch.float64)
    expected = torch.stack([third @ (second @ (first @ one).clamp(min=0)).clamp(min=0) for one in z])
    torch.testing.assert_close(decoder(z), expected)
    assert decoder(torch.zeros(2, 4, dtype=torch.float64)).eq(0).all(), (
        "without biases, nothing gives nothing"
    )
    for layer in LatentTargetDecoder(64, 384, hidden=96).layers[::2]:  # begins as in the released code
        limit = math.sqrt(6 / sum(layer.weight.shape))  # Glorot and Bengio 2010, uniform
        assert 0.95 * limit < layer.weight.abs().max() <= limit


def test_the_words_decoder_sees_the_words_before_and_the_vector_alone():
    torch.manual_seed(0)
    decoder = InputTargetDecoder(6, 11, word_dim=4)
    captions, tokens = torch.randn(3, 6), torch.randint(11, (3, 7))
    mask = torch.ones(3, 7, dtype=torch.bool)

    def logits_of(captions, tokens, mask=mask):
        return decoder(captions, tokens, mask).view(3, 6, 11)

    logits = logits_of(captions, tokens)
    later = tokens.clone()
    later[:, 4:] = (later[:, 4:] + 1) % 11
    torch.testing.assert_close(logits_of(captions, later)[:, :4], logits[:, :4])
    assert not torch.allclose(logits_of(captions, later)[:, 4:], logits[:, 4:])
    assert not torch.allclose(logits_of(-captions, tokens)[:, 0], logits[:, 0])
    padding = torch.zeros(3, 2, dtype=torch.long)
    padded = logits_of(captions, torch.cat([tokens, padding], 1), torch.cat([mask, padding.bool()], 1))
    torch.testing.assert_close(padded, logits)


def a_step():
    """Three pictures and their captions, of four words at most, with targets."""
    torch.manual_seed(0)
    v, t = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    step = replace(step_of_scores(v @ t.T), v=Embedding(v), t=Embedding(t), targets=torch.randn(3, 6))
    mask = torch.arange(5) < torch.tensor([[5], [3], [5]])
    return replace(step, tokens=torch.randint(9, (3, 5)), token_mask=mask)


@pytest.mark.parametrize("kind", [LatentTarget, InputTarget])
def test_each_caption_predicts_its_own_target_or_words_and_its_tower_learns(kind):
    step = a_step()  # which seeds the weights too
    sizes = {"target_dim": 6} if kind is LatentTarget else {"vocabulary_size": 9, "word_dim": 3}
    part = kind(dim=4, **sizes)
    if isinstance(part, LatentTarget):
        expected = reconstruction_loss(part.decoder(step.t.vectors), step.targets)
    else:
        log_p = part.decoder(step.t.vectors, step.tokens, step.token_mask).log_softmax(1)  # (4 + 2 + 4, 9)
        real = [(c, place) for c in range(3) for place in range(1, 5) if step.token_mask[c, place]]
        expected = -sum(of_word[step.tokens[at]] for of_word, at in zip(log_p, real, strict=True)) / 3
    loss = part(step)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert step.v.vectors.grad is None, "no picture is decoded"
    assert step.t.vectors.grad.ne(0).any(1).all(), "every caption's tower learns"


def test_a_projected_pool_has_two_layers_and_a_relu():
    pool, x = ProjectedPool(8), torch.randn(3, 5, 8)
    torch.testing.assert_close(pool(x), pool.out(pool.hidden(x.mean(1)).relu()))


@pytest.mark.parametrize("pool", [ProjectedPool, GRUPool])
def test_batch_normalisation_is_the_last_thing_before_unit_length(pool):
    torch.manual_seed(0)
    x = torch.randn(64, 5, 8) + 3
    normalised = pool(8, batch_norm=True)(x)  # (64, 8)
    torch.testing.assert_close(normalised.mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(normalised.std(0, correction=0), torch.ones(8), atol=1e-2, rtol=0)
    assert pool(8)(x).mean(0).abs().max() > 0.1


def data_with_targets():
    """Pictures with their captions' targets, here random but the same for all captions of a picture."""
    dice = np.random.default_rng(0)

    def split(name):
        told = dice.standard_normal((20, 6)).astype(np.float32)
        return small_split(name, 20, targets=told.repeat(2, 0))

    return Dataset("small", split("train"), split("dev"), split("test"), "grid")


def test_a_latent_target_is_learned_and_the_constraint_lets_go_of_it():
    dual = {"name": "latent_target", "options": {"hidden": 32}}
    longer = {"training.epochs": 12}
    history = train(recipe(losses=["info_nce", dual]).override(longer), data_with_targets()).history
    assert history[-1]["loss_latent_target"] < 0.75 * history[0]["loss_latent_target"]
    bound = {"name": "latent_target", "options": {"hidden": 32, "bound": 1.9}}  # met from the first step on
    seen = []

    def watch(event):
        if event.metrics is None:
            constraint = event.system.losses["latent_target"].constraint
            seen.append((float(constraint.multiplier.value), float(constraint.reconstruction)))

    train(recipe(losses=["info_nce", bound]).override(longer), data_with_targets(), callback=watch)
    multipliers = [value for value, _ in seen]
    assert all(rec < 1.9 for _, rec in seen)
    assert all(b < a for a, b in pairwise(multipliers))


@pytest.mark.parametrize("name", ["latent_target", "input_target"])
def test_a_multiplier_survives_a_stop_and_goes_on(name, tmp_path):
    part = {"name": name, "options": {"bound": 0.3}}
    state = assert_resumes_with_the_same_bits(
        tmp_path, recipe(losses=["info_nce", part]), data_with_targets()
    )
    assert float(state[f"losses.{name}.constraint.multiplier.raw"]) != 1
