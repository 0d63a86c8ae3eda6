"""Get a collection of photographs: download and unpack what may be downloaded, explain the rest.

For each archive a receipt, NAME.receipt.json, stays in the folder: where it came from, its size and sha256,
and the size and CRC-32 of every file in it. So missing and damaged files are found and brought back even when
the archive itself is gone. If the publisher gives no digest, the first download is trusted, and later ones
must be the same: that notices a change, but not a file that was wrong from the start.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from vsecore.data import files
from vsecore.data.annotations import expanded
from vsecore.data.download import download
from vsecore.data.karpathy import load_karpathy
from vsecore.data.sources import COLLECTIONS, Archive, Collection
from vsecore.data.unpacking import RECEIPT, Receipt, read_receipt, unpack


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
    names = [archive.name for archive in collection.archives]
    if unknown := [one for one in only if one not in names]:
        raise ValueError(f"--only is {unknown[0]!r}: {name} has {', '.join(names)}")
    archives = [one for one in collection.archives if (one.name in only if only else one.by_default)]
    root = expanded(root)
    root.mkdir(parents=True, exist_ok=True)
    job = _Job(root, f"vse data get {name} --root {root}", base, delete_archives, say)
    with files.locked(root, "is downloading into", wait=False):
        for archive in archives:
            try:
                job.bring(archive)
            except (OSError, ValueError):  # a server that has moved often answers with a page
                if archive.holds_pictures:
                    job.explain(collection)
                raise
    if only or any(archive.holds_pictures for archive in archives):
        return True
    try:
        load_karpathy(root, root / collection.captions)
    except FileNotFoundError:
        job.explain(collection)
        return False
    return True


@dataclass(frozen=True)
class _Job:
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
        receipt = path.with_name(path.name + RECEIPT)
        before = read_receipt(path)
        if before and _covers(before, archive) and not before.lost(self.root):
            self.say(f"{archive.name}: all files are there and whole ({len(before.members)})")
        else:
            wanted = archive.sha256 or (before.sha256 if before else None)
            try:
                sha256 = self._fetch(archive, path, wanted)
                if wanted not in (None, sha256):
                    raise ValueError(f"{path} has sha256 {sha256}, wanted {wanted}")
                members = unpack(path, archive.takes, self.root)
            except ValueError as error:
                wrong = path if path.is_file() else receipt
                raise ValueError(
                    f"{error}. If it is another version, delete {wrong}, and give {self.command} again"
                ) from None
            with files.write_atomically(receipt, "w") as file:
                json.dump(asdict(Receipt(archive.address, sha256, members)), file)
            self.say(f"{archive.name}: {len(members)} files unpacked into {self.root}")
        if self.delete_archives:
            path.unlink(missing_ok=True)

    def _fetch(self, archive: Archive, path: Path, wanted: str | None) -> str:
        """Download an archive, or take the one that is in the folder already; return its sha256."""
        if path.is_file():
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self.say(f"{archive.name}: found in the folder, sha256 {sha256}")
            return sha256
        address = archive.address if self.base is None else f"{self.base.rstrip('/')}/{archive.name}"
        self.say(f"{archive.name}: {archive.about}, from {address}")
        sha256 = download(address, path, sha256=wanted, begins=b"PK")
        trust = "written down at this first download; nobody has confirmed it"
        if wanted:
            trust = "as the publisher says" if archive.sha256 else "as at the first download"
        self.say(f"{archive.name}: {path.stat().st_size:,} bytes, sha256 {sha256} ({trust})")
        return sha256


def _covers(receipt: Receipt, archive: Archive) -> bool:
    """Whether a receipt is for what is wanted now: all collections share Karpathy's archive."""
    return all(any(member.name.startswith(take) for member in receipt.members) for take in archive.takes)
