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
# # Structural alignment
#
# **You will be able to** write two losses that compare parts of a picture with parts of a caption, node pooling and node cross-attention
# {cite}`yan2019relational`; see what they learn; and suggest why they bring nothing to retrieval here.
#
# **You need** the notebooks [Learning to rank](04_learning_to_rank.ipynb) and [Relations](05_relations.ipynb).
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take about an hour and a quarter.
#
# The map: encode → pool → compare → **learn**.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import copy
import itertools

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

import course
from course import dots, plots
from course.attention import word_maps
from course.checks import check, exercise
from course.drawings import alignment as drawings, system
from vsecore import experiments, records
from vsecore.data.batches import Batches, make_loader
from vsecore.data.words import TokenizedCaptions
from vsecore.losses import NodePooling, node_cross_attention_loss, node_pooling_loss, triplet
from vsecore.recipes import get

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
features = lesson.regions_or_grid()
row = 21  # of the development split's captions
enough, brief = lesson.pick(smoke=(5, 2), lesson=(80, 20), full=(1500, 300))  # steps
system(lit="learn")

# %% [markdown]
# ## Words that point
#
# We train the thesis's system from [Relations](05_relations.ipynb) for one epoch, in a small size: a Transformer layer for each side, then a
# mean. The elements of a picture are the whole picture and a box around each thing. The loss sees one vector for the picture and one for
# the caption, and nothing else.

# %%
dataset = lesson.dataset(features)
small = {"dim": 64, "text.encoder.word_dim": 64, "text.encoder.layers": 1}
quick = {"training.epochs": 1, "training.learning_rate": 2e-3}
recipe = get(f"thesis_{features}").override(small | quick)
run = lesson.trained(recipe, dataset)
tokenizer, D = run.tokenizer, recipe.dim

# %% [markdown]
# Each box and each word has a vector too, the one that goes into the mean. We take their cosines: each map shows how similar the
# boxes are to the word below it, and frames the most similar one. (We show the longer words of the caption.)

# %%
caption, owner = dataset.dev.captions[row], int(dataset.dev.owner[row])
seen = lesson.seen(dataset, "dev", owner)
longer = [word for word, _ in tokenizer.words_of(caption) if len(word) > 3][:7]
maps = word_maps(run, seen, caption, words=longer)
plots.show(maps.figure(columns=4), alt=maps.describe())

# %% [markdown]
# Nobody told the system which box a word belongs to, and it shows: most maps look alike, whatever the word names. The Transformer has
# already mixed the elements of each side, and each word carries something of the whole caption. The loss does not mind: it sees only the
# mean.
#
# ## What one global loss does not say
#
# Let $v_i$ be the vector of box $i$ and $t_j$ the vector of word $j$. If both sides end with a mean, then, up to the two lengths,
#
# $$s(v, t) \;\propto\; \Big(\sum_i v_i\Big) \cdot \Big(\sum_j t_j\Big) = \sum_i \sum_j v_i \cdot t_j .$$
#
# So this loss, the *global* one, does compare boxes with words: every box with every word, all in one sum. But it only asks that the sum
# be large for the right pair; it does not say *which* terms should be large. A caption may win because one frequent word agrees a
# little with all boxes.
#
# The thesis {cite}`yan2019relational` adds a second loss that compares parts with parts, "to guide the learning of corresponding features"
# (section 2.5.2). It calls the parts *nodes*. (Its picture nodes are the 49 cells of a grid; ours are boxes.) The
# difficulty is that a picture and a caption have different numbers of nodes, in no common order, and nobody knows which belong together.
# There are two ways out:

# %% tags=["hide-input"]
drawings.two_ways()

# %% [markdown]
# ## Node pooling
#
# Section 2.5.1 takes "the approach of pooling the nodes into a fixed number P of nodes". This is *node pooling*, and the new nodes are
# called *pools*. In what follows, $i$ and $j$ count nodes and $k$ counts pools. Pool $k$ owns a learned vector $w_k$, a question that it asks of every element.
# It gives element $x_j$ the weight $a_{kj}$ and sums:
#
# $$a_{kj} = \frac{\exp(w_k \cdot x_j)}{\sum_i \exp(w_k \cdot x_i)}, \qquad p_k = \sum_j a_{kj}\, x_j .$$
#
# Pictures and captions share the same $w_k$. So afterwards both sides have equally many parts, and pool $k$ of a picture has a partner,
# pool $k$ of a caption.
#
# ```{exercise} Node pooling
# :label: ex-06-pool
#
# `x` is (B, N, D), `mask` is (B, N) and True where an element is real, and `W` is (P, D), a row for each pool. Return both the pools,
# (B, P, D), and their weights, (B, P, N). Padding may hold any number and must get no weight.
# ```
#
# ```{hint}
# :class: dropdown
#
# `W @ x.mT` is (B, P, N), since `.mT` swaps the last two dimensions. `mask[:, None]` has shape (B, 1, N).
# ```


# %%
@exercise("06.pool")
def node_pooling(x, mask, W):  # (B, N, D), (B, N), (P, D)
    # your part
    logits = W @ x.mT  # (B, P, N)
    a = logits.masked_fill(~mask[:, None], -torch.inf).softmax(-1)  # (B, P, N)
    return a @ x, a  # (B, P, D), (B, P, N)
    # end of your part


# %% [markdown]
# ````{solution} ex-06-pool
# :class: dropdown
#
# The softmax runs over the elements (the last dimension), so each pool hands out a weight of one. Do not mask with zero: exp(0) = 1, so the
# padding would still get a share. Minus infinity gives it none.
# ````
#
# ## A hinge for each pool
#
# Now we can compare pools in the same way as we compared whole vectors. Write $p_k(v)$ for pool $k$ of picture $v$, and $p_k(t)$ for that of caption $t$. These
# two must be more similar to each other than either is to pool $k$ of a negative, by the margin. The negatives $t'$ and $v'$ are "those of
# the hardest negative determined by the global loss", the same for all pools:
#
# $$\begin{aligned}
# \ell_{\mathrm{pool}} = \sum_k \Big( & [m + s(p_k(v), p_k(t')) - s(p_k(v), p_k(t))]_+ \\
# + & [m + s(p_k(v'), p_k(t)) - s(p_k(v), p_k(t))]_+ \Big) .
# \end{aligned}$$


# %%
def hardest(S, positives):  # (B, B) each
    negatives = S.masked_fill(positives, -torch.inf)
    return negatives.argmax(1), negatives.argmax(0)  # t' of each row, v' of each column


# %% [markdown]
# ```{exercise} A hinge for each pool
# :label: ex-06-hinge
#
# Row b of `p` and row b of `q`, (B, P, D) each, are the pools of a picture and of its caption. `caption` and `picture`, (B,) each, are
# what `hardest` returns: the rows of each pair's negatives. Return the loss, summed over the pools and over the batch. $s$ is the cosine.
# ```
#
# ```{hint}
# :class: dropdown
#
# `q[caption]` holds, row by row, the pools of the hardest captions. `normalize(p, dim=-1)` scales vectors to length one.
# ```


# %%
@exercise("06.hinge")
def pool_loss(p, q, caption, picture, margin=0.2):  # (B, P, D), (B, P, D), (B,), (B,) -> ()
    # your part
    p, q = normalize(p, dim=-1), normalize(q, dim=-1)  # (B, P, D)
    own = (p * q).sum(-1)  # (B, P)
    to_caption = margin + (p * q[caption]).sum(-1) - own  # (B, P)
    to_picture = margin + (p[picture] * q).sum(-1) - own  # (B, P)
    return to_caption.clamp(min=0).sum() + to_picture.clamp(min=0).sum()
    # end of your part


# %% [markdown]
# ````{solution} ex-06-hinge
# :class: dropdown
#
# It is the same hinge as for single vectors, with an extra axis for the pools. A common mistake is to choose a hardest negative for each
# pool: then the pools compare a picture with different captions. Here all pools learn to tell the picture from the one caption that it is
# currently confused with.
# ````
#
# The package has both pieces, and they agree with yours:

# %%
x, y, W = torch.randn(9, 7, 6), torch.randn(9, 5, 6), torch.randn(4, 6)
x_mask, y_mask = (torch.arange(n) < torch.randint(1, n + 1, (9, 1)) for n in (7, 5))
pool, S, own_pairs = NodePooling(6, 4), torch.rand(9, 9), torch.eye(9) > 0
pool.weight.data = W
p, q = (node_pooling(*side, W)[0] for side in ((x, x_mask), (y, y_mask)))
torch.testing.assert_close(p, pool(x, x_mask))
torch.testing.assert_close(pool_loss(p, q, *hardest(S, own_pairs)), node_pooling_loss(p, q, S))
print("vsecore.losses.NodePooling and node_pooling_loss agree with what you wrote")

# %% [markdown]
# The thesis adds this loss to the global one, which is the loss of VSE++ with the hardest negative:
#
# $$\ell = 0.2\,\ell_{\mathrm{global}} + 0.8\,\ell_{\mathrm{pool}} .$$


# %%
def global_only(S, positives, v, t, W):
    return triplet(S, positives=positives)


def with_pools(S, positives, v, t, W):
    p, q = (node_pooling(side.elements, side.mask, W)[0] for side in (v, t))  # (B, P, D)
    second = pool_loss(p, q, *hardest(S, positives))
    return 0.2 * global_only(S, positives, v, t, W) + 0.8 * second


# %% [markdown]
# All runs below start from the model of the first section and go on for a few more steps, each with a loss of its own.

# %%
read = TokenizedCaptions.encode(tokenizer, dataset.train.captions)


def batches(steps):
    """Batches of the epochs after the first."""
    size = min(128, len(dataset.train))
    epochs = (
        make_loader(dataset.train, read, size, seed=seed, epoch=epoch)
        for epoch in itertools.count(1)
    )
    for batch in itertools.islice(itertools.chain.from_iterable(epochs), steps):
        yield batch.to("cpu")  # features lie in half precision; this makes them float32


# %%
def trained_on(loss, begin, steps):
    model = copy.deepcopy(run.model).train()
    W = nn.Parameter(begin.clone())  # (P, D)
    weights = [*model.parameters(), W]
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    for batch in batches(steps):
        v, t = model(batch)  # vectors, elements and mask of both sides
        optimizer.zero_grad()
        loss(model.scores(v, t), batch.positives, v, t, W).backward()
        nn.utils.clip_grad_norm_(weights, 2.0)
        optimizer.step()
    return model.eval(), W.detach()


# %%
torch.manual_seed(seed)
random_pools = torch.randn(8, D)  # (P, D)
pooled, W = trained_on(with_pools, random_pools, enough)

# %% [markdown]
# ## What the pools learn
#
# Here are the eight pools on the picture from above and on its caption. The stronger a box is coloured, the larger its weight. The two
# words with the largest weights are written below each picture. (The marks *start* and *end* frame every caption, and they are nodes too.)

# %%
few = dataset.dev.subset(min(300, len(dataset.dev)))
captions = TokenizedCaptions.encode(tokenizer, few.captions)
whole = Batches(few, captions, len(few), "pictures")[0, np.arange(len(few))].to("cpu")


@torch.no_grad()
def weights_of(model, W):  # the pools' weights on all pictures and captions of this one batch
    return [node_pooling(side.elements, side.mask, W)[1] for side in model(whole)]


on_boxes, on_words = weights_of(pooled, W)  # (Ni, P, N), (Nc, P, L)

# %% tags=["hide-input"]
said = ["(start)", *(word for word, _ in tokenizer.words_of(caption)), "(end)"]
drawings.pools(seen, on_boxes[owner], on_words[row][:, : len(said)], said, caption)

# %% [markdown]
# If a pool looks at a thing in the picture and reads its name in the caption, its two sides agree. Few of the eight do so here. Some
# even sit on the cat, which the caption never names. They may: no loss tells a picture's pool which box to choose, and after the
# Transformer even the cat's vector carries something of the whole picture.
#
# One example proves nothing. Do pool $k$ of the picture and pool $k$ of the caption mean the same thing? The scenes let us measure it,
# because we know which words name which box. Suppose that pool 5 of a caption reads *house*. How much of its weight on the picture does
# pool 5 put on the house's box, and how much does pool 3? We average over all naming words, weighted by how strongly the pool reads them.
# If the pools agree, then the pool that attends to a word should also attend, more than other pools, to the thing that the word names.
# For comparison we take random pools, which no loss has trained, on the model from above.

# %%
named = drawings.named(lesson, dataset, few, tokenizer)  # M words, with their things' boxes
whose = whole.owner_rows[named.caption]  # (M,)


def meeting(model, W):  # (P, P): one pool reads a word, another looks at the thing
    looks, reads = weights_of(model, W)  # (Ni, P, N), (Nc, P, L)
    there = (looks[whose] * named.boxes[:, None]).sum(-1)  # (M, P)
    here = reads[named.caption, :, named.word]  # (M, P)
    return 100 * here.T @ there / here.sum(0)[:, None]  # percent of the looking pool's weight


# %% tags=["nbval-ignore-output"]
met = {"random pools": meeting(run.model, random_pools), "node pooling": meeting(pooled, W)}
itself = torch.eye(8) > 0
agreed = {
    f"{who}, {when} (%)": float(table[chosen].mean())
    for when, table in met.items()
    for who, chosen in (("the pool itself", itself), ("another pool", ~itself))
}
course.numbers(agreed)
drawings.meetings(met)

# %% tags=["remove-cell"]
random_self, random_other, own, other = agreed.values()
lesson.finding("random pools agree already", random_self > random_other + 3)
lesson.finding("trained pools agree too, by less than 30 points", 3 < own - other < 30)
lesson.finding("a trained pool has not much more than half its weight on the thing", own < 60)

# %% [markdown]
# A bright column is a pool that looks at things in general, whichever word was read. A bright *diagonal* is agreement. A pool does agree with
# itself more than with another pool, but much of this comes for free: random pools agree already, because both sides ask with the same $w_k$ and the global
# loss has brought a word and its thing close in the joint space. And the agreement is far from perfect: only about half of the weight lies
# on the thing. Nothing in the loss asks pools for one thing each; they only have to tell this picture from its hardest negative.
#
# How much does training add? We repeat it from two other random starts, and measure the *lead*: the diagonal's mean minus that of the other
# cells.

# %% tags=["nbval-ignore-output"]
leads = []
for start in (1, 2):
    begin = torch.randn(8, D, generator=torch.Generator().manual_seed(start))
    ends = (run.model, begin), trained_on(with_pools, begin, enough)
    tables = [meeting(*end) for end in ends]
    leads.append([float(table[itself].mean() - table[~itself].mean()) for table in tables])
    print("start {}: lead {:.0f} before training, {:.0f} after".format(start, *leads[-1]))

# %% tags=["remove-cell"]
before, after = zip(*leads, strict=True)
lesson.finding("random pools agree from these starts too", min(before) > 3)
lesson.finding("trained ones agree by less than 30 points more", max(after) < 30)

# %% [markdown]
# From these starts too, random pools agree before any training, and after it the agreement is far from complete. Training
# can add to the lead or take from it, depending on the start, so do not judge by a single one.
#
# ## What if all pools begin equal?
#
# ```{exercise} Equal pools
# :label: ex-06-equal
#
# We train again with eight pools, but all eight $w_k$ begin as the same vector. What will they do?
#
# - `"a"`: they drift apart, since the loss is lower if they divide the work;
# - `"b"`: they stay equal, however long we train;
# - `"c"`: they turn away from each other, until their mean cosine falls below zero.
# ```

# %%
your_prediction = "b"  # your part: "a", "b" or "c"
check("06.equal", your_prediction)

# %% [markdown]
# We measure the mean cosine between two different pools of the same picture. If all pools have become one, it is 100 %.


# %%
@torch.no_grad()
def alike(model, W):  # in percent
    v, _ = model(whole)
    p = normalize(node_pooling(v.elements, v.mask, W)[0], dim=-1)  # (Ni, P, D)
    cosines = p @ p.mT  # (Ni, P, P)
    return float(100 * cosines[:, ~torch.eye(len(W), dtype=torch.bool)].mean())


# %% tags=["nbval-ignore-output"]
equal, equal_W = trained_on(with_pools, random_pools[:1].expand(8, D), brief)
how_alike = {
    "begun equal (%)": alike(equal, equal_W),
    "begun at random (%)": alike(pooled, W),
    "at random, not trained (%)": alike(run.model, random_pools),
}
course.numbers(how_alike)
begun_equal, at_random, untrained = how_alike.values()
lesson.finding("equal pools stay equal", begun_equal > 99.9)
lesson.finding("random ones stay apart, and grow alike", untrained + 5 < at_random < 90)

# %% [markdown]
# ````{solution} ex-06-equal
# :class: dropdown
#
# `"b"`. Equal pools have equal gradients, so each step moves all of them in the same way, and they can never drift apart: eight equal pools
# are one pool, counted eight times.
# ````
#
# Only chance at the start breaks the tie. Pools that begin at random stay different, but training draws them closer to each other, as the
# last two numbers show. So do not count pools; measure how different they are.
#
# ## Node cross-attention
#
# The second way needs no pools. Every box asks the words directly and gets a mixture of them, and every word asks the boxes. This is
# *node cross-attention*. With nodes scaled to length one (section 2.5.2),
#
# $$\hat{v}_i = \sum_j a_{ij}\, t_j , \qquad a_{ij} = \frac{\exp(v_i \cdot t_j)}{\sum_n \exp(v_i \cdot t_n)} .$$
#
# In code this is node pooling with other questions: they are not learned, but come from the other side.


# %%
def attend(x, y, mask):  # (B, N, D), (B, L, D), (B, L) -> (B, N, D)
    logits = (x @ y.mT).masked_fill(~mask[:, None], -torch.inf)  # (B, N, L)
    return logits.softmax(-1) @ y  # (B, N, D)


# %% [markdown]
# If the caption is right, the mixture should resemble the box: $v_i \cdot \hat{v}_i$ should be larger, by the margin, than the same product
# with the hardest negative caption. Each box has such a hinge, and so has each word, with the boxes of the hardest negative picture.
#
# ```{exercise} Node cross-attention
# :label: ex-06-attend
#
# `x`, (B, N, D), and `y`, (B, L, D), have length one, and row b of both belongs together; `mask`, (B, L), is True where `y` is real;
# `negative`, (B,), holds the row of each pair's hardest negative in `y`. Return the hinge of each element of `x`, (B, N). You may call
# `attend`.
# ```
#
# ```{hint}
# :class: dropdown
#
# `(x * found).sum(-1)` is the inner product, element by element. The negative has a mask of its own.
# ```


# %%
@exercise("06.attend")
def node_hinges(x, y, mask, negative, margin=0.2):  # -> (B, N)
    # your part
    found = (x * attend(x, y, mask)).sum(-1)  # (B, N)   in its own partner
    wrong = (x * attend(x, y[negative], mask[negative])).sum(-1)  # (B, N)   in the negative
    return (margin + wrong - found).clamp(min=0)
    # end of your part


# %% [markdown]
# ````{solution} ex-06-attend
# :class: dropdown
#
# Each element attends twice, to its partner and to the negative, and the hinge compares the two products. Take `mask[negative]` along with
# `y[negative]`, since a negative caption has another length. The mixture is not scaled to length one: the thesis takes the inner product.
# ````
#
# The loss adds both directions and leaves padding out:


# %%
def attention_loss(v, t, v_mask, t_mask, caption, picture, margin=0.2):
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)  # (B, N, D), (B, L, D)
    of_boxes = node_hinges(v, t, t_mask, caption, margin)  # (B, N)
    of_words = node_hinges(t, v, v_mask, picture, margin)  # (B, L)
    return of_boxes[v_mask].sum() + of_words[t_mask].sum()


mine = attention_loss(x, y, x_mask, y_mask, *hardest(S, own_pairs))
torch.testing.assert_close(mine, node_cross_attention_loss(x, x_mask, y, y_mask, S))
print("vsecore.losses.node_cross_attention_loss agrees")

# %% [markdown]
# The thesis adds it with a small weight, $\ell = \ell_{\mathrm{global}} + 0.15\,\ell_{\mathrm{ca}}$:


# %%
def with_attention(S, positives, v, t, W):
    sides = v.elements, t.elements, v.mask, t.mask
    second = attention_loss(*sides, *hardest(S, positives))
    return global_only(S, positives, v, t, W) + 0.15 * second


attended, _ = trained_on(with_attention, random_pools, enough)

# %% [markdown]
# ## Attention that cannot choose
#
# Before we ask which words a box learns to look at, work out how sharply it *can* look at one.
#
# ```{exercise} The largest share
# :label: ex-06-even
#
# A caption has ten words. A box has cosine $1$ with one of them and $-1$ with all others; it could not be more certain. Which share of
# its attention does that word get?
# ```

# %%
e = 2.718281828459045
your_share = e / (e + 9 / e)  # your part: a number between 0 and 1
check("06.even", your_share)

# %% [markdown]
# ````{solution} ex-06-even
# :class: dropdown
#
# $\exp(1) / (\exp(1) + 9 \exp(-1))$. Not even half: cosines lie between $-1$ and $1$, so no word can count more than $\exp(2)$ times as
# much as another, about seven times.
# ````
#
# Now we look at the trained model. For each box and each caption of its picture we take the largest share, and compare it with an even share and with
# the most it could be. We also ask how similar $\hat v_i$ is to the plain mean of the words.


# %%
with torch.no_grad():
    v, t = attended(whole)
v_unit, t_unit = (normalize(side.elements, dim=-1) for side in (v, t))
of = whole.owner_rows  # (Nc,)   the picture of each caption
logits = (v_unit[of] @ t_unit.mT).masked_fill(~t.mask[:, None], -torch.inf)  # (Nc, N, L)
largest = logits.softmax(-1).amax(-1)  # (Nc, N)
mixture = attend(v_unit[of], t_unit, t.mask)  # (Nc, N, D)
plain_mean = (t_unit * t.mask[..., None]).sum(1, keepdim=True)  # (Nc, 1, D)   times a number
likeness = torch.cosine_similarity(mixture, plain_mean, dim=-1)  # (Nc, N)

# %% tags=["nbval-ignore-output"]
real, length = v.mask[of], t.mask.sum(1)  # (Nc, N), (Nc,)
sizes = [one for one in range(4, int(length.max()) + 1) if (length == one).sum() > 5]
in_model = [float(100 * largest[length == n][real[length == n]].mean()) for n in sizes]
course.numbers({"cosine of the mixture and the plain mean (%)": 100 * likeness[real].mean()})
drawings.shares(sizes, in_model)

# %% tags=["remove-cell"]
lesson.finding("the mixture is nearly the mean", bool(likeness[real].mean() > 0.98))
even = [100 < size * top < 160 for size, top in zip(sizes, in_model, strict=True)]
lesson.finding("attention stays nearly even", all(even))

# %% [markdown]
# The model does not even use the little room it has. Its attention is nearly even, so $\hat v_i$ is almost exactly the mean of all
# words, whichever box asks. Then $v_i \cdot \hat v_i$ compares each box with the *mean* of the caption, and the global loss already does so for all boxes together.
# That may be why the second loss has little to teach. SCAN, from which the thesis takes its attention, normalises the cosines and multiplies
# them by 4 in this direction and by 9 in the other; with 9, the attention could choose (upper line). SCAN is the subject of
# [the next notebook](07_cross_attention.ipynb).
#
# ## Does it help retrieval?
#
# **Question.** Does either loss improve the ranking, once training is finished? **What we did.** We trained the thesis's system on boxes, with
# our usual width of 128 and fifteen epochs, with the global loss alone and with each of the two losses: five seeds each, and for each
# loss a learning rate chosen on the development split.

# %% tags=["results", "nbval-ignore-output"]
arms = {"basic": "global loss alone", "pooling": "node pooling", "CA": "node cross-attention"}
recorded = experiments.studied("relational_losses", "scenes")
study = {title: recorded[arm] for arm, title in arms.items()}
dots.show(study)

# %% tags=["remove-cell", "results", "nbval-ignore-output"]
pooling, attention = (dots.gaps(recorded[arm], recorded["basic"]) for arm in ("pooling", "CA"))
lesson.outcome("node pooling costs 16, over ten in each seed", max(pooling) < -10)
lesson.outcome("node cross-attention costs 4, and some in each seed", max(attention) < 0)
lesson.outcome(
    "so on average", [round(np.mean(one)) for one in (pooling, attention)] == [-16, -4]
)
within = abs(np.mean(attention)) < 0.01 * recorded["basic"].rsum < abs(np.mean(pooling))
lesson.outcome("the 4 are less than the margin, the 16 are more", within)
ways = ("i2t_map_at_r", "t2i_map_at_r")
lost = [dots.gaps(recorded["CA"], recorded["basic"], way) for way in ways]
lesson.outcome("1.1 and 1.6 of mAP@R", [round(np.mean(one), 1) for one in lost] == [-1.1, -1.6])
one_percent = [0.01 * dots.mean(recorded["basic"], way) for way in ways]
more = [max(one) < -margin for one, margin in zip(lost, one_percent, strict=True)]
lesson.outcome("in each seed, more than 1 %", all(more))
rows = {one.system: one for one in records.published() if "coco, 1,000" in one.data}
thesis = [rows[f"Yan 2019 ({arm})"] for arm in arms]
lesson.outcome("its R@1", [one.metrics["i2t_r1"] for one in thesis] == [53.1, 56.9, 55.3])
lesson.outcome("its sums", [round(one.rsum, 1) for one in thesis] == [440.3, 443.4, 439.2])

# %% [markdown]
# **What came out.** Neither loss helps here. Node pooling costs 16 points of rsum, and node cross-attention 4.
#
# **What it means.** The ranking uses one vector of each side, and the global loss trains just that. A second loss on the parts helps only
# if what it teaches them also makes their mean better. Node cross-attention with its even attention teaches almost the same, so it changes
# the rsum little. Node pooling does teach something else, and takes most of the gradient: summed over eight pools, 0.8 against 0.2 becomes
# 32 to 1 while all hinges are open. (We tuned neither weights nor the number of pools.)
#
# **How sure we are.** Both are lower in all five seeds. Node cross-attention's 4 points are less than our margin, 1 % of rsum (4.9), but it also
# loses 1.1 points of mAP@R to text and 1.6 to pictures, more than 1 % of either in every seed. Still, a small drawn world does not stand for
# photographs, and the explanation is ours: no training here has tested it.
#
# The thesis says of its own results that "the intermediate losses did not result in higher performance", which "could be due to
# incorrectly tuned hyperparameters" (section 3.5), and that they "did result in improved caption retrieval, but no improvement in image
# retrieval" (chapter 4). Its table supports both readings: with either loss, caption R@1 rises (53.1 to 56.9 and 55.3), but
# the sum changes by only +3.1 and −1.1 (all sums are in [What papers report](../evidence/published.md)). On our scenes caption retrieval does
# not improve. The scoreboard of the course, with the new rows in bold:

# %% tags=["hide-input", "results", "nbval-ignore-output"]
course.scoreboard("06")

# %% [markdown]
# ## Break it: let the padding in
#
# ```{exercise} Let the padding in
# :label: ex-06-break
#
# A caption has two words, both with the vector $(0, 1)$, and a pool has $w = (1, 0)$. Its result points upwards, along $(0, 1)$. Now
# someone forgets the mask, and the batch adds one row of padding. Choose that row, both numbers between $-3$ and $3$, so that the
# pool points *downwards*: its second number falls below zero.
# ```
#
# ```{hint}
# :class: dropdown
#
# The padding row needs a large weight (its first number decides that) and must point down (its second).
# ```

# %%
your_row = torch.tensor([2.0, -3.0])  # your part: two numbers
check("06.break", your_row)

# %% [markdown]
# ````{solution} ex-06-break
# :class: dropdown
#
# For example $(2, -3)$. Its product with $w$ is 2, and that of each word is 0. So the padding has $\exp(2)$ parts of the weight, each word one.
# Padding of zeros would do no harm here: it makes the pool shorter, and the cosine does not see that. But after a Transformer, padding is
# not zero; and in node cross-attention, where $\hat{v}_i$ keeps its length, even zeros change the loss.
# ````
#
# ```{admonition} Where the code departs from the paper
# :class: note
#
# - **The hinge of a node.** The thesis's formula prints the positive and the negative nodes alike. We follow the sentence below it: the
#   negative ones are those of the hardest negative.
# - **What is not said.** How many pools there are, and whether both sides share their weights. The package has eight and shares them;
#   `losses.node_pooling.pools` and `losses.node_pooling.shared` change that.
# - **A first epoch of all negatives**, as in [Learning to rank](04_learning_to_rank.ipynb).
# ```
#
# ## Your own experiment: how the pools begin
#
# The thesis says neither how many pools there are nor how they begin.
#
# ```{exercise} How the pools begin
# :label: ex-06-explore
#
# Put a start of your own in place of `random_pools[:2]`, such as `0.1 * random_pools`. Write down what you expect as `expected`: will its pools be more
# or less alike after training than the eight? Run the cells, and write down what you see as `found`.
# ```

# %% tags=["nbval-ignore-output"]
starts = {"eight": random_pools, "two": random_pools[:2]}  # change one thing
ends = {name: trained_on(with_pools, begin, brief) for name, begin in starts.items()}
paths = {name: [alike(run.model, starts[name]), alike(*end)] for name, end in ends.items()}

for name, (before, after) in paths.items():
    print(f"{name}: {before:.0f} % alike before training, {after:.0f} % after")

# %%
expected = "With fewer pools each must say more, so they stay further apart."  # your part
found = "Both grow more alike, so training draws the pools together."  # your part
check("06.explore", (expected, found))

# %% [markdown]
# ````{solution} ex-06-explore
# :class: dropdown
#
# If the $w_k$ begin small, as in the package, every pool is close to the mean, so the pools are very alike from the beginning. How many
# there are matters less than how large $w_k$ is. One seed and few steps show a tendency, no more.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | pools, section 2.5.1 | `node_pooling` | `vsecore.losses.NodePooling` |
# | $\ell_{\mathrm{pool}}$, section 2.5.1 | `pool_loss`, `hardest` | `vsecore.losses.node_pooling_loss` |
# | $\ell_{\mathrm{ca}}$, section 2.5.2 | `attend`, `node_hinges`, `attention_loss` | `vsecore.losses.node_cross_attention_loss` |
#
# ## Summary
#
# - A global loss between two means compares every box with every word, in one sum; it never says which of them belong together.
# - Node pooling gives both sides the same number of parts, by learned questions; each part has a hinge against the global hardest negative.
# - A pool of the picture agrees with the same pool of the caption more than with another, but so do random pools, though often less; only
#   chance at the start makes pools differ.
# - Node cross-attention, whose softmax has no factor, is nearly a mean. Neither loss helps here: node pooling costs 16 points of rsum, node
#   cross-attention 4, less than our margin, but also over one point of mAP@R.
#
# ## Where to read on
#
# - [Cross-attention](07_cross_attention.ipynb) uses attention between words and regions in the search itself, not only in the loss.
# - SCAN {cite}`lee2018scan`, from which the thesis takes the attention between nodes.
