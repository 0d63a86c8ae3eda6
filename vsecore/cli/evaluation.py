"""`vse evaluate`: what a trained run, or several as an ensemble, find."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vsecore.cli.options import Count, File, Folder, Present, SplitName, open_dataset, open_for, open_run

if TYPE_CHECKING:
    from torch import Tensor

    from vsecore.data.splits import Dataset, Split
    from vsecore.model import VSE
    from vsecore.training import Run

CCA = Path("cca")
"""What means canonical correlation analysis in place of a run's folder."""
Also = StrEnum("Also", ["ranking", "sets"])


@dataclass(frozen=True)
class Scored:
    """What one system says of a split."""

    scores: Tensor
    """Its similarities, (n, Nc)."""
    part: Split
    member: dict[str, Any]
    """What identifies it in a record."""
    data: Dataset
    """What holds the split."""
    seconds: float
    """What its training took."""
    towers: tuple[VSE, Any] | None = None
    """Its model and tokenizer; None for CCA."""
    paper: dict[str, float] = field(default_factory=dict)
    """What a paper prints of it on as many test pictures of the same data."""


def evaluate(
    runs: list[Path],
    *,
    data: list[str] | None = None,
    split: SplitName = "test",
    folds: Count | None = None,
    coco: bool = False,
    captions: Present | None = None,
    also: list[Also] | None = None,
    weight: list[float] | None = None,
    vectors: Path | None = None,
    json: File | None = None,
    per_query: File | None = None,
    embeddings: Folder | None = None,
    record: Folder | None = None,
) -> None:
    """Evaluate a trained run on a split, or several as an ensemble, by the mean of their similarities.

    Behind the recalls stand their 95 % intervals, from drawing the pictures again with replacement.

    Options:
        runs: A run's folder; or cca, which is solved in closed form; or a recipe of CLIP or SigLIP, or such
            a model's folder, evaluated as it is (zero-shot). Several are averaged: an ensemble.
        data: 'scenes', or a folder of extracted features: one for all runs, or one for each, in their order.
            [default: scenes]
        coco: The tables of COCO's 5,000 test pictures: 1K and 5K, and, where COCO's caption ids are known,
            CxC and ECCV Caption.
        captions: Karpathy's dataset_coco.json, for features without COCO's caption ids.
        also: ranking: R-precision, nDCG of the first 25 by ROUGE-L, and how often a pair ranks first both
            ways; sets: how widely a set's vectors spread, and what each is worth. Repeatable.
        weight: The weight of each run, in order; repeat it. [default: all the same]
        json: Write all numbers into this file.
        per_query: Write the rank and the first ten results of every query into this file, a JSON object a
            line.
        embeddings: Write the embedded split into this folder, as .npy files, and what each row is
            (ids.json).
    """
    from vsecore import records
    from vsecore.data.files import write_json
    from vsecore.evaluation import ensemble
    from vsecore.evaluation import evaluate as measure
    from vsecore.experiments import queries

    sources, asked = data or ["scenes"], set[str](also or ())
    for wrong, sentence in (
        (coco and (folds or split in ("train", "dev")), "--coco is given with --folds or --split"),
        (captions and not coco, "--captions is given without --coco, which alone reads them"),
        (vectors and CCA not in runs, "--vectors is given, and only cca takes them here"),
        (len(sources) not in (1, len(runs)), f"--data is given {len(sources)} times for {len(runs)} runs"),
        (
            weight and (len(weight) != len(runs) or not min(weight) > 0),
            f"--weight is {weight} for {len(runs)} runs: give a number above 0 for each",
        ),
        ("sets" in asked and len(runs) > 1, f"--also sets is given for {len(runs)} runs: give one"),
        (embeddings and len(runs) > 1, f"--embeddings is given for {len(runs)} runs: give one"),
        (embeddings and CCA in runs, "--embeddings is given for cca, whose vectors are not kept"),
    ):
        if wrong:  # before hours of scoring
            raise ValueError(sentence)
    systems: list[Scored] = []
    for number, run in enumerate(runs):
        source = sources[number % len(sources)]
        systems.append(_score(run, source, split, data is not None, vectors, embeddings))
        part, pool = systems[number].part, systems[0].part
        if not part.shows_the_same(pool):
            raise ValueError(f"{run} is evaluated on other pictures or captions than {runs[0]}")
    scores = ensemble(*(system.scores for system in systems), weights=weight or ())
    metrics = _coco(scores, pool, captions) if coco else measure(scores, pool.owner, folds)
    metrics |= _further(systems[0], scores, asked)
    intervals = {} if coco or folds else queries.intervals(scores, pool.owner)
    searched = f"{len(pool)} {split} pictures, {len(pool.captions)} captions, split {pool.names_digest()}"
    typer.echo(searched)
    paper = systems[0].paper if len(systems) == 1 and not (coco or folds) else {}
    for name, value in metrics.items():
        ends = "  ({:.2f} to {:.2f})".format(*intervals[name]) if name in intervals else ""
        ends += f"  in the paper {paper[name]:.2f}" if name in paper else ""
        typer.echo(f"{name:<22} {value:8.2f}{ends}")
    members = [
        one.member | ({"weight": weight[place]} if weight else {}) for place, one in enumerate(systems)
    ]
    if json is not None:
        content = {"pool": searched, "runs": members, "metrics": metrics, "intervals": intervals}
        write_json(json, content, indent=2)
    if per_query is not None:
        queries.write_queries(per_query, scores, pool)
    if record is not None:
        for place, system in enumerate(systems):
            if (tested_on := system.data.fingerprint()) != system.member["data"]["fingerprint"]:
                members[place]["tested_on"] = tested_on
        what = f"mean similarity of {len(members)} systems" if len(members) > 1 else "one system"
        note = f"{what} on {searched}"
        note += f", mean of {folds} folds" if folds else ""
        seconds = sum(system.seconds for system in systems)
        measured = ", ".join([split, *([f"{folds} folds"] if folds else []), *(["COCO"] if coco else [])])
        entry = records.record_ensemble(members, measured, metrics, seconds, note)
        typer.echo(f"record: {records.write(entry, record)}")


def _score(
    run: Path, source: str, split: SplitName, named: bool, vectors: Path | None, embeddings: Path | None
) -> Scored:
    """Score a split of some data by a run, by towers that need no training, or by CCA.

    `named` says whether the source was named, or is taken for granted.
    """
    from vsecore import records
    from vsecore.baselines import cca_scores
    from vsecore.experiments.printed import printed_metrics
    from vsecore.experiments.queries import write_embeddings
    from vsecore.recipes import RECIPES, get, is_towers
    from vsecore.scoring import encode, score_embedded
    from vsecore.training import describe_data
    from vsecore.training.distributed import best_device

    began, name = time.perf_counter(), str(run)
    if run == CCA:
        dataset, words = open_dataset(source, "grid", test=split), "none" if vectors is None else vectors.name
        data = {"name": dataset.name, "fingerprint": dataset.fingerprint(), "vectors": words}
        member = {"name": name, "config_hash": "", "seed": 0, "data": data}
        part, scores = dataset.part(split), cca_scores(dataset.train, dataset.part(split), vectors)
        return Scored(scores, part, member, dataset, time.perf_counter() - began)
    if (is_towers(name) or (name in RECIPES and not run.exists())) and get(name).is_trained:
        recipe, seconds = get(name), None
        dataset = open_for(recipe, source, split)
        tokenizer = recipe.tokenizer(dataset.train.captions)
        model = recipe.build(dataset.feature_dim, tokenizer).eval()
        data = describe_data(dataset, tokenizer)
        member = {"name": recipe.name, "config_hash": recipe.hash(), "seed": 0, "data": data}
    else:
        trained, dataset = _trained(run, source, split, named)
        model, tokenizer = trained.model, trained.tokenizer
        recipe, seconds = trained.recipe, trained.timings["seconds"]
        member = records.member(trained)
    part = dataset.part(split)
    v, t = encode(model.to(best_device()), part, tokenizer)
    scores = score_embedded(model, v, t)
    if embeddings is not None:
        write_embeddings(embeddings, v, t, part)
    seconds = time.perf_counter() - began if seconds is None else seconds
    paper = printed_metrics(recipe, dataset.name, len(part)) if part is dataset.test else {}
    return Scored(scores, part, member, dataset, seconds, (model, tokenizer), paper)


def _trained(folder: Path, source: str, split: SplitName, named: bool) -> tuple[Run, Dataset]:
    """Open a run and its data, and say on stderr what makes its numbers doubtful."""
    from vsecore.training.identity import read_identity

    if not named and (name := read_identity(folder)["data"]["name"]) != "scenes":
        raise ValueError(f"{folder} was trained on {name!r}: name its features with --data")
    trained, dataset = open_run(folder, source, split)
    if split != "testall" and dataset.fingerprint() != trained.data["fingerprint"]:
        unsure = "" in (dataset.network, trained.data.get("network", ""))
        doubt = "; unless the same network made both features, these numbers mean nothing" if unsure else ""
        note = f"note: {folder} was trained on other data ({trained.data['name']!r}) than {source}{doubt}"
        typer.echo(note, err=True)
    if not trained.recipe.training.is_over(trained.history):
        done = f"{len(trained.history)} of {trained.recipe.training.epochs} epochs"
        typer.echo(f"note: {folder} is an unfinished training, {done}", err=True)
    return trained, dataset


def _coco(scores: Tensor, pool: Split, captions: Path | None) -> dict[str, float]:
    """Return the tables of COCO's 5,000 test pictures; without the captions' numbers, only 1K and 5K."""
    from vsecore.data.karpathy import numbered
    from vsecore.evaluation import coco_benchmarks
    from vsecore.evaluation import evaluate as measure

    if captions is not None:
        pool = numbered(pool, captions)
    if pool.caption_ids is not None:
        return coco_benchmarks(scores, pool.picture_ids, pool.caption_ids)
    if len(pool) != 5000:
        hint = "" if pool.name == "testall" else ": of COCO, try --split testall"
        raise ValueError(f"--coco wants COCO's 5,000 test pictures, and these are {len(pool)}{hint}")
    typer.echo(
        "note: CxC and ECCV Caption need COCO's caption ids: give --captions dataset_coco.json", err=True
    )
    tables = {"coco_1k": measure(scores, pool.owner, 5), "coco_5k": measure(scores, pool.owner)}
    return {f"{table}_{name}": value for table, metrics in tables.items() for name, value in metrics.items()}


def _further(system: Scored, scores: Tensor, asked: set[str]) -> dict[str, float]:
    from vsecore.evaluation import cross_retrieval_ranks
    from vsecore.experiments.measures import graded, measure_sets

    found, pool = dict[str, float](), system.part
    if "sets" in asked:
        if system.towers is not None:
            model, tokenizer = system.towers
            found |= measure_sets(model, pool, tokenizer)
        if not found:
            raise ValueError("--also sets is given for a model that makes no sets of several vectors")
    if "ranking" in asked:
        ranks = cross_retrieval_ranks(scores, pool.owner)  # (Nc,)
        found |= graded(scores, pool)
        found["both_r1"] = 100 * float((ranks == 0).double().mean())
        found["both_medr"] = float(ranks.median()) + 1
    return found
