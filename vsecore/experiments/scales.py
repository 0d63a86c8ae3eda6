"""The worlds of scenes that experiments run in, and how wide and how long their trainings are."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, get_args

from vsecore.data.splits import FeatureKind
from vsecore.encoders import TEXT_ENCODERS
from vsecore.recipes import FirstRound, Recipe, get
from vsecore.recipes.plain import as_json

SCENES = "scenes"
"""The world of most experiments; elsewhere also the name for the scenes of any world."""
WORLDS: dict[str, dict[str, Any]] = {
    SCENES: {},
    "scenes_near_duplicates": {"near_duplicates": 0.5},  # half of them differ from another in one fact
    "scenes_ambiguous": {"ambiguity": 0.6},  # a caption says less, and fits several pictures
}
"""The knobs of each world, as `scenes.load` takes them, by the name that its records give the data."""
ONE_KIND: dict[str, FeatureKind] = {"flickr8k": "grid"}
"""Data that come with one kind of features."""


def on_every_processor(data: Mapping[str, Any], alike: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a record's entry for the data, the same whichever processor made the features.

    That of scenes is left out; that of other features is replaced by the one that stands for it in `alike`,
    see `references.alike`.
    """
    found, own = dict(data), data.get("fingerprint", "")
    if data.get("name") in WORLDS:
        found.pop("fingerprint", None)
    elif alike and own in alike:
        found["fingerprint"] = alike[own]
    if "members" in found:
        found["members"] = [on_every_processor(member, alike) for member in found["members"]]
    return found


Scale = Literal["paper", "fair", "lesson"]
"""At the scale of the paper, recipes have their own width, epochs and learning rate. Fair trainings may be
judged: each system has a learning rate of its own (see `tuning`), and all in a world have the same width and
number of epochs, unless an arm says otherwise; `gates` asks whether they were enough. A lesson takes minutes,
and so it ranks the systems by how fast they learn."""

LESSON_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.encoder.word_dim": 64,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.warmup_steps": 0,
        "training.decay_epochs": 2,
    },
    "flickr8k": {
        "dim": 128,
        "text.encoder.word_dim": 50,
        "training.epochs": 3,
        "training.learning_rate": 2e-3,
        "training.schedule": "cosine",
    },
}
"""Changes that let the papers' recipes, meant for COCO and a GPU, run in minutes on two cores."""

FAIR_SCALE: dict[str, dict[str, Any]] = {
    "scenes": {
        "dim": 128,
        "text.encoder.word_dim": 64,
        "training.epochs": 15,
        "training.schedule": "cosine",
        "first_round.texts": 25,
        "first_round.pictures": 5,
    },
    "flickr8k": {
        "dim": 512,
        "text.encoder.word_dim": 300,
        "training.epochs": 15,
        "training.schedule": "cosine",
        "first_round.texts": 40,
        "first_round.pictures": 8,
    },
}
"""Changes that give each system long enough for most to level off, with a schedule that ends low. Lists of
mined negatives shrink with the training set: see `at_scale`."""
FAIR_SCALE["scenes_ambiguous"] = FAIR_SCALE["scenes"] | {"training.epochs": 20}
"""Sets learn longer: after 15 epochs, DivE had not levelled off."""


FOR_SMALL = (
    "narrow",
    "small_batches",
    "small_batches_of_pictures",
    "whole_rate",
    "later_hardest",
    "whole_input",
    "small_decoder",
    "fast_multiplier",
    "weight_60",
    "short_warmup",
)
"""Variants in `assets/experiments.yml` that suit short trainings of narrow systems; no paper has them."""


FOR_COLLECTION: dict[str, dict[str, str]] = {
    "coco": {
        "scan_{features}_gru": "scan_coco",
        "i2t": "i2t_coco",
        "bfan_{features}_gru": "bfan_coco",
        "dive_{features}_gru": "dive_coco",
    },
    "flickr30k": {
        "vsrn_{features}": "vsrn_flickr30k",
        "sgraf_{features}_gru": "sgr_flickr30k",
        "filtration": "saf_flickr30k",
    },
}
"""What papers change on a collection, where a recipe is for another one: variants, by the recipe or variant
of `assets/experiments.yml` that they follow."""


def as_printed(variants: str, data: str = "") -> str:
    """Return variants, after a recipe's name or not, as papers train on some data: without `FOR_SMALL`."""
    own = FOR_COLLECTION.get(as_published(data), {})
    kept = [one for one in variants.split("+") if one not in FOR_SMALL]
    return "+".join(name for one in kept for name in (one, own.get(one)) if name is not None)


def as_published(data: str) -> str:
    """Return what published rows call a collection, whose folder may be `coco_precomp` or `f30k_precomp`."""
    name = data.removesuffix("_precomp")
    return "flickr30k" if name == "f30k" else name


def collection_of(data: str) -> str:
    """Return "scenes" for the name of any world of scenes, and every other name as it is."""
    return SCENES if data in WORLDS else data


def changes_of(scale: Scale, data: str) -> dict[str, Any]:
    """Return the changes that a scale makes to each recipe; a world of scenes may have its own.

    Other data are photographs, which all have those of Flickr8k.
    """
    if scale not in get_args(Scale):
        raise ValueError(f"scale is {scale!r}: wanted one of {', '.join(get_args(Scale))}")
    if scale == "paper":
        return {}  # but see `as_printed`
    changes = FAIR_SCALE if scale == "fair" else LESSON_SCALE
    return next(changes[one] for one in (data, collection_of(data), "flickr8k") if one in changes)


def at_scale(name: str, changes: Mapping[str, Any]) -> Recipe:
    """Return a recipe with the changes that a scale makes to all systems.

    Lists of 300 captions and 60 pictures are a small share of the training sets that AOQ mines, and a large
    one of 4,000 pictures. `first_round.texts` and `first_round.pictures` are what stands for these 300 and
    60; lists of other lengths shrink as much, though not below two, between which there is a choice, and
    systems without lists are left alone. Pretrained weights rest for the same share of the epochs. Name and
    changes are in the form of `recipes.get`.
    """
    return _at_scale(name, json.dumps(as_json(changes)))


@cache  # tables, claims and pages ask for the same recipes thousands of times
def _at_scale(name: str, written: str) -> Recipe:
    changes = json.loads(written)
    lists = {"first_round.texts": "texts", "first_round.pictures": "pictures"}
    shared = {field: value for field, value in changes.items() if field not in lists}
    if not TEXT_ENCODERS.takes(get(name).text.encoder.name, "word_dim"):
        shared.pop("text.encoder.word_dim", None)  # BERT has a width of its own
    recipe, printed = get(name, shared), get(name).training
    if printed.frozen_epochs:  # for as large a share of the epochs, and never for all of them
        epochs = recipe.training.epochs
        share = round(printed.frozen_epochs / printed.epochs * epochs)
        recipe = recipe.override({"training.frozen_epochs": min(max(1, share), epochs - 1)})
    if recipe.first_round is None:
        return recipe
    own, usual = vars(recipe.first_round), vars(FirstRound())
    scaled = {
        field: int(changes[field]) * own[x] / usual[x] for field, x in lists.items() if field in changes
    }
    return recipe.override({field: max(2, round(length)) for field, length in scaled.items()})
