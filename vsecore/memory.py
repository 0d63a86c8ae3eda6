"""Whether a model fits into this machine's memory, checked before its weights are made."""

import psutil

from vsecore.typed import short

BYTES = 4  # of a weight in float32


def check_room(what: str, weights: int) -> None:
    """Refuse a model whose weights alone need more memory than this machine has.

    Args:
        what: the model, for the message.
        weights: how many numbers it has.

    Raises:
        ValueError: they do not fit.
    """
    memory = psutil.virtual_memory().total
    if weights * BYTES > memory:
        raise ValueError(
            f"{what} has {short(weights)} weights ({weights * BYTES / 2**30:,.0f} GB), but this machine has "
            f"{memory / 2**30:,.0f} GB of memory: make it smaller"
        )
