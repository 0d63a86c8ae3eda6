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
# # Offline negatives
#
# **You will be able to** say how hard the hardest negative of a batch really is, find the hardest negatives of the whole training set with
# little memory, and check which of them are no negatives at all.
#
# **You need** the notebook [Learning to rank](04_learning_to_rank.ipynb) and a little probability.
#
# **It takes** about 1 minute and 1 GB of memory on two cores; the exercises take an hour and a quarter.
#
# The map: encode → pool → compare → **learn**. This notebook is about what a loss learns *from*.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import math
import textwrap
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown

from vsecore import course, records, scenes
from vsecore.course import plots
from vsecore.data.offline_negatives import OfflineNegatives, draw_offline
from vsecore.mining import mine_offline_negatives
from vsecore.paths import results
from vsecore.recipes import get
from vsecore.training import encode

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## A harder negative
#
# VSE++ learns from the hardest negative of a batch. AOQ {cite}`chen2020aoq` asks for harder ones. It trains in two rounds. After the first,
# it looks through the *whole training set* for the negatives that the model finds most similar. The second round learns from them too.
#
# We train a first round, VSE++ on regions for two epochs, and let the package search. Below you will write that search yourself.

# %%
features = "region" if data == "scenes" else "grid"  # boxes of photographs need a detector
dataset = lesson.dataset(features)
train, owner = dataset.train, torch.from_numpy(dataset.train.owner)  # (Nc,)
quick = {"dim": 128, "text.encoder.word_dim": 64}
short = {"epochs": 2, "learning_rate": 2e-3, "warmup_steps": 0, "schedule": "cosine"}
quick |= {f"training.{name}": value for name, value in short.items()}
recipe = get(f"vsepp_{features}_gru", lesson.pick(smoke=quick, lesson=quick, full={}))
run = lesson.trained(recipe, dataset)
v, t = (side.vectors for side in encode(run.model, train, run.tokenizer))  # (Ni, D), (Nc, D)
mined = mine_offline_negatives(v, t, owner)
print(f"{mined.texts.shape} captions of pictures, {mined.pictures.shape} pictures of captions")

# %% [markdown]
# Negatives from the batch are *online negatives*: they are found while we train. Those from the whole set are *offline negatives*, and
# looking for them is called *mining*. Here are both, for a caption and for a picture.

# %% tags=["hide-input"]
batch_size = recipe.training.batch_size
made = scenes.pictures("train", len(train)) if data == "scenes" else []
few_pictures, few_captions = min(200, len(train)), min(1000, len(train.captions))


def truth_of(captions, pictures) -> torch.Tensor | None:
    """Which captions are true of which pictures, (C, n); None for photographs, of which nobody knows it."""
    if not made:
        return None
    said = [caption for one in made for caption in one.captions]
    stated = [said[row] for row in captions]
    return torch.from_numpy(scenes.relevance(stated, [made[row].scene for row in pictures]))


every_caption, every_picture = range(len(train.captions)), range(len(train))
true_of_captions = truth_of(range(few_captions), every_picture)  # (1000, Ni)
true_of_pictures = truth_of(every_caption, range(few_pictures))  # (Nc, 200)


def random_pairs(generator, size=batch_size, split=train):
    """A batch of different pictures, each with one of its captions: rows (B,) of both."""
    pictures = torch.randperm(len(split), generator=generator)[:size]  # (B,)
    counts = torch.from_numpy(split.caption_counts)[pictures]  # (B,)
    which = (torch.rand(len(pictures), generator=generator) * counts).long()  # (B,)
    captions = torch.from_numpy(split.captions_of(pictures.numpy()))  # of all of them
    return pictures, captions[counts.cumsum(0) - counts + which]


def all_false(truth, rows) -> torch.Tensor:
    """Where none of the items in rows (n, k) is true of its anchor, (n,)."""
    if truth is None:
        return torch.ones(len(rows), dtype=torch.bool)
    return ~truth.gather(1, rows.long()).any(1)


batch_pictures, batch_captions = random_pairs(torch.Generator().manual_seed(seed))
rows = torch.from_numpy(mined.pictures[:few_captions, :3])  # (1000, 3)
others = batch_pictures[
    (t[:few_captions] @ v[batch_pictures].T).topk(2, 1).indices
]  # (1000, 2)
apart = (others != owner[:few_captions, None]).all(1)  # its own picture is not in the batch
asked = int((all_false(true_of_captions, torch.cat([others, rows], 1)) & apart).nonzero()[0])
texts = torch.from_numpy(mined.texts[:few_pictures, :3])  # (200, 3)
said = batch_captions[(v[:few_pictures] @ t[batch_captions].T).topk(1, 1).indices]  # (200, 1)
truth = None if true_of_pictures is None else true_of_pictures.T
apart = (owner[said] != torch.arange(few_pictures)[:, None]).all(1)
picture = int((all_false(truth, torch.cat([said, texts], 1)) & apart).nonzero()[-1])

kinds = ["its own", "online", "offline, 1st", "offline, 2nd", "offline, 3rd"]
shown = [int(owner[asked]), int(others[asked, 0]), *rows[asked].tolist()]
figure, panels = plt.subplot_mosaic([list("abcde"), list("fgggg")], figsize=(10.5, 5))
for axes, image, kind in zip(
    [panels[one] for one in "abcde"], lesson.pictures("train", shown), kinds, strict=True
):
    axes.imshow(image, interpolation="lanczos")
    axes.set_xlabel(kind, fontsize=9)
panels["a"].set_title(textwrap.fill(train.captions[asked], 110), fontsize=10)
panels["f"].imshow(lesson.pictures("train", [picture])[0], interpolation="lanczos")
first_own = int((owner == picture).nonzero()[0])
lines = [first_own, int(said[picture, 0]), *texts[picture].tolist()]
for place, (row, kind) in enumerate(zip(lines, kinds, strict=True)):
    panels["g"].text(0.0, 0.9 - 0.2 * place, kind, fontsize=9, color="0.4")
    panels["g"].text(0.16, 0.9 - 0.2 * place, train.captions[row], fontsize=9)
for axes in panels.values():
    axes.grid(False)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
plots.show(
    figure,
    alt="Above, a caption with five pictures: its own, the hardest of a batch, and the three hardest of the whole training set, of which "
    "the caption is not true. The last three differ from its own in a detail. Below, a picture with five captions of the same kinds.",
)

# %% [markdown]
# The online negative shares a thing or two with the anchor. The offline ones share nearly everything, and differ in what a model must
# learn to notice: a colour, a number, who stands where.
#
# ## Where the hardest of a batch stands
#
# How hard is an online negative, seen from the whole set? Sort all $N$ negatives of a picture, the hardest first, and count *places* from
# 1. A batch holds $n$ of them, drawn at random. Its hardest is the one at the first place.
#
# ```{exercise} Where does it stand?
# :label: ex-08-place
#
# Our training set has 20,000 captions, so a picture has 19,995 negatives. A batch holds 127 of them. At which place does the hardest of
# these stand on average: `"16"`, `"156"`, `"1,560"` or `"7,800"`?
# ```

# %%
from vsecore.course.checks import check

your_prediction = "156"  # your part: "16", "156", "1,560" or "7,800"
check("08.place", your_prediction)

# %% [markdown]
# ````{solution} ex-08-place
# :class: dropdown
#
# About 156. The reason follows.
# ````
#
# Here is why, in a picture. The drawn negatives cut the sorted list into gaps, one more than there are drawn ones. All gaps have the same
# length on average, since nothing prefers one to another.

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(8.6, 1.7))
listed, drawn = 29, (5, 11, 14, 20, 26)
edges = [0, *drawn, listed + 1]
for number, (low, high) in enumerate(zip(edges, edges[1:], strict=False), 1):
    axes.plot([low + 0.5, high - 0.5], [0.35, 0.35], color="0.6")
    axes.text((low + high) / 2, 0.5, f"gap {number}", ha="center", fontsize=8, color="0.3")
for place in range(1, listed + 1):
    face = plots.COLOURS[1] if place in drawn else "white"
    axes.plot(place, 0, "o", color=plots.COLOURS[1], markerfacecolor=face, markersize=7)
axes.annotate(
    "hardest of\nthe batch", (drawn[0], -0.12), (drawn[0], -0.8), ha="center", fontsize=8
)
axes.annotate("1", (1, -0.12), (1, -0.5), ha="center", fontsize=8)
axes.annotate(f"N = {listed}", (listed, -0.12), (listed, -0.5), ha="center", fontsize=8)
axes.set(xlim=(0, listed + 1), ylim=(-1, 0.8))
axes.axis("off")
plots.show(
    figure,
    alt="A row of circles, the negatives from the hardest to the easiest. Five are filled: a batch has drawn them. They cut the row into six "
    "gaps. The first filled circle is the hardest of the batch.",
)

# %% [markdown]
# The $N - n$ negatives that were not drawn fill $n + 1$ gaps, so $\frac{N - n}{n + 1}$ of them stand before the first drawn one. Its place
# is one more than that:
#
# $$\frac{N - n}{n + 1} + 1 = \frac{N + 1}{n + 1} .$$
#
# The model does not occur in this. However good it is, a batch reaches no deeper into the list.
#
# How often does a batch hold one of the very hardest?
#
# ```{exercise} The chance of a top hundred
# :label: ex-08-chance
#
# Return the chance that at least one of the `top` hardest is among `drawn` negatives, drawn from `among`, each at most once.
# ```
#
# ```{hint}
# :class: dropdown
#
# `math.comb(n, k)` counts the ways to draw. Count those that miss all of the hardest.
# ```

# %%
from vsecore.course.checks import exercise


@exercise("08.chance")
def chance(top, among, drawn):  # whole numbers -> between 0 and 1
    # your part
    return 1 - math.comb(among - top, drawn) / math.comb(among, drawn)
    # end of your part


# %% [markdown]
# ````{solution} ex-08-chance
# :class: dropdown
#
# A draw that misses takes all of its negatives from the `among - top` others. Draw after draw, this is
# $1 - \prod_{i=0}^{n-1} \frac{N - k - i}{N - i}$ with $k$ for `top`.
# ````
#
# The paper gives both numbers for COCO, in batches of 128: a mean place of about 4,000, and a chance of 2.2 % that an online negative is
# among the top hundred. It counts the training set once as 500 thousand captions. In its split are five for each of 113,283 pictures.

# %%
for among in (500_000, 5 * (113_283 - 1)):
    place, hundred = (among + 1) / 128, 100 * chance(100, among, 127)
    print(f"{among:,} negatives: mean place {place:,.0f}, in the top hundred {hundred:.1f} %")

# %% [markdown]
# The paper's percentage is that of all its captions. Does our model agree? The place of a batch's hardest negative is one more than the
# number of negatives in the whole set that score higher.


# %%
def places(queries, items, own, in_batch):  # (B, D), (N, D), (B, N), (B,) -> (B,)
    scores = (queries @ items.T).masked_fill(own, -torch.inf)  # (B, N)
    hardest = scores[:, in_batch].amax(1, keepdim=True)  # (B, 1)
    return 1 + (scores > hardest).sum(1)


generator = torch.Generator().manual_seed(seed)
found = {"captions": [], "pictures": []}
for _ in range(40):
    p, c = random_pairs(generator)  # (B,), (B,)
    found["captions"].append(places(v[p], t, owner == p[:, None], c))
    own = owner[c][:, None] == torch.arange(len(v))  # (B, Ni)
    found["pictures"].append(places(t[c], v, own, p))
found = {name: torch.cat(each).double() for name, each in found.items()}

# %% tags=["hide-input"]
most = {"captions": len(train.captions) - 5, "pictures": len(train) - 1}
drawn = batch_size - 1
generator = torch.Generator().manual_seed(seed)
simulated = {
    name: torch.stack(
        [torch.randperm(N, generator=generator)[:drawn].min() + 1 for _ in range(2000)]
    )
    for name, N in most.items()
}
figure, axes = plt.subplots(figsize=(7.4, 3.7))
coco = 5 * (113_283 - 1)
tops = np.unique(np.geomspace(1, 20_000, 60).astype(int))
for style, (name, N) in enumerate((most | {"captions of COCO": coco}).items()):
    reach = [top for top in tops if top <= N - drawn]
    exact = [100 * chance(int(top), N, drawn) for top in reach]
    axes.plot(
        reach, exact, plots.DASHES[style], color=plots.COLOURS[style], label=f"{name}, exact"
    )
    if name in found:
        some = reach[::6]
        seen = [100 * (found[name] <= top).double().mean().item() for top in some]
        axes.plot(
            some,
            seen,
            plots.MARKERS[style],
            color=plots.COLOURS[style],
            label=f"{name}, our model",
        )
axes.axvline(100, color="0.6", linestyle=":")
axes.set(
    xscale="log", xlabel="top k of the whole training set", ylabel="batches that reach it (%)"
)
axes.legend(loc="upper left", fontsize=8)
plots.show(
    figure,
    alt="The share of batches whose hardest negative is among the top k of the whole training set, against k on a logarithmic axis. For "
    "captions and for pictures of our training set the points of the model lie on the exact lines. The line of COCO's captions lies far "
    "below: a few percent at k = 100.",
)

# %%
lesson.report(
    "08_place",
    {
        f"mean place among the {name}, {way}": value
        for name, N in most.items()
        for way, value in {
            "exact": (N + 1) / (drawn + 1),
            "simulated": simulated[name].double().mean(),
            "with our model": found[name].mean(),
        }.items()
    },
)

# %% [markdown]
# The points lie on the lines. In a small training set a batch often reaches the top; in COCO hardly ever. A larger batch would reach
# deeper, but its matrix of similarities grows with the square of its size.
#
# ## Mine the whole training set
#
# So we look outside the batch. AOQ keeps for each picture the 300 hardest captions, and for each caption the 60 hardest pictures. All
# similarities at once would not fit into memory, so we go block by block: $B$ pictures with all captions, then the next $B$. We need three
# steps.
#
# ```{exercise} Hide what belongs to a picture
# :label: ex-08-own
#
# `scores` is a block, (b, Nc): its rows are the pictures `first`, `first + 1` and so on. Set the scores of each picture's own captions to
# minus infinity. `owner`, (Nc,), is the picture of each caption.
# ```

# %%
from vsecore.course.checks import exercise


@exercise("08.own")
def hide_own(scores, first, owner):  # (b, Nc), a row, (Nc,) -> (b, Nc)
    # your part
    rows = torch.arange(first, first + len(scores))  # (b,)
    return scores.masked_fill(rows[:, None] == owner, -torch.inf)  # (b, Nc)
    # end of your part


# %% [markdown]
# ````{solution} ex-08-own
# :class: dropdown
#
# The comparison broadcasts to (b, Nc). It hides all five captions of each picture, wherever they stand.
# ````
#
# A row of the block is complete: it holds all captions, so its largest 300 are the final ones. A column holds only $B$ of the pictures. For
# columns we keep a running best, and merge each block into it.
#
# ```{exercise} Merge a block into the running best
# :label: ex-08-merge
#
# `best` and `rows`, (Nc, k), hold for each caption the scores of the hardest pictures so far, and which pictures these are. Return both
# after the block `scores`, (b, Nc), whose first row is picture `first`. Largest first.
# ```
#
# ```{hint}
# :class: dropdown
#
# Join the old best and the block with `torch.cat`, and take `topk`. `gather` looks up the pictures' numbers.
# ```

# %%
from vsecore.course.checks import exercise


@exercise("08.merge")
def merge(best, rows, scores, first):  # (Nc, k), (Nc, k), (b, Nc), a row -> two of (Nc, k)
    # your part
    new = torch.arange(first, first + len(scores)).expand(len(best), -1)  # (Nc, b)
    joined = torch.cat([best, scores.T], 1)  # (Nc, k + b)
    best, places = joined.topk(best.shape[1], 1)  # (Nc, k)
    return best, torch.cat([rows, new], 1).gather(1, places)
    # end of your part


# %% [markdown]
# ````{solution} ex-08-merge
# :class: dropdown
#
# Nothing that falls out of the best k can ever come back, since later blocks only add pictures. So k scores for each caption are all we
# have to remember.
# ````
#
# ```{exercise} Both directions from one pass
# :label: ex-08-mine
#
# Put it together. Return for each picture the rows of its hardest captions, (Ni, `texts`), and for each caption those of its hardest
# pictures, (Nc, `pictures`). Multiply each block once. You may use `hide_own` and `merge`.
# ```

# %%
from vsecore.course.checks import exercise


@exercise("08.mine")
def mine(images, captions, owner, texts=300, pictures=60, block=250):
    # your part
    best = torch.full((len(captions), pictures), -torch.inf, dtype=images.dtype)  # (Nc, k)
    rows, hardest = torch.zeros(len(captions), pictures, dtype=torch.long), []
    for first in range(0, len(images), block):
        scores = hide_own(images[first : first + block] @ captions.T, first, owner)  # (b, Nc)
        hardest.append(scores.topk(texts, 1).indices)  # (b, texts)
        best, rows = merge(best, rows, scores, first)
    return torch.cat(hardest), rows
    # end of your part


# %% [markdown]
# ````{solution} ex-08-mine
# :class: dropdown
#
# Each block is multiplied once and serves both directions. With one block this is a full sort; with many, memory stays that of a block.
# ````
#
# `vsecore.mining.mine_offline_negatives` does the same. Equal captions have equal scores, so two right miners may list them in different
# orders. We compare the scores at each place.

# %%
texts, pictures = mine(v, t, owner, *(each.shape[1] for each in (mined.texts, mined.pictures)))
torch.testing.assert_close(
    (v[:500, None] * t[texts[:500]]).sum(2),
    (v[:500, None] * t[mined.texts[:500]]).sum(2),
)
torch.testing.assert_close(
    (t[:, None] * v[pictures]).sum(2)[:2000]
    if len(t) < 2000
    else (t[:2000, None] * v[pictures[:2000]]).sum(2),
    (t[:2000, None] * v[mined.pictures[:2000]]).sum(2),
)
print("vsecore.mining finds negatives with the same scores, in both directions")

# %% [markdown]
# ## Break it: forget the siblings
#
# A batch of pairs has one caption for each picture, so hiding the pair is enough there. In the whole training set each picture has four
# more captions. Suppose a miner forgets them. Nothing crashes. Only a test can notice.
#
# ```{exercise} A test that fails
# :label: ex-08-break
#
# `texts`, (Ni, k), holds rows of captions for each picture. Return whether any picture's list holds a caption of its own.
# ```

# %%
from vsecore.course.checks import exercise


@exercise("08.break")
def holds_own(texts, owner):  # (Ni, k), (Nc,) -> True or False
    # your part
    return bool((owner[texts] == torch.arange(len(texts))[:, None]).any())
    # end of your part


# %% [markdown]
# ````{solution} ex-08-break
# :class: dropdown
#
# `owner[texts]` turns each caption into its picture. No entry of row $i$ may be $i$.
# ````
#
# We break the miner: of each picture's captions it knows only the first.

# %%
pair_only = torch.full_like(owner, -1)  # -1: nobody's
firsts = torch.from_numpy(np.unique(train.owner, return_index=True)[1])  # (Ni,)
pair_only[firsts] = owner[firsts]
careless, _ = mine(v, t, pair_only, 4, 4)
print(
    "a caption of its own:", holds_own(texts, owner), "with care,", holds_own(careless, owner)
)
try:
    OfflineNegatives(careless.numpy(), mined.pictures).check(train)
except ValueError as refused:
    print("the package:", str(refused).split(":")[0].split(",")[0])
own_share = 100 * (owner[careless] == torch.arange(len(v))[:, None]).double().mean()
lesson.report("08_siblings", {"of the four hardest, the picture's own (%)": own_share})

# %% [markdown]
# So a loss would push a picture away from its own captions, and the better the model, the more often. The package checks every list before
# it trains with it.
#
# ## How many of them are true?
#
# Hiding a picture's own captions is all that the data allow. But a caption that was written for another picture may be true of this one. For
# photographs nobody knows; for our scenes we do. We look at the hardest 1, 3, 10 and so on, and count how many are true.

# %% tags=["hide-input"]
depths = [1, 3, 10, 30, 60, 100, 300]


def true_shares(truth, rows) -> dict[int, float]:
    """How many of the hardest k are true of their anchors, in percent, for each depth k; rows (n, k)."""
    right = truth.gather(1, torch.from_numpy(rows[: len(truth)]).long()).double()  # (n, k)
    return {
        depth: 100 * right[:, :depth].mean().item()
        for depth in depths
        if depth <= rows.shape[1]
    }


if made:
    figure, axes = plt.subplots(figsize=(7, 3.5))
    shares = {
        "captions of a picture": true_shares(true_of_pictures.T, mined.texts),
        "pictures of a caption": true_shares(true_of_captions, mined.pictures),
    }
    lines = {name: (list(each), list(each.values())) for name, each in shares.items()}
    plots.curves(axes, lines, x="the hardest k", y="true of their anchor (%)")
    chance_true = 100 * true_of_captions.double().mean().item()
    axes.axhline(chance_true, color="0.5", linestyle=":", linewidth=1)
    axes.text(1, chance_true + 0.4, "all pairs", fontsize=8, color="0.3")
    axes.set(xscale="log", ylim=(0, None), xticks=depths, xticklabels=depths)
    axes.minorticks_off()
    plots.show(
        figure,
        alt="The share of mined negatives that are true of their anchor, against how many of the hardest are counted. Both lines, captions "
        "of a picture and pictures of a caption, begin at more than a fifth and fall with depth, far above the share among all pairs.",
    )

# %%
if made:
    last = max(shares["captions of a picture"]), max(shares["pictures of a caption"])
    measured = {
        "true, of all pairs (%)": chance_true,
        "of the hardest captions": shares["captions of a picture"][1],
        "of a whole list of captions": shares["captions of a picture"][last[0]],
        "of the hardest pictures": shares["pictures of a caption"][1],
        "of a whole list of pictures": shares["pictures of a caption"][last[1]],
    }
    print(lesson.report("08_true", measured))

# %% [markdown]
# The harder a negative is, the more likely it is no negative at all: a *false negative*. That is why AOQ draws from a long list, and not
# just its top, and why it gives offline negatives the smaller margin of 0: they may come as close as the right caption, but not closer.
# Deeper lists hold fewer true ones and easier ones. So depth is a compromise.
#
# ## Near duplicates make them harder
#
# The world has a knob for this: `near_duplicates` is the share of pictures that differ from an earlier one in one fact. We search three
# small worlds that the model has never seen. How far is a caption's own picture ahead of the hardest picture of a batch, and of the whole
# world?


# %%
def leads(split, size=32):  # mean lead of a caption's own picture over its hardest negative
    v, t = (side.vectors for side in encode(run.model, split, run.tokenizer))
    S = t @ v.T  # (Nc, n)
    positive = S[torch.arange(len(t)), split.owner]  # (Nc,)
    hidden = hide_own(S.T, 0, torch.from_numpy(split.owner)).T  # (Nc, n)
    offline, at = hidden.max(1)  # (Nc,)
    generator, online = torch.Generator().manual_seed(seed), []
    for _ in range(100):
        p, c = random_pairs(generator, size, split)  # (B,)
        online.append(positive[c] - hidden[c][:, p].amax(1))
    return torch.cat(online).mean().item(), (positive - offline).mean().item(), at


# %% tags=["hide-input"]
knob = {}
if made:
    sizes, small = {"train": 1, "dev": 1, "test": 400}, min(400, len(dataset.test))
    for share in (0.0, 0.5, 0.9):
        near = {"near_duplicates": share}
        if share:
            split = scenes.load(**sizes, features=features, **near).test
            facts = scenes.pictures("test", sizes["test"], **near)
        else:
            split = dataset.test.subset(small)
            facts = scenes.pictures("test", len(dataset.test))[:small]
        online, offline, at = leads(split)
        captions = [caption for one in facts[:200] for caption in one.captions]
        truth = torch.from_numpy(scenes.relevance(captions, [one.scene for one in facts]))
        right = truth.gather(1, at[: len(captions), None]).double().mean().item()
        knob[share] = {"online": online, "offline": offline, "true": 100 * right}
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=[1.3, 1])
    across = list(knob)
    series = {
        f"over the hardest of {name}": (across, [one[key] for one in knob.values()])
        for key, name in (("online", "a batch"), ("offline", "all"))
    }
    plots.curves(left, series, x="near_duplicates", y="lead in similarity")
    left.axhline(0, color="0.5", linewidth=1)
    plots.curves(
        right,
        {"": (across, [one["true"] for one in knob.values()])},
        x="near_duplicates",
        y="hardest negatives that are true (%)",
    )
    right.set_ylim(0, None)
    plots.show(
        figure,
        alt="Left: the lead of a caption's own picture, against the share of near duplicates. Over the hardest of a batch it stays high; over "
        "the hardest of all pictures it is lower and falls. Right: the share of the hardest negatives that are true.",
    )

# %%
if knob:
    told = {
        f"{what} at {share}": (1 if key == "true" else 100) * knob[share][key]
        for key, what in (
            ("online", "100 × lead over online"),
            ("offline", "100 × lead over offline"),
            ("true", "% true"),
        )
        for share in knob
    }
    print(lesson.report("08_near", told))

# %% [markdown]
# The more near duplicates, the smaller the lead over the hardest of all. A batch seldom holds a picture and its near duplicate, so online
# negatives hardly notice.
#
# ## What mining costs
#
# ```{exercise} The whole matrix
# :label: ex-08-bill
#
# COCO has 113,283 training pictures and 566,415 captions. How many gigabytes (of a thousand million bytes) would the matrix of all their
# similarities take, at four bytes each?
# ```

# %%
from vsecore.course.checks import check

your_gigabytes = 113_283 * 566_415 * 4 / 1e9  # your part: one number
check("08.bill", your_gigabytes)

# %% [markdown]
# ````{solution} ex-08-bill
# :class: dropdown
#
# About 257. A block of 250 pictures takes 0.6 of them, and the running best of all captions a few tenths: 60 scores and row numbers each.
# ````
#
# The work is one product: pictures × captions × width multiply-adds. The paper reports 3,400 seconds for COCO, on a machine that it does not
# name. We time our product here, on one core, and work out what COCO would take at that rate, at a width of 1,024.

# %% tags=["hide-input"]
rate, whole = [], []
for _ in range(3):
    begin = time.process_time()  # only what this program computes
    for first in range(0, len(v), 250):
        v[first : first + 250] @ t.T
    between = time.process_time()
    mine_offline_negatives(v, t, owner)
    rate.append(between - begin)
    whole.append(time.process_time() - between)
work = 113_283 * 566_415 * 1024 / (len(v) * len(t) * v.shape[1])  # times as many multiply-adds
seconds = {
    "the paper, machine unknown": 3400,
    "one core of ours, product alone (projected)": work * min(rate),
}
recorded = records.find(results(), name="benchmark_mining")
for record in recorded:
    if (gpu := record.metrics.get("cuda_coco_seconds")) is not None:
        seconds[f"measured: {record.device}"] = gpu
figure, axes = plt.subplots(figsize=(7.4, 0.9 + 0.5 * len(seconds)))
for place, (name, value) in enumerate(seconds.items()):
    axes.plot(value, place, plots.MARKERS[place], color=plots.COLOURS[place])
    axes.annotate(
        f"{value:,.0f} s",
        (value, place),
        (8, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
    )
axes.set_yticks(range(len(seconds)), list(seconds))
axes.set(xscale="log", xlabel="seconds for COCO's training set", xlim=(1, 1e5))
axes.set_ylim(len(seconds) - 0.5, -0.5)
plots.show(
    figure,
    alt="Seconds to score all of COCO's training pictures with all of its captions, on a logarithmic axis: what the paper reports, and what "
    "the product alone would take on one core here.",
)

# %% [markdown]
# So mining takes no more than a small part of a training. That holds for one vector on each side. SCAN and BFAN compare words with boxes,
# for every pair. The paper therefore trains them with the lists of another model, VSRN: a list says which items are alike, and that need
# not come from the model that learns from it.
#
# ## A fresh draw in each epoch
#
# In the second round each pair draws one caption $T_o$ from its picture's list, and one picture $I_o$ from its caption's list. (Here
# $T_o$ and $I_o$ are the paper's letters.) The draw depends on seed, epoch and row alone, so a training that stops can go on as if
# nothing had happened. If the two happen to belong together, we draw again.

# %%
rows = np.arange(min(5000, len(train.captions)))
draws = [draw_offline(mined, train, rows, seed, epoch) for epoch in (0, 1)]
again = draw_offline(mined, train, rows, seed, 0)
print(
    "the same epoch again:", all((a == b).all() for a, b in zip(draws[0], again, strict=True))
)
once = draw_offline(mined, train, rows, seed, 0, tries=1)  # nothing is drawn again
together = [100 * np.mean(train.owner[a] == train.owner[b]) for a, b in (once, draws[0])]
lesson.report(
    "08_draws",
    {"belong together, first draw (%)": together[0], "after drawing again": together[1]},
)

# %% [markdown]
# ## Change one thing
#
# ```{exercise} Change one thing
# :label: ex-08-explore
#
# Change the depth of the list (`depth`, at most 300) or the size of the batch. Before you run the cell, write what you expect of two
# numbers: the lead of a picture's own caption over a drawn offline negative, and over the hardest of a batch. Then write what came out.
# ```

# %%
your_change = {"depth": 30, "batch": 128}  # change one of them


def compare(depth, batch):
    generator = torch.Generator().manual_seed(seed)
    offline, online = [], []
    for _ in range(20):
        p, c = random_pairs(generator, batch)  # (B,), (B,)
        positive = (v[p] * t[c]).sum(1)  # (B,)
        place = torch.randint(depth, (len(p),), generator=generator)
        offline.append(positive - (v[p] * t[mined.texts[p, place]]).sum(1))
        online.append(positive - (v[p] @ t[c].T).fill_diagonal_(-torch.inf).amax(1))
    return [100 * torch.cat(each).mean().item() for each in (offline, online)]


usual, changed = compare(min(300, mined.texts.shape[1]), 128), compare(**your_change)

# %%
lesson.report(
    "08_explore",
    {
        f"100 × lead over {name}, {when}": value
        for when, pair in (("as it was", usual), ("changed", changed))
        for name, value in zip(("offline", "online"), pair, strict=True)
    },
)

# %%
from vsecore.course.checks import check

your_expectation = "A shorter list is harder, so the lead shrinks."  # your part: before
your_finding = f"It goes from {usual[0]:.0f} to {changed[0]:.0f}."  # your part: after
check("08.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-08-explore
# :class: dropdown
#
# There is no right answer; this is one example. How hard a negative is says nothing yet about how much it teaches: for that you must train
# with it, as the next notebook does.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | own items left out, section 3.2 | `hide_own` | `vsecore.mining.mine_offline_negatives` |
# | the top-$k$ lists, section 3.2 | `merge`, `mine` | `vsecore.mining.mine_offline_negatives` |
# | drawn uniformly, again if they correspond, section 3.2 | `draw_offline` | `vsecore.data.offline_negatives.draw_offline` |
#
# ## Summary
#
# - The hardest of $n$ negatives drawn from $N$ stands at place $\frac{N+1}{n+1}$ on average, whatever the model.
# - Mining reads the matrix of similarities block by block: rows are complete at once, columns keep a running best.
# - The harder a negative is, the more likely it is true of its anchor after all, and only a world with known truth shows it.
# - A miner that forgets siblings does not crash; a test of what its lists hold finds it.
#
# ## Where to read on
#
# - Negatives mined for faces, and why not always the hardest: {cite}`schroff2015facenet`.
# - Next: [The quintuplet loss](09_quintuplet.ipynb).
