"""The figures and tables of notebook 19: what searches cost, cells, the modality gap, ideas and controls."""

from collections.abc import Mapping, Sequence

import faiss
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from course.dots import gap as gap_of
from course.plots import (
    COLOURS,
    MARKERS,
    Span,
    bare,
    curve_panels,
    draw_picture,
    picture_row,
    show,
    shown,
    spans,
)
from course.wording import table
from vsecore.experiments import studied

KINDS = {
    "exact": "flat",
    "a byte a dimension": "sq8",
    "cells": "ivf_flat",
    "cells, a byte a dimension": "ivf_sq8",
    "graph (HNSW)": "hnsw",
}
"""How readers call the indexes of the record."""
IDEAS = {
    "AdPool (10)": ("2ad_pooling", "AdPool", {"the mean": "mean", "the maximum": "max"}),
    "AdOpt (11)": (
        "2ad_negatives",
        "AdOpt, released",
        {"the hardest negative from the start": "hardest triplet", "all negatives": "always 127"},
    ),
    "three kinds of features (12)": (
        "2ad_ensembles",
        "RGP",
        {"one system": "R", "one kind, three runs": "RRR"},
    ),
    "a constraint (16)": (
        "latent_targets",
        "BL + LTD, constraint",
        {"no target": "BL", "the target as a second loss, equally heavy": "BL + LTD, dual, weight 5"},
    ),
}
"""Ideas of the course: an experiment, its arm, and the arms of a plain baseline and of a fair control."""
Gains = dict[str, list[tuple[str, Span]]]


def found(said: str, pictures: Sequence[np.ndarray], titles: Sequence[str], true: list[bool] | None) -> None:
    """Show what a search found, with the names and scores; a tick marks what the sentence is true of."""
    figure = picture_row(pictures, titles, marked=true, heading=said)
    ticks = "" if true is None else "; a tick marks those of which the sentence is true"
    show(figure, alt=f"Five pictures for: {said}. Below each are its file and its score{ticks}.")


@shown("""On the left, milliseconds a query against the number of vectors, both logarithmic: the exact search
    grows in proportion, searches in cells or in a graph grow more slowly. On the right, the share of the
    exact ten that each finds, which falls for all but the exact search.""")
def speed(metrics: Mapping[str, float], real: int) -> Figure:
    """Show milliseconds a query and the share of the exact ten against the number of vectors."""
    sizes = {"real": real, "made_100000": 100_000, "made_1000000": 1_000_000}
    labels = {"ms_a_query": "milliseconds a query", "recall_at_10": "share of the exact ten"}
    panels: dict[str, dict[str, tuple[list[int], list[float]]]] = {label: {} for label in labels.values()}
    for value, label in labels.items():
        for name, kind in KINDS.items():
            keys = {count: f"{size}_{kind}_{value}" for size, count in sizes.items()}
            known = {count: metrics[key] for count, key in keys.items() if key in metrics}
            panels[label][name] = list(known), list(known.values())
    for lines in panels.values():
        lines["graph (HNSW), to 100,000"] = lines.pop("graph (HNSW)")
    figure, (left, right) = curve_panels(panels, x="vectors", size=(8.6, 3.5))
    left.set(xscale="log", yscale="log")
    right.set_ylim(0.7, 1.02)
    return figure


@shown("""On the left, points in a plane divided into cells, each with a cross at its centre; a star is the
    query, and the three cells nearest to it are coloured. On the right, a row of pictures from each of the
    three cells that the real query looks into first: those of one cell look alike.""")
def cells(vectors: np.ndarray, query: np.ndarray, rows: Sequence[Sequence[np.ndarray]]) -> Figure:
    """Show cells and a query in a plane, and beside it pictures of the cells that a real query looks into.

    What is searched is (n, D) and the query (D,). The pictures of each real cell come with the nearest first.
    """
    centred = vectors - vectors.mean(0)
    plane = np.linalg.svd(centred[:1000], full_matrices=False)[2][:2]  # the two widest directions
    points, at = centred @ plane.T, (query - vectors.mean(0)) @ plane.T
    points = np.ascontiguousarray(points, dtype=np.float32)
    kmeans = faiss.Kmeans(2, 16, seed=1)
    kmeans.train(points)
    centres = np.asarray(kmeans.centroids)
    low, high = points.min(0), points.max(0)
    mesh = np.stack(np.meshgrid(*(np.linspace(low[i], high[i], 300) for i in (0, 1))), -1)
    of = ((mesh[:, :, None] - centres) ** 2).sum(-1).argmin(-1)
    probed = ((centres - at) ** 2).sum(1).argsort()[:3]

    figure = plt.figure(figsize=(9.4, 3.6))
    left, right = np.ravel(figure.subfigures(1, 2, width_ratios=(1, 1.15), squeeze=False))
    axes = left.subplots()
    bare(axes)
    light, extent = ListedColormap(["white", "#FFE1A8"]), (low[0], high[0], low[1], high[1])
    axes.imshow(np.isin(of, probed), extent=extent, origin="lower", cmap=light, aspect="auto")
    for cell in range(len(centres)):
        axes.contour(mesh[..., 0], mesh[..., 1], of == cell, [0.5], colors="0.6", linewidths=0.7)
    axes.plot(*points.T, ".", color=COLOURS[0], markersize=1.5, alpha=0.5)
    axes.plot(*centres.T, "k+", markersize=6)
    axes.plot(*at, "*", color=COLOURS[1], markersize=14, markeredgecolor="black")
    axes.set_title("cells in a plane")
    grid = right.subplots(len(rows), len(rows[0]))
    for place, (row, pictures) in enumerate(zip(grid, rows, strict=True), 1):
        for axes, pixels in zip(row, pictures, strict=True):
            draw_picture(axes, pixels)
        row[0].set_ylabel(f"cell {place}", fontsize=9)
    return figure


@shown("""Vectors of pictures and captions in two dimensions. Along the line that joins the mean picture and
    the mean caption, pictures lie more to the right and captions more to the left of a dotted line, and the
    two clouds overlap.""")
def gap(along: np.ndarray, across: np.ndarray, is_picture: np.ndarray) -> Figure:
    """Show vectors of pictures and captions along the line between their means, and across it."""
    figure, axes = plt.subplots(figsize=(5.6, 3.6))
    for name, chosen, place in (("captions", ~is_picture, 0), ("pictures", is_picture, 1)):
        (dots,) = axes.plot(along[chosen], across[chosen], MARKERS[place], markersize=3, alpha=0.4)
        dots.set(color=COLOURS[place], label=name)
    axes.axvline(0, color="0.5", linestyle=":")
    axes.set(xlabel="along the line between the two means", ylabel="across it, widest direction")
    figure.legend(loc="outside upper left", ncols=2, markerscale=2)  # the cloud fills the panel
    return figure


def ten_million(metrics: Mapping[str, float]) -> Markdown:
    """The record at a million vectors, scaled up to ten million."""
    rows = []
    for name, kind in {**KINDS, "product quantisation": "pq128x4"}.items():
        key = f"made_1000000_{kind}"
        if f"{key}_ms_a_query" in metrics:
            longer = 10**0.5 if "cells" in name else 10  # √10 times as many cells, each √10 times as full
            gigabytes, minutes = metrics[f"{key}_bytes_a_vector"] / 100, metrics[f"{key}_build_seconds"] / 6
            query, share = metrics[f"{key}_ms_a_query"] * longer, metrics[f"{key}_recall_at_10"]
            rows.append([name, f"{gigabytes:,.1f}", f"{minutes:,.1f}", f"{query:,.0f}", f"{share:.2f}"])
    heads = ["index", "memory, GB", "build, minutes", "a query, ms", "of the exact ten, at a million"]
    return Markdown(table(heads, rows))


def ideas() -> Gains:
    """For each idea and both comparisons: with what, and the mean gain with the ends of its interval."""
    found = {idea: studied(name, "scenes") for idea, (name, *_) in IDEAS.items()}
    return {
        idea: [(label, gap_of(found[idea][arm], found[idea][other])) for label, other in against.items()]
        for idea, (_, arm, against) in IDEAS.items()
    }


@shown("""Four ideas of the course, and what each gains in rsum over its plain baseline and over a fair
    control, with 95 % intervals. Each gain over the control is at most half as large.""")
def controls(gains: Gains) -> Figure:
    """Show what ideas gain over a plain baseline and over a fair control, each with its 95 % interval."""
    figure, axes = plt.subplots(figsize=(8, 3.4))
    for which, label in enumerate(("the baseline", "a fair control")):
        shift, pairs = 0.36 * which - 0.18, {idea: pair[which] for idea, pair in gains.items()}
        spans(axes, {idea: span for idea, (_, span) in pairs.items()}, style=which, shift=shift, label=label)
        for place, (against, (*_, high)) in enumerate(pairs.values()):
            end = high, place + shift
            axes.annotate(against, end, (6, 0), textcoords="offset points", fontsize=8.5, va="center")
    axes.axvline(0, color="0.5", linestyle=":")
    axes.set(xlabel="gain in rsum", xlim=(-3, 88))
    axes.legend(title="compared with", loc="lower right")
    return figure
