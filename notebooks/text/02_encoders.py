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
# **You will be able to** turn a picture into cells, regions or patches, write one step of a GRU from scratch, and measure what a
# single vector has seen and what it knows.
#
# **You need** the notebook [Start here](00_start_here.ipynb), some PyTorch, and an idea of what a convolution is.
#
# **It takes** about half a minute and 1 GB of memory on two cores, once the world's pictures are drawn. The exercises take three quarters of an hour.
#
# The map: **encode** → pool → compare → learn.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import course
from vsecore import scenes
from course import plots
from course.checks import check, exercise
from course.datasets import open_backbone
from course.drawings import encoders as drawings
from vsecore.data.joining import mean_elements
from vsecore.data.vocabulary import Vocabulary
from vsecore.encoders import BiGRUEncoder, CellEncoder, RegionEncoder
from vsecore.scenes.build import boxes_of

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
course.drawings.system("encode")

# %% [markdown]
# ## Does a cell know what lies in it?
#
# An *encoder* is a network that turns a picture or a sentence into *elements*, parts with one vector each. Here the elements of a picture
# are the cells of a grid. How much does such a vector already know?
#
# Take the *mean* of all cells of each training picture, and fit one linear map from these means to the words of the captions: for each
# word, the target is one if a caption of the picture says it, and zero otherwise. Nothing tells the map where anything is. (It is a *ridge
# regression*: least squares with a penalty on large weights. The *vocabulary* numbers the words of the training captions.)


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
# A cell's vector is as wide as the mean, so the map can read a single cell too. And because the map is linear, its answer for the mean is
# the mean of its answers for the cells: each cell has a share in it. We ask each cell of a test picture how strongly it suggests a word
# {cite}`zhou2016cam`; in the figure, yellow is strongest, and each word has its own scale. Choose other words or another picture.

# %%
row = 12  # of the test split
asked = ["girl", "green", "umbrella", "sun", "bench"]  # words of the captions

# %% tags=["hide-input"]
shown = lesson.pictures("test", [row])[0]  # to look at: drawn larger than the networks see it
captions = [dataset.test.captions[one] for one in np.flatnonzero(dataset.test.owner == row)]
if data != "scenes":  # the rarest words that the captions have
    known = vocabulary.encode(captions)[0].unique()  # in the order of their frequency
    asked = [vocabulary.words[number - 4] for number in known.tolist() if number > 3][-5:]


# %%
def cells_of(split, rows):
    return torch.from_numpy(np.array(split.pictures[rows])).double()  # (n, N, F)


speaks = to_words(cells_of(dataset.test, [row])[0])  # (N, words)
side = round(len(speaks) ** 0.5)
heats = {word: speaks[:, vocabulary.numbers[word]].view(side, side) for word in asked}
drawings.words_on(shown, heats)

# %% [markdown]
# The words have found their places. Is this picture special? For each kind
# of thing in each test picture, we check whether the middle of the strongest cell for its word lies in the box around the thing, and
# compare with a random cell:

# %% tags=["hide-input"]
scenes_only = data == "scenes"  # only of drawn scenes do we know what is where
made = {
    split: scenes.pictures(split, len(getattr(dataset, split))) if scenes_only else []
    for split in ("train", "test")
}
named = [  # of each test picture, each kind of thing that the captions name
    (number, kind, [thing.box for thing in picture.scene.things if thing.kind == kind])
    for number, picture in enumerate(made["test"])
    for kind in {thing.kind for thing in picture.scene.things} & set(vocabulary.numbers)
]

# %% tags=["nbval-ignore-output"]
every = to_words(cells_of(dataset.test, np.arange(len(dataset.test))))  # (Ni, N, words)
# The cells' middles, in pixels: (N,) each
down, across = np.indices((7, 7)).reshape(2, 49) * 16 + 8
hits, chances = [], []
for number, kind, boxes in named:
    inside = np.zeros(49, bool)  # (N,)   which middles lie in a box
    for left, top, right, bottom in boxes:
        inside |= (left <= across) & (across < right) & (top <= down) & (down < bottom)
    hits.append(inside[every[number, :, vocabulary.numbers[kind]].argmax()])
    chances.append(inside.mean())
if named:
    print(f"the word's strongest cell lies on the thing: {np.mean(hits):.0%}")
    print(f"a random cell does: {np.mean(chances):.0%}")

# %% tags=["remove-cell"]
if named:
    lesson.finding(
        "the strongest cell hits about four times in five", 0.75 < np.mean(hits) < 0.9
    )
    lesson.finding("a random cell seldom lies on it", np.mean(chances) < 0.15)

# %% [markdown]
# It is not special: about four times in five, the strongest cell lies on the thing. The linear map never saw where a cell is, so each cell's
# vector must itself say what lies there. (We made that easy, because our network was trained to name what is in *each cell* of other scenes.
# So this does not show that places can be learned from captions alone.)
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
if scenes_only:
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
outlines = boxes[1:] / 16 if scenes_only else []  # in cells
drawings.elements(shown, list(readers), outlines)

# %%
with torch.no_grad():
    for kind, look in readers.items():
        print(f"{kind:8}", tuple(look(picture).shape))  # (1, N, F)

# %% [markdown]
# These are N elements of width F. Cells and patches cover everything, sky and sand too. Regions are few: the whole picture and one for each
# thing. Their vectors are the widest, because they also say where the box lies and read a second, finer feature map. (Our boxes are exact;
# a detector gets some wrong.)
#
# ## From features to elements
#
# The backbone has looked at each picture once, and its vectors lie on disk. A learned layer then brings each vector to the width $D$ that
# pictures and sentences share. For cells and patches, one matrix does this.


# %%
class Cells(nn.Module):  # and patches
    def __init__(self, feature_dim: int, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(feature_dim, dim)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:  # (B, N, F)
        return self.project(cells)  # (B, N, D)


# %% [markdown]
# Regions get a second path, as in {cite}`chen2021gpo`: a small network of two layers, whose result is added to that of the matrix. Pictures
# have different numbers of regions, so a batch is filled up with *padding*, rows that stand for nothing, and a *mask* says which rows are real.
# Between the two layers stands a *batch normalisation*, which gives each feature mean zero and standard deviation one over the batch. It
# must use only the real rows.


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
# Write the mean of the real elements: `x` is (B, N, D), `mask` is (B, N), the result is (B, D). Padding can hold anything, even NaN,
# and must not affect the result. Gradients must flow back to `x`.
# ```
#
# ```{hint}
# :class: dropdown
#
# Zero times NaN is NaN. `torch.where` ignores what it leaves out.
# ```


# %%
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
# Choose with the mask instead of multiplying by it, because zero times NaN is NaN. And divide by the number of real elements, not by N:
# otherwise a picture with few regions gets a short vector.
# ````
#
# ## What does a vector see?
#
# Does a cell see only its own square? Paint one square over with the picture's mean colour, run the network again, and see how far each
# vector moves. If a vector does not depend on that square, it stays where it is.


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

# %%
element = {"cells": 39, "patches": 39, "regions": 1}  # which element of each kind we look at
square = (4, 5, 5, 6)  # where number 39 lies: left, top, right, bottom
frames = {"cells": square, "patches": square, "regions": (*outlines, square)[0]}
heats = {kind: shares[:, element[kind]].view(7, 7).numpy() for kind, shares in moved.items()}
drawings.moved(shown, heats, frames)

# %% tags=["remove-cell"]
if scenes_only and row == 12:
    near = np.abs(np.indices((7, 7)) - np.reshape([5, 4], (2, 1, 1))).max(0) <= 1  # of 39
    for kind in ("cells", "patches"):
        nearby, far = heats[kind][near].mean(), heats[kind][~near].mean()
        lesson.finding(f"of the {kind}, one moves most for what is near", nearby > 3 * far)
    lesson.finding("a patch sees everything", heats["patches"].min() > 1e-3)

# %% [markdown]
# Cells and regions see far beyond their frames, but mostly what is near. A patch sees everything: in each layer it has looked at all other
# patches. How far could a cell see? Its *receptive field* is the part of the picture that can reach it, and we can compute it. A
# convolution of width 3 reaches 2 steps further, one to each side. In the first layer a step is one pixel; each stride of 2 makes the steps
# of all later layers twice as long:

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
# **Question.** A patch has seen the whole picture. Does its vector also know what is far away?
#
# **What we do.** A *linear probe* is a ridge regression that reads one fact from one vector. From the vector at the middle of a thing, it
# names the kind of the thing here, and the kind of the thing farthest away. For comparison, another probe gets only the name of the place,
# which already helps: cows, for example, are mostly on farms. A last one is told the kind of the thing here, too.
#
# ```{exercise} The farthest thing
# :label: ex-02-far
#
# Given the vector of a patch, how often will the probe name the farthest thing? Write `"rarely"`, `"half the time"` or `"mostly"` before
# you run the next cells.
# ```

# %%
your_guess = "rarely"  # your part: one of the three
check("02.far", your_guess)


# %%
def questions_of(picture):  # -> for each thing: its number, its middle, and four answers
    things = picture.scene.things
    corners = np.array([thing.box for thing in things])  # (things, 4)
    middles = (corners[:, :2] + corners[:, 2:]) / 2  # (things, 2)   across, down
    for own, thing in enumerate(things):
        order = np.hypot(*(middles - middles[own]).T).argsort()  # (things,)   itself first
        nearest, farthest = things[order[min(1, len(order) - 1)]], things[order[-1]]
        answers = {"here": thing.kind, "farthest": farthest.kind}
        yield own, middles[own], answers | {"nearest": nearest.kind, "colour": thing.colour}


# %%
def things_of(kind, split):  # -> the vectors, their answers, and whose picture they are of
    part = getattr(datasets.get(kind, datasets["cells"]), split)
    features, found = np.asarray(part.pictures[np.arange(len(part))]), []  # (Ni, N, F)
    for number, picture in enumerate(made[split]):
        place = np.array(scenes.PLACES) == picture.scene.place  # (places,)
        for own, middle, answers in questions_of(picture):
            across, down = np.minimum(middle // 16, 6).astype(int)  # its cell
            spot = 1 + own if kind == "regions" else 7 * down + across
            here = np.array([*scenes.CATALOGUE]) == answers["here"]  # (kinds,)
            given = {"the place alone": place, "place and thing here": np.append(place, here)}
            vector = given[kind] if kind in given else features[number, spot]
            found.append((vector, answers, number))
    vectors, answers, numbers = zip(*found, strict=True)
    labels = {name: np.array([each[name] for each in answers]) for name in answers[0]}
    return torch.from_numpy(np.array(vectors)).double(), labels, np.array(numbers)


# %%
def resampled(right, numbers):  # (things,) each: accuracy in percent, and its 95 % interval
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
without = "the place alone", "place and thing here"  # what is told without any vector
kinds = (*datasets, *without) if scenes_only else ()
for kind in kinds:
    (x, labels, _), (x_new, truth, of) = (things_of(kind, part) for part in ("train", "test"))
    for question in questions:
        right = probe(x, labels[question], x_new) == truth[question]  # (new,)
        accuracy[kind, question] = resampled(right, of)  # and its interval


# %% tags=["nbval-ignore-output"]
if accuracy:
    drawings.probes(accuracy, kinds, questions)
for (kind, question), (share, *_) in accuracy.items():
    print(f"{kind}, {question}: {share:.0f} %")

# %% tags=["remove-cell"]
if accuracy:
    shares = {name: share for name, (share, *_) in accuracy.items()}
    for kind in datasets:
        lesson.finding(f"{kind} know the thing at their own place", shares[kind, "here"] > 90)
        lesson.finding(f"{kind} hardly know the farthest thing", shares[kind, "farthest"] < 18)
    best = max(shares[kind, "farthest"] for kind in datasets)
    gains = [best - shares[name, "farthest"] for name in without]
    lesson.finding("the best are a little above the place alone", 0 < gains[0] < 10)
    lesson.finding("they are no better than place and thing", -4 < gains[1] < 2.5)
    alike = np.mean(labels["here"] == labels["farthest"])
    lesson.finding("one time in eight the farthest is of the same kind", 0.1 < alike < 0.15)

# %% [markdown]
# ````{solution} ex-02-far
# :class: dropdown
#
# Rarely: about one time in seven or eight; from the name of the place alone, a probe is right one time in ten, and if it is told the thing here too, as often as from a patch. That a vector has seen a thing does not
# mean that it carries the thing's name.
# ````
#
# **What came out.** All three kinds of vectors know which thing is at their own place. About the farthest thing they know little more than
# the name of the place gives away, even the patches, which have seen it. And that little need not come from afar: one time in eight the farthest thing is of the same kind as the thing here. A probe that is told only the place and the thing here does as well as any of them.
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
# In the cell with the probe, add `"nearest"` or `"colour"` to `questions`. The first asks for the kind of the nearest other thing, the
# second for the colour of the thing here. Write what you expect, run that cell and the one after it
# again, and write what came out.
# ```

# %%
your_expectation = "The nearest thing is easier."  # your part: before you run it
your_finding = "It was, from all three kinds of elements."  # your part: what came out
check("02.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-02-explore
# :class: dropdown
#
# Two questions help you to judge what came out: What was the network trained to say? Does the nearest thing lie within the receptive field?
# ````
#
# ## How to read a sentence
#
# A sentence's elements are its words. A table has one vector for each word. But *left* means little until you know left of what, so a
# word's vector must depend on the other words. A *recurrent* network passes a message from word to word, and we build one here.
# *Attention* lets each word ask all others at once; we build it in [Relations](05_relations.ipynb), where we need it. The blue arrows
# show what the middle word's vector depends on:

# %% tags=["hide-input"]
drawings.readers()

# %% [markdown]
# First the words become numbers, and each sentence gets a start token and an end token. The longest caption decides the length $L$ of the
# batch. Each line begins with its mask: a one for a token, a zero for padding.

# %%
tokens, mask = vocabulary.encode(captions)  # (C, L) each
for caption, real in zip(captions, mask.int().tolist(), strict=True):
    print(*real, sep="", end=f"  {caption}\n")

# %% [markdown]
# ## One step of a GRU
#
# The *gated recurrent unit* {cite}`cho2014gru` carries a *state* $h$, its memory, from word to word. At word $i$, with the vector $x_i$, it
# makes a proposal $\tilde h_i$ and mixes it with its memory. Two *gates*, numbers between zero and one in each dimension, decide: $r$ says
# how much of the past the proposal may use, $z$ how much of the past stays. Below, $\sigma$ is the logistic function, $W$ and $U$ are
# matrices of *parameters* (numbers that training changes), $\odot$ is the product entry by entry, and $h_0 = 0$. The equations are (5)
# to (8) of the paper, with (8) in the form that torch uses. Two extremes help to read them: if $z = 1$, the word is ignored and the memory
# stays; if $z = 0$ and $r = 0$, the memory is forgotten and only the word counts.
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
# $W_r$, $W_z$, $W$ stacked, (3D, Dw), and `U` the three others, (3D, D). Dw is the width of a word's vector. Torch adds a bias to each
# product, which the equations leave out: `w` to those with `W`, `u` to those with `U`, (3D,) each. Do it without `nn.GRUCell`.
# ```
#
# ```{hint}
# :class: dropdown
#
# `x @ W.T + w` is (C, 3D), and `chunk(3, -1)` cuts it into three. In (8) the gate multiplies $U h$ *including* its bias `u`.
# ```


# %%
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
# One product with $W$ and one with $U$ serve all three parts, and `chunk` cuts them. Then follow the equations in their order. The usual
# mistake is to give $z$ to the proposal instead of the past. Another is to apply $r$ before $U$, which follows the paper's
# $U (r_i \odot h_{i-1})$. But torch, and with it the field, applies the gate after $U$, because then $U h$ is one product.
# ````
#
# To read a sentence, repeat the step for each word. A GRU that reads forwards knows only what came before a word, so a second one
# reads from the end. Together they make a *bidirectional* GRU, and a word's element is the average of their two states, so that it has the
# same width as a picture's elements. At padding the state stays as it is (the line with `where`), because otherwise the backward
# reader would start with whatever the padding holds, and a caption's vectors would depend on its batch.


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
# One property must hold for every reader: padding must not change a caption's vectors. So the shortest of our five captions must have
# the same vectors, and the same mean, alone and in a batch with longer ones.

# %%
short = int(mask.sum(1).argmin())
with torch.no_grad():
    alone, _ = gru_reader(*vocabulary.encode([captions[short]]))  # (1, L of its own, D)
    among, _ = gru_reader(tokens, mask)  # (C, L of the batch, D)
length = alone.shape[1]
torch.testing.assert_close(among[short, :length], alone[0], rtol=1e-4, atol=1e-5)
means = mean_of_real(among, mask)[short], alone[0].mean(0)
torch.testing.assert_close(*means, rtol=1e-4, atol=1e-5)
print(f"{length} vectors, the same alone and among {among.shape[1]} places")

# %% [markdown]
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | cells {cite}`jiang2020grid`, patches {cite}`dosovitskiy2021vit` | `Cells` | `vsecore.encoders.CellEncoder` |
# | regions {cite}`anderson2018bottomup` | `Regions` | `vsecore.encoders.RegionEncoder` |
# | GRU {cite}`cho2014gru`, eqs. (5) to (8) | `gru_step`, `read`, `bigru` | `vsecore.encoders.BiGRUEncoder` |
#
# ## Summary
#
# - An encoder turns a picture into cells, regions or patches, and a sentence into words in context: $N$ vectors of width $D$.
# - A GRU passes messages from word to word, so that a word's vector depends on its neighbours.
# - Padding must never change a result: choose with the mask, do not multiply by it.
# - A vector carries what its network was trained to carry, not all that it could see: a linear probe reads the thing at its own place from
#   more than nine of ten vectors, but the farthest thing from only about one in seven or eight.
#
# ## Where to read on
#
# - How much of a receptive field is used, measured by gradients: {cite}`luo2016receptive`.
# - Word vectors learned from text alone, a usual start for the table: {cite}`pennington2014glove`.
# - A recurrent network's last state as the meaning of a whole sentence: {cite}`sutskever2014seq2seq`.
# - [The joint space](03_joint_space.ipynb) compares what the two sides give.
# - [Relations](05_relations.ipynb) builds attention and, as an option, lets BERT read.
