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
# # Sets: more than one vector
#
# **You will be able to** count how ambiguous captions are, write PIE-Net, MIL and the match probability, and measure which vectors of a
# set learn and whether a set collapses.
#
# **You need** the notebooks [Learning to rank](04_learning_to_rank.ipynb) and [Pooling](10_pooling.ipynb), and derivatives.
#
# **It takes** about 1 minute and 1 GB of memory on two cores; the exercises take an hour and a quarter.
#
# The map: encode → pool → **compare** → learn.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import functools

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.functional import normalize

import course
from vsecore import scenes
from course import plots, slot_maps
from vsecore.losses import sample_gaussians, soft_contrastive
from vsecore.recipes import get
from vsecore.sets import PIENet
from vsecore.similarity.sets import smooth_chamfer
from vsecore.training import encode, fit

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## One caption, many pictures
#
# A caption says little, and many pictures may fit what it says. Our world can tell which: here is one caption, with some of the pictures that
# it is true of.

# %% tags=["hide-input"]
AMBIGUITY = 0.8  # the knob of the scenes: 0, captions say much; 1, they say little
sizes = lesson.pick(smoke=(200, 60, 100), lesson=(800, 150, 500), full=(4000, 500, 1000))
many = sizes[2]
world = scenes.generate(many, split="test", ambiguity=AMBIGUITY)
captions = [caption for picture in world for caption in picture.captions]
true = scenes.relevance(captions, [picture.scene for picture in world])  # (Nc, Ni)


def outlook(scene) -> np.ndarray:
    """A coarse look at a picture, of unit length, without what all pictures share."""
    small = scenes.draw(scene, size=16).astype(float).ravel() - 128
    return small / np.linalg.norm(small)


looks = np.stack([outlook(picture.scene) for picture in world])  # (Ni, P)


def in_places(row: int) -> list[int]:
    """Pictures that a caption is true of, one from each place where there are some."""
    places = {world[one].scene.place: int(one) for one in np.flatnonzero(true[row])}
    return sorted(places.values())


rows = [row for row in range(len(captions)) if 5 <= true[row].sum() <= 12]
row = max(rows, key=lambda one: len(in_places(one)))  # the caption whose pictures differ most
fitting = in_places(row)[:5]
figure = plots.picture_row(
    [scenes.draw(world[one].scene, size=224) for one in fitting],
    [f"picture {one}" for one in fitting],
    heading=captions[row].text,
)
plots.show(
    figure,
    alt=f"{len(fitting)} pictures from different places. The caption above is true of each: {captions[row].text}",
)

# %% [markdown]
# With one vector for a caption, all these pictures must gather around it. A *set* of vectors has another way: each of the caption's
# vectors can lie near different pictures. The figure shows both for two pictures that lie far apart.

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.7))
angle = np.deg2rad(60)
apart = {"picture A": angle, "picture B": -angle}
for axes, title in zip(panels, ("one vector for the caption", "a set of two"), strict=True):
    axes.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.75"))
    ends = [0.0] if "one" in title else [angle - 0.12, -angle + 0.12]
    for name, at in apart.items():
        axes.plot(np.cos(at), np.sin(at), "o", color=plots.COLOURS[0], markersize=10)
        axes.annotate(
            name, (np.cos(at), np.sin(at)), (1.12 * np.cos(at), 1.16 * np.sin(at)), va="center"
        )
    for end in ends:
        axes.annotate(
            "",
            (np.cos(end), np.sin(end)),
            (0, 0),
            arrowprops={"arrowstyle": "-|>", "color": plots.COLOURS[1], "lw": 2.2},
        )
    axes.set(xlim=(-1.1, 1.75), ylim=(-1.3, 1.3), xticks=[], yticks=[], title=title)
    axes.set_aspect("equal")
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
plots.show(
    figure,
    alt="Two circles with the pictures A and B, 120 degrees apart. On the left the caption's only vector lies in the middle, far from both. On "
    "the right a set of two vectors has one beside each picture.",
)

# %% [markdown]
# That is the idea of an *embedding set* {cite}`song2019pvse`: several vectors for one picture or caption. This notebook and the next follow
# DivE {cite}`kim2023dive`; where we say *the paper*, we mean it. It calls the vectors of a set its *elements*; here, elements are the parts of an
# input, such as cells or words. How are sets made, compared and trained, and what can go wrong?
#
# ## How ambiguous is the truth?
#
# The collections that papers use pair each caption with a single picture. The scenes know every true pair. Their knob `ambiguity` says how
# little the captions tell.
#
# ```{exercise} How many pictures fit
# :label: ex-13-fits
#
# At `ambiguity=0.8`, sort the captions by how many of the world's pictures each fits. How many does the one in the middle fit: about `"1"`,
# `"10"` or `"50"`? Write down your guess.
# ```

# %%
from course.checks import check

your_guess = "10"  # your part: "1", "10" or "50"
check("13.fits", your_guess)

# %%
counts = {}
for knob in (0.2, 0.5, AMBIGUITY):
    made = scenes.generate(many, split="test", ambiguity=knob)
    said = [caption for picture in made for caption in picture.captions]
    counts[knob] = scenes.relevance(said, [picture.scene for picture in made])  # (Nc, Ni)
numbers = {
    f"ambiguity {knob}: {name}": np.median(found.sum(axis))
    for knob, found in counts.items()
    for axis, name in ((1, "pictures a caption fits"), (0, "captions that fit a picture"))
}
course.numbers(numbers)

# %% [markdown]
# ````{solution} ex-13-fits
# :class: dropdown
#
# The table has the medians. Few captions name everything in their picture, and the wider their words, the more pictures they fit.
# ````
#
# The medians hide how uneven this is. Each curve below shows all captions of one world, sorted.

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6.6, 3.2))
share = {
    f"ambiguity {knob}": (np.linspace(0, 100, len(found)), np.sort(found.sum(1)))
    for knob, found in counts.items()
}
plots.curves(axes, share, x="captions, sorted (%)", y="pictures that fit")
axes.set_yscale("log")
axes.set_yticks([1, 10, 100], ["1", "10", "100"])
plots.show(
    figure,
    alt="Number of pictures that a caption fits, captions sorted, on a logarithmic scale: three curves, one for each setting of the knob. The "
    "more ambiguous the world, the higher the curve; the last captions of each fit very many pictures.",
)

# %% [markdown]
# The other direction is as rich. One picture can be read in many ways; here are captions, written for any picture, that are true of this one.

# %% tags=["hide-input"]
heard = counts[AMBIGUITY].sum(0)
chosen = int(np.argsort(heard)[len(heard) // 2])  # a picture in the middle
readings = {captions[one].text: true[one].sum() for one in np.flatnonzero(true[:, chosen])}
ordered = sorted(readings, key=readings.get)
shown = [
    ordered[int(place)] for place in np.linspace(0, len(ordered) - 1, min(9, len(ordered)))
]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(8.6, 3.1), gridspec_kw={"width_ratios": [1, 1.7]}
)
left.imshow(scenes.draw(world[chosen].scene, size=224))
for axes in (left, right):
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
for place, sentence in enumerate(shown):
    height = 0.94 - place / len(shown)
    right.text(0.08, height, f"{readings[sentence]}", va="center", ha="right", fontsize=9)
    right.text(0.12, height, sentence, va="center", fontsize=9)
right.set_title("how many pictures it fits | caption", fontsize=10, loc="left")
plots.show(
    figure,
    alt="A picture, and beside it captions that are true of it, from one that fits few pictures to one that fits many: "
    + " ".join(shown),
)

# %% [markdown]
# ## One vector is a compromise
#
# A caption fits two pictures with unit vectors $x_1$ and $x_2$ at an angle $\theta$. Which unit vector $y$ is nearest to *both*, so that the
# smaller of the two cosines is as large as possible? The one that halves the angle:
#
# $$\max_{\lVert y\rVert = 1}\ \min_i\ c(x_i, y) = \cos(\theta / 2).$$
#
# ```{exercise} A vector between two
# :label: ex-13-compromise
#
# The two pictures of the figure lie 120 degrees apart. How large is the cosine of the best vector with each of them?
# ```

# %%
from course.checks import check

your_cosine = 0.5  # your part: one number
check("13.compromise", your_cosine)

# %% [markdown]
# ````{solution} ex-13-compromise
# :class: dropdown
#
# Half of the angle is 60 degrees, and its cosine is 0.5. A negative that is a little nearer ranks before both.
# ````
#
# Does a search find the same? We take the two pictures above that look least alike, and learn a vector by gradient ascent.

# %% tags=["nbval-ignore-output"]
pair = torch.tensor(looks[fitting], dtype=torch.float32)  # (5, P)
first, second = divmod(int((pair @ pair.T).argmin()), len(pair))
x = pair[[first, second]]  # (2, P)
y = torch.randn(x.shape[1], requires_grad=True)
optimizer = torch.optim.Adam([y], 0.02)
for _ in range(600):
    optimizer.zero_grad()
    (-(x @ normalize(y, dim=0)).min()).backward()
    optimizer.step()
theta = torch.arccos(x[0] @ x[1])
found, best = (x @ normalize(y, dim=0)).min().item(), (theta / 2).cos().item()
print(f"found {found:.3f}, cos(θ/2) {best:.3f}")
lesson.finding("the search finds the closed form", abs(found - best) < 0.01)

# %% [markdown]
# The search agrees with the closed form. With $n$ pictures at right angles to each other it is $1/\sqrt n$: the more readings, the
# worse the compromise. A set of two has cosine 1 with both.
#
# ## PIE-Net: heads that look, and the whole picture
#
# *PIE-Net* {cite}`song2019pvse` makes $K$ vectors of $N$ elements. Each of $K$ *heads* gives every element a logit, and a softmax over
# the elements turns the logits into weights. With $W_1$ (D, H) and $W_2$ (H, K), head $k$
# weighs element $x_n$ with $a_{nk}$ and finds $z_k$:
#
# $$a_{nk} = \mathrm{softmax}_n\bigl(\tanh(x_n W_1)\, W_2\bigr)_k, \qquad z_k = \sum_n a_{nk}\, x_n .$$
#
# ```{exercise} Heads of attention
# :label: ex-13-heads
#
# Return what the heads find, all $z_k$, (B, K, D). `x` is (B, N, D), `mask` (B, N) says which elements are real, `W1` is (D, H), `W2` is (H, K).
# Padding may hold anything.
# ```
#
# ```{hint}
# :class: dropdown
#
# Clear the padding first, then hide its logits from the softmax. Which dimension of (B, N, K) holds the elements?
# ```

# %%
from course.checks import exercise


@exercise("13.heads")
def heads(x, mask, W1, W2):  # (B, N, D), (B, N) -> (B, K, D)
    # your part
    x = x.masked_fill(~mask[:, :, None], 0)
    logits = (x @ W1).tanh() @ W2  # (B, N, K)
    weights = logits.masked_fill(~mask[:, :, None], -torch.inf).softmax(1)
    return weights.mT @ x  # (B, K, D)
    # end of your part


# %% [markdown]
# ````{solution} ex-13-heads
# :class: dropdown
#
# This is the softmax with a mask from the pooling notebook, once for each head. Nothing keeps two heads from looking at the same elements.
# ````
#
# What a head found goes through a linear layer (whose bias the formula omits) and a sigmoid, and is *added* to the global feature $\phi$, one vector for the whole picture or
# caption. Last, the sum is normalised (*layer norm*, LN):
#
# $$s_k = \mathrm{LN}\bigl(\phi + \sigma(W z_k)\bigr).$$


# %%
def add_global(found, global_, W, b):  # (B, K, D), (B, D) -> (B, K, D)
    residual = (found @ W.T + b).sigmoid()
    return F.layer_norm(global_[:, None] + residual, found.shape[-1:])


net = PIENet(16, slots=4)
x, global_ = torch.randn(3, 9, 16), torch.randn(3, 16)  # (B, N, D), (B, D)
mask = torch.arange(9) < torch.tensor([[9], [6], [1]])  # (B, N)
W1, W2 = net.attend[0].weight.T, net.attend[2].weight.T
sets = add_global(heads(x, mask, W1, W2), global_, net.project.weight, net.project.bias)
torch.testing.assert_close(sets, net(x, global_, mask))
print("vsecore.sets.PIENet gives the same sets,", tuple(sets.shape))

# %% [markdown]
# The third set has only one real element, so all its heads find the same and its four vectors are equal. The paper hopes for something like
# it where an input has one reading: small differences, and a set close to the global feature.
#
# ## MIL: the nearest two decide
#
# How do two sets compare? PIE-Net is half of a system called PVSE. The other half is *multiple instance learning* (MIL): a pair matches if
# any vector of one set is near any vector of the other. The paper writes
#
# $$s_{\mathrm{MIL}}(S_1, S_2) = \max_{x \in S_1,\, y \in S_2} c(x, y).$$
#
# ```{exercise} MIL
# :label: ex-13-mil
#
# Return $s_{\mathrm{MIL}}$ of all pictures' sets `v`, (B, K, D), with all captions' sets `t`, (C, L, D): (B, C). Vectors need not have length
# one.
# ```
#
# ```{hint}
# :class: dropdown
#
# `torch.einsum("bkd,cld->bckl", ...)` gives the products of all pairs.
# ```

# %%
from course.checks import exercise


@exercise("13.mil")
def mil(v, t):  # (B, K, D), (C, L, D) -> (B, C)
    # your part
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)
    cosines = torch.einsum("bkd,cld->bckl", v, t)
    return cosines.amax((2, 3))
    # end of your part


# %% [markdown]
# ````{solution} ex-13-mil
# :class: dropdown
#
# All cosines, then one maximum over both sets.
# ````
#
# ```{exercise} Who learns?
# :label: ex-13-sparse
#
# A picture and its caption have sets of four, and no two cosines are equal. To how many of the 16 cosines, and to how many of the 8 vectors,
# does $s_{\mathrm{MIL}}$ send a gradient?
# ```

# %%
from course.checks import check

your_counts = (1, 2)  # your part: of 16 cosines, of 8 vectors
check("13.sparse", your_counts)

# %% [markdown]
# ````{solution} ex-13-sparse
# :class: dropdown
#
# A maximum passes its gradient to the largest alone: one cosine, and the two vectors that it is made of.
# ````
#
# The paper calls this *sparse supervision*: "the majority of elements are not sampled as the closest pair and thus remain untrained".
#
# ## Match probability: every pair counts
#
# PCME {cite}`chun2021pcme` compares sets by the *match probability*: every pair of vectors has one, and all pairs count alike.
#
# $$s_{\mathrm{MP}}(S_1, S_2) = \frac{1}{KL}\sum_{x \in S_1,\, y \in S_2} \sigma\bigl(\alpha\, c(x, y) + \beta\bigr).$$
#
# ```{exercise} Match probability
# :label: ex-13-match
#
# Return $s_{\mathrm{MP}}$ of `v`, (B, K, D), and `t`, (C, L, D), as (B, C). `scale` is $\alpha$, `shift` is $\beta$. Take the mean over
# the pairs, as the paper's text says; its formula is printed as a sum.
# ```
#
# ```{hint}
# :class: dropdown
#
# The same cosines as for MIL. What becomes of each before you take the mean?
# ```

# %%
from course.checks import exercise


@exercise("13.match")
def match_probability(v, t, scale, shift):  # (B, K, D), (C, L, D) -> (B, C)
    # your part
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)
    cosines = torch.einsum("bkd,cld->bckl", v, t)
    return (scale * cosines + shift).sigmoid().mean((2, 3))
    # end of your part


# %% [markdown]
# ````{solution} ex-13-match
# :class: dropdown
#
# First the sigmoid of each cosine, then the mean.
# ````
#
# Here are the gradients of three similarities with respect to the 16 cosines of one picture and one caption, as shares of their sum. The third, smooth-Chamfer, is the
# subject of the next notebook; it lies between the other two.

# %% tags=["hide-input"]
c = torch.tensor(
    [[0.9, 0.2, 0.1, 0.0], [0.3, 0.7, 0.2, 0.1], [0.1, 0.2, 0.6, 0.5], [0, 0.1, 0.4, 0.5]]
)
scores = {
    "MIL": lambda c: c.max(),
    "match probability, scale 1": lambda c: c.sigmoid().mean(),
    "smooth-Chamfer": lambda c: (
        ((16 * c).logsumexp(1).mean() + (16 * c).logsumexp(0).mean()) / 32
    ),
}
tables = {}
for name, score in scores.items():
    (gradient,) = torch.autograd.grad(score(one := c.clone().requires_grad_()), one)
    tables[name] = gradient / gradient.sum()
figure = slot_maps.pair_tables(c, tables)
plots.show(
    figure,
    alt="Four tables of four by four numbers: the cosines of two sets, and their gradients. Under MIL a single cell has all of it, under match "
    "probability with scale 1 all cells have nearly the same, under smooth-Chamfer each row and column has most at its nearest.",
)

# %% [markdown]
# At the scale where training begins, 1, the match probability hardly tells near pairs from far ones. If anything, the *nearest* pairs get the
# *least*, because the sigmoid is flatter where the cosine is larger. (The scale is learned; a larger one tells them apart more.) Where should a picture's vector $x$ go then? Where the sigmoid is nearly straight, the score grows with
# $x \cdot \sum_y y$. So *every* $x$ has the same best place, the mean direction of the other set. The paper calls this *set collapsing*.
#
# ## How open is a set?
#
# The *circular variance* measures how widely the vectors of a set point:
#
# $$1 - \Bigl\lVert \frac{1}{K}\sum_k \frac{s_k}{\lVert s_k\rVert} \Bigr\rVert .$$
#
# ```{exercise} Circular variance
# :label: ex-13-variance
#
# Return the circular variance of each of the sets (B, K, D): (B,).
# ```
#
# ```{hint}
# :class: dropdown
#
# Directions first, then their mean over the set, then the length of that mean.
# ```

# %%
from course.checks import exercise


@exercise("13.variance")
def circular_variance(sets):  # (B, K, D) -> (B,)
    # your part
    return 1 - normalize(sets, dim=-1).mean(1).norm(dim=-1)
    # end of your part


# %% [markdown]
# ````{solution} ex-13-variance
# :class: dropdown
#
# It is 0 if all vectors point the same way, and 1 if they cancel out.
# ````
#
# ## Three trainings, one for each similarity
#
# Do these effects show in a training? We train PIE-Net with four vectors in both towers, three times, on the ambiguous captions. Only the
# similarity differs. PVSE's two regularizers are off, since one of them pushes the vectors of a set apart. After each epoch we look at sets
# of the development split.

# %% tags=["hide-input"]
if data == "scenes":
    dataset = scenes.load(*sizes, features="grid", ambiguity=AMBIGUITY)
else:
    dataset = lesson.dataset("grid")
looked_at = dataset.dev.subset(min(150, len(dataset.dev)))


def share_per_vector(similarity, v, t):
    """The share of the gradient of true pairs that each vector gets, (K,) for pictures and captions, in percent."""
    v, t = (one.clone().requires_grad_() for one in (v, t))
    owner = torch.as_tensor(looked_at.owner)
    scores = similarity(v, t)  # (Ni, Nc)
    own = scores[owner, torch.arange(len(owner))].sum()
    sizes_ = [g.norm(dim=-1).sum(0) for g in torch.autograd.grad(own, (v, t))]
    return [100 * one / one.sum() for one in sizes_]


# %%
epochs = lesson.pick(smoke=1, lesson=3, full=20)
changes = {"dim": 128, "text.encoder.word_dim": 64, "similarity": "mil"}
changes |= {"training.epochs": epochs, "training.decay_epochs": max(1, epochs - 1)}
changes |= {"training.batch_size": 128, "training.learning_rate": 2e-3}
changes |= {"losses.triplet.warmup_epochs": epochs, "training.warmup_steps": 0}  # all negatives
changes |= {"losses.mmd.weight": 0.0, "losses.gram_diversity.weight": 0.0}
for tower in ("image", "text"):
    changes |= {f"{tower}.pool.slots": 4, f"{tower}.pool.hidden": 128}
base = get("pvse_grid").override(changes)
tokenizer = base.tokenizer(dataset.train.captions)
print("vectors in a set:", base.image.pool.options["slots"], "epochs:", epochs)

# %% tags=["hide-input"]
similarities = {"MIL": "mil", "match probability": "match_probability"}
similarities |= {"smooth-Chamfer": "smooth_chamfer"}
measured = {"MIL": mil, "smooth-Chamfer": smooth_chamfer}  # whose gradient is measured
spread, shares = {name: [] for name in similarities}, {name: [] for name in measured}


def look(name: str, event) -> None:
    """Measure the sets after the first step and after each epoch."""
    if event.kind == "step" and event.step != 1:
        return
    v, t = (one.vectors for one in encode(event.model, looked_at, tokenizer))
    found = (circular_variance(one).clamp(min=1e-7) for one in (v, t))  # (B,) each
    spread[name].append([one.log().mean().item() for one in found])
    if name in measured:
        shares[name].append(share_per_vector(measured[name], v, t))


# %%
own_changes = {}  # such as {"match probability": {"similarity.scale": 5.0}}
for name, part in similarities.items():
    changed = base.override({"similarity": part} | own_changes.get(name, {}))
    watch = functools.partial(look, name)
    fit(changed, dataset, tokenizer=tokenizer, callback=watch, seed=seed)

# %% tags=["hide-input"]
when = [0, *range(1, epochs + 1)]
figure, panels = plt.subplots(2, 2, figsize=(8.6, 4.6), sharex=True, sharey=True)
for row_of, name in zip(panels, ("MIL", "smooth-Chamfer"), strict=True):
    for side, axes in enumerate(row_of):
        values = torch.stack([one[side] for one in shares[name]]).numpy()  # (epochs + 1, K)
        below = np.zeros(len(values))
        for slot in range(values.shape[1]):
            axes.bar(
                when,
                values[:, slot],
                0.8,
                bottom=below,
                color=plots.COLOURS[slot],
                hatch=("", "//", "..", "xx")[slot],
                edgecolor="white",
                label=f"vector {slot + 1}",
            )
            below = below + values[:, slot]
        axes.set(title=f"{name}, {('pictures', 'captions')[side]}", xticks=when)
        axes.grid(False)
for axes in panels[:, 0]:
    axes.set_ylabel("share of gradient (%)")
for axes in panels[1]:
    axes.set_xlabel("epoch (0: first step)")
figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right center")
plots.show(
    figure,
    alt="How the gradient of true pairs is shared among the four vectors of pictures and of captions, from the first step to the last epoch. Above "
    "for MIL, where the parts are uneven; below for smooth-Chamfer, where they are nearly equal.",
)

# %% tags=["nbval-ignore-output"]
last = {
    f"{name}, largest vector of {side} (%)": shares[name][-1][number].max().item()
    for name in ("MIL", "smooth-Chamfer")
    for number, side in enumerate(("pictures", "captions"))
}
course.numbers(last)
uneven, even = list(last.values())[:2], list(last.values())[2:]
lesson.finding("under MIL one vector gets more than its share", min(uneven) > 31)
lesson.finding("under smooth-Chamfer all get about a quarter", max(even) < 29)

# %% [markdown]
# An even share would be 25 percent. Under MIL each pair trains one vector on each side. The figure adds up many pairs, and shows whether the
# others get their turn: not all do. Which vector wins, and by how much, depends on the seed. Under smooth-Chamfer all four get about the same.
#
# Now the variance of the sets, as the paper gives it: the mean of its logarithm. Higher means wider.

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(8.8, 3.4), sharey=True)
for side, (axes, title) in enumerate(zip(panels, ("pictures", "captions"), strict=True)):
    lines = {name: (when, [one[side] for one in values]) for name, values in spread.items()}
    plots.curves(axes, lines, x="epoch (0: first step)", y="log circular variance", title=title)
    axes.set_xticks(when)
panels[1].get_legend().remove()
panels[1].set_ylabel("")
plots.show(
    figure,
    alt="Mean logarithm of the circular variance of the sets of pictures and of captions after the first step and after each epoch, one curve "
    "for each similarity: MIL, match probability and smooth-Chamfer.",
)

# %% tags=["nbval-ignore-output"]
ends = {
    f"{name}, {side}": spread[name][-1][number]
    for name in spread
    for number, side in enumerate(("pictures", "captions"))
}
course.numbers(ends)

# %% tags=["remove-cell"]
opened = [
    last - first
    for values in spread.values()
    for first, last in zip(values[0], values[-1], strict=True)
]
lesson.finding("all sets open", min(opened) > 1)
of_captions = {name: ends[f"{name}, captions"] for name in spread}
lesson.finding(
    "the captions' sets are narrowest under match probability and widest under MIL",
    of_captions["match probability"] + 0.3
    < of_captions["smooth-Chamfer"]
    < of_captions["MIL"] - 0.8,
)

# %% [markdown]
# PIE-Net starts with almost equal vectors, since it adds the same global feature to what each head found. All sets open from there; the
# question is how far. Look at the captions: their sets are narrowest under match probability, wider under smooth-Chamfer, and widest under MIL.
# The pictures' sets lie too close together to rank them. On Flickr30K, table 3 of the paper also reports narrower sets under match
# probability than under smooth-Chamfer, and narrower ones still where PIE-Net makes them; it does not give MIL's.
#
# A wide set is not yet a good one. Under MIL some vectors hardly learn, and a vector that does not learn need not stay near the others. One short
# training of each similarity is an illustration. It does not say which finds more, nor how large the differences are with other seeds.
# Longer trainings are on [the evidence page](../evidence/dive.md).
#
# ```{exercise} What keeps a set open
# :label: ex-13-explore
#
# Change one thing in the trainings: another seed, the regularizer (`losses.gram_diversity.weight` of 0.1), two vectors, or the scale of the match
# probability (in `own_changes`). Write what you expect before you run it, and afterwards what came out.
# ```

# %%
from course.checks import check

your_expectation = "The regularizer opens all sets."  # your part: before you run it
your_finding = "Seeds differ, so I would run more of them."  # your part: what came out
check("13.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-13-explore
# :class: dropdown
#
# A good answer changes nothing else, looks at pictures and captions separately, and compares more than one seed.
# ````
#
# ## Break it: heads that begin alike
#
# Nothing in PIE-Net tells one head from another but the random numbers that they begin with. Take them away: give all heads the same
# first weights, and train.
#
# ```{exercise} Break it
# :label: ex-13-break
#
# All four heads begin with the same weights, and we maximise MIL, as PVSE does, for 100 steps. How many *different* vectors does a set then
# have?
# ```

# %%
from course.checks import check

your_number = 1  # your part: from 1 to 4
check("13.break", your_number)


# %%
def after_training(alike: bool) -> float:
    torch.manual_seed(seed)
    net, x = PIENet(16), torch.randn(32, 9, 16)
    whole, goals = torch.randn(32, 16), torch.randn(32, 4, 16)  # sets that should match
    if alike:
        net.attend[2].weight.data[:] = net.attend[2].weight.data[0].clone()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        (-mil(net(x, whole), goals).diagonal().mean()).backward()
        optimizer.step()
    return 100 * circular_variance(net(x, whole)).mean().item()


# %% tags=["nbval-ignore-output"]
broken = {"heads begin alike": after_training(True), "heads begin apart": after_training(False)}
course.numbers({f"{name} (%)": one for name, one in broken.items()})
same, apart = broken.values()
lesson.finding("heads that begin alike stay alike", same < 0.05)
lesson.finding("heads that begin apart do not", apart > 1)

# %% [markdown]
# The numbers are the mean circular variance of a set, in percent.
#
# ````{solution} ex-13-break
# :class: dropdown
#
# One. Equal heads find equal things, so MIL's maximum has four equal candidates. They share its gradient equally, and every step keeps them
# equal.
# ````
#
# ## PCME: a cloud in place of a set
#
# PCME's own answer to ambiguity is a *Gaussian* for each picture and caption: a mean, and a variance for each dimension. Points
# drawn from it are the set. Two points at the distance $d$ match with a probability that falls with it, here $\sigma(6 - 6 d)$, and the *soft contrastive* loss is minus the
# log of the mean probability, or of its complement if the two do not belong together.
#
# What does the variance say? In this small experiment four pictures are fixed points. One caption belongs to the first picture, another
# to the first two. Both learn a mean and a variance.

# %% tags=["nbval-ignore-output"]
torch.manual_seed(seed)
points = 2.0 * torch.eye(4)[:, None]  # (4, 1, 4)   four pictures
positives = torch.tensor([[True, True], [False, True], [False, False], [False, False]])
mean, log_variance = (torch.zeros(2, 4, requires_grad=True) for _ in range(2))
optimizer = torch.optim.Adam([mean, log_variance], 0.03)
for _ in range(lesson.pick(smoke=20, lesson=600, full=600)):
    t = sample_gaussians(mean, log_variance, 32)  # (2, 32, 4)
    loss = soft_contrastive(points, t, scale=6.0, shift=6.0, positives=positives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
deviation = (log_variance / 2).exp().mean(1)  # (2,)
clouds = {"fits one picture": deviation[0].item(), "fits two pictures": deviation[1].item()}
course.numbers(clouds)

# %% tags=["remove-cell"]
one, two = clouds.values()
lesson.finding("the caption that fits two pictures has the wider cloud", two > 1.5 * one)

# %% [markdown]
# These are mean standard deviations: the caption that fits two pictures has the wider cloud. PCME reads the variance as how ambiguous an item
# is. At search time the means alone can be compared.
#
# Between "one pair" and "all pairs" lies a third way: each vector of the query looks for its best partner, and the results are summed. In text
# search this is called *late interaction*, and the score *MaxSim*; the package has it as `vsecore.similarity.max_sim`. [The next notebook](14_slots.ipynb)
# compares it with its two-sided, smooth relative, smooth-Chamfer, and lets the vectors of a set compete for the elements.
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | PIE-Net of Song and Soleymani | `heads`, `add_global` | `vsecore.sets.PIENet` |
# | MIL similarity, section 3.3 | `mil` | `vsecore.similarity.sets.mil` |
# | match probability, section 3.3 | `match_probability` | `vsecore.similarity.sets.match_probability` |
# | circular variance, section 4.6 | `circular_variance` | `vsecore.sets.circular_variance` |
# | soft contrastive loss of Chun et al. | "PCME" | `vsecore.losses.soft_contrastive` |
#
# ## Summary
#
# - Captions fit many pictures and pictures many captions; with one vector for each, the best that two readings can share is $\cos(\theta/2)$.
# - PIE-Net adds what each head found to the global feature; nothing keeps its heads apart but their first random weights.
# - MIL trains one pair of vectors at a time, which leaves the others without a gradient.
# - Match probability, with a small scale, trains all pairs nearly alike, which lets the vectors of a set differ little.
#
# ## Where to read on
#
# - {cite}`kim2023dive` compares these similarities and builds a new one; [the evidence page](../evidence/dive.md) has its numbers and ours.
# - {cite}`chun2021pcme` shows what its variances say about photographs and captions.
