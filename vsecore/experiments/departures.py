"""Where a paper's released code does something other than what the paper says."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

import yaml
from pydantic import ConfigDict

from vsecore.paths import assets
from vsecore.typed import from_json

DEPARTURES = assets() / "departures.yml"


@dataclass(frozen=True)
class Departure:
    """One point at which a paper and its released code differ."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    work: str  # the paper's key, such as "2ad"
    place: str  # where the paper says it
    printed: str  # what the paper says
    released: str  # what its code does
    here: str  # what this repository does


def departures(work: str = "") -> list[Departure]:
    """Read the entries of `assets/departures.yml`, of one paper or of all.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or leaves one empty.
    """
    found = _checked(DEPARTURES.name, DEPARTURES.read_text(encoding="utf-8"))
    for number, departure in enumerate(found):
        for field, words in vars(departure).items():
            if not words.strip():
                raise ValueError(f"{DEPARTURES.name}: [{number}].{field} is empty: wanted a few words")
    return [departure for departure in found if work in ("", departure.work)]


@functools.lru_cache(maxsize=1)
def _checked(name: str, text: str) -> list[Departure]:
    """Check the text of all entries once: parsing YAML is slow, and every page asks for them."""
    found: list[Departure] = from_json(name, json.dumps(yaml.safe_load(text)), list[Departure])
    return found
