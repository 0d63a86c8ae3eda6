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
# **You will be able to** say what a training run on all of COCO costs before you start it, rehearse it on a small share, resume it after
# a crash, bit for bit, train on large batches in little memory or on several GPUs, and work out what a query costs.
#
# **You need** the notebooks [Learning to rank](04_learning_to_rank.ipynb) and [How many negatives?](11_how_many_negatives.ipynb), and the chain rule.
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take an hour and a half.
#
# The map: encode → pool → compare → **learn**. Nothing in the system changes here, but much more data goes through it.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import tempfile
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from IPython.display import Markdown
from torch.nn.functional import cosine_similarity, normalize

import course
from course import plots
from course.checks import check, exercise
from course.drawings import scale, system
from course.engine import opened
from vsecore import records
from vsecore.data.batches import make_loader
from vsecore.data.rehearsal import Shape, rehearsal, write_rehearsal
from vsecore.losses import info_nce
from vsecore.paths import results
from vsecore.recipes import get
from vsecore.training import encode, fit
from vsecore.training.planning import plan

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
system("learn")

# %% tags=["hide-input"]
narrow = {"dim": 64, "text.encoder.word_dim": 32, "losses": "info_nce"}
narrow |= {"training.learning_rate": 2e-3}
changes = lesson.pick(smoke=narrow, lesson=narrow, full={})
device, probing = lesson.pick(smoke=("cpu", 0.2), lesson=("cpu", 1.0), full=("auto", 20.0))
share = lesson.pick(smoke=0.002, lesson=0.008, full=0.05)
epochs = lesson.pick(smoke=1, lesson=2, full=2)
size = lesson.pick(smoke=32, lesson=192, full=192)
kind = lesson.regions_or_grid()
learned_from = lesson.pick(smoke=200, lesson=1500, full=10**6)

# %% [markdown]
# ## What will it cost?
#
# A training run on all of COCO {cite}`lin2014coco` can take an hour or weeks, and a few steps are enough to tell which. We choose a recipe
# and plan its training. The data need not be there yet: a *rehearsal* has COCO's exact shape, with random numbers in place of the
# pictures' features. Its values are generated on the fly when they are read.

# %%
whole = rehearsal(Shape.of("coco", "region"))
print(whole.train, whole.dev, whole.test, sep="\n")

# %%
recipe = get("vsepp_region_gru").override(changes)  # at width 64 and with InfoNCE, to be quick
cost = plan(recipe, whole, seconds=probing, device=device)

# %% tags=["hide-input", "nbval-ignore-output"]
later = ("steps", "features on disk")  # the next section asks for these
rows = {name: value for name, value in cost.rows().items() if name not in later}
rows = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
Markdown(f"The plan on the machine that ran this page:\n\n| | |\n| --- | --- |\n{rows}")

# %% [markdown]
# `plan` takes real steps and throws them away: it times them, looks at the memory, evaluates a few pictures and extrapolates
# the rest. Do this on the machine that will train, at full width, from a terminal:
# `vse plan vsepp_region_gru --data coco`.
#
# ## What can be computed without a clock
#
# The time of a training run is
#
# $$\text{epochs} \times \left( \left\lfloor \frac{N_{\mathrm{c}}}{B} \right\rfloor \times \text{a step} + \text{an evaluation} \right)$$
#
# with $N_{\mathrm{c}}$ captions to train on and $B$ of them in a batch. Only a step and an evaluation depend on the machine. You can count the steps in
# advance, and also the bytes on the disk.
#
# ```{exercise} What the features take
# :label: ex-18-bytes
#
# COCO has 113,287 pictures to train on, 5,000 to develop with and 5,000 to test on. A picture has 36 regions of 2,048 numbers each, in half
# precision. How many GB (billions of bytes) are the features of all pictures?
# ```

# %%
your_gigabytes = (113_287 + 5_000 + 5_000) * 36 * 2048 * 2 / 1e9  # your part: one number
check("18.bytes", your_gigabytes)

# %% [markdown]
# ````{solution} ex-18-bytes
# :class: dropdown
#
# Multiply pictures, regions, numbers and bytes. Half precision takes two bytes. A picture's features are stored once, although five
# captions belong to it. `Shape.of("coco").bytes_on_disk` does the same.
# ````
#
# ```{exercise} How many steps
# :label: ex-18-steps
#
# Every picture has five captions, and a batch is 128 captions, each with its picture. The last batch of an epoch is left out if it is not full. How many
# steps are 25 epochs?
# ```

# %%
your_steps = 25 * (5 * 113_287 // 128)  # your part: one number
check("18.steps", your_steps)

# %% [markdown]
# ````{solution} ex-18-steps
# :class: dropdown
#
# Round down in each epoch, and only then multiply, because what is left over at the end of an epoch is not carried into the next.
# ````

# %%
numbers_of_a_picture = np.prod(whole.train.pictures.shape[1:])  # two bytes each
course.numbers(
    {
        "steps of an epoch": cost.steps,
        "GB of features": cost.feature_bytes / 1e9,
        "MB of a batch's features": 128 * numbers_of_a_picture * 2 / 1e6,
    }
)

# %% tags=["hide-input", "results", "nbval-ignore-output"]
(slow,) = records.find(results(), name="benchmark_streaming")
on_gpu = records.find(results() / "experiments", name="vsepp_grid_gru")
times = sorted(run.seconds for run in on_gpu if "H100" in run.device)
# Flickr8k has 6,000 pictures to train on; 15 epochs
fast, slowest = (seconds / (15 * (5 * 6000 // 128)) for seconds in (times[0], times[-1]))
steps = 30 * (5 * 113_287 // 128)
hours = slow.metrics["memory_step_seconds"] * steps / 3600
lesson.outcome("42 hours on two cores", (round(hours), steps) == (42, 132_750))
lesson.outcome("76, then 124 to 130 s", [*map(round, times)] == [76, 124, 129, 130, 130])
lesson.outcome("22 to 37 ms a step", (round(1000 * fast), round(1000 * slowest)) == (22, 37))
lesson.outcome(
    "48 to 82 min", (round(fast * steps / 60), round(slowest * steps / 60)) == (48, 82)
)

# %% [markdown]
# What does a step take where it matters? Two records answer this. At the recipe's own width of 1,024, a step takes 1.15 s on two
# cores. The recipe has 30 epochs, which are 132,750 steps, so the run would take 42 hours. On an H100, the fastest of five runs of VSE++ at
# width 512 took 76 s for 15 epochs of Flickr8k, evaluations included, and the others 124 to 130 s. That is 22 to 37 ms a step, and 132,750 such steps take 48 to
# 82 minutes. Width and features differ, so remember only: two days on two cores, an hour on a GPU.
#
# A batch is tiny compared with the whole data set. So the features can stay on disk, as long as each step reads only its own rows.
#
# ## A dress rehearsal
#
# Before the hours begin, everything should run once: write, open, train, save. We write a small share of COCO's pictures at their exact widths
# into a folder, in the format that the field shares (one array of features for each split, one text file of captions). Then we open it without reading it: the
# file looks like an array, and a row is read only when it is asked for.

# %%
folder = tempfile.TemporaryDirectory(prefix="vse-rehearsal-")
home = Path(folder.name)
on_disk = write_rehearsal(home / "coco", Shape.of("coco", "region", share))
loader = make_loader(on_disk.train, recipe.tokenizer(on_disk.train.captions), 128)
touched = [batch.picture_rows for batch, _ in zip(loader, range(6), strict=False)]
scale.rows_read(touched, len(on_disk.train))

# %% [markdown]
# Each step reads its 128 rows, wherever they are, and nothing between them. (A *memory map*, the usual way to open such a file, looks the
# same, but the system then also reads a row's neighbours.) Solid-state disks are good at finding single rows; with any other, copy the
# features to a fast local disk first.
#
# Now we plan the training of this share, and then we really train on it.
#
# ```{exercise} How good is a plan?
# :label: ex-18-plan
#
# The plan times a few steps and multiplies. How near will it come to what the training really takes? Answer `"within 10 %"`,
# `"within a factor of two"` or `"further off"`.
# ```

# %%
your_prediction = "within a factor of two"  # your part
check("18.plan", your_prediction)

# %%
quick = {"image.pool": "max", "text.encoder.word_dim": 64}  # so that few steps teach something
quick |= {"training.batch_size": 64, "training.learning_rate": 1e-2}
short = recipe.override(quick | {"training.epochs": epochs})
planned = plan(short, on_disk, seconds=probing)
losses = []


def note_loss(event):
    if event.kind == "step":
        losses.append(float(event.loss))


run = fit(short, on_disk, callback=note_loss)
print(f"{len(losses)} steps, and {planned.steps * planned.epochs} were planned")

# %% tags=["nbval-ignore-output"]
print(f"time taken over time planned: {run.timings['seconds'] / planned.seconds:.2f}")
print(f"share of a step spent waiting for data: {run.timings['data_wait']:.2f}")

# %% [markdown]
# One ratio says little. Does a plan hold for other recipes too? We plan four of them at the lesson's width, and train each for one
# epoch on a part of the rehearsal.

# %% tags=["nbval-ignore-output"]
part = replace(on_disk, train=on_disk.train.subset(min(400, len(on_disk.train))))
ratios = {}
for name in ("vsepp_region_gru", "2ad_region_gru", "pvse_region", "dive_region_gru"):
    one = get(name).override(changes | {"training.epochs": 1, "training.batch_size": 32})
    predicted = plan(one, part, seconds=probing / 2)
    ratios[name] = fit(one, part).timings["seconds"] / predicted.seconds
course.numbers({f"{name} (%)": 100 * ratio for name, ratio in ratios.items()})

# %% [markdown]
# ````{solution} ex-18-plan
# :class: dropdown
#
# On a quiet machine a plan from many steps is close (100 % would be exact), because steps hardly differ from each other. Ours timed each recipe for half a
# second, so a ratio may be off by a third or more. Nor can a plan know of other programs. So `"within a factor of two"` is a safe answer, good enough to tell hours from days.
# ````
#
# And did the rehearsal learn anything? A model that cannot tell one pair from another has an InfoNCE loss of $\log B$, here $\log 64 = 4.16$.

# %%
steps, chance = range(1, len(losses) + 1), np.log(64)
plots.curve(
    {"loss": (steps, losses), "chance, ln 64": (steps, [chance] * len(losses))},
    x="step",
    y="loss of the batch",
    alt="The loss against the step in the rehearsal. It stays for a while at a level line, "
    "the loss of chance, and then falls well below it.",
)

# %% tags=["hide-input"]
tenth = len(losses) // 10
lesson.finding("the loss falls well below chance", np.mean(losses[-tenth:]) < 0.95 * chance)

# %% [markdown]
# Each element is one of 10,000 fixed random vectors, and a caption names some of its picture's, so there is something to learn. A loss well below
# chance says that the path from disk to weights works, and nothing about recall on COCO.
#
# ## Killed in the middle
#
# A training run of days will be killed: by a time limit, a power cut, a tired colleague. It should then go on as if nothing had happened, which can be tested: the weights at the end must have the same bits. Here an exception plays
# the power cut.

# %%
thin = {"dim": 16, "text.encoder.word_dim": 8}
tiny = recipe.override(thin | {"training.epochs": 1, "training.batch_size": 32})
few = replace(on_disk, train=on_disk.train.subset(100), dev=on_disk.dev.subset(10))


class PowerCut(Exception):
    pass


def cut_at_11(event):
    if event.step == 11:  # of 15; the last save was after 10
        raise PowerCut


# %%
undisturbed = fit(tiny, few)
try:
    fit(tiny, few, folder=home / "run", save_every=5, callback=cut_at_11)
except PowerCut:
    print("killed; kept:", *(path.name for path in (home / "run").glob("*.safetensors")))
resumed = fit(tiny, few, folder=home / "run", resume=True)
theirs, ours = undisturbed.model.state_dict(), resumed.model.state_dict()
print("the same bits:", all(torch.equal(theirs[name], ours[name]) for name in theirs))

# %% [markdown]
# Two things make this possible. First, a checkpoint holds everything that a step changes: the weights, the optimizer's moments, the position in the
# learning-rate schedule, the number of the step. It is written under another name and renamed when complete, so a kill during writing does no harm. Second, *nothing random remembers anything*. The order of an epoch, and which elements are dropped, are functions of the
# seed, the epoch and the row; dropout is a function of the seed and the step. None of them depends on how many random numbers were drawn before.
#
# ```{exercise} A shuffle that you can resume at any step
# :label: ex-18-order
#
# Return the numbers from 0 to `count` − 1 in a shuffled order that depends on `seed` and `epoch` and on nothing else.
# ```
#
# ```{hint}
# :class: dropdown
#
# Make a new generator in each call. `np.random.default_rng` accepts a list of numbers as its seed.
# ```


# %%
@exercise("18.order")
def epoch_order(seed, epoch, count):  # three numbers -> (count,)
    # your part
    return np.random.default_rng([seed, epoch]).permutation(count)
    # end of your part


# %% [markdown]
# ````{solution} ex-18-order
# :class: dropdown
#
# The generator is made in the call, so it remembers nothing, and the list keeps the two numbers apart. The common mistake is their sum:
# epoch 1 of seed 0 would then have the order of epoch 0 of seed 1. The package scrambles seed, epoch and row (`vsecore.data.noise`).
# ````
#
# ## Break it: a generator that remembers
#
# Many training loops shuffle with a generator that lives as long as the process, and a process that resumes starts a new one. Suppose that
# such a run is killed after three quarters of an epoch. It resumes from its checkpoint and goes on with the last quarter, but of a *new* order.
#
# ```{exercise} Never seen
# :label: ex-18-break
#
# Which share of the captions is never seen in this epoch? Assume that both orders are random and independent.
# ```

# %%
your_share = 1 / 4 * 3 / 4  # your part: a number between 0 and 1
check("18.break", your_share)


# %%
def never_seen(first, second):  # two orders of an epoch that was killed after three quarters
    cut = 3 * len(first) // 4
    seen = np.concatenate([first[:cut], second[cut:]])
    return 100 * (1 - len(np.unique(seen)) / len(first))


count, generator = len(whole.train.captions), np.random.default_rng(seed)
of_epoch = [epoch_order(seed, 3, count) for _ in range(2)]  # before the kill, and after it
of_generator = [generator.permutation(count) for _ in range(2)]
shares = {"order of the epoch": of_epoch, "a generator": of_generator}
course.numbers({f"never seen, {name} (%)": never_seen(*two) for name, two in shares.items()})

# %% [markdown]
# ````{solution} ex-18-break
# :class: dropdown
#
# A caption is missed before the kill with probability 1/4, and after it with probability 3/4. The two are independent, so multiply: 3/16, or 18.75 %.
# ````
#
# Neither a message nor the loss tells you. That is why we compare bits.
#
# ## A batch of thousands
#
# A contrastive loss benefits from large batches, because it can choose its negatives only from the batch. What limits the batch is memory: for the
# backward pass, both encoders keep the intermediate results of every picture and caption. The usual remedy is to add up the
# gradients of several small batches before a step, but here it does not help:

# %%
scale.compared(batch=64, part=8)

# %% [markdown]
# The bright diagonal holds the positives. The dark pairs on the right are negatives that no loss ever sees.
#
# ```{exercise} What small batches never compare
# :label: ex-18-share
#
# A picture meets the wrong captions of its batch. With sixteen batches of 64 instead of one of 1,024, which share of its wrong captions
# does it no longer meet, to three digits?
# ```

# %%
your_share = 1 - 63 / 1023  # your part: a number between 0 and 1
check("18.share", your_share)

# %% [markdown]
# ````{solution} ex-18-share
# :class: dropdown
#
# Its own caption is not a negative, so leave it out of both counts: it meets 63 of 1,023. The hardest of all is among them only about once in sixteen times.
# ````
#
# The way out is *gradient caching*, "a gradient caching technique that decouples backpropagation between contrastive loss and the encoder"
# {cite}`gao2021gradcache`. The loss needs all embeddings at once, but embeddings are small; it is the encoders' computation graph that is large. And by the
# chain rule, an encoder needs nothing from the loss but the gradient at its own embeddings,
#
# $$\frac{\partial \ell}{\partial w} = \sum_{i=1}^{B} \frac{\partial \ell}{\partial v_i} \, \frac{\partial v_i}{\partial w} ,$$
#
# which is a sum over pictures and can be taken part by part. So:
#
# 1. embed all parts without a graph, and join the embeddings;
# 2. compute the loss and its gradient at the embeddings, the *cache*;
# 3. embed each part again, now with a graph, and go backward from it with its rows of the cache.
#
# ```{exercise} A large batch, part by part
# :label: ex-18-cache
#
# `towers` are the two encoders, `inputs` two tensors with B rows each. `loss(v, t)` takes the embeddings (B, D) of both sides. Give every weight
# the gradient of the whole batch in its `.grad`, and return the loss as a plain number. No tower may get, or keep a graph of, more than `size` rows
# at once.
# ```
#
# ```{hint}
# :class: dropdown
#
# `x.split(size)` cuts rows into parts. `vectors.backward(pull)` goes backward from embeddings whose gradient is `pull`.
# ```


# %%
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
# The first pass runs under `no_grad`, so nothing of it is kept. The gradient of the loss stops at the embeddings, and each part goes backward from its own rows. Two
# mistakes are usual: a loss for each part, which is back at small batches, and a first pass with a graph, which saves no memory. The cost is
# time: one more forward pass makes a step about a third longer. With dropout, both passes must drop the same elements. Batch
# normalisation, which our encoder of regions has, cannot be split.
# ````
#
# Is it the same gradient? We take the trained encoders of [Start here](00_start_here.ipynb), in double precision so that rounding cannot
# hide anything.

# %%
trained, words = opened(lesson)
batch = next(iter(make_loader(lesson.dataset("grid").dev, words, size, seed=seed))).to("cpu")
model = deepcopy(trained).cpu().double()
pictures = batch.pictures.double()  # (B, N, F)
captions = torch.where(batch.token_mask, batch.tokens, -1)  # (B, L)   -1 where padded


def picture_tower(x):  # (n, N, F) -> (n, D)
    return model.encode_pictures(x).vectors


def caption_tower(tokens):  # (n, L) -> (n, D)
    return model.encode_captions(tokens.clamp(min=0), tokens >= 0).vectors


# %%
towers, inputs = (picture_tower, caption_tower), (pictures, captions)


def batch_loss(v, t, temperature=0.05):  # (n, D), (n, D) -> one number
    return info_nce(v @ t.T, temperature=temperature)


def small_batches(towers, inputs, loss, size):  # add up the gradients of small batches
    parts = list(zip(*(x.split(size) for x in inputs), strict=True))
    for v, t in parts:
        (loss(towers[0](v), towers[1](t)) / len(parts)).backward()


# %%
def gradient(step, *arguments):  # all weights' gradients, one after the other
    model.zero_grad()
    step(*arguments)
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


one_batch = gradient(cached_step, towers, inputs, batch_loss, size)  # a single part: all
parts = [n for n in (8, 16, 32, 64, 96) if n < size]
cached = [gradient(cached_step, towers, inputs, batch_loss, n) for n in parts]
added = [gradient(small_batches, towers, inputs, batch_loss, n) for n in parts]
for one in cached:
    torch.testing.assert_close(one, one_batch)
print("cached: equal to the whole batch's gradient, for parts of", *parts)


# %%
def packaged():  # what the setting training.embed_at_a_time = 32 does
    v, t = model(replace(batch, pictures=pictures), 32)
    batch_loss(v.vectors, t.vectors).backward()


torch.testing.assert_close(gradient(packaged), one_batch)
print("vsecore's version agrees")

# %% tags=["nbval-ignore-output"]
ways = {"cached": cached, "small batches, added up": added}
near = {
    name: [cosine_similarity(one, one_batch, dim=0).item() for one in found]
    for name, found in ways.items()
}
plots.curve(
    {name: (parts, cosines) for name, cosines in near.items()},
    x="rows in a part",
    y="cosine with the batch's gradient",
    alt="The cosine of two gradients with that of the whole batch, against the rows in a "
    "part. The cached one is at one everywhere. That of small batches added up lies below, "
    "and comes nearer as the parts grow.",
)
small = near["small batches, added up"]
course.numbers({f"parts of {n} (%)": 100 * c for n, c in zip(parts, small, strict=True)})

# %% tags=["hide-input"]
lesson.finding("the smaller the parts, the further off", small == sorted(small))
lesson.finding("small ones are far off, half is near", small[0] < 0.75 < 0.9 < small[-1])

# %% [markdown]
# The gradient of small batches points somewhere else, the more so the smaller they are, because their losses have fewer and easier negatives. And
# what does caching save? We count the bytes that autograd keeps for the backward pass.


# %%
def bytes_kept(compute):  # what autograd keeps of a forward pass, weights left out
    kept, own = {}, {weight.data_ptr() for weight in model.parameters()}

    def note(tensor):
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = compute()  # keep it: what it holds must not be freed while we count
    return sum(kept.values()) if result is not None else 0


# %%
model.float()
inputs = pictures.float(), captions


def embed(n):  # the first n pictures and captions, copied so that only they count
    return [tower(x[:n].clone()) for tower, x in zip(towers, inputs, strict=True)]


pairs = [n for n in (24, 48, 96, 192) if n <= size]
graph = [bytes_kept(lambda n=n: embed(n)) / 1e6 for n in pairs]  # MB
width = embed(1)[0].shape[1]
vectors = [4 * n * width * 4 / 1e6 for n in pairs]  # both sides and their gradients, in MB

# %%
plots.curve(
    {
        "whole batch": (pairs, graph),
        "cached, parts of 24": (pairs, [graph[0] + extra for extra in vectors]),
    },
    x="pairs in the batch",
    y="MB kept for backward",
    alt="Megabytes kept for the backward pass against the pairs in a batch. The whole "
    "batch's line rises steeply, in proportion. The cached one is nearly flat.",
)

# %% tags=["hide-input"]
lesson.finding("the whole graph grows with the batch", graph[-1] > 5 * graph[0])
lesson.finding("the embeddings take little beside a part's graph", vectors[-1] < graph[0] / 3)

# %% [markdown]
# With caching, memory hardly grows with the batch: only the embeddings do. In the paper's words, "gradients can be computed for one subset of the batch at
# a time, leading to almost constant memory usage".
#
# ## Many GPUs
#
# With $W$ GPUs, each process has a copy of the weights and a share of the batch. After the backward pass, the gradients of the weights are
# averaged over processes. The same trap waits here: if each process computes the loss of its own share, the negatives are those of a small batch. So the
# processes *gather* the embeddings of all {cite}`radford2021clip`, and each computes the loss of the joint batch.
#
# Forward, a gather only copies numbers. But backward, every process has a gradient for *every* row of the joint batch, its own and the others'.
#
# ```{exercise} The backward pass of a gather
# :label: ex-18-gather
#
# Each of W processes has n rows. They were gathered in order, W · n rows, and each process found a gradient for all of them: `gradients`, (W, W · n,
# D). Return what must flow back to the n rows of process number `rank`, (n, D).
# ```


# %%
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
# All processes used the row, so by the chain rule their gradients add up; then we cut out the rows of this process. The common mistakes are to take only its own
# gradient, and to divide by W: the mean over processes comes later.
# ````
#
# We play two processes in one. Each embeds its half, both losses see the joint batch, and the gradients of the weights are averaged at the end.

# %%
model.double()
inputs = pictures, captions
halves = [tuple(x.chunk(2)[rank] for x in inputs) for rank in (0, 1)]


def two_processes(backward):
    embedded = [[tower(x) for tower, x in zip(towers, half, strict=True)] for half in halves]
    joint = [torch.cat(rows).detach().requires_grad_() for rows in zip(*embedded, strict=True)]
    pulls = torch.autograd.grad(batch_loss(*joint), joint)  # the same in each process
    for rank, own in enumerate(embedded):
        for vectors, pull in zip(own, pulls, strict=True):
            vectors.backward(backward(torch.stack([pull, pull]), rank) / 2)  # / 2: the mean


# %% tags=["nbval-ignore-output"]
def only_its_own(gradients, rank):  # what a plain copy between processes would give
    return gradients[rank].chunk(len(gradients))[rank]


gathered = gradient(two_processes, gather_backward)
torch.testing.assert_close(gathered, one_batch)
plain = gradient(two_processes, only_its_own)
local = gradient(small_batches, towers, inputs, batch_loss, size // 2)
half = (plain.norm() / one_batch.norm()).item()
turned = cosine_similarity(local, one_batch, dim=0).item()
print(f"length with the backward pass of all: {gathered.norm() / one_batch.norm():.2f}")
print(f"length with only its own: {half:.2f}")
print(f"cosine with local negatives: {turned:.2f}")

# %% tags=["hide-input"]
lesson.finding("without the others, the gradient has half its length", abs(half - 0.5) < 1e-6)
lesson.finding("local negatives turn the gradient", turned < 0.98)

# %% [markdown]
# With the right backward pass, we get the gradient of one process. If only a process's own comes back, it is too short, here half as
# long (Adam would hide that). If the negatives stay local, its direction changes.
#
# With several GPUs, the last of these commands uses all of them. The result should be that of one, up to rounding and each process's
# dropout; we could not try it.
#
# ```bash
# vse plan vsepp_region_gru --data coco            # what it will cost
# vse data rehearse coco features/rehearsal        # numbers of COCO's shape
# accelerate launch --multi_gpu -m vsecore train vsepp_region_gru --data features/rehearsal --resume
# ```
#
# [What full scale costs](../evidence/costs.md) compares one process and two, without GPUs.
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
# That takes about $2 \cdot L \cdot N \cdot D$ multiply-adds for each picture: half for the affinities, half for the weighted means. Large pretrained systems, in which one Transformer reads sentence and picture together, cost still more. In sizes like those of the papers:

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
for name, each in costs.items():
    print(f"{name:34}{each:14,}{each / D:10,.0f}")

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
# The candidates are looked up twice: their elements before cross-attention, and their row numbers after it. The common mistake is to return places among the
# candidates.
# ````
#
# How much of the quality does re-ranking keep? We train a small SCAN for a short epoch. Its cached vectors are the means of its
# elements, which it was not trained for, so by themselves they find much less. Then 300 captions look for their pictures among 300.

# %%
regions = lesson.dataset(kind)
small = {"dim": 64, "text.encoder.word_dim": 32, "losses": "info_nce"}
small |= {"similarity.aggregate": "mean", "similarity.negative_slope": 0.0}
short = {"epochs": 1, "batch_size": 64, "learning_rate": 4e-3, "schedule": "cosine"}
small |= {f"training.{name}": value for name, value in short.items()}
few = regions.train.subset(min(learned_from, len(regions.train)))
scan = fit(get(f"scan_{kind}_gru").override(small), replace(regions, train=few))

# %%
test = regions.test.subset(min(300, len(regions.test)))
v, t = encode(scan.model, test, scan.tokenizer)  # with elements and their masks
# a zero row takes a share of the softmax but adds nothing, and the cosine ignores the length
v, t = (normalize(side.elements, dim=-1) * side.mask[:, :, None] for side in (v, t))
quick = normalize(t.sum(1), dim=1) @ normalize(v.sum(1), dim=1).T  # (Nc, Ni)
words, asked = t.any(-1), range(0, len(t), 5)  # one caption of each picture
per_pair = 2 * words.float().sum(1).mean().item() * v.shape[1] * v.shape[2]
right, spent = {}, {}
for k in (1, 3, 10, 30, 100, len(v)):
    firsts = [rerank(quick[c], v, t[c][words[c]], k)[0].item() for c in asked]
    right[k] = 100 * np.mean(np.array(firsts) == np.array(test.owner)[asked])
    spent[k] = quick.shape[1] * v.shape[2] + k * per_pair

# %% tags=["nbval-ignore-output"]
scale.reranked(spent, right)
course.numbers({f"k = {k}: found first (%)": share for k, share in right.items()})

# %% tags=["hide-input"]
kept, cheaper = right[10] / right[len(v)], spent[len(v)] / spent[10]
lesson.finding("ten keep nine tenths, at a twentieth of the cost", kept > 0.75 and cheaper > 20)
lesson.finding("nearly a third, and less than a fifth", right[1] < 20 < 28 < right[len(v)] < 36)
lesson.finding("the cached vectors alone find much less", right[1] < 0.85 * right[len(v)])

# %% [markdown]
# Cross-attention over all 300 pictures puts the right one first for nearly a third of the captions, and the cached vectors alone do so for less than
# a fifth. With ten candidates we reach about nine tenths of the first share, at less than a twentieth of the cost. The cost of the second look does not depend on $n$. But it cannot find a picture that the cached vectors did not propose.
#
# **How sure we are.** This is one small model and 300 captions, so each share has a 95 % interval of about five points either way.
#
# ## When does a large batch matter?
#
# ```{exercise} When does a large batch matter?
# :label: ex-18-explore
#
# We compared gradients at the temperature 0.05. How does the cosine of small batches with the whole batch change if the temperature rises to 1? Write what
# you expect and why, run the cell, and write what came out. Then set `your_part` to 8: what happens to the curve?
# ```

# %% tags=["nbval-ignore-output"]
your_part, temperatures = 32, [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]  # change these


def nearness(temperature):  # the cosine of small batches' gradient with the whole batch's
    loss = partial(batch_loss, temperature=temperature)
    together = gradient(cached_step, towers, inputs, loss, size)
    apart = gradient(small_batches, towers, inputs, loss, your_part)
    return cosine_similarity(apart, together, dim=0).item()


cosines = [nearness(temperature) for temperature in temperatures]
line, words = {"": (temperatures, cosines)}, "cosine with the batch's gradient"
alt = "The cosine with the whole batch's gradient against the temperature: it rises to one."
plots.curve(line, x="temperature", y=words, alt=alt)

# %% tags=["hide-input"]
lesson.finding("at a high temperature small batches do", cosines[1] < 0.9 < 0.97 < cosines[-1])

# %%
your_expectation = "It rises, since all negatives then count alike"  # your part
your_finding = f"from {cosines[0]:.2f} to {cosines[-1]:.2f}"  # your part
check("18.explore", (your_expectation, your_finding))

# %% tags=["remove-cell"]
folder.cleanup()

# %% [markdown]
# ````{solution} ex-18-explore
# :class: dropdown
#
# At a low temperature the hardest negative takes nearly all of the push, and a small batch rarely holds it. At a high temperature
# all negatives push alike, so a few stand for all. Smaller parts lower the whole curve.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | joint batch over processes (CLIP, section 2.5) | `gather_backward` | `vsecore.processes.gather` |
# | gradient caching (Gao et al., section 3) | `cached_step` | `vsecore.model.VSE`, with `training.embed_at_a_time` |
# | cost of a run | the first two sections | `vsecore.training.planning.plan` |
#
# ## Summary
#
# - A few real steps tell what a training run costs, and a rehearsal at the exact shape finds what breaks before the hours begin.
# - A run resumes with the same bits if everything random is a function of the seed, the epoch and the row.
# - Gradient caching, and a gather with the right backward pass, give the whole batch's gradient; small batches added up do not (their cosine with it
#   is about 0.6 for parts of 8).
# - Cross-attention on the first 10 of 300 pictures puts the right one first about nine tenths as often as on all of them, at less than a twentieth of the
#   cost.
#
# ## Where to read on
#
# - Gradient caching, and why it is exact: {cite}`gao2021gradcache`. To keep part of the graph and compute the rest again, within one
#   network: {cite}`chen2016sublinear`.
# - Contrastive learning with tens of thousands of pairs in a batch, over many GPUs: {cite}`radford2021clip`.
# - Next: [From a folder to an engine](19_search_engine.ipynb), where a query meets a collection.
