"""`vse evaluate`: what a trained run, or several as an ensemble, find."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vsecore.cli.options import (
    RecordOption,
    VectorsOption,
    open_dataset,
    open_for,
    open_run,
    writable,
    writable_file,
)

if TYPE_CHECKING:
    from torch import Tensor

    from vsecore.data.splits import Dataset, Split
    from vsecore.model import VSE
    from vsecore.recipes import Recipe

CCA = Path("cca")
"""What means canonical correlation analysis in place of a run's folder."""
SplitName = Literal["train", "dev", "test", "testall"]


class Also(StrEnum):
    """What more can be measured."""

    RANKING = "ranking"
    SETS = "sets"


Runs = Annotated[
    list[Path],
    typer.Argument(
        help="A run's folder; or cca, which is solved in closed form; or a recipe of CLIP or SigLIP, or "
        "such a model's folder, evaluated as it is (zero-shot). Several are averaged: an ensemble."
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="'scenes', or a folder of extracted features: one for all runs, or one for each, in their "
        "order. [default: scenes]",
    ),
]
SplitOption = Annotated[
    SplitName,
    typer.Option(help="Which split. testall: all 5,000 test pictures of COCO, where test has only 1,000."),
]
Folds = Annotated[int | None, typer.Option(min=1, help="Mean over this many folds (COCO 1K: 5).")]
Coco = Annotated[
    bool,
    typer.Option(
        "--coco",
        help="The tables of COCO's 5,000 test pictures: 1K and 5K, and, where COCO's caption ids are "
        "known, CxC and ECCV Caption.",
    ),
]
CaptionsOption = Annotated[
    Path | None,
    typer.Option(
        "--captions",
        exists=True,
        dir_okay=False,
        help="Karpathy's dataset_coco.json, for features without COCO's caption ids.",
    ),
]
AlsoOption = Annotated[
    list[Also] | None,
    typer.Option(
        help="ranking: R-precision, nDCG of the first 25 by ROUGE-L, and how often a pair ranks first "
        "both ways; sets: how widely a set's vectors spread, and what each is worth. Repeatable."
    ),
]
Relevance = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="A .npy file of graded relevance, captions x pictures, for nDCG; for example TERN's, by SPICE.",
    ),
]
Weights = Annotated[
    list[float] | None,
    typer.Option("--weight", help="The weight of each run, in order; repeat it. [default: all the same]"),
]
Written = Annotated[
    Path | None, typer.Option("--json", callback=writable_file, help="Write all numbers into this file.")
]
PerQuery = Annotated[
    Path | None,
    typer.Option(
        "--per-query",
        callback=writable_file,
        help="Write the rank and the first ten results of every query into this file, a JSON object a line.",
    ),
]
Embeddings = Annotated[
    Path | None,
    typer.Option(
        "--embeddings",
        callback=writable,
        help="Write the embedded split into this folder, as .npy files, and what each row is (ids.json).",
    ),
]


@dataclass(frozen=True)
class Scored:
    """What one system says of a split."""

    scores: Tensor
    """Its similarities, (n, Nc)."""
    part: Split
    member: dict[str, Any]
    """What identifies it in a record."""
    seconds: float
    """What its training took."""
    of_sets: dict[str, float] = field(default_factory=dict)


def evaluate(
    runs: Runs,
    data: Sources = None,
    split: SplitOption = "test",
    folds: Folds = None,
    coco: Coco = False,
    captions: CaptionsOption = None,
    also: AlsoOption = None,
    relevance: Relevance = None,
    weights: Weights = None,
    vectors: VectorsOption = None,
    written: Written = None,
    per_query: PerQuery = None,
    embeddings: Embeddings = None,
    record: RecordOption = None,
) -> None:
    """Evaluate a trained run on a split, or several as an ensemble, by the mean of their similarities.

    Behind the recalls stand their 95 % intervals, from drawing the pictures again with replacement.
    """
    from vsecore.evaluation import ensemble
    from vsecore.evaluation import evaluate as measure
    from vsecore.experiments import queries

    sources, asked = data or ["scenes"], set(also or ())
    for wrong, sentence in (
        (coco and (folds or split in ("train", "dev")), "--coco is given with --folds or --split"),
        (captions and not coco, "--captions is given without --coco, which alone reads them"),
        (vectors and CCA not in runs, "--vectors is given, and only cca takes them here"),
        (len(sources) not in (1, len(runs)), f"--data is given {len(sources)} times for {len(runs)} runs"),
        (
            weights and (len(weights) != len(runs) or not min(weights) > 0),
            f"--weight is {weights} for {len(runs)} runs: give a number above 0 for each",
        ),
        (Also.SETS in asked and len(runs) > 1, f"--also sets is given for {len(runs)} runs: give one"),
        (embeddings and len(runs) > 1, f"--embeddings is given for {len(runs)} runs: give one"),
        (embeddings and CCA in runs, "--embeddings is given for cca, whose vectors are not kept"),
    ):
        if wrong:  # before hours of scoring
            raise ValueError(sentence)
    systems = []
    for number, run in enumerate(runs):
        source = sources[number % len(sources)]
        wanted = _Wanted(run, source, split, data is not None, vectors, Also.SETS in asked, embeddings)
        systems.append(_score(wanted))
        part, pool = systems[number].part, systems[0].part
        if (part.captions, part.picture_ids) != (pool.captions, pool.picture_ids):
            raise ValueError(f"{run} is evaluated on other pictures or captions than {runs[0]}")
    together = ensemble(*(system.scores for system in systems), weights=weights or ())
    metrics = _coco(together, pool, captions) if coco else measure(together, pool.owner, folds)
    metrics |= systems[0].of_sets | (_ranking(together, pool) if Also.RANKING in asked else {})
    metrics |= _graded_by(relevance, together) if relevance else {}
    ends = {} if coco or folds else queries.intervals(together, pool.owner)
    found = Found(systems, split, metrics, ends, weights or [], folds)
    typer.echo(found.said())
    if written is not None:
        found.write(written)
    if per_query is not None:
        queries.write_queries(per_query, together, pool)
    if record is not None:
        typer.echo(f"record: {found.record(record)}")


@dataclass(frozen=True)
class Found:
    """What an evaluation found."""

    systems: list[Scored]
    split: SplitName
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    weights: list[float]
    folds: int | None

    @property
    def pool(self) -> str:
        """What was searched."""
        pool = self.systems[0].part
        counts = f"{len(pool)} {self.split} pictures, {len(pool.captions)} captions"
        return f"{counts}, split {pool.names_digest()}"

    def said(self) -> str:
        """Return it as lines."""
        lines = [self.pool]
        for name, value in self.metrics.items():
            ends = "  ({:.2f} to {:.2f})".format(*self.intervals[name]) if name in self.intervals else ""
            lines.append(f"{name:<22} {value:8.2f}{ends}")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write all numbers as JSON."""
        from vsecore.data.files import write_atomically

        members = [system.member for system in self.systems]
        content = {"pool": self.pool, "runs": members, "metrics": self.metrics, "intervals": self.intervals}
        with write_atomically(path, "w") as file:
            json.dump(content, file, indent=2)

    def record(self, folder: Path) -> Path:
        """Write a record, and return its file."""
        from vsecore import records

        members = [system.member for system in self.systems]
        if self.weights:
            members = [one | {"weight": weight} for one, weight in zip(members, self.weights, strict=True)]
        in_folds = f", mean of {self.folds} folds" if self.folds else ""
        note = f"mean similarity of {len(members)} systems on {self.pool}{in_folds}"
        seconds = sum(system.seconds for system in self.systems)
        return records.write(
            records.record_ensemble(members, self.split, self.metrics, seconds, note), folder
        )


@dataclass(frozen=True)
class _Wanted:
    """A system, and what is wanted of it."""

    run: Path
    source: str
    split: SplitName
    named: bool
    """Whether the source was named, or is taken for granted."""
    vectors: Path | None
    sets: bool
    embeddings: Path | None


def _score(wanted: _Wanted) -> Scored:
    """Score a split of some data by a run, by towers that need no training, or by CCA."""
    from vsecore.baselines import cca_scores
    from vsecore.experiments.queries import write_embeddings
    from vsecore.recipes import RECIPES, get, is_towers
    from vsecore.scoring import encode, score_embedded
    from vsecore.training.distributed import best_device

    began, name, split = time.perf_counter(), str(wanted.run), wanted.split
    if wanted.run == CCA:
        dataset = open_dataset(wanted.source, "grid", test=split)
        part, facts = _part(dataset, split), {"name": dataset.name, "fingerprint": dataset.fingerprint()}
        scores = cca_scores(dataset.train, part, wanted.vectors)
        data = facts | {"vectors": str(wanted.vectors or "none")}
        member = {"name": name, "config_hash": "", "seed": 0, "data": data}
        return Scored(scores, part, member, time.perf_counter() - began)
    towers = is_towers(name) or (name in RECIPES and not wanted.run.exists())
    if towers and get(name).is_trained:
        model, tokenizer, dataset, member = _as_it_is(get(name), wanted.source, split)
        seconds = None
    else:
        model, tokenizer, dataset, member, seconds = _trained(wanted.run, wanted.source, split, wanted.named)
    part = _part(dataset, split)
    v, t = encode(model.to(best_device()), part, tokenizer)
    scores = score_embedded(model, v, t)
    if wanted.embeddings is not None:
        write_embeddings(wanted.embeddings, v, t, part)
    seconds = time.perf_counter() - began if seconds is None else seconds
    return Scored(scores, part, member, seconds, _of_sets(model, part, tokenizer) if wanted.sets else {})


def _part(dataset: Dataset, split: SplitName) -> Split:
    part: Split = getattr(dataset, "test" if split == "testall" else split)
    return part


def _as_it_is(recipe: Recipe, source: str, split: SplitName) -> tuple[VSE, Any, Dataset, dict[str, Any]]:
    """Return towers that are compared without any training, their tokenizer, the data and what they are."""
    from vsecore.training import describe_data

    dataset = open_for(recipe, source, split)
    tokenizer = recipe.tokenizer(dataset.train.captions)
    data = describe_data(dataset, tokenizer)
    member = {"name": recipe.name, "config_hash": recipe.hash(), "seed": 0, "data": data}
    return recipe.build(dataset.feature_dim, tokenizer).eval(), tokenizer, dataset, member


def _trained(
    folder: Path, source: str, split: SplitName, named: bool
) -> tuple[VSE, Any, Dataset, dict[str, Any], float]:
    """Return the model of a run, its tokenizer, the data, what it is, and what its training took."""
    from vsecore import records
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
    return trained.model, trained.tokenizer, dataset, records.member(trained), trained.timings["seconds"]


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
        raise ValueError(
            f"--coco wants COCO's 5,000 test pictures, and these are {len(pool)}: try --split testall"
        )
    typer.echo(
        "note: CxC and ECCV Caption need COCO's caption ids: give --captions dataset_coco.json", err=True
    )
    tables = {"coco_1k": measure(scores, pool.owner, 5), "coco_5k": measure(scores, pool.owner)}
    return {f"{table}_{name}": value for table, metrics in tables.items() for name, value in metrics.items()}


def _ranking(scores: Tensor, pool: Split) -> dict[str, float]:
    """Return how good whole rankings are, in percent, and the median of the worse of a pair's two ranks."""
    from vsecore.evaluation import cross_retrieval_ranks
    from vsecore.experiments.graded import graded

    ranks = cross_retrieval_ranks(scores, pool.owner)  # (Nc,)
    both = {"both_r1": 100 * float((ranks == 0).double().mean()), "both_medr": float(ranks.median()) + 1}
    return graded(scores, pool) | both


def _graded_by(path: Path, scores: Tensor) -> dict[str, float]:
    """Return nDCG of picture retrieval by degrees of relevance from a file, (Nc, n), in percent."""
    import numpy as np

    from vsecore.evaluation import ndcg

    return {f"t2i_ndcg_{path.stem}": 100 * ndcg(scores.T, np.load(path, mmap_mode="r", allow_pickle=False))}


def _of_sets(model: VSE, part: Split, tokenizer: Any) -> dict[str, float]:
    """Return how widely the vectors of sets point, and the rsum with one alone or left out."""
    from vsecore.experiments.set_vectors import measure_sets

    found = measure_sets(model, part, tokenizer)
    if not found:
        raise ValueError("--also sets is given for a model that makes no sets of several vectors")
    return found
