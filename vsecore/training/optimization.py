"""How weights are updated: the optimizer, the learning rate's schedule, and a check on the losses."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from vsecore.recipes import Training
from vsecore.training.system import System


def make_optimizer(system: System, settings: Training) -> torch.optim.Optimizer:
    """Make Adam or AdamW for the trainable weights, with other steps for pretrained ones and for sets."""
    model = system.model
    factors = dict.fromkeys(model.parameters_of_sets(), settings.set_factor)
    factors |= dict.fromkeys(model.pretrained_parameters(), settings.pretrained_factor)
    if settings.picture_factor is not None:
        factors |= dict.fromkeys(model.pretrained_parameters("picture"), settings.picture_factor)
    # A group for each factor. That of 1 comes first: its rate is the one that is reported.
    groups: dict[float, list[nn.Parameter]] = {1.0: []}
    groups |= {factor: [] for factor in sorted({*factors.values()} - {1.0})}
    for weight in system.parameters():
        if weight.requires_grad:
            groups[factors.get(weight, 1.0)].append(weight)
    kind = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}[settings.optimizer]
    return kind(
        [{"params": x, "lr": settings.learning_rate * factor} for factor, x in groups.items() if x],
        weight_decay=settings.weight_decay,
        fused=True,  # one kernel for all weights, rather than one for each
    )


def make_schedule(
    optimizer: torch.optim.Optimizer, settings: Training, steps_an_epoch: int
) -> lr_scheduler.LRScheduler:
    """Make the schedule of the learning rate: a linear warm-up times one of torch's schedules."""
    steps, decay = settings.epochs * steps_an_epoch, settings.decay_epochs * steps_an_epoch
    warmup = settings.warmup_steps
    # The first step is taken at 1/(warmup + 1) of the rate, not at 0, which would change nothing.
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


def advance(schedule: lr_scheduler.LRScheduler, steps: int) -> None:
    """Bring a new schedule to its state after some steps: it depends on their number alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        for _ in range(steps):
            schedule.step()


def check_weights(system: nn.Module, step: int, learning_rate: float) -> None:
    """Refuse unusable weights before they are evaluated or saved, by a FloatingPointError.

    They are NaN, infinite, or so large that their square is infinite: then every embedding becomes zero, and
    the loss stays finite.
    """
    for name, weight in system.named_parameters():
        if weight.numel() and not weight.detach().square().amax().isfinite():  # NaN if any number is
            raise FloatingPointError(
                f"weight {name} is not finite, or its square is not, at step {step} {_remedy(learning_rate)}"
            )


class LossMeter:
    """Adds up the terms of an epoch's losses and checks that they stay finite, both on the losses' device.

    Reading a number from a GPU waits until the GPU has finished all its work, so numbers are read only every
    fifty steps. `totals` are the sums before the run was resumed, by the term's name.
    """

    def __init__(self, totals: Mapping[str, float], device: torch.device) -> None:
        self.totals = {name: torch.tensor(total, device=device) for name, total in totals.items()}
        self.first_bad = torch.tensor(-1, device=device)
        self.patience = 1 if device.type == "cpu" else 50

    def add(self, terms: Mapping[str, Tensor], norm: Tensor, step: int, learning_rate: float) -> None:
        """Add the terms of a step's loss; now and then check all of them, and the norms of gradients."""
        self.step, self.learning_rate = step, learning_rate
        bad = ~norm.isfinite()
        for name, term in terms.items():
            value = term.detach()
            self.totals[name] = self.totals[name] + value if name in self.totals else value.clone()
            bad = bad | ~value.isfinite()
        self.first_bad = torch.where(bad & (self.first_bad < 0), step, self.first_bad)
        if step % self.patience == 0:
            self.read()

    def read(self) -> dict[str, float]:
        """Return the sums so far; a FloatingPointError if a loss or gradient was NaN or infinite."""
        if (step := int(self.first_bad)) >= 0:
            raise FloatingPointError(
                f"the loss or its gradient is not finite at step {step} {_remedy(self.learning_rate)}"
            )
        return {name: float(total) for name, total in self.totals.items()}


def _remedy(learning_rate: float) -> str:
    return (
        f"(learning rate {learning_rate:.3g}): lower training.learning_rate, raise training.warmup_steps, or "
        "look for odd values in the features; the last checkpoint is from before"
    )
