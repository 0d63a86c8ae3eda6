"""`vse train`, `vse plan` and `vse mine`: train a recipe, say what that will cost, find hard negatives."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsecore import stopping
from vsecore.cli.options import (
    DataOption,
    Device,
    Precision,
    RecordOption,
    Resume,
    Seed,
    SettingsOption,
    VectorsOption,
    Workers,
    check_writable,
    open_for,
    open_run,
    read_settings,
    spoken,
    writable,
)

if TYPE_CHECKING:
    from torch import Tensor

    from vsecore.data.splits import Split
    from vsecore.data.words import Tokenizer
    from vsecore.training import Event, Run
    from vsecore.training.logs import TensorBoardLog


RecipeName = Annotated[str, typer.Argument(help="A recipe's name; an unknown one lists them all.")]
Out = Annotated[
    Path | None, typer.Option(callback=writable, help="The run's folder. [default: runs/RECIPE-DATA-SEED]")
]
SaveEvery = Annotated[
    int | None,
    typer.Option(min=1, help="Save every N steps, and after each epoch. [default: every ten minutes]"),
]
Negatives = Annotated[
    Path | None, typer.Option("--negatives", help="Hard negatives that vse mine found in this data.")
]
Targets = Annotated[
    str | None,
    typer.Option(
        help="The sentence encoder whose vectors the captions must predict: a name or a folder. "
        "[default: all-MiniLM-L6-v2, if the recipe predicts targets]"
    ),
]
TensorBoard = Annotated[
    bool, typer.Option("--tensorboard", help="Write logs for TensorBoard into the run's folder.")
]


def train(
    recipe: RecipeName,
    data: DataOption = "scenes",
    out: Out = None,
    settings: SettingsOption = None,
    vectors: VectorsOption = None,
    resume: Resume = False,
    workers: Workers = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    save_every: SaveEvery = None,
    negatives: Negatives = None,
    targets: Targets = None,
    tensorboard: TensorBoard = False,
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Train a recipe, keep its best epoch, and report the test split."""
    from vsecore.data.sentence_targets import MODEL, with_targets
    from vsecore.mining import load_negatives
    from vsecore.recipes import get
    from vsecore.training import fit_in_rounds
    from vsecore.training.checkpoints import refuse_to_overwrite
    from vsecore.training.distributed import is_main_process
    from vsecore.training.logs import TensorBoardLog
    from vsecore.training.rounds import FIRST_ROUND

    chosen = get(recipe).override(read_settings(settings))
    for option, given, read in (
        ("--negatives", negatives, chosen.learns_offline),
        ("--targets", targets, chosen.predicts_targets),
    ):
        if given is not None and not read:
            raise ValueError(f"{option} is given, but no loss of recipe {recipe} reads them; leave it out")
    refuse_to_overwrite(out, resume)  # before the data are read, if we can: the default needs their name
    if tensorboard:
        TensorBoardLog(".")  # writes nothing yet, but says so at once if TensorBoard is missing
    dataset = open_for(chosen, data)
    folder = out or Path("runs") / f"{chosen.name}-{dataset.name}-{seed}"
    check_writable("--out", folder)
    refuse_to_overwrite(folder, resume)
    if chosen.predicts_targets:
        dataset = with_targets(dataset, targets or MODEL, None if device == "auto" else device)
    tokenizer = chosen.tokenizer(dataset.train.captions)
    word_vectors, coverage = _word_vectors(vectors, tokenizer, recipe, seed)
    places = (folder, folder / FIRST_ROUND)
    log, first_log = (TensorBoardLog(place / "tensorboard") if tensorboard else None for place in places)
    _advise(folder, resume)
    run = fit_in_rounds(
        chosen,
        dataset,
        folder=folder,
        resume=resume,
        tokenizer=tokenizer,
        vectors=word_vectors,
        negatives=None if negatives is None else load_negatives(negatives, dataset.train),
        callback=partial(_follow, log=log),
        first_callback=partial(_follow, log=first_log, prefix="first round, "),
        seed=seed,
        device=device,
        precision=precision,
        workers=workers,
        save_every=save_every,
    )
    if is_main_process():  # only one process prints and writes
        _report(run, dataset.test, folder, device, record, coverage)


def _report(run: Run, test: Split, folder: Path, device: str, record: Path | None, coverage: str) -> None:
    """Print what a run finds in the test split, and write its record."""
    from vsecore import records
    from vsecore.training import evaluate_split
    from vsecore.training.distributed import best_device

    model = run.model.to("cpu" if device == "cpu" else best_device())
    metrics = evaluate_split(model, test, run.tokenizer)
    typer.echo(f"test: {spoken(metrics)}")
    step, waiting = run.timings["step_seconds"], run.timings["data_wait"]
    typer.echo(f"run: {folder} (a step took {step:.3f} s, {waiting:.1%} of it waiting for data)")
    if record is not None:
        note = f"best epoch on dev, evaluated on {len(test)} test pictures, split {test.names_digest()}"
        typer.echo(f"record: {records.write(records.record_run(run, metrics, note + coverage), record)}")


def _word_vectors(
    path: Path | None, tokenizer: Tokenizer, recipe: str, seed: int
) -> tuple[Tensor | None, str]:
    """Load word vectors, if any are asked for, and say how many of the words they have."""
    from vsecore.data.vocabulary import Vocabulary
    from vsecore.data.word_vectors import load_vectors

    if path is None:
        return None, ""
    if not isinstance(tokenizer, Vocabulary):
        raise ValueError(f"--vectors is given, but recipe {recipe} has word pieces of its own; leave it out")
    vectors, report = load_vectors(path, tokenizer, seed)
    typer.echo(f"word vectors: {report}")
    return vectors, f"; word vectors: {report}"


def _follow(event: Event, log: TensorBoardLog | None, prefix: str = "") -> None:
    """Print an epoch's metrics, and log what TensorBoard shows; only one of several processes does."""
    from vsecore.training.distributed import is_main_process

    if is_main_process() and event.metrics is not None:
        typer.echo(f"{prefix}epoch {event.epoch + 1}: {spoken(event.metrics)}")
    if is_main_process() and log is not None:
        log(event)


def _advise(folder: Path, resume: bool) -> None:
    """Say how to go on if the training is stopped, and whether there is anything to resume."""
    from vsecore.training.checkpoints import CHECKPOINT
    from vsecore.training.distributed import is_main_process
    from vsecore.training.rounds import FIRST_ROUND

    def begun() -> bool:
        return any((place / CHECKPOINT).is_file() for place in (folder, folder / FIRST_ROUND))

    if resume and not begun() and is_main_process():
        typer.echo(f"note: {folder} holds no run to resume, so this one starts from the beginning", err=True)
    again = "nothing was saved yet, so start again with the same command"
    stopping.advise(lambda: "continue with --resume" if begun() else again)


def mine(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run.")],
    out: Annotated[
        Path, typer.Option("--out", callback=writable, help="The folder to write the negatives into.")
    ],
    data: DataOption = "scenes",
    texts: Annotated[int, typer.Option(min=1, help="Captions for each picture.")] = 300,
    pictures: Annotated[int, typer.Option(min=1, help="Pictures for each caption.")] = 60,
) -> None:
    """Find the hardest negatives of the training split, for vse train --negatives. Resumes."""
    from vsecore import mining
    from vsecore.training.distributed import best_device

    if out.resolve() == run.resolve():
        raise ValueError(f"--out is {out}, the run's folder: it must be another one")
    trained, dataset = open_run(run, data)
    stopping.advise(lambda: "continue with the same command")
    model, by = trained.model.to(best_device()), f"{trained.recipe.name} {trained.recipe.hash()}"
    found = mining.mine(model, dataset.train, trained.tokenizer, texts, pictures, folder=out, recipe=by)
    for name, rows, asked in (("texts", found.texts, texts), ("pictures", found.pictures, pictures)):
        if rows.shape[1] < asked:
            most = rows.shape[1]
            typer.echo(f"note: --{name} is {asked}; there are only {most} negatives, so all are used")
    anchors = f"{len(found.texts)} pictures and {len(found.pictures)} captions"
    typer.echo(f"negatives of {anchors}: {out} (vse train RECIPE --negatives {out})")


def plan(
    recipe: RecipeName,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="What vse train takes; or coco, flickr30k or flickr8k: drawn numbers of that shape, which "
            "need neither disk nor download.",
        ),
    ] = "coco",
    settings: SettingsOption = None,
    seconds: Annotated[float, typer.Option(help="How long to take steps in each round.")] = 20.0,
    workers: Workers = 0,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Take some real steps of a recipe, throw them away, and say what a whole training will cost."""
    from vsecore.data.rehearsal import PICTURES, Shape, rehearsal
    from vsecore.recipes import get
    from vsecore.training.planning import plan as count

    chosen = get(recipe).override(read_settings(settings))
    shape = None
    if data in PICTURES:
        if chosen.features == "pixels":
            raise ValueError(f"--data is {data}, and {recipe} reads pixels: name a folder of photographs")
        shape = Shape.of(data, chosen.features)
    dataset = open_for(chosen, data) if shape is None else rehearsal(shape)
    cost = count(chosen, dataset, seconds=seconds, device=device, precision=precision, workers=workers)
    typer.echo(f"{chosen.name} on {data}: {dataset.train!r}")
    for name, value in cost.rows().items():
        typer.echo(f"{name:<20} {value}")
