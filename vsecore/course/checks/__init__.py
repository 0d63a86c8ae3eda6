"""Exercise checks: they answer the learner in the same cell, at once, with partial credit and a hint.

One module a notebook holds its exercises; `judging` says how an answer is judged.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vsecore.course.checks import (
    encoders,
    ensembles_and_speed,
    how_many_negatives,
    joint_space,
    learning_to_rank,
    pictures_and_captions,
    pooling,
    start_here,
)
from vsecore.course.checks.exercise import Exercise, Trial, Verdict, judge

__all__ = ["EXERCISES", "GRADES", "Exercise", "Trial", "Verdict", "check"]

GRADES = "VSECORE_GRADES"
"""The environment variable by which a grader names the file it wants each verdict in, a JSON line each."""

EXERCISES: dict[str, Exercise] = {
    **start_here.EXERCISES,
    **pictures_and_captions.EXERCISES,
    **encoders.EXERCISES,
    **joint_space.EXERCISES,
    **learning_to_rank.EXERCISES,
    **pooling.EXERCISES,
    **how_many_negatives.EXERCISES,
    **ensembles_and_speed.EXERCISES,
}


def check(exercise: str, answer: Any) -> Verdict:
    """Judge an answer to an exercise.

    Args:
        exercise: the exercise's key, such as "04.read".
        answer: what the exercise asks for: a number, a tensor or a function. An `...` left in place counts
            as not yet answered.

    Returns:
        The verdict; its points are the trials passed before the first that fails, its message is the hint of
        that one, or of a known mistake.

    Raises:
        ValueError: there is no such exercise.
    """
    if exercise not in EXERCISES:
        raise ValueError(f"there is no exercise {exercise!r}; there are {', '.join(sorted(EXERCISES))}")
    verdict = judge(EXERCISES[exercise], answer)
    if file := os.environ.get(GRADES):
        line = {"exercise": exercise, "points": verdict.points, "message": verdict.message}
        with Path(file).open("a", encoding="utf-8") as verdicts:
            verdicts.write(json.dumps(line) + "\n")  # ASCII: no message can break a line
    return verdict
