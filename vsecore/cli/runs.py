"""`vse train`, `vse plan` and `vse mine`: train, say what it costs, find hard negatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vsecore import stopping
from vsecore.cli import options
from vsecore.cli.options import Count, Device, Folder, Precision, Seed, Whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from vsecore.data.splits import Split
    from vsecore.data.words import Tokenizer
    from vsecore.recipes import Recipe
    from vsecore.training import Event, Run
    from vsecore.training.command import Command
    from vsecore.training.logs import TensorBoardLog

METRICS = "metrics.json"
"""What a run found: in its best epoch on dev, and on the test split. For people and their tools."""


def train(
    recipe: str = "",
    *,
    data: str = "scenes",
    out: Folder | None = None,
    set_: list[str] | None = None,
    vectors: Path | None = None,
    resume: bool = False,
    init: Path | None = None,
    tune: bool = False,
    workers: Whole = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    save_every: Count | None = None,
    negatives: Path | None = None,
    targets: str | None = None,
    tensorboard: bool = False,
    seed: Seed = 0,
    record: Folder | None = None,
) -> None:
    """Train a recipe, keep its best epoch, and report the test split.

    Options:
        recipe: A recipe's name or file (see vse recipes); with --resume, a run's folder.
        out: The run's folder. [default: runs/RECIPE-DATA-SEED]
        resume: Go on with the run in --out; or name the run's folder alone.
        init: Begin with the weights and words of this run, to train it further; without RECIPE, with its
            recipe too.
        tune: Train at several learning rates, each in a folder of --out, until the best lies in between.
        save_every: Save every N steps, and after each epoch. [default: every ten minutes]
        negatives: Hard negatives that vse mine found in this data.
        targets: The sentence encoder whose vectors the captions must predict: a name or a folder. [default:
            all-MiniLM-L6-v2, if the recipe predicts targets]
        tensorboard: Write logs for TensorBoard into the run's folder.
    """
    from vsecore.training.command import Command

    if init and vectors:
        raise ValueError("--vectors is given with --init, whose run has its words' vectors; leave it out")
    if resume and not recipe and init is None and out is not None:
        recipe, out = str(out), None
    command = Command(
        recipe=recipe,
        settings=tuple(set_ or ()),
        data=data,
        vectors=str(vectors) if vectors else None,
        negatives=str(negatives) if negatives else None,
        targets=targets,
        init=str(init) if init else None,
        seed=seed,
        precision=precision,
    )
    if resume and recipe and out is None and Path(recipe).is_dir():
        out = Path(recipe)
        command = command.over(_noted(out))
    how = {"workers": workers, "device": device, "save_every": save_every}
    trained = (_tune if tune else train_as)(command, out, resume, how, tensorboard)
    if stopping.is_main_process():  # only one process prints and writes
        _report(trained, device, record)


def _say(message: str, err: bool = False) -> None:
    """Print a message once, however many processes train."""
    if stopping.is_main_process():
        typer.echo(message, err=err)


def _noted(folder: Path) -> Command:
    """Return the command of the run in a folder, after loading its own parts."""
    from vsecore.training.command import remembered
    from vsecore.training.identity import RUN, read_identity
    from vsecore.training.rounds import FIRST_ROUND

    for place in (folder, folder / FIRST_ROUND):
        if (place / RUN).is_file():
            read_identity(place)
    command = remembered(folder)
    if command is None:
        raise ValueError(f"{folder} does not say how it was trained: give its own command and --resume")
    return command


@dataclass(frozen=True)
class _Done:
    """A training that has ended, and what is said of it."""

    run: Run
    test: Split
    folder: Path
    coverage: str


def _tune(command: Command, out: Path | None, resume: bool, how: dict[str, Any], tensorboard: bool) -> _Done:
    """Train at several learning rates, each in its own folder, and return the best on dev."""
    from vsecore.experiments.tuning import best, search

    if out is None:
        raise ValueError("--tune trains several runs: name a folder for them with --out")
    done: dict[float, _Done] = {}

    def train_at(rate: float) -> float:
        _say(f"learning rate {rate:.3g}:")
        settings = (*command.settings, f"training.learning_rate={rate!r}")
        place = out / f"rate-{rate:.3g}"
        done[rate] = train_as(replace(command, settings=settings), place, resume, how, tensorboard)
        return done[rate].run.best["rsum"]

    own = _chosen(command)[0].training.learning_rate
    rates = [own * 2.0**step for step in range(-10, 11)]  # first half of it, itself, and twice as much
    results = search(train_at, rates[9:12], rates)
    told = ", ".join(f"{rate:.3g}: {results[rate]:.1f}" for rate in sorted(results))
    _say(f"best rsum on dev by learning rate: {told}")
    return done[best(results)]


def train_as(
    command: Command, out: Path | None, resume: bool, how: dict[str, Any], tensorboard: bool = False
) -> _Done:
    """Train as a command says; `how` holds the settings of `fit` that do not change the result."""
    from vsecore.data.known_words import words_report
    from vsecore.data.sentence_targets import MODEL, with_targets
    from vsecore.experiments import WORLDS
    from vsecore.mining import load_negatives
    from vsecore.training import fit_in_rounds
    from vsecore.training.checkpoints import refuse_to_overwrite
    from vsecore.training.logs import TensorBoardLog
    from vsecore.training.rounds import FIRST_ROUND

    chosen, begun = _chosen(command)
    refuse_to_overwrite(out, resume)  # before the data are read, if we can: the default needs their name
    if tensorboard:
        TensorBoardLog(".")  # writes nothing yet, but says so at once if TensorBoard is missing
    dataset = options.open_for(chosen, command.data)
    folder = out or Path("runs") / f"{chosen.name}-{dataset.name}-{command.seed}"
    options.check_writable("--out", folder)
    refuse_to_overwrite(folder, resume)
    if chosen.predicts_targets:
        on = None if how["device"] == "auto" else how["device"]
        dataset = with_targets(dataset, command.targets or MODEL, on)
    tokenizer = begun.tokenizer if begun else chosen.tokenizer(dataset.train.captions)
    for warning in words_report(tokenizer, {"dev": dataset.dev.captions})[1]:
        _say(f"warning: {warning}", err=True)
    word_vectors, coverage = _word_vectors(command, tokenizer, chosen)
    negatives = command.negatives and load_negatives(Path(command.negatives), dataset.train)
    rounds = {"": folder, "first round, ": folder / FIRST_ROUND}
    _advise(list(rounds.values()), resume)
    keep = cache(partial(command.keep, folder, tuple(WORLDS)))  # as soon as there is a run
    last, first = (
        partial(_follow, keep, prefix, TensorBoardLog(place / "tensorboard") if tensorboard else None)
        for prefix, place in rounds.items()
    )
    run = fit_in_rounds(
        chosen,
        dataset,
        folder=folder,
        resume=resume,
        tokenizer=tokenizer,
        vectors=word_vectors,
        negatives=negatives or None,
        weights=None if begun is None else begun.model.state_dict(),
        callback=last,
        first_callback=first,
        seed=command.seed,
        precision=command.precision,
        **how,
    )
    return _Done(run, dataset.test, folder, coverage)


def _follow(keep: Callable[[], None], prefix: str, log: TensorBoardLog | None, event: Event) -> None:
    if not stopping.is_main_process():
        return
    keep()
    if event.metrics is not None:
        typer.echo(f"{prefix}epoch {event.epoch + 1}: {options.spoken(event.metrics)}")
    if log is not None:
        log(event)


def _advise(places: list[Path], resume: bool) -> None:
    """Say how to go on if the training is stopped, and whether there is anything to resume."""
    from vsecore.training.checkpoints import CHECKPOINT

    def begun() -> bool:
        return any((place / CHECKPOINT).is_file() for place in places)

    if resume and not begun():
        _say(f"note: {places[0]} holds no run to resume, so this one starts from the beginning", err=True)
    again = "nothing was saved yet, so start again with the same command"
    stopping.advise(lambda: "continue with --resume" if begun() else again)


def _chosen(command: Command) -> tuple[Recipe, Run | None]:
    from vsecore.recipes import get
    from vsecore.training import load_run

    if not command.recipe and command.init is None:
        raise ValueError("no recipe is named: vse recipes lists them (or --init RUN, or --resume RUN)")
    begun = None if command.init is None else load_run(command.init)
    recipe = get(command.recipe) if command.recipe or begun is None else begun.recipe
    recipe = recipe.override(options.read_settings(command.settings))
    for option, given, read in (
        ("--negatives", command.negatives, recipe.learns_offline),
        ("--targets", command.targets, recipe.predicts_targets),
    ):
        if given is not None and not read:
            raise ValueError(f"{option} is given, but no loss of {recipe.name} reads them; leave it out")
    return recipe, begun


def _word_vectors(command: Command, tokenizer: Tokenizer, recipe: Recipe) -> tuple[Tensor | None, str]:
    from vsecore.data.vocabulary import Vocabulary
    from vsecore.data.word_vectors import load_vectors
    from vsecore.typed import counted

    if command.vectors is None:
        return None, ""
    if not isinstance(tokenizer, Vocabulary):
        raise ValueError(f"--vectors is given, but {recipe.name} has word pieces of its own; leave it out")
    vectors, missing = load_vectors(Path(command.vectors), tokenizer, command.seed)
    noise = f", {counted(missing, 'word')} from noise" if missing else ""
    total = len(tokenizer.words)
    _say(told := f"word vectors: {total - len(missing)} of {total} words found{noise}")
    return vectors, f"; {told}"


def _report(trained: _Done, device: str, record: Path | None) -> None:
    from vsecore import records
    from vsecore.data.files import write_json
    from vsecore.training import evaluate_split
    from vsecore.training.distributed import best_device

    run, test, folder = trained.run, trained.test, trained.folder
    model = run.model.to("cpu" if device == "cpu" else best_device())
    metrics = evaluate_split(model, test, run.tokenizer)
    typer.echo(f"test: {options.spoken(metrics)}")
    found = {"dev": run.best, "test": metrics, "test_split": test.names_digest()}
    write_json(folder / METRICS, found, indent=1)
    step, waiting = run.timings["step_seconds"], run.timings["data_wait"]
    typer.echo(f"run: {folder} (a step took {step:.3f} s, {waiting:.1%} of it waiting for data)")
    if record is not None:
        note = f"best epoch on dev, evaluated on {len(test)} test pictures, split {test.names_digest()}"
        entry = records.record_run(run, metrics, note + trained.coverage)
        typer.echo(f"record: {records.write(entry, record)}")


def mine(run: Path, *, out: Folder, data: str = "scenes", texts: Count = 300, pictures: Count = 60) -> None:
    """Find the hardest negatives of the training split, for vse train --negatives. Resumes.

    Options:
        run: The folder of a trained run.
        out: The folder to write the negatives into.
        texts: Captions for each picture.
        pictures: Pictures for each caption.
    """
    from vsecore import mining
    from vsecore.training.distributed import best_device

    if out.resolve() == run.resolve():
        raise ValueError(f"--out is {out}, the run's folder: it must be another one")
    trained, dataset = options.open_run(run, data)
    stopping.advise(lambda: "continue with the same command")
    model, by = trained.model.to(best_device()), f"{trained.recipe.name} {trained.recipe.hash()}"
    found = mining.mine(model, dataset.train, trained.tokenizer, texts, pictures, folder=out, recipe=by)
    for name, rows, asked in (("texts", found.texts, texts), ("pictures", found.pictures, pictures)):
        if (most := rows.shape[1]) < asked:
            typer.echo(f"note: --{name} is {asked}; there are only {most} negatives, so all are used")
    anchors = f"{len(found.texts)} pictures and {len(found.pictures)} captions"
    typer.echo(f"negatives of {anchors}: {out} (vse train RECIPE --negatives {out})")


def plan(
    recipe: str,
    *,
    data: str = "coco",
    set_: list[str] | None = None,
    seconds: float = 20.0,
    workers: Whole = 0,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Take some real steps of a recipe, throw them away, and say what a whole training will cost.

    Options:
        data: What vse train takes; or coco, flickr30k or flickr8k: random numbers in that shape, which need
            neither disk nor download.
        seconds: How long to take steps in each round.
    """
    from vsecore.data.rehearsal import PICTURES, Shape, rehearsal
    from vsecore.recipes import get
    from vsecore.training.planning import plan as count

    chosen = get(recipe).override(options.read_settings(set_))
    if data in PICTURES and chosen.features != "pixels":
        dataset = rehearsal(Shape.of(data, chosen.features))
    else:
        dataset = options.open_for(chosen, data)
    cost = count(chosen, dataset, seconds=seconds, device=device, precision=precision, workers=workers)
    if not stopping.is_main_process():  # several share each step, and one says it
        return
    typer.echo(f"{chosen.name} on {data}: {dataset.train!r}")
    for name, value in cost.rows().items():
        typer.echo(f"{name:<20} {value}")
