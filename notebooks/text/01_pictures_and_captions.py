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
# # Pictures and captions
#
# **You will be able to** decide exactly which sentence is true of which picture, say what five captions leave out, and count how many
# true pairs the field counts as wrong, in a collection and in a batch.
#
# **You need** the notebook [Start here](00_start_here.ipynb), and a little Python.
#
# **It takes** about half a minute and 1 GB of memory on two cores. The exercises take an hour.
#
# The map: **pictures and captions** → encode → pool → compare → learn. This notebook looks at what goes in.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import itertools
from dataclasses import replace

import numpy as np
from IPython.display import Markdown

import course
from course import plots
from course.checks import check, exercise
from course.drawings import captions as drawings
from course.facts import changed, says, unrelated, without
from course.widgets import explorer
from course.wording import table
from vsecore import scenes
from vsecore.data.coco_judgements import right_items

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
dataset = lesson.dataset("grid")
world = scenes.pictures("test", lesson.pick(smoke=200, lesson=1000, full=1000))
few = lesson.pick(smoke=25, lesson=150, full=150)

# %% [markdown]
# ## Five people look at a picture
#
# A collection for retrieval is made like this: five people each describe a picture in one sentence. Here are three pictures with their
# captions. Read them, then look for something that nobody mentions.


# %%
rows = [12, 9, 37]
words = [np.array(dataset.test.captions)[dataset.test.owner == row] for row in rows]
titles = [f"picture {row}" for row in rows]
drawings.beside(lesson.pictures("test", rows), words, titles)

# %% [markdown]
# A *split* has $N_{\mathrm{i}}$ pictures and $N_{\mathrm{c}}$ captions. For each caption $c$ it stores the *owner* $o(c)$, the row of the picture
# that the caption was written for:

# %%
for split in (dataset.train, dataset.dev, dataset.test):
    print(f"{split.name}: {len(split)} pictures, {len(split.captions)} captions")
print("owners of the first captions of test:", dataset.test.owner[:12].tolist())

# %% [markdown]
# ```{admonition} Optional: splits of photographs
# :class: note dropdown
#
# For Flickr8k {cite}`hodosh2013framing`, Flickr30K {cite}`young2014flickr30k` and COCO {cite}`lin2014coco` everybody uses the splits of
# {cite}`karpathy2015alignments`. Two habits of the field are not written in those files: COCO's fourth split, `restval`, belongs to the
# training data, and if a picture has more than five captions, the first five count.
# ```
#
# ## A sentence and all its pictures
#
# The embedded world knows what is true of its pictures, so we can ask which of them a sentence is true of. (Nobody has written that down for
# photographs; we come back to them at the end.) Write your own sentence and run the cell again.

# %%
sentence = "a dog to the left of a child"
form = scenes.parse(sentence)
fitting = [row for row, picture in enumerate(world) if scenes.holds(form, picture.scene)]
print(f"{sentence!r} is true of {len(fitting)} of {len(world)} pictures:", fitting[:4])
if fitting:
    drawn = [scenes.draw(world[row].scene, size=224) for row in fitting[:4]]
    figure = plots.picture_row(drawn, [f"picture {row}" for row in fitting[:4]])
    plots.show(
        figure, alt=f"The first pictures of the test split of which it is true: {sentence}."
    )

# %% [markdown]
# ```{exercise} One picture only
# :label: ex-01-sentence
#
# Be the sixth annotator of picture 12, the girl with the umbrella. Write a sentence of at most eight words that is true of this picture and
# of no other among the first 200 of the test split.
# ```
#
# ```{hint}
# :class: dropdown
#
# Try it in the cell above first. Which other pictures show a beach and an umbrella, and what do they lack?
# ```

# %%
your_sentence = "A girl holds a purple umbrella."  # your part
check("01.sentence", your_sentence)

# %% [markdown]
# ```{solution} ex-01-sentence
# :class: dropdown
#
# The girl, the umbrella that she holds and its colour are enough: among the first 200 pictures no other girl holds a purple umbrella. Most
# first tries name things that many beaches have. Colours, and who holds what, rule out more pictures.
# ```
#
# ## How the world decides
#
# `parse` turned the sentence into its *logical form*. Synonyms and word order are gone. What remains is what the sentence claims: the things
# that it speaks of (its *entities*), what it says of each, the place, and the *relations* between entities. Here is the form of a caption
# of picture 12:

# %%
scene, caption = world[12].scene, world[12].captions[3]
print(caption.text)
for part, said in caption.form.to_dict().items():
    print(part, *(said if isinstance(said, list) else [said]), sep="\n  ")

# %% [markdown]
# (Two things to notice: *waits* has left no trace, because a drawing does not show whether somebody waits. And *shining* is no fact of its
# own: it is true of every sun.)
#
# The picture itself is drawn from *facts* of the same kind, and nothing else is true of it:

# %%
print("place:", scene.place)
for number, thing in enumerate(scene.things):
    facing = f"looks {thing.facing}" if thing.facing else ""
    print(number, thing.kind, thing.colour, thing.size or "", facing)
print("; ".join(f"{i} {relation} {j}" for relation, i, j in scene.relations))

# %% [markdown]
# Is the form true of the scene? We match each entity with a thing: the girl with thing 2, the umbrella with thing 3, and so on. (*Two dogs*
# has to match all dogs in the picture, and there must be exactly two of them. But *one dog* claims no more than *a dog*: there may be
# others.) The sentence is true if the place is right and some matching keeps three rules:
#
# 1. what is said of an entity is true of its thing;
# 2. no thing may be matched twice, because two noun phrases refer to two different things;
# 3. every relation that is claimed holds between the matched things.
#
# ````{exercise} Is it true?
# :label: ex-01-true
#
# Write rules 2 and 3. `matched` lists, for each entity, the numbers of its things. `claimed` has the relations of the sentence
# between *entities*, and
# `facts` those of the scene between *things*. For the caption above:
#
# ```python
# matched = [(2,), (3,), (1,), (0,)]  # two dogs would have two numbers
# claimed = [("holding", 0, 1), ("right of", 0, 2)]
# facts = [("holding", 2, 3), ("right of", 2, 1)]  # and more
# ```
#
# Return `True` if both rules are kept, else `False`. What is claimed of two dogs must hold for each of them.
# ````
#
# ```{hint}
# :class: dropdown
#
# For rule 2, put all numbers into one list and compare it with a set. For rule 3, go through the claimed relations, and look up in
# `matched` which things the two entities are.
# ```


# %%
@exercise("01.true")
def consistent(matched, claimed, facts):  # -> True or False
    # your part
    used = [thing for things in matched for thing in things]
    nothing_twice = len(set(used)) == len(used)  # rule 2
    pairs = [(name, a, b) for name, i, j in claimed for a in matched[i] for b in matched[j]]
    return nothing_twice and all(pair in facts for pair in pairs)  # rule 3
    # end of your part


# %% [markdown]
# ````{solution} ex-01-true
# :class: dropdown
#
# Rule 2: put all numbers into one list; if a set of them is shorter, some thing is matched twice. Rule 3: a claimed relation becomes one pair of
# things, or several if an entity has several, and all of them must be facts. A common mistake is to ask for *some* pair.
# ````
#
# The next cell does the rest: it finds the things that rule 1 allows for each entity, and tries all ways to match them. The cell after it
# compares the result, `true_of`, with the package's `holds`, which decides the same and is faster.


# %%
def true_of(form, scene) -> bool:
    # What is on another thing neither flies nor floats.
    carried = {i for name, i, _ in scene.relations if name == "on"}
    choices = []  # for each entity, the groups of things that it may be matched with
    for entity in form.entities:  # rule 1
        fits = [entity.fits(thing, i in carried) for i, thing in enumerate(scene.things)]
        fit = np.flatnonzero(fits).tolist()
        all_of_them = [fit] if len(fit) == entity.count else []
        choices.append([(i,) for i in fit] if entity.count == 1 else all_of_them)
    return form.place in (None, scene.place) and any(
        consistent(matched, form.relations, scene.relations)
        for matched in itertools.product(*choices)
    )


# %%
captions = [caption for picture in world for caption in picture.captions]
for caption, picture in itertools.product(captions[: 2 * few], world[:few]):
    assert true_of(caption.form, picture.scene) == scenes.holds(caption.form, picture.scene)
print("scenes.holds agrees with the cell on", 2 * few * few, "pairs")

# %% [markdown]
# ````{exercise} Break it
# :label: ex-01-break
#
# Suppose that we forget rule 2. Find a sentence that `true_of` would then call true of picture 12 although it is false. To try one, copy
# your `consistent` into a new cell, without rule 2 and without the line `@exercise`, and add this:
#
# ```python
# true_of(scenes.parse("a girl and a dog"), world[12].scene)
# ```
#
# Afterwards run the cell of the last exercise again, so that the rule is back.
# ````
#
# ```{hint}
# :class: dropdown
#
# Without rule 2, one thing may be matched with two entities. What else may a girl be called?
# ```

# %%
your_lie = "There is a girl and another child on the beach."  # your part
check("01.break", your_lie)

# %% [markdown]
# ```{solution} ex-01-break
# :class: dropdown
#
# A girl is a child, so without rule 2 the one girl is matched with both entities.
# ```
#
# ## What five captions leave out
#
# If we can decide truth, we can also decide what a caption *says*. **A caption says a fact if changing that fact alone makes the caption
# false.** For example, *Umbrella on the beach* says the place, because it is false at the lake. It does not say the colour, because it is just
# as true of a red umbrella. Let us change five facts of picture 12, one at a time, and see which captions become false.

# %%
bench, girl, umbrella = 1, 2, 3  # things of picture 12
otherwise = {
    "it is a beach": replace(scene, place="lake"),
    "there is an umbrella": without(scene, umbrella),
    "there is a bench": without(scene, bench),
    "the umbrella is purple": changed(scene, umbrella, colour="red"),
    "the girl holds it": unrelated(scene, ("holding", girl, umbrella)),
}
for caption in world[12].captions:
    said = [fact for fact, other in otherwise.items() if not true_of(caption.form, other)]
    print(caption.text, "\n   says:", ", ".join(said))

# %% [markdown]
# `course.facts.says` does the same for *all* facts of a scene. Two details: *A left of B* and *B right of A* count as one fact; and if there are two
# flowers, "exactly two" is a fact of its own. Here are the facts of picture 12 and who says them:

# %%
drawings.who_says_what(world[12])

# %% [markdown]
# No caption says the facts in orange. Look through more pictures. Read the captions first, then open the facts.


# %%
leaves = [12, 5, 9, 19, 25, 33, 51, 53]
explorer(
    [scenes.draw(world[row].scene, size=224) for row in leaves],
    [drawings.page(world[row]) for row in leaves],
    [f"{number} {world[row].scene.place}" for number, row in enumerate(leaves, 1)],
)

# %% [markdown]
# The annotators are five characters. *Terse* says little, *counter* counts, *place first* begins with the place, *relations* says how
# things are arranged, *detail* loves colours and sizes. Now take all pictures of the test split. What percentage of the facts of each kind
# does each annotator say, and what percentage do the five say together? (*Holding* is counted apart from the other relations.)

# %%
every = [says(picture) for picture in world]
kind_of = np.array([kind for found, _ in every for kind, _, _ in found])
told = np.concatenate([said for _, said in every])  # (facts, 5)
kinds = ["thing", "place", "count", "colour", "size", "holding", "relation", "facing"]
shares = np.array([100 * told[kind_of == kind].mean(0) for kind in kinds]).T  # (5, kinds)
together = [100 * told[kind_of == kind].any(1).mean() for kind in kinds]

habits = [caption.annotator.replace("_", " ") for caption in world[0].captions]
drawings.shares(np.vstack([shares, together]), kinds, habits)

# %% tags=["hide-input"]
of_five = dict(zip(kinds, together, strict=True))
lesson.finding(
    "nearly every thing, but few relations", of_five["thing"] > 95 and of_five["relation"] < 50
)

# %% [markdown]
# Together the five name nearly every thing, but few of the relations and of the
# directions in which things look. A picture has many relations, and a caption needs a clause for each. From a picture, a
# system trained on captions cannot learn what all five of its captions leave out.
#
# ## One caption, many pictures
#
# An annotator describes one picture. But the sentence is also true or false of every other picture:

# %%
picked = [(0, 0), (0, 4), (1, 0), (1, 1), (2, 0), (2, 4)]  # (picture, its caption)
drawings.true_pairs([world[row] for row in (12, 37, 60)], picked)

# %% [markdown]
# The field's *five-caption protocol* knows only the solid lines: a caption is right for its owner and wrong for every other picture. Systems
# are trained and measured that way. A dashed line is a *false negative*, a pair that is true and counts as wrong. To count them, we write
# the truth as a matrix, the *relevance*,
#
# $$y_{ci} = \begin{cases} 1 & \text{if caption } c \text{ is true of picture } i, \\ 0 & \text{otherwise,} \end{cases}$$
#
# with $N_{\mathrm{c}}$ rows and $N_{\mathrm{i}}$ columns. Let $y_c = \sum_i y_{ci}$ be the number of pictures that caption $c$ is true
# of. Each caption is true of its own picture, so the share of the true pairs that the protocol calls false is
#
# $$\frac{\sum_c \sum_{i \neq o(c)} y_{ci}}{\sum_c \sum_i y_{ci}} = 1 - \frac{N_{\mathrm{c}}}{\sum_c y_c} .$$
#
# ````{exercise} Count what the protocol calls false
# :label: ex-01-share
#
# Three pictures have two captions each: captions 0 and 1 belong to picture 0, captions 2 and 3 to picture 1, captions 4 and 5 to picture 2. The
# rows of the matrix are captions. What percentage of the true pairs does the protocol call false?
#
# ```python
# [[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]]
# ```
# ````

# %%
your_share = 100 * (1 - 6 / 10)  # your part: in percent
check("01.share", your_share)

# %% [markdown]
# ```{solution} ex-01-share
# :class: dropdown
#
# There are ten ones. Six of them are captions with their own pictures; the protocol knows no others.
# ```
#
# The obvious way to compute the relevance is a double loop. `relevance` looks most of its values up in tables, which is faster:

# %%
truth = scenes.relevance(captions, [picture.scene for picture in world])  # (Nc, Ni)
piece = [[true_of(c.form, p.scene) for p in world[:few]] for c in captions[: 5 * few]]
np.testing.assert_array_equal(piece, truth[: 5 * few, :few])
print("scenes.relevance agrees with the double loop; it has shape", truth.shape)

# %% [markdown]
# Here is the part of the matrix for twenty pictures, drawn with the pictures in the rows. (A *foreign* picture is one that the caption was not written for.) The protocol knows the
# blue pairs; the orange pairs are the false negatives.

# %%
Nc, Ni = truth.shape
owner = np.repeat(np.arange(Ni), 5)  # (Nc,)   of the world's captions
own = owner[:, None] == np.arange(Ni)  # (Nc, Ni)   the protocol
drawings.relevance(truth[200:300, 40:60], own[200:300, 40:60])

# %% [markdown]
# The larger the collection, the more pictures a caption describes; but only one of them counts. Guess before you look: among all pictures of
# the split, what share of the true pairs is orange: a tenth, a half, or more?

# %%
y = truth.sum(1)  # (Nc,)   y_c
called_false = (truth & ~own).sum() / truth.sum()
np.testing.assert_allclose(called_false, 1 - Nc / y.sum())  # the two sides of the equation
# y - 1: the false negatives of each caption
vague = np.sort(y - 1)[-(Nc // 10) :].sum() / (y - 1).sum()
course.numbers(
    {
        "true pairs that the protocol calls false (%)": 100 * called_false,
        "captions that are true of a foreign picture (%)": 100 * np.mean(y > 1),
        "pictures that a caption is true of, mean": y.mean(),
        "foreign captions that are true of a picture, mean": (truth & ~own).sum(0).mean(),
        "false negatives of the vaguest tenth of the captions (%)": 100 * vague,
    }
)

# %% [markdown]
# Most of the true pairs count as wrong. More than half of the captions are true of their own picture alone, but a vague one is true of
# very many.
#
# ## Which annotator causes the false negatives?
#
# ```{exercise} A prediction
# :label: ex-01-predict
#
# For each annotator, what share of the true pairs does the protocol call false? Who has the smallest share? Answer `"terse"`, `"counter"`,
# `"place first"`, `"relations"` or `"detail"` before you run the cells below.
# ```

# %%
your_prediction = "relations"  # your part: one of the five
check("01.predict", your_prediction)

# %% [markdown]
# We compute the share for each annotator. How much would it change with other pictures? To see that, 200 times we draw as many pictures as
# there are, with replacement (the *bootstrap*), compute the share anew, and show the range that holds 95 % of the 200 results.

# %%
turn = np.arange(Nc) % 5  # (Nc,)   who speaks
dice = np.random.default_rng(seed)
drawn = dice.integers(Ni, size=(200, Ni))  # pictures, with repetition


def false_share(y):  # (..., Ni) -> (...), in percent
    return 100 * (1 - y.shape[-1] / y.sum(-1))


facts_said = np.concatenate([said.sum(0) for _, said in every])  # (Nc,)
said_by = [facts_said[turn == number].mean() for number in range(5)]
share = {name: false_share(y[turn == number]) for number, name in enumerate(habits)}
ends = [np.quantile(false_share(y[turn == n][drawn]), [0.025, 0.975]) for n in range(5)]

# %%
spans = {
    f"{name} ({said:.1f} facts)": (share[name], low, high)
    for name, said, (low, high) in zip(habits, said_by, ends, strict=True)
}
drawings.called_false(dict(sorted(spans.items(), key=lambda item: -item[1][0])))

# %% tags=["hide-input"]
lesson.finding("terse has the largest share", max(share, key=share.get) == "terse")
lesson.finding("relations has the smallest share", min(share, key=share.get) == "relations")
lesson.finding("detail says the most facts", habits[np.argmax(said_by)] == "detail")

# %% [markdown]
# ```{solution} ex-01-predict
# :class: dropdown
#
# *Relations*, although *detail* says more facts. *Terse* says the fewest and has the largest share by far.
# ```
#
# So does it help to say more? Only up to a point. A likely reason is that facts differ in how many pictures they rule out: few pictures
# show a dog, but about half of the dogs look left, and sizes and directions are what *detail* loves to mention. At the other end, the
# vaguest tenth of the captions makes most of the false negatives: *I count one person* is true of very many pictures. (The intervals of the
# middle annotators overlap, so do not rely on their exact order.)
#
# ## How many false negatives does a batch hold?
#
# Training looks at *batches*. Suppose that each batch has $B$ different pictures, each with one of its captions. All remaining pairs of a
# picture and a caption in the batch count as *negatives*. How many of them are false negatives? Write the pairs of a random batch as a
# matrix with the own pairs on the diagonal, so
# that the cells off the diagonal are foreign pairs. Over the whole split, the share of true ones among the foreign pairs is
#
# $$\varphi = \frac{\sum_c (y_c - 1)}{N_{\mathrm{c}} (N_{\mathrm{i}} - 1)} ,$$
#
# so we expect $B (B - 1)\, \varphi$ false negatives.
#
# ```{exercise} Expect false negatives
# :label: ex-01-batch
#
# Write the expected number as a function of `truth` (Nc, Ni), `owner` (Nc,) and the size of the batch. Each picture has equally many
# captions, not always five, and the captions may come in any order.
# ```
#
# ```{hint}
# :class: dropdown
#
# Which cells of `truth` are foreign pairs? $\varphi$ is the mean over them.
# ```


# %%
@exercise("01.batch")
def expected_false_negatives(truth, owner, B):  # (Nc, Ni), (Nc,), a whole number -> a number
    # your part
    Nc, Ni = truth.shape
    foreign = truth.sum() - truth[range(Nc), owner].sum()  # true, and not its own
    return B * (B - 1) * foreign / (Nc * (Ni - 1))
    # end of your part


# %% [markdown]
# ````{solution} ex-01-batch
# :class: dropdown
#
# Take the mean of `truth` over all foreign pairs, of which there are $N_{\mathrm{c}} N_{\mathrm{i}} - N_{\mathrm{c}}$, and multiply it by the
# number of cells off the diagonal. A common mistake is to count the own pairs among them, which are always true.
# ````
#
# Formulas can be wrong, so we also draw batches and count.
#
# ````{admonition} Optional: how many captions meet a false negative?
# :class: note dropdown
#
# Caption $c$ is true of $y_c - 1$ foreign pictures. The batch draws $B - 1$ of the $N_{\mathrm{i}} - 1$ foreign pictures without putting
# any back. It misses all true ones with the probability
#
# $$\prod_{j=0}^{B-2} \frac{N_{\mathrm{i}} - y_c - j}{N_{\mathrm{i}} - 1 - j} .$$
#
# ````


# %%
def chance_of_one(y: np.ndarray, Ni: int, B: int) -> np.ndarray:
    j = np.arange(B - 1)
    missed = np.prod((Ni - y[:, None] - j) / (Ni - 1 - j), axis=1)  # (Nc,)   the product above
    return 1 - missed


def drawn_batch(B: int) -> tuple[int, float]:
    """The false negatives of a random batch, and the share of captions that meet one."""
    pictures = dice.choice(Ni, B, replace=False)
    rows = 5 * pictures + dice.integers(5, size=B)
    cells = truth[np.ix_(rows, pictures)]  # (B, B)   the diagonal is true
    return cells.sum() - B, np.mean(cells.sum(1) > 1)


# %%
B = 128
dice = np.random.default_rng(seed)
counted = np.array([drawn_batch(B) for _ in range(400)])  # (400, 2)
expected = expected_false_negatives(truth.copy(), owner, B)
course.numbers(
    {
        "false negatives in a batch of 128, expected": expected,
        "false negatives in a batch of 128, counted": counted[:, 0].mean(),
        "captions that meet one (%), expected": 100 * chance_of_one(y, Ni, B).mean(),
        "captions that meet one (%), counted": 100 * counted[:, 1].mean(),
    }
)

# %%
sizes = [size for size in (2, 4, 8, 16, 32, 64, 128, 256, 512) if size <= Ni]
chances = np.array([100 * chance_of_one(y, Ni, size) for size in sizes])  # (sizes, Nc)
lines = {
    name: chances[:, turn == habits.index(name)].mean(1) for name in ("terse", "relations")
}
drawn = [100 * np.mean([drawn_batch(size)[1] for _ in range(100)]) for size in sizes]
drawings.by_batch(sizes, lines | {"all five": chances.mean(1)}, drawn)

# %% [markdown]
# The crosses, which we counted, lie on the line computed with the product in the optional box. In a batch of the usual size, 128, one
# caption in five is also true of another
# picture of the batch. Training makes a caption less similar to its negatives, and so to this picture too. How much this hurts depends on the loss: one that looks only at the most
# similar negative picks false ones far more often, as [Offline negatives](08_offline_negatives.ipynb) measures. Remember this for
# [Learning to rank](04_learning_to_rank.ipynb).
#
# ```{exercise} Change one thing
# :label: ex-01-explore
#
# How many of the false negatives in a batch of 128 would be gone without *terse*? With `kept = turn != habits.index("terse")`,
# `expected_false_negatives(truth[kept], owner[kept], B)` counts only the captions of the other four. Write down what you expect and why,
# compute it, and write down what you found. Then try another annotator.
# ```

# %%
your_expectation = "Less than half remain: terse writes the vaguest."  # your part
# your part
kept = turn != habits.index("terse")
fewer = expected_false_negatives(truth[kept], owner[kept], B)
course.numbers({"with all five": expected, "without terse": fewer})
# end of your part
your_finding = "Many go, but more than half remain: others take terse's places."  # your part
check("01.explore", (your_expectation, your_finding))

# %% [markdown]
# ```{solution} ex-01-explore
# :class: dropdown
#
# *Terse* writes a fifth of the captions and makes more than half of all false negatives. But a batch without it still has 128 captions: the
# other four fill its places, and bring false negatives of their own. A wrong expectation is a good result if you can say what it overlooked.
# ```
#
# ## What do people find in photographs?
#
# For a photograph nobody can list all facts. But people have checked some pairs. For COCO's test split, *CxC* (Crisscrossed Captions,
# {cite}`parekh2021cxc`) had people rate pairs that were chosen for being alike, and *ECCV Caption* {cite}`chun2022eccv` let five retrieval
# systems propose pairs and people confirm them. How many right answers does each of these lists contain?

# %%
known = [["exact truth, embedded world", f"{truth.sum(0).mean():.1f}", f"{y.mean():.1f}"]]
for benchmark, name in (("coco", "protocol, COCO"), ("cxc", "CxC"), ("eccv", "ECCV Caption")):
    sides = (
        np.mean([len(items) for items in side.values()]) for side in right_items(benchmark)
    )
    known.insert(-1, [name, *(f"{side:.1f}" for side in sides)])
heads = ["counted as right by", "captions of a picture", "pictures of a caption"]
Markdown(table(heads, known))

# %% [markdown]
# Both lists name more right answers than the protocol, so photographs have false negatives as well. Neither list is complete: most pairs were
# never looked at, and ECCV Caption covers only a part of the split. Our world is smaller and simpler than COCO, but its numbers are of the same
# order as ECCV Caption's.
# [The joint space](03_joint_space.ipynb) shows which measures use such lists.
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | five captions a picture, each right for its owner, {cite}`hodosh2013framing` | `own` | `Split.owner`, `vsecore.evaluation.ranks` |
# | a sentence is true of a scene | `true_of` | `vsecore.scenes.holds` |
#
# ## Summary
#
# - A caption says a fact if changing that fact alone makes the caption false.
# - Five captions name nearly every thing (98 %) but fewer than one relation in three (30 %).
# - The larger the batch, the more captions meet a false negative in it: one in five at 128 pictures.
# - The five-caption protocol calls 85 % of the true pairs of our world false; the vaguest tenth of the captions makes 80 % of these false negatives.
#
# ## Where to read on
#
# - [Encoders: what the vectors see](02_encoders.ipynb) turns these pictures and captions into vectors.
# - Image description as a ranking task: {cite}`hodosh2013framing`. How COCO's captions were collected: {cite}`chen2015cococaptions`.
# - What is missing in COCO's pairs, and what that does to the order of systems: {cite}`parekh2021cxc` and {cite}`chun2022eccv`.
