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
# # Ensembles and speed
#
# **You will be able to** let several systems answer as one, predict the gain from how alike their mistakes are, test an ensemble
# against a fair control, store it as one index, and work out what a query costs.
#
# **You need** the notebooks [The joint space](03_joint_space.ipynb), [Learning to rank](04_learning_to_rank.ipynb) and
# [Pooling: sort, weigh, sum](10_pooling.ipynb), and an idea of variance and correlation.
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take an hour.
#
# The map: encode → pool → **compare** → learn. This notebook changes how a picture and a caption are compared.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import statistics
import time
from dataclasses import replace
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown
from torch.nn.functional import cosine_similarity, normalize

import course
from vsecore import experiments, records
from course import plots
from course import dots
from vsecore.evaluation import ensemble, evaluate
from vsecore.experiments.references import ORACLE
from vsecore.paths import results
from vsecore.recipes import get
from vsecore.similarity import cosine
from vsecore.training import encode

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## Three systems, one answer
#
# The authors of 2AD {cite}`zhang2022adpool` train their system three times: on regions (R), on grid cells (G) and on patches (P).
# Then all three answer together, as an *ensemble* that they call RGP. "We do so by simply taking the average similarity
# values", they write. We do the same, with one short epoch for each system. P is trained twice more, from other
# seeds; we need these two later.

# %%
kinds = {"R": "region", "G": "grid", "P": "patch"}
if data != "scenes":  # regions of photographs would need a detector
    del kinds["R"]
datasets = {kind: lesson.dataset(features) for kind, features in kinds.items()}
members = {kind: (kind, 0) for kind in kinds} | {"P2": ("P", 1), "P3": ("P", 2)}
print("systems:", *members)

# %% tags=["hide-input"]
small = {
    "dim": 96,
    "text.encoder.word_dim": 64,
    "training.batch_size": 64,
    "training.epochs": 1,
    "training.learning_rate": 3e-3,
    "training.schedule": "cosine",
}
changes = lesson.pick(smoke=small, lesson=small, full={})  # at full size as the paper has it

# %%
runs = {}
for name, (kind, turn) in members.items():
    recipe = get(f"2ad_{kinds[kind]}_gru").override(changes)
    again = replace(lesson, seed=seed + 1000 * turn)
    runs[name] = again.trained(recipe, datasets[kind])


def vectors_of(name, split):
    run = runs[name]
    both = encode(run.model, getattr(datasets[members[name][0]], split), run.tokenizer)
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
# Let us look for a caption that each system alone gets wrong, and that the three get right together.

# %% tags=["hide-input"]
owner = torch.as_tensor(np.array(datasets["G"].test.owner))  # (Nc,)
own = owner == torch.arange(len(together))[:, None]  # (Ni, Nc)
truth = lesson.relevance("test")  # (Nc, Ni), or None: of photographs nobody knows it
true = own if truth is None else torch.as_tensor(np.array(truth)).T  # (Ni, Nc)
firsts = torch.stack([S[kind].argmax(0) for kind in kinds])  # (systems, Nc)
lost = (~true.gather(0, firsts)).all(0) & (together.argmax(0) == owner)  # (Nc,)
favourites = torch.tensor([len(set(column.tolist())) for column in firsts.T])  # (Nc,)
ahead = (
    together.topk(2, dim=0).values.diff(dim=0)[0].neg()
)  # (Nc,)   in the mean, of the second
asked = int((lost * favourites + ahead).argmax())
shown = [int(owner[asked]), *firsts[:, asked].tolist()]
columns = list(dict.fromkeys(shown))
named = dict(zip(columns, ["own", *"ABC"], strict=False))
lesson.finding("such a caption exists", bool(lost[asked]) and len(columns) == 1 + len(kinds))
figure = plots.picture_row(
    lesson.pictures("test", shown),
    [
        "own: first in the mean",
        *(
            f"{named[one]}: first for {kind}"
            for one, kind in zip(shown[1:], kinds, strict=True)
        ),
    ],
    marked=[True] + [False] * len(kinds),
    heading=datasets["G"].test.captions[asked],
)
plots.show(
    figure,
    alt="A caption of the test split with its own picture, framed, which the mean of the systems puts first, beside the picture that each "
    "system alone puts first.",
)

# %% tags=["hide-input"]
votes = {kind: S[kind][columns, asked] for kind in kinds}
votes["their mean"] = together[columns, asked]
figure, panels = plt.subplots(1, len(votes), figsize=(9.2, 2.9), sharey=True)
for axes, (name, heights) in zip(panels, votes.items(), strict=True):
    bars = axes.bar(range(len(columns)), heights, color="0.75")
    bars[0].set(color=plots.COLOURS[0], hatch="//", edgecolor="white")
    winner = int(heights.argmax())
    axes.annotate("first", (winner, float(heights[winner]) + 0.02), ha="center", fontsize=9)
    axes.set(title=name, ylim=(0, float(torch.stack(list(votes.values())).max()) + 0.15))
    axes.set_xticks(range(len(columns)), [named[column] for column in columns])
    axes.grid(axis="x", visible=False)
panels[0].set_ylabel("similarity")
plots.show(
    figure,
    alt="Bars: the similarities of the same pictures with the caption, for each system and for their mean. The caption's own picture has a "
    "high bar everywhere, and each system has one higher bar, at another picture. In the mean, the caption's own picture has the highest bar.",
)

# %% [markdown]
# All three put the caption's own picture high. Each also has a favourite among the wrong pictures, but not the same one, so
# the other two vote it down. Averaging works because the mistakes differ.


# %% tags=["nbval-ignore-output"]
def rsum(*names):
    return evaluate(ensemble(*(S[name] for name in names)), owner)["rsum"]


groups = [names for size in (1, 2, 3) for names in combinations(kinds, size)]
sums = {names: rsum(*names) for names in groups}
course.numbers({" and ".join(names): reached for names, reached in sums.items()})
for names in groups[len(kinds) :]:
    best = max(sums[(name,)] for name in names)
    lesson.finding(f"{names} is better than its best member", sums[names] > best + 10)

# %% [markdown]
# ## Different features, or only more models?
#
# In this table two things grow at once: the kinds of features, and the number of models. Perhaps any three models
# would do as well. To find out, we need a *control* that changes only one of the two. That is what P2 and P3 are for. PPP, the
# ensemble of the three patch systems, has as many models as RGP, but one kind of features.
#
# The *gain* of an ensemble is its rsum minus the mean rsum of its members.
#
# ```{exercise} The larger gain
# :label: ex-12-gain
#
# Which ensemble has the larger gain? Answer `"RGP"`, `"PPP"` or `"the same"`.
# ```

# %%
from course.checks import check

your_prediction = "RGP"  # your part: "RGP", "PPP" or "the same"
check("12.gain", your_prediction)

# %% [markdown]
# ````{solution} ex-12-gain
# :class: dropdown
#
# Different features should make more different mistakes. But runs with different seeds make different mistakes too. Only a measurement can
# say how much each is worth.
# ````


# %% tags=["nbval-ignore-output"]
def gain(*names):
    return rsum(*names) - statistics.mean(rsum(name) for name in names)


three = {"".join(kinds): tuple(kinds), "PPP": ("P", "P2", "P3")}
gains = {label: gain(*names) for label, names in three.items()}
reached = {label: rsum(*names) for label, names in three.items()}
course.numbers(
    {f"gain of {label}": one for label, one in gains.items()}
    | {f"rsum of {label}": one for label, one in reached.items()}
)

# %% tags=["remove-cell"]
different, same = gains.values()
lesson.finding("both ensembles gain a lot", same > 20)
lesson.finding("different features gain more", different > same + 3)
lesson.finding("P is the best kind", rsum("P") > max(rsum("R"), rsum("G")) + 5)
lesson.finding("both end close together", abs(reached["PPP"] - reached["RGP"]) < 10)

# %% [markdown]
# The gains show what averaging brings. Both ensembles gain a lot, and the one with different features gains more. The sums below them also
# depend on how good the members are. In these short trainings P is the best of the three kinds, so PPP starts from better members and ends about
# as high. Without the control, we would have put all of RGP's success down to its features.
#
# ## Shared mistakes stay
#
# How different are the mistakes of two systems? Take the scores that a system gives to the wrong pictures of a caption, and
# scale them to mean 0 and spread 1. The *correlation* $\rho$ of two systems is the mean product of these numbers over the same
# wrong pictures: it is 1 if both make the same mistakes, and 0 if their mistakes have nothing in common.


# %%
def mistakes(scores):  # (Ni, Nc) -> (Nc, Ni − 1)
    wrong = scores.T[~own.T].view(len(owner), -1)  # of each caption, all pictures but its own
    return (wrong - wrong.mean(1, keepdim=True)) / wrong.std(1, keepdim=True)


noise = {name: mistakes(scores) for name, scores in S.items()}
rho = {(a, b): (noise[a] * noise[b]).mean().item() for a, b in combinations(S, 2)}
of_pairs = np.corrcoef(list(rho.values()), [gain(*pair) for pair in rho])[0, 1]
lesson.finding("the less two systems agree, the more they gain", of_pairs < -0.8)
if "R" in kinds:
    patches = statistics.mean(rho[pair] for pair in combinations(("P", "P2", "P3"), 2))
    lesson.finding("R and G agree like two trainings on P", abs(rho["R", "G"] - patches) < 0.06)
    lesson.finding("R and P agree less", rho["R", "P"] < patches - 0.05)

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6.4, 3.6))
alike = {}
for pair in rho:
    alike.setdefault(" and ".join(members[name][0] for name in pair), []).append(pair)
for (label, pairs), colour, marker in zip(
    alike.items(), plots.COLOURS, plots.MARKERS, strict=False
):
    across, up = [rho[pair] for pair in pairs], [gain(*pair) for pair in pairs]
    axes.plot(across, up, marker, color=colour, label=label, markersize=8)
axes.set(xlabel="correlation of the two systems' mistakes, ρ", ylabel="gain in rsum")
axes.legend(loc="lower left")
plots.show(
    figure,
    alt="The gain of each pair of systems against the correlation of their mistakes. The points fall from the upper left to the lower right: "
    "the less two systems agree in their mistakes, the more their ensemble gains.",
)

# %% [markdown]
# The less two systems agree, the more they gain together. Look at R and G. As features they seem very different, yet
# they agree about as much as two trainings on P do. In our world both are read from one convolutional network, while the
# patches come from a vision transformer. Here a different network brings more than a different way to cut up a picture.
#
# How much does averaging bring? In [The joint space](03_joint_space.ipynb), the scores of wrong pictures were noise of spread $\sigma$,
# and the right picture had a lead of $\delta$ over their mean. Averaging $M$ systems leaves the lead as it is. The variance of the noise
# becomes the mean of $M \times M$ products: $M$ of a system with itself, each $\sigma^2$, and $M(M-1)$ of two different systems, each
# $\rho\sigma^2$. So the spread of the mean is
#
# $$\sigma \, \sqrt{\frac{1 + (M - 1)\,\rho}{M}} .$$
#
# Rankings depend on the lead measured in spreads. Averaging multiplies this lead by one over the root above.
#
# ```{exercise} The lead of three
# :label: ex-12-lead
#
# Three systems have the same lead and the same spread, and any two of them have a correlation of 0.5. Measure the lead of one system
# in its own spreads, and the lead of their mean in the spreads of the mean. How many times as large is the second?
# ```

# %%
from course.checks import check

your_factor = (3 / (1 + 2 * 0.5)) ** 0.5  # your part: one number
check("12.lead", your_factor)

# %% [markdown]
# ````{solution} ex-12-lead
# :class: dropdown
#
# The spread of the mean is $\sqrt{(1 + 2 \cdot 0.5)/3}$ times a member's. The lead in spreads is divided by this factor.
# ````
#
# Does the formula hold for our systems? We compare it with the lead that we measure, averaged over all captions:


# %%
def lead(scores):  # (Ni, Nc) -> one number, in spreads
    wrong = scores.T[~own.T].view(len(owner), -1)  # (Nc, Ni − 1)
    return ((scores.T[own.T] - wrong.mean(1)) / wrong.std(1)).mean().item()


def correlation(names):  # the mean over all pairs
    return statistics.mean(rho[pair] for pair in combinations(names, 2))


# %% tags=["nbval-ignore-output"]
growth = {}
for label, names in three.items():
    r, M = correlation(names), len(names)
    grown = lead(ensemble(*(S[n] for n in names))) / statistics.mean(lead(S[n]) for n in names)
    predicted, measured = 100 * ((M / (1 + (M - 1) * r)) ** 0.5 - 1), 100 * (grown - 1)
    growth[f"lead of {label} grows by (%), predicted"] = predicted
    growth[f"lead of {label} grows by (%), measured"] = measured
    lesson.finding("the formula predicts the growth", abs(predicted - measured) < 1 < predicted)
limit = 1 / correlation(three["PPP"]) ** 0.5  # M goes to infinity
growth["any number of systems on P, predicted"] = 100 * (limit - 1)
course.numbers(growth)

# %% [markdown]
# A few correlations predict the growth closely. The last row shows the limit: with ever more systems, the root falls to
# $\sqrt{\rho}$ and no further. Averaging cannot remove a mistake that all members share.
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
from course.checks import exercise


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
# Each side takes the square root of the weight, so that the weight is in the product once. With weights that add up to one, the rows
# have length one. If all are equal, the root is $1/\sqrt{M}$ as in the equation.
# ````

# %%
pictures = as_one([vectors[kind][0] for kind in kinds])  # (Ni, M · D)
captions = as_one([vectors[kind][1] for kind in kinds])  # (Nc, M · D)
torch.testing.assert_close(cosine(pictures, captions), together)
print("the ensemble is the cosine of", tuple(pictures.shape), "and", tuple(captions.shape))

# %% [markdown]
# So the ensemble needs only one index and one product, both $M$ times as wide. Do we need all that width? The members say much the same,
# so most of it should be unnecessary. A *singular value decomposition* finds the directions in which the vectors of the development split
# spread most, in order. We keep the first few of them and measure on the test split.

# %%
developed = [vectors_of(kind, "dev") for kind in kinds]
wide = torch.cat([as_one([both[side] for both in developed]) for side in (0, 1)])  # (n, M · D)
directions = torch.linalg.svd(wide, full_matrices=False).Vh  # (M · D, M · D)   widest first
D = runs["G"].recipe.dim  # the width of one system
kept = {}
for width in (D // 12, D // 6, D // 4, D // 3, D // 2, D, 3 * D // 2, len(kinds) * D):
    few = directions[:width].T  # (M · D, width)
    kept[width] = evaluate(cosine(pictures @ few, captions @ few), owner)["rsum"]

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6, 3.4))
lines = {f"{''.join(kinds)}, cut down": (list(kept), list(kept.values()))}
plots.curves(axes, lines, x="numbers kept for each picture", y="rsum on the test split")
best = max(kinds, key=rsum)
axes.plot(
    D, rsum(best), plots.MARKERS[1], color=plots.COLOURS[1], label=f"{best} alone, the best"
)
axes.set_xscale("log", base=2)
axes.xaxis.set_major_formatter("{x:.0f}")
axes.legend()
plots.show(
    figure,
    alt="Rsum of the ensemble against how many directions of its vectors are kept, and the best single system as a point. The curve rises "
    "steeply and then lies flat; at the width of the single system it is far above it.",
)

# %% tags=["nbval-ignore-output"]
course.numbers(
    {
        "the best system alone": rsum(best),
        "the ensemble at full width": kept[len(directions)],
        "the ensemble as narrow as one system": kept[D],
    }
)
lesson.finding("a narrow index costs little", kept[D] > kept[len(directions)] - 5)
lesson.finding("it is far above one system", kept[D] > rsum(best) + 15)

# %% [markdown]
# An index of the ensemble can be as narrow as that of one system. What remains is the cost of encoding: every new picture and every
# query goes through all towers.
#
# ## Break it: give everybody the same vote
#
# Suppose a member has collapsed: all its similarities are close to one, with a little noise. The ranking by the mean of the
# *cosines* hardly changes, since so little noise rarely changes an order. Now be "fair": scale the scores of each member to mean 0 and spread 1
# before averaging.
#
# ```{exercise} A vote for noise
# :label: ex-12-break
#
# After this scaling, the good member leads by 3 spreads. The collapsed one has no lead, and its noise is not correlated with the
# other's. By how many of its own spreads does their mean lead?
# ```

# %%
from course.checks import check

your_lead = 1.5 * 2**0.5  # your part: one number
check("12.break", your_lead)

# %% [markdown]
# ````{solution} ex-12-break
# :class: dropdown
#
# The mean leads by half of 3. Its spread is $\sqrt{1/2}$, as for any mean of two systems without correlation.
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
lesson.finding("as cosines, noise hardly counts", abs(as_cosines - alone) < 2)
lesson.finding("scaled, it costs most of the rsum", scaled < 0.6 * alone)

# %% [markdown]
# The spread of a cosine works as a weight: a member whose scores hardly differ hardly counts. Scaling gives noise a full vote.
#
# ## What a query costs
#
# With one vector for each picture, all pictures are encoded before anybody asks. A query then costs one product of width $D$ for
# each picture. A system with *cross-attention* cannot prepare so much, because what it reads from a picture depends on the
# sentence. Here is a simple one, SCAN {cite}`lee2018scan` from text to image, as in
# [Cross-attention](07_cross_attention.ipynb). Each of the $L$ words attends to the picture's $N$
# elements, by its cosine with each: the *affinity*. The score is the mean cosine of the words with what they have read. (How the
# affinities are scaled does not matter here.)


# %%
def cross_attention(elements, words, smooth=9.0):  # (n, N, D), (L, D) -> (n,)
    v, t = normalize(elements, dim=-1), normalize(words, dim=-1)
    affinity = torch.einsum("nrd,wd->nwr", v, t).clamp(min=0)  # (n, L, N)
    share = (smooth * normalize(affinity, dim=1)).softmax(-1)  # (n, L, N)   over the elements
    read = share @ v  # (n, L, D)   what each word reads from each picture
    return cosine_similarity(read, t, dim=-1).mean(-1)  # (n,)


# %% [markdown]
# It takes about $2 \cdot L \cdot N \cdot D$ multiply-adds for each picture: half for the affinities, half for what is read. Most of the
# pretrained models in the paper's table 2 cost more: one Transformer reads sentence and picture together, for every pair. In
# sizes like the paper's:

# %%
D, N, L = 1024, 36, 12
layers, H = 12, 768  # of a Transformer like BERT
costs = {
    "cached vectors": D,
    "cached vectors of three systems": 3 * D,
    "cross-attention": 2 * L * N * D,
    "one Transformer for both": layers * (12 * H**2 * (L + N) + 2 * H * (L + N) ** 2),
}
print(f"{'multiply-adds':34}{'a pair':>14}{'times':>10}")
for name, cost in costs.items():
    print(f"{name:34}{cost:14,}{cost / D:10,.0f}")

# %% tags=["hide-input", "results", "nbval-ignore-output"]
table_2 = {row.system: row.speed for row in records.published() if row.speed}
Markdown(
    f"The paper's table 2 has a smaller ratio: {table_2['VSE+2AD (RGP, BERT)']} for its ensemble against {table_2['UNITER']} for UNITER, in "
    "items per second. It does not say what an item is; the column seems to time more than the search of cached vectors."
)

# %% [markdown]
# There is a way to have both. *Re-ranking* {cite}`geigle2022retrieve` lets the cached vectors find a few candidates, and spends
# cross-attention only on these.
#
# ```{exercise} Find fast, then look closely
# :label: ex-12-rerank
#
# `quick` holds a query's cached similarities with n pictures, `elements` the pictures' elements and `words` the query's words.
# Return the row numbers of the `k` pictures with the highest `quick`, ordered by `cross_attention`, the best first. Call
# `cross_attention` on these `k` pictures only.
# ```
#
# ```{hint}
# :class: dropdown
#
# `topk` gives the candidates' row numbers. `argsort` of the new scores gives places among the candidates, not among all pictures.
# ```

# %%
from course.checks import exercise


@exercise("12.rerank")
def rerank(quick, elements, words, k):  # (n,), (n, N, D), (L, D), a number -> (k,)
    # your part
    candidates = quick.topk(k).indices  # (k,)   rows of all pictures
    closely = cross_attention(elements[candidates], words)  # (k,)
    return candidates[closely.argsort(descending=True)]
    # end of your part


# %% [markdown]
# ````{solution} ex-12-rerank
# :class: dropdown
#
# The candidates are looked up twice: their elements before cross-attention, their row numbers after it. All in all it costs $n \cdot D$
# for the cached vectors, and cross-attention for `k` pictures.
# ````
#
# A clock measures more than arithmetic: memory takes time, and small products run less well than large ones. What it shows depends
# on the machine, and on whatever else is running there. So we never compare single times. We take the processor's time, which leaves out other programs. In each round
# we time two ways right after each other, the quick one repeated many times, and take their *ratio*. Then we take
# the median over many rounds. (The cells and words of G were not trained for cross-attention, so only the cost counts here.)


# %%
def times_as_long(slow, quick, rounds=25, repeats=500):  # the ratio of each round
    def seconds(task, repeats):
        start = time.process_time()  # only what this program computes
        for _ in range(repeats):
            task()
        return (time.process_time() - start) / repeats

    return [seconds(slow, 1) / seconds(quick, repeats) for _ in range(rounds)]


# %% tags=["hide-input"]
model, split = runs["G"].model, datasets["G"].test
tokens, mask = runs["G"].tokenizer.encode(split.captions[:1])
with torch.inference_mode():
    features = torch.from_numpy(np.array(split.pictures[:1000], dtype=np.float32))  # (n, N, F)
    elements, _ = model.image_encoder(features, None)  # (n, N, D)
    words = model.text_encoder(tokens, mask)[0][0][mask[0]]  # (L, D)
stored, query = vectors["G"][0][: len(elements)], vectors["G"][1][0]  # (n, D), (D,)
ratios = {"cross-attention": {}, "cached vectors, then 20 re-ranked": {}}
with torch.inference_mode():
    for n in sorted({min(n, len(elements)) for n in (100, 300, 1000)}):
        cells, rows = elements[:n], stored[:n]
        ways = (
            lambda cells=cells: cross_attention(cells, words),
            lambda cells=cells, rows=rows: rerank(rows @ query, cells, words, 20),
        )
        for way, task in zip(ratios.values(), ways, strict=True):
            way[n] = times_as_long(task, lambda rows=rows: rows @ query)
arithmetic = 2 * len(words) * elements.shape[1]  # cross-attention over cached vectors

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6.8, 3.6))
for place, (way, by_size) in enumerate(ratios.items()):
    low, middle, high = (
        np.quantile(list(by_size.values()), part, 1) for part in (0.25, 0.5, 0.75)
    )
    axes.errorbar(
        list(by_size),
        middle,
        (middle - low, high - middle),
        fmt=plots.MARKERS[place] + plots.DASHES[place],
        color=plots.COLOURS[place],
        capsize=3,
        label=way,
    )
axes.axhline(arithmetic, color="0.4", linestyle=":", label="cross-attention, by arithmetic")
axes.set(
    xscale="log",
    yscale="log",
    xlabel="pictures that are searched, n",
    ylabel="times as long as cached",
)
axes.set_xticks(list(by_size), list(by_size))
ticks = [10, 20, 50, 100, 200, 500, 1000, 2000]
axes.set_yticks(ticks, ticks)
axes.minorticks_off()
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plots.show(
    figure,
    alt="How many times as long as a search of cached vectors two other ways take, against the number of pictures, both axes logarithmic, with "
    "the quartiles of many rounds. Cross-attention is near the line that arithmetic gives. Re-ranking is below it, and lowest where there are most pictures.",
)

# %%
n = len(elements)
clock, reranked = (statistics.median(way[n]) for way in ratios.values())
lesson.finding("clock and arithmetic agree", arithmetic / 10 < clock < 10 * arithmetic)
lesson.finding("re-ranking is far quicker", reranked < clock / 4)
print("Cross-attention over cached vectors, by arithmetic:", arithmetic)

# %% [markdown]
# The clock and arithmetic agree on the order of magnitude and no better: small products run inefficiently, and large ones leave the
# processor's cache. Re-ranking adds a cost that does not depend on $n$, so it matters less as the index grows.
#
# ## What a pooler costs
#
# **Question.** Table 4 of the paper prints a speed for each pooler, as a multiple of the slowest. Is AdPool quick?
#
# **What we did.** We timed each pool alone, forwards, at the paper's width. The figure sets our recorded ratios beside the paper's.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
poolers = {
    "SoftPool": "soft",
    "GPO": "gpo",
    "AdPool": "adpool",
    "AdaPool": "ada",
    "LIP": "lip",
    "SelfAttn": "self_attention",
    "GCN": "gcn",
    "Seq2Seq": "seq2seq",
}
printed = {
    row.system.removeprefix("VSE+2AD with "): row.speed
    for row in records.published()
    if row.data.startswith("coco, 5,000") and row.speed and "BERT" not in row.system
}
printed["AdPool"] = printed.pop("VSE+2AD (R, BiGRU)")
record = records.find(results(), name="benchmark_pooling")[0]
alone = {name: record.metrics[f"cpu_36_{key}_forward"] for name, key in poolers.items()}
names = sorted(poolers, key=alone.get, reverse=True)
for column in (printed, {name: 1 / seconds for name, seconds in alone.items()}):
    quicker = sum(column[name] > column["AdPool"] for name in names)
    lesson.finding("AdPool is in the quicker half", quicker < len(names) / 2)
apart = [
    max(column[name] for name in names) / min(column[name] for name in names)
    for column in (alone, printed)
]
lesson.finding("our span is wider than the paper's", apart[0] > 100 > 10 > apart[1])
figure, axes = plt.subplots(figsize=(6.4, 3.4))
for style, (label, values) in enumerate(
    {
        "the paper": [printed[name] for name in names],
        "here, the pool alone": [max(alone.values()) / alone[name] for name in names],
    }.items()
):
    marker, colour = plots.MARKERS[style], plots.COLOURS[style]
    axes.plot(values, range(len(names)), marker, color=colour, label=label)
axes.set(xscale="log", xlabel="speed, as a multiple of GCN's")
axes.set_yticks(range(len(names)), names)
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plots.show(
    figure,
    alt="The speed of eight poolers as multiples of the slowest, on a logarithmic axis: as the paper prints it, and the pool alone as measured "
    "here. The pool alone spans orders of magnitude, the paper's column less than one. The graph convolution and the recurrent network are among the slowest in both.",
)

# %% [markdown]
# **What came out.** AdPool is among the quicker half in both columns. Our ratios span two orders of magnitude, the paper's less than one.
#
# **What it means.** Poolers that multiply every element by a learned matrix cost more than those that sort or weigh. The paper's
# smaller span fits a clock that times whole models. There the pooler is a small part, so choose it by its quality.
#
# **How sure we are.** The paper does not say what one item is, and we measured on one machine. On another machine, neighbours may
# change places.
#
# ## Results: are three kinds of features better than one kind three times?
#
# One epoch and one seed are not enough to judge. Our recorded runs ask the same question at greater length.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
found = experiments.studied("2ad_ensembles", "scenes")
oracles = records.find(experiments.RESULTS, name=ORACLE, data="scenes")
oracle = next(one.metrics["rsum"] for one in oracles if one.data["feature_kind"] == "grid")
plots.show(
    dots.compared(found, "scenes", oracle), alt=dots.words_for(found, "the scenes", oracle)
)

# %% tags=["hide-input", "results", "nbval-ignore-output"]
judged = {
    (one.claim.system, one.claim.against): one
    for one in experiments.outcomes("2ad", "scenes", "2ad_ensembles")
    if one.by_measure
}
lines = ["| compared | rsum | higher from | verdict |", "| --- | ---: | --- | --- |"]
for (ours, theirs), one in judged.items():
    apart = one.differences["rsum"]
    higher = sum(gain > 0 for gain in apart)
    lines.append(
        f"| {ours} against {theirs} | {statistics.mean(apart):+.1f} | {higher} of {len(apart)} seeds | {one.in_words} |"
    )
sums = {arm: one.rsum for arm, one in found.items()}
lesson.finding(
    "three kinds are better than regions three times, and than patches three times",
    judged["RGP", "RRR"].judgement == judged["RGP", "PPP"].judgement == "reproduced",
)
lesson.finding(
    "of the gain over regions alone, half or so comes with the number of models",
    0.3 < (sums["RRR"] - sums["R"]) / (sums["RGP"] - sums["R"]) < 0.7,
)
lesson.finding(
    "P is the weakest kind alone, and G alone is above PPP",
    sums["P"] < sums["R"] < sums["G"] and sums["G"] > sums["PPP"],
)
lesson.finding(
    "patches add little to regions and grid by rsum",
    judged["RGP", "RG"].judgement == "mixed" and 0 < sums["RGP"] - sums["RG"] < 5,
)
lesson.finding(
    "the long trainings have 15 epochs",
    experiments.FAIR_SCALE["scenes"]["training.epochs"] == 15,
)
Markdown("\n".join(lines))

# %% [markdown]
# **What we did.** Each system has a learning rate of its own and trains for 15 epochs from five seeds. An ensemble averages the
# similarities of its members. Repeated letters are controls: two or three trainings on one kind of features. The broken line is a linear
# baseline, ridge regression, on the features of each row; an ensemble has that of its best member.
#
# **What came out.** RGP is better than R, but a comparison of the two mixes three things: more models, better features and different
# features. RRR has as many models as RGP, and it already has about half of the gain. RGP is better than RRR and PPP. So different features help
# beyond the number of models.
#
# **What it means.** After one epoch P was the best kind; after 15 it is the weakest, and G is the best. PPP is therefore a weak control here:
# G alone is already above it. Whether one *good* kind of features, used three times, would do as well as three kinds is a question for GGG. And
# of three members, the third adds little: by rsum, RGP is hardly above RG.
#
# The dotted line is an oracle: it knows which captions are true of which scenes, and breaks ties at random. A system gets above it only by
# guessing which of several true captions was written for a picture. The paper's table and its claims are on
# [the evidence page](../evidence/2ad.md).
#
# ## Change one thing
#
# ```{exercise} Your own ensemble
# :label: ex-12-explore
#
# Change one thing about the ensemble in `your_weights` below: leave a member out, take one in, or let one count more. Before
# you run the cell, write down what you expect and why. After it has run, write what you found. We measure on the development
# split: whoever chooses on the test split cannot trust it afterwards.
# ```

# %% tags=["nbval-ignore-output"]
your_weights = dict.fromkeys(kinds, 1) | {"P": 2}  # change this: how much each system counts
sides = zip(*(vectors_of(name, "dev") for name in your_weights), strict=True)
v, t = (as_one(list(side), list(your_weights.values())) for side in sides)
even_v, even_t = (as_one([both[side] for both in developed]) for side in (0, 1))
dev_owner = torch.as_tensor(np.array(datasets["G"].dev.owner))
yours, even = (evaluate(cosine(*one), dev_owner)["rsum"] for one in ((v, t), (even_v, even_t)))
course.numbers({"your ensemble": yours, f"{''.join(kinds)}, all equal": even})

# %%
from course.checks import check

your_expectation = "P is the best of the three, so it should count more"  # your part: before
your_finding = f"an rsum of {yours:.0f} against {even:.0f}"  # your part: after
check("12.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-12-explore
# :class: dropdown
#
# There is no right answer here; this is one example. A system should count more if it is good, and less if its
# mistakes are like those of the others. Try it with another `seed` in the first cell before you believe a small difference.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | average similarity, section 4.3 | `mean_of` | `vsecore.evaluation.ensemble` |
# | the same as one embedding | `as_one` | `vsecore.evaluation.ensemble`, of cosines |
#
# ## Summary
#
# - An ensemble averages similarities; it works because its members make different mistakes.
# - The correlation of these mistakes predicts the gain, and averaging cannot remove a mistake that all members share.
# - Compare an ensemble of different features with one that has as many models on one kind of features.
# - An ensemble of cosines is one embedding, so it is cached and searched like any system; cross-attention is for a few candidates.
#
# ## Where to read on
#
# - The error of a mean is the mean error minus the members' disagreement: {cite}`krogh1994ensembles`. Why trainings from other
#   seeds disagree as much as they do: {cite}`fort2019ensembles`.
# - Fast search first and a close look after, with one network for both: {cite}`geigle2022retrieve`.
