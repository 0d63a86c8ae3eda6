"""The table that an experiment ends in: its arms side by side, and beside them what the paper prints."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsecore.data.files import write_atomically
from vsecore.experiments.statistics import interval
from vsecore.records import RECALLS, Record


@dataclass(frozen=True)
class Row:
    """One system."""

    name: str
    metrics: Mapping[str, Sequence[float]]
    """Each recall and their sum, in percent, one value a seed."""
    seeds: Sequence[int]
    paper: float | None
    """The rsum that the paper prints; None: it has none."""
    parameters: int | None
    """None: an older record, which does not say."""
    seconds: float
    """What one training took, the median over the seeds."""

    @property
    def rsum(self) -> float:
        """The mean over the seeds."""
        return statistics.mean(self.metrics["rsum"])

    @property
    def reach(self) -> float:
        """Half of the 95 % confidence interval of the mean rsum; `nan` for one seed."""
        low, high = interval(self.metrics["rsum"])
        return (high - low) / 2


@dataclass(frozen=True)
class Comparison:
    """Systems on the same test pictures, best first."""

    rows: Sequence[Row]
    printed_on: str
    """The test pictures of the paper's column, such as "COCO 5K"; "": there is none."""

    @classmethod
    def of(
        cls, found: Mapping[str, Sequence[Record]], paper: Mapping[str, float], printed_on: str
    ) -> Comparison:
        """Compare systems by their records.

        Args:
            found: the records of each system, one a seed.
            paper: the rsum that the paper prints, by system.
            printed_on: the test pictures that the paper's rsum was measured on.
        """
        rows = [
            Row(
                name,
                {metric: [entry.metrics[metric] for entry in entries] for metric in (*RECALLS, "rsum")},
                [entry.seed for entry in entries],
                paper.get(name),
                int(entries[0].metrics["parameters"]) if "parameters" in entries[0].metrics else None,
                statistics.median(entry.seconds for entry in entries),
            )
            for name, entries in found.items()
        ]
        return cls(sorted(rows, key=lambda row: -row.rsum), printed_on if paper else "")

    def markdown(self) -> str:
        """Return a Markdown table; the mean rsum is followed by ± half of its 95 % interval."""
        heads = ["system", "seeds", "rsum", "picture to text R@1", "text to picture R@1"]
        heads += [f"rsum in the paper, {self.printed_on}"] if self.printed_on else []
        lines = [[*heads, "parameters", "seconds a training"], ["---"] * (len(heads) + 2)]
        for row in self.rows:
            seeds = len(row.metrics["rsum"])
            reach = f" ± {row.reach:.1f}" if seeds > 1 else ""
            lines.append([row.name, str(seeds), f"{row.rsum:.1f}{reach}"])
            lines[-1] += [f"{statistics.mean(row.metrics[metric]):.1f}" for metric in ("i2t_r1", "t2i_r1")]
            if self.printed_on:
                lines[-1].append("–" if row.paper is None else f"{row.paper:.1f}")
            lines[-1] += ["–" if row.parameters is None else f"{row.parameters:,}", f"{row.seconds:,.0f}"]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def csv(self) -> str:
        """Return all six recalls and their sum, one line for each system and seed, and the paper's rsum."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["system", "seed", *RECALLS, "rsum", "paper_rsum", "parameters", "seconds"])
        for row in self.rows:
            for seed, values in zip(row.seeds, zip(*row.metrics.values(), strict=True), strict=True):
                rounded = [round(value, 3) for value in values]
                writer.writerow([row.name, seed, *rounded, row.paper, row.parameters, round(row.seconds, 1)])
        return text.getvalue()

    def figure(self) -> Any:
        """Draw a dot for each seed, the mean with its 95 % interval, and the paper's rsum as a diamond."""
        from matplotlib.figure import Figure  # takes a second, and only this needs it

        figure = Figure(figsize=(7, 1.2 + 0.4 * len(self.rows)), layout="constrained")
        axes = figure.subplots()
        for place, row in enumerate(self.rows):
            axes.plot(
                row.metrics["rsum"], [place] * len(row.metrics["rsum"]), "o", color="#0072b2", alpha=0.4
            )
            if len(row.metrics["rsum"]) > 1:
                axes.errorbar(row.rsum, place, xerr=row.reach, fmt="|", color="#0072b2", capsize=4)
            if row.paper is not None:
                axes.plot(row.paper, place, "D", color="#d55e00", fillstyle="none")
        axes.set(yticks=range(len(self.rows)), yticklabels=[row.name for row in self.rows], xlabel="rsum")
        axes.invert_yaxis()
        if self.printed_on:
            axes.plot([], [], "D", color="#d55e00", fillstyle="none", label=f"the paper, {self.printed_on}")
            axes.legend(loc="best")
        return figure

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write the table as Markdown and CSV, and the figure; return the files."""
        texts = {".md": self.markdown() + "\n", ".csv": self.csv()}
        for suffix, text in texts.items():
            with write_atomically(folder / f"{name}{suffix}", "w") as file:
                file.write(text)
        with write_atomically(folder / f"{name}.svg") as file:
            self.figure().savefig(file, format="svg")
        return [folder / f"{name}{suffix}" for suffix in (*texts, ".svg")]
