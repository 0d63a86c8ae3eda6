"""Where the photograph collections are published (`sources.yaml`). The publishers give no digests."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from vsecore.typed import convert


@dataclass(frozen=True)
class Archive:
    """A zip file on the publisher's server, and what is wanted of it."""

    address: str
    """The official one. COCO's is plain http: its server has no certificate for this name."""
    takes: str
    """What is unpacked: a file's name, or a folder's with "/" at its end."""
    about: str
    """What is in it and how large it is, roughly, for people who have to wait for it."""

    @property
    def name(self) -> str:
        """The file's own name, such as "val2014.zip"."""
        return self.address.rpartition("/")[2]

    @property
    def holds_pictures(self) -> bool:
        """Whether a whole folder is taken from it."""
        return self.takes.endswith("/")

    def holds(self, picture: str) -> bool:
        """Whether a picture, by its path in the captions' file, is in the folder that is taken from it."""
        name = PurePosixPath(picture).name
        return self.holds_pictures and picture in (name, self.takes + name)


@dataclass(frozen=True)
class Collection:
    """A collection of photographs with captions."""

    captions: str
    """The annotation file that lies in the root at the end."""
    archives: tuple[Archive, ...]
    by_hand: str = ""
    """What a person must do if pictures are missing, step by step; "{root}" stands for the folder."""


COLLECTIONS: dict[str, Collection] = convert(
    "sources.yaml",
    yaml.safe_load(Path(__file__).with_name("sources.yaml").read_bytes()),
    dict[str, Collection],
)
"""The splits of all three are those of Karpathy and Fei-Fei 2015."""
