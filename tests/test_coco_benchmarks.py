"""COCO's four tables: right against plain counting on the real lists, fair about ties, whatever the order."""

import io
from contextlib import redirect_stderr

import numpy as np
import pytest
import torch

from vsecore.data.coco_judgements import right_items, split_ids
from vsecore.evaluation import coco_benchmarks, evaluate, map_at_r, r_precision


@pytest.fixture(scope="module")
def scores():
    """Whole numbers, so that nearly every rank is decided by ties; own pairs score a little higher."""
    made = np.random.default_rng(0).integers(0, 100, size=(5000, 25000), dtype=np.int8)
    made[split_ids().owner, np.arange(25000)] += 27
    return made


@pytest.fixture(scope="module")
def result(scores):
    split = split_ids()
    return coco_benchmarks(scores, split.pictures, split.captions)


def positions(lists, queries, items):
    """For each query: its row, the columns of its right items, and how many the list names."""
    row = {int(number): place for place, number in enumerate(queries)}
    column = {int(number): place for place, number in enumerate(items)}
    return [
        (row[query], [column[item] for item in right if item in column], len(right))
        for query, right in lists.items()
    ]


def directions(benchmark, scores):
    split = split_ids()
    captions, pictures = right_items(benchmark)
    yield "i2t", scores, positions(captions, split.pictures, split.captions)
    yield "t2i", scores.T, positions(pictures, split.captions, split.pictures)


def test_coco_1k_and_5k_are_what_evaluate_says(scores, result):
    owner = split_ids().owner
    for name, folds in (("coco_1k", 5), ("coco_5k", None)):
        expected = evaluate(scores, owner, folds=folds)
        assert {key: result[f"{name}_{key}"] for key in expected} == pytest.approx(expected)
    assert result["coco_5k_t2i_r1"] > 0  # or nothing was compared


def test_cxc_recall_agrees_with_counting_the_others_that_score_as_high(scores, result):
    for way, queries, right in directions("cxc", scores):
        ranks = []
        for row, columns, _ in right:
            best = queries[row, columns].max()
            ranks.append((queries[row] >= best).sum() - (queries[row, columns] >= best).sum())
        for k in (1, 5, 10):
            assert result[f"cxc_{way}_r{k}"] == pytest.approx(100 * np.mean(np.array(ranks) < k))
    assert result["cxc_rsum"] == pytest.approx(
        sum(result[f"cxc_{way}_r{k}"] for way in ("i2t", "t2i") for k in (1, 5, 10))
    )


@pytest.mark.parametrize("benchmark", ["cxc", "eccv"])
def test_a_benchmark_agrees_with_our_own_precision(benchmark, scores, result):
    for way, queries, right in directions(benchmark, scores):
        whole = [(row, columns) for row, columns, count in right if len(columns) == count]
        assert len(whole) >= len(right) - 2  # two captions of the lists are no part of the 25,000
        part = queries[[row for row, _ in whole]]
        relevance = np.zeros(part.shape, bool)
        for place, (_, columns) in enumerate(whole):
            relevance[place, columns] = True
        slack = 2 / len(right)
        measures = {"r_precision": r_precision, "map_at_r": map_at_r}
        for name in ("r_precision", "map_at_r") if benchmark == "eccv" else ("r_precision",):
            found = result[f"{benchmark}_{way}_{name}"]
            assert found == pytest.approx(measures[name](part, relevance), abs=slack)
            assert found > 10 * slack


def test_the_order_of_rows_and_columns_changes_nothing_and_text_will_do(scores, result):
    split, dice = split_ids(), np.random.default_rng(1)
    rows, columns = dice.permutation(5000), dice.permutation(25000)
    pictures = [str(number) for number in split.pictures[rows]]  # as a `Split` keeps them
    shuffled = coco_benchmarks(scores[rows][:, columns], pictures, split.captions[columns].tolist())
    assert shuffled == pytest.approx(result)


def test_a_collapsed_model_scores_nothing_and_makes_no_noise():
    split, noise = split_ids(), io.StringIO()
    flat = torch.zeros(1, 1).expand(5000, 25000)  # one number of memory
    with redirect_stderr(noise):
        collapsed = coco_benchmarks(flat, split.pictures, split.captions)
    assert all(value == 0 for key, value in collapsed.items() if not key.endswith(("medr", "meanr")))
    assert noise.getvalue() == ""


FLAT = np.broadcast_to(np.float32(0), (5000, 25000))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("scores", FLAT[:1000, :5000]),
        ("scores", FLAT.T),
        ("scores", [[1.0]]),
        ("image_ids", range(5000)),
        ("image_ids", ["COCO_val2014_000000391895.jpg"] * 5000),
        ("image_ids", [391895] * 5000),
        ("caption_ids", range(24999)),
        ("caption_ids", np.arange(25000.0)),
    ],
    ids=range(8),
)
def test_refuses_what_is_not_the_5k_test_split(argument, value):
    split = split_ids()
    given = {"scores": FLAT, "image_ids": split.pictures, "caption_ids": split.captions} | {argument: value}
    with pytest.raises(ValueError, match=argument):
        coco_benchmarks(**given)
