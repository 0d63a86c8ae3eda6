"""Where files go, how they are written, and how long work shows its progress."""

import contextlib
import errno
import hashlib
import importlib.metadata
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Literal

import platformdirs
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from vsecore.stopping import is_main_process
from vsecore.typed import from_json

LOCK = ".lock"
_HIDDEN: ContextVar[bool] = ContextVar("hidden", default=False)


def expanded(path: str | Path) -> Path:
    """Return a path with "~" expanded to the home folder, as it is if there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  (where pathlib would raise)


@contextmanager
def write_atomically(path: str | Path, mode: Literal["wb", "w"] = "wb") -> Iterator[IO[Any]]:
    """Open a file that appears whole or not at all, for bytes ("wb") or UTF-8 text ("w").

    The bytes go to a hidden neighbour of `path`, which takes the name `path` only when the block has ended
    without an error. A reader never sees half a file, and an interrupted run leaves an older file as it was.
    If the disk is full, or fails, the error names `path`, also where a library's does not.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The same folder, so that the rename stays on one disk: only then is it atomic.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    text = {} if mode == "wb" else {"encoding": "utf-8", "newline": "\n"}
    try:
        with partial.open(mode.replace("w", "x"), **text) as file:  # type: ignore[call-overload]
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        if type(error) is not OSError or error.filename is not None:  # a full disk has no type of its own
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all."""
    with write_atomically(path, "w" if isinstance(content, str) else "wb") as file:
        file.write(content)


def write_json(path: str | Path, content: Any, **options: Any) -> None:
    """Write a JSON file whole or not at all, with options of `json.dump`."""
    with write_atomically(path, "w") as file:
        json.dump(content, file, **options)


def read_json(path: str | Path, kind: Any = dict[str, Any]) -> Any:
    """Read a JSON file whose content must have a type, such as a dataclass; by default any JSON object."""
    return from_json(str(path), read_bytes(path), kind)


def read_bytes(path: str | Path) -> bytes:
    """Read a text file whole, as bytes."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: get it, or name another")
    return path.read_bytes()


def read_unicode(path: str | Path) -> str:
    """Read a text file in UTF-8 whole."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from None


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a text file, without the blanks around them."""
    # Only at "\n": splitlines would also cut at rarer characters, which some captions contain.
    return [line.strip() for line in read_unicode(path).removesuffix("\n").split("\n")]


@contextmanager
def damage_named(where: object) -> Iterator[None]:
    """Turn what reading damaged bytes raises into a ValueError that names their place."""
    try:
        yield
    except OSError:
        raise
    # numpy parses a header as Python code, which fails in as many ways as code can, and so may an archive.
    except Exception as error:
        reason = str(error).partition("\n")[0].partition(". ")[0][:100]  # not how to run pickled code
        raise ValueError(f"{where} is damaged or cut off ({reason}): get the file again") from None


def digest_of(path: Path) -> bytes:
    """Return the sha256 of a file's content; b"" for anything but a file."""
    if not path.is_file():  # a pipe would make us wait for its other end
        return b""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def holds(path: Path, text: str) -> bool:
    """Whether a file holds exactly this text."""
    return path.is_file() and path.read_bytes() == text.encode()


@contextmanager
def locked(folder: Path, doing: str, wait: bool = True, name: str = LOCK) -> Iterator[None]:
    """Keep every other process out of a folder; the system releases the lock if this process is killed.

    If another process `doing` something, such as "is extracting into", has the lock, wait for its end, or
    else raise a BlockingIOError. A folder in which this user may not write can be read, without a lock, as
    long as nobody else works in it. A lock of another `name` is for one part of what is in the folder.
    """
    lock = FileLock(folder / name)
    message = f"another process {doing} {folder}: "
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise BlockingIOError(f"{message}wait until it has finished, or name another folder") from None
        print(f"{message}waiting until it has finished", file=sys.stderr)
        lock.acquire()
    except OSError as error:
        may_not_write = isinstance(error, PermissionError) or error.errno == errno.EROFS
        if not may_not_write or Path(lock.lock_file).exists():
            raise
        yield
        return
    try:
        yield
    finally:
        # Before the release: a waiting process notices that the file has gone. Windows keeps an open file.
        with contextlib.suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def installed_file(package: str, name: str, sha256: str) -> Path | None:
    """Find a file of an installed package, whose code is not run. None: the package is not installed."""
    try:
        entries = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for path in (Path(str(entry.locate())) for entry in entries if entry.name == name):
        if (digest := digest_of(path).hex()) != sha256:
            raise ValueError(f"{path} has sha256 {digest}, wanted {sha256}: install the package again")
        return path
    return None


def cache_folder(*parts: str) -> Path:
    """Return a folder, made if it is missing, for files that can be made again, if some in days.

    It lies in the user's cache, or in the folder that VSECORE_CACHE names; `parts` are the folders in between
    and its own name, outermost first.
    """
    root = os.environ.get("VSECORE_CACHE") or platformdirs.user_cache_dir("vsecore")
    folder = expanded(root).joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def in_batch() -> bool:
    """Whether nobody is watching (VSECORE_BATCH=1): then there are no progress bars, and output is stable."""
    return os.environ.get("VSECORE_BATCH") == "1"


def progress(iterable: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return the progress bar used everywhere: on stderr, or a widget in a notebook. It goes when it is done.

    Of several processes that share a training, only the first shows it.

    Its options are those of `tqdm`, such as `total`, `desc`, `unit`. Without an iterable, `.update` moves it.
    """
    options.setdefault("disable", in_batch() or _HIDDEN.get() or not is_main_process())
    return _Bar(iterable, dynamic_ncols=True, leave=False, **options)


class _Bar(tqdm):
    """A bar that takes its output along: a saved notebook could not show a widget that was closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if not _IN_NOTEBOOK:
            super().__init__(*arguments, **options)
            return
        super().__init__(*arguments, display=False, **options)
        if not self.disable:
            from tqdm.notebook import display

            self._shown = display(self.container, display_id=True)

    def close(self) -> None:
        """Close the bar, as often as wanted; one that stopped before its end stays."""
        super().close()
        if hasattr(self, "_shown") and self.container.comm is None:
            self._shown.update({"text/plain": ""}, raw=True)


_IN_NOTEBOOK = any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)


@contextmanager
def without_progress() -> Iterator[None]:
    """Show no progress bars of the work inside: whoever uses only a part of it shows a bar of its own."""
    token = _HIDDEN.set(True)
    try:
        yield
    finally:
        _HIDDEN.reset(token)
