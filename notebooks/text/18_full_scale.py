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
# # Full scale
#
# **You will be able to** say what a training on all of COCO costs before you start it, rehearse it on a small share, resume it after
# a kill with the same bits, train on large batches in little memory or on several GPUs, and work out what a query costs.
#
# **You need** the notebooks [Learning to rank](04_learning_to_rank.ipynb) and [Pooling](10_pooling.ipynb), and the chain rule.
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take an hour and a half.
#
# The map: encode → pool → compare → **learn**.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import tempfile
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown
from torch.nn.functional import cosine_similarity, normalize

import course
from course import plots
from course.engine import first_engine
from vsecore.data.batches import make_loader
from vsecore.data.rehearsal import Shape, rehearsal, write_rehearsal
from vsecore.losses import info_nce
from vsecore.recipes import get
from vsecore.training import encode, fit
from vsecore.training.planning import plan

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## What will it cost?
#
# A training on all of COCO {cite}`lin2014coco` can take hours or weeks, and a few steps can tell which. We choose a recipe
# and plan its training. The data need not be there yet: a *rehearsal* has COCO's exact shape, with drawn numbers in place of the
# pictures. Each number is made when it is read.

# %%
kind = "region" if data == "scenes" else "grid"  # regions of photographs need a detector
whole = rehearsal(Shape.of("coco", kind)) if data == "scenes" else lesson.dataset(kind)
print(whole.train, whole.dev, whole.test, sep="\n")

# %% tags=["hide-input"]
narrow = {  # the lesson's width
    "dim": 64,
    "text.encoder.word_dim": 32,
    "training.learning_rate": 2e-3,
    "losses": "info_nce",  # which has one meaning from the first step to the last
}
changes = lesson.pick(smoke=narrow, lesson=narrow, full={})
probing = lesson.pick(smoke=0.2, lesson=1.0, full=20.0)

# %%
recipe = get(f"vsepp_{kind}_gru").override(changes)
cost = plan(
    recipe, whole, seconds=probing, device=lesson.pick(smoke="cpu", lesson="cpu", full="auto")
)

# %% tags=["hide-input", "nbval-ignore-output"]
rows = "\n".join(f"| {name} | {value} |" for name, value in cost.rows().items())
Markdown(
    f"The plan of `{recipe.name}` at width {recipe.dim}, on the machine that ran this page:\n\n| | |\n| --- | --- |\n{rows}"
)

# %% [markdown]
# This took seconds. `plan` takes real steps and throws them away. It times them, looks at the memory, evaluates a few pictures and counts the rest.
#
# Do not take these hours for the cost of COCO, though: the recipe's own width is 1,024, and a processor is no GPU. For a training in earnest, run
# `plan` on the machine that will train, at full width, from a terminal: `vse plan vsepp_region_gru --data coco`.
#
# ## The arithmetic
#
# Some of these numbers need no clock. A training's time is
#
# $$\text{epochs} \times \left( \left\lfloor \frac{C}{B} \right\rfloor \times \text{a step} + \text{an evaluation} \right)$$
#
# with $C$ captions to train on and $B$ in a batch. Only a step and an evaluation depend on the machine. You can count the steps, and the bytes on the disk.
#
# ```{exercise} What the features take
# :label: ex-18-bytes
#
# COCO has 113,287 pictures to train on, 5,000 to develop with and 5,000 to test on. A picture is 36 regions of 2,048 numbers each, in half
# precision. How many GB (billions of bytes) are the features of all pictures?
# ```

# %%
from course.checks import check

your_gigabytes = (113_287 + 5_000 + 5_000) * 36 * 2048 * 2 / 1e9  # your part: one number
check("18.bytes", your_gigabytes)

# %% [markdown]
# ````{solution} ex-18-bytes
# :class: dropdown
#
# Pictures times regions times numbers times two bytes. `Shape.of("coco").bytes_on_disk` does the same.
# ````
#
# ```{exercise} How many steps
# :label: ex-18-steps
#
# Every picture has five captions, and a batch is 128 captions, each with its picture. The last batch of an epoch is left out if it is not full. How many
# steps are 25 epochs?
# ```

# %%
from course.checks import check

your_steps = 25 * (5 * 113_287 // 128)  # your part: one number
check("18.steps", your_steps)

# %% [markdown]
# ````{solution} ex-18-steps
# :class: dropdown
#
# Round down in each epoch, then multiply. If a batch is made of pictures with all their captions, an epoch has a fifth of the steps.
# ````

# %%
values_of_picture = np.prod(whole.train.pictures.shape[1:])  # two bytes each
course.numbers(
    {
        "steps of an epoch": cost.steps,
        "GB of features": cost.feature_bytes / 1e9,
        "MB of a batch's features": recipe.training.batch_size * values_of_picture * 2 / 1e6,
    }
)

# %% [markdown]
# A batch is tiny beside the whole. So the features can stay on disk, as long as each step reads only its own rows.
#
# ## A dress rehearsal
#
# Before the hours begin, everything should run once: write, open, train, save. We write a small share of COCO's pictures at their exact widths
# into a folder, in the format that the field shares, and open it without reading it: the file looks like an array, and a
# row is read when somebody asks for it.

# %%
folder = tempfile.TemporaryDirectory(prefix="vse-rehearsal-")
share = lesson.pick(smoke=0.002, lesson=0.008, full=0.1)
on_disk = whole
if data == "scenes":
    on_disk = write_rehearsal(Path(folder.name) / "coco", Shape.of("coco", kind, share))
loader = make_loader(on_disk.train, recipe.tokenizer(on_disk.train.captions), 128)
order_of = [batch.picture_rows for batch, _ in zip(loader, range(6), strict=False)]

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(7, 2.6))
for step, touched in enumerate(order_of):
    axes.plot(touched, [step] * len(touched), "|", color=plots.COLOURS[0], markersize=9)
axes.set(
    xlabel="row of the file", ylabel="step", xlim=(0, len(on_disk.train)), ylim=(5.6, -0.6)
)
plots.show(
    figure,
    alt="Which rows of the features' file each of the first six steps reads: short marks, spread over the whole file in each step, at other places in each.",
)

# %% [markdown]
# Each step reads its 128 rows, wherever they lie, and nothing between them. A *memory map*, the usual way to open such a file, looks the same, but
# when a row is touched, the system reads its neighbours too, many times as much as we want. What was read once stays in the system's cache as long as
# memory lasts. After that, the disk must find the rows again. Solid-state disks can; for others, copy the features to a local disk first.
#
# Now we plan the training on this share, and then it really runs.
#
# ```{exercise} How good is a plan?
# :label: ex-18-plan
#
# The plan times a few steps and multiplies. How near will it come to what the training really takes? Answer `"within 10 %"`,
# `"within a factor of two"` or `"further off"`.
# ```

# %%
from course.checks import check

your_prediction = "within a factor of two"  # your part
check("18.plan", your_prediction)

# %% [markdown]
# ````{solution} ex-18-plan
# :class: dropdown
#
# It depends on what else the machine does. Steps differ little from each other, so on a quiet machine the plan is close. Other programs, a
# disk that is slow at first, or a GPU that grows warm move it.
# ````

# %% tags=["hide-input"]
quick = {  # so that two epochs of a small share learn something
    "image.pool": "max",
    "text.encoder.word_dim": 64,
    "training.batch_size": 64,
    "training.learning_rate": 1e-2,
}
quick = lesson.pick(smoke=quick, lesson=quick, full={})
epochs = lesson.pick(smoke=1, lesson=2, full=2)

# %%
short = recipe.override(quick | {"training.epochs": epochs})
planned = plan(short, on_disk, seconds=probing)
losses = []


def note_loss(event):
    if event.kind == "step":
        losses.append(float(event.loss))


run = fit(short, on_disk, callback=note_loss)

# %% tags=["hide-input"]
tenth = len(losses) // 10
chance = np.log(short.training.batch_size)  # InfoNCE of a model that tells nothing apart
lesson.finding("the loss falls well below chance", np.mean(losses[-tenth:]) < 0.95 * chance)
figure, axes = plt.subplots(figsize=(6.4, 3))
plots.curves(
    axes, {"loss": (range(1, len(losses) + 1), losses)}, x="step", y="loss of the batch"
)
axes.axhline(chance, color="0.5", linestyle=":", label="chance: log B")
axes.legend()
plots.show(
    figure,
    alt="The loss against the step in the rehearsal. It stays for a while at a dotted line, the loss of chance, and then falls well below it.",
)

# %% tags=["hide-input", "nbval-ignore-output"]
ratio = run.timings["seconds"] / planned.seconds
Markdown(
    f"The training took **{ratio:.2f} times** what the plan said, when this page was made. It waited for its data for "
    f"{100 * run.timings['data_wait']:.0f} % of its steps' time."
)

# %%
print(f"{len(losses)} steps, and {planned.steps * planned.epochs} were planned")

# %% [markdown]
# The rehearsal's captions name things that its pictures show, so there is something to learn. A model that tells no pair from another has a loss of
# the natural logarithm of $B$, the dotted line; a loss well below says that the path from the disk to the weights is whole. It says nothing about
# recall on COCO.
#
# ## Killed in the middle
#
# A training of days will be killed: by a time limit, a power cut, a tired colleague. It should then go on as if nothing had
# happened, and "as if nothing" can be tested: the weights at the end must have the same bits. Here an exception in the middle of an epoch plays the power cut.

# %%
thin = {"dim": 16, "text.encoder.word_dim": 8}
tiny = recipe.override(thin | {"training.epochs": 1, "training.batch_size": 32})
few = replace(
    on_disk, train=on_disk.train.subset(100), dev=on_disk.dev.subset(min(20, len(on_disk.dev)))
)


class PowerCut(Exception):
    pass


def cut_at_11(event):
    if event.step == 11:  # of 15; the last save was after 10
        raise PowerCut


# %%
undisturbed = fit(tiny, few)
home = Path(folder.name) / "run"
try:
    fit(tiny, few, folder=home, save_every=5, callback=cut_at_11)
except PowerCut:
    print(
        "killed; the folder holds",
        ", ".join(sorted(path.name for path in home.glob("*.safetensors"))),
    )
resumed = fit(tiny, few, folder=home, resume=True)
states = undisturbed.model.state_dict(), resumed.model.state_dict()
print(
    "the same bits:", all(torch.equal(states[0][name], states[1][name]) for name in states[0])
)

# %% [markdown]
# Two things make this possible. First, a checkpoint holds all that a step changes: the weights, the optimizer's moments, the schedule's place, the
# number of the step. It is written under another name and renamed when it is complete, so a kill while it is written leaves the one before. Second,
# *nothing random remembers anything*. The order of an epoch and the elements that are dropped are functions of the seed, the epoch and the row;
# dropout is one of the seed and the step. None depends on how many random numbers were drawn before.
#
# ```{exercise} An order that can be entered anywhere
# :label: ex-18-order
#
# Return the numbers from 0 to `count` − 1 in a shuffled order that depends on `seed` and `epoch` and on nothing else.
# ```
#
# ```{hint}
# :class: dropdown
#
# Make a new generator in each call. `np.random.default_rng` takes a list of numbers as its seed.
# ```

# %%
from course.checks import exercise


@exercise("18.order")
def epoch_order(seed, epoch, count):  # three numbers -> (count,)
    # your part
    return np.random.default_rng([seed, epoch]).permutation(count)
    # end of your part


# %% [markdown]
# ````{solution} ex-18-order
# :class: dropdown
#
# A list keeps the two numbers apart. Their sum would give epoch 1 of seed 0 the order of epoch 0 of seed 1, and two runs that should be
# independent would share it. The package scrambles the seed, the epoch and the row (`vsecore.data.noise`).
# ````
#
# ## Break it: a generator that remembers
#
# Many training loops shuffle by a generator that lives as long as the process. A process that resumes starts a new one. Suppose such a training is killed
# after three quarters of an epoch. It resumes from its checkpoint and goes on with the last quarter, but of a *new* order.
#
# ```{exercise} Never seen
# :label: ex-18-break
#
# Which share of the captions is never seen in this epoch? Take both orders as random and independent.
# ```

# %%
from course.checks import check

your_share = 1 / 4 * 3 / 4  # your part: a number between 0 and 1
check("18.break", your_share)

# %% [markdown]
# ````{solution} ex-18-break
# :class: dropdown
#
# A caption is missed before the kill with probability 1/4, and after it with probability 3/4. As many are seen twice, since as many are seen in all.
# ````


# %%
def never_seen(first, second):  # two orders of an epoch that was killed after three quarters
    cut = 3 * len(first) // 4
    seen = np.concatenate([first[:cut], second[cut:]])
    return 1 - len(np.unique(seen)) / len(first)


# %%
count = len(whole.train.captions)
order = epoch_order(seed, 3, count)
luck = np.random.default_rng(seed)
course.numbers(
    {
        "never seen, a function of the epoch (%)": 100
        * never_seen(order, epoch_order(seed, 3, count)),
        "never seen, a generator (%)": 100
        * never_seen(luck.permutation(count), luck.permutation(count)),
    }
)

# %% [markdown]
# No message tells you, and the loss looks as it always does. That is why we compare bits.
#
# ## A batch of thousands
#
# A contrastive loss wants large batches, since each batch is all that it can choose negatives from. What limits the batch is the computation graph: for the
# backward pass, the towers keep their intermediate results for every picture and caption. The usual remedy, to add up the
# gradients of several small batches before a step, does not help here. Look at what small batches compare.

# %% tags=["hide-input"]
compared = np.kron(np.eye(8), np.ones((8, 8)))
figure, panels = plt.subplots(1, 2, figsize=(7.4, 3.2))
for axes, shown, title in zip(
    panels,
    (np.ones_like(compared), compared),
    ("one batch of 64", "8 batches of 8"),
    strict=True,
):
    axes.imshow(shown + np.eye(64), cmap="cividis", vmin=0, vmax=2)
    axes.set(title=title, xlabel="caption", ylabel="picture")
    axes.grid(visible=False)
plots.show(
    figure,
    alt="Two squares of pictures against captions. On the left, one batch, all pairs are compared. On the right, small batches, only the pairs in squares along the diagonal are; everything else is dark.",
)

# %% [markdown]
# The bright diagonal holds the positives. The dark pairs on the right are negatives that no loss ever sees.
#
# ```{exercise} What small batches never compare
# :label: ex-18-share
#
# A picture meets the wrong captions of its batch. With sixteen batches of 64 in place of one of 1,024, which share of its wrong captions
# does it no longer meet?
# ```

# %%
from course.checks import check

your_share = 1 - 63 / 1023  # your part: a number between 0 and 1
check("18.share", your_share)

# %% [markdown]
# ````{solution} ex-18-share
# :class: dropdown
#
# It meets 63 of 1,023. The hardest of all is among them about once in sixteen times.
# ````
#
# The way out is *gradient caching* {cite}`gao2021gradcache`. The loss needs all embeddings, but no graph: embeddings are small. And by the chain rule, a
# tower needs only the gradient at its own embeddings,
#
# $$\frac{\partial L}{\partial w} = \sum_{i=1}^{B} \frac{\partial L}{\partial v_i} \, \frac{\partial v_i}{\partial w} ,$$
#
# a sum over pictures, which can be taken part by part. So:
#
# 1. embed all parts without a graph, and join the embeddings;
# 2. compute the loss and its gradient at the embeddings, the *cache*;
# 3. embed each part again, now with a graph, and go backward from it with its rows of the cache.
#
# ```{exercise} A large batch, part by part
# :label: ex-18-cache
#
# `towers` are two functions, `inputs` two tensors with B rows each. `loss(v, t)` takes the embeddings (B, D) of both sides. Give every weight of
# the towers the gradient of the whole batch in its `.grad`, and return the loss as a plain number. No tower may get more than `size` rows
# at once.
# ```
#
# ```{hint}
# :class: dropdown
#
# `x.split(size)` cuts rows into parts. `vectors.backward(pull)` goes backward from embeddings whose gradient is `pull`.
# ```

# %%
from course.checks import exercise


@exercise("18.cache")
def cached_step(towers, inputs, loss, size):
    # your part
    sides = list(zip(towers, inputs, strict=True))
    with torch.no_grad():
        embedded = [torch.cat([*map(tower, x.split(size))]) for tower, x in sides]
    value = loss(*(vectors.requires_grad_() for vectors in embedded))
    for (tower, x), pull in zip(sides, torch.autograd.grad(value, embedded), strict=True):
        for part, rows in zip(x.split(size), pull.split(size), strict=True):
            tower(part).backward(rows)  # its rows of the cache
    return value.item()
    # end of your part


# %% [markdown]
# ````{solution} ex-18-cache
# :class: dropdown
#
# Each embedding is computed twice, so a step takes about a third more time: two forward passes and one backward pass in place of one of each, where
# backward costs about two forward passes. If a tower drops elements at random, both passes must drop the same ones.
# ````
#
# Is it the same gradient? We take trained towers, those of [Start here](00_start_here.ipynb), in double precision so that rounding cannot
# hide anything.

# %% tags=["hide-input"]
size = lesson.pick(smoke=32, lesson=192, full=192)
if data == "scenes":
    trained, words = first_engine()
    looked_at = lesson.dataset("grid").dev
else:
    trained, words, looked_at = run.model, run.tokenizer, on_disk.dev
batch = next(iter(make_loader(looked_at, words, size, seed=seed))).to("cpu")
model = deepcopy(trained).double()
pictures = batch.pictures.double()  # (B, N, F)
captions = torch.where(batch.token_mask, batch.tokens, -1)  # (C, L)   -1 where padded


def picture_tower(x):  # (n, N, F) -> (n, D)
    return model.encode_pictures(x).vectors


def caption_tower(tokens):  # (n, L) -> (n, D)
    return model.encode_captions(tokens.clamp(min=0), tokens >= 0).vectors


def batch_loss(v, t):  # (n, D), (n, D) -> one number
    return info_nce(v @ t.T, temperature=0.05)


# %%
towers, inputs = (picture_tower, caption_tower), (pictures, captions)


def gradient(step, *arguments):  # all weights' gradients, one after the other
    model.zero_grad()
    step(*arguments)
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def small_batches(towers, inputs, loss, size):  # add up the gradients of small batches
    parts = list(zip(inputs[0].split(size), inputs[1].split(size), strict=True))
    for part in parts:
        (loss(towers[0](part[0]), towers[1](part[1])) / len(parts)).backward()


# %%
one_batch = gradient(cached_step, towers, inputs, batch_loss, len(pictures))  # one part: all
sizes = [part for part in (8, 16, 32, 64, 96) if part < len(pictures)]
cached = {n: gradient(cached_step, towers, inputs, batch_loss, n) for n in sizes}
naive = {n: gradient(small_batches, towers, inputs, batch_loss, n) for n in sizes}
for n in sizes:
    torch.testing.assert_close(cached[n], one_batch)
print("cached: equal to the whole batch's gradient, for parts of", *sizes)


# %%
def packaged(at_a_time):  # what the setting training.embed_at_a_time does
    v, t = model(replace(batch, pictures=pictures), at_a_time)
    batch_loss(v.vectors, t.vectors).backward()


torch.testing.assert_close(gradient(packaged, 32), one_batch)
print("vsecore's version agrees")

# %% tags=["hide-input"]
figure, axes = plt.subplots(figsize=(6.4, 3.2))
nearness = {
    "cached": [cosine_similarity(cached[n], one_batch, dim=0).item() for n in sizes],
    "small batches, added up": [
        cosine_similarity(naive[n], one_batch, dim=0).item() for n in sizes
    ],
}
plots.curves(
    axes,
    {name: (sizes, values) for name, values in nearness.items()},
    x="rows in a part",
    y="cosine with the batch's gradient",
)
axes.set_xscale("log", base=2)
axes.set_xticks(sizes, sizes)
axes.set_ylim(min(nearness["small batches, added up"]) - 0.05, 1.03)
plots.show(
    figure,
    alt="The cosine of two gradients with that of the whole batch, against the rows in a part. The cached one is at one everywhere. That of small batches added up lies below, and comes nearer as the parts grow.",
)

# %% tags=["nbval-ignore-output"]
small = nearness["small batches, added up"]
course.numbers(
    {f"cosine, parts of {n} (%)": 100 * one for n, one in zip(sizes, small, strict=True)}
)
lesson.finding("the smaller the parts, the further off", small == sorted(small))
lesson.finding(
    "small ones are far off, half a batch is near", small[0] < 0.75 < 0.9 < small[-1]
)

# %% [markdown]
# Adding up small batches points somewhere else, the more so the smaller they are: its loss has fewer and easier negatives. And what does caching
# save? We count the bytes that the graphs keep for the backward pass.


# %%
def bytes_kept(compute):  # what autograd keeps of a forward pass, weights left out
    kept, own = {}, {weight.data_ptr() for weight in model.parameters()}

    def note(tensor):
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = compute()
    return sum(kept.values()) if result is not None else 0


# %%
model.float()
inputs = pictures.float(), captions


def embed(n):  # the first n pictures and captions, copied so that only they count
    return [tower(x[:n].clone()) for tower, x in zip(towers, inputs, strict=True)]


rows_of = [n for n in (24, 48, 96, 192) if n <= len(pictures)]
graph = {n: bytes_kept(lambda n=n: embed(n)) / 1e6 for n in rows_of}  # MB

# %% tags=["hide-input"]
part = rows_of[0]
lesson.finding("the whole graph grows with the batch", graph[rows_of[-1]] > 5 * graph[part])
embeddings = {
    n: 2 * 2 * n * len(embed(1)[0][0]) * 4 / 1e6 for n in rows_of
}  # both sides, and their gradients
lesson.finding(
    "the embeddings take little beside the graph of one part",
    embeddings[rows_of[-1]] < graph[part] / 3,
)
figure, axes = plt.subplots(figsize=(6.4, 3.2))
plots.curves(
    axes,
    {
        "whole batch": (rows_of, list(graph.values())),
        f"cached, parts of {part}": (rows_of, [graph[part] + embeddings[n] for n in rows_of]),
    },
    x="pairs in the batch",
    y="MB kept for backward",
)
plots.show(
    figure,
    alt="Megabytes kept for the backward pass against the pairs in a batch. The whole batch's line rises steeply, in proportion. The cached one is nearly flat.",
)

# %% [markdown]
# With caching, memory hardly grows with the batch: only the embeddings do.
#
# ## Many GPUs
#
# With $W$ GPUs, each process has a copy of the weights and a share of the batch. After the backward pass, the gradients of the weights are
# averaged over processes. The same trap waits here: if each process computes the loss of its own share, the negatives are those of a small batch. So the
# processes *gather* the embeddings of all, and each computes the loss of the joint batch {cite}`radford2021clip`.
#
# A gather copies numbers. What does its backward pass do? Every process holds a gradient for *every* row of the joint batch, its own and the others'.
#
# ```{exercise} The way back of a gather
# :label: ex-18-gather
#
# Each of W processes has n rows. They were gathered in order, W · n rows, and each process found a gradient for all of them: `gradients`, (W, W · n,
# D). Return what must flow back to the n rows of process number `rank`, (n, D).
# ```

# %%
from course.checks import exercise


@exercise("18.gather")
def gather_backward(gradients, rank):  # (W, W · n, D) -> (n, D)
    # your part
    n = gradients.shape[1] // len(gradients)
    return gradients.sum(0)[rank * n : (rank + 1) * n]
    # end of your part


# %% [markdown]
# ````{solution} ex-18-gather
# :class: dropdown
#
# All processes used the row, so their gradients add up. The sum is W times that of one process, and the mean over processes that follows takes the W
# away again.
# ````
#
# We play two processes in one. Each embeds its half, all losses see the joint batch, and the gradients of the weights are averaged at the end.

# %%
model.double()
inputs = pictures, captions
halves = [tuple(x.chunk(2)[rank] for x in inputs) for rank in (0, 1)]


# %%


def two_processes(way_back):
    embedded = [[tower(x) for tower, x in zip(towers, half, strict=True)] for half in halves]
    joint = [torch.cat(rows).detach().requires_grad_() for rows in zip(*embedded, strict=True)]
    pulls = torch.autograd.grad(batch_loss(*joint), joint)  # the same in each process
    for rank, own in enumerate(embedded):
        for vectors, pull in zip(own, pulls, strict=True):
            vectors.backward(way_back(torch.stack([pull, pull]), rank) / 2)  # / 2: the mean


def without_the_others(gradients, rank):  # what a plain copy between processes would give
    return gradients[rank].chunk(len(gradients))[rank]


# %% tags=["nbval-ignore-output"]
gathered = gradient(two_processes, gather_backward)
torch.testing.assert_close(gathered, one_batch)
local = gradient(small_batches, towers, inputs, batch_loss, len(pictures) // 2)
plain = gradient(two_processes, without_the_others)
half = (plain.norm() / one_batch.norm()).item()
turned = cosine_similarity(local, one_batch, dim=0).item()
course.numbers(
    {
        "length, gathered with gradient (%)": 100 * (gathered.norm() / one_batch.norm()).item(),
        "length, gathered without (%)": 100 * half,
        "cosine, local negatives (%)": 100 * turned,
    }
)
lesson.finding("without its way back, the step has half its length", abs(half - 0.5) < 1e-6)
lesson.finding("local negatives turn the gradient", turned < 0.98)

# %% [markdown]
# With its way back, the gather gives exactly the gradient of one process. If only a process's own gradient came back, the step would be too short by
# the number of processes, here half as long. If the negatives stay local, the direction changes.
#
# On a machine with GPUs, this is one command. The same command on one, two or eight of them learns the same, up to rounding and up to dropout, which
# each process draws for itself:
#
# ```bash
# vse plan vsepp_region_gru --data coco            # what it will cost
# vse data rehearse coco features/rehearsal        # numbers of COCO's shape
# accelerate launch --multi_gpu -m vsecore train vsepp_region_gru --data features/rehearsal --resume
# ```
#
# Whether two processes really end where one ends, and how fast features on disk are, is measured in
# [What full scale costs](../evidence/costs.md).
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | joint batch over processes (CLIP, figure 3) | `gather_backward` | `vsecore.training.distributed.gather` |
# | gradient caching (Gao et al., section 3) | `cached_step` | `vsecore.model.VSE`, called by `training.embed_at_a_time` |
# | cost of a training | the section *The arithmetic* | `vsecore.training.planning.plan` |
#
# ## Results: how good are plans?
#
# **Question.** One ratio says little. Does a plan hold for other recipes as well?
#
# **What we did.** We planned four recipes at the lesson's width and then trained each for one epoch on a part of the rehearsal.

# %%
names = ["vsepp", "2ad", "pvse", "dive"] if kind == "region" else ["vsepp", "2ad"]
part_of = on_disk.train.subset(
    min(lesson.pick(smoke=160, lesson=400, full=4000), len(on_disk.train))
)
small_data = replace(on_disk, train=part_of)
ratios = {}

# %% tags=["hide-input"]
for name in names:
    found = next(key for key in (f"{name}_{kind}_gru", f"{name}_{kind}"))
    found = found if found != "pvse_region_gru" else "pvse_region"
    one_epoch = get(found).override(
        {
            key: value
            for key, value in (
                changes | {"training.epochs": 1, "training.batch_size": 64}
            ).items()
        }
        | ({"training.batch_size": 32} if get(found).training.batches == "pictures" else {})
    )
    foreseen = plan(one_epoch, small_data, seconds=probing / 2)
    ratios[name] = fit(one_epoch, small_data).timings["seconds"] / foreseen.seconds

# %% tags=["hide-input", "nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(6.4, 2.6))
axes.axvspan(0.5, 2, color="0.92")
axes.axvline(1, color="0.5", linestyle=":")
axes.plot(list(ratios.values()), range(len(ratios)), "o", color=plots.COLOURS[0], markersize=8)
axes.set(
    xscale="log",
    xlabel="time taken over time planned",
    xlim=(0.3, 3.3),
    ylim=(len(ratios) - 0.5, -0.5),
)
axes.set_yticks(range(len(ratios)), list(ratios))
axes.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
axes.minorticks_off()
plots.show(
    figure,
    alt="The time that each recipe's training took, as a multiple of its plan, on a logarithmic axis with a band from a half to two.",
)

# %% tags=["hide-input", "nbval-ignore-output"]
inside = sum(0.5 < one < 2 for one in ratios.values())
Markdown(
    f"**What came out.** When this page was made, {inside} of {len(ratios)} trainings took between half and twice what their plan said."
)

# %% [markdown]
# **What it means.** A plan of a few seconds tells hours from days, which is what you need to choose a recipe.
#
# **How sure we are.** The trainings are short, the machine is shared with other programs, and a plan cannot know what else will run on it. Plan again
# on the machine that trains, and leave room.
#
# ## What a query costs
#
# You train once, but you answer queries every day. With one vector for each picture, all pictures are encoded before anybody asks, and a
# query costs one product of width $D$ for each picture. A system with [cross-attention](07_cross_attention.ipynb) cannot prepare so much,
# because what it reads from a picture depends on the sentence. In SCAN {cite}`lee2018scan`, each of the $L$ words of a query attends to the
# picture's $N$ elements, by its cosine with each (the *affinity*), and is compared with what it has read.


# %%
def cross_attention(elements, words, smooth=9.0):  # (n, N, D), (L, D) -> (n,)
    v, t = normalize(elements, dim=-1), normalize(words, dim=-1)
    affinity = torch.einsum("nrd,wd->nwr", v, t).clamp(min=0)  # (n, L, N)
    share = (smooth * normalize(affinity, dim=1)).softmax(-1)  # (n, L, N)   over the elements
    read = share @ v  # (n, L, D)   what each word reads from each picture
    return cosine_similarity(read, t, dim=-1).mean(-1)  # (n,)


# %% [markdown]
# That takes about $2 \cdot L \cdot N \cdot D$ multiply-adds for each picture: half for the affinities, half for the weighted means. Large
# pretrained systems cost more still, since one Transformer reads sentence and picture together, for every pair. In sizes like those of the
# papers:

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

# %% [markdown]
# There is a way to have both. *Re-ranking* {cite}`geigle2022retrieve` lets the cached vectors find a few candidates, and spends
# cross-attention only on these.
#
# ```{exercise} Find fast, then look closely
# :label: ex-18-rerank
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


@exercise("18.rerank")
def rerank(quick, elements, words, k):  # (n,), (n, N, D), (L, D), a number -> (k,)
    # your part
    candidates = quick.topk(k).indices  # (k,)   rows of all pictures
    closely = cross_attention(elements[candidates], words)  # (k,)
    return candidates[closely.argsort(descending=True)]
    # end of your part


# %% [markdown]
# ````{solution} ex-18-rerank
# :class: dropdown
#
# The candidates are looked up twice: their elements before cross-attention, and their row numbers after it. To return the result of
# `argsort` itself is the usual mistake: those are places among the candidates.
# ````
#
# What does re-ranking keep of the quality? We train a small SCAN for a short epoch. Its cached vectors are simply the means of its own
# elements, which it was not trained for, so they find much less. Then 300 captions look for their pictures among 300.

# %% tags=["hide-input"]
regions = lesson.dataset("region" if data == "scenes" else "grid")
few = regions.train.subset(
    min(lesson.pick(smoke=200, lesson=1500, full=10**6), len(regions.train))
)
small = {"dim": 64, "text.encoder.word_dim": 32, "losses": "info_nce"}
small |= {"similarity.aggregate": "mean", "similarity.negative_slope": 0.0}
short = {"epochs": 1, "batch_size": 64, "learning_rate": 4e-3, "schedule": "cosine"}
small |= {f"training.{name}": value for name, value in short.items()}

# %%
scan = fit(get(f"scan_{regions.feature_kind}_gru").override(small), replace(regions, train=few))
test = regions.test.subset(min(300, len(regions.test)))
v, t = encode(scan.model, test, scan.tokenizer)  # with elements and their masks
v, t = (normalize(side.elements, dim=-1) * side.mask[:, :, None] for side in (v, t))
quick = normalize(t.sum(1), dim=1) @ normalize(v.sum(1), dim=1).T  # (Nc, Ni)
words, asked = t.any(-1), range(0, len(t), 5)  # one caption of each picture
per_pair = 2 * words.float().sum(1).mean().item() * v.shape[1] * v.shape[2]
right, spent = {}, {}
for k in (1, 3, 10, 30, 100, len(v)):
    firsts = [rerank(quick[c], v, t[c][words[c]], k)[0].item() for c in asked]
    right[k] = 100 * np.mean(np.array(firsts) == np.array(test.owner)[asked])
    spent[k] = quick.shape[1] * v.shape[2] + k * per_pair

# %% tags=["hide-input", "nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(6.4, 3.3))
plots.curves(
    axes,
    {"": (list(spent.values()), list(right.values()))},
    x="multiply-adds for a query",
    y="picture found first (%)",
)
for k in right:
    axes.annotate(
        f"k = {k}", (spent[k], right[k]), (4, -12), textcoords="offset points", fontsize=9
    )
axes.set(xscale="log", ylim=(0, None))
plots.show(
    figure,
    alt="How many captions find their picture first against the multiply-adds for a query, on a logarithmic axis. The curve rises steeply from one candidate to ten and then flattens; all pictures cost many times as much.",
)
course.numbers({f"k = {k}: found first (%)": share for k, share in right.items()})
kept, cheaper = right[10] / right[len(v)], spent[len(v)] / spent[10]
lesson.finding("ten candidates keep most, at a tenth of the cost", kept > 0.6 and cheaper > 10)
lesson.finding("the cached vectors alone find much less", right[1] < 0.7 * right[len(v)])

# %% [markdown]
# Ten candidates of 300 bring most of what cross-attention over all pictures brings, at less than a tenth of its cost. The cost of
# re-ranking does not depend on $n$, so with a million pictures it adds little to the product with all cached vectors. But cross-attention cannot find a picture that the
# cached vectors did not propose.
#
# ## Change one thing
#
# ```{exercise} Change one thing
# :label: ex-18-explore
#
# Change `your_part` or `your_temperature`: when are small batches nearly as good as a large one? Write what you expect before you run the cell, and
# afterwards what came out.
# ```

# %% tags=["nbval-ignore-output"]
your_part, your_temperature = 32, 0.5  # change one of these


def your_loss(v, t):
    return info_nce(v @ t.T, temperature=your_temperature)


together = gradient(cached_step, towers, inputs, your_loss, len(inputs[0]))
apart = gradient(small_batches, towers, inputs, your_loss, your_part)
yours = cosine_similarity(apart, together, dim=0).item()
course.numbers({"cosine of the two gradients (%)": 100 * yours})

# %%
from course.checks import check

your_expectation = (
    "A higher temperature makes all negatives alike, so few are enough"  # your part
)
your_finding = f"the cosine is {yours:.2f}"  # your part
check("18.explore", (your_expectation, your_finding))

# %% tags=["remove-cell"]
folder.cleanup()

# %% [markdown]
# ````{solution} ex-18-explore
# :class: dropdown
#
# There is no single answer. Compare the same part at two temperatures, or two parts at the same one, and try another `seed` before you
# believe a small difference.
# ````
#
# ## Summary
#
# - A few real steps tell what a training costs, and a rehearsal at the exact shape finds what breaks before the hours begin.
# - A run resumes with the same bits if everything random is a function of the seed, the epoch and the row.
# - Gradient caching and a gather with its way back both give the whole batch's gradient; small batches added up do not.
# - Cross-attention over the first 10 of 300 pictures finds most of what it finds among all, at less than a tenth of the cost.
#
# ## Where to read on
#
# - Gradient caching, and why it is exact: {cite}`gao2021gradcache`. To keep part of the graph and compute the rest again, within one
#   network: {cite}`chen2016sublinear`.
# - Contrastive learning with tens of thousands of pairs in a batch, over many GPUs: {cite}`radford2021clip`.
