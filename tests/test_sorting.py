"""Sorting each dimension: every way agrees with `torch.sort` and sends gradients where they belong."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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


def batch(seed=0, rows=6, elements=7, dim=5, dtype=torch.float32, ties=False):
    """Elements and a mask whose rows have 1 to all elements, in any place."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, elements, dim, generator=generator, dtype=dtype)
    if ties:
        x = x.round() + 0.0  # no -0
    mask = torch.rand(rows, elements, generator=generator) < 0.6
    mask[torch.arange(rows), torch.randint(elements, (rows,), generator=generator)] = True
    return x, mask


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


@given(seed=st.integers(0, 10_000), elements=st.integers(1, 20), ties=st.booleans())
@settings(max_examples=40, deadline=None)
def test_gives_what_a_stable_sort_gives_and_sends_each_gradient_home(seed, elements, ties):
    x, mask = batch(seed, elements=elements, ties=ties)
    gradient = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    values, origin = sorted_rows(x, mask)
    expected = torch.zeros_like(x)
    for row, place, dim in itertools.product(*map(range, x.shape)):
        if origin[row, place, dim] >= 0:
            expected[row, origin[row, place, dim], dim] = gradient[row, place, dim]
    for way in WAYS:
        with pytest.MonkeyPatch.context() as patch:
            take(patch, way)
            leaf = x.clone().requires_grad_()
            result = sort_descending(leaf, mask)
            assert torch.equal(sort_descending(x, mask), values)  # without a gradient other code runs
            assert torch.equal(result, values)
            assert torch.equal(torch.autograd.grad(result, leaf, gradient)[0], expected)


@pytest.mark.parametrize("elements", [1, 2, 33, sorting.MOST_ELEMENTS, 40_000])
def test_any_number_of_elements(elements):
    x = torch.randn(1, elements, 3, generator=torch.Generator().manual_seed(0))
    expected = x.sort(dim=1, descending=True, stable=True)
    leaf = x.clone().requires_grad_()
    values = sort_descending(leaf)
    assert torch.equal(values, expected.values)
    assert torch.equal(sort_descending(x), expected.values)
    (gradient,) = torch.autograd.grad(values, leaf, x)
    assert torch.equal(gradient.gather(1, expected.indices), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_keeps_its_values(way, dtype):
    x, mask = batch(dtype=torch.float64)
    x = (x * 1000).to(dtype)
    x[0, :3] = torch.tensor(
        [torch.finfo(dtype).max, torch.finfo(dtype).smallest_normal / 4, 0.0], dtype=dtype
    )[:, None]
    values, _ = sorted_rows(x, mask)
    result = sort_descending(x.clone().requires_grad_(), mask)
    assert result.dtype == dtype
    assert torch.equal(result, values)
    assert torch.equal(sort_descending(x, mask), values)


def test_infinities_are_numbers_even_beside_padding(way):
    x = torch.tensor([[[1.0], [-math.inf], [7.0], [math.inf]]])
    mask = torch.tensor([[False, True, True, True]])
    leaf = x.clone().requires_grad_()
    values = sort_descending(leaf, mask)
    assert values.flatten().tolist() == [math.inf, 7.0, -math.inf, 0.0]
    assert sort_descending(x, mask).flatten().tolist() == [math.inf, 7.0, -math.inf, 0.0]
    (gradient,) = torch.autograd.grad(values, leaf, torch.tensor([[[1.0], [2.0], [3.0], [4.0]]]))
    assert gradient.flatten().tolist() == [0.0, 3.0, 2.0, 1.0]


def test_a_nan_spoils_its_dimension_and_no_other(way):
    for sign, place, elements in itertools.product((1, -1), range(5), (5, 9)):
        x, _ = batch(elements=elements)
        x[1, place, 2] = math.nan * sign
        leaf = x.clone().requires_grad_()
        values = sort_descending(leaf)
        for result in (values, sort_descending(x)):
            assert result[1, :, 2].isnan().all()
            assert int(result.isnan().sum()) == elements
        (gradient,) = torch.autograd.grad(values, leaf, torch.ones_like(x))
        spoilt = torch.zeros_like(x, dtype=torch.bool)
        spoilt[1, :, 2] = True
        assert torch.equal(gradient[~spoilt], torch.ones_like(gradient[~spoilt]))


@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 3e38])
def test_padding_never_shows(way, junk):
    x, mask = batch()
    clean = x.masked_fill(~mask.unsqueeze(-1), 0).requires_grad_()
    dirty = x.masked_fill(~mask.unsqueeze(-1), junk).requires_grad_()
    weights = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    values, same = sort_descending(dirty, mask), sort_descending(clean, mask)
    assert torch.equal(values, same)
    (one,) = torch.autograd.grad((values * weights).sum(), dirty)
    (other,) = torch.autograd.grad((same * weights).sum(), clean)
    assert torch.equal(one, other)
    assert not one[~mask].any()
    longer = torch.cat([torch.full_like(x, junk), x], dim=1)
    longer_mask = torch.cat([torch.zeros_like(mask), mask], dim=1)
    assert torch.equal(sort_descending(longer, longer_mask)[:, : x.shape[1]], values)


def test_gradient_is_that_of_the_values():
    x, mask = batch(rows=2, elements=4, dim=2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: sort_descending(x, mask), x.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda x: sort_descending(x, mask).pow(3), x)


def test_can_be_compiled_whole():
    x, mask = batch(elements=3, dim=2)
    compiled = torch.compile(sort_descending, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(x, mask), sort_descending(x, mask))
    one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(one, mask).square().sum().backward()
    sort_descending(other, mask).square().sum().backward()
    assert torch.equal(one.grad, other.grad)


def test_how_the_elements_lie_in_memory_makes_no_difference(way):
    x, mask = batch()
    values, _ = sorted_rows(x, mask)
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(sort_descending(turned, mask), values)
    assert torch.equal(sort_descending(turned.requires_grad_(), mask), values)
    alike = x[:1, :, :1].expand_as(x)
    assert torch.equal(sort_descending(alike), sort_descending(alike.clone()))


def test_where_no_gradient_is_wanted_none_is_kept(way):
    x, mask = batch()
    values, _ = sorted_rows(x, mask)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            result = sort_descending(x.clone().requires_grad_(), mask)
        assert not result.requires_grad
        assert torch.equal(result, values)


def test_refuses_what_is_no_set():
    with pytest.raises(ValueError, match=r"x must be .*\(B, N, D\)"):
        sort_descending(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="mask must leave every row a real element"):
        sort_descending(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.bool))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    x, mask = batch(elements=36, dim=64)
    one, other = x.cuda().requires_grad_(), x.clone().requires_grad_()
    values = sort_descending(one, mask.cuda())
    assert torch.equal(values.cpu(), sort_descending(other, mask))
    gradients = (
        torch.autograd.grad(values.square().sum(), one),
        torch.autograd.grad(sort_descending(other, mask).square().sum(), other),
    )
    assert torch.equal(gradients[0][0].cpu(), gradients[1][0])
