"""Recipes as plain data: how a setting is changed by its full name, and which settings differ."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from vsecore.typed import short

PARTS = ("encoder", "reasoner", "pool", "shared", "similarity")
"""The fields that hold a part, which may be given by its name alone; `losses` is a list of parts."""
GROUPS = ("image", "text", "training")
"""The fields that hold fields."""


def as_json(content: Any) -> Any:
    """Return content as JSON has it: dataclasses are named values, tuples are lists."""
    try:
        return json.loads(json.dumps(content, default=asdict, allow_nan=False))
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"the settings hold something that JSON cannot express ({error})") from error


def named_settings(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings by their full names: {"image": {"pool": "max"}} is image.pool."""
    for key, value in content.items():
        if key in GROUPS and isinstance(value, Mapping):
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def set_setting(content: dict[str, Any], name: str, value: Any) -> None:
    """Set what a full name means in what `Recipe.to_dict` writes: a field, a part, or an option of a part.

    Text is parsed as JSON if it is JSON, and "none" is null.
    """
    holder: Any
    key: Any
    found: Any = content
    for step in name.split("."):
        holder, key = found, step
        if isinstance(holder, list):  # of losses, which have names
            key = {part["name"]: row for row, part in enumerate(holder)}.get(step)
        elif isinstance(holder, dict) and "options" in holder and step != "weight":  # a part
            holder = holder["options"]
            holder.setdefault(step)  # options have any names
        try:
            found = holder[key]
        except (KeyError, TypeError):
            raise _unknown(content, name) from None
    if isinstance(value, str) and name not in ("name", "source"):
        value = None if value == "none" else _parsed(value)
    if isinstance(holder, list):  # another loss has the same weight
        value = {"weight": found["weight"], **(value if isinstance(value, Mapping) else {"name": value})}
    holder[key] = value


def _parsed(text: str) -> Any:
    """Parse text as JSON if it is JSON; all else stays text, even NaN, which only Python takes for JSON."""
    try:
        return as_json(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _unknown(content: dict[str, Any], name: str) -> ValueError:
    """Make the error for a field that does not exist: it names fields of similar spelling, or else all."""
    known = flatten(content)
    ends = {field.split(".")[-1]: field for field in known}
    near = get_close_matches(name, [*known, *ends], 2, cutoff=0.84)
    fields = dict.fromkeys(ends.get(match, match) for match in near)
    hint = f"did you mean {' or '.join(fields)}?" if fields else f"there are {', '.join(known)}"
    return ValueError(f"setting {short(name)} is unknown: {hint}")


def with_full_parts(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a recipe with every part, which may be its name alone, written out."""
    full = dict(content)
    for key, value in content.items():
        if key in ("image", "text", "first_round") and isinstance(value, Mapping):
            full[key] = with_full_parts(value)
        elif key in PARTS and value is not None:
            full[key] = full_part(value)
        elif key == "losses":
            full[key] = [full_part(part) for part in (value if isinstance(value, list) else [value])]
    return full


def full_part(part: Any) -> dict[str, Any]:
    """Return a part as `Recipe.to_dict` writes it, from its name or from such a dictionary."""
    return {"options": {}, "weight": 1.0, **(part if isinstance(part, Mapping) else {"name": part})}


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


def with_short_parts(content: Any, by_name: bool = False) -> Any:
    """Return plain data with each part written as its name and what differs from a part without options.

    A part that is nothing else is a dictionary with its name, or the name itself.
    """
    if isinstance(content, list):
        return [with_short_parts(one, by_name) for one in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {"name", "options", "weight"}:
        plain = {"options": {}, "weight": 1.0}
        short = {key: value for key, value in content.items() if value != plain.get(key)}
        return short["name"] if by_name and len(short) == 1 else short
    return {key: with_short_parts(value, by_name) for key, value in content.items()}


def differences(content: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from `plain`, including those of nested settings."""
    found = {}
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(plain.get(key), dict):
            if inner := differences(value, plain[key]):
                found[key] = inner
        elif key not in plain or value != plain[key]:
            found[key] = value
    return found
