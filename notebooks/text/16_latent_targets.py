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
# # Latent targets
#
# **You will be able to** train a system to keep what a sentence encoder knows of each caption, write the multiplier that holds this second
# loss at a bound, and interpret its trajectory as that of an integral controller.
#
# **You need** the notebook [Feature suppression](15_feature_suppression.ipynb), and derivatives.
#
# **It takes** about 1 minute and 2 GB of memory on two cores; the exercises take an hour.
#
# The map: encode → pool → compare → **learn**.

# %% tags=["parameters"]
tier = "lesson"
data = "scenes"
data_root = ""
seed = 0

# %% tags=["hide-input"]
import dataclasses
from functools import partial

import numpy as np
import torch
from torch.nn.functional import normalize

import course
from vsecore import experiments, records, scenes
from course import dots, plots
from course.checks import check, exercise
from course.drawings import latent as drawings
from course.drawings import system
from course.drawings.sets import picture_of
from course.marks import Marks
from course.widgets import settings_explorer
from vsecore.data.sentence_targets import sentence_targets
from vsecore.evaluation import evaluate
from vsecore.losses import LagrangeMultiplier, LatentTargetDecoder, reconstruction_loss
from vsecore.recipes import get
from vsecore.training import encode, fit, score_split

lesson = course.begin(tier, data, data_root, seed)
plots.house_style()
features = lesson.regions_or_grid()
sizes = lesson.pick(smoke=(40, 30, 30), lesson=(320, 100, 100), full=(4000, 500, 1000))
if data == "scenes":
    dataset = scenes.load(*sizes, features=features)
else:
    dataset = lesson.dataset(features)
epochs = lesson.pick(smoke=1, lesson=4, full=20)
few = {"training.epochs": lesson.pick(smoke=1, lesson=2, full=5)}
decoder_steps = lesson.pick(smoke=3, lesson=100, full=1000)

# %%
system(lit="learn")

# %% [markdown]
# ## A second opinion on every caption
#
# A contrastive loss rewards only what tells a caption from the others in its batch; the rest is easily suppressed. But there are networks
# that have read a great many sentences and give every sentence a vector. `MiniLM`, a *sentence encoder* {cite}`reimers2019sbert`, is one.
# Which captions does it consider similar? The first line is the query; the others show their cosine with it.

# %%
dev, count = dataset.dev, len(dataset.train.captions)
vectors = sentence_targets([*dataset.train.captions, *dev.captions])  # kept in the cache
Y, Y_dev = torch.from_numpy(vectors).split([count, len(dev.captions)])  # (Nc, T) each
with_targets = dataclasses.replace(dataset.train, targets=vectors[:count])
dataset = dataclasses.replace(dataset, train=with_targets)

# %% tags=["nbval-ignore-output"]
alike = normalize(Y_dev, dim=1)[5] @ normalize(Y_dev, dim=1).T  # (Nc,)
order = [row for row in alike.argsort(descending=True).tolist() if row != 5]
print("      ", dev.captions[5])
for row in (*order[:3], order[len(order) // 2], order[-1]):
    print(f"{alike[row]:6.2f}", dev.captions[row])
lesson.finding(
    "near captions lie near 1, others near 0", alike[order[2]] > 0.55 > 0.35 > alike[row]
)

# %% [markdown]
# *Latent target decoding* (LTD) {cite}`bleeker2023ltd` uses these vectors as *targets*. Besides matching its image, a caption embedding $z$ must let a
# small decoder predict MiniLM's embedding of the same caption. If $z$ has dropped something that the sentence says, the prediction suffers.

# %%
plots.show(
    drawings.overview(),
    alt="A picture and a caption go through their encoders to the vectors v and z, which "
    "meet in the contrastive loss. From z a decoder predicts the target y, which MiniLM "
    "gives for the same caption; the reconstruction loss compares the two. Decoder, MiniLM "
    "and targets are used in training only.",
)

# %% [markdown]
# The decoder has three layers, with $\sigma$ the ReLU, and the loss is the cosine distance to the target:
#
# $$
# \begin{aligned}
# h(z) &= W^{(3)} \sigma(W^{(2)} \sigma(W^{(1)} z)) && (5) \\
# \ell_{\mathrm{rec}} &= 1 - \frac{h(z)}{\lVert h(z) \rVert} \cdot \frac{y}{\lVert y \rVert} && (6)
# \end{aligned}
# $$
#
# [The notebook before](15_feature_suppression.ipynb) decoded the caption's *words*, each of which can be guessed from the words before it. Here nothing but $z$
# helps, so the decoder cannot predict what $z$ has lost.
#
# Why the caption's side alone? The image encoder learns only by matching captions' vectors, so it follows what these keep, and decoding pixels would
# ask for detail that no caption mentions. Why not let MiniLM encode the captions itself? It was made to compare sentences, not to find
# pictures. The paper answers with TERN (section 5.5), whose caption encoder is a pretrained BERT: LTD still adds 15 points.


# %%
def decode(z, W1, W2, W3):  # (C, D) -> (C, T)
    inner = (z @ W1.T).relu()  # (C, H)
    inner = (inner @ W2.T).relu()  # (C, H)
    return inner @ W3.T  # eq. 5; no ReLU at the end, since targets have numbers below zero


def rec_loss(pred, target):  # (C, T), (C, T) -> ()
    pred, target = normalize(pred, dim=1), normalize(target, dim=1)
    return (1 - (pred * target).sum(1)).mean()  # eq. 6


# %%
module = LatentTargetDecoder(64, Y.shape[1])
weights = [layer.weight for layer in module.layers if hasattr(layer, "weight")]
z = torch.randn(8, 64)
torch.testing.assert_close(decode(z, *weights), module(z))
torch.testing.assert_close(rec_loss(module(z), Y[:8]), reconstruction_loss(module(z), Y[:8]))
print("vsecore.losses agrees")

# %% [markdown]
# ## A weight or a bound?
#
# Two losses must become one. The *dual objective* adds them, with a weight $\beta$. The *constraint* asks for a reconstruction that is
# good enough: its loss must not exceed a bound $\eta$.
#
# $$
# \begin{aligned}
# \ell_{\mathrm{dual}} &= \ell_{\mathrm{con}} + \beta \ell_{\mathrm{rec}} && (7) \\
# \min \ell_{\mathrm{con}} &\;\text{ subject to }\; \ell_{\mathrm{rec}} \le \eta && (8) \\
# \max_\lambda \min \ell_{\mathrm{lag}} &= \ell_{\mathrm{con}} + \lambda \Big(\frac{\ell_{\mathrm{rec}}}{\eta} - 1\Big) && (9)
# \end{aligned}
# $$
#
# In equation 9 the model descends and the *Lagrange multiplier* $\lambda$ ascends. While the bound is not met, $\lambda$ grows, and with it the gradient of
# the reconstruction loss. Once it is met, $\lambda$ falls; at zero, only the contrastive loss is left. A weight $\beta$, on the other hand, never stops pushing.
#
# ```{exercise} The weight behind the multiplier
# :label: ex-16-weight
#
# How many times as strong is the gradient of the reconstruction loss in equation 9, with $\lambda = 1$ and $\eta = 0.2$, as in equation 7 with
# $\beta = 1$?
# ```

# %%
your_factor = 1 / 0.2  # your part: one number
check("16.weight", your_factor)

# %% [markdown]
# ````{solution} ex-16-weight
# :class: dropdown
#
# The derivative of equation 9 with respect to $\ell_{\mathrm{rec}}$ is $\lambda / \eta = 5$; the $-1$ in the bracket drops out. So the constraint starts with a stronger
# pull than the dual objective, and a tighter bound pulls harder still.
# ````
#
# ## The multiplier
#
# The gradient of equation 9 with respect to $\lambda$ is $g = \ell_{\mathrm{rec}} / \eta - 1$. Each step first uses the current $\lambda$, then updates it. A
# velocity $u$ smooths the noise of batches, with a momentum of $\alpha = 0.9$ and a dampening of the same size:
#
# $$
# \begin{aligned}
# u_1 &= g_1, \qquad u_s = \alpha u_{s-1} + (1 - \alpha) g_s \\
# \lambda_{s+1} &= \min(\max(\lambda_s + \rho\, u_s, 0), 100)
# \end{aligned}
# $$
#
# Here $\rho = 0.005$ is the learning rate. The first velocity is the whole gradient.
#
# ```{exercise} The multiplier's path
# :label: ex-16-multiplier
#
# `rec` holds the losses of a run, step by step. Write the multiplier's step, and return a list: the value of $\lambda$ that is *used* in each step.
# ```


# %%
@exercise("16.multiplier")
def path(rec, bound, initial=1.0, lr=5e-3, momentum=0.9, maximum=100.0):  # -> list
    # your part
    value, velocity, used = initial, None, []
    for loss in rec:
        used.append(value)
        g = loss / bound - 1
        first = velocity is None
        velocity = g if first else momentum * velocity + (1 - momentum) * g
        value = min(max(value + lr * velocity, 0.0), maximum)
    return used
    # end of your part


# %%
steps, multiplier, used = torch.rand(300), LagrangeMultiplier(0.3, lr=0.05), []
for loss in steps:
    used.append(float(multiplier.value))
    multiplier.step(loss)
torch.testing.assert_close(torch.tensor(path(steps.tolist(), 0.3, lr=0.05)), torch.tensor(used))
print("vsecore.losses.LagrangeMultiplier takes the same path")

# %% [markdown]
# ````{solution} ex-16-multiplier
# :class: dropdown
#
# First record the value, then move it: the loss of a step cannot change the $\lambda$ that this step has already used. The limits apply to the multiplier
# itself, after each step. If you clip only what you return, the sum behind it runs on below zero, and the next section shows what comes of that.
# ````
#
# ## A controller that winds up
#
# A multiplier is an integral controller: it adds up the error, like a thermostat that keeps turning the heat up as long as the room is too cold. Such
# a controller has a known weakness. Suppose we clip only the value that is *used*, while the accumulated sum keeps falling below zero. We call this
# multiplier *free*, and the other one *projected*.
#
# ```{exercise} How long it takes to come back
# :label: ex-16-windup
#
# For 1,000 steps the loss is half its bound; a free multiplier starts at 1. Then the loss rises to twice the bound. After how many more steps is the
# multiplier back at zero? Leave the momentum out; $\rho = 0.005$.
# ```

# %%
your_steps = (0.005 * 0.5 * 1000 - 1) / 0.005  # your part: one number
check("16.windup", your_steps)

# %% [markdown]
# ````{solution} ex-16-windup
# :class: dropdown
#
# In the first phase $g$ is $-0.5$, so $\lambda$ falls by 0.0025 a step, to $1 - 2.5 = -1.5$. Then $g$ is $+1$ (and not 2), so it climbs by 0.005 a step: 300 steps
# with the bound violated and no gradient from it. This is called *wind-up*.
# ````
#
# A model of one number $x$ shows it. Its loss $(x - a)^2$ pulls $x$ to $a$, and $x^2$ should stay below $\eta$. At first $a = 0$, so the bound costs
# nothing. Half-way, $a$ becomes 1.


# %%
def toy(bound=0.25, lr=5e-3, momentum=0.9, projected=True, steps=800):
    options = {"lr": lr, "momentum": momentum, "dampening": momentum, "projected": projected}
    multiplier, x, seen = LagrangeMultiplier(bound, **options), 0.0, []
    for step in range(steps):
        a = 0.0 if step < steps / 2 else 1.0
        λ = float(multiplier.value)
        seen.append((λ, float(multiplier.raw), x * x))  # used, behind it, the loss
        x -= 0.02 * (2 * (x - a) + λ / bound * 2 * x)  # gradient of eq. 9
        multiplier.step(torch.tensor(x * x))
    return np.array(seen)  # (steps, 3)


# %%
toys = {"projected": toy(), "free": toy(projected=False)}
late = {name: int((seen[len(seen) // 2 :, 2] > 0.2525).sum()) for name, seen in toys.items()}
lesson.finding("the free one violates the bound longer", late["free"] > 1.5 * late["projected"])
plots.show(
    drawings.controller(toys, 0.25, (9, 3)),
    alt="Left the multiplier against the step, right the loss with its bound. The "
    "projected multiplier falls to zero and stays there; the free one goes on falling. "
    "After the change half-way, the projected one answers at once, and the free one only "
    "after many steps, in which the loss stands far above its bound.",
)

# %% [markdown]
# Turn the knobs yourself. A fast multiplier overshoots and swings, and a slow one leaves the bound violated for long. The dampening
# always equals the momentum $\alpha$.

# %%
choices = {"bound η": ["0.1", "0.25", "0.6"], "learning rate ρ": ["0.005", "0.05"]}
choices |= {"momentum α": ["0", "0.9"], "multiplier": ["projected", "free"]}


def page(bound, lr, momentum, rule):
    seen = toy(float(bound), float(lr), float(momentum), rule == "projected")
    picture = picture_of(drawings.controller({rule: seen}, float(bound), (6.4, 2.4)))
    late = seen[len(seen) // 2 :, 2]
    above = int((late > 1.01 * float(bound)).sum())
    end = f"it ends at {late[-1]:.2f}."
    return picture, f"After the change, the loss exceeds its bound in {above} steps; {end}"


settings_explorer(choices, page)

# %% [markdown]
# ```{admonition} Where the code departs from the paper
# :class: note dropdown
#
# The released code clips only the used value; `projected=False` does the same. Its targets have a width of 768, from a larger sentence
# encoder, that of the paper's first footnote; section 4.2 names MiniLM. Its decoder has biases, but equation 5 has none.
# ```
#
# ## A short run
#
# Now a real system: BL, the paper's *baseline* with InfoNCE, and the same with a target, once as a constraint and once as a second loss. A run of
# a hundred steps cannot reach the paper's bounds, so ours is looser, 0.4, and our multiplier learns forty times as fast. Batch norm after the
# projection heads is ours; the paper has it only with the triplet loss.

# %%
ETA = 0.4
small = {"dim": 64, "text.encoder.word_dim": 32}
small |= {f"{side}.pool.batch_norm": True for side in ("image", "text")}
small |= {"training.epochs": epochs, "training.batch_size": 64}
small |= {"training.learning_rate": 5e-3, "training.warmup_steps": 0}


def note(seen, event):  # keep a step's λ and loss
    if event.kind != "step" or "latent_target" not in event.system.losses:
        return
    constraint = event.system.losses["latent_target"].constraint
    seen["reconstruction"].append(float(constraint.reconstruction))
    if constraint.multiplier is not None:
        seen["λ"].append(float(constraint.multiplier.value))


# %%
def trained(variant="", changes=None, faster=40, on=None):  # -> a run, and its λ and loss
    seen, recipe = {"reconstruction": [], "λ": []}, get(f"ltd_{features}_gru{variant}", small)
    if "constraint" in variant:
        own = {"bound": ETA, "multiplier_lr": faster * 5e-3}
        recipe = recipe.override({f"losses.latent_target.{name}": x for name, x in own.items()})
    recipe = recipe.override(changes or {})
    return fit(recipe, on or dataset, callback=partial(note, seen), seed=seed), seen


baseline, _ = trained()
ltd, ltd_seen = trained("+ltd_constraint")
dual, _ = trained("+ltd")

# %% [markdown]
# What does a caption's vector still say? We let a decoder predict MiniLM's vector from it. BL has no decoder, so both systems get a new one, trained
# afterwards on vectors that no longer change.


# %%
def decoder_after(run):  # -> the loss of a new decoder on dev's captions, from fixed vectors
    sides = [encode(run.model, split, run.tokenizer)[1] for split in (dataset.train, dev)]
    z, z_dev = (side.vectors.float().clone() for side in sides)  # (Nc, D) each
    torch.manual_seed(seed)
    decoder = LatentTargetDecoder(z.shape[1], Y.shape[1])
    optimizer = torch.optim.Adam(decoder.parameters(), 3e-3)
    for _ in range(decoder_steps):
        optimizer.zero_grad()
        reconstruction_loss(decoder(z), Y).backward()
        optimizer.step()
    with torch.no_grad():
        return reconstruction_loss(decoder(z_dev), Y_dev).item()


# %% tags=["nbval-ignore-output"]
held = {name: decoder_after(run) for name, run in (("BL", baseline), ("constraint", ltd))}
for name, loss in held.items():
    print(f"reconstruction loss of a new decoder, {name}: {loss:.3f}")
best = {"BL": baseline, "constraint": ltd, "dual": dual}
best = {f"{name}: rsum": run.best["rsum"] for name, run in best.items()}
course.numbers(best)
lesson.finding(
    "MiniLM's vector is easier to predict with LTD", held["constraint"] < held["BL"] - 0.01
)
of_bl, of_constraint, of_dual = best.values()
lesson.finding("the constraint does not lead by far yet", of_constraint < of_dual + 30)

# %% [markdown]
# A decoder finds more of the sentence in the vectors of the constraint. The rsum (of 100 development pictures, from one seed) says less: in
# our run the *dual objective*
# is ahead of the constraint; on another processor it may not be. Why is the constraint not clearly ahead, although it is the paper's point? Its advantage
# should be that it lets go, and a hundred steps leave $\lambda$ too little time to fall. Until it does, a constraint is only a strong weight. Our fast multiplier drives
# $\lambda$ up to 7, and the reconstruction then weighs $7/0.4$, about 18 times as much as with $\beta = 1$.
#
# ## What bounds do
#
# The recorded runs have fifteen epochs, the paper's own bounds and, unless we say *fast*, its slow multiplier.
#
# ```{exercise} Which objective serves retrieval best?
# :label: ex-16-bounds
#
# After fifteen epochs, which gives the highest rsum: the bound `"0.05"`, the bound `"0.2"`, or the `"dual"` objective?
# ```

# %%
your_guess = "0.2"  # your part: one of the three
check("16.bounds", your_guess)

# %% tags=["results", "nbval-ignore-output"]
arms = {"BL": ("latent_targets", "BL"), "dual": ("latent_targets", "BL + LTD, dual")}
arms |= {f"η = {bound}": ("latent_bounds", f"η = {bound}") for bound in (0.05, 0.2)}
arms["η = 0.2, fast λ"] = ("latent_bounds", "η = 0.2, fast multiplier")
found = experiments.studied(arms, "scenes")
bounded = {"η = 0.05": 0.05, "η = 0.2": 0.2, "η = 0.2, fast λ": 0.2}
figure, tracks = drawings.trajectories(found, bounded)
plots.show(
    figure,
    alt="Four panels against the epoch. rsum: the bound of 0.2 ends highest, with the fast multiplier a little above the slow one. The multiplier of 0.2 "
    "rises to 2.3, falls, and stays at zero from the tenth epoch, the fast one rises to 48 and is at zero from the seventh; that of 0.05 rises to the end, to 16. The reconstruction "
    "loss of 0.2 falls below its bound in the third epoch and stays far below; with the fast multiplier it falls as low and comes back almost to the bound; that of 0.05 never reaches "
    "its bound; that of dual falls to 0.14. The contrastive loss ends highest for 0.05 and lowest for 0.2, above all with the fast multiplier, with BL and dual close together between them.",
)

# %% tags=["hide-input", "results", "nbval-ignore-output"]
_, λ, rec, contrast = tracks.values()
slow, loss = λ["η = 0.2"], rec["η = 0.2"]
lesson.outcome(
    "at 0.2, λ rises, falls, and is zero from epoch 11", slow[1] > 2 and max(slow[10:]) < 0.01
)
lesson.outcome("λ/η is nearly 5 on average", 4.5 < np.mean(slow) / 0.2 < 5)
lesson.outcome(
    "the loss rises again, and stays far below", 0.11 < loss[-1] < 0.13 and loss[9] < 0.105
)
lesson.outcome("0.05 is not met", min(rec["η = 0.05"]) > 0.055 and λ["η = 0.05"][-1] > 15)
targets, bounds = (
    experiments.studied(f"latent_{name}", "scenes") for name in ("targets", "bounds")
)
level = targets["BL + LTD, dual, at BL's rate"]
contrast["level"] = dots.by_epoch(level, "contrast_in").mean(0)
ends = [contrast[name][-1] / contrast["BL"][-1] for name in ("level", "η = 0.05", "η = 0.2")]
changes = np.round(ends, 2).tolist()
lesson.outcome("3 % below, 43 % above, 14 % below", changes == [0.97, 1.43, 0.86])
fast = "η = 0.2, fast λ"
lesson.outcome("it settles", λ[fast][5:].max() < 1 and round(rec[fast][-1] / 0.2, 2) == 0.96)
again = [bounds[f"η = {x}, fast multiplier"].results["multiplier_returns"] for x in (0.2, 0.25)]
positive = [sum(count > 0 for count in one.values()) for one in again]
lesson.outcome("λ is positive again", positive == [3, 5])

# %% [markdown]
# These are the panels of the paper's figure 3, with the bounds as thin dotted lines and rsum on the development split. The paper reads five
# observations from them.
#
# 1. *"λ increases until the optimization constraint is met … When the reconstruction constraint is met, λ decreases to 0."* We see exactly this at
#    0.2: the bound is met in the third epoch, and $\lambda$ reaches 0 in the tenth.
# 2. *"λ is positive again when the reconstruction loss becomes higher than the bound η."* We do not see this at the paper's $\rho$. When
#    $\lambda$ reaches 0 the loss does
#    rise again, from 0.10 to 0.12, but it has far to go to 0.2.
# 3. *"The reconstruction loss converges to the value of η."* We do not see this either: it ends 40 % below 0.2. As in the paper, 0.05 is
#    missed (0.061), although
#    it can be met, as we shall see.
# 4. *"A lower reconstruction loss does not necessarily result in higher evaluation scores."* We see this: 0.05 has the lower loss and the lower rsum.
# 5. The contrastive loss does *"not depend much on the value of the reconstruction loss"*, and so "on its own does not provide a good indication of the
#    performance". The conclusion holds: 0.05 ends 43 % above BL, and its rsum is no lower. The first half does not: 0.2 ends 14 % below BL, so part of
#    its lead may be a better fit to the training pairs. (The drawn *dual* has a learning rate of its own; at BL's it ends 3 % below.)
#
# The controller explains why. $\lambda$ had risen to 2.3, and while it came down, slowly as an integral does, it kept pushing the loss far
# below the bound. Our training has 2,300 steps, the paper's on COCO some 265,000, so our first ten epochs are a third of one epoch there. The curve "fast λ"
# gives the controller time: its multiplier learns forty times as fast, as above. It overshoots more, but is below 1 in epoch 6 and at zero in 7; the
# loss climbs back and ends 4 % below 0.2 on average (1 to 10 % by seed). Batches above the bound then raise $\lambda$ for some steps, in three of
# five seeds, and in all five with a bound of 0.25. So lack of time hid both, at least partly; whether the loss converges to 0.2 stays open.
#
# ## Is it worth it?
#
# **What we did.** Five seeds of each system, the same regions, a learning rate for each, chosen on the development split, and 1,000 test
# pictures. Those that were still improving, and some others, were also trained for thirty epochs.

# %% tags=["results", "nbval-ignore-output"]
dots.show(found)
both = targets | bounds
objectives = ["BL", "BL + LTD, dual"] + [f"BL + LTD, dual, weight {beta}" for beta in (5, 60)]
objectives += ["BL + LTD, constraint"] + [f"η = {bound}" for bound in (0.05, 0.1, 0.15, 0.25)]
objectives += [f"η = {bound}, fast multiplier" for bound in (0.05, 0.15, 0.2, 0.25)]
print(f"{'mean rsum after':32}15 epochs    30")
for name in objectives:
    sums = [f"{both[arm].rsum:.1f}" for arm in (name, f"{name}, longer") if arm in both]
    said = name.replace("constraint", "constraint (η = 0.2)")
    print(f"{said:32}{'   '.join(sums):>{8 * len(sums)}}")

# %% tags=["hide-input", "results", "nbval-ignore-output"]
lesson.outcome("five seeds each", {len(both[name].seeds) for name in objectives} == {5})
bl, by_weight, at_005, at_02, _ = (found[name] for name in arms)
heavy, as_heavy = (both[f"BL + LTD, dual, weight {beta}"] for beta in (5, 60))
for name, other, low, high in (
    ("0.2 is 15 above BL, 9 to 20 by seed", bl, 9, 20),
    ("11 above dual, 9 to 12 by seed", by_weight, 9, 12),
):
    ahead = dots.gaps(at_02, other)
    lesson.outcome(name, [round(min(ahead)), round(max(ahead))] == [low, high])
lesson.outcome("1.2 above weight 5", round(at_02.rsum - heavy.rsum, 1) == 1.2)
curve = np.mean(heavy.trainings[0].curves, 0)  # rsum on the development split, by epoch
lesson.outcome("it still rose", curve[:10].max() < 0.99 * curve.max())
lesson.outcome("0.05 loses mAP@R to text", dots.gap(at_005, bl, "i2t_map_at_r")[0] < -1)
early = [both[f"η = {bound}, fast multiplier"] for bound in (0.15, 0.2, 0.25)]
ahead = [gap for arm in early for gap in dots.gaps(arm, heavy)]
lesson.outcome("3 to 12 above β = 5", [round(min(ahead)), round(max(ahead))] == [3, 12])
pushes = np.mean(λ["η = 0.2, fast λ"]) / 0.2
lesson.outcome("it weighs 60", round(pushes, -1) == 60)
lesson.outcome("weight 60 is 6 below it", round(early[1].rsum - as_heavy.rsum) == 6)
tightest = both["η = 0.05, fast multiplier"]
lesson.outcome("0.05 ends 9 below BL", round(tightest.rsum - bl.rsum) == -9)
above = dots.mean(both["η = 0.05, fast multiplier, longer"], "reconstruction_above_bound")
lesson.outcome("thirty epochs meet it", round(0.05 * (1 + above / 100), 3) == 0.044)
longer = [both[f"BL + LTD, {kind}, longer"] for kind in ("constraint", "dual, weight 5")]
by_longer = np.mean(dots.by_epoch(longer[0], "multiplier_after")) / 0.2
lesson.outcome("it weighs 2.4 there", round(by_longer, 1) == 2.4)
lead, margin = dots.gap(*longer)[0], 0.01 * longer[1].rsum
lesson.outcome("4.3 above, margin 4.7", [round(lead, 1), round(margin, 1)] == [4.3, 4.7])
triplet = experiments.studied("latent_losses", "scenes")
helped = dots.gaps(triplet["triplet + LTD, constraint"], triplet["triplet"])
lesson.outcome(
    "the triplet loss, by 5.0", len(helped) == 5 and round(np.mean(helped), 1) == 5.0
)
photographs = experiments.studied("latent_targets", "flickr8k")
helped = dots.gaps(photographs["BL + LTD, constraint"], photographs["BL"])
lesson.outcome("12 on Flickr8k", len(helped) == 3 and round(np.mean(helped)) == 12)
judged = {one.claim.statement: one.judgement for one in experiments.outcomes("ltd", "scenes")}
sure = (
    "a latent target as a constraint helps",
    "the constraint is better than the second loss",
    "a constraint whose multiplier is fast is better than a second loss of its mean weight",
)
open_one = "a latent target as a second loss does not help"
lesson.outcome("three are sure", {judged[claim] for claim in sure} == {"reproduced"})
lesson.outcome("one is open", judged[open_one] == "undecided")
as_heavily = "the constraint is better than a second loss of weight 5"
lesson.outcome("and so is its weight", judged[as_heavily] == "undecided")

# %% [markdown]
# ````{solution} ex-16-bounds
# :class: dropdown
#
# The bound of 0.2, before dual and 0.05. A bound that is not met never lets go, so it acts like a weight that grows.
# ````
#
# **What came out.** The constraint of 0.2 ends 15 points above BL and 11 above the dual objective. But it pushes harder: $\lambda/\eta$ is nearly
# 5 on average, while $\beta$ is 1. With $\beta=5$, dual ends only 1.2 below the constraint, so most of the lead comes from the weight. Letting
# go seems to bring the rest: with the fast multiplier, the bounds of 0.15, 0.2 and 0.25 end 3 to 12 above $\beta=5$ in each seed. They push
# harder at first (at 0.2, $\lambda/\eta$ is 60 on average), but with $\beta=60$ dual ends 6 below. Dual with $\beta=5$ had not levelled off. After
# thirty epochs the constraint of 0.2, with $\lambda/\eta$ now at 2.4, is 4.3 above it, within our margin of 4.7.
#
# The bound of 0.05 loses most of the gain, and ranks a picture's true captions worse than no target does (mAP@R); with the fast multiplier it
# ends 9 below BL. In thirty epochs it is met (at 0.044), but looser bounds retrieve better.
#
# **How sure we are.** In each seed, the constraint of 0.2 is 9 to 20 points ahead of BL and 9 to 12 ahead of dual. Whether dual itself helps
# stays open: 4 points are too few. On photographs, the paper's constraint is 13 points (COCO) and 15 (Flickr30K) above InfoNCE, ours 12 (Flickr8k,
# three seeds). The paper's also helps the triplet loss (ours by 5.0, on scenes), VSRN and TERN (tables 1 to 3). There, the bound is the best of six, while $\beta$ is always 1.
#
# **What the vectors keep.** These runs were also probed, as in [Feature suppression](15_feature_suppression.ipynb). At one learning rate and over five
# seeds, relations such as *left* and *right* are read from BL's vectors with an AUC of 84.6 %, from dual's with 89.3 %, and from the constraint's with 92.1 %;
# sizes with 82.0, 83.0 and 87.6 %. So LTD does what its authors want. With $\beta=5$, dual is nearly
# level with the constraint (92.2 and 86.5 %), and with $\beta=60$ ahead (96.3 and 96.5 %), so the weight explains this lead. At half the
# learning rate, BL keeps relations almost as well (91.3 %), yet its rsum stays at 450 (one seed). So keeping them is not all that the
# constraint does.

# %% tags=["hide-input", "results", "nbval-ignore-output"]
at_one_rate = bl, level, at_02, heavy, as_heavy
keeps = {"relation": [84.6, 89.3, 92.1, 92.2, 96.3], "size": [82.0, 83.0, 87.6, 86.5, 96.5]}
for fact, means in keeps.items():
    auc = [dots.mean(arm, f"probe_{fact}") for arm in at_one_rate]
    lesson.outcome(f"{fact}s of five seeds", np.round(auc, 1).tolist() == means)
for one in records.find(experiments.RESULTS, data="scenes", seed=0, name="ltd_region_gru"):
    if one.config["training"]["learning_rate"] == 0.001:
        slowly = one.metrics["probe_relation"], one.metrics["rsum"]
lesson.outcome("BL at half the rate", np.round(slowly, 1).tolist() == [91.3, 450.2])

# %% [markdown]
# On the course's scoreboard, InfoNCE with this simple pooling has the lowest rsum of all but ridge regression, and even with a target it
# overtakes none. By mAP@R to text, however, the constraint passes several:

# %% tags=["results", "nbval-ignore-output"]
course.scoreboard("16")

# %% [markdown]
# ## Break it: a bound that cannot be met
#
# ```{exercise} A bound that cannot be met
# :label: ex-16-break
#
# The reconstruction loss stays at 0.3, whatever the model does. Give a bound that takes $\lambda$ from 1 to 100 in 100 steps, at $\rho = 0.005$.
# ```

# %%
your_bound = 0.001  # your part: one number
check("16.break", your_bound)

# %% tags=["nbval-ignore-output"]
change = few | {"losses.latent_target.bound": 0.001}
broken, broken_seen = trained("+ltd_constraint", change, faster=1)
as_long = baseline.history[few["training.epochs"] - 1]["rsum"]
short_sums = {"η = 0.001: rsum": broken.best["rsum"], "BL, as many epochs: rsum": as_long}
course.numbers(short_sums | {"λ at the end": broken_seen["λ"][-1]})
lesson.finding(
    "the multiplier reaches its limit, and recall breaks down",
    broken_seen["λ"][-1] > 99 and broken.best["rsum"] < as_long / 2,
)

# %% [markdown]
# ````{solution} ex-16-break
# :class: dropdown
#
# Any bound up to about 0.0015: each step must add 0.99, so $0.005\,(0.3/\eta - 1) \ge 0.99$. At 0.001, $\lambda / \eta$ grows to 100,000. Gradient
# clipping keeps the step small, but nearly all of it serves the reconstruction, so the caption encoder learns to please the decoder and not to match
# pictures.
# ````
#
# ## Does a target help against a shortcut?
#
# In [Feature suppression](15_feature_suppression.ipynb), a number on each picture and in its captions gave the answer away, and InfoNCE relied on it.
# MiniLM reads the number too, but also the rest of the sentence. We train on numbered pictures and captions, take the numbers away, and search again.

# %%
marks = Marks(dataset, seed)
own, own_dev = (marks.numbers(split)[0] for split in (dataset.train, dev))
numbered = marks.lay(dataset.train, own, own)
numbered = dataclasses.replace(numbered, targets=sentence_targets(numbered.captions))
with_marks = dataclasses.replace(dataset, train=numbered, dev=marks.lay(dev, own_dev, own_dev))
gone, without = {}, marks.lay(dev)  # dev without numbers
for name, variant in (("InfoNCE", ""), ("dual", "+ltd"), ("constraint", "+ltd_constraint")):
    run, _ = trained(variant, on=with_marks)
    scores = score_split(run.model, without, run.tokenizer)
    gone[f"{name}: rsum without numbers"] = evaluate(scores, torch.as_tensor(dev.owner))["rsum"]

# %% tags=["nbval-ignore-output"]
course.numbers(gone | {"BL, which never saw a number": of_bl})
lesson.finding("no target undoes the shortcut", max(gone.values()) < of_bl - 30)

# %% [markdown]
# A target does not undo the shortcut: each of the three finds far less than BL, which never saw a number. One seed cannot establish a lead as small
# as the targets'. On photographs, LTD's authors found that it weakens an injected shortcut only in part
# {cite}`bleeker2024shortcuts`.
#
# ## Averaging the weights
#
# The paper evaluates *averaged snapshots*: the mean of the weights at five steps in the last tenth of each epoch (stochastic weight averaging, SWA
# {cite}`izmailov2018swa`). Our training goes on with the weights as they are, so we can evaluate the same steps with and without averages.
#
# There is a trap. Batch norm keeps running statistics of what it normalises, and these belong to the weights of the last steps. For an average they
# must be computed anew from training batches. So a control is needed: the *last* weights, not averaged, but also with fresh statistics.

# %% tags=["nbval-ignore-output"]
runs = {"averaged": baseline}
runs["last weights, fresh statistics"], _ = trained(changes={"training.snapshots": 1})
runs["last weights, as they are"], _ = trained("+without_averaging")
first = {f"{name}: first epoch": run.history[0]["rsum"] for name, run in runs.items()}
last = {f"{name}: last epoch": run.history[-1]["rsum"] for name, run in runs.items()}
course.numbers(first | last)
averaged, fresh, plain = first.values()
lesson.finding("fresh statistics bring the early lead", min(averaged, fresh) > plain + 40)
lesson.finding("and averaging adds little to them", abs(averaged - fresh) < 25)
lesson.finding("in the end all are the same", max(last.values()) - min(last.values()) < 15)

# %% [markdown]
# Without the control we would have praised the average for a lead of 94 points after the first epoch. But the last weights have the same
# lead once their statistics are fresh. While
# the learning rate is high, running statistics lag behind the weights; as it falls to zero, all three become nearly equal. Our average is over two
# neighbouring
# steps; on COCO, the paper's five lie among hundreds, which may matter.
#
# ## What each system finds
#
# The paper's figure 4 compares the first five captions of TERN without and with LTD. We do the same for the two pictures where LTD gains
# and loses the most true captions. A tick marks a caption that is true of the picture.

# %%
ranked = {
    name: score_split(run.model, dev, run.tokenizer).topk(5, dim=1).indices  # (Ni, 5)
    for name, run in (("BL", baseline), ("constraint", ltd))
}
true = lesson.relevance("dev")  # (Nc, Ni); None for photographs
if true is None:
    true = np.asarray(dev.owner)[:, None] == np.arange(len(dev))
true = torch.from_numpy(true[: len(dev.captions), : len(dev)]).T  # (Ni, Nc)
right = {name: true.gather(1, five).sum(1) for name, five in ranked.items()}  # (Ni,)
gain = right["constraint"] - right["BL"]

# %%
shown, rows = [int(gain.argmax()), int(gain.argmin())], []
for row, pixels in zip(shown, lesson.pictures("dev", shown), strict=True):
    columns = {}
    for name, first_five in ranked.items():
        ticked = [f"{'✓' if true[row, i] else '✗'} {dev.captions[i]}" for i in first_five[row]]
        columns[f"{name}: {int(right[name][row])} of 5 true"] = ticked
    rows.append((pixels, columns))

# %%
plots.show(
    drawings.top_captions(rows),
    alt="Two pictures, each with the five captions that the baseline ranks first and the "
    "five of the constraint, ticked if true.",
)

# %% tags=["nbval-ignore-output"]
top = {
    f"{name}: true captions in the first five": v.float().mean() for name, v in right.items()
}
course.numbers(top)
of_bl_five, of_ltd_five = (float(value) for value in top.values())
lesson.finding("LTD finds a little more that is true", of_ltd_five > of_bl_five + 0.03)

# %% [markdown]
# Over the whole split, LTD gains little: 1.9 true captions against 1.8.
#
# ## An experiment of your own: how fast should λ learn?
#
# ```{exercise} Change one thing
# :label: ex-16-explore
#
# The multiplier of our short training learned forty times as fast as the paper's. Try 1 and 200. The cell prints the highest $\lambda$, the reconstruction loss at
# the end, and the rsum. Write down which will change most, run it, and write what came out.
# ```

# %% tags=["nbval-ignore-output"]
your_speeds = (1,)  # try 200 as well
for faster in (40, *your_speeds):
    run, seen = (ltd, ltd_seen) if faster == 40 else trained("+ltd_constraint", faster=faster)
    end = np.mean(seen["reconstruction"][-9:])
    line = f"highest λ {max(seen['λ']):.1f}, last loss {end:.3f}, rsum {run.best['rsum']:.1f}"
    print(f"{faster} times as fast: {line}")

# %% tags=["hide-input"]
if your_speeds == (1,):
    lesson.finding(
        "the paper's rate is not far below", run.best["rsum"] > ltd.best["rsum"] - 25
    )

# %%
your_expectation = "λ hardly moves in 100 steps: it acts as a weight."  # your part
your_finding = "λ stayed near 1; the loss ended higher, and the rsum was no worse."  # your part
check("16.explore", (your_expectation, your_finding))

# %% [markdown]
# ````{solution} ex-16-explore
# :class: dropdown
#
# With $\rho = 0.005$, a hundred steps with $g$ below 1 on average move $\lambda$ by less than a half, so the term acts like a constant weight of about $1/\eta = 2.5$. Very fast
# multipliers overshoot: $\lambda$ grows large before the loss has had time to fall. And yet with the paper's rate the rsum is about 2 higher. One
# seed and a hundred steps say little, but they warn: the system with the lower loss need not retrieve better.
# ````
#
# ## Paper, notebook, package
#
# | paper | in this notebook | in the package |
# | --- | --- | --- |
# | decoder, eq. (5) | `decode` | `vsecore.losses.LatentTargetDecoder` |
# | cosine distance, eq. (6) | `rec_loss` | `vsecore.losses.reconstruction_loss` |
# | multiplier, eq. (9) and section 4.2 | `path` | `vsecore.losses.LagrangeMultiplier` |
# | targets, section 3.4.4 | the section *A second opinion* | `vsecore.data.sentence_targets.sentence_targets` |
# | averages, section 4.2 | the section *Averaging the weights* | `vsecore.training.averaging.Averaging` |
#
# ## Summary
#
# - A decoder must predict a sentence encoder's vector from the caption's, so that the vector keeps what the sentence says. At equal learning rates, probes confirm it.
# - A multiplier is an integral controller: its push grows until the bound is met, and then fades. If it may fall below zero, it winds up and answers late.
# - A loose bound (0.15 to 0.25) helps retrieval; a tight one (0.05) does not, even when it is met; one that is far too tight takes over the training.
# - The bound of 0.2 reaches 466.1 (470.2 with a fast multiplier), the target as a second loss 455.6 (464.9 with five times the weight), no target 451.3.
#
# ## Where to read on
#
# - {cite}`platt1987constrained` train networks with multipliers; {cite}`rezende2018taming` hold the reconstruction of an autoencoder at a bound.
# - {cite}`reimers2019sbert` explain how a sentence encoder is made.
