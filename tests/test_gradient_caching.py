"""A batch that is embedded in parts has the gradient of the whole batch, and little of it is in memory."""

import copy

import numpy as np
import pytest
import torch

from small import assert_resumes_with_the_same_bits, recipe, small_data
from vsecore.data.batches import make_loader
from vsecore.embedding import Embedding, joined
from vsecore.recipes import get
from vsecore.training import System

RECIPES = [
    "vsepp_grid_gru",
    "thesis_grid+node_pooling",
    "scan_grid_gru",
    "bfan_grid_gru",
    "tern_grid_words",
    "pvse_grid",
    "pcme_grid",
    "ltd_grid_gru+ltd_constraint",
    "2ad_grid_gru+gpo",
    "sgraf_grid_gru+filtration",
]


def system_of(name, **changes):
    """A system in float64, in training, with a batch of ten pairs and the tokenizer behind it."""
    targets = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    data = small_data(get(name).features, targets=targets)
    learner = recipe(name, **changes)
    tokenizer = learner.tokenizer(data.train.captions)
    torch.manual_seed(0)
    system = System(learner, data, tokenizer).double().train()
    mode = learner.training.batches
    batch = next(iter(make_loader(data.train, tokenizer, 10, mode=mode)))
    batch.pictures, batch.targets = batch.pictures.double(), batch.targets.double()
    return system, batch


def gradients(system, batch, seed=0):
    system.zero_grad()
    torch.manual_seed(seed)
    terms, _ = system(batch, 1)
    sum(terms.values()).backward()
    return {
        name: weight.grad.clone() for name, weight in system.named_parameters() if weight.grad is not None
    }


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("name", RECIPES)
def test_the_gradient_is_that_of_the_whole_batch(name, size, monkeypatch):
    monkeypatch.setattr("vsecore.embedding.Embedding.float", lambda embedding: embedding)  # stay in float64
    system, batch = system_of(name)
    for module in system.modules():  # what is random would differ between parts and the whole
        for option in ("drop", "dropout", "p"):
            if isinstance(getattr(module, option, None), float):
                setattr(module, option, 0.0)
        if hasattr(module, "left_padding"):
            module.left_padding = False
    again = copy.deepcopy(system)  # a loss may keep something from step to step
    again.embed_at_a_time = size
    wanted, got = gradients(system, batch), gradients(again, batch)
    assert got.keys() == wanted.keys() and len(wanted) > 3
    for weight, gradient in wanted.items():
        assert (got[weight] - gradient).abs().max() <= 1e-10 * max(1.0, gradient.abs().max().item()), weight


def test_dropout_is_the_same_in_both_passes():
    system, batch = system_of("vsepp_grid_gru", image__encoder__drop=0.5)
    model = system.model

    def by_hand():
        """Embed part after part, without forgetting anything."""
        pictures = zip(batch.pictures.split(4), batch.picture_mask.split(4), strict=True)
        captions = zip(batch.tokens.split(4), batch.token_mask.split(4), strict=True)
        return (
            joined([model.encode_pictures(*part) for part in pictures]),
            joined([model.encode_captions(*part) for part in captions]),
        )

    system.embed_at_a_time = 4
    got = gradients(system, batch, seed=7)
    whole = model.forward
    model.forward = lambda *_: by_hand()
    wanted = gradients(system, batch, seed=7)
    model.forward = whole
    assert got.keys() == wanted.keys()
    assert all((got[name] - wanted[name]).abs().max() < 1e-12 for name in wanted)
    other = gradients(system, batch, seed=8)
    assert any((got[name] - other[name]).abs().max() > 1e-6 for name in wanted)


def test_only_one_part_is_in_memory():
    def saved(size):
        """Bytes that the forward pass keeps for the backward pass."""
        seen = {}
        system.embed_at_a_time = size

        def keep(tensor):
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            system(batch, 1)
        return sum(seen.values())

    system, batch = system_of("vsepp_grid_gru", dim=64)
    assert saved(2) < 0.5 * saved(None)


def test_layers_that_need_the_whole_batch_are_refused_by_name():
    with pytest.raises(ValueError, match=r"is 4, and image_reasoner\.\S+ normalises over the batch"):
        system_of("vsrn_grid", training__embed_at_a_time=4)
    system_of("sgraf_grid_gru", training__embed_at_a_time=4)  # its similarity has the whole batch


def test_a_run_in_parts_resumes_with_the_same_bits(tmp_path):
    learner = recipe(training__embed_at_a_time=3, image__encoder__drop=0.3)
    assert_resumes_with_the_same_bits(tmp_path, learner)


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("name", ["vsepp_grid_gru", "scan_grid_gru"])
def test_elements_that_nothing_reads_are_not_kept(monkeypatch, name, size):
    """And they are dropped before anything makes float32 of them."""
    system, batch = system_of(name)
    system.embed_at_a_time, joined_elements = size, []
    plain = Embedding.float

    def watched(embedding):
        joined_elements.append(embedding.elements)
        return plain(embedding)

    monkeypatch.setattr(Embedding, "float", watched)
    monkeypatch.setattr(system.model, "scores", lambda v, t: torch.zeros(10, 10).requires_grad_())
    system(batch, 1)
    assert [found is not None for found in joined_elements] == [name == "scan_grid_gru"] * 2
