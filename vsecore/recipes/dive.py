"""DivE: sets of diverse embeddings, predicted by slot attention and compared by smooth-Chamfer similarity."""

from typing import Any, Literal

from vsecore.recipes.pixels import RESNET152
from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.vsepp import READERS

WORDS = Part("transformer", {"layers": 0, "positions": False})
"""Word vectors, each projected by itself: the elements of a caption whose sentence a pool reads."""

_NETWORKS: dict[tuple[str, str], dict[str, Any]] = {
    ("grid", "gru"): {
        "where": "ResNet-152 and BiGRU",
        "picture": {"hidden": 1024, "positions": "grid", "global_pool": "mean"},
        "caption": {"hidden": 1024, "positions": "line", "global_pool": "seq2seq"},
        "triplet": {"margin": 0.1, "warmup_epochs": 0},
        "training": {"epochs": 120, "learning_rate": 2e-3, "set_factor": 0.01, "decay_epochs": 10},
    },
    ("region", "gru"): {
        "where": "Faster R-CNN and BiGRU",
        "picture": {"hidden": 2048, "global_pool": "max"},
        "caption": {"hidden": 2048, "positions": "line", "global_pool": "seq2seq"},
        "triplet": {"margin": 0.2, "warmup_epochs": 0},
        "drop": 0.2,
        "training": {"epochs": 80, "learning_rate": 1e-3, "set_factor": 0.05, "schedule": "cosine"},
    },
    ("grid", "bert"): {
        "where": "ResNeXt-101 and BERT",
        "picture": {"hidden": 1024, "positions": "grid", "global_pool": "mean"},
        "caption": {"hidden": 1024, "global_pool": "max"},
        "triplet": {"margin": 0.1, "warmup_epochs": 1},
        "training": {"epochs": 50, "batch_size": 128, "learning_rate": 1e-4, "decay_epochs": 20},
    },
}
"""What differs between the three kinds of features: section 4.2 and appendix A."""
_FROM_PIXELS: dict[str, dict[str, Any]] = {
    "gru": {
        "network": {"network": RESNET152},
        "training": {"picture_factor": 1.0, "frozen_epochs": 50},
        "chosen": "the full learning rate for the network of pictures once it learns, which is not said",
    },
    "bert": {
        "network": {"network": "resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "picture_size": 512},
        "training": {"picture_factor": 0.1, "frozen_epochs": 1},
        "chosen": "BERT rests for the first epoch too",
    },
}
"""What training the network of the grids adds, for each reader of captions: section 4.3 and appendix A."""


def dive(feature: Literal["grid", "region", "pixels"], text: Literal["gru", "bert"]) -> Recipe:
    """Describe DivE on one kind of features, with one kind of caption encoder.

    With "gru", the word vectors of a caption are its local features, and a BiGRU over them makes the global
    one. A batch has all captions of its pictures. From "pixels", the network behind the cells of a grid is
    trained too, as in the paper, after some epochs at rest and with fixed batch normalisation.

    Raises:
        ValueError: the paper has no such system: regions with BERT.
    """
    pixels = _FROM_PIXELS[text] if feature == "pixels" and text in _FROM_PIXELS else None
    kind = "grid" if pixels else feature
    if (kind, text) not in _NETWORKS:
        raise ValueError(
            f"feature and text are {feature!r}, {text!r}: they must be one of {list(_NETWORKS)}, or have "
            "'pixels' in place of 'grid'"
        )
    network = _NETWORKS[kind, text]
    picture, caption = ({"heads": 4, "drop": 0.1, **network[side]} for side in ("picture", "caption"))
    left_out = network.get("drop", 0.0)
    chosen = (
        "a tenth of the learning rate for BERT"
        if text == "bert"
        else "the learning rate and its part for the set prediction, of the two that it gives, as for "
        "Flickr30K. GloVe vectors: give their file as vectors"
    )
    return Recipe(
        name=f"dive_{feature}_{text}",
        source=(
            "Kim, Kim and Kwak 2023 (DivE), sections 3 and 4.2, appendix A, "
            f"{network['where']}: width, slots, rounds, width of the attention, margin, weights of the "
            "losses, batch with all captions of its pictures, AdamW, learning rate and its fall, epochs, "
            "what is left out in training. Its released code, which is for regions: four heads, sines on "
            "the words, dropout, weight decay, gradient clipping, the mean over pairs, the kernel of the "
            "discrepancy, the diversity's scale. "
            + (
                f"The network is trained as in the appendix. Chosen: {pixels['chosen']}; {chosen}"
                if pixels
                else "Features as they were extracted, where the paper trains the networks of grids too. "
                f"Chosen: {chosen}"
            )
        ),
        image=ImageTower(
            encoder=Part("pixels", pixels["network"]) if pixels else Part(feature),
            pool=Part("slots", picture),
            element_drop=left_out,
        ),
        text=TextTower(
            encoder=WORDS if text == "gru" else READERS["bert"],
            pool=Part("slots", caption),
            word_drop=left_out,
        ),
        similarity=Part("smooth_chamfer"),
        losses=(
            Part("triplet", {"reduction": "mean", **network["triplet"]}),
            Part("mmd", weight=0.01),
            Part("diversity", weight=0.01),
        ),
        training=Training(
            **{
                "batch_size": 200,
                "batches": "pictures",
                "optimizer": "AdamW",
                "weight_decay": 1e-4,
                "clip_norm": 1.0,
                **network["training"],
                **(pixels["training"] if pixels else {}),
            }
        ),
    )


def _both(**options: Any) -> dict[str, Any]:
    """Change options of the pools of both towers."""
    return {f"{tower}.pool.{name}": value for tower in ("image", "text") for name, value in options.items()}


def _predicted_by(name: str, of_pictures: str) -> dict[str, Any]:
    """Predict the sets of both towers by another module, from the same global features."""
    return {
        "image.pool": Part(name, {"global_pool": of_pictures}),
        "text.pool": Part(name, {"global_pool": "seq2seq"}),
    }


VARIANTS: dict[str, dict[str, Any]] = {
    # Table 3: other similarities. The paper prints a sum for the match probability, and speaks of an average.
    "mil": {"similarity": Part("mil")},
    "match_probability": {"similarity": Part("match_probability")},
    "match_probability_sum": {"similarity": Part("match_probability", {"reduce": "sum"})},
    "chamfer": {"similarity": Part("chamfer")},
    # Late interaction, one side of Chamfer. Its mean has the scale of the other similarities.
    "max_sim": {"similarity": Part("max_sim", {"reduce": "mean"})},
    # Table 3: other modules that predict sets, for regions with BiGRU as there, and for cells.
    "pie_net": _predicted_by("pie_net", "max"),
    "transformer_set": _predicted_by("transformer_set", "max"),
    "pie_net_of_cells": _predicted_by("pie_net", "mean"),
    "transformer_set_of_cells": _predicted_by("transformer_set", "mean"),
    # The one change that makes slots compete, undone.
    "softmax_over_elements": _both(softmax_over="elements"),
    # Table 4: how many slots, how many rounds, how sharp; 4, 4 and 16 in the paper's systems.
    **{f"slots_{count}": _both(slots=count) for count in (1, 2, 3, 5, 6)},
    **{f"rounds_{count}": _both(iterations=count) for count in (1, 2, 3, 5, 6)},
    **{f"alpha_{alpha}": {"similarity.alpha": float(alpha)} for alpha in (1, 2, 4, 8, 32, 64)},
    # Appendix B.3: what was changed in slot attention.
    "random_slots": _both(learned_slots=False),
    "gru_slots": _both(residual=False),
    "without_global": _both(add_global=False),
    "slot_attention": _both(learned_slots=False, residual=False, add_global=False),
    # What each regularizer is worth, and the usual Gaussian kernel.
    "without_mmd": {"losses.mmd.weight": 0.0},
    "without_diversity": {"losses.diversity.weight": 0.0},
    "without_regularizers": {"losses.mmd.weight": 0.0, "losses.diversity.weight": 0.0},
    "gaussian_kernel": {"losses.mmd.squared": True},
    # For COCO, grids and regions with BiGRU.
    "dive_coco": {"training.learning_rate": 1e-3, "training.set_factor": 0.1},
    # What the released code, which is for regions, leaves out beside the set prediction module.
    "released_dropout": {
        "image.encoder.drop": 0.1,
        "text.encoder.word_drop": 0.1,
        "text.pool.global_drop": 0.1,
    },
    # An epoch of all negatives before the hardest.
    "later_hardest": {"losses.triplet.warmup_epochs": 1},
    # For the small trainings on scenes: in a space of width 128, slots as wide as the printed ones would take
    # most of the time; and an epoch of 4,000 pictures would have 20 batches of 200, too few to learn from. In
    # fifteen epochs, modules that learn at a twentieth of the rate do not get far.
    "narrow": _both(hidden=None, expansion=1),
    "small_batches": {"training.batch_size": 32},
    "whole_rate": {"training.set_factor": 1.0},
    # Leaving out a fifth of the words and elements suits the paper's epochs on photographs. In fifteen epochs
    # of scenes, where every word counts, the hardest triplet cannot bear it.
    "whole_input": {"image.element_drop": 0.0, "text.word_drop": 0.0},
    "fifth_left_out": {"image.element_drop": 0.2, "text.word_drop": 0.2},
    # The encoder of the other systems: words that have read their sentence, and their mean.
    "words_in_context": {"text.encoder": "gru", "text.pool.global_pool": "mean"},
}
"""What the paper removes or replaces, and its settings for COCO, by name: changes to a recipe."""
