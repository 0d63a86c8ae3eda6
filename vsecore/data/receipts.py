"""Receipts of downloads: they say what came, so that missing and damaged files are noticed later."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vsecore.data import files
from vsecore.data.unpacking import Member

ENDING = ".receipt.json"


@dataclass(frozen=True)
class Receipt:
    """What came from an archive's address, and what was in it."""

    address: str
    size: int
    sha256: str
    etag: str | None
    """The server's name for the version that came."""
    size_from: str
    """ "publisher", "server" (its Content-Length), or "what came"."""
    sha256_from: str
    """ "publisher", or "first download": then it shows only that the file has not changed since."""
    members: list[Member]
    """The files that were unpacked."""

    def lost(self, root: Path) -> list[Member]:
        """Return the files that are missing or damaged in a folder."""
        shown = files.progress(self.members, desc="compare files", unit="file")
        return [member for member in shown if not member.is_whole(root / member.name)]


def place_of(archive: Path) -> Path:
    """Return where the receipt of an archive is."""
    return archive.with_name(archive.name + ENDING)


def read_receipt(archive: Path) -> Receipt | None:
    """Return the receipt of an archive; None: there is none.

    Raises:
        ValueError: it is damaged.
    """
    place = place_of(archive)
    if not place.is_file():
        return None
    try:
        receipt: Receipt = files.read_json(place, Receipt)
    except ValueError as error:
        raise ValueError(f"{error}. Delete {place}: vse data get makes it again") from None
    return receipt


def losses(root: Path) -> Iterator[tuple[str, str]]:
    """Find what is missing or damaged of what was downloaded into a folder.

    Yields:
        The name of a file below the root, and what is wrong with it.

    Raises:
        ValueError: a receipt is damaged.
    """
    for path in sorted(root.glob("[!.]*.part")):
        yield path.name, "an unfinished download"
    for path in sorted(root.glob("*" + ENDING)):
        receipt = read_receipt(path.with_name(path.name.removesuffix(ENDING)))
        for member in receipt.lost(root) if receipt else ():
            there = (root / member.name).is_file()
            yield member.name, "damaged: not the bytes that were downloaded" if there else "missing"
