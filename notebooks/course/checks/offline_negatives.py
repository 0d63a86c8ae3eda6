"""The exercises of notebook 08, *Offline negatives*."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course.checks.exercise import Exercise, Trial, near
from course.checks.samples import EXPLORED, NOTED, one_of

# ---------------------------------------------------------------- 08.chance


def _chance(top: int, among: int, drawn: int) -> float:
    """That at least one of the `top` hardest is among `drawn` of `among` negatives."""
    return 1 - math.comb(among - top, drawn) / math.comb(among, drawn)


def _chances_like(chance: Callable[..., Any], other: Callable[[int, int, int], float]) -> bool:
    return all(
        math.isclose(float(chance(*case)), other(*case), rel_tol=1e-3)
        for case in ((3, 10, 4), (1, 12, 6), (2, 30, 5))
    )


def _with_replacement(top: int, among: int, drawn: int) -> float:
    return 1 - (1 - top / among) ** drawn


def _of_none(top: int, among: int, drawn: int) -> float:
    return 1 - _chance(top, among, drawn)


def _of_one_draw(top: int, among: int, drawn: int) -> float:
    return top / among


def _added_up(top: int, among: int, drawn: int) -> float:
    return drawn * top / among


# ---------------------------------------------------------------- 08.own


def _hide_own(scores: Tensor, first: int, owner: Tensor) -> Tensor:
    rows = torch.arange(first, first + len(scores), device=scores.device)
    return scores.masked_fill(rows[:, None] == owner, -torch.inf)


_OWNER = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 4])
_MIXED = torch.tensor([4, 1, 0, 3, 1, 2, 4, 0, 3, 1, 4])


def _block(seed: int, rows: int = 2, columns: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, columns, generator=generator, dtype=torch.float64) * 2 - 1


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether numbers are the same up to the rounding of float32."""
    return torch.allclose(one.double(), other.double(), atol=1e-6)


def _hides_like(
    hide: Callable[..., Any], other: Callable[..., Tensor], first: int = 0, owner: Tensor = _OWNER
) -> bool:
    scores = _block(1)
    return _alike(hide(scores.clone(), first, owner), other(scores, first, owner))


def _without_first(scores: Tensor, first: int, owner: Tensor) -> Tensor:
    return _hide_own(scores, 0, owner)


def _only_one_hidden(scores: Tensor, first: int, owner: Tensor) -> Tensor:
    hidden = scores.clone()
    for row in range(len(scores)):
        hidden[row, int((owner == first + row).nonzero()[0])] = -torch.inf
    return hidden


def _by_zero(scores: Tensor, first: int, owner: Tensor) -> Tensor:
    return torch.where(_hide_own(scores, first, owner) == -torch.inf, torch.zeros_like(scores), scores)


def _the_others(scores: Tensor, first: int, owner: Tensor) -> Tensor:
    return torch.where(
        _hide_own(scores, first, owner) == -torch.inf, scores, torch.full_like(scores, -torch.inf)
    )


def _turns_nan(hide: Callable[..., Any]) -> bool:
    """Whether scores became NaN, as minus infinity times False does."""
    return bool(torch.as_tensor(hide(_block(1), 0, _OWNER)).isnan().any())


def _five_each(scores: Tensor, first: int, owner: Tensor) -> Tensor:
    return _hide_own(scores, first, torch.arange(len(owner)) // 5)


# ---------------------------------------------------------------- 08.merge


def _merge(best: Tensor, rows: Tensor, scores: Tensor, first: int) -> tuple[Tensor, Tensor]:
    new = torch.arange(first, first + len(scores), device=scores.device).expand(len(best), -1)
    joined = torch.cat([best, scores.T], 1)  # (Nc, k + b)
    best, places = joined.topk(best.shape[1], 1)
    return best, torch.cat([rows, new], 1).gather(1, places)


def _running(seed: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """The best 3 of pictures 0 to 4 for each of 6 captions, and the block of pictures 5 to 8."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(9, 6, generator=generator, dtype=torch.float64)
    best, rows = scores[:5].T.topk(3, 1)
    return best, rows, scores[5:], 5


def _merges_like(
    merge: Callable[..., Any], other: Callable[..., tuple[Tensor, Tensor]], part: int, seed: int = 3
) -> bool:
    given = _running(seed)
    return _alike(torch.as_tensor(merge(*given)[part]), other(*given)[part])


def _keeps_true_rows(merge: Callable[..., Any]) -> bool:
    """Whether each row that it gives is the picture with that score."""
    return all(_merges_like(merge, _merge, part, seed) for part in (0, 1) for seed in (3, 4, 5))


def _from_empty(merge: Callable[..., Any]) -> bool:
    scores = _block(6, rows=4, columns=5)
    best, rows = torch.full((5, 2), -torch.inf, dtype=torch.float64), torch.zeros(5, 2, dtype=torch.long)
    return torch.equal(torch.as_tensor(merge(best, rows, scores, 0)[1]), scores.T.topk(2, 1).indices)


def _rows_of_the_block(best: Tensor, rows: Tensor, scores: Tensor, first: int) -> tuple[Tensor, Tensor]:
    return _merge(best, rows, scores, 0)


def _places(best: Tensor, rows: Tensor, scores: Tensor, first: int) -> tuple[Tensor, Tensor]:
    joined = torch.cat([best, scores.T], 1).topk(best.shape[1], 1)
    return joined.values, joined.indices


def _block_alone(best: Tensor, rows: Tensor, scores: Tensor, first: int) -> tuple[Tensor, Tensor]:
    found = scores.T.topk(min(best.shape[1], len(scores)), 1)
    return found.values, found.indices + first


def _rows_first(best: Tensor, rows: Tensor, scores: Tensor, first: int) -> tuple[Tensor, Tensor]:
    best, rows = _merge(best, rows, scores, first)
    return rows, best


def _smallest(best: Tensor, rows: Tensor, scores: Tensor, first: int) -> tuple[Tensor, Tensor]:
    best, rows = _merge(-best, rows, -scores, first)
    return -best, rows


def _is_unsorted(merge: Callable[..., Any]) -> bool:
    """Whether the right scores are kept, but not with the largest first."""
    given = _running(3)
    kept, right = torch.as_tensor(merge(*given)[0]), _merge(*given)[0]
    return _alike(kept.sort(1, descending=True).values, right) and not _alike(kept, right)


# ---------------------------------------------------------------- 08.mine


def _mine(
    images: Tensor, captions: Tensor, owner: Tensor, texts: int = 300, pictures: int = 60, block: int = 500
) -> tuple[Tensor, Tensor]:
    best = torch.full((len(captions), pictures), -torch.inf, dtype=images.dtype)  # (Nc, k)
    rows = torch.zeros(len(captions), pictures, dtype=torch.long)  # (Nc, k)
    hardest = []
    for first in range(0, len(images), block):
        scores = _hide_own(images[first : first + block] @ captions.T, first, owner)  # (b, Nc)
        hardest.append(scores.topk(texts, 1).indices)  # (b, k)
        best, rows = _merge(best, rows, scores, first)
    return torch.cat(hardest), rows


def _world(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nine pictures and 20 captions, and the captions' owners in no order."""
    generator = torch.Generator().manual_seed(seed)
    sides = [torch.randn(rows, 5, generator=generator, dtype=torch.float64) for rows in (9, 20)]
    owner = torch.cat([torch.arange(9), torch.randint(9, (11,), generator=generator)])
    owner = owner[torch.randperm(20, generator=generator)]
    return (*(side / side.norm(dim=1, keepdim=True) for side in sides), owner)


def _mined_by_sorting(
    images: Tensor, captions: Tensor, owner: Tensor, texts: int, pictures: int
) -> tuple[Tensor, Tensor]:
    scores = _hide_own(images @ captions.T, 0, owner)
    return (
        scores.argsort(1, descending=True)[:, :texts],
        scores.argsort(0, descending=True).T[:, :pictures],
    )


def _finds(mine: Callable[..., Any], part: int, block: int, seed: int = 1) -> bool:
    world = _world(seed)
    found = torch.as_tensor(mine(*world, 4, 3, block)[part])
    return torch.equal(found.long(), _mined_by_sorting(*world, 4, 3)[part])


def _counts_from_zero(mine: Callable[..., Any]) -> bool:
    """Whether, in several blocks, it hides what the first pictures own."""
    world = _world(1)
    images, captions, owner = world
    rows = [
        _hide_own(images[first : first + 3] @ captions.T, 0, owner).topk(4, 1).indices for first in (0, 3, 6)
    ]
    return torch.equal(torch.as_tensor(mine(*world, 4, 3, 3)[0]).long(), torch.cat(rows))


def _of_the_last_block(mine: Callable[..., Any]) -> bool:
    """Whether its pictures are right in one block and wrong in several."""
    return _finds(mine, 1, 9) and not _finds(mine, 1, 4)


def _own_are_in(mine: Callable[..., Any]) -> bool:
    images, captions, owner = _world(1)
    texts = torch.as_tensor(mine(images, captions, owner, 4, 3, 9)[0]).long()
    return bool((owner[texts] == torch.arange(9)[:, None]).any())


# ---------------------------------------------------------------- 08.break


def _has_own(texts: Tensor, owner: Tensor) -> bool:
    return bool((owner[texts] == torch.arange(len(texts))[:, None]).any())


_TWO_EACH = torch.arange(4).repeat_interleave(2)  # four pictures with two captions each
_GOOD = torch.tensor([[2, 5], [0, 4], [6, 1], [3, 2]])
_FIRST_BAD = torch.tensor([[1, 5], [0, 4], [6, 1], [3, 2]])
_LAST_BAD = torch.tensor([[2, 5], [0, 4], [6, 1], [3, 7]])
_SAME_NUMBER = torch.tensor([[3, 6], [0, 7], [2, 6], [1, 3]])  # caption 2 for picture 2 is another's


def _says(test: Callable[..., Any], texts: Tensor, owner: Tensor, expected: bool) -> bool:
    return bool(test(texts, owner)) is expected


# ---------------------------------------------------------------- numbers

_MATRIX = 113_287 * 566_435 * 4 / 1e9  # gigabytes of COCO's similarities, four bytes each


EXERCISES: dict[str, Exercise] = {
    "08.place": Exercise(
        "Where does it stand?",
        "predict",
        3,
        one_of("16", "156", "1,560", "7,800"),
        difficulty="easy",
        message=NOTED,
    ),
    "08.chance": Exercise(
        "The chance of a top hundred",
        "code",
        12,
        (
            Trial(
                lambda answer: 0 <= float(answer(3, 10, 4)) <= 1,
                "Return one number, a chance between 0 and 1.",
            ),
            Trial(
                lambda answer: near(answer(1, 12, 6), 0.5, 1e-3),
                "If half of the negatives are drawn, the hardest is among them with a chance of one half.",
            ),
            Trial(
                lambda answer: _chances_like(answer, _chance),
                "In how many ways can you draw so that all of them miss the hardest ones? In how many ways "
                "at all?",
            ),
            Trial(
                lambda answer: math.isclose(
                    float(answer(100, 566_410, 127)), _chance(100, 566_410, 127), rel_tol=1e-3
                ),
                "It is right for small numbers: for large ones, `math.comb` stays exact.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _chances_like(answer, _with_replacement),
                "Nearly: that draws the same negative again and again. A batch draws each at most once.",
            ),
            Trial(
                lambda answer: _chances_like(answer, _of_none),
                "That is the chance that none of them is drawn. We want the chance of at least one.",
            ),
            Trial(
                lambda answer: _chances_like(answer, _of_one_draw),
                "That is the chance of a single draw: a batch draws many.",
            ),
            Trial(
                lambda answer: _chances_like(answer, _added_up),
                "Adding the chances of all draws counts a batch twice in which two of them hit. For many "
                "draws the sum exceeds 1.",
            ),
        ),
        reference=_chance,
        message="Right.",
    ),
    "08.own": Exercise(
        "Hide what belongs to a picture",
        "code",
        6,
        (
            Trial(
                lambda answer: tuple(answer(_block(1), 0, _OWNER).shape) == (2, 11),
                "Return a matrix of the same shape, (b, Nc).",
            ),
            Trial(
                lambda answer: _hides_like(answer, _hide_own),
                "Each picture's own captions, and only they, get minus infinity.",
            ),
            Trial(
                lambda answer: _hides_like(answer, _hide_own, first=3),
                "In a later block, the first row is picture number `first`.",
            ),
            Trial(
                lambda answer: _hides_like(answer, _hide_own, first=1, owner=_MIXED),
                "The captions may stand in any order: let `owner` say whose they are.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: _hides_like(answer, _without_first, first=3),
                "It is right in the first block. In a later one, the first row is picture number `first`.",
            ),
            Trial(
                lambda answer: _hides_like(answer, _only_one_hidden),
                "A picture has several captions of its own: hide all of them.",
            ),
            Trial(
                lambda answer: _hides_like(answer, _by_zero),
                "Zero is larger than many similarities: use minus infinity.",
            ),
            Trial(
                _turns_nan,
                "Some scores became NaN: minus infinity times zero is no number. Replace the scores instead, "
                "by `masked_fill` or `where`.",
            ),
            Trial(
                lambda answer: _hides_like(answer, _five_each),
                "You count five captions for each picture. A picture may have more or fewer: use `owner`.",
            ),
            Trial(
                lambda answer: _hides_like(answer, _the_others),
                "You hid the negatives and left the picture's own captions.",
            ),
        ),
        difficulty="easy",
        reference=_hide_own,
        message="Right.",
    ),
    "08.merge": Exercise(
        "Merge a block into the running best",
        "code",
        12,
        (
            Trial(
                lambda answer: [tuple(part.shape) for part in answer(*_running(3))] == [(6, 3)] * 2,
                "Return two tensors, the scores and the rows, both of the shape of `best`.",
            ),
            Trial(
                lambda answer: _merges_like(answer, _merge, 0),
                "Put the running best and the block's scores side by side, (Nc, k + b), and keep the largest "
                "k of each caption. The block has the captions in its columns.",
            ),
            Trial(
                _keeps_true_rows,
                "The scores are right. Put the numbers of the pictures side by side in the same way, and "
                "`gather` those that were kept. The block begins with picture number `first`.",
            ),
            Trial(
                _from_empty,
                "It must also work from the start, where all scores in `best` are minus infinity.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: all(_merges_like(answer, _rows_of_the_block, part) for part in (0, 1)),
                "The block's first row is picture number `first`, not picture 0.",
            ),
            Trial(
                lambda answer: all(_merges_like(answer, _places, part) for part in (0, 1)),
                "`topk` returns places in the joined table. Look up which pictures stand there.",
            ),
            Trial(
                lambda answer: all(_merges_like(answer, _block_alone, part) for part in (0, 1)),
                "You keep the best of this block alone: what earlier blocks found is lost.",
            ),
            Trial(
                lambda answer: all(_merges_like(answer, _rows_first, part) for part in (0, 1)),
                "Both are right, but in the wrong order: first the scores, then the rows.",
            ),
            Trial(
                lambda answer: _merges_like(answer, _smallest, 0),
                "You keep the smallest scores. The hardest negatives are the largest.",
            ),
            Trial(
                _is_unsorted,
                "The right scores are kept, but they must stay sorted, the largest first.",
            ),
        ),
        reference=_merge,
        message="Right. What is kept never grows, however many blocks there are.",
    ),
    "08.mine": Exercise(
        "Both directions from one pass",
        "code",
        12,
        (
            Trial(
                lambda answer: (
                    [tuple(part.shape) for part in answer(*_world(1), 4, 3, 9)] == [(9, 4), (20, 3)]
                ),
                "Return rows of captions for each picture, (Ni, texts), and rows of pictures for each "
                "caption, (Nc, pictures).",
            ),
            Trial(
                lambda answer: _finds(answer, 0, 9),
                "In one block: are the captions the hardest of each picture, hardest first, none of its own?",
            ),
            Trial(
                lambda answer: _finds(answer, 1, 9),
                "The captions are right. Now the pictures: the running best starts at minus infinity, and "
                "each block is merged into it.",
            ),
            Trial(
                lambda answer: all(_finds(answer, part, 3) for part in (0, 1)),
                "One block is right. In several, the rows of a block are complete, but its columns see only "
                "some of the pictures.",
            ),
            Trial(
                lambda answer: all(_finds(answer, part, 4, 2) for part in (0, 1)),
                "The last block may be smaller than the others.",
            ),
        ),
        mistakes=(
            Trial(
                _own_are_in,
                "A picture's own captions are in its list: hide them before you look for the largest.",
            ),
            Trial(
                _of_the_last_block,
                "One block is right. With several, the pictures must come from all of them: merge each block "
                "into the running best.",
            ),
            Trial(
                _counts_from_zero,
                "In a later block, the first row is picture number `first`: hand `first` to `hide_own`.",
            ),
        ),
        reference=_mine,
        message="Right. The package does the same, on any device.",
    ),
    "08.bill": Exercise(
        "The whole matrix",
        "compute",
        4,
        (
            Trial(
                lambda answer: float(answer) > 1,
                "It is many gigabytes: pictures times captions times four bytes.",
            ),
            Trial(
                lambda answer: abs(float(answer) - _MATRIX) < 4,
                "Multiply the pictures by the captions, and by four bytes. A gigabyte is a thousand million "
                "bytes.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: abs(float(answer) - _MATRIX / 4) < 2,
                "That is the number of similarities. Each takes four bytes.",
            ),
            Trial(
                lambda answer: abs(float(answer) - _MATRIX * 1e9) < 4e9,
                "That is in bytes: divide by a thousand million.",
            ),
            Trial(
                lambda answer: abs(float(answer) - _MATRIX * 1e9 / 2**30) < 1,
                "You divided by 2 to the power of 30, which gives gibibytes. A gigabyte is a thousand "
                "million bytes.",
            ),
            Trial(
                lambda answer: abs(float(answer) - _MATRIX / 5) < 1,
                "There are five captions for each picture: 566,435 in all.",
            ),
        ),
        difficulty="easy",
    ),
    "08.break": Exercise(
        "A test that fails",
        "break",
        8,
        (
            Trial(
                lambda answer: _says(answer, _GOOD, _TWO_EACH, False),
                "Here no list holds a caption of its own picture: return False.",
            ),
            Trial(
                lambda answer: _says(answer, _FIRST_BAD, _TWO_EACH, True),
                "Picture 0 owns captions 0 and 1. If caption 1 is in its list, return True.",
            ),
            Trial(
                lambda answer: _says(answer, _LAST_BAD, _TWO_EACH, True),
                "One wrong entry anywhere is enough: here it is the last of the last list.",
            ),
            Trial(
                lambda answer: _says(answer, _SAME_NUMBER, _TWO_EACH, False),
                "Caption 2 does not belong to picture 2: captions and pictures are numbered separately. "
                "Look up the caption's owner.",
            ),
            Trial(
                lambda answer: all(
                    _says(answer, texts, torch.tensor([3, 1, 2, 0, 3, 1, 2, 0]), expected)
                    for texts, expected in (
                        (torch.tensor([[0, 1], [2, 3], [4, 5], [6, 7]]), False),
                        (torch.tensor([[0, 1], [2, 3], [4, 6], [5, 7]]), True),
                    )
                ),
                "The captions may stand in any order: `owner` says whose they are.",
            ),
        ),
        mistakes=(
            Trial(
                lambda answer: (
                    _says(answer, _GOOD, _TWO_EACH, True) and _says(answer, _LAST_BAD, _TWO_EACH, False)
                ),
                "It is the other way round: True if a list holds an own caption.",
            ),
            Trial(
                lambda answer: all(
                    _says(answer, texts, _TWO_EACH, bool((texts == torch.arange(4)[:, None]).any()))
                    for texts in (_GOOD, _FIRST_BAD, _SAME_NUMBER)
                ),
                "You compare captions with pictures, which are numbered separately. Look up the picture of "
                "each caption: `owner[texts]`.",
            ),
        ),
        reference=_has_own,
        message="Right. This test knows nothing of how the lists were made.",
    ),
    "08.explore": Exercise("Change one thing", "explore", 15, EXPLORED, message="Noted."),
}
