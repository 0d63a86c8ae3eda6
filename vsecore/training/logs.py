"""Training's numbers for TensorBoard: a callback of `fit` that writes them. It needs the extra `logs`."""

from pathlib import Path
from typing import Any

from vsecore.data.files import expanded
from vsecore.losses import LagrangeMultiplier
from vsecore.training.run import Event

EVERY = 50
"""One step in so many is logged."""


class TensorBoardLog:
    """A callback that writes losses, learning rate, multipliers and the dev split's metrics for TensorBoard.

    `tensorboard --logdir` takes the folder, or one above it. One step in `EVERY` is logged, since to read a
    loss is to wait for the GPU. Nothing is written before the first event, so that a run that is refused
    leaves no log behind. A resumed run writes to the same folder, and TensorBoard then hides what the killed
    run had logged beyond the step that it resumed from.
    """

    def __init__(self, folder: str | Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # needs the extra

        self.folder = expanded(folder)
        self._make_writer = SummaryWriter
        self._writer: Any = None  # TensorBoard has no types

    def __call__(self, event: Event) -> None:
        """Write what an event tells: a step's numbers, or the metrics of the dev split."""
        if self._writer is None:  # the first step of a run, or of its resumption: later ones on file are void
            self._writer = self._make_writer(str(self.folder), purge_step=event.step)
        if event.kind == "evaluated":
            for name, metric in (event.metrics or {}).items():
                self._writer.add_scalar(f"dev/{name}", metric, event.step)
            self._writer.flush()
        elif event.step == 1 or event.step % EVERY == 0:
            for name, term in event.terms.items():
                self._writer.add_scalar(f"loss/{name}", float(term), event.step)
            self._writer.add_scalar("learning_rate", event.learning_rate, event.step)
            for name, module in event.system.losses.named_modules():
                if isinstance(module, LagrangeMultiplier):
                    self._writer.add_scalar(f"multiplier/{name}", float(module.value), event.step)
