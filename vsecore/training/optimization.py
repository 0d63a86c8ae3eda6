"""How weights move: the optimizer, the learning rate's schedule, and a watch over the losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import lr_scheduler

from vsecore.model import VSE
from vsecore.recipes import TrainingSettings


def make_optimizer(model: VSE, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Adam or AdamW, with smaller steps for weights that were trained before."""
    pretrained = {id(parameter) for parameter in model.pretrained_parameters()}
    fresh = [parameter for parameter in model.parameters() if id(parameter) not in pretrained]
    groups: list[dict[str, Any]] = [{"params": fresh, "lr": settings.learning_rate}]
    if pretrained:
        rate = settings.learning_rate * settings.pretrained_factor
        groups.append({"params": list(model.pretrained_parameters()), "lr": rate})
    kind = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}[settings.optimizer]
    return kind(groups, weight_decay=settings.weight_decay, fused=True)  # fused: one kernel, not one a weight


def make_schedule(
    optimizer: torch.optim.Optimizer, settings: TrainingSettings, steps_an_epoch: int
) -> lr_scheduler.LRScheduler:
    """The learning rate, step by step: a linear warm-up times a schedule of torch's."""
    steps, decay = settings.epochs * steps_an_epoch, settings.decay_epochs * steps_an_epoch
    warmup = settings.warmup_steps
    # The first step is taken at 1/(warmup + 1) of the rate, not at 0: that one would teach nothing.
    parts: list[lr_scheduler.LRScheduler] = [
        lr_scheduler.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
    ]
    match settings.schedule:
        case "step":
            parts.append(lr_scheduler.StepLR(optimizer, decay, settings.decay_factor))
        case "cosine":
            parts.append(lr_scheduler.CosineAnnealingLR(optimizer, steps))
        case "linear":
            parts.append(lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps))
        case "exponential":
            parts.append(lr_scheduler.ExponentialLR(optimizer, settings.decay_factor ** (1 / decay)))
    return lr_scheduler.ChainedScheduler(parts)


class LossMeter:
    """Adds up an epoch's losses and watches that they stay finite.

    Both happen where the losses are. A GPU that is asked for a number first finishes all that it was given to
    do; so it is asked once in fifty steps.

    Args:
        total: what the epoch's earlier steps, before a run was resumed, add up to.
        device: where the losses are.
    """

    def __init__(self, total: float, device: torch.device) -> None:
        self.total = torch.tensor(total, device=device)
        self.first_bad = torch.tensor(-1, device=device)
        self.patience = 1 if device.type == "cpu" else 50

    def add(self, loss: Tensor, norm: Tensor, step: int, learning_rate: float) -> None:
        """Take in a step's loss, and the length of its gradient.

        Raises:
            FloatingPointError: one of the last fifty was NaN or infinite.
        """
        self.step, self.learning_rate = step, learning_rate
        self.total += loss
        bad = ~(loss.isfinite() & norm.isfinite()) & (self.first_bad < 0)
        self.first_bad = torch.where(bad, step, self.first_bad)
        if step % self.patience == 0:
            self.read()

    def read(self) -> float:
        """The sum so far.

        Raises:
            FloatingPointError: one of the losses was NaN or infinite.
        """
        if (step := int(self.first_bad)) >= 0:
            raise FloatingPointError(
                f"the loss or its gradient is not finite at step {step} (learning rate "
                f"{self.learning_rate:.3g}): lower training.learning_rate, raise training.warmup_steps, or "
                "look for odd values in the features; the last checkpoint is from before"
            )
        return float(self.total)
