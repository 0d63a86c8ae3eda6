"""Losses with offline negatives against their equations, written out, and their derivatives by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from small import assert_same_run, recipe, small_data, train
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.embedding import Embedding
from vsecore.losses import (
    LOSSES,
    Step,
    adaptive_offline_quintuplet,
    offline_quintuplet,
    offline_triplet,
    triplet,
)
from vsecore.losses.offline import Similarities, online_pairs
from vsecore.similarity import Cosine

NAMES = list(Similarities._fields)
BETA, ALPHA = 1.5, 0.3


def seven(seed, count=6):
    """Similarities of some pairs, spread widely: each hinge is above 0 for some of them."""
    dice = torch.Generator().manual_seed(seed)
    return {name: torch.rand(count, generator=dice, dtype=torch.float64) - 0.5 for name in NAMES}


def written_out(found, equation, margin=0.2, offline_margin=0.0, against="offline", least=-math.inf):
    """Equations 3, 4 and 5, term by term."""
    own, text, image, off_text, off_image, pair, swapped = (found[name] for name in NAMES)
    first = second = torch.ones(())
    if equation == 5:
        over_text, over_image = (off_text, off_image) if against == "offline" else (own, own)
        first = (BETA - (over_text - text) / ALPHA).clamp(min=least)
        second = (BETA - (over_image - image) / ALPHA).clamp(min=least)
    total = first * (margin - own + text).relu() + second * (margin - own + image).relu()
    for wrong in (off_text, off_image, pair, swapped)[: 2 if equation == 3 else 4]:
        total = total + (offline_margin - own + wrong).relu()
    return float(total.sum())


FUNCTIONS = {
    "offline_triplet": lambda found, **options: offline_triplet(
        *[found[name] for name in NAMES[:5]], **options
    ),
    "offline_quintuplet": lambda found, **options: offline_quintuplet(**found, **options),
    "adaptive_offline_quintuplet": lambda found, **options: adaptive_offline_quintuplet(**found, **options),
}


@pytest.mark.parametrize("margins", [{}, {"margin": 0.05, "offline_margin": 0.1}])
@pytest.mark.parametrize("seed", range(5))
def test_the_losses_are_their_equations(seed, margins):
    found = seven(seed)
    cases = [(name, equation, {}, {}) for equation, name in enumerate(FUNCTIONS, start=3)]
    cases += [
        ("adaptive_offline_quintuplet", 5, options, written)
        for options, written in (
            ({"against": "positive"}, {"against": "positive"}),
            ({"weights": "detached"}, {}),
            ({"weights": "clamped"}, {"least": 0.0}),
        )
    ]
    for name, equation, options, written in cases:
        loss = FUNCTIONS[name](found, **options, **margins)
        assert abs(float(loss) - written_out(found, equation, **written, **margins)) < 1e-12, name


def learning(found):
    return {name: score.clone().requires_grad_() for name, score in found.items()}


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_derivatives_are_those_of_equation_6(seed, detached):
    """Of the first line of equation 5, whose mirror image is the second: both are checked."""
    found, through = learning(seven(seed)), 1 - detached
    adaptive_offline_quintuplet(**found, weights="detached" if detached else "gradient").backward()
    for row in range(6):
        own, text, image, off_text, off_image, pair, swapped = (
            float(found[name][row].detach()) for name in NAMES
        )
        by_hand = {"positive": 0.0}
        for online, offline, apart, names in (
            (text, off_text, pair, ("online_text", "offline_text", "offline_pair")),
            (image, off_image, swapped, ("online_image", "offline_image", "swapped_pair")),
        ):
            active = 0.2 - own + online > 0
            beaten, far = float(offline > own), float(apart > own)
            weight, cost = BETA - (offline - online) / ALPHA, max(0.2 - own + online, 0.0)
            by_hand[names[0]] = active * weight + through * cost / ALPHA
            by_hand[names[1]] = beaten - through * cost / ALPHA
            by_hand[names[2]] = far
            by_hand["positive"] -= active * weight + beaten + far
        for name, wanted in by_hand.items():
            assert abs(float(found[name].grad[row]) - wanted) < 1e-12, name


@pytest.mark.parametrize("missing", NAMES[1:])
def test_a_negative_that_is_missing_adds_nothing_and_keeps_gradients_finite(missing):
    found = seven(2)
    without = {**found, missing: torch.full_like(found[missing], -math.inf)}
    for loss in (offline_quintuplet, adaptive_offline_quintuplet):
        scores = learning(without)
        value = loss(**scores)
        value.backward()
        assert value.isfinite() and all(score.grad.isfinite().all() for score in scores.values())
        assert not scores[missing].grad.any()
    total = written_out(found, 4)
    margin = 0.2 if missing.startswith("online") else 0.0
    own = (margin - found["positive"] + found[missing]).relu().sum()
    assert abs(float(offline_quintuplet(**without)) - (total - float(own))) < 1e-12


def test_an_online_negative_without_an_offline_one_weighs_beta():
    found = {name: torch.tensor([0.5], dtype=torch.float64) for name in NAMES}
    found = learning(found | {"offline_text": torch.tensor([-math.inf], dtype=torch.float64)})
    adaptive_offline_quintuplet(**found).backward()
    assert float(found["online_text"].grad) == BETA


def a_step(rows, owners, seed=0, epoch=5):
    """A step of random vectors; `rows` are the pictures, `owners` of the captions."""
    torch.manual_seed(seed)
    sizes = len(rows), *[len(owners)] * 5
    v, t, *drawn = (Embedding(torch.randn(count, 3, requires_grad=True)) for count in sizes)
    offline = tuple(zip(drawn[::2], drawn[1::2], strict=True))
    positives = torch.tensor(rows)[:, None] == torch.tensor(owners)[None]
    return Step(Cosine()(v, t), positives, v, t, offline, None, None, Cosine(), epoch)


BATCHES = {"pairs": ([0, 1, 2, 3], [0, 1, 2, 3]), "pairs with siblings": ([0, 1, 0, 3, 1], [0, 1, 0, 3, 1])}


@pytest.mark.parametrize("batch", BATCHES)
def test_a_step_gives_each_caption_its_similarities_by_loops_over_the_batch(batch):
    """Captions of the same picture are never negatives, nor are pairs that belong together."""
    rows, owners = BATCHES[batch]
    cosine, together = torch.nn.functional.cosine_similarity, 0
    for seed in range(20):
        with torch.no_grad():
            step = a_step(rows, owners, seed)
            found, online = Similarities.of(step), torch.stack(online_pairs(step), 1)
        scores, ((of_texts, texts), (pictures, of_pictures)) = step.scores, step.offline
        for column, owner in enumerate(owners):
            others = [n for n, other in enumerate(owners) if other != owner]  # rows are owners
            text = max(others, key=lambda n: scores[column, n])
            picture = max(others, key=lambda n: scores[n, column])
            v, t = step.v.vectors[column], step.t.vectors[column]
            off_v, off_t = pictures.vectors[column], texts.vectors[column]
            swapped = cosine(of_texts.vectors[column], of_pictures.vectors[column], dim=0)
            wanted = [scores[column, column], scores[column, text], scores[picture, column]]
            wanted += [cosine(a, b, dim=0) for a, b in ((v, off_t), (off_v, t), (off_v, off_t))]
            mine = torch.stack([getattr(found, name)[column] for name in NAMES])
            torch.testing.assert_close(mine, torch.stack([*wanted, swapped]))
            distinct = torch.arange(len(owners)) != column
            split = Similarities.of(replace(step, offline_apart=distinct))
            assert split.offline_pair[column] == split.swapped_pair[column] == -math.inf
            for pair in ("offline_pair", "swapped_pair"):
                assert torch.equal(getattr(split, pair)[distinct], getattr(found, pair)[distinct])
            if rows[picture] == owners[text]:
                together += 1
                assert (online[column] == -math.inf).all()
            else:
                assert online[column].tolist() == [scores[picture, text], scores[text, picture]]
    assert together, "the hardest caption and picture of a pair belong together now and then"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in FUNCTIONS),
        *((name, {"margin": 0.4, "offline_margin": 0.1}) for name in list(FUNCTIONS)[:2]),
        ("adaptive_offline_quintuplet", {"margin": 0.4, "offline_margin": 0.1, "beta": 1.0, "alpha": 0.5}),
        ("adaptive_offline_quintuplet", {"weights": "clamped", "alpha": 0.05}),
        ("adaptive_offline_quintuplet", {"against": "positive"}),
    ],
)
def test_a_module_is_its_function_with_its_options(name, options):
    step = a_step(*BATCHES["pairs with siblings"])
    found = Similarities.of(step)._asdict()
    value = LOSSES.build(name, options)(step)
    assert torch.equal(value, FUNCTIONS[name](found, **options))
    assert not options or not torch.equal(value, LOSSES.build(name, {})(step))
    alone = {**found, "online_text": found["online_text"] - math.inf}
    alone["online_image"] = found["online_image"] - math.inf
    only = LOSSES.build(name, options | {"online": False})(step)
    assert torch.equal(only, FUNCTIONS[name](alone, **options))
    assert not torch.equal(only, value)


def test_the_online_quintuplet_replaces_the_two_pairs_without_common_elements():
    step = a_step(*BATCHES["pairs"])
    found = Similarities.of(step)._asdict()
    found["offline_pair"], found["swapped_pair"] = online_pairs(step)
    value = LOSSES.build("offline_quintuplet", {"online_quintuplet": True})(step)
    assert torch.equal(value, offline_quintuplet(**found))
    assert not torch.equal(value, LOSSES.build("offline_quintuplet", {})(step))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_first_epochs_learn_from_all_negatives_of_the_batch(name):
    loss = LOSSES.build(name, {"warmup_epochs": 2, "margin": 0.3})
    early, late = a_step(*BATCHES["pairs"], epoch=1), a_step(*BATCHES["pairs"], epoch=2)
    wanted = triplet(early.scores, 0.3, hardest=False, positives=early.positives)
    assert torch.equal(loss(early), wanted)
    assert not torch.equal(loss(late), wanted)
    assert LOSSES.build(name, {}).warmup_epochs == 1


def test_a_step_without_offline_negatives_is_refused_also_in_the_warm_up():
    for name, epoch in zip(FUNCTIONS, (0, 5, 0), strict=True):
        step = a_step(*BATCHES["pairs"], epoch=epoch)
        step.offline = ()
        with pytest.raises(ValueError, match=r"no offline negatives.*vse mine RUN --out NEGATIVES"):
            LOSSES.build(name, {})(step)


def test_offline_pairs_that_belong_together_after_all_count_as_none():
    """Here all do: the lists are of one caption or picture, of picture 0, or of picture 1 for its own."""
    data = small_data()
    own = data.train.owner[:, None] == 0
    negatives = OfflineNegatives(2 * np.eye(20, 1, dtype=int), own.astype(int))
    losses = ("offline_triplet", "offline_quintuplet")
    assert_same_run(*(train(recipe(losses=[loss]), data, negatives=negatives) for loss in losses))


def test_a_batch_that_is_not_of_pairs_is_refused():
    for loss in (Similarities.of, online_pairs):
        with pytest.raises(ValueError, match=r"2 pictures with 3 captions: .* training\.batches"):
            loss(a_step([0, 1], [0, 1, 1]))
