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
import html
import itertools
import textwrap
from collections import Counter
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Markdown
from matplotlib.colors import ListedColormap

import course
from vsecore import scenes
from course import plots
from course.widgets import explorer
from vsecore.data.annotations import CAPTIONS_A_PICTURE
from vsecore.data.coco_judgements import right_items
from vsecore.data.words import tokenize

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
dataset = lesson.dataset("grid")
world = scenes.pictures("test", lesson.pick(smoke=200, lesson=1000, full=1000))

# %% [markdown]
# ## Five people look at a picture
#
# A collection for retrieval is made like this: five people each describe a picture in one sentence. Here are three pictures with their
# captions. Read them, then look for something that nobody mentions.


# %% tags=["hide-input"]
def own_captions(row: int) -> list[int]:
    return np.flatnonzero(dataset.test.owner == row).tolist()


shown = [12, 9, 37]
figure, panels = plt.subplots(
    len(shown), 2, figsize=(8.2, 4.6), gridspec_kw={"width_ratios": [1, 4.4]}
)
for (left, right), row, picture in zip(
    panels, shown, lesson.pictures("test", shown), strict=True
):
    left.imshow(picture, interpolation="lanczos")
    words = [dataset.test.captions[c] for c in own_captions(row)]
    lines = [
        textwrap.fill(f"{number}  {text}", 82, subsequent_indent="    ")
        for number, text in enumerate(words, 1)
    ]
    right.text(
        0, 0.5, "\n".join(lines), va="center", linespacing=1.45, transform=right.transAxes
    )
    left.set_title(f"picture {row}", fontsize=9, color="0.4")
    for axes in (left, right):
        axes.axis("off")
plots.show(
    figure,
    alt="Three pictures, one below the other, each with its five captions beside it. The captions of a picture differ in "
    "what they name, in length, and in how exact they are.",
)

# %% [markdown]
# A *split* has $N_{\mathrm{i}}$ pictures and $N_{\mathrm{c}}$ captions. For each caption $c$ it stores the *owner* $o(c)$, the row of the picture
# that the caption was written for:

# %%
for split in (dataset.train, dataset.dev, dataset.test):
    print(f"{split.name}: {len(split)} pictures, {len(split.captions)} captions")
print("owners of the first captions of test:", dataset.test.owner[:12].tolist())

# %% [markdown]
# ```{admonition} Optional: splits of photographs, and rare words
# :class: note dropdown
#
# For Flickr8k {cite}`hodosh2013framing`, Flickr30K {cite}`young2014flickr30k` and COCO {cite}`lin2014coco` everybody uses the splits of
# {cite}`karpathy2015alignments`. Two habits of the field are not written in those files: COCO's fourth split, `restval`, belongs to the
# training data, and if a picture has more than five captions, the first five count. The released code of VSE++ divides a caption's row by
# five to find its picture; here each split stores its `owner`.
#
# In natural language the second most frequent word is about half as frequent as the first, the third a third as frequent, and so on
# (*Zipf's law*). So most words are rare, and a system cannot learn a word that it has seen once. {cite}`faghri2018vsepp` replaces words
# seen fewer than four times by one token for *unknown*. The next cell counts such words in our training captions.
# ```

# %% tags=["hide-input"]
counts = Counter(word for caption in dataset.train.captions for word in tokenize(caption))
rare = sum(times < 4 for times in counts.values())
print(
    f"{len(counts)} different words in the training captions, {rare} of them fewer than four times;"
)
print("most frequent:", *(word for word, _ in counts.most_common(8)))

# %% tags=["hide-input"]
if data != "scenes":
    print(
        "Nobody has written down what is true of these photographs. The cells below therefore use the embedded world, "
        "and come back to photographs at the end."
    )

# %% [markdown]
# ## A sentence and all its pictures
#
# The embedded world knows what is true of its pictures, so we can ask which of them a sentence is true of. Write your own sentence and run
# the cell again.

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
from course.checks import check

your_sentence = "A girl holds a purple umbrella."  # your part
check("01.sentence", your_sentence)

# %% [markdown]
# ```{solution} ex-01-sentence
# :class: dropdown
#
# The girl, the umbrella that she holds and its colour are enough.
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
# The picture itself is drawn from *facts* of the same kind, and nothing else is true of it:

# %%
print("place:", scene.place)
for number, thing in enumerate(scene.things):
    facing = f"looks {thing.facing}" if thing.facing else ""
    print(number, thing.kind, thing.colour, thing.size or "", facing)
print("; ".join(f"{i} {relation} {j}" for relation, i, j in scene.relations))

# %% [markdown]
# Is the form true of the scene? We match entities with things: the girl is thing 2, the umbrella is thing 3, and so on. (*Two dogs* are
# matched with all the dogs there are, and there must be two.) The sentence is true if the place is right and some matching keeps three rules:
#
# 1. what is said of an entity is true of its thing;
# 2. no thing is matched twice, since two noun phrases speak of two things;
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
from course.checks import exercise


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
# A claimed relation becomes one pair of things, or several if an entity has several. All of them must be facts.
# ````
#
# The folded cell does the rest: it finds the things that rule 1 allows for each entity, and tries all ways to match them. The cell after
# it compares the result, `true_of`, with the package's `holds`, which decides the same and is faster.


# %% tags=["hide-input"]
def true_of(form, scene) -> bool:
    carried = {
        i for name, i, _ in scene.relations if name == "on"
    }  # a bird on a bench does not fly
    choices = []  # for each entity, the groups of things that it may be matched with
    for entity in form.entities:
        fit = tuple(
            i for i, thing in enumerate(scene.things) if entity.fits(thing, i in carried)
        )  # rule 1
        all_of_them = [fit] if len(fit) == entity.count else []
        choices.append([(i,) for i in fit] if entity.count == 1 else all_of_them)
    return form.place in (None, scene.place) and any(
        consistent(matched, form.relations, scene.relations)
        for matched in itertools.product(*choices)
    )


# %%
captions = [caption for picture in world for caption in picture.captions]
few = lesson.pick(smoke=25, lesson=150, full=150)
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
from course.checks import check

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
# false.** *Umbrella on the beach* says the place, because it is false at the lake. It does not say the colour, because it is just as true
# of a red umbrella. Let us change five facts of picture 12, one at a time, and see which captions become false. (The functions that
# change a fact are folded away.)


# %% tags=["hide-input"]
def without(scene, i):
    """The scene in which thing i is not there."""
    rest = [j for j in range(len(scene.things)) if j != i]
    kept = [relation for relation in scene.relations if i not in relation[1:]]
    relations = tuple((name, rest.index(a), rest.index(b)) for name, a, b in kept)
    return replace(scene, things=tuple(scene.things[j] for j in rest), relations=relations)


def changed(scene, i, **attribute):
    """The scene in which thing i has another colour, size or facing."""
    things = list(scene.things)
    things[i] = replace(things[i], **attribute)
    return replace(scene, things=tuple(things))


def unrelated(scene, *gone):
    """The scene in which these relations do not hold."""
    return replace(scene, relations=tuple(r for r in scene.relations if r not in gone))


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
# The folded cell lists *all* facts of a scene, each with the scene in which it alone is different. Two details: *left of* and *right of*
# are one fact, told from two sides; and if a scene has two flowers, it is also a fact that there is no third.


# %% tags=["hide-input"]
def named(scene) -> list[str]:
    """Names of the things: "girl", or "flower 1" and "flower 2" where there are two."""
    kinds = [thing.kind for thing in scene.things]
    return [
        kind if kinds.count(kind) == 1 else f"{kind} {kinds[: i + 1].count(kind)}"
        for i, kind in enumerate(kinds)
    ]


def facts_of_things(scene):
    for i, (name, thing) in enumerate(zip(named(scene), scene.things, strict=True)):
        yield "thing", name, without(scene, i)
        for what in ("colour", "size", "facing"):
            if (value := getattr(thing, what)) is not None:
                words = f"{name}: looks {value}" if what == "facing" else f"{name}: {value}"
                yield what, words, changed(scene, i, **{what: "otherwise"})


def facts_of_relations(scene):
    mirrored = {"left of": "right of", "right of": "left of", "beside": "beside"}
    name = named(scene)
    for relation, a, b in scene.relations:
        twin = (mirrored.get(relation), b, a)
        if twin not in scene.relations or a < b:
            kind = "holding" if relation == "holding" else "relation"
            different = unrelated(scene, (relation, a, b), twin)
            yield kind, f"{name[a]} {relation} {name[b]}", different


def facts(scene):
    """Each fact: its kind, its words, and the scene in which it alone is different."""
    yield "place", scene.place, replace(scene, place="elsewhere")
    yield from facts_of_things(scene)
    for kind, count in Counter(thing.kind for thing in scene.things).items():
        if count > 1:
            like = next(thing for thing in scene.things if thing.kind == kind)
            one_more = replace(scene, things=(*scene.things, like))
            yield "count", f"{kind}: {count}, no more", one_more
    yield from facts_of_relations(scene)


# %%
def says(picture):
    """The facts of a picture, and which of its captions says which, (facts, captions)."""
    found = list(facts(picture.scene))
    said = [
        [not scenes.holds(caption.form, different) for caption in picture.captions]
        for _, _, different in found
    ]
    return found, np.array(said)


# %% tags=["hide-input"]
picture = world[12]
found, said = says(picture)
figure, panels = plt.subplot_mosaic(
    [["picture", "facts"], ["captions", "captions"]],
    figsize=(8.2, 5.4),
    gridspec_kw={"height_ratios": [2.6, 1], "width_ratios": [1, 1.15]},
)
panels["picture"].imshow(scenes.draw(picture.scene, size=224), interpolation="lanczos")
lines = [f"{number}  {caption.text}" for number, caption in enumerate(picture.captions, 1)]
panels["captions"].text(0.02, 1, "\n".join(lines), va="top", linespacing=1.45)
for name in ("picture", "captions"):
    panels[name].axis("off")
axes = panels["facts"]
for which, size, colour, label in (
    (said, 60, plots.COLOURS[0], "says it"),
    (~said, 8, "0.75", "leaves it out"),
):
    fact, caption = np.nonzero(which)
    axes.scatter(caption, fact, s=size, color=colour, label=label, zorder=3)
axes.set_yticks(range(len(found)), [words for _, words, _ in found], fontsize=9)
for label, heard in zip(axes.get_yticklabels(), said.any(1), strict=True):
    label.set_color("0.1" if heard else plots.COLOURS[1])
axes.set_xticks(range(5), range(1, 6))
axes.set(xlabel="caption", ylim=(len(found) - 0.5, -0.5), xlim=(-0.5, 4.5))
axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=2)
plots.show(
    figure,
    alt="A girl under a purple umbrella on a beach with a bench and the sun, its five captions, and a chart of its facts "
    "against the captions: a large dot where a caption says a fact. No caption says all, and some facts, in orange, "
    "have no large dot at all: nobody says them.",
)

# %% [markdown]
# No caption says the facts in orange. Look through more pictures. Read the captions first, then open the facts.


# %% tags=["hide-input"]
def captions_page(row: int) -> str:
    lines = (f"<li>{html.escape(dataset.test.captions[c])}</li>" for c in own_captions(row))
    return f"<ol style='margin: 0; padding-left: 1.4em'>{''.join(lines)}</ol>"


def facts_page(row: int) -> str:
    found, said = says(world[row])
    heads = "".join(f"<th style='padding: 0 .5em'>{number}</th>" for number in range(1, 6))
    lines = []
    for (_, words, _), by in zip(found, said, strict=True):
        dots = ("<b>●</b>" if one else "<span style='opacity: .3'>·</span>" for one in by)
        cells = "".join(f"<td style='text-align: center'>{dot}</td>" for dot in dots)
        lines.append(f"<tr><td style='text-align: left'>{words}</td>{cells}</tr>")
    silent = int((~said.any(1)).sum())
    return (
        f"<details style='margin-top: .8em'><summary style='display: list-item; cursor: pointer'>"
        f"{len(found)} facts, and who says them; {silent} are said by nobody</summary><table style='margin: .4em 0; line-height: 1.35'>"
        f"<tr><th></th>{heads}</tr>{''.join(lines)}</table></details>"
    )


leaves = [12, 5, 9, 19, 25, 33, 51, 53]
explorer(
    lesson.pictures("test", leaves),
    [captions_page(row) + (facts_page(row) if data == "scenes" else "") for row in leaves],
    [
        f"{number} {world[row].scene.place}" if data == "scenes" else f"picture {number}"
        for number, row in enumerate(leaves, 1)
    ],
)

# %% [markdown]
# Now take all pictures of the test split. What percentage of the facts of each kind does each annotator say, and what percentage do the
# five say together?

# %%
every = [says(picture) for picture in world]
kind_of = np.array([kind for found, _ in every for kind, _, _ in found])
told = np.concatenate([said for _, said in every])  # (facts, 5)
kinds = ["thing", "place", "count", "colour", "size", "holding", "relation", "facing"]
shares = np.array([100 * told[kind_of == kind].mean(0) for kind in kinds]).T  # (5, kinds)
together = [100 * told[kind_of == kind].any(1).mean() for kind in kinds]

# %% tags=["hide-input"]
habits = [caption.annotator.replace("_", " ") for caption in world[0].captions]
figure, axes = plt.subplots(figsize=(8, 3.6))
table = np.vstack([shares, together])  # (6, kinds)
plots.heatmap(axes, table, x="kind of fact", y="", label="said (%)")
axes.set_xticks(range(len(kinds)), kinds)
axes.set_yticks(range(6), [*habits, "any of the five"])
axes.axhline(4.5, color="white", linewidth=4)
for (row, column), share in np.ndenumerate(table):
    colour = "black" if share > 55 else "white"
    axes.text(column, row, f"{share:.0f}", ha="center", va="center", color=colour)
of_five = dict(zip(kinds, together, strict=True))
lesson.finding(
    "the five name nearly every thing, but few relations",
    of_five["thing"] > 95 and of_five["relation"] < 50,
)
plots.show(
    figure,
    alt="A table in colours: the share of the facts of each kind that each of the five annotators says, and that any of them "
    "says. Together the five name nearly every thing, every place and count, but only a part of sizes, relations and facings.",
)

# %% [markdown]
# Together the five name nearly every thing, but few of the relations: a picture has many, and each takes a clause to say. A system trained
# on captions never learns what all five of them leave out.
#
# ## One caption, many pictures
#
# An annotator describes one picture. But the sentence is also true or false of every other picture:

# %% tags=["hide-input"]
rows, picked = [12, 37, 60], [(12, 0), (12, 4), (37, 0), (37, 1), (60, 0), (60, 4)]
figure, axes = plt.subplots(figsize=(8.4, 5.2))
for level, row in enumerate(rows):
    drawn = scenes.draw(world[row].scene, size=224)
    axes.imshow(drawn, extent=(0, 1.9, 2 * level + 1.9, 2 * level), interpolation="lanczos")
for height, (row, number) in enumerate(picked):
    caption = world[row].captions[number]
    axes.text(5.1, height + 0.45, caption.text, va="center")
    for level, other in enumerate(rows):
        if scenes.holds(caption.form, world[other].scene):
            colour, dash = (plots.COLOURS[0], "-") if other == row else (plots.COLOURS[1], "--")
            ends = [2 * level + 0.95, height + 0.45]
            axes.plot([2, 5], ends, color=colour, linestyle=dash)
axes.set(xlim=(0, 10.4), ylim=(5.95, -0.05), aspect="equal")
axes.axis("off")
axes.plot([], [], color=plots.COLOURS[0], label="written for it")
axes.plot([], [], color=plots.COLOURS[1], linestyle="--", label="true of it, and called false")
axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncol=2)
plots.show(
    figure,
    alt="Three beaches with umbrellas on the left, six captions on the right. Solid lines join each caption to the picture that it "
    "was written for; dashed lines join captions to other pictures of which they are true as well: umbrella on the beach is "
    "true of all three.",
)

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
from course.checks import check

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
# Here is a piece of the matrix, ordered by place. (A *foreign* picture is one that the caption was not written for.) The protocol knows
# the blue pairs; the orange pairs are the false negatives.

# %% tags=["hide-input"]
Nc, Ni = truth.shape
owner = np.repeat(np.arange(Ni), CAPTIONS_A_PICTURE)  # (Nc,)   of the world's captions
own = owner[:, None] == np.arange(Ni)  # (Nc, Ni)   the protocol
order = sorted(range(48), key=lambda row: (scenes.PLACES.index(world[row].scene.place), row))
block = np.ix_([5 * row + n for row in order for n in range(5)], order)
figure, axes = plt.subplots(figsize=(8.8, 4.2))
colours = ListedColormap(["#f3f3f0", plots.COLOURS[1], plots.COLOURS[0]])
axes.imshow(
    (truth[block] + own[block].astype(int)).T, cmap=colours, aspect="auto", interpolation="none"
)
places = [world[row].scene.place for row in order]
starts = [places.index(place) for place in dict.fromkeys(places)]
for start in starts[1:]:
    axes.axhline(start - 0.5, color="0.75", linewidth=0.7)
    axes.axvline(5 * start - 0.5, color="0.75", linewidth=0.7)
axes.set_yticks([start + 0.5 for start in starts], dict.fromkeys(places))
axes.grid(False)
axes.set(xlabel="captions, five a picture", ylabel="pictures, by place")
for colour, name in ((plots.COLOURS[0], "own"), (plots.COLOURS[1], "true, and called false")):
    axes.scatter([], [], marker="s", color=colour, label=name)
axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=2)
plots.show(
    figure,
    alt="Pictures as rows, captions as columns, ordered by place. A blue staircase runs down the diagonal: each picture with its five "
    "captions. Around it lie orange cells: true pairs of a caption with a foreign picture; some captions have "
    "several.",
)

# %% [markdown]
# A few captions have many orange cells. With more pictures, a caption meets more that it is true of, but it still owns one. Guess before
# you look: among all pictures of the split, what share of the true pairs is orange: a tenth, a half, or more?

# %%
y = truth.sum(1)  # (Nc,)   y_c
called_false = (truth & ~own).sum() / truth.sum()
np.testing.assert_allclose(called_false, 1 - Nc / y.sum())  # the two sides of the equation
course.numbers(
    {
        "true pairs that the protocol calls false (%)": 100 * called_false,
        "captions that are true of a foreign picture (%)": 100 * np.mean(y > 1),
        "pictures that a caption is true of, mean": y.mean(),
        "foreign captions that are true of a picture, mean": (truth & ~own).sum(0).mean(),
    }
)

# %% [markdown]
# Most of the true pairs count as wrong. More than half of the captions are true of their own picture alone, but a vague one is true of
# very many.
#
# ## Whose captions make the false negatives?
#
# The annotators are five characters. *Terse* says little, *counter* counts, *place first* begins with the place, *relations* says how
# things are arranged, *detail* loves colours and sizes.
#
# ```{exercise} A prediction
# :label: ex-01-predict
#
# Take all true pairs of an annotator's captions. The protocol calls a share of them false. Which annotator has the smallest share? Answer
# `"terse"`, `"counter"`, `"place first"`, `"relations"` or `"detail"` before you run the cells below.
# ```

# %%
from course.checks import check

your_prediction = "relations"  # your part: one of the five
check("01.predict", your_prediction)

# %% [markdown]
# To see which *facts* make a caption exact, we fit a rough model: each further fact multiplies the number of pictures that the caption is
# true of by a factor, one for each kind of fact. The cell prints how many of a hundred pictures remain.

# %%
turn = np.arange(Nc) % CAPTIONS_A_PICTURE  # (Nc,)   who speaks
weighed = ["thing", "place", "colour", "relation", "holding", "facing", "size"]
X = np.ones((Nc, 1 + len(weighed)))  # the facts of each kind that a caption says
for row, (found, said) in enumerate(every):
    kind = np.array([kind for kind, _, _ in found])
    for column, name in enumerate(weighed, 1):
        X[5 * row : 5 * row + 5, column] = said[kind == name].sum(0)
factors = np.exp(np.linalg.lstsq(X, np.log(y), rcond=None)[0][1:])
remain = {
    f"one {name} more": 100 * factor for name, factor in zip(weighed, factors, strict=True)
}
course.numbers(remain)

# %% tags=["hide-input"]
facts_said = np.concatenate([said.sum(0) for _, said in every])  # (Nc,)
dice = np.random.default_rng(seed)
resampled = [dice.integers(Ni, size=Ni) for _ in range(200)]  # pictures, with repetition


def false_shares(pictures: np.ndarray) -> np.ndarray:
    """The share of the true pairs of each annotator that the protocol calls false, in percent."""
    return 100 * (1 - len(pictures) / y.reshape(Ni, -1)[pictures].sum(0))


def remaining(pictures: np.ndarray) -> np.ndarray:
    """The percentage of pictures that remain when one more fact of a kind is said."""
    rows = (CAPTIONS_A_PICTURE * pictures[:, None] + np.arange(CAPTIONS_A_PICTURE)).ravel()
    return 100 * np.exp(np.linalg.lstsq(X[rows], np.log(y[rows]), rcond=None)[0][1:])


figure, panels = plt.subplots(1, 2, figsize=(8.8, 3.2))
said_by = [facts_said[turn == number].mean() for number in range(len(habits))]
labels = [f"{name} ({said:.1f})" for name, said in zip(habits, said_by, strict=True)]
for axes, measure, names, order in (
    (panels[0], false_shares, labels, np.argsort(said_by)),
    (panels[1], remaining, weighed, np.argsort(-factors)),
):
    point = measure(np.arange(Ni))[order]
    low, high = np.quantile(
        [measure(pictures) for pictures in resampled], [0.025, 0.975], axis=0
    )
    spread = [point - low[order], high[order] - point]
    axes.errorbar(
        point, range(len(order)), xerr=spread, fmt="o", color=plots.COLOURS[0], capsize=3
    )
    axes.set_yticks(range(len(order)), [names[place] for place in order])
    axes.grid(axis="y", visible=False)
share = dict(zip(habits, false_shares(np.arange(Ni)), strict=True))
lesson.finding("terse has the largest share", max(share, key=share.get) == "terse")
lesson.finding("relations has the smallest share", min(share, key=share.get) == "relations")
lesson.finding("detail says the most facts", habits[np.argmax(said_by)] == "detail")
panels[0].set(xlabel="true pairs called false (%)", ylabel="annotator (facts said, mean)")
panels[1].set(xlabel="pictures that remain of a hundred", ylabel="one more fact of this kind")
plots.show(
    figure,
    alt="Two dot plots with intervals. Left: the share of each annotator's true pairs that is called false, the annotators ordered by "
    "how many facts they say. Right: how many of a hundred pictures remain when one more fact of a kind is said.",
)

# %% [markdown]
# ```{solution} ex-01-predict
# :class: dropdown
#
# *Detail* says the most facts, but *relations* has the smallest share.
# ```
#
# Does it help to say more? Up to a point: *terse* says the fewest facts and has the largest share, but *detail* says the most and is not
# the best. The right panel suggests part of the reason. A caption with one more *thing* fits far fewer pictures; one with a size, or the
# way that something faces, hardly fewer, and *detail* loves those. (This is a fit, not an experiment: captions that say one kind of fact
# may differ in other ways too.) And a few vague captions make most of the false pairs: *I count one person* is true of very many
# pictures. The horizontal lines are 95 % intervals, from resampling the pictures with replacement (the bootstrap). In the middle they
# overlap, so read the panel as a coarse order.
#
# ## In a batch
#
# Training looks at *batches*. Suppose that each has $B$ different pictures, each with one of its captions. (Ours may hold a picture
# twice.) Every other pair of the batch counts as a *negative*. How many are false negatives? Write the pairs of a random batch as a matrix
# with the own pairs on the diagonal. Cells off the diagonal are foreign pairs. Over the whole split, the share of true ones is
#
# $$\varphi = \frac{\sum_c (y_c - 1)}{N_{\mathrm{c}} (N_{\mathrm{i}} - 1)}, \qquad \text{so we expect} \qquad B (B - 1)\, \varphi \qquad \text{false negatives.}$$
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
from course.checks import exercise


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
# Each caption has one own picture, so $N_{\mathrm{c}} N_{\mathrm{i}} - N_{\mathrm{c}}$ of the cells are foreign.
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


# %% tags=["hide-input"]
def chance_of_one(y: np.ndarray, Ni: int, B: int) -> np.ndarray:
    j = np.arange(B - 1)
    missed = np.prod((Ni - y[:, None] - j) / (Ni - 1 - j), axis=1)  # (Nc,)   the product above
    return 1 - missed


def drawn_batch(B: int) -> tuple[int, float]:
    """The false negatives of a random batch, and the share of captions that meet one."""
    pictures = dice.choice(Ni, B, replace=False)
    rows = CAPTIONS_A_PICTURE * pictures + dice.integers(CAPTIONS_A_PICTURE, size=B)
    cells = truth[np.ix_(rows, pictures)]  # (B, B)   the diagonal is true
    return cells.sum() - B, np.mean(cells.sum(1) > 1)


# %%
B = 128
dice = np.random.default_rng(seed)
counted = np.array([drawn_batch(B) for _ in range(400)])  # (400, 2)
expected = expected_false_negatives(truth, owner, B)
course.numbers(
    {
        "false negatives in a batch of 128, expected": expected,
        "false negatives in a batch of 128, counted": counted[:, 0].mean(),
        "captions that meet one (%), expected": 100 * chance_of_one(y, Ni, B).mean(),
        "captions that meet one (%), counted": 100 * counted[:, 1].mean(),
    }
)

# %% tags=["hide-input"]
sizes = [size for size in (2, 4, 8, 16, 32, 64, 128, 256, 512) if size <= Ni]
chances = {size: 100 * chance_of_one(y, Ni, size) for size in sizes}  # each (Nc,)
figure, axes = plt.subplots(figsize=(6, 3.6))
lines = {
    name: (sizes, [chances[size][turn == number].mean() for size in sizes])
    for number, name in enumerate(habits)
}
plots.curves(
    axes, lines, x="pictures in a batch, B", y="captions that meet\na false negative (%)"
)
axes.plot(
    sizes,
    [chances[size].mean() for size in sizes],
    color="black",
    linewidth=3,
    alpha=0.35,
    label="all",
)
draws = [100 * np.mean([drawn_batch(size)[1] for _ in range(100)]) for size in sizes]
axes.scatter(
    sizes,
    draws,
    s=40,
    color="black",
    marker="x",
    zorder=3,
    label="all, counted in drawn batches",
)
axes.set_xscale("log", base=2)
axes.set_xticks(sizes, sizes)
axes.legend(fontsize=8.5)
plots.show(
    figure,
    alt="The share of captions with at least one false negative in their batch, against the size of the batch, for each annotator and for "
    "all: it grows from nearly nothing to a third and more. Crosses, counted in drawn batches, lie on the line of all.",
)

# %% [markdown]
# The crosses lie on the line. In a batch of the usual size many captions meet a foreign picture they are true of. Training makes a caption
# less similar to its negatives, and so to this picture too. In a loss that sums over all negatives, a few false ones weigh little. A loss
# that looks only at the most similar negative picks false ones more often, as [Offline negatives](08_offline_negatives.ipynb) measures.
# Remember this for [Learning to rank](04_learning_to_rank.ipynb).
#
# ```{exercise} Change one thing
# :label: ex-01-explore
#
# `expected_false_negatives(truth[kept], owner[kept], B)` counts only some of the captions. Leave out an annotator (`turn`), or change $B$.
# First write down what you expect and why, and afterwards what you found.
# ```

# %%
from course.checks import check

your_expectation = "Less than half remain: terse writes the vaguest."  # your part
# your part
kept = turn != habits.index("terse")
fewer = expected_false_negatives(truth[kept], owner[kept], B)
course.numbers({"false negatives in a batch, without terse": fewer})
# end of your part
your_finding = "Many go, but more than half remain: the other four write them too."  # your part
check("01.explore", (your_expectation, your_finding))

# %% [markdown]
# ```{solution} ex-01-explore
# :class: dropdown
#
# A wrong expectation is a good result if you can say what it overlooked: here, that the other four annotators write four fifths of the
# captions.
# ```
#
# ## And photographs?
#
# Nobody knows all facts of a photograph, but people have looked. For COCO's test split, *CxC* (Crisscrossed Captions,
# {cite}`parekh2021cxc`) had people rate pairs that were chosen for being alike, and *ECCV Caption* {cite}`chun2022eccv` let five retrieval
# systems propose pairs and people confirm them. How many right answers do these lists know?

# %%
lines = ["| right by | captions of a picture | pictures of a caption |", "| --- | --- | --- |"]
for benchmark, name in (("coco", "protocol, COCO"), ("cxc", "CxC"), ("eccv", "ECCV Caption")):
    sides = [
        np.mean([len(items) for items in side.values()]) for side in right_items(benchmark)
    ]
    lines.append(f"| {name} | {sides[0]:.1f} | {sides[1]:.1f} |")
lines.append(f"| exact truth, embedded world | {truth.sum(0).mean():.1f} | {y.mean():.1f} |")
Markdown("\n".join(lines))

# %% [markdown]
# Neither list is complete: most pairs were never looked at, and ECCV Caption covers only a part of the split. Our world is smaller and
# simpler than COCO, but its numbers are of the same order as ECCV Caption's. So false negatives are no oddity of a drawn world.
# [The joint space](03_joint_space.ipynb) shows which measures use such lists.
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | five captions a picture, each right for its owner, {cite}`hodosh2013framing` | `own` | `Split.owner`, `vsecore.evaluation.ranks` |
# | a sentence is true of a scene | `true_of` | `vsecore.scenes.holds` |
# | relevance, $y_{ci}$ | the double loop | `vsecore.scenes.relevance`, `Lesson.relevance` |
# | extended judgements, {cite}`parekh2021cxc`, {cite}`chun2022eccv` | the table above | `vsecore.data.coco_judgements` |
#
# ## Summary
#
# - A caption says a fact if changing that fact alone makes the caption false.
# - Five captions name most things and leave out most relations.
# - The five-caption protocol calls most true pairs of our world false; vague captions make many of them.
# - The larger the batch, the more captions meet a false negative in it.
#
# ## Where to read on
#
# - [Encoders: what the vectors see](02_encoders.ipynb) turns these pictures and captions into vectors.
# - Image description as a ranking task: {cite}`hodosh2013framing`. How COCO's captions were collected: {cite}`lin2014coco`.
# - What is missing in COCO's pairs, and what that does to the order of systems: {cite}`parekh2021cxc` and {cite}`chun2022eccv`.
