"""Every experiment by name, read from `assets/experiments.yml`, and how the assets in YAML are read."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import yaml

from vsecore.data.files import read_text
from vsecore.experiments.experiment import Experiment
from vsecore.paths import assets
from vsecore.typed import from_json


def read_asset(path: Path, kind: Any) -> Any:
    """Read a YAML file whose content must be of a given type.

    Raises:
        ValueError: it is not; the message says where.
    """
    return _checked(path.name, read_text(path), kind)


@functools.lru_cache(maxsize=8)
def _checked(name: str, text: bytes, kind: Any) -> Any:
    """Check a text once: parsing YAML is slow, and every page asks for all claims."""
    return from_json(name, json.dumps(yaml.safe_load(text)), kind)


BY_WORK: dict[str, dict[str, Experiment]] = read_asset(
    assets() / "experiments.yml", dict[str, dict[str, Experiment]]
)
"""The experiments on each work, by its key; ideas of other papers are added to 2AD."""
EXPERIMENTS: dict[str, Experiment] = {
    name: experiment for several in BY_WORK.values() for name, experiment in several.items()
}
"""The experiments of all papers."""


def get_experiment(name: str) -> Experiment:
    """Return the experiment with this name; raise ValueError if there is none."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment {name!r} is unknown: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
