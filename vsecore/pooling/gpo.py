"""The generalized pooling operator: one weight for each place in the sorted order, learned."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vsecore.pooling.masking import check_elements, count_real
from vsecore.pooling.sorting import sort_descending


class GPO(nn.Module):
    """Sort each dimension, then weigh the places: the largest values by one weight, the second by another.

    A small recurrent network reads the numbers of the places, as sines and cosines, forwards and backwards,
    and so learns weights for any number of elements. They depend on nothing else: two pictures of 36 regions
    are weighed alike. `MeanPool`, `MaxPool` and `KMaxPool` are among what it can learn; `AdPool` looks at the
    values too.

    Training should show it sets of many sizes ("size augmentation"). This drops elements, not weights, and so
    is the loader's part: `image.element_drop` and `text.word_drop` of a recipe, 0.2 in the paper.

    Args:
        position_dim: width of the encoding of a place, an even number.
        hidden: width of each reading.
        temperature: of the softmax over the places, > 0.

    Raises:
        ValueError: an argument is out of its range.

    Source: Chen et al. 2021 (VSE-infinity), section 3 and the released code.
    """

    def __init__(self, position_dim: int = 32, hidden: int = 32, temperature: float = 0.1) -> None:
        super().__init__()
        for name, width in (("position_dim", position_dim), ("hidden", hidden)):
            if not isinstance(width, int) or isinstance(width, bool) or width < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {width!r}")
        if position_dim % 2:
            raise ValueError(f"position_dim must be even, a sine and a cosine each, got {position_dim}")
        if not (temperature > 0 and math.isfinite(temperature)):
            raise ValueError(f"temperature must be a number > 0, got {temperature}")
        self.temperature = temperature
        self.gru = nn.GRU(position_dim, hidden, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden, 1, bias=False)

    def weights(self, counts: Tensor) -> Tensor:
        """The weights of the places for sets of some sizes.

        Args:
            counts: how many elements each set has, whole numbers of at least 1, (B,).

        Returns:
            (B, N), N the largest count: weights that add up to 1 over the places that a set has, 0 beyond.

        Raises:
            ValueError: counts are no whole numbers (B,) of at least 1.
        """
        if counts.ndim != 1 or counts.is_floating_point() or len(counts) == 0 or int(counts.min()) < 1:
            raise ValueError(
                f"counts must be whole numbers (B,) of at least 1, got {counts.dtype} {tuple(counts.shape)}"
            )
        return self._weights(counts, int(counts.max()))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        check_elements(x, mask)
        weights = self._weights(count_real(x, mask), x.shape[1]).to(x.dtype)  # (B, N)
        return (weights.unsqueeze(1) @ sort_descending(x, mask)).squeeze(1)  # (B, D)

    def _weights(self, counts: Tensor, places: int) -> Tensor:
        # Sets of one size have the same weights: each size is read once.
        sizes, which = counts.unique(return_inverse=True)  # (S,), (B,)
        with torch.autocast(counts.device.type, enabled=False):  # small, and the temperature makes it touchy
            encoded = self._places(places).expand(len(sizes), -1, -1)  # (S, N, P)
            packed = pack_padded_sequence(encoded, sizes.cpu(), batch_first=True, enforce_sorted=False)
            states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=places)
            forwards, backwards = states.chunk(2, dim=-1)  # (S, N, H) each
            scores = self.linear((forwards + backwards) / 2).squeeze(-1) / self.temperature  # (S, N)
            taken = torch.arange(places, device=counts.device) < sizes.unsqueeze(-1)  # (S, N)
            return torch.where(taken, scores, -torch.inf).softmax(1)[which]  # (B, N)

    def _places(self, places: int) -> Tensor:
        """Places 0 to N - 1 as sines and cosines of falling frequency, (N, P)."""
        weight = self.linear.weight
        width = self.gru.input_size
        exponents = torch.arange(0, width, 2, device=weight.device) / width
        angles = torch.arange(places, device=weight.device).unsqueeze(-1) * 10000.0**-exponents  # (N, P/2)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).to(weight.dtype)  # (N, P)
