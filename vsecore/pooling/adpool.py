"""Adaptive pooling: weights that look at the sorted values themselves."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from vsecore.pooling.masking import (
    cache_sized_parts,
    check_dim,
    check_elements,
    softmax_over_real,
    sorted_mask,
)
from vsecore.pooling.sorting import sort_descending


class AdPool(nn.Module):
    """Two pools, and a learned balance between them.

    The token level sorts each dimension and gives every row u_m of the result one weight: the softmax over
    the rows of u_m·W_tok. The embedding level weighs each value by the softmax over its own dimension, as
    `SoftPool` does. The balance looks at both results.

    The token level has the mean and the maximum among what it can learn, and the mean of the k largest where
    a dimension tells those rows from the others. `GPO` has them always, since its weights look at the places;
    these look at the values, and cost one product.

    Args:
        dim: width D of the elements.
        per_dimension: the released code's token level: each value of u_m has a weight of its own, by
            W_tok (D, D) with a bias and a ReLU before the softmax.
        token_share: None: the balance is learned. A number in [0, 1]: the token level's part, fixed, as in
            the paper's table C-2; 1 is the token level alone, 0 the embedding level alone. "random": fixed
            too, drawn once from torch's global generator and kept with the weights.

    Raises:
        ValueError: dim is no whole number of at least 1, or token_share is none of these.

    Source: Zhang et al. 2022 (2AD), eq. 3 (token level), 4 (embedding level) and 5 (balance). Where the
    released code departs: its token softmax runs over the padding too, which is 0 there and so takes as much
    as a real row with the same logit (the bias's, in that code); a caption's vector then depends on the
    longest caption of its batch. Here no padding takes part.
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
            # What is drawn must come back from a checkpoint; what is given is given again.
            self.register_buffer("share", share, persistent=token_share == "random")

    def weights(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What the pool makes of these elements.

        Returns:
            θ, the weights of the sorted rows, (B, N, 1), or (B, N, D) if `per_dimension`; and ω, the parts of
            the token and of the embedding level, (B, 2).

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
        u, real = sort_descending(x, mask), sorted_mask(x, mask)  # (B, N, D), (B, N)
        weight = self.token.weight
        # Without mixed precision, on a processor: elsewhere the memory is faster, or a compiler does better.
        plain = u.dtype == weight.dtype and not torch.is_autocast_enabled(u.device.type)
        if self.per_dimension:
            theta, both = _levels(u, self.token(u).relu(), real)
        elif plain and u.device.type == "cpu" and not torch.compiler.is_compiling():
            theta, both = _LevelsInParts.apply(u, weight, real)
        else:
            theta, both = _levels(u, self.token(u), real)  # (B, N, 1 or D), (B, 2, D)
        if self.token_share is not None:
            omega = torch.stack([self.share, 1 - self.share]).to(both.dtype).expand(len(x), 2)
        else:
            omega = self.balance(both).squeeze(-1).softmax(1)  # (B, 2)
        pooled = (omega.unsqueeze(-1).to(u.dtype) * both).sum(1)  # (B, D)                   eq. 5
        return pooled, theta, omega


def _levels(u: Tensor, logits: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """θ, (B, N, 1 or D), and the token and the embedding level, (B, 2, D), of the sorted u, (B, N, D)."""
    theta = softmax_over_real(logits, real)
    if theta.shape[2] == 1:
        token = theta.to(u.dtype).transpose(1, 2) @ u  # (B, 1, D)                           eq. 3
    else:
        token = (theta.to(u.dtype) * u).sum(1, keepdim=True)  # (B, 1, D)                    eq. 3
    # Sorted or not makes no difference here, and from u one way back to the elements serves both levels.
    embedding = (softmax_over_real(u, real).to(u.dtype) * u).sum(1, keepdim=True)  # (B, 1, D)     eq. 4
    return theta, torch.cat([token.to(u.dtype), embedding], dim=1)


class _LevelsInParts(torch.autograd.Function):
    """The same with logits u·W_tok, a few sets at a time, and with the way back written out.

    Left to itself, torch makes eight tensors of u's size for the way back, most of them one after the other
    in fresh memory, and adds up four of them. Here u's gradient is made in the cache and written once.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        theta, both = u.new_empty(*u.shape[:2], 1), u.new_empty(len(u), 2, u.shape[2])
        for part in cache_sized_parts(u):
            of_part = None if real is None else real[part]
            theta[part], both[part] = _levels(u[part], linear(u[part], weight), of_part)
        ctx.save_for_backward(u, weight, real, theta, both)
        return theta, both

    @staticmethod
    def backward(ctx: Any, to_theta: Tensor, to_both: Tensor) -> tuple[Tensor | None, ...]:
        u, weight, real, theta, both = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted, which torch finds better than we
            needed = [of for of, need in zip((u, weight), ctx.needs_input_grad, strict=False) if need]
            results = _levels(u, linear(u, weight), real)
            found = iter(torch.autograd.grad(results, needed, (to_theta, to_both), create_graph=True))
            return tuple(next(found) if need else None for need in ctx.needs_input_grad)
        to_u, to_weight = torch.empty_like(u), torch.zeros_like(weight)
        for part in cache_sized_parts(u):
            values, shares, of_part = u[part], theta[part], None if real is None else real[part]
            to_token, to_embedding = to_both[part].split(1, dim=1)  # (b, 1, D) each
            to_shares = to_theta[part] + values @ to_token.transpose(1, 2)  # (b, N, 1)
            to_logits = shares * (to_shares - (shares * to_shares).sum(1, keepdim=True))  # (b, N, 1)
            to_weight += to_logits.view(1, -1) @ values.flatten(0, 1)  # (1, D)
            # Of the sum of p·u, p its softmax, the derivative is p·(1 + u - that sum).
            to_values = torch.sub(values, both[part, 1:] - 1, out=to_u[part])  # (b, N, D)
            to_values.mul_(softmax_over_real(values, of_part)).mul_(to_embedding)
            to_values.addcmul_(shares, to_token).addcmul_(to_logits, weight)
        return to_u, to_weight, None
