"""Set prediction: slot attention, PIE-Net and a Transformer, against loops and laws, and their pools."""

import math

import pytest
import torch
from torch.nn.functional import gelu

from elements import batch as masked
from elements import trained
from vsecore.pooling import POOLS, MeanPool, build_pool
from vsecore.pooling.set_pools import INNER_POOLS
from vsecore.sets import PIENet, SlotSetPrediction, TransformerSet, circular_variance, sine_grid, sine_line

DIM, SLOTS = 6, 3
OPTIONS = {
    "slots": {"slots": SLOTS, "iterations": 2, "hidden": 8},
    "pie_net": {"slots": SLOTS},
    "transformer_set": {"slots": SLOTS, "layers": 2, "heads": 2},
    "gaussian": {},
}


def slots(**options):
    return SlotSetPrediction(DIM, **({"slots": SLOTS, "iterations": 2, "hidden": 8} | options))


MAKE = {
    "slots": slots,
    "slots, two heads": lambda: slots(heads=2),
    "slots, line": lambda: slots(positions="line"),
    "slots, over elements": lambda: slots(softmax_over="elements"),
    "slots, random": lambda: slots(learned_slots=False),
    "slots, GRU": lambda: slots(residual=False),
    "slots, no global": lambda: slots(add_global=False),
    "pie_net": lambda: PIENet(DIM, SLOTS),
    "transformer": lambda: TransformerSet(DIM, SLOTS, layers=2, heads=2),
}


def batch(elements=7):
    """Elements, a mask whose rows have 1 to all elements in any place, and global features."""
    dice = torch.Generator().manual_seed(1)
    return *masked(elements=elements), torch.randn(4, DIM, generator=dice, dtype=torch.float64)


def kept(module, x, mask):
    module.keep_attention = True
    module.slots_of(x, mask)
    return module.attention


@torch.no_grad()
def by_formula(module, x, mask, whole):
    """Equations 1 to 5 of DivE."""
    sets = []
    for picture, real, feature in zip(x, mask, whole, strict=True):
        local = module.norm_local(picture[real])  # (n, D)
        keys, values = (layer(local).chunk(module.heads, 1) for layer in (module.key, module.value))
        state = module.start  # (K, D)
        for _ in range(module.iterations):
            queries = module.query(module.norm_slots(state)).chunk(module.heads, 1)
            received = []
            for query, key, value in zip(queries, keys, values, strict=True):
                shares = (query @ key.T / math.sqrt(query.shape[1])).softmax(0)  # (K, n)   over the slots
                received.append(shares / shares.sum(1, keepdim=True) @ value)
            found = module.out(torch.cat(received, 1))
            summed = state + found if module.gru is None else module.gru(found, state)
            first, *_, last = module.mlp
            state = summed + last(gelu(first(module.norm_update(summed))))
        sets.append(module.norm_last(state) + module.norm_global(feature))  # eq. 5
    return torch.stack(sets)


@pytest.mark.parametrize("options", [{}, {"heads": 2}, {"heads": 8}, {"residual": False}, {"slots": 1}])
def test_slot_attention_is_its_equations(options):
    module = trained(slots(**options))
    x, mask, whole = batch()
    torch.testing.assert_close(module(x, whole, mask), by_formula(module, x, mask, whole))
    assert len(torch.unique(slots(**options).start, dim=0)) == options.get("slots", SLOTS)
    assert module.mlp[0].out_features == 4 * DIM and slots(expansion=2).mlp[0].out_features == 2 * DIM


@torch.no_grad()
def test_a_transformers_queries_are_normalised_before_each_step():
    module = trained(TransformerSet(DIM, SLOTS, layers=1, heads=2))
    (layer,), (x, _, whole) = module.layers, batch()
    read, state = module.norm_local(x), module.start.expand(len(x), -1, -1)
    own = layer.norm1(state)
    state = state + layer.self_attn(own, own, own)[0]
    state = state + layer.multihead_attn(layer.norm2(state), read, read)[0]
    state = state + layer.linear2(gelu(layer.linear1(layer.norm3(state))))
    wanted = module.norm_last(state) + module.norm_global(whole)[:, None]
    torch.testing.assert_close(module(x, whole), wanted)


@torch.no_grad()
def test_pie_net_is_its_equations():
    module = trained(PIENet(DIM, SLOTS))
    x, mask, whole = batch()
    first, _, last = module.attend
    for found, picture, real, feature in zip(module(x, whole, mask), x, mask, whole, strict=True):
        own = picture[real]
        means = ((own @ first.weight.T).tanh() @ last.weight.T).softmax(0).T @ own  # (K, D)
        wanted = module.project(means).sigmoid() + feature
        torch.testing.assert_close(found, module.norm(wanted))


def test_slots_share_out_each_element_and_heads_of_pie_net_do_not():
    x, mask, _ = batch()
    shares = kept(trained(slots(iterations=3)), x, mask)  # (B, T, K, N)
    torch.testing.assert_close(shares.sum(2), mask.to(x.dtype).unsqueeze(1).expand(-1, 3, -1))
    for make in (slots, lambda: slots(softmax_over="elements"), lambda: PIENet(DIM, SLOTS)):
        module = trained(make())
        weights = kept(module, x, mask)
        real = mask[:, None, None].expand_as(weights)
        assert not weights.requires_grad and torch.equal(weights > 0, real)  # padding gets none
        if make is not slots:
            torch.testing.assert_close(weights.sum(3), torch.ones_like(weights.sum(3)))
        module.keep_attention = False
        module.slots_of(x, mask)
        assert module.attention is None and "attention" not in module.state_dict()


def test_attention_that_is_kept_is_the_mean_over_heads():
    """Either half of keys and queries alone is a module with one head; together they are its two heads."""
    x, mask, _ = batch()
    two = trained(slots(heads=2, iterations=1))
    alone = []
    for half in (slice(0, 4), slice(4, 8)):
        one = trained(slots(hidden=4, iterations=1))
        one.load_state_dict(
            two.state_dict()
            | {name: two.state_dict()[name][half] for name in ("query.weight", "key.weight", "value.weight")}
            | {"out.weight": two.out.weight[:, half]}
        )
        alone.append(kept(one, x, mask))
    assert not torch.allclose(*alone)
    torch.testing.assert_close(kept(two, x, mask), sum(alone) / 2)


@pytest.mark.parametrize("name", ["slots", "transformer"])
def test_the_global_feature_moves_all_vectors_of_a_set_alike(name):
    module = trained(MAKE[name]())
    x, mask, whole = batch()
    moved = module(x, whole, mask) - module.slots_of(x, mask)
    torch.testing.assert_close(moved, module.norm_global(whole).unsqueeze(1).expand_as(moved))


def test_without_a_global_feature_none_is_needed():
    module = trained(slots(add_global=False))
    x, mask, _ = batch()
    assert torch.equal(module(x, None, mask), module.slots_of(x, mask))
    assert not [name for name in module.state_dict() if "global" in name]


def test_random_slots_are_drawn_in_training_and_stay_the_same_in_evaluation():
    module = trained(slots(learned_slots=False))
    x, mask, whole = batch()
    fixed = module(x, whole, mask)
    assert torch.equal(module(x, whole, mask), fixed)
    torch.testing.assert_close(module(x[2:], whole[2:], mask[2:]), fixed[2:])  # whatever the batch
    again = trained(slots(learned_slots=False), seed=5)
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(x, whole, mask), fixed)
    module.train()
    assert not torch.allclose(module(x, whole, mask), module(x, whole, mask))
    alike = module(x[:1].expand(2, -1, -1), whole[:1].expand(2, -1))
    assert not torch.allclose(alike[0], alike[1])  # each picture has its own


def test_of_the_global_feature_a_part_is_left_out_in_training_alone():
    torch.manual_seed(0)
    pool, (x, mask, _) = build_pool("slots", DIM, **OPTIONS["slots"], global_drop=0.5).double(), batch()
    assert not torch.equal(pool(x, mask)[0], pool(x, mask)[0])
    pool.eval()
    assert torch.equal(pool(x, mask)[0], pool(x, mask)[0])


@pytest.mark.parametrize("silent", ["out", "mlp"])
def test_of_what_slots_receive_and_of_the_hidden_layer_a_part_is_left_out_in_training(silent):
    module, plain = trained(slots(drop=0.5, iterations=1)), trained(slots(iterations=1))
    x, mask, _ = batch()
    torch.testing.assert_close(module.slots_of(x, mask), plain.slots_of(x, mask))
    for parameter in getattr(module.train(), silent).parameters():
        parameter.data.zero_()  # so that only the other one can tell
    assert not torch.allclose(module.slots_of(x, mask), module.slots_of(x, mask))


@pytest.mark.parametrize("name", ["slots", "slots, over elements", "pie_net"])
def test_attention_that_is_certain_stays_finite(name):
    module = trained(MAKE[name]()).float()
    for layer in ("query", "key", "attend"):
        for parameter in getattr(module, layer).parameters() if hasattr(module, layer) else ():
            parameter.data *= 1000
    x, mask, whole = batch()
    x = x.float().requires_grad_()
    sets = module(x, whole.float(), mask)
    sets.square().sum().backward()
    assert sets.isfinite().all() and x.grad.isfinite().all()
    assert all(one.grad.isfinite().all() for one in module.parameters() if one.grad is not None)


def test_circular_variance_of_known_directions():
    one = torch.tensor([1.0, 2.0, -2.0])
    axes = torch.eye(4)
    cases = {
        0.0: torch.stack([one, 5 * one, 0.1 * one]),
        1.0: torch.stack([one, -3 * one]),
        1 - 1 / math.sqrt(4): 7 * axes,
        1 - 1 / math.sqrt(2): torch.stack([axes[0], 9 * axes[3]]),
        1 - math.cos(0.3): torch.tensor([[math.cos(0.3), math.sin(0.3)], [math.cos(0.3), -math.sin(0.3)]]),
    }
    for variance, vectors in cases.items():
        torch.testing.assert_close(
            circular_variance(vectors.expand(2, -1, -1)), torch.full((2,), variance), atol=1e-6, rtol=0
        )
    assert circular_variance(torch.randn(3, 1, 5)).abs().max() < 1e-6  # one vector points one way
    half = torch.randn(2, 3, 5).bfloat16()
    torch.testing.assert_close(circular_variance(half), circular_variance(half.float()))


def test_sines_of_two_places_agree_by_their_distance_alone():
    line = sine_line(9, 8)
    products = line @ line.T
    for distance in range(9):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert (products.diagonal(1) < products.diagonal(0)[1:]).all()
    assert sine_line(3, 5).shape == (3, 5) and sine_line(3, 4)[0].tolist() == [0, 1, 0, 1]
    wanted = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    assert sine_line(3, 4)[2].tolist() == pytest.approx(wanted)


def test_cells_of_a_grid_have_the_sines_of_their_row_and_column():
    grid = sine_grid(9, 8).view(3, 3, 8)
    assert (grid[:, :, :4] == grid[:, :1, :4]).all() and (grid[:, :, 4:] == grid[:1, :, 4:]).all()
    assert torch.equal(grid[2, 1], torch.cat([sine_line(3, 4)[2], sine_line(3, 4)[1]]))
    assert torch.equal(sine_grid(49, 7)[:1], sine_grid(4, 7)[:1])
    assert len(torch.unique(sine_grid(49, 7), dim=0)) == 49


def test_positions_change_keys_and_never_what_is_taken():
    placed, plain = trained(slots(positions="grid")), trained(slots())
    x, _, _ = batch(elements=4)
    assert not torch.allclose(placed.slots_of(x), plain.slots_of(x))
    for module in (placed, plain):
        module.key.weight.data.zero_()  # then every share is the same, wherever an element is
    torch.testing.assert_close(placed.slots_of(x), plain.slots_of(x))


def test_a_grid_must_be_square_and_a_set_not_empty():
    x, _, whole = batch()
    with pytest.raises(ValueError, match="positions 'grid'"):
        trained(slots(positions="grid"))(x, whole)
    for module in (trained(make()) for name, make in MAKE.items() if name != "slots, no global"):
        for feature in (None, whole[:2], whole[:, :5]):
            with pytest.raises(ValueError, match="global_"):
                module(x, feature)
    for sets in (torch.randn(3, 4), torch.randn(3, 0, 4), torch.ones(2, 3, 4, dtype=torch.int)):
        with pytest.raises(ValueError, match="sets"):
            circular_variance(sets)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_pool_gives_vectors_and_what_losses_read_besides(name):
    assert all(type(make(DIM)) is POOLS[inner] for inner, make in INNER_POOLS.items())
    pool = trained(build_pool(name, DIM, **OPTIONS[name]))
    x, mask, _ = batch()
    vectors, extra = pool(x, mask)
    if name == "gaussian":
        assert vectors.shape == extra["log_variance"].shape == (4, DIM) and len(extra) == 1
        torch.testing.assert_close(vectors, pool.predict(x, MeanPool()(x, mask), mask).squeeze(1))
        spread = pool.attend(x).mT.masked_fill(~mask[:, None], -math.inf).softmax(2) @ x  # (B, 1, D)
        wanted = pool.project(spread.squeeze(1)) + pool.project_global(MeanPool()(x, mask))
        torch.testing.assert_close(extra["log_variance"], wanted)
        assert (build_pool(name, DIM).project_global.bias == -math.log(DIM)).all()
    else:
        assert vectors.shape == extra["slots"].shape == (4, SLOTS, DIM) and len(extra) == 1
        assert torch.equal(extra["slots"], pool.predict.slots_of(x, mask)) and extra["slots"].requires_grad
        torch.testing.assert_close(vectors, pool.predict(x, MeanPool()(x, mask), mask))
