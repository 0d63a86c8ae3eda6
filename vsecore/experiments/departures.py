"""Where the code that a paper released does something else than the paper says."""

from __future__ import annotations

import json
from dataclasses import dataclass

import yaml
from pydantic import ConfigDict

from vsecore.paths import assets
from vsecore.typed import from_json

DEPARTURES = assets() / "departures.yml"


@dataclass(frozen=True)
class Departure:
    """One point at which a paper and its released code part ways."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    work: str  # its key, such as "2ad"
    place: str  # in the paper
    printed: str  # what the paper says
    released: str  # what its code does
    here: str  # what is done in this repository


def departures(work: str = "") -> list[Departure]:
    """The entries of `assets/departures.yml`, of one paper or of all.

    Raises:
        ValueError: an entry lacks a field, has an unknown one, or leaves one empty.
    """
    text = json.dumps(yaml.safe_load(DEPARTURES.read_text(encoding="utf-8")))
    found: list[Departure] = from_json(DEPARTURES.name, text, list[Departure])
    for number, departure in enumerate(found):
        for field, words in vars(departure).items():
            if not words.strip():
                raise ValueError(f"{DEPARTURES.name}: [{number}].{field} is empty: wanted a few words")
    return [departure for departure in found if work in ("", departure.work)]
