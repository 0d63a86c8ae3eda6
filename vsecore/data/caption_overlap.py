"""How much a sentence has in common with the captions of a picture: degrees of relevance for nDCG.

A picture whose captions are much like the query's is not wrong, although the query was written for another.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import shutil
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

    Raises:
        ValueError: a sentence has no word, or owner does not fit the captions.

    Source: Lin 2004; as relevance for nDCG, Messina et al. 2020 (TERN). Longest common subsequences are
    computed by `rapidfuzz`.
    """
    owner = _checked(queries, captions, owner)
    numbers: dict[str, str] = {}
    asked, told = (
        _spelled(name, texts, numbers) for name, texts in (("queries", queries), ("captions", captions))
    )
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], np.arange(owner.max() + 1))  # where each picture's captions begin
    told = [told[row] for row in order]
    lengths = np.array([len(text) for text in told], dtype=np.float32)  # (Nc,)
    found = np.empty((len(asked), len(first)), np.float32)
    step = max(1, BUDGET // (8 * len(told)))
    for start in range(0, len(asked), step):
        block = asked[start : start + step]
        common = process.cdist(block, told, scorer=LCSseq.similarity, dtype=np.uint16)  # (b, Nc)
        common = common.astype(np.float32)
        most = np.maximum.reduceat(common, first, axis=1)  # (b, n)
        precision = most / np.array([len(text) for text in block], dtype=np.float32)[:, None]
        recall = np.maximum.reduceat(common / lengths, first, axis=1)
        both = np.maximum(recall + BETA**2 * precision, np.finfo(np.float32).tiny)
        found[start : start + step] = (1 + BETA**2) * precision * recall / both
    return found


def spice(queries: Sequence[str], captions: Sequence[str], owner: np.ndarray) -> np.ndarray:
    """Return SPICE of each query with the captions of each picture: how many facts they share.

    It parses every sentence with Stanford's parser, in Java: minutes for a thousand pairs of a query and a
    picture. `pycocoevalcap` downloads the parser when it is used for the first time.

    Args:
        queries: as for `rouge_l`.
        captions: as for `rouge_l`.
        owner: as for `rouge_l`.

    Returns:
        Degrees from 0 to 1, (Nq, n) float32.

    Raises:
        ModuleNotFoundError: `pycocoevalcap` is not installed.
        FileNotFoundError: there is no Java.
        ValueError: as `rouge_l`.

    Source: Anderson et al. 2016.
    """
    owner = _checked(queries, captions, owner)
    if importlib.util.find_spec("pycocoevalcap") is None:
        raise ModuleNotFoundError("SPICE needs the package pycocoevalcap: pip install pycocoevalcap")
    if shutil.which("java") is None:
        raise FileNotFoundError(
            "SPICE needs Java, and there is no program java here: install a Java runtime (on Debian: apt "
            "install default-jre-headless), or take rouge_l"
        )
    # Imported by its name, since it is no dependency of this package.
    scorer = importlib.import_module("pycocoevalcap.spice.spice").Spice()
    of_picture: list[list[str]] = [[] for _ in range(owner.max() + 1)]
    for caption, picture in zip(captions, owner, strict=True):
        of_picture[picture].append(caption)
    pairs = [(row, picture) for row in range(len(queries)) for picture in range(len(of_picture))]
    truth = {pair: of_picture[picture] for pair, (_, picture) in enumerate(pairs)}
    said = {pair: [queries[row]] for pair, (row, _) in enumerate(pairs)}
    _, scores = scorer.compute_score(truth, said)
    degrees = [0.0 if np.isnan(score["All"]["f"]) else score["All"]["f"] for score in scores]
    return np.array(degrees, dtype=np.float32).reshape(len(queries), len(of_picture))


def _checked(queries: Sequence[str], captions: Sequence[str], owner: np.ndarray) -> np.ndarray:
    """Return owner as an array after checking that it fits."""
    owner = np.asarray(owner)
    if not len(queries) or not len(captions):
        raise ValueError(
            f"there are {len(queries)} queries and {len(captions)} captions: wanted some of each"
        )
    if owner.shape != (len(captions),) or owner.dtype.kind not in "iu" or owner.min() < 0:
        raise ValueError(
            f"owner is {owner.dtype} {owner.shape}: wanted a whole number for each caption, "
            f"({len(captions)},)"
        )
    missing = np.setdiff1d(np.arange(owner.max() + 1), owner)
    if missing.size:
        raise ValueError(f"owner gives picture {missing[0]} no caption: every picture needs one")
    return owner


def _spelled(name: str, texts: Sequence[str], numbers: dict[str, str]) -> list[str]:
    """Write each sentence as text in which one character stands for one word."""
    spelled = []
    for row, text in enumerate(texts):
        words = re.findall(r"\w+", text.lower())
        if not words:
            raise ValueError(f"{name}, row {row}, is {text!r}: it has no word")
        # From the private planes on, past the half characters of UTF-16.
        spelled.append("".join(numbers.setdefault(word, chr(0xF0000 + len(numbers))) for word in words))
    return spelled
