"""The exercises of notebook 09, *The quintuplet loss*."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of


def _hinge(margin: float, positive: Tensor, negative: Tensor) -> Tensor:
    return (margin - positive + negative).relu()  # (B,)


def _similarities(count: int, kinds: int) -> list[Any]:
    """Random similarities of some kinds, (B,) each: open hinges and closed ones."""
    generator = torch.Generator().manual_seed(100 * count + 10 * kinds)
    return [torch.rand(count, generator=generator) * 2 - 1 for _ in range(kinds)]


def _is_one_number(answer: Any) -> bool:
    return isinstance(answer, Tensor) and answer.ndim == 0


# ---------------------------------------------------------------- 09.triplet


Two = Sequence[Tensor]


def _off_tri(
    positive: Tensor, online: Two, offline: Two, margin: float = 0.2, offline_margin: float = 0.0
) -> Tensor:
    """Four hinges for each pair, as exercise 09.triplet asks for them."""
    cost = _hinge(margin, positive, online[0]) + _hinge(margin, positive, online[1])
    cost = cost + _hinge(offline_margin, positive, offline[0]) + _hinge(offline_margin, positive, offline[1])
    return cost.sum()


def _five(count: int) -> tuple[Tensor, Two, Two]:
    """Random similarities of some pairs, of two online negatives each, and of two offline ones."""
    positive, *negatives = _similarities(count, 5)
    return positive, negatives[:2], negatives[2:]


def _of_numbers(*values: float) -> tuple[Tensor, Two, Two]:
    """One pair's five similarities."""
    positive, *negatives = (torch.tensor([value]) for value in values)
    return positive, negatives[:2], negatives[2:]


def _same_triplet(loss: Callable[..., Any], *margins: float) -> bool:
    return near(loss(*_five(6), *margins), float(_off_tri(*_five(6), *margins)), 1e-3)


def _triplet_without(which: int) -> Callable[[Any], bool]:
    """Make the trial of a mistake: whether the online hinges (1) or the offline ones (2) are left out."""
    kept: list[Any] = list(_five(6))
    kept[which] = [torch.full((6,), -9.0)] * 2
    return lambda loss: near(loss(*_five(6)), float(_off_tri(*kept)), 1e-3)


def _one_margin(loss: Callable[..., Any]) -> bool:
    return near(loss(*_five(6)), float(_off_tri(*_five(6), 0.2, 0.2)), 1e-3)


def _is_a_mean(loss: Callable[..., Any]) -> bool:
    return any(near(loss(*_five(6)) * count, float(_off_tri(*_five(6))), 1e-3) for count in (4, 6, 24))


def _swapped_triplet(loss: Callable[..., Any]) -> bool:
    """Whether the pair and its negatives have changed places in the hinges."""
    positive, online, offline = _five(6)
    costs = [_hinge(0.2, one, positive) for one in online] + [_hinge(0.0, one, positive) for one in offline]
    return near(loss(positive, online, offline), float(torch.stack(costs).sum()), 1e-3)


def _triplet_learns(loss: Callable[..., Any]) -> bool:
    positive, online, offline = _five(6)
    right = gradient_of(lambda own: _off_tri(own, online, offline), positive.clone())
    return torch.allclose(gradient_of(lambda own: loss(own, online, offline), positive), right)


# ---------------------------------------------------------------- 09.pairs

Sides = tuple[Tensor, Tensor]


def _new_pairs(positive: Tensor, of_text: Sides, of_picture: Sides, offline_margin: float = 0.0) -> Tensor:
    """Two hinges against pairs without common elements, as exercise 09.pairs asks for them."""
    (own_picture, text), (picture, own_text) = of_text, of_picture  # (B, D) each
    pair, swapped = (picture * text).sum(-1), (own_picture * own_text).sum(-1)  # (B,) each
    cost = _hinge(offline_margin, positive, pair) + _hinge(offline_margin, positive, swapped)
    return cost.sum()


def _two_sides(count: int) -> tuple[Tensor, Sides, Sides]:
    """The similarities of some pairs (B,), and unit vectors of two more pairs each, (B, D)."""
    generator = torch.Generator().manual_seed(count)
    vectors = [normalize(torch.randn(count, 5, generator=generator), dim=-1) for _ in range(4)]
    own = torch.rand(count, generator=generator) - 0.5
    return own, (vectors[0], vectors[1]), (vectors[2], vectors[3])


def _same_pairs(loss: Callable[..., Any], count: int, margin: float = 0.0) -> bool:
    sides = _two_sides(count)
    return near(loss(*sides, margin), float(_new_pairs(*sides, margin)), 1e-3)


def _belonging_pairs(loss: Callable[..., Any]) -> bool:
    """Whether the pairs that belong together are pushed apart: t_off with its own picture, and v_off."""
    own, (own_picture, text), (picture, own_text) = _two_sides(7)
    return near(
        loss(own, *_two_sides(7)[1:]), float(_new_pairs(own, (picture, text), (own_picture, own_text))), 1e-3
    )


def _one_pair_alone(loss: Callable[..., Any]) -> bool:
    own, (own_picture, text), (picture, own_text) = sides = _two_sides(7)
    halves = (picture * text, own_picture * own_text)
    return any(near(loss(*sides), float(_hinge(0.0, own, half.sum(-1)).sum()), 1e-3) for half in halves)


def _one_hinge(loss: Callable[..., Any]) -> bool:
    own, (own_picture, text), (picture, own_text) = sides = _two_sides(7)
    both = (picture * text).sum(-1) + (own_picture * own_text).sum(-1)
    return near(loss(*sides), float(_hinge(0.0, own, both).sum()), 1e-3)


def _by_matrices(loss: Callable[..., Any]) -> bool:
    """Whether all rows were multiplied with all others."""
    own, (own_picture, text), (picture, own_text) = sides = _two_sides(7)
    products = (picture @ text.T, own_picture @ own_text.T)  # (B, B) each
    costs = [
        sum(float(_hinge(0.0, one, product).sum()) for product in products) for one in (own, own[:, None])
    ]
    return any(near(loss(*sides), cost, 1e-3) for cost in costs)


def _pairs_learn(loss: Callable[..., Any]) -> bool:
    own, first, (picture, own_text) = _two_sides(7)
    right = gradient_of(lambda v: _new_pairs(own, first, (v, own_text)), picture.clone())
    return torch.allclose(gradient_of(lambda v: loss(own, first, (v, own_text)), picture), right)


# ---------------------------------------------------------------- 09.weights


def _weighted_online(
    positive: Tensor,
    online: Tensor,
    offline: Tensor,
    margin: float = 0.2,
    beta: float = 1.5,
    alpha: float = 0.3,
) -> Tensor:
    """Weighted hinge against online negatives, as exercise 09.weights asks for it."""
    weight = beta - (offline - online) / alpha  # (B,)
    return (weight * _hinge(margin, positive, online)).sum()


def _same_weighted(loss: Callable[..., Any], *options: float) -> bool:
    found = _similarities(8, 3)
    return near(loss(*found, *options), float(_weighted_online(*found, *options)), 1e-3)


def _equally_hard(loss: Callable[..., Any]) -> bool:
    positive, online, _ = _similarities(8, 3)
    return near(loss(positive, online, online), 1.5 * float(_hinge(0.2, positive, online).sum()), 1e-3)


def _weighted_learns(loss: Callable[..., Any]) -> bool:
    positive, online, offline = _similarities(8, 3)
    right = gradient_of(lambda near_by: _weighted_online(positive, online, near_by), offline.clone())
    return torch.allclose(gradient_of(lambda near_by: loss(positive, online, near_by), offline), right)


def _weighted_mean(loss: Callable[..., Any]) -> bool:
    found = _similarities(8, 3)
    return near(8 * loss(*found), float(_weighted_online(*found)), 1e-3)


def _sums_multiplied(loss: Callable[..., Any]) -> bool:
    positive, online, offline = found = _similarities(8, 3)
    weight = 1.5 - (offline - online) / 0.3
    return near(loss(*found), float(weight.sum() * _hinge(0.2, positive, online).sum()), 1e-2)


def _weighted_as(wrong: Callable[..., Tensor]) -> Callable[[Any], bool]:
    """Make the trial of a mistake: whether an answer gives what a wrong weight gives."""
    positive, online, offline = found = _similarities(8, 3)
    cost = _hinge(0.2, positive, online)
    return lambda loss: near(loss(*found), float((wrong(positive, online, offline) * cost).sum()), 1e-3)


# ---------------------------------------------------------------- 09.gradient


def _by_hand(
    positive: Tensor,
    online: Tensor,
    offline: Tensor,
    margin: float = 0.2,
    beta: float = 1.5,
    alpha: float = 0.3,
) -> tuple[Tensor, Tensor, Tensor]:
    """Three derivatives of a line of equation 5, as exercise 09.gradient asks for them."""
    gap = margin - positive + online  # (B,)
    near_by, far = (gap > 0).to(gap.dtype), (offline - positive > 0).to(gap.dtype)  # (B,) each
    weight = beta - (offline - online) / alpha
    return -near_by * weight - far, near_by * (weight + gap / alpha), far - near_by * gap / alpha


def _same_gradient(answer: Callable[..., Any], part: int, *options: float, closed: bool = False) -> bool:
    found = _similarities(40, 3)
    if closed:  # no hinge costs anything: the pair wins by far
        found = [found[0] + 9, *found[1:]]
    mine, right = answer(*found, *options)[part], _by_hand(*found, *options)[part]
    return tuple(mine.shape) == (40,) and torch.allclose(mine.float(), right, atol=1e-4)


def _constant_weight(answer: Callable[..., Any]) -> bool:
    """Whether the weight was taken for a constant: its own derivative is missing."""
    positive, online, offline = found = _similarities(40, 3)
    weight = 1.5 - (offline - online) / 0.3
    return torch.allclose(answer(*found)[1].float(), (0.2 - positive + online > 0) * weight, atol=1e-4)


def _gradient_as(*wrong: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Any], bool]:
    """Make the trial of a mistake: whether the derivatives by the two negatives are these."""

    def same(answer: Callable[..., Any]) -> bool:
        found = _similarities(40, 3)
        pairs = zip(answer(*found)[1:], wrong, strict=True)
        return all(torch.allclose(mine.float(), one(*found), atol=1e-4) for mine, one in pairs)

    return same


def _gradient_part(part: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda *found: _by_hand(*found)[part]


def _without_alpha(positive: Tensor, online: Tensor, offline: Tensor) -> Tensor:
    gap = 0.2 - positive + online
    return (gap > 0) * (1.5 - (offline - online) / 0.3 + gap)


def _offline_without_alpha(positive: Tensor, online: Tensor, offline: Tensor) -> Tensor:
    return (offline > positive).float() - _hinge(0.2, positive, online)


def _margin_in_both(answer: Callable[..., Any]) -> bool:
    """Whether the offline hinge was opened by the online one's margin."""
    positive, online, offline = found = _similarities(40, 3)
    far = (0.2 - positive + offline > 0).float()
    gap = 0.2 - positive + online
    near_by, weight = (gap > 0).float(), 1.5 - (offline - online) / 0.3
    return torch.allclose(answer(*found)[0].float(), -near_by * weight - far, atol=1e-4)


def _descends(answer: Callable[..., Any]) -> bool:
    found = _similarities(40, 3)
    pairs = zip(answer(*found), _by_hand(*found), strict=True)
    return all(torch.allclose(mine.float(), -right, atol=1e-4) for mine, right in pairs)


# ---------------------------------------------------------------- 09.break


def _seven(answer: Any) -> list[float]:
    return [float(one) for one in answer]


def _offline_cost(found: Sequence[float]) -> float:
    return sum(max(0.0, negative - found[0]) for negative in found[3:])


EXERCISES: dict[str, Exercise] = {
    "09.triplet": Exercise(
        "Offline negatives beside online ones",
        "code",
        8,
        (
            Trial(
                lambda answer: _is_one_number(answer(*_five(6))),
                "Return one number for the batch, as a tensor.",
            ),
            Trial(
                lambda answer: near(answer(*_of_numbers(0.9, 0.0, 0.0, 0.5, 0.5)), 0),
                "Here the pair wins by far: the loss should be zero.",
            ),
            Trial(
                lambda answer: near(answer(*_of_numbers(0.5, 0.4, 0.2, 0.4, 0.7)), 0.3),
                "One pair at 0.5, online negatives at 0.4 and 0.2, offline ones at 0.4 and 0.7: the hinges "
                "are 0.1, 0, 0 and 0.2.",
            ),
            Trial(lambda answer: _same_triplet(answer), "Four hinges for each pair, summed over the batch."),
            Trial(lambda answer: _same_triplet(answer, 0.5, 0.1), "Both margins are arguments: use them."),
            Trial(
                _triplet_learns,
                "The right gradient does not arrive: use torch's operations, without .item() or float().",
            ),
        ),
        mistakes=(
            Trial(_one_margin, "The offline negatives have a margin of their own, `offline_margin`."),
            Trial(_triplet_without(2), "Only the online hinges count: add those of the offline ones."),
            Trial(
                _swapped_triplet,
                "The hinges are the wrong way round: a negative has a cost where it comes near the pair.",
            ),
            Trial(_triplet_without(1), "Only the offline hinges count: equation 3 keeps the online ones."),
            Trial(
                _is_a_mean, "Your loss is a constant factor away from the right one: it is a sum, not a mean."
            ),
        ),
        difficulty="easy",
        reference=_off_tri,
        message="Right. It gives what vsecore.losses.offline_triplet gives.",
    ),
    "09.shared": Exercise(
        "What both captions share", "predict", 4, one_of("a", "b", "c", "d"), difficulty="easy", message=NOTED
    ),
    "09.pairs": Exercise(
        "Pairs without common elements",
        "code",
        10,
        (
            Trial(
                lambda answer: _is_one_number(answer(*_two_sides(7))),
                "Return one number for the batch, as a tensor.",
            ),
            Trial(
                lambda answer: near(answer(torch.ones(7), *_two_sides(7)[1:]), 0),
                "Here every pair has similarity 1, and no pair can be more similar: the loss should be zero.",
            ),
            Trial(
                lambda answer: _same_pairs(answer, 1),
                "With one pair: each of the two new pairs takes a picture and a caption that do not belong "
                "together. Which are they?",
            ),
            Trial(lambda answer: _same_pairs(answer, 7), "Two hinges for each pair, summed over the batch."),
            Trial(lambda answer: _same_pairs(answer, 7, 0.3), "The margin is an argument: use it."),
            Trial(
                _pairs_learn,
                "The right gradient does not arrive: use torch's operations, without .item() or detach.",
            ),
        ),
        mistakes=(
            Trial(
                _belonging_pairs,
                "You push apart what belongs together: a caption and its own picture. Take one side of each.",
            ),
            Trial(
                _one_pair_alone, "That is one of the two new pairs. The other takes what the first leaves."
            ),
            Trial(
                _by_matrices,
                "You compare every row with every other. Row by row, each pair has one partner: multiply "
                "element by element, and sum over the last dimension.",
            ),
            Trial(_one_hinge, "Each of the two pairs has a hinge of its own: add them after the hinge."),
        ),
        reference=_new_pairs,
        message="Right. With off_tri it gives what vsecore.losses.offline_quintuplet gives.",
    ),
    "09.weights": Exercise(
        "A weight for each online negative",
        "code",
        8,
        (
            Trial(
                lambda answer: _is_one_number(answer(*_similarities(8, 3))),
                "Return one number for the batch, as a tensor.",
            ),
            Trial(
                _equally_hard,
                "Where the online and the offline negative are equally hard, the weight is beta.",
            ),
            Trial(
                _same_weighted,
                "The weight is beta, less how much harder the offline negative is, divided by alpha.",
            ),
            Trial(
                lambda answer: _same_weighted(answer, 0.4, 2.0, 0.7),
                "Margin, beta and alpha are arguments: use them.",
            ),
            Trial(
                _weighted_learns,
                "The loss should also be learned through the weight: no detach, no .item().",
            ),
        ),
        mistakes=(
            Trial(
                _weighted_as(lambda positive, online, offline: 1.5 - (online - offline) / 0.3),
                "The sign is wrong: the harder the offline negative, the smaller the weight.",
            ),
            Trial(
                _weighted_as(lambda positive, online, offline: 1.5 - (offline - positive) / 0.3),
                "The weight compares the offline negative with the online one, not with the pair.",
            ),
            Trial(
                _weighted_as(lambda positive, online, offline: (1.5 - (offline - online) / 0.3).relu()),
                "You keep the weight from falling below zero. The equation does not; we come to that.",
            ),
            Trial(_weighted_mean, "The loss is a sum over the batch, not a mean."),
            Trial(_sums_multiplied, "Each hinge has its own weight: multiply them first, then sum."),
        ),
        difficulty="easy",
        reference=_weighted_online,
        message="Right.",
    ),
    "09.gradient": Exercise(
        "Equation 6 by hand",
        "code",
        15,
        (
            Trial(
                lambda answer: (
                    len(made := answer(*_similarities(40, 3))) == 3
                    and all(tuple(one.shape) == (40,) for one in made)
                ),
                "Return three tensors, (B,) each: by the pair, by the online and by the offline negative.",
            ),
            Trial(
                lambda answer: all(_same_gradient(answer, part, closed=True) for part in range(3)),
                "Here the pair wins by far, so no hinge is open, and every derivative should be zero.",
            ),
            Trial(
                lambda answer: _same_gradient(answer, 0),
                "By the pair: each open hinge gives -1 times its weight. The offline hinge has the weight 1.",
            ),
            Trial(
                lambda answer: _same_gradient(answer, 1),
                "By the online negative: it stands in the hinge and in the weight. Use the product rule.",
            ),
            Trial(
                lambda answer: _same_gradient(answer, 2),
                "By the offline negative: it stands in its own hinge, and in the weight of the other.",
            ),
            Trial(
                lambda answer: all(_same_gradient(answer, part, 0.5, 1.0, 0.6) for part in range(3)),
                "Margin, beta and alpha are arguments: use them.",
            ),
        ),
        mistakes=(
            Trial(_descends, "All signs are reversed: we want the derivative, not the direction of descent."),
            Trial(
                _gradient_as(_gradient_part(2), _gradient_part(1)),
                "The last two are in the wrong order: first by the online negative, then by the offline one.",
            ),
            Trial(
                _gradient_as(_without_alpha, _offline_without_alpha),
                "The derivative of the weight is 1 / alpha, or minus that: the alpha is missing.",
            ),
            Trial(_margin_in_both, "The offline hinge has a margin of 0: it opens where offline > positive."),
            Trial(_constant_weight, "The weight depends on the online negative too: use the product rule."),
        ),
        difficulty="hard",
        reference=_by_hand,
        defined_above=("weighted_online", "off_tri"),
        instead=("grad", "backward", "jacobian", "jacrev", "jacfwd"),
        message="Right. That is equation 6, but for the pair without common elements.",
    ),
    "09.negative": Exercise(
        "When the weight is negative",
        "compute",
        4,
        (
            Trial(lambda answer: -1 <= float(answer) <= 1, "Give one number between -1 and 1."),
            Trial(
                lambda answer: near(answer, 0.55, 1e-3),
                "Set the weight to zero and solve for the offline negative's similarity.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: near(answer, 0.45, 1e-3),
                "That is the gap between the two. Where is the offline one?",
            ),
            Trial(
                lambda answer: near(answer, -0.35, 1e-3),
                "The offline negative is the harder of the two: it lies above the online one.",
            ),
        ),
        difficulty="easy",
    ),
    "09.break": Exercise(
        "A loss of zero without retrieval",
        "break",
        5,
        (
            Trial(
                lambda answer: len(_seven(answer)) == 7 and all(-1 <= one <= 1 for one in _seven(answer)),
                "Give seven numbers between -1 and 1.",
            ),
            Trial(
                lambda answer: max(_seven(answer)[1:3]) >= _seven(answer)[0],
                "Here the pair still wins against both online negatives, so it would be found.",
            ),
            Trial(
                lambda answer: min(_seven(answer)[1:3]) >= _seven(answer)[0],
                "One direction still finds the pair: let both online negatives be as similar as it is.",
            ),
            Trial(
                lambda answer: near(_offline_cost(_seven(answer)), 0, 1e-6),
                "An offline hinge is open. With a margin of 0, it closes unless its negative wins.",
            ),
        ),
        message="Right, and no offline hinge notices.",
    ),
    "09.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
