"""Options: one of another type or out of its range is named, by the part itself and by a recipe."""

import math

import pytest
import torch

from vsecore.encoders import IMAGE_ENCODERS, TEXT_ENCODERS, BiGRUEncoder
from vsecore.encoders.reasoning import REASONERS
from vsecore.losses import LOSSES
from vsecore.pooling import POOLS
from vsecore.recipes import Part, get
from vsecore.sets import PIENet, SlotSetPrediction, TransformerSet
from vsecore.similarity import SIMILARITIES, cross_attention

CONTEXT = {"dim": 8, "feature_dim": 7, "vocabulary_size": 30, "target_dim": 5}
PLACES = {
    "image.pool": POOLS,
    "image.reasoner": REASONERS,
    "image.encoder": IMAGE_ENCODERS,
    "text.encoder": TEXT_ENCODERS,
    "similarity": SIMILARITIES,
    "losses": LOSSES,
}
COUNT, SHARE, ABOVE_0, AT_LEAST_0 = [0, 1.5, True], [1.0, -0.1], [0, -1, math.nan], [-1, math.inf]
OUT_OF_RANGE = {  # by the option's name, whatever part it belongs to
    **dict.fromkeys(("k", "layers", "slots", "iterations", "hidden", "expansion", "samples"), COUNT),
    **dict.fromkeys(("pools", "negatives", "word_dim", "longest", "minimum_count"), COUNT),
    **dict.fromkeys(("power", "temperature", "alpha", "smooth", "lse", "gamma", "bound", "most"), ABOVE_0),
    **dict.fromkeys(("margin", "offline_margin", "beta", "kl_weight"), AT_LEAST_0),
    "heads": [0, 3, True],
    "position_dim": [0, 3],
    "window": [0, 2],
    "positions": [-1],
    "warmup_epochs": [-1, 0.5],
    "drop": SHARE,
    "negative_slope": [1.5, -0.1],
    "token_share": [1.5, -0.1],
}
FREE = {("transformer", "layers"): [-1], ("cross_attention", "smooth"): [0]}  # the former may have none
LATE = {("heads", 3), ("position_dim", 3), ("window", 2), ("layers", -1)}  # seen when it is built
NEEDED = {"kmax": {"k": 1}}
SKIPPED = ("pixels", "clip", "siglip", "bert")  # they read files first
CASES = [
    (place, name, option, value)
    for place, registry in PLACES.items()
    for name in registry
    if name not in SKIPPED
    for option in registry.options(name)
    for value in [
        "none of them",
        *(FREE if place == "text.encoder" else {}).get((name, option), OUT_OF_RANGE.get(option, [])),
    ]
]


@pytest.mark.parametrize(("place", "name", "option", "value"), CASES, ids=str)
def test_an_option_of_another_type_or_out_of_its_range_is_named(place, name, option, value):
    registry, options = PLACES[place], {**NEEDED.get(name, {}), option: value}
    context = {key: CONTEXT[key] for key in CONTEXT if registry.takes(name, key)}
    with pytest.raises(ValueError, match=option):
        registry.build(name, options, **CONTEXT)
    if option != "minimum_count":  # which the tokenizer takes
        with pytest.raises(ValueError, match=option):
            registry[name](**context, **options)
    written = isinstance(value, str) or math.isfinite(value)  # else JSON cannot say it
    if written and (option, value) not in LATE:
        changes = {place: [{"name": name, "options": options}] if place == "losses" else Part(name, options)}
        with pytest.raises(ValueError, match=rf"{place}.*{option}"):
            get("vsepp_grid_gru").override({"dim": 8, **changes})


def test_other_arguments_out_of_their_range_are_named():
    x = torch.zeros(2, 3, 4)
    for make, name in (
        (lambda: SlotSetPrediction(0), "dim"),
        (lambda: SlotSetPrediction(8, 0), "slots"),
        (lambda: PIENet(2.5), "dim"),
        (lambda: TransformerSet(8, slots=0), "slots"),
        (lambda: cross_attention(x, None, x, None, negative_slope=1.5), "negative_slope"),
        (lambda: LOSSES["latent_target"](dim=0, target_dim=5), "dim"),
        (lambda: LOSSES["latent_target"](dim=8, target_dim=0), "target_dim"),
        (lambda: LOSSES["input_target"](dim=8, vocabulary_size=True), "vocabulary_size"),
        (lambda: BiGRUEncoder.tokenizer(["a"], 0), "minimum_count"),
        (lambda: BiGRUEncoder(0), "vocabulary_size"),
        (lambda: BiGRUEncoder(30, 8, 6, torch.zeros(29, 8)), r"vectors.*\(30, 8\).*\(29, 8\)"),
        (lambda: REASONERS["transformer"](8, norm_last=True, printed_residual=True), "printed_residual"),
        (lambda: TEXT_ENCODERS["bert"]("", 8), "weights"),
    ):
        with pytest.raises(ValueError, match=name):
            make()
