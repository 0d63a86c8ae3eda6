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
# **You will be able to** say what pictures and sentences share a space for, compute every number of a retrieval table by hand,
# see through an evaluation that flatters, foretell what a recall on few pictures becomes on many, and measure against what is true
# instead of against what belongs together.
#
# **You need** the notebooks *Start here* and *Pictures and captions*, dot products, and an idea of the normal distribution.
#
# **It takes** about 1 minute and 2 GB of memory on two cores.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import math

import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown

from vsecore import course, records
from vsecore.course import plots
from vsecore.baselines import ridge_scores
from vsecore.course.checks import check
from vsecore.data import coco_judgements
from vsecore.evaluation import coco_benchmarks, evaluate, map_at_r, ndcg, r_precision, ranks
from vsecore.similarity import cosine

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## One space for two kinds of things
#
# A picture network and a sentence network give vectors of the same length. Scaled to length one, all of them lie on the *unit
# sphere*, the points at distance one from the origin. That sphere is the *joint space*. A sentence should lie near the pictures
# that it fits. How near can be said in two ways: by the angle between two vectors, or by the straight line from tip to tip.

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
# On the unit sphere the two ways are one. Multiply out the squared distance, with $v \cdot v = t \cdot t = 1$ and the similarity
# $s(v, t) = v \cdot t$:
#
# $$\lVert v - t \rVert^2 = v \cdot v + t \cdot t - 2\, v \cdot t = 2 - 2\, s(v, t) .$$
#
# The nearest point is always the most similar one. The next cell holds the equation against random vectors.

# %%
dice = torch.Generator().manual_seed(seed)
v, t = torch.nn.functional.normalize(torch.randn(2, 200, 8, generator=dice), dim=2)  # (200, 8)
s = cosine(v, t)  # (200, 200)   every v with every t
squared = (v[:, None] - t).square().sum(2)  # (200, 200)
torch.testing.assert_close(squared, 2 - 2 * s, atol=1e-5, rtol=0)  # the equation above
print("nearest is most similar:", torch.equal(squared.argmin(1), s.argmax(1)))

# %% [markdown]
# Without the scaling, the dot product, the cosine and the distance disagree. Below, each $t$ gets a random length between one
# and two, and we count for how many of the two hundred $v$ the three would put the same $t$ first.

# %%
longer = t * (1 + torch.rand(200, 1, generator=dice))  # (200, 8)
first = {
    "dot product": (v @ longer.T).argmax(1),  # (200,)
    "distance": torch.cdist(v, longer).argmin(1),  # (200,)
}
for name, choice in first.items():
    agree = (choice == s.argmax(1)).sum().item()
    print(f"{name} and cosine put the same first: {agree} of {len(v)}")

# %% [markdown]
# The dot product favours long vectors and the distance short ones. The cosine cares for neither, and so does this course.
#
# ## How much room there is
#
# How similar are two vectors that have nothing to do with each other? Expect it to depend on the number of dimensions: on a circle
# two strangers often meet, on a sphere of many dimensions hardly ever.

# %%
figure, axes = plt.subplots(figsize=(5.8, 3.2))
lines = {}
for width in (2, 16, 256):
    one, two = torch.nn.functional.normalize(
        torch.randn(2, 1000, width, generator=dice), dim=2
    )  # (1000, width)
    strangers = cosine(one, two).flatten()  # (1000000,)
    assert abs(strangers.std() * math.sqrt(width) - 1) < 0.05  # the closed form below
    counts = torch.histc(strangers, bins=41, min=-1, max=1)  # (41,)
    middles = torch.linspace(-40 / 41, 40 / 41, 41)  # (41,)   of the bins
    lines[f"{width} dimensions"] = (middles, 100 * counts / counts.sum())
plots.curves(axes, lines, x="cosine of two random directions", y="pairs (%)")
plots.show(
    figure,
    alt="How often each cosine occurs between random directions. In two dimensions the ends are the most frequent, in sixteen "
    "there is a broad bell around zero, in two hundred and fifty-six a narrow one.",
)

# %% [markdown]
# The more dimensions, the nearer to a right angle. The mean is zero, the standard deviation is one over the square root of the
# number of dimensions (the cell asserts it), and the shape becomes a *normal distribution*, the bell curve. Remember the bell: it will
# foretell recalls.
#
# ## A matrix of scores
#
# To measure anything we need a system. A cheap and honest one will do: *ridge regression*, a linear map whose weights are kept
# small, foretells from the mean of a picture's cells which words its captions have, and compares with each caption by cosine. It
# takes a second and no network is trained.

# %%
dataset = lesson.dataset("grid")
owner = torch.from_numpy(dataset.test.owner)  # (Nc,)   the picture that each caption belongs to
S = ridge_scores(dataset.train, dataset.test)  # (Ni, Nc)
print("pictures and captions:", tuple(S.shape))

# %% [markdown]
# ## Ranks, by counting
#
# Take one caption, and look at its column: its similarity to each picture. One picture is its own; all others we call its
# *rivals*. The *rank* of a caption is the number of rivals that score at least as high as its own picture. The best rank is 0. Nothing
# needs to be sorted for that: it is enough to count what lies right of a line.

# %% tags=["hide-input"]
own_scores = S[owner, torch.arange(len(owner))]  # (Nc,)
in_front = (S >= own_scores).sum(0) - 1  # (Nc,)
looked_at = int((in_front == in_front[in_front > 3].min()).nonzero()[0])
column, own_score = S[:, looked_at], own_scores[looked_at]
above = column[(column >= own_score) & (torch.arange(len(S)) != owner[looked_at])]  # (rank,)
figure, axes = plt.subplots(figsize=(6.4, 3.2))
edges = torch.linspace(column.min(), column.max(), 45).tolist()
axes.hist(column.tolist(), bins=edges, color="0.75", label="all pictures")
axes.hist(above.tolist(), bins=edges, color=plots.COLOURS[1], label="rivals in front")
axes.axvline(own_score, color=plots.COLOURS[0])
axes.annotate(
    "its own picture ",
    (own_score, 0.93),
    xycoords=("data", "axes fraction"),
    ha="right",
    color=plots.COLOURS[0],
)
axes.set(xlabel="similarity to one caption", ylabel="pictures", yscale="symlog")
axes.set_xlim(right=column.max() + 0.2)  # room for the legend
axes.legend(loc="upper right")
plots.show(
    figure,
    alt="A histogram of the similarities of all pictures to one caption. A line marks its own picture, far to the right; a handful "
    "of rivals lie to the right of the line.",
)
Markdown(f"*{dataset.test.captions[looked_at]}*")

# %% [markdown]
# In code, for all captions at once. Each own picture scores as high as itself, so it has counted itself once.


# %%
def caption_ranks(S: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    own = S[owner, torch.arange(len(owner))]  # (Nc,)   each caption with its own picture
    return (S >= own).sum(0) - 1  # (Nc,)


# %% [markdown]
# A picture has several captions of its own. Its rank is that of the *best* of them, and the others are no rivals.


# %%
def picture_ranks(S: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    own = owner == torch.arange(len(S))[:, None]  # (Ni, Nc)
    best = S.masked_fill(~own, -torch.inf).amax(1, keepdim=True)  # (Ni, 1)
    return ((S >= best) & ~own).sum(1)  # (Ni,)


# %% [markdown]
# `vsecore.evaluation.ranks` reads the matrix in blocks, so that it need not fit into memory, and must give the same:

# %%
i2t, t2i = ranks(S, owner)  # (Ni,), (Nc,)   picture to text, text to picture
torch.testing.assert_close(i2t, picture_ranks(S, owner))
torch.testing.assert_close(t2i, caption_ranks(S, owner))
print("vsecore.evaluation.ranks agrees with both cells")

# %% [markdown]
# ## From ranks to a table
#
# All numbers of the usual table are summaries of those two lists. *R@k*, short for recall at k, is the percentage of ranks below k. The
# *median rank* is the middle of the sorted ranks, the *mean rank* their mean, both counted from 1, as the field does; the median
# is rounded down.


# %%
def table_row(i2t: torch.Tensor, t2i: torch.Tensor) -> dict[str, float]:
    row = {}
    for way, found in (("i2t", i2t.double()), ("t2i", t2i.double())):
        for k in (1, 5, 10):
            row[f"{way}_r{k}"] = 100 * (found < k).double().mean().item()
        row[f"{way}_medr"] = found.quantile(0.5).floor().item() + 1
        row[f"{way}_meanr"] = found.mean().item() + 1
    return row


by_hand, table = table_row(i2t, t2i), evaluate(S, owner)
for name, value in by_hand.items():
    assert math.isclose(value, table[name]), name
lesson.report("03_table", by_hand)

# %% [markdown]
# The three recalls are three points of a curve: the percentage of queries whose rank lies below k, for every k. The median rank is
# where the curve crosses one half.

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(5.8, 3.4))
every = torch.arange(1, len(S) + 1)
lines = {
    "picture to text": (every, 100 * (i2t[:, None] < every).double().mean(0)),
    "text to picture": (every, 100 * (t2i[:, None] < every).double().mean(0)),
    "guessing a picture": (every, 100 * every / len(S)),
}
plots.curves(axes, lines, x="k", y="recall at k (%)")
axes.axhline(50, color="0.5", linewidth=0.8)
for way, colour, size in (("i2t", plots.COLOURS[0], 10), ("t2i", plots.COLOURS[1], 5)):
    axes.plot([by_hand[f"{way}_medr"]], [50], "o", color=colour, markersize=size)
axes.set(xscale="log", ylim=(0, 103))
plots.show(
    figure,
    alt="Recall at k against k, on a logarithmic axis, for picture to text, text to picture and guessing. The first two rise early "
    "and cross one half at their median ranks, which are marked; guessing rises only at the end.",
)

# %% [markdown]
# ## Ties
#
# What if a rival scores exactly as high as the own picture, a *tie*? Above it counts as in front. Is that mean? Take the worst system there is,
# one that has *collapsed*: it says the same number to every pair. It knows nothing, so it should get nothing. Four ways to evaluate
# it, all of which one meets in code:
#
# - **counting** rivals that score at least as high, as above;
# - **counting strictly** those that score higher;
# - **sorting**, and looking up the place of the own picture;
# - **listing the own picture first**, its rivals after it, and asking whether the first of the list has the largest score.


# %%
def four_evaluations(S: torch.Tensor, owner: torch.Tensor) -> dict[str, float]:
    own = S[owner, torch.arange(len(owner))]  # (Nc,)
    order = S.argsort(dim=0, descending=True, stable=True)  # (Ni, Nc)
    listed = torch.cat([own[None], S])  # (1 + Ni, Nc)   that own comes again is no matter
    found = {
        "counting": (S >= own).sum(0) == 1,
        "counting strictly": (S > own).sum(0) == 0,
        "sorting": order[0] == owner,
        "own listed first": listed.argmax(0) == 0,
    }
    return {name: 100 * hit.double().mean().item() for name, hit in found.items()}


some = slice(None, None, 6)  # of the captions; a sixth will do, of all annotators
collapsed = four_evaluations(torch.zeros_like(S)[:, some], owner[some])
for name, percent in collapsed.items():
    print(f"{name:<18} R@1 {percent:5.1f}")

# %% [markdown]
# The same system gets nothing, everything, or the captions that happen to belong to the picture that a sort leaves in front. Only
# counting gives what the system deserves. The package's whole table for it, with both directions, sums to

# %%
evaluate(torch.zeros_like(S), owner)["rsum"]

# %% [markdown]
# Who meets exact ties in practice? Whoever saves memory. Half precision, or scores rounded for storage, makes them. We round our
# system's scores to fewer and fewer decimals, and expect the four evaluations to part.

# %% tags=["hide-input"]
decimals = (5, 4, 3, 2, 1, 0)
rounded = [
    four_evaluations((S[:, some] * 10**places).round(), owner[some]) for places in decimals
]
figure, axes = plt.subplots(figsize=(5.8, 3.4))
plots.curves(
    axes,
    {name: (decimals, [row[name] for row in rounded]) for name in rounded[0]},
    x="decimals that are kept",
    y="R@1, text to picture (%)",
)
axes.invert_xaxis()
plots.show(
    figure,
    alt="R@1 against the number of decimals kept. With five to three decimals the four evaluations agree. With fewer, counting and sorting "
    "fall, while counting strictly and listing the own picture first climb towards a hundred percent.",
)

# %% [markdown]
# Two of the four evaluations fall as the system says less, and two rise: the less it says, the better they find it. That is why ties count against a system here, in every
# measure. And a score that is not a number at all is refused by `vsecore`: no comparison with it is ever true, so a broken
# system would have no rival in front.
#
# ## Folds: why COCO 1K and COCO 5K differ
#
# COCO {cite}`lin2014coco` has five thousand test pictures in the split that everybody uses {cite}`karpathy2015alignments`. Some tables
# search all of them at once, *COCO 5K*. Others cut them into five *folds*, consecutive parts of one thousand, each with its own captions,
# and average over the folds: *COCO 1K*. The system is the same, the pictures are the same, yet the numbers differ by a lot. Why?
#
# Because of the rivals. Let $n$ be the number of pictures searched. A caption has $n - 1$ rivals, and each has its chance to score higher.
# Suppose the rivals' scores follow the bell curve, with mean zero and standard deviation one; that only sets the unit. Let the own
# picture's score follow a bell curve with mean $\delta$, the *lead*, and standard deviation $\sigma$, the *spread*, and let $p(s)$ be
# its density. With $\Phi(s)$ the chance that one rival stays below $s$, all of them do with chance $\Phi(s)^{n-1}$, so
#
# $$\mathrm{R@1} = \int p(s)\, \Phi(s)^{\,n-1}\, \mathrm{d}s .$$
#
# For R@k, up to $k - 1$ rivals may score higher: instead of one power, the first $k$ terms of the binomial distribution.


# %%
def recall_law(n: int, k: int, lead: float, spread: float) -> float:
    s = torch.linspace(-8, 14, 2201, dtype=torch.float64)  # (2201,)   the own picture's score
    density = torch.exp(-(((s - lead) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
    higher, below = (
        torch.special.ndtr(-s),
        torch.special.log_ndtr(s),
    )  # of one rival: 1 − Φ, log Φ
    chances = [
        float(math.comb(n - 1, j)) * higher**j * torch.exp((n - 1 - j) * below)
        for j in range(k)  # exactly j rivals score higher
    ]
    return 100 * torch.trapezoid(density * sum(chances), s).item()


assert math.isclose(recall_law(1000, 1, 0, 1), 100 / 1000, rel_tol=1e-6)  # no lead: guessing

# %% [markdown]
# First we hold the law against a simulation: scores thrown by dice, for all pictures and captions of COCO's test split. The numbers of the
# pictures and captions are the real ones, since the package `eccv_caption` brings them along; the scores are not. Cut into ever
# smaller folds, the same matrix should give ever higher recalls, on the law's lines.

# %%
split = coco_judgements.split_ids()
coco_owner, everyone = torch.from_numpy(split.owner), torch.arange(len(split.captions))
lead, spread = 3.3, 0.65
dice = torch.Generator().manual_seed(seed)
scores = torch.randn(len(split.pictures), len(everyone), generator=dice)  # (Ni, Nc)
scores[coco_owner, everyone] = lead + spread * scores[coco_owner, everyone]

folds = (50, 20, 10, 5, 2, 1)
sizes = [len(split.pictures) // fold for fold in folds]
simulated = {
    size: evaluate(scores, coco_owner, folds=fold)
    for size, fold in zip(sizes, folds, strict=True)
}


# %% tags=["hide-input"]
def against_size(
    axes: plt.Axes, measured: dict, lead: float, spread: float, largest: int, title: str
) -> None:
    across = torch.logspace(math.log10(min(measured)), math.log10(largest), 30).round().int()
    for k, colour, marker in zip((1, 5, 10), plots.COLOURS, plots.MARKERS, strict=False):
        law = [recall_law(int(n), k, lead, spread) for n in across]
        axes.plot(across, law, color=colour)
        axes.plot(
            measured.keys(),
            [row[f"t2i_r{k}"] for row in measured.values()],
            marker,
            color=colour,
            markerfacecolor="white",
            label=f"R@{k}",
        )
    axes.set(xscale="log", ylim=(0, 102), xlabel="pictures searched, n", ylabel="recall (%)")
    axes.set_title(title)
    axes.legend(loc="lower left")


figure, axes = plt.subplots(figsize=(6.0, 3.6))
against_size(axes, simulated, lead, spread, sizes[-1], "Dots: simulated. Lines: the law.")
for size, name in ((1000, "COCO 1K"), (5000, "COCO 5K")):
    axes.axvline(size, color="0.6", linestyle=":")
    axes.annotate(name, (size, 3), ha="right", va="bottom", rotation=90, color="0.4")
plots.show(
    figure,
    alt="R@1, R@5 and R@10 from text to picture fall as more pictures are searched, from one hundred to five thousand. "
    "The simulated dots lie on the lines of the law; dotted lines mark COCO 1K and COCO 5K.",
)

# %%
both = {
    f"R@1, {name}": simulated[size]["t2i_r1"] for size, name in ((1000, "1K"), (5000, "5K"))
}
law = {
    f"R@1 by the law, {name}": recall_law(size, 1, lead, spread)
    for size, name in ((1000, "1K"), (5000, "5K"))
}
lesson.report("03_folds", both | law)

# %% [markdown]
# Nothing about a system changes between COCO 1K and 5K but the number of rivals. Whoever compares two systems must compare
# them on the same number of pictures. One thing does not change, but for chance: the *share* of rivals in front of the own picture, the mean
# rank (counted from 0) divided by $n - 1$. Each rival's chance is the same, however many there are.

# %%
shares = {
    f"rivals in front of a thousand, n = {size}": 1000 * (row["t2i_meanr"] - 1) / (size - 1)
    for size, row in simulated.items()
    if size in (100, 1000, 5000)
}
lesson.report("03_share", shares)

# %% [markdown]
# ## An experiment that could fail
#
# Dice obey a law made for dice. Do systems? A real system's rivals are not alike: some pictures are nearly the same, some captions fit
# everything. So: measure our ridge regression on small folds only, find the lead and the spread that explain R@1 and R@10
# there, and *foretell* the recalls on all test pictures. If real rivals are of another kind, we shall miss.
#
# Both numbers are found by halving: for each spread there is one lead that explains R@1, and of those pairs one explains R@10.


# %%
def halve(too_low, low: float, high: float) -> float:
    for _ in range(22):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return (low + high) / 2


def explain(n: int, r1: float, r10: float) -> tuple[float, float]:
    def lead_of(spread: float) -> float:
        return halve(lambda lead: recall_law(n, 1, lead, spread) < r1, 0, 12)

    spread = halve(lambda spread: recall_law(n, 10, lead_of(spread), spread) > r10, 0.1, 4)
    return lead_of(spread), spread


# %%
cut = (20, 10, 5, 4, 2, 1)
of_ridge = {len(S) // fold: evaluate(S, owner, folds=fold) for fold in cut}
small = len(S) // 10
ridge_lead, ridge_spread = explain(small, of_ridge[small]["t2i_r1"], of_ridge[small]["t2i_r10"])
foretold = {
    f"R@{k}, foretold": recall_law(len(S), k, ridge_lead, ridge_spread) for k in (1, 5, 10)
}
measured = {f"R@{k}, measured": of_ridge[len(S)][f"t2i_r{k}"] for k in (1, 5, 10)}
lesson.report("03_foretold", foretold | measured)

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6.0, 3.6))
against_size(
    axes, of_ridge, ridge_lead, ridge_spread, len(S), "Dots: ridge regression. Lines: the law."
)
axes.axvline(small, color="0.6", linestyle=":")
axes.annotate(
    "the law is fitted here", (small, 3), ha="right", va="bottom", rotation=90, color="0.4"
)
plots.show(
    figure,
    alt="Recalls of the ridge regression against the number of pictures searched, with the law fitted at a tenth of the pictures. "
    "The dots lie on the lines or very near them, up to all test pictures.",
)

# %% [markdown]
# In the stored run it could have failed and did not. Two numbers, a lead and a spread, are enough to know this system's recalls at any size. Does it
# hold for the systems of the literature? Their tables give COCO 1K and COCO 5K. We take R@1 and R@10 at 1K, and foretell the three
# recalls at 5K.
#
# ## What the papers report, and what the law foretells

# %%
systems = (
    "VSE++",
    "PVSE",
    "SCAN",
    "VSRN",
    "VSE∞, ResNeXt-101, BERT",
    "DivE, ResNeXt-101, BERT",
)
Markdown(course.published(*systems, data="coco"))

# %% tags=["hide-input"]
entries = records.published()
pairs = {}
for system in systems:
    coco = [row for row in entries if row.system == system and row.data.startswith("coco")]
    (small_row,), (large_row,) = (
        [row for row in coco if words in row.data] for words in ("1,000", "5,000")
    )
    its_lead, its_spread = explain(
        1000, small_row.metrics["t2i_r1"], small_row.metrics["t2i_r10"]
    )
    for k in (1, 5, 10):
        pairs[system, k] = (
            recall_law(5000, k, its_lead, its_spread),
            large_row.metrics[f"t2i_r{k}"],
        )

figure, axes = plt.subplots(figsize=(5.4, 4.4))
axes.plot([25, 92], [25, 92], color="0.7", linewidth=1)
for system, colour, marker in zip(systems, plots.COLOURS, plots.MARKERS, strict=False):
    its_points = zip(*[pairs[system, k] for k in (1, 5, 10)], strict=True)
    axes.plot(*its_points, marker, color=colour, label=system)
axes.set(xlabel="foretold from COCO 1K (%)", ylabel="published at COCO 5K (%)", aspect="equal")
axes.legend(fontsize=8, loc="upper left")
plots.show(
    figure,
    alt="Foretold against published recalls at COCO 5K from text to picture, for six systems. Nearly all points lie on the "
    "diagonal; those of SCAN lie a little above it.",
)

# %%
off = {key: published - law for key, (law, published) in pairs.items()}
others = [abs(value) for (system, _), value in off.items() if system != "SCAN"]
lesson.report(
    "03_published",
    {
        "points off, mean without SCAN": sum(others) / len(others),
        "points off, most without SCAN": max(others),
        "points off, most of SCAN": max(off["SCAN", k] for k in (1, 5, 10)),
    },
)

# %% [markdown]
# For five of the six systems, two numbers at 1K foretell 5K almost to the point: the two tables hold nearly the same information.
# SCAN does better at 5K than its 1K numbers allow. From here we cannot tell why. It compares words with regions
# instead of two vectors, and the models averaged for one table need not be those of the other.
#
# ## What is true, and what belongs together
#
# R@k asks for the *own* picture. But a caption may be true of several pictures, and then each of them is a right answer, whether the protocol
# knows it or not. The embedded world does know. Below are the first pictures that our ridge regression finds for one
# caption; a tick marks those of which it is true.

# %% tags=["hide-input"]
truth = lesson.relevance("test")  # (Nc, Ni)
if truth is None:
    print("Photographs: nobody knows what is true, so below the own picture stands for it.")
    truth = (owner[:, None] == torch.arange(len(S))).numpy()
truth = torch.from_numpy(truth)
count = truth.sum(1)  # (Nc,)   R of each caption
found = S.topk(5, dim=0).indices.T  # (Nc, 5)
hits = truth.gather(1, found)  # (Nc, 5)
telling = (count == 5) & ~hits[:, 0] & (hits.sum(1) == 3)
asked = int(telling.nonzero()[0]) if telling.any() else looked_at
shown = found[asked].tolist()
places = [
    f"{place}{', its own' if row == owner[asked] else ''}" for place, row in enumerate(shown, 1)
]
figure = plots.picture_row(
    lesson.pictures("test", shown),
    places,
    marked=truth[asked, shown].tolist(),
    heading=dataset.test.captions[asked],
)
plots.show(
    figure,
    alt=f"The first five pictures found for: {dataset.test.captions[asked]} A frame and a tick mark those of which it is true.",
)

# %% [markdown]
# Three measures ask for all of them. Call an item *relevant* if it is a right answer, let $R$ be the number of relevant items, and let
# $r_i$ be one if the item at place $i$ is relevant, else zero.
#
# *R-precision* is the share of relevant items among the first $R$:
#
# $$\frac{1}{R} \sum_{i=1}^{R} r_i .$$
#
# *Mean average precision at R*, mAP@R {cite}`musgrave2020reality`, minds the order within these $R$ too. With $P(i)$ the share of relevant items
# among the first $i$, it is the mean over all queries of
#
# $$\frac{1}{R} \sum_{i=1}^{R} r_i\, P(i), \qquad P(i) = \frac{1}{i} \sum_{j=1}^{i} r_j .$$
#
# Both need the items in the order in which a system shows them. Ties count against the system here too: of equal scores, the least
# relevant is shown first.


# %%
def as_shown(scores: torch.Tensor, relevance: torch.Tensor) -> torch.Tensor:
    worst_first = relevance.argsort(stable=True)  # (n,)
    order = worst_first[scores[worst_first].argsort(descending=True, stable=True)]  # (n,)
    return relevance[order]  # (n,)   r at place 1, 2, ...


def r_precision_by_hand(scores: torch.Tensor, relevance: torch.Tensor) -> torch.Tensor:
    R = int(relevance.sum())
    return as_shown(scores, relevance)[:R].double().mean()


def average_precision_at_r(scores: torch.Tensor, relevance: torch.Tensor) -> torch.Tensor:
    R = int(relevance.sum())
    r = as_shown(scores, relevance)[:R].double()  # (R,)
    P = r.cumsum(0) / torch.arange(1, R + 1)  # (R,)
    return (r * P).sum() / R


# %% [markdown]
# The third knows degrees. *Normalised discounted cumulative gain*, nDCG {cite}`jarvelin2002cumulated`, discounts the gain of an item by its
# place; the sum is divided by what the best possible order would reach. An item of relevance $r_i$ has the gain $2^{r_i} - 1$ here, and the
# discount is a logarithm, both as in {cite}`burges2005ranknet`:
#
# $$\sum_{i=1}^{k} \frac{2^{r_i} - 1}{\log_2 (i + 1)} .$$
#
# Our truth knows only yes and no. Later notebooks need the degrees.


# %%
def ndcg_by_hand(scores: torch.Tensor, relevance: torch.Tensor, k: int = 25) -> torch.Tensor:
    shown = as_shown(scores, relevance)[:k].double()  # (k,)
    best = relevance.double().sort(descending=True).values[:k]  # (k,)
    discount = torch.arange(2, len(shown) + 2).double().log2()  # (k,)
    return ((2**shown - 1) / discount).sum() / ((2**best - 1) / discount).sum()


# %% [markdown]
# The package has all three for many queries at once, one a row. Here the queries are captions, so the matrix is turned.

# %%
taught = (r_precision_by_hand, average_precision_at_r, ndcg_by_hand)
for function, theirs in zip(taught, (r_precision, map_at_r, ndcg), strict=True):
    by_hand = torch.stack([function(S[:, row], truth[row]) for row in range(100)]).mean()
    torch.testing.assert_close(by_hand.item(), theirs(S.T[:100], truth[:100]))
print("vsecore.evaluation agrees with the three cells")

# %% [markdown]
# Now the two questions side by side, for the same system: does a caption find its own picture, and does it find what it is true of? Expect
# the second to look better at the first place, and worse further down: there are more right answers, and all of them are asked for.

# %%
first_true = truth[torch.arange(len(owner)), S.argmax(0)].double().mean().item()
lesson.report(
    "03_truth",
    {
        "own picture first (R@1)": table["t2i_r1"],
        "a true picture first": 100 * first_true,
        "R-precision on the truth, percent": 100 * r_precision(S.T, truth),
        "mAP@R on the truth, percent": 100 * map_at_r(S.T, truth),
        "nDCG on the truth, percent": 100 * ndcg(S.T, truth),
    },
)

# %% [markdown]
# A true picture stands first far more often than the own one: much of what R@1 calls an error is a right answer. Yet not all of what is
# true is found.
#
# ## Does the protocol put systems in the right order?
#
# It would not matter that the protocol is unfair if it were equally unfair to everybody. So we line up systems and ask
# whether the protocol (R@1, text to picture) and the truth (mAP@R) put them in the same order. *Kendall's rank correlation* says how far two orders agree:
# of all pairs of systems, the share put in the same order less the share put in opposite order. One is the same
# order, minus one the reverse.
#
# Some systems are real: our ridge regression with three penalties, and the same spoilt by noise. Others are made up, and
# of two kinds: *keepers*, which know the own pairs by heart and nothing else, and *readers*, which know what is true and cannot tell the own
# picture from another that fits as well. Both get noise, more or less of it.


# %%
def rank_correlation(one: list[float], two: list[float]) -> float:
    x, y = torch.tensor(one), torch.tensor(two)  # (systems,)
    agree = torch.sign(x[:, None] - x) * torch.sign(y[:, None] - y)  # (systems, systems)
    return agree.sum().item() / (len(one) * (len(one) - 1))


# %% tags=["hide-input"]
dice = torch.Generator().manual_seed(seed)


def noise(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(S.shape, generator=dice)


own_pairs = (owner == torch.arange(len(S))[:, None]).float()  # (Ni, Nc)
line_up = {
    "ridge": [
        *(ridge_scores(dataset.train, dataset.test, alpha) for alpha in (0.1, 10.0, 100.0)),
        *(S + noise(scale * S.std().item()) for scale in (0.5, 1.0)),
    ],
    "keeper": [noise() + strength * own_pairs for strength in (2.0, 2.5, 3.0)],
    "reader": [noise() + strength * truth.T for strength in (2.0, 2.5, 3.0)],
}
judged = {
    kind: [(evaluate(made, owner)["t2i_r1"], 100 * map_at_r(made.T, truth)) for made in several]
    for kind, several in line_up.items()
}
del line_up
figure, axes = plt.subplots(figsize=(5.8, 3.8))
for (kind, several), colour, marker in zip(
    judged.items(), plots.COLOURS, plots.MARKERS, strict=False
):
    axes.plot(*zip(*several, strict=True), marker, color=colour, label=kind, markersize=7)
axes.set(xlabel="the protocol: R@1, text to picture (%)", ylabel="the truth: mAP@R (%)")
axes.legend()
plots.show(
    figure,
    alt="Eleven systems by the protocol's R@1 and by mAP@R on the truth, text to picture. Within each kind the points rise together. But "
    "keepers lie far below readers and ridge regressions of the same R@1.",
)

# %%
everybody = [pair for several in judged.values() for pair in several]
lesson.report(
    "03_order",
    {
        "rank correlation, ridge alone": rank_correlation(
            *map(list, zip(*judged["ridge"], strict=True))
        ),
        "rank correlation, keepers and readers": rank_correlation(
            *map(list, zip(*judged["keeper"], *judged["reader"], strict=True))
        ),
        "rank correlation, all systems": rank_correlation(
            *map(list, zip(*everybody, strict=True))
        ),
    },
)

# %% [markdown]
# Among systems of one kind the protocol errs little: whoever does better by it does better in truth. Between kinds it can be wrong by
# far, for it pays for telling apart what no sentence tells apart. Progress on a protocol is progress of a kind.
#
# ## CxC and ECCV Caption: what people say
#
# For photographs nobody knows the truth, but people can be asked. *Crisscrossed Captions*, CxC {cite}`parekh2021cxc`, had raters judge
# further pairs of COCO's test split. *ECCV Caption* {cite}`chun2022eccv` let five systems propose pairs and asked
# people to confirm them. How many pairs do they add to the own ones?

# %%
row = {int(number): place for place, number in enumerate(split.pictures)}
place = {int(number): place for place, number in enumerate(split.captions)}
pairs_of = {}
for benchmark in ("coco", "cxc", "eccv"):
    captions, pictures = coco_judgements.right_items(benchmark)
    named = {(p, c) for p, several in captions.items() for c in several}
    named |= {(p, c) for c, several in pictures.items() for p in several}
    pairs_of[benchmark] = {(row[p], place[c]) for p, c in named if c in place}
added = (pairs_of["cxc"] | pairs_of["eccv"]) - pairs_of["coco"]
added = torch.tensor(sorted(added))  # (pairs, 2)   the rows of a picture and of a caption
asks = coco_judgements.right_items("eccv")
print("pictures and captions that ECCV Caption asks about:", len(asks[0]), len(asks[1]))
print("own pairs:", len(pairs_of["coco"]))
print("own pairs that the raters of CxC did not keep:", len(pairs_of["coco"] - pairs_of["cxc"]))
print("further right pairs:", len(added))

# %% [markdown]
# People found more right pairs than there are own ones, though only a part of all pairs was ever looked at. ECCV Caption
# asks for all of them with mAP@R, for some of the pictures and captions.
#
# `coco_benchmarks` gives the four tables of one matrix at once. We evaluate two made-up systems: the *keeper* from the simulation above, whose
# scores lift the own pairs only, and a *reader*, with the very same dice, which lifts every pair that people
# found right. The reader knows strictly more. What will COCO's own recall make of it?

# %%
results = {"keeper": coco_benchmarks(scores, split.pictures, split.captions)}
if tier != "smoke":
    pictures, captions = added.T  # (pairs,) each
    scores[pictures, captions] = lead + spread * scores[pictures, captions]
    results["reader"] = coco_benchmarks(scores, split.pictures, split.captions)

# %% tags=["hide-input"]
bars = {
    "COCO 5K\nR@1": ("coco_5k", "r1", 1),
    "CxC\nR@1": ("cxc", "r1", 1),
    "ECCV\nR@1": ("eccv", "r1", 1),
    "ECCV\nR-precision": ("eccv", "r_precision", 100),
    "ECCV\nmAP@R": ("eccv", "map_at_r", 100),
}
figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.4), sharey=True)
for axes, way, title in zip(
    panels, ("i2t", "t2i"), ("picture to text", "text to picture"), strict=True
):
    for shift, (name, result) in enumerate(results.items()):
        heights = [
            scale * result[f"{table}_{way}_{key}"] for table, key, scale in bars.values()
        ]
        across = torch.arange(len(bars)) + 0.38 * (shift - 0.5)
        hatch = ("", "//")[shift]
        axes.bar(
            across,
            heights,
            0.36,
            color=plots.COLOURS[shift],
            hatch=hatch,
            edgecolor="white",
            label=name,
        )
    axes.set_xticks(range(len(bars)), bars, fontsize=8)
    axes.set_title(title)
    axes.grid(axis="x", visible=False)
panels[0].set(ylabel="percent", ylim=(0, 100))
panels[1].legend()
plots.show(
    figure,
    alt="Bars of two made-up systems, in both directions. By the R@1 of COCO 5K the reader looks worse than the keeper; by the R@1 of "
    "CxC the difference shrinks or turns; by the measures of ECCV Caption the reader is far better.",
)

# %%
lesson.report(
    "03_benchmarks",
    {
        f"{label} of the {name}": result[key] * scale
        for label, key, scale in (
            ("rsum of COCO 1K", "coco_1k_rsum", 1),
            ("rsum of COCO 5K", "coco_5k_rsum", 1),
            ("rsum of CxC", "cxc_rsum", 1),
            ("mAP@R of ECCV, i2t, percent", "eccv_i2t_map_at_r", 100),
            ("mAP@R of ECCV, t2i, percent", "eccv_t2i_map_at_r", 100),
        )
        for name, result in results.items()
    },
)

# %% [markdown]
# The system that knows more looks worse by COCO's own recall: each right pair that it finds and the protocol does not know counts as a rival in
# front. Only where people were asked it gets its due. The same has been seen with real systems. This is what has been published
# for three of them:

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
# VSRN has by far the lowest rsum of the three, and the highest mAP@R from text to picture. (From picture to text it comes last in every column.)
# The authors who measured this warn that VSRN is one of the five systems that proposed the pairs: who proposes is found right more
# often.
#
# We have measured no photographs here: the scores above are dice, and only the numbers of the pictures and the judgements are
# COCO's. A trained system's own matrix goes through the same function.

# %%
misprinted = evaluate(scores, coco_owner, folds=5)
lesson.report(
    "03_misprint",
    {
        "rsum, mean of five folds": misprinted["rsum"],
        "six times the mean recall of one direction": 2
        * sum(misprinted[f"i2t_r{k}"] for k in (1, 5, 10)),
    },
)

# %% [markdown]
# ```{admonition} Where the code departs from the paper
# :class: note
#
# - **Five folds, one direction.** The released evaluations of VSE++, SCAN and VSRN, which share the code, print at the end of their five folds
#   an "rsum" that is six times the mean recall from picture to text alone; text to picture is left out. The cell above shows
#   how far that can be off. Two more of its lines carry the wrong name: the "average i2t recall" is that from text to picture, and
#   the "average t2i recall" is the true rsum. The recalls themselves, which the papers print, are right.
# - **Ties are luck.** They all sort (`numpy.argsort`, then reversed) and look up the own item. Among equal scores the place depends on how
#   the sort leaves them. Here ties count against the system.
# - **A caption that is not there.** Two of the captions that ECCV Caption asks for are a picture's sixth and no part of the test split. No
#   system can find them; we leave them in, as published numbers have them.
# ```
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | ranks {cite}`hodosh2013framing` | `caption_ranks`, `picture_ranks` | `vsecore.evaluation.ranks` |
# | R@k, median and mean rank | `table_row` | `vsecore.evaluation.evaluate` |
# | R-precision {cite}`chun2022eccv` | `r_precision_by_hand` | `vsecore.evaluation.r_precision` |
# | mAP@R {cite}`musgrave2020reality` | `average_precision_at_r` | `vsecore.evaluation.map_at_r` |
# | nDCG {cite}`jarvelin2002cumulated`, gain of {cite}`burges2005ranknet` | `ndcg_by_hand` | `vsecore.evaluation.ndcg` |
#
# ## Exercises
#
# ```{exercise-start} A median rank
# :label: ex-03-median
# ```
# Six captions have the ranks 0, 2, 7, 0, 1 and 30, counted from 0. What is their median rank, as tables print it?
# ```{exercise-end}
# ```

# %%
your_median = ...
check("03.median", your_median)

# %% [markdown]
# ````{solution-start} ex-03-median
# :class: dropdown
# ````
# Sorted they are 0, 0, 1, 2, 7, 30. The middle lies between 1 and 2; rounded down it is 1; counted from 1 it is 2.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_median = math.floor((1 + 2) / 2) + 1
check("03.median", your_median)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Ranks without sorting
# :label: ex-03-ranks
# ```
# Write the ranks of pictures yourself: `S` holds the similarities, one row a picture, `owner` the row that each caption belongs to, in any
# order. Return for each picture the number of captions *of other pictures* that score at least as high as its best own one. Do not sort.
# ```{exercise-end}
# ```


# %%
def your_ranks(S: torch.Tensor, owner: torch.Tensor) -> torch.Tensor: ...


check("03.ranks", your_ranks)

# %% [markdown]
# ````{solution-start} ex-03-ranks
# :class: dropdown
# ````
# Hide what is not own to find the best; hide what is own to count.


# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
def your_ranks(S: torch.Tensor, owner: torch.Tensor) -> torch.Tensor:
    own = owner == torch.arange(len(S))[:, None]  # (Ni, Nc)
    best = torch.where(own, S, -torch.inf).amax(1)  # (Ni,)
    rivals = torch.where(own, -torch.inf, S)  # (Ni, Nc)
    return (rivals >= best[:, None]).sum(1)  # (Ni,)


check("03.ranks", your_ranks)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Average precision at R
# :label: ex-03-precision
# ```
# A system shows items in this order; `shown` says of each whether it is relevant, best place first, and all relevant items are among them.
# Return the average precision at R of this one query.
# ```{exercise-end}
# ```


# %%
def your_precision(shown: list[bool]) -> float: ...


check("03.precision", your_precision)

# %% [markdown]
# ````{solution-start} ex-03-precision
# :class: dropdown
# ````
# Count as you go. Only the first R places take part, and only relevant ones add their precision.


# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
def your_precision(shown: list[bool]) -> float:
    R, found, total = sum(shown), 0, 0.0
    for place, relevant in enumerate(shown[:R], start=1):
        found += relevant
        total += found / place if relevant else 0
    return total / R


check("03.precision", your_precision)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Break it
# :label: ex-03-break
# ```
# Fool an evaluation that counts strictly. Make scores for 20 pictures and 100 captions *without knowing which belong together*, so that every
# caption seems to find its own picture: no rival scores higher. `vsecore.evaluation` must give R@1 from text to picture zero for the
# same scores.
# ```{exercise-end}
# ```

# %%
your_scores = ...
check("03.break", your_scores)

# %% [markdown]
# ````{solution-start} ex-03-break
# :class: dropdown
# ````
# Say the same to every picture: then nothing is higher, and everything is as high. What you say may differ from caption to caption.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_scores = torch.zeros(20, 100)
check("03.break", your_scores)

# %% [markdown]
# ````{solution-end}
# ````
#
# ## Where to read on
#
# - The next notebook, *Learning to rank*, makes the vectors: it writes the loss that pulls a picture and its caption together.
# - Ranking as the task, and R@k and the median rank as its measures, come from {cite}`hodosh2013framing`; the test splits from
#   {cite}`karpathy2015alignments`.
# - How easily measures flatter is the subject of {cite}`musgrave2020reality`; what people find right beyond the own captions, that
#   of {cite}`parekh2021cxc` and {cite}`chun2022eccv`.
