"""Hard negatives from the whole training set, and how a batch draws from them."""

from dataclasses import dataclass

import numpy as np

from vsecore.data.noise import noise
from vsecore.data.splits import Split

TRIES = 10
"""How many times a hard caption and a hard picture are drawn to find two that do not belong together."""


@dataclass(frozen=True, eq=False)
class OfflineNegatives:
    """For each picture the hardest captions that are not its own, for each caption the hardest pictures.

    Source: Chen, Deng and Luo 2020 (AOQ), sections 3.2 and 4.2: 300 captions and 60 pictures.
    """

    texts: np.ndarray
    """(n, k) whole numbers: rows of captions, for each picture."""
    pictures: np.ndarray
    """(Nc, k) whole numbers: rows of pictures, for each caption."""

    def check(self, split: Split) -> None:
        """Check the rows against a split."""
        pictures, captions = len(split), len(split.captions)
        for name, rows, anchors, items in (
            ("texts", self.texts, pictures, captions),
            ("pictures", self.pictures, captions, pictures),
        ):
            fits = rows.ndim == 2 and len(rows) == anchors and rows.size and rows.dtype.kind in "iu"
            if not fits or rows.min() < 0 or rows.max() >= items:
                raise ValueError(
                    f"{name} of the offline negatives is {rows.dtype} {rows.shape}: wanted ({anchors}, k), "
                    f"whole numbers from 0 to {items - 1}"
                )
        own_texts = split.owner[self.texts] == np.arange(pictures)[:, None]  # (n, k)
        own_pictures = self.pictures == split.owner[:, None]  # (Nc, k)
        for name, own in (("texts", own_texts), ("pictures", own_pictures)):
            if own.any():
                row = own.any(1).argmax()
                raise ValueError(f"{name} of the offline negatives, row {row}: one belongs to the anchor")


def draw_offline(
    negatives: OfflineNegatives, split: Split, captions: np.ndarray, seed: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two captions for each pair of a batch: a hard caption T_o, and a caption of a hard picture I_o.

    If the two belong together, they are drawn again, up to `TRIES` times in all. If they still do, the
    picture is replaced by another one of the caption's list; a list of one picture may leave no choice.
    Return their rows, (C,) each; their owners are I(T_o) and I_o.
    """

    def drawn(options: np.ndarray, anchors: np.ndarray, purpose: str) -> np.ndarray:
        places = noise(seed, epoch, purpose, captions, TRIES) * options.shape[1]  # (C, TRIES)
        return options[anchors[:, None], places.astype(np.int64)]

    texts = drawn(negatives.texts, split.owner[captions], "offline texts")
    pictures = drawn(negatives.pictures, captions, "offline pictures")
    apart = split.owner[texts] != pictures
    attempt = np.where(apart.any(1), apart.argmax(1), TRIES - 1)  # the first at which they are apart
    rows = np.arange(len(captions))
    hard_text, hard_picture = texts[rows, attempt], pictures[rows, attempt]  # (C,)
    for row in np.flatnonzero(~apart.any(1)):  # short lists: chance found none, so we search
        listed = negatives.pictures[captions[row]]
        others = listed[listed != split.owner[hard_text[row]]]
        if len(others):
            last = noise(seed, epoch, "offline pictures", captions[[row]], TRIES)[0, -1]
            hard_picture[row] = others[int(last * len(others))]

    counts = split.caption_counts[hard_picture]
    which = noise(seed, epoch, "offline captions", captions) * counts
    own = split.captions_of(hard_picture)[np.cumsum(counts) - counts + which.astype(np.int64)]
    return hard_text.astype(np.int64), own
