"""Options: one out of its range is named, by the part itself and by a recipe before anything is built."""

import pytest
import torch

from vsecore.encoders import IMAGE_ENCODERS, TEXT_ENCODERS, BiGRUEncoder
from vsecore.encoders.reasoning import REASONERS
from vsecore.pooling import POOLS
from vsecore.recipes import Part, get
from vsecore.sets import PIENet, SlotSetPrediction, TransformerSet

CONTEXT = {"dim": 8, "feature_dim": 7, "vocabulary_size": 30}
NEEDED = {"kmax": {"k": 1}}
BAD = [
    (POOLS, "image.pool", "kmax", "k", [0, -1, 1.5, "3", True]),
    (POOLS, "image.pool", "generalized_mean", "power", [0.0, -1, "much"]),
    (POOLS, "image.pool", "adpool", "token_share", [1.5, -0.1, "much"]),
    (POOLS, "image.pool", "gcn", "layers", [0, 1.5, True]),
    (POOLS, "image.pool", "gpo", "position_dim", [0, 3, True]),
    (POOLS, "image.pool", "gpo", "hidden", [0, 1.5]),
    (POOLS, "image.pool", "gpo", "temperature", [0, -1]),
    (POOLS, "image.pool", "attention", "heads", [0, 3, True]),
    (POOLS, "image.pool", "slots", "slots", [0]),
    (POOLS, "image.pool", "slots", "iterations", [True]),
    (POOLS, "image.pool", "slots", "hidden", [2.0]),
    (POOLS, "image.pool", "slots", "heads", [3]),
    (POOLS, "image.pool", "slots", "expansion", [0]),
    (POOLS, "image.pool", "slots", "positions", ["ring"]),
    (POOLS, "image.pool", "slots", "softmax_over", ["all"]),
    (POOLS, "image.pool", "slots", "drop", [1.0, -0.1]),
    (POOLS, "image.pool", "slots", "global_pool", ["median"]),
    (POOLS, "image.pool", "pie_net", "slots", [-1]),
    (POOLS, "image.pool", "pie_net", "hidden", [0]),
    (POOLS, "image.pool", "transformer_set", "heads", [3]),
    (POOLS, "image.pool", "transformer_set", "layers", [0]),
    (POOLS, "image.pool", "gaussian", "global_pool", ["median"]),
    (POOLS, "image.pool", "projected", "pool", ["median"]),
    (REASONERS, "image.reasoner", "transformer", "heads", [3, 0]),
    (REASONERS, "image.reasoner", "transformer", "layers", [0]),
    (REASONERS, "image.reasoner", "transformer", "positions", [-1]),
    (REASONERS, "image.reasoner", "transformer", "hidden", [0]),
    (REASONERS, "image.reasoner", "transformer", "drop", [1.0, None]),
    (REASONERS, "image.reasoner", "region_graph", "layers", [0, True]),
    (IMAGE_ENCODERS, "image.encoder", "grid", "drop", [1.0, -0.1]),
    (TEXT_ENCODERS, "text.encoder", "gru", "word_dim", [0, 8.0]),
    (TEXT_ENCODERS, "text.encoder", "forward_gru", "word_dim", [0, True]),
    (TEXT_ENCODERS, "text.encoder", "window", "window", [0, 2]),
    (TEXT_ENCODERS, "text.encoder", "window", "hidden", [0]),
    (TEXT_ENCODERS, "text.encoder", "window", "drop", [1.0]),
    (TEXT_ENCODERS, "text.encoder", "transformer", "heads", [3]),
    (TEXT_ENCODERS, "text.encoder", "transformer", "layers", [-1]),
    (TEXT_ENCODERS, "text.encoder", "transformer", "longest", [0]),
    (TEXT_ENCODERS, "text.encoder", "transformer", "drop", [-0.1]),
    (TEXT_ENCODERS, "text.encoder", "bert", "weights", [""]),
]
CASES = [(*case[:4], value) for case in BAD for value in case[4]]
ids = [f"{name}.{option}={value!r}" for _, _, name, option, value in CASES]
LATE = {("window", "window"), ("transformer", "heads"), ("bert", "weights")}  # seen when an encoder is built


@pytest.mark.parametrize(("registry", "place", "name", "option", "value"), CASES, ids=ids)
def test_an_option_out_of_its_range_is_named(registry, place, name, option, value):
    options = {**NEEDED.get(name, {}), option: value}
    with pytest.raises(ValueError, match=option):
        registry[name](**{key: CONTEXT[key] for key in CONTEXT if registry.takes(name, key)}, **options)
    with pytest.raises(ValueError, match=option):
        registry.build(name, options, **CONTEXT)
    if registry is not TEXT_ENCODERS or (name, option) not in LATE:
        with pytest.raises(ValueError, match=rf"{place}.*{option}"):
            get("vsepp_grid_gru").override({"dim": 8, place: Part(name, options)})


def test_other_arguments_out_of_their_range_are_named():
    for make, name in (
        (lambda: SlotSetPrediction(0), "dim"),
        (lambda: SlotSetPrediction(8, 0), "slots"),
        (lambda: PIENet(2.5), "dim"),
        (lambda: TransformerSet(8, slots=0), "slots"),
        (lambda: BiGRUEncoder.tokenizer(["a"], 0), "minimum_count"),
        (lambda: BiGRUEncoder(0), "vocabulary_size"),
        (lambda: BiGRUEncoder(30, 8, 6, torch.zeros(29, 8)), r"vectors.*\(30, 8\).*\(29, 8\)"),
        (lambda: REASONERS["transformer"](8, norm_last=True, printed_residual=True), "printed_residual"),
    ):
        with pytest.raises(ValueError, match=name):
            make()
