"""Get a collection of photographs: download and unpack what may be downloaded, explain the rest.

The captions' file, which names every picture, decides what is there already. So an archive may be deleted
once it is unpacked. A download resumes over a bad connection; its bytes go to NAME.part until all are there.
A zip file has checksums, so whatever went wrong on the way is noticed when it is unpacked.
"""

import http.client
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vsecore.data import files
from vsecore.data.annotations import inside
from vsecore.data.karpathy import missing_pictures
from vsecore.data.sources import COLLECTIONS
from vsecore.typed import short

CHUNK = 1 << 18
TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as dropped."""
LONGEST_PAUSE = 60.0
"""Seconds between two attempts at most."""
ATTEMPTS = 8
"""How many may fail in a row. One that brings new bytes begins the count anew."""
_NO_CONNECTION = (
    http.client.HTTPException,
    urllib.error.URLError,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)
_LATER = {408, 416, 425, 429, 500, 502, 503, 504}
"""Status codes after which the same request may succeed later; after 416, one for the whole file."""


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
    collection, root = COLLECTIONS[name], files.expanded(root)
    captions, steps = root / collection.captions, collection.by_hand.format(root=root)
    root.mkdir(parents=True, exist_ok=True)
    with files.locked(root, "is downloading into", wait=False):
        for archive in collection.archives:
            path = root / archive.name
            try:
                if captions.is_file() and not any(map(archive.holds, missing_pictures(root, captions))):
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
    by_hand = not any(archive.holds_pictures for archive in collection.archives)
    if by_hand and missing_pictures(root, captions):
        say(steps)
        return False
    return True


def unpack(archive: Path, takes: str, folder: Path) -> int:
    """Write a file of a zip archive, or a folder ("val2014/"), and return how many files that is.

    Each file is there whole or not at all; those that are whole already stay.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = [entry for entry in opened.infolist() if not entry.is_dir()]
            inner = takes.endswith("/")  # a folder's files
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


def download(address: str, path: Path, *, begins: bytes = b"") -> None:
    """Download a file with checksums of its own, resuming what an earlier run has left.

    Args:
        address: http or https.
        path: the file to write. Its folder must exist.
        begins: the bytes that such a file begins with: a server's error page is noticed by its first bytes.
    """
    if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
        raise ValueError(f"the address is {address!r}: wanted one that begins with http:// or https://")
    part = path.with_name(f"{path.name}.part")
    failed, most = 0, _size(part)
    with files.progress(desc=path.name, unit="B", unit_scale=True) as bar:
        while True:
            try:
                _receive(address, part, begins, bar)
                break
            except urllib.error.HTTPError as error:
                reason = f"the server answers {error.code} {error.reason}"
                if error.code not in _LATER:
                    raise OSError(
                        f"{address}: {reason}: look whether the address opens in a browser, then give the "
                        "command again, or name another server with --from"
                    ) from None
                if error.code == 416:  # what is here is the whole file, or one that was longer
                    if error.headers["Content-Range"] == f"bytes */{_size(part)}":
                        break
                    part.unlink(missing_ok=True)
            except _NO_CONNECTION as error:
                reason = f"no connection ({getattr(error, 'reason', None) or error or type(error).__name__})"
            failed = 1 if _size(part) > most else failed + 1
            most = max(most, _size(part))
            if failed >= ATTEMPTS:
                raise OSError(
                    f"{address}: {reason}, {failed} times in a row. The {_size(part):,} bytes that came are "
                    f"kept in {part}: give the command again, and it continues"
                )
            wait = min(2.0 ** (failed - 1), LONGEST_PAUSE)
            print(f"{path.name}: {reason}; trying again in {wait:.0f} s", file=sys.stderr)
            time.sleep(wait)
    part.replace(path)


def _receive(address: str, part: Path, begins: bytes, bar: Any) -> None:
    """Make one attempt: ask for what is missing, and write what comes."""
    have = _size(part)
    headers = {"User-Agent": f"vsecore/{version('vsecore')}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT) as answer:
        if not str(answer.headers["Content-Range"]).startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)  # the whole file comes, or another part than was asked for
            have = 0
        if answer.status != (206 if have else 200):
            raise ConnectionError(f"the server answers {answer.status} in place of the file")
        length, free = answer.headers["Content-Length"], shutil.disk_usage(part.parent).free
        total = have + int(length) if length else None
        bar.total, bar.n = total, have
        if total is not None and total - have > free:
            raise OSError(f"{part} needs {total - have:,} bytes more, and its disk has {free:,}: make room")
        with part.open("ab" if have else "wb") as file:
            while chunk := answer.read1(CHUNK):
                if file.tell() == 0 and not chunk.startswith(begins[: len(chunk)]):
                    raise ValueError(
                        f"{answer.geturl()}: a file came that begins with {chunk[:60]!r}, perhaps a page "
                        "with an error or a login: open the address in a browser, then give the command "
                        "again, or name another server with --from"
                    )
                file.write(chunk)
                bar.update(len(chunk))
    if total not in (None, _size(part)):
        raise ConnectionError("it was dropped")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
