"""Which captions are a picture's own, and how many negatives there are at all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def whole(name: str, number: int) -> int:
    """Return an argument that must be a whole number, at least 1.

    Raises:
        ValueError: it is not.
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise ValueError(f"{name} is {number!r}: it must be a whole number")
    if number < 1:
        raise ValueError(f"{name} is {number}: it must be at least 1")
    return int(number)


class Own:
    """The true pairs, to be left out of blocks of scores.

    Args:
        owner: the picture of each caption, (Nc,), in any order.
        pictures: how many pictures there are.
        captions: how many captions there are.

    Raises:
        ValueError: owner is not one whole number for each caption, or names a picture that is not there.
    """

    def __init__(self, owner: Tensor | np.ndarray, pictures: int, captions: int) -> None:
        owner = torch.as_tensor(owner).detach().cpu()
        if owner.shape != (captions,) or owner.is_floating_point() or owner.is_complex():
            raise ValueError(
                f"owner is {owner.dtype} {tuple(owner.shape)}: it must be whole numbers ({captions},), "
                "the picture of each caption"
            )
        owner = owner.long()
        if int(owner.min()) < 0 or int(owner.max()) >= pictures:
            raise ValueError(
                f"owner names pictures {int(owner.min())} to {int(owner.max())}: it must name "
                f"0 to {pictures - 1}"
            )
        self.owner, self.pictures, self.captions = owner, pictures, captions

    def most(self, texts: int, pictures: int) -> tuple[int, int]:
        """Cut the wanted numbers of negatives to what every picture, and every caption, has.

        Raises:
            ValueError: a number is not a whole one, or below one, or a picture has no negative.
        """
        texts, pictures = whole("texts", texts), whole("pictures", pictures)
        captions = self.captions - int(self.owner.bincount(minlength=self.pictures).max())
        if captions < 1 or self.pictures < 2:
            raise ValueError(
                f"there are {self.pictures} pictures with {self.captions} captions: negatives need at "
                "least two pictures that have captions"
            )
        return min(texts, captions), min(pictures, self.pictures - 1)

    def leave_out(self, scores: Tensor, pictures: range, captions: range) -> None:
        """Set the true pairs in a block of scores (b, c), of these rows, to -inf, in place."""
        place = self.owner[captions.start : captions.stop : captions.step] - pictures.start  # (c,)
        inside = (place >= 0) & (place < pictures.stop - pictures.start) & (place % pictures.step == 0)
        caption = inside.nonzero().squeeze(1)
        row = place[caption] // pictures.step
        scores[row.to(scores.device), caption.to(scores.device)] = -torch.inf

    def mask(self, rows: Tensor, of_pictures: bool) -> Tensor:
        """Return which items are the own ones of some pictures, (p, Nc), or of some captions, (p, Ni)."""
        owner = self.owner.to(rows.device)
        if of_pictures:
            return owner == rows[:, None]
        return torch.arange(self.pictures, device=rows.device) == owner[rows, None]
