"""Running an experiment: train what is not recorded yet, and record the results."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from vsecore import records
from vsecore.data.splits import Dataset, FeatureKind, Split
from vsecore.evaluation import ensemble, evaluate
from vsecore.experiments.catalogue import get_experiment
from vsecore.experiments.experiment import PlannedTraining, lesson_scale, title_of
from vsecore.losses import Rule, negatives_kept
from vsecore.paths import results
from vsecore.training import Event, Run, describe_data, fit, score_split
from vsecore.training.distributed import best_device, make_accelerator, precision_of

RULES: tuple[Rule, ...] = ("released", "printed")
RESULTS = results() / "experiments"


def run(
    name: str,
    open_data: Callable[[FeatureKind], Dataset],
    *,
    features: FeatureKind = "grid",
    seeds: Iterable[int] = (0, 1, 2),
    arms: Sequence[str] = (),
    scale: Mapping[str, Any] | None = None,
    vectors: Callable[[Any], Tensor] | None = None,
    folder: Path = RESULTS,
    tell: Callable[[str], None] = print,
) -> None:
    """Train every arm from every seed and record the test split; what is recorded already is left as it is.

    Args:
        name: of the experiment.
        open_data: opens the data with the kind of features that it is given.
        features: for arms that do not name their own.
        seeds: one run each, seed by seed, so that an interrupted experiment has complete comparisons.
        arms: only these; empty: all.
        scale: changes to all arms' recipes; None: `LESSON_SCALE` of the data.
        vectors: makes the word vectors from the tokenizer; None: they start as noise.
        folder: of the records.
        tell: called with a line about each result.

    Raises:
        ValueError: the experiment or an arm is unknown, or there is no scale for this data.
    """
    experiment = get_experiment(name)
    folder.mkdir(parents=True, exist_ok=True)  # so that a bad path fails now, not after hours
    opened = cache(open_data)
    if scale is None:
        scale = lesson_scale(opened(features).name)
    chosen = {arm: experiment.trainings(arm, features, scale) for arm in arms or experiment.arms}
    precision = precision_of(make_accelerator())
    for seed in seeds:
        trained: dict[tuple[str, int], _Trained] = {}  # members that several ensembles of a seed share
        for arm, trainings in chosen.items():
            sources = [_sources(training, opened, vectors, seed) for training in trainings]
            title, digest = title_of(trainings)
            done = records.find(folder, name=title, config_hash=digest, seed=seed, precision=precision)
            if any(entry.data == _data(sources) for entry in done):
                tell(f"{arm}, seed {seed}: recorded already")
                continue
            parts = []
            for training in trainings:
                key = (training.recipe.hash(), training.seed(seed))
                if key not in trained:
                    trained[key] = _train(training, opened(training.member.features), vectors, seed)
                parts.append(trained[key])
            entry = _recorded(title, digest, parts, opened(trainings[0].member.features).test, sources, seed)
            records.write(entry, folder)
            tell(f"{arm}, seed {seed}: rsum {entry.metrics['rsum']:.1f} in {entry.seconds:.0f} s")


@dataclass(frozen=True)
class _Trained:
    run: Run
    scores: Tensor  # (Ni, Nc) of the test split
    followed: dict[str, float]


def _train(
    training: PlannedTraining, data: Dataset, vectors: Callable[[Any], Tensor] | None, seed: int
) -> _Trained:
    watch = _Watch()
    tokenizer = training.recipe.tokenizer(data.train.captions)
    run = fit(
        training.recipe,
        data,
        tokenizer=tokenizer,
        vectors=None if vectors is None else vectors(tokenizer),
        callback=watch,
        seed=training.seed(seed),
    )
    scores = score_split(run.model.to(best_device()), data.test, tokenizer)
    return _Trained(run, scores, watch.metrics())


def _recorded(
    title: str,
    digest: str,
    parts: Sequence[_Trained],
    test: Split,
    sources: Sequence[dict[str, Any]],
    seed: int,
) -> records.Record:
    """The record of an arm: of its one system, or of the mean of its members' similarities."""
    metrics = evaluate(ensemble(*(part.scores for part in parts)), test.owner)
    if len(parts) == 1:
        note = f"best epoch on dev, evaluated on {len(test)} test pictures; {_Watch.note}"
        return records.record_run(parts[0].run, metrics | parts[0].followed, note)
    return records.record(
        title,
        config={"members": [part.run.recipe.portable() for part in parts]},
        config_hash=digest,
        data=_data(sources),
        seed=seed,
        metrics=metrics,
        seconds=sum(part.run.timings["seconds"] for part in parts),
        note=f"mean similarity of {len(parts)} systems, evaluated on {len(test)} test pictures; "
        f"seeds {', '.join(str(part.run.seed) for part in parts)}; the seconds are of all",
        device=parts[0].run.device,
        precision=parts[0].run.precision,
        processes=parts[0].run.processes,
    )


def _sources(
    training: PlannedTraining,
    opened: Callable[[FeatureKind], Dataset],
    vectors: Callable[[Any], Tensor] | None,
    seed: int,
) -> dict[str, Any]:
    """What a system is trained on, as its record describes it."""
    data = opened(training.member.features)
    tokenizer = training.recipe.tokenizer(data.train.captions)
    begin = None if vectors is None else vectors(tokenizer)
    found: dict[str, Any] = describe_data(data, tokenizer, begin)
    return found


def _data(sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A record's entry for the data: of one system, or the name and the entries of all members."""
    if len(sources) == 1:
        return sources[0]
    return {"name": sources[0]["name"], "members": sources}


class _Watch:
    """Follows a training: after each epoch the rsum on dev, and the negatives that each rule keeps."""

    note = (
        "after each epoch the rsum on dev, and how many negatives either rule of AdOpt keeps, the mean over "
        "its batches"
    )

    def __init__(self) -> None:
        self.rsum: list[float] = []
        self.kept: dict[tuple[Rule, int], list[Tensor]] = defaultdict(list)

    def __call__(self, event: Event) -> None:
        if event.metrics is not None:
            self.rsum.append(event.metrics["rsum"])
            return
        for rule in RULES:  # read at the end: reading one now would wait for a GPU
            self.kept[rule, event.epoch].append(negatives_kept(event.scores, rule, event.positives))

    def metrics(self) -> dict[str, float]:
        followed = {f"dev_rsum_{epoch + 1}": rsum for epoch, rsum in enumerate(self.rsum)}
        return followed | {
            f"negatives_{rule}_{epoch + 1}": statistics.mean(int(k) for k in kept)
            for (rule, epoch), kept in self.kept.items()
        }
