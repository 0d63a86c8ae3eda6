"""Encoders: what they make of a picture and of a caption, and what can never change it."""

import json

import pytest
import timm
import torch
from torch import nn
from transformers import BertConfig, BertModel

from vsecore.encoders import BERTEncoder, BiGRUEncoder, GridEncoder, PatchEncoder, RegionEncoder

IMAGE_ENCODERS = [GridEncoder, RegionEncoder, PatchEncoder]


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    """A small BERT with random weights, as the hub would deliver it."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def text_encoders(bert_folder):
    torch.manual_seed(0)
    return [BiGRUEncoder(30, 8, 6).eval(), BERTEncoder(bert_folder, 6).eval()]


def prefix_mask(lengths, longest):
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("kind", IMAGE_ENCODERS)
def test_every_element_gets_the_joint_width(kind):
    mask = prefix_mask([3, 5], 5)
    elements, same = kind(7, 6)(torch.randn(2, 5, 7), mask)
    assert elements.shape == (2, 5, 6)
    assert same is mask


@pytest.mark.parametrize("kind", IMAGE_ENCODERS)
@pytest.mark.parametrize("training", [True, False])
def test_padding_of_pictures_never_changes_a_real_element(kind, training):
    torch.manual_seed(0)
    encoder = kind(7, 6).double().train(training)
    x, mask = torch.randn(3, 4, 7, dtype=torch.float64), prefix_mask([4, 2, 3], 4)
    garbage = torch.full((3, 3, 7), 1e6, dtype=torch.float64)
    padded = torch.cat([torch.where(mask[..., None], x, 1e6), garbage], 1)
    short, _ = encoder(torch.where(mask[..., None], x, 0), mask)
    long, _ = encoder(padded, torch.cat([mask, torch.zeros(3, 3, dtype=torch.bool)], 1))
    torch.testing.assert_close(long[:, :4][mask], short[mask], rtol=1e-12, atol=1e-12)


def test_no_mask_is_a_mask_of_all():
    torch.manual_seed(0)
    x, all_of_them = torch.randn(3, 4, 7), torch.ones(3, 4, dtype=torch.bool)
    for kind in IMAGE_ENCODERS:
        encoder = kind(7, 6).eval()
        torch.testing.assert_close(encoder(x)[0], encoder(x, all_of_them)[0])


def test_region_encoder_is_a_projection_and_a_small_network():
    torch.manual_seed(0)
    encoder = RegionEncoder(7, 6)
    x = torch.randn(2, 5, 7)
    elements, _ = encoder(x)
    rows = x.reshape(10, 7)
    hidden = rows @ encoder.hidden.weight.T + encoder.hidden.bias
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt()
    wanted = encoder.project(rows) + encoder.out(hidden.clamp(min=0))
    torch.testing.assert_close(elements.reshape(10, 6), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", IMAGE_ENCODERS)
def test_gradients_reach_every_parameter_of_picture_encoders(kind):
    encoder = kind(7, 6)
    encoder(torch.randn(4, 5, 7), prefix_mask([5, 1, 2, 3], 5))[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())


def test_grid_encoder_reads_pixels_through_its_backbone():
    torch.manual_seed(0)
    backbone = nn.Conv2d(3, 7, 4, stride=4)
    encoder = GridEncoder(7, 6, backbone)
    pixels = torch.randn(2, 3, 8, 12)
    elements, _ = encoder(pixels)
    assert elements.shape == (2, 6, 6)  # 2 x 3 cells
    cell = backbone(pixels)[1, :, 1, 2]  # the last cell, row by row
    torch.testing.assert_close(elements[1, 5], encoder.project(cell))


def test_patch_encoder_leaves_out_the_class_token():
    torch.manual_seed(0)
    vit = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=24, num_heads=2, num_classes=0, global_pool=""
    ).eval()
    encoder = PatchEncoder(24, 6, vit)
    pixels = torch.randn(2, 3, 32, 32)
    elements, _ = encoder(pixels)
    assert elements.shape == (2, 4, 6)  # 2 x 2 patches, no class token
    torch.testing.assert_close(elements, encoder.project(vit(pixels)[:, 1:]))


@pytest.mark.parametrize("kind", IMAGE_ENCODERS)
def test_pictures_of_a_wrong_shape_are_refused_by_name(kind):
    encoder = kind(7, 6)
    with pytest.raises(ValueError, match=r"\(B, N, 7\).*\(2, 5, 8\)"):
        encoder(torch.randn(2, 5, 8))
    with pytest.raises(ValueError, match="no backbone"):
        encoder(torch.randn(2, 3, 32, 32))
    with pytest.raises(ValueError, match="mask must be bool"):
        encoder(torch.randn(2, 5, 7), torch.ones(2, 5))
    with pytest.raises(ValueError, match="mask must be bool"):
        encoder(torch.randn(2, 5, 7), torch.ones(2, 4, dtype=torch.bool))


def test_features_are_no_pixels():
    with pytest.raises(ValueError, match="pixels"):
        GridEncoder(7, 6, nn.Identity())(torch.randn(2, 5, 7))


def test_padding_of_captions_never_changes_a_real_word(bert_folder):
    for encoder in text_encoders(bert_folder):
        encoder.double()
        tokens, mask = torch.randint(0, 30, (3, 5)), prefix_mask([5, 1, 3], 5)
        short, _ = encoder(tokens, mask)
        padded = torch.cat([torch.where(mask, tokens, 29), torch.full((3, 4), 28)], 1)
        long, _ = encoder(padded, torch.cat([mask, torch.zeros(3, 4, dtype=torch.bool)], 1))
        assert long.shape == (3, 9, 6)
        torch.testing.assert_close(long[:, :5][mask], short[mask], rtol=1e-10, atol=1e-12)


def test_company_never_changes_a_caption(bert_folder):
    for encoder in text_encoders(bert_folder):
        encoder.double()
        tokens, mask = torch.randint(0, 30, (4, 6)), prefix_mask([2, 6, 1, 4], 6)
        together, _ = encoder(tokens, mask)
        for row, length in enumerate([2, 6, 1, 4]):
            alone, _ = encoder(tokens[row : row + 1, :length])
            torch.testing.assert_close(together[row, :length], alone[0], rtol=1e-10, atol=1e-12)


def test_a_word_is_the_mean_of_both_readings():
    torch.manual_seed(0)
    encoder = BiGRUEncoder(30, 8, 6)
    tokens = torch.randint(0, 30, (1, 4))
    elements, _ = encoder(tokens)
    words = encoder.embedding(tokens)
    for direction, ordered in (("", words), ("_reverse", words.flip(1))):
        one_way = nn.GRU(8, 6, batch_first=True)
        weights = {name: getattr(encoder.gru, name + direction) for name, _ in one_way.named_parameters()}
        one_way.load_state_dict(weights)
        states, _ = one_way(ordered)
        elements = elements - (states.flip(1) if direction else states) / 2
    torch.testing.assert_close(elements, torch.zeros_like(elements), atol=1e-6, rtol=0)


def test_word_vectors_begin_as_they_are_given():
    vectors = torch.randn(30, 8)
    encoder = BiGRUEncoder(30, 8, 6, vectors)
    assert torch.equal(encoder.embedding.weight, vectors)
    assert encoder.embedding.weight.requires_grad
    vectors.zero_()
    assert encoder.embedding.weight.abs().sum() > 0, "the encoder keeps a copy"


def test_gradients_reach_every_parameter_of_caption_encoders(bert_folder):
    tokens = torch.arange(30).reshape(5, 6)
    for encoder in text_encoders(bert_folder):
        # A weighted sum: layer norm makes the plain sum of some states a constant.
        (encoder(tokens)[0] * torch.randn(6)).square().sum().backward()
        silent = [
            name
            for name, p in encoder.named_parameters()
            # A key's bias adds the same to all logits of a softmax, which takes it away again.
            if (p.grad is None or not p.grad.abs().sum() > 0) and "key.bias" not in name
        ]
        assert not silent


@pytest.mark.parametrize(
    ("tokens", "mask", "message"),
    [
        (torch.zeros(2, 0, dtype=torch.int64), None, "L > 0"),
        (torch.zeros(2, 3), None, "whole numbers"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3), "mask must be bool"),
    ],
)
def test_tokens_of_a_wrong_shape_are_refused_by_name(tokens, mask, message, bert_folder):
    for encoder in text_encoders(bert_folder):
        with pytest.raises(ValueError, match=message):
            encoder(tokens, mask)


def test_a_caption_without_a_word_is_refused():
    with pytest.raises(ValueError, match=r"caption 1 .* without a word"):
        BiGRUEncoder(30, 8, 6)(torch.zeros(2, 3, dtype=torch.int64), prefix_mask([2, 0], 3))


def test_padding_before_a_word_is_refused():
    with pytest.raises(ValueError, match="padding before a word"):
        BiGRUEncoder(30, 8, 6)(torch.zeros(1, 3, dtype=torch.int64), torch.tensor([[False, True, True]]))


def test_vectors_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(30, 8\).*\(29, 8\)"):
        BiGRUEncoder(30, 8, 6, torch.zeros(29, 8))


def test_more_pieces_than_positions_are_refused(bert_folder):
    with pytest.raises(ValueError, match="at most 12"):
        BERTEncoder(bert_folder, 6)(torch.zeros(1, 13, dtype=torch.int64))


def test_bert_without_weights_has_its_architecture(bert_folder, tmp_path):
    (tmp_path / "config.json").write_text((bert_folder / "config.json").read_text())
    bare = BERTEncoder(tmp_path, 6, pretrained=False)
    full = BERTEncoder(bert_folder, 6)
    bare.load_state_dict(full.state_dict())
    tokens = torch.randint(0, 30, (2, 4))
    torch.testing.assert_close(bare.eval()(tokens)[0], full.eval()(tokens)[0])
    assert json.loads((tmp_path / "config.json").read_text())["hidden_size"] == 16


def test_in_batch_no_bar_is_shown(bert_folder, monkeypatch, capfd):
    monkeypatch.setenv("VSECORE_BATCH", "1")
    BERTEncoder(bert_folder, 6)
    assert capfd.readouterr().err == ""


def test_minilm_tells_a_dog_from_a_boat():
    words = pytest.importorskip("vsecore.data.words")
    try:
        folder = words.offline_minilm()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    encoder = BERTEncoder(folder, 6).eval()
    tokens, mask = words.BERTTokenizer(folder).encode(
        ["A dog runs on the grass.", "A puppy is running over a lawn.", "Two boats lie in the harbour."]
    )
    with torch.inference_mode():
        states = encoder.backbone(tokens, mask.long()).last_hidden_state
        vectors = nn.functional.normalize((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        elements, _ = encoder(tokens, mask)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]
    assert elements.shape == (*tokens.shape, 6)
