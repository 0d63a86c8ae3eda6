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
# # Start here
#
# **You will be able to** type a sentence and get the pictures that it is true of, say in three steps how that works, and know
# that your machine runs the rest of the course.
#
# **You need** nothing yet.
#
# **It takes** about 2 minutes and 2 GB on two cores, the first time; after that the world and the model are in your cache.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import matplotlib.pyplot as plt
import numpy as np
import torch

from vsecore import course, plots
from vsecore.recipes import get
from vsecore.similarity import cosine
from vsecore.training import encode, evaluate_split

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## Is this machine ready?
#
# The cell looks for what the course needs and says what is missing, if anything.

# %%
course.check_machine()

# %% [markdown]
# ## A world that knows itself
#
# Most of the course runs on an *embedded world*: a generator draws scenes and lets five annotators describe each, from terse to
# fond of detail. Since the world knows its own facts, it also knows which sentence is true of which picture. No collection of
# photographs knows that.

# %%
dataset = lesson.dataset("grid")
shown = [0, 1, 2, 3]
figure = plots.picture_row(
    lesson.pictures("test", shown),
    [
        dataset.test.captions[int(np.flatnonzero(dataset.test.owner == row)[row % 5])]
        for row in shown
    ],
    columns=4,
)
plots.show(
    figure,
    alt="Four pictures of the test split in a row, each with one of its captions above it.",
)

# %% [markdown]
# ## Two towers
#
# A picture and a sentence cannot be compared as they are. So one network turns the picture into a vector, another turns the
# sentence into a vector, and both learn to point the same way when the sentence is true of the picture. The next cell trains
# them, once; the progress bar shows how far it is.

# %%
recipe = get("vsepp_grid_gru").override(
    {
        "dim": 256,
        "text.word_dim": 128,
        "loss.name": "info_nce",
        "training.epochs": lesson.pick(smoke=1, lesson=6, full=15),
        "training.learning_rate": 1e-3,
        "training.schedule": "cosine",
    }
)
model = lesson.trained(recipe, dataset)

# %% [markdown]
# Every test picture becomes one vector, once. That is the whole index of a search engine:

# %%
v, t = encode(model.model, dataset.test, model.tokenizer)
print("pictures", tuple(v.shape), "captions", tuple(t.shape))

# %% [markdown]
# ## Type a sentence
#
# A query becomes a vector too, and the pictures whose vectors lie nearest come first. A tick marks the pictures of which the
# sentence is *true*, which the world decides, not the model. Change the sentence and run the cell again.


# %%
def search(sentence: str, k: int = 5) -> list[int]:
    tokens, mask = model.tokenizer.encode([sentence])  # (1, L)
    with torch.no_grad():
        query = model.model.encode_captions(tokens, mask)  # (1, D)
    return cosine(v, query)[:, 0].topk(k).indices.tolist()  # the k nearest pictures


def show_search(sentence: str) -> None:
    rows = search(sentence)
    truth = lesson.true_of(sentence, "test", rows)
    figure = plots.picture_row(
        lesson.pictures("test", rows),
        [f"{rank}." for rank in range(1, len(rows) + 1)],
        marked=truth,
        heading=sentence,
    )
    plots.show(
        figure,
        alt=f"The five pictures found for: {sentence}. A green frame marks those of which it is true.",
    )


show_search("a red kite above the beach")

# %% [markdown]
# In JupyterLab you can type into a box instead; in the book you see what the cell above found.

# %% tags=["hide-output"]
from vsecore.widgets import search_box

search_box(show_search, start="two dogs in the park")

# %% [markdown]
# ## How good is it?
#
# *Recall at k* is the percentage of queries that find a picture of their own among the first k. `rsum` adds six of these, three
# in each direction; 600 would be perfect.

# %%
metrics = evaluate_split(model.model, dataset.test, model.tokenizer)
guess = 100 * np.array([1, 5, 10]) / len(dataset.test)
figure, axes = plt.subplots(figsize=(5.6, 3.2))
recalls = {way: [metrics[f"{way}_r{k}"] for k in (1, 5, 10)] for way in ("i2t", "t2i")}
plots.curves(
    axes,
    {
        "picture to text": ([1, 5, 10], recalls["i2t"]),
        "text to picture": ([1, 5, 10], recalls["t2i"]),
        "guessing a picture": ([1, 5, 10], guess),
    },
    x="k",
    y="recall at k (%)",
)
axes.set_ylim(0, 100)
plots.show(
    figure,
    alt="Recall at 1, 5 and 10 for picture to text and text to picture, both far above the line of guessing at the bottom.",
)
lesson.report(
    "00_start_here", {"rsum of the test split": metrics["rsum"]}, tolerance=20
)
