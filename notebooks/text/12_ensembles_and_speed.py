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
# # Ensembles: what averaging brings
#
# **You will be able to** combine several systems into one ranking, predict the gain from how alike their mistakes are, test an ensemble
# against a fair control, and store it as one index.
#
# **You need** the notebooks [The joint space](03_joint_space.ipynb), [Learning to rank](04_learning_to_rank.ipynb) and
# [Pooling: sort, weigh, sum](10_pooling.ipynb), and an idea of variance and correlation.
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take three quarters of an hour.
#
# The map: encode → pool → **compare** → learn. This notebook changes how a picture and a caption are compared.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import statistics
from dataclasses import replace
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import normalize

import course
from course import dots, plots
from course.checks import check, exercise
from course.drawings import ensembles as draw
from course.drawings import system
from vsecore import experiments
from vsecore.evaluation import ensemble, evaluate
from vsecore.recipes import get
from vsecore.similarity import cosine
from vsecore.training import encode, fit

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% tags=["hide-input"]
system("compare")

# %% [markdown]
# ## Three systems, one answer
#
# The authors of 2AD {cite}`zhang2022adpool` train their system three times: on regions (R), on grid cells (G) and on patches (P). Then
# all three answer together, as an *ensemble* that they call RGP, "by simply taking the average similarity values to rank the candidates"
# (section 4.3). We do the same, with a short epoch for each system. P is trained twice more from other seeds; we shall need these two as
# a control.

# %% tags=["hide-input"]
small = {"dim": 96, "text.encoder.word_dim": 64}
short = {"batch_size": 64, "epochs": 1, "learning_rate": 3e-3, "schedule": "cosine"}
small |= {f"training.{name}": value for name, value in short.items()}
size = lesson.pick(smoke=small, lesson=small, full={})
count = lesson.pick(smoke=300, lesson=2000, full=10**6)  # pictures to learn from
kinds = {"R": "region", "G": "grid", "P": "patch"}
if lesson.regions_or_grid() == "grid":
    del kinds["R"]
datasets = {kind: lesson.dataset(features) for kind, features in kinds.items()}

# %%
members = {kind: (kind, 0) for kind in kinds} | {"P2": ("P", 1), "P3": ("P", 2)}
runs = {}
for name, (kind, turn) in members.items():
    part = datasets[kind].train.subset(min(count, len(datasets[kind].train)))
    recipe = get(f"2ad_{kinds[kind]}_gru").override(size)
    runs[name] = fit(recipe, replace(datasets[kind], train=part), seed=seed + 1000 * turn)


def vectors_of(name, split):
    data = getattr(datasets[members[name][0]], split)
    both = encode(runs[name].model, data, runs[name].tokenizer)
    return [side.vectors for side in both]  # (Ni, D) and (Nc, D)


vectors = {name: vectors_of(name, "test") for name in runs}

# %% [markdown]
# The ensemble itself is one line:


# %%
def mean_of(matrices):  # several (Ni, Nc) -> one
    return torch.stack(matrices).mean(0)  # (Ni, Nc)   section 4.3


S = {name: cosine(v, t) for name, (v, t) in vectors.items()}  # each (Ni, Nc)
together = mean_of([S[kind] for kind in kinds])
torch.testing.assert_close(together, ensemble(*(S[kind] for kind in kinds)))
print("vsecore.evaluation.ensemble agrees")

# %% [markdown]
# Let us look for a caption that each system alone gets wrong and that the three get right together: each of
# them puts a different picture first, and the caption is true of none of the three; but the mean puts the
# caption's own picture first.

# %%
owner = torch.as_tensor(np.array(datasets["G"].test.owner))  # (Nc,)
own = owner == torch.arange(len(together))[:, None]  # (Ni, Nc)
truth = lesson.relevance("test")  # (Nc, Ni), or None: of photographs nobody knows it
true = own if truth is None else torch.as_tensor(np.array(truth)).T  # (Ni, Nc)
firsts = torch.stack([S[kind].argmax(0) for kind in kinds])  # (systems, Nc)
lost = (~true.gather(0, firsts)).all(0) & (together.argmax(0) == owner)  # (Nc,)
different = torch.tensor([len(set(column.tolist())) for column in firsts.T])  # (Nc,)
lead = together.topk(2, dim=0).values.diff(dim=0)[0].neg()  # (Nc,)   of the first, in the mean
asked = int((lost * different + lead).argmax())

# %%
shown = [int(owner[asked]), *firsts[:, asked].tolist()]  # its own picture and the favourites
heights = {kind: S[kind][shown, asked].tolist() for kind in kinds}
heights["their mean"] = together[shown, asked].tolist()

# %% tags=["hide-input", "nbval-ignore-output"]
lesson.finding("such a caption exists", bool(lost[asked]) and len({*shown}) == 1 + len(kinds))
titles = ["own: first in the mean", *(f"{kind}'s favourite" for kind in kinds)]
pictures, heading = lesson.pictures("test", shown), datasets["G"].test.captions[asked]
right = [True] + [False] * len(kinds)
plots.show(
    plots.picture_row(pictures, titles, marked=right, heading=heading),
    alt="A caption of the test split with its own picture, framed, which the mean of the systems puts first, and the picture that each system alone puts first.",
)
plots.show(
    draw.votes(["own", *(f"{kind}'s" for kind in kinds)], heights),
    alt="Bars: the similarities of the same pictures with the caption, for each system and for their mean. The caption's own picture has a "
    "high bar everywhere, and each system has one higher bar, at another picture. In the mean, the own picture has the highest bar.",
)

# %% [markdown]
# All three put the caption's own picture high. Each also has a favourite among the wrong pictures, but not the same one, so the other two
# vote it down. Averaging works because the mistakes differ. Here is every combination, as rsum on the test split:


# %% tags=["nbval-ignore-output"]
def rsum(*names):
    return evaluate(ensemble(*(S[name] for name in names)), owner)["rsum"]


groups = [names for size in (1, 2, 3) for names in combinations(kinds, size)]
sums = {names: rsum(*names) for names in groups}
course.numbers({" and ".join(names): reached for names, reached in sums.items()})
for names in groups[len(kinds) :]:
    best = max(sums[(name,)] for name in names)
    lesson.finding(f"{names} is better than its best member", sums[names] > best + 6)

# %% [markdown]
# ## Different features, or only more models?
#
# Two things change at once in this table: the number of models and the kinds of features. Perhaps any three models would do as well. To
# find out, we need a *control* that changes only one of the two. That is what P2 and P3 are for: PPP, the ensemble of the three patch
# systems, has as many models as RGP, but one kind of features.
#
# The *gain* of an ensemble is its rsum minus the mean rsum of its members.
#
# ```{exercise} The larger gain
# :label: ex-12-gain
#
# Which ensemble has the larger gain? Answer `"RGP"`, `"PPP"` or `"the same"`.
# ```

# %%
your_prediction = "RGP"  # your part: "RGP", "PPP" or "the same"
check("12.gain", your_prediction)


# %% tags=["nbval-ignore-output"]
def gain(*names):
    return rsum(*names) - statistics.mean(rsum(name) for name in names)


three = {"".join(kinds): tuple(kinds), "PPP": ("P", "P2", "P3")}
gains = {label: gain(*names) for label, names in three.items()}
course.numbers({f"gain of {label}": value for label, value in gains.items()})
course.numbers({f"rsum of {label}": rsum(*names) for label, names in three.items()})
different, same = gains.values()
lesson.finding("both ensembles gain a lot", same > 15)
lesson.finding("different features gain more", different > same + 2)

# %% [markdown]
# ````{solution} ex-12-gain
# :class: dropdown
#
# RGP, but not by much. Runs that differ only in their seed already make different mistakes, and that is where most of the gain comes from.
# Different features make the mistakes a little more different still.
# ````
#
# So after one epoch, most of RGP's gain is what three models of a single kind, P, bring too. Without the control, we would have put all of it down to
# the features. The final scores also depend on how good the members are to begin with; we come back to that in the results.
#
# ## Shared mistakes stay
#
# How different are the mistakes of two systems? Take the scores that a system gives to the wrong pictures of a caption, and scale them to
# mean 0 and standard deviation 1. The *correlation* $\rho$ of two systems is the mean product of these numbers over the same wrong
# pictures. It is 1 if both score the wrong pictures alike, and 0 if these scores have nothing in common. (Not all of it is mistakes: a
# picture that fits the caption, although it is not its own, should score high in every system.)


# %%
def mistakes(scores):  # (Ni, Nc) -> (Nc, Ni − 1)
    wrong = scores.T[~own.T].view(len(owner), -1)  # of each caption, all pictures but its own
    return (wrong - wrong.mean(1, keepdim=True)) / wrong.std(1, keepdim=True)


noise = {name: mistakes(scores) for name, scores in S.items()}
rho = {(a, b): (noise[a] * noise[b]).mean().item() for a, b in combinations(S, 2)}

pairs = [
    (" and ".join(members[name][0] for name in pair), rho[pair], gain(*pair)) for pair in rho
]
_, across, up = zip(*pairs, strict=True)
falling = np.corrcoef(across, up)[0, 1]
lesson.finding("the less two systems agree, the more they gain", falling < -0.75)

# %% tags=["hide-input", "nbval-ignore-output"]
plots.show(
    draw.gains(pairs),
    alt="The gain of each pair of systems against the correlation of their mistakes. The points fall from the upper left to the lower right: "
    "the less two systems agree in their mistakes, the more their ensemble gains.",
)

# %% [markdown]
# The less two systems agree, the more they gain together. Look at R and G: as features they seem very different, yet their mistakes are
# at least as alike as those of two runs on P. Both are read from one convolutional network (in the paper, too, the grid cells come from
# the regions' detector, trained further: section 4.2), while the patches come from a vision transformer. So here, after one epoch,
# changing the backbone helps more than changing how the picture is cut up.
#
# How much does averaging bring? As in [The joint space](03_joint_space.ipynb), let the right picture lead the mean of the wrong ones by
# $\delta$. This time $\sigma$ is the standard deviation of the *wrong* pictures' scores. (There, the wrong pictures' scores had standard
# deviation one, and $\sigma$ was the right picture's.) Suppose that all $M$ systems have the same $\delta$ and $\sigma$, and that any two
# have the correlation $\rho$. Averaging them leaves the lead as it is. The variance of the averaged noise is the mean of $M \times M$
# products: $M$ of a system with itself, each $\sigma^2$, and $M(M-1)$ of two different systems, each $\rho\sigma^2$. So the standard deviation of the mean is
#
# $$\sigma \, \sqrt{\frac{1 + (M - 1)\,\rho}{M}} .$$
#
# Rankings depend on the lead measured in standard deviations. So averaging multiplies it by $\sqrt{M/(1+(M-1)\rho)}$.
#
# ```{exercise} The lead of three
# :label: ex-12-lead
#
# Three systems have the same lead and the same standard deviation, and any two of them have a correlation of 0.5. Measure the lead of one
# system in its own standard deviations, and the lead of their mean in those of the mean. How many times as large is the second?
# ```

# %%
your_factor = (3 / (1 + 2 * 0.5)) ** 0.5  # your part: one number
check("12.lead", your_factor)

# %% [markdown]
# ````{solution} ex-12-lead
# :class: dropdown
#
# The standard deviation of the mean is $\sqrt{(1 + 2 \cdot 0.5)/3} = 0.816$ times a member's, and the lead is divided by this: 1.22. With
# independent mistakes it would be $\sqrt 3 = 1.73$. A common mistake is to forget the root, which gives the factor of the variance.
# ````
#
# Does the formula hold for our systems? We compare it with the lead that we measure, averaged over all captions:


# %%
def lead_of(scores):  # (Ni, Nc) -> one number, in standard deviations
    wrong = scores.T[~own.T].view(len(owner), -1)  # (Nc, Ni − 1)
    return ((scores.T[own.T] - wrong.mean(1)) / wrong.std(1)).mean().item()


def correlation(names):  # the mean over all pairs
    return statistics.mean(rho[pair] for pair in combinations(names, 2))


# %% tags=["nbval-ignore-output"]
for label, names in three.items():
    r, M = correlation(names), len(names)
    members_lead = statistics.mean(lead_of(S[name]) for name in names)
    measured = 100 * (lead_of(ensemble(*(S[name] for name in names))) / members_lead - 1)
    predicted = 100 * ((M / (1 + (M - 1) * r)) ** 0.5 - 1)
    print(
        f"the lead of {label} grows by {predicted:.1f} % (predicted), {measured:.1f} % (measured)"
    )
    lesson.finding(
        "the formula predicts the growth", abs(predicted - measured) < 1.5 < predicted
    )
most = 100 * (correlation(three["PPP"]) ** -0.5 - 1)  # M goes to infinity
print(f"with any number of systems on P it would grow by {most:.1f} %")

# %% [markdown]
# A few correlations predict the growth closely. The last line shows the limit: with ever more systems, the standard deviation of the
# mean falls to $\sigma\sqrt{\rho}$ and no further, so the lead grows at most by the factor $1/\sqrt{\rho}$. Averaging cannot remove a mistake that all members share.
#
# ## An ensemble is one embedding
#
# An ensemble need not be $M$ systems that each search their own index. Put the unit vectors of a picture one after the other,
# $[v_1, \dots, v_M]$, do the same with those of a caption, and divide both by $\sqrt{M}$. They have length one, and
#
# $$\frac{[v_1, \dots, v_M]}{\sqrt{M}} \cdot \frac{[t_1, \dots, t_M]}{\sqrt{M}} = \frac{1}{M} \sum_{i=1}^{M} v_i \cdot t_i ,$$
#
# which is the mean of the similarities. So the ensemble is itself a cosine.
#
# ```{exercise} An ensemble as one embedding
# :label: ex-12-one
#
# Write this for one side, and let a good system count more. `several` holds a matrix (n, D) from each system, of any width D; its
# rows are *not* of length one. `weights` are positive, one for each system; `None` means that all count the same. Return one matrix
# with rows of length one. The cosine of a picture's row and a caption's row must be the weighted mean of the systems' cosines.
# ```
#
# ```{hint}
# :class: dropdown
#
# In the dot product, a weight that you put on both sides counts twice. Divide the weights by their sum first.
# ```


# %%
@exercise("12.one")
def as_one(several, weights=None):  # a list of (n, D) -> (n, all widths together)
    # your part
    weights = weights or [1] * len(several)
    shares = [(weight / sum(weights)) ** 0.5 for weight in weights]
    parts = [share * normalize(x, dim=1) for share, x in zip(shares, several, strict=True)]
    return torch.cat(parts, dim=1)
    # end of your part


# %% [markdown]
# ````{solution} ex-12-one
# :class: dropdown
#
# Each side takes the square root of the weight, so that the weight is in the product once. Dividing the weights by their sum makes the
# rows of length one. The rows must be normalised first: otherwise a system with longer vectors outvotes the others. If all weights are
# equal, the root is $1/\sqrt{M}$ as in the equation.
# ````

# %%
wide = [as_one([vectors[kind][side] for kind in kinds]) for side in (0, 1)]  # (·, M · D) each
torch.testing.assert_close(cosine(*wide), together)
print("the ensemble is the cosine of", tuple(wide[0].shape), "and", tuple(wide[1].shape))

# %% [markdown]
# So the ensemble needs only one index and one product, both $M$ times as wide. Do we need all that width? The members are highly
# correlated, so most of it should be redundant. A *singular value decomposition* finds the directions in which the vectors of the
# development split spread most, in order. We keep the first few of them and measure on the test split.

# %% tags=["nbval-ignore-output"]
developed = [vectors_of(kind, "dev") for kind in kinds]
rows = torch.cat([as_one([both[side] for both in developed]) for side in (0, 1)])  # (n, M · D)
directions = torch.linalg.svd(rows, full_matrices=False).Vh  # (M · D, M · D)   widest first
D = runs["G"].recipe.dim  # the width of one system
kept = {}
for width in (D // 12, D // 6, D // 4, D // 3, D // 2, D, 3 * D // 2, len(kinds) * D):
    few = directions[:width].T  # (M · D, width)
    kept[width] = evaluate(cosine(wide[0] @ few, wide[1] @ few), owner)["rsum"]
best = max(kinds, key=rsum)
lesson.finding("a narrow index costs little", kept[D] > kept[len(directions)] - 6)
lesson.finding("it is far above one system", kept[D] > rsum(best) + 10)

# %% tags=["nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(6, 3.4))
lines = {
    "ensemble, cut down": ([*kept], [*kept.values()]),
    f"{best} alone": ([D], [rsum(best)]),
}
plots.curves(axes, lines, x="numbers kept for each picture", y="rsum on the test split")
axes.set_xscale("log", base=2)
axes.xaxis.set_major_formatter("{x:.0f}")
plots.show(
    figure,
    alt="Rsum of the ensemble against how many directions of its vectors are kept: it "
    "rises steeply and then lies flat; at the width of one system it is far above the best "
    "single system, a point.",
)

# %% [markdown]
# An index of the ensemble can be as narrow as that of one system, at next to no loss. What remains is the cost of encoding: every new
# picture and every query goes through all encoders. (What a query costs otherwise is in [Full scale](18_full_scale.ipynb).)
#
# The pictures' vectors can be computed before anybody asks. For this reason the paper sets its ensemble, with BERT for the captions,
# beside large pre-trained systems (table 2, on all 5,000 test pictures of COCO). Its rsum is 475.9: above ViLBERT (406.9) and UNITER
# (454.4), a little below OSCAR (479.9), and below ALIGN, CLIP and MVP (500 to 503). The first three read a picture and a caption
# together, so they can compute nothing about a pair before the query comes.
#
# ## Break it: give everybody the same vote
#
# Suppose a member has collapsed: all its similarities are close to one, with a little noise. The ranking by the mean of the
# *cosines* hardly changes, since so little noise rarely changes an order. Now be "fair": scale the scores of each member to mean 0 and
# standard deviation 1 before averaging.
#
# ```{exercise} A vote for noise
# :label: ex-12-break
#
# After this scaling, the good member leads by 3 standard deviations. The collapsed one has no lead, and its noise is not correlated with
# the other's. By how many of its own standard deviations does their mean lead?
# ```

# %%
your_lead = 1.5 * 2**0.5  # your part: one number
check("12.break", your_lead)

# %% [markdown]
# ````{solution} ex-12-break
# :class: dropdown
#
# The mean leads by half of 3. Its standard deviation is $\sqrt{1/2}$, as for any mean of two systems without correlation. So the lead
# falls from 3 to $1.5 \cdot \sqrt 2 = 2.12$.
# ````

# %% tags=["nbval-ignore-output"]
generator = torch.Generator().manual_seed(seed)
collapsed = 1 + 1e-3 * torch.randn(S["P"].shape, generator=generator)  # (Ni, Nc)
pair = [S["P"], collapsed]
equal = [(scores - scores.mean()) / scores.std() for scores in pair]
broken = {"P alone": pair[:1], "with it, as cosines": pair, "with it, scaled": equal}
reached = {name: evaluate(mean_of(some), owner)["rsum"] for name, some in broken.items()}
course.numbers(reached)
alone, as_cosines, scaled = reached.values()
lesson.finding("as cosines, noise hardly counts", abs(as_cosines - alone) < 3)
lesson.finding("scaled, it costs much of the rsum", scaled < 0.65 * alone)

# %% [markdown]
# The standard deviation of a cosine works as a weight: a member whose scores hardly differ hardly counts. Scaling gives noise a full vote.
# The lead shrinks by 29 %, but rsum by far more: the right picture must beat the *highest* of 999 wrong ones, and that lies about three
# standard deviations above their mean.
#
# ## Your own experiment: who should count more?
#
# ```{exercise} A vote with weights
# :label: ex-12-explore
#
# Let one member count more or less than the others, which have the weight 1. Choose it in `your_member`. Before you run the cell, write
# where you expect the highest point of the curve: left of 1, at 1 or right of 1? Afterwards write where it is. We measure on the
# development split, since whoever chooses on the test split cannot trust it afterwards. Then try the weakest member.
# ```

# %% tags=["nbval-ignore-output"]
your_member = "P"  # change this
dev_owner, weights = np.array(datasets["G"].dev.owner), (0.01, 0.5, 1, 2, 4, 8)
tried = []
for weight in weights:
    counts = [weight if kind == your_member else 1 for kind in kinds]
    v, t = (as_one([both[side] for both in developed], counts) for side in (0, 1))
    tried.append(evaluate(cosine(v, t), torch.as_tensor(dev_owner))["rsum"])
figure, axes = plt.subplots(figsize=(5.6, 3))
plots.curves(axes, {your_member: (weights, tried)}, x=f"weight of {your_member}", y="rsum, dev")
plots.show(
    figure,
    alt="Rsum of the ensemble on the development split against the weight of one member.",
)

# %%
your_expectation = "P is good, so it should count more than 1."  # your part: before
your_finding = "The highest point is at 1; it falls on both sides."  # your part: after
check("12.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-12-explore
# :class: dropdown
#
# The highest point is near 1: with half or twice the vote the ensemble loses up to ten points, with none at all or eight times the vote
# about thirty. A member should count more if it is good, and less if its mistakes are like those of the others. By this rule P, the
# best of the three and the least like the others, would deserve more than 1; but the curve shows that twice the vote is already too much.
# ````
#
# ## Results: are three kinds of features better than one kind three times?
#
# In the long runs each system has a learning rate of its own and trains for 15 epochs from five seeds. Repeated letters are controls: two
# or three runs on the same features.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
found = experiments.studied("2ad_ensembles", "scenes")
dots.show(found)
said = {"RGP R": 11.5, "RRR R": 6.0, "RGP RRR": 5.4, "RGP PPP": 10.2, "RGP RG": 3.1}
for pair, said_mean in said.items():
    gaps = dots.gaps(*(found[name] for name in pair.split()))
    lesson.outcome(
        f"{pair}: {said_mean}", round(np.mean(gaps), 1) == said_mean and min(gaps) > 0
    )
lesson.outcome("G alone is no worse than PPP", found["G"].rsum > found["PPP"].rsum)
early = experiments.studied("2ad_ensembles", "scenes", scale="lesson")
members = np.mean([early[name].rsum for name in "RGP"])
early = [round(early[name].rsum) for name in ("GGG", "PPP", "RGP", "G")]
lesson.outcome("after 3 epochs", [*early, round(members)] == [485, 486, 494, 483, 472])

# %% [markdown]
# **What came out.** RGP beats R by 11.5 points of rsum (in the paper, on COCO, by 11.3: table 1). RRR, which has as many models but one
# kind of features, is already 6.0 above R, so about half of the gain comes with the number of models. The other half comes with the
# different features: RGP beats RRR by 5.4 and PPP by 10.2 (taken before
# rounding), in all seeds. Of three members, the third adds little: RGP is only 3.1 above
# RG (in the paper 4.7).
#
# **What it means.** It also matters how good the members are. P is the weakest kind after 15 epochs and G the strongest; G alone is about
# as good as PPP. So would one *good* kind of features, used three times, do as well as three kinds? In shorter runs of 3 epochs and three
# seeds it does not: GGG reaches 485, PPP 486 and RGP 494. There G alone reaches 483, and RGP's members only 472 on average, so RGP gains 22
# where GGG gains 2.
#
# **How sure we are.** Five seeds on one drawn world. The paper's table and all comparisons are on
# [the evidence page](../evidence/2ad.md).
#
# Here are the two ensembles on the course's scoreboard. They read more kinds of features than any
# other row and train two or three systems, so compare with care. Also, all systems of 2AD were trained with a fifth of the regions,
# cells and words left out, as in the released code, while the others saw the whole input. [All together](17_all_together.ipynb) shows what that costs here.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
course.scoreboard("12")

# %% [markdown]
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | average similarity, section 4.3 | `mean_of` | `vsecore.evaluation.ensemble` |
# | the same as one embedding | `as_one` | `vsecore.evaluation.ensemble`, given cosines |
#
# ## Summary
#
# - An ensemble averages similarities; it works because its members make different mistakes, and the correlation of these predicts the gain.
# - Averaging cannot remove a mistake that all members share; a fair control has as many models on one kind of features.
# - An ensemble of cosines is one embedding, so it is cached and searched like any system, and can be cut down to the width of one.
# - Three kinds of features beat one system by 11.5; three systems on regions alone already bring about half of that.
#
# ## Where to read on
#
# - The error of a mean is the mean error minus the members' disagreement: {cite}`krogh1994ensembles`. Why runs from other
#   seeds disagree as much as they do: {cite}`fort2019ensembles`.
# - Next: [Sets](13_sets.ipynb).
