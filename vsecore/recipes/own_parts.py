"""Parts of one's own: a Python file that registers them, and which runs only if its user has named it.

A run remembers the file's name and digest, never its place. `load_parts` notes in the user's own cache which
files were named, so that a run finds its file again. A run that comes from somewhere else cannot make this
machine import anything: its digest is no file that was named here.
"""

import contextlib
import functools
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from vsecore.data.files import cache_folder, expanded, read_bytes, read_json, write_json
from vsecore.recipes.recipe import PARTS, Recipe, parts_of

NAMED = "parts.json"
"""Where each file was that its user has named, by its digest."""


@dataclass(frozen=True)
class PartsFile:
    """A file of parts, as a run remembers it."""

    file: str
    """Its name, without its folder."""
    sha256: str


_LOADED: dict[tuple[str, str], PartsFile] = {}  # by the kind and the name of a part


def load_parts(path: str | Path) -> PartsFile:
    """Run a Python file that registers parts (`POOLS.register("mine", MyPool)`), and note that it was named.

    A file that has run in this process does not run again.
    """
    path = expanded(path).resolve()
    content = read_bytes(path)
    own = PartsFile(path.name, hashlib.sha256(content).hexdigest())
    if own not in _LOADED.values():
        before = _known()
        module = ModuleType(f"parts of {path.name}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module  # where type hints are looked up
        sys.path.append(str(path.parent))  # for what lies beside it, as for any script
        exec(compile(content, path, "exec"), module.__dict__)
        added = _known() - before
        if not added:
            raise ValueError(f"{path} registers no part: it should end with POOLS.register(...) or the like")
        _LOADED.update(dict.fromkeys(added, own))
    if (named := _named()).get(own.sha256) != str(path):
        write_json(cache_folder() / NAMED, named | {own.sha256: str(path)}, indent=1)
    return own


def own_parts(recipe: Recipe) -> list[PartsFile]:
    """Return the files that register the parts of a recipe, each once."""
    parts = parts_of(recipe.to_dict())
    files = (_LOADED.get((registry.kind, part["name"])) for _, registry, part in parts)
    return list(dict.fromkeys(file for file in files if file is not None))


def find_parts(folder: Path, wanted: Sequence[PartsFile]) -> None:
    """Load the files of parts that the run in a folder needs, if their user has named them here before.

    A file of the same name that was named in this process will do; where it has changed since, a line on
    stderr says so.
    """
    loaded = {file.file: file for file in _LOADED.values()}
    for own in wanted:
        if own.file in loaded:
            if loaded[own.file] != own:
                _say_changed(folder, own)
            continue
        place = _named().get(own.sha256, "")
        if not place or not Path(place).is_file():
            gone = f", which was {place}" if place else ""
            raise ValueError(f"{folder} was trained with parts of its own, {own.file}{gone}: {_remedy(own)}")
        if hashlib.sha256(read_bytes(place)).hexdigest() != own.sha256:
            raise ValueError(f"{place} has changed since {folder} was trained with it: {_remedy(own)}")
        load_parts(place)


@functools.cache
def _say_changed(folder: Path, own: PartsFile) -> None:
    print(f"note: {own.file} has changed since {folder} was trained", file=sys.stderr)


def _remedy(own: PartsFile) -> str:
    return f"name that file with --parts (its sha256 was {own.sha256[:12]}…), if you trust it"


def _known() -> set[tuple[str, str]]:
    return {(registry.kind, name) for registry in PARTS.values() for name in registry}


def _named() -> dict[str, str]:
    with contextlib.suppress(ValueError, FileNotFoundError):  # then the files are asked for again
        return read_json(cache_folder() / NAMED, dict[str, str])
    return {}
