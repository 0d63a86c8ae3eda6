"""Adaptive pooling: weights that look at the sorted values themselves."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from vsecore.masking import check_dim, check_elements
from vsecore.pooling import cpu
from vsecore.pooling.masking import softmax_over_real, sorted_mask
from vsecore.pooling.sorting import sort_descending


class AdPool(nn.Module):
    """Two pools, and a learned balance between them.

    The token level sorts each dimension and gives every sorted row u_m one weight: the softmax of u_m·W_tok
    over the rows. The embedding level weighs each value by the softmax over its own dimension, as `SoftPool`
    does. The balance looks at both results.

    The token level can learn to be the mean or the maximum, and also the mean of the k largest if some
    dimension tells those rows from the others. `GPO` can learn all three from any data, because its weights
    depend on the place in the order; the weights here depend on the values and cost one product.

    Args:
        dim: width D of the elements.
        per_dimension: use the released code's token level, which gives each value of u_m its own weight:
            W_tok is (D, D), with a bias, and a ReLU comes before the softmax.
        token_share: None learns the balance. A number in [0, 1] fixes the token level's part, as in the
            paper's table C-2: 1 is the token level alone, 0 the embedding level alone. "random" fixes it too,
            at a number taken once from torch's global generator and saved with the weights.

    Raises:
        ValueError: dim is not a whole number of at least 1, or token_share is none of these.

    Source: Zhang et al. 2022 (2AD), eq. 3 (token level), 4 (embedding level) and 5 (balance). The released
    code runs its token softmax over the padding too, so that a caption's vector depends on the longest
    caption in its batch. Here the padding has no weight.
    """

    share: Tensor

    def __init__(
        self,
        dim: int,
        per_dimension: bool = False,
        token_share: float | Literal["random"] | None = None,
    ) -> None:
        super().__init__()
        check_dim(dim)
        if isinstance(token_share, str):
            known = token_share == "random"
        else:
            known = token_share is None or 0 <= token_share <= 1
        if not known:
            raise ValueError(f'token_share must be None, "random" or a number in [0, 1], got {token_share!r}')
        self.dim = dim
        self.per_dimension = per_dimension
        self.token_share = token_share
        if per_dimension:
            self.token = nn.Linear(dim, dim)
            nn.init.xavier_uniform_(self.token.weight)
            nn.init.zeros_(self.token.bias)
        else:
            self.token = nn.Linear(dim, 1, bias=False)
        if token_share is None:
            self.balance = nn.Linear(dim, 1, bias=False)
        else:
            share = torch.rand(()) if token_share == "random" else torch.tensor(float(token_share))
            # A random share must come back from a checkpoint; a given one is given again.
            self.register_buffer("share", share, persistent=token_share == "random")

    def weights(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The weights that the pool gives to these elements.

        Returns:
            θ, the weights of the sorted rows, (B, N, 1), or (B, N, D) if `per_dimension`; and ω, the parts of
            the token level and the embedding level, (B, 2).

        Raises:
            ValueError: as `check_elements`.
        """
        _, theta, omega = self._pool(x, mask)
        return theta, omega

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D); raises ValueError as `check_elements` does."""
        pooled, _, _ = self._pool(x, mask)
        return pooled

    def _pool(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        check_elements(x, mask, self.dim)
        if not self.per_dimension and cpu.can_pool_levels(x, self.token.weight):
            token, embedding, theta = cpu.two_levels(x, mask, self.token.weight)
        else:
            token, embedding, theta = self._levels(x, mask)
        both = torch.stack([token, embedding], 1)  # (B, 2, D)
        if self.token_share is None:
            omega = self.balance(both).squeeze(-1).softmax(1)  # (B, 2)
        else:
            omega = torch.stack([self.share, 1 - self.share]).to(both.dtype).expand(len(x), 2)
        pooled = (omega.unsqueeze(-1).to(both.dtype) * both).sum(1)  # (B, D)                   eq. 5
        return pooled, theta, omega

    def _levels(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        u, real = sort_descending(x, mask), sorted_mask(x, mask)  # (B, N, D), (B, N)
        logits = self.token(u)  # (B, N, 1), or (B, N, D) as released
        theta = softmax_over_real(logits.relu() if self.per_dimension else logits, real)
        if self.per_dimension:
            token = (theta.to(u.dtype) * u).sum(1)  # (B, D)                                 eq. 3
        else:  # the same as a matrix product, without a tensor of u's size
            token = (theta.to(u.dtype).transpose(1, 2) @ u).squeeze(1).to(u.dtype)  # (B, D)
        # Sorted or not makes no difference here, and from u one way back to the elements serves both levels.
        embedding = (softmax_over_real(u, real).to(u.dtype) * u).sum(1)  # (B, D)            eq. 4
        return token, embedding, theta
