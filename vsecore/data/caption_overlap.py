"""How much a sentence has in common with the captions of a picture: degrees of relevance for nDCG.

A picture whose captions are much like the query's is not wrong, although the query was written for another.
"""

import re
from collections.abc import Sequence

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import LCSseq

BETA = 1.2
"""How much more recall counts than precision in ROUGE-L, as in the evaluation of COCO's captions."""
BUDGET = 64 * 2**20
"""How many bytes a block of longest common subsequences may take."""


def rouge_l(queries: Sequence[str], captions: Sequence[str], owner: np.ndarray) -> np.ndarray:
    """Return ROUGE-L of each query with the captions of each picture.

    Precision is the longest common subsequence of words over the query's length, recall that over the
    caption's. The largest of each over a picture's captions are joined to one F value, in which recall counts
    for more. Words are compared in lower case, without punctuation.

    Args:
        queries: Nq sentences.
        captions: Nc sentences, of n pictures.
        owner: the picture of each caption, (Nc,) whole numbers; every picture has a caption.

    Returns:
        Degrees from 0 to 1, (Nq, n) float32: rows are queries, as `evaluation.ndcg` wants them for retrieval
        of pictures.

    Source: Lin 2004; as relevance for nDCG, Messina et al. 2020 (TERN). Longest common subsequences are
    computed by `rapidfuzz`.
    """
    if len(owner) != len(captions) or not np.bincount(owner).all():
        raise ValueError(f"owner is {len(owner)} rows for {len(captions)} captions: wanted one for each")
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], np.arange(owner.max() + 1))  # where each picture's captions begin
    asked = [_words(text) for text in queries]
    known = [_words(captions[row]) for row in order]
    lengths = np.array([len(text) for text in known], dtype=np.float32)  # (Nc,)
    found = np.empty((len(asked), len(first)), np.float32)
    step = max(1, BUDGET // (8 * len(known)))
    for start in range(0, len(asked), step):
        block = asked[start : start + step]
        common = process.cdist(block, known, scorer=LCSseq.similarity, dtype=np.uint16)  # (b, Nc)
        common = common.astype(np.float32)
        most = np.maximum.reduceat(common, first, axis=1)  # (b, n)
        precision = most / np.array([len(text) for text in block], dtype=np.float32)[:, None]
        recall = np.maximum.reduceat(common / lengths, first, axis=1)
        both = np.maximum(recall + BETA**2 * precision, np.finfo(np.float32).tiny)
        found[start : start + step] = (1 + BETA**2) * precision * recall / both
    return found


def _words(sentence: str) -> list[str]:
    """Return the words of a sentence, in lower case and without punctuation; refuse one without any."""
    words = re.findall(r"\w+", sentence.lower())
    if not words:
        raise ValueError(f"a sentence is {sentence!r}: it has no word")
    return words
