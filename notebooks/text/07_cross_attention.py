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
# # Cross-attention, and what it costs
#
# **You will be able to** write SCAN {cite}`lee2018scan` and BFAN {cite}`liu2019bfan` from scratch, see which box each word looks at,
# compute SCAN's score with half the work, and say what a query costs.
#
# **You need** the notebooks [Relations](05_relations.ipynb) and [Learning to rank](04_learning_to_rank.ipynb), and the
# softmax.
#
# **It takes** about 1 minute and 1 GB of memory on two cores; the exercises take an hour and a quarter.
#
# The map: encode → pool → **compare** → learn.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import statistics
import time

import numpy as np
import torch
from torch.nn import functional as F

import course
from vsecore import experiments
from course import dots, plots
from course.checks import check, exercise
from course.drawings import alignment as drawings, system
from vsecore.evaluation import evaluate
from vsecore.recipes import get
from vsecore.similarity import cross_attention, focal_attention
from vsecore.training import encode

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
features = lesson.regions_or_grid()
row, caption = 16, "A plane, a bicycle and an umbrella at the park."  # of the test split
system(lit="compare")

# %% [markdown]
# ## Each word looks for its box
#
# So far, a caption became one vector before it met the picture. The words of the caption therefore had no say in how the picture was
# read. *Cross-attention* compares the elements instead: each word looks at the parts of the picture by itself, and the score says how well
# the words found what they looked for.
#
# SCAN does this on the regions of a detector, "to discover the full latent alignments using both image regions and
# words in a sentence as context" (abstract). Our regions are the whole picture and a box around each thing. We train SCAN for one epoch. For
# so short a training we use InfoNCE, because it learns faster than the paper's hinge on the hardest negative.

# %%
dataset = lesson.dataset(features)
quick = {"dim": 64, "text.encoder.word_dim": 64, "losses": "info_nce"}
quick |= {"training.epochs": 1, "training.batch_size": 64, "training.learning_rate": 3e-3}
recipe = get(f"scan_{features}_gru").override(quick | {"training.schedule": "cosine"})
run = lesson.trained(recipe, dataset)
model, tokenizer = run.model, run.tokenizer

# %% [markdown]
# Where does each word of a caption look? The colour of a box is the *weight* that the word gives it, and a frame marks the largest; the
# background is the whole picture's. The weights of a word add up to one. Try another picture (`row`), or a sentence of your own (`caption`).

# %%
maps = plots.word_maps(run, lesson.seen(dataset, "test", row), caption)
plots.show(maps.figure(columns=4), alt=maps.describe())

# %% [markdown]
# Nobody told the model which word belongs to which box. It only learned which captions were written for which picture. But one picture
# may be a lucky choice. So we take every word that names a thing in its picture, and check whether its largest weight is on a box of such
# a thing. A random box is the baseline.

# %%
dev = dataset.dev.subset(min(300, len(dataset.dev)))
v, t = encode(model, dev, tokenizer)  # elements (Ni, N, D) and (Nc, L, D), with their masks
owner = torch.as_tensor(np.array(dev.owner))  # (Nc,)
weights = model.similarity.weights(v[owner], t)  # (Nc, L, N)   each caption, its own picture
named = drawings.named(lesson, dataset, dev, tokenizer)  # M words, with their things' boxes


def pointing(values):  # (Nc, L, N) -> ()   how often the largest is on the thing, in percent
    best = values[named.caption, named.word].argmax(-1)  # (M,)
    return 100 * named.boxes.gather(1, best[:, None]).float().mean()


# %% tags=["nbval-ignore-output"]
real_boxes = v.mask[owner][named.caption].sum(1)  # (M,)
chance = 100 * (named.boxes.sum(1) / real_boxes).mean()
course.numbers({"largest weight on the thing (%)": pointing(weights), "random box (%)": chance})
lesson.finding("more than twice as often as a random box", bool(pointing(weights) > 2 * chance))

# %% [markdown]
# So the words do find their things, far more often than chance.
#
# ## From affinities to a score
#
# How does a word decide? Take one picture and one caption. The *affinity* of a word and a box is the cosine of their vectors. Here are
# the affinities, and the two steps that turn them into weights. A column is a box, named after the thing in it; *all* is the whole picture.

# %%
one = int(np.flatnonzero(dev.owner == 0)[0])  # a caption of the first picture
boxes, words = v.elements[0][v.mask[0]], t.elements[one][t.mask[one]]  # (N, D), (L, D)
affinity = F.normalize(words, dim=1) @ F.normalize(boxes, dim=1).T  # (L, N)
places = {word: rows[0] for word, rows in tokenizer.words_of(dev.captions[one])[:10]}
drawings.tables(affinity, places, drawings.boxes_of(lesson, dataset, 0, len(boxes)))

# %% [markdown]
# With $v_i$ the vector of box $i$ and $t_j$ that of word $j$, scaled to length one, and $[s]_+$ for $s$ clipped at zero, the paper's equations
# from text to image are
#
# $$\begin{aligned}
# s_{ij}&=v_i\cdot t_j, \qquad \bar s_{ij}=\frac{[s_{ij}]_+}{\sqrt{\sum_k[s_{ik}]_+^2}}, \\
# a_{ij}&=\frac{\exp(\lambda_1\bar s_{ij})}{\sum_k\exp(\lambda_1\bar s_{kj})} .
# \end{aligned}$$
#
# The first is the cosine of box $i$ and word $j$ (in figure and code, words are the rows). The second clips it and divides each box's
# affinities by their length
# over all words $k$: a box has only so much to give, and the words compete for it. In the third, the softmax over the boxes $k$ gives the
# weights. The factor $\lambda_1$ (`smooth` in code) decides how sharp they are.
#
# ```{exercise} Where each word looks
# :label: ex-07-weights
#
# `queries` is (n, D), here the words; `context` is (m, D), here the boxes; neither has length one. Return the weights, (n, m). Clip with a
# leaky ReLU of slope 0.1, which keeps a tenth of what is below zero (a note below says why).
# ```
#
# ```{hint}
# :class: dropdown
#
# `F.normalize(x, dim=1)` divides each row by its length, `dim=0` each column. `F.leaky_relu` clips.
# ```


# %%
@exercise("07.weights")
def attention_weights(queries, context, smooth=9.0):  # (n, D), (m, D) -> (n, m)
    # your part
    affinity = F.normalize(queries, dim=1) @ F.normalize(context, dim=1).T  # (n, m)
    clipped = F.leaky_relu(affinity, 0.1)  # (n, m)
    divided = F.normalize(clipped, dim=0)  # (n, m)   of each box, over the words
    return (smooth * divided).softmax(1)  # (n, m)
    # end of your part


# %% [markdown]
# ````{solution} ex-07-weights
# :class: dropdown
#
# First come the cosines, then the leaky ReLU, the division and the softmax. Mind the axes: the division runs over the queries, the softmax
# over the context. If you swap them, every shape still fits, so nothing warns you. We measure below what the wrong division costs.
# ````
#
# ```{exercise} Which points better?
# :label: ex-07-divide
#
# Above, we looked for the box with a word's largest *weight*. What if we take the box with its largest *affinity*, before clipping and
# dividing? Which of the two is more often on the thing that the word names: `"affinity"`, `"weight"` or `"the same"`?
# ```

# %%
your_prediction = "weight"  # your part: "affinity", "weight" or "the same"
check("07.divide", your_prediction)

# %% tags=["nbval-ignore-output"]
v_unit, t_unit = F.normalize(v.elements, dim=2), F.normalize(t.elements, dim=2)
cosines = t_unit @ v_unit[owner].mT  # (Nc, L, N)
cosines = cosines.masked_fill(~v.mask[owner][:, None], -1)
best = {"affinity": pointing(cosines), "weight": pointing(weights)}
course.numbers({f"largest {name} on the thing (%)": share for name, share in best.items()})
lesson.finding("the affinity points better", bool(best["affinity"] > best["weight"] + 8))

# %% [markdown]
# ````{solution} ex-07-divide
# :class: dropdown
#
# The affinity. The division treats all boxes alike, even one that the caption does not mention. Such a box fits no word, but its small
# affinities are divided by a small length, and so they come out as large as any. The palm above is an example.
# ````
#
# So look at both before you trust a map: the weights show which boxes a word reads from, the affinities show which boxes it resembles.
# The authors report that clipping and dividing helped retrieval.
#
# ## Break it: a box that nobody mentions
#
# ```{exercise} A box that nobody mentions
# :label: ex-07-break
#
# A caption has two words, $(1, 0)$ and $(0, 1)$. The first names the box $(0.8, 0.6)$. Choose a second box, two numbers, whose affinity with
# the first word is below $0.5$, and which nevertheless gets more of that word's weight than the box that it names.
# ```
#
# ```{hint}
# :class: dropdown
#
# The first box is divided by its length over both words, which is one. Which column is divided by less? Think of the clip.
# ```

# %%
your_box = [0.3, -0.95]  # your part: two numbers
check("07.break", your_box)

# %%
two_words, two_boxes = torch.eye(2), torch.tensor([[0.8, 0.6], your_box])
fits = two_words @ F.normalize(two_boxes, dim=1).T  # (2, 2)   affinities
looks = attention_weights(two_words, two_boxes)  # (2, 2)
print("first word: affinities", [f"{one:.2f}" for one in fits[0].tolist()], end=", ")
print("weights", [f"{one:.2f}" for one in looks[0].tolist()])

# %% [markdown]
# ````{solution} ex-07-break
# :class: dropdown
#
# For example $(0.3, -0.95)$. Its affinities are 0.3 and −0.95, and clipping makes −0.095 of the second. The column's length is then 0.31, so
# dividing turns 0.3 into 0.95, more than 0.8. A box with two positive affinities cannot do it: they are divided by one.
# ````
#
# ```{admonition} Where the code departs from the paper
# :class: note dropdown
#
# The paper prints $[s]_+$, which is zero below zero. The released code keeps a tenth: `LeakyReLU(0.1)`. It gave the published numbers,
# so it is our default; `negative_slope=0` is the printed form. In that form, an affinity below zero gives the weights no gradient.
# ```
#
# ## What the words have found
#
# The word now reads the picture: its *attended vector* is the weighted sum of the boxes. How similar the word is to what it has read is
# its *relevance* (SCAN's word; elsewhere in this course, relevance is the truth about a pair). The *log-sum-exp* of the relevances, a
# smooth maximum, is the score. The factor $\lambda_2$ (`lse`) decides how much the best word counts:
#
# $$\begin{aligned}
# \hat v_j&=\sum_i a_{ij}\,v_i , \\
# \text{score}&=\frac{1}{\lambda_2}\log\sum_j\exp\bigl(\lambda_2\,s(t_j,\hat v_j)\bigr) .
# \end{aligned}$$
#
# ```{exercise} What the words have found
# :label: ex-07-score
#
# Return the score of one caption and one picture, a number, from the `weights` (n, m). As before, `queries` and `context` do not have
# length one.
# ```
#
# ```{hint}
# :class: dropdown
#
# `weights @ ...` gives all attended vectors, (n, D). `F.cosine_similarity(..., dim=1)` compares row by row, and `logsumexp` is there
# too.
# ```


# %%
@exercise("07.score")
def attended_score(weights, queries, context, lse=6.0):  # (n, m), (n, D), (m, D) -> ()
    # your part
    read = weights @ F.normalize(context, dim=1)  # (n, D)
    relevance = F.cosine_similarity(read, queries, dim=1)  # (n,)
    return (lse * relevance).logsumexp(0) / lse
    # end of your part


# %% [markdown]
# ````{solution} ex-07-score
# :class: dropdown
#
# The attended vectors are a weighted sum, so they are shorter than one; therefore the relevance divides by their length again. The larger
# `lse`, the more the best word decides. The paper also tries the plain mean of the relevances.
# ````
#
# That is SCAN from text to image (*t2i*): the words ask, and the boxes are read. From image to text (*i2t*) only the roles change: the
# boxes ask, and the words are read. (Both are used to search in both directions.)


# %%
def scan(queries, context, smooth=9.0, lse=6.0):  # (n, D), (m, D) -> ()
    return attended_score(attention_weights(queries, context, smooth), queries, context, lse)


pair = (boxes[None], None, words[None], None)  # a batch of one picture and one caption
t2i, i2t = scan(words, boxes), scan(boxes, words, smooth=4.0, lse=5.0)  # the paper's numbers
torch.testing.assert_close(t2i, cross_attention(*pair)[0, 0])
back = cross_attention(*pair, direction="i2t", smooth=4.0, lse=5.0)
torch.testing.assert_close(i2t, back[0, 0])
print("vsecore.similarity.cross_attention gives the same scores, both ways")

# %% [markdown]
# ```{exercise} A query of one word
# :label: ex-07-word
#
# A query has a single word. Its affinities with a picture's three boxes are 0.8, 0.3 and −0.5. With $\lambda_1 = 9$, what is the weight of
# the first box, to two digits?
# ```

# %%
your_weight = 0.5  # your part: one number
check("07.word", your_weight)

# %%
word = torch.tensor([[1.0, 0.0]])  # (1, 2)
three = torch.tensor([[0.8, 0.6], [0.3, 0.954], [-0.5, 0.866]])  # (3, 2)   of length one
print([f"{weight:.2f}" for weight in attention_weights(word, three)[0].tolist()])

# %% [markdown]
# ````{solution} ex-07-word
# :class: dropdown
#
# A column with one entry, divided by its own length, becomes 1 if the entry is positive, and −1 otherwise. So the first two boxes get
# the same weight, and with $\lambda_1 = 9$ hardly anything is left for the third.
# ````
#
# A single word cannot choose among boxes with positive affinity; only the competition with other words separates them. (Our captions carry marks for start
# and end, so that even a query of one word has company.) With one box there is nothing to choose: its weight is one.
#
# ## BFAN: leave out what matters less
#
# A softmax gives every box some weight, and, as BFAN's abstract puts it, "irrelevant ones will more or less disturb it". So BFAN sets the
# weights of irrelevant boxes to zero. With $a_i$ the weights of one word, box $i$ stays if its lead over the others,
#
# $$\sum_k (a_i - a_k)\, \sqrt{a_k} ,$$
#
# is positive. The root (`trust` in code) lets relevant boxes count more in the comparison; this is the paper's *prob*. Its *equal* has 1 in
# place of the root. The weights that stay are divided by their sum.
#
# ```{exercise} Leave out what matters less
# :label: ex-07-focus
#
# `weights` is (n, m); each row adds up to one. Return the refocused weights, (n, m), for `focus="equal"` and `focus="prob"`. The largest
# weight of a row always stays, so that one box alone, or boxes that are all equal, work too.
# ```
#
# ```{hint}
# :class: dropdown
#
# Multiply the sum out: it is $a_i$ times one sum, minus another sum. Neither depends on $i$.
# ```


# %%
@exercise("07.focus")
def refocus(weights, focus="prob"):  # (n, m) -> (n, m)
    # your part
    trust = weights.sqrt() if focus == "prob" else torch.ones_like(weights)  # (n, m)
    lead = weights * trust.sum(1, keepdim=True) - (weights * trust).sum(1, keepdim=True)
    stays = (lead > 0) | (weights == weights.amax(1, keepdim=True))  # (n, m)
    kept = weights * stays  # (n, m)
    return kept / kept.sum(1, keepdim=True)
    # end of your part


# %% [markdown]
# ````{solution} ex-07-focus
# :class: dropdown
#
# For *equal*, a weight stays if it is above the mean of its row. For *prob* the threshold is a mean in which large weights count more, so it is
# higher, and fewer boxes stay.
# ````
#
# BFAN adds both directions, each with the mean of its relevances.


# %%
def bfan(words, boxes, focus="prob"):  # (L, D), (N, D) -> ()
    total = 0.0
    for queries, context in ((words, boxes), (boxes, words)):
        weights = refocus(attention_weights(queries, context, smooth=20.0), focus)  # (n, m)
        read = weights @ F.normalize(context, dim=1)  # (n, D)
        total = total + F.cosine_similarity(read, queries, dim=1).mean()
    return total


for focus in ("equal", "prob"):
    torch.testing.assert_close(bfan(words, boxes, focus), focal_attention(*pair, focus)[0, 0])
print("vsecore.similarity.focal_attention gives the same scores")

# %% [markdown]
# ## The same score without reading
#
# A search compares each caption with each picture. The released code of SCAN takes one caption at a time and compares it with all pictures
# at once:


# %%
def one_caption(boxes, mask, words, smooth=9.0, over=1):  # (B, N, D), (B, N), (L, D) -> (B,)
    v, t = F.normalize(boxes, dim=2), F.normalize(words, dim=1)
    affinity = t @ v.mT  # (B, L, N)
    divided = F.normalize(F.leaky_relu(affinity, 0.1).masked_fill(~mask[:, None], 0), dim=over)
    logits = (smooth * divided).masked_fill(~mask[:, None], -torch.inf)  # (B, L, N)
    read = logits.softmax(2) @ v  # (B, L, D)   the attended vectors
    relevance = F.cosine_similarity(read, t, dim=2)  # (B, L)
    return (6 * relevance).logsumexp(1) / 6


few = 20
looped = torch.stack([one_caption(v.elements[:few], v.mask[:few], words)], 1)  # (B, 1)
at_once = cross_attention(v.elements[:few], v.mask[:few], words[None], None)
torch.testing.assert_close(looped, at_once)

# %% [markdown]
# For each pair it takes two large products, one for the affinities and one to form the attended vectors. The second is unnecessary,
# because the cosine needs only $t_j \cdot \hat v_j$ and the length of $\hat v_j$, and both follow from the definition of $\hat v_j$:
#
# $$\begin{aligned}
# t_j\cdot\hat v_j&=\sum_i a_{ij}\,s_{ij} , \\
# \lVert\hat v_j\rVert^2&=\sum_i\sum_k a_{ij}\,a_{kj}\,(v_i\cdot v_k) .
# \end{aligned}$$
#
# The products $v_i \cdot v_k$ form the picture's *Gram matrix* $G$. It is small and the same for all captions.
#
# ```{exercise} Relevance without reading
# :label: ex-07-fast
#
# Return the relevance of each query, (n,), from three tables: `weights` (n, m); `affinity` (n, m), the cosines before clipping; and `gram`
# (m, m).
# ```
#
# ```{hint}
# :class: dropdown
#
# `weights @ gram` does one of the two sums of the length for all queries at once.
# ```


# %%
@exercise("07.fast")
def relevance_from_products(weights, affinity, gram):  # (n, m), (n, m), (m, m) -> (n,)
    # your part
    along = (weights * affinity).sum(1)  # (n,)
    length = ((weights @ gram) * weights).sum(1).sqrt()  # (n,)
    return along / length
    # end of your part


unit = F.normalize(boxes, dim=1)  # (N, D)
quick = relevance_from_products(attention_weights(words, boxes), affinity, unit @ unit.T)
torch.testing.assert_close((6 * quick).logsumexp(0) / 6, t2i)

# %% [markdown]
# ````{solution} ex-07-fast
# :class: dropdown
#
# No vector of width D occurs. Take care to use the affinities as they are: clipping changes the weights, but not the vectors that the
# word reads.
# ````
#
# `vsecore.similarity.cross_attention` computes all affinities of a block of pictures and captions in one product, and then works with
# small tables only. It is exact, so training uses it too.
#
# ## The bill: what one pair costs
#
# Two towers compare one vector with one vector. DivE {cite}`kim2023dive` compares a set of four with a set of four. SCAN compares $L$
# words with $N$ boxes. Here is the bill at about the sizes of SCAN's paper: the *multiply-adds* of *one* pair, and the numbers that an index
# keeps for a picture. The last way also keeps the Gram matrix.

# %%
D, N, L = 1024, 36, 12  # width, regions of a picture, words of a caption
bill = {  # multiply-adds of a pair, numbers kept of a picture
    "one vector each": (D, D),
    "sets of four": (4 * 4 * D, 4 * D),
    "SCAN, one caption at a time": (2 * L * N * D, N * D),
    "SCAN, without reading": (L * N * D + L * N**2, N * (D + N)),
}
print(f"{'':28}{'multiply-adds':>14}{'times':>8}{'kept':>9}{'times':>7}")
for name, (work, kept) in bill.items():
    print(f"{name:28}{work:14,}{work / D:8,.0f}{kept:9,}{kept / D:7,.0f}")

# %% [markdown]
# The paper of DivE has such a bill too. It counts *FLOPs*, here one for each multiply-add, and times a search of Flickr30K's validation
# pictures.

# %%
printed = {  # FLOPs of a pair by section 4.4; cost and milliseconds by appendix B.1
    "one vector each": (None, 1, 159),
    "sets of four": (16.4e3, 16, 168),
    "SCAN, one caption at a time": (1.24e6, 1280, 198_121),
}
for name, (flops, cost, milliseconds) in printed.items():
    told = "–" if flops is None else f"{flops:,.0f}"
    print(f"{name:28}{told:>14} FLOPs{cost:8,} times{milliseconds / 1000:10,.3f} s")

# %% [markdown]
# Does a clock agree? We time random vectors of these sizes on one core. In each round we time all ways right after each other, and
# divide by the time of one vector each. We measure processor time, which ignores other programs, and leave out whatever can be encoded
# beforehand.

# %%
generator = torch.Generator().manual_seed(seed)
B, C = 100, 10  # pictures and captions
many = torch.randn(B, N, D, generator=generator)  # (B, N, D)
said = torch.randn(C, L, D, generator=generator)  # (C, L, D)
all_real = torch.ones(B, N, dtype=torch.bool)
sets, asked = many[:, :4].reshape(-1, D).contiguous(), said[:, :4].reshape(-1, D).contiguous()
single, query = many[:, 0].contiguous(), said[:, 0].contiguous()


def by_loop():
    return [one_caption(many, all_real, caption) for caption in said]


# %%
ways = {  # what is timed, and how often
    "one vector each": (lambda: single @ query.T, 200),
    "sets of four": (lambda: sets @ asked.T, 50),
    "SCAN, one caption at a time": (by_loop, 1),
    "SCAN, without reading": (lambda: cross_attention(many, None, said, None), 1),
}


def seconds(task, repeats):
    start = time.process_time()  # only what this program computes
    for _ in range(repeats):
        task()
    return (time.process_time() - start) / repeats


# %% tags=["nbval-ignore-output"]
threads = torch.get_num_threads()
torch.set_num_threads(1)  # a thread that waits takes processor time, too
rounds = [{name: seconds(*way) for name, way in ways.items()} for _ in range(7)]
torch.set_num_threads(threads)
clock = {
    name: statistics.median(one[name] / one["one vector each"] for one in rounds)
    for name in ways
}
for name, times in clock.items():
    print(f"{name:28}{times:8,.0f} times")

# %%
drawings.costs(
    {
        "counted": {name: work / D for name, (work, _) in bill.items()},
        "timed here": clock,
        "DivE, counted": {name: cost for name, (_, cost, _) in printed.items()},
        "DivE, timed": {name: time / 159 for name, (_, _, time) in printed.items()},
    }
)

# %% tags=["remove-cell"]
loop, quick = clock["SCAN, one caption at a time"], clock["SCAN, without reading"]
lesson.finding("without reading is faster", quick < loop)
counted = bill["SCAN, without reading"][0] / D
lesson.finding("and still far more than one vector", quick > 30 and counted > 100)

# %% [markdown]
# Count and clock agree on the order of magnitude. In DivE's times, one vector and sets of four take nearly the same, so most of that time
# is not the comparison (the paper does not say on which machine it timed). Without reading, SCAN saves about half of its multiply-adds and
# the overhead of one caption at a time, but it still costs hundreds of times what one vector does. In addition, an index must keep all
# boxes.
#
# ## What if a step goes wrong?
#
# Two mistakes are easy to make, and no error message warns of either: to forget the factor, so that $\lambda_1 = 1$, and to divide over the
# boxes, not over the words. [Structural alignment](06_structural_alignment.ipynb) shows what a softmax without a factor does. Here the
# divided affinities mostly lie between 0 and 1, so a weight is seldom more than 2.7 times as large as another, and no word can look at
# one box alone.
#
# We score the development pictures with each mistake, and also with a model trained with $\lambda_1 = 1$ from the start.


# %% tags=["nbval-ignore-output"]
def rsum(smooth=9.0, over=1):  # over=1: divides over the words; 2: over the boxes
    captions = zip(t.elements, t.mask, strict=True)
    scores = [one_caption(v.elements, v.mask, w[real], smooth, over) for w, real in captions]
    return evaluate(torch.stack(scores, 1), dev.owner)["rsum"]


soft = lesson.trained(recipe.override({"similarity.smooth": 1.0}), dataset)
softly = soft.model.scores(*encode(soft.model, dev, soft.tokenizer))  # (Ni, Nc)
broken = {"as trained": rsum(), "factor 1": rsum(1.0)}
broken["trained with factor 1"] = evaluate(softly, dev.owner)["rsum"]
broken["divided over the boxes"] = rsum(over=2)
course.numbers(
    {f"rsum of {len(dev)} pictures, {name}": value for name, value in broken.items()}
)

# %% tags=["remove-cell"]
worst, best = broken["factor 1"] + 50, broken["as trained"]
lesson.finding(
    "training without the factor wins back some",
    worst < broken["trained with factor 1"] < best - 10,
)
lesson.finding("the wrong axis costs less", worst < broken["divided over the boxes"] < best + 5)

# %% [markdown]
# With nearly equal weights, every word reads nearly the same, namely the mean of the boxes. That costs more than a hundred points. A model
# trained with such weights wins back many of these points, but not all. Dividing over the wrong axis (last row) costs much less.
#
# ## Is it worth it?
#
# One epoch cannot answer this, so we look at recorded runs. **Question.** Does cross-attention retrieve better than one vector for each
# side, on the same regions? **What we did.** We trained SCAN in both directions, BFAN (*prob*), and two systems that compare one vector
# with one vector: VSE++, and VSRN, in which the regions exchange messages before they are pooled. (VSRN also learns to write the caption,
# which may help it too.) Each has five seeds, and a learning rate chosen on the development split. *SCAN t2i, mean* takes the plain
# mean of the relevances, the paper's other choice, where this notebook teaches the log-sum-exp.

# %% tags=["results", "nbval-ignore-output"]
names = {"SCAN t2i": "SCAN t2i, mean", "SCAN i2t": "SCAN i2t", "BFAN prob": "BFAN prob"}
names |= {"VSRN": "VSRN", "VSE++": "VSE++"}
recorded = experiments.studied("cross_attention", "scenes")
study = {title: recorded[arm] for arm, title in names.items()}
dots.show(study)

# %% tags=["remove-cell", "results", "nbval-ignore-output"]
attending = [arm for title, arm in study.items() if title not in ("VSRN", "VSE++")]
leads = [dots.gaps(arm, study["VSE++"]) for arm in attending]
lesson.outcome("each is more than 20 above VSE++, from every seed", min(map(min, leads)) > 20)
means = sorted(round(statistics.mean(one)) for one in leads)
lesson.outcome("25 to 31 on average", (means[0], means[-1]) == (25, 31))
lead = study["VSRN"].rsum - max(arm.rsum for arm in attending)
lesson.outcome("VSRN has the highest rsum of all", lead > 4)
pairs = [round(recorded[f"{name} both"].rsum, 1) for name in ("SCAN", "BFAN")]
lesson.outcome("two models each reach 519.9", pairs == [519.9, 519.9])
ways = ("i2t_map_at_r", "t2i_map_at_r")
first = [max(study, key=lambda one: dots.mean(study[one], way)) for way in ways]
lesson.outcome(
    "by mAP@R, BFAN leads one way, SCAN i2t the other", first == ["BFAN prob", "SCAN i2t"]
)
ahead = [("BFAN prob", "i2t")] + [
    (title, "t2i") for title in study if title not in ("VSRN", "VSE++")
]
gains = [dots.gaps(study[title], study["VSRN"], f"{way}_map_at_r") for title, way in ahead]
lesson.outcome(
    "BFAN is ahead of VSRN both ways, SCAN to picture, in all seeds", min(map(min, gains)) > 0
)


def leader(measure, draw):
    return max(study, key=lambda one: study[one].results[measure][draw])


leaders = [[leader(measure, draw) for draw in range(5)] for measure in ("rsum", *ways)]
lesson.outcome("four seeds agree", all(len({*one[:1], *one[2:]}) == 1 for one in leaders))
lesson.outcome(
    "the fifth differs to picture only", [len(set(one)) for one in leaders] == [1, 1, 2]
)

# %% [markdown]
# **What came out.** Cross-attention is 25 to 31 points of rsum above VSE++ on average, and more than 20 in each of the five seeds. But VSRN has the
# highest rsum here, 517.8, although it compares one vector with one vector, at a cost of 1 where SCAN pays hundreds. By mAP@R,
# which counts every true pair, the order is different: BFAN leads from picture to text (32.9 %, VSRN 30.9 %), and SCAN *i2t* from text to
# picture (77.1 %, VSRN 71.4 %). Averaged over two models each, as in their papers, SCAN and BFAN both reach 519.9.
#
# **What it means.** Better elements can be worth more than a more expensive comparison: VSRN spends its effort in the encoder, once for
# each picture, and SCAN spends it at every pair. Which of the two wins depends on the measure. The rsum rewards finding the very caption
# that was written for a picture; mAP@R rewards putting all true ones in front, and there BFAN is ahead of VSRN in both directions, and SCAN
# from text to picture.
#
# **How sure we are.** In four seeds the same systems lead; in the fifth, BFAN and SCAN *t2i* just pass SCAN *i2t* from text to picture. But our boxes are
# exact and few; a detector's 36 are neither.
#
# Does cross-attention at least know *who stands where*? It compares single words with single boxes, so it might. We show each system two
# pictures that differ in relations only, with a caption of one of them, and count how often it prefers the correct one. *Mean of words* is a
# system of [Relations](05_relations.ipynb) whose captions have no order, so it cannot know left from right.

# %% tags=["results", "nbval-ignore-output"]
bag = experiments.studied("relational_losses", "scenes")["mean of words"]
# 1.96 standard errors of guessing, if all captions of a pair of pictures stand or fall together
reach = {"pairs_left_right": 4.8, "pairs_other": 5.9}
drawings.relations(study | {"mean of words": bag}, reach)

# %% tags=["remove-cell", "results", "nbval-ignore-output"]
for key, band in reach.items():
    none = dots.mean(bag, key)
    shares = [dots.mean(arm, key) for arm in study.values()]
    lesson.outcome(
        "no system leaves the band", all(abs(one - 50) < band for one in [*shares, none])
    )
    lesson.outcome("none is four points above the mean of words", max(shares) < none + 4)

# %% [markdown]
# No system does. There are two kinds of chance here. Another seed would give other percentages: the blue intervals show how much. But all seeds
# see the same 500 pairs of pictures, and other pairs would move all of them together: the grey band shows where a system that guesses ends
# up in 95 of 100 draws of pairs, if all captions of a pair are right or wrong together. No system leaves the band. So an interval over
# seeds that lies above 50 % (*SCAN t2i* in the upper panel, *SCAN i2t* in the lower) is no proof that the system knows the relation.
#
# Here is the course's scoreboard; new rows are bold, and *text to image* is the mean again.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
course.scoreboard("07")

# %% [markdown]
# The papers' own sums are in [What papers report](../evidence/published.md), and ours on [the evidence page](../evidence/relational.md).
#
# ## Your own experiment: one setting of the score
#
# ```{exercise} Change one thing
# :label: ex-07-explore
#
# Choose one setting of how the trained model is scored, `smooth`, `lse` or `negative_slope`, and some values of it. Write down as
# `your_expectation` where the curve will be highest, before you run the cell, and afterwards as `your_finding` what came out.
# ```

# %%
setting, values = "smooth", [1, 4, 9, 20, 60]  # change these
elements = v.elements, v.mask, t.elements, t.mask
curve = [
    evaluate(cross_attention(*elements, **{setting: x}), dev.owner)["rsum"] for x in values
]

# %% tags=["hide-input"]
plots.curve(
    {"": (values, curve)},
    x=setting,
    y=f"rsum of {len(dev)} pictures",
    alt=f"The rsum of the trained model on the development pictures, for five values of {setting} when it is scored.",
)

# %%
your_expectation = "It was trained with 9, so that 9 is best."  # your part
your_finding = "Nine is near the top, and softer weights cost the most."  # your part
check("07.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-07-explore
# :class: dropdown
#
# With `smooth`, the curve is highest near the value of training and falls steeply towards 1. That shows what *this* model tolerates. Which
# value is best to train with is another question, and needs a run for each value, with several seeds.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | SCAN, eq. (1), (3) | `attention_weights` | `vsecore.similarity.CrossAttention` |
# | SCAN, eq. (2), (4), (5) | `attended_score`, `scan` | `vsecore.similarity.cross_attention` |
# | SCAN's loop over captions | `one_caption` | `vsecore.similarity.cross_attention` |
# | the same without attended vectors | `relevance_from_products` | `vsecore.similarity.cross_attention` |
# | BFAN, section 3 | `refocus`, `bfan` | `vsecore.similarity.focal_attention` |
#
# ## Summary
#
# - In cross-attention each word reads the picture by itself, and the score says how well the words found what they looked for.
# - SCAN divides each box's affinities over the words and takes the softmax over the boxes; BFAN then drops the weak boxes.
# - The cosine with an attended vector follows from affinities and a Gram matrix, so the vector is never formed.
# - Comparing one pair costs hundreds of times as much as comparing one vector with one vector. Cross-attention is 25 to 31 points of rsum
#   above VSE++, but VSRN, with one
#   vector each, has the highest rsum, 517.8; by mAP@R, BFAN and SCAN lead.
#
# ## Where to read on
#
# - [Full scale](18_full_scale.ipynb) spends cross-attention on a few candidates only.
# - Regions and words were first aligned like this, without attention, by {cite}`karpathy2015alignments`.
# - What attention maps do and do not explain: {cite}`jain2019attention`.
