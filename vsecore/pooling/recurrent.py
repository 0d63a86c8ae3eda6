"""Poolers that read their elements one after the other."""

from torch import Tensor, nn

from vsecore.arguments import Count, checked
from vsecore.masking import check_elements, real_first, sorted_mask
from vsecore.normalisation import ElementNorm
from vsecore.recurrence import read_to_end


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
        ends = read_to_end(real_first(x, mask), sorted_mask(x, mask), self.forwards, self.backwards)
        return ends.to(x.dtype)


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
        state = read_to_end(real_first(x, mask), sorted_mask(x, mask), self.gru).to(x.dtype)  # (B, D)
        if self.normalise is not None:
            state = self.normalise(state[:, None])[:, 0]
        return state
