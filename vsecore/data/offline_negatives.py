"""Hard negatives from the whole training set, and how a batch draws from them."""

from dataclasses import dataclass

import numpy as np

from vsecore.data.noise import noise
from vsecore.data.splits import Split


@dataclass(frozen=True, eq=False)
class OfflineNegatives:
    """For each picture the hardest captions that are not its own, and for each caption the hardest pictures.

    They are mined from the whole training set; a batch has only what happens to be in it.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2; there 300 captions and 60 pictures.
    """

    texts: np.ndarray
    """(n, k) whole numbers: rows of captions, for each picture."""
    pictures: np.ndarray
    """(Nc, k) whole numbers: rows of pictures, for each caption."""

    def check(self, split: Split) -> None:
        """Check the rows against a split.

        Raises:
            ValueError: shapes or types do not fit, a row does not exist, or one is the anchor's own.
        """
        own = np.arange(len(split))
        for name, rows, anchors, items in (
            ("texts", self.texts, len(split), len(split.captions)),
            ("pictures", self.pictures, len(split.captions), len(split)),
        ):
            if rows.ndim != 2 or len(rows) != anchors or not rows.size or rows.dtype.kind not in "iu":
                raise ValueError(
                    f"{name} of the offline negatives is {rows.dtype} {rows.shape}: wanted whole numbers "
                    f"({anchors}, k) for split {split.name!r}, k at least 1"
                )
            if rows.min() < 0 or rows.max() >= items:
                raise ValueError(
                    f"{name} of the offline negatives names rows {rows.min()} to {rows.max()}: "
                    f"split {split.name!r} has 0 to {items - 1}"
                )
        own_texts = (split.owner[self.texts] == own[:, None]).any(1)
        own_pictures = (self.pictures == split.owner[:, None]).any(1)
        for name, anchor, is_own in (("texts", "picture", own_texts), ("pictures", "caption", own_pictures)):
            if is_own.any():
                raise ValueError(
                    f"{name} of the offline negatives, row {is_own.argmax()}: one belongs to that {anchor}; "
                    "wanted only negatives"
                )


def draw_offline(
    negatives: OfflineNegatives, split: Split, captions: np.ndarray, seed: int, epoch: int, tries: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Draw two captions for each pair of a batch: a hard caption, and a caption of a hard picture.

    Args:
        negatives: what to draw from.
        split: the split that their rows refer to.
        captions: the captions of the pairs, (C,).
        seed: decides the draw.
        epoch: decides it too.
        tries: how often to draw until caption and picture do not belong together. Where they still do, one of
            the other pictures in the caption's list is taken; a list of one picture may leave no choice.

    Returns:
        Rows of captions, (C,) each: T_o, and a caption of I_o. Their owners are I(T_o) and I_o.
    """
    luck = noise(seed, epoch, "offline texts", captions, tries)  # (C, tries)
    hard_texts = _draw_from(negatives.texts, split.owner[captions], luck)
    luck = noise(seed, epoch, "offline pictures", captions, tries)
    hard_pictures = _draw_from(negatives.pictures, captions, luck)
    apart = split.owner[hard_texts] != hard_pictures
    attempt = np.where(apart.any(1), apart.argmax(1), tries - 1)  # the first at which they are apart
    rows = np.arange(len(captions))
    hard_text, hard_picture = hard_texts[rows, attempt], hard_pictures[rows, attempt]  # (C,)
    for row in np.flatnonzero(~apart.any(1)):  # short lists: chance found none, so we look
        listed = negatives.pictures[captions[row]]
        others = listed[listed != split.owner[hard_text[row]]]
        if len(others):
            hard_picture[row] = others[int(luck[row, -1] * len(others))]

    counts = split.caption_counts[hard_picture]
    which = noise(seed, epoch, "offline captions", captions) * counts
    own = split.captions_of(hard_picture)[np.cumsum(counts) - counts + which.astype(np.int64)]
    return hard_text.astype(np.int64), own


def _draw_from(options: np.ndarray, anchors: np.ndarray, luck: np.ndarray) -> np.ndarray:
    """Draw from row `anchors[c]` of the options (A, k), once for each number of luck (C, T) in [0, 1)."""
    places = (luck * options.shape[1]).astype(np.int64)
    return options[anchors[:, None], places]
