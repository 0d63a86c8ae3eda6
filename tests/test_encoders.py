"""Encoders: what they make of a picture and of a caption, and what must not change it."""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from torch import nn
from transformers import BertConfig, BertModel

from vsecore.data.language_models import offline_minilm
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.encoders import (
    IMAGE_ENCODERS,
    TEXT_ENCODERS,
    BERTEncoder,
    BiGRUEncoder,
    CellEncoder,
    RegionEncoder,
    cpu,
)
from vsecore.normalisation import ElementNorm

PICTURE_ENCODERS = [CellEncoder, RegionEncoder]

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


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
    return str(folder)


def text_encoders(bert_folder):
    torch.manual_seed(0)
    return [BiGRUEncoder(30, 8, 6).eval(), BERTEncoder(bert_folder, 6).eval()]


def prefix_mask(lengths, longest):
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("kind", PICTURE_ENCODERS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("junk", [1e6, float("nan"), float("inf")])
def test_padding_of_pictures_never_changes_a_real_element(kind, training, junk):
    torch.manual_seed(0)
    encoder = kind(7, 6).double().train(training)
    x, mask = torch.randn(3, 4, 7, dtype=torch.float64), prefix_mask([4, 2, 3], 4)
    garbage = torch.full((3, 3, 7), junk, dtype=torch.float64)
    padded = torch.cat([torch.where(mask[..., None], x, junk), garbage], 1)
    short, _ = encoder(torch.where(mask[..., None], x, 0), mask)
    long, _ = encoder(padded, torch.cat([mask, torch.zeros(3, 3, dtype=torch.bool)], 1))
    torch.testing.assert_close(long[:, :4][mask], short[mask], rtol=1e-12, atol=1e-12)
    gradients = [
        torch.autograd.grad(e.square()[:, :4][mask].sum(), encoder.project.weight) for e in (long, short)
    ]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_no_mask_is_a_mask_of_all():
    torch.manual_seed(0)
    x, all_of_them = torch.randn(3, 4, 7), torch.ones(3, 4, dtype=torch.bool)
    for kind in PICTURE_ENCODERS:
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


@pytest.mark.parametrize("masked", [False, True])
def test_element_norm_is_batch_norm_of_the_real_elements(masked):
    torch.manual_seed(0)
    ours, theirs = ElementNorm(6).double(), nn.BatchNorm1d(6).double()
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    mask = prefix_mask([4, 1, 3], 4) if masked else torch.ones(3, 4, dtype=torch.bool)
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        x = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
        weights = torch.randn(3, 4, 6, dtype=torch.float64)
        one, other = ours(x, mask if masked else None)[mask], theirs(x[mask])
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        gradients = [
            torch.autograd.grad((y * weights[mask]).sum(), [x, norm.weight, norm.bias])
            for y, norm in ((one, ours), (other, theirs))
        ]
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)
        for name, wanted in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], wanted, rtol=1e-12, atol=1e-12, msg=name)


def test_element_norm_keeps_full_precision_under_autocast():
    torch.manual_seed(0)
    x = 100 + torch.randn(8, 9, 6)
    norm = ElementNorm(6)
    exact = norm(x)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(norm(x), exact)


def region_worker(out, rank, world):
    """What each process runs: its share of the regions, and the loss of all."""
    torch.set_num_threads(1)
    if world > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    encoder = RegionEncoder(7, 6).double()
    x, mask = torch.randn(5, 4, 7, dtype=torch.float64), prefix_mask([4, 2, 3, 1, 4], 4)
    weights = torch.randn(5, 4, 6, dtype=torch.float64)
    share = slice(0, 5) if world == 1 else (slice(0, 3), slice(3, 5))[rank]  # 3 pictures here, 2 there
    elements, _ = encoder(x[share], mask[share])
    real = mask[share].unsqueeze(-1)
    (torch.where(real, elements, 0).square() * weights[share]).sum().backward()
    found = {f"gradient.{name}": p.grad for name, p in encoder.named_parameters()}
    if world > 1:
        for gradient in found.values():
            torch.distributed.all_reduce(gradient)
    found |= {f"state.{name}": value for name, value in encoder.state_dict().items()}
    found["elements"] = torch.where(real, elements, 0).detach()
    safetensors.torch.save_file(found, Path(out) / f"{rank}-of-{world}.safetensors")
    if world > 1:
        torch.distributed.destroy_process_group()


def test_two_processes_normalise_regions_by_their_joint_batch(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": paths}
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import test_encoders as t; t.region_worker({str(tmp_path)!r}, {rank}, 2)",
            ],
            env=environment,
        )
        for rank in range(2)
    ]
    region_worker(tmp_path, 0, 1)
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]
    alone = safetensors.torch.load_file(tmp_path / "0-of-1.safetensors")
    shared = [safetensors.torch.load_file(tmp_path / f"{rank}-of-2.safetensors") for rank in range(2)]
    together = torch.cat([part.pop("elements") for part in shared])
    torch.testing.assert_close(together, alone.pop("elements"), rtol=1e-12, atol=1e-12)
    for part in shared:
        torch.testing.assert_close(part, alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", PICTURE_ENCODERS)
def test_gradients_reach_every_parameter_of_picture_encoders(kind):
    encoder = kind(7, 6)
    encoder(torch.randn(4, 5, 7), prefix_mask([5, 1, 2, 3], 5))[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())


def test_cell_encoder_reads_pixels_through_its_backbone():
    torch.manual_seed(0)
    backbone = nn.Conv2d(3, 7, 4, stride=4)
    encoder = CellEncoder(7, 6, backbone)
    pixels = torch.randn(2, 3, 8, 12)
    elements, _ = encoder(pixels)
    assert elements.shape == (2, 6, 6)  # 2 x 3 cells
    cell = backbone(pixels)[1, :, 1, 2]  # the last cell, row by row
    torch.testing.assert_close(elements[1, 5], encoder.project(cell))


def test_cell_encoder_leaves_out_the_class_token():
    torch.manual_seed(0)
    vit = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=24, num_heads=2, num_classes=0, global_pool=""
    ).eval()
    encoder = CellEncoder(24, 6, vit)
    pixels = torch.randn(2, 3, 32, 32)
    elements, _ = encoder(pixels)
    assert elements.shape == (2, 4, 6)  # 2 x 2 patches, no class token
    torch.testing.assert_close(elements, encoder.project(vit(pixels)[:, 1:]))


@pytest.mark.parametrize("kind", PICTURE_ENCODERS)
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
        CellEncoder(7, 6, nn.Identity())(torch.randn(2, 5, 7))


def test_padding_of_captions_never_changes_a_real_word(bert_folder):
    for encoder in text_encoders(bert_folder):
        encoder.double()
        tokens, mask = torch.randint(0, 30, (3, 5)), prefix_mask([5, 1, 3], 5)
        short, _ = encoder(tokens, mask)
        padded = torch.cat([torch.where(mask, tokens, 29), torch.full((3, 4), 28)], 1)
        long, _ = encoder(padded, torch.cat([mask, torch.zeros(3, 4, dtype=torch.bool)], 1))
        assert long.shape == (3, 9, 6)
        torch.testing.assert_close(long[:, :5][mask], short[mask], rtol=1e-10, atol=1e-12)


def test_the_other_captions_of_a_batch_never_change_a_caption(bert_folder):
    for encoder in text_encoders(bert_folder):
        encoder.double()
        tokens, mask = torch.randint(0, 30, (4, 6)), prefix_mask([2, 6, 1, 4], 6)
        together, _ = encoder(tokens, mask)
        for row, length in enumerate([2, 6, 1, 4]):
            alone, _ = encoder(tokens[row : row + 1, :length])
            torch.testing.assert_close(together[row, :length], alone[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("counts", [[6, 4, 4, 1], [2, 6, 1, 4]])
def test_both_readings_agree_with_a_packed_network(counts):
    torch.manual_seed(0)
    encoder = BiGRUEncoder(30, 8, 6).double()
    packing = nn.GRU(8, 6, batch_first=True, bidirectional=True).double()
    for name, weight in encoder.forwards.named_parameters():
        getattr(packing, name).data.copy_(weight)
        getattr(packing, f"{name}_reverse").data.copy_(getattr(encoder.backwards, name))
    tokens, mask = torch.randint(0, 30, (4, 6)), prefix_mask(counts, 6)
    words = encoder.embedding(tokens)
    packed = nn.utils.rnn.pack_padded_sequence(words, torch.tensor(counts), True, enforce_sorted=False)
    states, _ = nn.utils.rnn.pad_packed_sequence(packing(packed)[0], batch_first=True, total_length=6)
    wanted, (elements, _) = sum(states.chunk(2, -1)) / 2, encoder(tokens, mask)
    torch.testing.assert_close(elements[mask], wanted[mask], rtol=1e-12, atol=1e-12)
    weights = torch.randn(4, 6, 6, dtype=torch.float64) * mask[..., None]
    one, other = (
        torch.autograd.grad((x * weights).sum(), encoder.embedding.weight) for x in (elements, wanted)
    )
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_recurrent_network_leaves_autocast(device, masked):
    torch.manual_seed(0)
    encoder = BiGRUEncoder(30, 8, 6).to(device)
    tokens, mask = torch.randint(0, 30, (4, 6), device=device), prefix_mask([6, 4, 4, 1], 6).to(device)
    exact, _ = encoder(tokens, mask if masked else None)
    with torch.autocast(device, torch.bfloat16):
        states, _ = encoder(tokens, mask if masked else None)
    assert states.dtype == torch.float32
    assert torch.equal(states, exact)


@pytest.mark.parametrize("lengths", [None, [3, 9, 1, 4, 9, 2], [2, 7, 7]])
def test_the_way_of_a_cpu_agrees_with_the_networks(lengths, monkeypatch):
    torch.manual_seed(0)
    encoder = BiGRUEncoder(30, 8, 6).double()
    tokens = torch.randint(4, 30, (4 if lengths is None else len(lengths), 9))
    mask = None if lengths is None else prefix_mask(lengths, 9)
    wanted = torch.randn(*tokens.shape, 6, dtype=torch.float64)
    if mask is not None:
        wanted *= mask.unsqueeze(-1)  # what comes out at the padding is open

    def words_and_gradients():
        elements = encoder(tokens, mask)[0] * (wanted != 0)
        gradients = torch.autograd.grad((elements * wanted).sum(), list(encoder.parameters()))
        return elements, *gradients

    fast = words_and_gradients()
    monkeypatch.setattr(cpu, "can_read", lambda words: False)
    torch.testing.assert_close(fast, words_and_gradients(), rtol=1e-12, atol=1e-12)


def test_the_way_of_a_cpu_has_the_gradient_of_its_values_and_no_second():
    torch.manual_seed(0)
    words = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    networks = [nn.GRU(2, 3, batch_first=True).double() for _ in range(2)]
    weights = [weight for network in networks for weight in network.parameters()]

    def read(words, *weights):
        return cpu.read_both_ways(words, prefix_mask([2, 4, 1], 4), *networks)

    assert torch.autograd.gradcheck(read, (words, *weights))
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(read(words).sum(), words, create_graph=True)


def test_no_captions_have_no_elements():
    elements, _ = BiGRUEncoder(30, 8, 6)(torch.zeros(0, 3, dtype=torch.int64))
    assert elements.shape == (0, 3, 6)


def test_nothing_is_kept_for_a_way_back_that_nobody_goes():
    encoder = BiGRUEncoder(30, 8, 6)
    tokens = torch.randint(4, 30, (3, 5))
    with torch.inference_mode():
        silent = encoder(tokens)[0]
    torch.testing.assert_close(silent, encoder(tokens)[0], rtol=0, atol=0)
    assert encoder(tokens)[0].requires_grad and not silent.requires_grad


def test_registries_build_each_encoder_from_what_a_model_knows(bert_folder):
    for name, kind in {"grid": CellEncoder, "region": RegionEncoder, "patch": CellEncoder}.items():
        encoder = IMAGE_ENCODERS.build(name, {}, feature_dim=7, dim=6, backbone=None)
        assert type(encoder) is kind
        assert encoder.backbone is None
    gru = {"word_dim": 8, "minimum_count": 1}
    vocabulary = TEXT_ENCODERS.call("gru", "tokenizer", gru, captions=["a red dog"])
    assert isinstance(vocabulary, Vocabulary)
    known = {"vocabulary_size": len(vocabulary), "dim": 6, "vectors": None, "architecture": None}
    encoder = TEXT_ENCODERS.build("gru", gru, **known)
    assert encoder.embedding.weight.shape == (7, 8)
    assert BiGRUEncoder(30).embedding.weight.shape == (30, 300)
    assert isinstance(TEXT_ENCODERS.build("bert", {"weights": bert_folder}, **known).backbone, BertModel)
    with pytest.raises(ValueError, match=r"'gru' has no option 'weights': it takes word_dim, minimum_count"):
        TEXT_ENCODERS.read("gru", {"weights": bert_folder})
    with pytest.raises(ValueError, match="'bert' needs the option 'weights'"):
        TEXT_ENCODERS.read("bert", {})


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


def test_more_pieces_than_positions_are_refused(bert_folder):
    with pytest.raises(ValueError, match="at most 12"):
        BERTEncoder(bert_folder, 6)(torch.zeros(1, 13, dtype=torch.int64))


def test_bert_without_weights_has_its_architecture(bert_folder, tmp_path):
    full = BERTEncoder(bert_folder, 6)
    full.save_architecture(tmp_path)
    bare = BERTEncoder("a model that is nowhere", 6, tmp_path)
    bare.load_state_dict(full.state_dict())
    tokens = torch.randint(0, 30, (2, 4))
    torch.testing.assert_close(bare.eval()(tokens)[0], full.eval()(tokens)[0])
    assert json.loads((tmp_path / "config.json").read_text())["hidden_size"] == 16


@pytest.mark.parametrize("kind", ["bert", "a kind of its own"])
@pytest.mark.parametrize("pretrained", [True, False])
def test_code_in_a_models_folder_is_never_run(kind, pretrained, bert_folder, tmp_path):
    folder, ran = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    for file in Path(bert_folder).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": kind, "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(
        f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
        "from transformers import BertConfig as Config, BertModel as Model\n"
    )

    def build():
        return BERTEncoder(str(folder), 6, None if pretrained else folder)

    if kind == "bert":
        assert isinstance(build().backbone, BertModel)  # transformers' own code serves
    else:
        with pytest.raises(ValueError, match=r"trust_remote_code|a kind of its own"):
            build()
    assert not ran.exists()


def test_in_batch_nothing_is_shown(bert_folder, monkeypatch, capfd):
    monkeypatch.setenv("VSECORE_BATCH", "1")
    told = []
    handler = logging.Handler()
    handler.emit = told.append
    logging.getLogger("transformers").addHandler(handler)
    try:
        BERTEncoder(bert_folder, 6)
    finally:
        logging.getLogger("transformers").removeHandler(handler)
    assert capfd.readouterr().err == "" and not told


def test_minilm_tells_a_dog_from_a_boat():
    try:
        folder = offline_minilm()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    encoder = BERTEncoder(str(folder), 6).eval()
    tokens, mask = BERTTokenizer(folder).encode(
        ["A dog runs on the grass.", "A puppy is running over a lawn.", "Two boats lie in the harbour."]
    )
    with torch.inference_mode():
        states = encoder.backbone(tokens, mask.long()).last_hidden_state
        vectors = nn.functional.normalize((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        elements, _ = encoder(tokens, mask)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]
    assert elements.shape == (*tokens.shape, 6)


@needs_gpu
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_waits_for_a_gpu(masked, bert_folder):
    torch.manual_seed(0)
    mask = prefix_mask([6, 4, 4, 1], 6).cuda() if masked else None
    tokens, pictures = torch.randint(0, 30, (4, 6)).cuda(), torch.randn(4, 6, 7).cuda()
    runs = [(encoder.cuda(), (tokens, mask)) for encoder in text_encoders(bert_folder)]
    runs += [(kind(7, 6).cuda(), (pictures, mask)) for kind in PICTURE_ENCODERS]
    for encoder, inputs in runs:
        encoder.train()
        encoder(*inputs)[0].sum().backward()  # cuDNN and cuBLAS make their preparations
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            encoder(*inputs)[0].sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type is 'roberta': wanted one of 'bert'"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000: wanted at most 1000"),
        ({"hidden_size": 2**40}, "hidden_size is 1099511627776: wanted at most"),
        ({"hidden_size": 2**20}, "make it smaller"),
        ({"hidden_size": "16"}, "hidden_size is '16': wanted a whole number"),
        ({"hidden_size": 17}, "hidden_size is 17: wanted a multiple of num_attention_heads"),
        ({"hidden_act": "print"}, "hidden_act is 'print': wanted one of"),
        ({"position_embedding_type": "relative_key"}, "wanted one of 'absolute'"),
    ],
)
@pytest.mark.parametrize("pretrained", [True, False])
def test_an_architecture_that_is_none_of_berts_is_told_by_field(
    change, message, pretrained, bert_folder, tmp_path
):
    folder = Path(shutil.copytree(bert_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=rf"config\.json: .*{message}"):
        BERTEncoder(str(folder), 6, None if pretrained else folder)


def test_weights_of_a_bert_that_are_damaged_or_of_another_are_told(bert_folder, tmp_path):
    folder = Path(shutil.copytree(bert_folder, tmp_path / "model"))
    path, config = folder / "model.safetensors", json.loads((folder / "config.json").read_text())
    for change, message in (
        ({"num_hidden_layers": 3}, r"lack encoder\.layer\.2"),
        ({"vocab_size": 31}, "damaged"),
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=message):
            BERTEncoder(str(folder), 6)
    (folder / "config.json").write_text(json.dumps(config))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"the weights in .* are damaged"):
        BERTEncoder(str(folder), 6)
    path.rename(folder / "pytorch_model.bin")  # pickles are not even looked at
    with pytest.raises(OSError, match=r"model\.safetensors"):
        BERTEncoder(str(folder), 6)


def test_features_of_cells_are_left_out_only_in_training() -> None:
    cells = torch.ones(2, 3, 8)
    torch.manual_seed(0)
    encoder = CellEncoder(8, 4, drop=0.5)
    assert not torch.equal(encoder(cells)[0], encoder(cells)[0])
    encoder.eval()
    assert torch.equal(encoder(cells)[0], encoder.project(cells))
