"""README's ladder on Flickr8k, from chance to an ensemble, says what its records say."""

import statistics
from pathlib import Path

import pytest

from vsecore import records
from vsecore.paths import results

FOLDER = results() / "ladder"
RUNGS = {  # by its title: the name of its records, and how many systems an ensemble has
    "chance": ("chance", 0),
    "ridge regression to words": ("ridge", 0),
    "VSE++, small": ("vsepp_grid_gru+laptop", 0),
    "words in windows, InfoNCE": ("window_grid", 0),
    "2AD with GPO, cell by cell": ("2ad_grid_gru+gpo", 0),
    "CCA, solved in closed form": ("cca", 0),
    "CCA that sees mirror images too": ("ensemble", 1),
    "one window and CCA without mirror images": ("ensemble", 2),
    "three windows and CCA with mirror images": ("ensemble", 4),
    "a window, 2AD and CCA with mirror images": ("ensemble", 3),
}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the records of a checkout")
@pytest.mark.parametrize("title", RUNGS)
def test_a_rung_is_the_mean_of_its_seeds_with_their_standard_deviation(title):
    name, members = RUNGS[title]
    own = [
        entry.metrics
        for entry in records.find(FOLDER, name=name)
        if entry.config.get("split", "test") == "test" and len(entry.config.get("members", ())) == members
    ]
    mean = {metric: statistics.mean(metrics[metric] for metrics in own) for metric in records.RECALLS}
    ways = [" / ".join(f"{mean[f'{way}_r{k}']:.1f}" for k in (1, 5, 10)) for way in ("i2t", "t2i")]
    sums = [metrics["rsum"] for metrics in own]
    spread = f" ± {statistics.stdev(sums):.1f}" if len(sums) > 1 else ""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in readme.splitlines() if line.startswith(f"| {title} | `vse "))
    assert row.endswith(f"` | {len(own)} | {' | '.join(ways)} | {statistics.mean(sums):.1f}{spread} |")
