"""Widgets that stay useful where no kernel runs: each has a static cell beside it in its notebook."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets
from IPython.display import clear_output


def search_box(answer: Callable[[str], None], start: str = "") -> ipywidgets.VBox:
    """Make a box to type a sentence into; each press of Enter shows the answer below.

    Args:
        answer: called with the sentence; what it displays appears under the box, and so does what it raises.
        start: what stands in the box at first.

    Returns:
        The widget, to be the last line of a cell.
    """
    box = ipywidgets.Text(
        value=start, placeholder="a red kite above the beach", description="Find", continuous_update=False
    )
    box.layout.width = "36em"
    output = ipywidgets.Output()

    def run(change: dict[str, str]) -> None:
        with output:
            clear_output(wait=True)
            try:
                answer(change["new"])
            except ValueError as error:  # a word that the world does not know: say so under the box
                print(error)

    box.observe(run, names="value")
    return ipywidgets.VBox([box, output])
