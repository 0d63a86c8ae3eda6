"""Where the photograph collections are published: their addresses, and what must be asked for in a form.

All addresses of data stand here. The publishers give no digests.
"""

from dataclasses import dataclass


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


@dataclass(frozen=True)
class Collection:
    """A collection of photographs with captions."""

    captions: str
    """The annotation file that lies in the root at the end."""
    archives: tuple[Archive, ...]
    by_hand: tuple[str, ...] = ()
    """What a person must do if pictures are missing, step by step; "{root}" stands for the folder."""


_KARPATHY = "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
"""The splits of all three collections (Karpathy and Fei-Fei 2015); each needs one file of it."""
_SPLITS = "captions and splits, tens of MB"
_COCO = "http://images.cocodataset.org"
COLLECTIONS: dict[str, Collection] = {
    "coco": Collection(
        "dataset_coco.json",
        (
            Archive(_KARPATHY, "dataset_coco.json", _SPLITS),
            Archive(f"{_COCO}/zips/val2014.zip", "val2014/", "40,504 pictures, about 6 GB"),
            Archive(f"{_COCO}/zips/train2014.zip", "train2014/", "82,783 pictures, about 13 GB"),
        ),
    ),
    "flickr30k": Collection(
        "dataset_flickr30k.json",
        (Archive(_KARPATHY, "dataset_flickr30k.json", _SPLITS),),
        (
            "Flickr30K's pictures are given out only for research and education, after a form:",
            "1. Read the terms on https://shannon.cs.illinois.edu/DenotationGraph/ and fill in the form at "
            "https://forms.illinois.edu/sec/229675.",
            "2. Download flickr30k-images.tar.gz from the address in the e-mail that answers it.",
            "3. Unpack it: tar -xzf flickr30k-images.tar.gz -C {root}",
            "   The pictures are then in {root}/flickr30k-images.",
            "4. Look whether all are there and whole: vse data check {root}",
        ),
    ),
    "flickr8k": Collection(
        "dataset_flickr8k.json",
        (
            Archive(_KARPATHY, "dataset_flickr8k.json", _SPLITS),
            Archive(
                "http://nlp.cs.illinois.edu/HockenmaierGroup/Framing_Image_Description/Flickr8k_Dataset.zip",
                takes="Flicker8k_Dataset/",
                about="8,091 pictures, about 1 GB",
            ),
        ),
        (
            "If the authors' address of Flickr8k's pictures no longer answers, they can be asked for:",
            "1. Fill in the form at https://forms.illinois.edu/sec/1713398.",
            "2. Download Flickr8k_Dataset.zip from the address in the e-mail that answers it.",
            "3. Put it into {root} under that name, and run again: vse data get flickr8k --root {root}",
            "   It unpacks the file. If you trust another server, add --from with the address of its folder.",
        ),
    ),
}
