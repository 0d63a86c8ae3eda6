"""Settings: frozen dataclasses, in one another, that check themselves and can be changed by name.

What a person types on a command line ends here, so every mistake is told with the field's full name.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin

Settings = TypeVar("Settings")

SPOKEN = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "named values"}


def check(settings: Any, place: str, **bounds: tuple[float, float]) -> None:
    """Refuse a field of a wrong type or outside its bounds; called from `__post_init__`.

    Args:
        settings: the dataclass itself.
        place: what its fields are found under, such as "training"; "" at the top.
        bounds: for some fields, the least value and the one that it must stay below.

    Raises:
        ValueError: naming the field, what it is and what is wanted.
    """
    hints = typing.get_type_hints(type(settings))
    for name, kind in hints.items():
        full = f"{place}.{name}" if place else name
        value = _typed(getattr(settings, name), kind, full)
        object.__setattr__(settings, name, value)
        low, high = bounds.get(name, (-math.inf, math.inf))
        if name in bounds and not low <= value < high:
            raise ValueError(f"{full} is {value}: wanted at least {low:g} and below {high:g}")


def override(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The same settings with other values, all changed before any are held against each other.

    Args:
        settings: a dataclass.
        changes: from a field's full name, such as "training.epochs", to its value, or to its value as text.

    Raises:
        ValueError: a field is unknown (the message names those there are), or a value does not fit.
    """
    content = asdict(settings)  # type: ignore[call-overload]  # a TypeVar cannot be bound to all dataclasses
    for name, value in changes.items():
        path = name.split(".")
        kind = _kind(type(settings), path)
        if kind is None:
            known = ", ".join(names(type(settings)))
            raise ValueError(f"setting {name!r} is unknown: there are {known}")
        place = content
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = _typed(_parsed(value, kind), kind, name)
    return from_dict(type(settings), content)


def from_dict(cls: type[Settings], content: Mapping[str, Any], place: str = "") -> Settings:
    """Settings from what `dataclasses.asdict` made of them.

    Raises:
        ValueError: a field is unknown, missing, or does not fit.
    """
    hints = typing.get_type_hints(cls)
    if not isinstance(content, Mapping):
        raise ValueError(f"setting {place.rstrip('.')!r} is {content!r}: wanted {', '.join(hints)}")
    for wrong, keys in (
        ("unknown", content.keys() - hints.keys()),
        ("missing", hints.keys() - content.keys()),
    ):
        if keys:
            raise ValueError(f"setting {place + min(keys)!r} is {wrong}: wanted {', '.join(hints)}")
    values = {
        key: from_dict(hints[key], value, f"{place}{key}.") if is_dataclass(hints[key]) else value
        for key, value in content.items()
    }
    return cls(**values)


def names(cls: Any) -> list[str]:
    """The full names of all fields, those of inner settings among them."""
    found: list[str] = []
    for name, kind in typing.get_type_hints(cls).items():
        found += [f"{name}.{inner}" for inner in names(kind)] if is_dataclass(kind) else [name]
    return found


def _kind(cls: Any, path: list[str]) -> Any:
    """The type of the field at the path; None if there is no such field."""
    kind, rest = typing.get_type_hints(cls).get(path[0]), path[1:]
    if is_dataclass(kind):
        return _kind(kind, rest) if rest else None
    if get_origin(kind) is dict and len(rest) == 1:  # such as image.pool_options.k
        return Any
    return None if rest else kind


def _parsed(value: Any, kind: Any) -> Any:
    """Text as the value that it spells; what cannot be read stays text, for `_typed` to refuse."""
    if not isinstance(value, str) or kind is str or get_origin(kind) is Literal:
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _typed(value: Any, kind: Any, name: str) -> Any:
    """The value if it is of its kind; where any number is wanted, a whole one becomes a float."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{name} is {value!r}: wanted one of {', '.join(map(str, get_args(kind)))}")
        return value
    if kind is Any:
        return value
    wanted = get_origin(kind) or kind
    if wanted is float and type(value) is int:
        return float(value)
    # Python counts True as 1, but training.epochs=true is a mistake.
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError(f"{name} is {value!r}: wanted {SPOKEN.get(wanted, wanted.__name__)}")
    return value
