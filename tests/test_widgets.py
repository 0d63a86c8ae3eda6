"""Widgets: what a reader without a kernel can use, and what the box answers where there is one."""

import numpy as np
from ipywidgets.embed import embed_data

from course.widgets import explorer, settings_explorer

PICTURES = [np.full((8, 8, 3), shade, np.uint8) for shade in (0, 120, 250)]
WORDS = ["<p>dark</p>", "<p>grey</p>", "<p>light</p>"]
TITLES = ["night & fog", "dusk", "day"]


def test_each_page_holds_its_picture_its_words_and_its_title_as_alt_text():
    buttons, stack = explorer(PICTURES, WORDS, TITLES).children
    assert list(buttons.options) == TITLES and len(stack.children) == 3
    first = stack.children[0].value
    assert "data:image/webp;base64,UklGR" in first and "<p>dark</p>" in first
    assert 'alt="night &amp; fog"' in first
    assert len({page.value for page in stack.children}) == 3


def page_of(*chosen):
    return PICTURES[len(chosen)], f"<{' and '.join(chosen)}> & more"


def test_pages_are_linked_in_the_browser_and_not_in_python():
    *rows, outer = settings_explorer({"bound": ["0.1", "0.2"], "rule": ["on", "off"]}, page_of).children
    buttons, pages = explorer(PICTURES, WORDS, TITLES).children
    rows[0].index = buttons.index = 1
    assert outer.selected_index == pages.selected_index == 0  # Python did nothing: no kernel is needed
    stored = embed_data(views=[*rows, outer, buttons, pages])["manager_state"]["state"].values()
    links = [entry["state"] for entry in stored if entry["model_name"] == "LinkModel"]
    ends = {(*link["source"], *link["target"]) for link in links}
    first, second = outer.children
    for here, there in ((rows[0], outer), (rows[1], first), (rows[1], second), (buttons, pages)):
        of_here, of_there = f"IPY_MODEL_{here.model_id}", f"IPY_MODEL_{there.model_id}"
        assert (of_here, "index", of_there, "selected_index") in ends
