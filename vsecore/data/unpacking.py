"""Unpack a zip file that a stranger may have made: nothing outside the folder, and no more than it says.

The whole list of members is judged before the first byte is written. A receipt, NAME.receipt.json, says what
was in an archive, so that missing and damaged files are noticed later, even when the archive is gone.
"""

import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from vsecore.data import files
from vsecore.typed import short

CHUNK = 1 << 20
LARGEST_RATIO = 20
"""How many times larger than the archive its content may be: photographs hardly shrink, text does."""
RECEIPT = ".receipt.json"
# What no name may hold: the start of an absolute path, a drive or a stream, a backslash, control characters.
_OUTSIDE = re.compile(r"^/|[:\\\x00-\x1f\x7f]|(^|/)\.{1,2}(/|$)|//")


def member_name(name: str) -> str:
    """Return the path of a member if it stays below the folder.

    Raises:
        ValueError: it does not; the message says only what is wanted.
    """
    if _OUTSIDE.search(name.removesuffix("/")) or not name.strip("/") or len(name) > 500:
        raise ValueError('a path inside the folder with at most 500 characters, such as "a/b.jpg"')
    return name


@dataclass(frozen=True)
class Member:
    """A file in an archive, as the archive describes it."""

    name: Annotated[str, AfterValidator(member_name)]
    """Its path, with "/" between folders."""
    size: int
    crc: int
    """CRC-32 of its bytes."""

    def is_whole(self, path: Path) -> bool:
        """Whether a file holds exactly this member's bytes."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        crc = 0
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                crc = zlib.crc32(chunk, crc)
        return crc == self.crc


@dataclass(frozen=True)
class Receipt:
    """What came from an archive's address, and what was in it."""

    address: str
    sha256: str
    members: list[Member]
    """The files that were unpacked."""

    def lost(self, root: Path) -> list[Member]:
        """Return the files that are missing or damaged in a folder."""
        shown = files.progress(self.members, desc="compare files", unit="file")
        return [member for member in shown if not member.is_whole(root / member.name)]


def read_receipt(archive: Path) -> Receipt | None:
    """Return the receipt of an archive; None: there is none.

    Raises:
        ValueError: it is damaged.
    """
    path = archive.with_name(archive.name + RECEIPT)
    try:
        receipt: Receipt | None = files.read_json(path, Receipt) if path.is_file() else None
    except ValueError as error:
        raise ValueError(f"{error}. Delete {path}: vse data get makes it again") from None
    return receipt


def losses(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each file below the root that was downloaded and is missing or damaged, and which.

    Raises:
        ValueError: a receipt is damaged.
    """
    for path in sorted(root.glob("[!.]*.part")):
        yield path.name, "an unfinished download"
    for path in sorted(root.glob("*" + RECEIPT)):
        receipt = read_receipt(path.with_name(path.name.removesuffix(RECEIPT)))
        for member in receipt.lost(root) if receipt else ():
            there = (root / member.name).is_file()
            yield member.name, "damaged: not the bytes that were downloaded" if there else "missing"


def unpack(archive: Path, takes: tuple[str, ...], folder: Path, most: int | None = None) -> list[Member]:
    """Write the members of an archive that are wanted into a folder; each appears whole or not at all.

    They go to a hidden folder beside the archive first, where an interrupted run leaves them for the next.
    At the end they are moved: a folder that did not exist appears at once with all its files, and in one that
    existed each file that was missing or damaged is replaced as a whole.

    Args:
        archive: a zip file.
        takes: the names of files, or of folders with "/" at their end; "" takes all.
        folder: where they go, on the disk of the archive.
        most: how many bytes the content may have; None: `LARGEST_RATIO` times the archive's own.

    Returns:
        All members that are wanted.

    Raises:
        ValueError: it is no zip file or a damaged one; a member leads out of the folder, is a link or a
            device, or is encrypted; the content is too large; or a wanted file is not in it.
        OSError: the disk is too small.
    """
    if not archive.is_file():  # a pipe would make us wait for its other end
        raise FileNotFoundError(f"no file {archive}: get it, or name another")
    staging = archive.with_name(f".{archive.name}.unpacked")
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _wanted_members(opened, takes, most or LARGEST_RATIO * archive.stat().st_size)
            todo = [one for one in members if not one.is_whole(folder / one.name)]
            fresh = [one for one in todo if not one.is_whole(staging / one.name)]
            need, free = sum(one.size for one in fresh), shutil.disk_usage(archive.parent).free
            if need > free:
                raise OSError(f"{archive} needs {need:,} bytes unpacked, and {free:,} are free: make room")
            for one in files.progress(fresh, desc=f"unpack {archive.name}", unit="file"):
                (staging / one.name).parent.mkdir(parents=True, exist_ok=True)
                with opened.open(one.name) as source, (staging / one.name).open("wb") as file:
                    shutil.copyfileobj(source, file, CHUNK)  # at most its size; its CRC is compared
    except OSError:
        raise
    except Exception as error:  # what zipfile raises for a damaged file depends on the damage
        raise ValueError(f"{archive} cannot be unpacked: {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    for top in {one.name.partition("/")[0] for one in todo}:
        if (staging / top).exists() and not (folder / top).exists():
            (staging / top).replace(folder / top)
    for one in todo:
        if (staging / one.name).exists():
            (folder / one.name).parent.mkdir(parents=True, exist_ok=True)
            (staging / one.name).replace(folder / one.name)
    shutil.rmtree(staging, ignore_errors=True)
    return members


def _wanted_members(opened: zipfile.ZipFile, takes: tuple[str, ...], most: int) -> list[Member]:
    """Return the files that are wanted, if all of the archive can be unpacked safely."""
    entries = opened.infolist()
    for entry in entries:
        member_name(
            entry.orig_filename
        )  # as it stands in the file: zipfile itself cuts a name at a zero byte
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ValueError(f"its member {short(entry.filename)} is a link or a device")
    names = [entry.filename.casefold() for entry in entries]
    if len(set(names)) < len(names):
        raise ValueError("two of its members have the same name")
    total = sum(entry.file_size for entry in entries)
    if total > most:
        raise ValueError(f"its content has {total:,} bytes, wanted at most {most:,}: it would fill the disk")
    members = []
    for take in takes:
        own = [
            Member(entry.filename, entry.file_size, entry.CRC)
            for entry in entries
            if not entry.is_dir()
            and (entry.filename == take or (take[-1:] in ("/", "") and entry.filename.startswith(take)))
        ]
        if not own:
            raise ValueError(f"it holds no {take}, but {short([entry.filename for entry in entries])}")
        members += own
    return members
