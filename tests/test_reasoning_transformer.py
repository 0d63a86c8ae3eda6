"""The Transformer over entities: equal to its formula, blind to padding, and blind to order unless told."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import layer_norm

from small import make_bert, recipe, small_data, train
from test_seam import assert_resumes_with_the_same_bits
from vsecore.data.vocabulary import Vocabulary
from vsecore.encoders import CaptionTransformer
from vsecore.encoders.caption_transformer import WideningBlock
from vsecore.encoders.reasoning import TransformerReasoner
from vsecore.encoders.reasoning.transformer import Block
from vsecore.pooling import FirstPool
from vsecore.recipes import get, thesis
from vsecore.training import load_run

DIM, HEADS, WORDS = 8, 2, 6
FORMS = {"default": {}, "norm_last": {"norm_last": True}, "printed": {"printed_residual": True}}
exactly = {"rtol": 0, "atol": 1e-10}


def drawn(module, seed=0):
    """The module in float64 with weights as training might leave them: none is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    for weight in module.double().parameters():
        weight.data.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) / 2)
    return module


def reasoner(seed=0, **options):
    return drawn(TransformerReasoner(DIM, heads=HEADS, drop=0.0, **options), seed)


def captions_encoder(seed=0, **options):
    options = {"heads": HEADS, "drop": 0.0, "left_padding": False, **options}
    return drawn(CaptionTransformer(30, WORDS, DIM, **options), seed)


def elements(rows=3, count=5, seed=1):
    """Elements and a mask: as many rows, the first of them whole."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, count, DIM, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([count, 2, *torch.randint(1, count, (rows,), generator=generator)])[:rows]
    return x, torch.arange(count) < lengths[:, None]


def tokens(rows=3, count=5, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 30, (rows, count), generator=generator), elements(rows, count, seed)[1]


# The formula.


def attended(normal, wide, bias, out, heads):
    """Self-attention of one set of elements (N, D), head by head and element by element."""
    query, key, value = (normal @ wide.T + bias).chunk(3, 1)
    width = query.shape[1] // heads
    columns = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        rows = []
        for i in range(len(normal)):
            weights = [(query[i, part] @ key[j, part] / width**0.5).exp() for j in range(len(normal))]
            rows.append(sum(w * value[j, part] for j, w in enumerate(weights)) / sum(weights))
        columns.append(torch.stack(rows))
    return torch.cat(columns, 1) @ out.weight.T + out.bias


def network(layer, x):
    return (x @ layer.linear1.weight.T + layer.linear1.bias).clamp(min=0) @ layer.linear2.weight.T + (
        layer.linear2.bias
    )


def by_hand(block, x, form):
    """One block over one set of real elements, (N, D), written as the equations are."""
    layer = block.layer

    def norm(module, values):
        centred = values - values.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + module.eps).sqrt()
        return scaled * module.weight + module.bias

    def attention(values):
        own = layer.self_attn
        return attended(values, own.in_proj_weight, own.in_proj_bias, own.out_proj, HEADS)

    if form == "norm_last":
        z = norm(layer.norm1, x + attention(x))
        return norm(layer.norm2, z + network(layer, z))
    z = x + attention(norm(layer.norm1, x))
    return (x if form == "printed" else z) + network(layer, norm(layer.norm2, z))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("learning", [True, False])  # torch has a path of its own when nothing is learned
def test_a_block_is_its_formula(form, learning):
    block = drawn(Block(DIM, HEADS, 5, 0.0, **FORMS[form])).train(learning)
    x, mask = elements()
    with torch.set_grad_enabled(learning):
        out = block(x, mask)
    for row, real in enumerate(mask):
        torch.testing.assert_close(out[row][real], by_hand(block, x[row][real], form), **exactly)


def test_the_printed_residual_leaves_out_what_attention_returns():
    usual, printed = reasoner(), reasoner(printed_residual=True)
    assert usual.state_dict().keys() == printed.state_dict().keys()
    x, mask = elements()
    (usual_out, _), (printed_out, _) = usual(x, mask), printed(x, mask)
    # The two differ by Z - X, which is what attention returns.
    layer = usual.blocks[0].layer
    normal = layer.norm1(x)
    returned, _ = layer.self_attn(normal, normal, normal, key_padding_mask=~mask)
    torch.testing.assert_close((usual_out - printed_out)[mask], returned[mask], **exactly)
    assert returned[mask].abs().min() > 0


def test_the_first_block_over_words_is_its_formula():
    block = drawn(WideningBlock(WORDS, DIM, HEADS, 5, 0.0))
    generator = torch.Generator().manual_seed(2)
    x, mask = torch.randn(3, 5, WORDS, generator=generator, dtype=torch.float64), elements()[1]
    out = block(x, mask)
    wide = torch.cat([part.weight for part in (block.query, block.key, block.value)])
    bias = torch.cat([part.bias for part in (block.query, block.key, block.value)])
    for row, real in enumerate(mask):
        normal = layer_norm(x[row][real], (WORDS,), block.norm1.weight, block.norm1.bias)
        z = attended(normal, wide, bias, block.out, HEADS)  # no word vector is added
        wanted = z + block.network(block.norm2(z))
        torch.testing.assert_close(out[row][real], wanted, **exactly)


def test_blocks_follow_each_other():
    model = reasoner(layers=3, positions=7)
    x, mask = elements()
    y = x + model.positions[:5]
    for block in model.blocks:
        y = block(y, mask)
    torch.testing.assert_close(model(x, mask)[0][mask], y[mask], **exactly)
    assert len({id(weight) for weight in model.parameters()}) == 1 + 3 * 12


# Order.


@pytest.mark.parametrize("form", FORMS)
def test_elements_in_another_order_give_the_same_vectors_in_that_order(form):
    model = reasoner(layers=2, **FORMS[form])
    x, _ = elements()
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(model(x[:, order])[0], model(x)[0][:, order], **exactly)


def test_with_positions_the_order_counts():
    model = reasoner(positions=5)
    x, _ = elements()
    order = torch.tensor([3, 0, 4, 1, 2])
    assert (model(x[:, order])[0] - model(x)[0][:, order]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("options", "sees_order"), [({}, True), ({"positions": False}, False), ({"layers": 0}, True)]
)
def test_words_are_a_set_unless_they_carry_positions(options, sees_order):
    encoder = captions_encoder(**options)
    sky, _ = encoder(torch.tensor([[4, 5, 6, 7, 8]]))  # blue sky and green grass
    grass, _ = encoder(torch.tensor([[7, 5, 6, 4, 8]]))  # green sky and blue grass
    apart = (sky.mean(1) - grass.mean(1)).abs().max()
    assert (apart > 1e-3) == (sees_order and "layers" not in options)


# Padding.


@pytest.mark.parametrize("options", [{}, {"cls": True, "positions": 9}, *FORMS.values()], ids=str)
@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("junk", [1e6, float("nan"), float("inf")])
def test_padding_of_elements_never_changes_a_real_one(options, learning, junk):
    model = reasoner(layers=2, **options).train(learning)
    x, mask = elements()
    garbage = torch.full((3, 3, DIM), junk, dtype=torch.float64)
    padded = torch.cat([torch.where(mask[..., None], x, junk), garbage], 1)
    more = torch.cat([mask, torch.zeros(3, 3, dtype=torch.bool)], 1)
    with torch.set_grad_enabled(learning):
        (short, mask), (long, long_mask) = model(x, mask), model(padded, more)
    assert long.shape == (3, 8 + model_adds(model), DIM)
    torch.testing.assert_close(long[long_mask], short[mask], **exactly)
    if learning:
        gradients = [
            torch.autograd.grad(out[real].square().sum(), list(model.parameters()), allow_unused=True)
            for out, real in ((long, long_mask), (short, mask))
        ]
        for one, other in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def model_adds(model):
    return 0 if model.cls is None else 1


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_padding_of_captions_never_changes_a_word(learning, layers):
    encoder = captions_encoder(left_padding=True, layers=layers).train(learning)
    words, mask = tokens()
    padded = torch.nn.functional.pad(torch.where(mask, words, 0), (0, 4))
    more = torch.nn.functional.pad(mask, (0, 4))
    with torch.set_grad_enabled(learning):
        torch.manual_seed(3)
        short, _ = encoder(words, mask)
        torch.manual_seed(3)  # the random starts do not depend on padding either
        long, long_mask = encoder(padded, more)
    assert (long.shape, long_mask.shape) == ((3, 9, DIM), (3, 9))
    torch.testing.assert_close(long[more], short[mask], **exactly)


def test_no_mask_is_a_mask_of_all():
    x, words = elements()[0], tokens()[0]
    for model, inputs in ((reasoner(cls=True), x), (captions_encoder(), words)):
        everything = torch.ones(inputs.shape[:2], dtype=torch.bool)
        (one, none), (other, _) = model(inputs), model(inputs, everything)
        assert none is None
        torch.testing.assert_close(one, other, **exactly)


def test_columns_of_padding_stay_and_nothing_warns():
    model, encoder = reasoner(layers=2).eval(), captions_encoder().eval()
    x, words = elements()[0], tokens()[0]
    mask = torch.arange(5).expand(3, 5) < 2  # no row has more than two
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        assert model(x, mask)[0].shape == x.shape
        assert encoder(words, mask)[0].shape == x.shape
        assert TransformerReasoner(DIM)(x.float(), mask)[0].shape == x.shape


@pytest.mark.parametrize("model", [reasoner(), captions_encoder()], ids=["elements", "words"])
def test_a_row_of_nothing_but_padding_is_refused(model):
    mask = torch.tensor([[True] * 5, [False] * 5, [True] * 5])
    inputs = elements()[0] if isinstance(model, TransformerReasoner) else tokens()[0]
    with pytest.raises(ValueError, match="row 1 has none"):
        model(inputs, mask)


def test_bfloat16_is_close_to_the_exact_result():
    model, encoder = reasoner(cls=True, positions=5).float(), captions_encoder().float()
    x, mask = elements()
    words, _ = tokens()
    for one, inputs in ((model, x.float()), (encoder, words)):
        exact, real = one(inputs, mask)
        with torch.autocast("cpu", torch.bfloat16):
            rounded, _ = one(inputs, mask)
        error = (rounded.float() - exact)[real].norm() / exact[real].norm()
        assert error < 0.05


# One word, one region.


def test_one_element_attends_to_itself_alone():
    for model, inputs in ((reasoner(layers=2), elements()[0]), (captions_encoder(), tokens()[0])):
        mask = torch.arange(5).expand(3, 5) < 1
        alone, _ = model(inputs[:, :1])
        padded, _ = model(inputs, mask)
        torch.testing.assert_close(padded[:, :1], alone, **exactly)
        for maps in model.attention(inputs[:, :1]):
            assert torch.equal(maps, torch.ones(3, HEADS, 1, 1, dtype=torch.float64))


# Random left padding.


def moved(words, mask, starts, width):
    """The captions with so much padding in front of each, in a batch of this width."""
    rows = torch.zeros(len(words), width, dtype=torch.long)
    real = torch.zeros(len(words), width, dtype=torch.bool)
    for row, start in enumerate(starts):
        length = int(mask[row].sum())
        rows[row, start : start + length] = words[row][mask[row]]
        real[row, start : start + length] = True
    return rows, real


def test_padding_in_front_is_a_later_start(monkeypatch):
    words, mask = tokens(rows=4, count=6)
    room = (6 - mask.sum(1)).tolist()
    starts = [0, room[1], room[2] // 2, min(1, room[3])]
    assert sum(starts) > 0
    encoder = captions_encoder(left_padding=True)
    padded, real = moved(words, mask, starts, 6)
    wanted, _ = encoder.eval()(padded, real)  # each word's position is its place in memory
    shares = torch.tensor([[(start + 0.5) / (free + 1)] for start, free in zip(starts, room, strict=True)])
    monkeypatch.setattr(torch, "rand", lambda *size, **options: shares)
    shifted, _ = encoder.train()(words, mask)
    torch.testing.assert_close(shifted[mask], wanted[real], **exactly)


def test_every_start_that_fits_is_drawn_in_training_and_none_in_evaluation():
    encoder = captions_encoder(left_padding=True).train()
    words, mask = tokens(rows=2, count=5)
    mask = torch.arange(5) < torch.tensor([[5], [2]])
    torch.manual_seed(0)
    places = torch.stack([encoder._places(words, mask) for _ in range(200)])  # (200, 2, 5)
    assert places[:, 0].unique(dim=0).tolist() == [[0, 1, 2, 3, 4]]  # the longest has no room
    assert sorted(places[:, 1, 0].unique().tolist()) == [0, 1, 2, 3]
    assert torch.equal(places[:, 1, 1], places[:, 1, 0] + 1)
    plain = torch.arange(5).expand(2, 5)
    assert torch.equal(encoder.eval()._places(words, mask), plain)
    assert torch.equal(captions_encoder(left_padding=False).train()._places(words, mask), plain)


def test_the_starts_come_from_the_generator_that_is_reseeded_in_each_step():
    encoder = captions_encoder(left_padding=True, longest=40).train()
    words, mask = tokens(rows=9, count=30)
    torch.manual_seed(5)
    first = encoder._places(words, mask)
    second = encoder._places(words, mask)
    torch.manual_seed(5)
    assert torch.equal(encoder._places(words, mask), first)
    assert not torch.equal(first, second)


def test_a_long_caption_is_cut():
    encoder = captions_encoder(longest=4)
    words, mask = tokens(rows=3, count=7)
    cut, real = encoder(words, mask)
    assert cut.shape == (3, 4, DIM)
    assert torch.equal(real, mask[:, :4])
    torch.testing.assert_close(cut[real], encoder(words[:, :4], mask[:, :4])[0][real], **exactly)
    assert CaptionTransformer(30).positions.shape == (48, 300)


# The learned element in front.


def test_the_learned_element_stands_in_front_and_gathers_the_others():
    model = reasoner(cls=True, positions=5)
    x, mask = elements()
    x.requires_grad_()
    out, longer = model(x, mask)
    assert out.shape == (3, 6, DIM)
    assert torch.equal(longer, torch.cat([torch.ones(3, 1, dtype=torch.bool), mask], 1))
    pooled = FirstPool()(out, longer)
    assert torch.equal(pooled, out[:, 0])
    in_front = torch.cat([model.cls.expand(3, 1, DIM), x + model.positions], 1)
    torch.testing.assert_close(pooled, model.blocks[0](in_front, longer)[:, 0], **exactly)
    of_x, of_cls = torch.autograd.grad(pooled.square().sum(), [x, model.cls])
    assert torch.equal(of_x.abs().sum(-1) > 0, mask)  # every real element is heard, no padding
    assert of_cls.abs().min() > 0


# Attention maps.


def test_attention_maps_are_the_weights_of_the_formula():
    model = reasoner(layers=2, cls=True)
    x, mask = elements()
    first, second = model.attention(x, mask)
    real = torch.cat([torch.ones(3, 1, dtype=torch.bool), mask], 1)
    for maps in (first, second):
        assert maps.shape == (3, HEADS, 6, 6)
        torch.testing.assert_close(maps.sum(-1), torch.ones(3, HEADS, 6, dtype=torch.float64))
        assert (maps.movedim(1, -1)[~real[:, None].expand(3, 6, 6)] == 0).all()
    layer = model.blocks[0].layer
    normal = layer.norm1(torch.cat([model.cls.expand(3, 1, DIM), torch.where(mask[..., None], x, 0)], 1))
    query, key, _ = (normal @ layer.self_attn.in_proj_weight.T + layer.self_attn.in_proj_bias).chunk(3, -1)
    for row in range(3):
        for head in range(HEADS):
            part = slice(head * DIM // HEADS, (head + 1) * DIM // HEADS)
            logits = query[row, :, part] @ key[row, real[row], part].T / (DIM // HEADS) ** 0.5
            torch.testing.assert_close(first[row, head][:, real[row]], logits.softmax(-1), **exactly)


def test_attention_maps_of_words_rebuild_what_the_first_block_returns():
    encoder = captions_encoder()
    words, mask = tokens()
    first, second = encoder.attention(words, mask)
    assert first.shape == second.shape == (3, HEADS, 5, 5)
    block = encoder.blocks[0]
    x = encoder.embedding(words) + encoder.positions[:5]
    value = block.value(block.norm1(x)).unflatten(2, (HEADS, -1)).transpose(1, 2)
    z = block.out((first @ value).transpose(1, 2).flatten(2))
    wanted = z + block.network(block.norm2(z))
    torch.testing.assert_close(block(x, mask)[mask], wanted[mask], **exactly)


# On a GPU.


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_asks_a_gpu_for_a_number_nor_leaves_it(learning, masked):
    """Tensors that pretend to be on a GPU have no numbers, and meet none that are elsewhere."""
    with FakeTensorMode(), torch.set_grad_enabled(learning):
        with torch.device("cuda"):
            model = TransformerReasoner(DIM, heads=HEADS, layers=2, positions=5, cls=True).train(learning)
            encoder = CaptionTransformer(30, WORDS, DIM, heads=HEADS).train(learning)
            x, words = torch.rand(3, 5, DIM), torch.ones(3, 5, dtype=torch.long)
            mask = torch.ones(3, 5, dtype=torch.bool) if masked else None
        for out, _ in (model(x, mask), encoder(words, mask)):
            assert out.device.type == "cuda"
        FirstPool()(x, mask)


# What is refused.


def test_more_elements_than_positions_are_refused():
    with pytest.raises(ValueError, match="x has 5 elements: there must be at most 4"):
        reasoner(positions=4)(elements()[0])
    with pytest.raises(ValueError, match=r"x must be floating point \(B, N, 8\)"):
        reasoner()(torch.zeros(2, 3, 5))


# Systems.

SMALL = {"dim": 32, "training__learning_rate": 1e-3, "training__batch_size": 20, "training__epochs": 1}
READER = {"text__encoder__word_dim": 8, "text__encoder__minimum_count": 1}
NAMES = [
    *(f"thesis_{feature}" for feature in ("grid", "region")),
    *(f"thesis_{feature}+{variant}" for feature in ("grid", "region") for variant in thesis.VARIANTS),
    *(f"tern_{feature}_{text}" for feature in ("grid", "region") for text in ("bert", "words")),
]


def small_recipe(name, folder=None, **changes):
    data = small_data("region" if "region" in name else "grid")
    if "bert" in name:
        make_bert(folder, data.train.captions)
        reader = {"text__encoder__weights": str(folder)}
    else:
        reader = READER
    return recipe(name, **{**SMALL, **reader, **changes}), data


@pytest.mark.parametrize("name", NAMES)
def test_every_system_takes_two_steps(name, tmp_path):
    a_recipe, data = small_recipe(name, tmp_path / "bert")
    moved_weights = []

    def callback(event):
        if event.kind == "step":
            moved_weights.append({n: w.detach().clone() for n, w in event.system.named_parameters()})
            missing = [n for n, w in event.system.named_parameters() if w.grad is None]
            assert not missing, f"no gradient reaches {missing}"

    run = train(a_recipe, data, callback=callback)
    assert len(moved_weights) == 2
    assert run.history[-1]["loss"] > 0
    changed = [n for n, w in moved_weights[1].items() if not torch.equal(w, moved_weights[0][n])]
    assert any("blocks" in n for n in changed)


def test_a_bag_of_words_forgets_their_order():
    vocabulary = Vocabulary(["blue", "sky", "and", "green", "grass"])
    told = {}
    for variant in ("", "+mean_words", "+without_positions"):
        torch.manual_seed(0)
        model = get(f"thesis_grid{variant}", {"dim": 32}).build(7, vocabulary).eval()
        words, mask = vocabulary.encode(["blue sky and green grass", "green sky and blue grass"])
        one, other = model.encode_captions(words, mask).vectors
        told[variant] = bool((one - other).norm() > 1e-4)
    assert told == {"": True, "+mean_words": False, "+without_positions": False}


def test_shared_layers_learn_from_both_towers():
    a_recipe, data = small_recipe("tern_region_words")
    torch.manual_seed(0)
    tokenizer = a_recipe.tokenizer(data.train.captions)
    model = a_recipe.build(7, tokenizer).double().eval()
    names = [name for name, _ in model.named_parameters() if "shared" in name]
    assert len(names) == len(set(names)) == 2 * 12
    assert not [name for name in model.state_dict() if "reasoner.shared" in name]
    words, mask = tokenizer.encode(data.train.captions[:4])
    pictures = torch.randn(4, 5, 7, dtype=torch.float64)

    def gradients(v_counts, t_counts):
        v, t = model.encode_pictures(pictures).vectors, model.encode_captions(words, mask).vectors
        loss = v_counts * (v * torch.arange(32)).sum() + t_counts * (t * torch.arange(32)).sum()
        model.zero_grad()
        loss.backward()
        return [dict(model.named_parameters())[name].grad.clone() for name in names]

    both, of_pictures, of_captions = gradients(1, 1), gradients(1, 0), gradients(0, 1)
    for whole, one, other in zip(both, of_pictures, of_captions, strict=True):
        assert one.abs().max() > 0
        assert other.abs().max() > 0
        torch.testing.assert_close(whole, one + other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["tern_region_words", "tern_region_bert", "thesis_grid"])
def test_a_run_resumes_with_the_same_bits(name, tmp_path):
    a_recipe, data = small_recipe(
        name, tmp_path / "bert", training__batch_size=10, training__epochs=2, dim=16
    )
    state = assert_resumes_with_the_same_bits(tmp_path / "run", a_recipe, data, stop=5)
    model = load_run(tmp_path / "run").model
    if name != "thesis_grid":
        kept = [key for key in state if key.startswith("model.shared.")]
        assert kept
        assert {f"model.{key}" for key in model.state_dict() if key.startswith("shared.")} == set(kept)
