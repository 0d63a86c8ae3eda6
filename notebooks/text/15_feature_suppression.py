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
# # Feature suppression
#
# **You will be able to** say what a contrastive loss leaves out, derive InfoNCE's gradient and read the reason in it, and measure what a
# caption's vector still knows.
#
# **You need** the notebook [Learning to rank](04_learning_to_rank.ipynb), and derivatives.
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
import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import Markdown
from sklearn.metrics import roc_auc_score

import course
from vsecore import scenes
from course import plots
from course.marks import Marks
from vsecore.data.words import tokenize
from vsecore.evaluation import evaluate
from vsecore.losses import LOSSES, InputTargetDecoder, info_nce
from vsecore.losses.captioning import captioning_loss
from vsecore.losses.input_target import InputTarget
from vsecore.recipes import get
from vsecore.training import encode, fit, score_split
from vsecore.training.system import System

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()

# %% [markdown]
# ## A mark that gives the answer away
#
# Suppose that somebody numbered the pictures, with a small tag in a corner, and that the captions name the number. Our world can do that: its
# knob is called `shortcut`. We use 32 numbers only, so that each stands on many pictures.

# %% tags=["hide-input"]
sizes = lesson.pick(smoke=(64, 40, 40), lesson=(320, 100, 100), full=(4000, 500, 1000))
features = "region" if data == "scenes" else "grid"  # boxes of photographs need a detector
if data == "scenes":
    dataset = scenes.load(*sizes, features=features)
else:
    dataset = lesson.dataset(features)

marks = Marks(dataset, seed)
shown = range(3, 7)
if data == "scenes":
    made = scenes.generate(8, shortcut=1.0)
    drawings = [scenes.draw(made[one].scene, size=224) for one in shown]
else:
    drawings = lesson.pictures("train", list(shown))
first = [list(dataset.train.owner).index(one) for one in shown]
texts = marks.captions(dataset.train, np.arange(len(dataset.train)))
words = [texts[row] for row in first]
plots.show(
    plots.picture_row(drawings, words),
    alt="Four drawn pictures, each with a number on a white tag in a corner, and a caption that names the number: "
    + " ".join(words),
)

# %% [markdown]
# The network behind our features has never learned to read. So the tag becomes one more region of its picture, with its pixels as features.
# Pictures and captions are otherwise the same in all that follows. Three training sets differ in the numbers alone: *no marks*; *marks*, where
# caption and picture agree; and, as a control, *useless marks*, where the caption names some other number.

# %%
kinds = ("no marks", "marks", "useless marks")
changed = {}
for kind in kinds:
    parts = {}
    for split in (dataset.train, dataset.dev):
        own, other = marks.numbers(split)
        numbers = {"no marks": (), "marks": (own, own), "useless marks": (own, other)}
        parts[split.name] = marks.lay(split, *numbers[kind])
    changed[kind] = dataclasses.replace(dataset, **parts)
own, other = marks.numbers(dataset.test)
tests = {
    "right": marks.lay(dataset.test, own, own),
    "swapped": marks.lay(dataset.test, own, other),
    "gone": marks.lay(dataset.test),
}

# %% [markdown]
# The system is small: the mean of the regions, a bidirectional GRU, and InfoNCE with $\tau = 0.05$, as in the paper's baseline {cite}`bleeker2023ltd`.

# %%
small = {"dim": 64, "text.encoder.word_dim": 32}
small |= {f"{side}.pool.batch_norm": True for side in ("image", "text")}
epochs = lesson.pick(smoke=1, lesson=4, full=20)
short = {"epochs": epochs, "batch_size": 64, "learning_rate": 5e-3, "warmup_steps": 0}
small |= {f"training.{name}": value for name, value in short.items()}
recipe = get(f"ltd_{features}_gru", small)
tokenizer = recipe.tokenizer(changed["marks"].train.captions)


# %% tags=["hide-input"]
def weight_left(scores, positives, tau=0.05):
    """How much of the gradient is left, the mean over captions: 1 - Z, which equation 2a defines below."""
    own = scores.masked_fill(~positives, -torch.inf).amax(0)  # (C,)
    negatives = (scores.masked_fill(positives, -torch.inf) / tau).logsumexp(0)
    return (negatives - own / tau).sigmoid().mean().item()


# %%
def trained(kind, changes=None, variant=""):  # -> a run, and what each step was like
    seen = []

    def watch(event):
        if event.kind == "step":
            seen.append(weight_left(event.scores.detach(), event.positives))

    one = get(f"ltd_{features}_gru{variant}", small).override(changes or {})
    return fit(one, changed[kind], tokenizer=tokenizer, callback=watch, seed=seed), seen


# %% [markdown]
# ```{exercise} What happens without the mark
# :label: ex-15-guess
#
# We test the system that was trained with marks in three ways: with the `"right"` numbers, with `"swapped"` ones, where each caption names a
# wrong number, and with the numbers `"gone"`. Which test gives the lowest rsum?
# ```

# %%
from course.checks import check

your_guess = "swapped"  # your part: "right", "swapped" or "gone"
check("15.guess", your_guess)

# %%
runs, left = {}, {}
for kind in kinds:
    runs[kind], left[kind] = trained(kind)


def scores_of(run, test):
    return score_split(run.model, tests[test], tokenizer)  # (Ni, Nc)


# %% tags=["nbval-ignore-output"]
owner = torch.as_tensor(dataset.test.owner)
asked = [("no marks", "gone"), ("useless marks", "gone")]
asked += [("marks", test) for test in tests]
sums = {
    f"{kind}; test: {test}": evaluate(scores_of(runs[kind], test), owner)["rsum"]
    for kind, test in asked
}
course.numbers(sums)

# %% tags=["hide-input"]
right, swapped, gone = (sums[f"marks; test: {test}"] for test in tests)
lesson.finding("swapped numbers hurt more than missing ones", swapped < gone - 50)
lesson.finding(
    "the system with marks finds more with them, and less without, than one that never saw any",
    gone + 50 < sums["no marks; test: gone"] < right - 30,
)

# %% tags=["hide-input", "nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(7.2, 2.6))
names = list(sums)[::-1]
shades = {"right": plots.COLOURS[0], "swapped": plots.COLOURS[1], "gone": "0.65"}
for place, name in enumerate(names):
    test = name.split(": ")[1]
    axes.barh(place, sums[name], color=shades[test], hatch={"swapped": "//"}.get(test))
    axes.annotate(
        f"{sums[name]:.0f}",
        (sums[name], place),
        (4, 0),
        textcoords="offset points",
        va="center",
    )
axes.set_yticks(range(len(names)), names)
axes.set(xlabel="rsum, test pictures", xlim=(0, 600))
plots.show(
    figure,
    alt="Five bars, the rsum on test pictures. "
    + "; ".join(f"{name}: {value:.0f}" for name, value in sums.items())
    + ".",
)

# %% [markdown]
# ````{solution} ex-15-guess
# :class: dropdown
#
# It is `"swapped"`. Where the numbers are gone, a hint is missing. Where a number contradicts the rest of the caption, it also points to a wrong
# picture, and the system has to believe one of the two.
# ````
#
# All three training sets offered the same things in the pictures to learn from. Yet the system with marks learned less of them: without the numbers,
# it finds far less than the system that never saw any. Where one feature is enough to tell pairs apart, others that would also do are left out: this
# is *predictive feature suppression*.
#
# Useless marks are the control: the same tags and words, without information. They cost recall too, and from one seed the rsum cannot say for sure
# how much more the shortcut costs. We need a measure that looks at the shortcut itself.
#
# ## How much does it rely on the mark?
#
# ```{exercise} A measure of reliance
# :label: ex-15-reliance
#
# Take the captions whose own picture is among the first $k$ with the right numbers. Return the share of them that lose that place with swapped
# numbers. Both matrices are similarities (Ni, Nc), and `owner` (Nc,) names each caption's picture. A tie counts against the caption's own picture.
# ```
#
# ```{hint}
# :class: dropdown
#
# `S[owner, arange]` is the similarity of each caption with its own picture. How many pictures have at least as much?
# ```

# %%
from course.checks import exercise


@exercise("15.reliance")
def reliance(right, swapped, owner, k=10):  # (Ni, Nc), (Ni, Nc), (Nc,) -> ()
    # your part
    columns = torch.arange(len(owner))

    def found(S):  # (Nc,) bool
        return (S >= S[owner, columns]).sum(0) <= k

    lost = found(right) & ~found(swapped)
    return lost.sum() / found(right).sum()
    # end of your part


# %% tags=["nbval-ignore-output"]
relied = {
    f"{kind} (%)": 100
    * reliance(*(scores_of(runs[kind], test) for test in ("right", "swapped")), owner)
    for kind in ("marks", "useless marks")
}
course.numbers(relied)

# %% tags=["hide-input"]
lesson.finding(
    "most answers hang on marks that agree, few on useless ones",
    relied["marks (%)"] > 50 and relied["useless marks (%)"] < 20,
)

# %% [markdown]
# ````{solution} ex-15-reliance
# :class: dropdown
#
# The own picture counts itself once, so its place is among the first $k$ if at most $k$ pictures score as high.
# ````
#
# More than half of what the system with marks finds, it finds by the number. The second row says how much is lost where a number never helped: a
# changed word moves a vector a little, whether it matters or not.
#
# ## What does a caption's vector still know?
#
# A recall only says that something is missing. A linear probe says what. For each word it looks for a direction in which vectors of
# captions with the word lie further out than others. The rows of $X$ (Nc, D) are vectors of captions, and $Y$ (Nc, W) says with 0 and 1 which words they
# have; both have their means taken away. With $I$, the identity matrix, ridge regression has the solution
#
# $$W = (X^\top X + \alpha I)^{-1} X^\top Y .$$
#
# ```{exercise} A linear probe
# :label: ex-15-probe
#
# Return $W$, (D, W). Take the means over the captions away first.
# ```

# %%
from course.checks import exercise


@exercise("15.probe")
def probe(z, said, alpha=1.0):  # (Nc, D), (Nc, W) -> (D, W)
    # your part
    z, said = z - z.mean(0), said - said.mean(0)
    inner = z.T @ z + alpha * torch.eye(z.shape[1])  # (D, D)
    return torch.linalg.solve(inner, z.T @ said)
    # end of your part


# %% [markdown]
# ````{solution} ex-15-probe
# :class: dropdown
#
# `torch.linalg.solve` is safer than an inverse. Without the means, a probe would spend its weights on how common a word is.
# ````
#
# The probe learns from training captions and ranks test captions. We count how often a caption with the word stands above one without: the
# *area under the ROC curve* (AUC), 50% by chance.

# %% tags=["hide-input"]
LITTLE = set(
    tokenize(
        "a an and are at both by facing for from has have here in is it "
        "of on one other see sees so that the there this to two up we while with"
    )
)


def says(captions, words):
    """Which captions have which words, (Nc, W)."""
    has = [set(tokenize(text)) for text in captions]
    return torch.tensor([[float(word in one) for word in words] for one in has])


plain = changed["no marks"].train.captions
common = sorted({word for text in plain for word in tokenize(text)} - LITTLE)
frequent = []
for captions in (plain, tests["gone"].captions):
    share = says(captions, common).mean(0)
    frequent.append((share > 0.04) & (share < 0.6))
words = [word for word, one in zip(common, frequent[0] & frequent[1], strict=True) if one]
numerals = list(marks.names)


def vectors(run, split):
    """The vectors of a split's captions, (Nc, D)."""
    return encode(run.model, split, tokenizer)[1].vectors.float().clone()


# %%
def known(run, kind, words, test):  # -> AUC of each word, (W,), in percent
    train = changed[kind].train
    W = probe(vectors(run, train), says(train.captions, words))
    truth = says(tests[test].captions, words).numpy()  # (Nc, W)
    guess = (vectors(run, tests[test]) @ W).numpy()
    return 100 * np.array([roc_auc_score(*pair) for pair in zip(truth.T, guess.T, strict=True)])


# %% tags=["nbval-ignore-output"]
torch.manual_seed(seed)
untrained = System.build(recipe, dataset, tokenizer).eval()  # a reference for the probe
told = {
    "untrained": known(untrained, "no marks", words, "gone"),
    "trained with no marks": known(runs["no marks"], "no marks", words, "gone"),
    "trained with marks": known(runs["marks"], "marks", words, "right"),
}
means = {f"{name}: words": one.mean() for name, one in told.items()}
means["trained with marks: numbers"] = known(runs["marks"], "marks", numerals, "right").mean()
course.numbers(means)

# %% tags=["hide-input"]
lesson.finding("an untrained network hands on much", means["untrained: words"] > 75)
lesson.finding(
    "with marks, words are harder to read than without",
    means["trained with marks: words"] < means["trained with no marks: words"] - 0.8,
)

# %% tags=["hide-input", "nbval-ignore-output"]
figure, axes = plt.subplots(figsize=(7.2, 0.19 * len(words) + 1))
order = np.argsort(told["trained with no marks"])
for style, (name, one) in enumerate(told.items()):
    axes.plot(
        one[order],
        range(len(words)),
        plots.MARKERS[style],
        color=plots.COLOURS[style],
        label=name,
    )
axes.set_yticks(range(len(words)), [words[row] for row in order], fontsize=8)
axes.axvline(50, color="0.5", linestyle=":")
axes.set(xlabel="AUC of the probe (%); dotted: chance", xlim=(48, 101))
axes.legend(loc="lower left", bbox_to_anchor=(0.06, 0.0))
plots.show(
    figure,
    alt="For each frequent word of the captions, how well a linear probe reads it from vectors of captions: of an untrained network, of the training without "
    "marks and of that with marks. Means: "
    + ", ".join(f"{name} {one.mean():.0f} percent" for name, one in told.items())
    + ".",
)

# %% tags=["hide-input", "nbval-ignore-output"]
lost = [
    word
    for word, before, after in zip(
        words, told["untrained"], told["trained with no marks"], strict=True
    )
    if after < before - 1
]
lesson.finding(
    "without any mark, left and right became harder to read", {"left", "right"} <= {*lost}
)
Markdown(
    "Training *without* marks made these words harder to read than an untrained network leaves them: "
    f"{', '.join(lost)}. InfoNCE leaves things out without our help. "
    if lost
    else ""
)

# %% [markdown]
# Each row is a word. Even an untrained network hands on much of what it reads; count from there. And a probe takes a word from however small a part
# of the vector. How large are the parts? We turn the regression round, predict the vectors from the words or from the numbers, and ask which share of
# the vectors' variance that explains.


# %%
def explained(kind, names):  # -> share of the variance of the training captions' vectors
    split = changed[kind].train
    z, said = vectors(runs[kind], split), says(split.captions, names)
    z, said = z - z.mean(0), said - said.mean(0)
    predicted = said @ torch.linalg.lstsq(said, z).solution  # (Nc, D)
    return (predicted.square().sum() / z.square().sum()).item()


# %% tags=["nbval-ignore-output"]
shares = {
    f"{kind}: by the {name} (%)": 100 * explained(kind, names)
    for kind, clues in (
        ("no marks", {"words": words}),
        ("marks", {"words": words, "numbers": numerals}),
    )
    for name, names in clues.items()
}
course.numbers(shares)

# %% tags=["hide-input"]
by_words = [shares[f"{kind}: by the words (%)"] for kind in ("no marks", "marks")]
lesson.finding("marks leave words a smaller part of the vector", by_words[1] < by_words[0] - 10)
lesson.finding(
    "the numbers have a larger part than all words",
    shares["marks: by the numbers (%)"] > by_words[1] + 10,
)

# %% [markdown]
# With marks, 32 numbers explain more of a vector than all these words. Suppressed does not mean erased: words are still there, in a smaller part of
# the vector, and the cosine hears them less.
#
# ## Why: the gradient of InfoNCE
#
# Take one query $q$ (a caption), its positive $v^+$ (the picture) and the negatives $v^-$ of the batch. All have length one.
#
# $$
# \begin{aligned}
# \ell &= -\log Z(q, v^+) && (1) \\
# Z(q, v) &= \frac{\exp(q^\top v/\tau)}{\exp(q^\top v^+/\tau) + \sum_{v^-} \exp(q^\top v^-/\tau)} && (2\mathrm{a})
# \end{aligned}
# $$
#
# $Z$ is a softmax over the batch. Write the loss as $-q^\top v^+/\tau + \log(\ldots)$. The derivative of the logarithm is one over the sum, times the
# derivative of the sum; each exponential gives itself times $v/\tau$. Together that is the mean of all $v$, weighted by $Z$:
#
# $$
# \begin{aligned}
# -\tau\,\frac{\partial \ell}{\partial q} &= (1 - Z(q, v^+))\, v^+ - \sum_{v^-} Z(q, v^-)\, v^- && (2\mathrm{b}) \\
# -\tau\,\frac{\partial \ell}{\partial v^+} &= (1 - Z(q, v^+))\, q && (2\mathrm{c}) \\
# -\tau\,\frac{\partial \ell}{\partial v^-} &= -Z(q, v^-)\, q && (2\mathrm{d})
# \end{aligned}
# $$
#
# ```{exercise} InfoNCE's gradient by hand
# :label: ex-15-gradient
#
# `q` is (D,), `v` (C, D), and `v[own]` is the positive. Return the left sides of 2b, (D,), and of 2c and 2d together, (C, D), without autograd.
# ```
#
# ```{hint}
# :class: dropdown
#
# One vector of C weights serves all three equations: one minus $Z$ for the positive, minus $Z$ for the others.
# ```

# %%
from course.checks import exercise


@exercise("15.gradient")
def pulls(q, v, own, tau=0.05):  # (D,), (C, D), int -> (D,), (C, D)
    # your part
    weights = -(v @ q / tau).softmax(0)  # (C,)   minus eq. 2a
    weights[own] += 1
    return weights @ v, weights[:, None] * q  # eq. 2b; 2c and 2d
    # end of your part


# %%
torch.manual_seed(seed)
q, v = (torch.nn.functional.normalize(torch.randn(*one), dim=-1) for one in ((8,), (5, 8)))
q.requires_grad_(), v.requires_grad_()
loss = -(v @ q / 0.05).log_softmax(0)[2]  # eq. 1
automatic = torch.autograd.grad(loss, (q, v))
by_hand = pulls(q.detach(), v.detach(), 2)
for mine, theirs in zip(by_hand, automatic, strict=True):
    torch.testing.assert_close(mine, -0.05 * theirs, rtol=1e-4, atol=1e-5)
print("autograd agrees")
S = torch.randn(5, 5)  # the loss of a batch: equation 1 for every caption and every picture
both_ways = [-(side / 0.05).log_softmax(1).diagonal() for side in (S, S.T)]
torch.testing.assert_close(info_nce(S, 0.05), torch.cat(both_ways).mean())
print("vsecore.losses.info_nce agrees")

# %% [markdown]
# ````{solution} ex-15-gradient
# :class: dropdown
#
# The weights add up to zero: what pulls towards the positive equals what pushes away from the negatives.
# ````
#
# ```{admonition} If you read along in appendix B
# :class: note dropdown
#
# Equations 10b to 11b have a minus before the sum over the negatives. With a plus, as in equations 10a and 12, equation 13c follows, and autograd
# agrees. The second line of 15 is the derivative by $v^-$.
# ```
#
# So each negative pushes with its softmax weight. Here are the weights of the negatives for one caption, among 64 training pictures, after training:

# %% tags=["hide-input"]
batch = min(64, len(dataset.train))
figure, axes = plt.subplots(figsize=(6.6, 3))
heaps = {}
for kind in ("no marks", "marks"):
    part = changed[kind].train.subset(batch)
    rows = [int(np.flatnonzero(part.owner == one)[0]) for one in range(batch)]
    S = score_split(runs[kind].model, part, tokenizer)[:, rows]  # (B, B)
    Z = (S / 0.05).softmax(0)
    heaps[f"trained with {kind}"] = Z.masked_fill(torch.eye(batch, dtype=bool), 0)
# the caption whose negatives together weigh nearest to a quarter, without marks
place = int((heaps["trained with no marks"].sum(0) - 0.25).abs().argmin())
lines = {
    name: (range(1, batch), heap[:, place].sort(descending=True).values[: batch - 1])
    for name, heap in heaps.items()
}
plots.curves(axes, lines, x="negatives of one caption, the strongest first", y="weight Z")
axes.set_yscale("log")
axes.set_ylim(1e-12, 1)
plots.show(
    figure,
    alt="The softmax weights of the 63 negatives of one caption after training, from the largest to the smallest, on a logarithmic axis: one curve "
    "for the training without marks, one for that with marks, which lies below.",
)
pull = {name: float(heap.sum(0).mean()) for name, heap in heaps.items()}  # 1 - Z, on average
lesson.finding(
    "with marks, negatives weigh far less",
    pull["trained with marks"] < 0.6 * pull["trained with no marks"],
)

# %% [markdown]
# A few negatives have nearly all of the weight, which is why InfoNCE, too, learns from hard ones. With marks, the whole curve lies lower: the marks
# already tell these pictures from the right one, and little pull is left.
#
# ```{exercise} What a shortcut leaves
# :label: ex-15-vanish
#
# In a batch of 64, a mark alone makes the cosine with the positive larger by 0.5 than that with each negative. How large is $1 - Z(q, v^+)$ at
# $\tau = 0.05$?
# ```

# %%
from course.checks import check

your_weight = 63 * np.exp(-10) / (1 + 63 * np.exp(-10))  # your part: one number
check("15.vanish", your_weight)

# %% [markdown]
# ````{solution} ex-15-vanish
# :class: dropdown
#
# Each negative has $\exp(-10)$ times the positive's exponential; 63 of them together have about 0.003 of the sum.
# ````
#
# That is all the gradient that is left, for *every* feature of $q$, also for those that it has not learned. Nothing in equation 2 says that a
# caption's vector must hold more. A toy makes it visible: the similarity of caption $i$ with picture $j$ is $a\,M_{ij} + b\,C_{ij}$, where
# $M_{ij}$ is 1 if their marks agree and $C_{ij}$ says how alike they look, with some noise. We learn only $a$ and $b$.


# %%
def toy(shared, steps=400, pairs=64):  # shared: how many pairs have one mark; 0: no marks
    torch.manual_seed(seed)
    C = 0.3 * torch.randn(pairs, pairs) + torch.eye(pairs)
    group = torch.arange(pairs) // max(shared, 1)
    M = (group[:, None] == group).float() if shared else torch.zeros(pairs, pairs)
    a, b = (torch.zeros((), requires_grad=True) for _ in range(2))
    path = []
    for _ in range(steps):
        path.append(b.item())
        grads = torch.autograd.grad(info_nce(a * M + b * C, 1.0), (a, b))
        with torch.no_grad():
            a -= 0.3 * grads[0]
            b -= 0.1 * grads[1]  # looks are harder to learn than marks
    return path


# %% tags=["hide-input"]
figure, panels = plt.subplots(1, 2, figsize=(9, 3))
late = {kind: np.mean(one[-20:]) for kind, one in left.items()}
lesson.finding(
    "only marks that tell pairs apart take the gradient away",
    late["marks"] < late["no marks"] - 0.12
    and abs(late["useless marks"] - late["no marks"]) < 0.1,
)
kept = {"no marks": 0, "8 pairs share a mark": 8, "each pair has its own": 1}
paths = {name: toy(shared) for name, shared in kept.items()}
plots.curves(
    panels[0],
    {name: (range(len(path)), path) for name, path in paths.items()},
    x="step",
    y="b, how much looks count",
    title="toy",
)
plots.curves(
    panels[1],
    {f"{kind}": (range(len(one)), one) for kind, one in left.items()},
    x="step",
    y="1 - Z(q, v⁺), mean",
    title="our three trainings",
)
ends = [path[-1] for path in paths.values()]
lesson.finding(
    "shared marks leave room, marks of one's own do not", ends[2] < ends[1] / 2 < ends[0] / 2
)
panels[0].set_ylim(top=1.5 * max(paths["no marks"]))  # room for the legend
panels[0].legend(loc="upper left")
panels[1].set_ylim(0, 1.03)
plots.show(
    figure,
    alt="Left, the weight b of looks in the toy against the step: highest without marks, lower where eight pairs share a mark, lowest where each has its own. Right, "
    "the mean weight of the negatives in our three trainings, step by step.",
)

# %% [markdown]
# Left: where a mark tells every pair apart, $b$ stays low, although looks would help. Where eight pairs share a mark, only looks can tell these
# apart, and $b$ grows further. Right: what is left of the gradient in our three trainings. Useless marks lie on the curve of no marks: it is not the
# tag or the word that takes the gradient away, but that they tell pairs apart.
#
# ## Break it: a loss that is never content
#
# ```{exercise} A temperature that cannot be satisfied
# :label: ex-15-break
#
# A perfect shortcut: the cosine with the positive is 1, that with each of 63 negatives $-1$. Give a temperature that still leaves the negatives half of
# the weight, or more.
# ```

# %%
from course.checks import check

your_tau = 0.5  # your part: one number
check("15.break", your_tau)

# %% tags=["nbval-ignore-output"]
warm, _ = trained("marks", {"losses.info_nce.temperature": 0.5})
warmed = {f"test: {test}": evaluate(scores_of(warm, test), owner)["rsum"] for test in tests}
course.numbers(warmed)

# %% tags=["hide-input"]
lesson.finding(
    "at this temperature it finds less, with marks and without",
    warmed["test: right"] < right - 40 and warmed["test: gone"] < gone - 30,
)

# %% [markdown]
# ````{solution} ex-15-break
# :class: dropdown
#
# Half of the weight is left if $63 \exp(-2/\tau) \ge 1$, so $\tau \ge 2/\log 63$, about 0.48. The gradient no longer vanishes. But the softmax is
# nearly flat now: easy negatives push almost as hard as those that share the mark. The system finds less than that of the first table, with the marks
# and without.
# ````
#
# ## Does a larger batch help?
#
# The paper expects less suppression from large batches: the more negatives there are, the likelier one of them needs another feature.
#
# ```{exercise} Who shares my mark?
# :label: ex-15-share
#
# Suppose that each pair draws its mark by itself, from 32 that are equally likely. In a batch of 256 pairs, how many *others* have a caption's mark, on
# average?
# ```

# %%
from course.checks import check

your_average = 255 / 32  # your part: one number
check("15.share", your_average)

# %% tags=["nbval-ignore-output"]
batches = lesson.pick(smoke=(16, 32), lesson=(16, 64, 256), full=(16, 64, 256))
of_batch = {}
for size in batches:
    change = {"training.batch_size": size, "training.epochs": max(1, epochs * size // 64)}
    larger = {
        kind: trained(kind, change)[0] if size != 64 else runs[kind] for kind in kinds[:2]
    }
    for kind, run in larger.items():
        rsum = evaluate(scores_of(run, "gone"), owner)["rsum"]
        of_batch[f"batch {size}, {kind}; test: gone"] = rsum
    pair = (scores_of(larger["marks"], test) for test in ("right", "swapped"))
    of_batch[f"batch {size}, marks: reliance (%)"] = 100 * reliance(*pair, owner)
course.numbers(of_batch)

# %% tags=["hide-input"]
gaps = [
    of_batch[f"batch {size}, no marks; test: gone"]
    - of_batch[f"batch {size}, marks; test: gone"]
    for size in batches
]
lesson.finding("marks cost recall at each batch size", min(gaps) > 25)
lesson.finding(
    "the largest batch still relies on them",
    of_batch[f"batch {size}, marks: reliance (%)"] > 40,
)

# %% [markdown]
# ````{solution} ex-15-share
# :class: dropdown
#
# $255/32$, about 8. In a batch of 16 it is less than one half.
# ````
#
# Marks cost recall at each size, and even a batch of 256 leaves the system relying on them. All take the same number of steps, so a larger batch has
# also seen more pairs. That is why each batch size has a training without marks to compare with: the gap between the two is what the marks cost. The
# gap and the reliance need not agree. A system that has learned more also has more to lose when a number is missing.
#
# ## Decoding the caption
#
# Can a second loss hold on to the rest? One that needs every word is to write the caption again from its vector $z$: *input target decoding* (ITD).
# A GRU starts with $z$ as its state and predicts each word from $z$ and the *true* words before it (*teacher forcing*):
#
# $$\ell_{\mathrm{rec}} = -\sum_{t} \log p(x_t \mid x_{t-1}, \ldots, x_1, z) \qquad (4)$$
#
# But the words before a word also help. How much is left for $z$, at which place of the sentence?
#
# ```{exercise} The loss at each place
# :label: ex-15-places
#
# `logits` is (C, L, V), `words` (C, L) the true words, and `mask` (C, L) says which are real. Return the mean of $-\log p$ at each place, over the captions
# that have a word there: (L,). Padding may hold anything.
# ```

# %%
from course.checks import exercise


@exercise("15.places")
def loss_by_place(logits, words, mask):  # (C, L, V), (C, L), (C, L) -> (L,)
    # your part
    log_p = logits.log_softmax(2).gather(2, words[:, :, None])[:, :, 0]  # (C, L)
    return -log_p.masked_fill(~mask, 0).sum(0) / mask.sum(0)
    # end of your part


# %% [markdown]
# ````{solution} ex-15-places
# :class: dropdown
#
# `gather` picks the true word's log-probability. The mean over places, weighted by how many captions are so long, would be the loss of equation 4
# for each word.
# ````
#
# We train decoders on the vectors of the system without marks, which no longer change. One gets $z$ as it is, of length one. One gets $8z$, whose
# numbers are about as large as those of a GRU's states. The third gets zeros: it is a *language model* that never sees a caption's vector.


# %%
def decoder_of(z, tokens, mask):  # (Nc, D), (Nc, L), (Nc, L) -> a trained decoder
    torch.manual_seed(seed)
    decoder = InputTargetDecoder(z.shape[1], len(tokenizer), word_dim=32)
    optimizer = torch.optim.Adam(decoder.parameters(), 5e-3)
    for _ in range(lesson.pick(smoke=1, lesson=10, full=20)):
        for rows in torch.randperm(len(z)).split(64):
            loss = captioning_loss(
                decoder(z[rows], tokens[rows]), tokens[rows, 1:], mask[rows, 1:]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return decoder


# %%
read = changed["no marks"].train, tests["gone"]
sides = [(vectors(runs["no marks"], one), *tokenizer.encode(one.captions)) for one in read]
(z, tokens, mask), (z_test, tokens_test, mask_test) = sides
other_rows = torch.randperm(len(z_test), generator=torch.Generator().manual_seed(seed))
starts = {"right": z_test, "shuffled": z_test[other_rows], "zeros": 0 * z_test}
places = {}
for name, scale in (("z", 1), ("8z", 8), ("language model", 0)):
    decoder = decoder_of(scale * z, tokens, mask)
    for given, start in starts.items():
        with torch.no_grad():
            logits = decoder(scale * start, tokens_test)
        places[f"{name}, {given}"] = loss_by_place(logits, tokens_test[:, 1:], mask_test[:, 1:])

# %% tags=["nbval-ignore-output"]
many = mask_test[:, 1:].sum(0)  # (L,)   how many captions are so long
whole = {
    f"{name} (nats a caption)": (one * many).sum() / many[0]
    for name, one in places.items()
    if name not in ("language model, right", "language model, shuffled")  # 0 times z is 0
}
whole["a blind guess (nats a caption)"] = np.log(len(tokenizer)) * many.sum() / many[0]
course.numbers(whole)

# %% tags=["hide-input"]
lost = {key: float(value) for key, value in whole.items()}
alone = lost["language model, zeros (nats a caption)"]
lesson.finding(
    "the decoder of z ignores it",
    abs(lost["z, right (nats a caption)"] - lost["z, shuffled (nats a caption)"]) < 1
    and abs(lost["z, right (nats a caption)"] - alone) < 1,
)
lesson.finding("that of 8z uses it", lost["8z, right (nats a caption)"] < alone - 2.5)

# %% tags=["hide-input"]
far = int((many >= 0.2 * many[0]).sum())  # later places have few captions
figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.4), sharey=True)
for axes, name in zip(panels, ("z", "8z"), strict=True):
    lines = {given: places[f"{name}, {given}"] for given in starts}
    lines["language model"] = places["language model, zeros"]
    plots.curves(
        axes,
        {label: (range(1, far + 1), one[:far]) for label, one in lines.items()},
        x="place in the sentence",
        y="loss of a word (nats)" if name == "z" else "",
        title=f"decoder of {name}",
    )
panels[1].get_legend().remove()
plots.show(
    figure,
    alt="The loss at each place of a sentence, left for the decoder of z and right for that of 8z, with right vectors, shuffled vectors and zeros, and of a language model.",
)

# %% [markdown]
# The gap between the right vectors and the language model is all that $z$ adds. Where shuffled vectors do as well as right ones, the decoder ignores
# $z$. The rest comes from the words before: after "a man on the", few words are likely. A strong decoder, says the paper, will "mainly rely on the
# learned language model and language patterns". Here, even ten epochs do not bring a decoder to hear a $z$ of length one. It is loud enough at eight
# times its length, and then a caption loses several nats.
#
# Does ITD make the shortcut weaker, if its decoder hears the vector? We add it to the training with marks, with $8z$.


# %%
class LoudTarget(InputTarget):  # ITD whose decoder starts from 8z
    def forward(self, step):
        louder = dataclasses.replace(step.t, vectors=8 * step.t.vectors)
        return super().forward(dataclasses.replace(step, t=louder))


if "loud_target" not in LOSSES:
    LOSSES.register("loud_target", LoudTarget)

# %% tags=["nbval-ignore-output"]
decoded, _ = trained("marks", {"losses": [{"name": "info_nce"}, {"name": "loud_target"}]})
pair = (scores_of(decoded, test) for test in ("right", "swapped"))
with_itd = {"reliance (%)": 100 * reliance(*pair, owner)}
with_itd["rsum, marks gone"] = evaluate(scores_of(decoded, "gone"), owner)["rsum"]
with_itd["words, AUC in %"] = known(decoded, "marks", words, "right").mean()
course.numbers(with_itd)

# %% tags=["hide-input"]
lesson.finding(
    "the shortcut is as strong with ITD",
    with_itd["reliance (%)"] > relied["marks (%)"] - 10
    and with_itd["rsum, marks gone"] < sums["no marks; test: gone"] - 50,
)

# %% [markdown]
# It does not: the system relies on the marks about as much as before. In the paper ITD does not help on photographs either. [The next
# notebook](16_latent_targets.ipynb) decodes something else: one vector for the whole sentence, where no word before helps to predict the next.
#
# ## Change one thing
#
# ```{exercise} Change one thing
# :label: ex-15-explore
#
# Change the variant (`"+itd"`, or `"+triplet"` for the triplet loss), the temperature, or the width `dim`. What happens to the reliance? Write what
# you expect before you run it, and afterwards what came out.
# ```

# %% tags=["nbval-ignore-output"]
tried, _ = trained("marks", {"losses.triplet.margin": 0.2}, variant="+triplet")
pair = (scores_of(tried, test) for test in ("right", "swapped"))
outcome = {"reliance (%)": 100 * reliance(*pair, owner)}
outcome["rsum, marks gone"] = evaluate(scores_of(tried, "gone"), owner)["rsum"]
course.numbers(outcome)

# %%
from course.checks import check

your_expectation = "The triplet loss relies on the marks as well."  # your part
your_finding = "It does, with one seed; others may differ."  # your part
check("15.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-15-explore
# :class: dropdown
#
# A good answer changes one thing, takes as many steps, and looks at both numbers: a system that has learned little relies on nothing.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | gradient of InfoNCE, eq. (2) | `pulls` | `vsecore.losses.info_nce`, by autograd |
# | reconstruction of words, eq. (4) | `loss_by_place` | `vsecore.losses.captioning.captioning_loss` |
# | what a vector knows (future work in section 6) | `probe` | `vsecore.experiments.probe.probes` |
# | decoder of words, section 3.3 | the section *Decoding the caption* | `vsecore.losses.InputTargetDecoder` |
#
# ## Summary
#
# - Where one feature tells pairs apart, a contrastive loss need not learn the others, and recall falls when that feature is gone.
# - InfoNCE's gradient is the softmax weight of the negatives; a shortcut takes it away from every feature at once.
# - A larger batch helps if it brings negatives that the shortcut cannot tell apart.
# - A decoder of words gets help from the words before, so it needs less of the vector than one would think.
#
# ## Where to read on
#
# - {cite}`robinson2021shortcuts` study which features InfoNCE learns, and change the negatives so that it needs others.
# - {cite}`hermann2020features` watch how one of two useful features suppresses the other.
