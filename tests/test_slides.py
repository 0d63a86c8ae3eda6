"""Slides: what of a notebook they show, and how a deck moves in a browser with the network cut."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course import batch
from course.batch import CourseError
from course.grading.plain import citations
from coursebook.browser import browser, find_chromium, open_page
from coursebook.deck import deck, write_slides
from coursebook.portions import MOST_WORDS, gist, portions, words_in
from coursebook.slides import Code, Picture, Printed, Slide, Words, slides_of
from watched import Complaints

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="


def figure(alt: str) -> nbformat.NotebookNode:
    return new_output("display_data", data={"image/png": PIXEL, "text/plain": alt})


def slides(*cells: nbformat.NotebookNode) -> list[Slide]:
    first = new_markdown_cell("# The title\n\nWhat we do.")
    return slides_of(new_notebook(cells=[first, *cells]), lambda keys: f"({keys})")


def parts(*cells: nbformat.NotebookNode) -> list[object]:
    return [part for slide in slides(*cells)[1:] for part in slide.parts]


def test_every_heading_begins_a_slide() -> None:
    made = slides(new_markdown_cell("## First\n\nOne.\n\n## Second\n\nTwo.\n\n### Third\n\nThree."))
    assert [(slide.title, slide.level) for slide in made] == [
        ("The title", 1),
        ("First", 2),
        ("Second", 2),
        ("Third", 3),
    ]


MUCH = "Here are some more words than a slide should hold, and nobody needs them there. " * 4


@pytest.mark.parametrize(
    ("paragraph", "shown"),
    [
        ("One thing. Another. A line without an end", "One thing. Another. A line without an end"),
        (
            f"The hardest negative is the one with the highest similarity. {MUCH}So it is alone.",
            "The hardest negative is the one with the highest similarity. … So it is alone.",
        ),
        (
            f"Look left. The two losses of these runs hardly differ. {MUCH}How can that be?",
            "Look left. The two losses of these runs hardly differ. … How can that be?",
        ),
        (
            f"Each pair of a batch is compared with its row and its column. {MUCH}The sum is:",
            "Each pair of a batch is compared with its row and its column. … The sum is:",
        ),
        (
            f"No end is in $a. b$, in `x. y`, in (brackets. Not here), after e.g. this. {MUCH}But here.",
            "No end is in $a. b$, in `x. y`, in (brackets. Not here), after e.g. this. … But here.",
        ),
        (
            "A first sentence is shown alone if the last one is too long to stand beside it on one slide. "
            f"{MUCH.replace('. ', ', ')}and so it ends.",
            "A first sentence is shown alone if the last one is too long to stand beside it on one slide.",
        ),
    ],
)
def test_a_short_paragraph_is_whole_and_a_long_one_becomes_its_first_and_its_last_sentence(
    paragraph: str, shown: str
) -> None:
    assert gist(paragraph) == shown


def test_the_whole_paragraph_is_among_the_speakers_notes() -> None:
    told = f"The first sentence is long enough to stand alone on a slide. {MUCH}The last ends it."
    [_, slide] = slides(new_markdown_cell(f"## A heading\n\n{told}"))
    assert slide.parts == [Words(told.replace(MUCH, "… "))] and slide.notes == [told]


def test_folded_boxes_hints_and_solutions_are_left_out() -> None:
    secret = "the secret"
    hidden = [
        f"```{{admonition}} Optional\n:class: note dropdown\n\n{secret}\n```",
        f"```{{hint}}\n:class: dropdown\n\n{secret}\n```",
        f"````{{solution}} ex-04-all\n:class: dropdown\n\n{secret}\n````",
    ]
    cells = [
        new_markdown_cell("## A heading\n\n" + "\n\n".join(hidden)),
        new_markdown_cell("After it."),
    ]
    assert parts(*cells) == [Words("After it.")]


def test_folded_boxes_and_hints_are_among_the_notes_and_solutions_are_not() -> None:
    hidden = [
        "```{admonition} Optional\n:class: note dropdown\n\nA detour.\n```",
        "```{hint}\n:class: dropdown\n\nLook left.\n```",
        "```{solution} ex-04-all\n:class: dropdown\n\nThe secret.\n```",
    ]
    [_, slide] = slides(new_markdown_cell("## A heading\n\n" + "\n\n".join(hidden)))
    assert slide.notes == ["**Optional**\n\nA detour.", "**Hint**\n\nLook left."]


def words(count: int) -> str:
    return " ".join(["word"] * count)


def test_a_long_list_goes_on_under_the_same_title_in_even_parts() -> None:
    items = [f"- {words(20)}" for _ in range(5)]
    [_, first, second] = slides(new_markdown_cell("## A heading\n\n" + "\n".join(items)))
    assert first.title == second.title == "A heading" and (first.level, second.level) == (2, 3)
    assert [slide.words for slide in (first, second)] == [60, 40]
    assert "\n".join(part.text for slide in (first, second) for part in slide.parts) == "\n".join(items)


def test_sentences_that_are_too_many_words_for_a_slide_go_on_the_next() -> None:
    told = "\n\n".join(f"{words(25)}." for _ in range(3))
    made = slides(new_markdown_cell(f"## A heading\n\n{told}"))[1:]
    assert [slide.words for slide in made] == [50, 25]


def test_a_long_list_takes_along_the_sentence_that_announces_it() -> None:
    text = f"## A heading\n\n{words(20)}.\n\nChoose one:\n\n- {words(30)}\n- {words(15)}"
    [_, first, second] = slides(new_markdown_cell(text))
    assert first.parts == [Words(f"{words(20)}.")]
    assert second.parts[0] == Words("Choose one:") and second.words == 47


def test_an_exercise_that_takes_two_slides_keeps_its_title_and_its_code() -> None:
    task = f"```{{exercise}} The sum\n:label: ex-04-all\n\n{words(50)}.\n\n{words(30)}.\n```"
    answer = '@exercise("04.all")\ndef f(S):\n    # your part\n    return S.sum()\n    # end of your part\n'
    [_, _, first, second] = slides(new_markdown_cell(f"## A heading\n\n{task}"), new_code_cell(answer))
    assert first.title == second.title == "Try it: The sum"
    assert len(first.parts) == 1 and isinstance(second.parts[-1], Code)


def test_what_a_cell_tells_at_length_takes_several_slides() -> None:
    told = new_output("display_data", data={"text/markdown": f"{words(40)}.\n\n{words(40)}."})
    [_, first, second] = slides(new_markdown_cell("## A heading"), new_code_cell("tell()", outputs=[told]))
    assert first.words == second.words == 40


def test_a_paragraph_is_split_between_its_sentences_if_it_alone_is_too_long() -> None:
    short, long = f"{words(25)}.", " ".join([f"{words(30)}."] * 3)
    assert portions(f"{short}\n\n{short}") == [f"{short}\n\n{short}"]
    parts = portions(long)
    assert " ".join(parts) == long and [words_in(part) for part in parts] == [60, 30]
    assert portions(words(90)) == [words(90)], "one sentence stays whole"


def test_what_is_no_prose_counts_no_words() -> None:
    table, code = "| a | b |\n| --- | --- |\n| c | d |", "```python\nx = 1\n```"
    assert words_in(f"{table}\n\n{code}\n\n$$a b c$$\n\nA [link to](https://there.org) $x = y$ – yes.") == 5


def test_an_exercise_is_shown_unsolved_and_the_figure_of_its_cell_stays() -> None:
    task = "```{exercise} The sum\n:label: ex-04-all\n\nWrite it. Return one number.\n```"
    answer = (
        'from course.checks import exercise\n\n\n@exercise("04.all")\ndef f(S):\n'
        "    # your part\n    return S.sum()\n    # end of your part\n"
    )
    said = new_output("execute_result", data={"text/plain": "4 of 4 points"})
    cells = [new_markdown_cell(f"## A heading\n\n{task}"), new_code_cell(answer, outputs=[said, figure("A")])]
    [_, _, exercise, below] = slides(*cells)
    assert exercise.title == "Try it: The sum"
    assert exercise.parts == [
        Words("Write it. Return one number.", whole=True),
        Code('@exercise("04.all")\ndef f(S):\n    ...  # your part'),
    ]
    assert below.title == "A heading" and below.parts == [Picture(PIXEL, "A")]


def test_short_open_code_is_shown_with_what_it_prints_and_folded_or_long_code_is_not() -> None:
    said = new_output("stream", name="stdout", text="3 seeds\n")
    alarm = new_output("stream", name="stderr", text="a bar of progress")
    shown = new_code_cell("print(seeds)", outputs=[alarm, said])
    folded = new_code_cell("folded", metadata={"tags": ["hide-input"]}, outputs=[figure("A figure")])
    long = new_code_cell("\n".join("x = 1" for _ in range(16)))
    parameters = new_code_cell("seed = 0", metadata={"tags": ["parameters"]})
    assert parts(new_markdown_cell("## A heading"), parameters, shown, folded, long) == [
        Code("print(seeds)"),
        Printed("3 seeds"),
        Picture(PIXEL, "A figure"),
    ]


def test_an_object_takes_along_the_sentence_that_announces_it() -> None:
    lines = [f"Sentence {number} of several that this slide shows." for number in "123"]
    text = "\n\n".join([*lines, "And here is the table:\n\n| a |\n| --- |\n| 1 |"])
    [_, words, table] = slides(new_markdown_cell(f"## A heading\n\n{text}"))
    assert words.parts == [Words(line) for line in lines]
    assert table.parts == [Words("And here is the table:"), Words("| a |\n| --- |\n| 1 |", whole=True)]


def test_what_is_seen_in_a_figure_stands_below_it() -> None:
    drawn = new_code_cell("", metadata={"tags": ["hide-input"]}, outputs=[figure("A curve")])
    [_, slide] = slides(
        new_markdown_cell("## A heading"), drawn, new_markdown_cell("The curve falls to the right.")
    )
    assert slide.parts == [Picture(PIXEL, "A curve"), Words("The curve falls to the right.")]


def test_a_notebook_without_a_heading_is_refused() -> None:
    with pytest.raises(ValueError, match="does not begin with a heading"):
        slides_of(new_notebook(cells=[new_markdown_cell("Words.")]), str)


@pytest.mark.parametrize("path", batch.notebooks(), ids=lambda path: path.stem)
def test_no_slide_of_a_stored_notebook_holds_more_words_than_people_read(path: Path) -> None:
    made = slides_of(nbformat.read(path, as_version=4), citations())
    assert {slide.title: slide.words for slide in made if slide.words > MOST_WORDS + 10} == {}


@pytest.mark.parametrize("path", batch.notebooks(), ids=lambda path: path.stem)
def test_every_stored_notebook_makes_slides_with_all_its_open_figures(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    made = slides_of(notebook, citations())
    pictures = [part for slide in made for part in slide.parts if isinstance(part, Picture)]
    assert pictures and all(len(picture.alt.split()) > 3 for picture in pictures)
    headings = [
        line.lstrip("# ")
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for line in cell.source.split("\n")
        if line.startswith(("# ", "## "))
    ]
    assert [slide.title for slide in made if slide.level < 3] == headings
    code = "\n".join(part.source for slide in made for part in slide.parts if isinstance(part, Code))
    assert "end of your part" not in code


def test_a_deck_keeps_alt_text_and_asks_for_nothing_outside() -> None:
    text = "## $S$ & co\n\n[Pooling](10_pooling.ipynb) and [a paper](https://example.org) on $a<b$."
    drawn = new_code_cell("", outputs=[figure('A "curve" <b>')])
    page = deck(slides(new_markdown_cell(text), drawn))
    assert 'alt="A &#34;curve&#34; &lt;b&gt;"' in page
    assert "10_pooling.ipynb" not in page and 'href="https://example.org"' in page
    assert "\\(a&lt;b\\)" in page and "<h2>\\(S\\) &amp; co</h2>" in page
    assert "<script src" not in page and 'rel="stylesheet"' not in page


@pytest.mark.browser
def test_a_deck_opens_with_no_network_and_the_arrow_keys_move(tmp_path: Path) -> None:
    try:
        find_chromium()
    except CourseError as error:
        pytest.skip(str(error))
    [path] = write_slides(["04"], tmp_path)
    with browser() as running:
        page = open_page(running, viewport={"width": 1280, "height": 720})
        with Complaints(page) as complaints:
            page.goto(path.as_uri())
            page.wait_for_function("window.deck && deck.isReady()")
            shown = page.locator("section.present:not(.stack)")
            assert shown.locator("h1").inner_text() == "Learning to rank"
            for number in range(page.evaluate("deck.getTotalSlides()") - 1):
                assert page.evaluate(TOO_LARGE) == [], f"slide {number}"
                page.keyboard.press("ArrowRight")
            assert page.evaluate("deck.isLastSlide()")
            page.keyboard.press("ArrowLeft")
            assert not page.evaluate("deck.isLastSlide()")
            assert page.locator(".slides mjx-container").count() and not page.locator("mjx-merror").count()
        assert not complaints


TOO_LARGE = """() => {
  const slide = deck.getCurrentSlide();
  return slide.scrollHeight > slide.clientHeight + 1 || slide.scrollWidth > slide.clientWidth + 1
    ? [slide.textContent.trim().slice(0, 60)] : [];
}"""
