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

OURS, PAPERS = "#0072b2", "#d55e00"
"""The colours of our results and of the paper's, which can be told apart in colour blindness."""


@dataclass(frozen=True)
class Comparison:
    """Systems on the same test pictures, as a table, a file of numbers and a figure, best first."""

    found: Mapping[str, Sequence[Record]]
    """The records of each system, one a seed."""
    paper: Mapping[str, float]
    """The rsum that the paper prints, by system."""
    printed_on: str
    """The test pictures of the paper's sums, such as "COCO 5K"; "": there are none."""

    @property
    def ranked(self) -> dict[str, Sequence[Record]]:
        """The records of each system, the one with the highest mean rsum first."""
        return dict(sorted(self.found.items(), key=lambda one: -statistics.mean(_values(one[1], "rsum"))))

    def markdown(self) -> str:
        """Return a Markdown table; the mean rsum is followed by ± half of its 95 % interval."""
        heads = ["system", "seeds", "rsum", "picture to text R@1", "text to picture R@1"]
        heads += [f"rsum in the paper, {self.printed_on}"] if self.printed_on else []
        lines = [[*heads, "parameters", "seconds a training"]]
        for name, entries in self.ranked.items():
            means = [statistics.mean(_values(entries, metric)) for metric in ("rsum", "i2t_r1", "t2i_r1")]
            cells = [name, str(len(entries)), *(f"{mean:.1f}" for mean in means)]
            if len(entries) > 1:
                cells[2] += f" ± {_reach(entries):.1f}"
            if self.printed_on:
                cells.append(f"{self.paper[name]:.1f}" if name in self.paper else "–")
            weights = entries[0].metrics.get("parameters")  # older records do not say
            seconds = statistics.median(entry.seconds for entry in entries)
            lines.append([*cells, "–" if weights is None else f"{int(weights):,}", f"{seconds:,.0f}"])
        return markdown_table(lines[0], lines[1:])

    def csv(self) -> str:
        """Return all six recalls and their sum, one line for each system and seed, and the paper's rsum."""
        text, metrics = io.StringIO(), (*RECALLS, "rsum")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["system", "seed", *metrics, "paper_rsum", "parameters", "seconds"])
        for name, entries in self.ranked.items():
            for entry in entries:
                values = [round(entry.metrics[metric], 3) for metric in metrics]
                more = self.paper.get(name), entry.metrics.get("parameters"), round(entry.seconds, 1)
                writer.writerow([name, entry.seed, *values, *more])
        return text.getvalue()

    def figure(self) -> Any:
        """Draw a dot for each seed, the mean with its 95 % interval, and the paper's rsum as a diamond."""
        from matplotlib.figure import Figure  # takes a second, and only this needs it

        figure = Figure(figsize=(7, 1.2 + 0.4 * len(self.found)), layout="constrained")
        axes = figure.subplots()
        for place, (name, entries) in enumerate(self.ranked.items()):
            sums = _values(entries, "rsum")
            axes.plot(sums, [place] * len(sums), "o", color=OURS, alpha=0.4)
            if len(sums) > 1:
                mean = statistics.mean(sums)
                axes.errorbar(mean, place, xerr=_reach(entries), fmt="|", color=OURS, capsize=4)
            if name in self.paper:
                axes.plot(self.paper[name], place, "D", color=PAPERS, fillstyle="none")
        axes.set(yticks=range(len(self.found)), yticklabels=list(self.ranked), xlabel="rsum")
        axes.invert_yaxis()
        if self.printed_on:
            axes.plot([], [], "D", color=PAPERS, fillstyle="none", label=f"the paper, {self.printed_on}")
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


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def _values(entries: Sequence[Record], metric: str) -> list[float]:
    return [entry.metrics[metric] for entry in entries]


def _reach(entries: Sequence[Record]) -> float:
    """Return half of the 95 % confidence interval of the mean rsum."""
    low, high = interval(_values(entries, "rsum"))
    return (high - low) / 2
