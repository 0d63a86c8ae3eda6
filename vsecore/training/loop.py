"""Training: one loop for every recipe (`fit`), what it leaves behind (`Run`), and what a model is worth."""

from __future__ import annotations

import functools
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vsecore.data.batches import Batch, make_loader
from vsecore.data.files import progress
from vsecore.data.splits import Dataset, Split
from vsecore.data.words import Tokenizer, load_tokenizer
from vsecore.encoders import BERTEncoder
from vsecore.evaluation import evaluate
from vsecore.model import VSE
from vsecore.recipes import Recipe
from vsecore.training import checkpoints
from vsecore.training.checkpoints import RunFolder, State
from vsecore.training.distributed import gather, hardware, make_accelerator, sizes_of
from vsecore.training.optimization import LossMeter, make_optimizer, make_schedule


@dataclass(frozen=True)
class Event:
    """What a callback is told, after each step and after each epoch's evaluation."""

    kind: Literal["step", "evaluated"]
    epoch: int  # counted from 0
    step: int  # steps taken since the beginning
    model: VSE
    learning_rate: float  # of the step
    loss: Tensor  # of the step; on a GPU, reading it waits for the GPU
    scores: Tensor  # (B, C) of the step's joint batch
    metrics: dict[str, float] | None = None  # of the dev split, when evaluated


@dataclass
class Run:
    """A trained model and how it came to be."""

    model: VSE  # with the weights of the best epoch; on the CPU, in eval mode
    tokenizer: Tokenizer
    recipe: Recipe
    data: dict[str, Any]  # name, fingerprint, feature_kind, feature_dim; digests of tokenizer and vectors
    seed: int
    history: list[dict[str, float]]  # of each epoch: epoch, step, learning_rate, loss, and the metrics of dev
    best: dict[str, float]  # the entry of the epoch with the highest rsum
    timings: dict[str, float]  # seconds; step_seconds, the mean; data_wait, the share of a step spent waiting
    device: str  # the name of what trained it, such as "NVIDIA H200"
    processes: int  # that shared each batch


def fit(
    recipe: Recipe,
    data: Dataset,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    tokenizer: Tokenizer | None = None,
    vectors: Tensor | None = None,
    callback: Callable[[Event], None] | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu"] = "auto",
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    workers: int = 0,
    save_every: int | None = None,
) -> Run:
    """Train a recipe on a dataset, and keep the weights of the epoch with the highest rsum on the dev split.

    Everything random in a step is a function of the seed and the step's number. So a run that was interrupted
    and resumed ends, on a CPU, with the same bits as one that was not. Torch's global generator is reseeded
    on the way.

    Started by `torchrun` or `accelerate launch`, several processes share each batch. The loss sees the joint
    batch, so they learn what one process would, up to rounding, if no layer looks at other rows or rolls
    dice. Batch normalisation (`RegionEncoder`) does see the joint batch on GPUs, but on CPUs only its
    process's share; dropout (BERT) is drawn by each process for itself.

    Args:
        recipe: what to train.
        data: what to train on; its features are of the kind that the recipe reads.
        folder: where the run is kept, see `checkpoints.RunFolder`; None: nowhere.
        resume: go on with the run in the folder, or begin if there is none yet.
        tokenizer: whose words are read; None: the recipe makes one from the training captions.
        vectors: what the word vectors begin as, (len(tokenizer), text.word_dim).
        callback: is called with an `Event` after each step and each evaluation. What it raises ends the run.
        seed: of the weights, the order, and what is dropped.
        device: "auto" takes a GPU where there is one.
        precision: "auto" takes bfloat16 where the GPU has it in hardware, else float32.
        workers: processes that prepare batches ahead.
        save_every: save after so many steps too, not only after each epoch.

    Returns:
        The run. Wherever it trained, its model is on the CPU and in eval mode, as `load_run` gives it.

    Raises:
        ValueError: recipe and data do not fit; the folder holds a run and `resume` is False; it holds a run
            of another recipe, data, tokenizer, vectors or seed; or the run is damaged.
        FloatingPointError: the loss or its gradient became NaN or infinite. The checkpoints are from before.
    """
    _check_kinds(recipe, data)
    settings = recipe.training
    accelerator = make_accelerator(device, precision)
    tokenizer = tokenizer or recipe.tokenizer(data.train.captions)

    torch.manual_seed(seed)
    model = recipe.build(data.feature_dim, tokenizer, vectors).to(accelerator.device)
    if accelerator.num_processes > 1 and accelerator.device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # normalise by the joint batch
    optimizer = make_optimizer(model, settings)
    batches = functools.partial(_batches, recipe, data.train, tokenizer, seed, workers, accelerator)
    schedule = make_schedule(optimizer, settings, steps_an_epoch=len(batches(epoch=0, start=0)))

    sources = identity(recipe, data, tokenizer, vectors, seed)
    keeper = RunFolder(None if folder is None else Path(folder), sources, writes=accelerator.is_main_process)
    state = keeper.open(resume, model, optimizer, schedule)
    state.device, state.processes = hardware(accelerator.device), accelerator.num_processes
    if keeper.folder is not None and keeper.writes:
        _save_reader(keeper.folder, tokenizer, model)
    began = time.perf_counter() - state.seconds
    towers, optimizer = accelerator.prepare(model, optimizer)

    while state.epoch < settings.epochs:
        criterion = recipe.loss.build(state.epoch)
        loader = batches(epoch=state.epoch, start=state.batch)
        last = state.batch + len(loader)
        meter = LossMeter(state.loss_sum, accelerator.device)
        model.train()
        for batch in _shown(_timed(loader, state), state, last, settings.epochs, accelerator):
            _seed_step(seed, state.step, accelerator.process_index)
            v, t, positives = joint_batch(batch.to(accelerator.device), towers)  # (B, D), (C, D), (B, C)
            scores = model.scores(v, t)  # (B, C)
            loss = criterion(scores, positives)

            optimizer.zero_grad()
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), settings.clip_norm)
            rate = float(schedule.get_last_lr()[0])
            optimizer.step()
            schedule.step()

            state.step, state.batch = state.step + 1, state.batch + 1
            meter.add(loss.detach(), norm, state.step, rate)
            event = Event("step", state.epoch, state.step, model, rate, loss.detach(), scores.detach())
            if callback:
                callback(event)
            if save_every and state.step % save_every == 0 and state.batch < last:
                state.loss_sum, state.seconds = meter.read(), time.perf_counter() - began
                keeper.save_last(model, optimizer, schedule, state)

        loss_mean = meter.read() / last
        metrics = evaluate_split(model, data.dev, tokenizer)
        entry = {
            "epoch": state.epoch,
            "step": state.step,
            "learning_rate": rate,
            "loss": loss_mean,
            **metrics,
        }
        state.history.append(entry)
        better = not state.best or entry["rsum"] > state.best["rsum"]
        if better:
            state.best = entry
        state.epoch, state.batch, state.loss_sum = state.epoch + 1, 0, 0.0
        state.seconds = time.perf_counter() - began
        keeper.save_last(model, optimizer, schedule, state)
        if better:
            keeper.save_best(model, entry)
        if callback:
            callback(replace(event, kind="evaluated", metrics=metrics))

    model = accelerator.unwrap_model(towers, keep_fp32_wrapper=False)
    model.load_state_dict(keeper.best)
    return _run(model.cpu().eval(), tokenizer, recipe, sources, state)


def joint_batch(
    batch: Batch, towers: Callable[[Batch], tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Embed a batch, and bring together what all processes made of their shares, with gradient.

    Args:
        batch: this process's share of the joint batch.
        towers: a `VSE`, or what accelerate made of it.

    Returns:
        Pictures (B, D), captions (C, D) and positives (B, C) of the joint batch, the same in every process.
    """
    captions = sizes_of(batch.owner_rows)  # pictures are shared evenly, but some may have more captions
    rows, owners = gather(batch.picture_rows), gather(batch.owner_rows, captions)
    v, t = towers(batch)
    return gather(v), gather(t, captions), rows[:, None] == owners[None, :]


@torch.inference_mode()
def encode(model: VSE, split: Split, tokenizer: Tokenizer, batch_size: int = 256) -> tuple[Tensor, Tensor]:
    """Embed a split: every picture once, every caption once, in the split's order.

    Args:
        model: on any device; its mode, training or not, is as before when this returns.
        split: what to embed.
        tokenizer: the one that the model was trained with.
        batch_size: how many at a time; the result does not depend on it.

    Returns:
        Pictures (Ni, D) and captions (Nc, D), float32 unit vectors on the CPU.
    """
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    count, elements, _ = split.pictures.shape
    pictures = []
    for start in range(0, count, batch_size):
        rows = slice(start, start + batch_size)
        features = torch.from_numpy(np.array(split.pictures[rows], dtype=np.float32)).to(device)  # (b, N, F)
        mask = None
        if split.picture_counts is not None:
            counts = torch.as_tensor(split.picture_counts[rows])
            mask = (torch.arange(elements) < counts[:, None]).to(device)  # (b, N)
        pictures.append(model.encode_pictures(features, mask).float().cpu())

    tokens, token_mask = tokenizer.encode(split.captions)  # (Nc, L) each
    lengths = token_mask.sum(1)
    order = lengths.argsort(stable=True)  # captions of one length together: little padding to go through
    captions = []
    for chosen in order.split(batch_size):
        longest = int(lengths[chosen].max())
        part = model.encode_captions(
            tokens[chosen, :longest].to(device), token_mask[chosen, :longest].to(device)
        )
        captions.append(part.float().cpu())
    model.train(was_training)
    return torch.cat(pictures), torch.cat(captions)[order.argsort()]


@torch.inference_mode()
def score_split(model: VSE, split: Split, tokenizer: Tokenizer, batch_size: int = 256) -> Tensor:
    """Compare every picture of a split with every caption: similarities (Ni, Nc), on the CPU."""
    v, t = encode(model, split, tokenizer, batch_size)  # (Ni, D), (Nc, D)
    return model.scores(v, t)


def evaluate_split(
    model: VSE, split: Split, tokenizer: Tokenizer, folds: int | None = None, batch_size: int = 256
) -> dict[str, float]:
    """Recalls, ranks and rsum of a model on a split (see `evaluation.evaluate`)."""
    return evaluate(score_split(model, split, tokenizer, batch_size), split.owner, folds)


def load_run(folder: str | Path) -> Run:
    """A run as it stands in its folder, its model on the CPU: nothing but the folder is needed.

    Raises:
        FileNotFoundError: the folder holds no run, or one without a finished epoch.
        ValueError: a file is damaged; the message names it, and the field or tensor.
    """
    folder = Path(folder)
    sources = checkpoints.read_identity(folder)
    try:
        recipe = Recipe.from_dict(sources["recipe"])
    except ValueError as error:
        raise ValueError(f"{folder / checkpoints.RUN}: recipe: {error}") from error
    tokenizer = load_tokenizer(folder)
    tensors, _, state = checkpoints.read_last(folder)
    if not state.best:
        raise FileNotFoundError(f"{folder} holds no finished epoch yet: resume its training")
    model = recipe.build(sources["data"]["feature_dim"], tokenizer, architecture=folder)
    model.load_state_dict(checkpoints.best_weights(folder, model, tensors, state))
    return _run(model.eval(), tokenizer, recipe, sources, state)


def identity(
    recipe: Recipe, data: Dataset, tokenizer: Tokenizer, vectors: Tensor | None, seed: int
) -> dict[str, Any]:
    """What a run is a run of, as JSON knows it: only with the same does it go on, and its record names it."""
    return {
        "recipe": recipe.portable(),
        "data": {
            "name": data.name,
            "fingerprint": data.fingerprint(),
            "feature_kind": data.feature_kind,
            "feature_dim": data.feature_dim,
            "tokenizer": _tokenizer_digest(tokenizer),
            "vectors": "" if vectors is None else _digest(vectors.detach().float().cpu().numpy().tobytes()),
        },
        "seed": seed,
    }


def _check_kinds(recipe: Recipe, data: Dataset) -> None:
    if recipe.image.encoder != data.feature_kind:
        raise ValueError(
            f"recipe {recipe.name!r} reads {recipe.image.encoder} features and data {data.name!r} holds "
            f"{data.feature_kind} features: choose a recipe for {data.feature_kind} features"
        )


def _batches(
    recipe: Recipe,
    split: Split,
    tokenizer: Tokenizer,
    seed: int,
    workers: int,
    accelerator: Accelerator,
    epoch: int,
    start: int,
) -> DataLoader[Batch]:
    """This process's share of an epoch's batches, from `start` on."""
    return make_loader(
        split,
        tokenizer,
        recipe.training.batch_size,
        mode=recipe.training.batches,
        seed=seed,
        epoch=epoch,
        start=start,
        element_drop=recipe.image.element_drop,
        word_drop=recipe.text.word_drop,
        workers=workers,
        rank=accelerator.process_index,
        world=accelerator.num_processes,
    )


def _timed(loader: Iterable[Batch], state: State) -> Iterator[Batch]:
    """The batches; how long they were waited for, and how long steps took in all, is added to the state."""
    batches = iter(loader)
    asked = time.perf_counter()
    while (batch := next(batches, None)) is not None:
        state.waiting_seconds += time.perf_counter() - asked
        yield batch
        now = time.perf_counter()
        state.training_seconds += now - asked
        asked = now


def _seed_step(seed: int, step: int, rank: int) -> None:
    """Make a step's dropout a function of seed, step and process: a resumed run draws the same."""
    torch.manual_seed(((seed * 1_000_003 + step) * 1_009 + rank) % 2**63)  # torch takes no larger seed


def _shown(
    batches: Iterable[Batch], state: State, last: int, epochs: int, accelerator: Accelerator
) -> Iterator[Batch]:
    """The batches, behind a progress bar."""
    label = f"epoch {state.epoch + 1}/{epochs}"
    hidden = {} if accelerator.is_local_main_process else {"disable": True}
    yield from progress(
        batches, initial=state.batch, total=last, desc=label, unit="step", leave=False, **hidden
    )


def _tokenizer_digest(tokenizer: Tokenizer) -> str:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        return _digest(b"".join(path.read_bytes() for path in sorted(Path(folder).iterdir())))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _save_reader(folder: Path, tokenizer: Tokenizer, model: VSE) -> None:
    """Write what `load_run` needs besides weights: the tokenizer, and a pretrained encoder's architecture."""
    tokenizer.save(folder)
    if isinstance(model.text_encoder, BERTEncoder):
        model.text_encoder.save_architecture(folder)


def _run(model: VSE, tokenizer: Tokenizer, recipe: Recipe, sources: dict[str, Any], state: State) -> Run:
    timings = {
        "seconds": state.seconds,
        "step_seconds": state.training_seconds / state.step,
        "data_wait": state.waiting_seconds / state.training_seconds,
    }
    return Run(
        model=model,
        tokenizer=tokenizer,
        recipe=recipe,
        data=sources["data"],
        seed=sources["seed"],
        history=state.history,
        best=state.best,
        timings=timings,
        device=state.device,
        processes=state.processes,
    )
