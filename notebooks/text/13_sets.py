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
# # Sets: more than one vector
#
# **You will be able to** measure how ambiguous captions are, write PIE-Net and PCME, and say which vectors of a set learn under which
# similarity.
#
# **You need** the notebooks [Learning to rank](04_learning_to_rank.ipynb) and [Pooling](10_pooling.ipynb), and derivatives.
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
import numpy as np
import torch
from torch.nn import functional as F
from torch.nn.functional import normalize

import course
from vsecore import scenes
from course import plots, slot_maps
from course.checks import check, exercise
from course.drawings import sets as drawings
from course.drawings import system
from course.widgets import settings_explorer
from vsecore.losses import soft_contrastive
from vsecore.recipes import get
from vsecore.sets import PIENet
from vsecore.similarity import smooth_chamfer
from vsecore.training import encode, fit

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
AMBIGUITY = 0.8
features = lesson.regions_or_grid()
sizes = lesson.pick(smoke=(120, 40, 20), lesson=(600, 150, 20), full=(4000, 500, 1000))
pictures = lesson.pick(smoke=100, lesson=500, full=1000)
epochs = lesson.pick(smoke=1, lesson=3, full=20)
if data == "scenes":
    dataset = scenes.load(*sizes, features=features, ambiguity=AMBIGUITY)
else:
    dataset = lesson.dataset(features)

# %%
system(lit="compare")

# %% [markdown]
# ## One caption, many pictures
#
# A caption says little, so many pictures may fit it. In our world we can list them all, because `scenes.relevance` decides for every caption
# and every picture whether the caption is true. The parameter `ambiguity` controls how vague the captions are: at 0 they say much, at 1 little.

# %%
world = scenes.generate(pictures, split="test", ambiguity=AMBIGUITY)
captions = [caption for picture in world for caption in picture.captions]
true = scenes.relevance(captions, [picture.scene for picture in world])  # (Nc, Ni)


def in_places(row):  # pictures that a caption is true of, one from each place
    places = {world[i].scene.place: int(i) for i in np.flatnonzero(true[row])}
    return sorted(places.values())


rows = [row for row in range(len(captions)) if 5 <= true[row].sum() <= 12]
row = max(rows, key=lambda row: len(in_places(row)))  # the caption whose pictures differ most
fitting = in_places(row)[:5]

# %% tags=["hide-input"]
figure = plots.picture_row(
    [scenes.draw(world[i].scene, size=224) for i in fitting],
    [f"picture {i}" for i in fitting],
    heading=captions[row].text,
)
plots.show(
    figure,
    alt=f"{len(fitting)} pictures from different places. The caption above is true of each: {captions[row].text}",
)

# %% [markdown]
# If a caption has one vector, all of these pictures must gather around it, although they look different. A *set* of vectors offers another
# way: each of the caption's vectors can lie near a different picture. Here are both, for two pictures that lie far apart.

# %%
plots.show(
    drawings.compromise(degrees=120),
    alt="Two circles with the pictures A and B, 120 degrees apart. On the left the "
    "caption's only vector lies in the middle, far from both. On the right a set of two "
    "vectors has one beside each picture.",
)

# %% [markdown]
# That is the idea of an *embedding set* {cite}`song2019pvse`: several vectors for one picture or caption. This notebook and the next follow
# DivE {cite}`kim2023dive`; where we say *the paper*, we mean it. It calls the vectors of a set its *elements*; for us, elements are the parts of
# an input, such as cells or words. We ask three questions. How is a set made? How are two sets compared? And do sets find more than one vector does?
#
# Why not use cross-attention? It lets each caption look at its own part of a picture, but then every pair must be compared anew
# ([Cross-attention](07_cross_attention.ipynb)). A set is computed once for each picture and each caption, and two sets of four are compared by 16 cosines:
# some 80 times fewer operations than in SCAN, by the paper's count (section 4.4).
#
# ## How ambiguous is the truth?
#
# Image-text collections pair each caption with a single picture, so they cannot tell how many others it fits. In our world we can count.
#
# ```{exercise} How many pictures fit
# :label: ex-13-fits
#
# At `ambiguity=0.8`, sort the captions by how many of the 500 pictures each one fits. How many does the caption in the middle fit: about `"1"`,
# `"10"` or `"50"`?
# ```

# %%
your_guess = "10"  # your part: "1", "10" or "50"
check("13.fits", your_guess)

# %%
medians = {}
for ambiguity in (0.2, 0.5, AMBIGUITY):
    made = scenes.generate(pictures, split="test", ambiguity=ambiguity)
    said = [caption for picture in made for caption in picture.captions]
    fits = scenes.relevance(said, [picture.scene for picture in made])  # (Nc, Ni)
    medians[f"ambiguity {ambiguity}: pictures a caption fits"] = np.median(fits.sum(1))
    medians[f"ambiguity {ambiguity}: captions that fit a picture"] = np.median(fits.sum(0))
course.numbers(medians)

# %% [markdown]
# ````{solution} ex-13-fits
# :class: dropdown
#
# The table has the median. Few captions name everything in their picture, and the vaguer their words, the more pictures they fit. If you guessed 1,
# you thought of the picture for which the caption was written, which is also what recall at 1 counts.
# ````
#
# The converse holds too, as every second row of the table shows: one picture supports many captions. Here is a picture with captions that are
# true of it, whomever they were written for, from the one that fits the fewest pictures to the vaguest.

# %%
heard = true.sum(0)
chosen = int(np.argsort(heard)[len(heard) // 2])  # a picture in the middle
fits = {captions[i].text: int(true[i].sum()) for i in np.flatnonzero(true[:, chosen])}
ordered = sorted(fits, key=fits.get)
shown = [ordered[i] for i in np.linspace(0, len(ordered) - 1, 9).astype(int)]

# %% tags=["hide-input"]
pixels = scenes.draw(world[chosen].scene, size=224)
plots.show(
    drawings.readings(pixels, {sentence: fits[sentence] for sentence in shown}),
    alt="A picture, and beside it captions that are true of it, from one that fits few pictures to one that fits many: "
    + " ".join(shown),
)

# %% [markdown]
# ## One vector is a compromise
#
# Suppose that a caption fits two pictures with unit vectors $x_1$ and $x_2$ at an angle $\theta$. Which unit vector $y$ is near *both*, so that the
# smaller of its two cosines is as large as possible?
#
# ```{exercise} A vector between two
# :label: ex-13-compromise
#
# The two pictures of the drawing lie 120 degrees apart. What is the largest cosine that a single vector can have with both?
# ```

# %%
your_cosine = 0.5  # your part: one number
check("13.compromise", your_cosine)

# %% [markdown]
# ````{solution} ex-13-compromise
# :class: dropdown
#
# The best vector halves the angle of 120 degrees, and the cosine of 60 is 0.5. So for either picture, a wrong caption whose cosine
# with it is 0.6 ranks before this one.
# Those who answer −0.5 took the cosine of the whole angle, which is the similarity of the two pictures.
# ````
#
# At any angle, the best that one vector can do is
#
# $$\max_{\lVert y\rVert = 1}\ \min_i\ c(x_i, y) = \cos(\theta / 2).$$
#
# Does a search find the same? We draw two random directions in 100 dimensions and learn a vector by gradient ascent.

# %% tags=["nbval-ignore-output"]
x = normalize(torch.randn(2, 100), dim=1)  # (2, D)
y = torch.randn(100, requires_grad=True)
optimizer = torch.optim.Adam([y], 0.02)
for _ in range(600):
    optimizer.zero_grad()
    (-(x @ normalize(y, dim=0)).min()).backward()
    optimizer.step()
theta = torch.arccos(x[0] @ x[1])
found, best = (x @ normalize(y, dim=0)).min().item(), (theta / 2).cos().item()
print(f"found {found:.3f}, cos(θ/2) {best:.3f}")
lesson.finding("the search finds the closed form", abs(found - best) < 0.01)

# %% [markdown]
# It does. With $n$ pictures at right angles to each other the best cosine is $1/\sqrt n$, so every further picture makes the compromise worse.
#
# A set of two, on the other hand, has a vector for each picture, with a cosine of 1. How much of that counts depends on how sets are compared. If
# the nearest pair decides, the similarity is 1. But if every vector looks for a partner, as in the *Chamfer similarity* below, then picture A finds 1,
# while the caption's two vectors find 1 and −0.5, on average 0.25. The mean of both sides is 0.625: more than the 0.5 of a single vector, but not by much.
#
# ## PIE-Net: heads that look, and the whole picture
#
# *PIE-Net* {cite}`song2019pvse` makes $K$ vectors from $N$ elements. Every vector has a *head* that attends to the elements in its own way.
# What a head found is a correction, which is added to the *global feature* $\phi$, one vector for the whole picture or caption.

# %%
plots.show(
    drawings.pie_net(),
    alt="PIE-Net with two heads. Lines of different width lead from four elements to what "
    "each head found, z1 and z2. Each goes through a linear layer with a sigmoid, meets "
    "the global feature in a sum, and becomes a vector of the set after a layer norm.",
)

# %% [markdown]
# Each head gives every element a logit, and a softmax over the elements turns the logits into weights. With $W_1$ (D, H) and $W_2$ (H, K), head $k$
# weighs element $x_n$ with $a_{nk}$ and finds $z_k$:
#
# $$a_{nk} = \mathrm{softmax}_n\bigl(\tanh(x_n W_1)\, W_2\bigr)_k, \qquad z_k = \sum_n a_{nk}\, x_n .$$
#
# ```{exercise} Heads of attention
# :label: ex-13-heads
#
# Return what the heads find, all $z_k$, (B, K, D). `x` is (B, N, D), `mask` (B, N) says which elements are real, `W1` is (D, H), `W2` is (H, K).
# Padding may hold any values.
# ```
#
# ```{hint}
# :class: dropdown
#
# Clear the padding first, then hide its logits from the softmax. Which dimension of (B, N, K) holds the elements?
# ```


# %%
@exercise("13.heads")
def heads(x, mask, W1, W2):  # (B, N, D), (B, N) -> (B, K, D)
    # your part
    x = x.masked_fill(~mask[:, :, None], 0)
    logits = (x @ W1).tanh() @ W2  # (B, N, K)
    weights = logits.masked_fill(~mask[:, :, None], -torch.inf).softmax(1)
    return weights.mT @ x  # (B, K, D)
    # end of your part


# %% [markdown]
# ````{solution} ex-13-heads
# :class: dropdown
#
# The logits are (B, N, K), so the softmax over the elements goes over dimension 1. With `softmax(2)` the heads would share out each element among
# themselves, which is what the *next* notebook does. The padding is cleared before anything else, because zero times NaN is NaN; its logits become
# minus infinity, because exp(0) is 1 and not 0. Nothing in these lines keeps two heads from looking at the same elements.
# ````
#
# Then the correction goes through $\sigma$, the sigmoid, and is added, and a *layer norm* (LN) brings the sum to a common scale:
#
# $$s_k = \mathrm{LN}\bigl(\phi + \sigma(W z_k + b)\bigr).$$


# %%
def add_global(found, global_, W, b):  # (B, K, D), (B, D) -> (B, K, D)
    residual = (found @ W.T + b).sigmoid()
    return F.layer_norm(global_[:, None] + residual, found.shape[-1:])


net = PIENet(16, slots=4)
x, global_ = torch.randn(3, 9, 16), torch.randn(3, 16)  # (B, N, D), (B, D)
mask = torch.arange(9) < torch.tensor([[9], [6], [1]])  # (B, N)
W1, W2 = net.attend[0].weight.T, net.attend[2].weight.T
sets = add_global(heads(x, mask, W1, W2), global_, net.project.weight, net.project.bias)
torch.testing.assert_close(sets, net(x, global_, mask))
print("vsecore.sets.PIENet gives the same sets,", tuple(sets.shape))

# %% [markdown]
# The third set has only one real element, so all its heads find the same and its four vectors are equal. An unambiguous input should have
# such a tight set. But few elements do not mean little ambiguity: one word fits many pictures, and yet its set is a point.
#
# ## Two ways to compare sets
#
# PIE-Net is half of a system called PVSE. Its other half is *multiple instance learning* (MIL): a picture and a caption match if *any* vector of
# one is near any vector of the other. PCME {cite}`chun2021pcme` goes to the other extreme. Every pair of vectors has a *match probability*, and all
# pairs count alike. With $c$ the cosine, $\sigma$ the sigmoid, a learned scale $\alpha$ and shift $\beta$, and sets of $K$ and $L$ vectors, the two
# are, in DivE's form (section 3.3, where the second is printed as a sum):
#
# $$s_{\mathrm{MIL}}(S_1, S_2) = \max_{x \in S_1,\, y \in S_2} c(x, y), \qquad
# s_{\mathrm{MP}}(S_1, S_2) = \frac{1}{KL}\sum_{x \in S_1,\, y \in S_2} \sigma\bigl(\alpha\, c(x, y) + \beta\bigr).$$


# %%
def cosines(v, t):  # (B, K, D), (C, L, D) -> (B, C, K, L)
    return torch.einsum("bkd,cld->bckl", normalize(v, dim=-1), normalize(t, dim=-1))


def mil(v, t):  # -> (B, C)
    return cosines(v, t).amax((2, 3))  # one maximum over both sets


def match_probability(v, t, scale, shift):  # -> (B, C); scale and shift are learned
    return (scale * cosines(v, t) + shift).sigmoid().mean((2, 3))


# %% [markdown]
# ```{exercise} Who learns?
# :label: ex-13-sparse
#
# A picture and its caption have sets of four, and no two cosines are equal. To how many of the 16 cosines, and to how many of the 8 vectors,
# does $s_{\mathrm{MIL}}$ send a gradient?
# ```

# %%
your_counts = (1, 2)  # your part: of 16 cosines, of 8 vectors
check("13.sparse", your_counts)

# %% [markdown]
# ````{solution} ex-13-sparse
# :class: dropdown
#
# A maximum passes its gradient to its largest argument alone. That is one cosine, and it is made of two vectors. The other six vectors are not
# moved by this pair. (If every vector looked for its own best partner, four to seven cosines and all eight vectors would get a gradient.)
# ````
#
# The paper calls this *sparse supervision*: "the majority of elements are not sampled as the closest pair and thus remain untrained". Here are the
# gradients of three similarities with respect to the 16 cosines of one picture and one caption, as shares of their sum. The third is the
# *smooth-Chamfer* similarity, the paper's own, which the next notebook builds: each vector has a soft maximum over its partners.

# %%
scores = {
    "MIL": lambda c: c.max(),
    "match probability": lambda c: c.sigmoid().mean(),  # scale 1, where training begins
    "Chamfer": lambda c: (c.amax(1).mean() + c.amax(0).mean()) / 2,
    "smooth-Chamfer": lambda c: (
        ((16 * c).logsumexp(1).mean() + (16 * c).logsumexp(0).mean()) / 32
    ),
}
rows = [[0.9, 0.2, 0.1, 0], [0.3, 0.7, 0.2, 0.1], [0.1, 0.2, 0.6, 0.5], [0, 0.1, 0.4, 0.5]]
c, shares = torch.tensor(rows), {}
for name in ("MIL", "match probability", "smooth-Chamfer"):
    at = c.clone().requires_grad_()  # (K, L)
    (gradient,) = torch.autograd.grad(scores[name](at), at)  # (K, L)
    shares[name] = gradient / gradient.sum()

# %% tags=["hide-input"]
plots.show(
    slot_maps.pair_tables(c, shares),
    alt="Four tables of four by four numbers: the cosines of two sets, and their gradients. Under MIL a single cell has all of it, under match "
    "probability with scale 1 all cells have nearly the same, under smooth-Chamfer each row and column has most at its nearest.",
)

# %% [markdown]
# Look closely at the match probability: the *nearest* pairs get the *least* gradient (5.3 % at a cosine of 0.9, 6.5 % at 0), because the sigmoid
# is steepest at 0.
#
# ## Two sets on a circle
#
# What do such gradients do to the vectors? The paper's figure 3 sketches it; we let it happen. A picture and a caption that belong together have four
# vectors each, on a circle. We move all eight angles so that the similarity of the two sets grows. The first step is equally long under each similarity.
#
# ```{exercise} Two sets on a circle
# :label: ex-13-film
#
# Under one of the similarities, all eight vectors end in a single point. Under which: `"MIL"`, `"match probability"`, `"Chamfer"` or `"smooth-Chamfer"`?
# ```

# %%
your_guess = "match probability"  # your part: one of the four
check("13.film", your_guess)

# %%
START = torch.deg2rad(torch.tensor([[20.0, 60, 115, 160], [-15, 38, 85, 190]]))  # (2, K)


def film(score, steps=400):  # -> angles (S, 2, K) and shares of the gradient (S, K, K)
    angles, frames, speed = START.clone(), [], None
    for _ in range(steps + 1):
        angles.requires_grad_()
        x, y = torch.stack([angles.cos(), angles.sin()], -1)  # (K, 2) each
        c = x @ y.T  # (K, K)   cosines
        of_c, of_angles = torch.autograd.grad(score(c), (c, angles))
        frames.append((angles.detach(), of_c / of_c.sum()))
        speed = speed or of_angles.abs().max()
        angles = (angles + 0.05 * of_angles / speed).detach()
    return [torch.stack(part).numpy() for part in zip(*frames, strict=True)]


# %%
films = {name: film(score) for name, score in scores.items()}
plots.show(
    drawings.strip(films, steps=(0, 10, 40, 400)),
    alt="Four rows of circles, one row for each similarity, with the two sets before, "
    "during and after the movement. Under MIL two vectors meet and six stay. Under match "
    "probability all eight run into one point. Under Chamfer and smooth-Chamfer three "
    "separate groups form.",
)

# %% [markdown]
# A line joins a pair that gets gradient, and its width is the share; hollow marks show where a vector began. Choose a similarity and a step:

# %%
moments = ["0", "5", "10", "20", "40", "400"]


def page(name, step):
    figure = drawings.strip({name: films[name]}, [int(step)])
    moved = (abs(films[name][0][int(step)] - START.numpy()) > 0.02).sum()
    return drawings.picture_of(figure), f"{name}, step {step}: {moved} of 8 vectors have moved."


settings_explorer({"similarity": list(films), "step": moments}, page)

# %% [markdown]
# ````{solution} ex-13-film
# :class: dropdown
#
# It is the match probability. At scale 1 the sigmoid is nearly straight, so its gradient pulls a vector $x$ towards the sum of all $y$. That sum is the
# same for *every* $x$, so all of them have the same best place. The paper calls this *set collapsing*. Under MIL six vectors never move. Under Chamfer
# and smooth-Chamfer every vector finds a partner, and several groups remain.
# ````
#
# The *circular variance* says how spread out a set is: one minus the length of the mean of its unit vectors. It is 0 if all point the
# same way, and 1 if they cancel out.


# %%
def circular_variance(sets):  # (B, K, D) -> (B,)
    return 1 - normalize(sets, dim=-1).mean(1).norm(dim=-1)


def width(angles):  # (2, K) -> the mean variance of the two sets, in percent
    x = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], -1))
    return 100 * circular_variance(x).mean().item()


widths = {f"{name}, at the end (%)": width(angles[-1]) for name, (angles, _) in films.items()}
course.numbers({"at the beginning (%)": width(START.numpy())} | widths)

# %% [markdown]
# Scale and shift of the match probability are learned, so training can leave the part of the sigmoid that is nearly straight. Does that save the set?
#
# ```{exercise} A steeper sigmoid
# :label: ex-13-explore
#
# Run the film of the match probability with a scale of 8 or 32, first with a shift of 0, then with one that puts the steep part of the sigmoid near a
# cosine of one (a shift of −0.75 times the scale). Write down what you expect before you run it. The set begins with a width of 51 %.
# ```

# %%
your_settings = [(1.0, 0.0), (8.0, 0.0), (8.0, -6.0), (32.0, -24.0)]  # (scale, shift)
ends = {}
for scale, shift in your_settings:
    angles, _ = film(lambda c, a=scale, b=shift: (a * c + b).sigmoid().mean())
    ends[f"scale {scale:.0f}, shift {shift:.0f}: width (%)"] = width(angles[-1])
course.numbers(ends)

# %%
your_expectation = "A steeper sigmoid lets near pairs decide: it stays open."  # your part
your_finding = "With shift 0 the set still closes; with −6 it stays open."  # your part
check("13.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-13-explore
# :class: dropdown
#
# With a shift of 0, steepness alone hardly helps: the sigmoid is steepest at a cosine of 0, so that pairs at right angles are pulled together and near
# ones left alone. Only when the shift moves the steep part to near pairs does each vector follow its own neighbours, as under smooth-Chamfer.
# ````
#
# ## Do sets find more?
#
# On the circle there are no negatives and no encoders. So we train four systems on the ambiguous captions: PIE-Net with four vectors under
# each of three similarities, and PIE-Net with a single vector, for which all three rank by the cosine. Everything else is the same. (PVSE's two regularisers are off,
# because one of them pushes the vectors of a set apart.)

# %%
changes = {"dim": 128, "text.encoder.word_dim": 64}
changes |= {"training.epochs": epochs, "training.batch_size": 128}
changes |= {"training.learning_rate": 2e-3, "training.warmup_steps": 0}
changes |= {"losses.triplet.warmup_epochs": epochs}  # all negatives
changes |= {"losses.mmd.weight": 0.0, "losses.gram_diversity.weight": 0.0}

# %%
arms = {"one vector": ("mil", 1), "MIL": ("mil", 4)}
arms |= {"match probability": ("match_probability", 4), "smooth-Chamfer": ("smooth_chamfer", 4)}
rsum, spread = {}, {}
for name, (similarity, slots) in arms.items():
    own = {"similarity": similarity, "image.pool.slots": slots, "text.pool.slots": slots}
    run = fit(get(f"pvse_{features}").override(changes | own), dataset, seed=seed)
    rsum[f"{name}: rsum"] = run.best["rsum"]
    if slots > 1:
        caption_sets = encode(run.model, dataset.dev, run.tokenizer)[1].vectors  # (Nc, K, D)
        variance = circular_variance(caption_sets).clamp(min=1e-7)  # (Nc,)
        spread[f"{name}: log variance of captions"] = variance.log().mean().item()

# %% tags=["nbval-ignore-output"]
course.numbers(rsum | spread)
single, *several = rsum.values()
lesson.finding("no set is far above the single vector", max(several) < single + 60)
of_mil, of_mp, of_smooth = spread.values()
lesson.finding("all sets are nearly points", max(spread.values()) < np.log(0.01))
lesson.finding("match probability has the narrowest sets", of_mp < min(of_mil, of_smooth) - 0.4)

# %% [markdown]
# The rsum is over 150 development pictures, after three epochs with one seed. The log variance is the logarithm of a set's circular
# variance, averaged over the captions: −6.6 stands for about 0.14 %, −7.7 for 0.05 %. So the sets of all three are nearly points (those
# of match probability the narrowest), whereas smooth-Chamfer kept 46.5 % on the circle. The paper found PIE-Net's sets narrow, too,
# even with
# smooth-Chamfer: a log variance of −7.35, against
# −2.13 with the paper's own module (table 3). It attributes this to PIE-Net, which does nothing to keep the heads apart. So on the circle, where every
# vector is free, the similarity decides; here the module may matter, too.
#
# The main result of this table is that no set beats the single vector (with one seed), although half of these captions fit ten or more of 500
# pictures.
#
# Three epochs are short. [The next notebook](14_slots.ipynb) replaces both halves of PVSE, and shows recorded runs of twenty epochs, among
# them DivE with four vectors and with one.
#
# ## Break it: heads that begin alike
#
# Give all heads the same first weights, and train.
#
# ```{exercise} Break it
# :label: ex-13-break
#
# All four heads begin with the same weights, and we maximise smooth-Chamfer for 100 steps. How many *different* vectors does a set then have?
# ```

# %%
your_number = 1  # your part: from 1 to 4
check("13.break", your_number)


# %%
def after_training(alike):  # -> mean circular variance of a set, in percent
    torch.manual_seed(seed)
    net, x = PIENet(16), torch.randn(32, 9, 16)
    whole, goals = torch.randn(32, 16), torch.randn(32, 4, 16)  # sets that should match
    if alike:
        net.attend[2].weight.data[:] = net.attend[2].weight.data[0].clone()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(100):
        optimizer.zero_grad()
        (-smooth_chamfer(net(x, whole), goals).diagonal().mean()).backward()
        optimizer.step()
    return 100 * circular_variance(net(x, whole)).mean().item()


# %% tags=["nbval-ignore-output"]
same, apart = after_training(alike=True), after_training(alike=False)
course.numbers({"heads begin alike (%)": same, "heads begin apart (%)": apart})
lesson.finding("heads that begin alike stay alike", same < 0.01)
lesson.finding("heads that begin apart do not", apart > 0.02)

# %% [markdown]
# ````{solution} ex-13-break
# :class: dropdown
#
# One. Only their random first weights tell the heads of PIE-Net apart. Equal heads find equal things, so each has the same share in the soft maxima
# of smooth-Chamfer. Equal weights with equal gradients stay equal, in this step and in all that follow: the circular variance is 0, whereas heads that
# begin apart reach 0.2 %.
#
# Under MIL, as in PVSE, equal heads stand on a knife's edge. Its maximum divides the gradient equally among four equal candidates. But if their
# weights differ even in the last digit, one of them gets all of it, and the heads part.
# ````
#
# ## PCME: a cloud in place of a set
#
# PCME's own answer to ambiguity is a *Gaussian* for each picture and caption: a mean $\mu$, and a variance $\sigma^2$ for each dimension (here $\sigma$ is the deviation). Its set consists of $J$
# points drawn from the Gaussian. But how can a gradient pass through a random draw? By the *reparametrisation trick*: only the noise is
# random, and the point is a differentiable function of mean and deviation. All entries of the noise $\varepsilon_j$ are standard normal:
#
# $$z_j = \mu + \sigma\, \varepsilon_j .$$
#
# ```{exercise} Points of a Gaussian
# :label: ex-13-sample
#
# `mean` and `log_variance`, the logarithm of $\sigma^2$, are (B, D), and `noise` holds the $\varepsilon_j$, (B, J, D). Return the points, (B, J, D).
# ```


# %%
@exercise("13.sample")
def sample(mean, log_variance, noise):  # (B, D), (B, D), (B, J, D) -> (B, J, D)
    # your part
    deviation = (log_variance / 2).exp()  # (B, D)
    return mean[:, None] + deviation[:, None] * noise
    # end of your part


# %% [markdown]
# ````{solution} ex-13-sample
# :class: dropdown
#
# A network gives the logarithm of the variance, because that may be any number. The deviation is the root of the variance, so the logarithm is halved
# before `exp`. Without the halving, the clouds have the wrong width and everything still seems to work, which makes it a mistake that is hard to find.
# ````
#
# Two points at the distance $d$ match with the probability $1 / (1 + \exp(a\,d - b))$, a sigmoid, and a picture matches a caption with the mean probability $p$ over
# their $J^2$ pairs of points. The *soft contrastive loss* is the sum, over all pictures and captions of a batch, of
#
# $$-\log p \ \text{ if they belong together}, \qquad -\log (1 - p) \ \text{ if not}.$$
#
# ```{exercise} The soft contrastive loss
# :label: ex-13-soft
#
# `v` are points of pictures, (B, J, D), `t` of captions, (C, L, D), and `positives`, (B, C), says which belong together. `scale` is $a$, `shift` is $b$.
# Return the loss, one number.
# ```
#
# ```{hint}
# :class: dropdown
#
# `v[:, None, :, None] - t[None, :, None]` has all differences, (B, C, J, L, D).
# ```


# %%
@exercise("13.soft")
def soft_loss(v, t, scale, shift, positives):  # -> ()
    # your part
    distance = (v[:, None, :, None] - t[None, :, None]).norm(dim=-1)  # (B, C, J, L)
    p = (shift - scale * distance).sigmoid().mean((2, 3))  # (B, C)
    return -torch.where(positives, p, 1 - p).log().sum()
    # end of your part


# %% [markdown]
# ````{solution} ex-13-soft
# :class: dropdown
#
# The mean over the points comes *before* the logarithm. That is what allows a cloud to be wide: if half of a caption's points lie at a picture and half
# elsewhere, $p$ is one half and costs $\log 2$. A mean of logarithms would punish every single point that lies far away. (The package works with
# `logsigmoid` and `logsumexp`, which stay finite where $p$ rounds to 0 or 1.)
# ````
#
# What does the variance learn? Four pictures are fixed points in a plane. One caption fits picture 1, another fits pictures 3 and 4. Both start as
# the same Gaussian around zero.

# %%
points = 2 * torch.tensor([[-1.0, 1], [1, 1], [-1, -1], [1, -1]])[:, None]  # (4, 1, 2)
positives = torch.tensor([[1, 0], [0, 0], [0, 1], [0, 1]]).bool()  # (4, 2)
mean, log_variance = (torch.zeros(2, 2, requires_grad=True) for _ in range(2))
optimizer = torch.optim.Adam([mean, log_variance], 0.03)
torch.manual_seed(seed)
for _ in range(600):
    t = sample(mean, log_variance, torch.randn(2, 32, 2))  # (2, J, 2)
    loss = soft_contrastive(points, t, scale=6.0, shift=6.0, positives=positives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
deviation = (log_variance / 2).exp().detach()  # (2, 2)

# %% tags=["nbval-ignore-output"]
names = ("caption that fits picture 1", "caption that fits pictures 3 and 4")
plots.show(
    drawings.gaussians(points[:, 0].numpy(), mean.detach().numpy(), deviation.numpy(), names),
    alt="Four pictures at the corners of a square. The Gaussian of the caption that fits "
    "picture 1 is a small disc on it. That of the caption that fits pictures 3 and 4 is a "
    "long flat ellipse which covers both.",
)
one, two = deviation.amax(1).tolist()
print(f"largest standard deviation: {one:.2f} and {two:.2f}")
lesson.finding("the caption that fits two pictures has the wider cloud", two > 3 * one)

# %% [markdown]
# The ellipses show one and two standard deviations. The ambiguous caption's cloud has grown until it covers both of its pictures, and only in the
# direction in which they differ. PCME therefore interprets the variance as a measure of ambiguity. At search time the means alone can be compared.
#
# Why does this cloud stay open, when a mean over all pairs closed the sets on the circle? There, one picture and one caption could meet in a point. Here two
# pictures that stay apart must both be matched: if the cloud shrank onto one of them, $-\log p$ would be large for the other. The paper objects that match
# probability needs a specialised loss such as this one, "which makes MP incompatible with other losses" (section 3.3); our runs above gave it the *triplet loss*, VSE++'s hinges.
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | PIE-Net of Song and Soleymani | `heads`, `add_global` | `vsecore.sets.PIENet` |
# | MIL similarity, section 3.3 | `mil` | `vsecore.similarity.sets.mil` |
# | match probability, section 3.3 (printed as a sum) | `match_probability` | `vsecore.similarity.sets.match_probability` |
# | circular variance, section 4.6 | `circular_variance` | `vsecore.sets.circular_variance` |
# | sampling of Chun et al. | `sample` | `vsecore.losses.sample_gaussians` |
# | soft contrastive loss of Chun et al., eq. 1 | `soft_loss` | `vsecore.losses.soft_contrastive` |
#
# ## Summary
#
# - Captions fit many pictures and pictures many captions; the best that one vector can do for two of them is a cosine of $\cos(\theta/2)$.
# - PIE-Net adds what each head found to the global feature, and only random first weights keep its heads apart.
# - MIL moves two of eight vectors and leaves six where they were; match probability at scale 1 draws all eight into one point.
# - Do sets help? In our short training, four vectors reach an rsum of about 213 at best and one vector 217, although half of the
#   captions fit ten or more of 500 pictures. With twenty epochs, in the next notebook, DivE with a single vector ends ahead of DivE with
#   four (rsum 451.4 against 446.6).
#
# ## Where to read on
#
# - {cite}`kim2023dive` compares these similarities and builds a new one; [the evidence page](../evidence/dive.md) has its numbers and ours.
# - {cite}`chun2021pcme` shows what its variances say about photographs and captions.
