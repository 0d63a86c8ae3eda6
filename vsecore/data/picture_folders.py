"""The picture files below a folder, as people's folders are: with links, trash and thumbnails."""

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import repeat
from pathlib import Path

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
"""The endings of picture files that are read."""
NOT_PEOPLES = {
    *("@eadir", "@tmp", "@__thumb", "@recycle", "@recently-snapshot", "@sharebin", "@synoeastream"),
    *("@synoresource", "#recycle", "#snapshot", "$recycle.bin", "recycler", "recycled", "__macosx"),
    *("system volume information", "lost+found", "found.000", "ipod photo cache"),
}
"""Folders in which systems keep thumbnails, what was deleted, and notes of their own; in lower case."""


def _is_a_librarys(folder: Path) -> bool:
    """Whether a folder holds the previews of Apple Photos or of Nextcloud."""
    is_apples = folder.parent.suffix == ".photoslibrary" and folder.name not in ("originals", "Masters")
    return is_apples or folder.name.startswith("appdata_")


def name_key(name: str) -> str:
    """Return a name in Unicode's composed form (NFC): systems write the same é as one character or as two."""
    return unicodedata.normalize("NFC", name)


@dataclass
class Listing:
    """What is below a folder."""

    pictures: list[Path] = field(default_factory=list)
    """Files with the endings of pictures, in order."""
    others: Counter[str] = field(default_factory=Counter)
    """How many other files there are, by their ending."""
    systems: list[Path] = field(default_factory=list)
    """Folders of thumbnails or trash, which were not opened."""
    excluded: int = 0
    unreadable: dict[Path, str] = field(default_factory=dict)
    """Folders that cannot be opened, and why."""

    def notes(self) -> list[str]:
        """Say what was left out, a sentence each."""
        said = [f"{folder} cannot be read ({why})" for folder, why in self.unreadable.items()]
        if self.systems:
            names = ", ".join(sorted({path.name for path in self.systems}))
            said.append(f"{len(self.systems)} folders of thumbnails, trash or the system ({names})")
        if self.others:
            commonest = sorted(self.others.items(), key=lambda one: (-one[1], one[0]))[:5]
            kinds = ", ".join(f"{count} {suffix}" for suffix, count in commonest)
            heic = self.others.keys() & {".heic", ".heif", ".hif"}
            hint = "; vsecore's extra 'heic' reads HEIC" if heic else ""
            said.append(f"{kinds}: not read, unlike JPEG, PNG, WebP, BMP, GIF and TIFF{hint}")
        if self.excluded:
            said.append(f"{self.excluded} files or folders, as excluded")
        return said


def list_pictures(root: Path, own: Path | None = None, exclude: Iterable[str] = ()) -> Listing:
    """List the pictures in a folder and its folders; hidden ones are left out, and so is the folder `own`.

    Links to folders are followed, each real folder once, and a folder that cannot be opened stops nothing.
    Patterns such as `*.png` or `drafts`, of a file's or folder's name or its path below root, exclude others.
    """
    found, patterns = Listing(), [name_key(pattern).casefold().rstrip("/") for pattern in exclude]
    visited = {_identity(parent) for parent in Path(os.path.realpath(root)).parents}  # links there lead round
    wanted = readable_suffixes()

    def unwanted(path: Path) -> bool:
        below = name_key(path.relative_to(root).as_posix()).casefold()
        return any(fnmatchcase(below, p) or fnmatchcase(below.rpartition("/")[2], p) for p in patterns)

    def note(error: OSError) -> None:
        found.unreadable[Path(error.filename)] = error.strerror or str(error)

    tops = [root]  # links come after the real folders, so that what is here keeps its own name
    while tops:
        for top, folders, names in os.walk(tops.pop(0), onerror=note):
            here, entries = Path(top), [*zip(folders, repeat(True)), *zip(names, repeat(False))]
            folders.clear()
            if (identity := _identity(here)) in visited:
                continue
            visited.add(identity)
            for name, is_folder in sorted(entries):
                path = here / name
                if name.startswith(".") or path == own:
                    continue
                if patterns and unwanted(path):
                    found.excluded += 1
                elif is_folder and (name.casefold() in NOT_PEOPLES or _is_a_librarys(path)):
                    found.systems.append(path)
                elif is_folder and path.is_symlink():
                    tops.append(path)
                elif is_folder:
                    folders.append(name)
                elif path.suffix.lower() in wanted:
                    found.pictures.append(path)
                elif path.suffix[1:].isalnum() and path.suffix.isascii():  # not what would garble a message
                    found.others[path.suffix.lower()] += 1
    found.pictures.sort()
    return found


def readable_suffixes() -> set[str]:
    """Return the endings that are read here: with the extra `heic`, those of phones too."""
    from vsecore.data.picture_files import HEIC_SUFFIXES

    return SUFFIXES | HEIC_SUFFIXES


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino
