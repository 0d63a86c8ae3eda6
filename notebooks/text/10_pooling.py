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
# # Pooling: sort, weigh, sum
#
# **You will be able to** write GPO {cite}`chen2021gpo` and AdPool {cite}`zhang2022adpool` so that padding has no weight, see which cells
# of a picture a pooler listens to, and say what a trained AdPool has become.
#
# **You need** the notebooks [Encoders: what the vectors see](02_encoders.ipynb) and [Learning to rank](04_learning_to_rank.ipynb),
# and the softmax.
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take about an hour and a half.
#
# The map: encode → **pool** → compare → learn.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import itertools

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import course
from course import dots, plots
from course.checks import check, exercise
from course.drawings import pooling as draw
from vsecore import experiments
from vsecore.data.batches import make_loader
from vsecore.encoders import CellEncoder
from vsecore.evaluation import evaluate, ranks
from vsecore.losses import info_nce
from vsecore.masking import softmax_over_real
from vsecore.pooling import GPO, AdPool, KMaxPool, MaxPool, MeanPool, SoftPool
from vsecore.pooling import build_pool, sort_descending
from vsecore.recipes import get
from vsecore.similarity import unit
from vsecore.training import encode, fit

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## What a pooler changes
#
# An encoder turns a picture into many vectors, one for each cell of a grid, but the joint space needs a single one. The part that turns
# many vectors into one is called a *pooler*. The mean, which most of our systems used so far, is the simplest.
#
# We first train 2AD, the system of AdPool's paper, here with grid cells and a GRU. It has AdPool in both towers and AdOpt, the next
# notebook's loss. While 2AD trains, we record a number about its pooler that we need in *What moves the balance?*

# %% tags=["hide-input"]
dataset = lesson.dataset("grid")
dev = dataset.dev.subset(min(500, len(dataset.dev)))
size = experiments.LESSON_SCALE["scenes"] | {"training.epochs": 1}
size = lesson.pick(smoke=size, lesson=size, full={})
steps = lesson.pick(smoke=10, lesson=80, full=150)  # of the small towers

# %%
look = torch.from_numpy(np.array(dev.pictures[:100], dtype=np.float32))  # (100, N, F)


@torch.no_grad()
def token_part(model):  # ω of the token level, the mean over some pictures, in percent
    _, omega = model.image_pool.weights(model.image_encoder(look)[0])  # (100, 2)
    return 100 * omega[:, 0].mean().item()


# %%
paths = {"learned": [], "frozen": []}
recipe = get("2ad_grid_gru").override(size)


def watch(event):
    if event.kind == "step":
        paths["learned"].append(token_part(event.model))


run = fit(recipe, dataset, callback=watch, seed=seed)

# %% [markdown]
# Here are the trained encoders' outputs for the 500 development pictures. A grid has no padding, but captions do.

# %%
model, tokenizer, D = run.model, run.tokenizer, recipe.dim
pictures = torch.from_numpy(np.array(dev.pictures, dtype=np.float32))  # (Ni, N, F)
tokens, real_words = tokenizer.encode(dev.captions)  # (Nc, L) each
with torch.no_grad():
    cells, _ = model.image_encoder(pictures)  # (Ni, N, D)
    words, _ = model.text_encoder(tokens, real_words)  # (Nc, L, D)
    captions = unit(model.text_pool(words, real_words))  # (Nc, D)
N = cells.shape[1]
print("cells", tuple(cells.shape), "words", tuple(words.shape))

# %% [markdown]
# To compare poolers in seconds, we keep the captions' vectors and train small picture towers towards them: a linear layer and a pooler.


# %%
class PictureTower(nn.Module):
    def __init__(self, pool, **options):
        super().__init__()
        self.encode = CellEncoder(dataset.feature_dim, D)
        self.pool = build_pool(pool, D, **options)

    def forward(self, pictures, mask=None):
        elements, mask = self.encode(pictures, mask)  # (B, N, D)
        return unit(self.pool(elements, mask))  # (B, D)


# %%
part = dataset.train.subset(min(2000, len(dataset.train)))
teachers = encode(model, part, tokenizer)[1].vectors  # (Nc, D)   the captions' vectors


# %%
def train_tower(pool, **options):
    torch.manual_seed(seed)
    tower = PictureTower(pool, **options)
    optimizer = torch.optim.AdamW(tower.parameters(), 2e-3)
    batches = make_loader(part, tokenizer, 64, seed=seed, element_drop=0.2)
    for batch in (batch.to("cpu") for batch in itertools.islice(batches, steps)):
        v = tower(batch.pictures, batch.picture_mask)  # (B, D)
        loss = info_nce(v @ teachers[batch.caption_rows].T, 0.05, batch.positives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return tower.eval()


# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def scores_of(tower):  # (Ni, Nc)
    return tower(pictures) @ captions.T


towers = {name: train_tower(name) for name in ("mean", "max", "gpo", "adpool")}
reached = {
    name: evaluate(scores_of(tower), dev.owner)["rsum"] for name, tower in towers.items()
}
course.numbers(reached)
lesson.finding("AdPool finds more than the mean", reached["adpool"] > reached["mean"] + 40)

# %% [markdown]
# These are rsums on the 500 pictures, with the same cells, captions and number of steps for all; GPO and AdPool are explained below. The mean is
# far behind. Of all captions whose picture AdPool finds first, here is the one on which the mean does worst. Its own picture is framed.

# %% tags=["nbval-ignore-output"]
places = {name: ranks(scores_of(towers[name]), dev.owner)[1] for name in ("mean", "adpool")}
row = int(places["mean"].where(places["adpool"] == 0, -1).argmax())
found = [int(i) for name in places for i in scores_of(towers[name])[:, row].topk(5).indices]
titles = [f"{name}, place {place}" for name in ("mean", "AdPool") for place in range(1, 6)]
right = [picture == dev.owner[row] for picture in found]
lesson.finding("the mean fails on it", int(places["mean"][row]) > 20)
print("With the mean, the caption's own picture is at place", int(places["mean"][row]) + 1)

# %% tags=["hide-input", "nbval-ignore-output"]
shown = lesson.pictures("dev", found)
plots.show(
    plots.picture_row(shown, titles, marked=right, heading=dev.captions[row]),
    alt="Two rows of five pictures that were found for one caption: the upper row with the mean, the lower one with AdPool. The caption's own picture is framed where it is among the five.",
)

# %% [markdown]
# Most things fill only a few cells. The mean gives each of these cells the same weight as a cell of empty sky, so what they show is
# diluted. A pooler that favours large values loses less of it.
#
# ## One recipe: sort, weigh, sum
#
# The mean, the maximum and many others share one recipe, which the paper calls "sort → weight-sum" (section 3.2.1). They *sort* each
# dimension by itself, the largest value on top. They *weigh* the sorted values, with one number for each place. Then they *sum*. In the
# figure, four cells have five dimensions each, and a cell's values keep its colour.

# %% tags=["hide-input"]
small = np.array([[3, 0, 7, 2, 5], [8, 4, 1, 6, 2], [5, 9, 2, 3, 1], [1, 2, 4, 8, 6]])  # (N, D)
plots.show(
    draw.sort_weigh_sum(small, np.array([0.6, 0.3, 0.1, 0.0])),
    alt="Four tables in a row. First four cells of five numbers each, one colour for each cell. Then the same numbers with each column sorted, so "
    "that the colours are mixed in every row. Then four weights, falling from the first place to the last. Then five sums as bars, each made of pieces in the colours of the cells.",
)

# %% [markdown]
# In the first row of the second table the colours are mixed, because the largest values come from different cells. After sorting, a
# row is no longer a cell but a *place*.
#
# Let $x_{(i)}$ be the row at place $i$ of $N$. The weights $\theta_i$ of the rows are the whole pooler:
#
# $$v = \sum_{i=1}^{N} \theta_i\, x_{(i)} .$$
#
# Choosing a pooler by hand means choosing a list of weights. Here are the lists of the mean, of the maximum, and of *k-max*, the mean of
# the $k$ largest values:


# %%
def sort_weigh_sum(x, theta):  # (B, N, D), (N,)
    u = x.sort(dim=1, descending=True).values  # (B, N, D)   sort
    return (theta[:, None] * u).sum(1)  # (B, D)   weigh and sum


thetas = {  # (7,) each
    "mean": (torch.full((7,), 1 / 7), MeanPool()),
    "max": (torch.tensor([1.0, 0, 0, 0, 0, 0, 0]), MaxPool()),
    "3-max": (torch.tensor([1.0, 1, 1, 0, 0, 0, 0]) / 3, KMaxPool(3)),
}
x = torch.randn(4, 7, 6)  # (B, N, D)
for theta, pool in thetas.values():
    torch.testing.assert_close(sort_weigh_sum(x, theta), pool(x))
print("three poolers, three lists of weights, one function")

# %% [markdown]
# ## Padding must have no weight
#
# Captions differ in length, so short ones are filled up with *padding*, rows that stand for no word. A *mask* says which rows are real.
# When we sort, padding must come last, even where all real values are below zero, so we sort it as minus infinity.


# %%
def sort_rows(x, mask):  # (B, N, D), (B, N)
    u = x.masked_fill(~mask[:, :, None], -torch.inf).sort(dim=1, descending=True).values
    return u.masked_fill(u == -torch.inf, 0)  # (B, N, D)   padding is last, and zero


x = torch.randn(16, 18, 8)
mask = torch.arange(18) < torch.randint(1, 19, (16, 1))  # (B, N)
torch.testing.assert_close(sort_rows(x, mask), sort_descending(x, mask))
print("vsecore.pooling.sort_descending sorts the same way")

# %% [markdown]
# ```{exercise} k-max under a mask
# :label: ex-10-kmax
#
# For each set and each dimension, return the mean of the $k$ largest *real* values. `x` is (B, N, D), `mask` is (B, N), the result
# is (B, D). If there are fewer than $k$ real elements, take the mean of those. Padding rows may contain any values and need not come
# last. A pooler is trained, so gradients must reach `x`: stay with torch's operations.
# ```
#
# ```{hint}
# :class: dropdown
#
# Make padding smaller than every real value, and `topk` finds the largest. How many of these are real?
# ```


# %%
@exercise("10.kmax")
def k_max(x, mask, k):  # (B, N, D), (B, N) -> (B, D)
    # your part
    hidden = x.masked_fill(~mask[:, :, None], -torch.inf)  # (B, N, D)
    top = hidden.topk(min(k, x.shape[1]), dim=1).values  # (B, k, D)
    real = top > -torch.inf
    return top.masked_fill(~real, 0).sum(1) / real.sum(1)  # (B, D)
    # end of your part


# %% [markdown]
# ````{solution} ex-10-kmax
# :class: dropdown
#
# Padding becomes minus infinity, so `topk` takes it only where the real values run out. There it must add nothing to the sum, and it must
# not be counted either: dividing by $k$ makes the vectors of short captions too small. A common mistake is to multiply by the mask: padding
# then becomes zero, which wins wherever all real values are negative, and zero times NaN is still NaN.
# ````
#
# Learned weights come out of a softmax, which gives a share to everything. Its inputs are called *logits*. Do not mask with zero: since
# $\exp(0) = 1$, padding would still get a share. Minus infinity gives it none.


# %%
def safe_softmax(logits, mask):  # (B, N, 1 or D), (B, N)
    return logits.masked_fill(~mask[:, :, None], -torch.inf).softmax(1)


logits = torch.randn(16, 18, 1)
torch.testing.assert_close(safe_softmax(logits, mask), softmax_over_real(logits, mask))
print(safe_softmax(logits, mask)[~mask].sum().item(), "is the weight of all padding")

# %% [markdown]
# ## GPO: weights from the place
#
# The *generalized pooling operator* {cite}`chen2021gpo` learns the list of weights. One fixed list does not suit sets of different sizes:
# the fifth of five words and the fifth of eighteen should not get the same weight. So GPO computes the list from the size of the set. It
# writes each place as sines and cosines; a small recurrent network then reads them forwards and backwards and gives each a number,
# and a softmax turns the numbers into weights.


# %%
def place_code(count):
    rates = 10000.0 ** -(torch.arange(0, 32, 2) / 32)  # (16,)
    angles = torch.arange(count)[:, None] * rates  # (N, 16)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)  # (N, 32)


print(place_code(18)[:3, :4])  # the fastest sines and cosines of the first three places

# %% [markdown]
# ```{exercise} GPO's weights
# :label: ex-10-gpo
#
# `places` is (N, 32). `gru` is bidirectional: `gru(places)[0]` is (N, 64), the 32 forward states followed by the 32 backward ones. Take
# the mean of the two directions, let `linear` turn each place into one number, divide by `0.1`, and turn the numbers into weights, (N,).
# ```
#
# ```{hint}
# :class: dropdown
#
# `chunk(2, -1)` cuts the last dimension into two halves. `squeeze(-1)` removes a last dimension of size one.
# ```


# %%
@exercise("10.gpo")
def gpo_weights(places, gru, linear):  # (N, 32) -> (N,)
    # your part
    forwards, backwards = gru(places)[0].chunk(2, -1)  # (N, 32) each
    numbers = linear((forwards + backwards) / 2).squeeze(-1)  # (N,)
    return (numbers / 0.1).softmax(0)  # (N,)
    # end of your part


gpo = GPO()
theta = gpo_weights(place_code(18), gpo.gru, gpo.linear)  # (N,)
torch.testing.assert_close(theta, gpo.weights(torch.tensor([18]))[0])

# %% [markdown]
# ````{solution} ex-10-gpo
# :class: dropdown
#
# Dividing by 0.1 makes differences ten times as large, so the weights can become sharp. Note what is missing:
# nothing here looks at an element. All pictures of 49 cells get the same 49 weights.
# ````
#
# ## AdPool: weights from the values
#
# AdPool keeps the sorting but lets the values decide. Its authors observed that simple poolers do well if somebody chooses by hand which
# one to use for pictures and which for captions. AdPool learns that choice, by two *levels* and a *balance*:

# %% tags=["hide-input"]
plots.show(
    draw.two_levels(),
    alt="A diagram of AdPool. A table of four cells goes two ways. Above, the token level sorts each column and gives each sorted row one weight. "
    "Below, the embedding level leaves the table as it is and gives each single value a weight of its own. Both give a vector, and the balance mixes the two into one.",
)

# %% [markdown]
# The *token level* is meant "to find the best combination of MeanPool and K-MaxPool in an adaptive manner" (section 3.2.1). It gives each
# sorted row one logit, its product with a learned vector $W_{\mathrm{tok}}$ of width $D$, and a softmax turns the logits into weights. This is
# equation (3):
#
# $$v_{\mathrm{tok}} = \sum_{i=1}^{N} \theta_i\, x_{(i)}, \qquad \theta = \mathrm{softmax}_i\bigl(x_{(i)} \cdot W_{\mathrm{tok}}\bigr).$$
#
# ```{exercise} The token level
# :label: ex-10-token
#
# `u` holds sorted rows, (B, N, D), with zeros where a set has ended; `mask`, (B, N), says which rows are real; `W_tok` is (D, 1).
# Return equation (3), (B, D).
# ```
#
# ```{hint}
# :class: dropdown
#
# One product gives all logits, (B, N, 1). You have seen above what keeps padding out of a softmax.
# ```


# %%
@exercise("10.token")
def token_level(u, mask, W_tok):  # (B, N, D), (B, N), (D, 1) -> (B, D)
    # your part
    theta = safe_softmax(u @ W_tok, mask)  # (B, N, 1)
    return (theta * u).sum(1)  # (B, D)
    # end of your part


# %% [markdown]
# ````{solution} ex-10-token
# :class: dropdown
#
# It is sort-weigh-sum again, but now the weights are computed for each set from its own values. The softmax goes over the rows (dimension
# 1); over the last dimension it would give every row the weight 1. A row of padding has a logit of zero, so only the mask keeps it out.
# ````
#
# ```{exercise} Be the maximum, be 2-max
# :label: ex-10-weights
#
# After sorting, a set has the rows (3, 2), (1, 2) and (0, 1). Find a $W_{\mathrm{tok}}$ of two numbers with which the token level
# is the maximum of this set, and another with which it is its 2-max. A weight that should be zero may be as large as a hundredth.
# ```

# %%
your_weights = [[10.0, 0.0], [0.0, 20.0]]  # your part: W for the maximum, W for 2-max
check("10.weights", your_weights)

# %% [markdown]
# ````{solution} ex-10-weights
# :class: dropdown
#
# With W = (a, b) the logits are 3a + 2b, a + 2b and b. For the maximum, a large a lets the first row win. For 2-max, set a to 0, so that
# the first two rows tie, and let a large b push the third row out. This works only because the second dimension tells the third row from
# the others: the weights follow the values.
# ````
#
# The *embedding level*, equation (4), gives every single value a weight of its own, by a softmax over the elements in each dimension $j$.
# The paper calls it "a “soft” version of MaxPool"; it is also known as SoftPool {cite}`stergiou2021softpool`. Nothing in it is learned:
#
# $$v_{\mathrm{emb},\,j} = \sum_{i=1}^{N} \delta_{ij}\; x_{ij}, \qquad \delta_{ij} = \mathrm{softmax}_i(x_{ij}) .$$
#
# The larger the values, the closer this comes to the maximum. If they are small, like those of a GRU, which lie between minus one and one,
# the softmax is nearly even and the result is close to the mean. So an encoder can still choose, by the size of its values.
#
# The *balance* weighs the two results. A learned vector $W_{\mathrm{bal}}$ gives each a logit, and a softmax turns the two logits
# into their parts $\omega$, equation (5):
#
# $$v = \omega_1 v_{\mathrm{tok}} + \omega_2 v_{\mathrm{emb}}, \qquad \omega = \mathrm{softmax}\bigl([\,v_{\mathrm{tok}} \cdot W_{\mathrm{bal}},\; v_{\mathrm{emb}} \cdot W_{\mathrm{bal}}\,]\bigr).$$
#
# ```{exercise} The embedding level and the balance
# :label: ex-10-balance
#
# `token` is what the token level gave, (B, D). From the elements `x`, (B, N, D), and their `mask`, (B, N), compute the embedding
# level, equation (4). Then weigh the two with `W_bal`, (D, 1), equation (5). Return (B, D). Padding may hold any values.
# ```
#
# ```{hint}
# :class: dropdown
#
# Equation (4): the logits are the values themselves, (B, N, D). Equation (5): stack the two results into (B, 2, D), and treat them
# as a set of two elements.
# ```


# %%
@exercise("10.balance")
def adpool(token, x, mask, W_bal):  # (B, D), (B, N, D), (B, N), (D, 1) -> (B, D)
    # your part
    x = x.masked_fill(~mask[:, :, None], 0)  # (B, N, D)
    embedding = (safe_softmax(x, mask) * x).sum(1)  # (B, D)   eq. 4
    both = torch.stack([token, embedding], 1)  # (B, 2, D)
    omega = (both @ W_bal).softmax(1)  # (B, 2, 1)
    return (omega * both).sum(1)  # (B, D)   eq. 5
    # end of your part


# %% [markdown]
# ````{solution} ex-10-balance
# :class: dropdown
#
# The balance is the token level once more, on a set of two. The first line is needed because a weight of zero does not help against
# padding that holds NaN or infinity: zero times NaN is NaN.
# ````
#
# Together, your functions give what the package's pooler gives:

# %%
pool = AdPool(8)
W_tok, W_bal = pool.token.weight.T, pool.balance.weight.T  # (D, 1) each
real = torch.arange(18) < mask.sum(1, keepdim=True)  # (B, N)   of the sorted rows
token = token_level(sort_rows(x, mask), real, W_tok)  # (B, D)
torch.testing.assert_close(adpool(token, x, mask, W_bal), pool(x, mask))
print("vsecore.pooling.AdPool agrees")

# %% [markdown]
# ```{admonition} Optional: what the released code does
# :class: note dropdown
#
# In the released code the token level's softmax runs over the padding too (tried below). Its $W_{\mathrm{tok}}$ is a matrix of
# $D$ times $D$ with a bias, and a ReLU comes before the softmax, so every value has a weight of its own (`per_dimension=True` in the
# package). We follow the equations. More is on [the evidence page](../evidence/2ad.md).
# ```
#
# ## Which cells does a pooler listen to?
#
# A weight belongs to a place, and in each dimension some cell stands at that place. So we can ask how much weight each cell gets. We
# look up its weight in each dimension, and take the mean over the dimensions.


# %%
def of_places(theta, x):  # weights of the places (N,), one picture's cells (N, D) -> (N,)
    place = x.argsort(0, descending=True).argsort(0)  # (N, D)   each value's place
    return theta[place].mean(1)  # (N,)


@torch.no_grad()
def of_adpool(pool, x):  # one picture's cells (N, D) -> (N,)
    theta, omega = pool.weights(x[None])  # (1, N, 1), (1, 2)
    token, embedding = of_places(theta[0, :, 0], x), x.softmax(0).mean(1)  # (N,) each
    return omega[0, 0] * token + omega[0, 1] * embedding


# %%
gpo = towers["gpo"].pool
of_place = {  # (N,) each
    "mean": torch.full((N,), 1 / N),
    "max": F.one_hot(torch.tensor(0), N).float(),
    "gpo": gpo.weights(torch.tensor([N]))[0].detach(),
}

# %%
scene = torch.from_numpy(np.array(dataset.test.pictures[12], dtype=np.float32))  # (N, F)
side = round(N**0.5)
maps, titles = {}, {"gpo": "GPO", "adpool": "AdPool"}
for name, tower in towers.items():
    x = tower.encode(scene[None])[0][0].detach()  # (N, D)
    parts = of_places(of_place[name], x) if name in of_place else of_adpool(tower.pool, x)
    maps[titles.get(name, name)] = 100 * parts.view(side, side).numpy()

# %% tags=["hide-input", "nbval-ignore-output"]
plots.show(
    draw.over_the_scene(lesson.pictures("test", [12])[0], maps),
    alt="A scene, and the same scene four times under a heat map of the part of the vector that comes from each cell. With the mean every cell has the same "
    "part. With the maximum, GPO and, more faintly, AdPool, a few cells on and around the things have clearly more, and most cells of empty sky and ground have less.",
)
top = {name: np.sort(values.ravel())[-5:].sum() for name, values in maps.items()}
course.numbers(
    {f"part of the five strongest cells (%), {name}": one for name, one in top.items()}
)
lesson.finding(
    "all others listen to few cells",
    min(top["max"], top["GPO"], top["AdPool"]) > 1.5 * top["mean"],
)

# %% [markdown]
# For the maximum, a cell's part is simply the share of dimensions that it wins. GPO and AdPool listen to much the same cells as the maximum,
# those on and around the things, only less sharply. For the mean, the girl's face counts as much as a cell of empty sky.
#
# Weights from places and weights from values differ once the size of a set changes. Let every cell appear twice: the picture is still
# the same, so its vector should be too.
#
# ```{exercise} Every cell twice
# :label: ex-10-double
#
# Which of these poolers change their vector when every cell is given twice: `"mean"`, `"5-max"`, `"AdPool"`, `"GPO"`? Write the name of
# one that does before you run the next cell.
# ```

# %%
your_guess = "GPO"  # your part: one of the four names
check("10.double", your_guess)

# %% tags=["nbval-ignore-output"]
x = towers["adpool"].encode(pictures[:100])[0]  # (100, N, D)
poolers = {
    "mean": MeanPool(),
    "5-max": KMaxPool(5),
    "AdPool": towers["adpool"].pool,
    "GPO": gpo,
}
turned = {}
with torch.no_grad():
    for name, pool in poolers.items():
        once, twice = unit(pool(x)), unit(pool(x.repeat(1, 2, 1)))  # (100, D) each
        turned[name] = torch.rad2deg((once * twice).sum(1).clamp(-1, 1).arccos()).mean().item()
course.numbers({f"{name} turns the vector by (degrees)": one for name, one in turned.items()})
lesson.finding("shares stay the same", max(turned["mean"], turned["AdPool"]) < 0.5)
lesson.finding("places do not", min(turned["5-max"], turned["GPO"]) > 4)

# %% [markdown]
# ````{solution} ex-10-double
# :class: dropdown
#
# Two of them: 5-max and GPO. On the first five places 5-max now finds only three different values, and GPO meets places that it has never
# seen. For the mean and for AdPool only the *share* of elements with each value matters, and the shares stay the same.
# ````
#
# Captions and sets of regions differ in size, so GPO is trained with *size augmentation* {cite}`chen2021gpo`: elements are left out at
# random.
#
# ## What AdPool becomes
#
# Back to the trained system. How do its two poolers weigh the places, and how do they balance their levels?

# %% tags=["nbval-ignore-output"]
with torch.no_grad():
    theta_cells, omega_cells = model.image_pool.weights(cells)  # (Ni, N, 1), (Ni, 2)
    theta_words, omega_words = model.text_pool.weights(words, real_words)  # (Nc, L, 1), (Nc, 2)
of_pictures, of_captions = (
    100 * omega[:, 0].mean().item() for omega in (omega_cells, omega_words)
)
course.numbers(
    {"token level, pictures (%)": of_pictures, "token level, captions (%)": of_captions}
)
lesson.finding("for pictures, nearly only the embedding level counts", of_pictures < 30)
lesson.finding("for captions, both levels count", 30 < of_captions < 85)

# %% tags=["hide-input", "nbval-ignore-output"]
lengths = real_words.sum(1)  # (Nc,)
by_length = {
    n: theta_words[lengths == n, :n, 0].mean(0).tolist() for n in (8, 12, 16) if n in lengths
}
balances = {"pictures": omega_cells[:, 0].tolist(), "captions": omega_words[:, 0].tolist()}
plots.show(
    draw.levels(by_length, balances),
    alt="Left: the token level's weights of the places in captions of eight, twelve and sixteen words: falling curves, which begin lower the more words there are. "
    "Right: the balance, the token level's part in every picture, near zero, and in every caption, around the middle.",
)

# %% [markdown]
# On the left, the token level weighs a caption's largest values most, but the more words there are, the less each place gets. On the
# right, this system has all but switched the token level off for pictures, while for captions both levels have a part. Does that matter? As a
# test, we replace one pooler by the embedding level alone, which is SoftPool, or by the token level alone, without any further training.


# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def with_pools(image_pool, text_pool):
    v, t = unit(image_pool(cells)), unit(text_pool(words, real_words))  # (Ni, D), (Nc, D)
    return evaluate(v @ t.T, dev.owner)["rsum"]


token_alone = AdPool(D, token_share=1.0)
token_alone.token = model.text_pool.token
swapped = {
    "as it was trained": with_pools(model.image_pool, model.text_pool),
    "SoftPool for pictures": with_pools(SoftPool(), model.text_pool),
    "SoftPool for captions": with_pools(model.image_pool, SoftPool()),
    "the token level alone for captions": with_pools(model.image_pool, token_alone),
}
course.numbers(swapped)

# %% tags=["remove-cell"]
whole, soft_pictures, soft_captions, token_captions = swapped.values()
lesson.finding("for pictures, AdPool has become SoftPool", abs(soft_pictures - whole) < 8)
lesson.finding("for captions, it has not", soft_captions < whole - 15)
lesson.finding("it has become the token level", abs(token_captions - whole) < 10)

# %% [markdown]
# So here neither AdPool has become a mixture. **For pictures it is SoftPool**, in which nothing is learned but the size of the
# encoder's values. **For captions it is the token level**: taking the embedding level away costs next to nothing, although the balance
# still gives it nearly half. The pictures' balance differs between seeds: with `seed = 1` in the first cell, it is still about even.
#
# ## What moves the balance?
#
# Equation (5) has weights of its own, $W_{\mathrm{bal}}$, and one would think that they move the balance. If so, it should stay put when
# they are frozen. We train the same system once more from the same weights, and after each step set the pictures' $W_{\mathrm{bal}}$ back
# to its value after the first.

# %%
begun = []


def freeze(event):
    if event.kind == "step":
        weight = event.model.image_pool.balance.weight
        begun or begun.append(weight.detach().clone())  # as it is after the first step
        weight.data.copy_(begun[0])
        paths["frozen"].append(token_part(event.model))


fit(recipe, dataset, callback=freeze, seed=seed)
swing = {name: max(path) - path[-1] for name, path in paths.items()}

# %% tags=["nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(6.4, 3.2))
lines = {name: (range(1, len(path) + 1), path) for name, path in paths.items()}
plots.curves(axes, lines, x="step", y="token level's part, pictures (%)")
axes.legend(title="weights of the balance")
plots.show(
    figure,
    alt="The token level's part in pictures against the step, with the balance learned and "
    "frozen: both rise steeply and later fall nearly together.",
)
lesson.finding("both swing far", min(swing.values()) > 35)
lesson.finding("both end low", max(path[-1] for path in paths.values()) < 35)

# %% [markdown]
# The balance first swings to the token level and then away from it, and it does both without its own weights too, only less far. So
# other weights move it, those of the encoder and $W_{\mathrm{tok}}$: as they learn, $v_{\mathrm{tok}}$ and $v_{\mathrm{emb}}$ change, and
# with them the two logits that are compared.
#
# The paper says that fixed weights "underperform substantially compared to automatically learned weights" (appendix C, table C-2). Try
# that with the small picture towers:
#
# ```{exercise} A balance by hand
# :label: ex-10-explore
#
# Fix the token level's part at the values in `your_shares`, between 0 (the embedding level alone) and 1 (the token level alone). Write
# what you expect before you run the cell: is any fixed part as good as the learned balance, whose rsum is the dotted line? Afterwards,
# write what the plot shows.
# ```

# %% tags=["nbval-ignore-output"]
your_shares = (0.0, 0.5, 1.0)  # change these
fixed = {}
for share in your_shares:
    tower = train_tower("adpool", token_share=share)
    fixed[share] = evaluate(scores_of(tower), dev.owner)["rsum"]
figure, axes = plt.subplots(figsize=(5.6, 3))
plots.curves(axes, {"fixed": (your_shares, fixed.values())}, x="token level's part", y="rsum")
axes.axhline(reached["adpool"], color="0.4", linestyle=":", label="learned")
axes.set_ylim(reached["adpool"] - 40, reached["adpool"] + 40)
axes.legend()
plots.show(
    figure, alt="Rsum of small towers with a fixed balance, and a line for the learned one."
)

# %%
your_expectation = "The learned balance will be above all fixed ones."  # your part: before
your_finding = "Fixed and learned balances end within a few points."  # your part: after
check("10.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-10-explore
# :class: dropdown
#
# In these short runs the fixed balances lie near the learned one: the encoder adapts to whatever it gets. In the
# paper, after a full training on photographs, fixed parts reach 416.6 to 421.3, one level alone 420.1 or 423.1 (table 3), and the learned
# balance 426.9.
# ````
#
# ## Break it: let the padding take part
#
# Now leave the mask out of the token level's softmax, as the released code does. A row of padding is zero here, and so is its logit. It
# adds nothing to the sum, but it takes weight from the real rows.


# %%
@torch.no_grad()
def in_batch_with(longest):  # words of the longest caption
    u = sort_rows(words, real_words)  # (Nc, L, D)
    u = F.pad(u, (0, 0, 0, longest - u.shape[1]))  # (Nc, longest, D)
    every_row = torch.ones(u.shape[:2], dtype=torch.bool)  # no row is hidden
    token = token_level(u, every_row, model.text_pool.token.weight.T)  # (Nc, D)
    t = unit(adpool(token, words, real_words, model.text_pool.balance.weight.T))
    return evaluate(unit(model.image_pool(cells)) @ t.T, dev.owner)["rsum"]


# %% tags=["nbval-ignore-output"]
L = words.shape[1]
broken = {"padding has no weight": swapped["as it was trained"]}
broken |= {f"{times * L} words": in_batch_with(times * L) for times in (1, 2, 8)}
course.numbers(broken)
worse = np.diff(list(broken.values()))
lesson.finding("the more padding, the worse", worse[1:].max() < 1 and worse.sum() < -12)
lesson.finding("the captions' own costs little", abs(worse[0]) < 4)

# %% [markdown]
# The same caption gets a different vector in a different batch. The padding that our captions need costs next to nothing, but padding to
# eight times that length costs a lot. Only a test reveals it.
#
# ```{exercise} Break it
# :label: ex-10-break
#
# Take a width of one and $W_{\mathrm{tok}} = \log 2$, so that a value $x$ has a weight proportional to $2^x$. A caption has two
# words with the values 2 and 1. What does the token level return in a batch padded to 8 words, if we forget the mask?
# ```

# %%
your_value = (4 * 2 + 2 * 1) / (4 + 2 + 6)  # your part: one number
check("10.break", your_value)

# %% [markdown]
# ````{solution} ex-10-break
# :class: dropdown
#
# The words' weights are proportional to 4 and 2, so alone they give (4 · 2 + 2 · 1) / 6 = 1.67. In the batch, six rows of padding have
# weight $2^0 = 1$ each: the same sum is divided by 12, and half of it is gone.
# ````
#
# ## Results: which pooler is best?
#
# Here the whole system was trained for 15 epochs from five seeds with each pooler and the same loss; each
# learning rate was chosen on the development split. *Embedding level alone* and *token level alone* each keep one of AdPool's levels. *5-max and
# mean* is the paper's pair for pictures and captions, hand-tuned on COCO. *Self-attention* {cite}`wang2020cvse` gives each element one weight, by how
# well it agrees with the mean of all; in *LIP* a small network weighs each value.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
arms = {"AdPool": "AdPool", "GPO": "GPO", "max": "max", "Manual": "5-max and mean"}
arms |= {"SelfAttn": "self-attention", "mean": "mean", "LIP": "LIP"}
studied = experiments.studied("2ad_pooling", "scenes")
longer = dots.gap(studied["mean, longer"], studied["mean"])[0]
lesson.outcome("the mean gains 3 in twice the epochs", round(longer) == 3)
long = {title: studied[arm] for arm, title in arms.items()}
parts, balances = (experiments.studied(f"2ad_{of}", "scenes") for of in ("parts", "balance"))
long["embedding level alone"] = parts["without token level"]
long["token level alone"] = parts["without embedding level"]
dots.show(long)
apart = {
    title: dots.gap(long["AdPool"], one) for title, one in long.items() if title != "AdPool"
}
lesson.outcome("AdPool beats the mean by 65", 62 < apart["mean"][0] < 68)
lesson.outcome(
    "it is 16 above the pair and 43 above self-attention",
    15 < apart["5-max and mean"][0] < 17 < 42 < apart["self-attention"][0] < 45,
)
lesson.outcome(
    "it is about 2 above GPO and max", all(1.5 < apart[one][0] < 2.5 for one in ("GPO", "max"))
)
lesson.outcome("GPO may as well be better", apart["GPO"][1] < 0 < apart["max"][1])
lip = dots.gaps(long["LIP"], long["AdPool"])
lesson.outcome("LIP is 2.7 above it, in each seed", 2.5 < np.mean(lip) < 3 and min(lip) > 0)
attends = dots.gap(long["self-attention"], long["mean"])[0]
lesson.outcome("self-attention is 21 above the mean", 20 < attends < 23)
lesson.outcome("the token level adds 4", 4 < apart["embedding level alone"][0] < 5)
lesson.outcome("the embedding level adds 2", 2 < apart["token level alone"][0] < 3)
fixed = [dot.rsum for name, dot in balances.items() if name.startswith("token 0.")]
gains = [balances["learned"].rsum - rsum for rsum in fixed]
lesson.outcome("learning the balance adds 1 to 2", 1 < min(gains) < max(gains) < 2.3)
on_photographs = experiments.studied("2ad_pooling", "flickr8k")
mean = experiments.studied("2ad_parts", "flickr8k")["without AdPool"]
lesson.outcome("on photographs too", 7 < dots.gap(on_photographs["AdPool"], mean)[0] < 10)
behind_gpo = dots.gap(on_photographs["AdPool"], on_photographs["GPO"])[0]
lesson.outcome("but 14 below GPO there", -15 < behind_gpo < -12)

# %% [markdown]
# **What came out.** AdPool beats the mean by 65 points of rsum, self-attention by 43 and the pair tuned on COCO by 16. But the maximum,
# which learns nothing, is only 2.2 below it, and GPO 1.8, which five seeds cannot tell from zero. LIP is 2.7 above AdPool, in each seed.
#
# **What it means.** Almost all the gain comes from letting each dimension choose its own elements: either level alone is 60 or more above the mean,
# but self-attention, which weighs whole elements, only 21. How they are weighed matters little: learning the balance adds one to two points.
# In the paper, on photographs, AdPool is ahead of the mean by 7.8, of GPO by 4.0, of the hand-tuned pair by 7.6 and of LIP by 12.1 (tables 3
# and 4).
#
# **How sure we are.** Five seeds, but one small drawn world. Trained twice as long, the mean gains 3. On the photographs of Flickr8k, three
# seeds put AdPool 8 above the mean as well, but 14 below GPO. All comparisons are on [the evidence page](../evidence/2ad.md).
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | "sort → weight-sum", section 3.2.1 | `sort_weigh_sum` | `vsecore.pooling.MeanPool`, `vsecore.pooling.MaxPool` |
# | K-MaxPool, section 3.2.1 | `k_max` | `vsecore.pooling.KMaxPool` |
# | sort, eq. (3) | `sort_rows` | `vsecore.pooling.sort_descending` |
# | a softmax over what is real | `safe_softmax` | `vsecore.masking.softmax_over_real` |
# | GPO of Chen et al. | `place_code`, `gpo_weights` | `vsecore.pooling.GPO` |
# | token level, eq. (3) | `token_level` | `vsecore.pooling.AdPool(token_share=1.0)` |
# | embedding level and balance, eq. (4), (5) | `adpool` | `vsecore.pooling.AdPool` |
#
# ## Summary
#
# - Many poolers sort each dimension, weigh the places, and sum; mean, maximum and k-max differ only in their weights.
# - GPO learns its weights from the places alone; AdPool takes them from the values. Padding must have no weight in either.
# - AdPool need not become a mixture: after one epoch, ours was SoftPool for pictures and the token level for captions.
# - AdPool ends 65 points above the mean, but only 2 above the maximum (and on Flickr8k 14 below GPO). What counts is that each dimension
#   chooses its own elements.
#
# ## Where to read on
#
# - [How many negatives?](11_how_many_negatives.ipynb) explains this system's loss, the other half of the paper.
# - {cite}`kalchbrenner2014dcnn` kept a sentence's $k$ largest values.
