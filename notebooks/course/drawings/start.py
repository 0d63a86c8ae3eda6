"""The figures of notebook 00: what a search found, and the loss while the network trains."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course import plots
from course.lesson import Lesson


def found(lesson: Lesson, sentence: str, rows: Sequence[int]) -> None:
    """Show the test pictures in these rows, those framed that the sentence describes."""
    truth, heading = lesson.true_of(sentence, "test")
    marked = None
    if truth is not None:
        marked = [truth[row] for row in rows]
        heading = f": {sum(marked)} of these {len(rows)} are right ({sum(truth)} of all {len(truth):,} are)"
    ranks = [str(rank) for rank in range(1, len(rows) + 1)]
    pictures = lesson.pictures("test", rows)
    figure = plots.picture_row(pictures, ranks, marked=marked, heading=sentence + heading)
    told = "A frame and a tick mark those that show what it says." if marked else heading
    plots.show(figure, alt=f"The five pictures found for: {sentence}. {told}")


@plots.shown("""The loss over the steps of the training: it falls steeply at first, then more and more
    slowly.""")
def loss_curve(losses: Sequence[float]) -> Figure:
    """Draw the loss of each step, and its mean over the last ten."""
    figure, axes = plt.subplots(figsize=(5.6, 2.8))
    axes.plot(losses, color="0.75", linewidth=0.8, label="each batch")
    window = min(10, len(losses))
    smooth = np.convolve(losses, np.ones(window) / window, mode="valid")
    axes.plot(np.arange(window - 1, len(losses)), smooth, label=f"mean of {window} batches")
    axes.set(xlabel="step", ylabel="loss (InfoNCE)", ylim=(0, None))
    axes.legend()
    return figure
