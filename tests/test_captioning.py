"""VSRN's second task, writing the caption: its value, its decoder, and the recipes that use it."""

import math
from dataclasses import replace

import pytest
import torch

from small import recipe, small_data, train
from steps import step_of_scores
from vsecore.embedding import Embedding
from vsecore.losses import LOSSES, CaptionDecoder, captioning_loss
from vsecore.training import load_run

DIM, WORDS, HIDDEN = 3, 11, 5


def batch(seed=0, lengths=(6, 3, 4)):
    """Two pictures and three captions: the first two belong to picture 1, the last to picture 0."""
    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 4, DIM, generator=dice, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True], [False, True, False, False]])
    tokens = torch.randint(4, WORDS, (3, 6), generator=dice)
    tokens[:, 0] = 1  # the symbol of the start
    token_mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    return x, mask, tokens, token_mask, torch.tensor([1, 1, 0])


def decoder(seed=0, **options):
    torch.manual_seed(seed)
    return CaptionDecoder(DIM, WORDS, HIDDEN, word_dim=4, **options).double().eval()


def written_by_loop(writes, elements, words):
    """Logits for each word after the first, one caption and one element at a time."""
    states, state = writes.reader(writes.project(elements))  # (N, H), (1, H)
    logits = []
    for word in words[:-1]:
        compared = [writes.compare_element(one) + writes.compare_state(state[0]) for one in states]
        powers = [math.exp(float(writes.compare(one.tanh()))) for one in compared]
        seen = sum(power / sum(powers) * one for power, one in zip(powers, states, strict=True))
        state = writes.writer(torch.cat([writes.embedding.weight[word], seen])[None], state)
        logits.append(writes.out(state[0]))
    return torch.stack(logits)


@pytest.mark.parametrize("lengths", [(6, 3, 4), (2, 6, 1)])
@torch.no_grad()
def test_the_decoder_agrees_with_the_loop(lengths):
    x, mask, tokens, token_mask, owner = batch(lengths=lengths)
    writes = decoder()
    logits = writes(x, mask, tokens, token_mask, owner)
    for row, own in enumerate(logits.split([length - 1 for length in lengths])):
        if lengths[row] == 1:  # it says nothing
            continue
        picture = owner[row]
        expected = written_by_loop(writes, x[picture][mask[picture]], tokens[row][token_mask[row]])
        torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-10)


def test_the_loss_adds_up_the_real_words_and_averages_over_captions():
    _, _, tokens, token_mask, _ = batch()
    logits = torch.randn(3, 5, WORDS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    costs = [
        -float(logits[row, place].log_softmax(0)[tokens[row, place + 1]])
        for row in range(3)
        for place in range(5)
        if token_mask[row, place + 1]
    ]
    real = token_mask[:, 1:]
    loss = captioning_loss(logits[real], tokens[:, 1:], real)
    assert float(loss) == pytest.approx(math.fsum(costs) / 3, abs=1e-10)
    assert captioning_loss(logits[real].half(), tokens[:, 1:], real).dtype == torch.float32


def a_step():
    x, mask, words, token_mask, owner = batch()
    positives = owner == torch.arange(2).unsqueeze(1)  # (2, 3)
    step = step_of_scores(positives.double(), positives)
    return replace(step, v=Embedding(None, x, mask), tokens=words, token_mask=token_mask)


def captioning(**options):
    torch.manual_seed(0)
    options = {"hidden": HIDDEN, "word_dim": 4} | options
    return LOSSES.build("captioning", options, dim=DIM, vocabulary_size=WORDS).double()


def test_the_module_writes_each_caption_from_the_picture_that_it_belongs_to():
    x, mask, tokens, token_mask, owner = batch()
    loss = captioning().eval()
    expected = captioning_loss(
        loss.decoder(x, mask, tokens, token_mask, owner), tokens[:, 1:], token_mask[:, 1:]
    )
    assert torch.equal(loss(a_step()), expected)


def test_a_part_of_the_input_is_left_out_in_training_only():
    loss = captioning(drop=0.5)
    assert not torch.equal(loss(a_step()), loss(a_step()))
    assert torch.equal(loss.eval()(a_step()), loss(a_step()))
    sober = captioning(drop=0.0)
    assert torch.equal(sober(a_step()), sober(a_step()))
    (x, mask, tokens, *rest), writes = batch(), decoder(drop=1 - 1e-12).train()
    nothing = writes(x, mask, tokens, *rest)
    torch.testing.assert_close(writes(-x, mask, tokens.flip(1), *rest), nothing)  # no word, and no picture


SMALL = {
    "dim": 32,
    "text__encoder__word_dim": 8,
    "text__encoder__minimum_count": 1,
    "losses__captioning__hidden": 16,
    "losses__captioning__word_dim": 8,
}


@pytest.mark.parametrize("batches", ["pairs", "pictures"])
@pytest.mark.parametrize("name", ["grid", "region", "region+released_normalisation", "region+without_graph"])
def test_they_train_and_the_caption_becomes_more_likely(name, batches):
    epochs = 3 if batches == "pairs" else 6
    small = recipe(f"vsrn_{name}", **SMALL, training__batches=batches, training__epochs=epochs)
    history = train(small, small_data(name.split("+")[0])).history
    assert history[-1]["loss_captioning"] < 0.9 * history[0]["loss_captioning"]


def test_a_run_goes_on_from_its_folder_and_needs_no_decoder_to_retrieve(tmp_path):
    run = train(recipe("vsrn_region", **SMALL), small_data("region"), folder=tmp_path)
    again = load_run(tmp_path)
    assert again.best["rsum"] == run.best["rsum"]
    assert not any("decoder" in name for name, _ in again.model.named_parameters())
