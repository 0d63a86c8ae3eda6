"""What each encoder makes of a picture or a caption. What all of them promise is in `test_contracts`."""

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn.functional import conv1d, pad, relu

from elements import prefix_mask
from small import start_two
from vsecore import recurrence
from vsecore.encoders import (
    BiGRUEncoder,
    CaptionTransformer,
    CellEncoder,
    GRUEncoder,
    RegionEncoder,
    WindowEncoder,
)
from vsecore.encoders.reasoning import TransformerReasoner
from vsecore.normalisation import ElementNorm
from vsecore.pooling import GRUPool, Seq2SeqPool

WIDTH, DIM, WORDS = 7, 6, 30


def total(elements, real):
    """A sum that depends on every real element in its own way."""
    found = elements[real]
    weights = torch.linspace(-1, 2, found.numel(), dtype=found.dtype, device=found.device)
    return (found * weights.view_as(found)).sum() + found.square().sum()


def test_region_encoder_is_a_projection_and_a_small_network():
    torch.manual_seed(0)
    encoder, x = RegionEncoder(WIDTH, DIM), torch.randn(2, 5, WIDTH)
    elements, _ = encoder(x)
    rows = x.reshape(10, WIDTH)
    hidden = rows @ encoder.hidden.weight.T + encoder.hidden.bias
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt()
    wanted = encoder.project(rows) + encoder.out(hidden.clamp(min=0))
    torch.testing.assert_close(elements.reshape(10, DIM), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_element_norm_is_batch_norm_of_the_real_elements(masked):
    torch.manual_seed(0)
    ours, theirs = ElementNorm(6).double(), nn.BatchNorm1d(6).double()
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    mask = prefix_mask([4, 1, 3], 4) if masked else torch.ones(3, 4, dtype=torch.bool)
    for training in (True, True, False):
        ours.train(training), theirs.train(training)
        x = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
        one, other = ours(x, mask if masked else None)[mask], theirs(x[mask])
        gradients = [
            torch.autograd.grad(total(y, slice(None)), [x, norm.weight, norm.bias])
            for y, norm in ((one, ours), (other, theirs))
        ]
        torch.testing.assert_close((one, gradients[0]), (other, gradients[1]), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-12, atol=1e-12)


def region_worker(out, rank=0, world=2):
    """What each process runs: its share of the regions, and the loss of all."""
    torch.set_num_threads(1)
    if world > 1:
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    encoder = RegionEncoder(WIDTH, DIM).double()
    x, mask = torch.randn(5, 4, WIDTH, dtype=torch.float64), prefix_mask([4, 2, 3, 1, 4], 4)
    weights = torch.randn(5, 4, DIM, dtype=torch.float64)
    share = slice(0, 5) if world == 1 else (slice(0, 3), slice(3, 5))[rank]  # 3 pictures here, 2 there
    elements = torch.where(mask[share].unsqueeze(-1), encoder(x[share], mask[share])[0], 0)
    (elements.square() * weights[share]).sum().backward()
    found = {f"gradient.{name}": p.grad for name, p in encoder.named_parameters()}
    if world > 1:
        for gradient in found.values():
            torch.distributed.all_reduce(gradient)
    found |= {f"state.{name}": value for name, value in encoder.state_dict().items()}
    safetensors.torch.save_file(found | {"elements": elements.detach()}, f"{out}/{rank}-of-{world}")
    if world > 1:
        torch.distributed.destroy_process_group()


def test_two_processes_normalise_regions_by_their_joint_batch(tmp_path):
    start_two("test_encoders", "region_worker", tmp_path)
    region_worker(tmp_path, world=1)
    alone, *shared = (safetensors.torch.load_file(tmp_path / file) for file in ("0-of-1", "0-of-2", "1-of-2"))
    together = torch.cat([part.pop("elements") for part in shared])
    torch.testing.assert_close(together, alone.pop("elements"), rtol=1e-12, atol=1e-12)
    for part in shared:
        torch.testing.assert_close(part, alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("counts", [[6, 4, 4, 1], [2, 6, 1, 4]])
def test_both_readings_agree_with_a_packed_network(counts):
    torch.manual_seed(0)
    encoder, forward = BiGRUEncoder(WORDS, 8, DIM).double(), GRUEncoder(WORDS, 8, DIM).double()
    packing = nn.GRU(8, DIM, batch_first=True, bidirectional=True).double()
    for name, weight in encoder.forwards.named_parameters():
        getattr(packing, name).data.copy_(weight)
        getattr(packing, f"{name}_reverse").data.copy_(getattr(encoder.backwards, name))
    forward.embedding, forward.gru = encoder.embedding, encoder.forwards
    tokens, mask = torch.randint(0, WORDS, (4, 6)), prefix_mask(counts, 6)
    words = encoder.embedding(tokens)
    packed = nn.utils.rnn.pack_padded_sequence(words, torch.tensor(counts), True, enforce_sorted=False)
    states, _ = nn.utils.rnn.pad_packed_sequence(packing(packed)[0], batch_first=True, total_length=6)
    wanted, (elements, _) = sum(states.chunk(2, -1)) / 2, encoder(tokens, mask)
    torch.testing.assert_close(elements[mask], wanted[mask], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        forward(tokens, mask)[0][mask], states[..., :DIM][mask], rtol=1e-12, atol=1e-12
    )
    one, other = (torch.autograd.grad(total(x, mask), encoder.embedding.weight) for x in (elements, wanted))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    wide = BiGRUEncoder(WORDS, 8, 3 * DIM, states=DIM).double()
    wide.load_state_dict(encoder.state_dict(), strict=False)
    torch.testing.assert_close(wide(tokens, mask)[0][mask], wide.project(wanted)[mask])


@pytest.mark.parametrize("lengths", [None, [3, 9, 1, 4, 9, 2], [2, 7, 7]])
@pytest.mark.parametrize("kind, pool", [(GRUEncoder, Seq2SeqPool), (BiGRUEncoder, GRUPool)])
def test_the_way_of_a_cpu_agrees_with_the_networks(kind, pool, lengths, monkeypatch):
    torch.manual_seed(0)
    encoder, pool = kind(WORDS, 8, DIM).double(), pool(DIM).double()
    every = [*encoder.parameters(), *pool.parameters()]
    tokens = torch.randint(4, WORDS, (4 if lengths is None else len(lengths), 9))
    mask = None if lengths is None else prefix_mask(lengths, 9)
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask

    def words_and_gradients():
        elements = encoder(tokens, mask)[0]
        pooled = pool(elements, mask)
        gradients = torch.autograd.grad(total(elements, real) + pooled.sin().sum(), every)
        return elements[real], pooled, *gradients

    fast = words_and_gradients()
    monkeypatch.setattr(recurrence, "_packs", lambda *given: False)
    torch.testing.assert_close(fast, words_and_gradients(), rtol=1e-11, atol=1e-12)


def test_the_way_of_a_cpu_has_no_second_derivative_and_keeps_nothing_unasked():
    encoder, tokens = BiGRUEncoder(WORDS, 8, DIM), torch.randint(4, WORDS, (3, 5))
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(encoder(tokens)[0].sum(), encoder.embedding.weight, create_graph=True)
    with torch.inference_mode():
        silent = encoder(tokens)[0]
    torch.testing.assert_close(silent, encoder(tokens)[0], rtol=0, atol=0)
    assert encoder(tokens)[0].requires_grad and not silent.requires_grad
    assert encoder(tokens[:0])[0].shape == (0, 5, DIM)


def test_padding_before_a_word_is_refused_and_vectors_begin_as_they_are_given():
    for kind in (BiGRUEncoder, GRUEncoder):
        with pytest.raises(ValueError, match="padding before a word"):
            kind(WORDS, 8, DIM)(torch.zeros(1, 3, dtype=torch.int64), torch.tensor([[False, True, True]]))
    vectors = torch.randn(WORDS, 8)
    encoder = BiGRUEncoder(WORDS, 8, DIM, vectors)
    assert torch.equal(encoder.embedding.weight, vectors) and encoder.embedding.weight.requires_grad
    vectors.zero_()
    assert encoder.embedding.weight.any(), "the encoder keeps a copy"


TOKENS = torch.tensor([[1, 5, 6, 7, 2], [1, 8, 2, 0, 0]])


def window(**options):
    torch.manual_seed(0)
    known = {"vocabulary_size": 12, "word_dim": 4, "dim": 6, "hidden": 8, "drop": 0.0}
    return WindowEncoder(**(known | options)).double()


def test_a_window_is_a_convolution_over_the_words():
    reader = window()
    words = reader.embedding(TOKENS[:1]).transpose(1, 2)  # (1, W, L)
    kernel = reader.hidden.weight.unflatten(1, (3, 4)).transpose(1, 2)  # (H, W, 3)
    wanted = reader.project(relu(conv1d(words, kernel, reader.hidden.bias, padding=1)).transpose(1, 2))
    assert torch.allclose(reader(TOKENS[:1])[0], wanted)
    elements, _ = reader(TOKENS, TOKENS != 0)
    read = reader._read(pad(TOKENS, (1, 1)).unfold(1, 3, 1))  # what a GPU does
    assert torch.allclose(torch.where((TOKENS != 0).unsqueeze(-1), read, 0), elements)


def test_the_vector_of_padding_stays_zero_and_vectors_are_copied():
    reader, vectors = window(vectors=torch.ones(12, 4)), torch.ones(12, 4)
    total(*reader(TOKENS, TOKENS != 0)).backward()
    assert not reader.embedding.weight[0].any() and torch.equal(vectors, torch.ones(12, 4))
    assert reader.embedding.weight.grad.any(1).nonzero().flatten().tolist() == [1, 2, 5, 6, 7, 8]


def test_what_is_dropped_is_dropped_in_training_alone():
    torch.manual_seed(0)
    regions, words = torch.randn(3, 5, 6), torch.randint(4, 9, (3, 5))
    for encoder, x in (
        (CellEncoder(6, 64, drop=0.5), regions),
        (RegionEncoder(6, 64, drop=0.5), regions),
        (window(drop=0.5), TOKENS),
        (CaptionTransformer(9, 16, 64, layers=0, positions=False, word_drop=0.5), words),
        (CaptionTransformer(9, 16, 64, heads=2, drop=0.5), words),
        (TransformerReasoner(6, heads=2, drop=0.5), regions),
    ):
        assert not torch.equal(encoder(x)[0], encoder(x)[0])
        encoder.eval()
        assert torch.equal(encoder(x)[0], encoder(x)[0])


def test_words_and_positions_begin_small():
    words = window(vocabulary_size=500).embedding.weight.abs().max()
    assert 0.09 < words <= 0.1  # as in VSE++'s released code
    positions = TransformerReasoner(64, heads=2, positions=100).positions
    assert positions.std().item() == pytest.approx(0.02, rel=0.1)
