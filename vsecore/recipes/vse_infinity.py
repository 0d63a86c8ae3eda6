"""VSE-infinity: VSE++ with generalised pooling (GPO) in both towers."""

from dataclasses import replace

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.two_ad import two_ad
from vsecore.recipes.vsepp import READERS, Feature, Reader

RESNEXT101 = "resnext101_32x8d.fb_wsl_ig1b_ft_in1k"
"""Trained on Instagram's hashtags."""


def vse_infinity(feature: Feature, text: Reader) -> Recipe:
    """Describe VSE-infinity on extracted features: GPO, and the hardest negative after an epoch of all."""
    return replace(
        two_ad(feature, text).override({"image.pool": "gpo", "text.pool": "gpo", "losses": "triplet"}),
        name=f"vse_infinity_{feature}_{text}",
        source=(
            "Chen et al. 2021 (VSE-infinity) by their code, which 2AD is built on: width, batch, epochs, "
            "AdamW, learning rate and its fall, weight decay, gradient clipping, margin, an epoch of all "
            "negatives, a fifth of the elements and words left out"
        ),
    )


def gpo_pixels(text: Reader) -> Recipe:
    """Describe VSE-infinity from pixels: GPO in both towers, a large network with small steps."""
    return Recipe(
        name=f"gpo_pixels_{text}",
        source=(
            "Chen et al. 2021 (VSE-infinity): ResNeXt-101 trained on Instagram, 512 pixels, GPO in both "
            "towers, a fifth of the elements and words left out (here of the words); Kim, Kim and Kwak 2023 "
            "(DivE), appendix, for what trains it: batch of 128 pictures with all their captions, a tenth of "
            "the learning rate for the network, which rests for an epoch, fixed batch normalisation"
        ),
        image=ImageTower(
            encoder=Part("pixels", {"network": RESNEXT101, "picture_size": 512}),
            pool=Part("gpo"),
        ),
        text=TextTower(encoder=READERS[text], pool=Part("gpo"), word_drop=0.2),
        training=Training(
            epochs=25,
            batches="pictures",
            optimizer="AdamW",
            learning_rate=5e-4,
            weight_decay=1e-4,
            picture_factor=0.1,
            frozen_epochs=1,
        ),
    )
