"""Slides: what of a notebook they show, and how a deck moves in a browser with the network cut."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course import batch
from coursebook.slides import slides_of, write_slides
from watched import opened_without_complaint

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


def figure(alt):
    return new_output("display_data", data={"image/png": PIXEL, "text/plain": alt})


def slides(*cells):
    """The kind of each cell, its source if it is shown, and how many outputs it has."""
    made = slides_of(new_notebook(cells=list(cells)))
    return [
        (
            cell.metadata.slideshow.slide_type,
            "" if cell.metadata.get("transient") else cell.source,
            len(cell.get("outputs", [])),
        )
        for cell in made.cells
    ]


def test_an_exercise_is_shown_unsolved_with_its_figure_and_what_is_folded_is_not_shown():
    task = "```{exercise} The sum\n:label: ex-04-all\n\nWrite it.\n```"
    answer = '@exercise("04.all")\ndef f(S):\n    # your part\n    return S.sum()\n    # end of your part\n'
    said = new_output("stream", name="stdout", text="4 of 4 points")
    alarm = new_output("stream", name="stderr", text="a bar of progress")
    made = slides(
        new_code_cell("seed = 0", metadata={"tags": ["parameters"]}),
        new_markdown_cell(task),
        new_code_cell(answer, outputs=[said, figure("A")]),
        new_markdown_cell("```{solution} ex-04-all\nHidden.\n```"),
        new_code_cell("hidden", metadata={"tags": ["hide-input"]}, outputs=[alarm]),
        new_code_cell("\n".join("x = 1" for _ in range(16))),
        new_code_cell("print(3)", outputs=[alarm, said]),
    )
    shown = "\n".join(source for _, source, _ in made)
    assert "### Exercise: The sum" in shown and "S.sum()" not in shown and "..." in shown
    assert "idden" not in shown and "x = 1" not in shown and "seed" not in shown
    assert [outputs for *_, outputs in made][-2:] == [1, 1]


@pytest.mark.parametrize("path", batch.notebooks(), ids=lambda path: path.stem)
def test_every_stored_notebook_makes_slides_with_all_its_figures(path):
    notebook = nbformat.read(path, as_version=4)

    def drawn(cells):
        outputs = [one for cell in cells for one in cell.get("outputs", [])]
        return [one for one in outputs if "image/png" in one.get("data", {})]

    made = slides_of(notebook)
    pictures = drawn(made.cells)
    assert pictures and all(len(one.metadata["image/png"]["alt"].split()) > 3 for one in pictures)
    open_cells = [cell for cell in notebook.cells if "remove-cell" not in cell.metadata.get("tags", [])]
    assert len(pictures) == len(drawn(open_cells))
    assert made.metadata["title"] and made.cells[0].metadata.slideshow.slide_type == "slide"


@pytest.mark.browser
def test_a_deck_opens_with_no_network_and_the_arrow_keys_move(tmp_path):
    [path] = write_slides(["04"], tmp_path)
    page = path.read_text("utf-8")
    assert "<script src" not in page and 'rel="stylesheet"' not in page and "10_pooling.ipynb" not in page
    with opened_without_complaint(path, "section.present", viewport={"width": 1280, "height": 720}) as opened:
        opened.wait_for_function("window.deck && deck.isReady()")
        assert opened.locator("section.present:not(.stack) h1").inner_text() == "Learning to rank"
        for number in range(opened.evaluate("deck.getTotalSlides()") - 1):
            assert opened.evaluate(FITS), f"slide {number}"
            opened.keyboard.press("ArrowRight")
        assert opened.evaluate("deck.isLastSlide()")
        assert opened.locator(".slides mjx-container").count() and not opened.locator("mjx-merror").count()


FITS = "(({ scrollHeight, clientHeight }) => scrollHeight <= clientHeight + 1)(deck.getCurrentSlide())"
