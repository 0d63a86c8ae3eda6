"""A constraint in place of a weight: push a loss below a bound, and no further."""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from vsecore.arguments import Fraction, NotNegative, Positive, Shape, Share, checked

Scalar = Annotated[Tensor, Shape("")]


class LagrangeMultiplier(nn.Module):
    """Weigh a loss by a number that grows while the loss is above its bound, and shrinks while it is below.

    The model descends on `penalty`, and the multiplier ascends on it. While the bound is not met, the
    multiplier grows, and with it the gradient of the loss. Once it is met, the multiplier falls; at zero the
    loss has no gradient at all. A fixed weight would never stop pushing.

    In each step of training the multiplier is used first (`penalty`), then moved (`step`). Its state is in
    buffers, so that it is saved and resumed with the model.

    Args:
        bound: the value that the loss should reach, > 0 (eta).
        initial: where the multiplier starts, from 0 to the maximum.
        lr: learning rate of the ascent.
        momentum: momentum of the ascent, in [0, 1).
        dampening: how much of each new gradient the momentum leaves out, in [0, 1]; nothing of the first one,
            as in `torch.optim.SGD`.
        maximum: the multiplier's upper limit.
        projected: keep the multiplier between 0 and the maximum after each step. False: it moves freely, and
            only the value that is used is kept in these limits, as in the released code. Then it can wind up:
            far below zero it needs as many steps to come back.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), equation 9 and section 4.2; Platt and Barr 1987.
    """

    raw: Tensor
    velocity: Tensor
    moving: Tensor

    @checked
    def __init__(
        self,
        bound: Positive,
        initial: NotNegative = 1.0,
        lr: Positive = 5e-3,
        momentum: Share = 0.9,
        dampening: Fraction = 0.9,
        maximum: Positive = 100.0,
        projected: bool = True,
    ) -> None:
        super().__init__()
        if initial > maximum:
            raise ValueError(f"initial is {initial}: it must be from 0 to maximum, which is {maximum}")
        self.bound, self.lr, self.momentum, self.dampening = bound, lr, momentum, dampening
        self.maximum, self.projected = maximum, projected
        self.register_buffer("raw", torch.tensor(float(initial)))
        self.register_buffer("velocity", torch.zeros(()))
        self.register_buffer("moving", torch.tensor(False))  # whether it has been stepped

    @property
    def value(self) -> Tensor:
        """The multiplier as it is used, from 0 to the maximum: a scalar."""
        return self.raw.clamp(0, self.maximum)

    @checked
    def penalty(self, rec: Scalar) -> Tensor:
        """Return value * (rec / bound - 1) of the loss that should come below the bound, a scalar.

        The gradient goes to the loss alone. Raises ValueError if `rec` is no scalar.
        """
        return self.value.detach() * (rec / self.bound - 1)

    @checked
    @torch.no_grad()
    def step(self, rec: Scalar) -> None:
        """Move the multiplier up the gradient of the penalty, rec / bound - 1; raises as `penalty`."""
        gradient = (rec.detach() / self.bound - 1).to(self.raw)
        fresh = torch.where(self.moving, (1 - self.dampening) * gradient, gradient)
        self.velocity.mul_(self.momentum).add_(fresh)  # zero before the first step
        self.raw.add_(self.lr * self.velocity)
        if self.projected:
            self.raw.clamp_(0, self.maximum)
        self.moving.fill_(True)


class Constraint(nn.Module):
    """A loss that is added as it is, or as a constraint: what decoders of captions have in common.

    Args:
        bound: the value that the loss should reach; None: the loss is added as it is (the dual objective).
        projected, multiplier_lr: `projected` and `lr` of the `LagrangeMultiplier`.

    Attributes:
        multiplier: the `LagrangeMultiplier`; None without a bound.
        reconstruction: the loss of the last call, before it was weighed: a scalar without gradient.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), equations 7 and 9.
    """

    @checked
    def __init__(
        self, bound: Positive | None = None, projected: bool = True, multiplier_lr: Positive = 5e-3
    ) -> None:
        super().__init__()
        options: dict[str, Any] = {"lr": multiplier_lr, "projected": projected}
        self.multiplier = None if bound is None else LagrangeMultiplier(bound, **options)
        self.reconstruction: Tensor | None = None

    def forward(self, rec: Tensor) -> Tensor:
        """Return the loss or its penalty, a scalar; in training the multiplier moves afterwards."""
        self.reconstruction = rec.detach()
        if self.multiplier is None:
            return rec
        penalty = self.multiplier.penalty(rec)
        if self.training:
            self.multiplier.step(rec)
        return penalty
