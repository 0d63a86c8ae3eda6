"""Losses with offline negatives against their equations, written out, and their derivatives by hand."""

import math

import pytest
import torch

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

NAMES = (
    "positive",
    "online_text",
    "online_image",
    "offline_text",
    "offline_image",
    "offline_pair",
    "swapped_pair",
)
MODULES = ("offline_triplet", "offline_quintuplet", "adaptive_offline_quintuplet")
BETA, ALPHA = 1.5, 0.3


def seven(seed, count=6):
    """Similarities of some pairs, spread widely: each hinge is above 0 for some of them."""
    dice = torch.Generator().manual_seed(seed)
    return {name: torch.rand(count, generator=dice, dtype=torch.float64) - 0.5 for name in NAMES}


def five(found):
    return {name: found[name] for name in NAMES[:5]}


def hinge(x):
    return max(x, 0.0)


def of_a_row(row, equation, margin=0.2, offline_margin=0.0, against="offline", least=-math.inf):
    """Equations 3, 4 and 5 of one pair, term by term."""
    positive, text, image, off_text, off_image, pair, swapped = row
    first = second = 1.0
    if equation == 5:
        over_text, over_image = (off_text, off_image) if against == "offline" else (positive, positive)
        first = max(BETA - (over_text - text) / ALPHA, least)
        second = max(BETA - (over_image - image) / ALPHA, least)
    total = first * hinge(margin - positive + text) + second * hinge(margin - positive + image)
    total += hinge(offline_margin - positive + off_text) + hinge(offline_margin - positive + off_image)
    if equation > 3:
        total += hinge(offline_margin - positive + pair) + hinge(offline_margin - positive + swapped)
    return total


def written_out(found, equation, **options):
    rows = zip(*(found[name].tolist() for name in NAMES), strict=True)
    return sum(of_a_row(row, equation, **options) for row in rows)


@pytest.mark.parametrize("margins", [{}, {"margin": 0.05, "offline_margin": 0.1}])
@pytest.mark.parametrize("seed", range(5))
def test_the_losses_are_their_equations(seed, margins):
    found = seven(seed)
    for loss, wanted in (
        (offline_triplet(**five(found), **margins), written_out(found, 3, **margins)),
        (offline_quintuplet(**found, **margins), written_out(found, 4, **margins)),
        (adaptive_offline_quintuplet(**found, **margins), written_out(found, 5, **margins)),
        (
            adaptive_offline_quintuplet(**found, **margins, against="positive"),
            written_out(found, 5, **margins, against="positive"),
        ),
    ):
        assert loss.shape == () and loss.dtype == torch.float64
        assert abs(float(loss) - wanted) < 1e-12
    for weights, least in (("detached", -math.inf), ("clamped", 0.0)):
        loss = adaptive_offline_quintuplet(**found, weights=weights, **margins)
        assert abs(float(loss) - written_out(found, 5, least=least, **margins)) < 1e-12


def learning(found):
    return {name: score.clone().requires_grad_() for name, score in found.items()}


@pytest.mark.parametrize("seed", range(5))
def test_the_derivatives_are_those_of_equation_6(seed):
    """Of the first line of equation 5, whose mirror image is the second: both are checked."""
    found = learning(seven(seed))
    adaptive_offline_quintuplet(**found).backward()
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
            by_hand[names[0]] = active * (BETA + (0.2 - own - offline + 2 * online) / ALPHA)
            by_hand[names[1]] = -hinge(0.2 - own + online) / ALPHA + beaten
            by_hand[names[2]] = far
            by_hand["positive"] -= active * (BETA - (offline - online) / ALPHA) + beaten + far
        for name, wanted in by_hand.items():
            assert abs(float(found[name].grad[row]) - wanted) < 1e-12, name


def gradients(found, **options):
    found = learning(found)
    adaptive_offline_quintuplet(**found, **options).backward()
    return {name: score.grad for name, score in found.items()}


def test_a_weight_below_0_pushes_an_online_negative_up_unless_it_is_clamped():
    """An offline negative that scores more than αβ above the online one turns the weight negative."""
    found = {name: torch.tensor([0.5], dtype=torch.float64) for name in NAMES}
    found |= {"online_text": torch.tensor([0.31], dtype=torch.float64)}
    found |= {"offline_text": torch.tensor([0.95], dtype=torch.float64)}
    assert float(gradients(found)["online_text"]) < 0
    assert float(gradients(found, weights="detached")["online_text"]) < 0
    clamped = gradients(found, weights="clamped")
    assert float(clamped["online_text"]) == 0
    assert float(clamped["offline_text"]) == 1


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
    found |= {"offline_text": torch.tensor([-math.inf], dtype=torch.float64)}
    assert float(gradients(found)["online_text"]) == BETA


# What the modules take out of a step.


def a_step(rows, owners, seed=0, epoch=5, dtype=torch.float32, device="cpu"):
    """A step of random vectors; `rows` are the pictures, `owners` of the captions."""
    torch.manual_seed(seed)

    def vectors(count):
        return Embedding(torch.randn(count, 3, dtype=dtype, device=device, requires_grad=True))

    v, t = vectors(len(rows)), vectors(len(owners))
    offline = tuple((vectors(len(owners)), vectors(len(owners))) for _ in range(2))
    positives = torch.tensor(rows, device=device)[:, None] == torch.tensor(owners, device=device)[None]
    return Step(Cosine()(v, t), positives, v, t, offline, None, None, Cosine(), epoch)


BATCHES = {
    "pairs": ([0, 1, 2, 3], [0, 1, 2, 3]),
    "pairs with siblings": ([0, 1, 0, 3, 1], [0, 1, 0, 3, 1]),
}


def by_loop(step, rows, owners):
    """The seven similarities of each caption with its picture, by loops over the batch."""
    (of_texts, texts), (pictures, of_pictures) = step.offline
    cosine = torch.nn.functional.cosine_similarity
    found = []
    for column, owner in enumerate(owners):
        captions = [float(step.scores[column, c]) for c, other in enumerate(owners) if other != owner]
        images = [float(step.scores[r, column]) for r, other in enumerate(rows) if other != owner]
        v, t = step.v.vectors[column], step.t.vectors[column]
        offline = (
            (v, texts.vectors[column]),
            (pictures.vectors[column], t),
            (pictures.vectors[column], texts.vectors[column]),
            (of_texts.vectors[column], of_pictures.vectors[column]),
        )
        found.append(
            [float(step.scores[column, column]), max(captions), max(images)]
            + [float(cosine(a, b, dim=0)) for a, b in offline]
        )
    return found


@pytest.mark.parametrize("batch", BATCHES)
def test_a_step_gives_each_caption_its_seven_similarities(batch):
    """Captions of the same picture are never negatives."""
    rows, owners = BATCHES[batch]
    with torch.no_grad():
        step = a_step(rows, owners)
        found = Similarities.of(step)
        wanted = by_loop(step, rows, owners)
    torch.testing.assert_close(
        torch.stack([found._asdict()[name] for name in NAMES], 1), torch.tensor(wanted)
    )


@pytest.mark.parametrize("batch", BATCHES)
def test_online_pairs_are_those_of_the_hardest_and_never_belong_together(batch):
    rows, owners = BATCHES[batch]
    both = 0
    for seed in range(20):
        step = a_step(rows, owners, seed)
        scores = step.scores.detach()
        pair, swapped = online_pairs(step)
        for column, owner in enumerate(owners):
            text = max((c for c in range(len(owners)) if owners[c] != owner), key=lambda c: scores[column, c])
            picture = max((r for r in range(len(rows)) if rows[r] != owner), key=lambda r: scores[r, column])
            if rows[picture] == owners[text]:
                both += 1
                assert pair[column] == swapped[column] == -math.inf
                continue
            assert pair[column] == scores[picture, text]
            assert swapped[column] == scores[text, picture]
    assert both, "the hardest caption and picture of a pair belong together now and then"


def functions(name, found, **options):
    function = {
        "offline_triplet": offline_triplet,
        "offline_quintuplet": offline_quintuplet,
        "adaptive_offline_quintuplet": adaptive_offline_quintuplet,
    }[name]
    return function(**(five(found) if name == "offline_triplet" else found), **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("offline_triplet", {}),
        ("offline_triplet", {"margin": 0.4, "offline_margin": 0.1}),
        ("offline_quintuplet", {}),
        ("offline_quintuplet", {"margin": 0.4, "offline_margin": 0.1}),
        ("adaptive_offline_quintuplet", {}),
        ("adaptive_offline_quintuplet", {"margin": 0.4, "offline_margin": 0.1, "beta": 1.0, "alpha": 0.5}),
        ("adaptive_offline_quintuplet", {"weights": "clamped", "alpha": 0.05}),
        ("adaptive_offline_quintuplet", {"against": "positive"}),
    ],
)
def test_a_module_is_its_function_with_its_options(name, options):
    step = a_step(*BATCHES["pairs with siblings"])
    found = Similarities.of(step)._asdict()
    value = LOSSES.build(name, options)(step)
    assert torch.equal(value, functions(name, found, **options))
    assert not options or not torch.equal(value, LOSSES.build(name, {})(step))
    alone = {**found, "online_text": found["online_text"] - math.inf}
    alone["online_image"] = found["online_image"] - math.inf
    only = LOSSES.build(name, options | {"online": False})(step)
    assert torch.equal(only, functions(name, alone, **options))
    assert not torch.equal(only, value)


def test_the_online_quintuplet_replaces_the_two_pairs_without_common_elements():
    step = a_step(*BATCHES["pairs"])
    found = Similarities.of(step)._asdict()
    found["offline_pair"], found["swapped_pair"] = online_pairs(step)
    value = LOSSES.build("offline_quintuplet", {"online_quintuplet": True})(step)
    assert torch.equal(value, offline_quintuplet(**found))
    assert not torch.equal(value, LOSSES.build("offline_quintuplet", {})(step))


@pytest.mark.parametrize("name", MODULES)
def test_the_first_epochs_learn_from_all_negatives_of_the_batch(name):
    loss = LOSSES.build(name, {"warmup_epochs": 2, "margin": 0.3})
    early, late = a_step(*BATCHES["pairs"], epoch=1), a_step(*BATCHES["pairs"], epoch=2)
    wanted = triplet(early.scores, 0.3, hardest=False, positives=early.positives)
    assert torch.equal(loss(early), wanted)
    assert not torch.equal(loss(late), wanted)
    assert LOSSES.build(name, {}).warmup_epochs == 1


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize("name", MODULES)
def test_a_step_without_offline_negatives_says_how_to_mine_them(name, epoch):
    step = a_step(*BATCHES["pairs"], epoch=epoch)
    step.offline = ()
    with pytest.raises(ValueError, match=r"no offline negatives: mine them .*vse mine RUN --out NEGATIVES"):
        LOSSES.build(name, {})(step)


def test_a_batch_that_is_not_of_pairs_is_refused():
    for loss in (Similarities.of, online_pairs):
        with pytest.raises(ValueError, match=r"2 pictures with 3 captions: .* training\.batches"):
            loss(a_step([0, 1], [0, 1, 1]))
