"""Download a large file over a bad connection: resumed, checked, and there only when it is whole.

The bytes go to NAME.part. Beside it, NAME.part.json says which version of the file they belong to (its ETag
or date), so that two versions are never glued together.
"""

import contextlib
import http.client
import json
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any
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


class _Dropped(Exception):
    """An attempt that failed in a way that another may not. Its text is the reason."""


def download(
    address: str,
    path: Path,
    *,
    sha256: str | None = None,
    begins: bytes = b"",
    attempts: int = 8,
    pause: float = 1.0,
) -> str:
    """Download a file, resuming what an earlier run has left.

    Args:
        address: http or https.
        path: the file to write. Its folder must exist.
        sha256: its digest in hexadecimal, if known beforehand.
        begins: the bytes that such a file begins with: a server's error page is noticed by its first bytes.
        attempts: how many may fail in a row. One that brings new bytes begins the count anew.
        pause: seconds before the second of them; doubled each time.

    Returns:
        The sha256 of what came.

    Raises:
        ValueError: the address is not http, or another file came than was wanted.
        OSError: the server does not answer, has no such file, or the disk is too small.
    """
    if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
        raise ValueError(f"the address is {address!r}: wanted one that begins with http:// or https://")
    part = path.with_name(f"{path.name}.part")
    failed, most = 0, _have(part)
    with files.progress(desc=path.name, unit="B", unit_scale=True) as bar:
        while True:
            try:
                _receive(address, part, begins, bar)
                break
            except _Dropped as reason:
                failed = 1 if _have(part) > most else failed + 1
                most = max(most, _have(part))
                if failed >= attempts:
                    raise OSError(
                        f"{address}: {reason}, {failed} times in a row. The {_have(part):,} bytes that came "
                        f"are kept in {part}: give the command again, and it continues"
                    ) from None
                wait = min(pause * 2 ** (failed - 1), LONGEST_PAUSE)
                print(f"{path.name}: {reason}; trying again in {wait:.0f} s", file=sys.stderr)
                time.sleep(wait)
    digest = files.digest_of(part).hex()
    if sha256 not in (None, digest):
        _forget(part)
        raise ValueError(
            f"{address}: a file with sha256 {digest} came, wanted {sha256}: it was thrown away; give the "
            "command again, or name another server with --from"
        )
    part.replace(path)
    _note(part).unlink(missing_ok=True)
    return digest


def _receive(address: str, part: Path, begins: bytes, bar: Any) -> None:
    """Make one attempt: ask for what is missing, and write what comes.

    Raises:
        _Dropped: it did not end with a whole file, but another attempt may.
    """
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, TypeError):
        known = dict(json.loads(_note(part).read_bytes()))
    if known.get("address") != address or not known.get("version"):
        _forget(part)
    have = _have(part)
    if have and have == known.get("total"):
        return
    headers = {"User-Agent": f"vsecore/{version('vsecore')}", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": known["version"]}
    request = urllib.request.Request(address, headers=headers)
    try:
        with _OPENER.open(request, timeout=TIMEOUT) as answer:
            if not str(answer.headers["Content-Range"]).startswith(f"bytes {have}-"):
                _forget(part)  # the whole file comes, or another part than was asked for
                have = 0
            if answer.status != (206 if have else 200):
                raise _Dropped(f"the server answers {answer.status} in place of the file")
            if not have:
                known = _begin(address, part, answer.headers)
            _copy(answer, part, known.get("total"), begins, bar)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:
                _forget(part)
            if error.code in _LATER:
                raise _Dropped(f"the server answers {error.code} {error.reason}") from None
            raise OSError(
                f"{address}: the server answers {error.code} {error.reason}: look whether the address opens "
                "in a browser, then give the command again, or name another server with --from"
            ) from None
    except _NO_CONNECTION as error:
        raise _Dropped(f"no connection ({getattr(error, 'reason', None) or type(error).__name__})") from None


def _begin(address: str, part: Path, headers: http.client.HTTPMessage) -> dict[str, Any]:
    """Note the version that is coming, before its first byte is written."""
    etag, length = headers["ETag"], headers["Content-Length"]
    comparable = headers["Last-Modified"] if not etag or etag.startswith("W/") else etag
    known = {"address": address, "version": comparable, "total": int(length) if length else None}
    _note(part).write_text(json.dumps(known), "utf-8")  # half of it would be as good as none
    return known


def _copy(answer: Any, part: Path, total: int | None, begins: bytes, bar: Any) -> None:
    """Write what comes to the end of the part."""
    bar.total, bar.n = total, _have(part)
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - bar.n > free:
        raise OSError(f"{part} needs {total - bar.n:,} bytes more, and its disk has {free:,} free: make room")
    with part.open("ab") as file:
        while chunk := answer.read1(CHUNK):
            if file.tell() == 0 and not chunk.startswith(begins[: len(chunk)]):
                raise ValueError(
                    f"{answer.geturl()}: a file came that begins with {chunk[:60]!r}, perhaps a page with an "
                    "error or a login: open the address in a browser, then give the command again, or name "
                    "another server with --from"
                )
            file.write(chunk)
            bar.update(len(chunk))
    if total not in (None, _have(part)):
        raise _Dropped("the connection was dropped")


def _have(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to another address, but never from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise urllib.error.HTTPError(newurl, code, "and leads to an unsafe address", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_Redirects)
