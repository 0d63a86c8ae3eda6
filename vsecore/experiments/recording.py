"""What is measured of the systems of an arm, and the record that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsecore import records
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Dataset, Split
from vsecore.evaluation import cross_retrieval_ranks, ensemble, evaluate
from vsecore.experiments import watching
from vsecore.experiments.claims import FIRST_PLACE
from vsecore.experiments.experiment import Experiment, Training, title_of
from vsecore.experiments.measures import (
    GRADED,
    PAIRS,
    PROBES,
    graded,
    measure_sets,
    pair_accuracy,
    pair_scores,
    probes,
    relation_pairs,
    sideways_captions,
)
from vsecore.experiments.references import on_truth, shares_true, truth_of
from vsecore.experiments.scales import SCENES, WORLDS, on_every_processor
from vsecore.experiments.tables import FIVE_FOLDS
from vsecore.training import Run, score_split
from vsecore.training.distributed import best_device

COCO_5K = 5000
"""How many test pictures COCO has."""
MADE = ("negatives", "weights", "targets")
"""What comes from the recipe, the data and the seed, and so does not tell two trainings apart: what the first
of two rounds leaves, and sentence targets, whose last digits differ from one processor to another."""


def asked_of_record(experiment: Experiment, trainings: Sequence[Training], data: str) -> set[str]:
    """Return what a record of an experiment must have beyond the usual; another experiment's may lack it."""
    asked = set(PAIRS) if experiment.pairs and data == SCENES else set()
    if experiment.probes and len(trainings) == 1:
        asked |= {*GRADED} | ({*PROBES} if data in WORLDS else set())
    if experiment.follows_losses and len(trainings) == 1:
        asked |= watching.asked_of(trainings[0].recipe)
    return asked


@dataclass(frozen=True)
class Trained:
    """A system that was trained, and what is measured of it."""

    run: Run
    scores: Tensor
    """Similarities on the test split, (Ni, Nc)."""
    pairs: list[Tensor]
    """Similarities of pairs, (P, 2, 2, C), see `pair_scores`; []: not asked for."""
    metrics: dict[str, float]
    """What is measured beside its recalls."""

    @classmethod
    def measure(
        cls,
        run: Run,
        data: Dataset,
        experiment: Experiment,
        steps: Sequence[Mapping[str, float]],
        negatives: OfflineNegatives | None,
    ) -> Trained:
        """Measure what an experiment asks of a system."""
        model, tokenizer = run.model.to(best_device()), run.tokenizer
        scores, pairs = score_split(model, data.test, tokenizer), list[Tensor]()
        if experiment.pairs and data.name == SCENES:
            pairs = [pair_scores(model, relation_pairs(data.feature_kind), tokenizer)]
        metrics = {
            f"dev_{metric}_{number}": entry[metric]
            for number, entry in enumerate(run.history, start=1)
            for metric in (("rsum", "i2t_r1", "t2i_r1") if experiment.miners else ("rsum",))
        }
        metrics |= watching.metrics(steps)
        if negatives is not None and (truth := truth_of(data.train, data.name)) is not None:
            metrics |= shares_true(negatives, truth)
        metrics |= measure_sets(model, data.test, tokenizer)
        if experiment.probes:
            metrics |= probes(model, data, tokenizer) | graded(scores, data.test)
        return cls(run, scores, pairs, metrics)


def record_of(
    trainings: Sequence[Training],
    parts: Sequence[Trained],
    sources: Sequence[dict[str, Any]],
    test: Split,
    seed: int,
) -> records.Record:
    """Make the record of an arm: of its one system, or of the mean of its members' similarities."""
    runs, data = [part.run for part in parts], joined(sources)
    scores, (name, digest) = ensemble(*(part.scores for part in parts)), title_of(trainings)
    metrics = evaluate(scores, test.owner) | on_truth(scores, test, data["name"])
    if len(test) == COCO_5K:
        metrics[FIVE_FOLDS] = evaluate(scores, test.owner, 5)["rsum"]
    metrics["parameters"] = sum(weight.numel() for run in runs for weight in run.model.parameters())
    metrics[FIRST_PLACE] = 100 * float((cross_retrieval_ranks(scores, test.owner) == 0).double().mean())
    pool, pairs = f"{len(test)} test pictures", [found for part in parts for found in part.pairs]
    if pairs:
        metrics |= pair_accuracy(torch.stack(pairs).mean(0), sideways_captions())
        pool += f" and on {2 * len(pairs[0])} that are pairs which differ in relations alone"
    config: dict[str, Any] = {"members": [run.recipe.portable() for run in runs]}
    note = f"mean similarity of {len(runs)} systems, evaluated on {pool}; "
    note += f"seeds {', '.join(str(run.seed) for run in runs)}; the seconds are of all"
    if len(runs) == 1:
        metrics |= parts[0].metrics
        config, data = runs[0].recipe.portable(), runs[0].data | data
        note = f"best epoch on dev, evaluated on {pool}"
        if "mined_by" in data:
            note += "; the seconds are those of the second round"
    return records.record(
        name,
        config=config,
        config_hash=digest,
        data=data,
        seed=seed,
        metrics=metrics,
        seconds=sum(run.timings["seconds"] for run in runs),
        note=note,
        device=runs[0].device,
        precision=runs[0].precision,
        processes=runs[0].processes,
    )


def joined(sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a record's entry for the data: one system's, or the name and the entries of all members."""
    return sources[0] if len(sources) == 1 else {"name": sources[0]["name"], "members": sources}


def known_beforehand(data: Mapping[str, Any], alike: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a record's entry for the data without what the training itself made: see `fit_in_rounds`.

    For `alike` see `on_every_processor`.
    """
    known = {field: value for field, value in on_every_processor(data, alike).items() if field not in MADE}
    if "members" in known:
        known["members"] = [known_beforehand(member, alike) for member in known["members"]]
    return known
