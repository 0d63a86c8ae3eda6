"""How widely the vectors of embedding sets point, on the pictures and captions of a split.

Source: Kim, Kim and Kwak 2023 (DivE), section 4.6, table 3.
"""

from __future__ import annotations

import torch

from vsecore.data.splits import Split
from vsecore.model import VSE
from vsecore.scoring import Captions, encode
from vsecore.sets import circular_variance

LOG_VARIANCES = ("log_variance_pictures", "log_variance_texts")
"""What `log_variances` gives."""
SMALLEST = 1e-12
"""Smaller variances count as this one, so that sets whose vectors are all the same have a logarithm too."""


@torch.inference_mode()
def log_variances(model: VSE, split: Split, tokenizer: Captions) -> dict[str, float]:
    """Return the mean logarithm of the circular variance of a split's sets, on either side.

    Args:
        model: on any device.
        split: whose pictures and captions are embedded.
        tokenizer: the one that the model was trained with.

    Returns:
        Natural logarithms; nothing for a model that does not make sets of at least two vectors.
    """
    sides = [side.vectors for side in encode(model, split, tokenizer)]
    return {
        name: float(circular_variance(sets.double()).clamp(min=SMALLEST).log().mean())
        for name, sets in zip(LOG_VARIANCES, sides, strict=True)
        if sets is not None and sets.ndim == 3 and sets.shape[1] > 1
    }
