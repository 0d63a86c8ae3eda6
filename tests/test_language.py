"""The course's language: no word and no letter before it is introduced.

`book/glossary.md` and `book/notation.md` say which notebook introduces what; the texts of the notebooks are
read in their order and held to them.
"""

import re
from functools import cache
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXTS = sorted((ROOT / "notebooks" / "text").glob("[0-9][0-9]_*.py"))

FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL)
# What stands in a formula and is no letter of ours: layout, functions that everybody knows, sets of numbers.
LAYOUT = set(
    re.findall(
        r"\w+",
        """frac sum prod max min log exp cos sin arccos sqrt lVert rVert lvert rvert left right
        cdot times quad qquad dots cdots ldots le ge ne neq leq geq approx in notin to infty
        text mathrm operatorname mathbb mathbf partial big Big bigl bigr Bigl Bigr lfloor
        rfloor lceil rceil begin end limits top propto sim hat bar tilde odot int underbrace
        overbrace prime mid lbrace rbrace nabla d pm tanh cases aligned subset cup cap circ""",
    )
)


def numbered(text):
    return text.stem[:2]


@cache
def prose(text):
    """The Markdown cells after the card, which may promise words that the notebook will introduce."""
    cells = [cell.source for cell in jupytext.read(text).cells if cell.cell_type == "markdown"]
    return tuple(cells[1:])


@cache
def titles():
    """A pattern of the notebooks' titles, which other notebooks may name."""
    return "|".join(re.escape(jupytext.read(text).cells[0].source.splitlines()[0][2:]) for text in TEXTS)


def plain(markdown):
    """Markdown without formulas, code, links' targets, citations, labels, headings and notebooks' titles."""
    markdown = re.sub(r"^```python\n.*?^```$", " ", markdown, flags=re.MULTILINE | re.DOTALL)
    markdown = re.sub(rf"\*({titles()})\*|\[({titles()})\]", " ", markdown)
    markdown = FORMULA.sub(" ", markdown)
    markdown = re.sub(r"^(#+ .*|`{3,}.*|:\w+:.*|\|.*)$", " ", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"\{\w+\}`[^`]*`|`[^`]*`|\]\([^)]*\)", " ", markdown)
    return re.sub(r"\s+", " ", markdown)


@cache
def glossary():
    """Each entry's words, and the notebook that introduces them."""
    body = (ROOT / "book" / "glossary.md").read_text().split("```{glossary}\n")[1].split("```")[0]
    entries = {}
    for block in re.split(r"\n\n(?=\S)", body.strip()):
        lines = block.splitlines()
        words = tuple(line for line in lines if line and not line.startswith(" "))
        home = re.search(r"First in \{doc\}`notebooks/(\d\d)_\w+`", block)
        assert home, f"the entry {words} does not say which notebook introduces it"
        entries[words] = home[1]
    return entries


def pattern(word):
    return r"(?<![\w-])" + re.escape(word).replace(r"\ ", r"\s+") + r"(?:s|es)?(?![\w-])"


@pytest.mark.parametrize("words", glossary(), ids=lambda words: words[0])
def test_no_word_is_used_before_it_is_introduced(words):
    home = glossary()[words]
    anywhere = re.compile("|".join(pattern(word) for word in words), re.IGNORECASE)
    for text in TEXTS:
        if numbered(text) > home:
            break
        together = "\n".join(plain(cell) for cell in prose(text))
        first = anywhere.search(together)
        if numbered(text) < home:
            found = first and together[max(0, first.start() - 60) : first.end() + 20]
            assert not first, f"{text.stem} uses {words[0]!r}, which notebook {home} introduces: {found}"
        else:
            assert first, f"{text.stem} should introduce {words[0]!r} and does not use it"
            around = together[: first.start()].count("*") % 2  # inside an emphasis that was opened before it
            assert around, (
                f"{text.stem} uses {words[0]!r} first without emphasis: "
                f"{together[first.start() - 60 : first.end() + 40]}"
            )


@cache
def notation():
    """Each letter of the first table: what it means, and the notebook that uses it first."""
    table = (ROOT / "book" / "notation.md").read_text().split("## In the code")[0]
    rows = {}
    for letters, meaning, home in re.findall(r"^\| (\$.+?\$) \| (.+?) \| (\d\d) \|$", table, re.MULTILINE):
        for formula in re.findall(r"\$(.+?)\$", letters):
            (symbol,) = symbols(formula)
            rows[symbol] = (meaning, home)
    return rows


def symbols(formula):
    """The letters of a formula. Words set upright, and labels of two letters and more, are no letters."""
    formula = re.sub(r"\\(text|mathrm|operatorname|begin|end|mathtt)\*?\{[^}]*\}", " ", formula)
    formula = re.sub(r"[_^]\{\s*[A-Za-z]{2,}\s*\}", " ", formula)
    found = re.findall(r"\\[A-Za-z]+|[A-Za-z]'*", formula)
    return {symbol for symbol in found if symbol.removeprefix("\\") not in LAYOUT}


def formulas(cell):
    code_free = re.sub(r"`[^`\n]*`", " ", cell)
    return [display or inline for display, inline in FORMULA.findall(code_free)]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)
def test_every_letter_is_in_the_table_of_notation(text):
    for cell in prose(text):
        for formula in formulas(cell):
            for symbol in symbols(formula):
                assert symbol in notation(), (
                    f"{text.stem}: {symbol} of ${formula}$ is not in book/notation.md"
                )
                assert notation()[symbol][1] <= numbered(text), (
                    f"{text.stem} uses {symbol}, which the table gives to notebook {notation()[symbol][1]}"
                )


@pytest.mark.parametrize("symbol", notation())
def test_a_letter_is_explained_where_it_is_first_used(symbol):
    meaning, home = notation()[symbol]
    (text,) = [text for text in TEXTS if numbered(text) == home]
    cells = prose(text)
    using = [row for row, cell in enumerate(cells) if any(symbol in symbols(f) for f in formulas(cell))]
    assert using, f"notebook {home} should use {symbol} first and does not"
    words = [
        word
        for word in re.findall(r"[a-z]{4,}", meaning.lower())
        if word not in {"that", "with", "which", "whatever"}
    ]
    nearby = " ".join(cells[max(0, using[0] - 1) : using[0] + 2]).lower()
    assert any(word.rstrip("s") in nearby for word in words), f"{symbol} ({meaning}) in {text.stem}"
