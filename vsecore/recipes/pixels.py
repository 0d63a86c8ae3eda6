"""Systems that are trained from pixels: the network behind the pictures learns with the rest."""

from dataclasses import replace
from typing import Any

from vsecore.recipes.recipe import ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.two_ad import two_ad
from vsecore.recipes.vse_infinity import RESNEXT101
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


def two_ad_pixels(text: Reader) -> Recipe:
    """Describe 2AD from pixels: AdPool over the cells of a network that learns after the first epoch."""
    system = two_ad("grid", text)
    return replace(
        system,
        name=f"2ad_pixels_{text}",
        source=(
            "Zhang et al. 2022 (2AD), section 4.2 and appendix B: the network of grids is frozen for one "
            "epoch and learns at a tenth of the rate in the other 24, on pictures of 512 pixels; ResNeXt-101 "
            "in place of the network of Jiang et al. 2020, which no hub has; fixed batch normalisation from "
            "Chen et al. 2021's code; a fifth left out of the words alone; all else as on extracted features"
        ),
        image=ImageTower(
            encoder=Part("pixels", {"network": RESNEXT101, "picture_size": 512}), pool=system.image.pool
        ),
        training=replace(system.training, picture_factor=0.1, frozen_epochs=1),
    )


VARIANTS: dict[str, dict[str, Any]] = {
    # For one processor: a network of 2.2 million weights on small pictures, which Flickr8k can train.
    "small_network": {
        "image.encoder.network": "mobilenetv2_100_same",
        "image.encoder.picture_size": 224,
        "training.batch_size": 32,
    },
    # 2AD's patches: a ViT on pictures of 224 pixels, with the weights that the paper began with.
    "vit": {
        "image.encoder.network": "vit_base_patch16_224.orig_in21k_ft_in1k",
        "image.encoder.picture_size": 224,
    },
}
"""Other networks behind the pictures, by name."""
