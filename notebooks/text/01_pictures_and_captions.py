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
# **You will be able to** say what five people tell of a picture and what they leave out, judge exactly which caption is true
# of which picture, and count how many true pairs the field's protocol calls false, in a collection and in a batch.
#
# **You need** the notebook *Start here*, and to read a little Python.
#
# **It takes** about half a minute and 1 GB of memory on two cores.

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

from vsecore import course
from vsecore.course import plots
from vsecore.course.checks import check
from vsecore import scenes
from vsecore.data.coco_judgements import right_items
from vsecore.data.annotations import CAPTIONS_A_PICTURE, SPLITS
from vsecore.data.words import tokenize
from vsecore.course.widgets import explorer

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
dataset = lesson.dataset("grid")
world = scenes.pictures("test", lesson.pick(smoke=200, lesson=1000, full=1000))

# %% [markdown]
# ## Five people look at a picture
#
# A collection for retrieval is made like this: people are shown a picture and asked to describe it, and each writes a sentence, a
# *caption*. Five people describe each picture; whoever describes is an *annotator*. Below, three pictures with all that
# was written of them. Read first, and notice what you see that nobody wrote.


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
    for axes in (left, right):
        axes.axis("off")
plots.show(
    figure,
    alt="Three pictures, one below the other, each with its five captions beside it. The captions of a picture differ in "
    "what they name, in length, and in how exact they are.",
)

# %% [markdown]
# The pictures are dealt into three *splits*, once and for all: a system learns from `train`, is chosen by `dev`, and is reported
# on `test`. Three numbers describe a split: $N_{\mathrm{i}}$ pictures, $N_{\mathrm{c}}$ captions, and for each caption $c$ its *owner* $o(c)$, the
# row of the picture that it was written for.

# %%
for split in (dataset.train, dataset.dev, dataset.test):
    print(f"{split.name}: {len(split)} pictures, {len(split.captions)} captions")
print("owners of the first captions of test:", dataset.test.owner[:12].tolist())

# %% [markdown]
# For photographs everybody uses the splits of one file a collection, those of {cite}`karpathy2015alignments`, so that numbers can be
# compared. It covers Flickr8k {cite}`hodosh2013framing`, Flickr30K {cite}`young2014flickr30k` and COCO {cite}`lin2014coco`. Two
# habits of the field are not in the file, and a reader of papers must know them. COCO has a fourth split, `restval`, which all later
# work trains with. And some of COCO's pictures have six or seven captions: the first five count.

# %%
print("the file's word for a split -> ours:", SPLITS)
print("captions of a picture that count:", CAPTIONS_A_PICTURE)

# %% [markdown]
# ## How they speak
#
# The world's annotators are five characters, and each describes every picture: *terse* says little, *counter* counts,
# *place first* begins with where it is, *relations* says how things stand to each other, *detail* loves colours and sizes. (In
# real collections the five people change from picture to picture.) Left, how long their sentences are; right, every word of
# the training captions, from the most frequent to the rarest.

# %%
counts = Counter(word for caption in dataset.train.captions for word in tokenize(caption))
frequency = np.array(sorted(counts.values(), reverse=True))  # the most frequent word first
print(f"{frequency.sum()} words written, {len(frequency)} different ones,")
print(f"{np.sum(frequency < 4)} of them fewer than four times; most often: ", end="")
print(*(word for word, _ in counts.most_common(8)), sep=", ")

# %% tags=["hide-input"]
owner = dataset.test.owner  # (Nc,)
turn = np.arange(len(owner)) - np.searchsorted(
    owner, owner
)  # (Nc,)   first, second, ... caption
speakers = (
    [caption.annotator.replace("_", " ") for caption in world[0].captions]
    if data == "scenes"
    else [f"caption {place}" for place in range(1, CAPTIONS_A_PICTURE + 1)]
)
lengths = np.array([len(tokenize(caption)) for caption in dataset.test.captions])  # (Nc,)

figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.4))
across = np.arange(lengths.min(), min(lengths.max(), 30) + 1)
lines = {
    name: (across, [100 * np.mean(lengths[turn == place] == words) for words in across])
    for place, name in enumerate(speakers)
}
plots.curves(panels[0], lines, x="words in a caption", y="share of the captions (%)")
place = np.arange(1, len(frequency) + 1)
panels[1].loglog(place, frequency, color=plots.COLOURS[0], label="counted")
panels[1].loglog(
    place, frequency[0] / place, color="0.5", linestyle="--", label="most frequent / place"
)
panels[1].set(
    xlabel="place of the word, by frequency", ylabel="times written", ylim=(0.8, None)
)
panels[1].legend()
plots.show(
    figure,
    alt="Left: how many captions have how many words, a line for each of the five; the lines overlap widely. Right: times that a "
    "word is written against its place by frequency, both on logarithmic axes, beside the straight line of Zipf's law.",
)

# %% [markdown]
# Only *terse* could be told by length. On the right, *Zipf's law* says that the second word in the order is half as frequent as the
# first, the third a third: a straight line on these axes, and natural language follows it far down. The embedded world follows it
# for its frequent words; then its annotators' short list of words ends, and the curve falls off a cliff. Photographs have a long tail
# instead: many words are written once or twice. A system cannot learn such a word, and takes it for *unknown*;
# {cite}`faghri2018vsepp` does so with words seen fewer than four times.
#
# Five people, one picture: do they repeat each other? Of the words of a caption, count those that none of the four others wrote.

# %%
alone = []
for row in range(len(dataset.test)):
    bags = [set(tokenize(dataset.test.captions[c])) for c in own_captions(row)]
    for bag in bags:
        siblings = set().union(*(other for other in bags if other is not bag))
        alone.append(len(bag - siblings) / len(bag))

lesson.report(
    "01_words",
    {"words that no other caption of the picture has (%)": 100 * np.mean(alone)},
)

# %% [markdown]
# A good part of what a caption says is in no other. But words are not facts: *boat* and *ship* are two words for one. What
# is said, and what is not, needs a world that knows its facts.

# %% tags=["hide-input"]
if data != "scenes":
    print(
        "What is true of these photographs nobody has written down. Where truth is needed, the cells below speak of "
        "the embedded world; they come back to photographs at the end."
    )

# %% [markdown]
# ## What there is to say
#
# A picture of the embedded world is drawn from *facts*: a place; things, each with its kind, colour, perhaps a size and
# a side that it looks to; and *relations* between two things. Nothing else is true of it. Here are the facts of picture 12, a girl with an umbrella:

# %%
scene = world[12].scene
print("place:", scene.place)
for number, thing in enumerate(scene.things):
    print(
        number,
        thing.kind,
        thing.colour,
        thing.size or "",
        f"looks {thing.facing}" * bool(thing.facing),
    )
print("; ".join(f"{i} {relation} {j}" for relation, i, j in scene.relations))

# %% [markdown]
# When does a caption *say* a fact? The answer needs no grammar: **a caption says a fact if it would be false, were that fact alone
# otherwise.** *Umbrella on the beach* says the place, for at the lake it would be false; it does not say the colour, for of a red umbrella
# it would be as true. So write down each fact with the scene in which it is otherwise. A thing is
# otherwise if it is not there, a colour if it is another, a relation if it does not hold.


# %%
def without(scene, i):  # thing i is not there
    rest = [j for j in range(len(scene.things)) if j != i]
    kept = [relation for relation in scene.relations if i not in relation[1:]]
    relations = tuple((name, rest.index(a), rest.index(b)) for name, a, b in kept)
    return replace(scene, things=tuple(scene.things[j] for j in rest), relations=relations)


def changed(scene, i, **attribute):  # thing i is otherwise
    things = [
        replace(thing, **attribute) if j == i else thing for j, thing in enumerate(scene.things)
    ]
    return replace(scene, things=tuple(things))


def unrelated(scene, *gone):  # these relations do not hold
    return replace(scene, relations=tuple(r for r in scene.relations if r not in gone))


# %%
def named(scene) -> list[str]:  # "girl"; "flower 1" and "flower 2" where there are two
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


# %% [markdown]
# *Left of* and *right of* are one fact, said from two sides. And where there are two flowers, it is a fact that there is no third.


# %%
def facts_of_relations(scene):
    mirrored = {"left of": "right of", "right of": "left of", "beside": "beside"}
    name = named(scene)
    for relation, a, b in scene.relations:
        twin = (mirrored.get(relation), b, a)
        if twin not in scene.relations or a < b:
            kind = "holding" if relation == "holding" else "relation"
            otherwise = unrelated(scene, (relation, a, b), twin)
            yield kind, f"{name[a]} {relation} {name[b]}", otherwise


def facts(scene):
    """Each fact: its kind, its words, and the scene in which it alone is otherwise."""
    yield "place", scene.place, replace(scene, place="elsewhere")
    yield from facts_of_things(scene)
    for kind, count in Counter(thing.kind for thing in scene.things).items():
        if count > 1:
            like = next(thing for thing in scene.things if thing.kind == kind)
            one_more = replace(scene, things=(*scene.things, like))
            yield "count", f"{kind}: {count}, no more", one_more
    yield from facts_of_relations(scene)


# %% [markdown]
# Then the definition is one line: `holds(form, scene)` decides whether a caption is true of a scene (how it does that comes next).


# %%
def says(picture):
    """The facts of a picture, and which of its captions says which, (facts, captions)."""
    found = list(facts(picture.scene))
    said = [
        [not scenes.holds(caption.form, otherwise) for caption in picture.captions]
        for _, _, otherwise in found
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
# In orange, the facts that nobody says. Leaf through more pictures. Read the captions first, then open the facts. In
# JupyterLab and in the book the buttons work; no Python answers them, for the pages are linked in the browser.


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
# Now all pictures of the test split. For each kind of fact: which share of them does each annotator say, and which share do
# the five together?

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
plots.show(
    figure,
    alt="A table in colours: the share of the facts of each kind that each of the five annotators says, and that any of them "
    "says. Together the five name nearly every thing, every place and count, but only a part of sizes, relations and facings.",
)

# %% [markdown]
# Together the five name nearly every thing. Of how things stand to each other they tell the smaller part: there are many relations in
# a picture, and to speak of one takes a clause. A system that learns from captions is asked for what captions say, and here
# begins the thesis that relations deserve a design of their own {cite}`yan2019relational`. Of what five leave out, a system that is
# measured by captions never hears.
#
# ## When is a sentence true?
#
# Below the words a caption has a *logical form*: the things that it speaks of (its *entities*), each with what is said of it, the
# place, and which relations it claims. Synonyms and word order are gone; what the sentence claims remains.

# %%
caption = world[12].captions[3]
print(caption.text)
for part, said in caption.form.to_dict().items():
    print(part, *(said if isinstance(said, list) else [said]), sep="\n  ")

# %% [markdown]
# A form is true of a scene if the place is right and each entity can be *given* things of the scene, so that
#
# 1. what is said of an entity fits what it is given: one thing, or for *two dogs* all dogs there are, and they are two;
# 2. nothing is given twice: two noun phrases speak of two things;
# 3. every relation that is claimed stands between what was given.
#
# The second and the third, once things are given:


# %%
def consistent(given, form, scene) -> bool:
    used = [i for group in given for i in group]
    nothing_twice = len(set(used)) == len(used)  # 2
    return nothing_twice and all(
        (name, a, b) in scene.relations  # 3
        for name, i, j in form.relations
        for a, b in itertools.product(given[i], given[j])
    )


# %% [markdown]
# And the first. What an entity may be given is a list of groups of things, and all ways to choose one group for each are tried:


# %%
def true_of(form, scene) -> bool:
    carried = {i for name, i, _ in scene.relations if name == "on"}
    choices = []
    for entity in form.entities:
        fit = tuple(
            i for i, thing in enumerate(scene.things) if entity.fits(thing, i in carried)
        )  # 1
        all_of_them = [fit] if len(fit) == entity.count else []
        choices.append([(i,) for i in fit] if entity.count == 1 else all_of_them)
    ways = itertools.product(*choices)
    return form.place in (None, scene.place) and any(
        consistent(way, form, scene) for way in ways
    )


# %% [markdown]
# The package's `holds` must say the same, of every caption and every picture of a piece of the split:

# %%
captions = [caption for picture in world for caption in picture.captions]
few = lesson.pick(smoke=25, lesson=150, full=150)
for caption, picture in itertools.product(captions[: 2 * few], world[:few]):
    assert true_of(caption.form, picture.scene) == scenes.holds(caption.form, picture.scene)
print("scenes.holds agrees with the cell, on", 2 * few * few, "pairs")

# %% [markdown]
# Sentences can be read, too, not only written: `parse` turns English of this small world into a form. Write your own and run the
# cell; a word that the world does not know is told.

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
# ## One caption, many pictures
#
# Whoever writes a caption looks at one picture. But the sentence is true or false of every other picture as well. Here are three
# pictures and two captions of each:

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
# The field's *five-caption protocol* knows the solid lines alone: a caption is right for its owner and wrong for every
# other picture. Systems are trained so and papers report so. A dashed line is a *false negative*: a pair that is true and counts as
# wrong. How many are there? Write the truth as a matrix, the *relevance*,
#
# $$y_{ci} = \begin{cases} 1 & \text{if caption } c \text{ is true of picture } i, \\ 0 & \text{otherwise,} \end{cases}$$
#
# of $N_{\mathrm{c}}$ rows and $N_{\mathrm{i}}$ columns. The obvious way to get it is a double loop; `relevance` looks most of it up in tables:

# %%
truth = scenes.relevance(captions, [picture.scene for picture in world])  # (Nc, Ni)
piece = [[true_of(c.form, p.scene) for p in world[:few]] for c in captions[: 5 * few]]
np.testing.assert_array_equal(piece, truth[: 5 * few, :few])
print("scenes.relevance agrees with the double loop; it has shape", truth.shape)

# %% [markdown]
# A piece of it, with the pictures put in the order of their places: blue is what the protocol knows, orange what it calls false.

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
# Few captions make many of the orange cells. With $y_c = \sum_i y_{ci}$, the number of pictures that caption $c$ is true of, the share of
# the true pairs that the protocol calls false is
#
# $$\frac{\sum_c \sum_{i \neq o(c)} y_{ci}}{\sum_c \sum_i y_{ci}} = 1 - \frac{N_{\mathrm{c}}}{\sum_c y_c} ,$$
#
# since each caption is true of its own picture. Guess before you look: a tenth? A half?

# %%
y = truth.sum(1)  # (Nc,)   y_c
called_false = (truth & ~own).sum() / truth.sum()
np.testing.assert_allclose(called_false, 1 - Nc / y.sum())  # the two sides of the equation
lesson.report(
    "01_protocol",
    {
        "true pairs that the protocol calls false (%)": 100 * called_false,
        "captions that are true of a foreign picture (%)": 100 * np.mean(y > 1),
        "pictures that a caption is true of, mean": y.mean(),
        "foreign captions that are true of a picture, mean": (truth & ~own).sum(0).mean(),
    },
)

# %% [markdown]
# Most of what is true counts as wrong. Not because most captions are vague, for most are true of their own picture alone, but
# because a vague one is true of so many. Who writes those?

# %%
turn = np.arange(Nc) % CAPTIONS_A_PICTURE  # (Nc,)   who speaks
lines = [
    "| annotator | pictures, mean | only its own (%) | true pairs called false (%) |",
    "| --- | --- | --- | --- |",
]
for number, name in enumerate(habits):
    theirs = y[turn == number]
    false = 100 * (1 - len(theirs) / theirs.sum())
    lines.append(
        f"| {name} | {theirs.mean():.1f} | {100 * np.mean(theirs == 1):.0f} | {false:.0f} |"
    )
Markdown("\n".join(lines))

# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(8.8, 3.5))
steps = np.unique(np.geomspace(1, y.max(), 40).astype(int))
lines = {
    name: (steps, [100 * np.mean(y[turn == number] >= step) for step in steps])
    for number, name in enumerate(habits)
}
plots.curves(panels[0], lines, x="pictures, at least", y="captions true of so many (%)")
for line in panels[0].lines:
    line.set_markevery(4)
panels[0].set(xscale="log", yscale="log", ylim=(0.07, 130))
panels[0].legend()
foreign = (truth & ~own).sum(0)  # (Ni,)
panels[1].hist(
    foreign, bins=range(0, foreign.max() + 4, 3), color=plots.COLOURS[0], edgecolor="white"
)
panels[1].axvline(
    CAPTIONS_A_PICTURE, color=plots.COLOURS[1], linestyle="--", label="its own captions"
)
panels[1].set(xlabel="foreign captions true of a picture", ylabel="pictures")
panels[1].legend()
plots.show(
    figure,
    alt="Left, on logarithmic axes: the share of each annotator's captions that is true of at least so many pictures; the line of "
    "the terse one lies far above the others. Right: how many foreign captions are true of a picture; nearly every picture has more of them "
    "than it has captions of its own, marked by a dashed line.",
)

# %% [markdown]
# No annotator is blameless, but *terse* has by far the largest share. And the right panel turns the question round: to
# look for captions with a picture is to have more right answers outside the protocol than in it.
#
# ## In a batch
#
# Training looks at *batches*: $B$ different pictures, each with one of its captions; every other pair of the batch is taken for a negative. Draw
# a batch at random. A cell off the diagonal is a foreign pair like any other, so it is true with the chance
#
# $$\varphi = \frac{\sum_c (y_c - 1)}{N_{\mathrm{c}} (N_{\mathrm{i}} - 1)}, \qquad \text{and} \qquad B (B - 1)\, \varphi$$
#
# false negatives are expected. That they lie in few rows is another matter. Caption $c$ has $y_c - 1$ foreign pictures that it is true
# of; the batch draws $B - 1$ of the $N_{\mathrm{i}} - 1$ foreign ones, without putting back, and misses all of them with the chance
#
# $$\prod_{j=0}^{B-2} \frac{N_{\mathrm{i}} - y_c - j}{N_{\mathrm{i}} - 1 - j} .$$


# %%
def expected_false_negatives(y: np.ndarray, Ni: int, B: int) -> float:
    share = (y - 1).sum() / (len(y) * (Ni - 1))  # φ
    return B * (B - 1) * share


def chance_of_one(y: np.ndarray, Ni: int, B: int) -> np.ndarray:
    j = np.arange(B - 1)
    missed = np.prod((Ni - y[:, None] - j) / (Ni - 1 - j), axis=1)  # (Nc,)   the product above
    return 1 - missed


# %% [markdown]
# Formulas can be wrong. So draw batches, too, and count:

# %%
dice = np.random.default_rng(seed)


def drawn_batch(B: int) -> tuple[int, float]:
    pictures = dice.choice(Ni, B, replace=False)
    rows = CAPTIONS_A_PICTURE * pictures + dice.integers(CAPTIONS_A_PICTURE, size=B)
    cells = truth[np.ix_(rows, pictures)]  # (B, B)   the diagonal is true
    return cells.sum() - B, np.mean(cells.sum(1) > 1)


B = 128
counted = np.array([drawn_batch(B) for _ in range(400)])  # (400, 2)
lesson.report(
    "01_batch",
    {
        "false negatives in a batch of 128, expected": expected_false_negatives(y, Ni, B),
        "false negatives in a batch of 128, counted": counted[:, 0].mean(),
        "captions that meet one (%), expected": 100 * chance_of_one(y, Ni, B).mean(),
        "captions that meet one (%), counted": 100 * counted[:, 1].mean(),
    },
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
# The crosses lie on the line. In a batch of the usual size many a caption has a picture beside it that it is true of, and it is
# taught to push that picture away. Larger batches, which contrastive losses love, have more of it. A loss that sums over all negatives
# hardly notices; one that minds only the most similar of them picks the false one just when the model has understood the
# sentence. Keep this in mind for *Learning to rank* and for the notebooks on offline negatives.
#
# ## An experiment that could fail
#
# Two guesses about who is guilty:
#
# 1. **Longer captions are true of fewer pictures**, not only because *terse* is short: for each annotator by itself.
# 2. **The annotator who says the most facts has the fewest false negatives.**
#
# The first is measured by a *rank correlation*: put all captions in the order of their words and in the order of $y_c$; the correlation of their
# places is 1 if the orders agree, −1 if one is the other reversed, 0 if they have nothing to do with each other. If a
# number below is above zero, the first guess is wrong.


# %%
def places(values: np.ndarray) -> np.ndarray:  # equal values share the mean of their places
    _, which, times = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(times) - (times - 1) / 2)[which]


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    return np.corrcoef(places(one), places(other))[0, 1]


words = np.array([len(tokenize(caption.text)) for caption in captions])  # (Nc,)
measured = {
    f"{name}: words and pictures, times 100": 100
    * rank_correlation(words[turn == number], y[turn == number])
    for number, name in enumerate(habits)
}
lesson.report("01_longer", measured)

# %% tags=["hide-input"]
facts_said = np.concatenate([said.sum(0) for _, said in every])  # (Nc,)
figure, panels = plt.subplots(1, 2, figsize=(8.8, 3.6))
lines = {}
for number, name in enumerate(habits):
    sizes = [size for size in range(4, 19) if np.sum(words[turn == number] == size) >= 8]
    lines[name] = (sizes, [y[(turn == number) & (words == size)].mean() for size in sizes])
plots.curves(panels[0], lines, x="words in the caption", y="pictures it is true of, mean")
panels[0].set(yscale="log")
for number, name in enumerate(habits):
    theirs = turn == number
    across, up = facts_said[theirs].mean(), 100 * (1 - theirs.sum() / y[theirs].sum())
    panels[1].scatter(
        across, up, color=plots.COLOURS[number], marker=plots.MARKERS[number], s=50
    )
    panels[1].annotate(
        name, (across, up), xytext=(0, 8), textcoords="offset points", ha="center"
    )
panels[1].set(xlabel="facts said in a caption, mean", ylabel="true pairs called false (%)")
panels[1].margins(0.2)
plots.show(
    figure,
    alt="Left: the mean number of pictures that a caption is true of falls with its words, for each annotator, on a logarithmic "
    "axis. Right: the annotators by the facts that they say and by their share of false negatives; the one who says the most facts is not lowest.",
)

# %% [markdown]
# The first guess stands: every number is below zero, and every line falls, with bumps where captions are few. The second falls: *detail* says the most facts, yet *relations* and
# *place first* have fewer false negatives. Facts are not alike. A rough sum says how: let each further fact of a kind
# multiply $y_c$ by a factor of its own, and fit the factors on a logarithmic scale. (Counts are left out: who says *two dogs* has named
# both.) The report gives the pictures that remain of a hundred, when one more fact is said:

# %%
weighed = ["thing", "place", "colour", "relation", "holding", "facing", "size"]
X = np.ones((Nc, 1 + len(weighed)))
for row, (found, said) in enumerate(every):
    kind = np.array([kind for kind, _, _ in found])
    for column, name in enumerate(weighed, 1):
        X[5 * row : 5 * row + 5, column] = said[kind == name].sum(0)
factors = np.exp(np.linalg.lstsq(X, np.log(y), rcond=None)[0][1:])
remain = {
    f"one {name} more": 100 * factor for name, factor in zip(weighed, factors, strict=True)
}
lesson.report("01_facts", remain)

# %% [markdown]
# To name one more thing excludes the most. A side that something looks to, or a size, hardly excludes any, and those are what
# *detail* loves to say. What makes a caption exact is not how much it says but what.
#
# ## And photographs?
#
# Of photographs nobody knows the facts. People have looked, all the same. {cite}`hodosh2013framing` let people grade pairs of Flickr8k in
# the paper that made ranking captions a task. For COCO's test split there are two larger efforts:
# *CxC* (Crisscrossed Captions, {cite}`parekh2021cxc`) had people rate pairs that were chosen for being alike; *ECCV Caption* {cite}`chun2022eccv` let
# five retrieval systems propose pairs and people confirm them. The lists come with the authors' package. How many right answers do
# they know, where the protocol knows five captions a picture and one picture a caption?

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
# The abstract of ECCV Caption states both of its numbers as multiples of the protocol's, and the lists bear them out. Neither
# list is complete: a pair that no model proposed nobody has looked at, and ECCV Caption covers a part of the split. Our world is
# smaller and simpler than COCO, so that its numbers are not COCO's; that they are of the same size says that the problem is no oddity of
# a drawn world. What measures to use on such lists is the subject of *The joint space*.
#
# ```{admonition} Where the code departs from the paper
# :class: note
#
# - **Whose caption it is.** The code that VSE++ released finds the picture of a caption by dividing its row by five, so that a collection
#   must have five captions for each picture, side by side. Here each split stores its `owner`.
# - **Which captions count.** In COCO's own annotations some pictures have more than five captions, and code that trains from them uses
#   all. The feature files that most papers share keep five. Here it is always the first five.
# - **restval.** {cite}`faghri2018vsepp` reports with these pictures and without them. Here they are always part of `train`, as in all
#   later work.
# ```
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | five captions a picture, each right for its owner, {cite}`hodosh2013framing` | `own` | `Split.owner`, `vsecore.evaluation.ranks` |
# | a sentence is true of a scene | `true_of` | `vsecore.scenes.holds` |
# | relevance, $y_{ci}$ | the double loop | `vsecore.scenes.relevance`, `Lesson.relevance` |
# | extended judgements, {cite}`parekh2021cxc`, {cite}`chun2022eccv` | the table above | `vsecore.data.coco_judgements` |
#
# ## Exercises
#
# ```{exercise-start} Count what the protocol calls false
# :label: ex-01-share
# ```
# Three pictures have two captions each: captions 0 and 1 were written for picture 0, captions 2 and 3 for picture 1, captions 4 and 5
# for picture 2. The matrix says what is true. How many percent of the true pairs does the protocol call false?
# ```{exercise-end}
# ```

# %%
small = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1]])  # (Nc, Ni)
your_share = ...
check("01.share", your_share)

# %% [markdown]
# ````{solution-start} ex-01-share
# :class: dropdown
# ````
# There are ten ones, and six of them are captions with their own pictures.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_share = 100 * (1 - len(small) / small.sum())
check("01.share", your_share)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Tell it apart
# :label: ex-01-sentence
# ```
# Be the sixth annotator of picture 12, the girl with the umbrella. Write a sentence that is true of it and of no other of the first 200
# pictures of the test split, in eight words at most. `lesson.true_of(sentence, "test", range(200))` judges for you, and so does
# the cell above in which you wrote a sentence of your own.
# ```{exercise-end}
# ```

# %%
your_sentence = ...
check("01.sentence", your_sentence)

# %% [markdown]
# ````{solution-start} ex-01-sentence
# :class: dropdown
# ````
# Two things and what joins them, with one colour, are enough.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_sentence = "A girl holds a purple umbrella."
check("01.sentence", your_sentence)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Expect false negatives
# :label: ex-01-batch
# ```
# Write the expected number of false negatives in a batch of `batch` pairs of different pictures, from the truth (Nc, Ni) and the owner
# (Nc,) of each caption. Pictures may have any equal number of captions.
# ```{exercise-end}
# ```


# %%
def your_expected(truth: np.ndarray, owner: np.ndarray, batch: int) -> float: ...


check("01.batch", your_expected)

# %% [markdown]
# ````{solution-start} ex-01-batch
# :class: dropdown
# ````
# The mean over the foreign pairs is $\varphi$; a batch has as many cells off its diagonal as it has ordered pairs of different rows.


# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
def your_expected(truth: np.ndarray, owner: np.ndarray, batch: int) -> float:
    own = owner[:, None] == np.arange(truth.shape[1])  # (Nc, Ni)
    return batch * (batch - 1) * truth[~own].mean()


check("01.batch", your_expected)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Break it
# :label: ex-01-break
# ```
# In `consistent`, put `True` in place of `nothing_twice`: now one thing may be given to two entities. Find a sentence that this careless judge
# calls true of picture 12 although it is false: `true_of(scenes.parse(sentence), world[12].scene)`. (Put the line back afterwards.)
# ```{exercise-end}
# ```

# %%
your_lie = ...
check("01.break", your_lie)

# %% [markdown]
# ````{solution-start} ex-01-break
# :class: dropdown
# ````
# A girl is a child. The careless judge gives the one girl to both.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_lie = "There is a girl and another child on the beach."
check("01.break", your_lie)

# %% [markdown]
# ````{solution-end}
# ````
#
# ## Where to read on
#
# - Describing pictures as a task of ranking, and why to rank rather than to generate: {cite}`hodosh2013framing`. How the captions of COCO
#   were collected: {cite}`lin2014coco`.
# - What is missing in COCO's pairs, and what it does to the order of systems: {cite}`parekh2021cxc` and {cite}`chun2022eccv`.
# - The next notebook, *Encoders: what the vectors see*, turns these pictures and captions into vectors.
