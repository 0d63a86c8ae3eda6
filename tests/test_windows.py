"""The window encoder: a convolution over words that padding never changes."""

import torch
from torch.nn.functional import conv1d, relu

from vsecore.encoders import TEXT_ENCODERS, WindowEncoder


def encoder(**options) -> WindowEncoder:
    torch.manual_seed(0)
    known = {"vocabulary_size": 12, "word_dim": 4, "dim": 6, "hidden": 8, "drop": 0.0}
    return WindowEncoder(**(known | options)).double()


TOKENS = torch.tensor([[1, 5, 6, 7, 2], [1, 8, 2, 0, 0]])
MASK = TOKENS != 0


def test_it_is_a_convolution_over_the_words() -> None:
    reader = encoder()
    words = reader.embedding(TOKENS[:1]).transpose(1, 2)  # (1, W, L)
    kernel = reader.hidden.weight.unflatten(1, (3, 4)).transpose(1, 2)  # (H, W, 3)
    wanted = reader.project(relu(conv1d(words, kernel, reader.hidden.bias, padding=1)).transpose(1, 2))
    assert torch.allclose(reader(TOKENS[:1], MASK[:1])[0], wanted)


def test_padding_never_changes_a_word_whatever_stands_there() -> None:
    reader = encoder()
    alone, _ = reader(TOKENS[1:, :3], MASK[1:, :3])
    junk = torch.where(MASK, TOKENS, 9)
    padded, mask = reader(junk, MASK)
    assert torch.allclose(padded[1, :3], alone[0]) and not padded[1, 3:].any() and mask is MASK
    assert torch.allclose(reader(TOKENS[:1])[0], reader(TOKENS[:1], MASK[:1])[0])


def test_neighbours_count_and_those_further_away_do_not() -> None:
    reader, other = encoder(), TOKENS[:1].clone()
    other[0, 3] = 9
    changed = (reader(TOKENS[:1])[0] != reader(other)[0]).any(2)[0]
    assert changed.tolist() == [False, False, True, True, True]
    alone = encoder(window=1)
    changed = (alone(TOKENS[:1])[0] != alone(other)[0]).any(2)[0]
    assert changed.tolist() == [False, False, False, True, False]


def test_without_the_short_cut_of_the_cpu_the_result_is_the_same() -> None:
    reader = encoder()
    real = MASK.unsqueeze(-1)
    windows = torch.nn.functional.pad(TOKENS, (1, 1)).unfold(1, 3, 1)
    assert torch.allclose(torch.where(real, reader._read(windows), 0), reader(TOKENS, MASK)[0])


def test_padding_stays_zero_and_all_else_learns() -> None:
    vectors = torch.ones(12, 4)
    reader = encoder(vectors=vectors)
    assert torch.equal(vectors, torch.ones(12, 4))  # the caller's own
    reader(TOKENS, MASK)[0].square().sum().backward()
    assert not reader.embedding.weight[0].any() and not reader.embedding.weight.grad[0].any()
    assert all(weight.grad.any() for weight in reader.parameters())
    gradients = reader.embedding.weight.grad.any(1)
    assert gradients.nonzero().flatten().tolist() == [1, 2, 5, 6, 7, 8]


def test_units_are_left_out_only_in_training() -> None:
    reader = encoder(drop=0.5)
    assert not torch.equal(reader(TOKENS)[0], reader(TOKENS)[0])
    reader.eval()
    assert torch.equal(reader(TOKENS)[0], reader(TOKENS)[0])


def test_its_vocabulary_is_counted_in_the_captions(tmp_path) -> None:
    options = {"minimum_count": 2}
    vocabulary = TEXT_ENCODERS.call("window", "tokenizer", options, captions=["a dog", "a cat"])
    assert vocabulary.words == ["a"]
    vocabulary.save(tmp_path)
    loaded = TEXT_ENCODERS.call("window", "load_tokenizer", options, folder=tmp_path)
    assert loaded.words == ["a"]
