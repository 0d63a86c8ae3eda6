"""Averages of the weights over the end of an epoch, which are evaluated in place of the last weights."""

from collections.abc import Iterable
from itertools import islice
from typing import cast

from torch import Tensor, device, nn
from torch.optim.swa_utils import AveragedModel, update_bn

from vsecore.data.batches import Batch
from vsecore.model import VSE
from vsecore.normalisation import BATCH_NORMS

REFRESHED_BY = 100
"""How many batches the statistics of batch normalisation are counted anew from."""


class Averaging:
    """Averages the weights of a model over snapshots, taken in the last tenth of each epoch.

    Training goes on with the weights as they are. Only the average is evaluated and kept.

    Args:
        model: the model that is trained.
        snapshots: how many, at even distances, the last one at the end; fewer if the tenth has fewer steps.
            0: there is no average.
        steps: how many steps an epoch has.

    Attributes:
        begins: how many steps of an epoch are done at its first snapshot. No checkpoint is written after it,
            until the epoch ends, so that none has to hold half an average.

    Source: Izmailov et al. 2018 (SWA); within each epoch as in Bleeker, Yates and de Rijke 2023 (LTD),
    section 4.2. LTD's released code continues each time from the average.
    """

    def __init__(self, model: VSE, snapshots: int, steps: int) -> None:
        self.model = model
        tenth = max(1, round(steps / 10))
        count = min(snapshots, tenth)
        self._due = {steps - tenth * number // count for number in range(count)}
        self.begins = min(self._due, default=steps)
        self._average = AveragedModel(model) if self._due else None
        for module in [] if self._average is None else self._average.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # a copy's weights lie apart, and cuDNN would join them each time

    def after_step(self, done: int) -> None:
        """Take a snapshot if one is due after so many steps of the epoch."""
        if self._average is None or done not in self._due:
            return
        if done == self.begins:
            self._average.n_averaged.zero_()  # the next snapshot is the first again
        self._average.update_parameters(self.model)

    def finish(self, batches: Iterable[Batch], where: device) -> VSE:
        """Return the model to evaluate at the end of an epoch.

        The running means of batch normalisation belong to other weights than the average, so they are counted
        anew, on some batches of the training split, which are moved to the device `where`.
        """
        if self._average is None:
            return self.model
        average = cast(VSE, self._average.module)
        if any(isinstance(module, BATCH_NORMS) for module in average.modules()):
            update_bn(islice(batches, REFRESHED_BY), _Compared(average), where)
        return average


class _Compared(nn.Module):
    """Embeds and compares a batch: a similarity may normalise over it too, as SGRAF's do."""

    def __init__(self, model: VSE) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)

    def forward(self, batch: Batch) -> Tensor:
        return self.model.scores(*self.model(batch))
