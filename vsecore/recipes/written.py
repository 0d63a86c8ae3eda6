"""Recipes as YAML, to read, to change and to keep.

A file may begin with another recipe and say only what differs:

    name: mine
    recipe: 2ad_region_gru+gpo
    image: {pool: {name: kmax, options: {k: 5}}}
    losses: [triplet, {name: mmd, weight: 0.01}]
    training: {epochs: 10}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from vsecore.data.files import read_text
from vsecore.recipes.plain import full_part
from vsecore.recipes.recipe import Recipe, parts_of

ENDINGS = (".yaml", ".yml")
DEEPEST = 12
"""How many lists and named values may stand in one another."""
_NESTED = ("image", "text", "training")


def written(recipe: Recipe) -> str:
    """Return a recipe as YAML with all its settings; an option that a part was not given has its default."""
    content = recipe.to_dict()
    for _, registry, part in parts_of(content):
        for option, one in registry.options(part["name"]).items():
            if one.default is not inspect.Parameter.empty:
                part["options"].setdefault(option, one.default)
    return yaml.safe_dump(_short(content), sort_keys=False, allow_unicode=True, width=100)


def read_recipe_file(path: str | Path, get: Callable[[str], Recipe]) -> Recipe:
    """Read a recipe from YAML.

    Args:
        path: the file; its name without the ending is the recipe's, if the file has no `name`.
        get: returns the recipe that the field `recipe` names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not YAML, or a setting is unknown or wrong.
    """
    content = _parsed(path)
    base, name = content.pop("recipe", None), str(content.pop("name", Path(path).stem))
    if base is None:
        begun = Recipe(name, str(content.pop("source", f"{Path(path).name}")))
    elif str(base).endswith(ENDINGS):
        raise ValueError(f"{path}: recipe is {base}: wanted the name of a recipe, not another file")
    else:
        begun = get(str(base))
    try:
        return begun.override({"name": name, **dict(_settings(content))})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _parsed(path: str | Path) -> dict[str, Any]:
    text, depth = read_text(path), 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):  # as a stream, before anything is built
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or depth > DEEPEST:
                raise ValueError("a recipe has no aliases, and no lists in lists in lists")
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        raise ValueError(f'{path} holds no settings: wanted lines such as "recipe: vsepp_grid_gru"')
    return content


def _settings(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings as `Recipe.override` takes them."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        if name in _NESTED and isinstance(value, Mapping):
            yield from _settings(value, f"{name}.")
        elif name == "first_round" and isinstance(value, Mapping) and isinstance(value.get("losses"), list):
            yield name, {**value, "losses": [full_part(part) for part in value["losses"]]}
        else:
            yield name, value


def _short(content: Any) -> Any:
    """Write each part as its name alone if it has nothing else, and tuples as lists."""
    if isinstance(content, list | tuple):
        return [_short(one) for one in content]
    if not isinstance(content, Mapping):
        return content
    if content.keys() == {"name", "options", "weight"}:
        plain: dict[str, Any] = {"options": {}, "weight": 1.0}
        kept = {key: _short(value) for key, value in content.items() if value != plain.get(key)}
        return kept["name"] if kept.keys() == {"name"} else kept
    return {key: _short(value) for key, value in content.items()}
