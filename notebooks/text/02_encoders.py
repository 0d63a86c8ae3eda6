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
# **You will be able to** turn a picture into cells, regions or patches and a sentence into word vectors in three ways,
# write a GRU and a Transformer layer from nothing, measure what each single vector sees and what it says, and say what each
# way costs.
#
# **You need** the notebook *Start here*, some PyTorch, and an idea of what a convolution and a matrix product are.
#
# **It takes** about half a minute and 2 GB of memory on two cores, once the world's pictures have been looked at.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import time

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

from vsecore import course
from vsecore.course import plots
from vsecore.baselines import ridge_scores
from vsecore.course.checks import check
from vsecore import scenes
from vsecore.course.datasets import open_backbone
from vsecore.scenes.build import boxes_of
from vsecore.data.language_models import model_folder
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_pieces import BERTTokenizer
from vsecore.encoders import BERTEncoder, BiGRUEncoder, CellEncoder, RegionEncoder
from vsecore.evaluation import evaluate

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## The same picture, three ways
#
# Before a model can compare a picture with a sentence, an *encoder*, a network that turns something into vectors, breaks
# each into *elements*: parts that get a vector each. For pictures the field has three kinds:
#
# - *cells*: the network looks at all of the picture, layer by layer, and its last map is a coarse *grid*
#   {cite}`jiang2020grid`;
# - *regions*: somebody says where things are, with a box around each, and each box gets a vector
#   {cite}`anderson2018bottomup`;
# - *patches*: the picture is cut into squares like a sheet of stamps, and the squares look at each other
#   {cite}`dosovitskiy2021vit`.
#
# The network that looks at the pixels is called the *backbone*. The world has two small ones: a convolutional network (CNN)
# for cells and regions, and a *vision transformer* (ViT) for patches.

# %% tags=["hide-input"]
dataset = lesson.dataset("grid")
row = 12  # of the test split
shown = lesson.pictures("test", [row])[0]  # to look at: drawn larger than the networks see it
look_at_cells = open_backbone(data, lesson.data_root)
datasets, readers = {"cells": dataset}, {"cells": look_at_cells}
if data == "scenes":
    datasets |= {"regions": lesson.dataset("region"), "patches": lesson.dataset("patch")}
    made = {
        split: scenes.pictures(split, len(getattr(dataset, split)))
        for split in ("train", "test")
    }
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


# %% tags=["hide-input"]
def stage(axes, title: str) -> None:
    axes.imshow(shown, extent=(0, 7, 7, 0), interpolation="lanczos")
    axes.set(xticks=[], yticks=[], xlim=(0, 7), ylim=(7, 0), title=title)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


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

# %% [markdown]
# Each backbone gives N elements of width F. Cells and patches cover everything, sky and sand too; regions are few, and
# there are as many as there are things, and one for the whole picture.

# %%
with torch.no_grad():
    for kind, read in readers.items():
        print(f"{kind:8}", tuple(read(picture).shape))  # (1, N, F)

# %% [markdown]
# ## What does a vector see?
#
# The drawing above suggests that a cell sees its own square. Let us not believe it but measure it. Paint one square of the
# picture over with the picture's mean colour, look again, and ask how far each vector has moved. Do so for each square of
# the grid. What a vector does not see cannot move it.


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
# Take one element of each kind, framed below; in the scene, the ones at the girl. A square's colour says how far painting
# it moves that element's vector, as a share of its length. Where no colour lies over the picture, the vector moves by less
# than a thousandth.

# %% tags=["hide-input"]
chosen = {"cells": 39, "patches": 39}
if data == "scenes":
    chosen["regions"] = 1 + [thing.kind for thing in scene.things].index("girl")
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
figure.colorbar(
    heat, ax=list(panels[0]), label="the vector moves (share of its length)", shrink=0.85
)
plots.show(
    figure,
    alt="Heat maps over the picture, of how far one framed element moves when a square is painted over. The cell and the region move "
    "most for squares near them and little or not at all for far ones; the patch moves most for its own square, and a little for all.",
)

# %% [markdown]
# A region sees beyond its box, since it is cut from the same maps as the cells. And a cell sees far beyond its square. How
# far could it?
#
# The *receptive field* is the part of the picture that can reach a vector. For a convolutional network it can be counted. A
# convolution adds its width, less one, in steps of the map that it reads; and each stride makes all later steps larger:

# %%
reach, step = 1, 1  # in pixels
for layer in look_at_cells.modules():
    if isinstance(layer, nn.Conv2d) and layer.kernel_size[0] > 1:
        reach += (layer.kernel_size[0] - 1) * step
        step *= layer.stride[0]
print(f"a cell stands for {step} pixels, and a square of {reach} pixels can reach it;")
print(f"the picture is {picture.shape[-1]} pixels wide")

# %% [markdown]
# So on paper a cell in the middle sees everything. The measurement says that it hardly uses that. The next figure takes all
# pairs of a square and an element, by their distance on the grid.

# %% tags=["hide-input"]
places = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij"), -1)
places = places.flatten(0, 1)  # (49, 2)
distance = (places[:, None] - places).abs().amax(-1)  # (49, 49)
figure, axes = plt.subplots(figsize=(5.6, 3.3))
lines = {
    kind: (range(7), [100 * moved[kind][distance == far].mean().item() for far in range(7)])
    for kind in readers
    if kind != "regions"
}
plots.curves(
    axes, lines, x="distance of the painted square (squares)", y="the vector moves (%)"
)
axes.set(yscale="log", ylim=(1e-2, 200))
plots.show(
    figure,
    alt="How far a vector moves, on a logarithmic scale, against the distance of the painted square. Cells fall steeply with every "
    "square of distance; patches fall at first and then stay level.",
)

# %% [markdown]
# A cell's interest falls to about a third with each square of distance, then faster, and ends where its receptive field ends (zero
# has no place on this axis). A patch has no such end: in each layer it has looked at all others. That is what *attention*
# is for, to which we come below.
#
# ## What does a vector say? An experiment that could fail
#
# To *see* a thing is not to *tell* of it. Suppose that we want to know which kind of thing stands at a place, and may ask
# one vector only, with one straight question: a *linear probe*, which can only weigh the vector's numbers and add them up.
# (Ours is a *ridge regression*: least squares, with a small penalty on large weights.) We ask it twice. What stands here?
# And what is the thing that stands farthest away in the same picture? If attention carries news across the picture, patches
# must answer the second question better than cells do. Beside them stands somebody who has seen no thing at all, but knows
# the place: cows stand on farms.


# %% tags=["hide-input"]
KINDS = list(scenes.CATALOGUE)


def things_of(elements: str, split: str) -> tuple[torch.Tensor, ...]:
    """For each thing: the vector at its middle, its own kind, and the kind of the thing farthest away."""
    alone = elements == "the place alone"
    part = getattr(datasets["cells" if alone else elements], split)
    features = np.asarray(part.pictures[np.arange(len(part))])  # (n, N, F)
    rows = []
    for number, picture in enumerate(made[split]):
        things = picture.scene.things
        corners = np.array([thing.box for thing in things])  # (things, 4)
        middles = (corners[:, :2] + corners[:, 2:]) / 2  # (things, 2)   across, down
        place = np.array(scenes.PLACES) == picture.scene.place  # (places,)
        for own, thing in enumerate(things):
            far = int(np.hypot(*(middles - middles[own]).T).argmax())
            across, down = np.minimum(middles[own] // 16, 6).astype(int)
            element = 1 + own if elements == "regions" else 7 * down + across
            vector = place if alone else features[number, element]
            rows.append((vector, KINDS.index(thing.kind), KINDS.index(things[far].kind)))
    vectors, here, far_away = (
        torch.from_numpy(np.array(column)) for column in zip(*rows, strict=True)
    )
    return vectors.double(), here, far_away  # (things, F), (things,), (things,)


# %%
def probe(x: torch.Tensor, kinds: torch.Tensor, x_new: torch.Tensor) -> torch.Tensor:
    mean, spread = x.mean(0), x.std(0) + 1e-6
    x, x_new = (x - mean) / spread, (x_new - mean) / spread  # (things, F)
    wanted = F.one_hot(kinds, len(KINDS)).double()  # (things, kinds)
    penalty = 1e-3 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(x.T @ x + penalty, x.T @ (wanted - wanted.mean(0)))
    return (x_new @ weights + wanted.mean(0)).argmax(1)  # (things,)   the surest kind


right = {}
if data == "scenes":
    for kind in (*readers, "the place alone"):
        x, here, far_away = things_of(kind, "train")
        x_new, here_new, far_away_new = things_of(kind, "test")
        right[kind, "here"] = (probe(x, here, x_new) == here_new).double().mean()
        right[kind, "far away"] = (probe(x, far_away, x_new) == far_away_new).double().mean()
    print(f"{len(x_new)} things of {len(KINDS)} kinds were asked for")
else:
    print("Nobody knows the truth about photographs: no probe.")

# %% tags=["hide-input"]
if right:
    figure, axes = plt.subplots(figsize=(6.4, 3.3))
    knowing = list(dict.fromkeys(kind for kind, _ in right))
    for side, (question, hatch) in enumerate((("here", ""), ("far away", "//"))):
        values = [100 * right[kind, question].item() for kind in knowing]
        across = np.arange(len(knowing)) + 0.4 * side - 0.2
        bars = axes.bar(
            across, values, 0.38, color=plots.COLOURS[side], hatch=hatch, label=question
        )
        axes.bar_label(bars, fmt="%.0f", padding=2)
    axes.set(
        xticks=range(len(knowing)),
        xticklabels=knowing,
        ylabel="kinds read rightly (%)",
        ylim=(0, 118),
    )
    axes.legend(ncols=2, loc="upper right", title="which thing stands")
    plots.show(
        figure,
        alt="How often a line reads the right kind from one vector. What stands here is read nearly always from cells, regions and "
        "patches; what stands far away is read hardly more often than from the place alone, also from patches.",
    )

# %%
if right:
    shares = {
        f"{kind}, {where} (%)": 100 * share.item() for (kind, where), share in right.items()
    }
    print(lesson.report("02_probe", shares))

# %% [markdown]
# Here the hope fails, or nearly so. A patch sees the whole picture, and all three kinds know their own place well. But of
# what is far away a patch says hardly more than a cell, and both little more than the place gives away. These networks were
# trained to say of each cell what stands in it. A vector carries what it was trained to carry, not all that it could see.
# If a model is to know how things *stand to each other*, something must be trained to bring them together: attention
# between the elements, or a loss that asks for it. Most notebooks of this course are about just that.

# %% [markdown]
# ## Three picture encoders, from nothing
#
# The backbone has done the looking, once, and its vectors lie on disk. What remains to learn is small: bring each element
# to one width, D, that pictures and sentences share. For cells and patches that is one matrix, the same for each element.


# %%
class Cells(nn.Module):  # and patches
    def __init__(self, feature_dim: int, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(feature_dim, dim)

    def forward(self, cells: torch.Tensor) -> torch.Tensor:  # (B, N, F)
        return self.project(cells)  # (B, N, D)


# %% [markdown]
# Regions get a little more, because the vectors of a *detector*, a network that finds things and draws the boxes, are
# harder to use: a second way through two layers, added to the first {cite}`chen2021gpo`. Pictures have different numbers of
# regions, so a batch is filled up with *padding*: rows of nothing, and a *mask* says which rows are real. The *batch
# normalisation* between the two layers brings each number to mean zero and spread one over a batch, and must look at the
# real rows alone.


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
# With the same weights, the package's encoders must give the same numbers.

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
# ## The same sentence, three readers
#
# A sentence has elements too, its words. A table of vectors, one row a word, makes a start. But *left* means little until
# one knows left of what: words must hear of each other. The field has two ways to let them. A *recurrent* network passes a
# message from word to word; read in both directions, each word hears from both sides. *Attention* lets each word ask all
# others at once. The figure shows, for one word, from where its vector can hear.

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
    for start, end, heard in sorted(arrows, key=lambda arrow: arrow[2]):
        colour = plots.COLOURS[0] if heard else "0.82"
        axes.annotate(
            "",
            end,
            start,
            arrowprops={
                "arrowstyle": "-|>",
                "color": colour,
                "lw": 1.8 if heard else 0.9,
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
# First the words become numbers. A *vocabulary* lists the words of the training captions; each has a number, and a sentence
# gets a start and an end. We take the five captions of the picture above. The longest decides the width of the batch, L;
# shorter ones are padded, and the mask says where.

# %%
captions = [
    dataset.test.captions[caption] for caption in np.flatnonzero(dataset.test.owner == row)
]
vocabulary = Vocabulary.build(dataset.train.captions)
tokens, mask = vocabulary.encode(captions)  # (C, L) each
for caption, real in zip(captions, mask.int().tolist(), strict=True):
    print(*real, " ", caption)
sentence = captions[-1]

# %% [markdown]
# Each row begins with its mask: a one for a word, the start and the end among them, and a zero for padding.
#
# ## A GRU from nothing
#
# The *gated recurrent unit* {cite}`cho2014gru` carries a *state* $h$, its memory, from word to word. At word $i$, with the
# vector $x_i$, it makes a proposal $\tilde h_i$ and mixes it with what it remembers. Two *gates*, numbers between zero and
# one in each dimension, decide: $r$ how much of the past the proposal may use, $z$ how much of the past stays. Equations
# (5) to (8) of the paper, with $\sigma$ the logistic function and $\odot$ the product number by number:
#
# $$\begin{aligned}
# r_i &= \sigma(W_r x_i + U_r h_{i-1}) & (5)\\
# z_i &= \sigma(W_z x_i + U_z h_{i-1}) & (6)\\
# h_i &= z_i \odot h_{i-1} + (1 - z_i) \odot \tilde h_i & (7)\\
# \tilde h_i &= \tanh(W x_i + U (r_i \odot h_{i-1})) & (8)
# \end{aligned}$$
#
# The three matrices $W$ lie below each other in one, and so do the three $U$; torch adds a bias to each.


# %%
def gru_step(x, h, W, U, w, u):  # x: (C, Dw), h: (C, D)
    of_word = (x @ W.T + w).chunk(3, -1)  # three of (C, D)
    of_past = (h @ U.T + u).chunk(3, -1)  # three of (C, D)
    r = torch.sigmoid(of_word[0] + of_past[0])  # eq. 5
    z = torch.sigmoid(of_word[1] + of_past[1])  # eq. 6
    proposal = torch.tanh(of_word[2] + r * of_past[2])  # eq. 8, with the gate after U
    return z * h + (1 - z) * proposal  # eq. 7


cell = nn.GRUCell(128, 256)
x, h = torch.randn(3, 128), torch.randn(3, 256)
weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
torch.testing.assert_close(gru_step(x, h, *weights), cell(x, h))
print("torch.nn.GRUCell agrees")

# %% [markdown]
# Reading a sentence is that step, word after word. Two such readers, one from each end, make a *bidirectional* GRU, and a
# word's element is the mean of both states. The line with `where` is the one that people forget: at padding, the state
# stays as it is. Without it the backward reader would read the padding first, and a caption's vectors would depend on how
# long its neighbours in the batch are.


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
# The package's encoder turns each caption around for the second reading, with the padding still at the end. On the real words the numbers are the same.

# %%
torch.manual_seed(seed)
gru_reader = BiGRUEncoder(len(vocabulary), 128, 256)
elements, _ = gru_reader(tokens, mask)  # (C, L, D)
ours = bigru(gru_reader.embedding(tokens), mask, gru_reader.forwards, gru_reader.backwards)
torch.testing.assert_close(ours[mask], elements[mask])
print("vsecore.encoders.BiGRUEncoder agrees:", tuple(elements.shape))

# %% [markdown]
# ## Attention from nothing
#
# A recurrent network hears of a far word through all words between. *Attention* {cite}`vaswani2017attention` has no
# between. From its vector $x_i$ each word makes three: a *query* $q_i = W_q x_i$, what it looks for; a *key*
# $k_i = W_k x_i$, what it can be found by; and a *value* $u_i = W_u x_i$, what it tells. A query that fits a key well takes
# much of that word's value. Equation (1) of the paper, for one word, with $D_h$ the width of a query:
#
# $$a_{ij} = \mathrm{softmax}_j \left( \frac{q_i \cdot k_j}{\sqrt{D_h}} \right) , \qquad \bar x_i = \sum_j a_{ij} u_j .$$
#
# The *softmax* over $j$ takes exponentials and divides them by their sum, so that the shares $a_{ij}$ of each word add up
# to one. (The paper writes a capital V for the values; $v$ is a picture's vector in this course.) Padding must get no
# share: its fit is set to minus infinity before the softmax. Several *heads*, A of them, do this side by side, each in a
# slice of the width.


# %%
def attention(q, k, u, mask):  # (C, A, L, Dh) each, and (C, L)
    fit = q @ k.mT / q.shape[-1] ** 0.5  # (C, A, L, L)
    fit = fit.masked_fill(~mask[:, None, None], -torch.inf)
    return fit.softmax(-1) @ u  # (C, A, L, Dh)   eq. 1


q, k, u = torch.randn(3, len(tokens), 4, tokens.shape[1], 64)
expected = F.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])
torch.testing.assert_close(attention(q, k, u, mask), expected)
print("torch's scaled_dot_product_attention agrees")

# %% [markdown]
# A *Transformer layer* is attention, in which words hear of each other, and then a small network of two layers, equation
# (2), in which each thinks for itself. Both are *residual*: what they find is added to what was there. A *layer norm*
# before each brings every vector to mean zero and spread one.


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
        heard = attention(q, k, u, mask).transpose(1, 2).flatten(2)  # (C, L, D)
        x = x + self.join(heard)
        return x + self.narrow(self.widen(self.before_widen(x)).relu())  # eq. 2


# %% [markdown]
# Torch has this layer as well. Its weights come in the same order, so we can copy them one by one.

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
# One thing is missing. Attention asks *what* the other words are, never *where*: shuffle the words, and their vectors are
# shuffled, no more. So a vector for each *position* is added to each word's at the start. Here is the whole reader, two
# layers high as in the thesis that the course builds later {cite}`yan2019relational`.


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


transformer_reader = TransformerReader(len(vocabulary), 256)
transformer_reader(tokens, mask).shape

# %% [markdown]
# ## BERT
#
# BERT {cite}`devlin2019bert` is such a Transformer, higher and wider, that has read a library before it meets its first
# caption. Its exercise was to fill gaps: a word in seven or so is hidden, and the network guesses it from all others, on
# both sides. A word that it does not have in its list it spells in *word pieces*; `##` marks a piece that goes on. `[CLS]`
# and `[SEP]` are its start and end. We use `all-MiniLM-L6-v2`, a small BERT that learned from a large one
# {cite}`wang2020minilm` and was then trained to give sentences of like meaning like vectors {cite}`reimers2019sbert`.

# %%
bert_folder = model_folder("all-MiniLM-L6-v2")
pieces_of = tokenizers.Tokenizer.from_file(str(bert_folder / "tokenizer.json"))
pieces_of.no_padding()
print(*pieces_of.encode(sentence).tokens)
print(*pieces_of.encode("A snowman beside a sandcastle, and a sailboat.").tokens)

# %% [markdown]
# The caption's words are all in BERT's list; *snowman*, *sandcastle* and *sailboat* are not, and are spelled.
#
# `BERTEncoder` takes the last layer's vectors and projects each to width D, as the picture encoders do.

# %%
torch.manual_seed(seed)
bert_reader = BERTEncoder(str(bert_folder), 256).eval()
bert_tokenizer = BERTTokenizer(bert_folder)
pieces, pieces_mask = bert_tokenizer.encode(captions)  # (C, L) each
with torch.no_grad():
    states = bert_reader.backbone(pieces, pieces_mask.long()).last_hidden_state  # (C, L, H)
    elements, _ = bert_reader(pieces, pieces_mask)  # (C, L, D)
torch.testing.assert_close(elements, bert_reader.project(states))
print(tuple(states.shape), "->", tuple(elements.shape))

# %% [markdown]
# ### The same word in other company
#
# In a table, *left* has one vector, in *a girl facing left* as in *a girl left the beach*. In BERT its vector should depend
# on the company: one would expect that, at the last layer, the *left* of the first sentence is nearer to *right* in its own
# place than to the *left* that means *went away*. This too could fail. We follow the cosine from layer to layer.

# %%
company = {
    "left": "A girl facing left on the beach",
    "right": "A girl facing right on the beach",
    "left (went away)": "A girl left the beach",
}
vectors = {}
for name, text in company.items():
    place = pieces_of.encode(text).tokens.index(name.split()[0])
    ids, _ = bert_tokenizer.encode([text])  # (1, L)
    with torch.no_grad():
        layers = bert_reader.backbone(ids, output_hidden_states=True).hidden_states
    vectors[name] = torch.stack([layer[0, place] for layer in layers])  # (layers + 1, H)
alike = {
    f"“left” and “{name}”": F.cosine_similarity(vectors["left"], vectors[name], dim=-1)
    for name in ("right", "left (went away)")
}

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(5.6, 3.2))
lines = {name: (range(len(cosines)), cosines.tolist()) for name, cosines in alike.items()}
plots.curves(axes, lines, x="layer (0: words and places)", y="cosine")
axes.set(ylim=(0, 1.05))
plots.show(
    figure,
    alt="The cosine of two vectors against the layer. The same word in two meanings begins at nearly one and falls; left and right in the same "
    "place begin at a half and rise. Both change in the first two layers and little after; the lines come near each other and do not cross.",
)

# %%
lesson.report(
    "02_company",
    {f"{name}, last layer (cosine × 100)": 100 * c[-1].item() for name, c in alike.items()},
)

# %% [markdown]
# Company does tell: in the first two layers the two meanings move apart and the two directions come nearer. After that
# little changes, and at the last layer *left* and *right* part again. The lines do not cross. To this small BERT the word itself still weighs more than its company. One pair of words proves nothing, so change
# the sentences and look for a pair where the lines cross.
#
# ## What does each word's vector see?
#
# The same measurement as for pictures. Take one word away, by putting an empty one in its place (BERT: its `[MASK]`), read
# again, and see how far each vector moves. The GRU and the Transformer here are untrained: what can be heard at all is a
# matter of how the network is wired, and that training does not change.


# %%
@torch.no_grad()
def moved_by_loss(read, tokens: torch.Tensor, blank: int) -> torch.Tensor:
    copies = tokens.repeat(tokens.shape[1], 1).fill_diagonal_(blank)  # (L, L)
    before, after = (read(t, torch.ones_like(t) > 0) for t in (tokens, copies))
    return (after - before).norm(dim=-1) / before.norm(dim=-1)  # (word lost, vector)


def table(tokens, mask):
    return gru_reader.embedding(tokens)  # (C, L, Dw)


def gru_forwards(tokens, mask):
    return read(
        gru_reader.embedding(tokens),
        mask,
        gru_reader.forwards.all_weights[0],
        range(len(tokens[0])),
    )


one, one_mask = vocabulary.encode([sentence])  # (1, L)
one_in_pieces, _ = bert_tokenizer.encode([sentence])
heard = {
    "a table of word vectors": moved_by_loss(table, one, vocabulary.pad),
    "GRU, forwards alone": moved_by_loss(gru_forwards, one, vocabulary.pad),
    "BiGRU": moved_by_loss(lambda *t: gru_reader(*t)[0], one, vocabulary.pad),
    "Transformer": moved_by_loss(transformer_reader, one, vocabulary.pad),
    "BERT": moved_by_loss(lambda *t: bert_reader(*t)[0], one_in_pieces, bert_tokenizer.blank),
}

# %% tags=["hide-input"]
names = ["start", *sentence.lower().rstrip(".").split(), "end"]
figure, panels = plt.subplots(2, 2, figsize=(9.2, 8.2))
shown_readers = [name for name in heard if name != "GRU, forwards alone"]
for axes, name in zip(panels.flat, shown_readers, strict=True):
    ticks = pieces_of.encode(sentence).tokens if name == "BERT" else names
    image = axes.imshow(100 * heard[name].clamp(min=1e-9), norm=LogNorm(0.1, 100))
    axes.set(title=name, xlabel="vector of", ylabel="word lost")
    axes.set_xticks(range(heard[name].shape[1]))
    axes.set_yticks(range(heard[name].shape[0]))
    if len(ticks) == heard[name].shape[0]:
        axes.set_xticklabels(ticks, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
        axes.set_yticklabels(ticks, fontsize=8)
    axes.grid(False)
figure.colorbar(
    image, ax=list(panels.flat), label="the vector moves (% of its length)", shrink=0.6
)
plots.show(
    figure,
    alt="Four heat maps: which word's vector moves when a word is lost. In the table only a word's own vector moves; in the BiGRU the neighbours move "
    "too, less and less with distance on both sides; in the Transformer all move about equally; in BERT all move, by different amounts.",
)

# %% [markdown]
# How many of the vectors move at all when one word in the middle is lost?

# %%
lost = one.shape[1] // 2
print(f"word {lost} of {one.shape[1]} is lost; these vectors move:")
for name, shares in heard.items():
    print(f"{name:24}{int((shares[lost] > 1e-5).sum()):3}")

# %% [markdown]
# A row of the table hears only itself. The forward GRU hears the past, the BiGRU all, neighbours most: its map has a bright
# diagonal that fades. The untrained Transformer hears all words about alike, wherever they stand. BERT hears all, and has
# learned to whom to listen: losing the girl or the umbrella moves the others most, losing the start moves them least by far.
#
# ## Padding never changes a result
#
# Whoever reads must give a caption the same vectors alone and in a batch with longer ones. This is the promise of every
# encoder of the package, and of ours. We read the shortest caption alone and among the five.

# %%
short = int(mask.sum(1).argmin())
checks = {
    "BiGRU": (lambda *t: gru_reader(*t)[0], vocabulary, tokens, mask),
    "Transformer": (transformer_reader, vocabulary, tokens, mask),
    "BERT": (lambda *t: bert_reader(*t)[0], bert_tokenizer, pieces, pieces_mask),
}
with torch.no_grad():
    for name, (reader, tokenizer, batch, real) in checks.items():
        alone = reader(*tokenizer.encode([captions[short]]))[0]  # (L of its own, D)
        among = reader(batch, real)[short]  # (L of the batch, D)
        torch.testing.assert_close(among[: len(alone)], alone, rtol=1e-4, atol=1e-5)
        print(f"{name}: {len(alone)} vectors, the same alone and among {len(among)} places")

# %% [markdown]
# ## What does each cost?
#
# Four prices: *parameters*, the numbers that are learned; *multiply-adds*, the work of one picture or one sentence; the
# numbers that must be kept of each; and time. The first three can be counted exactly (of the work, the products of matrices; the rest is
# small beside them). Here for one picture, and for one
# sentence of twelve words. (In a search engine pictures are encoded once and kept. A sentence is encoded whenever somebody
# types it.)


# %% tags=["hide-input"]
def parameters(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def multiply_adds(run) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


twelve, twelve_mask = torch.full((1, 12), 5), torch.ones(1, 12, dtype=torch.bool)
looks = {}  # name: (backbone, encoder, a function from how many to the elements of as many)
looks["cells"] = (
    look_at_cells,
    cells := CellEncoder(look_at_cells.feature_dim, 256),
    lambda n: cells(look_at_cells(picture.repeat(n, 1, 1, 1)))[0],
)
if data == "scenes":
    looks["regions"] = (
        small_cnn,
        regions := RegionEncoder(small_cnn.region_dim, 256),
        lambda n: regions(readers["regions"](picture.repeat(n, 1, 1, 1)))[0],
    )
    looks["patches"] = (
        readers["patches"],
        patches := CellEncoder(readers["patches"].feature_dim, 256),
        lambda n: patches(readers["patches"](picture.repeat(n, 1, 1, 1)))[0],
    )
reads = {
    "BiGRU": (None, gru_reader, lambda n: gru_reader(twelve.repeat(n, 1))[0]),
    "Transformer": (
        None,
        transformer_reader,
        lambda n: transformer_reader(twelve.repeat(n, 1), twelve_mask.repeat(n, 1)),
    ),
    "BERT": (
        bert_reader.backbone,
        bert_reader.project,
        lambda n: bert_reader(twelve.repeat(n, 1))[0],
    ),
}

# %%
lines = [
    "| | parameters, trained before | parameters, trained here | multiply-adds | elements |",
    "| --- | ---: | ---: | ---: | ---: |",
]
for name, (backbone, encoder, run) in (looks | reads).items():
    before = f"{parameters(backbone):,}" if backbone else "none"
    count, width = run(1).shape[1:]
    lines.append(
        f"| {name} | {before} | {parameters(encoder):,} | {multiply_adds(lambda run=run: run(1)):,} | {count} × {width} |"
    )
Markdown("\n".join(lines))

# %% [markdown]
# Time and memory depend on the machine, so the figure shows them for the one that ran this page. The memory is what must be
# *held for learning*: the results of all layers, which the gradient needs again on its way back.


# %% tags=["hide-input"]
def milliseconds(run, count: int = 16) -> float:
    """The best of three runs, for each item."""
    taken = []
    with torch.inference_mode():
        run(count)
        for _ in range(3):
            began = time.perf_counter()
            run(count)
            taken.append(time.perf_counter() - began)
    return 1000 * min(taken) / count


def megabytes_held(run, modules, count: int = 16) -> float:
    """What autograd keeps for the way back, but for the parameters themselves, for each item."""
    own = {p.untyped_storage().data_ptr() for module in modules for p in module.parameters()}
    held = {}

    def keep(tensor):
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        elements = run(count)
    assert elements.requires_grad
    return sum(size for place, size in held.items() if place not in own) / 2**20 / count


bars = {}
for name, (backbone, encoder, run) in (looks | reads).items():
    modules = [module for module in (backbone, encoder) if module is not None]
    bars[name] = (milliseconds(run), megabytes_held(run, modules))
figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
for axes, column, label in zip(
    panels, (0, 1), ("milliseconds, forwards", "megabytes held for learning"), strict=True
):
    values = [bar[column] for bar in bars.values()]
    colours = [plots.COLOURS[0] if name in looks else plots.COLOURS[1] for name in bars]
    drawn = axes.barh(list(bars), values, color=colours, height=0.62)
    axes.bar_label(drawn, fmt="%.2g", padding=3)
    axes.set(xlabel=label, xscale="log")
    axes.set_xlim(min(values) / 3, max(values) * 4)
panels[0].invert_yaxis()
panels[0].set_title("for each picture (blue) or sentence (orange)")
plots.show(
    figure,
    alt="Two bar charts on logarithmic scales: milliseconds for each picture or sentence, and megabytes held for learning, for cells, regions, patches, "
    "BiGRU, Transformer and BERT. In both BERT is by far the dearest of the three readers.",
)

# %% [markdown]
# Three things to take from the table and the figure. Nearly all parameters for pictures are in the backbone, which is why
# the field looks at each picture once and keeps the features. The three kinds cost alike here only because our boxes come
# for free: on photographs a detector must find them, and that is the dearest network of all. And BERT costs more than the
# other two readers together: in parameters, in work, in time and in memory.
#
# ```{admonition} Where the code departs from the paper
# :class: note
#
# - **The reset gate.** Equation (8), as printed in the published paper, applies the gate $r$ to the state *before* the
#   matrix $U$. Torch, and with it the field's code and ours, applies it *after*, $r_i \odot (U h_{i-1})$, as an early
#   version of the paper does; all of $U h$ is then one product.
# - **Where the layer norm stands.** The Transformer's paper normalises after each sum; the thesis, our `TransformerLayer`
#   and most of today's code normalise before. BERT keeps the old order.
# - **Positions.** The paper adds sines and cosines; BERT, the thesis and our reader learn them.
# - **No class token.** ViT's paper adds a token for the whole picture. Ours has none, because here the patches are the
#   elements; and two convolutions look at the pixels before the cut, without which so small a transformer learns little
#   from so few pictures.
# - **Batch norm over padding.** The released code of VSE∞ normalises its regions over the padding too. Here real regions
#   alone count.
# - **A perfect detector.** The boxes of our scenes are the world's own. On photographs a detector, Faster R-CNN, finds
#   them, and some of them are wrong {cite}`anderson2018bottomup`.
# ```
#
# ## What the papers report, and what we measured
#
# The same system, VSE∞ {cite}`chen2021gpo`, with other encoders. From the first to the second, only the reader of sentences
# changes; the third averages the similarities of two models.

# %%
Markdown(
    course.published(
        "VSE∞, regions, BiGRU", "VSE∞, regions, BERT", "VSE∞, regions and grid, BERT"
    )
)

# %% [markdown]
# BERT in place of the BiGRU adds some points on both collections, and a second kind of elements beside the first adds more.
#
# For training three systems to the end there is no time here. But a ridge regression from a picture's *mean* element to the
# words of its captions trains in a second, and ranks captions by the words that it expects. How much does it find in each
# kind of element? Grid features have been reported to serve as well as regions {cite}`jiang2020grid`; if that holds for a
# mean and a line, the first two numbers will be close.

# %%
sums = {}
for kind, part in datasets.items():
    scores = ridge_scores(part.train, part.test)  # (n, Nc)
    sums[f"rsum, mean of {kind}"] = evaluate(scores, part.test.owner)["rsum"]
lesson.report("02_ridge", sums)

# %% [markdown]
# They are not. Regions win clearly, though cells know their own place nearly as well, as the probe has shown. The mean may
# explain it: in a mean of regions each thing has one voice, in a mean of cells a kite has a few and the sky has most. What
# is in the elements and what survives a mean are two questions, and the second gets a notebook of its own. The paper in
# question trained networks on top of its features, to answer questions, and did not take their mean at once; and our
# regions also say where their boxes lie. So this is no contradiction, but a warning.
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | cells {cite}`jiang2020grid` | `Cells` | `vsecore.encoders.CellEncoder` |
# | regions {cite}`anderson2018bottomup` | `Regions` | `vsecore.encoders.RegionEncoder` |
# | patches {cite}`dosovitskiy2021vit` | `Cells` | `vsecore.encoders.CellEncoder` |
# | GRU {cite}`cho2014gru`, eqs. (5) to (8) | `gru_step`, `read`, `bigru` | `vsecore.encoders.BiGRUEncoder` |
# | attention {cite}`vaswani2017attention`, eqs. (1), (2) | `attention`, `TransformerLayer` | with the thesis' model, later; here held against `torch.nn` |
# | BERT {cite}`devlin2019bert` | `bert_reader` | `vsecore.encoders.BERTEncoder` |
#
# ## Exercises
#
# ```{exercise-start} Count a GRU
# :label: ex-02-count
# ```
# The field's caption encoder reads word vectors of width 300 with a bidirectional GRU whose states are 1,024 wide. How many
# parameters has the GRU, without the table of words? (Look at equations 5 to 8: three pairs of matrices. Torch adds a bias
# to each matrix.) Work it out on paper, then ask `nn.GRU`.
# ```{exercise-end}
# ```

# %%
your_count = ...
check("02.count", your_count)

# %% [markdown]
# ````{solution-start} ex-02-count
# :class: dropdown
# ````
# For each direction and for each of the three, $W$ has 1024 · 300 numbers, $U$ has 1024 · 1024, and there are two biases of
# 1024.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_count = 2 * 3 * (1024 * 300 + 1024 * 1024 + 2 * 1024)
assert your_count == parameters(nn.GRU(300, 1024, bidirectional=True))
check("02.count", your_count)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} A mean that padding cannot touch
# :label: ex-02-mean
# ```
# Most systems end an encoder with the mean of its elements. Write it: `x` is (B, N, D), `mask` is (B, N) and True where an
# element is real; return (B, D). What stands in the padding may be anything, also NaN, and must never reach the result.
# ```{exercise-end}
# ```


# %%
def your_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor: ...


check("02.mean", your_mean)

# %% [markdown]
# ````{solution-start} ex-02-mean
# :class: dropdown
# ````
# To multiply by the mask is not enough: zero times NaN is NaN. `where` does not look at what it leaves out.


# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
def your_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    real = torch.where(mask[..., None], x, 0)  # (B, N, D)
    return real.sum(1) / mask.sum(1, keepdim=True)  # (B, D)


check("02.mean", your_mean)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Break it
# :label: ex-02-break
# ```
# Take the positions out of the Transformer: `transformer_reader.position.weight.data.zero_()`. Read *a dog left of a cat*
# and *a cat left of a dog*, and take the mean of each one's vectors. What is the cosine of the two means? Think first; then
# try it. What would a search engine with such a reader give for the second sentence?
# ```{exercise-end}
# ```

# %%
your_cosine = ...
check("02.break", your_cosine)

# %% [markdown]
# ````{solution-start} ex-02-break
# :class: dropdown
# ````
# Both sentences hold the same words. Without positions each word's vector depends on the set of words only, so the two
# sentences have the same vectors in another order, and the same mean: the engine gives the same pictures for both. The
# positions are all that a Transformer knows of order.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
kept = transformer_reader.position.weight.detach().clone()
transformer_reader.position.weight.data.zero_()
with torch.no_grad():
    pair = vocabulary.encode(["a dog left of a cat", "a cat left of a dog"])
    means = transformer_reader(*pair).mean(1)  # (2, D)
your_cosine = F.cosine_similarity(means[0], means[1], dim=0)
transformer_reader.position.weight.data.copy_(kept)
check("02.break", your_cosine)

# %% [markdown]
# ````{solution-end}
# ````
#
# ## Where to read on
#
# - What a convolutional network's vectors use of their receptive field has been measured before, by gradients:
#   {cite}`luo2016receptive`.
# - How boxes became the field's favourite elements: {cite}`anderson2018bottomup`. That a grid can serve as well, and much
#   faster: {cite}`jiang2020grid`.
# - The GRU comes from machine translation {cite}`cho2014gru`, and so does the Transformer {cite}`vaswani2017attention`.
# - Reading in both directions at once, by filling gaps: {cite}`devlin2019bert`.
# - The next notebooks bring the two sides into one space, and train them.
