"""Recipes as YAML, to read, to change and to keep.

A file may begin with another recipe and say only what differs:

    name: mine
    recipe: 2ad_region_gru+gpo
    image: {pool: {name: kmax, options: {k: 5}}}
    losses: [triplet, {name: mmd, weight: 0.01}]
    training: {epochs: 10}

So do the recipes of this package. A file of theirs holds those of a work by name (`recipes`), and the changes
that its tables ask for (`variants`).
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from vsecore.data.files import expanded, read_bytes
from vsecore.recipes.plain import as_json, with_short_parts
from vsecore.recipes.recipe import Recipe, parts_of

ENDINGS = (".yaml", ".yml")
Get = Callable[[str], Recipe]


def read_work(work: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the recipes and the variants of a work that this package describes, as its file has them."""
    path = Path(__file__).with_name(f"{work}.yaml")
    content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return content["recipes"], content.get("variants", {})


def read_recipe(name: str, content: Mapping[str, Any], get: Get) -> Recipe:
    """Make a recipe from its settings; `get` returns the one that `recipe` names, with which it begins."""
    settings = {**content, "name": str(content.get("name", name))}
    base, source = settings.pop("recipe", None), str(settings.pop("source", ""))
    begun = Recipe(name, source) if base is None else get(str(base))
    return begun.override(settings | ({"source": source} if source else {}))


def read_recipe_file(path: str | Path, get: Get) -> Recipe:
    """Read a recipe from YAML; `get` returns the one that its field `recipe` names.

    Without a `name` it is called as its file.
    """
    path = expanded(path)
    try:
        content = yaml.load(read_bytes(path), _Plain)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        raise ValueError(f'{path} holds no settings: wanted lines such as "recipe: vsepp_grid_gru"')
    if str(content.get("recipe", "")).endswith(ENDINGS):
        raise ValueError(f"{path}: recipe is {content['recipe']}: wanted a recipe's name, not another file")
    if "recipe" not in content:
        content = {"source": path.name, **content}
    try:
        return read_recipe(path.stem, {str(key): value for key, value in content.items()}, get)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


class _Plain(yaml.SafeLoader):
    """Reads YAML without aliases, with which a few lines could stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("a recipe has no aliases")
        return super().compose_node(parent, index)


def written(recipe: Recipe) -> str:
    """Return a recipe as YAML with all its settings; an option that a part was not given has its default."""
    content = recipe.to_dict()
    for _, registry, part in parts_of(content):
        for option, one in registry.options(part["name"]).items():
            if one.default is not inspect.Parameter.empty:
                part["options"].setdefault(option, one.default)
    return yaml.safe_dump(
        with_short_parts(as_json(content), by_name=True), sort_keys=False, allow_unicode=True, width=100
    )
