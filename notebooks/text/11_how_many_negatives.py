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
# # How many negatives?
#
# **You will be able to** say why one negative is too few early in training, read from a batch how far training has come, choose
# the number of negatives $K$ from that as 2AD {cite}`zhang2022adpool` does, write the loss that learns from the $K$ hardest, and
# test whether the schedule is needed.
#
# **You need** the notebook [Learning to rank](04_learning_to_rank.ipynb) and the softmax.
#
# **It takes** about 1 minute and 1 GB of memory on two cores; the exercises take about an hour.
#
# The map: encode → pool → compare → **learn**. This notebook changes only the loss.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import math
import statistics

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown
from torch.nn.functional import softplus

import course
from vsecore import experiments, records
from course import plots
from course import dots
from vsecore.experiments.printed import printed_sums
from vsecore.experiments.references import ORACLE
from vsecore.losses import adopt, adopt_k, alignment, uniformity
from vsecore.recipes import get
from vsecore.training import encode, evaluate_split, fit

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## What AdOpt does
#
# 2AD has two parts. AdPool is the subject of [Pooling](10_pooling.ipynb). AdOpt, the subject of this notebook, lets
# the batch itself decide how many negatives each query learns from.
#
# First, let us see AdOpt at work. We train the same towers twice for one epoch, from the same weights, on the same batches and at the
# same learning rate. The first training uses the hardest triplet of VSE++, which learns from one negative. The second uses
# AdOpt.

# %% tags=["hide-input"]
dataset = lesson.dataset("grid")
part_of_dev = dataset.dev.subset(min(200, len(dataset.dev)))
scale = lesson.pick(
    smoke=experiments.LESSON_SCALE["scenes"] | {"dim": 64, "text.encoder.word_dim": 32},
    lesson=experiments.LESSON_SCALE["scenes"],
    full={},
) | {"training.epochs": lesson.pick(smoke=1, lesson=1, full=5)}
tokenizer = get("2ad_grid_gru", scale).tokenizer(dataset.train.captions)
steps = scale["training.epochs"] * (len(dataset.train.captions) // 128)
looks = {round(part * steps / 8) for part in range(1, 9)}
seen = {}


def train(name, variant="", changes=None):
    """Train a variant of 2AD's recipe; keep its curve, and the scores of up to 200 batches."""
    log = seen[name] = {"at": [], "rsum": [], "scores": []}

    def watch(event):
        if event.kind == "evaluated":
            log["reached"] = event.metrics["rsum"]
        elif event.step % max(1, steps // 200) == 0:
            log["scores"].append(event.scores.detach().float().cpu())
        if event.kind == "step" and event.step in looks:
            log["at"].append(event.step)
            log["rsum"].append(evaluate_split(event.model, part_of_dev, tokenizer)["rsum"])

    recipe = get("2ad_grid_gru" + variant, scale).override(changes or {})
    log["model"] = fit(recipe, dataset, tokenizer=tokenizer, callback=watch, seed=seed).model


def draw_curves(axes, lines, title=""):
    """The curves of some trainings, from the same zero."""
    curves = {label: (seen[name]["at"], seen[name]["rsum"]) for label, name in lines.items()}
    plots.curves(axes, curves, x="step", y="rsum on a part of dev", title=title)
    axes.set_ylim(0, 1.08 * max(max(log["rsum"]) for log in seen.values()))


# %% tags=["nbval-ignore-output"]
train("hardest triplet", "+without_adopt")
train("AdOpt")
lesson.finding(
    "AdOpt learns much faster than the hardest triplet",
    seen["AdOpt"]["rsum"][-1] > 3 * seen["hardest triplet"]["rsum"][-1],
)

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6.2, 3.4))
draw_curves(axes, {"AdOpt": "AdOpt", "hardest triplet": "hardest triplet"})
plots.show(
    figure,
    alt="Rsum on a part of the development split against the step of the first epoch, for AdOpt and for the hardest triplet.",
)

# %% tags=["hide-input", "results", "nbval-ignore-output"]
lines = []
for name, title in (("scenes", "scenes"), ("flickr8k", "the photographs of Flickr8k")):
    early = experiments.measured("2ad_negatives", name, metric="dev_rsum_1", scale="lesson")
    ours, theirs = (list(early[arm].values()) for arm in ("AdOpt, released", "hardest triplet"))
    lesson.finding(
        f"after one epoch on {title}, AdOpt is far ahead from every seed",
        min(ours) > 3 * max(theirs),
    )
    lines.append(
        f"on {title} {min(ours):.0f} to {max(ours):.0f} with AdOpt, against {min(theirs):.0f} to {max(theirs):.0f} with the hardest triplet"
    )
Markdown(f"The rsums after one epoch from several seeds, as recorded: {'; '.join(lines)}.")

# %% [markdown]
# So AdOpt learns much faster than the hardest triplet. Is the learning rate wrong for the triplet? No: in the trainings of the last section
# each loss has the learning rate that suits it best, and early in training the triplet is just as far behind. How does AdOpt do that, and does
# it also end higher? The rest of the notebook takes up both questions.
#
# ## Why one negative is not enough
#
# Early in training the embeddings are close to random, so the hardest negative is hard only by accident. Late in training most
# negatives are far away, and only the few that are still near teach something. AdOpt therefore learns from many negatives
# early and from few late.

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.9))
around = np.linspace(0, 2 * np.pi, 200)
stages = {
    "early: many negatives count": (62, (112, 98, 81, 74, 52, 43, 127, 136, 146, 155), 9),
    "late: the hardest few count": (83, (112, 62, 20, -25, 160, 195, 222, 250, 280, 310), 2),
}
for axes, (title, (own, others, kept)) in zip(panels, stages.items(), strict=True):
    axes.plot(np.cos(around), np.sin(around), color="0.85")
    nearest = sorted(others, key=lambda turn: abs(turn - 90))
    for turn in others:
        counts = turn in nearest[:kept]
        x, y = np.cos(np.radians(turn)), np.sin(np.radians(turn))
        if counts:
            axes.plot([0, x], [0, y], color=plots.COLOURS[1], linewidth=0.9)
        face = plots.COLOURS[1] if counts else "white"
        label = "a negative that counts" if counts else "a negative that does not"
        axes.plot(
            x, y, "s", color=plots.COLOURS[1], markerfacecolor=face, markersize=7, label=label
        )
    for turn, name, style, colour in (
        (90, "picture", "o", plots.COLOURS[0]),
        (own, "its caption", "^", plots.COLOURS[2]),
    ):
        x, y = np.cos(np.radians(turn)), np.sin(np.radians(turn))
        axes.plot([0, x], [0, y], color=colour)
        axes.plot(x, y, style, color=colour, markersize=10)
        side = "right" if turn == 90 else "left"
        axes.annotate(name, (1.13 * x, 1.13 * y + 0.05), color=colour, ha=side)
    axes.text(0, -0.45, f"K = {kept}\nof {len(others)} negatives", ha="center")
    axes.set(xlim=(-1.6, 1.6), ylim=(-1.15, 1.35), aspect="equal", title=title)
    axes.axis("off")
handles = {
    label: handle for handle, label in zip(*panels[1].get_legend_handles_labels(), strict=True)
}
figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
plots.show(
    figure,
    alt="Two circles, each with a picture at the top, its caption (a triangle) and ten negatives (squares). Left, early in training, the "
    "negatives crowd around the picture as near as its caption, and nine of ten are filled: they count. Right, late in training, the "
    "caption is next to the picture, the negatives are spread over the circle, and only the nearest two are filled.",
)

# %% [markdown]
# There is a second reason. A tower with random weights makes some items similar to everything, whatever they show. Such an item is called
# a *hub*, and many queries have the same hub as their hardest negative. The next cell looks at the first batch of the training, and counts
# how many different items are the hardest negative of at least one query. If each query's hardest negative were drawn at random, about 63
# % of the batch would be among them: an item is missed by all $n$ queries with a probability of $(1 - 1/n)^n$, which is about 37 %.

# %% tags=["nbval-ignore-output"]
S = seen["AdOpt"]["scores"][0]  # (B, B)   rows: pictures, columns: captions
own = torch.eye(len(S), dtype=torch.bool)  # (B, B)
others = S.masked_fill(own, -torch.inf)  # (B, B)   only the negatives
captions, pictures = others.argmax(1).unique(), others.argmax(0).unique()
print(len(S), "pairs in the batch")
print(len(captions), "captions are the hardest negative of a picture")
print(len(pictures), "pictures are the hardest negative of a caption")
few = max(len(captions), len(pictures)) < 0.3 * len(S)
lesson.finding("there are hubs: far fewer than 63 %", few)

# %% [markdown]
# The smaller these two numbers, the fewer items take part as negatives in a step of the hardest triplet. With more negatives for
# each query, more items take part.
#
# ## The loss: the K hardest negatives
#
# A triplet compares a pair with one negative. For several negatives 2AD takes InfoNCE {cite}`oord2018cpc`, and keeps only the
# $K$ hardest in its sum. Let $\hat t_1, \hat t_2, \dots$ be the negatives of a picture $v$ in the batch, the hardest first. The
# loss (after equation 6 of the paper, with the pair itself in the sum) is
#
# $$\ell_{v \to t} = -\frac{1}{B} \sum_{(v,t)} \log \frac{\exp(s(v,t)/\tau)}{\exp(s(v,t)/\tau) + \sum_{j=1}^{K} \exp(s(v,\hat t_j)/\tau)} .$$
#
# $\ell_{t \to v}$ does the same for the captions, with the $K$ hardest pictures of each. The loss is
# $\ell_{v \to t} + \ell_{t \to v}$. The *temperature* $\tau$ sets how much the hardest negatives outweigh the others.
# With $K = B - 1$ this is InfoNCE over the whole batch. With $K = 1$ it is close to a hinge without a margin.
#
# ```{exercise} The K hardest
# :label: ex-11-loss
#
# Write this loss. `S` holds the similarities of $B$ pictures (rows) and $B$ captions (columns), with the pairs on the diagonal.
# Return one number, both directions added. A pair is never its own negative.
# ```
#
# ```{hint}
# :class: dropdown
#
# Hide the diagonal before you look for the largest values (`masked_fill`, then `topk`). Put the pair's own similarity in front
# of the $K$ that you found. Then each row is a classification whose right answer is column 0.
# ```

# %%
from course.checks import exercise


@exercise("11.loss")
def k_hardest(S, K, temperature=0.05):  # (B, B), a whole number -> one number
    # your part
    own = S.diag()[:, None]  # (B, 1)
    others = S.masked_fill(torch.eye(len(S), dtype=torch.bool), -torch.inf)  # (B, B)
    captions = others.topk(K, dim=1).values  # (B, K)   of each picture
    pictures = others.topk(K, dim=0).values.T  # (B, K)   of each caption
    logits = [torch.cat([own, hard], dim=1) / temperature for hard in (captions, pictures)]
    return -sum(one.log_softmax(1)[:, 0].mean() for one in logits)
    # end of your part


# %% [markdown]
# ````{solution} ex-11-loss
# :class: dropdown
#
# A value of $-\infty$ can never be among the $K$ largest as long as $K \le B - 1$. The log-softmax of column 0 is the logarithm in
# the equation.
# ````
#
# In the package this loss is called `adopt`, and its argument `negatives` is $K$. The more negatives are in the sum, the higher the
# loss:

# %%
random = torch.rand(128, 128, generator=torch.Generator().manual_seed(seed)) * 2 - 1
for K in (1, 16, 127):
    both = k_hardest(random, K).item(), adopt(random, negatives=K).item()
    print(f"K = {K:3}: yours {both[0]:.3f}, the package's {both[1]:.3f}")

# %% [markdown]
# ```{admonition} Optional: why the pair stands in the sum, and a margin
# :class: note dropdown
#
# The paper writes the denominator over the negatives alone. Then no lead is ever enough: every pair goes on pulling with the
# same strength, however far ahead it is, and the loss falls below zero until the negatives lie opposite the query. With the
# pair in the sum the loss stops at zero. Leaving the pair out can be a good choice: easy pairs then go on learning
# {cite}`yeh2022decoupled`.
#
# The recipes also add a margin of $0.2$ to every negative, as the released code does. That multiplies each negative's term by
# $\exp(0.2/\tau)$, so the pair's own term hardly counts until the pair is ahead by more than the margin. The two forms are closer
# to each other than they look. `adopt` has both as arguments: `positive_in_denominator` and `margin`.
# ```
#
# ## How far has the model come?
#
# To choose $K$, we must read from a batch how far training has come. Wang and Isola {cite}`wang2020alignment` name two
# properties of a good space. *Alignment of pairs*: what belongs together lies close together. *Uniformity*: the vectors as a whole spread over
# the sphere. Here are four spaces of forty pairs on a circle, with both readings and the $K$ that follows from them.

# %% tags=["hide-input"]
turns = torch.arange(40) * 2 * math.pi / 40  # even steps around the circle
shuffled = turns[torch.randperm(40, generator=torch.Generator().manual_seed(2))]
clump = 0.06 * torch.from_numpy(np.random.default_rng(3).normal(size=40)).float()
spaces = {  # angles of the pictures, angles of the captions
    "two clumps": (clump, math.pi / 2 + clump.flip(0)),
    "uniform": (turns, shuffled),
    "aligned": (0.8 + 4 * clump, 0.8 + 4 * clump + 0.03),
    "aligned and uniform": (turns, turns + 0.06),
}
figure, panels = plt.subplots(1, 4, figsize=(9.6, 3.1))
numbers = []
for axes, (name, (pictures, captions)) in zip(panels, spaces.items(), strict=True):
    v, t = (torch.stack([turn.cos(), turn.sin()], dim=1) for turn in (pictures, captions))
    axes.plot(np.cos(around), np.sin(around), color="0.9", linewidth=0.8, zorder=0)
    for one, other in zip(v, 0.88 * t, strict=True):
        axes.plot(*zip(one, other, strict=True), color="0.8", linewidth=0.7, zorder=0)
    axes.plot(*v.T, "o", color=plots.COLOURS[0], markersize=5, label="pictures")
    axes.plot(*(0.88 * t).T, "^", color=plots.COLOURS[1], markersize=4, label="captions")
    align, uniform = alignment(v @ t.T), uniformity(v @ t.T)
    numbers.append(f"{adopt_k(v @ t.T)}")
    words = f"alignment {abs(align):.2f}\nuniformity {uniform:.2f}\nK = {numbers[-1]}"
    axes.text(0, -1.25, words, ha="center", va="top", fontsize=9)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.95, 1.1), aspect="equal")
    axes.set_title(name, loc="center")
    axes.axis("off")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plots.show(
    figure,
    alt="Four circles with forty pictures outside and forty captions inside, pairs joined by lines. Two clumps: all pictures in one spot, "
    "all captions in another, a quarter turn away. Uniform: all around, pairs joined across the circle. Aligned: all in one arc, each "
    f"caption at its picture. Aligned and uniform: all around, each caption at its picture. K is {', '.join(numbers)}.",
)

# %% [markdown]
# The better the space, the smaller $K$. Alignment is the mean similarity of the pairs. Uniformity is high when
# pictures and captions of different pairs are far apart:
#
# $$\gamma_{\mathrm{align}} = \frac{1}{B} \sum_{(v,t)} s(v,t) , \qquad \gamma_{\mathrm{uniform}} = \frac{1}{B^2} \sum_{v, t} \exp(-s(v,t)) ,$$
#
# where the similarity of a pair itself counts as 0 in the second sum. (This uniformity is that of the released code; the paper's comes
# below.) The two clumps show a limit: they are a collapsed space, yet
# their readings are 0 and 1, the same as those of random vectors in many dimensions.
#
# ## From two readings to K
#
# The sum of both, $\gamma = \gamma_{\mathrm{align}} + \gamma_{\mathrm{uniform}}$, sets the number of negatives. A cosine turns a
# growing sum into a falling number (equation 6 of the paper, as its code has it):
#
# $$K = \max\Big(1, \min\Big(B - 1, \big\lfloor B \cos(\gamma^{1.25}) \big\rfloor + 1\Big)\Big) .$$
#
# The brackets round down; max and min keep $K$ between 1 and $B - 1$. Do it once with a calculator before you program it:
#
# ```{exercise} K by hand
# :label: ex-11-k
#
# In a batch of 128 pairs, each pair has the similarity 0.3, and every other similarity is 0. What is $K$?
# ```

# %%
from course.checks import check

your_k = 24  # your part: a whole number
check("11.k", your_k)

# %% [markdown]
# ````{solution} ex-11-k
# :class: dropdown
#
# Alignment is 0.3. For the uniformity every similarity counts as 0, so it is $\exp(0) = 1$. Then $1.3^{1.25} = 1.388$, its cosine is 0.1817,
# and 128 times that is 23.3. Rounded down, plus one: 24.
# ````
#
# ```{exercise} The K rule
# :label: ex-11-rule
#
# Write the whole rule: from the similarities of a batch to $K$. Count a $\gamma$ below 0 as 0, since a negative number has no power 1.25.
# ```
#
# ```{hint}
# :class: dropdown
#
# Read both numbers from `S` with `diag`, `masked_fill`, `exp` and `mean`. Then leave torch: `float`, `math.cos`, `math.floor`.
# At the very end, keep $K$ between 1 and $B - 1$.
# ```

# %%
from course.checks import exercise


@exercise("11.rule")
def how_many(S):  # (B, B) -> a whole number
    # your part
    B = len(S)
    others = S.masked_fill(torch.eye(B, dtype=torch.bool), 0)  # (B, B)   a pair counts as 0
    gamma = float(S.diag().mean() + (-others).exp().mean())  # alignment + uniformity
    K = math.floor(B * math.cos(max(gamma, 0) ** 1.25)) + 1
    return max(1, min(K, B - 1))
    # end of your part


# %% [markdown]
# ````{solution} ex-11-rule
# :class: dropdown
#
# In a poor space $\gamma$ is about 1, so that about half of the batch counts. From $\gamma = (\pi/2)^{0.8} = 1.44$ on, the cosine is
# negative and $K$ is 1. With a uniformity of 1, that is an alignment of 0.44.
# ````
#
# The rule and the loss together are AdOpt. The paper prints another form of equation 6, with $\gamma\pi/4$ in place of $\gamma^{1.25}$,
# without the $+ 1$, and with $\log \frac{1}{B^2} \sum \exp(s)$ as the uniformity. The next cell compares the two forms on three batches.
# The printed form keeps most negatives in a well-trained space, and only the hardest one in a collapsed space: its uniformity
# grows as the vectors come *closer* together, from about 0 in a uniform space to 1 in a collapsed one, so it takes a collapsed space for a
# finished one. The form above comes down to a few negatives as training goes well, which is the schedule that figure C-2 of the paper shows,
# so it is our default. The other is `rule="printed"`. Below you will see how both train.

# %%
batches = {"knows nothing": (0.0, 0.0), "well trained": (0.94, 0.02), "collapsed": (1.0, 1.0)}
print("                yours   package   printed form")
for name, (pairs, others) in batches.items():
    made = torch.full((128, 128), others).fill_diagonal_(pairs)  # (B, B)
    numbers = how_many(made), adopt_k(made), adopt_k(made, rule="printed")
    print(f"{name:<13}{numbers[0]:8}{numbers[1]:10}{numbers[2]:15}")
together = k_hardest(random, how_many(random))
print(f"the loss with K from the batch: {together:.3f}, and adopt gives {adopt(random):.3f}")

# %% [markdown]
# ## What K does during training
#
# We kept the scores of batches from AdOpt's training at the top, so we can now apply your rule to each of them. First, predict:
#
# ```{exercise} The schedule
# :label: ex-11-fall
#
# The towers begin with random weights and see one epoch. When will $K$ fall? Answer `"at once"` (from the first steps on),
# `"evenly"` (from the first step to the last), `"later"` (it stays high at first, then falls) or `"hardly"` (most of the batch still counts at
# the end).
# ```

# %%
from course.checks import check

your_prediction = "later"  # your part: "at once", "evenly", "later" or "hardly"
check("11.fall", your_prediction)

# %% [markdown]
# ````{solution} ex-11-fall
# :class: dropdown
#
# $K$ falls only as fast as alignment grows. Random towers put pairs no closer together than other items, and it takes some steps
# until that changes.
# ````
#
# We draw one more line. The $K$ negatives do not count equally: the gradient gives each of them a share that grows with its
# similarity,
#
# $$a_j = \frac{\exp(s(v, \hat t_j)/\tau)}{\sum_{i} \exp(s(v, \hat t_i)/\tau)} .$$
#
# The *entropy* $-\sum_j a_j \log a_j$ of the shares is $\log n$ if $n$ negatives share equally, and 0 if one takes everything. So its
# exponential is an *effective number* of negatives. We compute it for all negatives of the batch, as if no $K$ had been chosen.


# %%
def effective_number(S, temperature=0.05):  # (B, B), or several batches -> one number
    others = S.masked_fill(torch.eye(S.shape[-1], dtype=torch.bool), -torch.inf)  # (B, B)
    a = (others / temperature).softmax(-1)  # (B, B)   the shares
    return torch.exp(torch.special.entr(a).sum(-1)).median().item()  # entr(a) is −a log a


kept = [how_many(S) for S in seen["AdOpt"]["scores"]]
effective = [effective_number(S) for S in seen["AdOpt"]["scores"]]

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(7.2, 3.7))
across = range(1, len(kept) + 1)
plots.curves(
    axes,
    {"K by the rule": (across, kept), "effective number of all": (across, effective)},
    x="batch of the first epoch",
    y="negatives that count",
)
most = len(S) - 1
for number, words in ((most, "all in the batch"), (1, "the hardest alone")):
    axes.axhline(number, color="0.6", linestyle=":", linewidth=1)
    axes.text(
        0.75 * len(kept), 1.06 * number, words, ha="right", va="bottom", fontsize=9, color="0.3"
    )
ticks = [one for one in (1, 4, 16, 64) if one < most] + [most]
axes.set(yscale="log", ylim=(0.8, 1.7 * most), yticks=ticks, yticklabels=ticks)
axes.minorticks_off()
axes.legend(loc="lower left")
plots.show(
    figure,
    alt="Negatives that count against the batch, on a logarithmic axis between one, the hardest alone, and all in the batch: K by the rule "
    "begins at about half of the batch and falls to a few; the effective number of all negatives begins at nearly all and falls too.",
)

# %% tags=["nbval-ignore-output"]
tenth = max(1, len(kept) // 10)
means = {
    "K, first tenth": np.mean(kept[:tenth]),
    "K, last tenth": np.mean(kept[-tenth:]),
    "effective number of all, first tenth": np.mean(effective[:tenth]),
    "effective number of all, last tenth": np.mean(effective[-tenth:]),
}
course.numbers(means)
first, last, effective_first, effective_last = means.values()
lesson.finding("K begins at about half of the batch", 0.4 * most < first < 0.65 * most)
lesson.finding("it stays there at first", np.mean(kept[2 * tenth : 3 * tenth]) > 0.85 * first)
lesson.finding("it falls to a few", last < 0.15 * first)
lesson.finding("the effective number begins at nearly all", effective_first > 0.9 * most)
lesson.finding("and falls without a rule", effective_last < 0.2 * effective_first)

# %% [markdown]
# Both lines stay level at first and then fall. (Single batches stick out, since $K$ is read from one batch alone.) Without any rule, the softmax itself moves from many negatives to few: early the similarities lie close
# together and the shares are nearly equal; later they are spread out and the hardest take most.
#
# ```{admonition} Optional: a formula for the effective number
# :class: note dropdown
#
# For very many negatives, $n$ of them, whose similarities follow a bell curve of spread $\sigma$, the effective number can be worked out. It is
# $n \exp(-\sigma^2 / (2 \tau^2))$. What matters is the spread measured in temperatures: halving $\tau$ does the same as doubling the
# spread.
# ```
#
# ## Does the softmax already do the work?
#
# The effective number fell without any rule, which suggests a hypothesis and a test. If the softmax chooses the few by itself, a schedule
# adds little at the usual temperature of $0.05$. At a higher temperature the softmax chooses less sharply, and there the schedule must
# help: AdOpt must end further above the same loss with all negatives in every step. If it does not, the hypothesis is wrong.

# %%
hot = {"losses.adopt.temperature": 0.2}
train("all", "+negatives_127")
train("AdOpt, 0.2", "", hot)
train("all, 0.2", "+negatives_127", hot)

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.5), sharey=True)
for axes, temperature, ending in zip(panels, ("0.05", "0.2"), ("", ", 0.2"), strict=True):
    lines = {
        "AdOpt: K from the batch": f"AdOpt{ending}",
        "all negatives always": f"all{ending}",
    }
    draw_curves(axes, lines, f"temperature {temperature}")
    axes.legend(loc="lower right")
    axes.label_outer()
plots.show(
    figure,
    alt="Two panels with the rsum on a part of the development split against the step: AdOpt and the same loss with all negatives always, "
    "left at temperature 0.05, right at temperature 0.2.",
)

# %% tags=["nbval-ignore-output"]
gap = {
    end: seen["AdOpt" + end]["reached"] - seen["all" + end]["reached"] for end in ("", ", 0.2")
}
last = {end: torch.stack(seen["all" + end]["scores"][-tenth:]) for end in gap}
number = {end: effective_number(last[end], 0.2 if end else 0.05) for end in gap}
course.numbers(
    {
        "rsum, AdOpt minus all negatives, at 0.05": gap[""],
        "rsum, AdOpt minus all negatives, at 0.2": gap[", 0.2"],
        "effective number of all at the end, at 0.05": number[""],
        "effective number of all at the end, at 0.2": number[", 0.2"],
    }
)

# %% tags=["remove-cell"]
lesson.finding("the schedule helps more at 0.2", gap[", 0.2"] > gap[""] + 12)
lesson.finding("at 0.05 both end close together", abs(gap[""]) < 12)
lesson.finding("at 0.2 the softmax chooses less sharply", number[", 0.2"] > 3 * number[""])
behind = [seen["all" + end]["rsum"][1] - seen["AdOpt" + end]["rsum"][1] for end in gap]
lesson.finding("in the first quarter, all negatives are ahead", min(behind) > 40)

# %% [markdown]
# Compare the first two numbers. The hypothesis survives, since the second is clearly above the first. A schedule and a low temperature do
# similar work: both come down from many negatives to the few that matter. But one seed and one epoch are little evidence.
#
# Look at the beginning of the curves too. There, learning from all negatives is *faster* than AdOpt, at both temperatures, since AdOpt
# begins with about half of them. So AdOpt is fast compared with one negative, but it is not the fastest way to begin.
#
# ## When the hardest negative is right
#
# There is a reason to be careful with a small $K$ late in training. A negative is any caption that was not written for the picture.
# It may be true of the picture all the same: a *false negative*. For the scenes we know which captions are true of which pictures.
# So we can count how often the hardest negative of a batch is in fact true, after our epoch of AdOpt, and compare it with easier
# ones.


# %%
def true_by_place(model, truth):  # the negatives of batches of 128, the hardest first
    v, t = (side.vectors for side in encode(model, dataset.test, tokenizer))
    generator, found = torch.Generator().manual_seed(seed), []
    for pictures in torch.randperm(len(v), generator=generator).split(128)[:-1] * 5:
        captions = 5 * pictures + len(found) % 5  # (B,)   one of the five of each picture
        S = (v[pictures] @ t[captions].T).fill_diagonal_(-torch.inf)  # (B, B)
        order = S.argsort(1, descending=True)[:, :-1]  # (B, B − 1)
        right = torch.from_numpy(truth[captions][:, pictures].T).float()  # (B, B)
        found.append(right.gather(1, order))
    return 100 * torch.cat(found).mean(0)  # (B − 1,)   in percent


# %% tags=["hide-input", "nbval-ignore-output"]
truth = lesson.relevance("test")
if truth is None:
    print("Nobody knows which captions are true of which photographs.")
else:
    placed = true_by_place(seen["AdOpt"]["model"], truth)
    shares = {
        "percent true: the hardest negative": placed[0],
        "the 2nd to 4th": placed[1:4].mean(),
        "the 5th to 16th": placed[4:16].mean(),
        "all negatives": placed.mean(),
    }
    course.numbers(shares)
    falling = list(shares.values())
    lesson.finding(
        "the harder a negative, the more often it is true",
        falling[0] > 1.5 * falling[1] > 3 * falling[2] > 6 * falling[3],
    )

# %% [markdown]
# A trained model puts a negative near *because* it fits, so the hardest negative is the most likely one to be true. With a
# small $K$ the whole push falls on such a negative; a larger $K$ shares it out.
#
# ## Break it: forget the mask
#
# The worst false negative is the pair itself. Let us forget to hide the diagonal and let each pair be its own negative.
#
# ```{exercise} The pair as its own negative
# :label: ex-11-break
#
# Take a perfect batch: every pair at similarity 1, all others at −1. With $K = 1$ and no mask, the hardest "negative" of each
# query is its own pair. What is the loss, both directions added? (With the mask it is 0.)
# ```

# %%
from course.checks import check

your_floor = 2 * math.log(2)  # your part: one number
check("11.break", your_floor)

# %% [markdown]
# ````{solution} ex-11-break
# :class: dropdown
#
# The softmax is over two equal numbers, so the loss of each query is $-\log \frac{1}{2}$, in each of the two directions.
# ````
#
# Here is the broken loss on that batch, with the largest gradient that any similarity gets:


# %%
def no_mask(S, K, temperature=0.05):
    logits = S / temperature
    wrong = [logits.topk(K, dim=dim).values.logsumexp(dim) for dim in (1, 0)]  # two of (B,)
    return sum(softplus(one - logits.diag()).mean() for one in wrong)


for K in (1, 4):
    perfect = (2 * torch.eye(128) - 1).requires_grad_()  # (B, B)
    loss = no_mask(perfect, K)
    loss.backward()
    print(f"K = {K}: loss {loss:.3f}, largest gradient {perfect.grad.abs().max():.3f}")

# %% [markdown]
# The loss of a perfect batch is no longer 0, and it has no gradient: the same similarity is pulled up as a pair and pushed down
# as a negative. At $K = 1$ this happens to every query whose pair already ranks first. So check the mask first when you write a
# contrastive loss: nothing crashes, but such queries teach nothing.
#
# ## Change one thing
#
# ```{exercise} Your own ablation
# :label: ex-11-explore
#
# Change one thing about AdOpt in `your_change` below. Before you run the cell, write down what you expect, in a few words. After it
# has run, write what you found. Things to change: `losses.adopt.negatives` (a fixed $K$), `losses.adopt.margin` (0.2),
# `losses.adopt.temperature` (0.05), `losses.adopt.rule` (`"released"` or `"printed"`).
# ```

# %%
your_change = {"losses.adopt.negatives": 4}  # change this
train("your change", "", your_change)

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6.2, 3.4))
changed = ", ".join(f"{name} = {value}" for name, value in your_change.items())
draw_curves(axes, {"AdOpt": "AdOpt", changed: "your change"})
axes.legend(loc="lower right", fontsize=8)
plots.show(
    figure,
    alt="Rsum on a part of the development split against the step, for AdOpt and for AdOpt with the reader's own change.",
)

# %%
from course.checks import check

your_expectation = "Four negatives from the start learn more slowly."  # your part: before
your_finding = "Yes: their curve ends lower."  # your part: after
check("11.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-11-explore
# :class: dropdown
#
# There is no right answer here; this is one example. One seed and one epoch show what learns fast. Run it again with another
# `seed` in the first cell before you believe a small difference.
# ````
#
# ## Results: is AdOpt faster, and is it better at the end?
#
# We compare AdOpt with the hardest triplet, with *max violation* (hinges on all negatives in the first epoch, then on the hardest),
# with InfoNCE over all negatives, with its own loss over all negatives in every step, and with the printed form of its rule.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
found = experiments.studied("2ad_negatives", "scenes")
oracles = records.find(experiments.RESULTS, name=ORACLE, data="scenes")
oracle = next(one.metrics["rsum"] for one in oracles if one.data["feature_kind"] == "grid")
plots.show(
    dots.compared(found, "scenes", oracle), alt=dots.words_for(found, "the scenes", oracle)
)

# %% tags=["hide-input", "results", "nbval-ignore-output"]
judged = {
    (one.claim.against, one.claim.when): one
    for one in experiments.outcomes("2ad", "scenes", "2ad_negatives")
    if one.by_measure
}
called = {"early_rsum": "rsum", "rsum": "rsum", "i2t_map_at_r": "mAP@R to text"}
called |= {"t2i_map_at_r": "to picture"}
lines = ["| AdOpt against | when | difference | verdict |", "| --- | --- | --- | --- |"]
for (against, when), one in judged.items():
    gained = (
        f"{called[measure]} {statistics.mean(values):+.1f}"
        for measure, values in one.differences.items()
    )
    lines.append(f"| {against} | {when} | {', '.join(gained)} | {one.in_words} |")


def ahead(against: str, measure: str = "rsum", when: str = "at the end") -> float:
    return statistics.mean(judged[against, when].differences[measure])


def told(against: str, when: str = "at the end") -> str:
    return judged[against, when].judgement


plain = found["InfoNCE, all"].results
margin = {measure: found["always 127"].results[measure] for measure in plain}
of_margin = {
    measure: statistics.mean(values[one] - plain[measure][one] for one in values)
    for measure, values in margin.items()
}
early = "early in training"
lesson.finding(
    "AdOpt is far ahead of the hardest triplet early, and ahead at the end",
    told("hardest triplet", early) == told("hardest triplet") == "reproduced"
    and ahead("hardest triplet", "early_rsum", early) > 100,
)
lesson.finding(
    "against the same loss with all negatives nothing is decided, early or late",
    told("always 127", early) == told("always 127") == "undecided"
    and abs(ahead("always 127")) < 5,
)
lesson.finding(
    "against InfoNCE the measures disagree: higher rsum, lower mAP@R to text",
    told("InfoNCE, all") == "mixed" and ahead("InfoNCE, all", "i2t_map_at_r") < -3,
)
lesson.finding(
    "most of that is the margin",
    of_margin["rsum"] > ahead("InfoNCE, all") / 2
    and of_margin["i2t_map_at_r"] < ahead("InfoNCE, all", "i2t_map_at_r") / 2,
)
lesson.finding(
    "by mAP@R to text, more negatives to the end are better",
    all(
        ahead(against, "i2t_map_at_r") < -1
        for against in ("InfoNCE, all", "always 127", "AdOpt, printed rule")
    ),
)
lesson.finding(
    "the long trainings have 15 epochs",
    experiments.FAIR_SCALE["scenes"]["training.epochs"] == 15,
)
paper = printed_sums(experiments.get_experiment("2ad_negatives"))
Markdown(
    "\n".join(lines)
    + f"\n\nThe margin alone, *always 127* against *InfoNCE, all*: rsum {of_margin['rsum']:+.1f}, mAP@R to text "
    f"{of_margin['i2t_map_at_r']:+.1f}. In the paper, on COCO, AdOpt is ahead of the hardest triplet by "
    f"{paper['AdOpt, released'] - paper['hardest triplet']:.1f} (table 3)."
)

# %% [markdown]
# **What we did.** Each loss has a learning rate of its own, chosen on the development split, and trains for 15 epochs from five seeds.
# *Early in training* is the mean rsum on the development split over the first third of the epochs. *Mixed* means that two measures
# disagree; *undecided* means that the difference is too small for these seeds, not that the losses are equal.
#
# **What came out.** AdOpt ends higher than the hardest negative alone, as the paper says, and early in training it is far ahead of it.
# Compared with its own loss over all negatives in every step (*always 127*), nothing is decided: at this temperature the softmax makes a
# similar choice by itself.
#
# **What it means.** The hardest triplet suffers from having one negative; a schedule is one cure, and keeping all negatives is another.
# *InfoNCE, all* differs from *always 127* in little but the margin of 0.2, which the recipes add as the released code does (see the optional
# box above). The margin raises rsum and lowers mAP@R from picture to text, and it explains most of the difference between AdOpt and
# InfoNCE. By mAP@R to text, learning from more negatives to the end does better: a caption that is true of a picture without being written
# for it is then pushed away less.
#
# The dotted line is an *oracle*: it knows which captions are true of which scenes, and breaks ties at random. A system gets above it only
# by guessing which of several true captions was written for a picture. More tables, and the results on photographs, are on
# [the evidence page](../evidence/2ad.md).
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | $\gamma_{\mathrm{align}}$, $\gamma_{\mathrm{uniform}}$, section 3.3, as released | `how_many` | `vsecore.losses.alignment`, `vsecore.losses.uniformity` |
# | $K$, equation 6, as released | `how_many` | `vsecore.losses.adopt_k` |
# | $\ell$, after equation 6 | `k_hardest` | `vsecore.losses.adopt` |
#
# ## Summary
#
# - Early in training the hardest negative is hard by accident, so it helps to learn from many negatives.
# - AdOpt reads alignment and uniformity from the batch and turns their sum into $K$: many negatives early, few late.
# - The softmax of the loss makes a similar choice by itself; the lower the temperature, the more so.
# - So test a schedule against all negatives in every step, and remember that the hardest negative of a trained model may be true.
#
# ## Where to read on
#
# - Alignment and uniformity: {cite}`wang2020alignment`. InfoNCE: {cite}`oord2018cpc`. A learned temperature: {cite}`radford2021clip`.
# - Next: [Ensembles and speed](12_ensembles_and_speed.ipynb).
