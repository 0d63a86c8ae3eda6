"""Poolers that read their elements one after the other."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from vsecore.masking import check_dim, check_elements, without_padding
from vsecore.pooling.masking import count_real


class Seq2SeqPool(nn.Module):
    """Two recurrent networks read the elements, one in each direction; their last states are averaged.

    The order of the elements matters, as it does for no pooler outside this file. They are read in the order
    given, without the padding. For words that is the sentence; for regions it is whatever order the detector
    wrote.

    Args:
        dim: width D of the elements and of each network's state.

    Raises:
        ValueError: dim is not a whole number of at least 1.

    Source: the encoder of sequence-to-sequence models (Sutskever et al. 2014). Zhang et al. 2022 (2AD)
    compare a pooler of this name, after Hu et al. 2019, and give no details.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_dim(dim)
        self.dim = dim
        self.forwards = nn.GRU(dim, dim, batch_first=True)
        self.backwards = nn.GRU(dim, dim, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask, self.dim)
        # With the padding at the end, each network has read all real elements before it meets any. Packing
        # would need the lengths on the CPU, and so wait for a GPU.
        ordered = _real_first(x, mask)  # (B, N, D)
        reversed_ = _real_first(x.flip(1), None if mask is None else mask.flip(1))  # (B, N, D)
        last = (count_real(x, mask) - 1).view(-1, 1, 1).expand(-1, 1, self.dim)  # (B, 1, D)
        weight = next(self.parameters())
        with torch.autocast(
            x.device.type, enabled=False
        ):  # in half precision small updates of a state vanish
            ahead = self.forwards(ordered.to(weight.dtype))[0].gather(1, last)  # (B, 1, D)
            back = self.backwards(reversed_.to(weight.dtype))[0].gather(1, last)  # (B, 1, D)
        return ((ahead + back) / 2).squeeze(1).to(x.dtype)  # (B, D)


class GRUPool(nn.Module):
    """A recurrent network reads the elements in the order given; its last state stands for all of them.

    The padding is left out. A network of both directions, averaged, is `Seq2SeqPool`.

    Args:
        dim: width D of the elements and of the state.

    Raises:
        ValueError: dim is not a whole number of at least 1.

    Source: the global semantic reasoning of Li et al. 2019 (VSRN), section 3.3.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_dim(dim)
        self.dim = dim
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask, self.dim)
        weight = cast(Tensor, self.gru.weight_ih_l0)
        with torch.autocast(x.device.type, enabled=False):  # as above
            states, _ = self.gru(_real_first(x, mask).to(weight.dtype))  # (B, N, D)
        last = (count_real(x, mask) - 1).view(-1, 1, 1).expand(-1, 1, self.dim)  # (B, 1, D)
        return states.gather(1, last).squeeze(1).to(x.dtype)  # (B, D)


class LastPool(nn.Module):
    """The last real element stands for all: the end of a sentence that a recurrent network has read.

    Source: Faghri et al. 2018 (VSE++), section 3.1; so do Li et al. 2019 (VSRN).
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask)
        if mask is None:
            return x[:, -1]
        places = torch.arange(x.shape[1], device=x.device)
        last = torch.where(mask, places, 0).amax(1)  # (B,)
        return x.gather(1, last.view(-1, 1, 1).expand(-1, 1, x.shape[2])).squeeze(1)  # (B, D)


def _real_first(x: Tensor, mask: Tensor | None) -> Tensor:
    """The real elements in their order, then zeros."""
    if mask is None:
        return x
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True).unsqueeze(-1)  # (B, N, 1)
    return without_padding(x, mask).gather(1, order.expand_as(x))  # (B, N, D)
