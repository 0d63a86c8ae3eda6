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
# # The joint space
#
# **You will be able to** compute every number of a retrieval table, spot an evaluation that can be fooled by ties, predict what a recall on few
# pictures becomes on many, and measure a system against what is true of a picture.
#
# **You need** the notebooks [Start here](00_start_here.ipynb) and [Pictures and captions](01_pictures_and_captions.ipynb), dot
# products, and an idea of the normal distribution.
#
# **It takes** about 1 minute and 1 GB of memory on two cores; the exercises take an hour.
#
# The map: encode → pool → **compare** → learn. We compare vectors, and measure how well that works.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import math

import numpy as np
import torch
from scipy.optimize import fsolve
from scipy.stats import kendalltau

import course
from course import plots, standings
from course.checks import check, exercise
from course.drawings import joint_space, system
from course.engine import opened
from vsecore import experiments, records
from vsecore.evaluation import evaluate, map_at_r, r_precision, ranks
from vsecore.similarity import cosine
from vsecore.training import encode

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %%
system(lit="compare")

# %% [markdown]
# ## A sentence finds its pictures
#
# We take the system that answers at the beginning of *Start here*. It gives a vector for each picture and each caption of the test
# split. `S` holds the cosine of every picture with every caption.

# %%
model, tokenizer = opened(lesson)
test = lesson.test_split("grid")
owner = torch.from_numpy(test.owner)  # (Nc,)   the picture of each caption
v, t = (side.vectors for side in encode(model, test, tokenizer))
S = cosine(v, t)  # (Ni, Nc)

# %% [markdown]
# The embedded world also tells us which caption is true of which picture. (Nobody knows this for photographs, so there only the caption's own
# picture counts as true.)

# %%
own_pairs = owner[:, None] == torch.arange(len(S))  # (Nc, Ni)
relevance = lesson.relevance("test")
truth = own_pairs if relevance is None else torch.from_numpy(relevance)  # (Nc, Ni)
found = S.topk(5, dim=0).indices.T  # (Nc, 5)
hits = truth.gather(1, found)  # (Nc, 5)

# %% [markdown]
# Here is a caption with its five most similar pictures. The ticked ones really fit it.

# %% tags=["hide-input", "nbval-ignore-output"]
telling = (truth.sum(1) == 4) & hits[:, :4].all(1) & (found[:, 1] == owner)
lesson.finding("all four true pictures come first, its own second", bool(telling.any()))
asked = int(telling.int().argmax())
names = [
    f"{n}{', its own' if row == owner[asked] else ''}" for n, row in enumerate(found[asked], 1)
]
figure = plots.picture_row(
    lesson.pictures("test", found[asked].tolist()),
    names,
    marked=hits[asked].tolist(),
    heading=test.captions[asked],
)
plots.show(
    figure,
    alt=f"The first five pictures found for: {test.captions[asked]} A frame and a tick mark those of which it is true.",
)

# %% [markdown]
# All four pictures that fit come first. But the picture that the caption was written for is only second, so recall at 1 counts this search as a
# miss. Keep this in mind; we come back to it.
#
# ## Angle and distance say the same
#
# Both networks scale their vectors to length one, so all lie on the *unit sphere*. That sphere is the *joint space*: a caption should lie
# near the pictures it is true of. We can measure how near by the angle between two vectors, or by the straight line from tip to tip.

# %%
joint_space.angle_and_distance()

# %% [markdown]
# Multiply out the squared distance, with $v \cdot v = t \cdot t = 1$ and the similarity $s(v, t) = v \cdot t$:
#
# $$\lVert v - t \rVert^2 = v \cdot v + t \cdot t - 2\, v \cdot t = 2 - 2\, s(v, t) .$$
#
# So the nearest picture is always the most similar one. We check it.

# %%
squared = torch.cdist(v, t[:200]).square()  # (Ni, 200)
torch.testing.assert_close(squared, 2 - 2 * S[:, :200], atol=1e-4, rtol=0)  # the equation
of_nearest = S[squared.argmin(0), torch.arange(200)]  # (200,)
torch.testing.assert_close(of_nearest, S[:, :200].amax(0))
print("for each of 200 captions, the nearest picture is the most similar one")

# %% [markdown]
# Without the scaling this need not hold: the dot product favours long vectors, and the distance also counts a difference in length.
#
# ## The rank of a caption
#
# Look at one column of the matrix. One picture is the caption's own; all others are its negatives. The *rank* of the caption is the number
# of negatives that score at least as high as its own picture, so the best rank is 0. (In tables, the median and the *mean rank* are counted
# from 1; the ranks themselves are counted from 0 throughout this course.) We need not sort: we count what lies to the right of a line.

# %% tags=["nbval-ignore-output"]
_, rank = ranks(S, owner)  # (Nc,)   you write it yourself below
c = int((rank == rank[rank > 9].min()).nonzero()[0])  # a caption with ten or so in front
negatives = S[~own_pairs[c], c]  # (Ni - 1,)
joint_space.in_front(negatives.numpy(), S[owner[c], c].item())

# %% [markdown]
# ```{exercise} The rank of a caption
# :label: ex-03-captions
#
# Write this count for all captions at once. `S`, (Ni, Nc), has the pictures in its rows; `owner`, (Nc,), gives the row of each caption's
# own picture. Return the rank of each caption, (Nc,), counted from 0. Do not sort.
# ```
#
# ```{hint}
# :class: dropdown
#
# From each column of `S`, pick the score of its own picture. Compare the whole matrix with these numbers. Which picture does this count
# that it should not?
# ```


# %%
@exercise("03.captions")
def caption_ranks(S, owner):  # (Ni, Nc), (Nc,) -> (Nc,)
    # your part
    own = S[owner, torch.arange(len(owner))]  # (Nc,)   each caption with its own picture
    return (S >= own).sum(0) - 1  # (Nc,)
    # end of your part


# %% [markdown]
# ````{solution} ex-03-captions
# :class: dropdown
#
# Pick the own scores, compare each column with its own, and count. The own picture scores as high as itself and is counted too, so take one
# away. The common mistake is `>` in place of `>=`: then a negative with the same score does not count against the system.
# ````
#
# A picture has several captions of its own. Its rank is that of the *best* of them, and the others are not its negatives.
#
# ```{exercise} The rank of a picture
# :label: ex-03-ranks
#
# Return for each picture the number of captions *of other pictures* that score at least as high as its best own caption, (Ni,). The
# captions may stand in any order. Do not sort.
# ```
#
# ```{hint}
# :class: dropdown
#
# Make a mask (Ni, Nc) of what belongs together. Use it twice: to find the best own score, and to leave own captions out of the count.
# ```


# %%
@exercise("03.ranks")
def picture_ranks(S, owner):  # (Ni, Nc), (Nc,) -> (Ni,)
    # your part
    own = owner == torch.arange(len(S))[:, None]  # (Ni, Nc)
    best = S.masked_fill(~own, -torch.inf).amax(1, keepdim=True)  # (Ni, 1)
    return ((S >= best) & ~own).sum(1)  # (Ni,)
    # end of your part


# %% [markdown]
# ````{solution} ex-03-ranks
# :class: dropdown
#
# First mask all foreign captions to find the best own score; then mask the own captions and count. Mask with minus infinity, since scores
# may be negative.
# ````
#
# `vsecore.evaluation.ranks` gives both lists of ranks. It reads the matrix block by block, so that the whole matrix need not fit into memory. We compare
# with it on a hundred pictures, and with rounded scores, of which many are equal.

# %%
few = owner < 100  # captions of the first hundred pictures
hundred = S[:100, few], owner[few]
for scores in (hundred[0], (10 * hundred[0]).round()):
    i2t, t2i = ranks(scores, owner[few])  # (100,), (Nc of these,)
    assert torch.equal(torch.as_tensor(picture_ranks(scores, owner[few])), i2t)
    assert torch.equal(torch.as_tensor(caption_ranks(scores, owner[few])), t2i)
print("vsecore.evaluation.ranks agrees with both cells")

# %% [markdown]
# ## What do the numbers of a table mean?
#
# Every number of the usual table summarises these two lists. *R@k*, recall at k, is the percentage of ranks below k. The *median rank* is
# the middle of the sorted ranks, rounded down, plus one; the mean rank is their mean plus one. Here is the row of a search among the
# first hundred pictures (`i2t` is picture to text, `t2i` text to picture):


# %% tags=["nbval-ignore-output"]
def table_row(i2t: torch.Tensor, t2i: torch.Tensor) -> dict[str, float]:
    row = {}
    for way, found in (("i2t", i2t.double()), ("t2i", t2i.double())):
        for k in (1, 5, 10):
            row[f"{way}_r{k}"] = 100 * (found < k).double().mean().item()
        row[f"{way}_medr"] = found.quantile(0.5).floor().item() + 1
        row[f"{way}_meanr"] = found.mean().item() + 1
    return row


course.numbers(table_row(*ranks(*hundred)))

# %% [markdown]
# ```{exercise} A median rank
# :label: ex-03-median
#
# Six captions have the ranks 0, 2, 7, 0, 1 and 30, counted from 0. What is their median rank, as tables print it?
# ```
#
# ```{hint}
# :class: dropdown
#
# Sort them first. With an even number of ranks the middle lies between two of them.
# ```

# %%
your_median = 2  # your part
check("03.median", your_median)

# %% [markdown]
# ````{solution} ex-03-median
# :class: dropdown
#
# Sorted they are 0, 0, 1, 2, 7, 30. The middle lies between 1 and 2. Rounded down it is 1, and counted from 1 it is 2.
# ````
#
# ## Why ties count against a system
#
# What if a negative scores as high as the caption's own picture? We count such a *tie* against the system. Is that too strict? Here are
# four ways to compute R@1, all found in real code:
#
# - **counting** the negatives that score at least as high, as above;
# - **counting strictly** those that score higher;
# - **sorting**, and finding the place of the caption's own picture;
# - **own first**: put the own score in front of the list and ask whether `argmax` returns 0. (It does if no score is higher, so by
#   construction this agrees with counting strictly.)


# %%
def four_evaluations(S: torch.Tensor, owner: torch.Tensor) -> dict[str, float]:
    own = S[owner, torch.arange(len(owner))]  # (Nc,)
    order = S.argsort(dim=0, descending=True, stable=True)  # (Ni, Nc)
    listed = torch.cat([own[None], S])  # (1 + Ni, Nc)   the own one is there twice: harmless
    found = {
        "counting": (S >= own).sum(0) == 1,
        "counting strictly": (S > own).sum(0) == 0,
        "sorting": order[0] == owner,
        "own first": listed.argmax(0) == 0,
    }
    return {name: 100 * hit.double().mean().item() for name, hit in found.items()}


# %% [markdown]
# ```{exercise} Break it
# :label: ex-03-break
#
# Fool the evaluation that counts strictly. Make scores for 20 pictures with five captions each, `(20, 100)`, *without knowing which belong
# together*, so that strict counting finds every caption's own picture. Counting as we do it must find none.
# ```
#
# ```{hint}
# :class: dropdown
#
# Strict counting looks only for higher scores. When is no score higher than another one?
# ```

# %%
your_scores = torch.zeros(20, 100)  # your part: (20, 100)
check("03.break", your_scores)

# %% [markdown]
# ````{solution} ex-03-break
# :class: dropdown
#
# Give all pictures the same score. Then none scores higher than a caption's own, so a system that has learned nothing looks perfect.
# ````
#
# Useful systems have ties too, because computers often store scores in *half precision*, with about three decimals. We round the scores of
# our trained system to fewer and fewer decimals, and expect the four evaluations to disagree.

# %% tags=["nbval-ignore-output"]
decimals = (5, 4, 3, 2, 1, 0)
rounded = [four_evaluations((hundred[0] * 10**n).round(), hundred[1]) for n in decimals]
lines = {name: (decimals, [row[name] for row in rounded]) for name in rounded[0]}
figure, axes = plots.plt.subplots(figsize=(5.8, 3.2))
plots.curves(axes, lines, x="decimals that are kept", y="R@1, text to picture (%)")
axes.invert_xaxis()
plots.show(
    figure,
    alt="R@1 against the number of decimals kept. With many decimals the four evaluations "
    "agree. With fewer, counting and sorting fall, while counting strictly and putting the "
    "own score first climb towards a hundred percent.",
)

# %% tags=["hide-input"]
change = {name: up[-1] - up[0] for name, (_, up) in lines.items()}
lesson.finding("two fall", max(change["counting"], change["sorting"]) < -20)
lesson.finding("two rise", min(change["counting strictly"], change["own first"]) > 10)

# %% [markdown]
# At three decimals the four evaluations still agree. Below that, as rounding removes information, two fall, and two (their lines coincide)
# rise. Sorting breaks a tie by the
# order of the rows, so its result changes if you only shuffle the pictures. An evaluation that rewards throwing information
# away cannot be trusted. This is why, in this course, ties count against the system in every measure.
#
# ## Why COCO 1K and COCO 5K differ
#
# COCO {cite}`lin2014coco` has five thousand test pictures in the usual split {cite}`karpathy2015alignments`. Some tables search
# all of them, *COCO 5K*. Others average over five *folds* of one thousand pictures, each with its own captions, *COCO 1K*. We do
# the same on a smaller scale and cut our test split into ten folds.

# %% tags=["nbval-ignore-output"]
small = len(S) // 10
in_folds = evaluate(S, owner, folds=10)
course.numbers({f"R@1 among {small} pictures": in_folds["t2i_r1"]})

# %% [markdown]
# ```{exercise} Ten times as many pictures
# :label: ex-03-folds
#
# Now the same system searches the whole test split, ten times as many pictures. What happens to R@1? Write your prediction before you read
# on:
#
# - `"a"`: it stays about the same;
# - `"b"`: it falls, but to much more than a tenth of this value;
# - `"c"`: it falls to about a tenth of this value;
# - `"d"`: nobody can tell from the folds.
# ```

# %%
your_prediction = "b"  # your part: "a", "b", "c" or "d"
check("03.folds", your_prediction)

# %% [markdown]
# Only the number of negatives changes: among $n$ pictures, a caption has $n - 1$ negatives, and each of them has a chance to score higher.
# Suppose their scores are independent and follow a *normal distribution* with mean zero and standard deviation one; these two numbers only set the scale. Let the score of
# the caption's picture follow a normal distribution with mean $\delta$, the *lead*, and standard deviation $\sigma$, the *spread*. Call
# its density $p(s)$. With $\Phi(s)$ the chance that one negative stays below $s$, all of them stay below with chance $\Phi(s)^{n-1}$, so
#
# $$\mathrm{R@1} = \int p(s)\, \Phi(s)^{\,n-1}\, \mathrm{d}s .$$
#
# For R@k, up to $k - 1$ negatives may score higher, so the power becomes the first $k$ terms of a binomial distribution.


# %%
def expected_recall(n: int, k: int, lead: float, spread: float) -> float:
    s = torch.linspace(-8, 14, 2201, dtype=torch.float64)  # (2201,)   the own picture's score
    density = torch.exp(-(((s - lead) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
    higher, below = torch.special.ndtr(-s), torch.special.log_ndtr(s)  # 1 − Φ and log Φ
    chances = [  # that exactly j negatives score higher
        float(math.comb(n - 1, j)) * higher**j * torch.exp((n - 1 - j) * below)
        for j in range(k)
    ]
    return 100 * torch.trapezoid(density * sum(chances), s).item()


guessing = expected_recall(1000, 1, 0, 1)  # no lead
assert math.isclose(guessing, 100 / 1000, rel_tol=1e-6)

# %% [markdown]
# ## Does the formula hold?
#
# Real negatives are not independent numbers from a normal distribution: some pictures are nearly the same. So the formula may fail. We
# test it: we find the lead and the spread that give R@1 and R@10 on the small folds, and predict the recalls on all pictures.


# %%
def fit_recalls(n: int, r1: float, r10: float) -> tuple[float, float]:
    def off(pair):
        return [expected_recall(n, 1, *pair) - r1, expected_recall(n, 10, *pair) - r10]

    lead, spread = fsolve(off, (3.0, 1.0))
    return float(lead), float(spread)


# %% tags=["nbval-ignore-output"]
fitted = fit_recalls(small, in_folds["t2i_r1"], in_folds["t2i_r10"])
table = table_row(*ranks(S, owner))  # of the whole split
predicted = {f"R@{k}, predicted": expected_recall(len(S), k, *fitted) for k in (1, 5, 10)}
measured = {f"R@{k}, measured": table[f"t2i_r{k}"] for k in (1, 5, 10)}
course.numbers(predicted | measured)
lesson.finding(
    "the formula is right to within a few points",
    max(abs(a - b) for a, b in zip(predicted.values(), measured.values(), strict=True)) < 6,
)
lesson.finding(
    "R@1 falls, but to far more than a tenth",
    0.3 < measured["R@1, measured"] / in_folds["t2i_r1"] < 0.8,
)

# %% [markdown]
# ````{solution} ex-03-folds
# :class: dropdown
#
# It is b. Only a caption whose own picture leads by little loses the first place. The recall of a system that
# guesses would fall to a tenth.
# ````
#
# R@1 falls, but to much more than a tenth, and the formula predicts it to within a few points. Does the formula also hold for published
# systems? For six of them we take R@1 and R@10 at COCO 1K and predict the three recalls at COCO 5K.


# %%
def predicted_and_published(system: str) -> list[tuple[float, float]]:
    rows = {one.data: one.metrics for one in records.published() if one.system == system}
    one, five = (
        rows["coco, mean of five folds of 1,000 test pictures"],
        rows["coco, 5,000 test pictures"],
    )
    its_fit = fit_recalls(1000, one["t2i_r1"], one["t2i_r10"])
    return [(expected_recall(5000, k, *its_fit), five[f"t2i_r{k}"]) for k in (1, 5, 10)]


# %%
bert = "ResNeXt-101, BERT"
names = ("VSE++", "PVSE", "SCAN", "VSRN", f"VSE∞, {bert}", f"DivE, {bert}")
published = {name: predicted_and_published(name) for name in names}
off = {name: max(abs(a - b) for a, b in pairs) for name, pairs in published.items()}
course.numbers({f"points off at most, {name}": value for name, value in off.items()})

# %% tags=["nbval-ignore-output"]
cuts = {len(S) // folds: evaluate(S, owner, folds=folds) for folds in (20, 10, 5, 4, 2, 1)}
joint_space.recall_by_size(cuts, lambda n, k: expected_recall(n, k, *fitted), small, published)

# %% [markdown]
# Two numbers from a small search predict the recalls of a large one well, here and for five of the six published systems. So a result at
# COCO 1K says nearly as much as one at 5K. (SCAN, the sixth, does better at 5K than predicted.) But seven systems are few, so use the formula to
# understand tables, and not to replace a measurement.
#
# ## What is true, and what the protocol counts
#
# R@k asks for the *own* picture. But a caption can be true of several pictures, and our embedded world knows which.
#
# Two measures ask for all right answers. Let $R$ be the number of these *relevant* items, and let $r_i$ be one if the item at place $i$ is
# relevant, and zero otherwise. *R-precision* is the share of relevant items among the first $R$.
#
# *Mean average precision at R*, mAP@R {cite}`musgrave2020reality`, also looks at their order. With $P(i)$ the share of relevant items among the
# first $i$, it is the mean over all queries of
#
# $$\frac{1}{R} \sum_{i=1}^{R} r_i\, P(i), \qquad P(i) = \frac{1}{i} \sum_{j=1}^{i} r_j .$$
#
# ```{exercise} Average precision at R
# :label: ex-03-precision
#
# `shown` says of every item, from the best place on, whether it is relevant: a bool tensor (n,). Return the average precision at R of this
# one query.
# ```
#
# ```{hint}
# :class: dropdown
#
# `shown.sum()` is R. Only the first R places take part. A running count of the relevant items, divided by the place, is P.
# ```


# %%
@exercise("03.precision")
def average_precision_at_r(shown):  # (n,) bool, the best place first -> a number
    # your part
    R = int(shown.sum())
    r = shown[:R].double()  # (R,)
    P = r.cumsum(0) / torch.arange(1, R + 1)  # (R,)
    return (r * P).sum() / R
    # end of your part


# %% [markdown]
# ````{solution} ex-03-precision
# :class: dropdown
#
# A wrong item adds nothing itself and lowers the precision at every later place. Divide by R, and not by the number of relevant items that were
# found, or a system that finds one of many looks perfect.
# ````
#
# To use your function we need the items in the order of their scores. Ties count against the system: of equal scores, the wrong items come first.


# %%
def as_shown(scores: torch.Tensor, relevant: torch.Tensor) -> torch.Tensor:
    wrong_first = relevant.int().argsort(stable=True)  # (n,)
    order = wrong_first[scores[wrong_first].argsort(descending=True, stable=True)]  # (n,)
    return relevant[order]  # (n,)   r at place 1, 2, ...


by_hand = [float(average_precision_at_r(as_shown(S[:, c], truth[c]))) for c in range(100)]
assert math.isclose(sum(by_hand) / 100, map_at_r(S.T[:100], truth[:100]), rel_tol=1e-6)
print("vsecore.evaluation.map_at_r agrees")

# %% [markdown]
# Now we ask our system both questions: does a caption find its own picture, or one that it is true of?

# %% tags=["nbval-ignore-output"]
first_true = truth[torch.arange(len(owner)), S.argmax(0)].double().mean().item()
course.numbers(
    {
        "own picture first (R@1)": table["t2i_r1"],
        "a true picture first": 100 * first_true,
        "R-precision on the truth, percent": 100 * r_precision(S.T, truth),
        "mAP@R on the truth, percent": 100 * map_at_r(S.T, truth),
    }
)
lesson.finding(
    "a true picture comes first much more often", 100 * first_true > table["t2i_r1"] + 10
)

# %% [markdown]
# A true picture comes first much more often than the caption's own, so many errors that R@1 counts are right answers. How high can R@1 be?
# Imagine an *oracle* that knows every true pair and nothing else, and breaks ties at random.
#
# ```{exercise} The limit of R@1
# :label: ex-03-limit
#
# Four captions are true of 1, 1, 2 and 4 pictures, their own included. The oracle puts all true pictures before all false ones, and the
# true ones in random order. What R@1 from text to picture, in percent, do you expect on average?
# ```
#
# ```{hint}
# :class: dropdown
#
# Take the captions one by one. With what chance does its own picture come first?
# ```

# %%
your_limit = 68.75  # your part: in percent
check("03.limit", your_limit)

# %% [markdown]
# ````{solution} ex-03-limit
# :class: dropdown
#
# A caption with R true pictures finds its own first with chance 1/R. The mean of 1, 1, 1/2 and 1/4 is 11/16. More is possible only by
# guessing for which of the true pictures the caption was written.
# ````
#
# ## Do recall and truth put systems in the same order?
#
# **Question.** An unfair protocol does little harm if it is equally unfair to all systems. Is it?
#
# **What we did.** The rest of the course builds more than a dozen systems, all trained on the same pictures, each from five seeds. You need not
# know them yet: each dot below is one system, placed by its R@1 and its mAP@R on the truth. The dotted line is the oracle.

# %% tags=["results", "nbval-ignore-output"]
systems = [one for one in standings.found("16").values() if len(one.seeds) >= 5]


def means(measure: str) -> list[float]:  # of each system, over its seeds
    return [np.mean(list(one.results[measure].values())) for one in systems]


oracle = records.find(experiments.RESULTS, name="oracle", data="scenes")[0].metrics
titles = {"t2i": "text to picture", "i2t": "picture to text"}
ways = {title: (means(f"{way}_r1"), means(f"{way}_map_at_r")) for way, title in titles.items()}
joint_space.orders(ways, {title: oracle[f"{way}_r1"] for way, title in titles.items()})

# %% [markdown]
# *Kendall's rank correlation* says how far two orders agree: it is the share of pairs of systems that both put in the same order, minus the
# share that they put in opposite orders.

# %% tags=["results", "nbval-ignore-output"]
agreement = {title: kendalltau(*both).statistic for title, both in ways.items()}
for title, value in agreement.items():
    print(f"{title}, R@1 against mAP@R: {value:.2f}")
print(f"R@1 of the oracle: {oracle['t2i_r1']:.1f} to picture, {oracle['i2t_r1']:.1f} to text")

# %% tags=["hide-input", "results", "nbval-ignore-output"]
to_picture, to_text = ways.values()
lesson.outcome(
    "from text to picture both orders mostly agree", agreement["text to picture"] > 0.6
)
apart = agreement["text to picture"] - agreement["picture to text"]
lesson.outcome("from picture to text they agree much less", apart > 0.2)
lesson.outcome("0.74 and 0.33", [round(one, 2) for one in agreement.values()] == [0.74, 0.33])
lesson.outcome("to picture the oracle is a ceiling", max(to_picture[0]) < oracle["t2i_r1"])
lesson.outcome("to text all pass it by far", min(to_text[0]) > 3 * oracle["i2t_r1"])

# %% [markdown]
# **What came out.** From text to picture, R@1 and mAP@R agree on about 87 of 100 pairs of systems (two shares that add up to 1 and differ
# by 0.74 are 0.87 and 0.13). From picture to text they agree on only two thirds, where a coin would agree on half.
#
# **What it means.** Look at the oracle. From text to picture its R@1 is only 66.8, since a caption is often true of several
# pictures, and no system reaches it. From picture to text every system passes its 18.1 by far, although the oracle makes no mistake. The reason is that about 34
# captions are true of a picture, only five of them its own, and the oracle picks one of them at random. (5 of 34 would be 15 %; pictures
# with fewer true captions raise the mean to 18.) Among the true captions, a trained system prefers the most *specific*, and that is usually
# one written for this very picture. So R@1
# and rsum partly reward guessing which caption was written, and mAP@R does not. Use R@1 to follow a training run, and look at both when you
# compare systems.
#
# **How sure we are.** There are few systems, and most of them share many parts, so both correlations are rough.
#
# ```{exercise} Change one thing
# :label: ex-03-explore
#
# Does a more forgiving measure agree with the truth better, from picture to text? The number above is
# `kendalltau(means("i2t_r1"), means("i2t_map_at_r")).statistic`. Print it with `"i2t_r10"`, `"rsum"` or `"i2t_meanr"` in place of `"i2t_r1"`. (A
# mean rank is best when low, so a negative correlation is agreement.) Write down what you expect before you run it, and afterwards what the
# number says.
# ```

# %% tags=["nbval-ignore-output"]
expected = "R@10 agrees better than R@1: it forgives near misses."  # your part: before you run
# your part
tried = kendalltau(means("i2t_r10"), means("i2t_map_at_r")).statistic
print(f"picture to text, R@10 against mAP@R: {tried:.2f}")
# end of your part
found = "It agrees no better: R@10 asks for own captions too."  # your part
check("03.explore", (expected, found))

# %% [markdown]
# ````{solution} ex-03-explore
# :class: dropdown
#
# R@10 also counts only *own* captions among the first ten, and all of them may be pushed out by captions that
# are just as true. So it does not help. The mean rank agrees a little better, and rsum, which also
# contains the other direction, clearly better.
# ````
#
# ## What people say about photographs
#
# For photographs we can ask people. *Crisscrossed Captions*, CxC {cite}`parekh2021cxc`, had raters judge further pairs of COCO's test
# split. *ECCV Caption* {cite}`chun2022eccv` let five systems propose pairs and asked people to confirm them.

# %%
for what, count in joint_space.judged_right().items():
    print(f"{what}: {count:,}")

# %% [markdown]
# Raters found more additional matches than there are original pairs, and they looked at only a small part of all pairs.
# `vsecore.evaluation.coco_benchmarks` measures your scores by the protocol and by both of these lists. Here is what was published for three systems:

# %%
joint_space.benchmarks()

# %% [markdown]
# VSRN has the lowest rsum of the three and the highest mAP@R from text to picture. (VSRN and DivE are two models each; two of VSE∞ reach an
# rsum of 474.8.) But VSRN is one of the five systems that proposed the pairs. People looked only at what these five found, and what another
# system finds still counts as wrong. So VSRN's numbers may be inflated, as the authors of DivE warn {cite}`kim2023dive`.
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | ranks {cite}`hodosh2013framing` | `caption_ranks`, `picture_ranks` | `vsecore.evaluation.ranks` |
# | R@k, median and mean rank | `table_row` | `vsecore.evaluation.evaluate` |
# | mAP@R {cite}`musgrave2020reality` | `average_precision_at_r` | `vsecore.evaluation.map_at_r` |
#
# ## Summary
#
# - On the unit sphere the nearest is the most similar, and the cosine is all we need to compare.
# - A rank counts the negatives that score at least as high as the query's own item; ties count against the system.
# - Recalls can be compared only for the same number of pictures; a formula predicts how they fall as pictures are added.
# - R@1 asks for the own item, mAP@R for all that is true. From text to picture they mostly put our systems in the same order (rank
#   correlation 0.7), from picture to text much less so (0.3).
#
# ## Where to read on
#
# - [Learning to rank](04_learning_to_rank.ipynb) makes the vectors: it writes the loss that pulls a picture and its caption together.
# - Ranking as the task, with R@k and the median rank: {cite}`hodosh2013framing`. Graded relevance instead, with nDCG: {cite}`jarvelin2002cumulated`.
# - An early joint space of photographs and sentences: {cite}`kiros2014unifying`.
