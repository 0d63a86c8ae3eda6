"""`vse train` and `vse evaluate`: train a run, and evaluate it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vsecore import stopping
from vsecore.cli.options import (
    DataOption,
    Device,
    Precision,
    RecordOption,
    Seed,
    SettingsOption,
    VectorsOption,
    Workers,
    check_writable,
    open_dataset,
    read_settings,
    spoken,
)

if TYPE_CHECKING:
    from torch import Tensor

    from vsecore.data.splits import Split
    from vsecore.data.words import Tokenizer
    from vsecore.recipes import Recipe
    from vsecore.training import Event
    from vsecore.training.logs import TensorBoardLog


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; an unknown one lists them all.")],
    data: DataOption = "scenes",
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. [default: runs/RECIPE-DATA-SEED]")
    ] = None,
    settings: SettingsOption = None,
    vectors: VectorsOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    workers: Workers = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    save_every: Annotated[
        int | None,
        typer.Option(min=1, help="Save every N steps, and after each epoch. [default: every ten minutes]"),
    ] = None,
    negatives: Annotated[
        Path | None, typer.Option("--negatives", help="Hard negatives that vse mine found in this data.")
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="The sentence encoder whose vectors the captions must predict: a name or a folder. "
            "[default: all-MiniLM-L6-v2, if the recipe predicts targets]"
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write logs for TensorBoard into the run's folder.")
    ] = False,
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Train a recipe, keep its best epoch, and report the test split."""
    from vsecore import records
    from vsecore.data.sentence_targets import MODEL, with_targets
    from vsecore.mining import load_negatives
    from vsecore.recipes import get
    from vsecore.training import evaluate_split, fit_in_rounds
    from vsecore.training.checkpoints import refuse_to_overwrite
    from vsecore.training.distributed import best_device, is_main_process
    from vsecore.training.logs import TensorBoardLog
    from vsecore.training.rounds import FIRST_ROUND

    chosen = get(recipe).override(read_settings(settings))
    for given, name, taken in (
        (negatives, "negatives", chosen.learns_offline),
        (targets, "targets", chosen.predicts_targets),
    ):
        if given is not None and not taken:
            raise ValueError(f"--{name} is given, but no loss of recipe {recipe} reads them; leave it out")
    check_writable("--record", record)
    if tensorboard:
        TensorBoardLog(".")  # writes nothing yet, but says before the data are read if TensorBoard is missing
    if out is not None:  # before the data are read, if we can: the default folder needs their name
        check_writable("--out", out)
        refuse_to_overwrite(out, resume)
    view = chosen.view() if chosen.features == "pixels" else None
    dataset = open_dataset(data, chosen.features, view, chosen.image.boxes)
    folder = out or Path("runs") / f"{chosen.name}-{dataset.name}-{seed}"
    check_writable("--out", folder)
    refuse_to_overwrite(folder, resume)
    if chosen.predicts_targets:
        dataset = with_targets(dataset, targets or MODEL, None if device == "auto" else device)
    tokenizer = chosen.tokenizer(dataset.train.captions)
    word_vectors, found = (None, "") if vectors is None else _word_vectors(vectors, tokenizer, recipe, seed)
    log, first_log = (
        TensorBoardLog(place / "tensorboard") if tensorboard else None
        for place in (folder, folder / FIRST_ROUND)
    )
    _advise(folder, resume)
    run = fit_in_rounds(
        chosen,
        dataset,
        folder=folder,
        resume=resume,
        tokenizer=tokenizer,
        vectors=word_vectors,
        negatives=None if negatives is None else load_negatives(negatives, dataset.train),
        callback=partial(_tell, log=log),
        first_callback=partial(_tell, said="first round, ", log=first_log),
        seed=seed,
        device=device,
        precision=precision,
        workers=workers,
        save_every=save_every,
    )
    for one in (log, first_log):
        if one is not None:
            one.close()
    if not is_main_process():  # only one process prints and writes
        return
    model = run.model.to("cpu" if device == "cpu" else best_device())
    metrics = evaluate_split(model, dataset.test, tokenizer)
    typer.echo(f"test: {spoken(metrics)}")
    step, waiting = run.timings["step_seconds"], run.timings["data_wait"]
    typer.echo(f"run: {folder} (a step took {step:.3f} s, {waiting:.1%} of it waiting for data)")
    if record is not None:
        pool = dataset.test
        note = f"best epoch on dev, evaluated on {len(pool)} test pictures, split {pool.names_digest()}"
        entry = records.record_run(run, metrics, note + found)
        typer.echo(f"record: {records.write(entry, record)}")


def _word_vectors(path: Path, tokenizer: Tokenizer, recipe: str, seed: int) -> tuple[Tensor, str]:
    """Load word vectors, and say how many of the words they have."""
    from vsecore.data.vocabulary import Vocabulary
    from vsecore.data.word_vectors import load_vectors

    if not isinstance(tokenizer, Vocabulary):
        raise ValueError(f"--vectors is given, but recipe {recipe} has word pieces of its own; leave it out")
    vectors, report = load_vectors(path, tokenizer, seed)
    typer.echo(f"word vectors: {report}")
    return vectors, f"; word vectors: {report}"


def _tell(event: Event, said: str = "", log: TensorBoardLog | None = None) -> None:
    """Print an epoch's metrics, and log what TensorBoard shows; only one of several processes does."""
    from vsecore.training.distributed import is_main_process

    if is_main_process() and event.metrics is not None:
        typer.echo(f"{said}epoch {event.epoch + 1}: {spoken(event.metrics)}")
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


CCA = Path("cca")
"""What `vse evaluate` takes in place of a run's folder; so a run's folder needs another name."""


def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="A run's folder; or cca, which is solved for; or a recipe of CLIP or SigLIP, or such a "
            "model's folder, evaluated as it is (zero-shot). Several are averaged: an ensemble."
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="'scenes', or a folder of extracted features: one for all runs, or one for each, in their "
            "order. [default: scenes]",
        ),
    ] = None,
    split: Annotated[Literal["train", "dev", "test"], typer.Option(help="Which part of the data.")] = "test",
    folds: Annotated[int | None, typer.Option(min=1, help="Mean over this many folds (COCO 1K: 5).")] = None,
    coco: Annotated[
        bool,
        typer.Option(
            "--coco", help="The four tables of COCO's 5,000 test pictures: 1K, 5K, CxC and ECCV Caption."
        ),
    ] = False,
    weights: Annotated[
        list[float] | None,
        typer.Option("--weight", help="How much each counts, in their order; repeat it. [default: the same]"),
    ] = None,
    vectors: VectorsOption = None,
    record: RecordOption = None,
) -> None:
    """Evaluate a trained run on a split, or several as an ensemble, by the mean of their similarities."""
    check_writable("--record", record)
    from vsecore import records
    from vsecore.evaluation import coco_benchmarks, ensemble
    from vsecore.evaluation import evaluate as measure

    if vectors is not None and CCA not in runs:
        raise ValueError("--vectors is given, but only cca takes them here: a run has its own")
    if coco and (folds is not None or split != "test"):
        raise ValueError("--coco is given with --folds or --split: its tables have splits of their own")
    sources = data or ["scenes"]
    if len(sources) not in (1, len(runs)):
        raise ValueError(f"--data is given {len(sources)} times for {len(runs)} runs: give one, or one each")
    if weights is not None and (len(weights) != len(runs) or not min(weights) > 0):  # before hours of scoring
        raise ValueError(f"--weight is {weights} for {len(runs)} runs: give a number above 0 for each")
    scores, parts, members, seconds = [], [], [], 0.0
    for row, folder in enumerate(runs):
        source = sources[row % len(sources)]
        if folder == CCA:
            score, part, member, took = _solved(source, split, vectors)
        elif (recipe := _ready(str(folder))) is not None:
            score, part, member, took = _as_it_is(recipe, source, split)
        else:
            score, part, member, took = _trained(folder, source, split, named=data is not None)
        scores.append(score)
        parts.append(part)
        members.append(member if weights is None else member | {"weight": weights[row]})
        seconds += took
        if part.captions != parts[0].captions or part.picture_ids != parts[0].picture_ids:
            raise ValueError(f"{folder} is evaluated on other pictures or captions than {runs[0]}")
    together, pool = ensemble(*scores, weights=weights or ()), parts[0]
    of_pool = f"{len(pool)} {split} pictures, {len(pool.captions)} captions, split {pool.names_digest()}"
    typer.echo(of_pool)
    if coco:
        if pool.caption_ids is None:
            raise ValueError(
                f"--coco needs COCO's numbers of the captions, and {sources[0]} has none: extract the "
                "features again from a dataset_coco.json with sentids (they are then in test_caption_ids.txt)"
            )
        metrics = coco_benchmarks(together, pool.picture_ids, pool.caption_ids)
    else:
        metrics = measure(together, pool.owner, folds)
    for name, value in metrics.items():
        typer.echo(f"{name:<22} {value:8.2f}")
    if record is not None:
        in_folds = f", mean of {folds} folds" if folds else ""
        note = f"mean similarity of {len(runs)} systems on {of_pool}{in_folds}"
        entry = records.record_ensemble(members, split, metrics, seconds, note)
        typer.echo(f"record: {records.write(entry, record)}")


def _ready(name: str) -> Recipe | None:
    """Return the recipe of towers that need no training, by its name or its model's folder; None: no such."""
    from vsecore.recipes import RECIPES, get
    from vsecore.recipes.pretrained import is_folder

    if not is_folder(name) and (name not in RECIPES or Path(name).exists()):
        return None
    recipe = get(name)
    return recipe if recipe.is_trained else None


def _as_it_is(recipe: Recipe, source: str, split: str) -> tuple[Tensor, Split, dict[str, Any], float]:
    """Return what `_trained` returns for towers that are compared without any training."""
    import time

    from vsecore.training import describe_data, score_split
    from vsecore.training.distributed import best_device

    began = time.perf_counter()
    dataset = open_dataset(source, recipe.features, recipe.view())
    part, tokenizer = getattr(dataset, split), recipe.tokenizer(dataset.train.captions)
    model = recipe.build(dataset.feature_dim, tokenizer).eval().to(best_device())
    scores = score_split(model, part, tokenizer)
    data = describe_data(dataset, tokenizer)
    member = {"name": recipe.name, "config_hash": recipe.hash(), "seed": 0, "data": data}
    return scores, part, member, time.perf_counter() - began


def _trained(
    folder: Path, source: str, split: str, named: bool
) -> tuple[Tensor, Split, dict[str, Any], float]:
    """Return a run's similarities on a split of some data, the split, its identity, and its seconds."""
    from vsecore import records
    from vsecore.training import load_run, score_split
    from vsecore.training.distributed import best_device

    trained = load_run(folder)
    if not named and trained.data["name"] != "scenes":
        name = trained.data["name"]
        raise ValueError(f"{folder} was trained on {name!r}: name its features with --data")
    recipe = trained.recipe
    dataset = open_dataset(source, recipe.features, trained.model.view, recipe.image.boxes)
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
    if len(trained.history) < recipe.training.epochs:
        done = f"{len(trained.history)} of {recipe.training.epochs} epochs"
        typer.echo(f"note: {folder} is an unfinished training, {done}", err=True)
    part = getattr(dataset, split)
    scores = score_split(trained.model.to(best_device()), part, trained.tokenizer)
    return scores, part, records.member(trained), trained.timings["seconds"]


def _solved(source: str, split: str, vectors: Path | None) -> tuple[Tensor, Split, dict[str, Any], float]:
    """Return the same for canonical correlation analysis, which is solved on the spot."""
    import time

    from vsecore.baselines import cca_scores

    dataset = open_dataset(source, "grid")
    part, began = getattr(dataset, split), time.perf_counter()
    scores = cca_scores(dataset.train, part, vectors)
    data = {"name": dataset.name, "fingerprint": dataset.fingerprint(), "vectors": str(vectors or "none")}
    member = {"name": str(CCA), "config_hash": "", "seed": 0, "data": data}
    return scores, part, member, time.perf_counter() - began
