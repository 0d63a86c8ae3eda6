"""Reasoners and the caption Transformer: equal to their formulas, and blind to order unless told."""

import pytest
import torch
from torch import nn
from torch.nn.functional import layer_norm

from elements import trained
from small import assert_resumes_with_the_same_bits, make_bert, recipe, small_data, train
from vsecore.data.vocabulary import Vocabulary
from vsecore.encoders import CaptionTransformer
from vsecore.encoders.caption_transformer import WideningBlock
from vsecore.encoders.reasoning import RegionGraph, TransformerReasoner
from vsecore.encoders.reasoning.region_graph import GraphLayer
from vsecore.encoders.reasoning.transformer import Block
from vsecore.pooling import FirstPool
from vsecore.recipes import get
from vsecore.recipes.written import read_work
from vsecore.similarity import unit
from vsecore.training import load_run

DIM, HEADS, WORDS = 8, 2, 6
exactly = {"rtol": 0, "atol": 1e-10}


def reasoner(**options):
    return trained(TransformerReasoner(DIM, heads=HEADS, drop=0.0, **options))


def captions_encoder(**options):
    options = {"heads": HEADS, "drop": 0.0, "left_padding": False, **options}
    return trained(CaptionTransformer(30, WORDS, DIM, **options))


def elements(rows=3, count=5, width=DIM):
    """Elements and a mask: as many rows, the first of them whole."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, count, width, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([count, 2, *torch.randint(1, count, (rows,), generator=generator)])[:rows]
    return x, torch.arange(count) < lengths[:, None]


def tokens(rows=3, count=5):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, 30, (rows, count), generator=generator), elements(rows, count)[1]


def test_the_printed_block_adds_what_it_was_given_and_the_usual_one_is_torchs():
    x, mask = elements()
    printed, usual = (trained(Block(DIM, HEADS, 5, 0.0, printed_residual=form)) for form in (True, False))
    layer, normal = printed.layer, printed.layer.norm1(x)
    z = x + layer.self_attn(normal, normal, normal, key_padding_mask=~mask)[0]
    change = layer.linear2(layer.linear1(layer.norm2(z)).relu())
    torch.testing.assert_close(printed(x, mask)[mask], (x + change)[mask], **exactly)
    torch.testing.assert_close(usual(x, mask)[mask], (z + change)[mask], **exactly)
    silent = Block(DIM, HEADS, 5, 1.0, printed_residual=True).double().train()  # whose dropout leaves nothing
    silent.load_state_dict(printed.state_dict())
    assert torch.equal(silent(x, mask), x)
    layer, silent.layer.dropout2.p = silent.layer, 0.0
    torch.testing.assert_close(silent(x, mask), x + layer.linear2.bias, **exactly)
    layer.dropout.p = 0.0
    wanted = layer.linear2(layer.linear1(layer.norm2(x)).relu())
    torch.testing.assert_close(silent(x, mask), x + wanted, **exactly)
    last = trained(Block(DIM, HEADS, 5, 0.0, norm_last=True))
    theirs = nn.TransformerEncoderLayer(DIM, HEADS, 5, 0.0, batch_first=True).double().eval()
    theirs.load_state_dict(last.layer.state_dict())
    torch.testing.assert_close(last(x, mask)[mask], theirs(x, src_key_padding_mask=~mask)[mask], **exactly)


def test_the_first_block_over_words_is_its_formula():
    block = trained(WideningBlock(WORDS, DIM, HEADS, 5, 0.0))
    x, mask = elements(width=WORDS)
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True).double()
    with torch.no_grad():  # theirs projects from its own width: here it is given what is projected
        theirs.in_proj_weight.copy_(torch.eye(DIM).repeat(3, 1))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(block.out.state_dict())
    normal = layer_norm(x, (WORDS,), block.norm1.weight, block.norm1.bias)
    projected = [part(normal) for part in (block.query, block.key, block.value)]
    z, _ = theirs(*projected, key_padding_mask=~mask)  # no word vector is added
    torch.testing.assert_close(block(x, mask)[mask], (z + block.network(block.norm2(z)))[mask], **exactly)
    silent = WideningBlock(WORDS, DIM, HEADS, 5, 1.0).double().train()  # whose dropout leaves nothing
    silent.load_state_dict(block.state_dict())
    assert not silent(x, mask).any()
    silent.dropout.p = 0.0
    wanted = silent.out.bias + silent.network[3].bias
    torch.testing.assert_close(silent(x, mask), wanted.expand(*x.shape[:2], DIM), **exactly)


def test_blocks_follow_each_other():
    model, (x, mask) = reasoner(layers=3, positions=7), elements()
    y = x + model.positions[:5]
    for block in model.blocks:
        y = block(y, mask)
    torch.testing.assert_close(model(x, mask)[0][mask], y[mask], **exactly)
    assert len({id(weight) for weight in model.parameters()}) == 1 + 3 * 12
    with pytest.raises(ValueError, match="x has 8 elements: there must be at most 7"):
        model(elements(count=8)[0])


def test_a_bag_of_words_forgets_their_order():
    vocabulary = Vocabulary(["blue", "sky", "and", "green", "grass"])
    differ = {}
    for variant in ("", "+mean_words", "+without_positions"):
        torch.manual_seed(0)
        model = get(f"thesis_grid{variant}", {"dim": 32}).build(7, vocabulary).eval()
        words, mask = vocabulary.encode(["blue sky and green grass", "green sky and blue grass"])
        one, other = model.encode_captions(words, mask).vectors
        differ[variant] = bool((one - other).norm() > 1e-4)
    assert differ == {"": True, "+mean_words": False, "+without_positions": False}


def test_padding_in_front_is_a_later_start(monkeypatch):
    words, mask = tokens(rows=4, count=6)
    room = (6 - mask.sum(1)).tolist()
    starts = [0, room[1], room[2] // 2, min(1, room[3])]
    assert sum(starts) > 0
    encoder = captions_encoder(left_padding=True)
    padded, real = torch.zeros_like(words), torch.zeros_like(mask)
    for row, start in enumerate(starts):
        place = slice(start, start + int(mask[row].sum()))
        padded[row, place], real[row, place] = words[row][mask[row]], True
    wanted, _ = encoder.eval()(padded, real)  # each word's position is its place in memory
    shares = torch.tensor([[(start + 0.5) / (free + 1)] for start, free in zip(starts, room, strict=True)])
    monkeypatch.setattr(torch, "rand", lambda *size, **options: shares)
    shifted, _ = encoder.train()(words, mask)
    torch.testing.assert_close(shifted[mask], wanted[real], **exactly)


def test_every_start_that_fits_is_drawn_in_training_and_none_in_evaluation():
    encoder = captions_encoder(left_padding=True).train()
    words, mask = tokens(rows=2)[0], torch.arange(5) < torch.tensor([[5], [2]])
    torch.manual_seed(0)  # the generator that is seeded anew in each step
    places = torch.stack([encoder._places(words, mask) for _ in range(200)])  # (200, 2, 5)
    torch.manual_seed(0)
    assert torch.equal(encoder._places(words, mask), places[0])
    assert places[:, 0].unique(dim=0).tolist() == [[0, 1, 2, 3, 4]]  # the longest has no room
    assert sorted(places[:, 1, 0].unique().tolist()) == [0, 1, 2, 3]
    assert torch.equal(places[:, 1, 1], places[:, 1, 0] + 1)
    for plain in (encoder.eval(), captions_encoder(left_padding=False).train()):
        assert torch.equal(plain._places(words, mask), torch.arange(5).expand(2, 5))


def test_a_long_caption_is_cut():
    encoder, (words, mask) = captions_encoder(longest=4), tokens(count=7)
    cut, real = encoder(words, mask)
    assert cut.shape == (3, 4, DIM) and torch.equal(real, mask[:, :4])
    torch.testing.assert_close(cut[real], encoder(words[:, :4], mask[:, :4])[0][real], **exactly)


def test_the_learned_element_stands_in_front_and_gathers_the_others():
    model, (x, mask) = reasoner(cls=True, positions=5), elements()
    out, longer = model(x.requires_grad_(), mask)
    assert torch.equal(longer, torch.cat([torch.ones(3, 1, dtype=torch.bool), mask], 1))
    in_front = torch.cat([model.cls.expand(3, 1, DIM), x + model.positions], 1)
    pooled = FirstPool()(out, longer)
    torch.testing.assert_close(pooled, model.blocks[0](in_front, longer)[:, 0], **exactly)
    of_x, of_cls = torch.autograd.grad(pooled.square().sum(), [x, model.cls])
    assert torch.equal(of_x.abs().sum(-1) > 0, mask)  # every real element is heard, no padding
    assert of_cls.abs().min() > 0


@pytest.mark.parametrize("released", [False, True])
def test_the_region_graph_is_its_formula(released):
    x, mask = elements()
    graph = trained(RegionGraph(DIM, layers=2, released_normalisation=released))
    axis = 0 if released else 1  # over the elements, or over the features
    out, same = graph(x, mask)
    assert same is mask and not out[~mask].any()
    for row, real, found in zip(x, mask, out, strict=True):
        own = row[real] / row[real].norm(dim=axis, keepdim=True)
        for layer in graph.layers:
            norm, relations = layer.normalise, layer.theta(own) @ layer.phi(own).T / len(own)
            heard = layer.out(relations @ layer.message(own)) - norm.running_mean
            own = own + heard / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        torch.testing.assert_close(found[real], own / own.norm(dim=axis, keepdim=True), **exactly)


@pytest.mark.parametrize("training", [False, True])
def test_the_region_graph_starts_as_the_identity_and_leaves_it(training):
    """Batch normalisation starts at 0, but its gradient does not."""
    x, mask = elements()
    clean = torch.where(mask.unsqueeze(-1), x, 0)
    layer = GraphLayer(DIM).double().train(training)
    assert torch.equal(layer(clean, mask), clean) and torch.equal(layer(x), x)
    graph = RegionGraph(DIM).double().train(training)
    out, _ = graph(x, mask)
    torch.testing.assert_close(out, unit(clean), rtol=0, atol=1e-15)
    out[..., 0].sum().backward()
    assert len(graph.layers) == 4
    for layer in graph.layers:
        assert layer.normalise.weight.grad.any() and layer.normalise.bias.grad.any()
        assert not layer.theta.weight.grad.any()  # until batch normalisation lets it through
    assert not torch.equal(graph.layers[0].theta.weight, graph.layers[1].theta.weight)


SMALL = {"dim": 32, "training__learning_rate": 1e-3, "training__batch_size": 20, "training__epochs": 1}
NAMES = [
    *(f"thesis_{feature}{variant}" for feature in ("grid", "region")
      for variant in ("", *(f"+{name}" for name in read_work("thesis")[1]))),
    *(f"tern_{feature}_{text}" for feature in ("grid", "region") for text in ("bert", "words")),
]  # fmt: skip


def small_recipe(name, folder=None, **changes):
    data = small_data("region" if "region" in name else "grid")
    if "bert" in name:
        make_bert(folder, data.train.captions)
        reader = {"text__encoder__weights": str(folder)}
    else:
        reader = {"text__encoder__word_dim": 8, "text__encoder__minimum_count": 1}
    return recipe(name, **{**SMALL, **reader, **changes}), data


@pytest.mark.parametrize("name", NAMES)
def test_every_system_takes_two_steps_and_no_weight_is_left_behind(name, tmp_path):
    weights = []

    def callback(event):
        if event.kind == "step":
            weights.append({n: w.detach().clone() for n, w in event.system.named_parameters()})
            assert not [n for n, w in event.system.named_parameters() if w.grad is None]

    run = train(*small_recipe(name, tmp_path / "bert"), callback=callback)
    assert len(weights) == 2 and run.history[-1]["loss"] > 0
    assert any("blocks" in n and not torch.equal(w, weights[0][n]) for n, w in weights[1].items())


def test_shared_layers_learn_from_both_towers():
    a_recipe, data = small_recipe("tern_region_words")
    tokenizer = a_recipe.tokenizer(data.train.captions)
    model = a_recipe.build(7, tokenizer).double().eval()
    shared = {name: weight for name, weight in model.named_parameters() if "shared" in name}
    assert len(shared) == 2 * 12 and not [name for name in model.state_dict() if "reasoner.shared" in name]
    v = model.encode_pictures(torch.randn(4, 5, 7, dtype=torch.float64)).vectors
    t = model.encode_captions(*tokenizer.encode(data.train.captions[:4])).vectors
    losses = [(side * torch.arange(32)).sum() for side in (v, t, v + t)]
    gradients = [torch.autograd.grad(loss, list(shared.values()), retain_graph=True) for loss in losses]
    for one, other, both in zip(*gradients, strict=True):
        assert one.any() and other.any()
        torch.testing.assert_close(both, one + other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["tern_region_bert", "thesis_grid"])
def test_a_run_resumes_with_the_same_bits(name, tmp_path):
    changes = {"training__batch_size": 10, "training__epochs": 2, "dim": 16}
    a_recipe, data = small_recipe(name, tmp_path / "bert", **changes)
    state = assert_resumes_with_the_same_bits(tmp_path / "run", a_recipe, data, stop=5)
    kept = {key for key in state if key.startswith("model.shared.")}
    loaded = load_run(tmp_path / "run").model.state_dict()
    assert kept == {f"model.{key}" for key in loaded if key.startswith("shared.")}
    assert bool(kept) == ("tern" in name)
