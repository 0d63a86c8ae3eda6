"""Similarities of sets: as in plain loops, at their limits, and whatever the blocks."""

import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck

from vsecore.embedding import Embedding
from vsecore.similarity import (
    SIMILARITIES,
    MatchProbability,
    SmoothChamfer,
    chamfer,
    cosine,
    match_probability,
    max_sim,
    mil,
    sets,
    smooth_chamfer,
    unit,
)

EVERY = {
    "mil": mil,
    "match_probability": lambda v, t: match_probability(v, t, 5.0, -1.0),
    "match_probability_sum": lambda v, t: match_probability(v, t, 5.0, -1.0, reduce="sum"),
    "chamfer": chamfer,
    "smooth_chamfer": smooth_chamfer,
    "smooth_chamfer_sharp": lambda v, t: smooth_chamfer(v, t, 200.0),
    "max_sim": max_sim,
    "max_sim_i2t": lambda v, t: max_sim(v, t, "i2t", "mean"),
}
each = pytest.mark.parametrize("function", EVERY.values(), ids=EVERY)
MODULES = ("mil", "match_probability", "chamfer", "smooth_chamfer", "max_sim")
each_module = pytest.mark.parametrize("name", MODULES)


def drawn(rows, elements, dim=6, seed=0, dtype=torch.float64):
    return torch.randn(rows, elements, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture
def v():
    return drawn(3, 2)


@pytest.fixture
def t():
    return drawn(5, 3, seed=1)


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks of two sets or so, each of them computed again for the backward pass."""
    monkeypatch.setitem(sets.MEMORY, "cpu", 8 * 20)
    monkeypatch.setitem(sets.KEPT, "cpu", 0)


# The papers in plain loops, one pair of sets at a time.


def cosine_of(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def mean(numbers):
    return math.fsum(numbers) / len(numbers)


LOOPS = {
    "mil": lambda c: max(map(max, c)),
    "match_probability": lambda c: mean([sigmoid(5 * x - 1) for x in itertools.chain(*c)]),
    "match_probability_sum": lambda c: math.fsum(sigmoid(5 * x - 1) for x in itertools.chain(*c)),
    "chamfer": lambda c: (
        (mean([max(row) for row in c]) + mean([max(row) for row in zip(*c, strict=True)])) / 2
    ),
    "smooth_chamfer": lambda c: smooth_by_loop(c, 16.0),
    "smooth_chamfer_sharp": lambda c: smooth_by_loop(c, 200.0),
    "max_sim": lambda c: math.fsum(max(column) for column in zip(*c, strict=True)),
    "max_sim_i2t": lambda c: mean([max(row) for row in c]),
}


def smooth_by_loop(c, alpha):
    """Equation 6, as it is printed."""
    first = math.fsum(math.log(math.fsum(math.exp(alpha * x) for x in row)) for row in c)
    turned = list(zip(*c, strict=True))
    second = math.fsum(math.log(math.fsum(math.exp(alpha * x) for x in column)) for column in turned)
    return first / (2 * alpha * len(c)) + second / (2 * alpha * len(turned))


@pytest.mark.parametrize("name", EVERY)
def test_agrees_with_the_double_loop(name, v, t):
    scores = EVERY[name](v, t)
    assert scores.shape == (3, 5)
    for i, j in itertools.product(range(3), range(5)):
        table = [[cosine_of(x, y) for y in t[j].tolist()] for x in v[i].tolist()]
        assert float(scores[i, j]) == pytest.approx(LOOPS[name](table), rel=1e-9), (i, j)


@each
def test_blocks_change_neither_scores_nor_gradients(function, monkeypatch):
    def run():
        v, t = drawn(7, 2).requires_grad_(), drawn(11, 3, seed=1).requires_grad_()
        scores = function(v, t)
        weights = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64).view_as(scores)
        return scores.detach(), *torch.autograd.grad((weights * scores).sum(), (v, t))

    whole = run()
    monkeypatch.setitem(sets.MEMORY, "cpu", 8 * 20)
    in_blocks = run()
    monkeypatch.setitem(sets.KEPT, "cpu", 0)
    for found in (in_blocks, run()):
        for one, other in zip(found, whole, strict=True):
            torch.testing.assert_close(one, other)


def test_a_block_is_never_larger_than_said(tiny_blocks, monkeypatch):
    """No more cosines are in memory together than a block has, however many sets there are."""
    seen = []

    def score(cosines):
        seen.append(cosines.numel())
        return sets._chamfer(cosines)

    sets._compare(drawn(30, 2), drawn(40, 3, seed=1), score)
    assert max(seen) <= 20 and sum(seen) == 30 * 2 * 40 * 3


def test_training_keeps_no_cosines_beyond_its_room(tiny_blocks):
    """What autograd saves is as large as the sets, not as large as their product."""
    v, t = drawn(40, 2, dim=3).requires_grad_(), drawn(50, 3, dim=3, seed=1)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        smooth_chamfer(v, t)
    assert max(saved) <= 40 * 2 * 3


@pytest.mark.parametrize(("room", "times"), [(2**27, 1), (0, 2)])
def test_cosines_are_computed_twice_only_if_they_do_not_fit(monkeypatch, v, t, room, times):
    monkeypatch.setitem(sets.KEPT, "cpu", room)
    seen = []

    def score(cosines):
        seen.append(cosines.numel())
        return sets._chamfer(cosines)

    sets._compare(v.requires_grad_(), t, score).sum().backward()
    assert len(seen) == times


@each
def test_gradient_is_that_of_the_values(function, v, t):
    v, t = v[:2].requires_grad_(), t[:3].requires_grad_()
    assert gradcheck(function, (v, t))


def test_gradient_is_that_of_the_values_where_blocks_are_computed_again(tiny_blocks, v, t):
    assert gradcheck(smooth_chamfer, (v.requires_grad_(), t.requires_grad_()))


def test_the_gradient_of_smooth_chamfer_is_equation_8(v, t):
    """Its weights, by hand, then back from a cosine to the elements: dc/dx = (y - c·x) / |x|."""
    alpha, i, j = 16.0, 1, 3
    x, y = v[i].clone().requires_grad_(), t[j]
    (found,) = torch.autograd.grad(smooth_chamfer(x[None], y[None], alpha).sum(), x)
    a, b = unit(v[i]), unit(y)
    raised = (alpha * (a @ b.T)).exp()  # (K, L)
    weights = raised / raised.sum(1, keepdim=True) / (2 * len(a)) + raised / raised.sum(0) / (2 * len(b))
    assert float(weights.sum()) == pytest.approx(1.0)  # each side hands out one half
    expected = torch.zeros_like(a)
    for k, n in itertools.product(range(len(a)), range(len(b))):
        expected[k] += weights[k, n] * (b[n] - (a[k] @ b[n]) * a[k]) / v[i, k].norm()
    torch.testing.assert_close(found, expected)


def test_every_element_learns_from_smooth_chamfer_and_one_pair_from_mil(v, t):
    def learning(function):
        x = v[:1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(x, t[:1]).sum(), x)
        return int(gradient[0].norm(dim=-1).gt(1e-12).sum())

    assert learning(mil) == 1
    assert learning(smooth_chamfer) == learning(EVERY["match_probability"]) == v.shape[1]


# Limits.


def test_one_element_sets_give_the_cosine(v, t):
    v, t = v[:, :1], t[:, :1]
    expected = cosine(v[:, 0], t[:, 0])
    for function in (mil, chamfer, smooth_chamfer, max_sim, EVERY["smooth_chamfer_sharp"]):
        torch.testing.assert_close(function(v, t), expected)
    probability = (5 * expected - 1).sigmoid()
    torch.testing.assert_close(EVERY["match_probability"](v, t), probability)


def test_chamfer_is_the_limit_of_smooth_chamfer(v, t):
    expected, most = chamfer(v, t), (math.log(v.shape[1]) + math.log(t.shape[1])) / 2
    for alpha in (1.0, 16.0, 79.0, 81.0, 1e4):
        above = smooth_chamfer(v, t, alpha) - expected
        assert above.min() >= -1e-9 and above.max() <= most / alpha + 1e-9
    torch.testing.assert_close(smooth_chamfer(v, t, 1e6), expected, atol=1e-5, rtol=0)


def test_a_small_alpha_leaves_the_mean_of_all_cosines(v, t):
    """The smooth maximum becomes a mean, and log K or log L over alpha."""
    alpha = 1e-5
    constant = (math.log(v.shape[1]) + math.log(t.shape[1])) / (2 * alpha)
    everything = torch.einsum("bkd,cld->bc", unit(v), unit(t)) / (v.shape[1] * t.shape[1])
    found = smooth_chamfer(v, t, alpha) - constant
    torch.testing.assert_close(found, everything, atol=1e-4, rtol=0)


@pytest.mark.parametrize("alpha", [1.0, 16.0, 64.0, 79.9, 80.1, 1e3, 1e5])
def test_smooth_chamfer_stays_finite_at_every_alpha(alpha):
    v = drawn(2, 3, dtype=torch.float32)
    t = torch.cat([v, -v]).requires_grad_()  # cosines of 1 and of -1
    scores = smooth_chamfer(v, t, alpha)
    (gradient,) = torch.autograd.grad(scores.sum(), t)
    assert scores.isfinite().all() and gradient.isfinite().all()
    expected = smooth_chamfer(v.double(), t.double(), alpha)
    torch.testing.assert_close(scores.double(), expected, atol=1e-5, rtol=0)


def test_chamfer_is_max_sim_both_ways(v, t):
    both = max_sim(v, t, "t2i", "mean") + max_sim(v, t, "i2t", "mean")
    torch.testing.assert_close(both / 2, chamfer(v, t))
    torch.testing.assert_close(max_sim(v, t, "t2i"), t.shape[1] * max_sim(v, t, "t2i", "mean"))


def test_what_a_document_has_beyond_the_query_costs_nothing_in_max_sim_alone():
    axes = torch.eye(3, dtype=torch.float64)
    document, query = axes[None, :2], axes[None, :1]
    assert float(max_sim(document, query, "t2i", "mean")) == 1
    assert float(chamfer(document, query)) == 0.75  # its second element has no partner


# What must not matter.


@each
def test_the_order_of_elements_changes_nothing(function, v, t):
    torch.testing.assert_close(function(v.flip(1), t[:, [2, 0, 1]]), function(v, t))


@each
def test_the_length_of_elements_changes_nothing(function, v, t):
    lengths = torch.tensor([0.01, 30.0], dtype=torch.float64).view(1, 2, 1)
    torch.testing.assert_close(function(lengths * v, 7 * t), function(v, t))


@pytest.mark.parametrize("name", sorted(set(EVERY) - {"max_sim", "max_sim_i2t"}))
def test_pictures_and_captions_are_treated_alike(name, v, t):
    torch.testing.assert_close(EVERY[name](t, v).T, EVERY[name](v, t))


@each
def test_a_pair_scores_the_same_in_any_batch(function, v, t):
    torch.testing.assert_close(function(v[1:2], t[2:3]), function(v, t)[1:2, 2:3])
    assert function(v[:0], t).shape == (0, 5) and function(v, t[:0]).shape == (3, 0)


@each
def test_zero_vectors_keep_gradients_finite(function, v, t):
    v = torch.zeros_like(v).requires_grad_()
    scores = function(v, t)
    scores.sum().backward()
    assert scores.isfinite().all() and v.grad.isfinite().all()


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_within_a_hundredth_of_float64(function, dtype):
    v, t = drawn(20, 4, dim=64), drawn(30, 4, dim=64, seed=1)
    t[:10] = v[:10] + 0.1 * t[:10]  # near sets too
    found = function(v.to(dtype), t.to(dtype))
    assert found.dtype == torch.float32
    elements = 1 if function is not EVERY["match_probability_sum"] else 16  # a sum of so many
    assert (found.double() - function(v, t)).abs().max() < 0.01 * elements


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_lifted_before_anything_is_computed(function, dtype):
    """All that is lost is what the numbers lost when they were stored."""
    v, t = drawn(3, 2, dim=64).to(dtype), drawn(5, 3, dim=64, seed=1).to(dtype)
    assert torch.equal(function(v, t), function(v.float(), t.float()))


@each
def test_scores_stay_float32_under_autocast(function):
    v, t = drawn(3, 2, dtype=torch.float32), drawn(5, 3, seed=1, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        scores = function(v, t)
    assert scores.dtype == torch.float32 and torch.equal(scores, function(v, t))


def test_a_probability_lies_between_nothing_and_all(v, t):
    scores = EVERY["match_probability"](v, t)
    assert scores.min() > 0 and scores.max() < 1
    assert float(match_probability(v, t, 0.0, 0.0).mean()) == 0.5
    torch.testing.assert_close(EVERY["match_probability_sum"](v, t), 6 * scores)


def test_scale_and_shift_learn(v, t, tiny_blocks):
    scale, shift = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (2.0, -0.5))
    assert gradcheck(lambda a, b: match_probability(v, t, a, b), (scale, shift))


# Refused.


@each
def test_refuses_what_is_no_set(function):
    good = torch.zeros(2, 4, 3)
    for v, t, message in (
        (torch.zeros(2, 3), good, r"v is torch.float32 \(2, 3\): it must be floating point \(sets, elements"),
        (good, torch.zeros(2, 0, 3), r"t is torch.float32 \(2, 0, 3\): .* at least one element a set"),
        (good.long(), good, r"v is torch.int64"),
        (good, good.to(torch.complex64), r"t is torch.complex64"),
        (good, torch.zeros(2, 4, 5), r"v is \(2, 4, 3\) and t is \(2, 4, 5\): they must have the same width"),
    ):
        with pytest.raises(ValueError, match=message):
            function(v, t)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: smooth_chamfer(v, v, 0.0), "alpha is 0.0: it must be a number > 0"),
        (lambda v: smooth_chamfer(v, v, math.inf), "alpha is inf: it must be"),
        (lambda v: SmoothChamfer(-1.0), "alpha is -1.0: it must be"),
        (lambda v: match_probability(v, v, 1.0, 0.0, "max"), "reduce is 'max': it must be 'mean' or 'sum'"),
        (lambda v: match_probability(v, v, torch.ones(2), 0.0), r"scale is \(2,\): it must be one number"),
        (lambda v: match_probability(v, v, 1.0, torch.ones(4)), r"shift is \(4,\): it must be one number"),
        (lambda v: MatchProbability(reduce="max"), "reduce is 'max'"),
        (lambda v: max_sim(v, v, "both"), "direction is 'both': it must be 't2i' or 'i2t'"),
        (lambda v: SIMILARITIES.build("max_sim", {"reduce": "max"}), "'max'"),
        (lambda v: SmoothChamfer()(Embedding(v), Embedding(None)), "t.vectors is None: it must be sets"),
        (lambda v: SmoothChamfer().pairs(Embedding(v), Embedding(v[:1])), "2 and 1 rows"),
        (lambda v: SmoothChamfer().pairs(Embedding(v), Embedding(v[:, 0])), r"t is .*\(2, 3\): it must be"),
    ],
)
def test_refuses_options_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.ones(2, 4, 3))


# The modules.


@pytest.mark.parametrize(
    ("name", "options", "function"),
    [
        ("mil", {}, mil),
        ("match_probability", {"scale": 3.0, "shift": -1.0}, lambda v, t: match_probability(v, t, 3.0, -1.0)),
        ("match_probability", {"reduce": "sum"}, lambda v, t: match_probability(v, t, 1.0, 0.0, "sum")),
        ("chamfer", {}, chamfer),
        ("smooth_chamfer", {}, smooth_chamfer),
        ("smooth_chamfer", {"alpha": 4.0}, lambda v, t: smooth_chamfer(v, t, 4.0)),
        ("max_sim", {}, max_sim),
        ("max_sim", {"direction": "i2t", "reduce": "mean"}, lambda v, t: max_sim(v, t, "i2t", "mean")),
    ],
)
def test_the_module_compares_all_with_all_or_row_by_row(name, options, function, v):
    module, t = SIMILARITIES.build(name, options), drawn(3, 3, seed=1)
    whole = module(Embedding(v), Embedding(t))
    torch.testing.assert_close(whole, function(v, t))
    torch.testing.assert_close(module.pairs(Embedding(v), Embedding(t)), whole.diagonal())
    assert module.reads == "vectors" and len(module.block) == 2


@each_module
def test_row_by_row_stays_float32_and_learns(name):
    module = SIMILARITIES.build(name, {})
    v, t = (drawn(3, 4, seed=seed).bfloat16().requires_grad_() for seed in (0, 1))
    with torch.autocast("cpu", torch.bfloat16):
        scores = module.pairs(Embedding(v), Embedding(t))
    assert scores.dtype == torch.float32
    scores.sum().backward()
    assert v.grad.isfinite().all() and v.grad.any()


def test_match_probability_learns_its_scale_and_shift_unless_told(v, t):
    module = MatchProbability()
    module(Embedding(v), Embedding(t)).sum().backward()
    assert module.scale.grad and module.shift.grad
    assert not any(weight.requires_grad for weight in MatchProbability(learned=False).parameters())
    assert (module.scale.item(), module.shift.item()) == (1.0, 0.0)


@each_module
def test_no_similarity_asks_a_gpu_for_a_number(name):
    """Tensors that pretend to be on a GPU have no numbers: code that needs one fails here."""
    with FakeTensorMode(), torch.device("cuda"):
        v, t = torch.rand(8, 4, 6), torch.rand(9, 4, 6)
        scores = SIMILARITIES.build(name, {})(Embedding(v), Embedding(t))
    assert scores.shape == (8, 9) and scores.device.type == "cuda"
