"""AOQ: existing systems, trained again with negatives from the whole training set."""

from dataclasses import replace
from typing import Any, Literal

from vsecore.recipes.bfan import bfan
from vsecore.recipes.recipe import FirstRound, Part, Recipe
from vsecore.recipes.scan import scan
from vsecore.recipes.vsepp import vsepp
from vsecore.recipes.vsrn import vsrn

LOSS = Part("adaptive_offline_quintuplet")
"""With the margins, beta and alpha of section 4.2."""
SECOND = (
    "Chen, Deng and Luo 2020 (AOQ), section 4.2: margins, beta, alpha, 300 captions and 60 pictures, "
    "learning rate and its fall, both rounds as on Flickr30K; an epoch of all negatives of the batch first, "
    "from the code of Chen et al. 2021 (VSE-infinity)"
)


def aoq(feature: Literal["grid", "region"]) -> tuple[Recipe, ...]:
    """Describe VSE++ and VSRN, trained in two rounds, and SCAN and BFAN, trained once.

    The latter learn from negatives that another model has mined: in the paper, VSRN. It has no VSE++.
    """
    twice = {"epochs": 20, "learning_rate": 2e-4, "decay_epochs": 10}
    once = {"epochs": 15, "learning_rate": 5e-4, "decay_epochs": 10}
    return (
        replace(_of(vsepp(feature, "gru"), **twice), first_round=FirstRound()),
        replace(_of(vsrn(feature), **twice), first_round=FirstRound((Part("triplet"), Part("captioning")))),
        _of(scan(feature), **once),
        _of(bfan(feature), **once),
    )


def _of(system: Recipe, **training: Any) -> Recipe:
    """Return a system that learns by AOQ's loss in place of the triplet loss; its other losses stay."""
    return replace(
        system,
        name=f"aoq_{system.name}",
        source=f"{SECOND}; the system: {system.source}",
        losses=tuple(LOSS if part.name == "triplet" else part for part in system.losses),
        training=replace(system.training, **training),
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
