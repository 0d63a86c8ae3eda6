"""Exercise checks: right answers pass, each typical mistake gets a message of its own."""

import pytest
import torch

from vsecore.checks import EXERCISES, check


def right_siblings(S, positives, margin=0.2):
    negatives = S.masked_fill(positives, -torch.inf)
    caption, picture = negatives.amax(1, keepdim=True), negatives.amax(0, keepdim=True)
    return ((margin + caption - S).clamp(min=0) + (margin + picture - S).clamp(min=0))[positives].sum()


def looped_siblings(S, positives, margin=0.2):
    total = torch.zeros(())
    for b, c in positives.nonzero().tolist():
        row = [S[b, j] for j in range(S.shape[1]) if not positives[b, j]]
        column = [S[i, c] for i in range(S.shape[0]) if not positives[i, c]]
        total = total + (margin + max(row) - S[b, c]).relu() + (margin + max(column) - S[b, c]).relu()
    return total


def one_caption_a_picture(S, positives, margin=0.2):
    first = positives.float().argmax(1)
    return right_siblings(S[:, first], positives[:, first], margin)


def diagonal_only(S, positives, margin=0.2):
    own = torch.zeros_like(positives)
    own[range(len(S)), positives.float().argmax(1)] = True
    negatives = S.masked_fill(own, -torch.inf)
    caption, picture = negatives.amax(1, keepdim=True), negatives.amax(0, keepdim=True)
    return ((margin + caption - S).relu() + (margin + picture - S).relu())[positives].sum()


def by_sorting(v, query, k):
    similarity = (v @ query) / (v.norm(dim=1) * query.norm())
    return similarity.argsort(descending=True)[:k]


def by_list(v, query, k):
    unit = [row / row.norm() for row in v]
    return sorted(range(len(v)), key=lambda row: -float(unit[row] @ query))[:k]


RIGHT = {
    "00.rank": [3, 3.0, torch.tensor(3)],
    "00.search": [by_sorting, by_list],
    "00.break": [0.1, 100 / 1000, torch.tensor(0.1)],
    "04.read": [0.4, torch.tensor(0.4), 0.1 + 0.3],
    "04.siblings": [right_siblings, looped_siblings],
    "04.break": [51.2, torch.tensor(51.2), 2 * 128 * 0.2],
}
WRONG = {
    "00.rank": [0, 2, 4, 1],
    "00.search": [
        lambda v, query, k: by_sorting(v, query, 1),
        lambda v, query, k: by_sorting(v, -query, k),
        lambda v, query, k: (v @ query).topk(k).indices,
    ],
    "00.break": [0, 0.001, 0.02, 100, 50],
    "04.read": [-0.1, 0.1, 0.8, 0.2],
    "04.siblings": [
        lambda S, positives, margin=0.2: right_siblings(S, positives) * torch.ones(2),
        lambda S, positives, margin=0.2: right_siblings(S, positives) / 2,
        diagonal_only,
        one_caption_a_picture,
        lambda S, positives, margin=0.2: right_siblings(S, positives, 0.2),
        lambda S, positives, margin=0.2: right_siblings(S, positives, margin).item(),
    ],
    "04.break": [0, 25.6, 0.2, 128],
}


def test_every_exercise_is_tested_here() -> None:
    assert EXERCISES.keys() == RIGHT.keys() == WRONG.keys()


@pytest.mark.parametrize("exercise", EXERCISES)
def test_right_answers_pass_however_they_are_written(exercise: str) -> None:
    for answer in RIGHT[exercise]:
        verdict = check(exercise, answer)
        assert verdict.passed, verdict


@pytest.mark.parametrize("exercise", EXERCISES)
def test_wrong_answers_fail_with_at_least_three_different_hints(exercise: str) -> None:
    verdicts = [check(exercise, answer) for answer in WRONG[exercise]]
    assert not any(verdict.passed for verdict in verdicts)
    assert len({verdict.message for verdict in verdicts}) >= 3


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_untouched_cell_is_not_answered_yet(exercise: str) -> None:
    for untouched in (..., None):
        verdict = check(exercise, untouched)
        assert verdict.points == 0 and "Not answered yet" in verdict.message


def test_a_function_left_empty_is_no_answer_and_no_crash() -> None:
    verdict = check("04.siblings", lambda *_: None)
    assert verdict.points == 0 and verdict.message


def test_code_that_stops_is_told_what_stopped_it() -> None:
    assert "ZeroDivisionError" in check("04.siblings", lambda *_: 1 / 0).message


def test_a_number_out_of_the_air_gets_nothing() -> None:
    assert check("04.read", 7).points == 0 and check("04.break", 0.3).points == 0


def test_part_of_the_way_gets_part_of_the_points() -> None:
    verdict = check("04.siblings", lambda S, positives, margin=0.2: right_siblings(S, positives))
    assert 0 < verdict.points < verdict.possible


def test_an_unknown_exercise_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"04\.read"):
        check("99.nothing", 1)
