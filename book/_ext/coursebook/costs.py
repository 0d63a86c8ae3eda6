"""The page of costs in the book: what training and search take at full scale, from the records."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
}


@dataclass(frozen=True)
class Kind:
    """A kind of index: its name for readers, and how its costs grow with n vectors."""

    called: str
    build: Callable[[float], float]
    """Proportional to the time that building takes."""
    query: Callable[[float], float]
    """Proportional to the time of a query."""


def _linear(n: float) -> float:
    return n


KINDS = {
    "flat": Kind("all numbers, exact", _linear, _linear),
    "qdrant_embedded": Kind("Qdrant in Python, exact", _linear, _linear),
    "sq8": Kind("a byte a number", _linear, _linear),
    "pq128x4": Kind("128 codes of 4 bits", _linear, _linear),
    # As many cells as the root of n: a vector is compared with all cells, a query with cells and a few lists.
    "ivf_flat": Kind("cells, all numbers", lambda n: n**1.5, math.sqrt),
    "ivf_sq8": Kind("cells, a byte a number", lambda n: n**1.5, math.sqrt),
    "hnsw": Kind("a graph of neighbours", lambda n: n * math.log(n), math.log),
}


def lay_costs(folder: Path, kept: Path | None = None) -> None:
    """Write the page of costs.

    Args:
        folder: of the page, which exists.
        kept: the folder of records; None: the repository's. What is not recorded, the page says so.
    """
    (folder / f"{PAGE}.md").write_text(page(assets() / "results" if kept is None else kept), encoding="utf-8")


def page(kept: Path) -> str:
    """The page, in MyST Markdown."""
    found = {entry.name: entry for entry in records.find(kept)} if kept.is_dir() else {}
    parts = [
        "# What full scale costs, as measured",
        "Building the book makes this page from the records of benchmarks, so none of its numbers was typed "
        "by hand. They hold for the machine that is named. Other programs ran on it as well, which makes "
        "times longer. `vse plan` says what a training takes on your machine.",
    ]
    for name, write in SECTIONS.items():
        title, lines = write(found.get(f"benchmark_{name}"), found)
        parts += [f"## {title}", *(lines or [f"Not recorded yet: `tests/benchmarks/{name}.py` measures it."])]
    return "\n\n".join(parts) + "\n"


Section = tuple[str, list[str]]


def _machine(entry: Record) -> str:
    return f"({entry.device}, one thread a process, {entry.date}.)"


def _end_to_end(entry: Record | None, found: Mapping[str, Record]) -> Section:
    title = "From photographs to a search"
    if entry is None:
        return title, []
    told, clocks = entry.metrics, ("seconds", "processor_seconds")
    rows = [
        [called, *(_time(told[f"{name}_{clock}"]) for clock in clocks)]
        for name, called in {**COMMANDS, "all": "all"}.items()
    ]
    return title, [
        "All of Flickr8k by the commands of the README, one after the other: features of "
        f"`{entry.config['backbone']}`, the recipe `{entry.config['recipe']['name']}`, and an index of "
        f"{told['indexed_pictures']:,} pictures. It ends with a test rsum of {told['rsum']:.1f}. No command "
        f"had more than {told['largest_command_gb']:.1f} GB of memory. {_machine(entry)}",
        table(["command", "by the clock", "of the processor"], rows),
    ]


def _streaming(entry: Record | None, found: Mapping[str, Record]) -> Section:
    title = "Features larger than memory"
    if entry is None:
        return title, []
    told = entry.metrics
    return title, [
        f"Drawn numbers of COCO's exact shape lie on disk, {told['features_gb']:.1f} GB of regions in half "
        f"precision, and `{entry.config['recipe']}` is trained on them. Its steps are "
        f"**{told['disk_speed_over_memory']:.2f} times** as fast as steps on features that are in memory. "
        f"The process had at most {told['disk_rss_gb']:.1f} GB of memory. {entry.config['steps']} steps "
        f"wanted {told['wanted_gb']:.2f} GB of features, and {told['disk_read_gb']:.2f} GB were read. "
        f"{_machine(entry)}"
    ]


def _processes(entry: Record | None, found: Mapping[str, Record]) -> Section:
    title = "Several processes, one batch"
    if entry is None:
        return title, []
    told, many = entry.metrics, entry.processes
    names = {1: "1_process", many: f"{many}_processes"}
    seeds = entry.config["seeds"]
    rows = [
        [
            str(count),
            *(f"{told[f'{name}_seed{seed}_rsum']:.1f}" for seed in seeds),
            f"{told[f'{name}_rsum']:.1f}",
            f"{told[f'{name}_rsum_deviation']:.1f}" if len(seeds) > 1 else "–",
        ]
        for count, name in names.items()
    ]
    return title, [
        f"`{entry.config['name']}` at the lesson scale on Flickr8k, by one process and by {many} that share "
        f"each batch of {entry.config['training']['batch_size']}, from the same seeds. The joint batch has "
        "the same gradient (a test says so). But sums in another order round another way, which grows over "
        "thousands of steps. So the question is whether the runs end alike. The means differ by "
        f"**{signed(told['rsum_difference'])}** in rsum. {_machine(entry)}",
        table(["processes", *(f"seed {seed}" for seed in seeds), "mean rsum", "deviation over seeds"], rows),
    ]


def _search(entry: Record | None, found: Mapping[str, Record]) -> Section:
    title = "Searching"
    if entry is None:
        return title, []
    sizes = {"real": entry.data["pictures"]} | {f"made_{size}": size for size in entry.config["sizes"]}
    lines = [
        f"Captions of Flickr8k ask for its {entry.data['pictures']:,} pictures, one at a time. For more "
        "pictures than there are, vectors are made from those by adding noise: they say what storage and "
        "time cost, but not that as many real pictures would be found as well. *Found* is the share of the "
        "exact ten best. *Qdrant in Python* compares a query with every vector in this process. The package "
        f"searched so until it got a search of its own; we had no Qdrant server to measure. {_machine(entry)}"
    ]
    for name, size in sizes.items():
        rows = [
            [
                kind.called,
                _time(entry.metrics[f"{name}_{key}_build_seconds"]),
                f"{entry.metrics[f'{name}_{key}_bytes_a_vector']:,.0f}",
                f"{entry.metrics[f'{name}_{key}_ms_a_query']:.3g}",
                f"{entry.metrics[f'{name}_{key}_recall_at_10']:.2f}",
            ]
            for key, kind in KINDS.items()
            if f"{name}_{key}_build_seconds" in entry.metrics
        ]
        lines += [
            f"**{size:,} vectors:**",
            table(["index", "built in", "bytes a vector", "ms a query", "found"], rows),
        ]
    return title, lines + _trap(entry) + _on_paper(entry, found)


def _trap(entry: Record) -> list[str]:
    told = entry.metrics
    names = [name.removeprefix("trap_") for name in told if name.startswith("trap_") and "_by_" in name]
    asked = dict.fromkeys(name.split("_learned_from_")[0] for name in names)
    rows = []
    for name in asked:
        index, by = name.split("_by_")
        shares = (f"{told[f'trap_{name}_learned_from_{seen}']:.2f}" for seen in ("pictures", "both"))
        rows.append([f"`{index.replace('_', ',')}`", by, *shares])
    return [
        "### Indexes that never saw a caption",
        "A quantised index learns its codebooks or cells from examples. Pictures and captions lie in "
        "different parts of the space (the cosine of their means is "
        f"{told['trap_cosine_of_the_means']:.2f}), so an index that learned from pictures alone has never "
        "seen what it will be asked with. Here is the share of the exact ten that is found, beside indexes "
        "that learned from as many examples, half of them captions. The pictures that ask are in the index "
        "themselves:",
        table(["index", "asked by", "learned from pictures", "from both"], rows),
    ]


def _proposals(entry: Record | None, found: Mapping[str, Record]) -> Section:
    title = "Searching by sets of vectors"
    if entry is None:
        return title, []
    told, ways = entry.metrics, {"max_sim": "MaxSim", "means": "means of the sets", "both": "half each"}
    counts = sorted(int(name.split("_")[2]) for name in told if re.fullmatch(r"kept_of_\d+_by_max_sim", name))
    rows = [[str(count), *(f"{told[f'kept_of_{count}_by_{way}']:.3f}" for way in ways)] for count in counts]
    return title, [
        f"`{entry.config['name']}`, a short training on Flickr8k (rsum {told['rsum']:.1f}), gives sets of "
        f"{told['elements']} vectors. Quick similarities propose pictures, and the model's own ranks them. "
        f"{told['captions']:,} captions ask for {told['pictures']:,} pictures: of the exact ten best, this "
        f"share is among those proposed. An index lets each of the two propose 100. {_machine(entry)}",
        table(["proposed in all", *ways.values()], rows),
    ]


def _on_paper(entry: Record, found: Mapping[str, Record]) -> list[str]:
    """A search in more pictures than anybody here has, from measured pieces."""
    told, rows, checked, built = entry.metrics, [], [], []
    for key, kind in KINDS.items():
        measured = [
            size for size in sorted(entry.config["sizes"]) if f"made_{size}_{key}_build_seconds" in told
        ]
        if not measured or key == "qdrant_embedded":
            continue
        most = measured[-1]

        def measure(name: str, size: int = most, key: str = key) -> float:
            return told[f"made_{size}_{key}_{name}"]

        rows.append(
            [
                kind.called,
                f"{measure('bytes_a_vector') * PLANNED / 1e9:,.1f} GB",
                _time(measure("build_seconds") * kind.build(PLANNED) / kind.build(most)),
                _time(measure("ms_a_query") / 1000 * kind.query(PLANNED) / kind.query(most)),
                f"{measure('recall_at_10'):.2f} among {most:,}",
            ]
        )
        checked += [
            measure("ms_a_query", one) * kind.query(other) / kind.query(one) / measure("ms_a_query", other)
            for one, other in itertools.pairwise(measured)
        ]
        if key.startswith("ivf"):
            built += [
                measure("build_seconds", one)
                * kind.build(other)
                / kind.build(one)
                / measure("build_seconds", other)
                for one, other in itertools.pairwise(measured)
            ]
    lines = [
        f"### {PLANNED:,} pictures, on paper",
        f"We have no {PLANNED:,} pictures. But bytes add up, and we know how time grows: with the number of "
        "vectors where a query is compared with all of them, with its square root where there are that many "
        "cells and a query looks into a fixed number, and with its logarithm in a graph. So the largest "
        "sizes above say what to expect of one thread. "
        + (
            "As a check, the same rules predict the query times of the larger size above from those of the "
            f"smaller: {min(checked):.1f} to {max(checked):.1f} times what was measured. "
            if checked
            else ""
        )
        + (
            "They say too much of the time that building cells takes: "
            f"{min(built):.1f} to {max(built):.1f} times what was measured. "
            if built and min(built) > 1
            else ""
        )
        + "How many are found cannot be worked out like this; the last column says what was found at the "
        "size measured.",
        table(["index", "memory", "built in", "a query", "found, and among how many"], rows),
    ]
    if (whole := found.get("benchmark_end_to_end")) is not None:
        one = whole.metrics["index_processor_seconds"] / whole.metrics["indexed_pictures"]
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


SECTIONS: dict[str, Callable[[Record | None, Mapping[str, Record]], Section]] = {
    "end_to_end": _end_to_end,
    "streaming": _streaming,
    "processes": _processes,
    "proposals": _proposals,
    "search": _search,
}
"""What each benchmark's part of the page is made by, in the order of the page."""
