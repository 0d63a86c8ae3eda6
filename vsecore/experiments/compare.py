"""Runs side by side on the same pictures: differences with intervals, and queries where they differ most."""

from __future__ import annotations

import statistics
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from vsecore.data.splits import Dataset, Split
from vsecore.evaluation import evaluate, ranks
from vsecore.experiments.queries import hits, resampled
from vsecore.experiments.statistics import interval
from vsecore.experiments.tables import HEADS, OURS, PAPERS, markdown_table, row
from vsecore.recipes import Recipe
from vsecore.training import Run, load_run, score_split
from vsecore.training.distributed import best_device
from vsecore.training.identity import check_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["captions", "pictures"]
"""What is asked: captions ask for their picture, or pictures for one of their captions."""
FOUND = 5
"""How many of the first results of each query are kept."""
Pixels = Callable[[int], np.ndarray]
"""Returns a picture of the split, (H, W, 3), by its row."""


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

    Runs of the same recipe on the same data are seeds of one system; those that began with another run's
    weights, or with word vectors, are a system of their own.
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
        found: dict[tuple[object, ...], list[Retrieved]] = defaultdict(list)
        places: dict[tuple[object, ...], Path] = {}
        first: Split | None = None
        for folder in folders:
            run = load_run(folder)
            data = open_data(run.recipe)
            # whether, not which: words that have no vector get other noise from each seed
            begun = [bool(run.data.get(one)) for one in ("weights", "vectors")]
            system = (run.recipe.hash(), run.data["fingerprint"], *begun)
            check_features(folder, run.data, data.name, data)
            part = data.part(split)
            first = first or part
            if not part.shows_the_same(first):
                raise ValueError(f"{folder} reads other pictures or captions than {folders[0]}")
            if run.seed in [known.seed for known in found[system]]:
                raise ValueError(
                    f"{folder} is another run of {run.recipe.name} from the seed {run.seed}: name one"
                )
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

    def choose(self, kind: Kind, count: int = 4, containing: str = "") -> list[int]:
        """Return the rows of the queries that tell most; their caption, or one of them, contains some words.

        Of the first two systems: half of the rows where the second gains most on the first, and half where it
        loses most, by the factor between their ranks. Of a single one: half that it answers right, and half
        that it answers worst.
        """
        split, words = self.split, containing.lower()
        captions = [row for row, caption in enumerate(split.captions) if words in caption.lower()]
        rows = np.array(captions if kind == "captions" else np.unique(split.owner[captions]), dtype=int)
        ranks = [1 + self.median_ranks(name, kind)[rows] for name in self.runs]
        best, worst = (count + 1) // 2, count // 2
        if len(ranks) > 1:
            gained, lost = largest_changes(*ranks[:2])
            return [int(row) for row in rows[[*gained[:best], *lost[:worst]]]]
        right, missed = np.flatnonzero(ranks[0] == 1), np.flatnonzero(ranks[0] > 1)
        spread = np.linspace(0, len(right) - 1, min(best, len(right))).astype(int)
        hardest = missed[np.argsort(-ranks[0][missed], kind="stable")]
        return [int(row) for row in rows[[*right[spread], *hardest[:worst]]]]

    def figure(self, kind: Kind, queries: Sequence[int], pixels: Pixels) -> Any:
        """Draw each query, and below it what the first seed of each system finds first, right ones marked.

        `queries` are rows of the split; what is returned is a `matplotlib.figure.Figure`.
        """
        from matplotlib.figure import Figure  # takes a second, and only this needs it
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        lines = [(query, name, runs[0]) for query in queries for name, runs in self.runs.items()]
        split, height = self.split, 2.1 * len(lines)
        # Room for the lines above pictures, and above the first of them.
        layout = ConstrainedLayoutEngine(h_pad=0.25, rect=(0, 0, 1, 1 - 0.2 / height))
        drawn = Figure(figsize=(9, height), layout=layout)
        widths = [1] * FOUND if kind == "captions" else [1, FOUND - 1]
        grid = drawn.subplots(len(lines), len(widths), squeeze=False, width_ratios=widths)
        for axes in grid.flat:
            axes.set_axis_off()
        for panels, (query, name, run) in zip(grid, lines, strict=True):
            rank, found = 1 + int(run.ranks[kind][query]), run.found[kind][query].tolist()
            if kind == "captions":
                title = f"“{split.captions[query]}”\n{name}: its picture is number {rank}"
                plain: dict[str, Any] = {"parse_math": False, "in_layout": False}  # it may have two $
                panels[0].text(0, 1.06, title, fontsize=9, transform=panels[0].transAxes, **plain)
                for axes, picture in zip(panels, found, strict=False):
                    _show(axes, pixels(picture), right=picture == split.owner[query])
            else:
                _show(panels[0], pixels(query), right=False)
                panels[1].set_title(f"{name}: its best caption is number {rank}", loc="left", fontsize=9)
                for place, caption in enumerate(found):
                    right = split.owner[caption] == query
                    text = textwrap.shorten(f"{'✓' if right else '✗'} {split.captions[caption]}", 90)
                    style = {"fontsize": 9, "color": OURS if right else PAPERS, "parse_math": False}
                    panels[1].text(0, 0.85 - 0.2 * place, text, transform=panels[1].transAxes, **style)
        return drawn


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


def _show(axes: Axes, picture: np.ndarray, right: bool) -> None:
    """Show a picture, framed and with a tick if it is right."""
    axes.imshow(picture)
    if right:
        height, width = np.shape(picture)[:2]  # of Pillow's pictures too
        axes.plot([0, width, width, 0, 0], [0, 0, height, height, 0], color=OURS, linewidth=4, clip_on=False)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(0.04, 0.86, "✓", color=OURS, fontsize=14, bbox=box, transform=axes.transAxes)
