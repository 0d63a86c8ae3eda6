"""Systems for small collections and machines: Flickr8k's 6,000 pictures on one processor, in minutes."""

from typing import Any, Literal

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training


def window(feature: Literal["grid", "patch"]) -> Recipe:
    """Describe a system that reads words with their neighbours.

    A batch has all captions of its pictures, and every negative in it counts.
    """
    return Recipe(
        name=f"window_{feature}",
        source=(
            "chosen on Flickr8k's development split: pictures with all their captions, learning rate and its "
            "fall, word vectors of width 50, what is left out in training; the window from Ma et al. 2015 "
            "(m-CNN), the loss from Radford et al. 2021 (CLIP)"
        ),
        dim=512,
        image=ImageTower(encoder=Part(feature, {"drop": 0.3})),
        text=TextTower(encoder=Part("window", {"word_dim": 50}), pool=Part("max"), word_drop=0.2),
        losses=(Part("info_nce"),),
        training=Training(
            epochs=8,
            batch_size=64,
            batches="pictures",
            optimizer="AdamW",
            learning_rate=4e-3,
            weight_decay=1e-4,
            warmup_steps=30,
            schedule="cosine",
        ),
    )


VARIANTS: dict[str, dict[str, Any]] = {
    # VSE++ for one processor and 6,000 pictures. The hardest negatives come late, since a run is so short.
    "laptop": {
        "dim": 256,
        "text.encoder.word_dim": 50,
        "losses": Part("triplet", {"warmup_epochs": 3}),
        "training.epochs": 6,
        "training.batches": "pictures",
        "training.batch_size": 64,
        "training.learning_rate": 1e-3,
        "training.warmup_steps": 30,
        "training.schedule": "cosine",
    },
}
"""Changes of scale, by name."""
