"""The book: the way of the executed notebooks into it."""

from vsecore import book


def test_a_figures_words_become_the_books_alt_text() -> None:
    picture = {"image/png": "AAAA", "text/plain": ["A curve ", "that falls."]}
    cell = {"metadata": {}, "outputs": [{"output_type": "display_data", "data": picture}]}
    book._give_alt_text(cell)
    assert cell["metadata"]["mystnb"]["image"]["alt"] == "A curve that falls."
    silent = {"metadata": {}, "outputs": [{"output_type": "stream", "text": "x"}]}
    book._give_alt_text(silent)
    assert silent["metadata"] == {}
