"""The page of costs in the book: what training and search take at full scale, from the records."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from course.wording import signed, table
from vsecore import records
from vsecore.paths import assets
from vsecore.records import Record

PAGE = "costs"
PLANNED = 10_000_000
"""For so many pictures a search is planned on paper."""
COMMANDS = {
    "check": "`vse data check`",
    "extract": "`vse data extract`",
    "train": "`vse train`",
    "evaluate": "`vse evaluate`",
    "index": "`vse search index`",
    "query": "`vse search`, one query",
    "all": "all",
}
Growth = Callable[[float], float]


def _linear(n: float) -> float:
    return n


KINDS: dict[str, tuple[str, Growth, Growth]] = {
    "flat": ("all numbers, exact", _linear, _linear),
    "sq8": ("a byte a number", _linear, _linear),
    "pq128x4": ("128 codes of 4 bits", _linear, _linear),
    # As many cells as the root of n: a vector is compared with all cells, a query with cells and a few lists.
    "ivf_flat": ("cells, all numbers", lambda n: n**1.5, math.sqrt),
    "ivf_sq8": ("cells, a byte a number", lambda n: n**1.5, math.sqrt),
    "hnsw": ("a graph of neighbours", lambda n: n * math.log(n), math.log),
}
"""The kinds of index: what readers call them, and what building and a query grow with, for n vectors."""


def lay_costs(folder: Path, kept: Path | None = None) -> None:
    """Write the page of costs into a folder, from a folder of records; None: the repository's."""
    (folder / f"{PAGE}.md").write_text(page(assets() / "results" if kept is None else kept), encoding="utf-8")


def page(kept: Path) -> str:
    """The page, in MyST Markdown. It names what has not been recorded."""
    found = {entry.name: entry for entry in records.find(kept)} if kept.is_dir() else {}
    parts = [
        "# What full scale costs, as measured",
        "Building the book makes this page from the records of benchmarks, so none of its numbers was typed "
        "by hand. They hold for the machine that is named. Other programs ran on it as well, which makes "
        "times longer. `vse plan` says what a training takes on your machine.",
    ]
    for name, (title, describe) in SECTIONS.items():
        entry = found.get(f"benchmark_{name}")
        parts.append(f"## {title}")
        if entry is None:
            parts.append(f"Not recorded yet: `tests/benchmarks/{name}.py` measures it.")
        else:
            words, *tables = describe(entry)
            parts += [f"{words} ({entry.device}, one thread a process, {entry.date}.)", *tables]
    if "benchmark_search" in found:
        parts += _on_paper(found["benchmark_search"], found.get("benchmark_end_to_end"))
    return "\n\n".join(parts) + "\n"


def _end_to_end(entry: Record) -> list[str]:
    metrics = entry.metrics
    rows = [
        [called, _time(metrics[f"{name}_seconds"]), _time(metrics[f"{name}_processor_seconds"])]
        for name, called in COMMANDS.items()
    ]
    return [
        "All of Flickr8k by the commands of the README, one after the other: features of "
        f"`{entry.config['backbone']}`, the recipe `{entry.config['recipe']['name']}`, and an index of "
        f"{metrics['indexed_pictures']:,} pictures. It ends with a test rsum of {metrics['rsum']:.1f}. No "
        f"command had more than {metrics['largest_command_gb']:.1f} GB of memory.",
        table(["command", "by the clock", "of the processor"], rows),
    ]


def _streaming(entry: Record) -> list[str]:
    metrics = entry.metrics
    return [
        f"Drawn numbers of COCO's exact shape lie on disk, {metrics['features_gb']:.1f} GB of regions in "
        f"half precision, and `{entry.config['recipe']}` is trained on them. Its steps are "
        f"**{metrics['disk_speed_over_memory']:.2f} times** as fast as steps on features that are in memory. "
        f"The process had at most {metrics['disk_rss_gb']:.1f} GB of memory. {entry.config['steps']} steps "
        f"wanted {metrics['wanted_gb']:.2f} GB of features, and {metrics['disk_read_gb']:.2f} GB were read."
    ]


def _processes(entry: Record) -> list[str]:
    metrics, seeds = entry.metrics, entry.config["seeds"]
    rows = [
        [
            name.split("_")[0],
            *(f"{metrics[f'{name}_seed{seed}_rsum']:.1f}" for seed in seeds),
            f"{metrics[f'{name}_rsum']:.1f}",
            f"{metrics[f'{name}_rsum_deviation']:.1f}" if len(seeds) > 1 else "–",
        ]
        for name in ("1_process", f"{entry.processes}_processes")
    ]
    return [
        f"`{entry.config['name']}` at the lesson scale on Flickr8k, by one process and by {entry.processes} "
        f"that share each batch of {entry.config['training']['batch_size']}, from the same seeds. The joint "
        "batch has the same gradient (a test says so). But sums taken in another order are rounded "
        "differently, and over thousands of steps this grows. So the question is whether the runs end alike. "
        "The means differ by "
        f"**{signed(metrics['rsum_difference'])}** in rsum.",
        table(["processes", *(f"seed {seed}" for seed in seeds), "mean rsum", "deviation over seeds"], rows),
    ]


def _proposals(entry: Record) -> list[str]:
    metrics, ways = entry.metrics, {"max_sim": "MaxSim", "means": "means of the sets", "both": "half each"}
    counts = sorted(
        int(name.split("_")[2]) for name in metrics if re.fullmatch(r"kept_of_\d+_by_max_sim", name)
    )
    rows = [
        [str(count), *(f"{metrics[f'kept_of_{count}_by_{way}']:.3f}" for way in ways)] for count in counts
    ]
    return [
        f"`{entry.config['name']}`, a short training on Flickr8k (rsum {metrics['rsum']:.1f}), gives sets of "
        f"{metrics['elements']} vectors. Quick similarities propose pictures, and the model's own ranks "
        f"them. {metrics['captions']:,} captions ask for {metrics['pictures']:,} pictures: of the exact ten "
        "best, this share is among those proposed. An index lets each of the two propose 100.",
        table(["proposed in all", *ways.values()], rows),
    ]


def _search(entry: Record) -> list[str]:
    metrics = entry.metrics
    sizes = {"real": entry.data["pictures"]} | {f"made_{size}": size for size in entry.config["sizes"]}
    rows = [
        [
            f"{size:,}",
            called,
            _time(metrics[f"{name}_{kind}_build_seconds"]),
            f"{metrics[f'{name}_{kind}_bytes_a_vector']:,.0f}",
            f"{metrics[f'{name}_{kind}_ms_a_query']:.3g}",
            f"{metrics[f'{name}_{kind}_recall_at_10']:.2f}",
        ]
        for name, size in sizes.items()
        for kind, (called, *_) in KINDS.items()
        if f"{name}_{kind}_build_seconds" in metrics
    ]
    unseen = []
    for name in filter(re.compile("trap_.*_learned_from_pictures").fullmatch, metrics):
        asked = name.removesuffix("_learned_from_pictures")
        index, by = asked.removeprefix("trap_").split("_by_")
        shares = (f"{metrics[f'{asked}_learned_from_{seen}']:.2f}" for seen in ("pictures", "both"))
        unseen.append([f"`{index.replace('_', ',')}`", by, *shares])
    return [
        f"Captions of Flickr8k ask for its {entry.data['pictures']:,} pictures, one at a time. For more "
        "pictures than there are, vectors are made from those by adding noise: they say what storage and "
        "time cost, but not that as many real pictures would be found as well. *Found* is the share of the "
        "exact ten best.",
        table(["vectors", "index", "built in", "bytes a vector", "ms a query", "found"], rows),
        "### Indexes that never saw a caption",
        "A quantised index learns its codebooks or cells from examples. Pictures and captions lie in "
        "different parts of the space (the cosine of their means is "
        f"{metrics['trap_cosine_of_the_means']:.2f}), so an index that learned from pictures alone has never "
        "seen what it will be asked with. Here is the share of the exact ten that is found, beside indexes "
        "that learned from as many examples, half of them captions. The pictures that ask are in the index "
        "themselves:",
        table(["index", "asked by", "learned from pictures", "from both"], unseen),
    ]


SECTIONS: dict[str, tuple[str, Callable[[Record], list[str]]]] = {
    "end_to_end": ("From photographs to a search", _end_to_end),
    "streaming": ("Features larger than memory", _streaming),
    "processes": ("Several processes, one batch", _processes),
    "proposals": ("Searching by sets of vectors", _proposals),
    "search": ("Searching", _search),
}
"""The title of each benchmark's part of the page, and what makes its words and tables from the record."""


def _on_paper(entry: Record, embedding: Record | None) -> list[str]:
    """A search in more pictures than anybody here has, from the largest sizes that were measured."""
    metrics, rows = entry.metrics, []
    for kind, (called, build, query) in KINDS.items():
        of_kind: Mapping[int, str] = {size: f"made_{size}_{kind}" for size in entry.config["sizes"]}
        size = max(size for size, name in of_kind.items() if f"{name}_build_seconds" in metrics)
        name = of_kind[size]
        rows.append(
            [
                called,
                f"{metrics[f'{name}_bytes_a_vector'] * PLANNED / 1e9:,.1f} GB",
                _time(metrics[f"{name}_build_seconds"] * build(PLANNED) / build(size)),
                _time(metrics[f"{name}_ms_a_query"] / 1000 * query(PLANNED) / query(size)),
                f"{metrics[f'{name}_recall_at_10']:.2f} among {size:,}",
            ]
        )
    lines = [
        f"### {PLANNED:,} pictures, on paper",
        f"We have no {PLANNED:,} pictures. But bytes add up, and we know how time grows: with the number of "
        "vectors where a query is compared with all of them, with its square root where there are that many "
        "cells and a query looks into a fixed number, and with its logarithm in a graph. So the largest "
        "sizes above say what to expect of one thread. How many are found cannot be worked out like this; "
        "the last column says what was found at the size measured.",
        table(["index", "memory", "built in", "a query", "found, and among how many"], rows),
    ]
    if embedding is not None:
        one = embedding.metrics["index_processor_seconds"] / embedding.metrics["indexed_pictures"]
        lines.append(
            f"Before that, every picture must be embedded. One takes {_time(one)} here, so all of them take "
            f"{_time(one * PLANNED)} on one thread: this, and not the index, is what needs GPUs or many "
            "machines. Beyond the memory of one machine, a Qdrant server splits a collection into shards."
        )
    return lines


def _time(seconds: float) -> str:
    """Say how long something took, in a unit that suits it."""
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    if seconds >= 1:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.2g} ms"
