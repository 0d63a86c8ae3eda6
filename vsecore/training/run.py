"""How a training runs (`Settings`), what it tells a callback (`Event`), and its result (`Run`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pydantic.dataclasses
import torch
from pydantic import AfterValidator, ConfigDict, Field, SkipValidation, ValidationError
from torch import Tensor

from vsecore.arguments import Count, Whole
from vsecore.data.files import expanded
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.words import Tokenizer
from vsecore.model import VSE
from vsecore.recipes import Recipe
from vsecore.training.system import System
from vsecore.typed import sentence


@dataclass(frozen=True, kw_only=True)
class Event:
    """What a callback receives after each step and after each epoch's evaluation."""

    kind: Literal["step", "evaluated"]
    epoch: int
    """Counted from 0."""
    step: int
    """Steps taken since the beginning."""
    system: System
    learning_rate: float
    """That of the first group of weights in this step, or in the epoch's last one."""
    terms: dict[str, Tensor] = field(default_factory=dict)
    """Of a step: the terms of its loss. Reading one waits for the GPU."""
    scores: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    """Of a step: the scores of the joint batch, (B, C)."""
    positives: Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.bool))
    """Of a step: which pairs belong together, bool (B, C)."""
    saved: bool = False
    """Of a step: whether the run is saved next. What a callback keeps beside it must be written now."""
    metrics: dict[str, float] | None = None
    """Of an evaluation: the metrics of the dev split."""

    @property
    def model(self) -> VSE:
        """The model within the system."""
        return self.system.model

    @property
    def loss(self) -> Tensor:
        """The sum of the terms."""
        return cast(Tensor, sum(self.terms.values()))


Callback = Callable[[Event], bool | None]
_CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Settings:
    """How a training runs. `fit` takes all of these as keywords, or one such object."""

    folder: Annotated[Path, AfterValidator(expanded)] | None = None
    """Where the run is kept, see `checkpoints.RunFolder`; None: nowhere."""
    resume: bool = False
    """Continue the run in the folder, or start one if there is none yet."""
    tokenizer: Annotated[Tokenizer | None, SkipValidation] = None
    """For the captions; None: the recipe makes one from the training captions."""
    vectors: Annotated[Tensor | None, SkipValidation] = None
    """Initial word vectors, (len(tokenizer), width)."""
    negatives: Annotated[OfflineNegatives | None, SkipValidation] = None
    """Hard negatives from the whole training set; each pair gets new ones (`Batch.offline`)."""
    weights: Annotated[Mapping[str, Tensor] | None, SkipValidation] = None
    """The model's weights to begin with, such as an earlier round's; None: new ones."""
    earlier_seconds: float = 0.0
    """How long earlier rounds took, which counts as this run's time."""
    callback: Annotated[Callback | None, SkipValidation] = None
    """Called with an `Event` after each step and each evaluation. If it returns False, the training ends with
    this epoch; an exception in it ends the run at once."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Decides the initial weights, the order, and what is dropped."""
    device: Literal["auto", "cpu"] = "auto"
    """"auto" uses a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """"auto" uses bfloat16 if the GPU has it in hardware, else float32."""
    workers: Whole = 0
    """Processes that prepare batches ahead."""
    save_every: Count | None = None
    """Save after every so many steps too, not only after each epoch; None: within an epoch, save when ten
    minutes have passed since the last time."""

    @classmethod
    def of(cls, settings: Settings | None, keywords: Mapping[str, Any]) -> Settings:
        """Return the settings with some of them changed; a ValueError names a keyword that is wrong."""
        try:
            return cls(**{**(vars(settings) if settings else {}), **keywords})
        except ValidationError as error:
            raise ValueError(sentence("settings", error)) from None


@dataclass
class Run:
    """A trained model and how it came to be."""

    model: VSE
    """With the weights of the best epoch; on the CPU, in eval mode."""
    tokenizer: Tokenizer
    recipe: Recipe
    data: dict[str, Any]
    """What `describe_data` returned."""
    seed: int
    precision: str
    """"float32" or "bfloat16"."""
    history: list[dict[str, float]]
    """For each epoch: epoch, step, learning_rate, loss, its terms if there are several, dev's metrics."""
    best: dict[str, float]
    """The entry of the first epoch with the highest rsum."""
    timings: dict[str, float]
    """seconds, in all; step_seconds, the mean; data_wait, the share of a step spent waiting for its batch."""
    device: str
    """The name of the hardware, such as "NVIDIA H200"."""
    processes: int
    """How many shared each batch."""
