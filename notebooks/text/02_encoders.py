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
# # Encoders: what the vectors see
#
# **You will be able to** turn a picture into cells, regions or patches, write one step of a GRU and attention from scratch, and
# measure what a single vector has seen and what it knows.
#
# **You need** the notebook [Start here](00_start_here.ipynb), some PyTorch, and an idea of what a convolution is.
#
# **It takes** about half a minute and 1 GB of memory on two cores, once the world's pictures are drawn; the exercises take an hour.
#
# The map: **encode** → pool → compare → learn.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import matplotlib.pyplot as plt
import numpy as np
import tokenizers
import torch
from IPython.display import Markdown
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import course
from vsecore import scenes
from course import plots
from course.datasets import open_backbone
from vsecore.data.joining import mean_elements
from vsecore.data.language_models import model_folder
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.encoders import BERTEncoder, BiGRUEncoder, CellEncoder, RegionEncoder
from vsecore.pooling import MeanPool
from vsecore.scenes.build import boxes_of

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## A word finds its place
#
# An *encoder* is a network that turns a picture or a sentence into *elements*, parts with one vector each. Here the elements of a picture
# are the cells of a grid. How much does such a vector already know?
#
# Take the *mean* of all cells of each training picture, and fit one linear map from these means to the words of the captions. Nothing
# tells the map where anything is. (It is a *ridge regression*: least squares with a penalty on large weights. The *vocabulary* numbers the
# words of the training captions.)


# %%
def ridge(x, y):  # (n, F), (n, answers)
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x = (x - mean) / spread  # (n, F)
    penalty = 1e-3 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(x.T @ x + penalty, x.T @ (y - y.mean(0)))  # (F, answers)
    return lambda new: (new - mean) / spread @ weights + y.mean(0)  # (..., answers)


# %%
dataset = lesson.dataset("grid")
vocabulary = Vocabulary.build(dataset.train.captions)
tokens, mask = vocabulary.encode(dataset.train.captions)  # (Nc, L) each
owner = torch.as_tensor(dataset.train.owner)[:, None].expand_as(tokens)  # (Nc, L)
said = torch.zeros(len(dataset.train), len(vocabulary), dtype=torch.float64)
said[owner[mask], tokens[mask]] = 1  # (Ni, words)   1 where a caption says the word
means = torch.from_numpy(mean_elements(dataset.train)).double()  # (Ni, F)
to_words = ridge(means, said)

# %% [markdown]
# The map can read a single cell just as well. So we ask each cell of a test picture how strongly it speaks for a word {cite}`zhou2016cam`.
# Choose other words or another picture.

# %%
row = 12  # of the test split
asked = ["girl", "green", "umbrella", "sun", "bench"]  # words of the captions

# %% tags=["hide-input"]
shown = lesson.pictures("test", [row])[0]  # to look at: drawn larger than the networks see it
captions = [dataset.test.captions[one] for one in np.flatnonzero(dataset.test.owner == row)]
if data != "scenes":  # the rarest words that the captions have
    known = vocabulary.encode(captions)[0].unique()  # in the order of their frequency
    asked = [vocabulary.words[number - 4] for number in known.tolist() if number > 3][-5:]


def stage(axes, title: str) -> None:
    axes.imshow(shown, extent=(0, 7, 7, 0), interpolation="lanczos")
    axes.set(xticks=[], yticks=[], xlim=(0, 7), ylim=(7, 0), title=title)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def cells_of(split, rows) -> torch.Tensor:
    return torch.from_numpy(np.array(split.pictures[rows])).double()  # (n, N, F)


speaks = to_words(cells_of(dataset.test, [row])[0])  # (N, words)
side = round(len(speaks) ** 0.5)
figure, panels = plt.subplots(1, 6, figsize=(11.5, 2.3))
stage(panels[0], "the picture")
for axes, word in zip(panels[1:], asked, strict=False):
    stage(axes, word)
    axes.imshow(shown.mean(-1), extent=(0, 7, 7, 0), cmap="gray")  # only the heat has colours
    heat = speaks[:, vocabulary.numbers[word]].view(side, side)
    axes.imshow(heat, extent=(0, 7, 7, 0), cmap="viridis", alpha=0.65)
plots.show(
    figure,
    alt=f"A picture, and a heat map over it for each of the words {', '.join(asked)}. In the scene the cells that speak most strongly for a "
    "word, in yellow, lie on the thing that the word names, or on the thing that has the colour.",
)

# %% [markdown]
# The words have found their places. Is this picture special? For each kind
# of thing in each test picture, we check whether the middle of the strongest cell for its word lies in the box around the thing, and
# compare with a random cell:

# %% tags=["hide-input"]
pointing = {}
if data == "scenes":
    made = {
        split: scenes.pictures(split, len(getattr(dataset, split)))
        for split in ("train", "test")
    }
    every = to_words(cells_of(dataset.test, np.arange(len(dataset.test))))  # (Ni, N, words)
    across = (
        torch.arange(49) % 7 * 16 + 8
    ).numpy()  # (N,)   the middle of each cell, in pixels
    down = (torch.arange(49) // 7 * 16 + 8).numpy()
    hits, chances = [], []
    for number, picture in enumerate(made["test"]):
        for kind in {thing.kind for thing in picture.scene.things} & set(vocabulary.numbers):
            inside = np.zeros(49, bool)  # (N,)
            for thing in picture.scene.things:
                if thing.kind == kind:
                    left, top, right, bottom = thing.box
                    inside |= (
                        (left <= across) & (across < right) & (top <= down) & (down < bottom)
                    )
            hits.append(inside[every[number, :, vocabulary.numbers[kind]].argmax()])
            chances.append(inside.mean())
    pointing = {
        "the word's strongest cell lies on the thing (%)": 100 * np.mean(hits),
        "a random cell does (%)": 100 * np.mean(chances),
    }

# %% tags=["nbval-ignore-output"]
if pointing:
    course.numbers(pointing)
    hit, chance = pointing.values()
    lesson.finding(
        "the strongest cell lies on the thing about four times in five", 75 < hit < 90
    )
    lesson.finding("a random cell seldom lies on it", chance < 15)

# %% [markdown]
# It is not special: about four times in five, the strongest cell lies on the thing. The linear map never saw where a cell is, so the cells
# themselves must carry what is where. We made that easy: their network was trained to name what is in *each cell* of other scenes. So
# this does not show that places can be learned from captions alone.
#
# ## Three kinds of elements
#
# The network that looks at the pixels, the *backbone*, makes one of three kinds of elements:
#
# - *cells*: a convolutional network's last feature map is a coarse grid {cite}`jiang2020grid`;
# - *regions*: a detector draws a box around each thing, and each box gets a vector {cite}`anderson2018bottomup`;
# - *patches*: a *vision transformer* cuts the picture into squares, which then exchange information {cite}`dosovitskiy2021vit`.

# %% tags=["hide-input"]
backbone = open_backbone(data, lesson.data_root)
datasets, readers = {"cells": dataset}, {"cells": backbone}
if data == "scenes":
    datasets |= {"regions": lesson.dataset("region"), "patches": lesson.dataset("patch")}
    scene = made["test"][row].scene
    boxes = boxes_of(scene)  # (1 + things, 4)   the whole picture, then each thing
    small_cnn = scenes.load_network("scenes-cnn")
    readers["regions"] = lambda pixels: torch.stack(
        small_cnn.regions(pixels, [boxes] * len(pixels))
    )
    readers["patches"] = open_backbone(data, features="patch")
    pixels = np.array(scenes.pixels("test", len(dataset.test))[row])
else:
    print("Photographs come without boxes and without truth: here you see their cells only.")
    pixels = np.array(shown)
picture = torch.from_numpy(pixels).permute(2, 0, 1)[None]  # (1, 3, H, W)


def frame(axes, kind: str, element: int, **style) -> None:
    """Draw the frame of an element: its square of the grid, or its box."""
    if kind == "regions":
        left, top, right, bottom = (boxes[element] / 16).tolist()
    else:
        left, top = element % 7, element // 7
        right, bottom = left + 1, top + 1
    axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, **style))


figure, panels = plt.subplots(1, len(readers), figsize=(3 * len(readers), 3.2), squeeze=False)
for axes, kind in zip(panels[0], readers, strict=True):
    stage(axes, kind)
    if kind == "regions":
        for box in range(1, len(boxes)):
            colour = plots.COLOURS[(box - 1) % len(plots.COLOURS)]
            frame(axes, kind, box, color=colour, linewidth=2.5)
    else:
        for line in range(8):  # patches are cut apart, cells are not
            style = (
                {"color": "white", "linewidth": 5}
                if kind == "patches"
                else {"color": "black", "linewidth": 0.8}
            )
            axes.axhline(line, **style)
            axes.axvline(line, **style)
plots.show(
    figure,
    alt="The same picture with its elements drawn over it: cells as thin lines of a grid of seven by seven, regions as a box "
    "around each thing, patches as squares that are cut apart.",
)

# %%
with torch.no_grad():
    for kind, look in readers.items():
        print(f"{kind:8}", tuple(look(picture).shape))  # (1, N, F)

# %% [markdown]
# These are N elements of width F. Cells and patches cover everything, sky and sand too. Regions are few: the whole picture and one for
# each thing. (Our boxes are exact; a detector gets some wrong.)
#
# ## From features to elements
#
# The backbone has looked at each picture once, and its vectors lie on disk. A learned layer then brings each vector to the width D that
# pictures and sentences share. For cells and patches, one matrix does this.


# %%
class Cells(nn.Module):  # and patches
    def __init__(self, feature_dim: int, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(feature_dim, dim)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:  # (B, N, F)
        return self.project(cells)  # (B, N, D)


# %% [markdown]
# Regions get a second path of two layers {cite}`chen2021gpo`. Pictures have different numbers of regions, so a batch is filled up
# with *padding*, rows that stand for nothing, and a *mask* says which rows are real. The batch normalisation between the two layers must
# use only the real rows.


# %%
class Regions(nn.Module):
    def __init__(self, feature_dim: int, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(feature_dim, dim)
        self.hidden, self.out = nn.Linear(feature_dim, dim // 2), nn.Linear(dim // 2, dim)
        self.normalise = nn.BatchNorm1d(dim // 2)

    def forward(self, regions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        real = regions[mask]  # (R, F)   R real ones in the whole batch
        hidden = self.normalise(self.hidden(real)).relu()  # (R, D/2)
        elements = regions.new_zeros(*mask.shape, self.project.out_features)  # (B, N, D)
        elements[mask] = self.project(real) + self.out(hidden)  # padding stays zero
        return elements


# %% [markdown]
# With the same weights, the package's encoders give the same numbers.

# %%
torch.manual_seed(seed)
features = torch.randn(4, 6, 144)  # (B, N, F)
mask = torch.arange(6) < torch.tensor([6, 3, 5, 1])[:, None]  # (B, N)
for ours, theirs in (
    (Cells(144, 256), CellEncoder(144, 256)),
    (Regions(144, 256), RegionEncoder(144, 256)),
):
    ours.load_state_dict(theirs.state_dict())
    arguments = (features, mask) if isinstance(ours, Regions) else (features,)
    # On the real elements: nobody reads the padding.
    torch.testing.assert_close(ours(*arguments)[mask], theirs(*arguments)[0][mask])
print("CellEncoder and RegionEncoder agree with the cells above")

# %% [markdown]
# ```{exercise} A mean that padding cannot touch
# :label: ex-02-mean
#
# Write the mean of the real elements: `x` is (B, N, D), `mask` is (B, N), the result is (B, D). Padding may hold anything, also NaN,
# and must never reach the result. Gradients must flow back to `x`.
# ```
#
# ```{hint}
# :class: dropdown
#
# Zero times NaN is NaN. `torch.where` ignores what it leaves out.
# ```

# %%
from course.checks import exercise


@exercise("02.mean")
def mean_of_real(x, mask):  # (B, N, D), (B, N) -> (B, D)
    # your part
    real = torch.where(mask[..., None], x, 0)  # (B, N, D)
    return real.sum(1) / mask.sum(1, keepdim=True)  # (B, D)
    # end of your part


# %% [markdown]
# ````{solution} ex-02-mean
# :class: dropdown
#
# Choose with the mask instead of multiplying by it, and divide by the number of real elements, not by N.
# ````
#
# ## What does a vector see?
#
# Does a cell see only its own square? Paint one square over with the picture's mean colour, run the network again, and see how far each
# vector moves. What a vector does not see cannot move it.


# %%
@torch.no_grad()
def moved_by_paint(read, picture: torch.Tensor) -> torch.Tensor:
    side = picture.shape[-1] // 7
    painted = picture.repeat(49, 1, 1, 1)  # (49, 3, H, W)
    mean = picture.float().mean((0, 2, 3)).to(torch.uint8)[:, None, None]  # (3, 1, 1)
    for square in range(49):
        down, across = side * (square // 7), side * (square % 7)
        painted[square, :, down : down + side, across : across + side] = mean
    before, after = read(picture), read(painted)  # (1, N, F), (49, N, F)
    return (after - before).norm(dim=-1) / before.norm(dim=-1)  # (49, N)


moved = {kind: moved_by_paint(read, picture) for kind, read in readers.items()}

# %% [markdown]
# A square's colour says how far painting it moves the vector of the framed element, as a share of that vector's length. Where there is no
# colour, it is less than a thousandth.

# %% tags=["hide-input"]
chosen = {"cells": 39, "patches": 39}
if data == "scenes":
    things = [thing.kind for thing in scene.things]
    chosen["regions"] = 1 + (things.index("girl") if "girl" in things else 0)
figure, panels = plt.subplots(1, len(readers), figsize=(3 * len(readers), 3.4), squeeze=False)
for axes, (kind, shares) in zip(panels[0], moved.items(), strict=True):
    stage(axes, f"one of the {kind}")
    axes.imshow(shown.mean(-1), extent=(0, 7, 7, 0), cmap="gray")  # only the heat has colours
    squares = shares[:, chosen[kind]].view(7, 7).numpy()
    heat = axes.imshow(
        np.ma.masked_less(squares, 1e-3),
        extent=(0, 7, 7, 0),
        norm=LogNorm(1e-3, 1),
        cmap="viridis",
        alpha=0.75,
    )
    frame(axes, kind, chosen[kind], color=plots.COLOURS[1], linewidth=3)
    if kind != "regions" and row == 12:
        near = np.abs(np.indices((7, 7)) - np.reshape([5, 4], (2, 1, 1))).max(0) <= 1  # of 39
        lesson.finding(
            f"of the {kind}, one moves most for what is near",
            squares[near].mean() > 3 * squares[~near].mean(),
        )
    if kind == "patches":
        lesson.finding("a patch sees everything", squares.min() > 1e-3)
figure.colorbar(
    heat, ax=list(panels[0]), label="the vector moves (share of its length)", shrink=0.85
)
plots.show(
    figure,
    alt="Heat maps over the picture, of how far one framed element moves when a square is painted over. The cell and the region move "
    "most for squares near them and little or not at all for far ones; the patch moves most for its own square, and a little for all.",
)

# %% [markdown]
# Cells and regions see far beyond their frames, but mostly what is near. A patch sees everything: in each layer it has looked at all other
# patches. How far could a cell see? Its *receptive field* is the part of the picture that can reach it, and we can compute it. A
# convolution of width 3 reaches 2 steps further. A step is one cell of the convolution's input, and each stride makes steps larger in
# pixels:

# %%
reach, step = 1, 1  # in pixels
for layer in backbone.modules():
    if isinstance(layer, nn.Conv2d) and layer.kernel_size[0] > 1:
        reach += (layer.kernel_size[0] - 1) * step
        step *= layer.stride[0]
print(f"a cell stands for {step} pixels, and a square of {reach} pixels can reach it;")
print(f"the picture is {picture.shape[-1]} pixels wide")

# %% [markdown]
# So a cell in the middle could see everything, but hardly uses what is far away.
#
# ## What does a vector know?
#
# **Question.** *Seeing* a thing is not the same as *knowing* it. A patch has seen the whole picture. Does its vector also know what is far away?
#
# **What we do.** A *linear probe* is a ridge regression that reads one fact from one vector. From the vector at the middle of a thing, it
# names the kind of the thing here, and the kind of the thing farthest away. For comparison, another probe gets only the name of the place:
# cows live on farms.
#
# ```{exercise} The farthest thing
# :label: ex-02-far
#
# Given a patch, how often will it name the farthest thing? Write `"rarely"`, `"half the time"` or `"mostly"` before you run the next
# cells.
# ```

# %%
from course.checks import check

your_guess = "rarely"  # your part: one of the three
check("02.far", your_guess)


# %% tags=["hide-input"]
def things_of(
    elements: str, split: str
) -> tuple[torch.Tensor, dict[str, np.ndarray], np.ndarray]:
    """For each thing: the vector at its middle, the answers to four questions, and its picture's number."""
    alone = elements == "the place alone"
    part = getattr(datasets["cells" if alone else elements], split)
    features = np.asarray(part.pictures[np.arange(len(part))])  # (Ni, N, F)
    vectors, answers, numbers = [], [], []
    for number, picture in enumerate(made[split]):
        things = picture.scene.things
        corners = np.array([thing.box for thing in things])  # (things, 4)
        middles = (corners[:, :2] + corners[:, 2:]) / 2  # (things, 2)   across, down
        place = np.array(scenes.PLACES) == picture.scene.place  # (places,)
        for own, thing in enumerate(things):
            order = np.hypot(*(middles - middles[own]).T).argsort()  # (things,)   itself first
            across, down = np.minimum(middles[own] // 16, 6).astype(int)
            element = 1 + own if elements == "regions" else 7 * down + across
            vectors.append(place if alone else features[number, element])
            nearest, farthest = things[order[min(1, len(order) - 1)]], things[order[-1]]
            answers.append((thing.kind, farthest.kind, nearest.kind, thing.colour))
            numbers.append(number)
    questions = ("here", "farthest", "nearest", "colour")
    told = dict(zip(questions, np.array(answers).T, strict=True))  # (things,) each
    return torch.from_numpy(np.array(vectors)).double(), told, np.array(numbers)


def resampled(right: np.ndarray, numbers: np.ndarray) -> tuple[float, float, float]:
    """The accuracy in percent and its 95 % interval, by a thousand samples of the test pictures."""
    hits, things = np.bincount(numbers, right), np.bincount(numbers)  # (Ni,) each
    drawn = np.random.default_rng(seed).integers(len(things), size=(1000, len(things)))
    low, high = np.quantile(hits[drawn].sum(1) / things[drawn].sum(1), (0.025, 0.975))
    return 100 * right.mean(), 100 * low, 100 * high


# %%
def probe(x, answers, x_new):  # (things, F), (things,), (new, F) -> (new,)
    names, numbers = np.unique(answers, return_inverse=True)
    wanted = F.one_hot(torch.from_numpy(numbers)).double()  # (things, names)
    return names[ridge(x, wanted)(x_new).argmax(1).numpy()]  # the name with the largest answer


questions, accuracy = ("here", "farthest"), {}
for kind in (*datasets, "the place alone") if data == "scenes" else ():
    (x, told, _), (x_new, truth, of) = (things_of(kind, part) for part in ("train", "test"))
    for question in questions:
        right = probe(x, told[question], x_new) == truth[question]  # (new,)
        accuracy[kind, question] = resampled(right, of)  # and its interval


# %% tags=["hide-input"]
def dot_rows(axes, rows: dict[str, list[tuple[float, float, float]]], names, *, x: str) -> None:
    """A dot and its interval for each value of each row; the values of one place share colour and shape."""
    for place, name in enumerate(names):
        means, lows, highs = np.array([values[place] for values in rows.values()]).T
        axes.errorbar(
            means,
            np.arange(len(rows)) + 0.2 * (place - (len(names) - 1) / 2),
            xerr=(means - lows, highs - means),
            fmt=plots.MARKERS[place],
            color=plots.COLOURS[place],
            capsize=3,
            label=name,
        )
    axes.set(
        yticks=range(len(rows)), yticklabels=list(rows), ylim=(len(rows) - 0.5, -0.5), xlabel=x
    )


if accuracy:
    figure, axes = plt.subplots(figsize=(7.2, 2.7))
    kinds = list(dict.fromkeys(kind for kind, _ in accuracy))
    rows = {kind: [accuracy[kind, question] for question in questions] for kind in kinds}
    dot_rows(axes, rows, questions, x="accuracy of a linear probe (%)")
    axes.set_xlim(0, 100)
    figure.legend(loc="outside upper left", ncols=4)
    plots.show(
        figure,
        alt="Accuracy of linear probes with intervals, a row each for cells, regions, patches and the place alone. The kind of the thing here "
        "is read nearly always from all three; the kind of the farthest thing hardly more often than from the place alone.",
    )

# %% tags=["nbval-ignore-output"]
if accuracy:
    share = {f"{kind}, {what} (%)": said for (kind, what), (said, *_) in accuracy.items()}
    course.numbers(share)
    for kind in datasets:
        here, far = share[f"{kind}, here (%)"], share[f"{kind}, farthest (%)"]
        lesson.finding(f"{kind} know the thing at their own place", here > 85)
        lesson.finding(f"{kind} hardly know the farthest thing", far < 25)
    lesson.finding(
        "patches know a little more of it than the place gives away",
        0 < share["patches, farthest (%)"] - share["the place alone, farthest (%)"] < 10,
    )

# %% [markdown]
# ````{solution} ex-02-far
# :class: dropdown
#
# Rarely, and not much more often than with the place alone.
# ````
#
# **What came out.** All three kinds of vectors know which thing is at their own place. About the farthest thing they know little more than
# the name of the place gives away, and this holds even for the patches, which have seen it.
#
# **What it means.** These networks were trained to say what is in each cell. A vector carries what it was trained to carry, not all that
# it could see.
#
# **How sure we are.** The intervals come from resampling the test pictures. But each network was trained once, and a linear probe finds
# only what can be read linearly.
#
# ```{exercise} Ask another question
# :label: ex-02-explore
#
# In the cell with the probe, add `"nearest"` or `"colour"` to `questions`. The first asks for the kind of the nearest other
# thing, the second for the colour of the thing here. Write what you expect before you run it, and afterwards what came out.
# ```

# %%
from course.checks import check

your_expectation = "The nearest thing is easier."  # your part: before you run it
your_finding = "It was, from all three kinds of elements."  # your part: what came out
check("02.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-02-explore
# :class: dropdown
#
# Two questions help: What was the network trained to say? Does the nearest thing reach into the receptive field?
# ````
#
# ## Three ways to read a sentence
#
# A sentence's elements are its words. A table has one vector for each word. But *left* means little until you know left of what: a word's
# vector must depend on the other words. A *recurrent* network passes a message from word to word. *Attention* lets each word ask all
# others at once. The blue arrows show what the middle word's vector depends on:

# %% tags=["hide-input"]
words = ["a", "girl", "holds", "an", "umbrella"]
figure, panels = plt.subplots(1, 3, figsize=(9, 2.9))
for axes, title in zip(
    panels, ("a table of word vectors", "BiGRU", "Transformer, BERT"), strict=True
):
    arrows = [((i, 0), (i, 2), i == 2) for i in range(5)]
    if title == "BiGRU":
        arrows += [((i, 0.85), (i + 1, 0.85), i < 2) for i in range(4)]  # forwards
        arrows += [((i + 1, 1.25), (i, 1.25), i >= 2) for i in range(4)]  # backwards
    if title.startswith("Transformer"):
        arrows += [((i, 0), (j, 2), j == 2) for i in range(5) for j in range(5) if i != j]
    for start, end, counts in sorted(arrows, key=lambda arrow: arrow[2]):
        colour = plots.COLOURS[0] if counts else "0.82"
        axes.annotate(
            "",
            end,
            start,
            arrowprops={
                "arrowstyle": "-|>",
                "color": colour,
                "lw": 1.8 if counts else 0.9,
                "shrinkA": 6,
                "shrinkB": 6,
            },
        )
    for i, word in enumerate(words):
        axes.plot(i, 2, "o", color=plots.COLOURS[1] if i == 2 else "0.6", markersize=9)
        axes.plot(i, 0, "o", color="0.35", markersize=6)
        axes.annotate(word, (i, -0.28), ha="center", va="top", fontsize=9)
    axes.set(xlim=(-0.6, 4.6), ylim=(-0.75, 2.35), title=title)
    axes.axis("off")
plots.show(
    figure,
    alt="Three drawings of a sentence of five words below and a vector for each above. In the table an arrow leads straight up from each "
    "word; in the BiGRU messages also pass from neighbour to neighbour in both directions; in the Transformer arrows lead from every "
    "word to every vector.",
)

# %% [markdown]
# First the words become numbers, and each sentence gets a start token and an end token. The longest caption decides the width of the
# batch, L. Each line begins with its mask: a one for a token, a zero for padding.

# %%
tokens, mask = vocabulary.encode(captions)  # (C, L) each
for caption, real in zip(captions, mask.int().tolist(), strict=True):
    print(*real, " ", caption)
sentence = captions[-1]

# %% [markdown]
# ## One step of a GRU
#
# The *gated recurrent unit* {cite}`cho2014gru` carries a *state* $h$, its memory, from word to word. At word $i$, with the vector $x_i$, it
# makes a proposal $\tilde h_i$ and mixes it with its memory. Two *gates*, numbers between zero and one in each dimension, decide:
# $r$ says how much of the past the proposal may use, $z$ how much of the past stays. With $\sigma$ the logistic function and $W$, $U$
# learned matrices, these are the paper's equations (5) to (8), (8) as torch has it:
#
# $$\begin{aligned}
# r_i &= \sigma(W_r x_i + U_r h_{i-1}) & (5)\\
# z_i &= \sigma(W_z x_i + U_z h_{i-1}) & (6)\\
# \tilde h_i &= \tanh(W x_i + r_i \odot (U h_{i-1})) & (8)\\
# h_i &= z_i \odot h_{i-1} + (1 - z_i) \odot \tilde h_i & (7)
# \end{aligned}$$
#
# ```{exercise} One step of a GRU
# :label: ex-02-gru
#
# Return the new states, (C, D), for one word `x` of each caption, (C, Dw), and the old states `h`, (C, D). `W` holds the three matrices
# $W_r$, $W_z$, $W$ stacked, (3D, Dw), and `U` the three others, (3D, D). Each has a bias, `w` and `u`, (3D,). Do it without `nn.GRUCell`.
# ```
#
# ```{hint}
# :class: dropdown
#
# `x @ W.T + w` is (C, 3D), and `chunk(3, -1)` cuts it into three. In (8) the gate multiplies $U h$ with its bias.
# ```

# %%
from course.checks import exercise


@exercise("02.gru")
def gru_step(x, h, W, U, w, u):  # (C, Dw), (C, D) -> (C, D)
    # your part
    of_word = (x @ W.T + w).chunk(3, -1)  # three of (C, D)
    of_past = (h @ U.T + u).chunk(3, -1)  # three of (C, D)
    r = torch.sigmoid(of_word[0] + of_past[0])  # eq. 5
    z = torch.sigmoid(of_word[1] + of_past[1])  # eq. 6
    proposal = torch.tanh(of_word[2] + r * of_past[2])  # eq. 8
    return z * h + (1 - z) * proposal  # eq. 7
    # end of your part


# %% [markdown]
# ````{solution} ex-02-gru
# :class: dropdown
#
# The paper prints $U (r_i \odot h_{i-1})$; torch, and with it the field, applies the gate after $U$, so that $U h$ is one product.
# ````
#
# To read a sentence, repeat the step for each word. Two readers, one from each end, make a *bidirectional* GRU; a word's element averages
# their states. At padding, the state stays as it is (the line with `where`), or a caption's vectors would depend on its batch.


# %%
def read(x, mask, weights, order):  # x: (C, L, Dw)
    h = x.new_zeros(len(x), weights[1].shape[1])  # (C, D)
    states = {}
    for i in order:
        h = torch.where(mask[:, i, None], gru_step(x[:, i], h, *weights), h)
        states[i] = h
    return torch.stack([states[i] for i in sorted(states)], 1)  # (C, L, D)


def bigru(x, mask, forwards: nn.GRU, backwards: nn.GRU):
    ahead = read(x, mask, forwards.all_weights[0], range(x.shape[1]))
    back = read(x, mask, backwards.all_weights[0], reversed(range(x.shape[1])))
    return (ahead + back) / 2  # (C, L, D)


# %% [markdown]
# With the same weights, the package's encoder agrees on the real words.

# %%
torch.manual_seed(seed)
gru_reader = BiGRUEncoder(len(vocabulary), 128, 256)
elements, _ = gru_reader(tokens, mask)  # (C, L, D)
ours = bigru(gru_reader.embedding(tokens), mask, gru_reader.forwards, gru_reader.backwards)
torch.testing.assert_close(ours[mask], elements[mask])
print("vsecore.encoders.BiGRUEncoder agrees:", tuple(elements.shape))

# %% [markdown]
# ## Attention: each word asks all others
#
# In attention {cite}`vaswani2017attention`, each word makes three vectors from its own, $x_i$: a *query* $q_i = W_q x_i$, what it looks
# for; a *key* $k_i = W_k x_i$, by which it is found; and a *value* $u_i = W_u x_i$, what it says (papers call it $v$; here $v$ is a
# picture). The better a query fits a key, the larger that word's share $a_{ij}$ of the answer. The *softmax* over $j$ makes shares that
# add up to one. Equation (1), with $D_h$ the width of a query:
#
# $$a_{ij} = \mathrm{softmax}_j \left( \frac{q_i \cdot k_j}{\sqrt{D_h}} \right) , \qquad \bar x_i = \sum_j a_{ij} u_j .$$
#
# ```{exercise} Attention
# :label: ex-02-attention
#
# Write equation (1). There are A *heads*; each does the same in its own slice of the width. So `q`, `k` and `u` are (C, A, L, Dh). `mask`
# is (C, L). Padding gets no share. Do it without torch's own attention.
# ```
#
# ```{hint}
# :class: dropdown
#
# `q @ k.mT` (`.mT` swaps the last two axes) is (C, A, L, L), queries in the rows. Zero is not a small fit, since $\exp(0) = 1$; minus
# infinity is.
# ```

# %%
from course.checks import exercise


@exercise("02.attention")
def attention(q, k, u, mask):  # (C, A, L, Dh) each, (C, L) -> (C, A, L, Dh)
    # your part
    fit = q @ k.mT / q.shape[-1] ** 0.5  # (C, A, L, L)
    fit = fit.masked_fill(~mask[:, None, None], -torch.inf)
    return fit.softmax(-1) @ u  # (C, A, L, Dh)   eq. 1
    # end of your part


# %% [markdown]
# ````{solution} ex-02-attention
# :class: dropdown
#
# The mask hides columns, the words that are asked. `mask[:, None, None]` is (C, 1, 1, L).
# ````
#
# A *Transformer layer* is attention, and then a small network of two layers, equation (2), applied to each word by itself. Both are
# *residual*: their result is added to their input. A *layer norm* before each (in the paper, after each) brings every vector to mean zero
# and spread one.


# %%
class TransformerLayer(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ask, self.join = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.widen, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.before_ask, self.before_widen = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # (C, L, D)
        parts = self.ask(self.before_ask(x)).unflatten(-1, (3, self.heads, -1))
        q, k, u = parts.permute(2, 0, 3, 1, 4)  # three of (C, A, L, Dh)
        answer = attention(q, k, u, mask).transpose(1, 2).flatten(2)  # (C, L, D)
        x = x + self.join(answer)
        return x + self.narrow(self.widen(self.before_widen(x)).relu())  # eq. 2


# %%
torch.manual_seed(seed)
ours = TransformerLayer(256, heads=4)
theirs = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0, batch_first=True, norm_first=True)
with torch.no_grad():
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        own.copy_(other)
x = torch.randn(*tokens.shape, 256)  # (C, L, D)
expected = theirs(x, src_key_padding_mask=~mask)
torch.testing.assert_close(ours(x, mask)[mask], expected[mask])
print("torch.nn.TransformerEncoderLayer agrees")

# %% [markdown]
# Attention asks *what* the other words are, never *where*. So a learned vector for each *position* is added to each word's. This reader
# has two layers, as in the thesis whose model a later notebook builds {cite}`yan2019relational`.


# %%
class TransformerReader(nn.Module):
    def __init__(self, words: int, dim: int, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(words, dim), nn.Embedding(128, dim)
        self.layers = nn.ModuleList(TransformerLayer(dim, heads) for _ in range(layers))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:  # (C, L)
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, mask)
        return x  # (C, L, D)


# %% [markdown]
# ```{exercise} Break it
# :label: ex-02-break
#
# Set all positions to zero. The reader reads *a dog left of a cat* and *a cat left of a dog*, and we take the mean of each sentence's
# vectors. What is the cosine of the two means? Answer before you run the next cell.
# ```

# %%
from course.checks import check

your_cosine = 1.0  # your part: one number
check("02.break", your_cosine)

# %% tags=["nbval-ignore-output"]
pair, real = vocabulary.encode(["a dog left of a cat", "a cat left of a dog"])  # (2, L) each
transformer_reader = TransformerReader(len(vocabulary), 256)
kept = transformer_reader.position.weight.detach().clone()
with torch.no_grad():
    for name, positions in (("without", torch.zeros_like(kept)), ("with", kept)):
        transformer_reader.position.weight.copy_(positions)
        first, second = mean_of_real(transformer_reader(pair, real), real)  # (D,) each
        apart = 100 * (first - second).norm() / first.norm()
        print(f"{name} positions the means differ by {apart:.1f} % of their length")
        lesson.finding("only positions tell the two apart", (apart > 1) == (name == "with"))

# %% [markdown]
# ````{solution} ex-02-break
# :class: dropdown
#
# Both sentences have the same words. Without positions they get the same vectors in another order, so the same mean, and a search would
# find the same pictures for both.
# ````
#
# ## BERT has read before
#
# BERT {cite}`devlin2019bert` is such a Transformer, deeper, and trained on a lot of text: some words are hidden, and it guesses them from
# all others. A word that is not in its list is split into *word pieces*; `##` marks a piece that continues a word. `[CLS]` and `[SEP]` are
# its start and end tokens. We use `all-MiniLM-L6-v2`, a small BERT that learned from a large one {cite}`wang2020minilm` and was then
# trained on the meaning of sentences {cite}`reimers2019sbert`.

# %%
bert_folder = model_folder("all-MiniLM-L6-v2")
pieces_of = tokenizers.Tokenizer.from_file(str(bert_folder / "tokenizer.json"))
pieces_of.no_padding()
print(*pieces_of.encode("A snowman beside a sandcastle, and a sailboat.").tokens)
torch.manual_seed(seed)
bert_reader = BERTEncoder(str(bert_folder), 256).eval()
bert_tokenizer = BERTTokenizer(bert_folder)
pieces, pieces_mask = bert_tokenizer.encode(captions)  # (C, L) each
with torch.no_grad():
    states = bert_reader.backbone(pieces, pieces_mask.long()).last_hidden_state  # (C, L, H)
    elements, _ = bert_reader(pieces, pieces_mask)  # (C, L, D)   projected, as a picture's are
print(tuple(states.shape), "->", tuple(elements.shape))

# %% [markdown]
# ## Does context change a word's vector?
#
# **Question.** In a table, *left* has one vector. In BERT, is the vector of *left* in *facing left* nearer to another *left* of the same
# meaning than to the *left* in *a girl left the beach*?
#
# **What we do.** We write eight sentences for each meaning and compare cosines before the first layer and after the last. We also replace
# *left* by *right*. Each cosine compares two *different* sentences.

# %% tags=["hide-input"]
direction = [
    "A girl facing {} on the beach",
    "A tree to the {} of a house",
    "The dog looks {} at the corner",
    "The cat sits on the {} side of the bench",
    "A boat sails {} of the island",
    "The man holds a ball in his {} hand",
    "The house stands on the {} bank of the river",
    "The car in the {} lane is red",
]
went_away = [
    "A girl left the beach",
    "The boat left the harbour",
    "The dog left its ball in the park",
    "A man left the house at night",
    "The children left the lake early",
    "The bird left its nest",
    "The train left the station",
    "Our guests left before dinner",
]


@torch.no_grad()
def vectors_of(word: str, sentences: list[str]) -> torch.Tensor:
    """The unit vectors of a word in these sentences, at each layer: (layers + 1, sentences, H)."""
    found = []
    for text in sentences:
        ids, _ = bert_tokenizer.encode([text])  # (1, L)
        layers = bert_reader.backbone(ids, output_hidden_states=True).hidden_states
        place = pieces_of.encode(text).tokens.index(word)
        found.append(torch.stack([layer[0, place] for layer in layers]))  # (layers + 1, H)
    return F.normalize(torch.stack(found, 1), dim=-1)


# %%
left, right = (
    vectors_of(word, [s.format(word) for s in direction]) for word in ("left", "right")
)
gone = vectors_of("left", went_away)  # (layers + 1, sentences, H)
alike = {  # (layers + 1, sentences, sentences) each: every "left" with every partner
    "left, same meaning": left @ left.mT,
    "left, went away": left @ gone.mT,
    "right, other sentences": left @ right.mT,
}


# %% tags=["hide-input"]
def mean_of_pairs(cosines: torch.Tensor, same: bool) -> tuple[float, float, float]:
    """The mean over pairs of different sentences, and its 95 % interval, by resampling the sentences."""
    count = len(cosines)
    others = ~np.eye(count, dtype=bool) if same else np.ones((count, count), bool)
    dice, means = np.random.default_rng(seed), []
    for _ in range(1000):
        ours = dice.integers(count, size=count)
        theirs = ours if same else dice.integers(count, size=count)
        block = np.ix_(ours, theirs)
        means.append(cosines.numpy()[block][others[block]].mean())
    low, high = np.quantile(means, (0.025, 0.975))
    return cosines[torch.from_numpy(others)].mean().item(), low, high


figure, axes = plt.subplots(figsize=(7.2, 2.5))
rows = {  # "right" stands in the sentences of "left", so a sentence is no partner of itself there either
    name: [mean_of_pairs(one, same=name != "left, went away") for one in cosines[[0, -1]]]
    for name, cosines in alike.items()
}
dot_rows(
    axes,
    rows,
    ("before the first layer", "after the last layer"),
    x="cosine with left (direction)",
)
axes.set_xlim(0.3, 1)
figure.legend(loc="outside upper left", ncols=2)
plots.show(
    figure,
    alt="Cosines of vectors of left with three others, before the first and after the last layer, with intervals. Before, both kinds of left "
    "are nearly the same and right is at a half. After, left of the same meaning is nearest; right and left that means went away are "
    "further, and their wide intervals overlap.",
)

# %% tags=["nbval-ignore-output"]
course.numbers({name: 100 * last[0] for name, (_, last) in rows.items()})
(same_first, same), (gone_first, away), (right_first, opposite) = (
    (first[0], last[0]) for first, last in rows.values()
)
lesson.finding("both begin with almost the same vector", min(same_first, gone_first) > 0.9)
lesson.finding("the two meanings of left move apart", same - away > 0.1)
lesson.finding("right comes nearer", opposite - right_first > 0.08)
lesson.finding("right stays further than left of the same meaning", same - opposite > 0.05)

# %% [markdown]
# **What came out.** (The numbers are cosines after the last layer, times a hundred.) The two meanings of *left* begin with almost the
# same vector and move apart. *Right*, the opposite, comes nearer, to about where the other meaning ends.
#
# **What it means.** Context separates two meanings of one word. It also brings opposites nearer, since they stand in the same contexts.
#
# **How sure we are.** The intervals come from resampling the sentences, and these are few: the order of the last two is open.
#
# ## Which words does a vector depend on?
#
# We take one word away (BERT gets its `[MASK]`) and see how far each vector moves. The GRU and the Transformer are untrained, since their
# architecture alone decides which words can matter.


# %%
@torch.no_grad()
def moved_without(read, tokens: torch.Tensor, blank: int) -> torch.Tensor:
    copies = tokens.repeat(tokens.shape[1], 1).fill_diagonal_(blank)  # (L, L)
    before, after = (read(t, torch.ones_like(t) > 0) for t in (tokens, copies))
    return (after - before).norm(dim=-1) / before.norm(dim=-1)  # (word taken away, vector)


one, _ = vocabulary.encode([sentence])  # (1, L)
one_in_pieces, _ = bert_tokenizer.encode([sentence])
moved_by_word = {
    "table": moved_without(lambda t, _: gru_reader.embedding(t), one, vocabulary.pad),
    "BiGRU": moved_without(lambda *t: gru_reader(*t)[0], one, vocabulary.pad),
    "Transformer": moved_without(transformer_reader, one, vocabulary.pad),
    "BERT": moved_without(lambda *t: bert_reader(*t)[0], one_in_pieces, bert_tokenizer.blank),
}

# %% tags=["hide-input"]
names = ["start", *sentence.lower().rstrip(".").split(), "end"]
figure, panels = plt.subplots(2, 2, figsize=(9.2, 8.2))
for axes, name in zip(panels.flat, moved_by_word, strict=True):
    ticks = pieces_of.encode(sentence).tokens if name == "BERT" else names
    image = axes.imshow(100 * moved_by_word[name].clamp(min=1e-9), norm=LogNorm(0.1, 100))
    axes.set(title=name, xlabel="vector of", ylabel="word taken away")
    axes.set_xticks(range(moved_by_word[name].shape[1]))
    axes.set_yticks(range(moved_by_word[name].shape[0]))
    if len(ticks) == moved_by_word[name].shape[0]:
        axes.set_xticklabels(ticks, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
        axes.set_yticklabels(ticks, fontsize=8)
    axes.grid(False)
figure.colorbar(
    image, ax=list(panels.flat), label="the vector moves (% of its length)", shrink=0.6
)
others = {  # what a word does to the other words' vectors
    name: moved[~torch.eye(len(moved), dtype=torch.bool)].view(len(moved), -1)
    for name, moved in moved_by_word.items()
}
lesson.finding("in the table, only a word's own vector moves", not others["table"].any())
near, far = (moved_by_word["BiGRU"].diagonal(step).mean() for step in (1, 6))
lesson.finding("in the BiGRU all words matter, neighbours most", near > 3 * far > 0)
evenly = others["Transformer"]
lesson.finding("in the Transformer all matter about equally", evenly.max() < 5 * evenly.min())
if data == "scenes" and row == 12:
    matter = others["BERT"].mean(1)  # (words,)
    most = {pieces_of.encode(sentence).tokens[place] for place in matter.topk(2).indices}
    lesson.finding("in BERT girl and umbrella matter most", most == {"girl", "umbrella"})
plots.show(
    figure,
    alt="Four heat maps: which word's vector moves when a word is taken away. In the table only a word's own vector moves; in the BiGRU the neighbours move "
    "too, less and less with distance on both sides; in the Transformer all move about equally; in BERT all move, by different amounts.",
)

# %% [markdown]
# In the table a vector depends on its own word alone. In the BiGRU all words matter, neighbours most. In the untrained Transformer all
# others matter about equally. In BERT all words matter, and in this one sentence two nouns, *girl* and *umbrella*, matter most.
#
# All three readers must keep one promise: a caption has the same vectors and mean alone and in a batch with longer captions.

# %%
short = int(mask.sum(1).argmin())
promises = {
    "BiGRU": (lambda *t: gru_reader(*t)[0], vocabulary, tokens, mask),
    "Transformer": (transformer_reader, vocabulary, tokens, mask),
    "BERT": (lambda *t: bert_reader(*t)[0], bert_tokenizer, pieces, pieces_mask),
}
with torch.no_grad():
    for name, (reader, tokenizer, batch, real) in promises.items():
        alone = reader(*tokenizer.encode([captions[short]]))[0]  # (L of its own, D)
        batched = reader(batch, real)  # (C, L of the batch, D)
        among, mean = batched[short], MeanPool()(batched, real)[short]
        near = {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(among[: len(alone)], alone, **near)
        torch.testing.assert_close(mean, alone.mean(0), **near)
        print(f"{name}: {len(alone)} vectors, the same alone and among {len(among)} places")

# %% [markdown]
# ## What does each cost?
#
# *Parameters* are the numbers that are learned. *Multiply-adds* are the work for one picture, or for one sentence of twelve words
# (matrix products only).


# %% tags=["hide-input"]
def parameters(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def multiply_adds(run) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


twelve, twelve_mask = torch.full((1, 12), 5), torch.ones(1, 12, dtype=torch.bool)
encoders = {}  # name: (backbone, encoder, a function that encodes one picture or sentence)
for kind, look in readers.items():
    network = small_cnn if kind == "regions" else look
    width = small_cnn.region_dim if kind == "regions" else look.feature_dim
    encoder = (RegionEncoder if kind == "regions" else CellEncoder)(width, 256)
    encoders[kind] = (network, encoder, lambda look=look, to=encoder: to(look(picture))[0])
encoders |= {
    "BiGRU": (None, gru_reader, lambda: gru_reader(twelve)[0]),
    "Transformer": (None, transformer_reader, lambda: transformer_reader(twelve, twelve_mask)),
    "BERT": (bert_reader.backbone, bert_reader.project, lambda: bert_reader(twelve)[0]),
}

# %%
lines = [
    "| | parameters, trained before | parameters, trained here | multiply-adds | elements |",
    "| --- | ---: | ---: | ---: | ---: |",
]
for name, (network, encoder, run) in encoders.items():
    before = f"{parameters(network):,}" if network else "none"
    count, width = run().shape[1:]
    lines.append(
        f"| {name} | {before} | {parameters(encoder):,} | {multiply_adds(run):,} | {count} × {width} |"
    )
Markdown("\n".join(lines))

# %% [markdown]
# Nearly all parameters for pictures are in the backbone, so the field runs it once and keeps the features.
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | cells {cite}`jiang2020grid`, patches {cite}`dosovitskiy2021vit` | `Cells` | `vsecore.encoders.CellEncoder` |
# | regions {cite}`anderson2018bottomup` | `Regions` | `vsecore.encoders.RegionEncoder` |
# | GRU {cite}`cho2014gru`, eqs. (5) to (8) | `gru_step`, `read`, `bigru` | `vsecore.encoders.BiGRUEncoder` |
# | attention {cite}`vaswani2017attention`, eqs. (1), (2) | `attention`, `TransformerLayer` | `vsecore.encoders.reasoning.TransformerReasoner`, see [Relations](05_relations.ipynb) |
# | BERT {cite}`devlin2019bert` | `bert_reader` | `vsecore.encoders.BERTEncoder` |
#
# ## Summary
#
# - An encoder turns a picture into cells, regions or patches, and a sentence into words in context: N vectors of width D.
# - A vector carries what its network was trained to carry, not all that it could see.
# - A GRU passes messages from word to word; attention lets each word ask all others, and needs positions.
# - Padding must never change a result: choose with the mask, do not multiply by it.
#
# ## Where to read on
#
# - How much of a receptive field is used, measured by gradients: {cite}`luo2016receptive`.
# - [The joint space](03_joint_space.ipynb) compares what the two sides give.
