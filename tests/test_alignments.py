"""SGRAF against the papers' equations, pair by pair and word by word."""

import numpy as np
import pytest
import torch

from small import recipe, small_data, train
from test_similarities import LEARNED, both
from vsecore import similarity
from vsecore.embedding import unit
from vsecore.mining import mine
from vsecore.scoring import evaluate_split
from vsecore.similarity import SIMILARITIES, fragments
from vsecore.similarity.fragments import Memory


def build(name, dim=6, width=4):
    torch.manual_seed(1)
    module = SIMILARITIES.build(name, {"width": width}, dim=dim).double()
    for weights in module.parameters():  # also the biases, and the scale and shift of batch norms
        torch.nn.init.normal_(weights)
    return module


def whole(pool, x, norms):
    """The vector of one picture or caption: elements weighed by how they go with their mean."""
    local, mean = pool.local(x), pool.mean(x.mean(0, keepdim=True))
    if norms:
        local, mean = (
            (y - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
            for y, norm in ((local, pool.local_norm), (mean, pool.mean_norm))
        )
    weights = pool.weight(local.tanh() * mean.tanh()).softmax(0)
    return unit((weights * x).sum(0))


def alignments(module, regions, words):
    """Equations 1 to 4 for one pair of real elements: (1 + L, M)."""
    regions, words = unit(regions), unit(words)
    affinities = torch.nn.functional.leaky_relu(regions @ words.T, 0.1)  # (S, L)
    weights = (9 * affinities / affinities.norm(dim=1, keepdim=True)).softmax(0)
    by_word = [
        unit(module.of_words((unit(weights[:, place] @ regions) - word) ** 2))
        for place, word in enumerate(words)
    ]
    difference = whole(module.picture, regions, True) - whole(module.caption, words, False)
    return torch.stack([unit(module.of_wholes(difference**2)), *by_word])


def reasoned(module, nodes):
    for query, key, value in zip(module.query, module.key, module.value, strict=True):
        nodes = value((query(nodes) @ key(nodes).T).softmax(1) @ nodes).relu()
    return nodes[0]


def filtered(module, nodes, statistics):
    mean, variance = statistics
    norm = module.norm
    gates = ((module.gate(nodes) - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias).sigmoid()
    return unit((gates / gates.sum() * nodes).sum(0))


def real(side):
    return [x[mask] for x, mask in zip(side.elements, side.mask, strict=True)]


def test_each_pair_is_scored_by_the_papers_equations():
    v, t = both("graph_reasoning", dim=6)
    for name in LEARNED:
        module = build(name).eval()
        found = module(v, t)
        for i, regions in enumerate(real(v)):
            for j, words in enumerate(real(t)):
                nodes = alignments(module, regions, words)
                if name == "graph_reasoning":
                    vector = reasoned(module, nodes)
                else:
                    vector = filtered(module, nodes, (module.norm.running_mean, module.norm.running_var))
                torch.testing.assert_close(found[i, j], module.score(vector).sigmoid()[0])


def test_of_a_whole_a_part_is_left_out_in_training_alone():
    whole, (v, _) = build("graph_reasoning").caption, both("graph_reasoning", dim=6)
    assert not torch.equal(whole(v), whole(v))
    whole.eval()
    assert torch.equal(whole(v), whole(v))


def test_in_training_the_gate_is_normalised_for_each_caption_and_the_averages_move_once(monkeypatch):
    v, t = both("attention_filtration", dim=6)
    module = build("attention_filtration").eval()  # all but the gate stays as in evaluation
    module.training = True
    v.elements.requires_grad_()
    logits, wanted = [], torch.empty(len(v), len(t), dtype=torch.double)
    for j, words in enumerate(real(t)):
        nodes = [alignments(module, regions, words) for regions in real(v)]
        logits.append(module.gate(torch.cat(nodes)))
        statistics = logits[j].mean(), logits[j].var(correction=0)
        for i, one in enumerate(nodes):
            wanted[i, j] = module.score(filtered(module, one, statistics)).sigmoid()[0]
    moved = [
        0.1 * torch.stack([x.mean() for x in logits]).mean(),
        0.9 + 0.1 * torch.stack([x.var() for x in logits]).mean(),
    ]
    gradient = torch.autograd.grad(wanted.sum(), v.elements, retain_graph=True)
    for kept in (2**25, 0):  # 0: each block is computed twice
        monkeypatch.setitem(fragments.MEMORY, "cpu", Memory(1, kept))
        monkeypatch.setattr(similarity.alignments, "MEMORY", fragments.MEMORY)
        torch.testing.assert_close(module.pairs(v, t[:3]), wanted.diagonal())
        module.norm.reset_running_stats()
        scores = module(v, t)
        torch.testing.assert_close(scores, wanted)
        torch.testing.assert_close(torch.autograd.grad(scores.sum(), v.elements), gradient)
        torch.testing.assert_close(module.norm.running_mean[0], moved[0])
        torch.testing.assert_close(module.norm.running_var[0], moved[1])


@pytest.mark.parametrize("name", LEARNED)
def test_all_weights_learn(name):
    module = build(name)
    module(*both(name, dim=6)).square().sum().backward()
    for weights, tensor in module.named_parameters():
        # Not what a softmax or batch norm takes away again: one number that is added to all it reads.
        if not weights.startswith("key") and not weights.endswith(("weight.bias", "gate.bias")):
            assert tensor.grad.abs().any(), weights


@pytest.mark.parametrize("name", LEARNED)
def test_what_a_training_says_of_an_epoch_is_what_its_weights_give(name):
    run, split = train(recipe("sgraf_grid_gru", similarity=name, training__epochs=1)), small_data().dev
    assert run.best["rsum"] == evaluate_split(run.model, split, run.tokenizer)["rsum"]
    mined = [mine(run.model.train(mode), split, run.tokenizer, 5, 5).texts for mode in (True, False)]
    assert np.array_equal(*mined)
