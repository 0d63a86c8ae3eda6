"""Checkpoints: tensors and facts in one safetensors file, so that no kill can part them.

No pickle: a checkpoint from a stranger can hold wrong numbers, never code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from vsecore.data.files import write_atomically

BEST, LAST, RUN = "best.safetensors", "last.safetensors", "run.json"


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and facts (whatever JSON knows) as one file, whole or not at all."""
    cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with write_atomically(path) as file:
        file.write(safetensors.torch.save(cpu, metadata={"facts": json.dumps(facts)}))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no checkpoint, or not a whole one.
    """
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
            facts = json.loads((file.metadata() or {})["facts"])
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"checkpoint {path} is damaged, or not one of this package's ({error})") from error
    return tensors, facts


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """An optimizer's moments as named tensors ("3.exp_avg": of parameter 3), its settings as plain data."""
    state = optimizer.state_dict()
    tensors = {
        f"{parameter}.{name}": moment
        for parameter, moments in state["state"].items()
        for name, moment in moments.items()
    }
    return tensors, state["param_groups"]


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """Give an optimizer back what `optimizer_state` took from it."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, moment in tensors.items():
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = moment
    optimizer.load_state_dict({"state": state, "param_groups": groups})


@dataclass
class State:
    """Where a run stands: all that is carried from step to step, besides weights and moments."""

    epoch: int = 0  # the one that is on, or comes next
    batch: int = 0  # how many of its batches have been learned from
    step: int = 0  # how many batches ever
    loss_sum: float = 0.0  # over this epoch's batches
    history: list[dict[str, float]] = field(default_factory=list)  # an entry for each epoch that is over
    best: dict[str, float] = field(default_factory=dict)  # its entry with the highest rsum
    seconds: float = 0.0  # of the whole run
    training_seconds: float = 0.0  # of its steps
    waiting_seconds: float = 0.0  # for batches, within those


class RunFolder:
    """A run on disk: what is run, its best weights, and all that is needed to go on.

    `last.safetensors` and `best.safetensors` are replaced whole, so that a kill at any moment leaves a usable
    run.

    Args:
        folder: where; None: nothing is written, and the best weights are kept in memory alone.
        identity: what is run, as JSON knows it. A run goes on only as what it was.
        writes: False in all processes but one.
    """

    def __init__(self, folder: Path | None, identity: dict[str, Any], writes: bool = True) -> None:
        self.folder = folder
        self.identity = identity
        self.writes = writes
        self.best: dict[str, Tensor] = {}

    def open(
        self,
        resume: bool,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: LRScheduler,
    ) -> State:
        """Begin a run, or bring model, optimizer and schedule back to where it stopped.

        Raises:
            ValueError: the folder holds a run and `resume` is False, or a run of something else.
        """
        if self.folder is None:
            return State()
        last = self.folder / LAST
        if last.is_file() and not resume:
            raise ValueError(f"{self.folder} holds a run already: resume it, or choose another folder")
        if not last.is_file():
            if self.writes:
                with write_atomically(self.folder / RUN, "w") as file:
                    json.dump(self.identity, file, indent=2)
            return State()
        self._compare(read_json(self.folder / RUN))
        tensors, facts = load(last)
        model.load_state_dict(_under("model.", tensors))
        load_optimizer_state(optimizer, _under("optimizer.", tensors), facts["optimizer"])
        schedule.load_state_dict(facts["schedule"])
        state = State(**facts["state"])
        if state.best:
            self.best = load(self.folder / BEST)[0]
        for stale in self.folder.glob(".*.part"):  # what a kill in the middle of writing left
            stale.unlink()
        return state

    def save_last(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: LRScheduler, state: State
    ) -> None:
        """Write all that is needed to go on from here."""
        if self.folder is None or not self.writes:
            return
        moments, groups = optimizer_state(optimizer)
        tensors = {f"model.{name}": weight for name, weight in model.state_dict().items()}
        tensors |= {f"optimizer.{name}": moment for name, moment in moments.items()}
        facts = {"state": asdict(state), "schedule": schedule.state_dict(), "optimizer": groups}
        save(self.folder / LAST, tensors, facts)

    def save_best(self, model: nn.Module, entry: dict[str, float]) -> None:
        """Keep the weights, and write them with the epoch's entry in the history."""
        self.best = {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}
        if self.folder is not None and self.writes:
            save(self.folder / BEST, self.best, entry)

    def _compare(self, before: dict[str, Any]) -> None:
        then, now = flatten(before), flatten(self.identity)
        for name in sorted(then.keys() | now.keys()):
            if then.get(name) != now.get(name):
                raise ValueError(
                    f"{self.folder} holds a run with {name} = {then.get(name)!r}, and it is now "
                    f"{now.get(name)!r}: resume with the same, or choose another folder"
                )


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level: {"loss": {"margin": 0.2}} becomes {"loss.margin": 0.2}."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's content.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no JSON object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a JSON {type(content).__name__}: wanted an object")
    return content


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
