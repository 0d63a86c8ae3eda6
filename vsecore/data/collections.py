"""Get a collection of photographs: download and unpack what may be downloaded, explain the rest.

The captions' file, which names every picture, decides what is there already. So an archive may be deleted
once it is unpacked. A zip file has checksums, by which damage on the way is noticed.
"""

import shutil
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from vsecore.data import files
from vsecore.data.annotations import Entry, expanded, inside, read_annotations
from vsecore.data.download import download
from vsecore.data.karpathy import load_karpathy
from vsecore.data.sources import COLLECTIONS, Archive
from vsecore.typed import short


def get(
    name: str,
    root: str | Path,
    *,
    base: str | None = None,
    say: Callable[[str], None] = print,
) -> bool:
    """Download and unpack a collection, and return whether all that was asked for is there.

    If not, a person must do the steps that were said. An archive that lies in the folder under its own name
    is used instead of a download. To replace a damaged picture, delete it and call this again.

    Args:
        name: "coco", "flickr30k" or "flickr8k".
        root: the folder to put it into; made if it is missing.
        base: the address of a mirror's folder with the same archives; None: the official ones.
        say: what to do with a line for the user.
    """
    if name not in COLLECTIONS:
        raise ValueError(f"the collection is {name!r}: wanted one of {', '.join(COLLECTIONS)}")
    collection, root = COLLECTIONS[name], expanded(root)
    captions, steps = root / collection.captions, collection.by_hand.format(root=root)
    root.mkdir(parents=True, exist_ok=True)
    with files.locked(root, "is downloading into", wait=False):
        for archive in collection.archives:
            path = root / archive.name
            try:
                entries = read_annotations(captions)[1] if captions.is_file() else []
                if entries and (not archive.holds_pictures or _are_there(archive, root, entries)):
                    say(f"{archive.name}: all that is wanted of it is there")
                else:
                    if path.is_file():
                        say(f"{archive.name}: found in the folder")
                    else:
                        address = archive.address if base is None else f"{base.rstrip('/')}/{archive.name}"
                        say(f"{archive.name}: {archive.about}, from {address}")
                        download(address, path, begins=b"PK")
                    say(f"{archive.name}: {unpack(path, archive.takes, root)} files unpacked into {root}")
            except (OSError, ValueError) as error:  # a server that has moved often answers with a page
                if archive.holds_pictures and steps:
                    say(steps)
                if isinstance(error, ValueError):
                    again = f"vse data get {name} --root {root}"
                    raise ValueError(f"{error}. Delete what is damaged, and give {again} again") from None
                raise
    if not any(archive.holds_pictures for archive in collection.archives):
        try:
            load_karpathy(root, captions)
        except FileNotFoundError:
            say(steps)
            return False
    return True


def _are_there(archive: Archive, root: Path, entries: Sequence[Entry]) -> bool:
    folder = archive.takes.removesuffix("/")
    own = [entry.name for entry in entries if entry.file in (entry.name, f"{folder}/{entry.name}")]
    return bool(own) and all((root / folder / name).is_file() for name in own)


def unpack(archive: Path, takes: str, folder: Path) -> int:
    """Write a file of a zip archive, or a folder ("val2014/", "" for all), and return how many files that is.

    Each file is there whole or not at all; those that are whole already stay.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = [entry for entry in opened.infolist() if not entry.is_dir()]
            inner = takes[-1:] in ("/", "")  # a folder's files
            wanted = [
                one for one in entries if one.filename == takes or (inner and one.filename.startswith(takes))
            ]
            if not wanted:
                raise ValueError(f"it holds no {takes}, but {short([one.filename for one in entries])}")
            missing = [entry for entry in wanted if not _is_whole(folder / inside(entry.filename), entry)]
            need, free = sum(entry.file_size for entry in missing), shutil.disk_usage(archive.parent).free
            if need > free:
                raise OSError(f"{archive} needs {need:,} bytes unpacked, and {free:,} are free: make room")
            for entry in files.progress(missing, desc=f"unpack {archive.name}", unit="file"):
                path = folder / entry.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.part")
                try:  # at most its size is written, and then its checksum is compared
                    with opened.open(entry) as source, part.open("wb") as file:
                        shutil.copyfileobj(source, file)
                    part.replace(path)
                finally:
                    part.unlink(missing_ok=True)
    except OSError:
        raise
    except Exception as error:  # what zipfile raises for a damaged file depends on the damage
        raise ValueError(f"{archive} cannot be unpacked: {error}") from None
    return len(wanted)


def _is_whole(path: Path, entry: zipfile.ZipInfo) -> bool:
    same_size = path.is_file() and path.stat().st_size == entry.file_size
    return same_size and zlib.crc32(path.read_bytes()) == entry.CRC
