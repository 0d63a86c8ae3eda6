"""The generalized pooling operator: one weight for each place in the sorted order, learned."""

from typing import Annotated

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, Positive, Shape, checked
from vsecore.masking import count_real
from vsecore.pooling.sorting import sort_descending


class GPO(nn.Module):
    """Sort each dimension, then give each place its weight: one for the largest values, one for the second.

    A small recurrent network reads the numbers of the places, as sines and cosines, in both directions, and
    turns them into weights for any number of elements. The weights depend on that number alone: any two
    pictures of 36 regions share them. It can learn to be `MeanPool`, `MaxPool` or `KMaxPool`. `AdPool` looks
    at the values too.

    Train it on sets of many sizes ("size augmentation"): let the loader drop elements, as a recipe's
    `image.element_drop` and `text.word_drop` do. The paper drops 0.2 of them.

    Args:
        position_dim: width of the encoding of a place, an even number.
        hidden: width of the network's state in each direction.
        temperature: temperature of the softmax over the places.

    Source: Chen et al. 2021 (VSE-infinity), section 3 and the released code.
    """

    @checked
    def __init__(self, position_dim: Count = 32, hidden: Count = 32, temperature: Positive = 0.1) -> None:
        super().__init__()
        if position_dim % 2:
            raise ValueError(f"position_dim is {position_dim}: it must be even, a sine and a cosine each")
        self.temperature = temperature
        self.gru = nn.GRU(position_dim, hidden, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden, 1, bias=False)

    @checked
    def weights(self, counts: Annotated[Tensor, Shape("B", "whole numbers")]) -> Tensor:
        """The weights (B, N) of the places for sets of these sizes (B,), N the largest of them.

        They add up to 1 over a set's places, and are 0 beyond them. Reading `counts` waits for a GPU.
        """
        return self._weights_of(counts, int(counts.max()))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        values = sort_descending(x, mask)  # (B, N, D)
        if mask is None:
            weights = self._weights(torch.full((1,), x.shape[1], device=x.device), x.shape[1])  # (1, N)
            weights = weights.expand(len(x), -1)
        else:
            weights = self._weights_of(count_real(x, mask), x.shape[1])  # (B, N)
        return (weights.to(x.dtype).unsqueeze(1) @ values).squeeze(1)  # (B, D)

    def _weights_of(self, counts: Tensor, places: int) -> Tensor:
        """A row of weights for each set, (B, N)."""
        if len(counts) < places:
            sizes = torch.cat([counts, counts.new_full((1,), places)])  # (B + 1,)
            return self._weights(sizes, places)[:-1]
        # Sets of one size have the same weights: each size that can occur is read once.
        sizes = torch.arange(1, places + 1, device=counts.device)  # (N,)
        return self._weights(sizes, places).index_select(0, counts - 1)

    def _weights(self, sizes: Tensor, places: int) -> Tensor:
        """One row of weights for each size, (S, N); the last size must be N, the number of places."""
        with torch.autocast(sizes.device.type, enabled=False):  # cheap, and the temperature needs float32
            scores = self._scores(sizes, places) / self.temperature  # (S, N)
            taken = torch.arange(places, device=sizes.device) < sizes.unsqueeze(-1)  # (S, N)
            return torch.where(taken, scores, -torch.inf).softmax(1)

    def _scores(self, sizes: Tensor, places: int) -> Tensor:
        # Aligned to the right, every size has its last place in the last column. The reading from right to
        # left then begins at the same column for all, and no lengths need to be known on the CPU.
        shift = places - sizes.unsqueeze(-1)  # (S, 1)   columns before place 0
        columns = torch.arange(places, device=sizes.device)  # (N,)
        encoded = self._places(places)[(columns - shift).clamp(min=0)]  # (S, N, P)
        states, _ = self.gru(encoded)  # (S, N, 2H)
        forwards, backwards = states.chunk(2, dim=-1)  # (S, N, H) each
        # From left to right all sizes read the same places: the row of all places has every state.
        ahead = self.linear(forwards[-1]).squeeze(-1)  # (N,)
        back = self.linear(backwards).squeeze(-1)  # (S, N)
        back = back.gather(1, (columns + shift).clamp(max=places - 1))  # (S, N)   aligned to the left again
        return (ahead + back) / 2  # (S, N)

    def _places(self, places: int) -> Tensor:
        """Places 0 to N - 1 as sines and cosines of falling frequency, (N, P)."""
        weight = self.linear.weight
        width = self.gru.input_size
        exponents = torch.arange(0, width, 2, device=weight.device) / width
        angles = torch.arange(places, device=weight.device).unsqueeze(-1) * 10000.0**-exponents  # (N, P/2)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).to(weight.dtype)  # (N, P)
