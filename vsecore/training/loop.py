"""The training loop (`fit`), and how a run is loaded again (`load_run`)."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from vsecore.data.batches import Batch, make_loader
from vsecore.data.boxes import with_boxes
from vsecore.data.files import expanded, progress
from vsecore.data.splits import Dataset
from vsecore.data.words import TokenizedCaptions, Tokenizer
from vsecore.model import VSE
from vsecore.processes import from_main_process
from vsecore.recipes import Recipe
from vsecore.recipes.own_parts import own_parts
from vsecore.scoring import evaluate_split
from vsecore.training import checkpoints
from vsecore.training.averaging import Averaging
from vsecore.training.checkpoints import RunFolder, State, refuse_to_overwrite
from vsecore.training.distributed import hardware, make_accelerator, precision_of
from vsecore.training.identity import check_tokenizer, describe_data, read_identity, read_recipe
from vsecore.training.optimization import LossMeter, advance, check_weights, make_optimizer, make_schedule
from vsecore.training.run import Event, Run, Settings
from vsecore.training.system import System

SAVE_SECONDS = 600
"""How many seconds of a long epoch a killed run may lose, unless `save_every` says otherwise."""


def fit(recipe: Recipe, data: Dataset, settings: Settings | None = None, **keywords: Any) -> Run:
    """Train a recipe on a dataset, and keep the weights of the epoch with the highest rsum on the dev split.

    Everything random in a step depends only on the seed and the step's number. So on a CPU, a run that was
    interrupted and resumed ends with the same bits as one that was not. Torch's global generator is reseeded
    in every step.

    Started by `torchrun` or `accelerate launch`, several processes share each batch. The loss sees the joint
    batch, so they learn what one process would, up to rounding. What a model draws in a step (dropout,
    samples, starting positions) is the exception: each process draws its own.

    Args:
        recipe: what to train.
        data: what to train on; its features are of the kind that the recipe reads.
        settings: how.
        keywords: fields of `Settings` by name, in place of the object's.

    Returns:
        The run. Its model is always on the CPU and in eval mode, as `load_run` gives it.

    Raises:
        ValueError: a setting is none; recipe and data do not fit; the recipe needs negatives, or an earlier
            round's weights, and there are none; the folder holds a run and `resume` is False; it holds a run
            of another recipe, data, tokenizer, vectors, negatives, precision or seed; or the run is damaged.
        BlockingIOError: another process trains in the folder.
        FloatingPointError: the loss, its gradient or a weight became NaN or infinite. The checkpoint is from
            before that.
    """
    training = _Training(recipe, data, Settings.of(settings, keywords))
    with checkpoints.locked(training.settings.folder):
        # Again: another process may have trained there while this one was building its model.
        refuse_to_overwrite(training.settings.folder, training.settings.resume)
        training.open()
        while not training.is_over():
            for batch in training.batches_of_epoch():
                training.step(batch)
            training.evaluate()
    return training.result()


class _Training:
    """What `fit` works with: the system, its optimizer, its batches, its folder, and how far it has got."""

    def __init__(self, recipe: Recipe, data: Dataset, settings: Settings) -> None:
        _check(recipe, data, settings)
        refuse_to_overwrite(settings.folder, settings.resume)
        self.recipe, self.data, self.settings = recipe, data, settings
        self.stopped = False
        how = recipe.training
        self.accelerator = make_accelerator(
            settings.device, settings.precision, find_unused_parameters=how.frozen_epochs > 0
        )
        self.tokenizer: Tokenizer = settings.tokenizer or recipe.tokenizer(data.train.captions)
        torch.manual_seed(settings.seed)
        system = System(recipe, data, self.tokenizer, settings.vectors)
        if settings.weights is not None:
            checkpoints.load_weights("weights", system.model, settings.weights)
        self.system = system.to(self.accelerator.device)
        self.optimizer = make_optimizer(self.system, how)
        self.dev_captions = TokenizedCaptions.encode(self.tokenizer, data.dev.captions)
        self.batches = make_loader(
            data.train,
            TokenizedCaptions.encode(self.tokenizer, data.train.captions),
            how.batch_size,
            mode=how.batches,
            seed=settings.seed,
            element_drop=recipe.image.element_drop,
            word_drop=recipe.text.word_drop,
            negatives=settings.negatives,
            workers=settings.workers,
            share=(self.accelerator.process_index, self.accelerator.num_processes),
        )
        self.steps_an_epoch = len(self.batches)
        self.schedule = make_schedule(self.optimizer, how, self.steps_an_epoch)
        self.averaging = Averaging(self.system.model, how.snapshots, self.steps_an_epoch)

    def open(self) -> None:
        """Begin the run, or go on where the one in the folder stopped."""
        settings, accelerator = self.settings, self.accelerator
        self.identity = {
            "recipe": self.recipe.portable(),
            "data": describe_data(
                self.data, self.tokenizer, settings.vectors, settings.negatives, settings.weights
            ),
            "seed": settings.seed,
            "precision": precision_of(accelerator),
        }
        if parts := own_parts(self.recipe):
            self.identity["parts"] = [asdict(file) for file in parts]
        self.folder = RunFolder(settings.folder, self.identity, writes=accelerator.is_main_process)
        self.state = self.folder.open(self.system, self.optimizer, self.tokenizer)
        advance(self.schedule, self.state.step)
        self.state.device, self.state.processes = hardware(accelerator.device), accelerator.num_processes
        if self.state.step == 0:
            self.state.seconds = settings.earlier_seconds
        self.seconds_before = self.state.seconds
        self.began = self.saved = time.perf_counter()
        self.shared, self.optimizer = accelerator.prepare(self.system, self.optimizer)

    def is_over(self) -> bool:
        """Whether all epochs are done, patience has run out, or a callback has asked to stop."""
        return self.recipe.training.is_over(self.state.history) or from_main_process(lambda: self.stopped)

    def batches_of_epoch(self) -> Iterator[Batch]:
        """Yield the rest of the epoch's batches; note the time that waiting and steps take."""
        state = self.state
        self.meter = LossMeter(state.loss_sums, self.accelerator.device)
        self.system.train()
        bar = progress(
            initial=state.batch,
            total=self.steps_an_epoch,
            desc=f"epoch {state.epoch + 1}/{self.recipe.training.epochs}",
            unit="step",
        )
        batches = iter(self.batches.of_epoch(state.epoch, start=state.batch))
        asked = time.perf_counter()
        with bar:
            while (batch := next(batches, None)) is not None:
                state.waiting_seconds += time.perf_counter() - asked
                yield batch.to(self.accelerator.device)
                bar.update()
                now = time.perf_counter()
                state.training_seconds += now - asked
                asked = now

    def step(self, batch: Batch) -> None:
        """Take one step, and save the run if it is time to."""
        state, rank = self.state, self.accelerator.process_index
        # Makes dropout a function of seed, step and process, so that a resumed run repeats it.
        torch.manual_seed(((self.settings.seed * 1_000_003 + state.step) * 1_009 + rank) % 2**63)
        terms, (scores, positives) = self.shared(batch, state.epoch)

        self.optimizer.zero_grad()
        self.accelerator.backward(sum(terms.values()))
        norm = self.accelerator.clip_grad_norm_(self.system.parameters(), self.recipe.training.clip_norm)
        self.last_rate = float(self.schedule.get_last_lr()[0])  # of the first group of weights
        self.optimizer.step()
        self.schedule.step()

        state.step, state.batch = state.step + 1, state.batch + 1
        self.averaging.after_step(state.batch)
        self.meter.add(terms, norm, state.step, self.last_rate)
        every, waited = self.settings.save_every, time.perf_counter() - self.saved
        due = state.step % every == 0 if every else waited > SAVE_SECONDS
        due = due and state.batch < self.averaging.begins  # no checkpoint has to hold half an average
        self._tell(
            "step",
            terms={name: term.detach() for name, term in terms.items()},
            scores=scores,
            positives=positives,
            saved=due or state.batch == self.steps_an_epoch,
        )
        if due:
            state.loss_sums = self.meter.read()
            check_weights(self.system, state.step, self.last_rate)
            self._save()

    def evaluate(self) -> None:
        """End an epoch: evaluate on dev, keep the weights if they are the best so far, and save the run."""
        state = self.state
        losses = {name: total / self.steps_an_epoch for name, total in self.meter.read().items()}
        check_weights(self.system, state.step, self.last_rate)
        model = self.averaging.finish(self.batches.of_epoch(state.epoch), self.accelerator.device)
        metrics = from_main_process(partial(evaluate_split, model, self.data.dev, self.dev_captions))
        entry = {"epoch": state.epoch, "step": state.step, "learning_rate": self.last_rate}
        terms = {f"loss_{name}": loss for name, loss in losses.items()} if len(losses) > 1 else {}
        state.history.append({**entry, "loss": sum(losses.values()), **terms, **metrics})
        if state.best["step"] == state.step:
            self.folder.keep_best(model)
        state.epoch, state.batch, state.loss_sums = state.epoch + 1, 0, {}
        self._save()
        self._tell("evaluated", epoch=state.epoch - 1, metrics=metrics)

    def _save(self) -> None:
        self.saved = time.perf_counter()
        self.state.seconds = self.seconds_before + self.saved - self.began
        self.folder.save(self.system, self.optimizer, self.state)

    def _tell(self, kind: Any, **facts: Any) -> None:
        if self.settings.callback is not None:
            now = {"epoch": self.state.epoch, "step": self.state.step, "learning_rate": self.last_rate}
            going_on = self.settings.callback(Event(kind=kind, system=self.system, **now | facts))
            self.stopped = self.stopped or going_on is False

    def result(self) -> Run:
        """Return the run, with the weights of its best epoch."""
        model = self.accelerator.unwrap_model(self.shared, keep_fp32_wrapper=False).model
        model.load_state_dict(self.folder.best)
        return _run(model.cpu().eval(), self.tokenizer, self.recipe, self.identity, self.state)


def load_run(folder: str | Path) -> Run:
    """Load a run from its folder, with its model on the CPU. Nothing but the folder is needed.

    What is loaded is what was saved: the checkpoint, `run.json`, the tokenizer and the architectures are
    checked against each other's digests, of which runs of older versions have fewer.

    Raises:
        FileNotFoundError: the folder holds no run, or one without a finished epoch.
        ValueError: a file is damaged, or belongs to another run; the message names it.
    """
    folder = expanded(folder)
    identity = read_identity(folder)
    recipe = read_recipe(folder, identity)
    remedy = (
        f"the training was stopped before its first epoch ended; go on by vse train --resume {folder} "
        "(in Python, resume=True)"
    )
    if not (folder / checkpoints.CHECKPOINT).is_file():
        raise FileNotFoundError(f"{folder} holds no {checkpoints.CHECKPOINT}: {remedy}")
    tokenizer = recipe.load_tokenizer(folder)
    check_tokenizer(folder, tokenizer, identity)
    tensors, state = checkpoints.read_checkpoint(folder, identity)
    if not state.best:
        raise FileNotFoundError(f"{folder} holds no finished epoch: {remedy}")
    model = recipe.build(identity["data"]["feature_dim"], tokenizer, architecture=folder)
    checkpoints.load_weights(folder / checkpoints.CHECKPOINT, model, tensors["best"])
    return _run(model.eval(), tokenizer, recipe, identity, state)


def _run(model: VSE, tokenizer: Tokenizer, recipe: Recipe, identity: dict[str, Any], state: State) -> Run:
    return Run(
        model=model,
        tokenizer=tokenizer,
        recipe=recipe,
        data=identity["data"],
        seed=identity["seed"],
        precision=identity["precision"],
        history=state.history,
        best=state.best,
        timings={
            "seconds": state.seconds,
            "step_seconds": state.training_seconds / state.step,
            "data_wait": state.waiting_seconds / max(state.training_seconds, 1e-9),
        },
        device=state.device,
        processes=state.processes,
    )


def _check(recipe: Recipe, data: Dataset, settings: Settings) -> None:
    """Refuse a recipe that does not fit the data, or that lacks what an earlier round leaves."""
    if recipe.features != data.feature_kind:
        raise ValueError(
            f"recipe {recipe.name!r} reads {recipe.features!r} and data {data.name!r} holds "
            f"{data.feature_kind!r}: choose a recipe that reads what the data hold"
        )
    if recipe.image.boxes and with_boxes(data) is not data:
        raise ValueError(f"recipe {recipe.name!r} reads boxes: give the data with_boxes (vsecore.data.boxes)")
    if recipe.training.frozen_epochs >= recipe.training.epochs:
        raise ValueError(
            f"training.frozen_epochs is {recipe.training.frozen_epochs}, and training.epochs "
            f"{recipe.training.epochs}: pretrained weights would never learn, so freeze them for fewer epochs"
        )
    if settings.negatives is not None and not recipe.learns_offline:
        raise ValueError(
            f"negatives are given, but no loss of recipe {recipe.name!r} reads them: leave them out, or give "
            "the loss's class the attribute reads_offline = True"
        )
    if recipe.learns_offline and settings.negatives is None:
        raise ValueError(
            f"recipe {recipe.name!r} learns from offline negatives, and none are given: train it by "
            "fit_in_rounds if it has a first round; or mine them with another model's run (vse mine RUN "
            f"--data DATA --out NEGATIVES), and give them (vse train {recipe.name} --negatives NEGATIVES)"
        )
    if recipe.first_round is not None and recipe.first_round.keeps_weights and settings.weights is None:
        raise ValueError(
            f"first_round.keeps_weights of recipe {recipe.name!r} is true, and there are no weights to go on "
            "with: train it by fit_in_rounds without negatives of another model"
        )
