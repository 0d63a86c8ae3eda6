"""Poolers that read their elements one after the other."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, checked
from vsecore.masking import check_elements, count_real, real_first
from vsecore.normalisation import ElementNorm


class Seq2SeqPool(nn.Module):
    """Two recurrent networks read the elements, one in each direction; their last states are averaged.

    They are read in the order given, without the padding. For words that is the sentence; for regions it is
    whatever order the detector wrote.

    Args:
        dim: width D of the elements and of each network's state.

    Source: the encoder of sequence-to-sequence models (Sutskever et al. 2014). Zhang et al. 2022 (2AD)
    compare a pooler of this name, after Hu et al. 2019, and give no details.
    """

    @checked
    def __init__(self, dim: Count) -> None:
        super().__init__()
        self.dim = dim
        self.forwards = nn.GRU(dim, dim, batch_first=True)
        self.backwards = nn.GRU(dim, dim, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask, self.dim)
        ordered, counts = real_first(x, mask), count_real(x, mask)  # (B, N, D), (B,)
        turned = real_first(x.flip(1), None if mask is None else mask.flip(1))  # (B, N, D)
        ahead = _last_state(self.forwards, ordered, counts)  # (B, D)
        back = _last_state(self.backwards, turned, counts)  # (B, D)
        return ((ahead + back) / 2).to(x.dtype)


class GRUPool(nn.Module):
    """A recurrent network reads the elements in the order given; its last state stands for all of them.

    The padding is left out. A network of both directions, averaged, is `Seq2SeqPool`.

    Args:
        dim: width D of the elements and of the state.
        batch_norm: normalise each dimension of the state over the batch.

    Source: the global semantic reasoning of Li et al. 2019 (VSRN), section 3.3; the batch normalisation in
    its released code and in that of Bleeker, Yates and de Rijke 2023 (LTD).
    """

    @checked
    def __init__(self, dim: Count, batch_norm: bool = False) -> None:
        super().__init__()
        self.dim = dim
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.normalise = ElementNorm(dim) if batch_norm else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        check_elements(x, mask, self.dim)
        state = _last_state(self.gru, real_first(x, mask), count_real(x, mask)).to(x.dtype)  # (B, D)
        if self.normalise is not None:
            state = self.normalise(state[:, None])[:, 0]
        return state


def _last_state(gru: nn.GRU, x: Tensor, counts: Tensor) -> Tensor:
    """The state after the last real element, (B, D); the real ones come first.

    With the padding at the end, the network has read all real elements before it meets any. Packing would
    need the lengths on the CPU, and so wait for a GPU.
    """
    weight = cast(Tensor, gru.weight_ih_l0)
    with torch.autocast(x.device.type, enabled=False):  # in half precision small updates of a state vanish
        states, _ = gru(x.to(weight.dtype))  # (B, N, D)
    return states.gather(1, (counts - 1).view(-1, 1, 1).expand(-1, 1, x.shape[2])).squeeze(1)
