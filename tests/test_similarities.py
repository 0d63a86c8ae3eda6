"""What every similarity promises, whatever it compares: vectors, sets of them, or padded elements."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck

from vsecore import similarity
from vsecore.embedding import Embedding, unit
from vsecore.similarity import SIMILARITIES, Similarity, cosine, fragments, sets
from vsecore.similarity.fragments import Memory

VARIANTS = (
    ("match_probability", {"scale": 5.0, "shift": -1.0, "reduce": "sum"}),
    ("smooth_chamfer", {"alpha": 200.0}),
    ("max_sim", {"direction": "i2t", "reduce": "mean"}),
    ("cross_attention", {"direction": "i2t", "negative_slope": 0.0}),
    ("cross_attention", {"aggregate": "mean", "smooth": 40.0}),
    ("focal_attention", {"focus": "prob"}),
)
LEARNED = ("graph_reasoning", "attention_filtration")
ELEMENTS = ("cross_attention", "focal_attention", *LEARNED)
PLAIN = [*((name, {}) for name in SIMILARITIES if name not in LEARNED), *VARIANTS]
plain_ones = pytest.mark.parametrize(("name", "options"), PLAIN, ids=str)
each = pytest.mark.parametrize(
    ("name", "options"), [*PLAIN, *((name, {"width": 4}) for name in LEARNED)], ids=str
)


def side(name, lengths, seed=0, dim=5, dtype=torch.float64, fill=0.0, extra=0, left=False, device="cpu"):
    """Vectors, sets of three, or as many real elements as `lengths` says and `extra` padding."""
    draw = torch.Generator().manual_seed(seed) if device == "cpu" else None

    def drawn(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64, device=device)

    if name not in ELEMENTS:
        return Embedding(drawn(len(lengths), *([] if name == "cosine" else [3]), dim).to(dtype))
    drawn_rows, width = drawn(len(lengths), max(lengths), dim), max(lengths) + extra
    places = torch.arange(width, device=device)
    mask = torch.stack([places >= width - n if left else places < n for n in lengths])
    x = torch.full((len(lengths), width, dim), fill, dtype=torch.float64, device=device)
    for row, length in enumerate(lengths):
        x[row, mask[row]] = drawn_rows[row, :length]
    return Embedding(None, x.to(dtype), mask)


def both(name, v=(4, 2, 6), t=(3, 5, 1, 3), **options):
    return side(name, v, 0, **options), side(name, t, 1, **options)


def read(embedding):
    return embedding.elements if embedding.vectors is None else embedding.vectors


def build(name, options):
    torch.manual_seed(0)
    return SIMILARITIES.build(name, options, dim=5).double().eval()


def with_gradients(module, v, t):
    """Scores, their gradients to both sides under some weights, and to the parameters."""
    x, y = (read(one).detach().clone().requires_grad_() for one in (v, t))
    scores = compared(module, v, t, x, y)
    weights = torch.linspace(-1, 1, scores.numel(), dtype=scores.dtype).view_as(scores)
    return scores.detach(), *torch.autograd.grad((weights * scores).sum(), (x, y, *module.parameters()))


def compared(module, v, t, x, y, method="forward"):
    """As `module(v, t)`, with x and y in the place of what it reads."""
    sides = [
        Embedding(new) if old.elements is None else Embedding(None, new, old.mask)
        for old, new in ((v, x), (t, y))
    ]
    return getattr(module, method)(*sides)


def assert_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@plain_ones
def test_the_function_is_the_module(name, options):
    v, t = both(name)
    given = [read(v), read(t)]
    if "attention" in name:
        given = [v.elements, v.mask, t.elements, t.mask]
    if name == "match_probability":
        options = {"scale": 1.0, "shift": 0.0} | options
    torch.testing.assert_close(getattr(similarity, name)(*given, **options), build(name, options)(v, t))


@each
def test_a_pair_scores_the_same_in_any_batch_and_no_rows_give_no_scores(name, options):
    module, (v, t) = build(name, options), both(name)
    whole = module(v, t)
    assert whole.shape == (3, 4) and whole.dtype == torch.float64
    torch.testing.assert_close(module(v[1:2], t[2:3]), whole[1:2, 2:3])
    torch.testing.assert_close(module(v[[2, 0, 1]], t), whole[[2, 0, 1]])
    assert module(v[:0], t).shape == (0, 4) and module(v, t[:0]).shape == (3, 0)


@each
def test_row_by_row_is_the_diagonal(name, options):
    module, (v, t) = build(name, options), both(name, t=(3, 5, 1))
    x, y = read(v).requires_grad_(), read(t).requires_grad_()
    whole, rows = (compared(module, v, t, x, y, method) for method in ("forward", "pairs"))
    torch.testing.assert_close(rows, whole.diagonal())
    torch.testing.assert_close(rows, Similarity.pairs(module, v, t))
    own, diagonals, slow = (
        torch.autograd.grad(one.sum(), (x, y))
        for one in (rows, whole.diagonal(), Similarity.pairs(module, v, t))
    )
    assert_same(own, diagonals)
    assert_same(slow, diagonals)
    for method in (module.pairs, *([module.weights] if hasattr(module, "weights") else [])):
        with pytest.raises(ValueError, match=r"rows|^t is"):
            method(v, t[:2])


@each
def test_neither_blocks_nor_what_is_kept_for_the_gradient_change_anything(name, options, monkeypatch):
    module, (v, t) = build(name, options), both(name, (4, 2, 6, 3, 3), (3, 5, 1, 3, 2, 2, 9))
    whole = with_gradients(module, v, t)
    for block, kept, group in ((200, 2**25, 1), (200, 0, 1), (1, 0, 40)):
        for memory in (fragments.MEMORY, sets.MEMORY):
            monkeypatch.setitem(memory, "cpu", Memory(block, kept))
        monkeypatch.setattr(fragments, "GROUP", group)
        assert_same(with_gradients(module, v, t), whole)
        with torch.no_grad():
            torch.testing.assert_close(module(v, t), whole[0])


@pytest.mark.parametrize(("kept", "times"), [(2**27, 1), (0, 2)])
def test_no_block_is_larger_than_said_and_it_is_computed_twice_only_if_it_does_not_fit(
    monkeypatch, kept, times
):
    monkeypatch.setitem(sets.MEMORY, "cpu", Memory(8 * 20, kept))
    seen, saved, module = [], [], build("chamfer", {})
    plain = module.score
    module.score = lambda cosines: seen.append(cosines.numel()) or plain(cosines)
    v, t = both("chamfer", range(30), range(40), dim=2)
    v.vectors.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        scores = module(v, t)
    scores.sum().backward()
    assert max(seen) <= 20 and sum(seen) == times * 30 * 3 * 40 * 3
    assert max(saved) <= 40 * 3 * 2 or times != 2  # as large as the sets, not as their product


@each
def test_padding_never_changes_a_score(name, options):
    module, plain = build(name, options), both(name)
    for junk in ({"fill": math.nan, "extra": 3}, {"fill": 7.0, "extra": 2, "left": True}, {"left": True}):
        torch.testing.assert_close(module(*both(name, **junk)), module(*plain))
    scores, *gradients = with_gradients(module, *both(name, fill=1e6, extra=1))
    assert scores.isfinite().all()
    for one, gradient in zip(both(name, extra=1), gradients[:2], strict=True):
        assert gradient.isfinite().all() and (one.mask is None or not gradient[~one.mask].any())


@each
def test_neither_the_order_of_elements_nor_their_length_changes_anything(name, options):
    module, (v, t) = build(name, options), both(name, (4,) * 3, (3,) * 4)
    x, y = read(v), read(t)
    if name != "cosine":
        torch.testing.assert_close(compared(module, v, t, x.flip(1), y.roll(1, 1)), module(v, t))
    torch.testing.assert_close(compared(module, v, t, 7 * x, 0.01 * y), module(v, t))


@each
def test_gradient_is_that_of_the_values(name, options):
    module, (v, t) = build(name, options), both(name, (3, 2), (2, 1, 3), dim=5 if name in LEARNED else 3)
    inputs = [read(v).requires_grad_(), read(t).requires_grad_()]
    assert gradcheck(lambda x, y: compared(module, v, t, x, y), inputs)
    assert name in LEARNED or all(grad.abs() > 0 for grad in with_gradients(module, v, t)[3:])


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_lifted_and_autocast_changes_nothing(name, options, dtype):
    module, (v, t) = build(name, options).float(), both(name, t=(3, 5, 1), dtype=dtype)
    for method in (module, module.pairs):
        scores = method(v, t)
        assert scores.dtype == torch.float32 and torch.equal(scores, method(v.float(), t.float()))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(method(v.float(), t.float()), scores)
    torch.testing.assert_close(
        module(v, t.map(lambda x: x.double() if x.is_floating_point() else x)).float(), module(v, t)
    )


@plain_ones
def test_one_element_on_each_side_is_compared_by_its_cosine(name, options):
    v, t = both("cosine")
    one = [Embedding(x.vectors[:, None], x.vectors[:, None]) for x in (v, t)] if name != "cosine" else [v, t]
    found, wanted = build(name, options)(*one), cosine(v.vectors, t.vectors)
    if name == "match_probability":
        wanted = (options.get("scale", 1.0) * wanted + options.get("shift", 0.0)).sigmoid()
    torch.testing.assert_close(found, 2 * wanted if name == "focal_attention" else wanted)


@each
def test_zero_vectors_keep_gradients_finite(name, options):
    module, (v, t) = build(name, options), both(name)
    read(v).zero_()
    assert all(part.isfinite().all() for part in with_gradients(module, v, t))
    assert all(part.isfinite().all() for part in with_gradients(module, v, v))


@each
def test_no_similarity_asks_a_gpu_for_a_number(name, options):
    """Tensors that pretend to be on a GPU have no numbers: code that needs one fails here."""
    with FakeTensorMode(), torch.device("cuda"):
        module, elements = SIMILARITIES.build(name, options, dim=5).eval(), torch.rand(8, 4, 5)
        one = Embedding(elements[:, 0] if name == "cosine" else elements, elements, torch.ones(8, 4).bool())
        assert module(one, one).shape == (8, 8) and module.pairs(one, one).device.type == "cuda"


@each
def test_it_says_what_it_reads_and_needs_nothing_else(name, options):
    module, (v, t) = build(name, options), both(name)
    assert isinstance(module, Similarity) and len(module.block) == 2
    torch.testing.assert_close(module(v.only([module.reads]), t.only([module.reads])), module(v, t))
    with pytest.raises(ValueError, match=module.reads):
        module(Embedding(None), t)


X, MASK = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize("name", [name for name in SIMILARITIES if name not in LEARNED])
def test_what_cannot_be_compared_is_named(name):
    function, good = getattr(similarity, name), X[0] if name == "cosine" else X
    rest = {"scale": 1.0, "shift": 0.0} if name == "match_probability" else {}
    masks = "attention" in name
    cases = [((good, good[..., :3]), "t")]
    for bad in (X[0, 0], X[None], X.long(), X.to(torch.complex64), *([] if name == "cosine" else [X[:, :0]])):
        cases += [((bad, good), "v"), ((good, bad), "t")]
    cases = [((v, None, t, None) if masks else (v, t), wrong) for (v, t), wrong in cases]
    for mask in (MASK.float(), MASK[:, :2], MASK & False) if masks else ():
        cases += [((X, mask, X, None), "v_mask"), ((X, None, X, mask), "t_mask")]
    for given, wrong in cases:
        with pytest.raises(ValueError, match=f"^{wrong} is "):
            function(*given, **rest)


def test_cosine_agrees_with_the_double_loop_and_known_angles():
    v, t = (one.vectors for one in both("cosine"))
    for i, x in enumerate(v.tolist()):
        for j, y in enumerate(t.tolist()):
            dot = sum(a * b for a, b in zip(x, y, strict=True))
            assert float(cosine(v, t)[i, j]) == pytest.approx(dot / (math.hypot(*x) * math.hypot(*y)))
    t = torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    torch.testing.assert_close(cosine(t[:1], t), torch.tensor([[1.0, 0.0, -1.0, math.sqrt(0.5), 0.0]]))


def test_unit_vectors_have_length_one_and_the_gradient_of_a_zero_vector_stays_small():
    x = read(side("mil", (1, 1, 1)))
    torch.testing.assert_close(unit(x).norm(dim=-1), torch.ones(3, 3, dtype=torch.float64))
    zero = torch.zeros(2, 6, requires_grad=True)
    cosine(zero, torch.ones(1, 6)).sum().backward()
    assert zero.grad.abs().max() < 10  # dividing by max(length, tiny) would give 1 / tiny here
