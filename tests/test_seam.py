"""The seam: a new system is a few lines beside the package. `fit`, `VSE` and `Recipe` know nothing of it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from small import assert_resumes_with_the_same_bits, recipe, small_data, train
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.losses import LOSSES, Loss
from vsecore.pooling import POOLS
from vsecore.similarity import SIMILARITIES, Similarity
from vsecore.training import encode, load_run, score_split


class WordCount(Loss):
    """Read off a caption's vector how many words it has."""

    reads = ("vectors", "elements")

    def __init__(self, dim: int, hidden: int = 4) -> None:
        super().__init__()
        self.read = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, step):
        return (self.read(step.t.vectors).squeeze(-1) - step.t.mask.sum(1)).square().mean()


def test_a_loss_with_parameters_is_trained_saved_and_resumed(add, tmp_path):
    add(LOSSES, "word_count", WordCount)
    a_recipe = recipe(losses=["triplet", {"name": "word_count", "options": {"hidden": 8}, "weight": 0.1}])
    state = assert_resumes_with_the_same_bits(tmp_path, a_recipe)
    assert state["losses.word_count.read.0.weight"].shape == (8, 16)
    run = train(a_recipe)
    assert run.history[-1]["loss_word_count"] < run.history[0]["loss_word_count"]
    terms = run.history[0]["loss_triplet"] + run.history[0]["loss_word_count"]
    assert run.history[0]["loss"] == pytest.approx(terms)
    assert load_run(tmp_path).best["rsum"] > 0


class Slots(nn.Module):
    def __init__(self, dim: int, slots: int = 3) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(slots, dim))

    def forward(self, x, mask=None):
        weights = torch.where(mask.unsqueeze(1), self.queries @ x.mT, -torch.inf).softmax(-1)  # (B, K, N)
        slots = weights @ x  # (B, K, D)
        return slots + x.mean(1, keepdim=True), {"slots": slots}


class BestPair(Similarity):
    reads, block = "vectors", (7, 11)

    def forward(self, v, t):
        return torch.einsum("bkd,cld->bckl", v.vectors, t.vectors).amax((-2, -1))

    def pairs(self, v, t):
        return torch.einsum("bkd,bld->bkl", v.vectors, t.vectors).amax((-2, -1))


class Apart(Loss):
    reads = ("slots",)

    def forward(self, step):
        return normalize(step.v.extra["slots"], dim=-1).mean(1).norm(dim=-1).mean()


def test_a_head_gives_sets_and_a_loss_reads_its_slots(add, tmp_path):
    add(POOLS, "slots", Slots)
    add(SIMILARITIES, "best_pair", BestPair)
    add(LOSSES, "apart", Apart)
    changes = {"image.pool": "slots", "image.pool.slots": 4, "text.pool": "slots", "similarity": "best_pair"}
    a_recipe = recipe(losses=["triplet", {"name": "apart", "weight": 0.01}]).override(changes)
    assert_resumes_with_the_same_bits(tmp_path, a_recipe)
    run, data = load_run(tmp_path), small_data()
    v, t = encode(run.model, data.dev, run.tokenizer)
    assert v.vectors.shape == (20, 4, 16)
    whole = run.model.scores(v, t)
    torch.testing.assert_close(score_split(run.model, data.dev, run.tokenizer), whole)  # in blocks of 7 by 11
    torch.testing.assert_close(run.model.similarity.pairs(v, t[::2]), whole[:, ::2].diagonal())


class WordsFindCells(Similarity):
    reads, block = "elements", (4, 6)

    def forward(self, v, t):
        affinity = torch.einsum("bnd,cld->bcnl", normalize(v.elements, dim=-1), normalize(t.elements, dim=-1))
        best = torch.where(v.mask[:, None, :, None], affinity, -torch.inf).amax(2)  # (B, C, L)
        return torch.where(t.mask, best, 0).sum(-1) / t.mask.sum(-1)  # (B, C)

    def pairs(self, v, t):
        return self(v, t).diagonal()


def test_a_similarity_may_read_elements_and_need_no_vectors(add, tmp_path):
    add(SIMILARITIES, "words_find_cells", WordsFindCells)
    changes = {"image.pool": None, "text.pool": None, "similarity": "words_find_cells"}
    scale = {"training__epochs": 25, "training__schedule": "constant", "training__learning_rate": 0.02}
    a_recipe = recipe(dim=32, **scale).override(changes)
    assert_resumes_with_the_same_bits(tmp_path, a_recipe)
    run, data = load_run(tmp_path), small_data()
    v, t = encode(run.model, data.dev, run.tokenizer)
    assert v.vectors is None
    torch.testing.assert_close(
        score_split(run.model, data.dev, run.tokenizer, batch_size=3), run.model.scores(v, t)
    )
    assert run.best["rsum"] > 570, "learned by heart, or nearly"


class OfflineHinge(Loss):
    reads_offline = True

    def forward(self, step):
        (_, texts), (pictures, _) = step.offline
        own = step.similarity.pairs(step.v, step.t)  # (B,)
        wrong = step.similarity.pairs(step.v, texts), step.similarity.pairs(pictures, step.t)
        return sum((0.2 - own + negative).relu().sum() for negative in wrong)


def test_offline_pairs_travel_with_a_batch_row_by_row(add, tmp_path):
    add(LOSSES, "offline_hinge", OfflineHinge)
    split = small_data().train
    texts = np.array([np.flatnonzero(split.owner != picture)[:9] for picture in range(20)])
    pictures = np.array([np.delete(np.arange(20), owner)[-5:] for owner in split.owner])
    negatives = OfflineNegatives(texts, pictures)
    a_recipe = recipe(losses=["triplet", "offline_hinge"])
    assert_resumes_with_the_same_bits(tmp_path, a_recipe, negatives=negatives)
    with pytest.raises(ValueError, match=r"data\.negatives"):
        train(a_recipe, folder=tmp_path, resume=True, negatives=OfflineNegatives(texts[:, :5], pictures))
    history = train(a_recipe, negatives=negatives).history
    assert history[-1]["loss_offline_hinge"] < history[0]["loss_offline_hinge"]


class Unread(Loss):
    reads = "vectors"

    def forward(self, step):
        return step.t.elements.mean()


def test_whoever_takes_what_is_not_kept_is_told_the_loss_and_what_it_reads(add):
    add(LOSSES, "unread", Unread)
    with pytest.raises(AttributeError) as caught:
        train(recipe(losses="unread"))
    assert "'unread', whose `reads` is ('vectors',)" in caught.value.__notes__[0]


class Broken(Loss):
    def forward(self, step):
        return step.scores.mean(0)


def test_a_loss_that_is_no_number_is_named(add):
    add(LOSSES, "broken", Broken)
    with pytest.raises(ValueError, match=r"loss 'broken' returned a tensor \(10,\): wanted a scalar"):
        train(recipe(losses="broken"))
    with pytest.raises(ValueError, match="loss 'sum' is <built-in function sum>: wanted a subclass of Loss"):
        LOSSES.register("sum", sum)
