"""Recipes: every system of the course as plain data, and the model that each describes."""

from vsecore.recipes.recipe import (
    IMAGE_ENCODERS,
    RECIPES,
    SIMILARITIES,
    VARIANTS,
    ImageSettings,
    LossSettings,
    Recipe,
    TextSettings,
    TrainingSettings,
    get,
)

__all__ = [
    "IMAGE_ENCODERS",
    "RECIPES",
    "SIMILARITIES",
    "VARIANTS",
    "ImageSettings",
    "LossSettings",
    "Recipe",
    "TextSettings",
    "TrainingSettings",
    "get",
]
