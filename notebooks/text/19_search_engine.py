# ---
# jupyter:
#   jupytext:
#     formats: ipynb,text//py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From a folder to an engine
#
# **You will be able to** turn a folder of pictures into a search engine, say what an answer costs and what each shortcut loses,
# and plan an engine for ten million pictures.
#
# **You need** the notebooks [The joint space](03_joint_space.ipynb) and, for one section, [Slots](14_slots.ipynb).
#
# **It takes** about 2 minutes and 1 GB of memory on two cores; the exercises take an hour and a quarter.
#
# The map: encode → pool → **compare** → learn.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import dataclasses
import tempfile
from pathlib import Path
from unittest import mock

import faiss
import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown
from PIL import Image

import course
from vsecore import records
from course import plots
from course.datasets import open_backbone
from course.engine import FIRST_RECIPE, first_engine
from course.widgets import search_box
from vsecore.scoring import encode
from vsecore.paths import results
from vsecore.recipes import get
from vsecore.search import Engine, Found, Index
from vsecore.search.reference import flat, quantised, recall, top
from vsecore.similarity import max_sim, smooth_chamfer

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
faiss.omp_set_num_threads(torch.get_num_threads())

# %% [markdown]
# ## A folder that answers
#
# We make a folder of pictures, as a camera would leave it, and build an index of it with the trained network of
# [Start here](00_start_here.ipynb). Then a sentence asks.

# %% tags=["hide-input"]
dataset = lesson.dataset("grid")
backbone = open_backbone(data, lesson.data_root)
if data == "scenes":
    model, words = first_engine()
else:
    trained = lesson.trained(FIRST_RECIPE, dataset)
    model, words = trained.model, trained.tokenizer
device = next(model.parameters()).device
engine = Engine(model, words, "first engine", backbone=backbone.to(device))

# %%
home = tempfile.TemporaryDirectory(prefix="vse-search-")
album = Path(home.name) / "holidays"
album.mkdir()
count = lesson.pick(smoke=60, lesson=300, full=1000)
for row, picture in enumerate(lesson.pictures("test", range(count))):
    Image.fromarray(picture).save(album / f"{row:04d}.png")


# %% tags=["hide-input"]
def show_found(found: list, heading: str, is_sentence: bool = True) -> None:
    rows = [int(one.path.stem) for one in found]
    truth, remark = lesson.true_of(heading, "test", rows) if is_sentence else (None, "")
    figure = plots.picture_row(
        [np.asarray(Image.open(one.path)) for one in found],
        [f"{one.path.name}, {one.score:.2f}" for one in found],
        marked=truth,
        heading=heading + remark,
    )
    plots.show(
        figure,
        alt=f"Five pictures for: {heading}. Below each are its file and its score; a tick marks those of which the sentence is true.",
    )


# %%
index = Index.build(album, engine)
show_found(index.search("two boats on the lake", k=5), "two boats on the lake")

# %% [markdown]
# Under each picture are its file and its score. A frame and a tick say that the sentence is true of it; without them, the picture is a mistake.
#
# A picture can ask, too. The index numbers its pictures from one, so `0004.png` is number 5:

# %%
asking = Found(5, album / "0004.png", 1.0)  # its cosine with itself
show_found([asking, *index.like(5, k=4)], "more like 0004.png", is_sentence=False)

# %% [markdown]
# The first picture is the one that asks. `like` leaves it out of its answer, and we put it back to compare.
#
# In JupyterLab, try sentences of your own.

# %% tags=["remove-output"]
search_box(lambda sentence: show_found(index.search(sentence, k=5), sentence))

# %% [markdown]
# ## What an index holds
#
# An index keeps a vector for each picture and the *number* by which the picture is known. A score is the cosine of two vectors.
# It orders the pictures for one query. It is not a probability, and scores of different queries cannot be compared.
#
# Exact search compares the query with every vector. If the vectors lie on a disk, they are read block by block, and only the best so far are kept.
#
# ```{exercise} Search block by block
# :label: ex-19-exact
#
# Return the scores and the rows of the `k` vectors with the largest dot product with `query`, the best first. `vectors` may be a file: slice it, and
# never ask for more than `block` rows at once. If there are fewer than `k` vectors, return all.
# ```
#
# ```{hint}
# :class: dropdown
#
# Put the best so far and the block's scores together, sort, keep `k`. Which row of the file is row 0 of a block?
# ```

# %%
from course.checks import exercise


@exercise("19.exact")
def exact_search(vectors, query, k, block):  # (n, D), (D,) -> (k,) scores, (k,) rows
    # your part
    scores, rows = np.empty(0), np.empty(0, dtype=int)
    for start in range(0, len(vectors), block):
        part = vectors[start : start + block] @ query  # (b,)
        scores = np.concatenate([scores, part])
        rows = np.concatenate([rows, start + np.arange(len(part))])
        best = np.argsort(-scores, kind="stable")[:k]
        scores, rows = scores[best], rows[best]
    return scores, rows
    # end of your part


# %% [markdown]
# ````{solution} ex-19-exact
# :class: dropdown
#
# The result never depends on `block`. Each block is one matrix product, so many queries at once cost little more than one.
# ````
#
# The package keeps an index in one SQLite file and compares a query with every vector in it. For very many pictures a server of Qdrant
# {cite}`qdrant2025docs`, a database of vectors, can do that. FAISS {cite}`johnson2021faiss` is a library of indexes in memory. Here all three searches are
# exact, so they agree:

# %%
numbers, vectors = index.all_vectors()  # (n,), (n, D)
query = engine.sentence("two boats on the lake")  # (D,)
_, rows = exact_search(vectors, query, 10, block=64)
print(
    "Package:",
    numbers[rows].tolist() == [one.number for one in index.search("two boats on the lake")],
)
print("FAISS:  ", rows.tolist() == top(flat(vectors), query[None])[0].tolist())

# %% [markdown]
# ## What exact search costs
#
# Exact search reads every number of every vector once, so its time should grow with the number of vectors. The next sections build two faster ways,
# *cells* and *a byte a number*; a graph (HNSW {cite}`malkov2020hnsw`) links each vector to near ones and walks along the links. *The exact ten* are
# those that exact search puts first.
#
# The record below was measured with photographs' vectors of width 512; for the larger sizes, vectors were made from them by adding noise.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
(measured,) = records.find(results(), name="benchmark_search")
kinds = {
    "exact": "flat",
    "a byte a number": "sq8",
    "cells": "ivf_flat",
    "cells, a byte a number": "ivf_sq8",
    "graph (HNSW)": "hnsw",
}
sizes = {"real": measured.data["pictures"], "made_100000": 100_000, "made_1000000": 1_000_000}
exact_ms = [measured.metrics[f"{size}_flat_ms_a_query"] for size in list(sizes)[1:]]
lesson.finding(
    "ten times the vectors, about ten times the time", 8 < exact_ms[1] / exact_ms[0] < 12
)


def lines(value: str) -> dict:
    there = {}
    for name, kind in kinds.items():
        keys = {size: f"{size}_{kind}_{value}" for size in sizes}
        keys = {size: key for size, key in keys.items() if key in measured.metrics}
        there[name] = (
            [sizes[size] for size in keys],
            [measured.metrics[k] for k in keys.values()],
        )
    return there


figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.5))
plots.curves(panels[0], lines("ms_a_query"), x="vectors", y="milliseconds a query")
plots.curves(panels[1], lines("recall_at_10"), x="vectors", y="share of the exact ten")
panels[0].set(xscale="log", yscale="log")
panels[1].set(xscale="log", ylim=(0.7, 1.02))
for axes in panels:
    axes.get_legend().remove()
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
plots.show(
    figure,
    alt="On the left, milliseconds a query against the number of vectors, both logarithmic: the exact search grows in proportion, searches in cells or in a graph grow more slowly. On the right, the share of the exact ten that each finds, which falls for all but the exact search.",
)

# %% [markdown]
# Between the larger sizes, ten times the vectors take exact search about ten times as long. All the others are faster because they skip something,
# and so they miss something. How much depends on their settings, for which the record has one choice each: the graph, for one, has 32 links a vector
# and keeps 16 candidates as it walks, FAISS's default. More candidates find more, and take longer. Noise that is alike in all directions is hard on
# it, too, so do not read its fall as that of real collections. (A graph of a million took too long to build here.) *Recall* in this notebook is the
# share of the exact ten that a faster search finds. Two things can be skipped: vectors, or digits.
#
# ## Skip vectors: look into a few cells
#
# An *inverted file* {cite}`sivic2003video` sorts the vectors into cells beforehand. K-means finds the centres of the cells: it moves each centre to
# the mean of the vectors nearest to it, again and again. Each vector belongs to the centre with which it has the largest dot product. A query looks
# only into the cells whose centres fit it best. From here on we search a larger collection: the pictures of the training and the development split.
# The queries are captions and pictures of the test split, so none of them is in it.

# %%
sides = {
    name: encode(model, getattr(dataset, name), words) for name in ("train", "dev", "test")
}
collection, captions_seen = (
    np.concatenate([sides[name][side].vectors.numpy() for name in ("train", "dev")])
    for side in (0, 1)
)
queries = {
    "captions ask": sides["test"][1].vectors[::5].numpy(),
    "pictures ask": sides["test"][0].vectors.numpy(),
}
exact = {who: top(flat(collection), asked) for who, asked in queries.items()}  # (q, 10)

# %%
cells = lesson.pick(smoke=16, lesson=64, full=256)
kmeans = faiss.Kmeans(collection.shape[1], cells, seed=seed + 1, spherical=True)
kmeans.train(collection)
centres = kmeans.centroids  # (cells, D)
cell_of = (collection @ centres.T).argmax(1)  # (n,)
members = [np.flatnonzero(cell_of == cell) for cell in range(cells)]

# %% [markdown]
# ```{exercise} Search in cells
# :label: ex-19-cells
#
# Look into the `probes` cells whose centres have the largest dot products with the query, and return the `k` best rows found there, the best first.
# `members` lists
# the rows of each cell. If these cells hold fewer than `k`, return what there is.
# ```

# %%
from course.checks import exercise


@exercise("19.cells")
def search_cells(query, centres, members, vectors, k, probes):  # -> (k,) rows
    # your part
    nearest = np.argsort(-(centres @ query))[:probes]
    rows = np.concatenate([members[cell] for cell in nearest])
    return rows[np.argsort(-(vectors[rows] @ query))[:k]]
    # end of your part


# %% [markdown]
# ````{solution} ex-19-cells
# :class: dropdown
#
# The centres cost `len(centres)` dot products, and the cells cost one for each of their rows. With about $\sqrt{n}$ cells for $n$ vectors, both are small.
# ````
#
# FAISS's inverted file, given the same centres, finds the same rows. Then captions and pictures look into more and more cells. Cells chosen at random would
# give the dotted line.

# %%
inverted = faiss.IndexIVFFlat(
    flat(centres), collection.shape[1], cells, faiss.METRIC_INNER_PRODUCT
)
inverted.train(collection)
inverted.add(collection)
inverted.nprobe = 4
some = queries["captions ask"][:50]
mine = [search_cells(one, centres, members, collection, 10, inverted.nprobe) for one in some]
print("as FAISS:", np.mean(np.stack(mine) == top(inverted, some)) > 0.99)

# %%
probed = [probes for probes in (1, 2, 4, 8, 16, 32) if probes <= cells // 2]
kept = {who: [] for who in queries}
for inverted.nprobe in probed:
    for who, asked in queries.items():
        kept[who].append(recall(top(inverted, asked), exact[who]))

# %% tags=["hide-input"]
sorted_cells = {who: np.argsort(-(asked @ centres.T), 1) for who, asked in queries.items()}
filling = np.bincount(cell_of, minlength=cells) / len(collection)
looked = {
    who: [filling[order[:, :p]].sum(1).mean() for p in probed]
    for who, order in sorted_cells.items()
}
figure, axes = plt.subplots(figsize=(6.4, 3.4))
plots.curves(
    axes,
    {who: (looked[who], kept[who]) for who in queries},
    x="share of the vectors looked at",
    y="share of the exact ten",
)
axes.plot([0, 1], [0, 1], ":", color="0.5")
axes.set(xlim=(0, max(looked["captions ask"][-1], 0.6)), ylim=(0, 1.03))
axes.annotate(
    "cells at random",
    (0.3, 0.28),
    rotation=45,  # of the line y = x, in the axes' own units
    transform_rotates_text=True,
    rotation_mode="anchor",
    va="top",
    color="0.4",
)
plots.show(
    figure,
    alt="The share of the exact ten that is found against the share of vectors looked at, for captions and for pictures as queries. Both curves rise steeply and stand far above the dotted line of cells chosen at random.",
)

# %% tags=["nbval-ignore-output"]
course.numbers(
    {
        f"{who}, {p} of {cells} cells (%)": 100 * value
        for who in queries
        for p, value in zip(probed[:3], kept[who], strict=False)
    }
)

# %% tags=["hide-input"]
captions_kept, pictures_kept = (kept[who][:3] for who in queries)
lesson.finding(
    "four cells of 64 hold most of the ten", min(captions_kept[2], pictures_kept[2]) > 0.75
)
lesson.finding(
    "captions need more cells",
    all(a < b - 0.03 for a, b in zip(captions_kept, pictures_kept, strict=True)),
)

# %% [markdown]
# A few well-chosen cells hold most of the answer. Captions need more of them than pictures do; we come back to that.
#
# ## Skip digits: fewer bytes for each vector
#
# The other way is to store less of each vector. *Scalar quantisation* keeps a byte for each number in place of a float's four.
#
# ```{exercise} A byte for each number
# :label: ex-19-levels
#
# In each dimension, 256 levels stand at equal distances from `low`, level 0, to `high`, level 255. Return the number of the nearest level for each
# number of the vectors, as bytes. Numbers outside the range get the level at its end.
# ```

# %%
from course.checks import exercise


@exercise("19.levels")
def to_levels(vectors, low, high):  # (n, D), (D,), (D,) -> (n, D) bytes
    # your part
    levels = np.round((vectors - low) / (high - low) * 255)
    return levels.clip(0, 255).astype(np.uint8)
    # end of your part


# %% [markdown]
# ````{solution} ex-19-levels
# :class: dropdown
#
# A byte cannot hold 256: without `clip` it would become 0, the far end of the range. The vectors are built again by `low + levels / 255 * (high - low)`.
# ````
#
# FAISS's own levels (`SQ8`) should keep about as much.

# %% tags=["nbval-ignore-output"]
low, high = collection.min(0), collection.max(0)
again = low + to_levels(collection, low, high) / np.float32(255) * (high - low)
asked, wanted = queries["captions ask"], exact["captions ask"]
of_bytes = {
    "to_levels, of the exact ten (%)": flat(again),
    "FAISS's, of the exact ten (%)": quantised("SQ8", collection, collection),
}
of_bytes = {name: 100 * recall(top(made, asked), wanted) for name, made in of_bytes.items()}
course.numbers(of_bytes)

# %% tags=["hide-input"]
lesson.finding("a byte a number loses hardly anything", min(of_bytes.values()) > 97.5)

# %% [markdown]
# A byte for each number loses hardly anything. *Product quantisation* {cite}`jegou2011pq` goes further. It cuts a vector into $M$ parts, and each
# part is replaced by the nearest of a few *codewords*, which k-means learns. All that is stored is which codeword each part has. A score is then a
# sum over parts,
#
# $$q \cdot x \approx \sum_{j=1}^{M} q_j \cdot \hat x_j ,$$
#
# where $\hat x_j$ is the codeword of part $j$. The query stays as it is. It meets each codeword once, and after that a score takes only look-ups.
#
# ```{exercise} How many bytes
# :label: ex-19-bytes
#
# A vector of 512 numbers is cut into 128 parts, and each part has 16 codewords. How many bytes does its code take?
# ```

# %%
from course.checks import check

your_bytes = 128 * 4 / 8  # your part: a number
check("19.bytes", your_bytes)

# %% [markdown]
# ````{solution} ex-19-bytes
# :class: dropdown
#
# It takes four bits to name one of 16 codewords, so two parts share a byte. Floats would take 2,048 bytes.
# ````
#
# ```{exercise} Scores from codes
# :label: ex-19-table
#
# `codebooks` holds W codewords for each of M parts, and `codes` the number of the codeword for each vector and part. Return the approximate score
# of every vector.
# ```
#
# ```{hint}
# :class: dropdown
#
# First a table (M, W): the dot product of each part of the query with each codeword of that part.
# ```

# %%
from course.checks import exercise


@exercise("19.table")
def scores_from_codes(query, codebooks, codes):  # (D,), (M, W, D/M), (n, M) -> (n,)
    # your part
    parts = query.reshape(len(codebooks), -1)  # (M, D/M)
    table = np.einsum("md,mwd->mw", parts, codebooks)  # (M, W)
    return table[np.arange(len(codebooks)), codes].sum(1)  # (n, M) -> (n,)
    # end of your part


# %% [markdown]
# ````{solution} ex-19-table
# :class: dropdown
#
# Building the vectors again and multiplying gives the same numbers, but needs the memory that the codes saved.
# ````
#
# FAISS packs two codes into a byte. Unpacked, they should give FAISS's scores.

# %%
parts = collection.shape[1] // 4
pq = faiss.IndexPQ(collection.shape[1], parts, 4, faiss.METRIC_INNER_PRODUCT)
pq.train(collection)
pq.add(collection)
codebooks = faiss.vector_to_array(pq.pq.centroids).reshape(parts, 16, 4)
packed = faiss.vector_to_array(pq.codes).reshape(len(collection), -1)  # two codes a byte
codes = np.stack([packed & 15, packed >> 4], 2).reshape(len(collection), parts)
one = queries["captions ask"][0]
theirs, _ = pq.search(one[None], len(collection))
np.testing.assert_allclose(
    np.sort(scores_from_codes(one, codebooks, codes))[::-1], theirs[0], atol=1e-4
)
print(f"{4 * collection.shape[1]} bytes a vector become {packed.shape[1]}; as FAISS")

# %% [markdown]
# ## The trap: an index that saw only pictures
#
# Codewords are learned from examples, and an index of pictures has pictures at hand. But captions will ask. Do they live in the same
# place? We draw the test split along the line that joins the mean caption and the mean picture; the middle is dotted.

# %% tags=["hide-input"]
both = np.concatenate(
    [sides["test"][side].vectors[:: 5 if side else 1].numpy() for side in (0, 1)]
)
is_picture = np.arange(len(both)) < len(both) // 2
means = [both[is_picture].mean(0), both[~is_picture].mean(0)]
between = (means[0] - means[1]) / np.linalg.norm(means[0] - means[1])
along = (both - (means[0] + means[1]) / 2) @ between  # zero is in the middle of the two means
rest = both - np.outer(both @ between, between)
across = (rest - rest.mean(0)) @ np.linalg.svd(rest - rest.mean(0), full_matrices=False)[2][0]
figure, axes = plt.subplots(figsize=(5.6, 3.6))
for name, chosen, mark, colour in (
    ("captions", ~is_picture, "o", plots.COLOURS[0]),
    ("pictures", is_picture, "s", plots.COLOURS[1]),
):
    axes.plot(
        along[chosen], across[chosen], mark, label=name, color=colour, markersize=3, alpha=0.4
    )
axes.axvline(0, color="0.5", linestyle=":")
axes.set(xlabel="along the line between the two means", ylabel="across it, widest direction")
axes.legend()
plots.show(
    figure,
    alt="Vectors of pictures and captions in two dimensions. Along the line that joins the mean picture and the mean caption, pictures lie more to the right and captions more to the left of a dotted line, and the two clouds overlap.",
)

# %% tags=["nbval-ignore-output"]
cosine = means[0] @ means[1] / np.linalg.norm(means[0]) / np.linalg.norm(means[1])
own_side = np.mean((along > 0) == is_picture)
course.numbers(
    {
        "cosine of the mean picture and the mean caption (%)": 100 * cosine,
        "on their own side of the middle (%)": 100 * own_side,
    }
)

# %% tags=["hide-input"]
lesson.finding("the clouds overlap, but most lie on their own side", 0.7 < own_side < 0.95)

# %% [markdown]
# The clouds overlap, but most vectors lie on their own side. This is the *modality gap* {cite}`liang2022gap`: training asks only that a picture be
# nearer to its caption than to others, so the two kinds may lie apart. Towers trained on photographs often have a much wider gap. So one might want
# to learn the codewords from captions as well.
#
# ```{exercise} What mends it?
# :label: ex-19-trap
#
# Captions ask. The codewords are learned from equally many examples: "pictures alone", "half captions" or "captions alone". Which of them keeps the
# most of the exact ten? Or is it "no difference"?
# ```

# %%
from course.checks import check

your_prediction = "half captions"  # your part
check("19.trap", your_prediction)

# %% [markdown]
# ````{solution} ex-19-trap
# :class: dropdown
#
# Look at what is quantised: the indexed vectors, and these are pictures. A caption that asks is never replaced by codewords, so codewords learned
# from captions serve vectors that are not in the index.
# ````
#
# Now we learn all three.

# %%
dice = np.random.default_rng(seed)
n = len(collection)
some = captions_seen[dice.permutation(len(captions_seen))[:n]]
mixed = np.concatenate([collection[dice.permutation(n)[: n // 2]], some[: n - n // 2]])
examples = {"pictures alone": collection, "half captions": mixed, "captions alone": some}
learned = {name: quantised(f"PQ{parts}x4", collection, seen) for name, seen in examples.items()}


# %% tags=["nbval-ignore-output"]
def shares(found, wanted):  # of each query's exact ten, what was found
    pairs = zip(wanted, found, strict=True)
    return np.array([np.isin(right, there).mean() for right, there in pairs])


of_ten = {
    (name, who): shares(top(pq, asked), exact[who])
    for name, pq in learned.items()
    for who, asked in queries.items()
}
trap = {key: 100 * share.mean() for key, share in of_ten.items()}
course.numbers({f"{name}, {who} (%)": value for (name, who), value in trap.items()})

# %% tags=["hide-input"]
by_captions, by_pictures = ([trap[name, who] for name in examples] for who in queries)
lesson.finding(
    "captions lose more, whatever the codewords were learned from",
    all(a < b - 5 for a, b in zip(by_captions, by_pictures, strict=True)),
)
lesson.finding("half captions mend nothing", abs(by_captions[1] - by_captions[0]) < 2)
lesson.finding(
    "captions alone fit the pictures a little worse",
    by_captions[2] + by_pictures[2] < by_captions[0] + by_pictures[0] - 1,
)

# %% [markdown]
# Whatever the codewords were learned from, captions lose more than pictures do. Codewords move each score by an error, and the order changes where
# scores lie closer together than that. So we compare the error with the distance from the tenth best score to the fiftieth.

# %% tags=["nbval-ignore-output"]
error = collection - learned["pictures alone"].reconstruct_n(0, n)  # (n, D)
spread = {}
for who, asked in queries.items():
    places = -np.sort(-(collection @ asked[:200].T), axis=0)  # (n, q)
    apart = (places[9] - places[49]).mean()
    spread[f"{who}: error over distance (%)"] = 100 * (error @ asked[:200].T).std() / apart
course.numbers(spread)

# %% tags=["hide-input"]
for_captions, for_pictures = spread.values()
lesson.finding("the error is larger for captions", for_captions > for_pictures + 5)

# %% [markdown]
# By that measure the error is larger when captions ask.
#
# What helps is *re-ranking*, as in [Full scale](18_full_scale.ipynb): the codes propose more pictures than are wanted, and the
# exact vectors of these few, read from the disk, decide.

# %%
counts = [10, 20, 50, 100, 200]
looks = {who: [] for who in queries}
pq = learned["pictures alone"]
for who, asked in queries.items():
    proposed = top(pq, asked[:200], max(counts))  # (q, 200)   by their codes, the best first
    for count in counts:
        scores = np.einsum("qnd,qd->qn", collection[proposed[:, :count]], asked[:200])
        best = np.argsort(-scores, 1)[:, :10]
        found = np.take_along_axis(proposed[:, :count], best, 1)
        looks[who].append(recall(found, exact[who][:200]))

# %% tags=["hide-input"]
lesson.finding(
    "ten times as many proposals bring it back", min(one[3] for one in looks.values()) > 0.95
)

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2), width_ratios=(1.15, 1))
for place, (who, mark) in enumerate(zip(queries, "os", strict=True)):
    rows = [of_ten[name, who] for name in examples]
    panels[0].errorbar(
        [row.mean() for row in rows],
        range(len(rows)),
        xerr=[1.96 * row.std() / len(row) ** 0.5 for row in rows],
        fmt=mark,
        color=plots.COLOURS[place],
        label=who,
        markersize=4,
        capsize=3,
    )
panels[0].set_yticks(range(len(examples)), list(examples))
panels[0].set(
    xlabel="share of the exact ten, without re-ranking", xlim=(0, 1), ylim=(2.5, -0.5)
)
panels[0].legend()
plots.curves(
    panels[1],
    {who: (counts, looks[who]) for who in queries},
    x="proposed, then ranked exactly",
    y="share of the exact ten",
)
panels[1].set(xscale="log", ylim=(0, 1.03))
panels[1].set_xticks(counts, counts)
panels[1].minorticks_off()
plots.show(
    figure,
    alt="On the left, the share of the exact ten for codewords learned from three kinds of examples; captions as queries stand left of pictures as queries, with intervals that do not touch. On the right, the share after more and more proposed pictures were ranked again: both curves rise towards one.",
)

# %% [markdown]
# Do captions among the examples help here? No. It makes no difference that matters whether half of the examples are captions, and captions alone do a
# little worse. Captions as queries lose more than pictures do in each case. The bars are 95 % intervals over queries. What helps is to propose more:
# ten times as many as are wanted bring nearly all back (right).

# %% tags=["hide-input", "results", "nbval-ignore-output"]
recorded = {
    (kind, seen): 100 * measured.metrics[f"trap_{kind}_by_captions_learned_from_{seen}"]
    for kind in ("pq128x4", "ivf128_flat")
    for seen in ("pictures", "both")
}
lesson.finding("a wide gap", round(measured.metrics["trap_cosine_of_the_means"], 2) == 0.07)
lesson.finding(
    "63 and 63, 81 and 66", [round(one) for one in recorded.values()] == [63, 63, 81, 66]
)

# %% [markdown]
# Our gap is narrow. In the record of photographs it is wide: the cosine of the two means is 0.07. There too, captions kept 63 % of the exact ten by
# product quantisation, whether it had learned from pictures alone or half from captions. With cells, examples that are half captions did harm: 66 %
# in place of 81 %.
#
# **What it means.** Codewords and cells must fit what is stored, and these are pictures; a caption among the examples takes the place of one. What
# captions need is more digits, more cells, or re-ranking. If you measure an index by asking with pictures, you overrate it.
#
# **How sure we are.** This is one world, one model, and one run of k-means for each; the record has another model on photographs. We have not tried
# codewords that are learned for the scores of real queries {cite}`guo2020scann`.
#
# ## Sets: MaxSim proposes
#
# Some systems keep a set of vectors for each picture (see [Slots](14_slots.ipynb)). The smooth-Chamfer similarity compares all pairs of two sets'
# vectors, which no index of single vectors can do. But Qdrant and others search sets by *MaxSim*, which takes the best partner of each vector of the
# query and adds up. So MaxSim proposes, and the exact similarity ranks. The means of the sets can propose too, or each can propose half. We train a
# small DivE {cite}`kim2023dive` and ask how many must be proposed to have the ten that smooth-Chamfer puts first.

# %% tags=["hide-input"]
quick = {"dim": 64, "text.encoder.word_dim": 64, "losses.triplet.warmup_epochs": 1}
options = {"hidden": 64, "heads": 1, "drop": 0.0}
quick |= {
    f"{side}.pool.{k}": value for side in ("image", "text") for k, value in options.items()
}
short = {"epochs": 2, "batch_size": 32, "learning_rate": 4e-3, "set_factor": 1.0}
short |= {"warmup_steps": 0, "schedule": "cosine"}
quick |= {f"training.{k}": value for k, value in short.items()}
scale = lesson.pick(smoke=quick | {"training.epochs": 1}, lesson=quick, full={})
size = lesson.pick(smoke=300, lesson=1200, full=len(dataset.train))
part = dataclasses.replace(
    dataset,
    train=dataset.train.subset(size),
    dev=dataset.dev.subset(min(100, len(dataset.dev))),
)
dive = lesson.trained(get("dive_grid_gru", scale), part)

# %%
v, t = (side.vectors for side in encode(dive.model, dataset.test, dive.tokenizer))
t = t[:: max(1, len(t) // 200)]  # (C, K, D)
counts = [count for count in counts if 2 * count <= len(v)]
best = smooth_chamfer(v, t).topk(10, 0).indices.numpy()  # (10, C)   the exact ten
ways = {"MaxSim": max_sim(v, t), "means of the sets": v.mean(1) @ t.mean(1).T}  # (Ni, C)


def share_kept(*proposing, count):  # of the exact ten, if these propose `count` in all
    rows = [scores.topk(count // len(proposing), 0).indices.numpy() for scores in proposing]
    rows = np.concatenate(rows)
    return np.mean([np.isin(best[:, c], rows[:, c]).mean() for c in range(best.shape[1])])


# %% tags=["hide-input"]
proposals = {
    name: [share_kept(scores, count=c) for c in counts] for name, scores in ways.items()
}
proposals["half by each"] = [share_kept(*ways.values(), count=c) for c in counts]
figure, axes = plt.subplots(figsize=(6.4, 3.2))
plots.curves(
    axes,
    {name: (counts, values) for name, values in proposals.items()},
    x="pictures proposed",
    y="share of the exact ten",
)
axes.set(xscale="log", ylim=(min(map(min, proposals.values())) - 0.05, 1.02))
axes.set_xticks(counts, counts)
axes.minorticks_off()
plots.show(
    figure,
    alt="Of the exact ten by smooth-Chamfer, the share among the pictures that are proposed, against how many are, for MaxSim, for the means of the sets, and for half by each. All curves rise towards one.",
)

# %% tags=["nbval-ignore-output"]
course.numbers(
    {
        f"{name}, {count} proposed (%)": 100 * proposals[name][counts.index(count)]
        for name in proposals
        for count in (20, counts[-1])
    }
)

# %% tags=["hide-input"]
lesson.finding(
    "with 200 proposed, nearly all is there", min(p[-1] for p in proposals.values()) > 0.98
)
lesson.finding("ten proposed are too few", max(p[0] for p in proposals.values()) < 0.97)

# %% tags=["hide-input", "results", "nbval-ignore-output"]
kept_there = {n: measured.metrics.get(f"sets_kept_of_{n}", np.nan) for n in (20, 100, 200)}
Markdown(
    f"On {measured.metrics['sets_pictures']:,.0f} photographs, a longer trained DivE kept "
    + ", ".join(f"{100 * value:.1f} % with {n} proposed" for n, value in kept_there.items())
    + " by MaxSim. So `vsecore.search` lets MaxSim and the means propose a hundred each, and ranks them all exactly."
)

# %% [markdown]
# How many must be proposed depends on the model and the collection: compare with the exact order on queries of your own.
#
# ## Keep it honest
#
# A folder changes, programs are killed, models are replaced. We index the album again, on disk this time, and stage a power cut after the first
# batch. Then we delete a file, replace one and damage one, and open the index with another model.


# %%
class PowerCut(Exception):
    pass


def cut_after(batches):  # the engine's `pictures`, which fails after some batches
    whole = engine.pictures

    def some(files, batch_size):
        for number, batch in enumerate(whole(files, batch_size)):
            if number == batches:
                raise PowerCut
            yield batch

    return mock.patch.object(engine, "pictures", some)


# %%
kept_in = Path(home.name) / "index"
try:
    with cut_after(1):
        Index.build(album, engine, kept_in)
except PowerCut:
    print("killed with", len(Index.load(kept_in, engine)), "pictures")
resumed = Index.build(album, engine, kept_in)
print(resumed.report.kept, "kept,", resumed.report.added, "added")
same = [one.path.name for one in resumed.search("a dog")] == [
    one.path.name for one in index.search("a dog")
]
print("finds what the undisturbed index finds:", same)

# %%
(album / "0000.png").unlink()
(album / "0001.png").write_bytes(
    (album / "0002.png").read_bytes()
)  # another picture, the same name
(album / "0003.png").write_bytes(b"no picture")
report = resumed.add(album)
print(report.removed, "removed,", report.changed, "changed,", report.kept, "as before")
print("left out:", *(path.name for path in report.broken))

# %%
other = Engine(
    FIRST_RECIPE.build(len(engine.features([album / "0002.png"])[0][0]), words),
    words,
    "another model",
    backbone=backbone,
)
try:
    Index.load(kept_in, other)
except ValueError as refused:
    print(str(refused).replace(str(kept_in), "…"))

# %% [markdown]
# Nothing was lost, every change was noticed, and the other model was refused. The index knows each file by its bytes, writes each batch as a whole or
# not at all, and carries a fingerprint of all that decides its vectors. Vectors of the other model have the same width, so nothing else would stop
# them.
#
# ## Break it: rows as names
#
# Why does every picture have a number? Suppose a row's place were its name. An album has a thousand pictures. The picture in row 250 is deleted (rows
# count from zero), its vector is taken out, and the list of names stays as it was.
#
# ```{exercise} Rows as names
# :label: ex-19-break
#
# How many of the remaining 999 pictures are now shown under another's name?
# ```

# %%
from course.checks import check

your_count = 999 - 250  # your part: a number
check("19.break", your_count)

# %% [markdown]
# ````{solution} ex-19-break
# :class: dropdown
#
# All that came after it have moved up by one row. No message tells you; the search just shows wrong pictures.
# ````
#
# The same in our album, where each picture asks for itself:

# %%
names = [index.store.entry(int(number)).path.name for number in numbers]
gone = len(names) // 4
shorter = np.delete(vectors, gone, axis=0)  # and `names` stays as it was
first = [names[exact_search(shorter, vectors[row], 1, 64)[1][0]] for row in range(len(names))]
wrong = sum(a != b for row, (a, b) in enumerate(zip(names, first, strict=True)) if row != gone)
print(f"{wrong} of {len(shorter)} pictures that ask for themselves get another's name")

# %% [markdown]
# A number that stays with its picture, and is never given again, cannot slip like this.
#
# ## Ten million pictures, on paper
#
# For each kind of index, take the bytes a vector, the time to build and the time of a query from the record
# at a million vectors, and scale them up.
#
# ```{exercise} Ten million
# :label: ex-19-plan
#
# Ten million vectors of 512 numbers, a byte for each number, and eight bytes for each picture's own number: how many GB (billions of bytes)
# of memory?
# ```

# %%
from course.checks import check

your_gigabytes = 10_000_000 * (512 + 8) / 1e9  # your part
check("19.plan", your_gigabytes)

# %% [markdown]
# ````{solution} ex-19-plan
# :class: dropdown
#
# A tenth more or less does not matter: one ordinary machine can hold it.
# ````

# %% tags=["hide-input", "results", "nbval-ignore-output"]
million = {
    name: {
        value: measured.metrics[f"made_1000000_{kind}_{value}"]
        for value in ("bytes_a_vector", "build_seconds", "ms_a_query", "recall_at_10")
    }
    for name, kind in {**kinds, "product quantisation": "pq128x4"}.items()
    if f"made_1000000_{kind}_ms_a_query" in measured.metrics
}
Markdown(
    "| index | memory, GB | build, minutes | a query, ms | of the exact ten, at a million |\n| --- | ---: | ---: | ---: | ---: |\n"
    + "".join(
        f"| {name} | {one['bytes_a_vector'] / 100:,.1f} | {one['build_seconds'] / 6:,.1f} | "
        f"{one['ms_a_query'] * (10**0.5 if 'cells' in name else 10):,.0f} | {one['recall_at_10']:.2f} |\n"
        for name, one in million.items()
    )
    + f"\nFrom one thread of {measured.device}. Cells: twice as many vectors need √2 times as many cells, each √2 times as full."
)

# %% [markdown]
# The first two rows are simple and slow. Cells with a byte for each number answer quickly from the memory of an ordinary machine. Product
# quantisation needs the least memory, and alone it keeps few of the ten. That it takes as long as exact search is its plain scan, which looks up one
# code after the other; FAISS also has a fast scan for codes of four bits (`PQ128x4fs`), which keeps its tables in the processor's registers, and
# which we have not timed. The recall is that of made vectors, whose noise is alike in all directions: measure yours on a sample before you decide.
#
# The minutes to build are ten times those at a million; cells may take longer, since each vector meets more centres. Embedding takes far longer: at
# fifteen pictures a second, say, more than a week. Machines can share that.
#
# ## Your own pictures
#
# The same engine is three commands. Give the first one again whenever the folder changes.
#
# ```bash
# vse search index photos/holidays --recipe clip_base_patch32   # or --run RUN, a training of yours
# vse search "two dogs on the beach"
# vse search page                                               # a page in your browser
# ```
#
# The page has a box to type in, a button to send a picture, and *More like this* under each picture found. It serves your machine alone, loads
# nothing from the network and knows pictures by their numbers only, so no address can ask for another file. For more than a few hundred thousand
# pictures, `--url` hands the vectors to a Qdrant server. If the answers are poor, write captions for some pictures: `vse search tune` trains
# further on them.
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | exact search | `exact_search` | `vsecore.search.Index` |
# | inverted file (Sivic and Zisserman) | `search_cells` | `vsecore.search.reference.quantised`, `IVF64,Flat` |
# | asymmetric distance (Jégou et al., section III) | `scores_from_codes` | `vsecore.search.reference.quantised`, `PQ48x4` |
# | MaxSim (ColBERT, eq. 3) | the section on sets | `vsecore.similarity.max_sim`; `Index.nearest` proposes by it |
#
# ## Change one thing
#
# ```{exercise} Change one thing
# :label: ex-19-explore
#
# The next cell combines cells and codes, with half the parts that we had. Change `your_cells`, `your_probes` or
# `your_parts`. Write what you expect of recall before you run the cell, and afterwards what came out.
# ```

# %% tags=["nbval-ignore-output"]
your_cells, your_probes, your_parts = 32, 4, 24  # change one of these; parts must divide D
mine = quantised(f"IVF{your_cells},PQ{your_parts}x4", collection, collection)
mine.nprobe = your_probes
yours = {who: 100 * recall(top(mine, asked), exact[who]) for who, asked in queries.items()}
course.numbers({f"{who} (%)": value for who, value in yours.items()})

# %%
from course.checks import check

your_expectation = "Half the bytes lose more than a quarter of the ten"  # your part
your_finding = f"captions keep {yours['captions ask']:.0f} %"  # your part
check("19.explore", (your_expectation, your_finding))

# %% tags=["remove-cell"]
for opened in (index, resumed):
    opened.close()
home.cleanup()

# %% [markdown]
# ````{solution} ex-19-explore
# :class: dropdown
#
# Cells and codes lose in different ways, and re-ranking mends only what the codes lost: a picture in a cell that was not looked into is never proposed.
# ````
#
# ## Summary
#
# - Exact search is one product and a running top-k; its time grows with the number of vectors.
# - Cells skip vectors and codes skip digits; both are judged by the share of the exact ten that they keep.
# - Measure with the queries that people will ask: captions can lose more than pictures do, and re-ranking by exact vectors mends most of it.
# - Numbers, checksums and a fingerprint keep an index true to its folder and its model.
#
# ## Where to read on
#
# - The library: {cite}`johnson2021faiss`. Product quantisation and its inverted file: {cite}`jegou2011pq`. Graphs of neighbours: {cite}`malkov2020hnsw`.
# - Why pictures and captions lie apart: {cite}`liang2022gap`. Codewords learned for the scores that matter: {cite}`guo2020scann`.
# - *Late interaction* at scale: {cite}`khattab2020colbert`.
