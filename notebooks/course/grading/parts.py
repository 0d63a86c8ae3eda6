"""The learner's part of an exercise's cell: marked in the notebook's text, cut out of the learner's copy."""

import re

from course.checks import EXERCISES

BEGINS, ENDS = "# your part", "# end of your part"

_VALUE = re.compile(rf"(?P<name>\s*[A-Za-z_]\w* = )(?P<value>.+?)(?P<mark>  {BEGINS}\b.*)")
_KEY = re.compile(r"\b(?P<judge>exercise|check)\(\s*[\"'](?P<key>\d\d\.\w+)[\"']")


def in_quotes(text: str, source: str) -> bool:
    """Whether code holds a text in quotes, such as an exercise's key."""
    return f'"{text}"' in source or f"'{text}'" in source


def key_of(source: str) -> str:
    """The exercise that a cell answers; "" if it has no part for the learner."""
    if BEGINS not in source:
        return ""
    keys = [found["key"] for found in _KEY.finditer(source) if found["key"] in EXERCISES]
    if len(keys) != 1:
        raise ValueError(f"a cell has a part for the learner and {len(keys)} exercises, not one")
    return keys[0]


def with_import(source: str) -> str:
    """A cell that imports what judges its exercise, so that after a restart it can say what to run first."""
    found = _KEY.search(source)
    line = f"from course.checks import {found['judge']}" if found else ""
    return source if line in source else f"{line}\n\n{source}"


def without_parts(source: str) -> str:
    """A cell with dots in place of the learner's parts.

    A part is what stands between a line `# your part` and a line `# end of your part`, or the value on a line
    `name = value  # your part`, where a remark may follow the mark.
    """
    made: list[str] = []
    inside = False
    for line in source.split("\n"):
        mark = line.strip()
        if mark in (BEGINS, ENDS):
            if inside == (mark == BEGINS):
                raise ValueError(f"{mark!r} stands where a part {'goes on' if inside else 'has not begun'}")
            if not inside:
                made.append(line.replace(BEGINS, f"...  {BEGINS}"))
            inside = not inside
        elif not inside:
            value = _VALUE.fullmatch(line)
            if not value and re.search(rf"{BEGINS}\b", line):
                raise ValueError(f"{mark!r} has a mark that cuts nothing out")
            made.append(f"{value['name']}...{value['mark']}" if value else line)
    if inside:
        raise ValueError("a part for the learner begins and never ends")
    return "\n".join(made)


def without_marks(source: str) -> str:
    """A cell with the learner's parts filled in, and no marks around them."""
    lines = [line for line in source.split("\n") if line.strip() not in (BEGINS, ENDS)]
    return "\n".join(
        f"{value['name']}{value['value']}" if (value := _VALUE.fullmatch(line)) else line for line in lines
    )
