"""Poolers: right against a loop, blind to padding and order, and clear about what they refuse."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsecore.pooling import POOLS, KMaxPool, MaxPool, MeanPool, build_pool

POOLERS = [MeanPool(), MaxPool(), KMaxPool(1), KMaxPool(3), KMaxPool(99)]
each_pooler = pytest.mark.parametrize("pool", POOLERS, ids=repr)


def batch(seed=0, rows=4, elements=7, dim=5, dtype=torch.float64):
    """Elements and a mask whose rows have 1 to all elements, in any place."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, elements, dim, generator=generator, dtype=dtype)
    mask = torch.rand(rows, elements, generator=generator) < 0.6
    mask[torch.arange(rows), torch.randint(elements, (rows,), generator=generator)] = True
    return x, mask


def by_loop(pool, x, mask):
    """Each row and dimension on its own, over the real elements only, in plain Python."""
    result = torch.zeros(x.shape[0], x.shape[2], dtype=x.dtype)
    for row in range(x.shape[0]):
        for dim in range(x.shape[2]):
            values = [float(x[row, n, dim]) for n in range(x.shape[1]) if mask[row, n]]
            values.sort(reverse=True)
            keep = {MeanPool: len(values), MaxPool: 1}.get(type(pool)) or min(pool.k, len(values))
            result[row, dim] = math.fsum(values[:keep]) / keep
    return result


@each_pooler
@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_agrees_with_the_loop(pool, seed):
    x, mask = batch(seed)
    torch.testing.assert_close(pool(x, mask), by_loop(pool, x, mask))


@each_pooler
def test_no_mask_means_all_are_real(pool):
    x, mask = batch()
    torch.testing.assert_close(pool(x), pool(x, torch.ones_like(mask)))


@each_pooler
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e300])
def test_junk_in_padding_never_reaches_value_or_gradient(pool, junk):
    x, mask = batch()
    clean = x.masked_fill(~mask.unsqueeze(-1), 0).requires_grad_()
    dirty = x.masked_fill(~mask.unsqueeze(-1), junk).requires_grad_()
    pool(clean, mask).square().sum().backward()
    pool(dirty, mask).square().sum().backward()
    assert torch.equal(pool(dirty, mask), pool(clean, mask))
    assert torch.equal(dirty.grad, clean.grad)
    assert not dirty.grad[~mask].any()


@each_pooler
def test_the_amount_of_padding_changes_nothing(pool):
    x, mask = batch()
    longer = torch.cat([x, torch.full_like(x, math.nan)], dim=1)
    longer_mask = torch.cat([mask, torch.zeros_like(mask)], dim=1)
    torch.testing.assert_close(pool(longer, longer_mask), pool(x, mask), rtol=1e-14, atol=1e-14)
    alone = pool(x[:1, mask[0]])  # without padding, without company
    torch.testing.assert_close(alone, pool(x, mask)[:1])


@each_pooler
def test_the_order_of_elements_changes_nothing(pool):
    x, mask = batch()
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(pool(x[:, order], mask[:, order]), pool(x, mask))


@each_pooler
def test_one_element_is_its_own_pool(pool):
    x, _ = batch(elements=1)
    assert torch.equal(pool(x), x[:, 0])


@each_pooler
def test_equal_elements_pool_to_themselves(pool):
    x, mask = batch()
    same = x[:, :1].expand_as(x)
    torch.testing.assert_close(pool(same, mask), x[:, 0])


@each_pooler
def test_gradient_is_that_of_the_values(pool):
    x, mask = batch(rows=2, elements=4, dim=2)
    assert torch.autograd.gradcheck(lambda x: pool(x, mask), x.requires_grad_())


@each_pooler
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_keeps_the_precision_it_is_given(pool, dtype):
    x, mask = batch()
    pooled = pool(x.to(dtype), mask)
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled.double(), pool(x.to(dtype).double(), mask), rtol=0.01, atol=0.01)


@each_pooler
def test_works_under_autocast(pool):
    x, mask = batch(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(pool(x, mask), pool(x, mask).float(), rtol=0.01, atol=0.01)


def test_k_max_lies_between_max_and_mean():
    x, mask = batch()
    assert torch.equal(KMaxPool(1)(x, mask), MaxPool()(x, mask))
    torch.testing.assert_close(KMaxPool(x.shape[1])(x, mask), MeanPool()(x, mask))
    pooled = [KMaxPool(k)(x, mask) for k in range(1, x.shape[1] + 1)]
    for more, less in itertools.pairwise(pooled):
        assert (more >= less - 1e-12).all()


def test_a_short_row_averages_the_elements_it_has():
    x = torch.tensor([[[4.0], [2.0], [100.0]]])
    mask = torch.tensor([[True, True, False]])
    assert KMaxPool(3)(x, mask).item() == 3.0


def test_mean_shares_its_gradient_and_max_gives_it_to_one():
    x = torch.tensor([[[1.0], [3.0], [2.0]]], requires_grad=True)
    (mean,) = torch.autograd.grad(MeanPool()(x).sum(), x)
    (largest,) = torch.autograd.grad(MaxPool()(x).sum(), x)
    torch.testing.assert_close(mean.flatten(), torch.full((3,), 1 / 3))
    assert largest.flatten().tolist() == [0, 1, 0]


@each_pooler
def test_refuses_a_row_without_real_elements_by_its_number(pool):
    x, mask = batch()
    mask[2] = False
    with pytest.raises(ValueError, match=r"mask.*row 2"):
        pool(x, mask)


@each_pooler
@pytest.mark.parametrize(
    ("x", "mask", "message"),
    [
        (torch.zeros(2, 3), None, r"x must be .*\(B, N, D\).*\(2, 3\)"),
        (torch.zeros(2, 3, 4, dtype=torch.int64), None, "x must be floating point.*int64"),
        (torch.zeros(2, 0, 4), None, "x must have at least one element"),
        (torch.zeros(2, 3, 4), torch.ones(2, 4, dtype=torch.bool), r"mask must be bool \(2, 3\).*\(2, 4\)"),
        (torch.zeros(2, 3, 4), torch.ones(2, 3), "mask must be bool.*float32"),
    ],
)
def test_refuses_wrong_shapes_and_types(pool, x, mask, message):
    with pytest.raises(ValueError, match=message):
        pool(x, mask)


@pytest.mark.parametrize("k", [0, -1, 1.5, "3", True])
def test_refuses_a_k_that_counts_nothing(k):
    with pytest.raises(ValueError, match="k must be a whole number"):
        KMaxPool(k)


def test_build_pool_knows_every_name():
    assert isinstance(build_pool("mean", 8), MeanPool)
    assert isinstance(build_pool("max", 8), MaxPool)
    assert build_pool("kmax", 8, k=5).k == 5
    assert repr(build_pool("kmax", 8, k=5)) == "KMaxPool(k=5)"


def test_build_pool_gives_the_width_to_poolers_that_want_it(monkeypatch):
    class Wide(MeanPool):
        def __init__(self, dim, depth=2):
            super().__init__()
            self.dim, self.depth = dim, depth

    monkeypatch.setitem(POOLS, "wide", Wide)
    assert (build_pool("wide", 8).dim, build_pool("wide", 8, depth=3).depth) == (8, 3)
    with pytest.raises(ValueError, match="dim"):
        build_pool("wide", 0)


@pytest.mark.parametrize(
    ("name", "dim", "options", "message"),
    [
        ("median", 8, {}, "name must be one of kmax, max, mean, got 'median'"),
        ("mean", 8, {"k": 2}, "'mean'.*unknown k.*no options"),
        ("kmax", 8, {"q": 2}, "'kmax'.*unknown q.*takes k"),
        ("kmax", 8, {}, "'kmax' must include k"),
        ("mean", 0, {}, "dim must be"),
        ("mean", 2.5, {}, "dim must be"),
    ],
)
def test_build_pool_refuses_what_it_does_not_know(name, dim, options, message):
    with pytest.raises(ValueError, match=message):
        build_pool(name, dim, **options)
