"""The page of costs in the book: what training and search take at full scale, from the records of benchmarks.

Its words stand in `costs.md.jinja`; here are its tables.
"""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from course.wording import signed, table, typeset
from vsecore import records
from vsecore.records import Record
from vsecore.training.planning import duration

BENCHMARKS = ("end_to_end", "streaming", "processes", "proposals", "search")
COMMANDS = {
    "check": "`vse data check`",
    "extract": "`vse data extract`",
    "train": "`vse train`",
    "evaluate": "`vse evaluate`",
    "index": "`vse search index`",
    "query": "`vse search`, one query",
    "all": "all",
}
KINDS = {
    "flat": "all numbers, exact",
    "sq8": "a byte a number",
    "pq128x4": "128 codes of 4 bits",
    "ivf_flat": "cells, all numbers",
    "ivf_sq8": "cells, a byte a number",
    "hnsw": "a graph of neighbours",
}
"""The kinds of index, as readers call them."""


def page(kept: Path) -> str:
    """The page, in MyST Markdown. It names what has not been recorded."""
    kept_ones = records.find(kept) if kept.is_dir() else []
    found = {entry.name.removeprefix("benchmark_"): entry for entry in kept_ones}
    loader = FileSystemLoader(Path(__file__).parent)
    pages = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    pages.filters |= {"duration": duration, "signed": signed}
    tables = {name: rows(found[of]) for name, (of, rows) in TABLES.items() if of in found}
    known = {name: found.get(name) for name in BENCHMARKS}
    return typeset(pages.get_template("costs.md.jinja").render(tables=tables, **known)) + "\n"


def _commands(entry: Record) -> str:
    metrics, clocks = entry.metrics, ("seconds", "processor_seconds")
    rows = [[said, *(duration(metrics[f"{k}_{clock}"]) for clock in clocks)] for k, said in COMMANDS.items()]
    return table(["command", "by the clock", "of the processor"], rows)


def _processes(entry: Record) -> str:
    metrics, seeds = entry.metrics, entry.config["seeds"]
    columns = [*(f"seed{seed}_rsum" for seed in seeds), "rsum", "rsum_deviation"]
    rows = [
        [str(count), *(f"{metrics[f'{count}_{word}_{column}']:.1f}" for column in columns)]
        for count, word in ((1, "process"), (entry.processes, "processes"))
    ]
    return table(["processes", *(f"seed {one}" for one in seeds), "mean rsum", "deviation over seeds"], rows)


def _proposals(entry: Record) -> str:
    ways = {"max_sim": "MaxSim", "means": "means of the sets", "both": "half each"}
    found = (re.fullmatch(r"kept_of_(\d+)_by_max_sim", name) for name in entry.metrics)
    counts = sorted(int(name[1]) for name in found if name)
    kept = entry.metrics
    rows = [[str(k), *(f"{kept[f'kept_of_{k}_by_{way}']:.3f}" for way in ways)] for k in counts]
    return table(["proposed in all", *ways.values()], rows)


def _search(entry: Record) -> str:
    metrics, rows = entry.metrics, []
    sizes = {"real": entry.data["pictures"]} | {f"made_{size}": size for size in entry.config["sizes"]}
    for name, size in sizes.items():
        for kind, called in KINDS.items():
            key = f"{name}_{kind}"
            if f"{key}_build_seconds" in metrics:  # the slow kinds are not built at every size
                built = duration(metrics[f"{key}_build_seconds"])
                query = f"{metrics[f'{key}_ms_a_query']:.3g}"
                stored, share = metrics[f"{key}_bytes_a_vector"], metrics[f"{key}_recall_at_10"]
                rows.append([f"{size:,}", called, built, f"{stored:,.0f}", query, f"{share:.2f}"])
    return table(["vectors", "index", "built in", "bytes a vector", "ms a query", "found"], rows)


def _unseen(entry: Record) -> str:
    rows = []
    for name in entry.metrics:
        if asked := re.fullmatch("(trap_(.*)_by_(.*)_learned_from_)pictures", name):
            shares = (f"{entry.metrics[asked[1] + seen]:.2f}" for seen in ("pictures", "both"))
            rows.append([f"`{asked[2].replace('_', ',')}`", asked[3], *shares])
    return table(["index", "asked by", "learned from pictures", "from both"], rows)


TABLES = {
    "commands": ("end_to_end", _commands),
    "processes": ("processes", _processes),
    "proposals": ("proposals", _proposals),
    "search": ("search", _search),
    "unseen": ("search", _unseen),
}
"""The tables of the page: the benchmark of each, and what makes it of its record."""
