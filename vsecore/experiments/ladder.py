"""The ladder on Flickr8k: from chance to an ensemble, each rung with the command that produces it."""

from __future__ import annotations

import statistics
from pathlib import Path

from vsecore import records
from vsecore.experiments.comparison import markdown_table
from vsecore.paths import results

FOLDER = results() / "ladder"
HEADS = ("rung", "command", "seeds", "picture to text R@1/5/10", "text to picture R@1/5/10", "rsum")
RUNGS = (
    ("chance", "vse baselines", "chance", 0),
    ("ridge regression to words", "vse baselines", "ridge", 0),
    ("VSE++, small", "vse train vsepp_grid_gru+laptop", "vsepp_grid_gru+laptop", 0),
    ("words in windows, InfoNCE", "vse train window_grid", "window_grid", 0),
    (
        "2AD with GPO, cell by cell",
        "vse experiment 2ad_pooling --scale fair --arm GPO",
        "2ad_grid_gru+gpo",
        0,
    ),
    ("CCA, solved in closed form", "vse baselines", "cca", 0),
    ("CCA that sees mirror images too", "vse evaluate cca", "ensemble", 1),
    ("one window and CCA without mirror images", "vse evaluate cca runs/window-0", "ensemble", 2),
    (
        "three windows and CCA with mirror images",
        "vse evaluate cca runs/window-{0,1,2} --weight 3 --weight 1 --weight 1 --weight 1",
        "ensemble",
        4,
    ),
)
"""From the bottom up: what a rung is called, its command, the name of its records, and how many systems an
ensemble has. Every command also takes `--data`, and `--vectors` if it reads words."""


def table(folder: Path = FOLDER) -> str:
    """Return the ladder as a Markdown table: means over seeds, and the standard deviation of rsum.

    Rungs without a record are left out.
    """
    rows = []
    for title, command, name, members in RUNGS:
        own = [
            entry.metrics
            for entry in records.find(folder, name=name)
            if entry.config.get("split", "test") == "test" and len(entry.config.get("members", ())) == members
        ]
        if not own:
            continue
        mean = {metric: statistics.mean(metrics[metric] for metrics in own) for metric in own[0]}
        ways = [" / ".join(f"{mean[f'{way}_r{k}']:.1f}" for k in (1, 5, 10)) for way in ("i2t", "t2i")]
        spread = f" ± {statistics.stdev(metrics['rsum'] for metrics in own):.1f}" if len(own) > 1 else ""
        rows.append((title, f"`{command}`", str(len(own)), *ways, f"{mean['rsum']:.1f}{spread}"))
    return markdown_table(HEADS, rows)


if __name__ == "__main__":
    print(table())
