"""AOQ: existing systems, trained again with negatives from the whole training set."""

from dataclasses import replace
from typing import Any, Literal

from vsecore.recipes import bfan as bfans
from vsecore.recipes import scan as scans
from vsecore.recipes import vsepp as plain
from vsecore.recipes import vsrn as vsrns
from vsecore.recipes.recipe import FirstRound, Part, Recipe

Feature = Literal["grid", "region"]

LOSS = Part("adaptive_offline_quintuplet")
"""With the margins, beta and alpha of section 4.2."""
SECOND = (
    "Chen, Deng and Luo 2020 (AOQ), section 4.2: margins, beta, alpha, 300 captions and 60 pictures, "
    "learning rate and its fall, both rounds as on Flickr30K; an epoch of all negatives of the batch first, "
    "from the code of Chen et al. 2021 (VSE-infinity)"
)


def vsepp(feature: Feature) -> Recipe:
    """Describe plain VSE++, trained in two rounds; the paper has no such row."""
    return replace(
        _of(plain.vsepp(feature, "gru"), epochs=20, learning_rate=2e-4, decay_epochs=10),
        first_round=FirstRound(),
    )


def vsrn(feature: Feature) -> Recipe:
    """Describe VSRN, trained in two rounds; the captioning loss takes part in both."""
    recipe = _of(vsrns.vsrn(feature), epochs=20, learning_rate=2e-4, decay_epochs=10)
    return replace(recipe, first_round=FirstRound((Part("triplet"), Part("captioning"))))


def scan(feature: Feature) -> Recipe:
    """Describe SCAN, trained once, with negatives that another model has mined; the paper uses VSRN."""
    return _of(scans.scan(feature), epochs=15, learning_rate=5e-4, decay_epochs=10)


def bfan(feature: Feature) -> Recipe:
    """Describe BFAN, trained once, with negatives that another model has mined; the paper uses VSRN."""
    return _of(bfans.bfan(feature), epochs=15, learning_rate=5e-4, decay_epochs=10)


SYSTEMS = (vsepp, vsrn, scan, bfan)


def _of(system: Recipe, epochs: int, learning_rate: float, decay_epochs: int) -> Recipe:
    """Return a system that learns by AOQ's loss in place of the triplet loss; its other losses stay."""
    return replace(
        system,
        name=f"aoq_{system.name}",
        source=f"{SECOND}; the system: {system.source}",
        losses=tuple(LOSS if part.name == "triplet" else part for part in system.losses),
        training=replace(
            system.training, epochs=epochs, learning_rate=learning_rate, decay_epochs=decay_epochs
        ),
    )


def _loss(name: str, **options: Any) -> dict[str, Any]:
    """Put another loss in the place of AOQ's."""
    return {f"losses.{LOSS.name}": Part(name, options)}


VARIANTS: dict[str, dict[str, Any]] = {
    # Tables 1 and 2: what the system was without it, and what each step adds.
    "online": _loss("triplet") | {"first_round": None},
    "offline_triplet": _loss("offline_triplet"),
    "offline_quintuplet": _loss("offline_quintuplet"),
    # Table 3. Without online terms there is no first epoch of the batch's negatives either, nor for weights
    # that are trained already.
    "only_offline": _loss("offline_quintuplet", online=False, warmup_epochs=0),
    "fine_tuned": {"first_round.keeps_weights": True, f"losses.{LOSS.name}.warmup_epochs": 0},
    "online_quintuplet": _loss("offline_quintuplet", online_quintuplet=True),
    "without_offline_weights": {f"losses.{LOSS.name}.against": "positive"},
    # What the paper does not ask: what the weights' own gradient is worth, and weights below 0.
    "detached_weights": {f"losses.{LOSS.name}.weights": "detached"},
    "clamped_weights": {f"losses.{LOSS.name}.weights": "clamped"},
    # For systems without a first round, for which another one's model mines in an experiment.
    "lists": {"first_round": FirstRound()},
    **{f"top_{h}": {"first_round.texts": h, "first_round.pictures": h // 5} for h in (50, 200, 500, 1000)},
}
"""What the paper compares with, removes or replaces, by name: changes to a recipe.

`fine_tuned` and `top_50` to `top_1000` are for systems with a first round.
"""
