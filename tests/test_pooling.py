"""Poolers: equal to a loop, independent of padding and order, and clear about what they refuse."""

import copy
import itertools
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from vsecore.pooling import (
    GPO,
    POOLS,
    AdaPool,
    AdPool,
    AttentionPool,
    GCNPool,
    GeneralizedMeanPool,
    GRUPool,
    KMaxPool,
    LastPool,
    LIPPool,
    MaxPool,
    MeanPool,
    SelfAttentionPool,
    Seq2SeqPool,
    SoftPool,
    build_pool,
    cpu,
    sorting,
)

DIM = 5  # width of everything here


def trained(pool, seed=0):
    """The pooler with weights as training might leave them: none is 0."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in pool.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return pool.double()


def drawn(seed=0):
    """An adaptive pool whose balance is fixed by chance."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AdPool(DIM, token_share="random")


SIMPLE = [MeanPool(), MaxPool(), KMaxPool(1), KMaxPool(3), KMaxPool(99)]
WEIGHED = {  # those that give each value a weight, 1 in all
    "soft": SoftPool,
    "ada": lambda: trained(AdaPool()),
    "lip": lambda: trained(LIPPool(DIM)),
    "self_attention": lambda: trained(SelfAttentionPool(DIM)),
    "gpo": lambda: trained(GPO(position_dim=4, hidden=3)),
    "adpool": lambda: trained(AdPool(DIM)),
    "adpool, released": lambda: trained(AdPool(DIM, per_dimension=True)),
    "adpool, token": lambda: trained(AdPool(DIM, token_share=1)),
    "adpool, embedding": lambda: trained(AdPool(DIM, token_share=0.0)),
    "adpool, random": lambda: trained(drawn()),
}
ORDERED = ("seq2seq", "gru_last", "last")  # those that read the elements in their order
OTHERS = {
    "seq2seq": lambda: trained(Seq2SeqPool(DIM)),
    "gru_last": lambda: trained(GRUPool(DIM)),
    "last": LastPool,
    "gcn": lambda: trained(GCNPool(DIM, layers=2)),
    "generalized_mean": lambda: GeneralizedMeanPool(2.5).double(),
    "attention": lambda: trained(AttentionPool(DIM, heads=1)),
}
PLAIN = {repr(pool): partial(copy.deepcopy, pool) for pool in SIMPLE}
ORDERLESS = PLAIN | WEIGHED | {name: make for name, make in OTHERS.items() if name not in ORDERED}


@pytest.fixture
def pool(request):
    """A pooler, made for the test that asks for it."""
    return request.param()


def each(pools):
    return pytest.mark.parametrize("pool", pools.values(), ids=pools.keys(), indirect=True)


each_pooler = each(ORDERLESS | OTHERS)


def batch(seed=0, rows=4, elements=7, dim=DIM, dtype=torch.float64):
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


@pytest.mark.parametrize("pool", SIMPLE, ids=repr)
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
    with torch.no_grad():
        assert torch.equal(pool(dirty, mask), pool(clean, mask))
    assert torch.equal(dirty.grad, clean.grad)
    assert not dirty.grad[~mask].any()


@each_pooler
def test_the_amount_of_padding_changes_nothing(pool):
    x, mask = batch()
    longer = torch.cat([x, torch.full_like(x, math.nan)], dim=1).requires_grad_()
    longer_mask = torch.cat([mask, torch.zeros_like(mask)], dim=1)
    x.requires_grad_()
    pooled, same = pool(x, mask), pool(longer, longer_mask)
    torch.testing.assert_close(same, pooled, rtol=1e-13, atol=1e-13)
    (gradient,) = torch.autograd.grad(pooled.square().sum(), x)
    (longer_gradient,) = torch.autograd.grad(same.square().sum(), longer)
    torch.testing.assert_close(longer_gradient[:, : x.shape[1]], gradient, rtol=1e-12, atol=1e-12)
    alone = pool(x[:1, mask[0]])  # without padding, without company
    torch.testing.assert_close(alone, pooled[:1])


@each(ORDERLESS)
def test_the_order_of_elements_changes_nothing(pool):
    x, mask = batch()
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(pool(x[:, order], mask[:, order]), pool(x, mask))


@each({name: OTHERS[name] for name in ORDERED})
def test_a_recurrent_pool_reads_in_the_order_given_wherever_the_padding_lies(pool):
    x, mask = batch()
    front = torch.arange(x.shape[1]) < mask.sum(1, keepdim=True)
    packed = torch.zeros_like(x)
    packed[front] = x[mask]
    torch.testing.assert_close(pool(x, mask), pool(packed, front))
    assert not torch.allclose(pool(x), pool(x.flip(1)))


@each(PLAIN | WEIGHED)
def test_one_element_is_its_own_pool(pool):
    x, _ = batch(elements=1)
    torch.testing.assert_close(pool(x), x[:, 0])
    x, mask = batch()
    mask = torch.arange(x.shape[1]) == 2
    torch.testing.assert_close(pool(x, mask.expand(len(x), -1)), x[:, 2])


@each(PLAIN | WEIGHED)
def test_equal_elements_pool_to_themselves(pool):
    x, mask = batch()
    same = x[:, :1].expand_as(x)
    torch.testing.assert_close(pool(same, mask), x[:, 0])


@each(PLAIN | WEIGHED)
def test_a_pool_lies_between_the_least_and_the_largest_value(pool):
    x, mask = batch()
    assert (pool(x, mask) <= MaxPool()(x, mask) + 1e-12).all()
    assert (pool(x, mask) >= -MaxPool()(-x, mask) - 1e-12).all()


@each_pooler
def test_gradient_is_that_of_the_values(pool):
    x, mask = batch(rows=2, elements=4)
    weights = {name: weight.detach().clone().requires_grad_() for name, weight in pool.named_parameters()}

    def run(x, *values):
        return torch.func.functional_call(pool, dict(zip(weights, values, strict=True)), (x, mask))

    assert torch.autograd.gradcheck(run, (x.requires_grad_(), *weights.values()))


@each({name: make for name, make in (WEIGHED | OTHERS).items() if name != "adpool, embedding"})
def test_every_weight_learns(pool):
    x, mask = batch()
    pool.zero_grad()
    pool(x.requires_grad_(), mask).square().sum().backward()
    for name, weight in pool.named_parameters():
        assert weight.grad.any(), name


@each_pooler
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_keeps_the_precision_it_is_given(pool, dtype):
    x, mask = batch()
    pool = copy.deepcopy(pool).to(dtype)
    pooled = pool(x.to(dtype), mask)
    assert pooled.dtype == dtype
    exact = pool.double()(x.to(dtype).double(), mask)
    torch.testing.assert_close(pooled.double(), exact, rtol=0.03, atol=0.03)


@each_pooler
def test_works_under_autocast(pool):
    x, mask = batch(dtype=torch.float32)
    pool = copy.deepcopy(pool).float()
    exact = pool(x, mask)
    for elements in (x.clone().requires_grad_(), x.bfloat16().requires_grad_()):
        with torch.autocast("cpu", torch.bfloat16):
            pooled = pool(elements, mask)
        torch.testing.assert_close(pooled.float(), exact, rtol=0.1, atol=0.1)
        pooled.float().square().sum().backward()
        assert elements.grad.isfinite().all()
        assert not elements.grad[~mask].any()


def test_the_recurrent_pool_keeps_single_precision_under_autocast_and_the_type_of_its_elements():
    pool, (x, mask) = OTHERS["seq2seq"]().float(), batch(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(pool(x, mask), OTHERS["seq2seq"]()(x.double(), mask).float())
        assert pool(x.bfloat16(), mask).dtype == torch.bfloat16


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
        (torch.zeros(2, 3), None, r"x must be .*\(B, N, [D5]\).*\(2, 3\)"),
        (torch.zeros(2, 3, DIM, dtype=torch.int64), None, "x must be floating point.*int64"),
        (torch.zeros(2, 0, DIM), None, "x must have at least one element"),
        (torch.zeros(2, 3, DIM), torch.ones(2, 4, dtype=torch.bool), r"mask must be bool \(2, 3\).*\(2, 4\)"),
        (torch.zeros(2, 3, DIM), torch.ones(2, 3), "mask must be bool.*float32"),
    ],
)
def test_refuses_wrong_shapes_and_types(pool, x, mask, message):
    with pytest.raises(ValueError, match=message):
        pool(x, mask)


@pytest.mark.parametrize("k", [0, -1, 1.5, "3", True])
def test_refuses_a_k_that_counts_nothing(k):
    with pytest.raises(ValueError, match="k must be a whole number"):
        KMaxPool(k)


def values_of(x, mask, row, dim):
    return [float(x[row, n, dim]) for n in range(x.shape[1]) if mask[row, n]]


def softmax(values):
    top = max(values)
    shares = [math.exp(value - top) for value in values]
    return [share / math.fsum(shares) for share in shares]


def weighed(weights, values):
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_soft_and_adaptive_pool_agree_with_the_loop(seed):
    x, mask = batch(seed)
    ada = WEIGHED["ada"]()
    share = 1 / (1 + math.exp(-ada.beta.item()))
    soft, adaptive = SoftPool()(x, mask), ada(x, mask).detach()
    for row, dim in itertools.product(range(len(x)), range(DIM)):
        values = values_of(x, mask, row, dim)
        mean = math.fsum(values) / len(values)
        high = weighed(softmax(values), values)
        near = weighed(softmax([2 * v * mean / (v * v + mean * mean) for v in values]), values)
        assert float(soft[row, dim]) == pytest.approx(high)
        assert float(adaptive[row, dim]) == pytest.approx(share * near + (1 - share) * high)


def test_adaptive_pool_bears_nothing_but_zeros():
    x = torch.zeros(2, 3, DIM, requires_grad=True)
    pooled = AdaPool()(x)
    assert not pooled.any()
    assert torch.autograd.grad(pooled.sum(), x)[0].isfinite().all()


def test_local_importance_agrees_with_the_loop():
    pool, (x, mask) = WEIGHED["lip"](), batch()
    pooled = pool(x, mask)
    for row, dim in itertools.product(range(len(x)), range(DIM)):
        own = [x[row, n] for n in range(x.shape[1]) if mask[row, n]]
        logits = [weighed(pool.importance.weight[dim].tolist(), element.tolist()) for element in own]
        mean = math.fsum(logits) / len(logits)
        spread = math.sqrt(math.fsum((logit - mean) ** 2 for logit in logits) / len(logits) + 1e-5)
        scale, shift = pool.scale[dim].item(), pool.shift[dim].item()
        gates = [12 / (1 + math.exp(-(scale * (logit - mean) / spread + shift))) for logit in logits]
        expected = weighed(softmax(gates), values_of(x, mask, row, dim))
        assert float(pooled[row, dim].detach()) == pytest.approx(expected)


def test_self_attention_agrees_with_the_loop():
    pool, (x, mask) = WEIGHED["self_attention"](), batch()
    pooled, weights = pool(x, mask), pool.weights(x, mask)
    for row in range(len(x)):
        own = [x[row, n] for n in range(x.shape[1]) if mask[row, n]]
        memory = pool.memory(sum(own) / len(own)).tanh()
        shares = softmax([pool.score(pool.element(element).tanh() * memory).item() for element in own])
        torch.testing.assert_close(
            pooled[row], sum(s * element for s, element in zip(shares, own, strict=True))
        )
        assert weights[row, mask[row]].tolist() == pytest.approx(shares)
        assert not weights[row, ~mask[row]].any()


def test_attention_agrees_with_torch():
    pool = trained(AttentionPool(6, heads=3))
    theirs = nn.MultiheadAttention(6, 3, batch_first=True).double()
    with torch.no_grad():  # theirs has a layer for the question too: here it is given as it is
        nothing = torch.zeros(6, dtype=torch.float64)
        theirs.in_proj_weight.copy_(torch.cat([torch.eye(6), pool.key.weight, pool.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([nothing, nothing, pool.value.bias]))
        theirs.out_proj.load_state_dict(pool.joined.state_dict())
    x, mask = batch(dim=6)
    question = pool.question.reshape(1, 1, 6).expand(len(x), -1, -1)
    expected, _ = theirs(question, x, x, key_padding_mask=~mask)
    torch.testing.assert_close(pool(x, mask), expected.squeeze(1))


def test_a_power_is_the_mean_at_1_and_the_maximum_far_away():
    x, mask = batch()
    x = x.abs() + 0.1
    for power, simple, near in ((1.0, MeanPool(), 1e-12), (1e4, MaxPool(), 1e-3)):
        pool = GeneralizedMeanPool(power).double()
        torch.testing.assert_close(pool(x, mask), simple(x, mask), rtol=near, atol=0)
    row = x[0, mask[0]]
    torch.testing.assert_close(GeneralizedMeanPool(3.0).double()(x, mask)[0], row.pow(3).mean(0).pow(1 / 3))
    assert (GeneralizedMeanPool().double()(-x, mask) - 1e-6).abs().max() < 1e-12
    assert GeneralizedMeanPool(50.0)(torch.full((1, 2, 3), 1e3)).isfinite().all(), "1e150 is no float32"


def test_a_step_down_leaves_the_generalised_means_power_above_0():
    pool = GeneralizedMeanPool(0.5)
    (learned,) = pool.parameters()
    learned.grad = torch.tensor(1.0)
    torch.optim.SGD([learned], lr=1.0).step()
    torch.testing.assert_close(pool.power.item(), 0.5 / math.e)


def test_graph_convolution_agrees_with_the_loop():
    pool, (x, mask) = OTHERS["gcn"](), batch()
    pooled = pool(x, mask)
    for row in range(len(x)):
        own = [x[row, n] for n in range(x.shape[1]) if mask[row, n]]
        for layer in pool.layers:
            heard = []
            for listener in own:
                theta = layer.theta(listener / listener.norm())
                said = [(theta @ layer.phi(e / e.norm())) * layer.message(e) for e in own]
                heard.append(layer.out(sum(said) / len(own)))
            own = [element + news for element, news in zip(own, heard, strict=True)]
        torch.testing.assert_close(pooled[row], sum(own) / len(own))


def test_graph_convolution_grows_no_faster_than_its_elements():
    """Cubes of cubes: large features once ended in infinity after a step of training."""
    pool, (x, mask) = OTHERS["gcn"](), batch()
    at_most = pool(x, mask).abs().max() * 1000
    assert pool(1000 * x, mask).abs().max() < 10 * at_most


@pytest.mark.parametrize("make", [GCNPool, LIPPool])
def test_begins_as_the_mean(make):
    x, mask = batch()
    torch.testing.assert_close(make(DIM).double()(x, mask), MeanPool()(x, mask))


def adpool_by_loop(pool, x, mask, row):
    """One row of the batch by the paper's equations, one value after the other."""
    columns = [sorted(values_of(x, mask, row, dim), reverse=True) for dim in range(DIM)]
    count = len(columns[0])
    u = [[columns[dim][m] for dim in range(DIM)] for m in range(count)]
    weight = pool.token.weight.tolist()
    if pool.per_dimension:
        bias = pool.token.bias.tolist()
        logits = [[max(0, weighed(weight[dim], u_m) + bias[dim]) for u_m in u] for dim in range(DIM)]
    else:
        logits = [[weighed(weight[0], u_m) for u_m in u]] * DIM
    token = [weighed(softmax(logits[dim]), columns[dim]) for dim in range(DIM)]
    embedding = [weighed(softmax(columns[dim]), columns[dim]) for dim in range(DIM)]
    if pool.token_share is None:
        balance = pool.balance.weight[0].tolist()
        share = softmax([weighed(balance, token), weighed(balance, embedding)])[0]
    else:
        share = float(pool.share)
    return [share * t + (1 - share) * e for t, e in zip(token, embedding, strict=True)]


@each({name: make for name, make in WEIGHED.items() if name.startswith("adpool")})
def test_adaptive_pooling_agrees_with_the_loop(pool):
    x, mask = batch()
    for row, pooled in enumerate(pool(x, mask)):
        assert pooled.tolist() == pytest.approx(adpool_by_loop(pool, x, mask, row))


def test_adaptive_pooling_holds_the_weights_of_the_paper():
    pool = AdPool(8)
    shapes = {name: tuple(weight.shape) for name, weight in pool.named_parameters()}
    assert shapes == {"token.weight": (1, 8), "balance.weight": (1, 8)}
    released = AdPool(8, per_dimension=True)
    assert (released.token.weight.shape, released.token.bias.shape) == ((8, 8), (8,))
    assert {name for name, _ in AdPool(8, token_share=0.5).named_parameters()} == {"token.weight"}


def forced(token, balance):
    pool = AdPool(DIM).double()
    pool.token.weight.data.copy_(torch.as_tensor(token, dtype=torch.float64))
    pool.balance.weight.data.fill_(balance)
    return pool


def test_adaptive_pooling_can_be_the_mean_the_maximum_and_the_mean_of_the_largest():
    x, mask = batch(rows=6)
    # The embedding level lies above the mean and below the maximum: a balance that likes little, or much,
    # chooses the token level.
    torch.testing.assert_close(forced(torch.zeros(1, DIM), -1e6)(x, mask), MeanPool()(x, mask))
    torch.testing.assert_close(forced(torch.full((1, DIM), 1e6), 1e6)(x, mask), MaxPool()(x, mask))
    # One dimension says which elements there are: 1 for three of them, 0 for the others.
    x[..., 0] = (mask.cumsum(1) <= 3).double()
    largest = forced(torch.eye(DIM)[:1] * 1e6, 0)
    theta, _ = largest.weights(x, mask)
    pooled = (theta * x.masked_fill(~mask.unsqueeze(-1), -1e9).sort(1, descending=True).values).sum(1)
    torch.testing.assert_close(pooled, KMaxPool(3)(x, mask))
    only = AdPool(DIM, token_share=1).double()
    only.token.weight.data.copy_(largest.token.weight)
    torch.testing.assert_close(only(x, mask), KMaxPool(3)(x, mask))


def test_the_embedding_level_alone_is_the_soft_pool():
    x, mask = batch()
    torch.testing.assert_close(AdPool(DIM, token_share=0).double()(x, mask), SoftPool()(x, mask))


def test_a_balance_by_chance_is_drawn_once_and_kept_with_the_weights():
    shares = [float(drawn(seed).share) for seed in range(50)]
    assert all(0 <= share <= 1 for share in shares)
    assert min(shares) < 0.2 and max(shares) > 0.8
    assert shares[0] == float(drawn(0).share)  # a seed draws it again
    first, other = drawn(0), drawn(1)
    assert first.state_dict().keys() == {"token.weight", "share"}
    assert {name for name, _ in first.named_parameters()} == {"token.weight"}  # it does not learn
    other.load_state_dict(first.state_dict())
    x, mask = batch(dtype=torch.float32)
    assert torch.equal(other(x, mask), first(x, mask))
    assert torch.equal(first(x, mask), first(x, mask))  # no new draw at each use
    _, omega = first.weights(x, mask)
    torch.testing.assert_close(omega, torch.tensor([[shares[0], 1 - shares[0]]]).expand(len(x), 2))


def test_a_balance_that_is_given_is_no_weight():
    pool = AdPool(DIM, token_share=0.25)
    assert pool.state_dict().keys() == {"token.weight"}
    x, mask = batch(dtype=torch.float32)
    assert pool.weights(x, mask)[1].tolist() == [[0.25, 0.75]] * len(x)


@each({name: WEIGHED[name] for name in ("soft", "ada", "lip")})
@pytest.mark.parametrize("masked", [False, True])
def test_a_large_batch_is_pooled_by_parts_to_the_same(monkeypatch, pool, masked):
    x, mask = batch()
    given, inputs = (mask if masked else None), (x.requires_grad_(), *pool.parameters())

    def run():
        pooled = pool(x, given)
        with torch.no_grad():
            torch.testing.assert_close(pool(x, given), pooled)
        return pooled, *torch.autograd.grad(pooled.square().sum(), inputs)

    whole = run()
    monkeypatch.setattr("vsecore.pooling.cpu.VALUES_AT_A_TIME", 80)
    monkeypatch.setattr("vsecore.pooling.cpu.VALUES_TOO_MANY_TO_KEEP", 0)
    for one, other in zip(run(), whole, strict=True):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradgradcheck(lambda x: pool(x[:, :3], None), x)


@pytest.mark.parametrize("learns", [True, False])
def test_adaptive_pooling_has_second_derivatives(learns):
    x, mask = batch(rows=2, elements=4)
    pool = WEIGHED["adpool"]().requires_grad_(learns)
    assert torch.autograd.gradgradcheck(lambda x: pool(x, mask), x.requires_grad_())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_both_levels_in_one_pass_agree_with_the_plain_lines(masked, junk, monkeypatch):
    monkeypatch.setattr(cpu, "VALUES_AT_A_TIME", 100)  # several parts
    x, mask = batch(rows=11, elements=9, dtype=torch.float32)
    x[3, :4] = 1.0  # equal values
    if masked:
        x[~mask] = junk
    wanted, wanted_theta = torch.randn(11, DIM), torch.randn(11, 9, 1)

    def results(pool, x):
        x = x.clone().requires_grad_()
        given = (x, mask if masked else None)
        pooled, (theta, omega) = pool(*given), pool.weights(*given)
        total = (pooled * wanted).sum() + (theta * wanted_theta).sum()
        return pooled, theta, omega, *torch.autograd.grad(total, [x, *pool.parameters()])

    pool = trained(AdPool(DIM))
    plain = [result.float() for result in results(pool, x.double())]  # float64 takes the plain lines
    single = copy.deepcopy(pool).float()
    assert cpu.can_pool_levels(x, single.token.weight)
    torch.testing.assert_close(list(results(single, x)), plain, rtol=1e-5, atol=1e-5)


def test_both_levels_in_one_pass_show_a_nan():
    x, mask = batch(dtype=torch.float32)
    mask[:, 0], x[1, 0, 2] = True, math.nan
    pooled = AdPool(DIM)(x, mask)
    assert pooled[1].isnan().all()
    assert pooled[[0, 2, 3]].isfinite().all()


def test_both_levels_in_one_pass_refuse_a_second_derivative():
    x = torch.randn(2, 3, DIM, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(AdPool(DIM)(x).sum(), x, create_graph=True)


def test_adaptive_pooling_tells_its_weights():
    x, mask = batch()
    for pool in (WEIGHED["adpool"](), WEIGHED["adpool, released"]()):
        theta, omega = pool.weights(x, mask)
        real = torch.arange(x.shape[1]) < mask.sum(1, keepdim=True)
        assert not theta[~real].any()
        torch.testing.assert_close(theta.sum(1), torch.ones_like(theta[:, 0]))
        torch.testing.assert_close(omega.sum(1), torch.ones(len(x), dtype=torch.float64))
        u = sorting.sort_descending(x, mask)
        both = torch.stack([(theta * u).sum(1), SoftPool()(x, mask)], 1)
        torch.testing.assert_close((omega.unsqueeze(-1) * both).sum(1), pool(x, mask))


def counting(largest):
    """A GPO forced to weigh the first `largest` places alike, and no other."""
    pool = GPO().double()
    for weight in pool.parameters():
        weight.data.zero_()
    # Gates shut: each state is tanh of its own place's code. Its cosines add up to 16 at place 0 and less at
    # each of the next places.
    places = pool._places(largest + 1)[:, 1::2].sum(1)  # (largest + 1,)
    bound = float(places[-2:].mean())
    for suffix in ("", "_reverse"):
        gates = slice(pool.gru.hidden_size, 2 * pool.gru.hidden_size)
        getattr(pool.gru, "bias_ih_l0" + suffix).data[gates] = -1e3
        new = slice(2 * pool.gru.hidden_size, None)
        getattr(pool.gru, "weight_ih_l0" + suffix).data[new, 1::2] = 1e4
        getattr(pool.gru, "bias_ih_l0" + suffix).data[new] = -1e4 * bound
    pool.linear.weight.data.fill_(100)
    return pool


def test_the_generalized_pool_can_be_the_mean_the_maximum_and_the_mean_of_the_largest():
    x, mask = batch(rows=6)
    mean = GPO().double()
    mean.linear.weight.data.zero_()
    torch.testing.assert_close(mean(x, mask), MeanPool()(x, mask))
    torch.testing.assert_close(counting(1)(x, mask), MaxPool()(x, mask))
    torch.testing.assert_close(counting(3)(x, mask), KMaxPool(3)(x, mask))


def test_the_generalized_pool_weighs_places_by_how_many_there_are_and_nothing_else():
    pool, (x, mask) = trained(GPO()), batch()
    counts = mask.sum(1)
    weights = pool.weights(counts)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(x), dtype=torch.float64))
    for row, count in enumerate(counts.tolist()):
        assert not weights[row, count:].any()
        alone = pool.weights(torch.tensor([count]))[0]
        torch.testing.assert_close(weights[row, :count], alone)
        largest = x[row, mask[row]].sort(0, descending=True).values
        torch.testing.assert_close(pool(x, mask)[row], alone @ largest)


def packed_weights(pool, counts):
    """A set's weights as the released code finds them: places packed by their number, read both ways."""
    places = int(counts.max())
    encoded = pool._places(places).expand(len(counts), -1, -1)
    packed = pack_padded_sequence(encoded, counts, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(pool.gru(packed)[0], batch_first=True, total_length=places)
    scores = pool.linear(sum(states.chunk(2, dim=-1)) / 2).squeeze(-1) / pool.temperature
    taken = torch.arange(places) < counts.unsqueeze(-1)
    return torch.where(taken, scores, -torch.inf).softmax(1)


@pytest.mark.parametrize(("rows", "places"), [(1, 1), (1, 6), (3, 9), (12, 9)])
def test_the_generalized_pool_agrees_with_packed_places(rows, places):
    pool = trained(GPO(position_dim=4, hidden=3))
    counts = torch.randint(1, places + 1, (rows,), generator=torch.Generator().manual_seed(0))
    weights, expected = pool.weights(counts), packed_weights(pool, counts)
    torch.testing.assert_close(weights, expected, rtol=1e-12, atol=1e-12)
    importance = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((weights * importance).sum(), list(pool.parameters())),
        torch.autograd.grad((expected * importance).sum(), list(pool.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_the_recurrent_pool_agrees_with_packed_elements():
    pool, (x, mask) = OTHERS["seq2seq"](), batch()
    both = nn.GRU(DIM, DIM, batch_first=True, bidirectional=True).double()
    weights = {name: weight for name, weight in pool.forwards.named_parameters()}
    weights |= {f"{name}_reverse": weight for name, weight in pool.backwards.named_parameters()}
    both.load_state_dict(weights)
    rows = [x[row, real] for row, real in enumerate(mask)]
    _, last = both(pack_sequence(rows, enforce_sorted=False))
    torch.testing.assert_close(pool(x, mask), last.mean(0))


def test_the_last_state_agrees_with_packed_elements():
    pool, (x, mask) = OTHERS["gru_last"](), batch()
    _, last = pool.gru(pack_sequence([x[row, real] for row, real in enumerate(mask)], enforce_sorted=False))
    torch.testing.assert_close(pool(x, mask), last[0])


def test_the_last_element_is_the_last_real_one():
    x, mask = batch()
    expected = torch.stack([rows[real][-1] for rows, real in zip(x, mask, strict=True)])
    assert torch.equal(LastPool()(x, mask), expected)
    assert torch.equal(LastPool()(x), x[:, -1])


def test_the_generalized_pool_reads_places_both_ways():
    pool = trained(GPO(position_dim=4, hidden=3))
    codes = [[math.sin(k), math.cos(k), math.sin(k / 100), math.cos(k / 100)] for k in range(6)]
    codes = torch.tensor(codes, dtype=torch.float64)
    states, _ = pool.gru(codes)
    scores = pool.linear((states[:, :3] + states[:, 3:]) / 2).flatten() / 0.1
    torch.testing.assert_close(pool.weights(torch.tensor([6]))[0], scores.softmax(0))


@pytest.mark.parametrize("counts", [torch.tensor([0, 2]), torch.tensor([1.0]), torch.tensor(3)])
def test_the_generalized_pool_refuses_sets_of_no_size(counts):
    with pytest.raises(ValueError, match=r"counts must be whole numbers \(B,\) of at least 1"):
        GPO().weights(counts)


@each_pooler
def test_sorting_another_way_changes_nothing(pool, monkeypatch):
    x, mask = batch(rows=8, dtype=torch.float32)
    pool = copy.deepcopy(pool).float()
    expected = pool(x.requires_grad_(), mask)
    monkeypatch.setattr(cpu, "can_sort", lambda x: False)
    torch.testing.assert_close(pool(x, mask), expected)


@each(WEIGHED | OTHERS)
def test_another_width_is_refused(pool):
    if hasattr(pool, "dim"):
        with pytest.raises(ValueError, match=r"x must be floating point \(B, N, 5\).*\(2, 3, 4\)"):
            pool(torch.zeros(2, 3, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdPool(0), "dim must be"),
        (lambda: LIPPool(2.5), "dim must be"),
        (lambda: AdPool(4, token_share=1.5), r"token_share must be .* \[0, 1\], got 1.5"),
        (lambda: AdPool(4, token_share="much"), "token_share must be None, \"random\" or .* got 'much'"),
        (lambda: AdPool(4, token_share=math.nan), "token_share must be .* got nan"),
        (lambda: GCNPool(4, layers=0), "layers must be"),
        (lambda: GCNPool(4, layers=1.5), "layers must be .* got 1.5"),
        (lambda: GCNPool(4, layers=True), "layers must be .* got True"),
        (lambda: GPO(position_dim=3), "position_dim must be even"),
        (lambda: GPO(hidden=0), "hidden must be"),
        (lambda: GPO(hidden=1.5), "hidden must be .* got 1.5"),
        (lambda: GPO(position_dim=0), "position_dim must be"),
        (lambda: GPO(position_dim=True), "position_dim must be .* got True"),
        (lambda: GPO(temperature=0), "temperature must be"),
        (lambda: AttentionPool(6, heads=4), "heads must be a whole number that divides dim = 6, got 4"),
        (lambda: AttentionPool(6, heads=0), "heads must be"),
        (lambda: GeneralizedMeanPool(0.0), "power must be above 0, got 0.0"),
        (lambda: GeneralizedMeanPool(math.inf), "power must be"),
    ],
)
def test_refuses_what_makes_no_pooler(make, message):
    with pytest.raises(ValueError, match=message):
        make()


OPTIONS = {"kmax": {"k": 2}, "attention": {"heads": 1}}  # what these poolers need at this width
ONE_VECTOR = sorted(set(POOLS) - {"slots", "pie_net", "transformer_set", "gaussian"})  # those: test_sets.py


@pytest.mark.parametrize("name", ONE_VECTOR)
def test_build_pool_builds_each_and_needs_no_memory_to_try(name):
    options = OPTIONS.get(name, {})
    pool = build_pool(name, DIM, **options)
    assert type(pool) is POOLS[name]
    assert pool(torch.randn(2, 3, DIM)).shape == (2, DIM)
    with torch.device("meta"):
        build_pool(name, DIM, **options)
    assert build_pool(name, 1, **options)(torch.randn(2, 3, 1)).shape == (2, 1)


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

    monkeypatch.setattr(POOLS, "_entries", dict(POOLS._entries))
    POOLS.register("wide", Wide)
    assert (build_pool("wide", 8).dim, build_pool("wide", 8, depth=3).depth) == (8, 3)
    with pytest.raises(ValueError, match="dim"):
        build_pool("wide", 0)


@pytest.mark.parametrize(
    ("name", "dim", "options", "message"),
    [
        ("median", 8, {}, "pool 'median' is unknown: there are ada, adpool, .* soft"),
        ("mean", 8, {"k": 2}, "pool 'mean' has no option 'k': it takes no options"),
        ("kmax", 8, {"q": 2}, "pool 'kmax' has no option 'q': it takes k"),
        ("kmax", 8, {}, "pool 'kmax' needs the option 'k'"),
        ("mean", 0, {}, "dim must be"),
        ("mean", 2.5, {}, "dim must be"),
    ],
)
def test_build_pool_refuses_what_it_does_not_know(name, dim, options, message):
    with pytest.raises(ValueError, match=message):
        build_pool(name, dim, **options)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", sorted(set(ONE_VECTOR) - {"gpo", "seq2seq", "gru_last"}))
def test_no_pooler_asks_a_gpu_for_a_number_nor_leaves_it(name, masked):
    """Tensors that pretend to be on a GPU have no numbers, and meet none that are elsewhere.

    Recurrent poolers leave autocast, which asks for a GPU's driver: they need the next test.
    """
    with FakeTensorMode():
        with torch.device("cuda"):
            pool = build_pool(name, DIM, **OPTIONS.get(name, {}))
        for rows in (2, 9):  # fewer sets than elements, and more
            x = torch.rand(rows, 7, DIM, device="cuda")
            mask = torch.ones(rows, 7, dtype=torch.bool, device="cuda") if masked else None
            pooled = pool(x, mask)
            assert pooled.shape == (rows, DIM) and pooled.device.type == "cuda"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@each_pooler
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_waits_for_a_gpu(pool, masked):
    x, mask = batch(dtype=torch.float32)
    pool, x = copy.deepcopy(pool).float().cuda(), x.cuda().requires_grad_()
    mask = mask.cuda() if masked else None
    pool(x, mask).sum().backward()  # cuDNN and cuBLAS make their preparations
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        pool(x, mask).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert x.grad.isfinite().all()
