"""Unpack a zip file that a stranger may have made: nothing outside the folder, and no more than it says.

The whole list of members is read and judged before the first byte is written.
"""

import re
import shutil
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from vsecore.data import files
from vsecore.typed import short

CHUNK = 1 << 20
LARGEST_RATIO = 20
"""How many times larger than the archive its content may be: photographs hardly shrink, text does."""
MOST_MEMBERS = 1_000_000
LONGEST_NAME = 500
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What no name may hold: the start of an absolute path, a drive or a stream, a backslash, control characters.
_OUTSIDE = re.compile(r"^/|[:\\\x00-\x1f\x7f]|(^|/)\.{1,2}(/|$)|//")


def member_name(name: str) -> str:
    """Return the path of a member if it stays below the folder.

    Raises:
        ValueError: it does not, or is too long for a disk; the message says only what is wanted.
    """
    if _OUTSIDE.search(name.removesuffix("/")) or not name.strip("/") or len(name) > LONGEST_NAME:
        raise ValueError(
            f'a path inside the folder with at most {LONGEST_NAME} characters, such as "a/b.jpg"'
        )
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


def read_members(archive: Path, takes: tuple[str, ...] = ("",), most: int | None = None) -> list[Member]:
    """Return the files of an archive that are wanted, if all of it can be unpacked safely.

    Args:
        archive: a zip file.
        takes: the names of files, or of folders with "/" at their end; "" takes all.
        most: how many bytes the content may have; None: `LARGEST_RATIO` times the archive's own.

    Raises:
        ValueError: it is no zip file or a damaged one; a member leads out of the folder, is a link or a
            device, is encrypted or there twice; the content is too large; or a wanted file is not in it.
    """
    with _opened(archive) as opened:
        packed = archive.stat().st_size
        most = LARGEST_RATIO * packed if most is None else most
        entries = opened.infolist()
        if len(entries) > MOST_MEMBERS:
            raise ValueError(f"it has {len(entries)} members, wanted at most {MOST_MEMBERS}")
        for entry in entries:
            _judge(entry)
            if not 0 <= entry.header_offset < packed:
                raise ValueError(f"its member {short(entry.filename)} is not where its list of members says")
        _refuse_collisions(entries)
        total = sum(entry.file_size for entry in entries)
        if total > most:
            raise ValueError(
                f"its content has {total:,} bytes, wanted at most {most:,}: such an archive fills the disk"
            )
        members = [
            Member(entry.filename, entry.file_size, entry.CRC)
            for entry in entries
            if not entry.is_dir() and any(_belongs(entry.filename, take) for take in takes)
        ]
        for take in takes:
            if not any(_belongs(member.name, take) for member in members):
                names = ", ".join(short(entry.filename) for entry in entries[:3])
                raise ValueError(f"it holds no {take}, but {names or 'nothing'}")
        return members


def unpack(archive: Path, members: list[Member], folder: Path) -> None:
    """Write members of an archive into a folder; each appears whole or not at all.

    They go to a hidden folder beside the archive first, and those that an earlier, interrupted run has left
    there are kept if they are whole. At the end they are moved: a folder that did not exist appears at once
    with all its files, and in one that existed each file is replaced as a whole.

    Args:
        archive: the zip file.
        members: what `read_members` has found in it, or some of these.
        folder: where they go, on the disk of the archive.

    Raises:
        ValueError: a member is damaged, or has more bytes than the archive says.
        OSError: the disk is too small.
    """
    staging = archive.with_name(f".{archive.name}.unpacked")
    todo = [member for member in members if not member.is_whole(staging / member.name)]
    need, free = sum(member.size for member in todo), shutil.disk_usage(archive.parent).free
    if need > free:
        raise OSError(
            f"{archive} needs {need:,} bytes unpacked, and {folder} has {free:,} free: make room, and give "
            "the command again"
        )
    with (
        _opened(archive) as opened,
        files.progress(total=need, desc=f"unpack {archive.name}", unit="B", unit_scale=True) as bar,
    ):
        for member in todo:
            _write(opened, member, staging / member.name, bar)
    _move(staging, folder, members)


def _write(opened: zipfile.ZipFile, member: Member, path: Path, bar: Any) -> None:
    """Write one member, counting what really comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = crc = 0
    with opened.open(member.name) as source, path.open("wb") as file:
        while chunk := source.read(CHUNK):
            count, crc = count + len(chunk), zlib.crc32(chunk, crc)
            if count > member.size:
                break
            file.write(chunk)
            bar.update(len(chunk))
    if (count, crc) != (member.size, member.crc):
        raise ValueError(f"its member {short(member.name)} is damaged: other bytes than it was packed with")


def _move(staging: Path, folder: Path, members: list[Member]) -> None:
    """Move what was unpacked to its place: a new folder in one step, else file by file."""
    folder.mkdir(parents=True, exist_ok=True)
    for top in {member.name.partition("/")[0] for member in members}:
        if (staging / top).exists() and not (folder / top).exists():
            (staging / top).replace(folder / top)
    for member in members:
        if (staging / member.name).exists():
            (folder / member.name).parent.mkdir(parents=True, exist_ok=True)
            (staging / member.name).replace(folder / member.name)
    shutil.rmtree(staging, ignore_errors=True)


def _judge(entry: zipfile.ZipInfo) -> None:
    """Refuse a member that could write elsewhere, or be something else than a file or a folder."""
    name = entry.orig_filename  # as it stands in the file: zipfile itself cuts a name at a zero byte
    kind = stat.S_IFMT(entry.external_attr >> 16)
    try:
        member_name(name)
    except ValueError as error:
        raise ValueError(f"it has a member {short(name)}, wanted {error}") from None
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(f"its member {short(name)} is a link or a device, wanted only files and folders")
    if entry.flag_bits & 1:
        raise ValueError(f"its member {short(name)} is encrypted")
    if entry.compress_type not in _METHODS:
        raise ValueError(
            f"its member {short(name)} is packed by method {entry.compress_type}, wanted deflate"
        )


def _refuse_collisions(entries: list[zipfile.ZipInfo]) -> None:
    """Refuse two members that would be one file, also where upper and lower case are the same to the disk."""
    seen: dict[str, str] = {}
    for entry in entries:
        if entry.is_dir():
            continue
        name = unicodedata.normalize("NFC", entry.filename).casefold()
        if name in seen:
            raise ValueError(f"its members {short(seen[name])} and {short(entry.filename)} are one file")
        seen[name] = entry.filename
    for entry in entries:
        above = unicodedata.normalize("NFC", entry.filename.removesuffix("/")).casefold()
        while above := above.rpartition("/")[0]:
            if above in seen:
                raise ValueError(f"its member {short(seen[above])} is both a file and a folder")


def _belongs(name: str, take: str) -> bool:
    return name == take or ((take.endswith("/") or not take) and name.startswith(take))


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; whatever is wrong with it becomes one sentence with its name."""
    if not archive.is_file():  # a pipe would make us wait for its other end
        raise FileNotFoundError(f"no file {archive}: get it, or name another")
    try:
        with zipfile.ZipFile(archive) as opened:
            yield opened
    # What zipfile raises for a damaged file depends on the damage.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        UnicodeDecodeError,
        struct.error,
        ValueError,
    ) as error:
        raise ValueError(f"{archive} cannot be unpacked: {error}") from None
