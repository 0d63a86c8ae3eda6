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
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import softplus

import course
from course import dots, plots
from course.checks import check, exercise
from course.drawings import negatives as draw
from vsecore import experiments
from vsecore.losses import adopt, adopt_k, alignment, uniformity
from vsecore.recipes import get
from vsecore.training import encode, evaluate_split, fit

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## What AdOpt does
#
# 2AD has two parts. AdPool is the subject of [Pooling](10_pooling.ipynb). AdOpt lets the batch itself
# decide how many negatives each query learns from. We train the same towers twice for one short epoch, from the same weights, on the same
# batches and at the same learning rate: once with the hardest triplet of VSE++, which learns from one negative, and once with AdOpt. A
# *variant* such as `+without_adopt` names a change to the recipe.

# %% tags=["hide-input"]
dataset = lesson.dataset("grid")
half = replace(
    dataset,
    train=dataset.train.subset(lesson.pick(smoke=300, lesson=2000, full=len(dataset.train))),
)
part_of_dev = dataset.dev.subset(min(200, len(dataset.dev)))
small = experiments.LESSON_SCALE["scenes"] | {"training.epochs": 1, "training.batch_size": 64}
size = lesson.pick(smoke=small, lesson=small, full={"training.epochs": 1})
tokenizer = get("2ad_grid_gru", size).tokenizer(dataset.train.captions)
quarter = len(half.train.captions) // 64 // 4  # steps in a quarter of an epoch

# %%
seen = {}


def train(name, variant="", changes=None):
    log = seen[name] = {"step": [], "rsum": [], "scores": []}

    def watch(event):
        if event.kind == "step":
            log["scores"].append(event.scores.detach().float().cpu())  # (B, B)
            if event.step % quarter == 0:
                log["step"].append(event.step)
                log["rsum"].append(evaluate_split(event.model, part_of_dev, tokenizer)["rsum"])

    recipe = get("2ad_grid_gru" + variant, size).override(changes or {})
    log["model"] = fit(recipe, half, tokenizer=tokenizer, callback=watch, seed=seed).model


# %% tags=["nbval-ignore-output"]
train("hardest triplet", "+without_adopt")
train("AdOpt")
figure, axes = plt.subplots(figsize=(6.2, 3.2))
lines = {name: (log["step"], log["rsum"]) for name, log in seen.items()}
plots.curves(axes, lines, x="step", y="rsum of 200 development pictures")
plots.show(
    figure,
    alt="Rsum on a part of the development split against the step of the first epoch: "
    "AdOpt climbs steeply, the hardest triplet stays far below it.",
)
end = {name: log["rsum"][-1] for name, log in seen.items()}
lesson.finding("AdOpt learns much faster", end["AdOpt"] > 2.5 * end["hardest triplet"])

# %% [markdown]
# AdOpt learns much faster. Is the triplet's learning rate wrong? No: in the long runs of the last section each loss has the rate that suits it best,
# and after one epoch the gap is as large. So how does AdOpt do it?
#
# ## Why one negative is not enough
#
# The authors write that "locating a “difficult” negative sample is challenging in the early stages of training" (section 3.3). Early in
# training the embeddings are close to random, so the hardest negative is hard only by accident. Late in training most negatives are far
# away, and only the few that are still near teach something. AdOpt therefore learns from many negatives early and from few late.

# %% tags=["hide-input"]
plots.show(
    draw.which_count(),
    alt="Two circles, each with a picture at the top, its caption (a triangle) and ten negatives (squares). Left, early in training, the "
    "negatives crowd around the picture as near as its caption, and six of ten are filled: they count. Right, late in training, the "
    "caption is next to the picture, the negatives are spread over the circle, and only the nearest two are filled.",
)

# %% [markdown]
# There is a second reason. An encoder with random weights makes some items similar to everything, whatever they show. Such an item is
# called a *hub*, and many queries have the same hub as their hardest negative. The next cell looks at the first batch of the training and
# counts how many distinct items are somebody's hardest negative. If each query drew its hardest negative at random, about 63 % of the
# batch would be among them, because an item is missed by all $n$ queries with probability $(1 - 1/n)^n$, which is about 37 %.

# %% tags=["nbval-ignore-output"]
S = seen["AdOpt"]["scores"][0]  # (B, B)   rows: pictures, columns: captions
own = torch.eye(len(S), dtype=torch.bool)  # (B, B)
others = S.masked_fill(own, -torch.inf)  # (B, B)   only the negatives
captions, pictures = others.argmax(1).unique(), others.argmax(0).unique()
print(len(S), "pairs in the batch")
print(len(captions), "captions are the hardest negative of a picture")
print(len(pictures), "pictures are the hardest negative of a caption")
few = max(len(captions), len(pictures)) < 0.4 * len(S)
lesson.finding("there are hubs: far fewer than 63 %", few)

# %% [markdown]
# So one step of the hardest triplet uses only these few negatives. With more negatives for each query, more items take part.
#
# ## The loss: the K hardest negatives
#
# A triplet compares a pair with one negative. To use several, 2AD takes InfoNCE {cite}`oord2018cpc` and keeps only the $K$ hardest
# negatives in its sum. Let $\hat t_1, \hat t_2, \dots$ be the negatives of a picture $v$ in the batch, the hardest first. The loss (after
# equation 6 of the paper, with the pair itself in the sum and the hardest negatives, as released) is
#
# $$\ell_{v \to t} = -\frac{1}{B} \sum_{(v,t)} \log \frac{\exp(s(v,t)/\tau)}{\exp(s(v,t)/\tau) + \sum_{j=1}^{K} \exp(s(v,\hat t_j)/\tau)} .$$
#
# $\ell_{t \to v}$ does the same for the captions, with the $K$ hardest pictures of each, and the loss is the sum of both. The *temperature*
# $\tau$ sets how much the hardest negatives outweigh the others. With $K = B - 1$ this is InfoNCE over the whole batch; with $K = 1$ it
# is close to a hinge without a margin.
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
@exercise("11.loss")
def k_hardest(S, K, temperature=0.05):  # (B, B), a whole number -> one number
    # your part
    own = S.diag()[:, None]  # (B, 1)
    others = S.masked_fill(torch.eye(len(S), dtype=torch.bool), -torch.inf)  # (B, B)
    captions = others.topk(K, dim=1).values  # (B, K)   of each picture
    pictures = others.topk(K, dim=0).values.T  # (B, K)   of each caption
    logits = [torch.cat([own, hard], dim=1) / temperature for hard in (captions, pictures)]
    return -sum(some.log_softmax(1)[:, 0].mean() for some in logits)
    # end of your part


# %% [markdown]
# ````{solution} ex-11-loss
# :class: dropdown
#
# A similarity of $-\infty$ is never among the $K$ largest as long as $K \le B - 1$, so the pair cannot be its own negative. Hiding the
# diagonal with 0 would not do, since similarities can be negative. The log-softmax of column 0 is the logarithm in the equation. A common
# mistake is to take the hardest of the rows twice: the pictures of each caption stand in the columns.
# ````
#
# In the package this loss is called `adopt`, and its argument `negatives` is $K$:

# %%
random = torch.rand(128, 128, generator=torch.Generator().manual_seed(seed)) * 2 - 1
for K in (1, 16, 127):
    both = k_hardest(random, K).item(), adopt(random, negatives=K).item()
    print(f"K = {K:3}: yours {both[0]:.3f}, the package's {both[1]:.3f}")

# %% [markdown]
# **Two things that the formula does not show.** The paper writes the denominator over the negatives alone. Then a pair is pulled together
# with the same force however well it is already separated, and the loss falls far below zero. With the pair in the sum the loss stops at
# zero, as in the released code. (Leaving it out can also be a good choice {cite}`yeh2022decoupled`.)
#
# The released code, and so our recipe, also adds a *margin* of 0.2 to the similarity of every negative. That multiplies each negative's
# term by $\exp(0.2/\tau) \approx 55$, so a pair goes on learning until it is ahead of its negatives by clearly more than 0.2. In the results it
# changes more than the schedule does.
#
# ## How far has the model come?
#
# To choose $K$, we must read from a batch how far training has come. Wang and Isola {cite}`wang2020alignment` name two properties of a
# good space. *Alignment of pairs*: what belongs together lies close together. *Uniformity*: the vectors as a whole spread over the sphere. Here are
# four spaces of forty pairs on a circle, with their alignment, their uniformity and the resulting $K$.

# %%
words = {}
for name, angles in draw.SPACES.items():  # of the pictures and of the captions, (B,) each
    v, t = (torch.from_numpy(one) for one in angles)
    S = (v[:, None] - t).cos()  # (B, B)
    values = f"alignment {abs(alignment(S)):.2f}\nuniformity {uniformity(S):.2f}"
    words[name] = f"{values}\nK = {adopt_k(S)}"

# %% tags=["hide-input"]
plots.show(
    draw.spaces(words),
    alt="Four circles with forty pictures outside and forty captions inside, pairs joined by lines. Collapsed, apart: all pictures in one spot, "
    "all captions in another, a quarter turn away. Uniform: all around, pairs joined across the circle. Aligned: all in one arc, each "
    "caption at its picture. Aligned and uniform: all around, each caption at its picture.",
)

# %% [markdown]
# Alignment is the mean similarity of the pairs. Uniformity is high when pictures and captions of different pairs are far apart:
#
# $$\gamma_{\mathrm{align}} = \frac{1}{B} \sum_{(v,t)} s(v,t) , \qquad \gamma_{\mathrm{uniform}} = \frac{1}{B^2} \sum_{v, t} \exp(-s(v,t)) ,$$
#
# where the similarity of a pair itself counts as 0 in the second sum. (As released; the paper's form comes below. Wang and Isola measure
# distances.) The first circle shows a limit of these readings, which never compare pictures with pictures: the space has collapsed into two
# points, yet its alignment of 0 and uniformity of 1 are those of random vectors in many dimensions. (On a circle, similarities do not stay
# near 0, so a uniform space reads 1.26 and its K is low.)
#
# ## How the two readings set K
#
# The sum of both, $\gamma = \gamma_{\mathrm{align}} + \gamma_{\mathrm{uniform}}$, sets the number of negatives. A cosine turns a growing
# sum into a falling number. In an untrained space $\gamma$ is about 1 (alignment 0, uniformity 1), and about half of the batch counts. As
# pairs align, $\gamma$ grows; from $(\pi/2)^{0.8} = 1.44$ on, the cosine is negative and $K$ is 1. This is equation 6 of the paper, as its
# code has it:
#
# $$K = \max\Big(1, \min\Big(B - 1, \big\lfloor B \cos(\gamma^{1.25}) \big\rfloor + 1\Big)\Big) .$$
#
# The brackets round down; max and min keep $K$ between 1 and $B - 1$.
#
# ```{exercise} K by hand
# :label: ex-11-k
#
# In a batch of 128 pairs, each pair has the similarity 0.3, and every other similarity is 0. What is $K$?
# ```

# %%
your_k = 24  # your part: a whole number
check("11.k", your_k)

# %% [markdown]
# ````{solution} ex-11-k
# :class: dropdown
#
# Alignment is 0.3. For the uniformity every similarity counts as 0, so it is $\exp(0) = 1$, not 0. Then $1.3^{1.25} = 1.388$, its cosine
# (in radians) is 0.1817, and 128 times that is 23.3. Rounded down, plus one: 24.
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
# The mean of the uniformity goes over all $B^2$ entries, in
# which each pair counts as $\exp(0) = 1$. $K$ itself carries no gradient, so leaving torch loses nothing.
# ````
#
# The rule and the loss together are AdOpt. The paper prints another form of equation 6: $\gamma\pi/4$ in place of $\gamma^{1.25}$, no
# $+ 1$, and $\log \frac{1}{B^2} \sum \exp(s)$ as the uniformity. There $\gamma$ should grow from 0 to 2, and $K$ fall from the whole batch
# to 1. We compare the two forms on three batches.

# %%
batches = {"untrained": (0.0, 0.0), "well trained": (0.94, 0.02), "collapsed": (1.0, 1.0)}
print("                yours   package   printed form")
for name, (pairs, others) in batches.items():
    made = torch.full((128, 128), others).fill_diagonal_(pairs)  # (B, B)
    numbers = how_many(made), adopt_k(made), adopt_k(made, rule="printed")
    print(f"{name:<13}{numbers[0]:8}{numbers[1]:10}{numbers[2]:15}")
together = k_hardest(random, how_many(random))
print(f"the loss with K from the batch: {together:.3f}, and adopt gives {adopt(random):.3f}")

# %% [markdown]
# **The printed uniformity rewards collapse.** It has the form of Wang and Isola's *loss*, so it grows as vectors come *closer* together:
# about 0 in a uniform space, 1 when all vectors are the same. A collapsed space therefore gets the full sum of 2 and $K = 1$, as if
# training were finished, while a well-trained space still gets 92 of 127 negatives. The released form comes down to a handful, as the
# paper's figure C-2 shows, so we use it (although it gives the crowded arc above $K = 2$). The other one is
# `rule="printed"`.
#
# ## When does K fall?
#
# We kept the scores of all batches of AdOpt's training at the top, so we can apply your rule to each of them. First, predict:
#
# ```{exercise} The schedule
# :label: ex-11-fall
#
# The encoders begin with random weights and see one short epoch. When will $K$ fall? Answer `"at once"` (from the first steps on),
# `"evenly"` (from the first step to the last), `"later"` (it stays high at first, then falls) or `"hardly"` (nearly as many still count at the
# end).
# ```

# %%
your_prediction = "later"  # your part: "at once", "evenly", "later" or "hardly"
check("11.fall", your_prediction)

# %% [markdown]
# We draw one more line. The $K$ negatives do not count equally: the gradient gives each of them a share that grows with its
# similarity,
#
# $$a_j = \frac{\exp(s(v, \hat t_j)/\tau)}{\sum_{i} \exp(s(v, \hat t_i)/\tau)} .$$
#
# The *entropy* $-\sum_j a_j \log a_j$ of the shares is $\log n$ if $n$ negatives share equally, and 0 if one takes everything. So its
# exponential is an *effective number* of negatives. We compute it over all negatives of the batch, as if no $K$ had been chosen.


# %%
def effective_number(S, temperature=0.05):  # (B, B), or several batches -> one number
    others = S.masked_fill(torch.eye(S.shape[-1], dtype=torch.bool), -torch.inf)  # (B, B)
    a = (others / temperature).softmax(-1)  # (B, B)   the shares
    entropy = torch.special.entr(a).sum(-1)  # (B,)   entr(a) is −a log a
    return entropy.exp().median().item()  # of the pictures


kept = [how_many(S) for S in seen["AdOpt"]["scores"]]
effective = [effective_number(S) for S in seen["AdOpt"]["scores"]]

# %% tags=["nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(7.2, 3.6))
across, most = range(1, len(kept) + 1), len(seen["AdOpt"]["scores"][0]) - 1
lines = {"K by the rule": (across, kept), "effective number of all": (across, effective)}
draw.count(axes, lines, "step of the first epoch", most)
plots.show(
    figure,
    alt="Negatives that count against the step, on a logarithmic axis: K by the rule "
    "begins at about half of the batch and falls to a few; the effective number of all "
    "negatives begins at nearly all and falls too.",
)

# %% tags=["nbval-ignore-output"]
part = max(1, len(kept) // 10)
numbers = {
    "K, first tenth": np.mean(kept[:part]),
    "K, last tenth": np.mean(kept[-part:]),
    "effective number, first tenth": np.mean(effective[:part]),
    "effective number, last tenth": np.mean(effective[-part:]),
}
course.numbers(numbers)
first, last, all_first, all_last = numbers.values()
lesson.finding("K begins at half of the batch", 0.4 * most < first < 0.7 * most)
lesson.finding("it stays at first", np.mean(kept[part : 2 * part]) > 0.75 * first)
lesson.finding("K falls to a few", last < 0.35 * first)
lesson.finding("so does the number without a rule", all_last < 0.35 * all_first > 0.25 * most)

# %% [markdown]
# ````{solution} ex-11-fall
# :class: dropdown
#
# Later. $K$ falls only as fast as alignment grows. Random encoders put pairs no closer together than other items, and it takes some steps
# until that changes. (The line is jagged because $K$ is read from single batches.)
# ````
#
# Both lines stay level at first and then fall. The second line falls *without any rule*: early the similarities lie close together and the
# softmax gives nearly equal shares; later they are spread out, and the hardest negatives take most.
#
# ```{admonition} Optional: a formula for the effective number
# :class: note dropdown
#
# For very many negatives, $n$ of them, whose similarities are normally distributed with standard deviation $\sigma$, the effective number is
# $n \exp(-\sigma^2 / (2 \tau^2))$. What matters is $\sigma$ measured in temperatures: halving $\tau$ does the same as doubling $\sigma$.
# ```
#
# ## Does the softmax already do the work?
#
# This suggests a hypothesis that we can test. If the softmax chooses the few negatives by itself, a schedule adds little at the usual
# temperature of 0.05. At a temperature of 0.5 the softmax is far flatter. If the hypothesis is right, the schedule should matter more there:
# AdOpt should beat the same loss with all negatives by more.

# %%
hot = {"losses.adopt.temperature": 0.5}
train("all", "+negatives_127")  # asks for 127, so all 63 of a batch
train("AdOpt, 0.5", "", hot)
train("all, 0.5", "+negatives_127", hot)

# %% tags=["nbval-ignore-output"]
figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.4), sharey=True)
for axes, end in zip(panels, ("", ", 0.5"), strict=True):
    lines = {
        name: (seen[name + end]["step"], seen[name + end]["rsum"]) for name in ("AdOpt", "all")
    }
    title = f"temperature {end[2:] or 0.05}"
    plots.curves(axes, lines, x="step", y="", title=title)
panels[0].set_ylabel("rsum of 200 development pictures")
plots.show(
    figure,
    alt="Two panels with rsum against the step, for AdOpt and for the same loss with all "
    "negatives: at temperature 0.05 both end together, at 0.5 AdOpt ends far above. In "
    "both, all negatives are ahead at first.",
)

# %% tags=["nbval-ignore-output"]
ahead = {  # AdOpt minus all negatives
    end: np.subtract(seen["AdOpt" + end]["rsum"], seen["all" + end]["rsum"])
    for end in ("", ", 0.5")
}
course.numbers({"at 0.05, early": ahead[""][0], "at 0.05, at the end": ahead[""][-1]})
course.numbers({"at 0.5, early": ahead[", 0.5"][0], "at 0.5, at the end": ahead[", 0.5"][-1]})
lesson.finding("the schedule helps more at 0.5", ahead[", 0.5"][-1] > ahead[""][-1] + 40)
lesson.finding("at 0.05 both end together", abs(ahead[""][-1]) < 25)
lesson.finding("early, all negatives are ahead", max(gap[0] for gap in ahead.values()) < -30)

# %% [markdown]
# The numbers are AdOpt's rsum minus that of all negatives. The hypothesis survives: at 0.05 the two end together, while at 0.5 the schedule is
# worth a great deal. A schedule and a low temperature do similar work, since both come down from many negatives to the few that matter. But one
# seed and one short epoch are little evidence.
#
# Look at the beginning of the curves too. There, learning from all negatives is *faster* than AdOpt, which begins with about half of them.
# So AdOpt is fast compared with one negative, but it is not the fastest way to begin.
#
# ## When the hardest negative is right
#
# There is a reason to be careful with a small $K$ late in training. A negative is any caption that was not written for the picture, but it
# may be true of it all the same: a *false negative*. For the scenes we know which captions are true. So we can count how often the hardest
# negative in a batch of 128 is in fact true, after our epoch of AdOpt, and compare it with easier ones.


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


# %% tags=["nbval-ignore-output"]
truth = lesson.relevance("test")  # None for photographs, of which nobody knows it
placed = torch.zeros(127) if truth is None else true_by_place(seen["AdOpt"]["model"], truth)
course.numbers(
    {
        "percent true: the hardest negative": placed[0],
        "the 2nd to 4th": placed[1:4].mean(),
        "the 5th to 16th": placed[4:16].mean(),
        "all negatives": placed.mean(),
    }
)
falling = placed[0] > 1.3 * placed[1:4].mean() > 1.7 * placed[4:16].mean() > 3 * placed.mean()
lesson.finding("the harder a negative, the more often it is true", bool(falling))

# %% [markdown]
# A trained model puts a negative near *because* it fits, so the hardest negative is the most likely one to be true. With $K = 1$ that
# one negative takes the whole push; with larger $K$ the push is shared.
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
your_floor = 2 * math.log(2)  # your part: one number
check("11.break", your_floor)

# %% [markdown]
# ````{solution} ex-11-break
# :class: dropdown
#
# The softmax is over two equal numbers, so the loss of each query is $-\log \frac{1}{2} = 0.69$, and there are two directions. The
# temperature does not matter, because both numbers are divided by it.
# ````
#
# Here is the broken loss on that batch, with the largest gradient that any similarity gets:


# %%
def no_mask(S, K, temperature=0.05):
    logits = S / temperature
    wrong = [logits.topk(K, dim=dim).values.logsumexp(dim) for dim in (1, 0)]  # two of (B,)
    return sum(softplus(some - logits.diag()).mean() for some in wrong)


for K in (1, 4):
    perfect = (2 * torch.eye(128) - 1).requires_grad_()  # (B, B)
    loss = no_mask(perfect, K)
    loss.backward()
    print(f"K = {K}: loss {loss:.3f}, largest gradient {perfect.grad.abs().max():.3f}")

# %% [markdown]
# The loss of a perfect batch is no longer 0, and it has no gradient: the same similarity is pulled up as a pair and pushed down
# as a negative. At $K = 1$ this happens to every query whose pair already ranks first. So check the mask first when you write a contrastive loss: a
# wrong one raises no error.
#
# ## Your own experiment: a fixed number
#
# ```{exercise} How many from the start?
# :label: ex-11-explore
#
# AdOpt ends with a handful of negatives. Would a handful do from the start? Choose a fixed $K$ in `your_number`. Before you run the cell,
# write down where you expect its curve to lie: near the hardest triplet, or near AdOpt? Afterwards write what the plot shows. Then try a
# $K$ ten times as large.
# ```

# %% tags=["nbval-ignore-output"]
your_number = 4  # change this
train(f"always {your_number}", "", {"losses.adopt.negatives": your_number})
figure, axes = plt.subplots(figsize=(6.2, 3.2))
names = ("AdOpt", "all", f"always {your_number}", "hardest triplet")
lines = {name: (seen[name]["step"], seen[name]["rsum"]) for name in names}
plots.curves(axes, lines, x="step", y="rsum of 200 development pictures")
plots.show(
    figure,
    alt="Rsum against the step: a fixed number of negatives beside AdOpt, all negatives "
    "and the hardest triplet.",
)

# %%
your_expectation = "Four negatives will be close to AdOpt."  # your part: before
your_finding = "No: their curve lies far below it."  # your part: after
check("11.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-11-explore
# :class: dropdown
#
# Four negatives are better than one, but far behind: early on, the four hardest are hard by accident too. With 16 or more
# the curve comes close to AdOpt's. So the many negatives of the beginning make AdOpt fast, not the few of the end.
# ````
#
# ## Results: is AdOpt faster, and is it better at the end?
#
# In the long runs each loss has its own learning rate, chosen on the development split, and trains for 15 epochs from five seeds. Two
# more losses are *max violation* (hinges on all negatives in the first epoch, then the hardest) and AdOpt's own loss with *all 127
# negatives always*. First, the whole training, as in the paper's figures C-2 and A.2-1:

# %% tags=["hide-input", "results", "nbval-ignore-output"]
long = experiments.studied("2ad_negatives", "scenes")
arms = {"AdOpt": "AdOpt, released", "hardest triplet": "hardest triplet"}
arms |= {"max violation": "max violation", "all 127 always": "always 127"}
sums = {name: dots.by_epoch(long[arm], "dev_rsum") for name, arm in arms.items()}
k = dots.by_epoch(long["AdOpt, released"], "negatives_released").mean(0)  # (epochs,)
flat = [1] * 15  # epochs
ks = {"hardest triplet": flat, "max violation": [127, *flat[1:]], "all 127 always": [127] * 15}
plots.show(
    draw.whole_training({"AdOpt": k} | ks, sums, 127),
    alt="Left, how many negatives count by the epoch, on a logarithmic axis: AdOpt 28 on average in the first epoch and below 2 from the second on, the hardest triplet always 1, "
    "max violation 127 and then 1, and a line at 127. Right, rsum by the epoch: the hardest triplet climbs slowly for eight epochs, the others are up after two. Bands reach from the lowest seed to the highest.",
)
first = {name: round(one[:, 0].mean()) for name, one in sums.items()}
lesson.outcome("500 against 41", (first["AdOpt"], first["hardest triplet"]) == (500, 41))
lesson.outcome("it ends at 536", round(sums["AdOpt"][:, -1].mean()) == 536)
lesson.outcome("all are ahead early", first["all 127 always"] > first["AdOpt"] + 8)
lesson.outcome("K is 28, then below 2", 25 < k[0] < 31 and k[1] < 2)

# %% [markdown]
# After one epoch AdOpt is at 500 (on the development split, where it ends at 536) and the hardest triplet at 41. AdOpt's $K$ is 28 on
# average in the first epoch and below 2 from the second on. Max violation, with its one step from 127
# to 1, catches up in the second epoch, and all 127 negatives, without any schedule, are the fastest of all. And at the end?

# %% tags=["hide-input", "results", "nbval-ignore-output"]
more = {"AdOpt, printed rule": "AdOpt, printed rule", "all 127, no margin": "InfoNCE, all"}
ends = {name: long[arm] for name, arm in (arms | more).items()}
dots.show(ends)
adopt_ends, all_ends = ends["AdOpt"], ends["all 127 always"]
margin = [
    dots.gap(all_ends, ends["all 127, no margin"], name)[0] for name in ("rsum", "i2t_map_at_r")
]
schedule, cost = (dots.gap(adopt_ends, all_ends, name) for name in ("rsum", "i2t_map_at_r"))
lesson.outcome(
    "9.3 above the triplet", 9 < dots.gap(adopt_ends, ends["hardest triplet"])[0] < 9.6
)
lesson.outcome("the margin: +7.4 and -3.5", 7 < margin[0] < 7.8 and -3.8 < margin[1] < -3.2)
lesson.outcome("the schedule: 2.3, undecided", 2 < schedule[0] < 2.7 and schedule[1] < 0)
lesson.outcome("it costs 2.5", -2.8 < cost[0] < -2.2)
printed = ends["AdOpt, printed rule"]
below, above = (dots.gap(adopt_ends, printed, name)[0] for name in ("rsum", "i2t_map_at_r"))
lesson.outcome(
    "printed rule: 1.6 below and 2.4 above", 1.5 < below < 1.65 and -2.45 < above < -2.3
)
kept = dots.by_epoch(printed, "negatives_printed").mean(0)  # (epochs,)
lesson.outcome("it keeps 114 negatives", round(kept[-1]) == 114)
parts = experiments.studied("2ad_parts", "scenes")
adpool = dots.gap(parts["all"], parts["without AdPool"])[0]
lesson.outcome("AdPool brings 65", round(adpool) == 65)
photographs = experiments.studied("2ad_negatives", "flickr8k")
photographs = [photographs[arm] for arm in ("AdOpt, released", "hardest triplet")]
lesson.outcome("46 on photographs", round(dots.gap(*photographs)[0]) == 46)
lesson.outcome("max violation: 2.5", 2.2 < dots.gap(adopt_ends, ends["max violation"])[0] < 2.8)

# %% [markdown]
# **What came out.** AdOpt ends 9.3 above the hardest triplet. In the paper it is 9.0 on photographs, more than
# AdPool brings (7.8, table 3); here AdPool brings 65. And compared with AdOpt's own loss over all 127 negatives, the schedule adds only 2.3, which five
# seeds cannot tell from zero, and lowers mAP@R to text by 2.5. Max violation ends 2.5 below AdOpt, within our margin. The printed rule
# keeps 114 of the 127 negatives, and ends much as with all: 1.6 below AdOpt, and 2.4 above it in mAP@R to text.
#
# **What the margin does.** *All 127, no margin* is InfoNCE; it differs from *all 127 always* only in the margin of 0.2, and in taking the
# mean of both directions instead of their sum. The margin
# raises rsum by 7.4 and lowers mAP@R from picture to text by 3.5. So it changes both measures more than the schedule does. The likely reason is false
# negatives: the margin goes on pushing away true captions that were not written for the picture. Rsum rewards finding the
# caption that was written; mAP@R counts every true one.
#
# **What it means.** One negative is too few early on. A schedule is one cure; keeping all negatives and letting a low temperature choose is
# another.
#
# **How sure we are.** Five seeds on one drawn world. On Flickr8k, three seeds put AdOpt 46 above the hardest triplet, whose training is
# still improving. All comparisons are on [the evidence page](../evidence/2ad.md).
#
# Here are 2AD as a whole and VSE∞ (max violation and GPO, a [learned pool](10_pooling.ipynb)) on the course's scoreboard, trained on regions, not on cells as above. VSE∞ is higher, but
# here it sees the whole input in training, where 2AD leaves out a fifth: see [All together](17_all_together.ipynb).

# %% tags=["hide-input", "results", "nbval-ignore-output"]
course.scoreboard("11")

# %% [markdown]
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
# - The softmax makes a similar choice by itself, the more so the lower the temperature; and the hardest negative may be true.
# - AdOpt ends 9.3 above the hardest triplet, but only 2.3 above the same loss with all negatives; the margin adds 7.4 (and costs mAP@R).
#
# ## Where to read on
#
# - Alignment and uniformity: {cite}`wang2020alignment`. InfoNCE: {cite}`oord2018cpc`. A learned temperature: {cite}`radford2021clip`.
# - Next: [several systems, one answer](12_ensembles_and_speed.ipynb).
