"""Checkpoints: all that a run needs to resume, in one file, so that a killed run never leaves half of it.

The format is safetensors, not pickle: a checkpoint from someone else can hold wrong numbers, never code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vsecore.data.files import locked, write_atomically
from vsecore.data.words import Tokenizer
from vsecore.model import VSE
from vsecore.processes import from_main_process
from vsecore.training.identity import (
    AGAIN,
    ENCODERS,
    RUN,
    check_tokenizer,
    compare,
    digest_beside,
    read_identity,
)
from vsecore.training.optimization import is_finite
from vsecore.training.system import System
from vsecore.typed import from_json

T = TypeVar("T")
Whole = Annotated[int, Field(ge=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

CHECKPOINT = "checkpoint.safetensors"
MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps of each parameter
DAY = 24 * 3600
MOMENT = 0.5  # seconds; a process that only asks whether a folder is free holds its lock for far less


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and facts (plain JSON data) as one file, whole or not at all.

    Tensors that are in the CPU's memory already are not copied, except those that share memory, as tied
    weights do, because safetensors refuses those.
    """
    written: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        memory = own.untyped_storage().data_ptr()
        written[name] = own.clone() if memory in taken else own
        taken.add(memory)
    text = json.dumps(facts)
    metadata = {"facts": text, "digest": _digest(written, text)}
    with write_atomically(path) as file:
        usual = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        try:
            safetensors.torch.save_file(written, file.name, metadata)
        except SafetensorError as error:
            raise OSError(" ".join(str(error).split())) from error
        with Path(file.name).open("rb") as whole:  # safetensors has put a new file in its place, for us alone
            os.fchmod(whole.fileno(), usual)
            os.fsync(whole.fileno())


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a checkpoint, is cut off, or has changed since it was written.
    """
    tensors, text = _read(path)
    facts: dict[str, Any] = from_json(f"{path}: facts", text, dict[str, Any])
    return tensors, facts


def _read(path: Path) -> tuple[dict[str, Tensor], str]:
    """Read the tensors of a checkpoint, and its facts as text."""
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        text = metadata["facts"]
    except (SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"checkpoint {path} is damaged, or not one of this package's ({reason})") from error
    # Checkpoints of older versions have no digest.
    if metadata.get("digest", wanted := _digest(tensors, text)) != wanted:
        raise ValueError(f"checkpoint {path} is damaged (it has changed since it was saved): {AGAIN}")
    return tensors, text


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return digest.hexdigest()


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's moments as named tensors, such as "3.exp_avg" for parameter 3."""
    return {
        f"{parameter}.{name}": moment
        for parameter, moments in optimizer.state_dict()["state"].items()
        for name, moment in moments.items()
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back into an optimizer what `optimizer_state` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, moment in tensors.items():
        parameter, name = key.split(".", 1)
        state.setdefault(int(parameter), {})[name] = moment
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


@dataclass
class State:
    """How far a run has got: all that one step passes to the next, besides weights and moments."""

    epoch: Whole = 0  # the current epoch, or the next
    batch: Whole = 0  # how many batches of this epoch are done
    step: Whole = 0  # how many batches are done in all
    loss_sums: dict[str, Finite] = field(default_factory=dict)  # the sums over this epoch's batches, by term
    history: list[dict[str, int | Finite]] = field(default_factory=list)  # an entry for each finished epoch
    seconds: Seconds = 0.0  # how long the whole run took
    training_seconds: Seconds = 0.0  # how long its steps took
    waiting_seconds: Seconds = 0.0  # the part of that spent waiting for batches
    device: str = ""  # the name of the hardware
    processes: Annotated[int, Field(ge=1)] = 1  # how many share each batch

    @property
    def best(self) -> dict[str, float]:
        """The entry of the first epoch with the highest rsum; empty before the first ends."""
        return max(self.history, key=lambda entry: entry["rsum"], default={})

    def check(self, path: Path) -> None:
        """Refuse a state that no run can be in.

        Raises:
            ValueError: the history, the epoch and the step contradict each other.
        """
        steps = [entry.get("step", -1) for entry in self.history]
        for wrong, told in (
            (len(self.history) != self.epoch, f"{len(self.history)} epochs of history at epoch {self.epoch}"),
            (any("rsum" not in entry for entry in self.history), "an epoch without rsum"),
            (steps != sorted({*steps} - {-1, 0}), f"epochs that end at the steps {steps}"),
            (self.step != (steps[-1] if steps else 0) + self.batch, f"step {self.step}"),
        ):
            if wrong:
                raise ValueError(f"{path}: state names {told}, which no run reaches: {AGAIN}")


@dataclass(frozen=True)
class Facts:
    """The types of a checkpoint's facts."""

    state: State
    beside: str = ""  # see `identity.digest_beside`; older versions did not write it


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    path: Path
    system: dict[str, Tensor]  # weights and state of model and losses
    best: dict[str, Tensor]  # the model's weights at its best epoch; empty before the first ends
    moments: dict[str, Tensor]  # the optimizer's moments, see `optimizer_state`
    state: State


def read_checkpoint(folder: Path, identity: Mapping[str, Any]) -> Checkpoint:
    """Read the checkpoint of the run in a folder.

    Args:
        folder: the run's folder.
        identity: what `read_identity` returns for it.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, is not the checkpoint of a run, or belongs to another run.
    """
    path = folder / CHECKPOINT
    tensors, text = _read(path)
    facts: Facts = from_json(f"{path}: facts", text, Facts)
    if facts.beside not in ("", digest_beside(folder, identity)):
        raise ValueError(f"{path} belongs to another run than the {RUN} and architectures beside it: {AGAIN}")
    facts.state.check(path)
    system, best, moments = (_under(f"{part}.", tensors) for part in ("system", "best", "optimizer"))
    return Checkpoint(path, system, best, moments, facts.state)


def load_best(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Give a model the weights of its best epoch.

    Raises:
        ValueError: they belong to another model, or are not finite.
    """
    _check_tensors(checkpoint.path, checkpoint.best, model.state_dict())
    model.load_state_dict(checkpoint.best)


def refuse_to_overwrite(folder: Path, resume: bool) -> None:
    """Refuse a folder in which a training may not begin; fast enough to call before the data are read.

    Raises:
        ValueError: it holds a run, and `resume` is False; or a checkpoint without its `run.json`.
        BlockingIOError: another process trains in it.
    """
    _check_begun(folder, resume)
    if folder.is_dir() and os.environ.get("WORLD_SIZE", "1") == "1":  # several would find each other's lock
        with _locked(folder):
            pass


@contextlib.contextmanager
def held(folder: Path | None) -> Iterator[None]:
    """Keep other trainings out of a run's folder, which is made if it is missing; None: there is no folder.

    Only the main process asks for the lock. If it is refused, all processes end with the same error.

    Raises:
        BlockingIOError: another process trains in the folder.
    """
    with contextlib.ExitStack() as stack:
        if folder is not None:

            def enter() -> None:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(folder))

            from_main_process(enter)
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; wait a moment for it, since another process may only be asking for it."""
    patience = time.monotonic() + MOMENT
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder, "is training in", wait=False))
                break
            except BlockingIOError:
                if time.monotonic() > patience:
                    raise
                time.sleep(random.uniform(0, MOMENT / 50))  # random, so that two do not keep colliding
        yield


class RunFolder:
    """A run on disk: its settings, and one file that is only replaced as a whole, so that a run can resume.

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
        self, resume: bool, system: System, optimizer: torch.optim.Optimizer, tokenizer: Tokenizer
    ) -> State:
        """Start a run, or bring system and optimizer back to where it stopped.

        Raises:
            ValueError: the folder holds a run and `resume` is False, or a run with other settings or tensors,
                or a file of it is damaged; or it holds no run, but a file that a run would overwrite.
        """
        if self.folder is None:
            return State()
        _check_begun(self.folder, resume)
        if (self.folder / RUN).is_file():
            compare(self.folder, read_identity(self.folder), self.identity)
        if not (self.folder / CHECKPOINT).is_file():
            if self.writes:
                self._begin(self.folder, system.model, tokenizer)
            return State()
        identity = read_identity(self.folder)
        check_tokenizer(self.folder, tokenizer, identity)
        checkpoint = read_checkpoint(self.folder, identity)
        _check_tensors(checkpoint.path, checkpoint.system, system.state_dict())
        _check_tensors(checkpoint.path, checkpoint.moments, _wanted_moments(optimizer, checkpoint.moments))
        if checkpoint.state.best:
            wanted = _under("model.", system.state_dict())
            _check_tensors(checkpoint.path, checkpoint.best, wanted)
            self.best = checkpoint.best
        system.load_state_dict(checkpoint.system)
        load_optimizer_state(optimizer, checkpoint.moments)
        if self.writes:
            self._clear(self.folder)
        return checkpoint.state

    def keep_best(self, model: VSE) -> None:
        """Remember the weights of a model: the best epoch so far. `save` writes them."""
        self.best = {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}

    def save(self, system: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Write all that is needed to resume from here."""
        if self.folder is None or not self.writes:
            return
        tensors = {
            f"{part}.{name}": tensor
            for part, named in (
                ("system", system.state_dict()),
                ("best", self.best),
                ("optimizer", optimizer_state(optimizer)),
            )
            for name, tensor in named.items()
        }
        facts = {"state": asdict(state), "beside": digest_beside(self.folder, self.identity)}
        save(self.folder / CHECKPOINT, tensors, facts)

    def _begin(self, folder: Path, model: VSE, tokenizer: Tokenizer) -> None:
        """Write what `load_run` needs besides the checkpoint, but not over somebody else's files."""
        with tempfile.TemporaryDirectory() as made:
            beside = Path(made)
            tokenizer.save(beside)
            for name in ENCODERS:
                save_architecture = getattr(getattr(model, name), "save_architecture", None)
                if callable(save_architecture):
                    save_architecture(beside / name)
            names = [path.relative_to(beside) for path in sorted(beside.rglob("*")) if path.is_file()]
            taken = [] if (folder / RUN).is_file() else [name for name in names if (folder / name).exists()]
            if taken:
                raise ValueError(
                    f"{folder / taken[0]} is there already, and not from a run: choose another folder"
                )
            # First the file that marks the folder as ours, so that a run that is killed here can begin again.
            with write_atomically(folder / RUN, "w") as file:
                json.dump(self.identity, file, indent=2)
            for own in names:
                with write_atomically(folder / own) as file:
                    file.write((beside / own).read_bytes())

    def _clear(self, folder: Path) -> None:
        """Remove partial files that a killed run left, ours and safetensors'; a recent one may be in use."""
        for left in (*folder.glob(".*.part"), *folder.glob(".tmp*")):
            with contextlib.suppress(FileNotFoundError):  # it was finished, or removed, a moment ago
                if time.time() - left.stat().st_mtime > DAY:
                    left.unlink()


def _check_begun(folder: Path, resume: bool) -> None:
    for path in (folder / CHECKPOINT, folder / RUN):
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is not a file: name another folder")
    if not (folder / CHECKPOINT).is_file():
        return
    if not resume:
        raise ValueError(
            f"{folder} holds a run already: resume it (--resume, or resume=True in Python), or choose "
            "another folder (--out, or folder=...)"
        )
    if not (folder / RUN).is_file():
        raise ValueError(f"{folder} holds a checkpoint without its {RUN}: {AGAIN}")


def _under(prefix: str, named: Mapping[str, T]) -> dict[str, T]:
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def _wanted_moments(optimizer: torch.optim.Optimizer, moments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors shaped as the moments should be: every kind, for each parameter that has any."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    begun = {name.partition(".")[0] for name in moments}
    return {
        f"{number}.{kind}": torch.zeros(()) if kind == "step" else parameter
        for number, parameter in enumerate(parameters)
        for kind in MOMENTS
        if str(number) in begun
    }


def _check_tensors(path: Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Refuse tensors whose names, shapes or types are not the wanted ones, or that are not finite."""
    for name in sorted(found.keys() | wanted.keys()):
        shapes = [tuple(named[name].shape) if name in named else "missing" for named in (found, wanted)]
        if shapes[0] == shapes[1]:
            shapes = [str(named[name].dtype).removeprefix("torch.") for named in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"{path}: tensor {name} is {shapes[0]}, the model's is {shapes[1]}: {AGAIN}")
        if not is_finite(found[name]) and is_finite(wanted[name]):
            raise ValueError(f"{path}: tensor {name} holds NaN or infinity: {AGAIN}")
