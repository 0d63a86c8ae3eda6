"""Sets of vectors: a picture or a caption that can be read in several ways becomes K vectors, not one.

A module reads the elements ("local" features) and one vector of the whole ("global" feature), and is called
as `module(local, global_, mask)` with shapes (B, N, D), (B, D) and (B, N), the mask True where an
element is real.
"""

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from vsecore.arguments import Count, Shape, Share, check_heads, checked
from vsecore.embedding import unit
from vsecore.masking import check_elements, checked_elements, widened, without_padding
from vsecore.normalisation import projection


class SetPrediction(nn.Module):
    """What predicts a set: `slots_of` reads the local features, `with_global` adds the global one.

    Losses that keep the slots of a set apart read them in between.
    """

    dim: int
    """Width D of the elements and of the set's vectors."""
    norm_global: nn.LayerNorm | None
    """What normalises the global feature; None: it is not read."""
    keep_attention = False
    """Set it to True to keep the attention of each call."""
    attention: Tensor | None = None
    """How the last call attended to the elements in each round, (B, T, K, N), without gradient; None: it was
    not kept."""

    def slots_of(self, local: Tensor, mask: Tensor | None = None) -> Tensor:
        """Read the elements: (B, N, D) to (B, K, D); raises ValueError as `check_elements`."""
        raise NotImplementedError

    def with_global(self, slots: Tensor, global_: Tensor | None) -> Tensor:
        """Add the global feature (B, D) to slots (B, K, D): DivE's eq. 5; ValueError for other shapes."""
        if self.norm_global is None:
            return slots
        return slots + self.norm_global(_checked_global(slots, global_)).unsqueeze(1)

    def forward(self, local: Tensor, global_: Tensor | None, mask: Tensor | None = None) -> Tensor:
        """Predict sets (B, K, D)."""
        return self.with_global(self.slots_of(local, mask), global_)


@dataclass(frozen=True, config=ConfigDict(strict=True))
class SlotOptions:
    """What else may differ about `SlotSetPrediction`."""

    heads: Count = 1
    """How many attentions work side by side, each on hidden / heads. Equation 2 has one."""
    positions: Literal["none", "line", "grid"] = "none"
    """Sines added to the elements before they become keys: "line" by their place in the order, "grid" by row
    and column of a square grid. The paper adds them to the cells of a convolutional network."""
    softmax_over: Literal["slots", "elements"] = "slots"
    """"slots": each element is shared out among the slots; "elements": each slot weighs the elements by a
    softmax of its own, as Transformers do, and slots do not compete."""
    learned_slots: bool = True
    """False: slots start at random around one learned mean with learned deviations, as in slot attention. In
    evaluation the same numbers are used for every picture."""
    residual: bool = True
    """False: a GRU updates the slots, as in slot attention."""
    add_global: bool = True
    """False: the set has no global feature, which is then not read."""
    drop: Share = 0.0
    """The share of what a slot receives, and of the MLP's hidden layer, left out in training."""
    expansion: Count = 4
    """How many times D the MLP's hidden layer is wide."""


class SlotSetPrediction(SetPrediction):
    """K slots compete for the elements, in several rounds with the same weights.

    A round shares out each element among the slots (a softmax over the slots), and each slot takes the mean
    of the elements by its shares. So two slots can hardly take the same elements, as the heads of a
    `PIENet` can. The global feature, added last, is what a set without ambiguity falls back on.

    This is slot attention with three changes, each of which can be undone: the slots start from learned
    vectors, are updated by a sum, and receive the global feature.

    Args:
        dim: width D of the elements and of the set's vectors.
        slots: K, the number of vectors.
        iterations: T, the number of rounds.
        hidden: D_h, the width of keys, queries and values, over all heads; None: D.
        **options: as `SlotOptions`.

    Attributes:
        attention: the shares of each round, averaged over heads: A of equation 2, which is 0 at padding and
            elsewhere adds up to 1 over the slots. If the softmax is over the elements, its weights.

    Source: Kim, Kim and Kwak 2023 (DivE), section 3.2, equations 1 to 5; the three changes, appendix B.3.
    Locatello et al. 2020 (slot attention). From the released code: an MLP of width 4 D, dropout, and where
    slots begin, random ones too. That code masks the logits before the softmax over slots, which gives each
    slot 1/K of the padding. Here the padding has no weight.
    """

    Options = SlotOptions
    noise: Tensor

    @checked
    def __init__(
        self, dim: Count, slots: Count = 4, iterations: Count = 4, hidden: Count | None = 1024, **options: Any
    ) -> None:
        super().__init__()
        of, hidden = SlotOptions(**options), hidden or dim
        check_heads(of.heads, hidden, "hidden")
        self.dim, self.slots, self.iterations, self.heads = dim, slots, iterations, of.heads
        self.positions, self.softmax_over = of.positions, of.softmax_over
        self.learned_slots = of.learned_slots
        if of.learned_slots:
            self.start = nn.Parameter(torch.randn(slots, dim))  # E^0
        else:
            self.mean, self.log_deviation = (
                nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, dim))) for _ in range(2)
            )
            self.register_buffer("noise", torch.randn(slots, dim))
        self.norm_local, self.norm_slots, self.norm_update = (nn.LayerNorm(dim) for _ in range(3))
        self.query, self.key, self.value = (nn.Linear(dim, hidden, bias=False) for _ in range(3))
        self.out = nn.Linear(hidden, dim, bias=False)  # W_o
        self.gru = None if of.residual else nn.GRUCell(dim, dim)
        self.dropout = nn.Dropout(of.drop)
        wide = of.expansion * dim
        self.mlp = nn.Sequential(nn.Linear(dim, wide), nn.GELU(), nn.Dropout(of.drop), nn.Linear(wide, dim))
        self.norm_last = nn.LayerNorm(dim)
        self.norm_global = nn.LayerNorm(dim) if of.add_global else None

    def slots_of(self, local: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return LN(E^T), the slots after the last round: (B, N, D) to (B, K, D)."""
        x = self.norm_local(checked_elements(local, mask, self.dim, "local"))  # (B, N, D)
        keys = self._by_head(self.key(x + self._places(x)))  # (B, H, N, D_h / H)
        values = self._by_head(self.value(x))  # (B, H, N, D_h / H)
        slots = self._first_slots(local)  # (B, K, D)
        rounds = []
        for _ in range(self.iterations):
            queries = self._by_head(self.query(self.norm_slots(slots)))  # (B, H, K, D_h / H)
            shares, weights = self._attend(queries, keys, mask)  # (B, H, K, N) each
            received = self.out((weights.to(values.dtype) @ values).transpose(1, 2).flatten(2))  # (B, K, D)
            slots = self._updated(slots, self.dropout(received))  # eq. 3
            slots = slots + self.mlp(self.norm_update(slots))  # eq. 4
            if self.keep_attention:
                rounds.append(shares.detach().mean(1))  # (B, K, N)
        self.attention = torch.stack(rounds, 1) if rounds else None  # (B, T, K, N)
        return self.norm_last(slots)

    def _attend(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the shares A of each element and the weights Â with which a slot takes it, (B, H, K, N)."""
        compete = self.softmax_over == "slots"
        logits = queries @ keys.mT / math.sqrt(queries.shape[-1])  # (B, H, K, N)   M of eq. 2
        # Logarithms, since a slot that gets almost nothing anywhere would be divided by 0.
        shares = logits.log_softmax(2) if compete else logits  # eq. 2
        if mask is not None:
            shares = torch.where(mask[:, None, None], shares, -torch.inf)
        weights = shares.softmax(3)  # eq. 3: over the elements
        return (shares.exp() if compete else weights), weights

    def _updated(self, slots: Tensor, received: Tensor) -> Tensor:
        if self.gru is None:
            return slots + received
        with torch.autocast(slots.device.type, enabled=False):  # small updates vanish in half precision
            wide = self.gru.weight_ih.dtype
            state = self.gru(received.flatten(0, 1).to(wide), slots.flatten(0, 1).to(wide))  # (B K, D)
        return state.view_as(slots).to(slots.dtype)

    def _first_slots(self, local: Tensor) -> Tensor:
        shape = (len(local), self.slots, self.dim)
        if self.learned_slots:
            return self.start.expand(shape)  # E^0
        noise = self.noise.expand(shape)
        if self.training:
            noise = torch.randn_like(noise)
        return self.mean + self.log_deviation.exp() * noise

    def _places(self, x: Tensor) -> Tensor | float:
        """What is added to the elements before they become keys, (N, D)."""
        if self.positions == "none":
            return 0.0
        make = sine_line if self.positions == "line" else sine_grid
        return make(x.shape[1], self.dim, x.device).to(x.dtype)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, N, D_h) -> (B, H, N, D_h / H)


class PIENet(SetPrediction):
    """K heads of attention look at the elements, and each adds what it found to the global feature.

    Each head has a softmax of its own over the elements, so nothing keeps two heads from looking at the same
    ones: `SlotSetPrediction` lets them compete.

    Args:
        dim: width D of the elements and of the set's vectors.
        slots: K, the number of heads and vectors.
        hidden: width of the attention's hidden layer; None: half of D.

    Attributes:
        attention: (B, 1, K, N): one round, and for each head weights that add up to 1.

    Source: Song and Soleymani 2019 (PVSE), section 3.2, and the released code: the first values of the
    weights, the sigmoid.
    """

    @checked
    def __init__(self, dim: Count, slots: Count = 4, hidden: Count | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.attend = attention_heads(dim, hidden, slots)
        self.project = projection(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def slots_of(self, local: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what each head found, (B, N, D) to (B, K, D)."""
        check_elements(local, mask, self.dim, "local")
        weights, found = weighted_means(self.attend, local, mask)  # (B, K, N), (B, K, D)
        self.attention = weights.detach().unsqueeze(1) if self.keep_attention else None
        return self.project(found).sigmoid()

    def with_global(self, slots: Tensor, global_: Tensor | None) -> Tensor:
        """Add the global feature (B, D) to what the heads found, (B, K, D), and normalise the sums."""
        return self.norm(_checked_global(slots, global_).unsqueeze(1) + slots)


class TransformerSet(SetPrediction):
    """Learned queries read the elements as the decoder of a Transformer does.

    Slots look at each other and at the elements, but do not compete: each has a softmax of its own over the
    elements. `SlotSetPrediction(softmax_over="elements")` differs from slot attention in the softmax alone.

    Args:
        dim: width D of the elements and of the set's vectors.
        slots: K, the number of queries and vectors.
        layers: how many layers follow each other, each with weights of its own.
        heads: attentions side by side in each layer; they divide D.
        hidden: width of each layer's hidden layer (GELU); None: 2 D.

    Source: Kim, Kim and Kwak 2023 (DivE), table 3 ("Transformer"), which gives no details; slots and global
    feature are joined as in its equation 5. Vaswani et al. 2017, normalised before each step.
    """

    @checked
    def __init__(
        self, dim: Count, slots: Count = 4, layers: Count = 4, heads: Count = 8, hidden: Count | None = None
    ) -> None:
        super().__init__()
        check_heads(heads, dim)
        self.dim = dim
        self.start = nn.Parameter(torch.randn(slots, dim))
        self.norm_local = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(
                dim, heads, hidden or 2 * dim, 0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm_last, self.norm_global = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def slots_of(self, local: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the slots after the last layer, (B, N, D) to (B, K, D)."""
        x = self.norm_local(checked_elements(local, mask, self.dim, "local"))  # (B, N, D)
        slots = self.start.to(x.dtype).expand(len(x), -1, -1)  # (B, K, D)
        for layer in self.layers:
            slots = layer(slots, x, memory_key_padding_mask=None if mask is None else ~mask)
        return self.norm_last(slots)


@checked
def circular_variance(sets: Annotated[Tensor, Shape("B* K D")]) -> Tensor:
    """How widely the vectors of each set point in different directions.

    Args:
        sets: (B, K, D). Need not be unit vectors; a zero vector counts as one without a direction.

    Returns:
        (B,) numbers in [0, 1], in float32 at least: 0 if all vectors of a set point the same way, 1 if their
        directions cancel out.

    Source: Kim, Kim and Kwak 2023 (DivE), section 4.6: 1 − ‖mean x‖.
    """
    return 1 - unit(widened(sets)).mean(1).norm(dim=-1)  # (B,)


def sine_line(places: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Return sines and cosines of each place in a line, (places, dim), of waves from short to long.

    Source: Vaswani et al. 2017, section 3.5.
    """
    wave = torch.arange(0, dim, 2, device=device) / dim  # (dim / 2,)   rounded up
    angles = torch.arange(places, device=device).unsqueeze(1) / 10000**wave  # (places, dim / 2)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :dim]


def sine_grid(cells: int, dim: int, device: torch.device | None = None) -> Tensor:
    """Return the sines of each cell's row and column in a square grid, (cells, dim): half of each."""
    side = math.isqrt(cells)
    if side * side != cells:
        raise ValueError(f"local has {cells} elements: positions 'grid' must have a square number of them")
    rows, columns = sine_line(side, dim - dim // 2, device), sine_line(side, dim // 2, device)
    return torch.cat([rows.repeat_interleave(side, 0), columns.repeat(side, 1)], 1)


def attention_heads(dim: int, hidden: int | None, heads: int) -> nn.Sequential:
    """Make the attention of `PIENet`: a logit for each head from each element, (B, N, D) to (B, N, heads).

    `hidden` is the width of the layer between; None: half of D.
    """
    hidden = hidden or max(1, dim // 2)
    first, last = (projection(*widths, bias=False) for widths in ((dim, hidden), (hidden, heads)))
    return nn.Sequential(first, nn.Tanh(), last)


def weighted_means(attend: nn.Module, local: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return each head's weights over the elements, (B, K, N), and its weighted means, (B, K, D)."""
    x = without_padding(local, mask)  # (B, N, D)
    logits = attend(x).mT  # (B, K, N)
    if mask is not None:
        logits = torch.where(mask.unsqueeze(1), logits, -torch.inf)
    weights = logits.softmax(2)  # (B, K, N)
    return weights, weights.to(x.dtype) @ x


def _checked_global(slots: Tensor, global_: Tensor | None) -> Tensor:
    wanted = (slots.shape[0], slots.shape[2])
    if global_ is None or tuple(global_.shape) != wanted:
        came = None if global_ is None else tuple(global_.shape)
        raise ValueError(f"global_ is {came}: it must be {wanted}, one vector for each set")
    return global_
