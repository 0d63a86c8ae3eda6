"""Data from outside, checked against types: the first mistake becomes one sentence that says where it is."""

import functools
import json
import re
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError


def from_json(what: str, text: bytes | str, kind: Any) -> Any:
    """Read JSON whose content must be of a given type, such as `dict[str, int]` or a dataclass.

    Nothing is converted, except to types that JSON does not have, such as tuples. The first mistake becomes a
    ValueError that says `what` the whole is called, such as the file's name.

    Example:
        >>> from_json("words.json", '{"words": ["a", 7]}', dict[str, list[str]])
        ValueError: words.json: words[1] is 7: wanted a valid string
    """
    try:
        return _reader(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(sentence(what, error)) from None


def convert(what: str, value: Any, kind: Any) -> Any:
    """Return a value that has a type as if it came from JSON; a ValueError says what is wrong with it."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{what} is {short(value)}: wanted something that JSON can express") from error
    return from_json(what, text, kind)


def sentence(what: str, error: ValidationError) -> str:
    """Say the first mistake that pydantic found, with its place within `what`."""
    first, kind = error.errors()[0], error.errors()[0]["type"]
    if kind == "json_invalid":
        reason = first.get("ctx", {}).get("error", first["msg"])
        return f"{what} is not JSON ({reason}): get the file again, or write it again"
    place = _steps(first)
    if kind == "missing":
        return f'{_place(what, place[:-1])} lacks the field "{place[-1]}"'
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f'{_place(what, place[:-1])} has the unknown field "{place[-1]}"'
    if kind == "value_error" and not first["loc"]:  # one of our own sentences, about the whole
        return f"{what}: {first['ctx']['error']}"
    same = (one["msg"] for one in error.errors() if _steps(one) == place)  # of each member of a union
    wanted = dict.fromkeys(x.removeprefix("Input should be ").removeprefix("Value error, ") for x in same)
    return f"{_place(what, place)} is {short(first['input'])}: wanted {' or '.join(wanted)}"


def _steps(mistake: Any) -> list[str | int]:
    """Where a mistake is, without what pydantic adds for the members of a union."""
    return [step for step in mistake["loc"] if not _MEMBER.match(str(step))]


def _place(what: str, steps: list[str | int]) -> str:
    """Say where a mistake is: ("images", 3, "split") becomes "words.json: images[3].split"."""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return f"{what}: {said.removeprefix('.')}" if said else what


def short(value: Any) -> str:
    """Cut a value short for a message: a damaged file may hold a million characters instead of a name."""
    return _SHORT.repr(value)


def unknown(kind: str, name: str, known: Iterable[str], lister: str = "") -> ValueError:
    """Make the error for a name that is not known: it says those of similar spelling, or else all.

    `lister` is the command that lists them, if they are too many for a message.
    """
    names = sorted(known)
    begun = [one for one in names if name and one.startswith(name)]
    near = begun[:4] or get_close_matches(name[:100], names, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
    if lister:
        hint = f"{hint} {lister} lists all" if near else f"{lister} lists them"
    return ValueError(f"{kind} {short(name)} is unknown: {hint}")


def counted(things: Sequence[object], kind: str) -> str:
    """Return a count and the first few names for a message: "7 pictures (a.jpg, b.jpg, c.jpg, ...)"."""
    names = (str(thing) for thing in things[:3])
    shown = ", ".join(name if len(name) <= 60 else f"{name[:28]}...{name[-28:]}" for name in names)
    more = ", ..." if len(things) > 3 else ""
    return f"{len(things)} {kind}{'s' if len(things) > 1 else ''} ({shown}{more})"


class Strict:
    """Base of a dataclass that refuses unknown fields when it is read."""

    __pydantic_config__ = ConfigDict(extra="forbid")


_MEMBER = re.compile(
    r"(int|str|float|bool|none)$|constrained-|function-|(is-instance|literal|list|tuple|dict)\["
)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2
_SHORT.maxlist = _SHORT.maxdict = 3


@functools.cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    own = is_dataclass(kind)  # with a configuration of its own
    return TypeAdapter(kind, config=None if own else ConfigDict(arbitrary_types_allowed=True))
