"""Download a large file over a bad connection: resumed, checked, and there only when it is whole.

The bytes go to NAME.part. Beside it, NAME.part.json says which version of the file they belong to (its ETag
or date), so that two versions are never glued together.
"""

import contextlib
import email.message
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from vsecore.data import files

CHUNK = 1 << 18
TIMEOUT = 60.0
"""Seconds without a byte after which a connection counts as dropped."""
LONGEST_PAUSE = 60.0
"""Seconds between two attempts at most, also if the server asks for more."""
_PASSING = {408, 425, 429, 500, 502, 503, 504}
"""What servers answer when the same request may succeed later."""


@dataclass(frozen=True)
class Received:
    """What a download has brought."""

    size: int
    sha256: str
    etag: str | None
    """The server's name for this version of the file. It says nothing about the bytes themselves."""
    sized_by_server: bool
    """Whether the server had said beforehand how many bytes would come."""


@dataclass(frozen=True)
class Start:
    """The bytes that a kind of file begins with, such as a zip file."""

    kind: str
    bytes: bytes


ZIP = Start("a zip file", b"PK")


@dataclass
class _Part:
    """A download that is not finished, and the version of the file that it belongs to."""

    path: Path
    address: str
    etag: str | None = None
    modified: str | None = None
    total: int | None = None
    resumed: bool = field(default=False, compare=False)

    @property
    def note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    @property
    def validator(self) -> str | None:
        """What a server can compare: an ETag unless it is a weak one, else the date of the last change."""
        return self.etag if self.etag and not self.etag.startswith("W/") else self.modified

    def have(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def recall(self) -> None:
        """Find out which version an earlier run was receiving; forget its bytes if that cannot be known."""
        known = {}
        with contextlib.suppress(OSError, ValueError):
            known = json.loads(self.note.read_bytes())
        if isinstance(known, dict) and known.get("address") == self.address:
            self.etag, self.modified, self.total = (known.get(key) for key in ("etag", "modified", "total"))
        if self.validator is None:
            self.forget()
        self.resumed = self.have() > 0

    def forget(self) -> None:
        self.etag = self.modified = self.total = None
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self.resumed = False

    def begin(self, headers: email.message.Message) -> None:
        """Note the version that is coming, before its first byte is written."""
        self.forget()
        self.etag, self.modified = headers["ETag"], headers["Last-Modified"]
        self.total = _number(headers["Content-Length"])
        with files.write_atomically(self.note, "w") as note:
            kept = {name: value for name, value in asdict(self).items() if name not in ("path", "resumed")}
            json.dump(kept, note)


class _Again(Exception):
    """An attempt that failed in a way that another may not. Its text is the reason."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


def download(
    address: str,
    path: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    start: Start | None = None,
    attempts: int = 8,
    pause: float = 1.0,
    then: str = "give the command again",
) -> Received:
    """Download a file, resuming what an earlier run has left.

    Args:
        address: http or https.
        path: the file to write. Its folder must exist.
        size: its bytes, if known beforehand.
        sha256: its digest in hexadecimal, if known beforehand.
        start: the bytes it must begin with: a server's error page is noticed by its first bytes.
        attempts: how many may fail in a row. One that brings new bytes begins the count anew.
        pause: seconds before the second of them; doubled each time.
        then: what to do next, for the messages.

    Returns:
        Size, digest and the server's own words about them.

    Raises:
        ValueError: the address is not http, or another file came than was wanted.
        OSError: the server does not answer, has no such file, or the disk is too small.
    """
    if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
        raise ValueError(f"the address is {address!r}: wanted one that begins with http:// or https://")
    part = _Part(path.with_name(f"{path.name}.part"), address)
    part.recall()
    failed, most, version_begun = 0, part.have(), part.validator
    with files.progress(desc=path.name, unit="B", unit_scale=True, initial=most) as bar:
        while True:
            try:
                _receive(part, size, start, then, bar)
            except _Again as reason:
                if part.validator != version_begun:
                    most, version_begun = part.have(), part.validator  # another version: its bytes count anew
                elif part.have() > most:
                    failed, most = 0, part.have()
                failed += 1
                if failed >= attempts:
                    raise OSError(
                        f"{address}: {reason}, {failed} times in a row; {_came(part, size)}. What came is "
                        f"kept in {part.path}: {then}, and it continues"
                    ) from None
                wait = min(pause * 2 ** (failed - 1) if reason.pause is None else reason.pause, LONGEST_PAUSE)
                print(f"{path.name}: {reason}; trying again in {wait:.0f} s", file=sys.stderr)
                time.sleep(wait)
                continue
            digest, came = _sha256(part.path), part.have()
            if sha256 in (None, digest) and size in (None, came):
                break
            damaged_here = part.resumed  # the bytes of an earlier run may have been damaged on this disk
            part.forget()
            if not damaged_here:
                raise ValueError(
                    f"{address}: {came:,} bytes with sha256 {digest} came, wanted {_wanted(size, sha256)}: "
                    f"they were thrown away; {then}, or name another server with --from"
                )
    received = Received(came, digest, part.etag, part.total is not None)
    with part.path.open("rb+") as file:
        os.fsync(file.fileno())
    part.path.replace(path)
    part.note.unlink(missing_ok=True)
    return received


def _receive(part: _Part, size: int | None, start: Start | None, then: str, bar: Any) -> None:
    """Make one attempt: ask for what is missing and write what comes.

    Raises:
        _Again: it did not end with a whole file.
    """
    have = part.have()
    headers = {"User-Agent": f"vsecore/{version('vsecore')}", "Accept-Encoding": "identity"}
    if have and part.validator:
        headers |= {"Range": f"bytes={have}-", "If-Range": part.validator}
    try:
        answer = _OPENER.open(urllib.request.Request(part.address, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            _refused(error, part, then)
        return
    except (http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise OSError(
                f"{part.address}: the server cannot prove who it is ({reason}): {then} later"
            ) from None
        raise _Again(f"no connection ({reason or type(reason).__name__})") from None
    with answer:
        if answer.status == 206 and _continues(answer.headers, part, have):
            mode = "ab"
        elif answer.status == 200:
            part.begin(answer.headers)
            mode, have = "wb", 0
        else:
            part.forget()
            raise _Again(f"the server sent another part than was asked for (status {answer.status})")
        bar.total = part.total if size is None else size
        bar.n = have
        bar.refresh()
        wanted = size if size is not None else part.total
        if size is not None and part.total not in (None, size):
            total = part.total
            part.forget()
            raise ValueError(
                f"{part.address}: the server has a file of {total:,} bytes, wanted {size:,}: {then} later, "
                "or name another server with --from"
            )
        free = shutil.disk_usage(part.path.parent).free
        if wanted is not None and wanted - have > free:
            raise OSError(
                f"{part.address}: {wanted - have:,} bytes are to come, and {part.path.parent} has {free:,} "
                f"free: make room, then {then}"
            )
        with part.path.open(mode) as file:
            _copy(answer, file, have, start, part, then, bar, wanted)
    if wanted is not None and part.have() < wanted:
        raise _Again("the connection was dropped")


def _copy(
    answer: http.client.HTTPResponse,
    file: IO[bytes],
    have: int,
    start: Start | None,
    part: _Part,
    then: str,
    bar: Any,
    wanted: int | None,
) -> None:
    """Write what comes to the end of the part.

    Raises:
        _Again: the connection ended early.
        ValueError: it is another kind of file, or longer than it may be.
    """
    while True:
        try:
            chunk = answer.read1(CHUNK)
        except (http.client.HTTPException, OSError) as error:
            raise _Again(f"the connection was dropped ({error or type(error).__name__})") from None
        if not chunk:
            return
        if start and have == 0 and not chunk.startswith(start.bytes[: len(chunk)]):
            kind = answer.headers.get_content_type()
            shown = chunk[:60].decode("ascii", "replace")
            file.close()
            part.forget()
            raise ValueError(
                f"{part.address}: wanted {start.kind}, and a file of type {kind} came that begins with "
                f"{shown!r}, perhaps a page with an error or a login: open the address in a browser, then "
                f"{then}, or name another server with --from"
            )
        have += len(chunk)
        if wanted is not None and have > wanted:
            file.close()
            part.forget()
            raise ValueError(
                f"{part.address}: more than the {wanted:,} bytes came that were wanted: {then}, or name "
                "another server with --from"
            )
        file.write(chunk)
        bar.update(len(chunk))


def _continues(headers: email.message.Message, part: _Part, have: int) -> bool:
    """Whether a partial answer is exactly what is missing of the version that we have begun."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers["Content-Range"] or "")
    if not found or int(found[1]) != have:
        return False
    if part.total is None:
        part.total = _number(found[2])
    same_size = found[2] == "*" or int(found[2]) == part.total
    return same_size and headers["ETag"] in (None, part.etag)


def _refused(error: urllib.error.HTTPError, part: _Part, then: str) -> None:
    """Judge an answer that is an error. It returns if the part turns out to be whole.

    Raises:
        _Again: the server may answer otherwise later.
        OSError: it will not.
    """
    if error.code == 416:  # nothing comes after our last byte
        if part.total is not None and part.have() == part.total:
            return
        part.forget()
        raise _Again("the server has fewer bytes than came before")
    if error.code in _PASSING:
        asked = _number(error.headers["Retry-After"])
        raise _Again(f"the server answers {error.code} {error.reason}", asked)
    raise OSError(
        f"{part.address}: the server answers {error.code} {error.reason}, wanted the file: look whether the "
        f"address opens in a browser, then {then}, or name another server with --from"
    )


def _came(part: _Part, size: int | None) -> str:
    wanted = size if size is not None else part.total
    of = "of an unknown number of" if wanted is None else f"of {wanted:,}"
    return f"{part.have():,} {of} bytes came"


def _wanted(size: int | None, sha256: str | None) -> str:
    told = (None if size is None else f"{size:,} bytes", None if sha256 is None else f"sha256 {sha256}")
    return " with ".join(filter(None, told))


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text.strip()) else None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def _opener() -> urllib.request.OpenerDirector:
    """Return an opener that knows http and https and nothing else: no files, no ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        _Redirects,
    ):
        opener.add_handler(handler())
    return opener


_OPENER = _opener()
