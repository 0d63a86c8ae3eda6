"""The thesis: a Transformer over entities in both towers, and losses that align the entities themselves."""

from typing import Any, Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training

CELLS = 49
"""Cells of a grid of 7 x 7."""


def thesis(feature: Literal["grid", "region"]) -> Recipe:
    """Describe the basic system: a block over cells, two over words, mean pooling.

    Regions get no positions, since the order of a detector's boxes means nothing.
    """
    positions = CELLS if feature == "grid" else 0
    return Recipe(
        name=f"thesis_{feature}",
        source=(
            "Yan 2019 (thesis), chapter 2: layers, learned positions, random left padding, 48 words; section "
            "3.4: width, batch, epochs, Adam, margin, weights of the losses. Its learning rate is 2e-5, 1e-5 "
            "from epoch 9 and 2e-6 from epoch 15; here it falls twice by one factor, every 7 epochs, to the "
            "same last rate. Chosen, because the thesis does not say: the mean as the pool (it names mean or "
            "max), heads, hidden width, dropout, gradient clipping. Its word vectors are fastText's: give "
            "their file as vectors. An epoch of all negatives before the hardest from Chen et al. 2021's code"
        ),
        image=ImageTower(
            encoder=Part(feature),
            reasoner=Part("transformer", {"positions": positions} if positions else {}),
        ),
        text=TextTower(encoder=Part("transformer")),
        training=Training(epochs=20, learning_rate=2e-5, decay_epochs=7, decay_factor=0.316),
    )


VARIANTS: dict[str, dict[str, Any]] = {
    # Section 2.5: the two losses on entities, with the weights of section 3.4.
    "node_pooling": {"losses": (Part("triplet", weight=0.2), Part("node_pooling", weight=0.8))},
    "node_cross_attention": {"losses": (Part("triplet"), Part("node_cross_attention", weight=0.15))},
    # What the parts are worth.
    "without_positions": {"image.reasoner.positions": 0, "text.encoder.positions": False},
    "without_left_padding": {"text.encoder.left_padding": False},
    "printed_residual": {"image.reasoner.printed_residual": True, "text.encoder.printed_residual": True},
    # Captions as sets of words, each projected by itself.
    "mean_words": {"text.encoder.layers": 0, "text.encoder.positions": False},
}
"""What the thesis adds or compares with, by name: changes to a recipe."""
