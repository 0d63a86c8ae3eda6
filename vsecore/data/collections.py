"""Get a collection of photographs: download and unpack what may be downloaded, explain the rest.

For each archive a receipt, NAME.receipt.json, stays in the folder: where it came from, its size and sha256,
and the size and CRC-32 of every file in it. So missing and damaged files are found and brought back even when
the archive itself is gone. If the publisher gives no digest, the first download is trusted, and later ones
must be the same: that notices a change, but not a file that was wrong from the start.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vsecore.data import files
from vsecore.data.annotations import expanded
from vsecore.data.download import ZIP, download
from vsecore.data.karpathy import load_karpathy
from vsecore.data.receipts import Receipt, place_of, read_receipt
from vsecore.data.sources import COLLECTIONS, Archive, Collection
from vsecore.data.unpacking import read_members, unpack
from vsecore.typed import short


def get(
    name: str,
    root: str | Path,
    *,
    only: Sequence[str] = (),
    base: str | None = None,
    delete_archives: bool = False,
    say: Callable[[str], None] = print,
) -> bool:
    """Download and unpack a collection. What is already there and whole is left as it is.

    An archive that lies in the folder under its own name is used instead of a download.

    Args:
        name: "coco", "flickr30k" or "flickr8k".
        root: the folder to put it into; made if it is missing.
        only: names of archives, such as "val2014.zip"; none: all that the course needs.
        base: the address of a folder that has the same archives, such as a mirror's; None: the official ones.
        delete_archives: whether an archive is deleted once it is unpacked.
        say: what to do with a line for the user.

    Returns:
        Whether all that was asked for is there. If not, a person must do the steps that were said.

    Raises:
        ValueError: a name is unknown, or an archive is not what it should be.
        OSError: a server does not answer, the disk is too small, or another process is at work in the folder.
    """
    if name not in COLLECTIONS:
        raise ValueError(f"the collection is {name!r}: wanted one of {', '.join(COLLECTIONS)}")
    collection = COLLECTIONS[name]
    archives = _chosen(name, collection, only)
    root = expanded(root)
    root.mkdir(parents=True, exist_ok=True)
    errand = _Errand(root, f"vse data get {name} --root {root}", base, delete_archives, say)
    with files.locked(root, "is downloading into", wait=False):
        for archive in archives:
            try:
                errand.bring(archive)
            except (OSError, ValueError):  # a server that has moved often answers with a page
                if archive.holds_pictures:
                    errand.explain(collection)
                raise
    if only or any(archive.holds_pictures for archive in archives):
        return True
    try:
        load_karpathy(root, root / collection.captions)
    except FileNotFoundError:
        errand.explain(collection)
        return False
    return True


@dataclass(frozen=True)
class _Errand:
    """What is the same for all archives of one call."""

    root: Path
    command: str
    base: str | None
    delete_archives: bool
    say: Callable[[str], None]

    def explain(self, collection: Collection) -> None:
        for line in collection.by_hand:
            self.say(line.format(root=self.root))

    def bring(self, archive: Archive) -> None:
        """Download an archive and unpack it, as far as that is not done."""
        path = self.root / archive.name
        before = read_receipt(path)
        if before and _covers(before, archive) and not before.lost(self.root):
            self.say(f"{archive.name}: all files are there and whole ({len(before.members)})")
        else:
            receipt = (
                self._judge(archive, path, before) if path.is_file() else self._fetch(archive, path, before)
            )
            try:
                members = read_members(path, archive.takes)
                todo = [member for member in members if not member.is_whole(self.root / member.name)]
                unpack(path, todo, self.root)
            except ValueError as error:
                raise ValueError(f"{error}. Delete {path}, and give {self.command} again") from None
            with files.write_atomically(place_of(path), "w") as file:
                json.dump(asdict(replace(receipt, members=members)), file)
            self.say(f"{archive.name}: {len(todo)} of {len(members)} files unpacked into {self.root}")
        if self.delete_archives:
            path.unlink(missing_ok=True)

    def _fetch(self, archive: Archive, path: Path, before: Receipt | None) -> Receipt:
        """Download an archive, and hold it against what its publisher says or an earlier download brought."""
        address = archive.address if self.base is None else f"{self.base.rstrip('/')}/{archive.name}"
        self.say(f"{archive.name}: {archive.about}, from {address}")
        size, sha256 = archive.size, archive.sha256
        then = f"give {self.command} again"
        if before and sha256 is None:
            size, sha256 = before.size, before.sha256
            then += f" (if the publisher has a new version, delete {place_of(path)} first)"
        came = download(address, path, size=size, sha256=sha256, start=ZIP, then=then)
        size_from = "publisher" if archive.size else "server" if came.sized_by_server else "what came"
        receipt = Receipt(address, came.size, came.sha256, came.etag, size_from, _trust(archive), [])
        if before or archive.sha256:
            trust = "as the publisher says" if archive.sha256 else "as at the first download"
        else:
            trust = "written down at this first download; nobody has confirmed it"
        counted_by = "as the server said" if size_from == "server" else f"from {size_from}"
        self.say(f"{archive.name}: {came.size:,} bytes ({counted_by}), sha256 {came.sha256} ({trust})")
        return receipt

    def _judge(self, archive: Archive, path: Path, before: Receipt | None) -> Receipt:
        """Judge an archive that is in the folder already."""
        size = path.stat().st_size
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        wanted = archive.sha256 or (before.sha256 if before else None)
        if wanted not in (None, sha256) or archive.size not in (None, size):
            raise ValueError(
                f"{path} has {size:,} bytes and sha256 {sha256}, wanted sha256 {wanted}: delete it, and give "
                f"{self.command} again (if it is a new version, delete {place_of(path)} instead)"
            )
        self.say(f"{archive.name}: found in the folder, {size:,} bytes, sha256 {sha256}")
        if before:
            return before
        return Receipt(str(path), size, sha256, None, "what came", _trust(archive), [])


def _trust(archive: Archive) -> str:
    return "publisher" if archive.sha256 else "first download"


def _covers(receipt: Receipt, archive: Archive) -> bool:
    """Whether a receipt is for what is wanted now: all collections share Karpathy's archive."""
    return all(any(member.name.startswith(take) for member in receipt.members) for take in archive.takes)


def _chosen(name: str, collection: Collection, only: Sequence[str]) -> list[Archive]:
    names = [archive.name for archive in collection.archives]
    for one in only:
        if one not in names:
            raise ValueError(f"--only is {short(one)}: {name} has {', '.join(names)}")
    return [
        archive for archive in collection.archives if (archive.name in only if only else archive.by_default)
    ]
