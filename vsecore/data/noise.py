"""Random numbers that depend only on their own place, so that a batch never depends on those before it."""

import hashlib

import numpy as np


def noise(seed: int, epoch: int, purpose: str, rows: np.ndarray, width: int | None = None) -> np.ndarray:
    """Return uniform numbers in [0, 1) for R rows, (R,), or (R, width), float64.

    They depend only on their own place, and on the `purpose`, which keeps one use apart from another.

    A counter (seed, epoch, purpose, row, column) is scrambled by the finaliser of SplitMix64: no state, hence
    the same numbers in any process, for any order and any batch.

    Source: Steele, Lea and Flood 2014, Fast Splittable Pseudorandom Number Generators.
    """
    key = hashlib.sha256(f"{seed}/{epoch}/{purpose}".encode()).digest()
    state = _scramble(rows.astype(np.uint64) + np.uint64(int.from_bytes(key[:8], "little")))
    if width is not None:
        golden = np.uint64(0x9E3779B97F4A7C15)
        state = _scramble(state[:, None] + golden * np.arange(1, width + 1, dtype=np.uint64))
    return (state >> np.uint64(11)) * 2.0**-53


def _scramble(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
