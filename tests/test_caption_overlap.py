"""ROUGE-L against its definition, one pair at a time."""

import numpy as np
import pytest
import torch

from vsecore.data import caption_overlap
from vsecore.data.caption_overlap import BETA, rouge_l
from vsecore.experiments.measures import graded

WORDS = ["a", "dog", "runs", "on", "the", "beach", "near", "two", "red", "boats"]


def common(first, second):
    """The length of the longest common subsequence, by the usual table."""
    table = np.zeros((len(first) + 1, len(second) + 1), int)
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            table[i + 1, j + 1] = table[i, j] + 1 if one == other else max(table[i, j + 1], table[i + 1, j])
    return table[-1, -1]


def sentences(count, seed):
    dice = np.random.default_rng(seed)
    return [" ".join(dice.choice(WORDS, dice.integers(1, 9))) for _ in range(count)]


@pytest.mark.parametrize("budget", [1, 2000, 2**20])
def test_each_degree_is_the_definition(monkeypatch, budget):
    monkeypatch.setattr(caption_overlap, "BUDGET", budget)
    queries, captions = sentences(7, 0), sentences(12, 1)
    owner = np.array([2, 0, 1, 1, 0, 2, 3, 3, 0, 1, 2, 3])
    found = rouge_l(queries, captions, owner)
    assert found.shape == (7, 4) and found.dtype == np.float32
    for row, query in enumerate(queries):
        for picture in range(4):
            said = [caption.split() for caption, one in zip(captions, owner, strict=True) if one == picture]
            lengths = [common(query.split(), words) for words in said]
            precision = max(lengths) / len(query.split())
            recall = max(length / len(words) for length, words in zip(lengths, said, strict=True))
            wanted = 0.0
            if precision and recall:
                wanted = (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)
            assert found[row, picture] == pytest.approx(wanted, abs=1e-6)


def test_recall_counts_for_more_as_in_the_evaluation_of_cocos_captions():
    short, long = "a dog", "a dog runs fast"
    found = [
        rouge_l([query], [said], np.zeros(1, int)).item() for query, said in ((short, long), (long, short))
    ]
    assert found == pytest.approx([2.44 * 0.5 / (0.5 + 1.44), 2.44 * 0.5 / (1 + 1.44 * 0.5)])


def test_case_and_punctuation_do_not_count_and_a_sentence_is_all_of_itself():
    captions = ["A dog runs.", "Two red boats", "dogs"]
    found = rouge_l(["a DOG, runs!", "dogs"], captions, np.arange(3))
    assert found[0].tolist() == pytest.approx([1, 0, 0]) and found[1].tolist() == pytest.approx([0, 0, 1])


def test_a_sentence_without_words_and_pictures_without_captions_are_refused():
    for queries, owner in ((["a dog", "..."], [0]), (["a dog"], [1]), (["a dog"], [0, 0])):
        with pytest.raises(ValueError, match=r"\.\.\.|owner"):
            rouge_l(queries, ["a dog"], np.array(owner))


def test_a_perfect_ranking_has_full_marks_and_a_reversed_one_has_not():
    from small import small_data

    split = small_data().test
    overlap = torch.from_numpy(rouge_l(split.captions, split.captions, split.owner))
    best = graded(overlap.T, split)
    assert best["t2i_ndcg_rouge_l"] == pytest.approx(100) and best["i2t_r_precision"] > 90
    assert graded(-overlap.T, split)["t2i_ndcg_rouge_l"] < 80
    louder = overlap.T + torch.linspace(0, 9, len(overlap))  # some captions score higher with all pictures
    assert graded(louder, split)["t2i_ndcg_rouge_l"] == pytest.approx(100), "captions are the queries"
