"""Adaptive pooling: weights that look at the sorted values themselves."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from vsecore.arguments import Count, Fraction, checked
from vsecore.masking import check_elements, softmax_over_real, sorted_mask
from vsecore.normalisation import projection
from vsecore.pooling.sorting import cache_sized_parts, numpy_sorts, sort_descending, sort_runs


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

    Source: Zhang et al. 2022 (2AD), eq. 3 (token level), 4 (embedding level) and 5 (balance). The released
    code runs its token softmax over the padding too, so that a caption's vector depends on the longest
    caption in its batch. Here the padding has no weight.
    """

    share: Tensor

    @checked
    def __init__(
        self, dim: Count, per_dimension: bool = False, token_share: Fraction | Literal["random"] | None = None
    ) -> None:
        super().__init__()
        self.dim = dim
        self.per_dimension = per_dimension
        self.token_share = token_share
        if per_dimension:
            self.token = projection(dim, dim)
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

        They are θ, those of the sorted rows, (B, N, 1), or (B, N, D) if `per_dimension`; and ω, the parts of
        the token level and the embedding level, (B, 2).
        """
        _, theta, omega = self._pool(x, mask)
        return theta, omega

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        pooled, _, _ = self._pool(x, mask)
        return pooled

    def _pool(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        check_elements(x, mask, self.dim)
        if self._fused(x):
            token, embedding, theta = _FusedLevels.apply(x, mask, self.token.weight)
        else:
            token, embedding, theta = self._levels(x, mask)
        both = torch.stack([token, embedding], 1)  # (B, 2, D)
        if self.token_share is None:
            omega = self.balance(both).squeeze(-1).softmax(1)  # (B, 2)
        else:
            omega = torch.stack([self.share, 1 - self.share]).to(both.dtype).expand(len(x), 2)
        pooled = (omega.unsqueeze(-1).to(both.dtype) * both).sum(1)  # (B, D)                   eq. 5
        return pooled, theta, omega

    def _fused(self, x: Tensor) -> bool:
        """Whether to pool both levels in one pass: in float32 on a CPU, where a gradient is wanted."""
        single = x.dtype == self.token.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        return single and not self.per_dimension and torch.is_grad_enabled() and numpy_sorts(x)

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


class _FusedLevels(torch.autograd.Function):
    """`AdPool._levels` for a CPU: one pass over the elements, and one for the gradient; up to rounding.

    Memory is slow, so a few sets at a time are worked through from their elements to their result. Sorted
    values are kept as runs, (B, D, N), as they come out of the sort.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sets, count, dim = x.shape
        counts = torch.full((sets, 1, 1), count) if mask is None else mask.sum(1).view(-1, 1, 1)
        is_real = torch.arange(count) < counts  # (B, 1, N)   in the order of the sorted rows
        # A product and a maximum take far less time than a choice by a mask, or than powers of -inf.
        kept = is_real.float()  # (B, 1, N)   0 for the padding
        floor = torch.where(is_real, -torch.inf, 0.0)  # (B, 1, N)   0 in place of the padding's -inf
        u, origin = x.new_empty(sets, dim, count), torch.empty(sets, dim, count, dtype=torch.int16)
        token, embedding, log_total = x.new_empty(3, sets, dim).unbind()  # (B, D) each
        theta = x.new_empty(sets, 1, count)
        for part in cache_sized_parts(x):
            runs, origin[part] = sort_runs(x[part], None if mask is None else mask[part].unsqueeze(-1))
            values = runs.float()  # (b, D, N)   rounded to a float32 it is the value again
            largest = values[..., :1]
            values = torch.maximum(values, floor[part], out=u[part])
            powers = (values - largest).clamp_(max=0).exp_().mul_(kept[part])  # (b, D, N)
            total = powers.sum(-1)  # (b, D)
            embedding[part] = powers.mul_(values).sum(-1).div_(total)
            log_total[part] = largest.squeeze(-1) + total.log_()
            theta[part] = (weight @ values).masked_fill_(~is_real[part], -torch.inf).softmax(-1)
            token[part] = (values @ theta[part].transpose(1, 2)).squeeze(-1)
        ctx.save_for_backward(u, origin, kept, theta, embedding, log_total, weight)
        return token, embedding, theta.transpose(1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "AdPool has no second derivatives of float32 on a CPU: use float64, or create_graph=False"
            )
        *saved, weight = ctx.saved_tensors
        sets, dim, count = saved[0].shape
        of_x, of_weight = saved[0].new_empty(sets, count, dim), torch.zeros_like(weight)
        for part in cache_sized_parts(of_x):
            values, origin, kept, theta, embedding, log_total = (each[part] for each in saved)
            of_token, of_embedding, of_theta = (each[part].contiguous() for each in gradients)
            of_theta = of_theta.transpose(1, 2) + of_token.unsqueeze(1) @ values  # (b, 1, N)
            of_logits = theta * (of_theta - (theta * of_theta).sum(-1, keepdim=True))  # (b, 1, N)
            of_weight += (values @ of_logits.transpose(1, 2)).sum(0).t()
            # A value moves its softmax mean e by its own weight times (1 + value - e).
            of_values = (values - log_total.unsqueeze(-1)).clamp_(max=0).exp_().mul_(kept)  # (b, D, N)
            of_values *= (values - (embedding - 1).unsqueeze(-1)).mul_(of_embedding.unsqueeze(-1))
            # It is weighed by θ on the token level, and adds to its row's logit.
            columns = torch.stack([of_token, weight.expand_as(of_token)], -1)  # (b, D, 2)
            of_values.baddbmm_(columns, torch.cat([theta, of_logits], 1))
            elements = torch.empty_like(of_values).scatter_(2, origin.long(), of_values)
            of_x[part] = elements.transpose(1, 2)
        return of_x, None, of_weight
