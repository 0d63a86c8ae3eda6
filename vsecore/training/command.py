"""What `vse train` was asked for: kept beside a run, so that it can go on from its folder alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from vsecore.data.files import expanded, read_json, write_json
from vsecore.recipes import placed

FILE = "command.json"


@dataclass(frozen=True)
class Command:
    """The options of a training that decide its result, as they were typed; paths are absolute."""

    recipe: str = ""
    settings: tuple[str, ...] = ()
    data: str = "scenes"
    vectors: str | None = None
    negatives: str | None = None
    targets: str | None = None
    init: str | None = None
    seed: int = 0
    precision: str = "auto"

    def keep(self, folder: Path, worlds: Collection[str] = ()) -> None:
        """Write the command into a run's folder. The `worlds` are data, whatever folder is called so."""
        named, content = {*worlds, self.precision, self.recipe}, asdict(self)
        content |= {name: _absolute(value) for name, value in content.items() if value not in named}
        content["recipe"] = placed(self.recipe)
        write_json(folder / FILE, content, indent=1)

    def over(self, noted: Command) -> Command:
        """Return an earlier command with what this one says in its place; its settings come after those."""
        plain = Command()
        said = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "recipe"}
        changed = {name: value for name, value in said.items() if value != getattr(plain, name)}
        return replace(noted, **{**changed, "settings": (*noted.settings, *self.settings)})


def remembered(folder: Path) -> Command | None:
    """Read the command of the run in a folder; None: it was trained in another way."""
    path = folder / FILE
    if not path.exists():
        return None
    if missing := {field.name for field in fields(Command)} - read_json(path).keys():
        raise ValueError(f'{path} lacks the field "{min(missing)}"')  # its default may not be what was asked
    return read_json(path, Command)


def _absolute(value: object) -> object:
    """Return the whole path of what names a file or a folder that is there."""
    is_path = isinstance(value, str) and value and expanded(value).exists()
    return str(expanded(str(value)).resolve()) if is_path else value
