"""Download a large file over a bad connection: resumed (in NAME.part), and there only when it is whole."""

import http.client
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vsecore.data import files

CHUNK = 1 << 18
TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as dropped."""
LONGEST_PAUSE = 60.0
"""Seconds between two attempts at most."""
_NO_CONNECTION = (
    http.client.HTTPException,
    urllib.error.URLError,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)
_LATER = {408, 416, 425, 429, 500, 502, 503, 504}
"""Status codes after which the same request may succeed later; after 416, one for the whole file."""


def download(address: str, path: Path, *, begins: bytes = b"", attempts: int = 8, pause: float = 1.0) -> None:
    """Download a file, resuming what an earlier run has left.

    Args:
        address: http or https.
        path: the file to write. Its folder must exist.
        begins: the bytes that such a file begins with: a server's error page is noticed by its first bytes.
        attempts: how many may fail in a row. One that brings new bytes begins the count anew.
        pause: seconds before the second of them; doubled each time.
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
                        f"{address}: {reason}: try it in a browser, or another server with --from"
                    ) from None
                if error.code == 416:  # nothing comes after the bytes that are here
                    if error.headers["Content-Range"] == f"bytes */{_size(part)}":
                        break
                    part.unlink(missing_ok=True)
            except _NO_CONNECTION as error:
                reason = f"no connection ({getattr(error, 'reason', None) or error or type(error).__name__})"
            failed = 1 if _size(part) > most else failed + 1
            most = max(most, _size(part))
            if failed >= attempts:
                raise OSError(
                    f"{address}: {reason}, {failed} times in a row. The {_size(part):,} bytes in {part} stay"
                )
            wait = min(pause * 2 ** (failed - 1), LONGEST_PAUSE)
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
                        f"{answer.geturl()}: what came begins with {chunk[:60]!r}: open the address in a "
                        "browser, or name another server with --from"
                    )
                file.write(chunk)
                bar.update(len(chunk))
    if total not in (None, _size(part)):
        raise ConnectionError("it was dropped")


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
