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
# # All together
#
# **You will be able to** read every system of the course as one row of choices, say when one system may be called better than another,
# combine ideas of several papers in a recipe, and look up what became of each claim.
#
# **You need** the notebooks [Learning to rank](04_learning_to_rank.ipynb), [Pooling: sort, weigh, sum](10_pooling.ipynb),
# [How many negatives?](11_how_many_negatives.ipynb) and [Latent targets](16_latent_targets.ipynb), and an idea of mean and standard deviation.
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take half an hour.
#
# The map, all of it: **encode → pool → compare → learn**.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import dataclasses
import statistics
import textwrap

import matplotlib.pyplot as plt
from IPython.display import Markdown

import course
from vsecore import experiments, records
from course import plots, systems
from course import dots
from course.wording import mean, table
from vsecore.experiments.gates import MARGIN
from vsecore.experiments.references import ORACLE
from vsecore.experiments.statistics import interval
from vsecore.recipes import get

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## Thirteen systems, one shape
#
# Every system of the course encodes, pools, compares and learns. They differ in the part that they take at each stage. Here they
# are, in the order of their years. A coloured box differs from VSE++.

# %% tags=["hide-input"]
recipes = {name: systems.recipe_of(name) for name in systems.SYSTEMS}
plots.show(systems.picture(recipes), alt=systems.words_for(recipes))

# %% [markdown]
# Nobody typed this table: it is read from the recipes, and the names are those that `vse train --set` takes. The first line of a box is the picture's
# side and the second the caption's; a single line is both. (*none* keeps all elements, *first* and *last* take one of them, *gru last* reads them one
# after the other and takes its last state, *projected* is a mean with a small network behind it. In a "0-layer transformer", the words of a caption
# do not read each other.) Most systems leave VSE++ at one stage or two, and AOQ is VSRN in all but what it learns from. A recipe is plain data, so a
# system *is* its row. Three changes turn VSE++ into SCAN:

# %%
vsepp = get("vsepp_region_gru")
changed = vsepp.override(
    {"image.pool": "none", "text.pool": "none", "similarity": "cross_attention"}
)
print("the same system:", changed.hash() == get("scan_region_gru").hash())

# %% [markdown]
# The hash covers every setting except the name, so nothing else sets SCAN apart.
#
# ## All of them on the same pictures
#
# **Question.** How do they compare, if all see the same regions and captions?

# %% tags=["hide-input", "results", "nbval-ignore-output"]
found = experiments.side_by_side(systems.SYSTEMS, "scenes", "region")
oracle = next(
    one.metrics["rsum"]
    for one in records.find(experiments.RESULTS, name=ORACLE, data="scenes")
    if one.data["feature_kind"] == "region"
)
plots.show(
    dots.compared(found, "scenes", oracle), alt=dots.words_for(found, "the scenes", oracle)
)

# %% tags=["hide-input", "results", "nbval-ignore-output"]
ways = ("rsum", "i2t_map_at_r", "t2i_map_at_r")
heads = ["system", "rsum", "mAP@R to text, %", "mAP@R to picture, %", "seeds"]
rows = [
    [
        name,
        *(mean(found[name].results.get(way, {}).values()) for way in ways),
        str(len(found[name].seeds)),
    ]
    for name in dots.by_rsum(found)
]
orders = [
    sorted(found, key=lambda name: -statistics.mean(found[name].results[way].values()))
    for way in ways
]
lesson.finding("mAP@R orders systems otherwise than rsum", orders[0] not in orders[1:])
absent = [name for name in systems.SYSTEMS if name not in found]
Markdown(
    f"{table(heads, rows)}\n\n**What we did.** Each system has a learning rate of its own, chosen on the development split, and "
    f"trains for {experiments.FAIR_SCALE['scenes']['training.epochs']} epochs. In brackets is the 95 % interval of the mean over seeds."
    + (
        f"\n\n**What is not here.** {', '.join(absent)}: these have no such training on the same features and captions. Some were trained in "
        "a world of their own, where hard negatives abound or captions say less, and sums of different data never stand side by side."
        if absent
        else ""
    )
)

# %% [markdown]
# **How to read it.** The dashed line is a ridge regression to a bag of words. The dotted line is the oracle: it knows which captions are true of
# which picture, and breaks ties at random. A system gets above it only by guessing which caption was *written* for a picture. So look at mAP@R too,
# which counts every true caption; it orders the systems otherwise.
#
# **How sure we are.** This is one small drawn world, and some rows have fewer dots than others. Which rows really differ? For that we need a rule.
#
# ## When may we say "better"?
#
# Two systems that are trained from the same seed see the same batches. So we subtract seed by seed, and look at these *paired differences*. Here are
# the differences in rsum behind some claims of 2AD: the mean, its 95 % interval, and the verdict. The grey band is the margin of equivalence, a
# hundredth of the rsum.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
pooling = experiments.studied("2ad_pooling", "scenes")
shown = [
    one
    for one in experiments.outcomes("2ad", "scenes")
    if one.claim.experiment in ("2ad_pooling", "2ad_ensembles")
    and len(one.differences.get("rsum", ())) > 1
    and one.by_measure
]
shown.sort(key=lambda one: -statistics.mean(one.differences["rsum"]))
figure, axes = plt.subplots(figsize=(8.4, 1 + 0.42 * len(shown)))
said = {one.claim.statement: one.by_measure["rsum"] for one in shown}
by_hand, gpo = (
    "AdPool is better than 5-max for pictures and the mean for captions",
    "AdPool is better than GPO",
)
lesson.finding(
    "sure against pools tuned by hand, open against GPO",
    (said[by_hand], said[gpo]) == ("reproduced", "undecided"),
)
colours = {"reproduced": 2, "contradicted": 1, "no difference": 0, "undecided": 6}
for place, one in enumerate(shown):
    values, said = one.differences["rsum"], one.by_measure["rsum"]
    low, high = interval(values)
    style = plots.COLOURS[colours[said]]
    axes.plot([low, high], [place, place], color=style)
    axes.plot(statistics.mean(values), place, "o", color=style)
    axes.text(high + 1, place, said, va="center", fontsize=8, color=style)
band = MARGIN * statistics.mean(arm.rsum for arm in pooling.values())
axes.axvspan(-band, band, color="0.9", zorder=0)
axes.axvline(0, color="0.5", linewidth=1)
names = [textwrap.shorten(one.claim.statement, 62, placeholder="…") for one in shown]
axes.set_yticks(range(len(shown)), names, fontsize=8)
axes.set(xlabel="difference in rsum", ylim=(len(shown) - 0.5, -0.5))
axes.grid(axis="y", visible=False)
said = ", ".join(f"{one.claim.statement}: {one.by_measure['rsum']}" for one in shown)
plots.show(
    figure,
    alt=f"Intervals of the mean difference in rsum for claims of 2AD, beside the band of what is too small to matter. By rsum alone: {said}.",
)

# %% [markdown]
# For one question alone, the rule would be this. If the interval excludes 0 and the mean is beyond the band, there is a difference. If the 90 %
# interval, which is a little shorter than the one drawn, lies within the band, there is no difference that matters. Otherwise the question is
# *undecided*. But here many questions are asked at once, and the verdicts at the right are corrected for that. Therefore they are stricter: an
# interval may lie just within the band and its question still be *undecided*, as for AdPool against GPO.
#
# [Learning to rank](04_learning_to_rank.ipynb) puts this into numbers: two p-values, Holm's correction for many questions, and the verdict that
# follows from both.
#
# Unfair choices are one danger; unfinished trainings are the other. A claim is judged only if five gates are open:
#
# 1. The learning rate of each system is the best of several on the development split, and lies between two others that were tried.
# 2. Each training has levelled off, or is as long as the paper's.
# 3. Each system is clearly better than the ridge regression on the same features.
# 4. Both were trained from the same seeds, five on the scenes and three on photographs.
# 5. Every measure that counts is recorded.
#
# If one is shut, the verdict is *too small to say*.
#
# ## Do ideas add up?
#
# In the first picture, each grey box has room for somebody else's idea. The thesis changes how pictures are encoded, and 2AD changes how to pool and what to
# learn from. That is one idea for each of three stages. (Not everything fits together: LTD decodes its target from one vector of a caption, and DivE has
# several.)
#
# ```{exercise} Three ideas in one recipe
# :label: ex-17-combine
#
# `recipe` is VSE++. Return it with a `"transformer"` as the reasoner of its pictures, `"adpool"` in both towers, and `"adopt"` in place of the
# triplet loss. The names of the fields are `image.reasoner`, `image.pool`, `text.pool` and `losses`.
# ```

# %%
from course.checks import exercise


@exercise("17.combine")
def combine(recipe):  # a recipe -> another recipe
    # your part
    pools = {"image.pool": "adpool", "text.pool": "adpool"}
    return recipe.override(pools | {"image.reasoner": "transformer", "losses": "adopt"})
    # end of your part


# %% [markdown]
# ````{solution} ex-17-combine
# :class: dropdown
#
# Four fields, and no new code. `losses` may also be a list: its parts are added up, as in LTD.
# ````
#
# We train VSE++, each idea alone, and all three, with one seed, on some of the pictures.
#
# ```{exercise} Do gains add up?
# :label: ex-17-predict
#
# Compare the gain of all three over VSE++ with the sum of their single gains. Is it `"more"`, `"as much"` or `"less"`?
# ```

# %%
from course.checks import check

your_prediction = "less"  # your part: "more", "as much" or "less"
check("17.predict", your_prediction)

# %% [markdown]
# ````{solution} ex-17-predict
# :class: dropdown
#
# The last bar of the next figure ends where the dashed line would be if the gains added up, or short of it. If two ideas mend the same fault, the
# second finds less to do, and the answer is `"less"`. If they mend different faults, their gains may add up.
# ````

# %% tags=["hide-input"]
features = "region" if data == "scenes" else "grid"  # boxes of photographs need a detector
dataset = lesson.dataset(features)
count = lesson.pick(smoke=600, lesson=2000, full=len(dataset.train))
dataset = dataclasses.replace(dataset, train=dataset.train.subset(count))
short = {"dim": 64, "text.encoder.word_dim": 32, "training.batch_size": 64}
short |= {"training.epochs": lesson.pick(smoke=1, lesson=2, full=15)}
short |= {"training.learning_rate": 5e-3, "training.schedule": "cosine"}
base = get(f"vsepp_{features}_gru").override(short)

# %% tags=["nbval-ignore-output"]
arms = {
    "VSE++": base,
    "Transformer": base.override({"image.reasoner": "transformer"}),
    "AdPool": base.override({"image.pool": "adpool", "text.pool": "adpool"}),
    "AdOpt": base.override({"losses": "adopt"}),
    "all three": combine(base),
}
sums = {name: lesson.trained(recipe, dataset).best["rsum"] for name, recipe in arms.items()}
course.numbers(sums)

# %% tags=["hide-input"]
lesson.finding(
    "AdPool brings most of the gain",
    sums["AdPool"] - sums["VSE++"]
    > 20 + max(sums[name] - sums["VSE++"] for name in ("Transformer", "AdOpt")),
)
lesson.finding("the combination trains", sums["all three"] > sums["VSE++"] + 30)

# %% tags=["hide-input"]
gains = {name: value - sums["VSE++"] for name, value in sums.items() if name != "VSE++"}
added = sum(gain for name, gain in gains.items() if name != "all three")
figure, axes = plt.subplots(figsize=(6.2, 2.6))
axes.barh(list(gains), list(gains.values()), color=[plots.COLOURS[5]] * 3 + [plots.COLOURS[0]])
axes.axvline(added, color=plots.COLOURS[1], linestyle="--", label="if single gains added up")
axes.axvline(0, color="0.5", linewidth=1)
axes.set(xlabel="rsum above VSE++, development split")
axes.invert_yaxis()
axes.grid(axis="y", visible=False)
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plots.show(
    figure,
    alt="Bars: what a Transformer over the elements, AdPool, AdOpt and all three together add to the rsum of VSE++ on the development split, and a dashed line where "
    "the last bar would end if the single gains added up.",
)

# %% [markdown]
# One seed and so few epochs show that the combination trains, and that most of its early gain is AdPool's. They cannot say which one is better. With
# one seed there is no spread and so no error to divide by, and no training has levelled off.
#
# The experiment `combined` asks the question properly. It starts from the whole of 2AD and adds Transformers over regions and words (thesis), a
# latent target (LTD), negatives from the whole training set (AOQ), and all three.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
together = experiments.studied("combined", "scenes")
if len(together) > 1:
    plots.show(
        dots.compared(together, "scenes", oracle),
        alt=dots.words_for(together, "the scenes", oracle),
    )
by = {name: arm.rsum for name, arm in together.items()}
lesson.finding(
    "neither a latent target nor offline negatives raises 2AD",
    max(by["2AD + latent target"], by["2AD + offline negatives"])
    < by["2AD"] + MARGIN * by["2AD"],
)
lesson.finding(
    "relations and all three lower it",
    by["2AD"] - by["2AD + all three"] > 5 < by["2AD"] - by["2AD + relations"],
)

# %% [markdown]
# **What came out.** No idea adds to 2AD here. A latent target and offline negatives, five seeds each, leave the sum within the margin of 5 where it
# was. All three together end more than 5 lower, and so do the Transformers, of which one training is finished.
#
# **What it may mean.** 2AD's pools read the regions well already, and its loss finds hard negatives by itself, so the other ideas may have little
# left to mend. No training here tests this reason.
#
# **How sure we are.** The recipes of all arms are 2AD's, tuned in their learning rate alone. An idea that needs other settings beside it had no chance.

# %% [markdown]
# ## What became of each claim
#
# `assets/claims.yml` holds what the papers claim, in their own words. The evidence pages say what we found, with the words and with what would
# refute them: [relations](../evidence/relational.md), [AOQ](../evidence/aoq.md), [2AD](../evidence/2ad.md), [DivE](../evidence/dive.md),
# [LTD](../evidence/ltd.md). *Contradicted* means there that a claim does not hold in our world; on other data, or at another size, it may well hold.
#
# What does a verdict cost?
#
# ```{exercise} What opens a gate
# :label: ex-17-cost
#
# On scenes, a claim compares A with B. Both are tuned and have levelled off. A is trained from the seeds 0, 1 and 2, in 4 minutes each; B from
# seed 0 alone, in 10 minutes. A verdict needs five seeds of both. How many trainings are missing, and how many minutes do they take?
# ```

# %%
from course.checks import check

your_trainings, your_minutes = 2 + 4, 2 * 4 + 4 * 10  # your part
check("17.cost", (your_trainings, your_minutes))

# %% [markdown]
# ````{solution} ex-17-cost
# :class: dropdown
#
# A lacks two seeds and B four. Differences are paired, so a seed that only one of them has says nothing.
# ````
#
# `vse experiment --missing` works this out for every claim, and trains the cheapest first.
#
# ## Change one thing
#
# ```{exercise} Your own combination
# :label: ex-17-explore
#
# Change one thing in `your_changes`: another pool (such as `"max"` or `"kmax"`), another loss (`"info_nce"`), another reasoner (`"region_graph"`). Write what
# you expect before you run it, and afterwards what came out.
# ```

# %% tags=["nbval-ignore-output"]
your_changes = {"image.pool": "gpo", "text.pool": "gpo"}  # change this
yours = lesson.trained(combine(base).override(your_changes), dataset).best["rsum"]
course.numbers({"yours": yours, "all three": sums["all three"]})

# %%
from course.checks import check

your_expectation = "GPO in place of AdPool makes no difference that matters"  # your part
your_finding = f"an rsum of {yours:.0f} against {sums['all three']:.0f}"  # your part
check("17.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-17-explore
# :class: dropdown
#
# A good answer changes one thing, and says what one seed cannot tell. Try another `seed` in the first cell.
# ````
#
# ## Paper, notebook, package
#
# | idea | in this notebook | in the package |
# | --- | --- | --- |
# | gates, and what opens them | the list of five | `vsecore.experiments.gates`, `vsecore.experiments.missing` |
# | a system as a row | `combine` | `vsecore.recipes.Recipe` |
#
# ## Summary
#
# - A system is a row of choices; most differ from VSE++ at one stage or two, so ideas of several papers can be combined.
# - One system is better if the paired differences are surely not 0 and their mean is beyond the margin; two are equal if it is surely within the margin.
# - Many questions need a correction, and no test protects from choices made on the test split.
# - A verdict needs tuned and finished trainings from enough seeds; otherwise, *too small to say* is the right answer.
#
# ## Where to read on
#
# - What remains of progress if old systems are tuned as well as new ones: {cite}`musgrave2020reality` for metric learning, {cite}`melis2018evaluation` for language
#   models.
# - Where the noise of a benchmark comes from, and how many seeds it takes: {cite}`bouthillier2021variance`.
# - To train at full size what is too small here: [Full scale](18_full_scale.ipynb).
