"""Recipes as plain data: how a setting is changed by its full name, and which settings differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from difflib import get_close_matches
from typing import Any, cast

from vsecore.typed import short

PARTS = ("encoder", "reasoner", "pool", "shared", "similarity")
"""The fields that hold a part, which may be given by its name alone; `losses` is a list of parts."""


def change(content: dict[str, Any], name: str, value: Any) -> None:
    """Set what a full name means in what `Recipe.to_dict` writes: a field, a part, or an option of a part."""
    field: Any = content
    of_part = False  # whether the name goes on within a part, whose options have any names
    for step in name.split("."):
        holder: Any = field
        key: Any = step
        if isinstance(holder, list):  # of losses, which have names
            key = {part["name"]: row for row, part in enumerate(holder)}.get(step)
        elif of_part := isinstance(holder, dict) and "options" in holder:
            holder = holder if step == "weight" else holder["options"]
            holder.setdefault(step)
        try:
            field = holder[key]
        except (KeyError, TypeError):
            raise _unknown(content, name) from None
    if isinstance(value, str) and name not in ("name", "source"):
        value = None if value == "none" else _parsed(value)  # as people write null
    if isinstance(holder, list):
        value = {"weight": field["weight"], **full_part(value)}
    elif key == "losses" and not of_part:
        value = [full_part(part) for part in (value if isinstance(value, list | tuple) else [value])]
    elif key in PARTS and not of_part:
        value = value and full_part(value)
    holder[key] = asdict(cast(Any, value)) if is_dataclass(value) else value


def _parsed(text: str) -> Any:
    """Parse text as JSON if it is JSON; all else stays text, even NaN, which only Python takes for JSON."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


def full_part(part: Any) -> dict[str, Any]:
    """Return a part as `to_dict` writes it, from its name, from such a dictionary, or from a `Part`."""
    given = asdict(cast(Any, part)) if is_dataclass(part) else part
    return {"options": {}, **(given if isinstance(given, Mapping) else {"name": given})}


def _unknown(content: dict[str, Any], name: str) -> ValueError:
    """Make the error for a field that does not exist: it names fields of similar spelling, or else all."""
    known = flatten(content)
    ends = {field.split(".")[-1]: field for field in known}
    near = get_close_matches(name, [*known, *ends], 2, cutoff=0.84)
    fields = dict.fromkeys(ends.get(match, match) for match in near)
    hint = f"did you mean {' or '.join(fields)}?" if fields else f"there are {', '.join(known)}"
    return ValueError(f"setting {short(name)} is unknown: {hint}")


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings: {"training": {"epochs": 3}} becomes {"training.epochs": 3}.

    Parts in a list are named after themselves: {"losses": [{"name": "triplet", "weight": 1.0}]} becomes
    {"losses.triplet": "triplet", "losses.triplet.weight": 1.0}.
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, list | tuple) and value and all(isinstance(part, Mapping) for part in value):
            value = {str(part.get("name", place)): part for place, part in enumerate(value)}
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}".replace(".options.", ".").removesuffix(".name")] = value
    return flat


def briefly(content: Any) -> Any:
    """Return plain data with each part written as its name and what differs from a part without options."""
    if isinstance(content, list):
        return [briefly(one) for one in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {"name", "options", "weight"}:
        plain = {"options": {}, "weight": 1.0}
        return {key: value for key, value in content.items() if value != plain.get(key)}
    return {key: briefly(value) for key, value in content.items()}


def changed(content: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from `plain`, including those of nested settings."""
    found = {}
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(plain.get(key), dict):
            if inner := changed(value, plain[key]):
                found[key] = inner
        elif key not in plain or value != plain[key]:
            found[key] = value
    return found
