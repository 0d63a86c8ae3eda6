"""Exercise checks: they answer the learner in the same cell, at once, with partial credit and a hint.

An `Exercise` is a short list of trials, each a truth about a right answer with the hint that its failure
deserves. `check` runs them in order of difficulty and says how far the answer got. Any right answer passes,
however it is written: trials look at what an answer does, never at how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsecore.losses import triplet


@dataclass(frozen=True)
class Trial:
    """One truth about a right answer.

    Attributes:
        passes: given the answer, whether this truth holds. An exception counts as "no".
        hint: what to tell a learner whose answer fails here: where to look, not what to write.
    """

    passes: Callable[[Any], bool]
    hint: str


@dataclass(frozen=True)
class Exercise:
    """An exercise's trials, easiest first. Each is worth a point, and the first that fails ends the count.

    Attributes:
        title: what the learner sees it called.
        trials: each presupposes the ones before it.
        mistakes: answers that many people give, each with the hint that it deserves.
    """

    title: str
    trials: tuple[Trial, ...]
    mistakes: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What `check` found. Printed as the last line of a cell it reads as an answer to the learner."""

    title: str
    points: int
    possible: int
    message: str

    @property
    def passed(self) -> bool:
        """Whether every trial passed."""
        return self.points == self.possible

    def __repr__(self) -> str:
        """Say the points, then the message."""
        return f"{'✓' if self.passed else '…'} {self.title}: {self.points} of {self.possible}. {self.message}"


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
    task = EXERCISES[exercise]
    if answer is ... or answer is None:
        return Verdict(
            task.title, 0, len(task.trials), "Not answered yet: put your answer in place of the dots."
        )
    for points, trial in enumerate(task.trials):
        passed, trouble = _tried(trial, answer)
        if not passed:
            known = [mistake.hint for mistake in task.mistakes if _tried(mistake, answer)[0]]
            return Verdict(task.title, points, len(task.trials), [*known, trial.hint][0] + trouble)
    return Verdict(task.title, len(task.trials), len(task.trials), "Right.")


def _tried(trial: Trial, answer: Any) -> tuple[bool, str]:
    """Whether an answer passes a trial, and what stopped the learner's code, if anything did."""
    try:
        return bool(trial.passes(answer)), ""
    except Exception as error:  # whatever a learner's code raises is an answer, not the end of the lesson
        return False, f" (Your code stopped with {type(error).__name__}: {error})"


def _near(answer: Any, value: float) -> bool:
    return abs(float(answer) - value) < 1e-4


def _batch(pictures: int, captions_each: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random similarities (B, C) of pictures with several captions each, and which belong together."""
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(pictures).repeat_interleave(captions_each)  # (C,)
    scores = torch.rand(pictures, len(owner), generator=generator) * 2 - 1  # (B, C)
    return scores, torch.arange(pictures)[:, None] == owner  # (B, C)


def _same_as_triplet(
    loss: Callable[..., Any], pictures: int, captions_each: int, margin: float = 0.2
) -> bool:
    scores, positives = _batch(pictures, captions_each, seed=pictures)
    expected = float(triplet(scores, margin, positives=positives))
    return _near(loss(scores, positives, margin), expected)


def _ignores_siblings(loss: Callable[..., Any]) -> bool:
    """Whether a strong other caption of the same picture costs nothing."""
    scores, positives = torch.tensor([[0.9, 0.8, -1.0, -1.0], [-1.0, -1.0, 0.9, 0.8]]), torch.zeros(2, 4) > 0
    positives[0, :2] = positives[1, 2:] = True
    return _near(loss(scores, positives), 0.0)


def _has_gradient(loss: Callable[..., Any]) -> bool:
    scores, positives = _batch(4, 2, seed=1)
    scores.requires_grad_()
    loss(scores, positives).backward()
    return scores.grad is not None and bool(scores.grad.abs().sum() > 0)


def _finds(search: Callable[..., Any], scale: float) -> bool:
    """Whether a search by cosine gives the k nearest in order, whatever the vectors' lengths."""
    generator = torch.Generator().manual_seed(0)
    v, query = torch.randn(20, 8, generator=generator), torch.randn(8, generator=generator)
    v = torch.nn.functional.normalize(v, dim=1)  # (20, 8)
    lengths = torch.rand(20, 1, generator=generator) * scale + 1
    expected = (v @ query).topk(3).indices.tolist()
    return [int(row) for row in search(v * lengths, query, 3)] == expected


EXERCISES: dict[str, Exercise] = {
    "00.rank": Exercise(
        "Read a ranking",
        (
            Trial(
                lambda answer: int(answer) == answer >= 1,
                "A rank is a whole number, and the first place is 1.",
            ),
            Trial(
                lambda answer: answer == 3, "Sort the similarities from high to low and find 0.4 among them."
            ),
        ),
        mistakes=(
            Trial(lambda answer: answer == 2, "You counted from 0, or took one of those before it for less."),
            Trial(lambda answer: answer == 4, "You sorted from low to high? The most similar comes first."),
        ),
    ),
    "00.search": Exercise(
        "Write the search",
        (
            Trial(
                lambda answer: (
                    (made := answer(torch.eye(5), torch.ones(5), 2)) is not None and len(made) == 2
                ),
                "Return k rows of the index.",
            ),
            Trial(
                lambda answer: _finds(answer, 0.0), "The k most similar come first: sort from high to low."
            ),
            Trial(
                lambda answer: _finds(answer, 9.0),
                "Longer vectors win in yours: compare by cosine, not by dot product.",
            ),
        ),
    ),
    "00.break": Exercise(
        "Break it",
        (
            Trial(
                lambda answer: 0 < float(answer) <= 100,
                "A percentage above 0: one picture's captions are served.",
            ),
            Trial(
                lambda answer: _near(answer, 0.1),
                "Of 5,000 captions, how many own the picture that always wins?",
            ),
        ),
        mistakes=(
            Trial(lambda answer: _near(answer, 0.001), "As a share that is right; give it in percent."),
            Trial(
                lambda answer: _near(answer, 0.02),
                "You counted one caption: the winning picture owns five of them.",
            ),
            Trial(
                lambda answer: _near(answer, 100),
                "The winner is first for every query, but right for its own alone.",
            ),
        ),
    ),
    "04.read": Exercise(
        "Read a batch",
        (
            Trial(
                lambda answer: any(_near(answer, part) for part in (0.1, 0.3, 0.4)),
                "Each row: margin plus the negative minus the pair's own, and nothing if that is below zero.",
            ),
            Trial(
                lambda answer: _near(answer, 0.4),
                "You counted one direction: rows are pictures' hinges, columns are captions'; add both.",
            ),
        ),
        mistakes=(
            Trial(lambda answer: float(answer) < 0, "A sum of hinges is never below zero."),
            Trial(
                lambda answer: _near(answer, 0.2),
                "Two of the four are below zero: they cost nothing, not less.",
            ),
        ),
    ),
    "04.siblings": Exercise(
        "Five captions a picture",
        (
            Trial(
                lambda answer: isinstance(made := answer(*_batch(3, 1, 0)), Tensor) and made.ndim == 0,
                "Return one number for the batch, as a tensor: the sum over the positive pairs.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 5, 1),
                "With one caption a picture it must be this notebook's loss: check rows and columns.",
            ),
            Trial(
                _ignores_siblings,
                "Another caption of the same picture costs something: hide every positive.",
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 4, 5), "Every positive pair pays, not one a picture."
            ),
            Trial(
                lambda answer: _same_as_triplet(answer, 4, 2, margin=0.5),
                "The margin is an argument: use it.",
            ),
            Trial(
                _has_gradient,
                "No gradient arrives: stay with torch's operations, without .item() or float().",
            ),
        ),
    ),
    "04.break": Exercise(
        "Break it",
        (
            Trial(
                lambda answer: _near(answer, 128 * 0.2) or _near(answer, 2 * 128 * 0.2),
                "Every hinge is m + s − s with the pair as its own negative; how many hinges has the batch?",
            ),
            Trial(
                lambda answer: _near(answer, 2 * 128 * 0.2),
                "You counted one direction: pictures pay along rows and captions along columns.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _near(answer, 0),
                "Not nothing: what is the hardest negative of a row if the pair itself counts as one?",
            ),
        ),
    ),
}
