"""The training loop (`fit`), its result (`Run`), and how a run is loaded again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from vsecore.data.batches import Batch, make_loader
from vsecore.data.boxes import with_boxes
from vsecore.data.files import progress
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Dataset
from vsecore.data.words import TokenizedCaptions, Tokenizer
from vsecore.model import VSE
from vsecore.processes import from_main_process
from vsecore.recipes import Recipe
from vsecore.training import checkpoints
from vsecore.training.averaging import Averaging
from vsecore.training.checkpoints import RunFolder, State, held, refuse_to_overwrite
from vsecore.training.distributed import hardware, make_accelerator, precision_of
from vsecore.training.embedding import evaluate_split
from vsecore.training.identity import (
    AGAIN,
    check_tokenizer,
    digest,
    read_identity,
    read_recipe,
    tokenizer_digest,
)
from vsecore.training.optimization import LossMeter, advance, check_weights, make_optimizer, make_schedule
from vsecore.training.system import System

SAVE_SECONDS = 600
"""How many seconds of a long epoch a killed run may lose, unless `save_every` says otherwise."""


@dataclass(frozen=True)
class Event:
    """What a callback receives after each step and after each epoch's evaluation."""

    kind: Literal["step", "evaluated"]
    epoch: int  # counted from 0
    step: int  # steps taken since the beginning
    system: System
    learning_rate: float  # the learning rate of this step, or of the epoch's last one
    # Of a step alone; an evaluation has none of them.
    terms: dict[str, Tensor] = field(default_factory=dict)  # of the loss; reading one waits for the GPU
    scores: Tensor = field(default_factory=lambda: torch.empty(0, 0))  # (B, C) of the joint batch
    positives: Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.bool))  # (B, C)
    saved: bool = False  # whether the run is saved next: what a callback keeps beside it must be written now
    # Of an evaluation alone.
    metrics: dict[str, float] | None = None  # metrics of the dev split

    @property
    def model(self) -> VSE:
        """The model within the system."""
        return self.system.model

    @property
    def loss(self) -> Tensor:
        """The sum of the terms."""
        return cast(Tensor, sum(self.terms.values()))


@dataclass
class Run:
    """A trained model and how it came to be."""

    model: VSE  # with the weights of the best epoch; on the CPU, in eval mode
    tokenizer: Tokenizer
    recipe: Recipe
    data: dict[str, Any]  # what `describe_data` returned
    seed: int
    precision: str  # "float32" or "bfloat16"
    history: list[dict[str, float]]  # for each epoch: epoch, step, learning_rate, loss, dev's metrics
    best: dict[str, float]  # the entry of the epoch with the highest rsum
    timings: dict[str, float]  # seconds; step_seconds, the mean; data_wait, the share of a step spent waiting
    device: str  # the name of the hardware, such as "NVIDIA H200"
    processes: int  # how many shared each batch


@dataclass(frozen=True)
class Beginning:
    """What an earlier round hands to a training."""

    seconds: float  # how long it took
    weights: Mapping[str, Tensor] | None = None  # the model's weights to begin with; None: new ones


def fit(
    recipe: Recipe,
    data: Dataset,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    tokenizer: Tokenizer | None = None,
    vectors: Tensor | None = None,
    negatives: OfflineNegatives | None = None,
    begin: Beginning | None = None,
    callback: Callable[[Event], None] | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu"] = "auto",
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    workers: int = 0,
    save_every: int | None = None,
) -> Run:
    """Train a recipe on a dataset, and keep the weights of the epoch with the highest rsum on the dev split.

    Everything random in a step depends only on the seed and the step's number. So on a CPU, a run that was
    interrupted and resumed ends with the same bits as one that was not. Torch's global generator is reseeded
    in every step.

    Started by `torchrun` or `accelerate launch`, several processes share each batch. The loss sees the joint
    batch, so they learn what one process would, up to rounding. Dropout (BERT) is the exception: it is random
    in each process.

    Args:
        recipe: what to train.
        data: what to train on; its features are of the kind that the recipe reads.
        folder: where the run is kept, see `checkpoints.RunFolder`; None: nowhere.
        resume: continue the run in the folder, or start one if there is none yet.
        tokenizer: for the captions; None: the recipe makes one from the training captions.
        vectors: initial word vectors, (len(tokenizer), width).
        negatives: hard negatives from the whole training set; each pair gets new ones (`Batch.offline`).
        begin: what an earlier round leaves, see `fit_in_rounds`; its seconds count as this run's.
        callback: called with an `Event` after each step and each evaluation. An exception in it ends the run.
        seed: decides the initial weights, the order, and what is dropped.
        device: "auto" uses a GPU if there is one.
        precision: "auto" uses bfloat16 if the GPU has it in hardware, else float32.
        workers: processes that prepare batches ahead.
        save_every: save after every so many steps too, not only after each epoch; None: within an epoch, save
            when ten minutes have passed since the last time.

    Returns:
        The run. Its model is always on the CPU and in eval mode, as `load_run` gives it.

    Raises:
        ValueError: recipe and data do not fit; the recipe needs negatives, or an earlier round's weights,
            and there are none; the folder holds a run and `resume` is False; it holds a run
            of another recipe, data, tokenizer, vectors, negatives, precision or seed; or the run is damaged.
        BlockingIOError: another process trains in the folder.
        FloatingPointError: the loss, its gradient or a weight became NaN or infinite. The checkpoint is from
            before that.
    """
    folder = None if folder is None else Path(folder)
    _check_arguments(recipe, data, seed, save_every)
    weights = None if begin is None else begin.weights
    _check_rounds(recipe, negatives, weights)
    if folder is not None:
        refuse_to_overwrite(folder, resume)
    settings = recipe.training
    accelerator = make_accelerator(device, precision, some_rest=settings.frozen_epochs > 0)
    tokenizer = tokenizer or recipe.tokenizer(data.train.captions)

    torch.manual_seed(seed)
    system = System.build(recipe, data, tokenizer, vectors)
    if weights is not None:
        system.model.load_state_dict(weights)
    system = system.to(accelerator.device)
    optimizer = make_optimizer(system, settings)
    dev_captions = TokenizedCaptions.encode(tokenizer, data.dev.captions)
    batches = make_loader(
        data.train,
        TokenizedCaptions.encode(tokenizer, data.train.captions),
        settings.batch_size,
        mode=settings.batches,
        seed=seed,
        element_drop=recipe.image.element_drop,
        word_drop=recipe.text.word_drop,
        negatives=negatives,
        workers=workers,
        rank=accelerator.process_index,
        world=accelerator.num_processes,
    )
    steps_an_epoch = len(batches)
    schedule = make_schedule(optimizer, settings, steps_an_epoch)
    averaging = Averaging(system.model, settings.snapshots, steps_an_epoch)
    sources = {
        "recipe": recipe.portable(),
        "data": describe_data(data, tokenizer, vectors, negatives, weights),
        "seed": seed,
        "precision": precision_of(accelerator),
    }

    with held(folder):  # no other training writes there
        run_folder = RunFolder(folder, sources, writes=accelerator.is_main_process)
        state = run_folder.open(resume, system, optimizer, tokenizer)
        _check_reached(folder, state, settings.epochs, steps_an_epoch)
        advance(schedule, state.step)
        state.device, state.processes = hardware(accelerator.device), accelerator.num_processes
        if begin is not None and state.step == 0:
            state.seconds = begin.seconds
        began = saved = time.perf_counter()
        before = state.seconds
        shared, optimizer = accelerator.prepare(system, optimizer)

        while state.epoch < settings.epochs:
            loader = batches.of_epoch(state.epoch, start=state.batch)
            rate = float(schedule.get_last_lr()[0])
            meter = LossMeter(state.loss_sums, accelerator.device)
            system.train()
            for batch in _shown(_timed(loader, state), state, steps_an_epoch, settings.epochs, accelerator):
                _seed_step(seed, state.step, accelerator.process_index)
                terms, scored = shared(batch.to(accelerator.device), state.epoch)

                optimizer.zero_grad()
                accelerator.backward(sum(terms.values()))
                norm = accelerator.clip_grad_norm_(system.parameters(), settings.clip_norm)
                rate = float(schedule.get_last_lr()[0])
                optimizer.step()
                schedule.step()

                state.step, state.batch = state.step + 1, state.batch + 1
                averaging.after_step(state.batch)
                meter.add(terms, norm, state.step, rate)
                now = time.perf_counter()
                due = state.step % save_every == 0 if save_every else now - saved > SAVE_SECONDS
                due = due and state.batch < averaging.begins
                if callback:
                    terms = {name: term.detach() for name, term in terms.items()}
                    event = Event("step", state.epoch, state.step, system, rate, terms, scored.scores)
                    ends = state.batch == steps_an_epoch
                    callback(replace(event, positives=scored.positives, saved=due or ends))
                if due:
                    state.loss_sums, state.seconds, saved = meter.read(), before + now - began, now
                    check_weights(system, state.step, rate)
                    run_folder.save(system, optimizer, state)

            losses = {name: total / steps_an_epoch for name, total in meter.read().items()}
            check_weights(system, state.step, rate)
            model = averaging.finish(batches.of_epoch(state.epoch), accelerator.device)
            metrics = from_main_process(partial(evaluate_split, model, data.dev, dev_captions))
            state.history.append(_entry(state, rate, losses, metrics))
            evaluated = Event("evaluated", state.epoch, state.step, system, rate, metrics=metrics)
            if state.best["step"] == state.step:
                run_folder.keep_best(model)
            state.epoch, state.batch, state.loss_sums = state.epoch + 1, 0, {}
            saved = time.perf_counter()
            state.seconds = before + saved - began
            run_folder.save(system, optimizer, state)
            if callback:
                callback(evaluated)

    model = accelerator.unwrap_model(shared, keep_fp32_wrapper=False).model
    model.load_state_dict(run_folder.best)
    return _run(model.cpu().eval(), tokenizer, recipe, sources, state)


def load_run(folder: str | Path) -> Run:
    """Load a run from its folder, with its model on the CPU. Nothing but the folder is needed.

    What is loaded is what was saved: the checkpoint, `run.json`, the tokenizer and the architectures are
    checked against each other's digests. Only the initial word vectors cannot be compared, since training has
    changed them; they are part of the checkpoint. Runs of older versions have fewer digests.

    Raises:
        FileNotFoundError: the folder holds no run, or one without a finished epoch.
        ValueError: a file is damaged, or belongs to another run; the message names it, and the field or
            tensor.
    """
    folder = Path(folder)
    sources = read_identity(folder)
    recipe = read_recipe(folder, sources)
    remedy = (
        "the training was stopped before its first epoch ended; go on with its own command and --resume "
        f"(vse train {recipe.name} --out {folder} --resume; in Python, resume=True)"
    )
    if not (folder / checkpoints.CHECKPOINT).exists():
        raise FileNotFoundError(f"{folder} holds no {checkpoints.CHECKPOINT}: {remedy}")
    tokenizer = recipe.load_tokenizer(folder)
    check_tokenizer(folder, tokenizer, sources)
    checkpoint = checkpoints.read_checkpoint(folder, sources)
    if not checkpoint.state.best:
        raise FileNotFoundError(f"{folder} holds no finished epoch: {remedy}")
    model = recipe.build(sources["data"]["feature_dim"], tokenizer, architecture=folder)
    checkpoints.load_best(checkpoint, model)
    return _run(model.eval(), tokenizer, recipe, sources, checkpoint.state)


def describe_data(
    data: Dataset,
    tokenizer: Tokenizer,
    vectors: Tensor | None = None,
    negatives: OfflineNegatives | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Describe the data of a run for its record: names, and digests of everything that is read.

    Args:
        data: what the run is trained on.
        tokenizer: for its captions.
        vectors: initial word vectors; None: there are none.
        negatives: offline negatives; None: there are none.
        weights: the weights that it begins with; None: new ones.
    """
    described = {
        "name": data.name,
        "fingerprint": data.fingerprint(),
        "feature_kind": data.feature_kind,
        "feature_dim": data.feature_dim,
        "tokenizer": tokenizer_digest(tokenizer),
        "vectors": "" if vectors is None else digest(vectors.detach().float().cpu().numpy().tobytes()),
    }
    if data.train.targets is not None:
        described["targets"] = digest(np.ascontiguousarray(data.train.targets).tobytes())
    if negatives is not None:
        described["negatives"] = digest(negatives.texts.tobytes() + negatives.pictures.tobytes())
    if weights is not None:
        described["weights"] = digest(
            b"".join(weights[name].detach().cpu().numpy().tobytes() for name in sorted(weights))
        )
    return described


def _check_arguments(recipe: Recipe, data: Dataset, seed: int, save_every: int | None) -> None:
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed}: wanted a whole number from 0 to 2**63 - 1")
    if save_every is not None and save_every < 1:
        raise ValueError(f"save_every is {save_every}: wanted at least 1 step, or None")
    if recipe.features != data.feature_kind:
        reads, holds = (
            "pixels" if kind == "pixels" else f"{kind} features"
            for kind in (recipe.features, data.feature_kind)
        )
        raise ValueError(
            f"recipe {recipe.name!r} reads {reads} and data {data.name!r} holds {holds}: choose a recipe "
            f"for {holds}"
        )
    if recipe.image.boxes and with_boxes(data) is not data:
        raise ValueError(f"recipe {recipe.name!r} reads boxes: give the data with_boxes (vsecore.data.boxes)")
    things = "captions" if recipe.training.batches == "pairs" else "pictures"
    count = len(data.train.captions if things == "captions" else data.train)
    if recipe.training.batch_size > count:
        raise ValueError(
            f"training.batch_size is {recipe.training.batch_size}: data {data.name!r} has {count} {things} "
            "to train on, so set it to that or less"
        )


def _check_rounds(
    recipe: Recipe, negatives: OfflineNegatives | None, weights: Mapping[str, Tensor] | None
) -> None:
    """Refuse a recipe that learns from what an earlier round leaves, if there is none."""
    if recipe.learns_offline and negatives is None:
        if recipe.first_round is not None:
            remedy = "train it by fit_in_rounds, which mines them after a first round, or give negatives=..."
        else:
            remedy = (
                "mine them with another model's run (vse mine RUN --data DATA --out NEGATIVES; in the paper "
                f"it is VSRN's), then train with them (vse train {recipe.name} --data DATA --negatives "
                "NEGATIVES)"
            )
        raise ValueError(
            f"recipe {recipe.name!r} learns from offline negatives, and none are given: {remedy}"
        )
    if recipe.first_round is not None and recipe.first_round.keeps_weights and weights is None:
        raise ValueError(
            f"first_round.keeps_weights of recipe {recipe.name!r} is true, and there are no weights to go on "
            "with: train it by fit_in_rounds without negatives of another model"
        )


def _check_reached(folder: Path | None, state: State, epochs: int, steps: int) -> None:
    """Refuse a state that a run of so many epochs, with so many steps each, never reaches."""
    ends = [(epoch + 1) * steps for epoch in range(state.epoch)]
    if state.epoch > epochs or state.batch >= steps or [entry["step"] for entry in state.history] != ends:
        raise ValueError(
            f"{folder}: the checkpoint is at step {state.step}, epoch {state.epoch}, batch {state.batch}, "
            f"which a run of {epochs} epochs of {steps} steps never reaches: {AGAIN}"
        )


def _entry(
    state: State, rate: float, losses: dict[str, float], metrics: dict[str, float]
) -> dict[str, float]:
    """Make an epoch's entry in the history: the loss, its terms if there are several, the metrics on dev."""
    terms = {f"loss_{name}": loss for name, loss in losses.items()} if len(losses) > 1 else {}
    head = {"epoch": state.epoch, "step": state.step, "learning_rate": rate, "loss": sum(losses.values())}
    return {**head, **terms, **metrics}


def _timed(loader: Iterable[Batch], state: State) -> Iterator[Batch]:
    """Yield the batches; add to the state how long the loop waited for them, and how long all steps took."""
    batches = iter(loader)
    asked = time.perf_counter()
    while (batch := next(batches, None)) is not None:
        state.waiting_seconds += time.perf_counter() - asked
        yield batch
        now = time.perf_counter()
        state.training_seconds += now - asked
        asked = now


def _seed_step(seed: int, step: int, rank: int) -> None:
    """Make a step's dropout a function of seed, step and process, so that a resumed run repeats it."""
    torch.manual_seed(((seed * 1_000_003 + step) * 1_009 + rank) % 2**63)  # torch takes no larger seed


def _shown(
    batches: Iterable[Batch], state: State, last: int, epochs: int, accelerator: Accelerator
) -> Iterator[Batch]:
    """Yield the batches while a progress bar shows how far they are."""
    label = f"epoch {state.epoch + 1}/{epochs}"
    hidden = {} if accelerator.is_local_main_process else {"disable": True}
    yield from progress(batches, initial=state.batch, total=last, desc=label, unit="step", **hidden)


def _run(model: VSE, tokenizer: Tokenizer, recipe: Recipe, sources: dict[str, Any], state: State) -> Run:
    timings = {
        "seconds": state.seconds,
        "step_seconds": state.training_seconds / state.step,
        "data_wait": state.waiting_seconds / max(state.training_seconds, 1e-9),
    }
    return Run(
        model=model,
        tokenizer=tokenizer,
        recipe=recipe,
        data=sources["data"],
        seed=sources["seed"],
        precision=sources["precision"],
        history=state.history,
        best=state.best,
        timings=timings,
        device=state.device,
        processes=state.processes,
    )
