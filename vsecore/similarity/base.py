"""What a similarity is: the contract that evaluation, mining and losses rely on."""

from collections.abc import Sized

import torch
from torch import Tensor, nn

from vsecore.embedding import Embedding


class Similarity(nn.Module):
    """Base class of similarities, which compare the two sides of a batch; they may hold parameters.

    Attributes:
        reads: what it reads of an `Embedding`: "vectors", "elements", a name in `extra`, or a tuple of them.
            Evaluation keeps only this of an encoded split, and processes gather it. Each class names its own.
        block: how many pictures and captions evaluation compares at a time.
    """

    reads: str | tuple[str, ...] = ()
    block: tuple[int, int] = (256, 1024)

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        """Compare every picture with every caption: (B, C)."""
        raise NotImplementedError

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        """Compare each picture with the caption of its row: (B,).

        Here one after the other; a class that can do it in one product should.
        """
        check_rows(v, t)
        return torch.cat([self(v[row : row + 1], t[row : row + 1]).flatten() for row in range(len(v))])


def check_rows(one: Sized, other: Sized) -> None:
    """Refuse two sides, in either order, that cannot be compared row by row."""
    if len(one) != len(other):
        raise ValueError(
            f"v and t must have the same number of rows: one has {len(one)}, the other {len(other)}"
        )
