"""Runs side by side on the same pictures: paired differences with intervals, and where they differ most."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

from vsecore.data.splits import Dataset, Split
from vsecore.evaluation import evaluate, ranks
from vsecore.experiments.comparison import HEADS, markdown_table, row
from vsecore.experiments.queries import hits, resampled
from vsecore.experiments.statistics import interval
from vsecore.recipes import Recipe
from vsecore.training import Run, load_run, score_split
from vsecore.training.distributed import best_device
from vsecore.training.identity import check_features

Kind = Literal["captions", "pictures"]
"""What is asked: captions ask for their picture, or pictures for one of their captions."""
FOUND = 5
"""How many of the first results of each query are kept."""


@dataclass(frozen=True)
class Retrieved:
    """A run's results on a split."""

    recipe: Recipe
    seed: int
    metrics: dict[str, float]
    """What `evaluation.evaluate` returns."""
    ranks: dict[Kind, Tensor]
    """For each query the rank of the best right answer, counted from 0: (Ni,) and (Nc,)."""
    found: dict[Kind, Tensor]
    """The first answers to each query, (Ni, `FOUND`) and (Nc, `FOUND`)."""

    @classmethod
    def of(cls, run: Run, split: Split, folds: int | None = None) -> Retrieved:
        """Score a split by a run's best epoch; the metrics are means over so many folds."""
        scores = score_split(run.model.to(best_device()), split, run.tokenizer)  # (Ni, Nc)
        i2t, t2i = ranks(scores, split.owner)
        captions, pictures = (side.topk(min(FOUND, side.shape[1])).indices for side in (scores, scores.T))
        return cls(
            run.recipe,
            run.seed,
            evaluate(scores, split.owner, folds),
            {"pictures": i2t, "captions": t2i},
            {"pictures": captions, "captions": pictures},
        )


@dataclass(frozen=True)
class Systems:
    """The runs of some systems on one split.

    Runs of the same recipe are seeds of one system; those that began with another run's weights are a system
    of their own.
    """

    runs: dict[str, list[Retrieved]]
    """By the system's name: that of its recipe, with the folder of its first run where two share a name."""
    split: Split
    folds: int | None = None
    """Over how many folds of the pictures the metrics are averaged; queries search all pictures."""

    @classmethod
    def read(
        cls,
        folders: Sequence[Path],
        open_data: Callable[[Recipe], Dataset],
        split: str = "test",
        least: int = 2,
        folds: int | None = None,
    ) -> Systems:
        """Score the best epochs of the runs in some folders, on a split of the data that their recipes read.

        Raises:
            ValueError: fewer systems than `least`, a seed twice, other pictures or captions than the
                first's, or features of another network than a run reads.
        """
        found: dict[tuple[str, bool], list[Retrieved]] = defaultdict(list)
        places: dict[tuple[str, bool], Path] = {}
        first: Split | None = None
        for folder in folders:
            run = load_run(folder)
            data, system = open_data(run.recipe), (run.recipe.hash(), bool(run.data.get("weights")))
            check_features(folder, run.data, data.name, data)
            part = data.part(split)
            first = first or part
            if (part.captions, part.picture_ids) != (first.captions, first.picture_ids):
                raise ValueError(f"{folder} reads other pictures or captions than {folders[0]}")
            if run.seed in [known.seed for known in found[system]]:
                raise ValueError(f"{folder} is another run of {run.recipe.name} from the seed {run.seed}")
            found[system].append(Retrieved.of(run, part, folds))
            places.setdefault(system, folder)
        if first is None or len(found) < least:
            raise ValueError("one system is not enough: name runs of two recipes or more")
        names = [several[0].recipe.name for several in found.values()]
        runs = {
            name if names.count(name) == 1 else f"{name} ({places[system]})": several
            for name, (system, several) in zip(names, found.items(), strict=True)
        }
        return cls(runs, first, folds)

    def table(self) -> str:
        """Return the recalls at 1 and the rsum of each system as a Markdown table, means over its seeds."""
        rows = [row(name, [run.metrics for run in several]) for name, several in self.runs.items()]
        return markdown_table(HEADS, rows)

    def differences(self) -> str:
        """Return the difference in rsum between each system and the first as a Markdown table.

        The runs are paired by seed. The interval over seeds is Student's, and says how much another training
        would change the mean. The interval over pictures comes from drawing the test pictures again, each
        with its captions, and says how much other pictures would change it; folds have none.
        """
        first, *others = self.runs
        rows = []
        for other in others:
            pairs, cells = self.paired(other, first), ["–", "–", "–"]
            if pairs:
                by_seed = [run.metrics["rsum"] - base.metrics["rsum"] for run, base in pairs]
                over_pictures = (
                    (np.nan, np.nan) if self.folds else difference_interval(pairs, self.split.owner)
                )
                ends = (interval(by_seed), over_pictures)
                said = ["–" if np.isnan(low) else f"{low:+.1f} to {high:+.1f}" for low, high in ends]
                cells = [f"{statistics.mean(by_seed):+.1f}", *said]
            rows.append([f"{other} − {first}", str(len(pairs)), *cells])
        heads = ["difference", "seeds in common", "rsum", "95 % over seeds", "95 % over pictures"]
        return markdown_table(heads, rows)

    def queries(self, other: str, count: int = 5) -> str:
        """Return the captions whose picture a system and the first find at the most different ranks.

        The Markdown table has up to `count` that the system finds earlier, and as many that it finds later,
        those whose ranks differ by the largest factor first. Ranks are medians over the seeds, from 1.
        """
        first, split = next(iter(self.runs)), self.split
        here, base = (1 + self.median_ranks(name, "captions") for name in (other, first))
        gained, lost = largest_changes(base, here)
        rows = [
            [split.captions[c], split.picture_ids[split.owner[c]], f"{here[c]:g}", f"{base[c]:g}"]
            for c in (*gained[:count], *lost[:count])
        ]
        return markdown_table(["query", "its picture", f"rank by {other}", f"rank by {first}"], rows)

    def median_ranks(self, name: str, kind: Kind) -> np.ndarray:
        """Return the rank of each query's best right answer, counted from 0, the median over the seeds."""
        return np.median([run.ranks[kind].numpy() for run in self.runs[name]], axis=0)

    def paired(self, name: str, other: str) -> list[tuple[Retrieved, Retrieved]]:
        """Return the runs of two systems from the seeds that both have."""
        others = {run.seed: run for run in self.runs[other]}
        return [(run, others[run.seed]) for run in self.runs[name] if run.seed in others]


def largest_changes(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which ranks, counted from 1, became smaller and which larger, by the largest factor first."""
    gain = np.log(before / after)
    order = np.argsort(-gain, kind="stable")
    return order[gain[order] > 0], order[gain[order] < 0][::-1]


def difference_interval(
    pairs: Sequence[tuple[Retrieved, Retrieved]], owner: np.ndarray
) -> tuple[float, float]:
    """Return the 95 % interval of two systems' mean difference in rsum over the seeds, see `resampled`."""
    kinds: tuple[Kind, Kind] = ("pictures", "captions")
    of_pictures, of_captions = (
        np.mean([hits(run.ranks[kind]) - hits(base.ranks[kind]) for run, base in pairs], axis=0)
        for kind in kinds
    )  # (Ni, 3) and (Nc, 3)
    return resampled(of_pictures, of_captions, owner)["rsum"]
