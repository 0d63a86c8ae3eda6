"""Exercise checks: they answer the learner in the same cell, at once, with partial credit and a hint.

Each notebook has a module with its exercises; `exercise` says how an answer is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from course.checks.exercise import Exercise, Judgement, Trial, judge_answer
from course.checks.restarted import explain_missing_names

__all__ = ["EXERCISES", "Exercise", "Judgement", "Trial", "check", "exercise"]

NOTEBOOKS = """start_here pictures_and_captions encoders joint_space learning_to_rank relations structural_alignment
cross_attention offline_negatives quintuplet pooling how_many_negatives ensembles_and_speed sets slots
feature_suppression latent_targets all_together full_scale search_engine""".split()
EXERCISES: dict[str, Exercise] = {
    key: task
    for notebook in NOTEBOOKS
    for key, task in import_module(f"course.checks.{notebook}").EXERCISES.items()
}

explain_missing_names()

Answer = TypeVar("Answer", bound=Callable[..., Any])


def exercise(key: str) -> Callable[[Answer], Answer]:
    """Judge the function or class below, at once, and say how far it gets: `@exercise("04.siblings")`.

    Until it is right, a right one takes its place for the cells below, so that the notebook goes on.

    Args:
        key: the exercise's.

    Raises:
        ValueError: there is no such exercise.
    """

    def judged(answer: Answer) -> Answer:
        judgement = check(key, answer)
        print(judgement)
        reference: Any = EXERCISES[key].reference
        if judgement.passed or reference is None:
            return answer
        print(f"Until then, the cells below use the solution's `{answer.__name__}`.")
        return reference

    return judged


def check(exercise: str, answer: Any) -> Judgement:
    """Judge an answer to an exercise.

    Args:
        exercise: the exercise's key, such as "04.read".
        answer: what the exercise asks for: a number, a tensor or a function. An `...` left in place counts
            as not yet answered.

    Returns:
        The judgement. Its points count the trials passed before the first that fails; its message is the
        hint for that one, or for a known mistake.

    Raises:
        ValueError: there is no such exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"exercise is {exercise!r}: it must be one of {', '.join(sorted(EXERCISES))}")
    return judge_answer(EXERCISES[exercise], answer)
