"""Unpack a zip file from the internet: nothing outside the folder, and each file whole or not at all.

A receipt, NAME.receipt.json, says what was in an archive, so that missing and damaged files are noticed
later, even when the archive is gone.
"""

import re
import shutil
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


def unpack(archive: Path, takes: tuple[str, ...], folder: Path) -> list[Member]:
    """Write the members of an archive that are wanted into a folder, except those that are there already.

    Args:
        archive: a zip file.
        takes: the names of files, or of folders with "/" at their end; "" takes all.
        folder: where they go.

    Returns:
        All members that are wanted.

    Raises:
        ValueError: it is no zip file or a damaged one; a member leads out of the folder, or is encrypted; or
            a wanted file is not in it.
        OSError: the disk is too small.
    """
    if not archive.is_file():  # a pipe would make us wait for its other end
        raise FileNotFoundError(f"no file {archive}: get it, or name another")
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _wanted_members(opened, takes)
            missing = [member for member in members if not member.is_whole(folder / member.name)]
            need, free = sum(member.size for member in missing), shutil.disk_usage(archive.parent).free
            if need > free:
                raise OSError(f"{archive} needs {need:,} bytes unpacked, and {free:,} are free: make room")
            for member in files.progress(missing, desc=f"unpack {archive.name}", unit="file"):
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.part")
                try:
                    with opened.open(member.name) as source, part.open("wb") as file:
                        shutil.copyfileobj(source, file, CHUNK)  # at most its size; its CRC is compared
                    part.replace(path)
                finally:
                    part.unlink(missing_ok=True)
    except OSError:
        raise
    except Exception as error:  # what zipfile raises for a damaged file depends on the damage
        raise ValueError(f"{archive} cannot be unpacked: {error}") from None
    return members


def _wanted_members(opened: zipfile.ZipFile, takes: tuple[str, ...]) -> list[Member]:
    """Return the files that are wanted, if no member of the archive leads out of the folder."""
    for entry in opened.infolist():
        member_name(entry.orig_filename)  # as in the file: zipfile itself cuts a name at a zero byte
    entries = [entry for entry in opened.infolist() if not entry.is_dir()]
    members = []
    for take in takes:
        whole_folder = take[-1:] in ("/", "")
        own = [
            Member(entry.filename, entry.file_size, entry.CRC)
            for entry in entries
            if entry.filename == take or (whole_folder and entry.filename.startswith(take))
        ]
        if not own:
            raise ValueError(f"it holds no {take}, but {short([entry.filename for entry in entries])}")
        members += own
    return members
