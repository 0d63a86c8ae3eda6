"""Checkpoints: tensors and facts in one safetensors file, so that no kill can part them.

No pickle: a checkpoint from a stranger can hold wrong numbers, never code.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from vsecore.data.files import read_json, write_atomically

BEST, LAST, RUN = "best.safetensors", "last.safetensors", "run.json"

IDENTITY = {
    "recipe.name": str,
    "data.name": str,
    "data.fingerprint": str,
    "data.feature_dim": int,
    "data.tokenizer": str,
    "data.vectors": str,
    "seed": int,
}
"""What `run.json` says of any run."""

DAY = 24 * 3600
AGAIN = "put the run's own file back, or train again in another folder"


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
    device: str = ""  # the name of what trains
    processes: int = 1  # that share each batch


def read_identity(folder: Path) -> dict[str, Any]:
    """What the run in a folder is a run of.

    Raises:
        FileNotFoundError: there is no run.
        ValueError: `run.json` is damaged.
    """
    identity = read_json(folder / RUN)
    said = flatten(identity)
    for name, kind in IDENTITY.items():
        if not isinstance(said.get(name), kind):
            raise ValueError(
                f"{folder / RUN}: field {name} is {said.get(name)!r}, wanted {kind.__name__}: {AGAIN}"
            )
    return identity


def read_last(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], State]:
    """The tensors of `last.safetensors`, its facts, and the state among them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or another kind of checkpoint.
    """
    tensors, facts = load(folder / LAST)
    try:
        if missing := {"optimizer", "schedule", "state"} - facts.keys():
            raise KeyError(min(missing))
        return tensors, facts, State(**facts["state"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / LAST} does not say where a run stands ({error}): {AGAIN}") from error


def best_weights(folder: Path, model: nn.Module, last: dict[str, Tensor], state: State) -> dict[str, Tensor]:
    """The weights of the epoch that the state calls the best.

    Right after that epoch they are those of `last.safetensors`, whether or not a kill came before
    `best.safetensors` was written; from the next save on, they are in `best.safetensors`.

    Args:
        folder: of the run.
        model: that they are for.
        last: the tensors of `last.safetensors`.
        state: what it says.

    Raises:
        FileNotFoundError: there is no `best.safetensors`, and it is needed.
        ValueError: it is damaged, of another epoch or of another model.
    """
    if state.batch == 0 and state.best["epoch"] == state.epoch - 1:
        path, weights = folder / LAST, _under("model.", last)
    else:
        path = folder / BEST
        weights, entry = load(path)
        if entry != state.best:
            raise ValueError(
                f"{path} has the weights of {entry}, and the best epoch of {LAST} is {state.best}: {AGAIN}"
            )
    _check_shapes(path, weights, {name: weight.shape for name, weight in model.state_dict().items()})
    return weights


class RunFolder:
    """A run on disk: what is run, its best weights, and all that is needed to go on.

    `last.safetensors` and `best.safetensors` are replaced whole, and in this order (see `best_weights`), so
    that a kill at any moment leaves a usable run.

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
            ValueError: the folder holds a run and `resume` is False, or a run of something else, or a file of
                it is damaged.
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
        self._compare(read_identity(self.folder))
        tensors, facts, state = read_last(self.folder)
        moments = _under("optimizer.", tensors)
        shapes = {f"model.{name}": weight.shape for name, weight in model.state_dict().items()}
        shapes |= {f"optimizer.{name}": shape for name, shape in _moment_shapes(optimizer, moments).items()}
        _check_shapes(last, tensors, shapes)
        if state.best:
            self.best = best_weights(self.folder, model, tensors, state)
        model.load_state_dict(_under("model.", tensors))
        load_optimizer_state(optimizer, moments, facts["optimizer"])
        schedule.load_state_dict(facts["schedule"])
        if self.writes:
            if state.best:
                save(self.folder / BEST, self.best, state.best)  # a kill may have come before this was done
            self._clear()
        return state

    def _clear(self) -> None:
        """Remove what a kill in the middle of writing left; what is young may still be written to."""
        assert self.folder is not None
        for left in self.folder.glob(".*.part"):
            with contextlib.suppress(FileNotFoundError):  # it was finished, or removed, a moment ago
                if time.time() - left.stat().st_mtime > DAY:
                    left.unlink()

    def save_last(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: LRScheduler, state: State
    ) -> None:
        """Write all that is needed to go on from here. After an epoch this comes before `save_best`."""
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


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _moment_shapes(optimizer: torch.optim.Optimizer, moments: dict[str, Tensor]) -> dict[str, torch.Size]:
    """What an optimizer's moments should be: all kinds there are, for each parameter that has any."""
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
