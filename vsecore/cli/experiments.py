"""`vse baselines`, `experiment`, `compare` and `show`: systems beside a paper's, or beside each other."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vsecore.cli import options
from vsecore.cli.options import Count, File, Folder, Kind, Seed, SplitName, Whole
from vsecore.cli.runs import train_as

if TYPE_CHECKING:
    from vsecore.data.splits import Dataset, FeatureKind
    from vsecore.recipes import Recipe


def baselines(
    *, data: str = "scenes", vectors: Path | None = None, seed: Seed = 0, record: Folder | None = None
) -> None:
    """Evaluate chance, a ridge regression and CCA on the test split, with grid features."""
    from vsecore import records
    from vsecore.baselines import cca_scores, chance_scores, ridge_scores
    from vsecore.evaluation import evaluate as measure
    from vsecore.experiments.references import RIDGE, untrained

    dataset = options.open_dataset(data, "grid")
    train, test = dataset.train, dataset.test
    words = "" if vectors is None else vectors.name
    with_words = f", with word vectors ({words})" if words else ""
    cca = f"canonical correlations of the mean element and tf-idf words{with_words}"

    def scored(score: Any) -> dict[str, float]:
        return measure(score(), test.owner)

    for name, score, read, note in (
        ("chance", lambda: chance_scores(test, seed), "", "uniform random scores"),
        ("ridge", lambda: ridge_scores(train, test), "", RIDGE),
        ("cca", lambda: cca_scores(train, test, vectors), words, cca),
    ):
        facts = {"name": dataset.name, "fingerprint": dataset.fingerprint(), "vectors": read}
        entry = untrained(name, facts, note, test, partial(scored, score), seed)
        typer.echo(f"{name}: {options.spoken(entry.metrics)}")
        if record is not None:
            typer.echo(f"record: {records.write(entry, record)}")


def experiment(
    name: str = "",
    *,
    data: list[str] | None = None,
    features: Literal["grid", "region", "patch", "pixels"] | None = None,
    seeds: Count | None = None,
    scale: Literal["paper", "fair", "lesson"] | None = None,
    arm: list[str] | None = None,
    set_: list[str] | None = None,
    vectors: Path | None = None,
    record: Folder | None = None,
    missing: bool = False,
    dry_run: bool = False,
    split: Literal["test", "testall"] = "test",
) -> None:
    """Train the arms of an experiment that are not recorded yet; print all beside the paper's numbers.

    Options:
        name: An experiment's name (see vse experiments).
        data: As for vse train. Repeatable: systems may read several kinds of features. [default: scenes]
        features: What an element is. [default: what the experiment is about, or the data hold]
        seeds: Runs of each arm, from the seeds 0, 1, ... [default: 5, and 1 at the paper's scale]
        scale: paper: as the paper trained; fair: all at one width, each tuned and trained to the end; lesson:
            in minutes. [default: fair on scenes, paper elsewhere]
        arm: Only this arm. Repeatable. [default: all]
        record: The folder of records. [default: the repository's for scenes, else experiments]
        missing: In place of a name: train what the claims still lack, on CPUs, one thread for each
            training; to use GPUs, name experiments.
        dry_run: Only say what would be trained, and how long it takes here.
        split: What is tested. testall: all 5,000 test pictures of COCO, where test has only 1,000.
    """
    from vsecore import experiments
    from vsecore.data.word_vectors import load_vectors
    from vsecore.experiments.printed import printed_rows, printed_sets
    from vsecore.experiments.tables import Comparison
    from vsecore.recipes import get

    on_scenes = not data or data[0] in experiments.WORLDS
    folder = record or (experiments.RESULTS if on_scenes or missing else Path("experiments"))
    options.check_writable("--record", folder)
    if missing:
        given = {
            **{"a name": name, "--features": features, "--seeds": seeds, "--scale": scale, "--arm": arm},
            **{"--set": set_, "--vectors": vectors, "--split": split != "test"},
            "more --data": data and data[1:],
        }
        if unread := [option for option, value in given.items() if value]:
            raise ValueError(f"{unread[0]} is given, and what the claims lack does not depend on it")
        _missing(data[0] if data else "scenes", folder, dry_run)
        return
    compared = experiments.get_experiment(name)
    scale = scale or ("fair" if on_scenes else "paper")
    named = [compared.data_named(source) for source in data or ["scenes"]]

    def opened(kind: FeatureKind) -> Dataset:
        view = get(compared.recipe.format(features=kind)).view() if kind == "pixels" else None
        fitting = options.fitting(named, kind)
        several = [options.open_dataset(source, kind, view, test=split) for source in fitting]
        return next((one for one in several if one.feature_kind == kind), several[0])

    found = experiments.run(
        name,
        opened,
        features=features,
        seeds=range(seeds or (1 if scale == "paper" else 5)),
        arms=arm or (),
        scale=scale,
        changes=options.read_settings(set_),
        vectors=None if vectors is None else lambda tokenizer: load_vectors(vectors, tokenizer)[0],
        folder=folder,
        log=typer.echo,
        dry_run=dry_run,
    )
    if dry_run:
        return
    dataset = opened(features or compared.features)
    if set_:
        comparison = Comparison(found, {}, "")
    else:
        rows = printed_rows(compared, dataset.name, len(dataset.test))
        comparison = Comparison(found, *rows, printed_sets(compared))
    typer.echo(comparison.markdown())
    if set_:
        typer.echo("The paper's numbers are left out: with --set, these are no longer its systems.")
    if not on_scenes:
        words, changed = "" if vectors is None else vectors.stem, "set" if set_ else ""
        table = "-".join(filter(None, (name, dataset.name, features, scale, split, words, changed)))
        typer.echo(f"written: {', '.join(map(str, comparison.write(folder, table)))}")


def _missing(data: str, folder: Path, dry_run: bool) -> None:
    from vsecore import experiments

    if dry_run:
        typer.echo(experiments.summary(folder))
        return
    folder.mkdir(parents=True, exist_ok=True)
    at = "" if data in experiments.WORLDS else data
    named = experiments.collection_of(options.open_dataset(data, "grid").name if at else data)
    jobs = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        experiments.train_missing(
            named, options.open_dataset, at=at, folder=folder, jobs=jobs, log=typer.echo
        )
    except BrokenProcessPool:
        raise OSError(
            "the process of a training was killed, perhaps for want of memory: close other programs and "
            "start again; what is recorded is kept"
        ) from None


def compare(
    systems: list[str],
    *,
    data: list[str] | None = None,
    seeds: Count = 1,
    vectors: Path | None = None,
    out: Folder = Path("runs"),
    split: SplitName = "test",
    folds: Count | None = None,
    queries: Whole = 5,
) -> None:
    """Compare runs on the same pictures: differences with intervals, and the captions that differ most.

    Options:
        systems: Two or more: folders of runs, or recipes to train, as NAME or NAME,FIELD=VALUE,... The first
            is what the others are compared with.
        data: As for vse train. Repeatable: systems may read several kinds of features. [default: scenes]
        seeds: Runs of each recipe, from the seeds 0, 1, ...
        out: Where the runs of recipes are kept.
        queries: How many captions to show that a system finds earlier, and later.
    """
    from vsecore.experiments.compare import Systems

    sources, folders = data or ["scenes"], list[Path]()
    for system in systems:
        is_run = Path(system).is_dir()
        folders += [Path(system)] if is_run else _trained(system, sources, seeds, vectors, out)

    found = Systems.read(folders, lambda recipe: _opened(recipe, sources, split)[1], split, folds=folds)
    typer.echo(f"{found.table()}\n\n{found.differences()}")
    for other in list(found.runs)[1:] if queries else ():
        typer.echo(f"\n{found.queries(other, queries)}")


def show(
    runs: list[Path],
    *,
    out: File,
    data: str = "scenes",
    pictures: Path | None = None,
    queries: Literal["captions", "pictures"] = "captions",
    count: Annotated[int, Kind(min=1, max=20)] = 4,
    containing: str = "",
    split: SplitName = "test",
) -> None:
    """Draw queries with what runs find first: right and wrong ones, or those on which two systems differ.

    Options:
        runs: Folders of runs: of one system, or of two, which differ most on what is shown.
        out: The figure: .png, .svg or .pdf.
        pictures: The folder of photographs and captions that the features were extracted from.
        queries: What is asked.
        count: How many queries.
        containing: Only captions with these words, or their pictures.
    """
    from vsecore import scenes
    from vsecore.data.features import holds_features
    from vsecore.data.karpathy import load_karpathy
    from vsecore.data.picture_files import open_picture
    from vsecore.experiments import WORLDS
    from vsecore.experiments.compare import Systems

    place = "test" if split == "testall" else split
    if data in WORLDS:
        drawn = scenes.pixels(place, **WORLDS[data])
    elif pictures is None and holds_features(data):
        raise ValueError(f"--data {data} holds features alone: say by --pictures where its photographs are")
    else:
        part = load_karpathy(pictures or data, missing=True)[place]
        files = dict(zip(part.picture_ids, part.files, strict=True))

    def pixels(row: int) -> Any:
        if data in WORLDS:
            return drawn[row]
        name = systems.split.picture_ids[row]
        if name not in files:
            raise ValueError(f"{pictures or data} has no {split} picture {name!r} of --data")
        return open_picture(files[name]).resize((224, 224))

    systems = Systems.read(runs, lambda recipe: options.open_for(recipe, data, split), split, least=1)
    chosen = systems.choose(queries, count, containing)
    if not chosen:
        raise ValueError("no such query: its words are in no caption, or the systems differ on none")
    systems.figure(queries, chosen, pixels).savefig(out)
    typer.echo(f"{out}: {len(chosen)} {queries}")


def _opened(recipe: Recipe, sources: list[str], split: str = "test") -> tuple[str, Dataset]:
    """Return the first source whose data hold what a recipe reads, else the first of all, with its data."""
    fitting = options.fitting(sources, recipe.features)
    several = [(source, options.open_for(recipe, source, split)) for source in fitting]
    return next((one for one in several if one[1].feature_kind == recipe.features), several[0])


def _trained(system: str, sources: list[str], seeds: int, vectors: Path | None, out: Path) -> list[Path]:
    """Train a recipe, as NAME,FIELD=VALUE,..., from several seeds, and return the runs' folders."""
    from vsecore.encoders import TEXT_ENCODERS
    from vsecore.recipes import get
    from vsecore.training.command import Command

    name, *changes = system.split(",")
    recipe = get(name).override(options.read_settings(changes))
    if not TEXT_ENCODERS.takes(recipe.text.encoder.name, "word_dim"):
        vectors = None  # word pieces have vectors of their own
    (source, dataset), folders = _opened(recipe, sources), list[Path]()
    for seed in range(seeds):
        words = "" if vectors is None else f"{vectors.stem}-"
        folders.append(out / f"{recipe.name}-{recipe.hash()}-{dataset.name}-{words}{seed}")
        command = Command(name, tuple(changes), source, str(vectors) if vectors else None, seed=seed)
        run = train_as(command, folders[-1], resume=folders[-1].is_dir(), how={"device": "auto"}).run
        typer.echo(f"{folders[-1]}: rsum {run.best['rsum']:.1f} on dev")
    return folders
