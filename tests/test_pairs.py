"""Pictures that differ in relations alone: who prefers the right one of two."""

import itertools

import numpy as np
import pytest
import torch

from vsecore import scenes
from vsecore.data.splits import Split
from vsecore.experiments import pair_accuracy, pair_scores
from vsecore.experiments.measures import PAIRS, sideways_captions
from vsecore.recipes import get
from vsecore.training import score_split


def by_a_loop(scores, left_right):
    to_picture, to_text, by_word = [], [], {True: [], False: []}

    def preferred(right, wrong):
        return 1.0 if right > wrong else 0.5 if right == wrong else 0.0

    pair_count, _, _, captions = scores.shape
    for pair, own, caption in itertools.product(range(pair_count), (0, 1), range(captions)):
        right = scores[pair, own, own, caption]
        to_picture.append(preferred(right, scores[pair, 1 - own, own, caption]))
        by_word[bool(left_right[pair, own, caption])].append(to_picture[-1])
        for other in range(captions):
            to_text.append(preferred(right, scores[pair, own, 1 - own, other]))
    found = (to_picture, to_text, by_word[True], by_word[False])
    return {name: 100 * sum(hits) / len(hits) for name, hits in zip(PAIRS, found, strict=True)}


def test_the_accuracies_are_those_of_a_loop_with_ties_and_without():
    dice = torch.Generator().manual_seed(0)
    for values in (2, 1000):
        scores = torch.randint(0, values, (7, 2, 2, 3), generator=dice).float()
        left_right = torch.rand(7, 2, 3, generator=dice) < 0.5
        assert pair_accuracy(scores, left_right) == pytest.approx(by_a_loop(scores, left_right))


def test_who_sees_no_relation_is_right_half_of_the_time_and_who_knows_the_truth_always():
    things = torch.rand(5, 1, 1, 4).expand(5, 2, 2, 4)  # the same for both pictures and both sets of captions
    assert set(pair_accuracy(things).values()) == {50.0}
    captions = torch.rand(5, 1, 2, 4).expand(5, 2, 2, 4)  # one caption may please it more, whatever it sees
    assert set(pair_accuracy(captions).values()) == {50.0}
    truth = torch.eye(2).view(1, 2, 2, 1).expand(5, 2, 2, 4)
    assert set(pair_accuracy(truth).values()) == {100.0}
    assert set(pair_accuracy(-truth).values()) == {0.0}
    assert pair_accuracy(truth, torch.ones(5, 2, 4, dtype=torch.bool)).keys() == set(PAIRS) - {"pairs_other"}


@pytest.mark.parametrize(
    ("scores", "sideways", "named"),
    [
        (torch.zeros(3, 2, 4), None, "scores"),
        (torch.full((1, 2, 2, 1), torch.nan), None, "scores"),
        (torch.zeros(3, 2, 2, 4), torch.zeros(3, 2, 4), "sideways"),
    ],
)
def test_what_cannot_be_counted_is_refused(scores, sideways, named):
    with pytest.raises(ValueError, match=named):
        pair_accuracy(scores, sideways)


def test_the_worlds_pairs_are_told_apart_by_their_captions_and_some_by_left_and_right_alone():
    made, sideways = scenes.pictures("test", 40, relations_only=1.0), sideways_captions(40)
    assert sideways.shape == (20, 2, 5)
    assert 0.4 < sideways.double().mean() < 0.9
    for pair, own in itertools.product(range(20), (0, 1)):
        scene, other = made[2 * pair + own].scene, made[2 * pair + 1 - own].scene
        for number, caption in enumerate(made[2 * pair + own].captions):
            assert scenes.holds(caption.form, scene) and not scenes.holds(caption.form, other)
            said = {relation for relation, _, _ in caption.form.relations}
            if sideways[pair, own, number]:
                assert said & {"left of", "right of"}, caption.text
            if said and said <= {"left of", "right of"}:
                assert sideways[pair, own, number], caption.text


def test_the_scores_of_pairs_are_those_of_the_whole_split():
    dice = np.random.default_rng(0)
    captions = [
        f"thing{picture // 2} word{picture % 3} {number}" for picture in range(8) for number in range(3)
    ]
    pixels = dice.standard_normal((8, 5, 7)).astype(np.float16)
    split = Split("test", pixels, captions, np.repeat(np.arange(8), 3), [str(row) for row in range(8)])
    changes = {"dim": 8, "text.encoder.word_dim": 4, "text.encoder.minimum_count": 1}
    recipe = get("sgraf_grid_gru+filtration", changes)  # normalises in training
    tokenizer = recipe.tokenizer(captions)
    model = recipe.build(split.pictures.shape[2], tokenizer).train()
    found, whole = pair_scores(model, split, tokenizer), score_split(model, split, tokenizer)
    assert found.shape == (4, 2, 2, 3)
    for pair, picture, owner, number in itertools.product(range(4), (0, 1), (0, 1), range(3)):
        expected = whole[2 * pair + picture, 3 * (2 * pair + owner) + number]
        assert found[pair, picture, owner, number] == pytest.approx(float(expected), abs=1e-6)
