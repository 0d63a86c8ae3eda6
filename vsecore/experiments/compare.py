"""Runs side by side on the same pictures: paired differences with intervals, and where they differ most."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsecore.data.splits import Dataset, Split
from vsecore.evaluation import evaluate, ranks
from vsecore.experiments.comparison import HEADS, markdown_table, row
from vsecore.experiments.queries import ENDS, resampled
from vsecore.experiments.statistics import interval
from vsecore.recipes import Recipe
from vsecore.training import load_run, score_split
from vsecore.training.distributed import best_device
from vsecore.training.identity import check_features

FOUND = 5
"""How many of the first results of each query are kept."""


@dataclass(frozen=True)
class Retrieved:
    """A run's results on a split."""

    recipe: Recipe
    seed: int
    metrics: dict[str, float]
    """What `evaluation.evaluate` returns."""
    i2t: np.ndarray
    """For each picture the rank of its best caption, counted from 0, (Ni,)."""
    t2i: np.ndarray
    """For each caption the rank of its picture, counted from 0, (Nc,)."""
    captions_found: np.ndarray
    """The first captions for each picture, (Ni, `FOUND`)."""
    pictures_found: np.ndarray
    """The first pictures for each caption, (Nc, `FOUND`)."""


@dataclass(frozen=True)
class Systems:
    """The runs of some systems on one split; runs of the same recipe are seeds of one system."""

    runs: dict[str, list[Retrieved]]
    """By the system's name: that of its recipe, with the folder of its first run where two share a name."""
    split: Split

    @classmethod
    def read(
        cls,
        folders: Sequence[Path],
        open_data: Callable[[Recipe], Dataset],
        split: str = "test",
        least: int = 2,
    ) -> Systems:
        """Score the best epochs of the runs in some folders.

        Args:
            folders: the runs' folders.
            open_data: opens the data that a recipe reads.
            split: "dev" or "test".
            least: how many systems there must be.

        Raises:
            ValueError: fewer systems, a seed twice, other pictures or captions than the
                first's, or features of another network than a run reads.
        """
        by_hash: dict[str, list[Retrieved]] = defaultdict(list)
        places: dict[str, Path] = {}
        first: Split | None = None
        for folder in folders:
            run = load_run(folder)
            data = open_data(run.recipe)
            check_features(folder, run.data, data.name, data)
            part: Split = getattr(data, split)
            first = first or part
            if (part.captions, part.picture_ids) != (first.captions, first.picture_ids):
                raise ValueError(f"{folder} reads other pictures or captions than {folders[0]}")
            if run.seed in [known.seed for known in by_hash[run.recipe.hash()]]:
                raise ValueError(f"{folder} is another run of {run.recipe.name} from the seed {run.seed}")
            scores = score_split(run.model.to(best_device()), part, run.tokenizer)
            i2t, t2i = (rank.numpy() for rank in ranks(scores, part.owner))
            tops = (side.topk(min(FOUND, side.shape[1])).indices.numpy() for side in (scores, scores.T))
            found = Retrieved(run.recipe, run.seed, evaluate(scores, part.owner), i2t, t2i, *tops)
            by_hash[run.recipe.hash()].append(found)
            places.setdefault(run.recipe.hash(), folder)
        if first is None or len(by_hash) < least:
            raise ValueError("one system is not enough: name runs of two recipes or more")
        names = [several[0].recipe.name for several in by_hash.values()]
        runs = {
            name if names.count(name) == 1 else f"{name} ({places[digest]})": several
            for name, (digest, several) in zip(names, by_hash.items(), strict=True)
        }
        return cls(runs, first)

    def table(self) -> str:
        """Return the recalls at 1 and the rsum of each system as a Markdown table, means over its seeds."""
        rows = [row(name, [run.metrics for run in several]) for name, several in self.runs.items()]
        return markdown_table(HEADS, rows)

    def differences(self) -> str:
        """Return the difference in rsum between each system and the first as a Markdown table.

        The runs are paired by seed. The interval over seeds is Student's, and says how much another training
        would change the mean. The interval over pictures comes from drawing the test pictures again, each
        with its captions, and says how much other pictures would change it.
        """
        first, *others = self.runs
        rows = []
        for other in others:
            pairs, cells = self.paired(other, first), ["–", "–", "–"]
            if pairs:
                by_seed = [run.metrics["rsum"] - base.metrics["rsum"] for run, base in pairs]
                ends = (interval(by_seed), difference_interval(pairs, self.split.owner))
                said = ["–" if np.isnan(low) else f"{low:+.1f} to {high:+.1f}" for low, high in ends]
                cells = [f"{statistics.mean(by_seed):+.1f}", *said]
            rows.append([f"{other} − {first}", str(len(pairs)), *cells])
        heads = ["difference", "seeds in common", "rsum", "95 % over seeds", "95 % over pictures"]
        return markdown_table(heads, rows)

    def queries(self, other: str, count: int = 5) -> str:
        """Return the captions whose picture a system and the first find at the most different ranks.

        Args:
            other: the system's name.
            count: how many captions of either kind, those that the system finds earlier and later.

        Returns:
            A Markdown table. Ranks count from 1 and are medians over the seeds; those that differ by the
            largest factor stand first.
        """
        first, split = next(iter(self.runs)), self.split
        here, base = (1 + np.median([run.t2i for run in self.runs[name]], axis=0) for name in (other, first))
        gain = np.log(base / here)  # (Nc,), above 0 where the system finds the picture earlier
        order = np.argsort(-gain, kind="stable")
        chosen = [*order[:count], *order[max(count, len(order) - count) :][::-1]]
        rows = [
            [split.captions[c], split.picture_ids[split.owner[c]], f"{here[c]:g}", f"{base[c]:g}"]
            for c in chosen
            if gain[c] != 0
        ]
        return markdown_table(["query", "its picture", f"rank by {other}", f"rank by {first}"], rows)

    def paired(self, name: str, other: str) -> list[tuple[Retrieved, Retrieved]]:
        """Return the runs of two systems from the seeds that both have."""
        others = {run.seed: run for run in self.runs[other]}
        return [(run, others[run.seed]) for run in self.runs[name] if run.seed in others]


def difference_interval(
    pairs: Sequence[tuple[Retrieved, Retrieved]], owner: np.ndarray
) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference in rsum, from drawing the pictures with replacement.

    Args:
        pairs: two systems from each seed.
        owner: the picture each caption belongs to, (Nc,).
    """
    i2t, t2i = (
        np.mean([_hits(getattr(run, way)) - _hits(getattr(base, way)) for run, base in pairs], axis=0)
        for way in ("i2t", "t2i")
    )  # (Ni,) and (Nc,)
    sums = 100 * resampled(i2t[:, None], t2i[:, None], owner).sum(1)
    low, high = np.quantile(sums, ENDS)
    return float(low), float(high)


def _hits(rank: np.ndarray) -> np.ndarray:
    """Return for each query how many of the three recalls count it."""
    return (rank[:, None] < np.array((1, 5, 10))).sum(1)
