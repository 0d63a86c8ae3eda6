"""What a first round leaves to the second: its negatives, and how many of them are true of their anchor.

Source: Chen, Deng and Luo 2020 (AOQ), section 3.2. No photograph shows how many mined "negatives" are true;
on the scenes, whose truth is known, they can be counted, and left out.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Split
from vsecore.mining import mine
from vsecore.model import VSE
from vsecore.scoring import Captions
from vsecore.training import score_split

SHARES = ("mined_true_texts", "mined_true_pictures")
"""What `shares_true` gives."""
BLOCK = 1000
"""How many anchors are sorted at once."""


@torch.inference_mode()
def mine_for(
    model: VSE, split: Split, tokenizer: Captions, texts: int, pictures: int, truth: Tensor | None = None
) -> OfflineNegatives:
    """Mine so many of the hardest negatives of a training split with the first round's model.

    What `truth`, (Nc, n) bool, holds to be true of an anchor is left out; None: all that are not an anchor's
    own are negatives, as in the paper. The lists are shorter where some anchor has fewer.
    """
    if truth is None:
        return mine(model, split, tokenizer, texts, pictures)
    scores = score_split(model, split, tokenizer)  # (n, Nc)
    scores.masked_fill_(truth.T, -torch.inf)
    scores[torch.as_tensor(split.owner), torch.arange(scores.shape[1])] = -torch.inf
    return OfflineNegatives(_hardest(scores, texts), _hardest(scores.T, pictures))


def _hardest(scores: Tensor, count: int) -> np.ndarray:
    """Return the places of the highest scores of each row, (A, k) int32, as many as every row has."""
    fewest = int(scores.isfinite().sum(1).min())
    if fewest == 0:
        raise ValueError("everything is true of some picture or caption: no negative is left to learn from")
    best = [block.topk(min(count, fewest)).indices.int() for block in scores.split(BLOCK)]
    return torch.cat(best).numpy()


def shares_true(negatives: OfflineNegatives, truth: Tensor) -> dict[str, float]:
    """Return how many of the mined negatives are true of their anchor by `truth`, (Nc, n), in percent."""
    true = truth.numpy()
    pictures, captions = (np.arange(len(rows))[:, None] for rows in (negatives.texts, negatives.pictures))
    found = (true[negatives.texts, pictures], true[captions, negatives.pictures])
    return {name: 100 * float(each.mean()) for name, each in zip(SHARES, found, strict=True)}
