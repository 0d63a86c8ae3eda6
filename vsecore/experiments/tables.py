"""The table that an experiment ends in: its arms side by side, and beside them what the paper prints."""

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vsecore.data.files import write_whole
from vsecore.experiments.measures import SIDES, alone, without
from vsecore.experiments.statistics import interval
from vsecore.records import RECALLS, Record

OURS, PAPERS = "#0072b2", "#d55e00"
"""The colours of our results and of the paper's, which can be told apart in colour blindness."""
FIVE_FOLDS = "rsum_of_five_folds"
"""The mean rsum over five folds, COCO 1K, which is recorded where all of COCO's test pictures are tested."""
HEADS = ("system", "seeds", "rsum", "picture to text R@1", "text to picture R@1")


@dataclass(frozen=True)
class Comparison:
    """Systems on the same test pictures, as a table, a file of numbers and a figure, best first."""

    found: Mapping[str, Sequence[Record]]
    """The records of each system, one a seed."""
    paper: Mapping[str, float]
    """The rsum that the paper prints, by system."""
    printed_on: str
    """The test pictures of the paper's sums, such as "COCO 5K"; "": there are none."""
    paper_sets: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What the paper prints on Flickr30K, by system and metric, where that includes parts of its sets."""

    @property
    def ranked(self) -> dict[str, Sequence[Record]]:
        """The records of each system, the one with the highest mean rsum first."""
        return dict(sorted(self.found.items(), key=lambda one: -statistics.mean(_sums(one[1]))))

    @property
    def in_folds(self) -> bool:
        """Whether all records have the mean over five folds too."""
        return all(FIVE_FOLDS in entry.metrics for entries in self.found.values() for entry in entries)

    def markdown(self) -> str:
        """Return a Markdown table; a mean is followed by ± half of its 95 % interval."""
        folds = self.in_folds
        heads = [*HEADS, *(["rsum of five folds"] if folds else [])]
        heads += [f"rsum in the paper, {self.printed_on}"] if self.printed_on else []
        lines = []
        for name, entries in self.ranked.items():
            cells = row(name, [entry.metrics for entry in entries])
            if folds:
                cells.append(f"{statistics.mean(entry.metrics[FIVE_FOLDS] for entry in entries):.1f}")
            if self.printed_on:
                cells.append(f"{self.paper[name]:.1f}" if name in self.paper else "–")
            weights = entries[0].metrics.get("parameters")  # older records do not say
            seconds = statistics.median(entry.seconds for entry in entries)
            lines.append([*cells, "–" if weights is None else f"{int(weights):,}", f"{seconds:,.0f}"])
        return markdown_table([*heads, "parameters", "seconds a training"], lines) + self._sets()

    def _sets(self) -> str:
        """Return a table of the rsum with one vector of a side's sets alone, or without it; "": no sets."""
        systems: list[tuple[str, Sequence[Mapping[str, float]]]] = []
        for name, entries in self.ranked.items():
            systems.append((name, [entry.metrics for entry in entries]))
            if name in self.paper_sets:
                systems.append((f"{name} in the paper, Flickr30K", [self.paper_sets[name]]))
        lines = [
            [name, side, _mean(seeds, "rsum"), _parts(seeds, alone, side), _parts(seeds, without, side)]
            for name, seeds in systems
            for side in SIDES
            if alone(side, 1) in seeds[0]
        ]
        heads = ["system", "sets of", "rsum", "with one vector alone", "without one vector"]
        return f"\n\n{markdown_table(heads, lines)}" if lines else ""

    def csv(self) -> str:
        """Return all recalls and sums, one line for each system and seed, and the paper's rsum."""
        text, metrics = io.StringIO(), (*RECALLS, "rsum", *([FIVE_FOLDS] if self.in_folds else []))
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["system", "seed", *metrics, "paper_rsum", "parameters", "seconds"])
        for name, entries in self.ranked.items():
            for one in entries:
                values = [round(one.metrics[metric], 3) for metric in metrics]
                more = self.paper.get(name), one.metrics.get("parameters"), round(one.seconds, 1)
                writer.writerow([name, one.seed, *values, *more])
        return text.getvalue()

    def figure(self) -> Any:
        """Draw a dot for each seed, the mean with its 95 % interval, and the paper's rsum as a diamond.

        Ours is that of five folds where the paper's is.
        """
        from matplotlib.figure import Figure  # takes a second, and only this needs it

        figure = Figure(figsize=(7, 1.2 + 0.4 * len(self.found)), layout="constrained")
        axes = figure.subplots()
        metric = FIVE_FOLDS if self.in_folds and self.printed_on == "COCO 1K" else "rsum"
        for place, (name, entries) in enumerate(self.ranked.items()):
            sums = _sums(entries, metric)
            axes.plot(sums, [place] * len(sums), "o", color=OURS, alpha=0.4)
            if len(sums) > 1:
                low, high = interval(sums)
                axes.errorbar((low + high) / 2, place, xerr=(high - low) / 2, fmt="|", color=OURS, capsize=4)
            if name in self.paper:
                axes.plot(self.paper[name], place, "D", color=PAPERS, fillstyle="none")
        label = metric.replace("_", " ")
        axes.set(yticks=range(len(self.found)), yticklabels=list(self.ranked), xlabel=label)
        axes.invert_yaxis()
        if self.printed_on:
            axes.plot([], [], "D", color=PAPERS, fillstyle="none", label=f"the paper, {self.printed_on}")
            axes.legend(loc="best")
        return figure

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write the table as Markdown and CSV, and the figure; return the files."""
        drawn = io.StringIO()
        self.figure().savefig(drawn, format="svg")
        texts = {".md": self.markdown() + "\n", ".csv": self.csv(), ".svg": drawn.getvalue()}
        for suffix, text in texts.items():
            write_whole(folder / f"{name}{suffix}", text)
        return [folder / f"{name}{suffix}" for suffix in texts]


def row(name: str, metrics: Sequence[Mapping[str, float]]) -> list[str]:
    """Return what `HEADS` names of a system, from the metrics of each seed."""
    cells = [name, str(len(metrics))]
    for metric in ("rsum", "i2t_r1", "t2i_r1"):
        values = [of_seed[metric] for of_seed in metrics]
        low, high = interval(values)
        reach = f" ± {(high - low) / 2:.1f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.1f}{reach}")
    return cells


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar within a cell stays one."""
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _mean(seeds: Sequence[Mapping[str, float]], metric: str) -> str:
    return f"{statistics.mean(metrics[metric] for metrics in seeds):.1f}"


def _parts(seeds: Sequence[Mapping[str, float]], named: Callable[[str, int], str], side: str) -> str:
    """Return the means of all metrics that `named` names, such as "1: 491.1, 2: 309.6"."""
    names = {number: named(side, number) for number in range(1, 1 + len(seeds[0]))}
    return ", ".join(f"{number}: {_mean(seeds, one)}" for number, one in names.items() if one in seeds[0])


def _sums(entries: Sequence[Record], metric: str = "rsum") -> list[float]:
    return [entry.metrics[metric] for entry in entries]
