"""Recipes: every system as plain data, and the model that each gives. One YAML file per work."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsecore.data.files import expanded
from vsecore.encoders.pretrained_towers import kind_of, read_config, width_of
from vsecore.recipes.recipe import FirstRound, ImageTower, Part, Recipe, TextTower, Training
from vsecore.recipes.written import ENDINGS, read_recipe, read_recipe_file, read_work
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
    "is_towers",
]

# A work comes after those whose recipes it begins with.
_WORKS = (
    *("vsepp", "two_ad", "vse_infinity", "small", "thesis", "scan", "bfan", "sgraf", "vsrn", "aoq"),
    *("dive", "pvse", "pcme", "tern", "ltd", "pixels", "pretrained"),
)

RECIPES: dict[str, Recipe] = {}
"""Every system by name."""

VARIANTS: dict[str, dict[str, Any]] = {}
"""Named changes to a recipe: the parts that papers remove or replace."""

for _work in _WORKS:
    _recipes, _variants = read_work(_work)
    for _name, _content in _recipes.items():
        RECIPES[_name] = read_recipe(_name, _content, RECIPES.__getitem__)
    VARIANTS |= _variants


def get(name: str, scale: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe with this name, changed by the variants that follow it.

    Args:
        name: a key of `RECIPES`, then keys of `VARIANTS`, each after a plus sign, of which later ones win; or
            the folder of a CLIP or SigLIP, after which the recipe is named; or, in place of the key, a YAML
            file (`recipes.written`).
        scale: changes made before the variants, such as fewer epochs for all systems that are compared.

    Example:
        >>> get("2ad_region_gru+gpo").image.pool.name
        'gpo'
    """
    base, variants = parted(name)
    if is_towers(name):
        return _of_towers(expanded(name)).override(scale or {})
    if base.endswith(ENDINGS):
        recipe = read_recipe_file(base, get)
        name = "+".join([recipe.name, *variants])
    elif base in RECIPES:
        recipe = RECIPES[base]
    elif len(Path(base).parts) > 1 and not expanded(base).exists():
        raise FileNotFoundError(f"no folder {base}: name the one of a run or of a model, or a recipe")
    else:
        raise unknown("recipe", base, RECIPES, "vse recipes")
    recipe = recipe.override(scale or {})
    for variant in variants:
        if variant not in VARIANTS:
            raise unknown("variant", variant, VARIANTS, f"vse recipes {base}")
        recipe = recipe.override(VARIANTS[variant])
    return recipe.override({"name": name})


def placed(name: str) -> str:
    """Return a recipe's name with the whole path of the file or folder in it, to be found from anywhere."""
    base, variants = (name, []) if is_towers(name) else parted(name)
    in_place = is_towers(name) or base.endswith(ENDINGS)
    return "+".join([str(expanded(base).resolve()) if in_place else base, *variants])


def parted(name: str) -> tuple[str, list[str]]:
    """Return a recipe's own name, or the path of a file, which may hold a plus sign, and the variants."""
    for ending in ENDINGS:
        path, found, variants = name.rpartition(ending)
        if found and variants[:1] in ("", "+"):
            return path + ending, [one for one in variants.split("+") if one]
    base, *rest = name.split("+")
    return base, rest


def is_towers(name: str) -> bool:
    """Whether a name is the folder of a pretrained model, such as CLIP, and not the folder of a run."""
    folder = expanded(name)
    return (folder / "config.json").is_file() and not (folder / "run.json").exists()


def _of_towers(folder: Path) -> Recipe:
    """Describe the pair of towers in a folder, which go on with the loss that their kind was trained with."""
    config = read_config(folder / "config.json")
    kind = kind_of(config.model_type)
    encoder = Part(kind, {"weights": str(folder)})
    changes = {"name": folder.resolve().name, "dim": width_of(config)}
    like = {"clip": "clip_base_patch32", "siglip": "siglip_base_patch16"}[kind]
    return RECIPES[like].override({**changes, "image.encoder": encoder, "text.encoder": encoder})
