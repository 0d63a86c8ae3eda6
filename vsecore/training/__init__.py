"""Training: one loop for every recipe (`fit`), what it leaves behind (`Run`), and what a model is worth."""

from vsecore.training.loop import (
    Event,
    Run,
    encode,
    evaluate_split,
    fit,
    identity,
    load_run,
    score_split,
)

__all__ = ["Event", "Run", "encode", "evaluate_split", "fit", "identity", "load_run", "score_split"]
