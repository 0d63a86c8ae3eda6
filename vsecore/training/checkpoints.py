"""Checkpoints: all that a run needs to resume, in one file, so that a kill never leaves half of it.

The format is safetensors, not pickle: a checkpoint from someone else can hold wrong numbers, never code.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from vsecore.data.files import read_json, write_atomically

T = TypeVar("T")

CHECKPOINT, RUN = "checkpoint.safetensors", "run.json"

IDENTITY = {
    "recipe.name": str,
    "data.name": str,
    "data.fingerprint": str,
    "data.feature_dim": int,
    "data.tokenizer": str,
    "data.vectors": str,
    "precision": str,
    "seed": int,
}
"""What `run.json` holds for every run."""

LATER = {"precision": "float32"}
"""Fields that runs of older versions lack, with the values they had."""

DAY = 24 * 3600
AGAIN = "put the run's own file back, or train again in another folder"


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and facts (plain JSON data) as one file, whole or not at all."""
    # Copies: safetensors refuses tensors that share memory, as tied weights do.
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with write_atomically(path) as file:
        file.write(safetensors.torch.save(copies, metadata={"facts": json.dumps(facts)}))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a checkpoint, or is cut off.
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
    """How far a run has got: all that passes from step to step, besides weights and moments."""

    epoch: int = 0  # the current one, or the next
    batch: int = 0  # how many of its batches are done
    step: int = 0  # how many batches are done in all
    loss_sums: dict[str, float] = field(default_factory=dict)  # over this epoch's batches, by term
    history: list[dict[str, float]] = field(default_factory=list)  # an entry for each finished epoch
    best: dict[str, float] = field(default_factory=dict)  # its entry with the highest rsum
    seconds: float = 0.0  # of the whole run
    training_seconds: float = 0.0  # of its steps
    waiting_seconds: float = 0.0  # for batches, within those
    device: str = ""  # the name of the hardware
    processes: int = 1  # that share each batch


def read_identity(folder: Path) -> dict[str, Any]:
    """The recipe, data and seed of the run in a folder.

    Raises:
        FileNotFoundError: there is no run.
        ValueError: `run.json` is damaged.
    """
    identity = LATER | read_json(folder / RUN)
    said = flatten(identity)
    for name, kind in IDENTITY.items():
        if not isinstance(said.get(name), kind):
            raise ValueError(
                f"{folder / RUN}: field {name} is {said.get(name)!r}, wanted {kind.__name__}: {AGAIN}"
            )
    return identity


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    path: Path
    system: dict[str, Tensor]  # weights and state of model and losses
    best: dict[str, Tensor]  # the model's weights at its best epoch; empty before the first ends
    moments: dict[str, Tensor]  # of the optimizer, see `optimizer_state`
    optimizer: list[dict[str, Any]]  # its settings
    schedule: dict[str, Any]
    state: State


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint of the run in a folder.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or not the checkpoint of a run.
    """
    path = folder / CHECKPOINT
    tensors, facts = load(path)
    try:
        state = State(**facts["state"])
        optimizer, schedule = facts["optimizer"], facts["schedule"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} does not say where a run stands ({error}): {AGAIN}") from error
    system, best, moments = (_under(f"{part}.", tensors) for part in ("system", "best", "optimizer"))
    return Checkpoint(path, system, best, moments, optimizer, schedule, state)


def load_best(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Give a model the weights of its best epoch.

    Raises:
        ValueError: they belong to another model.
    """
    _check_shapes(checkpoint.path, checkpoint.best, _shapes(model))
    model.load_state_dict(checkpoint.best)


class RunFolder:
    """A run on disk: its settings, and one file that is replaced whole, so that a killed run can resume.

    Args:
        folder: where; None: nothing is written, and the best weights are kept only in memory.
        identity: the run's settings, as plain JSON data. A run resumes only with the same ones.
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
        system: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: LRScheduler,
    ) -> State:
        """Start a run, or bring system, optimizer and schedule back to where it stopped.

        Raises:
            ValueError: the folder holds a run and `resume` is False, or a run with other tensors, or a file
                of it is damaged.
        """
        if self.folder is None:
            return State()
        begun = (self.folder / CHECKPOINT).is_file()
        if begun and not resume:
            raise ValueError(f"{self.folder} holds a run already: resume it, or choose another folder")
        if not begun:
            if self.writes:
                with write_atomically(self.folder / RUN, "w") as file:
                    json.dump(self.identity, file, indent=2)
            return State()
        checkpoint = read_checkpoint(self.folder)
        _check_shapes(checkpoint.path, checkpoint.system, _shapes(system))
        _check_shapes(checkpoint.path, checkpoint.moments, _moment_shapes(optimizer, checkpoint.moments))
        if checkpoint.state.best:
            _check_shapes(checkpoint.path, checkpoint.best, _under("model.", _shapes(system)))
            self.best = checkpoint.best
        system.load_state_dict(checkpoint.system)
        load_optimizer_state(optimizer, checkpoint.moments, checkpoint.optimizer)
        schedule.load_state_dict(checkpoint.schedule)
        if self.writes:
            self._clear()
        return checkpoint.state

    def keep_best(self, system: nn.Module) -> None:
        """Remember the weights of the model: those of the best epoch so far. `save` writes them."""
        weights = _under("model.", system.state_dict())
        self.best = {name: weight.detach().cpu().clone() for name, weight in weights.items()}

    def save(
        self, system: nn.Module, optimizer: torch.optim.Optimizer, schedule: LRScheduler, state: State
    ) -> None:
        """Write all that is needed to resume from here."""
        if self.folder is None or not self.writes:
            return
        moments, groups = optimizer_state(optimizer)
        tensors = {
            f"{part}.{name}": tensor
            for part, named in (("system", system.state_dict()), ("best", self.best), ("optimizer", moments))
            for name, tensor in named.items()
        }
        facts = {"state": asdict(state), "schedule": schedule.state_dict(), "optimizer": groups}
        save(self.folder / CHECKPOINT, tensors, facts)

    def _clear(self) -> None:
        """Remove partial files that a kill left; a recent one may still be in use."""
        assert self.folder is not None
        for left in self.folder.glob(".*.part"):
            with contextlib.suppress(FileNotFoundError):  # it was finished, or removed, a moment ago
                if time.time() - left.stat().st_mtime > DAY:
                    left.unlink()


def compare(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume a run with other settings.

    Raises:
        ValueError: naming the first setting that differs.
    """
    then, today = flatten(before), flatten(now)
    for name in sorted(then.keys() | today.keys()):
        if then.get(name) != today.get(name):
            raise ValueError(
                f"{folder} holds a run with {name} = {then.get(name)!r}, but it is now "
                f"{today.get(name)!r}: resume with the same, or choose another folder"
            )


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level: {"training": {"epochs": 3}} becomes {"training.epochs": 3}.

    A list of parts goes by their names: {"losses": [{"name": "triplet", "weight": 1.0}]} becomes
    {"losses.triplet.weight": 1.0}.
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, list | tuple) and value and all(isinstance(part, Mapping) for part in value):
            value = {str(part.get("name", place)): part for place, part in enumerate(value)}
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in module.state_dict().items()}


def _under(prefix: str, named: Mapping[str, T]) -> dict[str, T]:
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def _moment_shapes(optimizer: torch.optim.Optimizer, moments: dict[str, Tensor]) -> dict[str, torch.Size]:
    """The shapes an optimizer's moments should have: every kind, for each parameter that has any."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    begun = {name.partition(".")[0] for name in moments}
    kinds = {name.partition(".")[2] for name in moments}
    return {
        f"{number}.{kind}": torch.Size() if kind == "step" else parameter.shape
        for number, parameter in enumerate(parameters)
        for kind in kinds
        if str(number) in begun
    }


def _check_shapes(path: Path, tensors: dict[str, Tensor], wanted: dict[str, torch.Size]) -> None:
    found = {name: tensor.shape for name, tensor in tensors.items()}
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            come, want = (tuple(shapes[name]) if name in shapes else "missing" for shapes in (found, wanted))
            raise ValueError(f"{path}: tensor {name} is {come}, the model's is {want}: {AGAIN}")
