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
# # Learning to rank
#
# **You will be able to** write the loss of VSE++ {cite}`faghri2018vsepp` and a training step from scratch, say why one hard negative can
# teach more than many easy ones, and recognise, explain and prevent a collapse.
#
# **You need** the notebooks [Start here](00_start_here.ipynb) and [Pictures and captions](01_pictures_and_captions.ipynb), gradients, and
# some PyTorch. One figure shows mAP@R, from [The joint space](03_joint_space.ipynb).
#
# **It takes** about 2 minutes and 1 GB of memory on two cores; the exercises take an hour.
#
# The map: encode → pool → compare → **learn**. The first three stages turn a picture and a caption into one number, their similarity. The
# fourth makes that number mean something.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import matplotlib.pyplot as plt
import numpy as np
import torch
from dataclasses import replace
from IPython.display import Markdown
from matplotlib.patches import Wedge
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import course
from vsecore import experiments, records
from course import plots
from vsecore.data.files import progress
from vsecore.data.batches import make_loader
from vsecore.evaluation import evaluate
from vsecore.experiments.statistics import interval
from vsecore.losses import LOSSES, triplet
from vsecore.paths import results
from vsecore.recipes import get
from vsecore.similarity import cosine
from vsecore.training import encode, evaluate_split, fit

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## What learning does to a search
#
# We train a small system with the loss of this notebook. A *recipe* says as plain data what the system consists of and how it is trained:

# %%
dataset = lesson.dataset("grid")
recipe = get("vsepp_grid_gru").override(
    {
        "dim": lesson.pick(smoke=64, lesson=128, full=1024),
        "text.encoder.word_dim": lesson.pick(smoke=32, lesson=64, full=300),
        "training.epochs": lesson.pick(smoke=1, lesson=3, full=30),
        "training.learning_rate": lesson.pick(smoke=2e-3, lesson=2e-3, full=2e-4),
        "training.decay_epochs": lesson.pick(smoke=1, lesson=2, full=15),
    }
)
run = lesson.trained(recipe, dataset)

# %% [markdown]
# We run one query twice: first with random weights, then with the trained ones. A frame and a tick mark the pictures of which the sentence
# is true.

# %%
torch.manual_seed(seed)
untrained = recipe.build(dataset.feature_dim, run.tokenizer)


@torch.no_grad()
def first_five(model, sentence):
    pictures = encode(model, dataset.test, run.tokenizer)[0].vectors  # (Ni, D)
    query = model.encode_captions(*run.tokenizer.encode([sentence])).vectors  # (1, D)
    return cosine(pictures, query)[:, 0].topk(5).indices.tolist()  # of (Ni,)


query = "a boat on the water"
found = first_five(untrained, query) + first_five(run.model, query)

# %% tags=["hide-input"]
truth, heading = lesson.true_of(query, "test", found)
if truth is not None:
    before, after = sum(truth[:5]), sum(truth[5:])
    heading = f": true of {before} of 5 before training, and of {after} of 5 after"
    learned = after > before or query != "a boat on the water"  # another query may be too hard
    lesson.finding("the search finds more true pictures after training", learned)
figure = plots.picture_row(
    lesson.pictures("test", found),
    [f"{when} training, {rank}" for when in ("before", "after") for rank in range(1, 6)],
    marked=truth,
    heading=query + heading,
)
plots.show(
    figure,
    alt=f"Two rows of five pictures found for: {query}. The upper row comes from the untrained networks, the lower row "
    "from the trained ones; a frame and a tick mark the pictures of which the sentence is true.",
)

# %% [markdown]
# Afterwards the right pictures come up, but not alone: so short a training learns *water* before *boat*.
#
# ## What we want, in a picture
#
# A picture and its caption are two points on a circle (in a real system, on a sphere in many dimensions). We want the caption to be more
# similar to the picture than any *negative*, a caption of another picture, and not just barely: by a *margin* $m$. On the left, only
# negatives in the shaded zone are too close. The right panel shows the same wish as a cost: it is zero while the negative keeps its
# distance, then rises in a straight line. That shape is called a *hinge*.

# %% tags=["hide-input"]
margin, own = 0.2, 30  # the caption is 30 degrees from its picture
edge = np.degrees(np.arccos(np.cos(np.radians(own)) - margin))  # where the zone ends
figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 4.1))
left.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.75"))
left.add_patch(
    Wedge((0, 0), 1, 90 - edge, 90 + edge, color=plots.COLOURS[4], alpha=0.22, linewidth=0)
)
points = {
    "picture": (0, "center"),
    "its caption": (own, "left"),
    "hardest\nnegative": (-39, "right"),
    "an easy\nnegative": (-115, "right"),
}
for (name, (angle, side)), colour in zip(points.items(), plots.COLOURS, strict=False):
    across, up = np.sin(np.radians(angle)), np.cos(np.radians(angle))
    left.plot([0, across], [0, up], color=colour)
    left.plot(across, up, "o", color=colour)
    left.annotate(name, (1.1 * across, 1.1 * up), color=colour, ha=side)
between = np.radians(np.linspace(own, edge, 30))
left.plot(1.05 * np.sin(between), 1.05 * np.cos(between), color=plots.COLOURS[6], linewidth=4)
left.annotate("margin m", (1.2 * np.sin(between[20]), 1.1 * np.cos(between[20]) - 0.08))
left.annotate("too\nclose", (-0.24, 0.66), ha="center", fontsize=9)
left.set(xlim=(-1.5, 1.5), ylim=(-1.05, 1.25), aspect="equal")
left.axis("off")

positive = np.cos(np.radians(own))
similarity = torch.linspace(-0.2, 1, 121)
plots.curves(
    right,
    {"hinge": (similarity, (margin + similarity - positive).clamp(min=0))},
    x="similarity of the negative, s(v, t')",
    y="cost",
)
for place, name in ((positive, "s(v, t)"), (positive - margin, "s(v, t) − m")):
    right.axvline(place, color="0.5", linestyle=":")
    right.annotate(name, (place - 0.01, 0.02), rotation=90, ha="right")
right.annotate(
    "",
    (positive - margin, 0.25),
    (positive, 0.25),
    arrowprops={"arrowstyle": "<->", "color": plots.COLOURS[6], "shrinkA": 0, "shrinkB": 0},
)
right.annotate("margin m", (positive - margin / 2, 0.265), ha="center", fontsize=9)
plots.show(
    figure,
    alt="Left: a circle with a picture at the top and its caption a little to the right. A shaded zone around the "
    "picture reaches beyond the caption by an arc labelled margin m; the hardest negative lies inside the zone, an easy "
    "negative far outside. Right: the cost of a negative against its similarity, zero until one margin below the "
    "caption's own similarity, then a rising straight line; the margin is labelled.",
)

# %% [markdown]
# For a picture $v$, its caption $t$, a negative $t'$ and the cosine $s$, the hinge is
#
# $$[\,m + s(v, t') - s(v, t)\,]_+ , \qquad [x]_+ = \max(0, x).$$
#
# ## All the negatives of a batch
#
# A batch holds $B$ pictures (all different, for now) and a caption of each, so the captions of the other pictures serve as negatives for
# free. All similarities form one matrix $S$, with the right pairs on its diagonal. Each pair is compared with its row (other captions for
# this picture) and its column (other pictures for this caption). The sum of hinges, SH, over *all* negatives is the older loss, equation
# (5) of the paper:
#
# $$\ell_{SH} = \sum_{t'} [m + s(v,t') - s(v,t)]_+ + \sum_{v'} [m + s(v',t) - s(v,t)]_+ .$$

# %% [markdown]
# ```{exercise} The sum of hinges
# :label: ex-04-all
#
# Write equation (5), summed over the batch. `S` has shape (B, B): pictures in the rows, captions in the columns, the right
# pairs on the diagonal. Return one number, as a tensor. A pair is not its own negative.
# ```
#
# ```{hint}
# :class: dropdown
#
# `S.diag()` has shape (B,). With `[:, None]` it lines up with the rows of S, with `[None, :]` with its columns.
# ```

# %%
from course.checks import exercise


@exercise("04.all")
def all_negatives(S, margin=0.2):  # (B, B) -> ()
    # your part
    own = S.diag()  # (B,)
    captions = (margin + S - own[:, None]).clamp(min=0)  # (B, B)   along rows: t'
    pictures = (margin + S - own[None, :]).clamp(min=0)  # (B, B)   along columns: v'
    others = ~torch.eye(len(S), dtype=torch.bool)  # a pair is not its own negative
    return (captions + pictures)[others].sum()  # eq. 5
    # end of your part


# %% [markdown]
# ````{solution} ex-04-all
# :class: dropdown
#
# Row $i$ is compared with the similarity of its own pair, and so is column $i$. Without the mask, every pair would add $2m$ to
# the loss, however good the model is.
# ````
#
# ## Why one negative can be better than many
#
# VSE++ changes one thing: it keeps only the *hardest negative* of each row and column, the one with the highest similarity. This maximum
# of hinges, MH, is equation (6):
#
# $$\ell_{MH} = \max_{t'} [m + s(v,t') - s(v,t)]_+ + \max_{v'} [m + s(v',t) - s(v,t)]_+ .$$

# %% [markdown]
# ```{exercise} Read a batch
# :label: ex-04-read
#
# A batch of two has the similarities below. What is the loss with the hardest negative, for a margin of `0.2`? Work it out on
# paper: there are four hinges.
# ```

# %%
from course.checks import check


small = torch.tensor([[0.5, 0.4], [0.6, 0.9]])
your_loss = 0.4  # your part: a number
check("04.read", your_loss)

# %% [markdown]
# ````{solution} ex-04-read
# :class: dropdown
#
# Rows: picture 0 costs $[0.2 + 0.4 - 0.5]_+$, and picture 1 costs $[0.2 + 0.6 - 0.9]_+$, which is zero. Columns: caption 0 costs
# $[0.2 + 0.6 - 0.5]_+$, and caption 1 costs $[0.2 + 0.4 - 0.9]_+$, which is zero.
# ````
#
# A picture of our data has five captions, and a batch may hold several. All of them are right, so none may be pushed away. The matrix
# `positives` says which pairs belong together.

# %% [markdown]
# ```{exercise} The hardest negative
# :label: ex-04-siblings
#
# Write equation (6) for a batch of B pictures and C captions. `positives`, (B, C), is True where picture and caption belong
# together. Every positive pair has two hinges: one against the hardest *negative* of its row, one against that of its
# column. Return their sum.
# ```
#
# ```{hint}
# :class: dropdown
#
# Give the positives a similarity that no maximum will choose. `masked_fill` and `amax` are all you need besides the hinge.
# ```

# %%
from course.checks import exercise


@exercise("04.siblings")
def hardest_negative(S, positives, margin=0.2):  # (B, C), (B, C) -> ()
    # your part
    negatives = S.masked_fill(positives, -torch.inf)  # (B, C)
    caption = negatives.amax(1, keepdim=True)  # (B, 1)   the hardest t' of each row
    picture = negatives.amax(0, keepdim=True)  # (1, C)   the hardest v' of each column
    cost = (margin + caption - S).clamp(min=0) + (margin + picture - S).clamp(min=0)  # (B, C)
    return cost[positives].sum()  # eq. 6
    # end of your part


# %% [markdown]
# ````{solution} ex-04-siblings
# :class: dropdown
#
# Hide the positives, take the maxima, and let each positive pair have both hinges. A hidden positive is at minus infinity, so it
# is never the hardest.
# ````
#
# The package has both losses in one function. It must give the same numbers on any matrix:

# %%
torch.manual_seed(seed)
near = {"rtol": 1e-4, "atol": 1e-4}  # sums in another order are rounded differently
for size in (2, 7, 128):
    random, pairs = torch.rand(size, size) * 2 - 1, torch.eye(size) > 0
    torch.testing.assert_close(all_negatives(random), triplet(random, hardest=False), **near)
    torch.testing.assert_close(hardest_negative(random, pairs), triplet(random), **near)
    two = pairs.repeat_interleave(2, dim=1)  # (B, 2B)   two captions a picture
    random = torch.rand(size, 2 * size) * 2 - 1
    ours, theirs = hardest_negative(random, two), triplet(random, positives=two)
    torch.testing.assert_close(ours, theirs, **near)
print("vsecore.losses.triplet agrees with both cells")

# %% [markdown]
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | $s(v,t)$, section 3.1 | `S` | `vsecore.similarity.cosine` |
# | $\ell_{SH}$, eq. (5) | `all_negatives` | `vsecore.losses.triplet(hardest=False)` |
# | $\ell_{MH}$, eq. (6) | `hardest_negative` | `vsecore.losses.triplet(hardest=True)` |
#
# What does each loss learn from? The cell below makes a batch as it might be after some training: most negatives are easy, and
# caption 7 is more similar to picture 3 than the picture's own caption. The gradient says how strongly each similarity is
# pushed. We show it in percent of the whole, so that both losses share one scale.

# %%
torch.manual_seed(seed)
batch = 0.2 * torch.randn(12, 12) + 0.35 * torch.eye(12)
# More similar than any other of the row and the column, the right caption too:
batch[3, 7] = torch.cat([batch[3], batch[:, 7]]).max() + 0.1
pairs = torch.eye(12) > 0
losses = {
    "all negatives": all_negatives,
    "hardest negative": lambda S: hardest_negative(S, pairs),
}
pushes = {}
for name, loss in losses.items():
    scores = batch.clone().requires_grad_()
    loss(scores).backward()
    pushes[name] = 100 * scores.grad / scores.grad.abs().sum()  # percent of the whole push

# %% tags=["hide-input"]
reach = max(float(push.abs().max()) for push in pushes.values())
of_all, of_hardest = pushes.values()
lesson.finding(
    "the hardest negative pushes few cells, and its worst mistake more",
    (of_hardest[~pairs] > 0).sum() < 0.7 * (of_all[~pairs] > 0).sum()
    and of_hardest[3, 7] > 1.5 * of_all[3, 7],
)
figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.7), sharey=True)
for axes, (name, push) in zip(panels, pushes.items(), strict=True):
    image = axes.imshow(push.numpy(), cmap="PuOr_r", vmin=-reach, vmax=reach)
    axes.add_patch(plt.Rectangle((6.5, 2.5), 1, 1, fill=False, linewidth=1.6))
    axes.grid(False)
    axes.set(xlabel="caption", title=name, xticks=range(12), yticks=range(12))
panels[0].set_ylabel("picture")
figure.colorbar(image, ax=panels, label="share of the push, %\n(− together, + apart)")
plots.show(
    figure,
    alt="Two heat maps of gradients over a batch of twelve, on one colour scale. With all negatives many cells off the "
    "diagonal get a weak push; with the hardest negative each picture and each caption pushes away at most one. A box marks "
    "the worst mistake, picture 3 with caption 7, which gets a larger share on the right.",
)

# %% [markdown]
# On the left the push is spread over many cells, and the worst mistake (in the box) gets no more than a mild one. On the right, each
# picture and each caption puts its whole push on its own worst mistake.
#
# ## What a training step does
#
# Two networks make the vectors. They are called *towers*, since they stand side by side and meet only at the top. The picture tower
# projects the cells of a grid and averages them. The caption tower reads the words with a bidirectional GRU and averages too. Both end on
# the unit sphere, so a dot product is a cosine.


# %%
class PictureTower(nn.Module):
    def __init__(self, feature_dim, dim):
        super().__init__()
        self.project = nn.Linear(feature_dim, dim)

    def forward(self, cells):  # (B, N, F)
        elements = self.project(cells)  # (B, N, D)
        return nn.functional.normalize(elements.mean(1), dim=-1)  # (B, D)


# %%
class CaptionTower(nn.Module):
    def __init__(self, words, word_dim, dim):
        super().__init__()
        self.embed = nn.Embedding(words, word_dim)
        self.read = nn.GRU(word_dim, dim, batch_first=True, bidirectional=True)

    def forward(self, tokens, mask):  # (B, L) each
        words, lengths = self.embed(tokens), mask.sum(1)  # (B, L, W), (B,)
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        both, _ = pad_packed_sequence(self.read(packed)[0], batch_first=True)  # (B, L, 2D)
        elements = both.unflatten(-1, (2, -1)).mean(2)  # (B, L, D)   both directions' mean
        return nn.functional.normalize(elements.sum(1), dim=-1)  # (B, D)   padding adds nothing


# %% [markdown]
# A training step has five parts, and they are the same five in every system of this course: encode, compare, compute the
# loss, differentiate, update the weights.
#
# ```{exercise} One training step
# :label: ex-04-step
#
# Write it. `batch.pictures` goes into the picture tower; `batch.tokens` and `batch.token_mask` go into the caption
# tower. `loss` takes the matrix of similarities, (B, B). Update the weights once and return the loss as a plain number.
# ```
#
# ```{hint}
# :class: dropdown
#
# Gradients add up until they are cleared: `optimizer.zero_grad()`. A tensor of one number becomes a plain number with
# `.item()`.
# ```

# %%
from course.checks import exercise


@exercise("04.step")
def training_step(picture_tower, caption_tower, loss, optimizer, batch):
    # your part
    v = picture_tower(batch.pictures)  # (B, D)   encode
    t = caption_tower(batch.tokens, batch.token_mask)  # (B, D)
    cost = loss(v @ t.T)  # compare, then the loss
    optimizer.zero_grad()
    cost.backward()  # differentiate
    optimizer.step()  # update
    return cost.item()
    # end of your part


# %% [markdown]
# ````{solution} ex-04-step
# :class: dropdown
#
# The vectors have length one, so `v @ t.T` holds all cosines of the batch. The gradients are cleared before `backward`, since PyTorch adds
# new ones to old ones.
# ````
#
# An epoch is such a step for every batch of the training data. We run one with all negatives. (`all_negatives` knows only the diagonal, so
# now and then it pushes a right caption away. The package's loss takes `positives`.)

# %%
torch.manual_seed(seed)
pictures = PictureTower(dataset.feature_dim, recipe.dim)
captions = CaptionTower(len(run.tokenizer), recipe.text.encoder.options["word_dim"], recipe.dim)
optimizer = torch.optim.Adam([*pictures.parameters(), *captions.parameters()], lr=2e-3)
for batch in progress(make_loader(dataset.train, run.tokenizer, 128, seed=seed)):
    training_step(pictures, captions, all_negatives, optimizer, batch.to("cpu"))

# %% [markdown]
# Has it learned anything? Rank all test captions for each test picture, and all pictures for each caption. *Recall at k* is the percentage
# of queries with one of their own items among the first k; `rsum` adds up six recalls and can reach 600.


# %% tags=["nbval-ignore-output"]
@torch.no_grad()
def test_metrics(pictures, captions):
    v = pictures(torch.from_numpy(np.array(dataset.test.pictures, dtype=np.float32)))  # (Ni, D)
    t = captions(*run.tokenizer.encode(dataset.test.captions))  # (Nc, D)
    return evaluate(v @ t.T, dataset.test.owner)


guessed = evaluate(
    torch.rand(len(dataset.test), len(dataset.test.captions)), dataset.test.owner
)
learned = test_metrics(pictures, captions)["rsum"]
course.numbers({"rsum, this cell's towers": learned, "rsum, random scores": guessed["rsum"]})
lesson.finding("these towers rank far better than chance", learned > 200 > 10 > guessed["rsum"])

# %% [markdown]
# `vsecore.training.fit` adds to this loop what a real training needs: learning-rate schedules, several GPUs, checkpoints, and a look at
# the development split after each epoch.
#
# ## Does the hardest negative win in the end?
#
# The paper claims that the hardest negative beats the sum over all, after a slower start: for the first epochs the sum is ahead. The
# authors also tried the sum first, and gained little. The code of a successor {cite}`chen2021gpo` does begin with one epoch of all
# negatives. If the claim fails here, the line of all negatives ends on top.
#
# We trained each way for thirty epochs, from three seeds, on a quarter of the training pictures, and draw the figure from the records.

# %% tags=["results", "nbval-ignore-output"]
long = records.find(results(), name="vsepp_grid_gru", data="scenes")
ways = {30: "all negatives", 0: "hardest from the start", 1: "all for an epoch, then hardest"}
of_way = {name: [] for name in ways.values()}
for record in long:
    (loss,) = record.config["losses"]
    of_way[ways[loss["options"].get("warmup_epochs", 1)]].append(record.metrics)
print({name: f"{len(seeds)} seeds" for name, seeds in of_way.items()})

# %% tags=["hide-input", "results", "nbval-ignore-output"]
epochs = np.arange(1, long[0].config["training"]["epochs"] + 1)
oracle = records.find(experiments.RESULTS, name="oracle", data="scenes")[0].metrics
figure, panels = plt.subplot_mosaic(
    [["curve"] * 3, ["rsum", "i2t_map_at_r", "t2i_map_at_r"]],
    figsize=(9, 6.4),
    height_ratios=[1.5, 1],
)
curves = {
    name: np.array([[metrics[f"dev_rsum_{epoch}"] for epoch in epochs] for metrics in seeds])
    for name, seeds in of_way.items()
}
plots.curves(
    panels["curve"],
    {name: (epochs, curve.mean(0)) for name, curve in curves.items()},
    x="epoch",
    y="rsum, development split",
    title="While training: mean and range of the seeds",
)
for curve, colour in zip(curves.values(), plots.COLOURS, strict=False):
    panels["curve"].fill_between(
        epochs, curve.min(0), curve.max(0), color=colour, alpha=0.2, linewidth=0
    )
decay = long[0].config["training"]["decay_epochs"] + 0.5
panels["curve"].axvline(decay, color="0.5", linestyle=":")
panels["curve"].annotate("learning rate falls to a tenth", (decay + 0.2, 40), fontsize=9)
panels["curve"].legend(loc="center right")
measures = {
    "rsum": "rsum",
    "i2t_map_at_r": "mAP@R in %\npicture to text",
    "t2i_map_at_r": "mAP@R in %\ntext to picture",
}
for key, label in measures.items():
    axes = panels[key]
    for row, (metrics, colour) in enumerate(zip(of_way.values(), plots.COLOURS, strict=False)):
        values = [one[key] for one in metrics]
        dot = plots.MARKERS[row]
        axes.plot(values, [row] * len(values), dot, color=colour, alpha=0.5)
        axes.plot(interval(values), [row, row], color=colour)
        axes.plot(np.mean(values), row, "|", color=colour, markersize=14, markeredgewidth=2.4)
    axes.set(xlabel=label, ylim=(2.6, -0.6), yticks=[])
panels["rsum"].set_yticks(range(3), ["all", "hardest", "all, then\nhardest"])
panels["rsum"].set_title("After training: test split, a dot for each seed, 95 % interval")
panels["rsum"].axvline(oracle["rsum"], color=plots.COLOURS[6], linestyle=":")
panels["rsum"].annotate("oracle ", (oracle["rsum"], 0.1), ha="right", fontsize=9)
every, *ends_hardest = of_way.values()
rsums, of_text, of_pictures = (
    [[one[key] for one in metrics] for metrics in (every, *ends_hardest)] for key in measures
)
lesson.finding(
    "the hardest wins by rsum, for every seed", min(*rsums[1], *rsums[2]) > max(rsums[0])
)
lesson.finding(
    "and by mAP@R from text to picture",
    min(*of_pictures[1], *of_pictures[2]) > max(of_pictures[0]),
)
lesson.finding("but not from picture to text", max(*of_text[1], *of_text[2]) < min(of_text[0]))
summed, at_once, warmed = (curve.mean(0) for curve in curves.values())
passes, level = (int(np.argmax(at_once > other)) + 1 for other in (summed, warmed))
lesson.finding("at once, it passes the sum after almost half of the training", 10 < passes < 16)
lesson.finding("and draws level shortly before the rate falls", passes < level <= decay)
lesson.finding("it ends a few points lower", 0 < warmed[-1] - at_once[-1] < 15)
lesson.finding(
    "with an epoch of all first, it is level by epoch 6", min((warmed - summed)[5:]) > -5
)
plots.show(
    figure,
    alt="Above: rsum on the development split after each of thirty epochs for all negatives, for the hardest from the start, "
    "and for one epoch of all followed by the hardest, each the mean of three seeds with its range; a dotted line marks "
    "where the learning rate falls. Below: rsum and mAP@R in both directions on the test split, a dot for each seed, with "
    "their means and intervals and a line for the rsum of the oracle.",
)

# %% [markdown]
# **What came out.** By rsum, both ways that end with the hardest negative finish above the sum over all, for every seed. (The development
# split has half as many pictures as the test split, so its sums are higher.) The hardest from the start needs almost half of the training
# to pass the sum over all. It draws level with the third way only shortly before the learning rate falls, and ends a few points lower.
# After an epoch of all negatives, hardly any time is lost.
#
# mAP@R counts every caption that is true of a picture. From text to picture it agrees with rsum. From picture to text, the sum over all
# negatives does better. A likely reason is that the hardest negative of a picture is often a caption that is true of it too, though
# written for another one.
#
# **How sure we are.** Three seeds on a small world, with one learning rate for all, are evidence and no proof. (The dotted line is an oracle: it knows every true pair and breaks ties at random.)
#
# ````{admonition} Optional: train these curves yourself
# :class: note dropdown
#
# The records come from this loop. It takes about ten minutes on a free core at tier `lesson`.
#
# ```python
# small = replace(dataset, train=dataset.train.subset(len(dataset.train) // 4))
# base = recipe.override({"training.epochs": 30, "training.decay_epochs": 15})
# for seed in range(3):
#     for warmup in ways:  # how many epochs of all negatives come first
#         made = fit(base.override({"losses.triplet.warmup_epochs": warmup}), small, seed=seed)
#         metrics = evaluate_split(made.model, small.test, made.tokenizer)
#         metrics |= {f"dev_rsum_{e['epoch'] + 1}": e["rsum"] for e in made.history}
#         records.write(records.record_run(made, metrics), "my_results")
# ```
#
# ````
#
# ## What a high learning rate does to the hardest negative
#
# Why delay the hardest negative? We make the start harder: ten times the learning rate, no clipping of long gradients, two epochs. We
# watch the loss of a batch, and the mean similarity of *all* its pairs, right and wrong.

# %%
harsh = {"training.learning_rate": 2e-2, "training.clip_norm": 1e9, "training.epochs": 2}


def watched(change):
    seen = {"loss": [], "pairs": [], "alike": []}

    def watch(event):
        if event.kind == "step":
            seen["loss"].append(float(event.loss))
            seen["pairs"].append(int(event.positives.sum()))  # the batch's right pairs
            seen["alike"].append(float(event.scores.mean()))  # of (B, B): right and wrong pairs

    changed = recipe.override(harsh | change)
    made = fit(changed, dataset, tokenizer=run.tokenizer, seed=seed, callback=watch)
    return made.model, seen


# %% [markdown]
# ```{exercise} What will happen?
# :label: ex-04-predict
#
# The next training uses the hardest negative from the very first step. Before you run it, choose what you expect:
#
# - `"a"`: it learns, and faster than usual;
# - `"b"`: it learns, but more slowly;
# - `"c"`: the loss falls to zero, but the ranking stays bad;
# - `"d"`: the loss stops falling, and all pairs become alike.
# ```

# %%
from course.checks import check

your_prediction = "d"  # your part: "a", "b", "c" or "d"
check("04.predict", your_prediction)

# %% [markdown]
# ````{solution} ex-04-predict
# :class: dropdown
#
# `"d"`. Any prediction earns the points. The text below the figure says why it happens.
# ````

# %%
collapsed, fallen = watched({"losses.triplet.warmup_epochs": 0})

# %% tags=["hide-input"]
(part,) = recipe.losses
its_margin = LOSSES.build(part.name, part.options).margin
rest = 2 * its_margin * np.array(fallen["pairs"])  # (steps,)
figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.2))
across = range(1, len(fallen["loss"]) + 1)
plots.curves(panels[0], {"loss": (across, fallen["loss"])}, x="step", y="loss of a batch")
panels[0].plot(across, rest, color=plots.COLOURS[1], linestyle="--")
panels[0].annotate(
    "2 · P · m", (len(across), rest.min() - 2), ha="right", va="top", color=plots.COLOURS[1]
)
panels[0].set_ylim(0, 2 * rest.mean())
plots.curves(
    panels[1], {"alike": (across, fallen["alike"])}, x="step", y="mean similarity of all pairs"
)
panels[1].set_ylim(-0.35, 1.05)
plots.show(
    figure,
    alt="Left: the loss settles on a nearly level line, at two margins for each positive pair, and stays. Right: the "
    "mean similarity of all pairs of the batch, right and wrong, jumps up early and keeps rising.",
)

# %% [markdown]
# The model is on its way to giving the same vector to everything: a *collapse*. Then every similarity would be one and every hinge would
# equal the margin, so $P$ pairs with two hinges each would cost
#
# $$2 \cdot P \cdot m ,$$
#
# the dashed line. ($P$ is $B$ or a little more, since a batch may hold several captions of a picture.)
#
# Why does the model go there? Early in training the embeddings are close to random, so the hardest negative is hard only by
# accident, and is usually more similar than the right caption. Such a hinge is larger than the margin. The quickest way to lower it is to
# make all similarities equal, since it then equals the margin. With all negatives this gains nothing as long as every hinge is open, as
# at the start: the average negative is no more similar than the right caption, so the only way down is to tell the pictures apart.
#
# Why does it stay? The gradient of a hinge above zero with respect to the picture is $t' - t$. If all captions are the same
# vector, that is zero.
#
# ## How one epoch of all negatives prevents it
#
# So we first let the sum over all negatives spread the vectors out. The learning rate is the same, but the first epoch uses all negatives
# and the second the hardest:

# %% tags=["nbval-ignore-output"]
opened, held = watched({"losses.triplet.warmup_epochs": 1})
at_once, all_first = (
    evaluate_split(model, dataset.test, run.tokenizer)["rsum"] for model in (collapsed, opened)
)
course.numbers({"rsum, hardest at once": at_once, "rsum, all first": all_first})
lesson.finding("the hardest at once ranks badly", at_once < 60)
lesson.finding("all negatives first, and it ranks well", all_first > 250)

# %% tags=["hide-input"]
half = len(held["loss"]) // 2
late, kept = (np.array([seen["loss"][half:], seen["alike"][half:]]) for seen in (fallen, held))
lesson.finding("both losses are about alike", abs(late[0].mean() / kept[0].mean() - 1) < 0.25)
lesson.finding("all pairs become alike", late[1, -1] > 0.5 and late[1, -1] > late[1, 0])
lesson.finding("after all negatives they do not", kept[1, -1] < 0.35)
lesson.finding("the loss settles on 2 P m", abs(late[0] / rest[half:] - 1).mean() < 0.1)
second = range(half + 1, len(held["loss"]) + 1)
figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.2))
labels = ("loss of a batch", "mean similarity of all pairs")
for axes, key, label in zip(panels, ("loss", "alike"), labels, strict=True):
    lines = {"hardest at once": fallen, "all first": held}
    plots.curves(
        axes,
        {name: (second, seen[key][half:]) for name, seen in lines.items()},
        x="step, in the second epoch only",
        y=label,
    )
panels[0].set_ylim(0, 2 * rest.mean())
panels[1].set_ylim(-0.35, 1.05)
plots.show(
    figure,
    alt="The second epoch of both runs. Left: the two losses lie close together. Right: the mean similarity of all pairs "
    "is high and still rising for the hardest at once, and is low for the run that began with all negatives.",
)

# %% [markdown]
# Look at the left panel. The two losses hardly differ, although one model ranks well and the other does not.
#
# ```{exercise} Fool the loss
# :label: ex-04-break
#
# Show that the loss is no reliable warning sign. Write a matrix of similarities, (4, 4), all between −1 and 1, whose hardest-negative loss
# is exactly that of a collapsed batch, $2 \cdot 4 \cdot 0.2$, although each pair is clearly more similar than its negatives on average,
# and the mean similarity is below $0.5$.
# ```
#
# ```{hint}
# :class: dropdown
#
# Each of the eight hinges must equal the margin. What does that say about a pair and its hardest negative?
# ```

# %%
from course.checks import check

your_scores = 1.8 * torch.kron(torch.eye(2), torch.ones(2, 2)) - 0.9  # your part: (4, 4)
check("04.break", your_scores)

# %% [markdown]
# ````{solution} ex-04-break
# :class: dropdown
#
# Every pair ties with its hardest negative, and the other negatives are far away: think of two almost identical pictures. So the loss
# cannot tell a good model from a collapsed one. Nor can the mean similarity alone: all pictures may fall on one point and all captions on
# another. The spread of the similarities can, and so can recall.
# ````
#
# ```{admonition} Where the code departs from the paper
# :class: note
#
# - **Captions of the same picture.** In the released code of VSE++ they are negatives too; here they are not, unless
#   `losses.triplet.siblings_are_negatives=true`.
# - **The first epoch.** The paper uses the hardest negative from the start. An epoch of all negatives first, which its successors' code
#   has, is our default.
# ```
#
# ## Your own experiment: the margin, or the number of negatives
#
# On a quarter of the training pictures a try takes seconds. Some ideas: `{"losses.triplet.margin": 0.05}`, `{"training.batch_size": 32}`
# (31 negatives in place of 127), `{"losses.triplet.warmup_epochs": 3}` (always all negatives).
#
# ```{exercise} Change one thing
# :label: ex-04-ablation
#
# Write down what you expect, as `expected` in the last cell. Then put your change into the next cell, run it, and write down, as `found`,
# what you see and how sure you are.
# ```

# %%
change = {"losses.triplet.margin": 0.5}  # one thing, by its full name in the recipe
small = replace(dataset, train=dataset.train.subset(len(dataset.train) // 4))
tried = {}
for name, changes in {"as it was": {}, "changed": change}.items():
    made = fit(recipe.override(changes), small, tokenizer=run.tokenizer, seed=seed)
    tried[name] = [entry["rsum"] for entry in made.history]

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(5.6, 3))
lines = {name: (range(1, len(sums) + 1), sums) for name, sums in tried.items()}
changed = ", ".join(f"{name} = {value}" for name, value in change.items())
plots.curves(axes, lines, x="epoch", y="rsum, development split", title=f"Changed: {changed}")
axes.set_xticks(range(1, recipe.training.epochs + 1))
plots.show(
    figure,
    alt="Rsum on the development split after each epoch, for the recipe as it was and with one change.",
)

# %%
from course.checks import check

expected = "A wider margin keeps more hinges open, so more pairs learn."  # your part
found = "The lines lie close; one seed and few epochs cannot tell them apart."  # your part
check("04.ablation", (expected, found))

# %% [markdown]
# ````{solution} ex-04-ablation
# :class: dropdown
#
# Say what you changed and expected, and claim no more than one seed can show.
# ````
#
# ## What the paper reports
#
# This is VSE++ on photographs: R@1, R@5 and R@10. Our sums come from drawn scenes and are not comparable.

# %%
Markdown(course.published("VSE++"))

# %% [markdown]
# ## Summary
#
# - A hinge costs nothing once the right pair leads by the margin; the other rows and columns of a batch serve as negatives for free.
# - All negatives spread the push over many easy cases; the hardest negative puts it on the worst mistake.
# - Early in training the hardest negative is hard by accident, and learning from it alone can collapse the space to one point.
# - An epoch of all negatives prevents that; watch recall and the spread of the similarities, since the loss hardly shows a collapse.
#
# ## Where to read on
#
# - Where the hinge comes from: face recognition {cite}`schroff2015facenet` uses *semi-hard* negatives for the same reason that we
#   waited an epoch; the sum over all negatives is the loss of {cite}`kiros2014unifying`.
# - [Relations](05_relations.ipynb): what a mean forgets.
# - [How many negatives?](11_how_many_negatives.ipynb) Between one and all.
