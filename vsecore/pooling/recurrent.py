"""A pooler that reads its elements one after the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from vsecore.pooling.masking import check_dim, check_elements, count_real, without_padding


class Seq2SeqPool(nn.Module):
    """A recurrent network reads the elements forwards and backwards; what it remembers last is the pool.

    The one pooler here to which the order of the elements matters: they are read in the order given, padding
    left out. For words that is the sentence; for regions it is whatever order the detector wrote.

    Args:
        dim: width D of the elements and of each reading, whose last states are averaged.

    Raises:
        ValueError: dim is no whole number of at least 1.

    Source: the encoder of sequence-to-sequence models (Sutskever et al. 2014), as the course's caption
    encoder reads (`encoders.BiGRUEncoder`). Zhang et al. 2022 (2AD) compare a pooler of this name, after Hu
    et al. 2019, without its details.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_dim(dim)
        self.dim = dim
        self.gru = nn.GRU(dim, dim, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask, self.dim)
        if mask is None:
            _, last = self.gru(x)  # (2, B, D)
        else:
            # Real elements first, in their order. Packed, the backward reading begins at the last of them.
            order = (~mask).to(torch.uint8).argsort(dim=1, stable=True).unsqueeze(-1)  # (B, N, 1)
            ordered = without_padding(x, mask).gather(1, order.expand_as(x))  # (B, N, D)
            lengths = count_real(x, mask).cpu()
            packed = pack_padded_sequence(ordered, lengths, batch_first=True, enforce_sorted=False)
            _, last = self.gru(packed)  # (2, B, D)
        return last.mean(0)  # (B, D)
