"""`vse baselines` and `vse experiment`: numbers to compare with those of a paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from vsecore.cli.options import (
    DataOption,
    RecordOption,
    Seed,
    VectorsOption,
    check_writable,
    open_dataset,
    read_settings,
    spoken,
)


def baselines(
    data: DataOption = "scenes",
    vectors: VectorsOption = None,
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Evaluate chance, a ridge regression and CCA on the test split, with grid features."""
    check_writable("--record", record)
    import time

    from vsecore import records
    from vsecore.baselines import cca_scores, chance_scores, ridge_scores
    from vsecore.evaluation import evaluate as measure

    dataset = open_dataset(data, "grid")
    train, test = dataset.train, dataset.test
    with_vectors = "" if vectors is None else f", with word vectors ({vectors.name})"
    for name, score, note in (
        ("chance", lambda: chance_scores(test, seed), "uniform random scores"),
        (
            "ridge",
            lambda: ridge_scores(train, test),
            "ridge regression from the mean element to tf-idf words, compared by cosine",
        ),
        (
            "cca",
            lambda: cca_scores(train, test, vectors),
            f"canonical correlations of the mean element and tf-idf words{with_vectors}",
        ),
    ):
        began = time.perf_counter()
        metrics = measure(score(), test.owner)
        typer.echo(f"{name}: {spoken(metrics)}")
        if record is not None:
            entry = records.record(
                name,
                config={},
                config_hash="",
                data={
                    "name": dataset.name,
                    "fingerprint": dataset.fingerprint(),
                    "vectors": vectors.name if vectors is not None and name == "cca" else "",
                },
                seed=seed,
                metrics=metrics,
                seconds=time.perf_counter() - began,
                note=f"{note}; {len(test)} test pictures",
            )
            typer.echo(f"record: {records.write(entry, record)}")


def experiment(
    name: Annotated[
        str, typer.Argument(help="An experiment's name; an unknown one lists them all.", show_default=False)
    ] = "",
    data: DataOption = "scenes",
    features: Annotated[
        Literal["grid", "region", "patch"] | None,
        typer.Option(help="What an element is. [default: what the experiment is about]"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm, from the seeds 0, 1, ...")] = 5,
    scale: Annotated[
        Literal["fair", "lesson"], typer.Option(help="Each tuned and trained to the end, or in minutes.")
    ] = "fair",
    arms: Annotated[
        list[str] | None, typer.Option("--arm", help="Only this arm. Repeatable. [default: all]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of all arms, in place of the scale's own. Repeatable."),
    ] = None,
    vectors: VectorsOption = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="The folder of records. [default: the repository's]")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="In place of a name: train what the claims still lack.")
    ] = False,
    chosen: Annotated[
        list[str] | None,
        typer.Option("--claim", help="Only a work's claims, or that with this statement. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what the claims lack, on scenes and Flickr8k.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Arms at once, each on one core. [default: all cores]")
    ] = None,
) -> None:
    """Train the arms of an experiment that are not recorded yet; print all beside the paper's numbers."""
    from vsecore import experiments
    from vsecore.data.word_vectors import load_vectors

    folder = record or experiments.RESULTS
    check_writable("--record", folder)
    if missing or dry_run:
        _missing(data, folder, chosen or [], dry_run, jobs or os.cpu_count() or 1)
        return
    data = experiments.get_experiment(name).data_named(data)
    found = experiments.run(
        name,
        lambda kind: open_dataset(data, kind),
        features=features,
        seeds=range(seeds),
        arms=arms or (),
        scale=scale,
        settings=read_settings(settings) if settings else None,
        vectors=None if vectors is None else lambda tokenizer: load_vectors(vectors, tokenizer)[0],
        folder=folder,
        tell=typer.echo,
    )
    if settings:
        typer.echo(f"records: {folder} (no table: with --set the arms are not those of the paper's table)")
    else:
        named = open_dataset(data, features or experiments.get_experiment(name).features).name
        typer.echo(experiments.table(name, experiments.collection_of(named), features, scale, folder, found))


def _missing(data: str, folder: Path, chosen: list[str], dry_run: bool, jobs: int) -> None:
    """Train what the claims lack, or say what it is."""
    from vsecore import experiments
    from vsecore.experiments.catalogue import BY_WORK

    of_claims = {claim.statement: claim.work for claim in experiments.claims()}
    if unknown := sorted({*chosen} - {*BY_WORK, *of_claims}):
        raise ValueError(f"--claim is {unknown[0]!r}: wanted {', '.join(BY_WORK)}, or a claim's statement")
    works = list(dict.fromkeys(of_claims.get(one, one) for one in chosen)) or list(BY_WORK)
    if dry_run:
        typer.echo(experiments.summary(works, folder, chosen))
        return
    folder.mkdir(parents=True, exist_ok=True)
    at = "" if data in experiments.WORLDS else data
    named = experiments.collection_of(open_dataset(data, "grid").name if at else data)
    experiments.train_missing(
        works, named, open_dataset, at=at, chosen=chosen, folder=folder, jobs=jobs, tell=typer.echo
    )
