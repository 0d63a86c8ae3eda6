"""VSRN's region graph: the identity at the start, equal to a plain loop, and blind to padding and order."""

import copy
import math

import pytest
import torch
from torch import nn

from vsecore.encoders.reasoning import REASONERS, RegionGraph
from vsecore.encoders.reasoning.region_graph import GraphLayer
from vsecore.similarity import unit

DIM = 4


def trained(module, seed=0):
    """The module with weights and running averages as training might leave them, for evaluation."""
    dice = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=dice) / 2)
    for name, buffer in module.named_buffers():
        if name.endswith(("mean", "var")):
            buffer.copy_(torch.rand(buffer.shape, generator=dice) + 0.5)
    return module.double().eval()


def batch(seed=0, rows=3, elements=5):
    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, elements, DIM, generator=dice, dtype=torch.float64)
    mask = torch.rand(rows, elements, generator=dice) < 0.6
    mask[torch.arange(rows), torch.randint(elements, (rows,), generator=dice)] = True
    return x, mask


def layer_by_loop(layer, elements):
    """x_i + W(1/N Σ_j (θ(x_i)·φ(x_j)) g(x_j)), with the running averages of batch normalisation."""
    norm = layer.normalise
    result = []
    for x in elements:
        received = torch.zeros(DIM, dtype=torch.float64)
        for y in elements:
            received += (layer.theta(x) * layer.phi(y)).sum() / len(elements) * layer.message(y)
        out = layer.out(received)
        change = (out - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        result.append(x + change)
    return result


@pytest.mark.parametrize("released", [False, True])
def test_agrees_with_the_loop(released):
    x, mask = batch()
    graph = trained(RegionGraph(DIM, layers=2, released_normalisation=released))
    axis = 0 if released else 1  # over the elements, or over the features
    out, same = graph(x, mask)
    assert same is mask
    for row, real, got in zip(x, mask, out, strict=True):
        elements = list(row[real] / row[real].norm(dim=axis, keepdim=True))
        for layer in graph.layers:
            elements = layer_by_loop(layer, elements)
        expected = torch.stack(elements)
        expected = expected / expected.norm(dim=axis, keepdim=True)
        torch.testing.assert_close(got[real], expected, rtol=1e-10, atol=1e-10)
        assert (got[~real] == 0).all()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_starts_as_the_identity(training, masked):
    torch.manual_seed(0)
    x, mask = batch()
    layer = GraphLayer(DIM).double().train(training)
    clean = torch.where(mask.unsqueeze(-1), x, 0)
    assert torch.equal(layer(clean, mask) if masked else layer(x), clean if masked else x)
    graph = RegionGraph(DIM).double().train(training)
    directions = unit(clean if masked else x)
    torch.testing.assert_close(graph(x, mask if masked else None)[0], directions, rtol=0, atol=1e-15)


def test_it_has_four_layers_that_do_not_start_alike():
    graph = RegionGraph(DIM)
    assert len(graph.layers) == 4
    assert not torch.equal(graph.layers[0].theta.weight, graph.layers[1].theta.weight)


def test_the_first_step_of_training_leaves_the_identity():
    """Batch normalisation starts at 0, but its gradient does not."""
    torch.manual_seed(0)
    x, mask = batch()
    graph = RegionGraph(DIM).double()
    graph(x, mask)[0][..., 0].sum().backward()
    for layer in graph.layers:
        assert (layer.normalise.weight.grad != 0).any() and (layer.normalise.bias.grad != 0).any()
        assert (layer.theta.weight.grad == 0).all()  # until batch normalisation lets it through


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("junk", [1e6, math.inf, math.nan])
def test_neither_what_is_in_the_padding_nor_how_much_there_is_changes_anything(released, training, junk):
    x, mask = batch()
    graph = trained(RegionGraph(DIM, layers=2, released_normalisation=released)).train(training)
    other = copy.deepcopy(graph)
    plain, _ = graph(torch.where(mask.unsqueeze(-1), x, 0), mask)
    loud = torch.where(mask.unsqueeze(-1), x, junk)
    loud = torch.cat([loud, torch.full((len(x), 2, DIM), junk, dtype=x.dtype)], 1).requires_grad_()
    longer = nn.functional.pad(mask, (0, 2))
    padded, same = other(loud, longer)
    assert same is longer
    torch.testing.assert_close(padded[:, :5], plain, rtol=1e-10, atol=1e-12)
    padded.square().sum().backward()
    assert (loud.grad[~longer] == 0).all() and loud.grad.isfinite().all()
    for name, buffer in graph.named_buffers():
        torch.testing.assert_close(other.get_buffer(name), buffer)


def test_without_a_mask_all_elements_are_real():
    x, _ = batch()
    graph = trained(RegionGraph(DIM, layers=2))
    torch.testing.assert_close(graph(x)[0], graph(x, torch.ones(x.shape[:2], dtype=torch.bool))[0])
    assert graph(x)[1] is None


@pytest.mark.parametrize("training", [False, True])
def test_elements_in_another_order_come_out_in_that_order(training):
    x, mask = batch()
    graph = trained(RegionGraph(DIM, layers=2)).train(training)
    order = torch.tensor([3, 0, 4, 2, 1])
    torch.testing.assert_close(graph(x[:, order], mask[:, order])[0], graph(x, mask)[0][:, order])


def test_one_region_hears_only_itself():
    x, _ = batch(elements=1)
    layer = trained(GraphLayer(DIM))
    (expected,) = layer_by_loop(layer, list(x[0]))
    torch.testing.assert_close(layer(x)[0, 0], expected)


def test_each_element_comes_out_with_length_one():
    x, mask = batch()
    lengths = trained(RegionGraph(DIM))(x, mask)[0].norm(dim=-1)
    torch.testing.assert_close(lengths, mask.double())


def test_the_released_normalisation_gives_each_feature_length_one_over_the_elements():
    x, _ = batch()
    out, _ = trained(RegionGraph(DIM, released_normalisation=True))(x)
    torch.testing.assert_close(out.norm(dim=1), torch.ones(3, DIM, dtype=torch.float64))


@pytest.mark.parametrize("training", [False, True])
def test_gradient_is_that_of_the_values(training):
    x, mask = batch(rows=2, elements=3)
    graph = trained(RegionGraph(DIM, layers=2)).train(training)
    assert torch.autograd.gradcheck(lambda x: graph(x, mask)[0], x.requires_grad_())


def test_every_weight_learns():
    x, mask = batch()
    graph = trained(RegionGraph(DIM, layers=2)).train()
    graph(x, mask)[0][..., 0].sum().backward()
    silent = {name for name, weight in graph.named_parameters() if weight.grad.abs().max() < 1e-12}
    # Batch normalisation takes away what is added to all elements.
    assert silent == {"layers.0.out.bias", "layers.1.out.bias"}


def test_keeps_its_type_under_autocast():
    x, mask = batch()
    graph = RegionGraph(DIM)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = graph(x.float(), mask)
    assert out.isfinite().all()
    torch.testing.assert_close(out.float(), unit(torch.where(mask.unsqueeze(-1), x, 0)).float())


def test_the_registry_builds_it_for_the_joint_width():
    graph = REASONERS.build("region_graph", {"layers": 2, "released_normalisation": True}, dim=DIM)
    assert type(graph) is RegionGraph
    assert len(graph.layers) == 2 and graph.released_normalisation and graph.dim == DIM


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RegionGraph(DIM)(torch.rand(2, 3, 5)), r"x must be floating point \(B, N, 4\)"),
        (lambda: RegionGraph(DIM)(torch.rand(2, 3, 4), torch.zeros(2, 3, dtype=torch.bool)), "row 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
