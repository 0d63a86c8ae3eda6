"""Recipes: every system as plain data, and the model that each gives. One file per paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from vsecore.recipes import (
    aoq,
    bfan,
    dive,
    ltd,
    pcme,
    pixels,
    pretrained,
    scan,
    sgraf,
    small,
    thesis,
    two_ad,
    vse_infinity,
    vsrn,
)
from vsecore.recipes.pvse import pvse
from vsecore.recipes.recipe import FirstRound, ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.tern import tern
from vsecore.recipes.vsepp import vsepp
from vsecore.recipes.written import ENDINGS, read_recipe_file
from vsecore.typed import unknown

__all__ = [
    "RECIPES",
    "VARIANTS",
    "FirstRound",
    "ImageTower",
    "Part",
    "Recipe",
    "TextTower",
    "Training",
    "get",
]

_COMPARED: tuple[Literal["grid", "region"], ...] = ("grid", "region")

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        *(
            make(feature, text)
            for make in (vsepp, two_ad.two_ad, vse_infinity.vse_infinity)
            for text in ("gru", "bert")
            for feature in ("grid", "region", "patch")
        ),
        *(small.window(feature) for feature in ("grid", "patch")),
        *(
            make(feature)
            for make in (
                thesis.thesis,
                scan.scan,
                bfan.bfan,
                sgraf.sgraf,
                vsrn.vsrn,
                pvse,
                pcme.pcme,
                ltd.ltd,
                ltd.vsrn,
            )
            for feature in _COMPARED
        ),
        *(tern(feature, text) for feature in _COMPARED for text in ("bert", "words")),
        *(recipe for feature in _COMPARED for recipe in aoq.aoq(feature)),
        *(dive.dive(feature, "gru") for feature in _COMPARED),
        dive.dive("grid", "bert"),
        *(dive.dive("pixels", text) for text in ("gru", "bert")),
        *(
            make(text)
            for make in (pixels.vsepp_pixels, vse_infinity.gpo_pixels, pixels.two_ad_pixels)
            for text in ("gru", "bert")
        ),
        pretrained.towers("clip", "clip_base_patch32", "openai/clip-vit-base-patch32", 512),
        pretrained.towers("clip", "clip_large_patch14", "openai/clip-vit-large-patch14", 768),
        pretrained.towers("siglip", "siglip_base_patch16", "google/siglip-base-patch16-224", 768),
        pretrained.towers("siglip", "siglip2_base_patch16", "google/siglip2-base-patch16-224", 768),
    )
}
"""Every system by name."""

VARIANTS: dict[str, dict[str, Any]] = {
    variant: changes
    for variants in (
        *(
            work.VARIANTS
            for work in (two_ad, small, thesis, scan, bfan, sgraf, vsrn, aoq, dive, pcme, ltd, pixels)
        ),
        two_ad.COMBINED,
    )
    for variant, changes in variants.items()
}
"""Named changes to a recipe: the parts that papers remove or replace."""


def get(name: str, scale: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe with this name, changed by the variants that follow it.

    Args:
        name: a key of `RECIPES`, then keys of `VARIANTS`, each after a plus sign, of which later ones win; or
            the folder of a CLIP or SigLIP, see `pretrained.of_folder`; or, in place of the key, a YAML file
            (`recipes.written`).
        scale: changes made before the variants, such as fewer epochs for all systems that are compared.

    Raises:
        ValueError: there is no such recipe or variant; the message says similar names.

    Example:
        >>> get("2ad_region_gru+gpo").image.pool.name
        'gpo'
    """
    base, *variants = name.split("+")
    if pretrained.is_folder(name):
        return pretrained.of_folder(name).override(scale or {})
    if base.endswith(ENDINGS):
        recipe = read_recipe_file(base, get)
        name = "+".join([recipe.name, *variants])
    elif base in RECIPES:
        recipe = RECIPES[base]
    else:
        raise unknown("recipe", base, RECIPES, "vse recipes")
    recipe = recipe.override(scale or {})
    for variant in variants:
        if variant not in VARIANTS:
            raise unknown("variant", variant, VARIANTS, f"vse recipes {base}")
        recipe = recipe.override(VARIANTS[variant])
    return recipe.override({"name": name})
