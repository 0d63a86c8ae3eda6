"""Poolers: each is its formula. What all of them promise is in `test_contracts`."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from elements import batch, trained
from vsecore.pooling import (
    POOLS,
    AdaPool,
    AdPool,
    AttentionPool,
    GCNPool,
    GeneralizedMeanPool,
    KMaxPool,
    LastPool,
    LIPPool,
    MaxPool,
    MeanPool,
    SoftPool,
    build_pool,
    sort_descending,
)

DIM = 6  # width of everything here
SMALL = {"slots": {"slots": 3, "iterations": 2, "hidden": 8}, "transformer_set": {"slots": 3, "heads": 2}}
NEEDED = {"kmax": {"k": 2}, "attention": {"heads": 2}} | SMALL  # what these need at this width
VARIED = {  # every name in the registry, and options that take another way
    "kmax": [{"k": 1}, {"k": 99}],
    "adpool": [{"per_dimension": True}, *({"token_share": share} for share in (1.0, 0.0, 0.3, "random"))],
    "slots": [
        SMALL["slots"] | more
        for more in (
            {"heads": 2, "global_pool": "max"},
            {"softmax_over": "elements", "global_pool": "gpo"},
            {"learned_slots": False},
            {"residual": False, "global_pool": "first"},
            {"add_global": False},
        )
    ],
    "projected": [{"pool": "max"}],
    "pie_net": [{"global_pool": "seq2seq"}],
}
CASES = [(name, NEEDED.get(name, {})) for name in POOLS]
CASES += [(name, options) for name, varied in VARIED.items() for options in varied]
ORDERED = ("seq2seq", "gru_last", "last", "first")  # those that read the elements in their order


def make(name, dim=DIM, **options):
    torch.manual_seed(0)
    return trained(build_pool(name, dim, **{**NEEDED.get(name, {}), **options}))


def each(*names):
    """Run a test with every pooler, or with these: each a pair of its name and the pooler."""
    cases = [(name, options) for name, options in CASES if not names or name in names]
    return pytest.mark.parametrize(("name", "options"), cases, ids=str)


def results(pool, x, mask=None):
    pooled = pool(x, mask)
    return [pooled] if isinstance(pooled, torch.Tensor) else [pooled[0], *pooled[1].values()]


def close(ones, others, **near):
    for one, other in zip(ones, others, strict=True):
        torch.testing.assert_close(one, other, **near)


@each()
def test_the_order_of_elements_counts_only_where_they_are_read_in_order(name, options):
    pool, (x, mask) = make(name, **options), batch()
    one, other = results(pool, x, mask)[0], results(pool, x.flip(1), mask.flip(1))[0]
    assert torch.allclose(one, other) is {name, options.get("global_pool")}.isdisjoint(ORDERED)
    if name in ORDERED:  # wherever the padding lies
        front = torch.arange(x.shape[1]) < mask.sum(1, keepdim=True)
        packed = torch.zeros_like(x)
        packed[front] = x[mask]
        torch.testing.assert_close(one, results(pool, packed, front)[0])


@each()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_keeps_the_precision_it_is_given(name, options, dtype):
    pool, (x, mask) = make(name, **options).to(dtype), batch()
    rounded = results(pool, x.to(dtype), mask)
    assert {result.dtype for result in rounded} == {dtype}
    exact = results(pool.double(), x.to(dtype).double(), mask)
    for one, other in zip(rounded, exact, strict=True):
        assert (one.double() - other).norm() < 0.05 * other.norm()


@each()
def test_needs_no_memory_to_be_tried_and_takes_any_width(name, options):
    with torch.device("meta"):
        build_pool(name, DIM, **options)
    assert type(make(name, **options)) is POOLS[name]
    if not options.get("heads", 1) > 1:
        vectors = results(build_pool(name, 1, **options), torch.randn(2, 3, 1))[0]
        assert len(vectors) == 2 and vectors.shape[-1] == 1


def real_sets(x, mask):
    return [elements[real] for elements, real in zip(x, mask, strict=True)]


def own_softmax(own):
    """Each dimension weighed by the softmax of its own values, (D,)."""
    return (own.softmax(0) * own).sum(0)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_counting_and_soft_pools_are_their_formulas(seed):
    x, mask = batch(seed)
    ada = make("ada")
    share = ada.beta.sigmoid()
    pooled = {k: KMaxPool(k)(x, mask) for k in (1, 3, 99)}
    mean, largest, soft, adaptive = (pool(x, mask) for pool in (MeanPool(), MaxPool(), SoftPool(), ada))
    for row, own in enumerate(real_sets(x, mask)):
        close([mean[row], largest[row]], [own.mean(0), own.amax(0)])
        for k, found in pooled.items():
            close([found[row]], [own.sort(0, descending=True).values[:k].mean(0)])
        dice = 2 * own * own.mean(0) / (own**2 + own.mean(0) ** 2)
        near = (dice.softmax(0) * own).sum(0)
        close([soft[row], adaptive[row]], [own_softmax(own), share * near + (1 - share) * own_softmax(own)])


def test_adaptive_pool_bears_nothing_but_zeros():
    x = torch.zeros(2, 3, DIM, requires_grad=True)
    pooled = AdaPool()(x)
    assert not pooled.any()
    assert torch.autograd.grad(pooled.sum(), x)[0].isfinite().all()


def test_local_importance_is_its_formula():
    pool, (x, mask) = make("lip"), batch()
    for found, own in zip(pool(x, mask), real_sets(x, mask), strict=True):
        logits = own @ pool.importance.weight.T
        normal = (logits - logits.mean(0)) / (logits.var(0, correction=0) + 1e-5).sqrt()
        weights = (12 * (pool.scale * normal + pool.shift).sigmoid()).softmax(0)
        torch.testing.assert_close(found, (weights * own).sum(0))


def test_self_attention_is_its_formula():
    pool, (x, mask) = make("self_attention"), batch()
    pooled, weights = pool(x, mask), pool.weights(x, mask)
    for row, own in enumerate(real_sets(x, mask)):
        shares = pool.score(pool.element(own).tanh() * pool.memory(own.mean(0)).tanh()).softmax(0)  # (n, 1)
        close([pooled[row], weights[row, mask[row]]], [(shares * own).sum(0), shares.squeeze(1)])
        assert not weights[row, ~mask[row]].any()


def test_attention_agrees_with_torch():
    pool = trained(AttentionPool(DIM, heads=3))
    theirs = nn.MultiheadAttention(DIM, 3, batch_first=True).double()
    with torch.no_grad():  # theirs has a layer for the question too: here it is given as it is
        nothing = torch.zeros(DIM, dtype=torch.float64)
        theirs.in_proj_weight.copy_(torch.cat([torch.eye(DIM), pool.key.weight, pool.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([nothing, nothing, pool.value.bias]))
        theirs.out_proj.load_state_dict(pool.joined.state_dict())
    x, mask = batch()
    question = pool.question.reshape(1, 1, DIM).expand(len(x), -1, -1)
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
    assert [name for name, _ in pool.named_parameters()] == ["log_power"]  # so that no step makes it negative


def test_graph_convolution_is_its_formula():
    pool, (x, mask) = make("gcn", layers=2), batch()
    for found, own in zip(pool(x, mask), real_sets(x, mask), strict=True):
        for layer in pool.layers:
            directions = own / own.norm(dim=1, keepdim=True)
            relations = layer.theta(directions) @ layer.phi(directions).T / len(own)
            own = own + layer.out(relations @ layer.message(own))
        torch.testing.assert_close(found, own.mean(0))


@pytest.mark.parametrize("kind", [GCNPool, LIPPool])
def test_begins_as_the_mean(kind):
    x, mask = batch()
    torch.testing.assert_close(kind(DIM).double()(x, mask), MeanPool()(x, mask))


def test_a_graph_pool_sends_no_huge_gradient_to_an_element_of_zeros():
    pool, x = GCNPool(DIM), torch.randn(1, 4, DIM, generator=torch.manual_seed(0))
    nn.init.normal_(pool.layers[0].out.weight)
    x = x.index_fill(1, torch.tensor([2]), 0.0).requires_grad_()
    gradient = torch.autograd.grad(pool(x).sum(), x)[0].norm(dim=-1)[0]  # (4,)
    assert gradient.max() < 1e4


@each("adpool")
def test_adaptive_pooling_is_its_equations_and_tells_its_weights(name, options):
    pool, (x, mask) = make(name, **options), batch()
    pooled = pool(x, mask)
    for found, own in zip(pooled, real_sets(x, mask), strict=True):
        u = own.sort(0, descending=True).values
        logits = u @ pool.token.weight.T  # (n, 1), or (n, D) as released
        logits = (logits + pool.token.bias).relu() if pool.per_dimension else logits
        levels = torch.stack([(logits.softmax(0) * u).sum(0), own_softmax(own)])  # (2, D)   eq. 3 and 4
        if pool.token_share is None:
            parts = (levels @ pool.balance.weight[0]).softmax(0)
        else:
            parts = torch.stack([pool.share, 1 - pool.share]).double()
        torch.testing.assert_close(found, parts @ levels)
    theta, omega = pool.weights(x, mask)
    assert not theta[torch.arange(x.shape[1]) >= mask.sum(1, keepdim=True)].any()
    both = torch.stack([(theta * sort_descending(x, mask)).sum(1), SoftPool()(x, mask)], 1)
    torch.testing.assert_close((omega.unsqueeze(-1) * both).sum(1), pooled)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_both_levels_in_one_pass_agree_with_the_plain_lines(masked, junk, monkeypatch):
    monkeypatch.setattr("vsecore.pooling.sorting.VALUES_AT_A_TIME", 100)  # several parts
    x, mask = batch(rows=11, elements=9, dtype=torch.float32)
    x[3, :4] = 1.0  # equal values
    if masked:
        x[~mask] = junk
    wanted, wanted_theta = torch.randn(11, DIM), torch.randn(11, 9, 1)

    def found(pool, x):
        x = x.clone().requires_grad_()
        given = (x, mask if masked else None)
        pooled, (theta, omega) = pool(*given), pool.weights(*given)
        loss = (pooled * wanted).sum() + (theta * wanted_theta).sum()
        return pooled, theta, omega, *torch.autograd.grad(loss, [x, *pool.parameters()])

    pool = make("adpool")
    plain = [result.float() for result in found(pool, x.double())]  # float64 takes the plain lines
    single = copy.deepcopy(pool).float()
    assert single._fused(x)
    close(found(single, x), plain, rtol=1e-5, atol=1e-5)


def test_one_pass_shows_a_nan_and_has_no_second_derivative():
    x, mask = batch(dtype=torch.float32, rows=5)
    mask[:, 0], x[1, 0, 2] = True, math.nan
    pooled = AdPool(DIM)(x, mask)
    assert pooled[1].isnan().all() and pooled[[0, 2, 3, 4]].isfinite().all()
    x = torch.randn(2, 3, DIM, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(AdPool(DIM)(x).sum(), x, create_graph=True)
    pool = make("adpool")
    assert torch.autograd.gradgradcheck(lambda x: pool(x, mask[:2, :3]), x.double().detach().requires_grad_())


def test_a_balance_by_chance_is_drawn_once_and_kept_with_the_weights():
    def drawn(seed):
        torch.manual_seed(seed)
        return AdPool(DIM, token_share="random")

    first, other = drawn(0), drawn(1)
    assert first.state_dict().keys() == {"token.weight", "share"}
    other.load_state_dict(first.state_dict())
    x, mask = batch(dtype=torch.float32)
    assert torch.equal(other(x, mask), first(x, mask))
    assert AdPool(DIM, token_share=0.25).state_dict().keys() == {"token.weight"}  # what is given is no weight


@pytest.mark.parametrize(("rows", "places"), [(1, 1), (1, 6), (3, 9), (12, 9)])
def test_the_generalized_pool_agrees_with_packed_places(rows, places):
    """A set's weights as the released code finds them: places packed by their number, read both ways."""
    pool = make("gpo", position_dim=4, hidden=3, temperature=0.2)
    counts = torch.randint(1, places + 1, (rows,), generator=torch.Generator().manual_seed(0))
    longest = int(counts.max())
    codes = [[math.sin(k), math.cos(k), math.sin(k / 100), math.cos(k / 100)] for k in range(longest)]
    encoded = torch.tensor(codes, dtype=torch.float64).expand(rows, -1, -1)
    packed = pack_padded_sequence(encoded, counts, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(pool.gru(packed)[0], batch_first=True, total_length=longest)
    scores = pool.linear(sum(states.chunk(2, dim=-1)) / 2).squeeze(-1) / 0.2
    expected = torch.where(torch.arange(longest) < counts.unsqueeze(-1), scores, -torch.inf).softmax(1)
    weights = pool.weights(counts)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-7)
    importance = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    one, other = (
        torch.autograd.grad((found * importance).sum(), list(pool.parameters()))
        for found in (weights, expected)
    )
    close(one, other, rtol=1e-6, atol=1e-6)
    x, mask = torch.randn(rows, longest, DIM, dtype=torch.float64), torch.arange(longest) < counts[:, None]
    largest = [(row[real].sort(0, descending=True).values) for row, real in zip(x, mask, strict=True)]
    pooled = [row_weights[: len(row)] @ row for row_weights, row in zip(weights, largest, strict=True)]
    torch.testing.assert_close(pool(x, mask), torch.stack(pooled))


def test_recurrent_pools_agree_with_packed_elements():
    pool, one_way, (x, mask) = make("seq2seq"), make("gru_last"), batch()
    both = nn.GRU(DIM, DIM, batch_first=True, bidirectional=True).double()
    weights = {name: weight for name, weight in pool.forwards.named_parameters()}
    weights |= {f"{name}_reverse": weight for name, weight in pool.backwards.named_parameters()}
    both.load_state_dict(weights)
    packed = pack_sequence([x[row, real] for row, real in enumerate(mask)], enforce_sorted=False)
    torch.testing.assert_close(pool(x, mask), both(packed)[1].mean(0))
    torch.testing.assert_close(one_way(x, mask), one_way.gru(packed)[1][0])
    single = copy.deepcopy(pool).float()
    with torch.autocast("cpu", torch.bfloat16):  # which it leaves
        torch.testing.assert_close(single(x.float(), mask), pool(x, mask).float())


def test_the_first_and_the_last_element_are_real_ones():
    x, mask = batch()
    for pool, place in ((build_pool("first", DIM), 0), (LastPool(), -1)):
        expected = torch.stack([rows[real][place] for rows, real in zip(x, mask, strict=True)])
        assert torch.equal(pool(x, mask), expected)
        assert torch.equal(pool(x), x[:, place])
