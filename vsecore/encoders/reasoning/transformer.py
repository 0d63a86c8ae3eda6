"""A Transformer over entities: cells, regions or words look at each other, all pairs at once."""

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, Share, Whole, check_heads, checked
from vsecore.masking import checked_elements


class Block(nn.Module):
    """One layer of a Transformer encoder: self-attention, then a small network on each element.

    Each of the two is preceded by layer normalisation, and its input is added to its output:
    Z = X + attention(norm(X)), then Z + network(norm(Z)). Dropout follows both.

    Args:
        dim: width D of an element.
        heads: how many attentions work side by side, each on D / heads of the width.
        hidden: width of the network's hidden layer (ReLU).
        drop: the share left out in training.
        norm_last: normalise each sum instead, as in the first Transformer.
        printed_residual: add X instead of Z in the second sum.

    Source: Vaswani et al. 2017; Yan 2019 (thesis), section 2.1, which normalises first and prints
    X' = X + network(norm(Z)). So printed, what attention found reaches the next layer only
    through the network; the usual Z + network(norm(Z)) is the default here.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        drop: float,
        norm_last: bool = False,
        printed_residual: bool = False,
    ) -> None:
        super().__init__()
        self.printed_residual = printed_residual
        self.layer = nn.TransformerEncoderLayer(
            dim, heads, hidden, drop, batch_first=True, norm_first=not norm_last
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Turn elements (B, N, D) into as many of the same width; at the padding the result means nothing."""
        padding = None if mask is None else ~mask
        if not self.printed_residual:
            return self.layer(x, src_key_padding_mask=padding)
        layer, normal = self.layer, self.layer.norm1(x)
        attended, _ = layer.self_attn(normal, normal, normal, key_padding_mask=padding, need_weights=False)
        z = x + layer.dropout1(attended)  # (B, N, D)
        hidden = layer.dropout(layer.activation(layer.linear1(layer.norm2(z))))  # (B, N, H)
        return x + layer.dropout2(layer.linear2(hidden))  # (B, N, D)


class TransformerReasoner(nn.Module):
    """Blocks of a Transformer over the elements of a picture or caption.

    Without positions the elements are a set: in another order they give the same vectors in that order.
    Padding never changes a result.

    Args:
        dim: width D of an element.
        layers: how many blocks follow each other.
        heads: attentions side by side in each block; they divide D.
        hidden: width of each block's hidden layer; None: 2 D.
        positions: how many places have a learned vector, which is added to the element in that place, such as
            49 for a grid of 7 x 7 cells; 0: none.
        cls: put one learned element in front of the others. It has no content of its own, and can gather
            what the others say; the pool "first" takes only this one.
        drop: the share left out in training.
        norm_last: see `Block`.
        printed_residual: see `Block`; not with norm_last.

    Source: Yan 2019 (thesis), sections 2.1 and 2.2: one block over 49 cells, learned positions. With cls and
    norm_last, the region Transformer and the shared layers of Messina et al. 2020 (TERN).
    """

    @checked
    def __init__(
        self,
        dim: Count,
        layers: Count = 1,
        heads: Count = 8,
        hidden: Count | None = None,
        positions: Whole = 0,
        cls: bool = False,
        drop: Share = 0.1,
        norm_last: bool = False,
        printed_residual: bool = False,
    ) -> None:
        super().__init__()
        check_heads(heads, dim)
        if norm_last and printed_residual:
            raise ValueError(
                "printed_residual is True: it must be False with norm_last, since that sum is printed for "
                "layers that normalise first"
            )
        self.dim = dim
        self.positions = learned(positions, dim) if positions else None  # (P, D)
        self.cls = learned(1, dim) if cls else None  # (1, D)
        self.blocks = nn.ModuleList(
            Block(dim, heads, hidden or 2 * dim, drop, norm_last, printed_residual) for _ in range(layers)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Reason over elements (B, N, D).

        Returns:
            Elements (B, N, D) with their mask; (B, N + 1, D) with `cls`, whose element is the first.
        """
        x = checked_elements(x, mask, self.dim)  # even with no weight, NaN would stay NaN
        if self.positions is not None:
            if x.shape[1] > len(self.positions):
                raise ValueError(
                    f"x has {x.shape[1]} elements: there must be at most {len(self.positions)}, one for each "
                    "position"
                )
            x = x + self.positions[: x.shape[1]]  # (B, N, D)
        if self.cls is not None:
            x = torch.cat([self.cls.to(x.dtype).expand(len(x), 1, -1), x], 1)  # (B, N + 1, D)
            mask = None if mask is None else nn.functional.pad(mask, (1, 0), value=True)
        for block in self.blocks:
            x = block(x, mask)
        return x, mask


def learned(rows: int, width: int) -> nn.Parameter:
    """Make learned vectors (rows, width) that start small, as BERT's positions do."""
    return nn.Parameter(torch.randn(rows, width) * 0.02)
