"""What a wrong answer is told: a hint that is true of it, and no points that a worse answer would not get."""

from typing import Any

import pytest
import torch

from answers import (
    learning_to_rank,
)
from course.checks import EXERCISES, check
from course.checks.exercise import NOT_ANSWERED, Exercise, Trial, judge_answer

TOLD = [
    ("04.all", learning_to_rank.mean_of_hinges, "not a mean"),
    ("04.all", lambda S, margin=0.2: learning_to_rank.with_the_diagonal(S, margin) / S.numel(), "diagonal"),
    ("04.all", learning_to_rank.rows_only, "one direction"),
    ("04.siblings", learning_to_rank.hidden_by_zero, "negatives are below zero"),
    ("04.siblings", learning_to_rank.WRONG["04.siblings"][1], "not a mean"),
    ("04.siblings", learning_to_rank.one_caption_a_picture, "Every positive pair"),
    ("04.step", learning_to_rank.transposed, "captions in rows"),
    ("04.step", learning_to_rank.without_a_gradient_for_captions, "Only the picture tower"),
    ("04.step", learning_to_rank.without_a_gradient_for_pictures, "Only the caption tower"),
    ("04.step", learning_to_rank.stepped_twice, "not as one step"),
    ("04.break", torch.ones(4, 4), "each to its own point"),
    ("04.break", torch.zeros(4, 4), "each to its own point"),
    ("04.break", 0.4 * learning_to_rank.TIES + 0.4, "not below 0.5"),
    ("04.break", 3 * learning_to_rank.TIES, "from -1 to 1"),
]


@pytest.mark.parametrize(("exercise", "answer", "words"), TOLD)
def test_a_known_mistake_is_called_by_its_name(exercise: str, answer: Any, words: str) -> None:
    judgement = check(exercise, answer)
    assert words in judgement.message and not judgement.passed


def test_a_margin_that_is_used_is_not_asked_for() -> None:
    assert "margin is an argument" not in check("04.siblings", learning_to_rank.hidden_by_zero).message
    ignored = check(
        "04.siblings", lambda S, positives, margin=0.2: learning_to_rank.right_siblings(S, positives)
    )
    assert "margin is an argument" in ignored.message


@pytest.mark.parametrize("number", [-1.0, -0.2, 0.0, 0.3, 1.0])
def test_a_batch_of_equal_similarities_never_fools_the_loss(number: float) -> None:
    assert not check("04.break", torch.full((4, 4), number)).passed


def test_a_batch_that_fools_the_loss_has_each_pair_ahead_of_its_average_negative() -> None:
    block = torch.zeros(4, 4)
    block[:3, :3] = 0.1  # three pairs tie with each other, and the fourth has a negative as near
    block[3] = block[:, 3] = -0.05
    block[3, 3], block[3, 0], block[0, 3] = -0.05, -0.05, -0.05
    judgement = check("04.break", block)
    assert judgement.points == 2 and "on average" in judgement.message


@pytest.mark.parametrize(
    ("exercise", "nearly", "worse"),
    [("00.break", 0.001, 100), ("01.share", 0.4, 60), ("03.limit", 0.6875, 50), ("03.median", 1.5, 8)],
)
def test_an_answer_in_the_wrong_unit_gets_no_less_than_one_that_is_wrong(
    exercise: str, nearly: float, worse: float
) -> None:
    assert check(exercise, nearly).points == check(exercise, worse).points == 1


# ---------------------------------------------------------------- what stopped an answer


def test_what_stopped_the_code_comes_before_a_hint_that_may_not_be_the_reason() -> None:
    for exercise, answer, error in (
        ("04.step", learning_to_rank.without_the_mask_of_words, "TypeError"),
        ("04.siblings", learning_to_rank.with_the_diagonal_of_a_square, "RuntimeError"),
    ):
        message = check(exercise, answer).message
        assert message.startswith(f"Your code stopped with {error}: ")
        assert "may not be the reason" in message


def test_a_known_mistake_is_told_as_it_is_where_the_code_stopped() -> None:
    trial = Trial(lambda answer: answer(0) == 0, "Try zero.")
    mistake = Trial(lambda answer: answer(2) == 0.5, "You divided.")
    task = Exercise("Keep it", "code", 1, (trial,), mistakes=(mistake,))
    message = judge_answer(task, lambda x: 1 / x).message
    assert message == "Your code stopped with ZeroDivisionError: division by zero. You divided."


def test_code_that_returns_something_useless_did_not_stop() -> None:
    message = check("04.siblings", lambda S, positives, margin=0.2: S[0, 0].expand(0).sum()).message
    assert "stopped" not in message
    message = check("10.gpo", lambda places, gru, linear: "weights").message
    assert "stopped" not in message


def test_an_error_without_words_is_told_by_its_name() -> None:
    def fails(*_: Any) -> None:
        raise OverflowError

    assert check("04.all", fails).message.startswith("Your code stopped with OverflowError. (")


def test_an_answer_that_cannot_be_read_is_told_why_first() -> None:
    message = check("00.break", "0.1 %").message
    assert message.startswith("Your answer could not be read: ValueError: could not convert string to float")


@pytest.mark.parametrize(
    ("exercise", "answer"), [("04.predict", 4), ("00.explore", 3), ("00.explore", (1, 2))]
)
def test_an_answer_of_another_type_is_told_what_is_wanted(exercise: str, answer: Any) -> None:
    assert check(exercise, answer).message == EXERCISES[exercise].trials[0].hint


# ---------------------------------------------------------------- answers in two parts


def test_the_part_that_is_missing_is_named() -> None:
    text = "I expect no change"
    assert check("00.explore", (text, ...)).message == f"{NOT_ANSWERED} Part 2 of 2 is still missing."
    assert check("00.explore", (None, text)).message == f"{NOT_ANSWERED} Part 1 of 2 is still missing."
    assert check("00.explore", (..., ...)).message == NOT_ANSWERED


def test_a_short_text_is_told_how_long_it_must_be() -> None:
    assert "at least three words" in check("00.explore", ("a", "b")).message
    assert "at least three words" in check("00.explore", ("I expect no change", "b")).message
