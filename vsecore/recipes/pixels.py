"""Systems that are trained from pixels: the network behind the pictures learns with the rest."""

from typing import Any

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.vsepp import READERS, Reader

RESNET152 = "resnet152.tv_in1k"
"""With torchvision's first weights, which the papers had; for a bare "resnet152" timm takes newer ones."""


def vsepp_pixels(text: Reader) -> Recipe:
    """Describe VSE++ with its network fine-tuned: first everything else is trained, then all of it."""
    return Recipe(
        name=f"vsepp_pixels_{text}",
        source=(
            "Faghri et al. 2018 (VSE++), section 4.1: ResNet-152, random cuts, margin, Adam, 2e-4 for 15 "
            "epochs with the network at rest, then 15 more that train it at 2e-5 (in the paper 30 and 15, "
            "with a fall of the learning rate within the 30); cells and their mean in place of the map's "
            "mean; BiGRU from Lee et al. 2018 (SCAN); fixed batch normalisation from Chen et al. 2021's code"
        ),
        image=ImageTower(encoder=Part("pixels", {"network": RESNET152})),
        text=TextTower(encoder=READERS[text]),
        training=Training(epochs=30, decay_epochs=15, picture_factor=1.0, frozen_epochs=15),
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
            encoder=Part("pixels", {"network": "resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "picture_size": 512}),
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


VARIANTS: dict[str, dict[str, Any]] = {
    # For one processor: a network of 2.2 million weights on small pictures, which Flickr8k can train.
    "small_network": {
        "image.encoder.network": "mobilenetv2_100_same",
        "image.encoder.picture_size": 224,
        "training.batch_size": 32,
    },
}
"""Changes of scale, by name."""
