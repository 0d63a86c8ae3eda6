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
# # The joint space
#
# **You will be able to** compute every number of a retrieval table, spot an evaluation that ties can fool, predict what a recall on few
# pictures becomes on many, and measure a system against what is true of a picture.
#
# **You need** the notebooks [Start here](00_start_here.ipynb) and [Pictures and captions](01_pictures_and_captions.ipynb), dot
# products, and an idea of the normal distribution.
#
# **It takes** about 1 minute and 1 GB of memory on two cores; the exercises take an hour.
#
# The map: encode → pool → **compare** → learn. We compare vectors, and measure how well that works.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown
from scipy.optimize import fsolve

import course
from vsecore import records
from vsecore.baselines import ridge_scores
from course import plots
from course.engine import FIRST_RECIPE
from vsecore.data import coco_judgements
from vsecore.evaluation import evaluate, map_at_r, r_precision, ranks
from vsecore.recipes import get
from vsecore.similarity import cosine
from vsecore.training import encode, fit, score_split

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## A sentence finds its pictures
#
# We take the system that we trained in *Start here*. It gives a vector for each picture and each caption of the test split. `S` holds the
# cosine of every picture with every caption.

# %%
dataset = lesson.dataset("grid")
owner = torch.from_numpy(dataset.test.owner)  # (Nc,)   the picture of each caption
recipe = FIRST_RECIPE.override({"training.epochs": lesson.pick(smoke=1, lesson=3, full=15)})
run = lesson.trained(recipe, dataset)
v, t = (side.vectors for side in encode(run.model, dataset.test, run.tokenizer))
S = cosine(v, t)  # (Ni, Nc)

# %% [markdown]
# Here are one caption and the pictures with the highest cosine. A tick marks those of which the caption is true.

# %% tags=["hide-input", "nbval-ignore-output"]
relevance = lesson.relevance("test")  # (Nc, Ni)
if relevance is None:
    print(
        "Photographs: nobody knows what is true, so below, a caption's own picture stands for it."
    )
    relevance = (owner[:, None] == torch.arange(len(S))).numpy()
truth = torch.from_numpy(relevance)
found = S.topk(5, dim=0).indices.T  # (Nc, 5)
hits = truth.gather(1, found)  # (Nc, 5)
telling = (truth.sum(1) == 4) & hits[:, :4].all(1) & (found[:, 1] == owner)
lesson.finding("all four true pictures come first, its own second", bool(telling.any()))
asked = int(telling.nonzero()[0]) if telling.any() else 0
shown = found[asked].tolist()
figure = plots.picture_row(
    lesson.pictures("test", shown),
    [
        f"{place}{', its own' if row == owner[asked] else ''}"
        for place, row in enumerate(shown, 1)
    ],
    marked=truth[asked, shown].tolist(),
    heading=dataset.test.captions[asked],
)
plots.show(
    figure,
    alt=f"The first five pictures found for: {dataset.test.captions[asked]} A frame and a tick mark those of which it is true.",
)

# %% [markdown]
# All pictures of which the caption is true come first. But the one that the caption was written for is not the first, so recall at 1
# counts a miss.
#
# ## Angle and distance say the same
#
# Both networks scale their vectors to length one, so all lie on the *unit sphere*. That sphere is the *joint space*: a caption should lie
# near the pictures it is true of. We can measure how near by the angle between two vectors, or by the straight line from tip to tip.

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(5.4, 4.2))
around = torch.linspace(0, 2 * math.pi, 200)
axes.plot(around.cos(), around.sin(), color="0.8")
points = {"a picture, v": 100, "its caption, t": 50, "another caption": 215}
tips = {
    name: (math.cos(math.radians(turn)), math.sin(math.radians(turn)))
    for name, turn in points.items()
}
for (name, (across, up)), colour in zip(tips.items(), plots.COLOURS, strict=False):
    axes.annotate(
        "", (across, up), (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "lw": 2}
    )
    side = "right" if across < 0 else "left"
    axes.annotate(name, (1.08 * across, 1.08 * up), color=colour, ha=side, va="center")
chord = list(zip(*list(tips.values())[:2], strict=True))
axes.plot(*chord, color="0.3", linestyle="--")
axes.annotate(
    "distance",
    (0.27, 0.98),
    (0.3, 1.28),
    color="0.3",
    arrowprops={"arrowstyle": "-", "color": "0.6"},
)
arc = torch.deg2rad(torch.linspace(50, 100, 40))
axes.plot(0.3 * arc.cos(), 0.3 * arc.sin(), color="0.3")
axes.annotate("angle", (0.1, 0.37), color="0.3", ha="center")
axes.set(xlim=(-2.0, 1.9), ylim=(-1.15, 1.4), aspect="equal")
axes.axis("off")
plots.show(
    figure,
    alt="A circle of radius one. Arrows from its middle lead to a picture and, a little further round, to its caption; another "
    "caption lies on the far side. An arc marks the angle between picture and caption, a dashed line their distance.",
)

# %% [markdown]
# Multiply out the squared distance, with $v \cdot v = t \cdot t = 1$ and the similarity $s(v, t) = v \cdot t$:
#
# $$\lVert v - t \rVert^2 = v \cdot v + t \cdot t - 2\, v \cdot t = 2 - 2\, s(v, t) .$$
#
# So the nearest picture is always the most similar one. We check it.

# %%
squared = torch.cdist(v, t[:200]).square()  # (Ni, 200)
torch.testing.assert_close(squared, 2 - 2 * S[:, :200], atol=1e-4, rtol=0)  # the equation
of_nearest = S[squared.argmin(0), torch.arange(200)]  # (200,)
torch.testing.assert_close(of_nearest, S[:, :200].amax(0))
print("for each of 200 captions, the nearest picture is the most similar one")

# %% [markdown]
# Without the scaling this would not hold: the dot product would favour long vectors, the distance short ones.
#
# ## The rank of a caption
#
# Look at one column of the matrix. One picture is the caption's own; all others are its negatives. The *rank* of the caption is the number
# of negatives that score at least as high as its own picture. The best rank is 0. We need not sort: we count what lies to the right of a
# line.

# %% tags=["hide-input"]
own_scores = S[owner, torch.arange(len(owner))]  # (Nc,)
in_front = (S >= own_scores).sum(0) - 1  # (Nc,)
looked_at = int((in_front == in_front[in_front > 9].min()).nonzero()[0])
column, own_score = S[:, looked_at], own_scores[looked_at]
others = column[torch.arange(len(S)) != owner[looked_at]]  # (Ni - 1,)
above = others[others >= own_score]  # (rank,)
figure, axes = plt.subplots(figsize=(6.4, 3.2))
step = (column.max() - column.min()) / 40
edges = (own_score + step * torch.arange(-60, 60)).tolist()  # the own score is one of them
axes.hist(others.tolist(), bins=edges, color="0.75", label="other pictures")
axes.hist(above.tolist(), bins=edges, color=plots.COLOURS[1], label="negatives in front")
axes.axvline(own_score, color=plots.COLOURS[0], label="its own picture")
axes.set(xlabel="similarity to one caption", ylabel="pictures", yscale="symlog")
axes.set(xlim=((column.min() - step).item(), 1))  # no cosine is larger
axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
plots.show(
    figure,
    alt="A histogram of the similarities of all other pictures to one caption. A line marks its own picture, far to the right; the few "
    "negatives to the right of the line are those in front of it.",
)

# %% [markdown]
# ```{exercise} The rank of a caption
# :label: ex-03-captions
#
# Write this count for all captions at once. `S`, (Ni, Nc), has the pictures in its rows; `owner`, (Nc,), gives the row of each caption's
# own picture. Return the rank of each caption, (Nc,), counted from 0. Do not sort.
# ```
#
# ```{hint}
# :class: dropdown
#
# From each column of `S`, pick the score of its own picture. Compare the whole matrix with these numbers. Which picture does this count
# that it should not?
# ```

# %%
from course.checks import exercise


@exercise("03.captions")
def caption_ranks(S, owner):  # (Ni, Nc), (Nc,) -> (Nc,)
    # your part
    own = S[owner, torch.arange(len(owner))]  # (Nc,)   each caption with its own picture
    return (S >= own).sum(0) - 1  # (Nc,)
    # end of your part


# %% [markdown]
# ````{solution} ex-03-captions
# :class: dropdown
#
# Each caption's picture is counted too, since it scores as high as itself. Take one away.
# ````
#
# A picture has several captions of its own. Its rank is that of the *best* of them, and the others are not its negatives.
#
# ```{exercise} The rank of a picture
# :label: ex-03-ranks
#
# Return for each picture the number of captions *of other pictures* that score at least as high as its best own caption, (Ni,). The
# captions may stand in any order. Do not sort.
# ```
#
# ```{hint}
# :class: dropdown
#
# Make a mask (Ni, Nc) of what belongs together. Use it twice: to find the best own score, and to leave own captions out of the count.
# ```

# %%
from course.checks import exercise


@exercise("03.ranks")
def picture_ranks(S, owner):  # (Ni, Nc), (Nc,) -> (Ni,)
    # your part
    own = owner == torch.arange(len(S))[:, None]  # (Ni, Nc)
    best = S.masked_fill(~own, -torch.inf).amax(1, keepdim=True)  # (Ni, 1)
    return ((S >= best) & ~own).sum(1)  # (Ni,)
    # end of your part


# %% [markdown]
# ````{solution} ex-03-ranks
# :class: dropdown
#
# Hide other pictures' captions to find a picture's best. Hide its own to count the others.
# ````
#
# `vsecore.evaluation.ranks` gives both lists of ranks. It reads the matrix in blocks, so that it need not fit into memory. We compare
# with it on a hundred pictures, and with rounded scores, of which many are equal.

# %%
few = owner < 100  # captions of the first hundred pictures
hundred = S[:100, few], owner[few]
for scores in (hundred[0], (10 * hundred[0]).round()):
    i2t, t2i = ranks(scores, owner[few])  # (100,), (Nc of these,)
    assert torch.equal(torch.as_tensor(picture_ranks(scores, owner[few])), i2t)
    assert torch.equal(torch.as_tensor(caption_ranks(scores, owner[few])), t2i)
print("vsecore.evaluation.ranks agrees with both cells")

# %% [markdown]
# ## From ranks to a table
#
# Every number of the usual table summarises these two lists. *R@k*, recall at k, is the percentage of ranks below k. The *median rank* is
# the middle of the sorted ranks, rounded down, and the *mean rank* is their mean. Both are counted from 1. Here is the row of a search
# among the hundred pictures:


# %% tags=["nbval-ignore-output"]
def table_row(i2t: torch.Tensor, t2i: torch.Tensor) -> dict[str, float]:
    row = {}
    for way, found in (("i2t", i2t.double()), ("t2i", t2i.double())):
        for k in (1, 5, 10):
            row[f"{way}_r{k}"] = 100 * (found < k).double().mean().item()
        row[f"{way}_medr"] = found.quantile(0.5).floor().item() + 1
        row[f"{way}_meanr"] = found.mean().item() + 1
    return row


course.numbers(table_row(*ranks(*hundred)))

# %% [markdown]
# ```{exercise} A median rank
# :label: ex-03-median
#
# Six captions have the ranks 0, 2, 7, 0, 1 and 30, counted from 0. What is their median rank, as tables print it?
# ```
#
# ```{hint}
# :class: dropdown
#
# Sort them first. With an even number of ranks the middle lies between two of them.
# ```

# %%
from course.checks import check

your_median = 2  # your part
check("03.median", your_median)

# %% [markdown]
# ````{solution} ex-03-median
# :class: dropdown
#
# Sorted they are 0, 0, 1, 2, 7, 30. The middle lies between 1 and 2. Rounded down it is 1, and counted from 1 it is 2.
# ````
#
# ## Why ties count against a system
#
# What if a negative scores as high as the caption's own picture? We count such a *tie* against the system. Is that too strict? Here are
# four ways to compute R@1, all found in real code:
#
# - **counting** the negatives that score at least as high, as above;
# - **counting strictly** those that score higher;
# - **sorting**, and finding the place of the caption's own picture;
# - **listing its own picture first**, then all pictures, and asking whether `argmax` returns the first of the list. (It does if no score
#   is higher, so this always agrees with counting strictly.)


# %%
def four_evaluations(S: torch.Tensor, owner: torch.Tensor) -> dict[str, float]:
    own = S[owner, torch.arange(len(owner))]  # (Nc,)
    order = S.argsort(dim=0, descending=True, stable=True)  # (Ni, Nc)
    listed = torch.cat([own[None], S])  # (1 + Ni, Nc)   the own one is there twice: harmless
    found = {
        "counting": (S >= own).sum(0) == 1,
        "counting strictly": (S > own).sum(0) == 0,
        "sorting": order[0] == owner,
        "own listed first": listed.argmax(0) == 0,
    }
    return {name: 100 * hit.double().mean().item() for name, hit in found.items()}


# %% [markdown]
# ```{exercise} Break it
# :label: ex-03-break
#
# Fool the evaluation that counts strictly. Make scores for 20 pictures with five captions each, `(20, 100)`, *without knowing which belong
# together*, so that strict counting finds every caption's own picture. Counting as we do it must find none.
# ```
#
# ```{hint}
# :class: dropdown
#
# Strict counting looks only for higher scores. When is no score higher than another one?
# ```

# %%
from course.checks import check

your_scores = torch.zeros(20, 100)  # your part: (20, 100)
check("03.break", your_scores)

# %% [markdown]
# ````{solution} ex-03-break
# :class: dropdown
#
# Give all pictures the same score. Then none scores higher than a caption's own: a system that has learned nothing looks perfect.
# ````
#
# Useful systems have ties too: half precision makes them. We round the scores of our trained system to fewer and fewer decimals and expect
# the four evaluations to disagree.

# %% tags=["hide-input"]
decimals = (5, 4, 3, 2, 1, 0)
rounded = [
    four_evaluations((hundred[0] * 10**places).round(), hundred[1]) for places in decimals
]
exact, coarse = rounded[0], rounded[-1]
for name in exact:
    change = coarse[name] - exact[name]
    falls = name in ("counting", "sorting")
    lesson.finding(
        f"{name} {'falls' if falls else 'rises'}", change < -20 if falls else change > 10
    )
    lesson.finding("all agree at first", abs(exact[name] - exact["counting"]) < 1)
figure, axes = plt.subplots(figsize=(5.8, 3.2))
plots.curves(
    axes,
    {name: (decimals, [row[name] for row in rounded]) for name in rounded[0]},
    x="decimals that are kept",
    y="R@1, text to picture (%)",
)
axes.invert_xaxis()
axes.set(ylim=(0, 103))
plots.show(
    figure,
    alt="R@1 against the number of decimals kept. With many decimals the four evaluations agree. With fewer, counting and sorting "
    "fall, while counting strictly and listing the caption's own picture first climb towards a hundred percent.",
)

# %% [markdown]
# As rounding removes information, two evaluations fall and two, whose lines coincide, rise. An evaluation that rewards throwing information away cannot be
# trusted, so in this course ties count against the system in every measure.
#
# ## Why COCO 1K and COCO 5K differ
#
# COCO {cite}`lin2014coco` has five thousand test pictures in the usual split {cite}`karpathy2015alignments`. Some tables search
# all of them, *COCO 5K*. Others average over five *folds* of one thousand pictures, each with its own captions, *COCO 1K*. We do
# the same on a smaller scale and cut our test split into ten folds.

# %% tags=["nbval-ignore-output"]
small = len(S) // 10
in_folds = evaluate(S, owner, folds=10)
course.numbers({f"R@1 among {small} pictures": in_folds["t2i_r1"]})

# %% [markdown]
# ```{exercise} Ten times as many pictures
# :label: ex-03-folds
#
# Now the same system searches the whole test split, ten times as many pictures. What happens to R@1? Write your prediction before you read
# on:
#
# - `"a"`: it stays about the same;
# - `"b"`: it falls, but to much more than a tenth;
# - `"c"`: it falls to about a tenth;
# - `"d"`: nobody can tell from the folds.
# ```

# %%
from course.checks import check

your_prediction = "b"  # your part: "a", "b", "c" or "d"
check("03.folds", your_prediction)

# %% [markdown]
# ````{solution} ex-03-folds
# :class: dropdown
#
# It is b. Only captions whose own picture leads by little lose the first place. A system that guesses would fall to a tenth.
# ````
#
# Only the number of negatives changes: among $n$ pictures, a caption has $n - 1$ negatives, and each of them has a chance to score higher.
# Suppose their scores follow a *normal distribution* with mean zero and standard deviation one; this only sets the unit. Let the score of
# the caption's picture follow a normal distribution with mean $\delta$, the *lead*, and standard deviation $\sigma$, the *spread*. Call
# its density $p(s)$. With $\Phi(s)$ the chance that one negative stays below $s$, all of them stay below with chance $\Phi(s)^{n-1}$, so
#
# $$\mathrm{R@1} = \int p(s)\, \Phi(s)^{\,n-1}\, \mathrm{d}s .$$
#
# For R@k, up to $k - 1$ negatives may score higher, so the power becomes the first $k$ terms of a binomial distribution.


# %%
def expected_recall(n: int, k: int, lead: float, spread: float) -> float:
    s = torch.linspace(-8, 14, 2201, dtype=torch.float64)  # (2201,)   the own picture's score
    density = torch.exp(-(((s - lead) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
    higher, below = torch.special.ndtr(-s), torch.special.log_ndtr(s)  # 1 − Φ and log Φ
    chances = [  # that exactly j negatives score higher
        float(math.comb(n - 1, j)) * higher**j * torch.exp((n - 1 - j) * below)
        for j in range(k)
    ]
    return 100 * torch.trapezoid(density * sum(chances), s).item()


assert math.isclose(
    expected_recall(1000, 1, 0, 1), 100 / 1000, rel_tol=1e-6
)  # no lead: guessing

# %% [markdown]
# ## Does the formula hold?
#
# Real negatives are not independent numbers from a normal distribution: some pictures are nearly the same. So the formula may fail. We
# test it: we find the lead and the spread that give R@1 and R@10 on the small folds, and predict the recalls on all pictures.


# %%
def fit_recalls(n: int, r1: float, r10: float) -> tuple[float, float]:
    def off(pair):
        return [expected_recall(n, 1, *pair) - r1, expected_recall(n, 10, *pair) - r10]

    lead, spread = fsolve(off, (3.0, 1.0))
    return float(lead), float(spread)


# %% tags=["nbval-ignore-output"]
fitted = fit_recalls(small, in_folds["t2i_r1"], in_folds["t2i_r10"])
table = table_row(*ranks(S, owner))  # of the whole split
predicted = {f"R@{k}, predicted": expected_recall(len(S), k, *fitted) for k in (1, 5, 10)}
measured = {f"R@{k}, measured": table[f"t2i_r{k}"] for k in (1, 5, 10)}
course.numbers(predicted | measured)
lesson.finding(
    "the formula is right to within a few points",
    max(abs(a - b) for a, b in zip(predicted.values(), measured.values(), strict=True)) < 6,
)
lesson.finding(
    "R@1 falls, but to far more than a tenth",
    0.3 < measured["R@1, measured"] / in_folds["t2i_r1"] < 0.8,
)

# %% [markdown]
# R@1 falls, but to far more than a tenth, and the formula predicts it to within a few points. Does it also hold for published systems? For
# six of them we take R@1 and R@10 at COCO 1K and predict the three recalls at COCO 5K.

# %% tags=["hide-input"]
systems = (
    "VSE++",
    "PVSE",
    "SCAN",
    "VSRN",
    "VSE∞, ResNeXt-101, BERT",
    "DivE, ResNeXt-101, BERT",
)
entries = records.published()
pairs = {}  # predicted and published
for system in systems:
    coco = [row for row in entries if row.system == system and row.data.startswith("coco")]
    (one,), (five,) = ([row for row in coco if size in row.data] for size in ("1,000", "5,000"))
    its_fit = fit_recalls(1000, one.metrics["t2i_r1"], one.metrics["t2i_r10"])
    for k in (1, 5, 10):
        pairs[system, k] = expected_recall(5000, k, *its_fit), five.metrics[f"t2i_r{k}"]

figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 4.0))
cuts = {len(S) // folds: evaluate(S, owner, folds=folds) for folds in (20, 10, 5, 4, 2, 1)}
across = torch.logspace(math.log10(min(cuts)), math.log10(len(S)), 30).round().int()
for k, colour, marker in zip((1, 5, 10), plots.COLOURS, plots.MARKERS, strict=False):
    left.plot(across, [expected_recall(int(n), k, *fitted) for n in across], color=colour)
    heights = [row[f"t2i_r{k}"] for row in cuts.values()]
    left.plot(
        cuts.keys(), heights, marker, color=colour, markerfacecolor="white", label=f"R@{k}"
    )
left.axvline(small, color="0.6", linestyle=":")
left.annotate("fitted here", (small, 3), ha="right", va="bottom", rotation=90, color="0.4")
left.set(xscale="log", ylim=(0, 102), xlabel="pictures searched, n", ylabel="recall (%)")
left.set_title("Our system. Lines: the formula")
left.legend(loc="lower left", bbox_to_anchor=(0.28, 0))
right.plot([25, 95], [25, 95], color="0.7", linewidth=1)
for system, colour, marker in zip(systems, plots.COLOURS, plots.MARKERS, strict=False):
    its_points = zip(*[pairs[system, k] for k in (1, 5, 10)], strict=True)
    right.plot(*its_points, marker, color=colour, label=system)
right.set(
    xlabel="predicted from COCO 1K (%)", ylabel="published at COCO 5K (%)", aspect="equal"
)
right.set_title("Published systems: R@1, R@5, R@10")
right.legend(fontsize=8, loc="upper left")
plots.show(
    figure,
    alt="Left: recalls of our system fall as more pictures are searched, and the dots lie near the lines of the formula fitted at a tenth of "
    "the pictures. Right: predicted against published recalls at COCO 5K for six systems; nearly all points lie on the diagonal, those "
    "of SCAN a little above.",
)

# %% tags=["hide-input"]
off = {key: published - formula for key, (formula, published) in pairs.items()}
others = [abs(value) for (system, _), value in off.items() if system != "SCAN"]
course.numbers(
    {
        "points off, mean without SCAN": sum(others) / len(others),
        "points off, most without SCAN": max(others),
        "points off, most of SCAN": max(off["SCAN", k] for k in (1, 5, 10)),
    }
)

# %% [markdown]
# Two numbers from a small search nearly predict the recalls of a large one, here and for five of six
# published systems: COCO 1K and 5K hold nearly the same information. SCAN does better at 5K than predicted. Seven systems are few: use the
# formula to understand tables, not to replace a measurement.
#
# ## What is true, and what the protocol counts
#
# R@k asks for the *own* picture. But a caption can be true of several pictures, and our embedded world knows which.
#
# Two measures ask for all right answers. Let $R$ be the number of these *relevant* items, and let $r_i$ be one if the item at place $i$ is
# relevant, else zero. *R-precision* is the share of relevant items among the first $R$.
#
# *Mean average precision at R*, mAP@R {cite}`musgrave2020reality`, also looks at their order. With $P(i)$ the share of relevant items among the
# first $i$, it is the mean over all queries of
#
# $$\frac{1}{R} \sum_{i=1}^{R} r_i\, P(i), \qquad P(i) = \frac{1}{i} \sum_{j=1}^{i} r_j .$$
#
# ```{exercise} Average precision at R
# :label: ex-03-precision
#
# `shown` says of every item, from the best place on, whether it is relevant: a bool tensor (n,). Return the average precision at R of this
# one query.
# ```
#
# ```{hint}
# :class: dropdown
#
# `shown.sum()` is R. Only the first R places take part. A running count of the relevant items, divided by the place, is P.
# ```

# %%
from course.checks import exercise


@exercise("03.precision")
def average_precision_at_r(shown):  # (n,) bool, the best place first -> a number
    # your part
    R = int(shown.sum())
    r = shown[:R].double()  # (R,)
    P = r.cumsum(0) / torch.arange(1, R + 1)  # (R,)
    return (r * P).sum() / R
    # end of your part


# %% [markdown]
# ````{solution} ex-03-precision
# :class: dropdown
#
# A wrong item adds nothing, and it lowers P at all places after it.
# ````
#
# To use your function we need the items in the order of their scores. Ties count against the system: of equal scores, the wrong items come first.


# %%
def as_shown(scores: torch.Tensor, relevant: torch.Tensor) -> torch.Tensor:
    wrong_first = relevant.int().argsort(stable=True)  # (n,)
    order = wrong_first[scores[wrong_first].argsort(descending=True, stable=True)]  # (n,)
    return relevant[order]  # (n,)   r at place 1, 2, ...


by_hand = [float(average_precision_at_r(as_shown(S[:, c], truth[c]))) for c in range(100)]
assert math.isclose(sum(by_hand) / 100, map_at_r(S.T[:100], truth[:100]), rel_tol=1e-6)
print("vsecore.evaluation.map_at_r agrees")

# %% [markdown]
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | ranks {cite}`hodosh2013framing` | `caption_ranks`, `picture_ranks` | `vsecore.evaluation.ranks` |
# | R@k, median and mean rank | `table_row` | `vsecore.evaluation.evaluate` |
# | mAP@R {cite}`musgrave2020reality` | `average_precision_at_r` | `vsecore.evaluation.map_at_r` |
#
# ```{admonition} Optional: when some answers are better than others
# :class: note dropdown
#
# Where relevance comes in degrees, *normalised discounted cumulative gain*, nDCG {cite}`jarvelin2002cumulated`, gives an item of relevance
# $r_i$ the gain $2^{r_i} - 1$ {cite}`burges2005ranknet`, discounts it by its place, and divides this sum by the best order's:
#
# $$\sum_{i=1}^{k} \frac{2^{r_i} - 1}{\log_2 (i + 1)} .$$
#
# ```
#
# Now we ask our system both questions: does a caption find its own picture, or one that it is true of?

# %% tags=["nbval-ignore-output"]
first_true = truth[torch.arange(len(owner)), S.argmax(0)].double().mean().item()
course.numbers(
    {
        "own picture first (R@1)": table["t2i_r1"],
        "a true picture first": 100 * first_true,
        "R-precision on the truth, percent": 100 * r_precision(S.T, truth),
        "mAP@R on the truth, percent": 100 * map_at_r(S.T, truth),
    }
)
lesson.finding(
    "a true picture comes first much more often", 100 * first_true > table["t2i_r1"] + 10
)

# %% [markdown]
# A true picture comes first much more often than the caption's own: many errors that R@1 counts are right answers. How high can R@1 be? An
# *oracle* knows every true pair, and nothing else: it breaks ties at random.
#
# ```{exercise} The limit of R@1
# :label: ex-03-limit
#
# Four captions are true of 1, 1, 2 and 4 pictures, their own included. The oracle puts all true pictures before all false ones, and the
# true ones in random order. What R@1 from text to picture, in percent, do you expect on average?
# ```
#
# ```{hint}
# :class: dropdown
#
# Take the captions one by one. With what chance does its own picture come first?
# ```

# %%
from course.checks import check

your_limit = 68.75  # your part: in percent
check("03.limit", your_limit)

# %% [markdown]
# ````{solution} ex-03-limit
# :class: dropdown
#
# A caption with R true pictures finds its own first with chance 1/R. The mean of 1, 1, 1/2 and 1/4 is 11/16. More is possible only by
# guessing for which of the true pictures the caption was written.
# ````
#
# ## Do recall and truth put systems in the same order?
#
# An unfair protocol does little harm if it is equally unfair to all systems. So we compare systems of three kinds: ridge regressions with
# four penalties, and two training runs, with InfoNCE and with the loss of the next notebook, measured after different numbers of steps.


# %%
def judged(S: torch.Tensor) -> dict[str, float]:
    true = {"t2i_map": 100 * map_at_r(S.T, truth), "i2t_map": 100 * map_at_r(S, truth.T)}
    return evaluate(S, owner) | true


penalties = (100.0, 10.0, 1.0, 0.1)
line_up = {
    "ridge regression": [
        judged(ridge_scores(dataset.train, dataset.test, penalty)) for penalty in penalties
    ]
}


# %%
changes = {"dim": 96, "text.encoder.word_dim": 64, "training.epochs": 1}
changes |= {"training.learning_rate": 2e-3}
stops = lesson.pick(smoke=(10, 20), lesson=(30, 60, 90, 120, 150), full=(50, 100, 150, 200))


def judged_on_the_way(losses: dict) -> list[dict[str, float]]:
    seen = []

    def watch(event) -> None:
        if event.kind == "step" and event.step in stops:
            seen.append(judged(score_split(event.model, dataset.test, run.tokenizer)))

    recipe = get("vsepp_grid_gru").override(changes | losses)
    fit(recipe, dataset, tokenizer=run.tokenizer, callback=watch, seed=seed)
    return seen


# %%
line_up["InfoNCE"] = [*judged_on_the_way({"losses": "info_nce"}), judged(S)]
line_up["the next notebook's loss"] = judged_on_the_way({})

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(9.4, 3.8))
for axes, way, title in zip(
    panels, ("t2i", "i2t"), ("text to picture", "picture to text"), strict=True
):
    for (kind, several), colour, marker in zip(
        line_up.items(), plots.COLOURS, plots.MARKERS, strict=False
    ):
        across, up = zip(
            *((each[f"{way}_r1"], each[f"{way}_map"]) for each in several), strict=True
        )
        axes.plot(across, up, marker + "-", color=colour, label=kind, linewidth=0.8)
    axes.set(xlabel="R@1 (%)", ylabel="mAP@R on the truth (%)", title=title)
    axes.set(xlim=(0, 75), ylim=(0, 60))
of_nce, limit = line_up["InfoNCE"], 100 * (1 / truth.sum(1)).double().mean().item()
curve = [[each[name] for each in of_nce] for name in ("i2t_r1", "i2t_map")]
for each in line_up["ridge regression"]:
    lesson.finding(
        "ridge regression finds more of what is true than InfoNCE at the same R@1",
        each["i2t_map"] > 1.15 * np.interp(each["i2t_r1"], *curve),
    )
panels[0].axvline(limit, color="0.6", linestyle=":")
panels[0].annotate("oracle", (limit - 1, 3), ha="right", va="bottom", rotation=90, color="0.4")
panels[0].legend(loc="upper left")
plots.show(
    figure,
    alt="Systems of three kinds by R@1 and by mAP@R on the truth. From text to picture all lie near one rising curve. From picture to "
    "text each kind has a curve of its own, and systems of equal R@1 differ in mAP@R.",
)

# %% [markdown]
# Each dot is a system; the dotted line is the oracle's R@1. *Kendall's rank correlation* says how far two orders agree: it is the share of
# pairs of systems that both put in the same order, minus the share that they put in opposite orders.


# %%
everybody = [each for several in line_up.values() for each in several]


def rank_correlation(one: str, other: str, counted: torch.Tensor) -> float:
    x, y = torch.tensor([[each[one], each[other]] for each in everybody]).T  # (systems,) each
    agree = torch.sign(x[:, None] - x) * torch.sign(y[:, None] - y)  # (systems, systems)
    return agree[counted & ~torch.eye(len(x), dtype=torch.bool)].mean().item()


# %% tags=["nbval-ignore-output"]
kind = torch.tensor([number for number, few in enumerate(line_up.values()) for _ in few])
same = kind[:, None] == kind  # (systems, systems)
orders = {
    (way, name): rank_correlation(f"{way}_r1", f"{way}_map", counted)
    for way in ("t2i", "i2t")
    for name, counted in (("one kind", same), ("different kinds", ~same))
}
for (way, name), agreement in orders.items():
    print(f"{way}, systems of {name:15}  {agreement:.2f}")
of_text, of_pictures = orders["t2i", "different kinds"], orders["i2t", "different kinds"]
lesson.finding("from text to picture both orders agree", of_text > 0.9)
lesson.finding("from picture to text they agree less", of_pictures < of_text - 0.15)
lesson.finding("within a kind they agree", orders["i2t", "one kind"] > of_pictures + 0.1)

# %% [markdown]
# We asked whether R@1 puts systems in the same order as the truth does. From text to picture it does: the systems lie near one curve. From
# picture to text it does so within a kind, but less between kinds: the ridge regressions found more of what is true than InfoNCE at the
# same R@1. A likely reason is that R@1 needs only the best own caption, and InfoNCE pushes all captions of other pictures away, the true
# ones too. How sure are we? Each system was trained once, at the size of a lesson. So use R@1 to follow training, but compare systems of
# different kinds by the truth as well.
#
# ```{exercise} Change one thing
# :label: ex-03-explore
#
# Does another measure agree with the truth better? `rank_correlation("i2t_r1", "i2t_map", ~same)` gave the last number above. Change the
# measure (`"i2t_r10"`, `"rsum"`, or `"i2t_medr"`, which is best when low), the direction, or the pairs that count. Write down what you
# expect before you run it, and afterwards what you found.
# ```

# %% tags=["nbval-ignore-output"]
from course.checks import check

expected = "R@10 agrees better than R@1: it forgives near misses."  # your part: before you run
# your part
tried = rank_correlation("i2t_r10", "i2t_map", ~same)
print(f"i2t, different kinds, by R@10: {tried:.2f}")
# end of your part
found = "Not perfectly either: each kind still has a curve of its own."  # your part
check("03.explore", (expected, found))

# %% [markdown]
# ````{solution} ex-03-explore
# :class: dropdown
#
# What counts is to expect something before you see the number.
# ````
#
# ## What people say about photographs
#
# For photographs we can ask people. *Crisscrossed Captions*, CxC {cite}`parekh2021cxc`, had raters judge further pairs of COCO's test
# split. *ECCV Caption* {cite}`chun2022eccv` let five systems propose pairs and asked people to confirm them.

# %% tags=["hide-input"]
split = coco_judgements.split_ids()
row = {int(number): place for place, number in enumerate(split.pictures)}
place = {int(number): place for place, number in enumerate(split.captions)}
pairs_of = {}
for benchmark in ("coco", "cxc", "eccv"):
    captions, pictures = coco_judgements.right_items(benchmark)
    named = {(p, c) for p, several in captions.items() for c in several}
    named |= {(p, c) for c, several in pictures.items() for p in several}
    pairs_of[benchmark] = {(row[p], place[c]) for p, c in named if c in place}
further = (pairs_of["cxc"] | pairs_of["eccv"]) - pairs_of["coco"]
print("own pairs:", len(pairs_of["coco"]))
print("further pairs that people found right:", len(further))

# %% [markdown]
# People confirmed more further pairs than there are own pairs, and most pairs were never looked at.
# `vsecore.evaluation.coco_benchmarks` measures your scores by all three. Here is what was published for three systems:

# %% tags=["hide-input"]
columns = ("eccv_t2i_map_at_r", "eccv_t2i_r_precision", "eccv_t2i_r1", "cxc_t2i_r1")
lines = [
    "| text to picture | rsum, COCO 5K | ECCV mAP@R | ECCV R-precision | ECCV R@1 | CxC R@1 | source |",
    "| --- | --- | --- | --- | --- | --- | --- |",
]
for entry in (entry for entry in entries if columns[0] in entry.metrics):
    (coco,) = [
        other
        for other in entries
        if other.system == entry.system and other.data.startswith("coco, 5,000")
    ]
    values = (coco.rsum, *(entry.metrics[column] for column in columns))
    cells = [entry.system, *(f"{value:.1f}" for value in values)]
    cells.append(f"{entry.source}; measured in {entry.read_in}")
    lines.append(f"| {' | '.join(cells)} |")
Markdown("\n".join(lines))

# %% [markdown]
# VSRN has the lowest rsum of the three and the highest mAP@R from text to picture. But VSRN is one of the five systems that proposed the
# pairs, and the authors warn that a proposer's pairs are confirmed more often.
#
# ## Summary
#
# - On the unit sphere the nearest is the most similar, and the cosine is all we need to compare.
# - A rank counts negatives that score at least as high as a query's own item; every number of the table summarises ranks.
# - Ties count against the system, and recalls can be compared only for the same number of pictures.
# - R@1 asks for a query's own item, mAP@R for all relevant items; systems of different kinds need both.
#
# ## Where to read on
#
# - [Learning to rank](04_learning_to_rank.ipynb) makes the vectors: it writes the loss that pulls a picture and its caption together.
# - Ranking as the task, with R@k and the median rank: {cite}`hodosh2013framing`.
