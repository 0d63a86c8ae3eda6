"""The ladder on Flickr8k: from chance to an ensemble, each rung with the command that produces it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vsecore import records
from vsecore.experiments.comparison import markdown_table
from vsecore.paths import results
from vsecore.records import Record

FOLDER = results() / "ladder"


@dataclass(frozen=True)
class Rung:
    """A system of the ladder, and which records belong to it."""

    title: str
    command: str
    name: str  # the records' name
    members: int = 0  # how many an ensemble has


RUNGS = (
    Rung("chance", "vse baselines", "chance"),
    Rung("ridge regression to words", "vse baselines", "ridge"),
    Rung("VSE++, small", "vse train vsepp_grid_gru+laptop", "vsepp_grid_gru+laptop"),
    Rung("words in windows, InfoNCE", "vse train window_grid", "window_grid"),
    Rung("CCA, solved in closed form", "vse baselines", "cca"),
    Rung("CCA that sees mirror images too", "vse evaluate cca", "ensemble", 1),
    Rung("one window and CCA without mirror images", "vse evaluate cca runs/window-0", "ensemble", 2),
    Rung(
        "three windows and CCA with mirror images",
        "vse evaluate cca runs/window-{0,1,2} --weight 3 --weight 1 --weight 1 --weight 1",
        "ensemble",
        4,
    ),
)
"""From the bottom up. Every command also takes `--data`, and `--vectors` if it reads words."""


def table(folder: Path = FOLDER) -> str:
    """Return the ladder as a Markdown table: means over seeds, and the standard deviation of rsum.

    Rungs without a record are left out.
    """
    found = [entry for entry in records.find(folder) if entry.config.get("split", "test") == "test"]
    heads = ("rung", "command", "seeds", "picture to text R@1/5/10", "text to picture R@1/5/10", "rsum")
    rows = []
    for rung in RUNGS:
        own = [
            entry
            for entry in found
            if entry.name == rung.name and len(entry.config.get("members", ())) == rung.members
        ]
        if own:
            ways = (_recalls(own, "i2t"), _recalls(own, "t2i"))
            rows.append((rung.title, f"`{rung.command}`", str(len(own)), *ways, _sum(own)))
    return markdown_table(heads, rows)


def _recalls(entries: Sequence[Record], way: str) -> str:
    return " / ".join(
        f"{statistics.mean(entry.metrics[f'{way}_r{k}'] for entry in entries):.1f}" for k in (1, 5, 10)
    )


def _sum(entries: Sequence[Record]) -> str:
    sums = [float(entry.metrics["rsum"]) for entry in entries]
    spread = f" ± {statistics.stdev(sums):.1f}" if len(sums) > 1 else ""
    return f"{statistics.mean(sums):.1f}{spread}"


if __name__ == "__main__":
    print(table())
