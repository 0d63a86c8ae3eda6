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
# **It takes** about 2 minutes and 1 GB of memory on two cores, the first time; after that the world and the model are in your cache.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import matplotlib.pyplot as plt
import numpy as np
import torch

from vsecore import course
from vsecore.course import plots
from vsecore.course.checks import check
from vsecore.recipes import get
from vsecore.similarity import cosine
from vsecore.training import encode, evaluate_split
from vsecore.course.widgets import search_box

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
# Most of the course runs on an *embedded world*: a generator draws scenes and lets five *annotators* describe each in a *caption*, from terse to
# fond of detail. Since the world knows its own *facts*, it also knows which sentence is true of which picture. No collection of
# photographs knows that.

# %% tags=["hide-input"]
dataset = lesson.dataset("grid")
shown = [0, 1, 2, 3]
own = [np.flatnonzero(dataset.test.owner == row) for row in shown]  # each picture's captions
figure = plots.picture_row(
    lesson.pictures("test", shown),
    [dataset.test.captions[captions[row]] for row, captions in enumerate(own)],
    columns=4,
)
plots.show(
    figure,
    alt="Four pictures of the test split in a row, each with one of its captions below it.",
)

# %% [markdown]
# ## Three steps
#
# A picture and a sentence cannot be compared as they are. So
#
# 1. one network turns the **picture into a vector** $v$, a list of numbers;
# 2. another turns the **sentence into a vector** $t$ of the same length;
# 3. the two are **compared by their angle**, the *cosine*, and both networks learn to make it large when the sentence is true
#    of the picture:
#
# $$s(v, t) = \frac{v \cdot t}{\lVert v \rVert \, \lVert t \rVert} .$$

# %%
v, t = torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0])
by_hand = (v @ t) / (v.norm() * t.norm())  # the equation above
torch.testing.assert_close(by_hand, cosine(v[None], t[None])[0, 0])
by_hand

# %% [markdown]
# A cosine of one means the same direction, of zero a right angle. How long a vector is plays no part. The next cell trains
# the two networks, once; a bar shows how far it is. A *recipe* says how. The picture is seen as a *grid* of cells, the sentence is
# read word by word. A *loss* is the price of the mistakes, which training lowers. This one, *InfoNCE*, shows the networks some pictures and
# captions at a time, a *batch*, and asks for each picture which of the captions is its own. Nothing of this need be clear yet: the
# notebooks that follow build each part.

# %%
recipe = get("vsepp_grid_gru").override(
    {
        "dim": lesson.pick(smoke=64, lesson=192, full=1024),
        "text.encoder.word_dim": lesson.pick(smoke=32, lesson=96, full=300),
        "losses": "info_nce",
        "training.epochs": lesson.pick(smoke=1, lesson=3, full=15),
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
    }
)
run = lesson.trained(recipe, dataset)

# %% [markdown]
# The pictures of the *test split* took no part in that. Each becomes one vector, once, and those rows are the whole *index* of a
# search engine:

# %%
index, captions = (side.vectors for side in encode(run.model, dataset.test, run.tokenizer))
print("pictures", tuple(index.shape), "captions", tuple(captions.shape))

# %% [markdown]
# ## Type a sentence
#
# A *query*, here a sentence, becomes a vector too, and the pictures whose vectors point most nearly the same way come first. A tick marks those of
# which the sentence is *true*: the world decides that, not the model. Change the sentence and run the cell again.


# %%
def search(sentence: str, k: int = 5) -> list[int]:
    tokens, mask = run.tokenizer.encode([sentence])  # (1, L) each
    with torch.no_grad():
        query = run.model.encode_captions(tokens, mask).vectors  # (1, D)
    return cosine(index, query)[:, 0].topk(k).indices.tolist()  # the k nearest of (Ni,)


def show_search(sentence: str) -> None:
    rows = search(sentence)
    truth, remark = lesson.true_of(sentence, "test", rows)
    titles = [str(rank) for rank in range(1, len(rows) + 1)]
    figure = plots.picture_row(
        lesson.pictures("test", rows), titles, marked=truth, heading=sentence + remark
    )
    plots.show(
        figure,
        alt=f"The five pictures found for: {sentence}. A frame and a tick mark those of which it is true.",
    )


show_search("a girl holding a balloon")

# %%
show_search("two boats on the lake")

# %% [markdown]
# In JupyterLab you can type into a box and press Enter; in the book you see what the cells above found.

# %% tags=["remove-output"]
search_box(show_search)

# %% [markdown]
# ## How good is it?
#
# *Recall at k* is the percentage of queries that find an item of their own among the first k: a caption its picture, a picture
# one of its five captions. `rsum` adds six of them, for k = 1, 5 and 10 in both directions; 600 would be perfect.

# %% tags=["hide-input"]
metrics = evaluate_split(run.model, dataset.test, run.tokenizer)
places = (1, 5, 10)
figure, axes = plt.subplots(figsize=(5.6, 3.2))
lines = {
    "picture to text": (places, [metrics[f"i2t_r{k}"] for k in places]),
    "text to picture": (places, [metrics[f"t2i_r{k}"] for k in places]),
    "guessing a picture": (places, [100 * k / len(dataset.test) for k in places]),
}
plots.curves(axes, lines, x="k", y="recall at k (%)")
axes.set(ylim=(0, 100), xticks=places)
plots.show(
    figure, alt="Recall at 1, 5 and 10 for picture to text, text to picture, and for guessing."
)

# %% [markdown]
# ## An experiment that could fail
#
# Recall asks for the caption's *own* picture. But a terse caption is true of many pictures. When the model puts another picture
# first, is it wrong, or is the question unfair? The world can tell: for each caption of the test split, is it *true* of the
# picture that the model puts first? If the model looked at nothing but the place, a true picture would come first only now
# and then. The report shows the stored run's numbers and says whether yours agree with them.

# %%
first = cosine(captions, index).argmax(1)  # (Nc,)   the picture put first for each caption
owns = first == torch.from_numpy(dataset.test.owner)
truth = lesson.relevance("test")  # (Nc, Ni), or None: of photographs nobody knows it
measured = {"first picture is the caption's own (%)": 100 * owns.float().mean().item()}
if truth is not None:
    true_first = truth[torch.arange(len(first)), first]
    measured["caption is true of the first picture (%)"] = 100 * true_first.mean()
    measured["pictures that a caption is true of, mean"] = truth.sum(1).mean()
lesson.report("00_truth", measured)

# %%
lesson.report("00_rsum", {"rsum of the test split": metrics["rsum"]})

# %% [markdown]
# Many "errors" of the protocol are right answers. The course will keep asking both questions: the field's, for which papers have
# numbers, and the true one.
#
# ## Exercises
#
# ```{exercise-start} Read a ranking
# :label: ex-00-rank
# ```
# Five pictures have the similarities 0.2, 0.9, 0.4, 0.1 and 0.7 with a query; its own is the one with 0.4. What place does it take?
# (The best place is 1.)
# ```{exercise-end}
# ```

# %%
your_place = ...
check("00.rank", your_place)

# %% [markdown]
# ````{solution-start} ex-00-rank
# :class: dropdown
# ````
# 0.9 and 0.7 come before it.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_place = 1 + sum(other > 0.4 for other in (0.2, 0.9, 0.1, 0.7))
check("00.rank", your_place)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Write the search
# :label: ex-00-search
# ```
# Write the search yourself: `v` holds the index, one row a picture, `query` is one vector; return the `k` rows with the largest
# cosine, best first. Neither is of length one.
# ```{exercise-end}
# ```


# %%
def your_search(v: torch.Tensor, query: torch.Tensor, k: int) -> list[int]: ...


check("00.search", your_search)

# %% [markdown]
# ````{solution-start} ex-00-search
# :class: dropdown
# ````
# The query's own length divides all similarities alike, so only the rows need to be scaled.


# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
def your_search(v: torch.Tensor, query: torch.Tensor, k: int) -> list[int]:
    directions = v / v.norm(dim=1, keepdim=True)  # (Ni, D)
    return (directions @ query).topk(k).indices.tolist()


check("00.search", your_search)

# %% [markdown]
# ````{solution-end}
# ````
#
# ```{exercise-start} Break it
# :label: ex-00-break
# ```
# Forget to divide by the lengths, and let one picture's vector be a thousand times as long as the others. Then that picture comes
# first for every query that points even a little its way. Suppose it were every query: what would recall at 1 from text to picture be,
# in percent, on 1,000 pictures with five captions each? Think first; then try
# `long = index.clone(); long[7] *= 1000; (captions @ long.T).argmax(1)`. For how many captions is picture 7 first, and why not for all?
# ```{exercise-end}
# ```

# %%
your_recall = ...
check("00.break", your_recall)

# %% [markdown]
# ````{solution-start} ex-00-break
# :class: dropdown
# ````
# Only the captions of that one picture find their own first.

# %% jupyter={"source_hidden": true} tags=["solution"]
# Solution
your_recall = 100 * 5 / (5 * 1000)
check("00.break", your_recall)

# %% [markdown]
# ````{solution-end}
# ````
#
# ## Where to read on
#
# - The next notebook, *Pictures and captions*, looks at what the five captions of a picture say and leave out.
# - (In JupyterLab a source shows as a short name; the book's page of references spells it out.)
# - Ranking sentences for pictures as a task, with its measures, comes from {cite}`hodosh2013framing`.
# - The loss used here, which asks for the right partner out of a batch, is that of {cite}`oord2018cpc`.
