"""Checkpoints: all that a run needs to resume, in one file, so that a killed run never leaves half of it.

The format is safetensors, not pickle: a checkpoint from someone else can hold wrong numbers, never code.
"""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from vsecore.arguments import Count, Finite, NotNegative, Whole
from vsecore.data import files
from vsecore.data.files import write_atomically, write_json, write_whole
from vsecore.data.weights import add_tensors
from vsecore.data.words import Tokenizer
from vsecore.model import VSE
from vsecore.processes import from_main_process
from vsecore.training.identity import (
    RUN,
    START_OVER_HINT,
    check_tokenizer,
    compare,
    digest_beside,
    read_identity,
)
from vsecore.training.system import System
from vsecore.typed import from_json

CHECKPOINT = "checkpoint.safetensors"
HISTORY = "history.jsonl"
"""For people and their tools: a line for each finished epoch. Nothing here reads it."""


def save(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and facts (plain JSON data) as one file with a digest of both, whole or not at all.

    Tensors in the CPU's memory are not copied, except those that share memory, as tied weights do, because
    safetensors refuses those.
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


def load(path: Path, kind: Any = dict[str, Any]) -> tuple[dict[str, Tensor], Any]:
    """Read what `save` wrote, unchanged since then, and check that the facts are of a kind."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        text = metadata["facts"]
    except (SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"checkpoint {path} is damaged, or not one of this package's ({reason})") from error
    # Checkpoints of older versions have no digest.
    if metadata.get("digest", wanted := _digest(tensors, text)) != wanted:
        raise ValueError(f"checkpoint {path} has changed since it was saved: {START_OVER_HINT}")
    return tensors, from_json(f"{path}: facts", text, kind)


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    add_tensors(digest, tensors)
    return digest.hexdigest()


@dataclass
class State:
    """How far a run has got: all that one step passes to the next, besides weights and moments."""

    epoch: Whole = 0
    """The current epoch, or the next."""
    batch: Whole = 0
    """How many batches of this epoch are done."""
    step: Whole = 0
    """How many batches are done in all."""
    loss_sums: dict[str, Finite] = field(default_factory=dict)
    """The sums over this epoch's batches, by the loss's term."""
    history: list[dict[str, int | Finite]] = field(default_factory=list)
    """An entry for each finished epoch."""
    seconds: NotNegative = 0.0
    """How long the whole run took."""
    training_seconds: NotNegative = 0.0
    """How long its steps took."""
    waiting_seconds: NotNegative = 0.0
    """The part of that spent waiting for batches."""
    device: str = ""
    """The name of the hardware."""
    processes: Count = 1
    """How many share each batch."""

    @property
    def best(self) -> dict[str, float]:
        """The entry of the first epoch with the highest rsum; empty before the first ends."""
        return max(self.history, key=lambda entry: entry["rsum"], default={})


@dataclass(frozen=True)
class Facts:
    """What a run's checkpoint holds besides tensors."""

    state: State
    beside: str = ""
    """See `identity.digest_beside`; older versions did not write it."""


def read_checkpoint(folder: Path, identity: Mapping[str, Any]) -> tuple[dict[str, dict[str, Tensor]], State]:
    """Read the checkpoint of the run in a folder, given what `read_identity` returns for it.

    Returns:
        The tensors of "system" (weights and state of model and losses), "best" (the model's weights at its
        best epoch, if one has ended) and "optimizer" ("3.exp_avg" for parameter 3), and the state.
    """
    path = folder / CHECKPOINT
    tensors, facts = load(path, Facts)
    if facts.beside not in ("", digest_beside(folder, identity)):
        raise ValueError(f"{path} belongs to another run than the files beside it: {START_OVER_HINT}")
    parts: dict[str, dict[str, Tensor]] = {"system": {}, "best": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        part, _, own = name.partition(".")
        parts[part][own] = tensor
    return parts, facts.state


def load_weights(what: object, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give a module weights; if they do not fit, a ValueError names what they are from."""
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{what} does not fit: it is of another model ({reason})") from error


def refuse_to_overwrite(folder: Path | None, resume: bool) -> None:
    """Refuse a folder in which a training may not begin; fast enough to call before the data are read."""
    if folder is None:
        return
    for path in (folder / CHECKPOINT, folder / RUN):
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is not a file: name another folder")
    if not (folder / CHECKPOINT).exists():
        return
    if not resume:
        raise ValueError(
            f"{folder} holds a run already: resume it (--resume, or resume=True in Python), or choose "
            "another folder (--out, or folder=...)"
        )
    if not (folder / RUN).exists():
        raise ValueError(f"{folder} holds a checkpoint without its {RUN}: {START_OVER_HINT}")


@contextlib.contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Keep other trainings out of a run's folder, which is made if it is missing; None: there is no folder.

    Only the main process asks for the lock. If it is refused, all processes end with the same error.
    """
    with contextlib.ExitStack() as stack:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            lock = files.locked(folder, "is training in", wait=False)
            from_main_process(lambda: stack.enter_context(lock))
        yield


class RunFolder:
    """A run on disk: its settings, and one file that is only replaced as a whole, so that a run can resume.

    Without a folder nothing is written, and the best weights are kept only in memory. `identity` is what
    `run.json` holds, with which alone a run resumes; only one process `writes`.
    """

    def __init__(self, folder: Path | None, identity: dict[str, Any], writes: bool = True) -> None:
        self.folder = folder
        self.identity = identity
        self.writes = writes
        self.best: dict[str, Tensor] = {}

    def open(self, system: System, optimizer: torch.optim.Optimizer, tokenizer: Tokenizer) -> State:
        """Start a run, or bring system and optimizer back to where it stopped; raises what `fit` names."""
        if self.folder is None:
            return State()
        before = read_identity(self.folder) if (self.folder / RUN).is_file() else None
        if before is not None:
            if "network" not in before["data"]:  # older runs did not keep it
                self.identity["data"].pop("network", None)
            compare(self.folder, before, self.identity)
            self.identity["recipe"]["source"] = before["recipe"]["source"]  # it may be said better by now
        if before is None or not (self.folder / CHECKPOINT).is_file():
            if self.writes:
                self._begin(self.folder, system.model, tokenizer)
            return State()
        check_tokenizer(self.folder, tokenizer, before)
        tensors, state = read_checkpoint(self.folder, before)
        self.best = tensors["best"]
        if self.best:  # seen to fit
            load_weights(self.folder / CHECKPOINT, system.model, self.best)
        load_weights(self.folder / CHECKPOINT, system, tensors["system"])
        moments: dict[int, dict[str, Tensor]] = {}
        for key, moment in tensors["optimizer"].items():
            parameter, _, name = key.partition(".")
            moments.setdefault(int(parameter), {})[name] = moment
        optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        # Partial files that a killed run left, ours and safetensors'.
        for left in (*self.folder.glob(".*.part"), *self.folder.glob(".tmp*")) if self.writes else ():
            left.unlink(missing_ok=True)
        return state

    def keep_best(self, model: VSE) -> None:
        """Remember the weights of a model: the best epoch so far. `save` writes them."""
        self.best = {name: weight.detach().cpu().clone() for name, weight in model.state_dict().items()}

    def save(self, system: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Write all that is needed to resume from here."""
        if self.folder is None or not self.writes:
            return
        tensors = {f"system.{name}": tensor for name, tensor in system.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, moments in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": moment for name, moment in moments.items()}
        facts = {"state": asdict(state), "beside": digest_beside(self.folder, self.identity)}
        save(self.folder / CHECKPOINT, tensors, facts)
        write_whole(self.folder / HISTORY, "".join(f"{json.dumps(entry)}\n" for entry in state.history))

    def _begin(self, folder: Path, model: VSE, tokenizer: Tokenizer) -> None:
        """Write what `load_run` needs besides the checkpoint, but not over somebody else's files."""
        with tempfile.TemporaryDirectory() as made:
            beside = Path(made)
            tokenizer.save(beside)
            model.image_encoder.save_architecture(beside / "image_encoder")
            model.text_encoder.save_architecture(beside / "text_encoder")
            names = [path.relative_to(beside) for path in sorted(beside.rglob("*")) if path.is_file()]
            taken = [name for name in names if (folder / name).exists()]
            if taken and not (folder / RUN).is_file():
                raise ValueError(
                    f"{folder / taken[0]} is there already, and not from a run: choose another folder"
                )
            # First the file that marks the folder as ours, so that a run that is killed here can begin again.
            write_json(folder / RUN, self.identity, indent=2)
            for own in names:
                write_whole(folder / own, (beside / own).read_bytes())
