"""`vse train` and `vse evaluate`: a run is made, and measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vsecore import stopping
from vsecore.cli.options import (
    DataOption,
    RecordOption,
    Seed,
    check_writable,
    open_dataset,
    read_settings,
    spoken,
)


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; an unknown one lists them all.")],
    data: DataOption = "scenes",
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. [default: runs/RECIPE-DATA-SEED]")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the recipe: training.epochs=10. Repeatable.")
    ] = None,
    vectors: Annotated[Path | None, typer.Option(help="Word vectors as text: GloVe or fastText.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes that prepare batches.")] = 0,
    device: Annotated[Literal["auto", "cpu"], typer.Option(help="auto uses a GPU if there is one.")] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="auto uses bfloat16 if the GPU has it in hardware."),
    ] = "auto",
    save_every: Annotated[
        int | None,
        typer.Option(min=1, help="Save every N steps. [default: every epoch, and every ten minutes]"),
    ] = None,
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Train a recipe, keep its best epoch, and report the test split."""
    from vsecore import records
    from vsecore.data.vocabulary import Vocabulary
    from vsecore.data.word_vectors import load_vectors
    from vsecore.recipes import get
    from vsecore.training import Event, evaluate_split, fit
    from vsecore.training.checkpoints import CHECKPOINT, refuse_to_overwrite
    from vsecore.training.distributed import best_device, is_main_process

    chosen = get(recipe).override(read_settings(settings or []))
    check_writable("--record", record)
    if out is not None:  # before the data are read, if we can: the default folder needs their name
        check_writable("--out", out)
        refuse_to_overwrite(out, resume)
    dataset = open_dataset(data, chosen.features)
    folder = out or Path("runs") / f"{recipe}-{dataset.name}-{seed}"
    check_writable("--out", folder)
    refuse_to_overwrite(folder, resume)
    tokenizer = chosen.tokenizer(dataset.train.captions)
    word_vectors, found = None, ""
    if vectors is not None:
        if not isinstance(tokenizer, Vocabulary):
            raise ValueError(f"--vectors is given, but recipe {recipe} reads with BERT; leave it out")
        word_vectors, report = load_vectors(vectors, tokenizer, seed)
        found = f"; word vectors: {report}"
        typer.echo(f"word vectors: {report}")

    def tell(event: Event) -> None:
        if event.metrics is not None and is_main_process():
            typer.echo(f"epoch {event.epoch + 1}: {spoken(event.metrics)}")

    if resume and not (folder / CHECKPOINT).is_file():
        typer.echo(f"note: {folder} holds no run to resume, so this one starts from the beginning", err=True)
    stopping.advise(
        lambda: (
            "continue with --resume"
            if (folder / CHECKPOINT).is_file()
            else "nothing was saved yet, so start again with the same command"
        )
    )
    run = fit(
        chosen,
        dataset,
        folder=folder,
        resume=resume,
        tokenizer=tokenizer,
        vectors=word_vectors,
        callback=tell,
        seed=seed,
        device=device,
        precision=precision,
        workers=workers,
        save_every=save_every,
    )
    if not is_main_process():  # only one process prints and writes
        return
    model = run.model.to("cpu" if device == "cpu" else best_device())
    metrics = evaluate_split(model, dataset.test, tokenizer)
    typer.echo(f"test: {spoken(metrics)}")
    step, waiting = run.timings["step_seconds"], run.timings["data_wait"]
    typer.echo(f"run: {folder} (a step took {step:.3f} s, {waiting:.1%} of it waiting for data)")
    if record is not None:
        note = f"best epoch on dev, evaluated on {len(dataset.test)} test pictures"
        entry = records.record_run(run, metrics, note + found)
        typer.echo(f"record: {records.write(entry, record)}")


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="A run's folder; several are averaged: an ensemble.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="'scenes', or a folder of extracted features: one for all runs, or one for each, in their "
            "order. [default: scenes]",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    folds: Annotated[int | None, typer.Option(min=1, help="Mean over this many folds (COCO 1K: 5).")] = None,
) -> None:
    """Evaluate a trained run on a split, or several as an ensemble, by the mean of their similarities."""
    from vsecore.evaluation import ensemble
    from vsecore.evaluation import evaluate as measure
    from vsecore.training import load_run, score_split
    from vsecore.training.distributed import best_device

    if split not in ("train", "dev", "test"):
        raise ValueError(f"--split is {split!r}; it must be train, dev or test")
    sources = data or ["scenes"]
    if len(sources) not in (1, len(runs)):
        raise ValueError(f"--data is given {len(sources)} times for {len(runs)} runs: give one, or one each")
    scores, parts = [], []
    for row, folder in enumerate(runs):
        trained = load_run(folder)
        source = sources[row % len(sources)]
        if data is None and trained.data["name"] != "scenes":
            name = trained.data["name"]
            raise ValueError(f"{folder} was trained on {name!r}: name its features with --data")
        dataset = open_dataset(source, trained.recipe.features)
        if dataset.feature_dim != trained.data["feature_dim"]:
            raise ValueError(
                f"{folder} reads features of width {trained.data['feature_dim']}, and {source} has "
                f"{dataset.feature_dim}: name features of the network that it was trained with"
            )
        if dataset.fingerprint() != trained.data["fingerprint"]:
            typer.echo(
                f"note: {folder} was trained on other data ({trained.data['name']!r}) than {source}; unless "
                "the same network made both features, these numbers mean nothing",
                err=True,
            )
        if len(trained.history) < trained.recipe.training.epochs:
            done = f"{len(trained.history)} of {trained.recipe.training.epochs} epochs"
            typer.echo(f"note: {folder} is an unfinished training, {done}", err=True)
        parts.append(getattr(dataset, split))
        if parts[row].captions != parts[0].captions or parts[row].picture_ids != parts[0].picture_ids:
            raise ValueError(f"{folder} is evaluated on other pictures or captions than {runs[0]}")
        scores.append(score_split(trained.model.to(best_device()), parts[row], trained.tokenizer))
    for name, value in measure(ensemble(*scores), parts[0].owner, folds).items():
        typer.echo(f"{name:<12} {value:8.2f}")
