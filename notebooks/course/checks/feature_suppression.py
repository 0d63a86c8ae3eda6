"""Exercises of notebook 15: reliance on a mark, a linear probe, InfoNCE's gradient, the loss by place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of

Function = Callable[..., Any]


def _like(reference: Function, answer: Function, *given: Any) -> bool:
    """Whether an answer gives the same numbers, in the same shape, as something else."""
    made, expected = answer(*given), reference(*given)
    return made.shape == expected.shape and torch.allclose(made, expected, atol=1e-5)


# ---------------------------------------------------------------- 15.reliance


def _found(S: Tensor, owner: Tensor, k: int, ties: float = 0.0) -> Tensor:
    """Which captions have their own picture among the first k, (Nc,); ties count against it."""
    own = S.gather(0, owner[None])[0]  # (Nc,)
    return (own + ties <= S).sum(0) <= k


def _reliance(right: Tensor, swapped: Tensor, owner: Tensor, k: int = 10) -> Tensor:
    before = _found(right, owner, k)
    return 1 - _found(swapped, owner, k)[before].float().mean()


def _tested() -> tuple[Tensor, Tensor, Tensor]:
    """Similarities of 20 pictures with 60 captions, twice, and whose captions they are."""
    generator = torch.Generator().manual_seed(15)
    owner = torch.arange(60) // 3
    own = torch.arange(20)[:, None] == owner
    right, swapped = (torch.randn(20, 60, generator=generator) + gain * own for gain in (1.6, 0.8))
    return right, swapped, owner


def _of_all(right: Tensor, swapped: Tensor, owner: Tensor, k: int = 10) -> Tensor:
    return (_found(right, owner, k) & ~_found(swapped, owner, k)).float().mean()


def _by_counts(right: Tensor, swapped: Tensor, owner: Tensor, k: int = 10) -> Tensor:
    return 1 - _found(swapped, owner, k).sum() / _found(right, owner, k).sum()


def _kept(right: Tensor, swapped: Tensor, owner: Tensor, k: int = 10) -> Tensor:
    return 1 - _reliance(right, swapped, owner, k)


def _one_less(right: Tensor, swapped: Tensor, owner: Tensor, k: int = 10) -> Tensor:
    return _reliance(right, swapped, owner, k - 1)


def _same_share(reference: Function, answer: Function, k: int = 5) -> bool:
    return near(answer(*_tested(), k), float(reference(*_tested(), k)), 1e-5)


def _two_captions() -> tuple[Tensor, Tensor, Tensor]:
    """Two captions of four pictures: the second shares its first place with another picture at first."""
    right = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    swapped = torch.tensor([[0.0, 0.0], [0.5, 1.0], [0.0, 0.5], [0.0, 0.0]])
    return right, swapped, torch.tensor([0, 1])


# ---------------------------------------------------------------- 15.probe


def _probe(z: Tensor, said: Tensor, alpha: float = 1.0) -> Tensor:
    z, said = z - z.mean(0, keepdim=True), said - said.mean(0, keepdim=True)
    return torch.linalg.inv(z.T @ z + alpha * torch.eye(z.shape[1])) @ z.T @ said


def _told() -> tuple[Tensor, Tensor]:
    """Vectors (40, 5) whose mean is not zero, and which of three words the captions have, (40, 3)."""
    generator = torch.Generator().manual_seed(5)
    z = torch.randn(40, 5, generator=generator) + 0.5
    noise = torch.randn(40, 3, generator=generator)
    return z, (z[:, :3] + 0.5 * noise > 0.8).float()


def _without_means(z: Tensor, said: Tensor, alpha: float = 1.0) -> Tensor:
    return torch.linalg.inv(z.T @ z + alpha * torch.eye(z.shape[1])) @ z.T @ said


def _one_mean(z: Tensor, said: Tensor, alpha: float = 1.0) -> Tensor:
    return _without_means(z, said - said.mean(0), alpha)


def _without_alpha(z: Tensor, said: Tensor, alpha: float = 1.0) -> Tensor:
    return _probe(z, said, 0.0)


def _per_caption(z: Tensor, said: Tensor, alpha: float = 1.0) -> Tensor:
    return _probe(z, said, alpha * len(z))


def _alpha_everywhere(z: Tensor, said: Tensor, alpha: float = 1.0) -> Tensor:
    z, said = z - z.mean(0), said - said.mean(0)
    return torch.linalg.inv(z.T @ z + alpha) @ z.T @ said


# ---------------------------------------------------------------- 15.gradient

Pair = tuple[Tensor, Tensor]


def _pulls(q: Tensor, v: Tensor, own: int, tau: float = 0.05) -> Pair:
    exponentials = ((v @ q - (v @ q).max()) / tau).exp()  # (C,)
    pull = torch.arange(len(v)).eq(own).float() - exponentials / exponentials.sum()
    return pull @ v, torch.outer(pull, q)


def _query() -> Pair:
    """A query (6,) and five candidates (5, 6), all of length one."""
    generator = torch.Generator().manual_seed(51)
    q, v = torch.randn(6, generator=generator), torch.randn(5, 6, generator=generator)
    return q / q.norm(), v / v.norm(dim=1, keepdim=True)


def _same_pulls(
    reference: Function, answer: Function, cases: Sequence[tuple[int, float]] = ((2, 0.5), (0, 0.5), (4, 0.2))
) -> bool:
    return all(
        torch.allclose(mine, theirs, atol=1e-5)
        for own, tau in cases
        for mine, theirs in zip(answer(*_query(), own, tau), reference(*_query(), own, tau), strict=True)
    )


def _pushes(q: Tensor, v: Tensor, own: int, tau: float) -> Pair:
    dq, dv = _pulls(q, v, own, tau)
    return -dq, -dv


def _not_times_tau(q: Tensor, v: Tensor, own: int, tau: float) -> Pair:
    dq, dv = _pulls(q, v, own, tau)
    return dq / tau, dv / tau


def _gradient_itself(q: Tensor, v: Tensor, own: int, tau: float) -> Pair:
    dq, dv = _not_times_tau(q, v, own, tau)
    return -dq, -dv


def _no_temperature(q: Tensor, v: Tensor, own: int, tau: float) -> Pair:
    return _pulls(q, v, own, 1.0)


def _full_pull(q: Tensor, v: Tensor, own: int, tau: float) -> Pair:
    """The positive pulls with 1, not with 1 - Z."""
    pull = -(v @ q / tau).softmax(0)
    pull[own] = 1.0
    return pull @ v, torch.outer(pull, q)


def _never_pulled(q: Tensor, v: Tensor, own: int, tau: float) -> Pair:
    pull = -(v @ q / tau).softmax(0)
    return pull @ v, torch.outer(pull, q)


def _negatives_alone(q: Tensor, v: Tensor, own: int, tau: float) -> Pair:
    """A softmax in which the positive has no part."""
    logits = (v @ q / tau).index_fill(0, torch.tensor([own]), -torch.inf)
    pull = -logits.softmax(0)
    pull[own] = 1.0
    return pull @ v, torch.outer(pull, q)


# ---------------------------------------------------------------- 15.places


def _by_place(logits: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    """The mean loss at each place, one place after the other, (L,)."""
    means = []
    for place in range(words.shape[1]):
        rows = mask[:, place].nonzero()[:, 0]
        chosen = logits[rows, place]  # (n, V)
        true = chosen.gather(1, words[rows, place, None])[:, 0]
        means.append((chosen.logsumexp(1) - true).mean())
    return torch.stack(means)


def _sentences(filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (4, 5, 7) that hold `filler` at padding, the true words (4, 5), and which are real."""
    generator = torch.Generator().manual_seed(4)
    logits = 2 * torch.randn(4, 5, 7, generator=generator)
    mask = torch.arange(5) < torch.tensor([5, 3, 2, 4])[:, None]
    words = torch.randint(1, 7, (4, 5), generator=generator).masked_fill(~mask, 0)
    return logits.masked_fill(~mask[..., None], filler), words, mask


def _costs(logits: Tensor, words: Tensor) -> Tensor:
    return logits.logsumexp(2) - logits.gather(2, words[..., None])[..., 0]  # (C, L)


def _summed(logits: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    return (_costs(logits, words) * mask).sum(0)


def _over_all_captions(logits: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    return _summed(logits, words, mask) / len(words)


def _padding_counts(logits: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    return _costs(logits, words).mean(0)


def _logits_alone(logits: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    return -(logits.gather(2, words[..., None])[..., 0] * mask).sum(0) / mask.sum(0)


def _probabilities(logits: Tensor, words: Tensor, mask: Tensor) -> Tensor:
    return ((-_costs(logits, words)).exp() * mask).sum(0) / mask.sum(0)


EXERCISES: dict[str, Exercise] = {
    "15.guess": Exercise(
        "What happens without the mark",
        "predict",
        3,
        one_of("right", "swapped", "gone"),
        difficulty="easy",
        message=NOTED,
    ),
    "15.reliance": Exercise(
        "A measure of reliance",
        "code",
        12,
        (
            Trial(
                lambda answer: 0 <= float(answer(*_tested(), 5)) <= 1,
                "A share is wanted: one number from 0 to 1.",
            ),
            Trial(
                lambda answer: near(answer(_tested()[0], _tested()[0], _tested()[2], 5), 0.0, 1e-5),
                "If swapping the numbers changes no similarity, no caption loses its place.",
            ),
            Trial(
                lambda answer: _same_share(_reliance, answer),
                "Of the captions found with the right numbers, count those that are not found with the "
                "swapped ones.",
            ),
            Trial(
                lambda answer: near(answer(*_two_captions(), 1), 1.0, 1e-5),
                "Ties: a picture that scores exactly as high as the own one stands before it.",
            ),
            Trial(
                lambda answer: all(_same_share(_reliance, answer, k) for k in (1, 3, 10)),
                "Use k, whatever it is.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _same_share(_of_all, answer),
                "Divide by the captions that were found with the right numbers, not by all captions: one "
                "that was never found has nothing to lose.",
            ),
            Trial(
                lambda answer: _same_share(_by_counts, answer),
                "You compare two counts. A caption found only with swapped numbers does not make up for one "
                "that was lost.",
            ),
            Trial(
                lambda answer: _same_share(_kept, answer),
                "That is the share which keeps its place. The share which loses it is wanted.",
            ),
            Trial(
                lambda answer: _same_share(_one_less, answer),
                "Off by one: if you count pictures with at least as much, the own picture counts itself.",
            ),
        ),
        reference=_reliance,
        message="Right. 0: the number is not used; 1: without it, nothing is found.",
    ),
    "15.probe": Exercise(
        "A linear probe",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_told()), Tensor) and made.shape == (5, 3),
                "Return one column for each word, (D, W).",
            ),
            Trial(
                lambda answer: _like(_probe, answer, *_told(), 1.0),
                "Take the means away from both, then solve (X'X + alpha I) W = X'Y.",
            ),
            Trial(
                lambda answer: _like(_probe, answer, *_told(), 30.0),
                "Another alpha should give other weights.",
            ),
            Trial(
                lambda answer: _like(_probe, answer, _told()[0][:4], _told()[1][:4], 1.0),
                "With fewer captions than dimensions, alpha alone makes the matrix invertible.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: any(
                    _like(wrong, answer, *_told(), 1.0) for wrong in (_without_means, _one_mean)
                ),
                "The mean over the captions is still in the vectors: take it away from both.",
            ),
            Trial(lambda answer: _like(_without_alpha, answer, *_told(), 1.0), "The alpha I is missing."),
            Trial(
                lambda answer: _like(_per_caption, answer, *_told(), 1.0),
                "Add alpha to the sum X'X, not to its mean over the captions.",
            ),
            Trial(
                lambda answer: _like(_alpha_everywhere, answer, *_told(), 1.0),
                "You added alpha to every entry. It belongs on the diagonal, alpha times the identity.",
            ),
        ),
        reference=_probe,
        instead=("Ridge", "RidgeCV", "ridge_regression"),
        message="Right. The score of a word is the vector times the word's column.",
    ),
    "15.gradient": Exercise(
        "InfoNCE's gradient by hand",
        "code",
        15,
        (
            Trial(
                lambda answer: [tuple(one.shape) for one in answer(*_query(), 2)] == [(6,), (5, 6)],
                "Return two: for the query (D,), and for all candidates (C, D), the positive among them.",
            ),
            Trial(
                lambda answer: torch.allclose(answer(*_query(), 2)[1].sum(0), torch.zeros(6), atol=1e-5),
                "Over all candidates, the weights add up to zero: 1 - Z of the positive is the Z of all "
                "negatives.",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(*_query(), 3, 0.5)[1], _pulls(*_query(), 3, 0.5)[1], atol=1e-5
                ),
                "Equations 2c and 2d: each candidate gets the query, times 1 - Z for the positive and -Z for "
                "a negative.",
            ),
            Trial(
                lambda answer: _same_pulls(_pulls, answer),
                "Equation 2b: the query gets the sum of all candidates, with the same weights.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _same_pulls(_pushes, answer),
                "The signs are turned round: these push away from the positive. The left sides are minus the "
                "gradient.",
            ),
            Trial(
                lambda answer: any(
                    _same_pulls(wrong, answer) for wrong in (_not_times_tau, _gradient_itself)
                ),
                "The left sides are minus the gradient times tau: there is no 1 / tau left.",
            ),
            Trial(
                lambda answer: _same_pulls(_no_temperature, answer),
                "Divide the cosines by tau before the softmax.",
            ),
            Trial(
                lambda answer: _same_pulls(_full_pull, answer),
                "The positive pulls with 1 - Z, which vanishes once the pair is told apart, not with 1.",
            ),
            Trial(
                lambda answer: _same_pulls(_never_pulled, answer),
                "The positive only pushes in yours: its weight is 1 - Z, not -Z.",
            ),
            Trial(
                lambda answer: _same_pulls(_negatives_alone, answer),
                "The sum under Z holds the positive too. In yours the negatives share the weight 1 among "
                "them, however well the pair is told apart.",
            ),
        ),
        reference=_pulls,
        instead=("grad", "backward", "jacobian", "jacrev", "jacfwd"),
        message="Right. These are equations 2b to 2d.",
    ),
    "15.vanish": Exercise(
        "What a shortcut leaves",
        "compute",
        6,
        (
            Trial(lambda answer: 0 < float(answer) < 1, "A weight of a softmax lies between 0 and 1."),
            Trial(
                lambda answer: float(answer) < 0.5,
                "Divide the lead of 0.5 by tau: the exponential of a negative is then tiny beside the "
                "positive's.",
            ),
            Trial(
                lambda answer: near(answer, 63 * math.exp(-10) / (1 + 63 * math.exp(-10)), 2e-5),
                "Let the positive's exponential be 1. Each of 63 negatives has exp(-0.5 / 0.05). Give four "
                "digits after the point.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 1 / (1 + 63 * math.exp(-10)), 1e-4),
                "That is Z of the positive. What is left for the negatives?",
            ),
            Trial(
                lambda answer: near(answer, math.exp(-10), 1e-6),
                "That is one negative. There are 63 of them.",
            ),
            Trial(
                lambda answer: near(answer, 63 * math.exp(-0.5) / (1 + 63 * math.exp(-0.5)), 1e-3),
                "Divide the cosines by tau first: a lead of 0.5 becomes one of 10.",
            ),
            Trial(
                lambda answer: near(answer, 64 * math.exp(-10) / (1 + 64 * math.exp(-10)), 1e-5),
                "In a batch of 64, one is the positive: 63 negatives.",
            ),
        ),
        difficulty="easy",
        message="Right. Less than a third of a percent of the gradient is left, for all features together.",
    ),
    "15.break": Exercise(
        "A temperature that cannot be satisfied",
        "break",
        8,
        (
            Trial(lambda answer: float(answer) > 0, "A temperature is above zero."),
            Trial(
                lambda answer: float(answer) > 0.1,
                "The lower the temperature, the less is left for the negatives. Go up.",
            ),
            Trial(
                lambda answer: 63 * math.exp(-2 / float(answer)) >= 1,
                "The lead is 2. The negatives have half of the weight when 63 exp(-2 / tau) is 1, the "
                "positive's share.",
            ),
        ),
        message="Right. Even a perfect separation leaves the loss with a strong gradient.",
    ),
    "15.share": Exercise(
        "Who shares my mark?",
        "compute",
        5,
        (
            Trial(lambda answer: float(answer) > 1, "A caption has 255 others beside it, and 32 marks."),
            Trial(lambda answer: float(answer) < 32, "Only one in 32 of the others has the same mark."),
            Trial(
                lambda answer: near(answer, 255 / 32, 0.05), "Each of the 255 others has its mark by chance."
            ),
        ),
        mistakes=(
            Trial(lambda answer: near(answer, 0.125, 1e-3), "You divided the marks by the pairs."),
            Trial(
                lambda answer: near(answer, 7.0, 1e-3),
                "Take the caption itself away before you divide: 255 others, each with a chance of 1 / 32.",
            ),
        ),
        difficulty="easy",
        message="Right. For these, the mark is of no use.",
    ),
    "15.places": Exercise(
        "The loss at each place",
        "code",
        10,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_sentences()), Tensor) and made.shape == (5,),
                "Return one number for each place, (L,).",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(torch.zeros(2, 3, 7), torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3) > 0),
                    torch.full((3,), math.log(7)),
                    atol=1e-4,
                ),
                "If all of V words are equally likely, the loss is log V at every place.",
            ),
            Trial(
                lambda answer: _like(_by_place, answer, *_sentences()),
                "At each place, the mean of -log p over the captions that have a word there.",
            ),
            Trial(
                lambda answer: all(
                    torch.allclose(answer(*_sentences(filler)), _by_place(*_sentences()), atol=1e-5)
                    for filler in (50.0, float("nan"))
                ),
                "Padding may hold anything, also NaN, and zero times NaN is NaN: set its losses to zero.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _like(_summed, answer, *_sentences()),
                "That is the sum. Divide by how many captions have a word at the place.",
            ),
            Trial(
                lambda answer: _like(_over_all_captions, answer, *_sentences()),
                "You divided by all captions. Late places have fewer: divide by those with a word there.",
            ),
            Trial(
                lambda answer: _like(_padding_counts, answer, *_sentences()),
                "Padding counts in your mean: use the mask.",
            ),
            Trial(
                lambda answer: _like(_logits_alone, answer, *_sentences()),
                "Logits are no log-probabilities yet: a log-softmax over the words is missing.",
            ),
            Trial(
                lambda answer: _like(_probabilities, answer, *_sentences()),
                "That is the mean probability of the true words. Take -log of each first.",
            ),
        ),
        reference=_by_place,
        message="Right. Add up over the places what captions have, and it is equation 4.",
    ),
    "15.explore": Exercise("Change one thing", "explore", 20, EXPLORED, difficulty="hard", message="Noted."),
}
