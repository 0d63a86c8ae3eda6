"""Metrics: right against slow and obvious counting, against the field's own tools, and fair about ties."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from eccv_caption._metrics import compute_eccv_metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from vsecore import evaluation
from vsecore.evaluation import (
    cross_retrieval_ranks,
    ensemble,
    evaluate,
    map_at_r,
    ndcg,
    r_precision,
    ranks,
    recalls,
)

RECALLS = [f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)]
KEYS = [*RECALLS, "i2t_medr", "t2i_medr", "i2t_meanr", "t2i_meanr", "rsum"]


def batch(seed, pictures=5, ties=True):
    """Scores, and one to three captions a picture, in any order."""
    dice = np.random.default_rng(seed)
    owner = np.concatenate(
        [np.arange(pictures), dice.integers(pictures, size=dice.integers(2 * pictures + 1))]
    )
    dice.shuffle(owner)
    scores = dice.normal(size=(pictures, len(owner)))
    return (scores.round() if ties else scores), owner


def five_each(pictures, seed=0):
    dice = np.random.default_rng(seed)
    return dice.normal(size=(pictures, 5 * pictures)).astype(np.float32), np.arange(5 * pictures) // 5


def ranks_by_loop(scores, owner):
    """Look for the best own item, count those of others that are as good."""
    pictures, captions = scores.shape
    i2t = [
        sum(
            scores[p, c] >= max(scores[p, own] for own in range(captions) if owner[own] == p)
            for c in range(captions)
            if owner[c] != p
        )
        for p in range(pictures)
    ]
    t2i = [
        sum(scores[p, c] >= scores[owner[c], c] for p in range(pictures) if p != owner[c])
        for c in range(captions)
    ]
    return i2t, t2i


def found(scores, owner):
    return tuple(direction.tolist() for direction in ranks(scores, owner))


@given(seed=st.integers(0, 10_000), ties=st.booleans())
@settings(max_examples=50, deadline=None)
def test_ranks_agree_with_the_double_loop(seed, ties):
    scores, owner = batch(seed, ties=ties)
    assert found(scores, owner) == ranks_by_loop(scores, owner)


@given(seed=st.integers(0, 10_000), ties=st.booleans())
@settings(max_examples=50, deadline=None)
def test_cross_retrieval_ranks_agree_with_the_double_loop(seed, ties):
    scores, owner = batch(seed, ties=ties)
    pictures, captions = scores.shape
    for caption, rank in enumerate(cross_retrieval_ranks(scores, owner).tolist()):
        own = scores[owner[caption], caption]
        among_captions = sum(
            scores[owner[caption], c] >= own for c in range(captions) if owner[c] != owner[caption]
        )
        among_pictures = sum(scores[p, caption] >= own for p in range(pictures) if p != owner[caption])
        assert rank == pytest.approx(max(among_captions * pictures / captions, among_pictures))


def test_a_collapsed_model_scores_nothing():
    owner = np.arange(60) // 5
    i2t, t2i = ranks(np.full((12, 60), 0.7), owner)
    assert i2t.tolist() == [55] * 12 and t2i.tolist() == [11] * 60
    assert evaluate(np.full((12, 60), 0.7), owner)["rsum"] == 0
    for metric in (r_precision, map_at_r, ndcg):
        assert metric(np.zeros((12, 60)), owner == np.arange(12)[:, None]) == 0


KINDS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_any_real_type_will_do(dtype):
    scores, owner = batch(0)
    assert found(torch.from_numpy(scores).to(dtype), owner) == found(scores, owner)
    relevance = torch.from_numpy(owner == np.arange(5)[:, None])
    for metric in (r_precision, map_at_r, ndcg):
        assert metric(torch.from_numpy(scores).to(dtype), relevance) == metric(scores, relevance.numpy())


def test_views_memory_maps_and_tensors_that_learn_will_do(tmp_path):
    scores, owner = batch(0)
    expected = found(scores, owner)
    np.save(tmp_path / "scores.npy", scores)
    mapped = np.load(tmp_path / "scores.npy", mmap_mode="r")
    backwards = scores[::-1].copy()[::-1]
    tensor = torch.from_numpy(scores).requires_grad_()
    transposed = torch.from_numpy(scores.T.copy()).T
    for same in (mapped, backwards, np.asfortranarray(scores), tensor, transposed):
        assert found(same, owner) == expected
        assert found(same, torch.from_numpy(owner).to(torch.int32)) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_counts_as_a_cpu_does():
    scores, owner = five_each(20)
    relevance = owner == np.arange(20)[:, None]
    on_gpu = torch.from_numpy(scores).cuda()
    assert found(on_gpu, owner) == found(scores, owner)
    assert evaluate(on_gpu, owner, folds=4) == evaluate(scores, owner, folds=4)
    for metric in (r_precision, map_at_r, ndcg):
        assert metric(on_gpu, relevance) == pytest.approx(metric(scores, relevance))


@pytest.mark.parametrize("block", [1, 40, 130])
def test_the_size_of_blocks_changes_nothing(monkeypatch, block):
    scores, owner = batch(1)
    relevance = owner == np.arange(5)[:, None]
    metrics = (found, evaluate)
    expected = [metric(scores, owner) for metric in metrics]
    shared = [metric(scores, relevance) for metric in (r_precision, map_at_r, ndcg)]
    monkeypatch.setattr(evaluation, "BLOCK", block)
    assert [metric(scores, owner) for metric in metrics] == expected
    assert [metric(scores, relevance) for metric in (r_precision, map_at_r, ndcg)] == pytest.approx(shared)


def test_recalls_count_the_first_one_five_and_ten():
    assert recalls(torch.tensor([0, 1, 4, 5, 9, 10, 99, 0])) == {"r1": 25.0, "r5": 50.0, "r10": 75.0}
    assert recalls(np.zeros(3, dtype=np.int32)) == {"r1": 100.0, "r5": 100.0, "r10": 100.0}


def test_the_median_rank_is_rounded_down_before_it_counts_from_one():
    # i2t ranks 0 and 1: the median 0.5 gives place 1
    scores = np.array([[1.0, 0.0], [2.0, 1.5]])
    assert found(scores, np.arange(2)) == ([0, 1], [1, 0])
    assert evaluate(scores, np.arange(2))["i2t_medr"] == 1


@pytest.mark.parametrize("shuffle", [False, True])
def test_folds_are_the_mean_over_consecutive_pictures_with_their_own_captions(shuffle):
    scores, owner = five_each(30)
    if shuffle:
        order = np.random.default_rng(1).permutation(150)
        scores, owner = scores[:, order], owner[order]
    parts = []
    for start in (0, 10, 20):
        inside = np.flatnonzero((owner >= start) & (owner < start + 10))
        parts.append(evaluate(scores[start : start + 10][:, inside], owner[inside] - start))
    expected = {key: np.mean([part[key] for part in parts]) for key in KEYS}
    assert evaluate(scores, owner, folds=3) == pytest.approx(expected)
    assert evaluate(torch.from_numpy(scores), torch.from_numpy(owner), folds=3) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [ranks, evaluate])
@pytest.mark.parametrize(
    ("scores", "owner", "message"),
    [
        *((wrong, np.arange(3), "scores") for wrong in ([[1.0]], np.zeros(3), np.zeros((0, 3)))),
        *((np.eye(3, dtype=kind), np.arange(3), "scores") for kind in (bool, complex)),
        (np.eye(3), np.arange(4), r"owner .*\(4,\).*\(3,\)"),
        (np.eye(3), np.arange(3.0), "owner .*float64"),
        (np.eye(3), np.array([0, 1, 3]), "owner .*3"),
        (np.eye(3), np.array([0, 1, -1]), "owner .*-1"),
        (np.eye(3), np.array([0, 2, 2]), "owner .*picture 1"),
        (np.array([[0, 0], [0, np.nan]]), np.arange(2), "scores .*NaN.* row 1"),
        (torch.full((2, 2), torch.nan), np.arange(2), "scores .*NaN.* row 0"),
    ],
)
def test_refuses_what_has_no_ranks(metric, scores, owner, message):
    with pytest.raises(ValueError, match=message):
        metric(scores, owner)


@pytest.mark.parametrize(
    ("metric", "names"),
    [
        *((partial(evaluate, *five_each(12), folds=folds), "folds") for folds in (0, 7, 2.0, True)),
        *((partial(recalls, np.array(wrong)), "ranks") for wrong in ([[0]], [], [0.0], [-1])),
        (ensemble, "scores"),
        (partial(ensemble, torch.zeros(2, 3), torch.zeros(3, 2)), "scores"),
        *((partial(ensemble, *torch.ones(2, 1, 1), weights=x), "weights") for x in ((1,), (1, 0))),
    ],
)
def test_other_arguments_that_cannot_be_are_named(metric, names):
    with pytest.raises(ValueError, match=names):
        metric()


def graded(seed, ties=True, queries=5, items=9):
    dice = np.random.default_rng(seed)
    scores = dice.normal(size=(queries, items))
    relevance = dice.integers(4, size=(queries, items)) * (dice.random((queries, items)) < 0.5)
    relevance[np.arange(queries), dice.integers(items, size=queries)] = 1 + dice.integers(3, size=queries)
    return (scores.round() if ties else scores), relevance.astype(float)


def ordered(scores, relevance):
    """The relevance of one query's items as they are shown; among equals the least relevant first."""
    return [relevance[item] for item in sorted(range(len(scores)), key=lambda i: (-scores[i], relevance[i]))]


def at_r_by_loop(scores, relevance):
    """R-precision and mAP@R: of each query's first R items, where R of all are relevant."""
    values = []
    for row, wanted in zip(scores, relevance, strict=True):
        shown = ordered(row, wanted)[: int(wanted.sum())]
        at_own = (sum(shown[: i + 1]) / (i + 1) for i in range(len(shown)) if shown[i])
        values.append((sum(shown) / len(shown), sum(at_own) / len(shown)))
    return np.mean(values, axis=0)


def ndcg_by_loop(scores, relevance, k):
    def gain(shown):
        return sum((2**degree - 1) / math.log2(place + 1) for place, degree in enumerate(shown[:k], start=1))

    pairs = zip(scores, relevance, strict=True)
    return np.mean([gain(ordered(row, wanted)) / gain(sorted(wanted, reverse=True)) for row, wanted in pairs])


@given(seed=st.integers(0, 10_000), ties=st.booleans(), k=st.sampled_from([1, 3, 9, 25]))
@settings(max_examples=50, deadline=None)
def test_shared_relevance_agrees_with_the_loops(seed, ties, k):
    scores, relevance = graded(seed, ties)
    relevant = relevance > 0
    at_r = r_precision(scores, relevant), map_at_r(scores, relevant)
    assert at_r == pytest.approx(at_r_by_loop(scores, relevant))
    assert ndcg(scores, relevance, k) == pytest.approx(ndcg_by_loop(scores, relevance, k))


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_without_ties_they_agree_with_the_tools_of_the_field(seed):
    scores, relevance = graded(seed, ties=False)
    relevant = relevance > 0
    shown = {query: list(np.argsort(-row)) for query, row in enumerate(scores)}
    wanted = {query: set(np.flatnonzero(row)) for query, row in enumerate(relevant)}
    theirs = compute_eccv_metrics(shown, wanted)
    assert r_precision(scores, relevant) == pytest.approx(theirs["eccv_rprecision"])
    assert map_at_r(scores, relevant) == pytest.approx(theirs["eccv_map_at_r"])
    assert ndcg(scores, relevance, k=4) == pytest.approx(ndcg_score(2**relevance - 1, scores, k=4))


def test_a_missing_relevance_is_zero():
    scores, relevance = graded(0)
    missing = np.where(relevance == 0, np.nan, relevance)
    assert ndcg(scores, missing) == ndcg(scores, relevance)


def test_a_query_with_nothing_relevant_gains_nothing():
    scores, relevance = graded(0)
    nothing = np.vstack([relevance, np.zeros_like(relevance[:1])])
    expected = ndcg(scores, relevance) * len(scores) / len(nothing)
    assert ndcg(np.vstack([scores, scores[:1]]), nothing) == pytest.approx(expected)


def test_ndcg_looks_at_the_first_25_unless_told_otherwise():
    scores = -np.arange(30.0)[None]
    found = [ndcg(scores, np.arange(30)[None] == place) for place in (23, 24, 25)]
    assert found == pytest.approx([1 / np.log2(25), 1 / np.log2(26), 0])


EYE = np.eye(2)


@pytest.mark.parametrize(
    ("metric", "scores", "relevance", "names"),
    [
        (r_precision, EYE, np.array([[True, False], [False, False]]), "relevance.* row 1"),
        (map_at_r, EYE, EYE, "relevance"),
        (r_precision, np.zeros((2, 3)), EYE > 0, r"relevance .*\(2, 2\).*\(2, 3\)"),
        (ndcg, np.array([[0.0, 1.0], [np.nan, 0.0]]), EYE, "scores .* row 1"),
        (ndcg, EYE, [[True, False], [False, True]], "relevance"),
        (ndcg, EYE, np.eye(2, dtype=complex), "relevance"),
        *((ndcg, EYE, np.diag([1.0, value]), "relevance .* row 1") for value in (-1, math.inf)),
        *((partial(ndcg, k=k), EYE, EYE, "k is") for k in (0, 2.5, True)),
    ],
)
def test_bad_relevance_is_named(metric, scores, relevance, names):
    with pytest.raises(ValueError, match=names):
        metric(scores, relevance)


def test_a_member_of_weight_two_counts_as_if_it_were_there_twice():
    torch.manual_seed(0)
    first, second = torch.rand(3, 5), torch.rand(3, 5)
    before = first.clone()
    torch.testing.assert_close(ensemble(first, second, weights=(2, 1)), ensemble(first, first, second))
    torch.testing.assert_close(ensemble(first, second, weights=(3, 3)), ensemble(first, second))
    assert first.equal(before)
    assert ensemble(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.5]])).tolist() == [[0.5, 0.25]]
