"""The exercises of notebook 06, *Structural alignment*."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, gradient_of, one_of

# ---------------------------------------------------------------- 06.pool


def _node_pooling(x: Tensor, mask: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """Pools and their weights, as exercise 06.pool asks for them."""
    logits = torch.where(mask[:, None], W @ x.mT, -torch.inf)  # (B, P, N)
    weights = logits.softmax(-1)  # (B, P, N)
    return weights @ x, weights  # (B, P, D), (B, P, N)


def _elements(counts: list[int], filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Elements (B, 5, 4) with something in the padding, their mask, and the vectors of three pools (3, 4)."""
    generator = torch.Generator().manual_seed(len(counts))
    x = torch.randn(len(counts), 5, 4, generator=generator)
    mask = torch.arange(5) < torch.tensor(counts)[:, None]
    W = torch.randn(3, 4, generator=generator)
    return x.masked_fill(~mask[..., None], filler), mask, W


def _same_pools(
    pooling: Callable[..., Any], counts: list[int], filler: float = 0.0, scale: float = 1
) -> bool:
    x, mask, W = _elements(counts, filler)
    pairs = zip(pooling(x, mask, scale * W), _node_pooling(x, mask, scale * W), strict=True)
    return all(torch.allclose(mine, right, atol=1e-5) for mine, right in pairs)


def _shapes(pooling: Callable[..., Any]) -> tuple[Any, ...]:
    return tuple(tuple(part.shape) for part in pooling(*_elements([5, 5])))


def _softmax_over_pools(pooling: Callable[..., Any]) -> bool:
    """Whether the shares of the pools at an element add up to one, instead of those of the elements."""
    weights = pooling(*_elements([5, 5]))[1]
    return torch.allclose(weights.sum(1), torch.ones(2, 5), atol=1e-4)


def _pools_learn(pooling: Callable[..., Any]) -> bool:
    x, mask, W = _elements([5, 3])
    right = gradient_of(lambda weight: _node_pooling(x, mask, weight)[0].square(), W.clone())
    return torch.allclose(
        gradient_of(lambda weight: pooling(x, mask, weight)[0].square(), W), right, atol=1e-4
    )


# ---------------------------------------------------------------- 06.hinge


def _pool_loss(p: Tensor, q: Tensor, caption: Tensor, picture: Tensor, margin: float = 0.2) -> Tensor:
    """Hinge for each pool of each pair, both ways, as exercise 06.hinge asks for it."""
    p, q = normalize(p, dim=-1), normalize(q, dim=-1)  # (B, P, D)
    own = (p * q).sum(-1)  # (B, P)
    to_caption = (margin + (p * q[caption]).sum(-1) - own).relu()  # (B, P)
    to_picture = (margin + (p[picture] * q).sum(-1) - own).relu()  # (B, P)
    return (to_caption + to_picture).sum()


def _pools(pairs: int, pools: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pools of pictures and captions (B, P, D), and the hardest caption and picture of each pair, (B,)."""
    generator = torch.Generator().manual_seed(10 * pairs + pools)
    p, q = (3 * torch.randn(pairs, pools, 6, generator=generator) for _ in range(2))
    other = torch.arange(pairs)
    return p, q, (other + 1) % pairs, (other + 2) % pairs


def _same_loss(loss: Callable[..., Any], pairs: int, pools: int, margin: float = 0.2) -> bool:
    batch = _pools(pairs, pools)
    return near(loss(*batch, margin), float(_pool_loss(*batch, margin)), 1e-3)


def _free_when_perfect(loss: Callable[..., Any]) -> bool:
    """Whether equal pools that stand at right angles to those of every negative cost nothing."""
    p = 2 * torch.eye(4)[:, None].expand(4, 3, 4)
    return near(loss(p, 5 * p, torch.tensor([1, 2, 3, 0]), torch.tensor([2, 3, 0, 1])), 0.0)


def _compared_with(wrong: Callable[..., Tensor]) -> Callable[[Any], bool]:
    """Make the trial of a mistake: whether an answer gives what a wrong loss gives."""
    batch = _pools(5, 3)
    return lambda loss: near(loss(*batch), float(wrong(*batch)), 1e-3)


def _one_way(p: Tensor, q: Tensor, caption: Tensor, picture: Tensor) -> Tensor:
    p, q = normalize(p, dim=-1), normalize(q, dim=-1)
    return (0.2 + (p * q[caption]).sum(-1) - (p * q).sum(-1)).relu().sum()


def _unscaled(p: Tensor, q: Tensor, caption: Tensor, picture: Tensor) -> Tensor:
    own = (p * q).sum(-1)
    costs = (0.2 + (p * q[caption]).sum(-1) - own).relu(), (0.2 + (p[picture] * q).sum(-1) - own).relu()
    return (costs[0] + costs[1]).sum()


def _own_hardest(p: Tensor, q: Tensor, caption: Tensor, picture: Tensor) -> Tensor:
    scores = torch.einsum("bpd,cpd->pbc", normalize(p, dim=-1), normalize(q, dim=-1))  # (P, B, C)
    own = scores.diagonal(dim1=1, dim2=2)  # (P, B)
    negatives = scores.masked_fill(torch.eye(len(p)) > 0, -torch.inf)
    return sum((0.2 + negatives.amax(side) - own).relu().sum() for side in (1, 2))  # type: ignore[return-value]


def _of_means(p: Tensor, q: Tensor, caption: Tensor, picture: Tensor) -> Tensor:
    """One hinge for a pair, of its pools' mean similarity."""
    p, q = normalize(p, dim=-1), normalize(q, dim=-1)
    own = (p * q).sum(-1).mean(1)
    costs = (p * q[caption]).sum(-1).mean(1) - own, (p[picture] * q).sum(-1).mean(1) - own
    return (0.2 + costs[0]).relu().sum() + (0.2 + costs[1]).relu().sum()


def _sides_swapped(p: Tensor, q: Tensor, caption: Tensor, picture: Tensor) -> Tensor:
    return _pool_loss(p, q, picture, caption)


def _scaled_over_pools(p: Tensor, q: Tensor, caption: Tensor, picture: Tensor) -> Tensor:
    return _unscaled(normalize(p), normalize(q), caption, picture)


def _is_a_mean(loss: Callable[..., Any]) -> bool:
    """Whether it is the right loss divided by how many pairs, pools or hinges there are."""
    batch = _pools(5, 3)
    return any(near(loss(*batch) * count, float(_pool_loss(*batch)), 1e-3) for count in (3, 5, 15, 30))


def _hinges_learn(loss: Callable[..., Any]) -> bool:
    p, q, caption, picture = _pools(4, 2)
    return bool(gradient_of(lambda pools: loss(pools, q, caption, picture), p).abs().sum() > 0)


# ---------------------------------------------------------------- 06.attend


def _attend(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """What each x makes of the y of its row, as exercise 06.attend asks for it."""
    logits = torch.where(mask[:, None], x @ y.mT, -torch.inf)  # (B, N, L)
    return logits.softmax(-1) @ y  # (B, N, D)


def _two_sides(counts: list[int], filler: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors (B, 3, 4), others (B, 5, 4) with something in the padding, and the mask of these."""
    y, mask, x = _elements(counts, filler)
    rows = torch.stack([x.roll(row, 1) for row in range(len(counts))])  # (B, 3, 4)
    real = torch.where(mask[..., None], normalize(y, dim=-1), y)
    return normalize(rows, dim=-1), real, mask


def _same_attended(attend: Callable[..., Any], counts: list[int], filler: float = 0.0) -> bool:
    sides = _two_sides(counts, filler)
    return torch.allclose(attend(*sides), _attend(*sides), atol=1e-5)


def _attended_by(weigh: Callable[[Tensor], Tensor]) -> Callable[[Any], bool]:
    """Make the trial of a mistake: whether an answer weighs as a wrong rule does."""
    x, y, mask = _two_sides([5, 5])
    return lambda attend: torch.allclose(attend(x, y, mask), weigh(x @ y.mT) @ y, atol=1e-5)


def _attending_learns(attend: Callable[..., Any]) -> bool:
    x, y, mask = _two_sides([5, 3])
    return bool(gradient_of(lambda vectors: attend(vectors, y, mask)[..., 0], x).abs().sum() > 0)


# ---------------------------------------------------------------- 06.even and 06.break

LARGEST = math.e / (math.e + 9 / math.e)
"""The share of one word among ten if its cosine is 1 and that of all others is -1."""

_WORDS = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
_POOL = torch.tensor([1.0, 0.0])


def _padded(answer: Any) -> tuple[Tensor, Tensor]:
    """The share of a row of padding in the pool of 06.break, and the pool's cosine with the right one."""
    row = torch.as_tensor(answer, dtype=torch.float32)
    rows = torch.stack([*_WORDS, row])  # (3, 2)
    weights = (rows @ _POOL).softmax(0)  # (3,)
    return weights[2], normalize(weights @ rows, dim=0)[1]


EXERCISES: dict[str, Exercise] = {
    "06.pool": Exercise(
        "Node pooling",
        "code",
        12,
        (
            Trial(
                lambda answer: _shapes(answer) == ((2, 3, 4), (2, 3, 5)),
                "Return two tensors: the pools, (B, P, D), and their weights, (B, P, N).",
            ),
            Trial(
                lambda answer: _same_pools(answer, [5, 5], scale=0.0),
                "With W = 0 all elements have the same weight, and every pool is their mean. Over which "
                "dimension does the softmax go?",
            ),
            Trial(
                lambda answer: _same_pools(answer, [5, 5]),
                "Without padding: pool i weighs element j by the softmax over j of the product of w_i and "
                "x_j, and sums the elements themselves.",
            ),
            Trial(
                lambda answer: _same_pools(answer, [5, 2, 1]),
                "The padding got some weight. A zero before the softmax does not hide it, since exp(0) is 1.",
            ),
            Trial(
                lambda answer: _same_pools(answer, [4, 2, 1], filler=1e3),
                "The padding may hold anything, also large numbers, and must still have no weight.",
            ),
            Trial(
                _pools_learn,
                "The right gradient does not arrive at W: stay with torch's operations, without .item(), "
                "detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _shapes(answer) == ((2, 3, 5), (2, 3, 4)),
                "The order is wrong: first the pools, then their weights.",
            ),
            Trial(
                _softmax_over_pools,
                "At each element, the weights of the pools add up to 1. They should add up to 1 over the "
                "elements, for each pool.",
            ),
        ),
        reference=_node_pooling,
        message="Right. It gives what vsecore.losses.NodePooling gives.",
    ),
    "06.hinge": Exercise(
        "A hinge for each pool",
        "code",
        15,
        (
            Trial(
                lambda answer: isinstance(made := answer(*_pools(4, 2)), Tensor) and made.ndim == 0,
                "Return one number for the batch, as a tensor.",
            ),
            Trial(
                _free_when_perfect,
                "Here each pool points as its partner does, at right angles to the negatives: the loss "
                "should be zero.",
            ),
            Trial(
                lambda answer: _same_loss(answer, 4, 1),
                "With one pool it is the hinge of two vectors, twice: against the hardest caption and "
                "against the hardest picture.",
            ),
            Trial(
                lambda answer: _same_loss(answer, 5, 3),
                "With several pools, each has hinges of its own. The loss is their sum.",
            ),
            Trial(lambda answer: _same_loss(answer, 5, 3, margin=0.5), "The margin is an argument: use it."),
            Trial(
                _hinges_learn,
                "No gradient arrives: stay with torch's operations, without .item() or float().",
            ),
        ),
        mistakes=(
            Trial(
                _compared_with(_own_hardest),
                "Each pool looked for a hardest negative of its own. Here the negatives are given: those of "
                "the global similarity, the same for all pools.",
            ),
            Trial(
                _compared_with(_of_means),
                "You averaged over the pools before the hinge: then a good pool can make up for a bad one.",
            ),
            Trial(
                _compared_with(_one_way),
                "That is one direction. The hardest picture has a hinge too.",
            ),
            Trial(
                _compared_with(_unscaled),
                "Pools are compared by their cosine: scale them to length one first.",
            ),
            Trial(
                _compared_with(_sides_swapped),
                "`caption` and `picture` have changed places: `caption` picks rows of q, and `picture` "
                "picks rows of p.",
            ),
            Trial(
                _compared_with(_scaled_over_pools),
                "Which dimension do you scale? `normalize` takes dim=1 unless told otherwise, and a pool's "
                "vector is the last one.",
            ),
            Trial(
                _is_a_mean,
                "Your loss is a constant factor away from the right one: it is a sum, not a mean.",
            ),
        ),
        reference=_pool_loss,
        defined_above=("triplet",),
        message="Right. It gives what vsecore.losses.node_pooling_loss gives.",
    ),
    "06.equal": Exercise(
        "Equal pools", "predict", 3, one_of("a", "b", "c"), difficulty="easy", message=NOTED
    ),
    "06.attend": Exercise(
        "Node cross-attention",
        "code",
        10,
        (
            Trial(
                lambda answer: (
                    isinstance(made := answer(*_two_sides([5, 5])), Tensor) and made.shape == (2, 3, 4)
                ),
                "Return one vector for each x, (B, N, D).",
            ),
            Trial(
                lambda answer: _same_attended(answer, [1, 1]),
                "Attention over one thing is that thing: with one real y, every x must get exactly that y.",
            ),
            Trial(
                lambda answer: _same_attended(answer, [5, 5]),
                "Without padding: x_i weighs y_j by the softmax over j of their products, and sums them.",
            ),
            Trial(
                lambda answer: _same_attended(answer, [4, 2, 1], filler=1e3),
                "The padding of y got some weight: hide it before the softmax.",
            ),
            Trial(
                _attending_learns,
                "No gradient arrives at x: stay with torch's operations, without .item(), detach or numpy.",
            ),
        ),
        mistakes=(
            Trial(
                _attended_by(lambda products: products.softmax(1)),
                "The weights must add up to 1 over the y, for each x: the softmax goes over the last "
                "dimension of (B, N, L).",
            ),
            Trial(
                _attended_by(lambda products: (products / 2).softmax(-1)),
                "These weights are divided by the square root of D before the softmax, as a Transformer "
                "does. Here the vectors have length one, and the paper divides by nothing.",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(*_two_sides([5, 5])), normalize(_attend(*_two_sides([5, 5])), dim=-1), atol=1e-5
                ),
                "The mixture keeps its own length: do not scale it.",
            ),
            Trial(
                _attended_by(lambda products: products),
                "The products are not weights yet: which function makes them so?",
            ),
            Trial(
                lambda answer: torch.allclose(
                    answer(*_two_sides([5, 3, 1])),
                    (_two_sides([5, 3, 1])[0] @ _two_sides([5, 3, 1])[1].mT).softmax(-1)
                    @ _two_sides([5, 3, 1])[1],
                    atol=1e-5,
                ),
                "The mask does nothing yet. A zero in the padding still gets a share, since exp(0) is 1.",
            ),
        ),
        reference=_attend,
        instead=("scaled_dot_product_attention", "MultiheadAttention"),
        message="Right. The next cell makes the thesis's second loss of it.",
    ),
    "06.even": Exercise(
        "The largest share",
        "compute",
        5,
        (
            Trial(
                lambda answer: 0 < float(answer) < 1,
                "A share is a number between 0 and 1: exp of one cosine, divided by the sum over all ten.",
            ),
            Trial(
                lambda answer: near(answer, LARGEST, 2e-3),
                "Divide exp(1) by the sum over all ten words.",
            ),
        ),
        difficulty="easy",
        mistakes=(
            Trial(lambda answer: near(answer, 100 * LARGEST, 0.2), "Give the share, not the percentage."),
            Trial(
                lambda answer: near(answer, math.e / (math.e + 9), 2e-3),
                "The other nine have a cosine of -1, not of 0: each adds exp(-1).",
            ),
            Trial(
                lambda answer: near(answer, math.e / (math.e + 10 / math.e), 2e-3),
                "There are ten words in all: nine others.",
            ),
        ),
    ),
    "06.break": Exercise(
        "Let the padding in",
        "break",
        8,
        (
            Trial(
                lambda answer: torch.as_tensor(answer).shape == (2,),
                "Give one row of padding: two numbers.",
            ),
            Trial(
                lambda answer: float(torch.as_tensor(answer, dtype=torch.float32).abs().max()) <= 3,
                "Both numbers must lie between -3 and 3.",
            ),
            Trial(
                lambda answer: float(_padded(answer)[1]) < 0,
                "The pool does not point downwards yet. What the padding adds is its share times its vector.",
            ),
        ),
        difficulty="medium",
        mistakes=(
            Trial(
                lambda answer: bool((torch.as_tensor(answer) == 0).all()),
                "A row of zeros takes a third of the weight and adds nothing: the pool becomes shorter, but "
                "keeps its direction, and the cosine sees only that.",
            ),
            Trial(
                lambda answer: float(torch.as_tensor(answer)[1]) < 0 and float(_padded(answer)[0]) < 0.3,
                "Your row points the right way, but it has a small share: w must like it.",
            ),
            Trial(
                lambda answer: float(torch.as_tensor(answer)[1]) >= 0,
                "Your row cannot turn the pool around: its second number must pull downwards.",
            ),
        ),
    ),
    "06.explore": Exercise("How many pools?", "explore", 15, EXPLORED, message="Noted."),
}
