"""Sorting each dimension: every way agrees with `torch.sort` and sends gradients where they belong."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elements import batch
from vsecore.pooling import sort_descending, sorting

WAYS = ("numpy", "torch.sort")


def take(patch, way):
    """Sort by numpy in parts of a few sets, or by torch.sort as on a GPU."""
    patch.setattr(sorting, "VALUES_AT_A_TIME", 100)
    if way != "numpy":
        patch.setattr(sorting, "numpy_sorts", lambda x: False)


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    take(monkeypatch, request.param)
    return request.param


def sorted_rows(x, mask):
    """Each row of the batch alone, its real elements by torch's stable sort: (values, their elements)."""
    values = torch.zeros_like(x)
    origin = torch.full(x.shape, -1)
    for row, real in enumerate(mask):
        places = real.nonzero().flatten()
        found = x[row, places].sort(dim=0, descending=True, stable=True)
        values[row, : len(places)] = found.values
        origin[row, : len(places)] = places[found.indices]
    return values, origin


@given(
    seed=st.integers(0, 10_000),
    elements=st.integers(1, 20),
    ties=st.booleans(),
    way=st.sampled_from(WAYS),
    junk=st.sampled_from([0.0, math.nan, math.inf, -math.inf, 3e38]),
    layout=st.sampled_from([lambda x: x, lambda x: x.mT.contiguous().mT]),
)
@settings(max_examples=100, deadline=None)
def test_gives_what_a_stable_sort_gives_and_sends_each_gradient_home(seed, elements, ties, way, junk, layout):
    x, mask = batch(seed, elements=elements)
    x = x.round() + 0.0 if ties else x  # no -0
    x = torch.where(mask.unsqueeze(-1), x, junk)
    gradient = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    values, origin = sorted_rows(x, mask)
    expected = torch.zeros_like(x)
    for row, place, dim in itertools.product(*map(range, x.shape)):
        if origin[row, place, dim] >= 0:
            expected[row, origin[row, place, dim], dim] = gradient[row, place, dim]
    with pytest.MonkeyPatch.context() as patch:
        take(patch, way)
        leaf = layout(x.clone()).requires_grad_()
        result = sort_descending(leaf, mask)
        assert torch.equal(result, values)
        assert torch.equal(torch.autograd.grad(result, leaf, gradient)[0], expected)
        with torch.inference_mode():
            assert torch.equal(sort_descending(x, mask), values)


@pytest.mark.parametrize("elements", [1, 2, 33, sorting.MOST_ELEMENTS, 40_000])
def test_any_number_of_elements(elements):
    x = torch.randn(1, elements, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected, values = x.sort(dim=1, descending=True, stable=True), sort_descending(x)
    assert torch.equal(values, expected.values)
    (gradient,) = torch.autograd.grad(values, x, x)
    assert torch.equal(gradient.gather(1, expected.indices), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_keeps_its_values(way, dtype):
    x, mask = batch(dtype=torch.float64)
    x, limits = (x * 1000).to(dtype), torch.finfo(dtype)
    x[0, :3] = torch.tensor([limits.max, limits.smallest_normal / 4, 0.0], dtype=dtype)[:, None]
    result = sort_descending(x, mask)
    assert result.dtype == dtype and torch.equal(result, sorted_rows(x, mask)[0])


def test_infinities_are_numbers_even_beside_padding(way):
    x = torch.tensor([[[1.0], [-math.inf], [7.0], [math.inf]]]).requires_grad_()
    values = sort_descending(x, torch.tensor([[False, True, True, True]]))
    assert values.flatten().tolist() == [math.inf, 7.0, -math.inf, 0.0]
    (gradient,) = torch.autograd.grad(values, x, torch.tensor([[[1.0], [2.0], [3.0], [4.0]]]))
    assert gradient.flatten().tolist() == [0.0, 3.0, 2.0, 1.0]


def test_a_nan_spoils_its_dimension_and_no_other(way):
    for sign, place, elements in itertools.product((1, -1), range(5), (5, 9)):
        x, _ = batch(elements=elements)
        x[1, place, 2] = math.nan * sign
        values = sort_descending(x.requires_grad_())
        assert values[1, :, 2].isnan().all() and int(values.isnan().sum()) == elements
        (gradient,) = torch.autograd.grad(values, x, torch.ones_like(x))
        gradient[1, :, 2] = 1
        assert torch.equal(gradient, torch.ones_like(x))


def test_gradient_is_that_of_the_values():
    x, mask = batch(rows=2, elements=4, dim=2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: sort_descending(x, mask), x.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda x: sort_descending(x, mask).pow(3), x)


def test_can_be_compiled_whole():
    x, mask = batch(elements=3, dim=2)
    compiled = torch.compile(sort_descending, backend="aot_eager", fullgraph=True)
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(one, mask).square().sum().backward()
    sort_descending(other, mask).square().sum().backward()
    assert torch.equal(one.grad, other.grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    x, mask = batch(elements=36, dim=64)
    one, other = x.cuda().requires_grad_(), x.clone().requires_grad_()
    found, wanted = sort_descending(one, mask.cuda()), sort_descending(other, mask)
    assert torch.equal(found.cpu(), wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    assert torch.equal(one.grad.cpu(), other.grad)
