"""Download a large file over a bad connection: resumed, checked, and there only when it is whole.

The bytes go to NAME.part. Beside it, NAME.part.json says which version of the file they belong to (its ETag
or date), so that two versions are never glued together.
"""

import contextlib
import hashlib
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
_LATER = {408, 425, 429, 500, 502, 503, 504}
"""What servers answer when the same request may succeed later."""


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
    note = part.with_name(f"{part.name}.json")
    failed, most = 0, _have(part)
    with files.progress(desc=path.name, unit="B", unit_scale=True) as bar:
        while True:
            before = _have(part)
            try:
                _receive(address, part, note, begins, bar)
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
                continue
            with part.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if sha256 in (None, digest):
                break
            _forget(part, note)
            failed, most = 0, 0
            if not before:  # else the bytes of an earlier attempt may have been damaged on this disk
                raise ValueError(
                    f"{address}: a file with sha256 {digest} came, wanted {sha256}: it was thrown away; give "
                    "the command again, or name another server with --from"
                )
    part.replace(path)
    note.unlink(missing_ok=True)
    return digest


def _receive(address: str, part: Path, note: Path, begins: bytes, bar: Any) -> None:
    """Make one attempt: ask for what is missing, and write what comes.

    Raises:
        _Dropped: it did not end with a whole file.
    """
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(note.read_bytes())
    if not isinstance(known, dict) or known.get("address") != address or not known.get("version"):
        _forget(part, note)
        known = {}
    have = _have(part)
    if have and have == known.get("total"):
        return
    headers = {"User-Agent": f"vsecore/{version('vsecore')}", "Accept-Encoding": "identity"}
    if have:
        headers |= {"Range": f"bytes={have}-", "If-Range": known["version"]}
    try:
        with _OPENER.open(urllib.request.Request(address, headers=headers), timeout=TIMEOUT) as answer:
            if answer.status == 206 and not (
                str(answer.headers["Content-Range"]).startswith(f"bytes {have}-")
                and answer.headers["ETag"] in (None, known["version"], known.get("etag"))
            ):
                _forget(part, note)
                raise _Dropped("the server sent another part than was asked for")
            if answer.status not in (200, 206):
                raise _Dropped(f"the server answers {answer.status} in place of a file")
            if answer.status == 200:
                have = 0
                known = _begin(address, part, note, answer.headers)
            _copy(answer, part, have, known.get("total"), begins, bar)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:  # nothing comes after our last byte
                _forget(part, note)
            if error.code == 416 or error.code in _LATER:
                raise _Dropped(f"the server answers {error.code} {error.reason}") from None
            raise OSError(
                f"{address}: the server answers {error.code} {error.reason}: look whether the address opens "
                "in a browser, then give the command again, or name another server with --from"
            ) from None
    except _NO_CONNECTION as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise OSError(f"{address}: its certificate is not valid: {reason}") from None
        raise _Dropped(f"no connection ({getattr(error, 'reason', None) or type(error).__name__})") from None


def _begin(address: str, part: Path, note: Path, headers: http.client.HTTPMessage) -> dict[str, Any]:
    """Note the version that is coming, before its first byte is written."""
    _forget(part, note)
    etag, length = headers["ETag"], headers["Content-Length"]
    comparable = headers["Last-Modified"] if not etag or etag.startswith("W/") else etag
    known = {
        "address": address,
        "version": comparable,
        "etag": etag,
        "total": int(length) if length and length.isdecimal() else None,
    }
    with files.write_atomically(note, "w") as file:
        json.dump(known, file)
    return known


def _copy(
    answer: http.client.HTTPResponse, part: Path, have: int, total: int | None, begins: bytes, bar: Any
) -> None:
    """Write what comes to the end of the part.

    Raises:
        _Dropped: the connection ended early.
        ValueError: it is another kind of file.
        OSError: the disk is too small.
    """
    bar.total, bar.n = total, have
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - have > free:
        raise OSError(f"{part} needs {total - have:,} bytes more, and its disk has {free:,} free: make room")
    with part.open("ab") as file:
        while chunk := answer.read1(CHUNK):
            if have == 0 and not chunk.startswith(begins[: len(chunk)]):
                raise ValueError(
                    f"{answer.geturl()}: a file came that begins with {chunk[:60]!r}, perhaps a page with an "
                    "error or a login: open the address in a browser, then give the command again, or name "
                    "another server with --from"
                )
            have += len(chunk)
            file.write(chunk)
            bar.update(len(chunk))
    if total is not None and have != total:
        raise _Dropped("the connection was dropped")


def _have(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def _forget(part: Path, note: Path) -> None:
    part.unlink(missing_ok=True)
    note.unlink(missing_ok=True)


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
