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
# # Structural alignment
#
# **You will be able to** write two losses that compare parts of a picture with parts of a caption, node pooling and node cross-attention
# {cite}`yan2019relational`; see what they learn; and say whether they help retrieval.
#
# **You need** the notebook [Learning to rank](04_learning_to_rank.ipynb), and attention from
# [Relations](05_relations.ipynb).
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take about an hour and a quarter.
#
# The map: encode → pool → compare → **learn**.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import copy
import itertools
import statistics
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import LinearSegmentedColormap
from torch import nn
from torch.nn.functional import normalize

import course
from vsecore import experiments, scenes
from course import plots
from course.attention import Seen, word_maps
from course import dots
from vsecore.data.batches import make_loader
from vsecore.data.words import TokenizedCaptions, tokenize
from vsecore.evaluation import evaluate
from vsecore.losses import (
    NodePooling,
    node_cross_attention_loss,
    node_pooling_loss,
    triplet,
)
from vsecore.recipes import get
from vsecore.scenes.facts import SIDE
from vsecore.scenes.grammar import NOUN_WORDS
from vsecore.scenes.truth import NOUNS

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## Words that point
#
# We train a small system for one epoch. Its cells are projected one by one, a GRU reads its words, and both towers end with a mean. Its
# loss sees one vector for a picture and one for a caption, and nothing else.

# %%
dataset = lesson.dataset("grid")
recipe = get("vsepp_grid_gru").override(
    {
        "dim": lesson.pick(smoke=64, lesson=128, full=1024),
        "text.encoder.word_dim": lesson.pick(smoke=32, lesson=64, full=300),
        "training.epochs": 1,
        "training.learning_rate": 2e-3,
    }
)
run = lesson.trained(recipe, dataset)
tokenizer, D = run.tokenizer, recipe.dim

# %% [markdown]
# Each cell and each word has a vector too, the one that goes into the mean. We take their cosines: how similar is each cell to the
# word below the picture? The orange frame marks the most similar one.

# %%
row = 21  # of the development split's captions
caption, owner = dataset.dev.captions[row], int(dataset.dev.owner[row])
seen = Seen(lesson.pictures("dev", [owner])[0], np.array(dataset.dev.pictures[owner]))
maps = word_maps(run, seen, caption)
plots.show(maps.figure(columns=7), alt=maps.describe(peaks=False))

# %% [markdown]
# Look at the words that name a thing or a colour: many of them light up where it is, though a colour may find another thing that has it too. (A small word such as *one* shows what stands beside
# it, since the GRU has read its neighbours.) Nobody told the system which cell a word belongs to. Where does this come from?
#
# ## What one global loss does not say
#
# Let $v_i$ be the vector of cell $i$ and $t_j$ the vector of word $j$. If both towers end with a mean, then, up to the two lengths,
#
# $$s(v, t) \;\propto\; \Big(\sum_i v_i\Big) \cdot \Big(\sum_j t_j\Big) = \sum_i \sum_j v_i \cdot t_j .$$
#
# So the loss does compare cells with words: every cell with every word, all in one sum. It asks that the sum be large for the right pair,
# and never *which* terms make it so. A caption may win because one frequent word agrees a little with all cells.
#
# The thesis {cite}`yan2019relational` adds a second loss that compares parts with parts. It calls the parts *nodes*: here, cells and
# words. The difficulty is that a picture has 49 nodes and a caption a dozen, in no common order, and nobody knows which belong together.
# There are two ways out:

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2))
heights = {"cells": np.linspace(0, 1, 7), "words": np.linspace(0.15, 0.85, 4)}
for axes, title in zip(panels, ("node pooling", "node cross-attention"), strict=True):
    for (name, up), across, colour in zip(heights.items(), (0, 3), plots.COLOURS, strict=False):
        marker = "s" if name == "cells" else "o"
        axes.plot([across] * len(up), up, marker, color=colour, markersize=9)
        axes.annotate(name, (across, 1.1), ha="center", color=colour)
    axes.set(title=title, xlim=(-0.5, 3.5), ylim=(-0.12, 1.25))
    axes.axis("off")
for pool, up in enumerate((0.2, 0.5, 0.8)):
    for across, side, colour in (
        (1, "cells", plots.COLOURS[0]),
        (2, "words", plots.COLOURS[1]),
    ):
        start = 0 if side == "cells" else 3
        for place, other in enumerate(heights[side]):
            strong = 0.7 if place % 3 == pool else 0.12
            panels[0].plot(
                [start, across], [other, up], color=colour, alpha=strong, linewidth=1
            )
        panels[0].plot(across, up, "D", color=colour, markersize=10)
    panels[0].annotate(
        "", (1.9, up), (1.1, up), arrowprops={"arrowstyle": "<->", "color": plots.COLOURS[2]}
    )
panels[0].annotate("pools, compared one by one", (1.5, -0.08), ha="center", fontsize=9)
for up in heights["cells"]:
    for right in heights["words"]:
        strong = 0.8 if abs(up - right) < 0.13 else 0.12
        panels[1].plot([0, 3], [up, right], color="0.3", alpha=strong, linewidth=1)
panels[1].annotate(
    "every node looks at all nodes of the other side", (1.5, -0.08), ha="center", fontsize=9
)
plots.show(
    figure,
    alt="Two drawings. Left, node pooling: seven cells are collected into three pools, four words into three pools, and each pool of the "
    "cells is compared with the pool of the words that has the same number. Right, node cross-attention: every cell is joined with "
    "every word by a line, some lines strong and most of them weak.",
)

# %% [markdown]
# ## Node pooling
#
# *Node pooling* collects the nodes of each side in a fixed number of *pools*. From here on, $i$ counts pools. Pool $i$ owns a learned
# vector $w_i$, a question that it asks of every element. It gives element $x_j$ the share $a_{ij}$ and sums:
#
# $$a_{ij} = \frac{\exp(w_i \cdot x_j)}{\sum_k \exp(w_i \cdot x_k)}, \qquad p_i = \sum_j a_{ij}\, x_j .$$
#
# Pictures and captions share the same $w_i$. So afterwards both sides have equally many parts, and pool $i$ of a picture has a partner,
# pool $i$ of a caption.
#
# ```{exercise} Node pooling
# :label: ex-06-pool
#
# `x` is (B, N, D), `mask` is (B, N) and True where an element is real, and `W` is (P, D), a row for each pool. Return both the pools,
# (B, P, D), and their weights, (B, P, N). Padding may hold anything and must get no weight.
# ```
#
# ```{hint}
# :class: dropdown
#
# `W @ x.mT` is (B, P, N), since `.mT` swaps the last two dimensions. `mask[:, None]` has shape (B, 1, N).
# ```

# %%
from course.checks import exercise


@exercise("06.pool")
def node_pooling(x, mask, W):  # (B, N, D), (B, N), (P, D)
    # your part
    logits = W @ x.mT  # (B, P, N)
    a = logits.masked_fill(~mask[:, None], -torch.inf).softmax(-1)  # (B, P, N)
    return a @ x, a  # (B, P, D), (B, P, N)
    # end of your part


# %% [markdown]
# ````{solution} ex-06-pool
# :class: dropdown
#
# The softmax runs over the elements, so each pool hands out a weight of one. Minus infinity hides the padding: its exponential is zero.
# ````
#
# ## A hinge for each pool
#
# Now pools can be compared as whole vectors were. Write $p_i(v)$ for pool $i$ of picture $v$, and $p_i(t)$ for that of caption $t$. These
# two must be more similar to each other than either is to pool $i$ of a negative, by the margin. The negatives $t'$ and $v'$ are the
# hardest by the *global* similarity $S$, the same for all pools:
#
# $$\begin{aligned}
# \ell_{\mathrm{pool}} = \sum_i \Big( & [m + s(p_i(v), p_i(t')) - s(p_i(v), p_i(t))]_+ \\
# + & [m + s(p_i(v'), p_i(t)) - s(p_i(v), p_i(t))]_+ \Big) .
# \end{aligned}$$


# %%
def hardest(S, positives):  # (B, B) each
    negatives = S.masked_fill(positives, -torch.inf)
    return negatives.argmax(1), negatives.argmax(
        0
    )  # (B,), (B,)   t' of each row, v' of each column


# %% [markdown]
# ```{exercise} A hinge for each pool
# :label: ex-06-hinge
#
# Row b of `p` and row b of `q`, (B, P, D) each, are the pools of a picture and of its caption. `caption` and `picture`, (B,) each, are
# what `hardest` returns: the rows of each pair's negatives. Return the loss, summed over the pools and over the batch. $s$ is the cosine.
# ```
#
# ```{hint}
# :class: dropdown
#
# `q[caption]` holds, row by row, the pools of the hardest captions. `normalize(p, dim=-1)` scales vectors to length one.
# ```

# %%
from course.checks import exercise


@exercise("06.hinge")
def pool_loss(p, q, caption, picture, margin=0.2):  # (B, P, D), (B, P, D), (B,), (B,) -> ()
    # your part
    p, q = normalize(p, dim=-1), normalize(q, dim=-1)  # (B, P, D)
    own = (p * q).sum(-1)  # (B, P)
    to_caption = margin + (p * q[caption]).sum(-1) - own  # (B, P)
    to_picture = margin + (p[picture] * q).sum(-1) - own  # (B, P)
    return to_caption.clamp(min=0).sum() + to_picture.clamp(min=0).sum()
    # end of your part


# %% [markdown]
# ````{solution} ex-06-hinge
# :class: dropdown
#
# It is the hinge of one vector, with a dimension more. If every pool looked for a hardest negative of its own, the pools would compare a
# picture with different captions; here all of them learn what tells it from the one caption that the global similarity confuses it with.
# ````
#
# The package has both pieces:

# %%
x, y, W = torch.randn(9, 7, 6), torch.randn(9, 5, 6), torch.randn(4, 6)
x_mask, y_mask = (torch.arange(n) < torch.randint(1, n + 1, (9, 1)) for n in (7, 5))
pool, S, own = NodePooling(6, 4), torch.rand(9, 9), torch.eye(9) > 0
pool.weight.data = W
p, q = (node_pooling(*side, W)[0] for side in ((x, x_mask), (y, y_mask)))
torch.testing.assert_close(p, pool(x, x_mask))
torch.testing.assert_close(pool_loss(p, q, *hardest(S, own)), node_pooling_loss(p, q, S))
print("vsecore.losses.NodePooling and node_pooling_loss agree with both cells")

# %% [markdown]
# The thesis adds this loss to the global one, VSE++'s with the hardest negative:
#
# $$\ell = 0.2\,\ell_{\mathrm{global}} + 0.8\,\ell_{\mathrm{pool}} .$$


# %%
def global_only(S, positives, v, t, W):
    return triplet(S, positives=positives)


def with_pools(S, positives, v, t, W):
    p, q = (node_pooling(side.elements, side.mask, W)[0] for side in (v, t))  # (B, P, D)
    second = pool_loss(p, q, *hardest(S, positives))
    return 0.2 * global_only(S, positives, v, t, W) + 0.8 * second


# %% [markdown]
# Each training starts from the model of the first section and goes on for the same number of steps. Only the loss differs.

# %% tags=["hide-input"]
read = TokenizedCaptions.encode(tokenizer, dataset.train.captions)


def batches(steps):
    """Batches of the epochs after the first."""
    size = min(128, len(dataset.train))
    epochs = (
        make_loader(dataset.train, read, size, seed=seed, epoch=epoch)
        for epoch in itertools.count(1)
    )
    for batch in itertools.islice(itertools.chain.from_iterable(epochs), steps):
        yield batch.to("cpu")  # features lie in half precision; this makes them float32


enough = lesson.pick(smoke=5, lesson=120, full=1500)  # steps


# %%
def trained_on(loss, begin, steps=None):
    model = copy.deepcopy(run.model).train()
    W = nn.Parameter(begin.clone())  # (P, D)
    weights = [*model.parameters(), W]
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    for batch in batches(steps or enough):
        v, t = model(batch)  # vectors, elements and mask of both sides
        optimizer.zero_grad()
        loss(model.scores(v, t), batch.positives, v, t, W).backward()
        nn.utils.clip_grad_norm_(weights, 2.0)
        optimizer.step()
    return model.eval(), W.detach()


# %%
torch.manual_seed(seed)
random_pools = torch.randn(8, D)  # (P, D)
without, unused = trained_on(global_only, random_pools)
pooled, W = trained_on(with_pools, random_pools)

# %% [markdown]
# ## What the pools learn
#
# Here are the eight pools on the picture from above and on its caption. A coloured cell has a large weight; below each picture stand the
# words with the largest weights. (The marks *start* and *end* frame every caption, and they are nodes too.)

# %% tags=["hide-input"]
few = dataset.dev.subset(min(500, len(dataset.dev)))
pictures = torch.from_numpy(np.array(few.pictures, dtype=np.float32))  # (Ni, N, F)
all_real = torch.ones(pictures.shape[:2], dtype=torch.bool)
tokens, real_words = tokenizer.encode(few.captions)  # (Nc, L) each


@torch.no_grad()
def both_sides(model):
    """The development split's pictures and captions as a model has them."""
    return model.encode_pictures(pictures, all_real), model.encode_captions(tokens, real_words)


def shares(model, W):
    """The pools' weights on all pictures (Ni, P, N) and on all captions (Nc, P, L)."""
    return [node_pooling(side.elements, side.mask, W)[1] for side in both_sides(model)]


on_cells, on_words = (
    share[place] for share, place in zip(shares(pooled, W), (owner, row), strict=True)
)
words = ["(start)", *tokenize(caption), "(end)"]
side = int(on_cells.shape[1] ** 0.5)
figure, grid = plt.subplots(2, len(W) // 2, figsize=(9.2, 5.8))
rgb = [int(plots.COLOURS[1][at : at + 2], 16) / 255 for at in (1, 3, 5)]
veil = LinearSegmentedColormap.from_list(
    "weight", [(*rgb, 0.0), (*rgb, 0.7)]
)  # nothing to vermilion
pale = 0.45 * seen.pixels.mean(2) / 255 + 0.55
for number, (axes, cells, share) in enumerate(
    zip(grid.flat, on_cells, on_words, strict=True), 1
):
    axes.imshow(pale, cmap="gray", vmin=0, vmax=1)
    large = np.kron(cells.reshape(side, side), np.ones((pale.shape[0] // side,) * 2))
    axes.imshow(large, cmap=veil, vmin=0, vmax=1)
    best = share.argsort(descending=True)[:3].tolist()
    axes.set_xlabel(
        "\n".join(f"{words[place]} {100 * share[place]:.0f} %" for place in best), fontsize=9
    )
    axes.set(title=f"pool {number}", xticks=[], yticks=[])
    axes.grid(False)
figure.colorbar(axes.images[-1], ax=grid, label="weight of a cell", shrink=0.7)
figure.suptitle(caption, fontsize=11)
plots.show(
    figure,
    alt="Eight times the same picture in grey, once for each pool, with the pool's weight of each cell in orange. "
    "Below each stand the three words of the caption with the largest weights, and their weights.",
)

# %% [markdown]
# A pool that looks at the woman and reads *woman* agrees with itself. A pool that looks at a thing which the caption never names cannot.
#
# One example proves nothing. Do pool $i$ of the picture and pool $i$ of the caption mean the same thing? The scenes let us measure it,
# since we know which words name a thing, and where that thing stands. Suppose that pool 5 of a caption reads *woman*. How much of its
# weight on the picture does pool 5 put on the woman, and how much does pool 3? We average this over all such words, each counted by the
# share that the reading pool gives it. If the pools agree, then the pool that reads a word looks at its thing more than the others do.
# The random pools that we began with, in the model trained without them, show what comes without any training of pools. They agree
# a little already: both sides ask with the same $w_i$, and the global loss has brought a word and its thing close in the joint space.

# %% tags=["hide-input"]
kinds = {
    word: NOUNS[noun]
    for noun, names in NOUN_WORDS.items()
    if noun in NOUNS
    for pair in names
    for word in pair
}


def cover(box):
    """The share of each cell that lies in a thing's box, (N,)."""
    edges = np.linspace(0, SIDE, side + 1)
    across, down = (
        np.clip(np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1]), 0, None)
        * side
        / SIDE
        for low, high in ((box[0], box[2]), (box[1], box[3]))
    )
    return np.outer(down, across).flatten()


def words_that_name():
    """Each word that names something in its picture: its caption, place and picture, and the thing's cells."""
    made, rows = scenes.pictures("dev", len(dataset.dev)), []
    for number, (text, whose) in enumerate(zip(few.captions, few.owner, strict=True)):
        for place, word in enumerate(tokenize(text), 1):  # place 0 is the mark of the start
            boxes = [
                one.box for one in made[whose].scene.things if one.kind in kinds.get(word, ())
            ]
            if boxes:
                rows.append((number, place, whose, np.max([cover(box) for box in boxes], 0)))
    number, place, whose, cells = (np.array(column) for column in zip(*rows, strict=True))
    return SimpleNamespace(
        caption=number, word=place, picture=whose, cells=torch.from_numpy(cells).float()
    )


named = words_that_name() if data == "scenes" else None  # photographs come without boxes


# %%
def meeting(model, W):  # (P, P): pool i reads a word, pool k looks at the thing
    looks, reads = shares(model, W)  # (Ni, P, N), (Nc, P, L)
    there = (looks[named.picture] * named.cells[:, None]).sum(-1)  # (M, P)   M words that name
    here = reads[named.caption, :, named.word]  # (M, P)
    return 100 * here.T @ there / here.sum(0)[:, None]  # percent of pool k's weight


def summary(met):
    own, count = met.trace() / len(met), len(met) ** 2 - len(met)
    return {"the pool itself": own, "another pool": (met.sum() - met.trace()) / count}


# %% tags=["hide-input"]
if named is not None:
    met = {
        "global loss alone": meeting(without, random_pools),
        "with node pooling": meeting(pooled, W),
    }
    agreed = {
        f"{name}, {when} (%)": value
        for when, one in met.items()
        for name, value in summary(one).items()
    }
    agreed["a weight spread over the whole picture (%)"] = 100 * named.cells.mean()
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.7), sharey=True)
    top = max(float(one.max()) for one in met.values())
    for axes, (when, one) in zip(panels, met.items(), strict=True):
        image = axes.imshow(one, vmin=0, vmax=top)
        ticks = range(len(one)), range(1, len(one) + 1)
        axes.set(
            title=when,
            xlabel="the pool that looks",
            xticks=ticks[0],
            yticks=ticks[0],
        )
        axes.set_xticklabels(ticks[1])
        axes.set_yticklabels(ticks[1])
        axes.grid(False)
    panels[0].set_ylabel("the pool that reads")
    figure.colorbar(image, ax=panels, label="weight on the thing, %")
    plots.show(
        figure,
        alt="Two tables of eight by eight, the pool that reads a word in the rows and the pool that looks at the picture in the columns. A "
        "colour says how much of its weight the second puts on the thing that the first reads of. With the global loss alone the diagonal "
        "hardly stands out; with node pooling, it is brighter than the rest.",
    )

# %% tags=["nbval-ignore-output"]
course.numbers(agreed) if named is not None else None

# %% tags=["hide-input"]
if named is not None:
    leads = {  # how much more of its weight a pool puts on the thing than other pools do
        when: summary(one)["the pool itself"] - summary(one)["another pool"]
        for when, one in met.items()
    }
    lesson.finding(
        "with node pooling a pool agrees with itself more than with others, clearly more than random pools do",
        bool(leads["with node pooling"] > leads["global loss alone"] + 3),
    )
    lesson.finding("random pools agree a little", bool(leads["global loss alone"] > 1))
    lesson.finding(
        "a pool that reads a word puts far more on its thing than an even weight would, but not even half",
        bool(
            100 * named.cells.mean() + 10
            < summary(met["with node pooling"])["the pool itself"]
            < 50
        ),
    )

# %% [markdown]
# A bright column belongs to a pool that looks at things rather than at the background, whatever was read. A bright *diagonal* is
# agreement, and it is what the second loss has added: a pool that reads a word looks at its thing more than other pools do. It is far from
# perfect: not even half of the weight lies on the thing. Nothing in the loss asks pools for one thing each; they only have to tell this picture from its hardest negative.
#
# ## What if all pools begin equal?
#
# ```{exercise} Equal pools
# :label: ex-06-equal
#
# We train again with eight pools, but all eight $w_i$ begin as the same vector. What will they do?
#
# - `"a"`: they drift apart, since the loss is lower if they divide the work;
# - `"b"`: they stay equal, however long we train;
# - `"c"`: they shrink to zero, so that each pool becomes the mean.
# ```

# %%
from course.checks import check

your_prediction = "b"  # your part: "a", "b" or "c"
check("06.equal", your_prediction)

# %% [markdown]
# ````{solution} ex-06-equal
# :class: dropdown
#
# `"b"`. Equal pools have equal gradients, so they can never drift apart. Any prediction earns the points.
# ````
#
# We measure the mean cosine between two different pools of the same picture. If all pools have become one, it is 100 %.


# %%
@torch.no_grad()
def alike(model, W):  # in percent
    v = model.encode_pictures(pictures, all_real)
    p = normalize(node_pooling(v.elements, v.mask, W)[0], dim=-1)  # (Ni, P, D)
    cosines = p @ p.mT  # (Ni, P, P)
    return 100 * cosines[:, ~torch.eye(len(W), dtype=torch.bool)].mean()


# %% tags=["nbval-ignore-output"]
steps = lesson.pick(smoke=2, lesson=30, full=300)
equal, equal_W = trained_on(with_pools, random_pools[:1].expand(8, D), steps)
how_alike = {
    "begun equal (%)": alike(equal, equal_W),
    "begun at random (%)": alike(pooled, W),
    "at random, not trained (%)": alike(run.model, random_pools),
}
course.numbers(how_alike)

# %% tags=["hide-input"]
begun_equal, at_random, untrained = (float(one) for one in how_alike.values())
lesson.finding("equal pools stay equal", begun_equal > 99.9)
lesson.finding(
    "pools that begin at random stay different, but training makes them more alike",
    untrained + 10 < at_random < 85,
)

# %% [markdown]
# So each step moved all of them in the same way: eight equal pools are one pool, counted eight times. Only chance at the start breaks the
# tie. Pools that begin at random stay different, though training draws them closer to each other, as the last two numbers show. So the
# number of pools alone says little: measure how different they are.
#
# ## Node cross-attention
#
# The second way needs no pools. Every cell asks the words directly and gets a mixture of them, and every word asks the cells. This is
# *node cross-attention*. Here $i$ counts cells again. With nodes scaled to length one,
#
# $$\hat{v}_i = \sum_j a_{ij}\, t_j , \qquad a_{ij} = \frac{\exp(v_i \cdot t_j)}{\sum_k \exp(v_i \cdot t_k)} .$$
#
# If the caption is right, the cell should find itself in it: $v_i \cdot \hat{v}_i$ should be larger, by the margin, than with the hardest
# negative caption. Each cell has such a hinge, and so has each word, with the cells of the hardest negative picture.
#
# ```{exercise} Node cross-attention
# :label: ex-06-attend
#
# `x`, (B, N, D), and `y`, (B, L, D), have length one; `mask`, (B, L), is True where `y` is real. Return for each element of `x` its
# mixture of the `y` in the same row, (B, N, D). Padding of `y` must have no weight.
# ```
#
# ```{hint}
# :class: dropdown
#
# `x @ y.mT` is (B, N, L). It is node pooling, with the other side's elements in the place of $w_i$.
# ```

# %%
from course.checks import exercise


@exercise("06.attend")
def attend(x, y, mask):  # (B, N, D), (B, L, D), (B, L) -> (B, N, D)
    # your part
    logits = x @ y.mT  # (B, N, L)
    a = logits.masked_fill(~mask[:, None], -torch.inf).softmax(-1)  # (B, N, L)
    return a @ y  # (B, N, D)
    # end of your part


# %% [markdown]
# ````{solution} ex-06-attend
# :class: dropdown
#
# The only change from node pooling: the questions are not learned, they come from the other side. So they differ from row to row.
# ````


# %%
def attention_loss(v, t, v_mask, t_mask, caption, picture, margin=0.2):
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)  # (B, N, D), (B, L, D)
    found_v = (v * attend(v, t, t_mask)).sum(-1)  # (B, N)   each cell in its own caption
    wrong_v = (v * attend(v, t[caption], t_mask[caption])).sum(-1)  # in the hardest negative
    found_t = (t * attend(t, v, v_mask)).sum(-1)  # (B, L)   each word in its own picture
    wrong_t = (t * attend(t, v[picture], v_mask[picture])).sum(-1)
    of_cells = (margin + wrong_v - found_v).clamp(min=0)
    of_words = (margin + wrong_t - found_t).clamp(min=0)
    return of_cells[v_mask].sum() + of_words[t_mask].sum()


mine = attention_loss(x, y, x_mask, y_mask, *hardest(S, own))
torch.testing.assert_close(mine, node_cross_attention_loss(x, x_mask, y, y_mask, S))

# %% [markdown]
# The thesis adds it with a small weight, $\ell = \ell_{\mathrm{global}} + 0.15\,\ell_{\mathrm{ca}}$:


# %%
def with_attention(S, positives, v, t, W):
    sides = v.elements, t.elements, v.mask, t.mask
    second = attention_loss(*sides, *hardest(S, positives))
    return global_only(S, positives, v, t, W) + 0.15 * second


attended, _ = trained_on(with_attention, random_pools)

# %% [markdown]
# What does a cell learn to look at? Work out first what it *can* look at.
#
# ```{exercise} The largest share
# :label: ex-06-even
#
# A caption has ten words. A cell has cosine $1$ with one of them and $-1$ with all others; it could not be more certain. Which share of
# its attention does that word get?
# ```

# %%
from course.checks import check

e = 2.718281828459045
your_share = e / (e + 9 / e)  # your part: a number between 0 and 1
check("06.even", your_share)

# %% [markdown]
# ````{solution} ex-06-even
# :class: dropdown
#
# $\exp(1) / (\exp(1) + 9 \exp(-1))$. Not even half: cosines lie between $-1$ and $1$, so no word can count more than $\exp(2)$ times as
# much as another, about seven times.
# ````
#
# What the cells of the trained model do:


# %% tags=["nbval-ignore-output"]
v, t = both_sides(attended)
v_unit, t_unit = (normalize(side.elements, dim=-1) for side in (v, t))
cosines = v_unit[few.owner] @ t_unit.mT  # (Nc, N, L)
a = cosines.masked_fill(~real_words[:, None], -torch.inf).softmax(-1)
even = 1 / real_words.sum(1)  # (Nc,)
largest, even = 100 * a.amax(-1).mean(), 100 * even.mean()
course.numbers({"largest share of a word (%)": largest, "an even share (%)": even})
lesson.finding("attention stays nearly even", bool(even < largest < 1.6 * even))

# %% [markdown]
# The attention stays nearly even: $\hat{v}_i$ is close to the mean of all words, so this loss says little that the global one does not.
# SCAN multiplies the cosines by a number before the softmax, which makes it choose; see
# [the next notebook](07_cross_attention.ipynb).
#
# ## Does it help retrieval?
#
# Here are finished trainings of the thesis's own system, with Transformers in both towers: five seeds each, and for each loss a learning
# rate chosen on the development split. The nodes of a picture are the boxes around its things.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
arms = {"basic": "global loss alone", "pooling": "node pooling", "CA": "node cross-attention"}
recorded = experiments.studied("relational_losses", "scenes")
study = {title: recorded[arm] for arm, title in arms.items()}
plots.show(dots.compared(study, "scenes", None), alt=dots.words_for(study, "the scenes", None))


def gaps(title, measure):
    """By how much a system is above the global loss alone, seed by seed."""
    with_it, alone = (study[one].results[measure] for one in (title, "global loss alone"))
    return [with_it[seed] - alone[seed] for seed in with_it.keys() & alone.keys()]


pooling, attention = (gaps(title, "rsum") for title in ("node pooling", "node cross-attention"))
lesson.finding("node pooling loses in all seeds, a good 10 points or more", max(pooling) < -10)
lesson.finding(
    "node cross-attention loses a few points, in all seeds",
    max(attention) < 0 and -8 < statistics.mean(attention) < -2,
)

# %% [markdown]
# **What came out.** Neither loss helps here. In all five seeds node pooling loses more than ten points of rsum, and node cross-attention a
# few.
#
# **What it means.** The ranking uses one vector of each side, and the global loss trains just that. A second loss on the parts helps only
# if what it teaches the parts also makes their mean better.
#
# **How sure we are.** The seeds agree, but a small drawn world does not stand for photographs.
#
# The thesis itself leaves the question open. Its results say that the intermediate losses "did not result in higher performance", its
# conclusion that they "did result in improved caption retrieval, but no improvement in image retrieval". Its table has something for
# both: from picture to text, R@1 is higher with either loss, but the sum of all recalls rises with one and falls with the other, by
# little. All rows are on
# [the evidence page](../evidence/relational.md).
#
# ## Break it: let the padding in
#
# ```{exercise} Let the padding in
# :label: ex-06-break
#
# A caption has two words, both with the vector $(0, 1)$, and a pool has $w = (1, 0)$. Its result points upwards, along $(0, 1)$. Now
# someone forgets the mask, and the batch adds one row of padding. Choose that row, both numbers between $-3$ and $3$, so that the
# pool points *downwards*: its second number falls below zero.
# ```
#
# ```{hint}
# :class: dropdown
#
# The row needs a large share and must pull down. Its share depends on its first number only.
# ```

# %%
from course.checks import check

your_row = torch.tensor([2.0, -3.0])  # your part: two numbers
check("06.break", your_row)

# %% [markdown]
# ````{solution} ex-06-break
# :class: dropdown
#
# The product with $w$ is 0 for each word and 2 for the padding. So the padding has $\exp(2)$ parts of the weight and each word has one.
# Padding of zeros would do no harm here: it makes the pool shorter, and the cosine does not see that. But after a Transformer, padding is
# not zero; and in node cross-attention, where $\hat{v}_i$ keeps its length, even zeros change the loss.
# ````
#
# ```{admonition} Where the code departs from the paper
# :class: note
#
# - **The hinge of a node.** The thesis's formula prints the positive and the negative nodes alike. We follow the sentence below it: the
#   negative ones are those of the hardest negative. In that of the pools, one $v$ should be a pool.
# - **What is not said.** How many pools there are, and whether both sides share their weights. The package has eight and shares them;
#   `losses.node_pooling.pools` and `losses.node_pooling.shared` change that.
# - **A first epoch of all negatives**, as in [Learning to rank](04_learning_to_rank.ipynb).
# ```
#
# ## Your own experiment: the number of pools
#
# The thesis does not say how many pools it has. Other ideas: start with `0.1 * random_pools`, or let each pool look for a
# hardest negative of its own.
#
# ```{exercise} How many pools?
# :label: ex-06-explore
#
# Write down what you expect, as `expected` in the last cell: of how alike the pools become, of retrieval, or of both. Change one thing in
# the next cell, run it, and write down, as `found`, what you see and how sure you are. Both systems train for fewer steps than those above,
# so compare the two with each other only.
# ```

# %% tags=["nbval-ignore-output"]
fewer = random_pools[:2]  # change one thing
tried = {}
for name, begin in {"eight pools": random_pools, "changed": fewer}.items():
    model, changed_W = trained_on(with_pools, begin, lesson.pick(smoke=2, lesson=30, full=300))
    v, t = both_sides(model)
    tried[f"{name}, rsum"] = evaluate(model.scores(v, t), few.owner)["rsum"]
    tried[f"{name}, alike (%)"] = alike(model, changed_W)
course.numbers(tried)

# %%
from course.checks import check

expected = "With fewer pools each must say more, so they stay further apart."  # your part
found = "Thirty steps from one seed are too few to tell."  # your part
check("06.explore", (expected, found))

# %% [markdown]
# ````{solution} ex-06-explore
# :class: dropdown
#
# A good answer changes one thing, says what was expected and why, and does not claim more than one seed can show.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | pools, section 2.5.1 | `node_pooling` | `vsecore.losses.NodePooling` |
# | $\ell_{\mathrm{pool}}$, section 2.5.1 | `pool_loss`, `hardest` | `vsecore.losses.node_pooling_loss` |
# | $\ell_{\mathrm{ca}}$, section 2.5.2 | `attend`, `attention_loss` | `vsecore.losses.node_cross_attention_loss` |
#
# ## Summary
#
# - A global loss between two means compares every cell with every word, in one sum; it never says which of them belong together.
# - Node pooling gives both sides the same number of parts, by learned questions; each part has a hinge against the global hardest negative.
# - Pools of picture and caption agree more often than chance, though far from always; only chance at the start makes them differ.
# - Node cross-attention without a scale is nearly a mean; neither loss helps the ranking in our trainings.
#
# ## Where to read on
#
# - [Cross-attention](07_cross_attention.ipynb) uses attention between words and regions in the search itself, not only in the loss.
# - SCAN {cite}`lee2018scan`, from which the thesis takes the attention between nodes.
