"""Widgets: what a reader without a kernel can use, and what the box answers where there is one."""

import numpy as np
from ipywidgets.embed import embed_data

from course.widgets import explorer, settings_explorer

PICTURES = [np.full((8, 8, 3), shade, np.uint8) for shade in (0, 120, 250)]
WORDS = ["<p>dark</p>", "<p>grey</p>", "<p>light</p>"]
TITLES = ["night & fog", "dusk", "day"]


def test_each_page_holds_its_picture_its_words_and_its_title_as_alt_text() -> None:
    buttons, stack = explorer(PICTURES, WORDS, TITLES).children
    assert list(buttons.options) == TITLES and len(stack.children) == 3
    first = stack.children[0].value
    assert "data:image/webp;base64,UklGR" in first and "<p>dark</p>" in first
    assert 'alt="night &amp; fog"' in first
    assert len({page.value for page in stack.children}) == 3


def test_its_plain_text_is_the_same_in_every_run() -> None:
    plain = [explorer(PICTURES, WORDS, TITLES)._repr_mimebundle_()["text/plain"] for _ in range(2)]
    assert plain[0] == plain[1] and "0x" not in plain[0]


def page_of(*chosen: str) -> tuple[np.ndarray, str]:
    return PICTURES[len(chosen)], f"<{' and '.join(chosen)}> & more"


def test_each_choice_of_settings_has_its_page() -> None:
    *rows, outer = settings_explorer(
        {"bound": ["0.1", "0.2", "0.5"], "rule": ["on", "off"]}, page_of
    ).children
    assert [row.description for row in rows] == ["bound", "rule"]
    assert [len(inner.children) for inner in outer.children] == [2, 2, 2]
    page = outer.children[2].children[1].value
    assert page.count("&lt;0.5 and off&gt; &amp; more") == 2 and "data:image/webp" in page


def test_pages_are_linked_in_the_browser_and_not_in_python() -> None:
    *rows, outer = settings_explorer({"bound": ["0.1", "0.2"], "rule": ["on", "off"]}, page_of).children
    buttons, pages = explorer(PICTURES, WORDS, TITLES).children
    rows[0].index = buttons.index = 1
    assert outer.selected_index == pages.selected_index == 0  # Python did nothing: no kernel is needed
    stored = embed_data(views=[*rows, outer, buttons, pages])["manager_state"]["state"].values()
    links = [entry["state"] for entry in stored if entry["model_name"] == "LinkModel"]
    ends = {(*link["source"], *link["target"]) for link in links}
    for source, target in (
        (rows[0], outer),
        (rows[1], outer.children[0]),
        (rows[1], outer.children[1]),
        (buttons, pages),
    ):
        assert (
            f"IPY_MODEL_{source.model_id}",
            "index",
            f"IPY_MODEL_{target.model_id}",
            "selected_index",
        ) in ends
