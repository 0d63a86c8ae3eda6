"""Widgets that stay useful where no kernel runs: each has a static cell beside it in its notebook."""

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence

import ipywidgets
import numpy as np
from IPython.display import clear_output
from PIL import Image

# The class tells the book that a picture needs no white ground in dark mode.
_PAGE = """<div style="display: flex; flex-wrap: wrap; gap: 1.2em; line-height: 1.5">
<img class="dark-light" src="data:image/webp;base64,{picture}" alt="{alt}"
 style="width: 17em; max-width: 100%; height: auto; align-self: flex-start; border-radius: 4px">
<div style="flex: 1 1 20em; min-width: 0">{words}</div></div>"""
_CHOSEN = """<figure style="margin: 0"><img src="data:image/webp;base64,{picture}" alt="{words}"
 style="max-width: 100%; height: auto"><figcaption>{words}</figcaption></figure>"""


def search_box(answer: Callable[[str], None]) -> ipywidgets.VBox:
    """Make a box to type a sentence into; each press of Enter shows the answer below.

    `answer` is called with the sentence; what it displays appears under the box, and so does what it raises.
    """
    hint, wide = "a red kite above the beach", {"width": "36em"}
    box = ipywidgets.Text(placeholder=hint, description="Find", continuous_update=False, layout=wide)
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


def explorer(pictures: Sequence[np.ndarray], words: Sequence[str], titles: Sequence[str]) -> ipywidgets.VBox:
    """Make pages to leaf through, each a picture with words beside it; a button opens a page.

    Buttons and pages are linked in the browser, not in Python: the page of the book, which has no kernel, can
    be leafed through as well, from the state that the executed notebook stores. The state holds the pictures,
    so show a dozen, not hundreds. The words are HTML, so escape in them what is not yours. The titles, plain
    text, are what the buttons say and what a reader who cannot see the picture is told.
    """
    pages = {
        title: _PAGE.format(picture=_encoded(picture), alt=html.escape(title), words=text)
        for picture, text, title in zip(pictures, words, titles, strict=True)
    }
    return _linked({"": titles}, pages.__getitem__)


def settings_explorer(
    settings: Mapping[str, Sequence[str]], page: Callable[..., tuple[np.ndarray, str]]
) -> ipywidgets.VBox:
    """Make a row of buttons for each setting, and show the page that belongs to the chosen ones.

    `page` is called with one choice of each setting, in order; it gives a picture, uint8 (H, W, 3), and the
    sentence that stands under it and is read to those who cannot see it, plain text. Every combination is
    made beforehand, as in `explorer`: keep to two dozen small pictures.
    """

    def shown(*chosen: str) -> str:
        picture, sentence = page(*chosen)
        return _CHOSEN.format(picture=_encoded(picture), words=html.escape(sentence))

    return _linked(settings, shown)


def _linked(settings: Mapping[str, Sequence[str]], page: Callable[..., str]) -> ipywidgets.VBox:
    """A row of buttons for each setting, and a page of HTML for each choice, linked in the browser."""
    style = {"button_width": "auto", "description_width": "9em"}
    rows = [
        ipywidgets.ToggleButtons(options=list(choices), description=name, style=style)
        for name, choices in settings.items()
    ]

    def below(chosen: tuple[str, ...]) -> ipywidgets.Widget:
        """What a choice of the first settings leaves to choose; a page where nothing is left."""
        if len(chosen) == len(rows):
            return ipywidgets.HTML(page(*chosen))
        buttons = rows[len(chosen)]
        stack = ipywidgets.Stack([below((*chosen, one)) for one in buttons.options], selected_index=0)
        ipywidgets.jslink((buttons, "index"), (stack, "selected_index"))
        return stack

    return ipywidgets.VBox([*rows, below(())])


def _encoded(picture: np.ndarray) -> str:
    """A picture as the text of a WebP file, a third of a PNG: the notebook that stores it stays small."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="webp", quality=90)
    return base64.b64encode(file.getvalue()).decode("ascii")
