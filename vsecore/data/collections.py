"""Get a collection of photographs: download and unpack what may be downloaded, explain the rest.

For each archive a receipt, NAME.receipt.json, stays in the folder: where it came from, its size and sha256,
and the size and CRC-32 of every file in it. So missing and damaged files are found and brought back even when
the archive itself is gone. The first download is trusted, and later ones must be the same: that notices a
change, but not a file that was wrong from the start.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from vsecore.data import files
from vsecore.data.annotations import expanded
from vsecore.data.download import download
from vsecore.data.karpathy import load_karpathy
from vsecore.data.sources import COLLECTIONS, Archive
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
        only: names of archives, such as "val2014.zip"; none: all.
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
    collection, root = COLLECTIONS[name], expanded(root)
    names = [archive.name for archive in collection.archives]
    if unknown := set(only) - set(names):
        raise ValueError(f"--only is {min(unknown)!r}: {name} has {', '.join(names)}")
    archives = [archive for archive in collection.archives if not only or archive.name in only]
    steps = "\n".join(collection.by_hand).format(root=root)
    root.mkdir(parents=True, exist_ok=True)
    with files.locked(root, "is downloading into", wait=False):
        for archive in archives:
            try:
                _bring(archive, root, base, say)
            except (OSError, ValueError) as error:  # a server that has moved often answers with a page
                if archive.holds_pictures and steps:
                    say(steps)
                if isinstance(error, ValueError):
                    again = f"vse data get {name} --root {root}"
                    raise ValueError(f"{error}, and give {again} again") from None
                raise
            if delete_archives:
                (root / archive.name).unlink(missing_ok=True)
    if not only and not any(archive.holds_pictures for archive in archives):
        try:
            load_karpathy(root, root / collection.captions)
        except FileNotFoundError:
            say(steps)
            return False
    return True


def _bring(archive: Archive, root: Path, base: str | None, say: Callable[[str], None]) -> None:
    """Download an archive and unpack it, as far as that is not done.

    Raises:
        ValueError: it is not what it should be; the message says what to delete.
    """
    path = root / archive.name
    receipt, before = path.with_name(path.name + RECEIPT), read_receipt(path)
    names = [member.name for member in before.members] if before else []
    # All collections share Karpathy's archive, so its receipt may be for another one's captions.
    covered = all(any(name.startswith(take) for name in names) for take in archive.takes)
    if before and covered and not before.lost(root):
        say(f"{archive.name}: all files are there and whole ({len(names)})")
        return
    wanted = before.sha256 if before else None
    try:
        if path.is_file():
            sha256 = files.digest_of(path).hex()
            say(f"{archive.name}: found in the folder, sha256 {sha256}")
        else:
            address = archive.address if base is None else f"{base.rstrip('/')}/{archive.name}"
            say(f"{archive.name}: {archive.about}, from {address}")
            sha256 = download(address, path, sha256=wanted, begins=b"PK")
            trust = "as at the first download"
            if wanted is None:
                trust = "written down at this first download; nobody has confirmed it"
            say(f"{archive.name}: {path.stat().st_size:,} bytes, sha256 {sha256} ({trust})")
        if wanted not in (None, sha256):
            raise ValueError(f"{path} has sha256 {sha256}, wanted {wanted}")
        members = unpack(path, archive.takes, root)
    except ValueError as error:
        wrong = path if path.is_file() else receipt
        raise ValueError(f"{error}. If it is another version, delete {wrong}") from None
    with files.write_atomically(receipt, "w") as file:
        json.dump(asdict(Receipt(archive.address, sha256, members)), file)
    say(f"{archive.name}: {len(members)} files unpacked into {root}")
