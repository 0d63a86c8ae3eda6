"""Data from outside, held to types."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from vsecore.typed import convert, from_json


@dataclass
class Page:
    number: int
    side: Literal["left", "right"] = "left"
    mark: int | str = ""
    lines: list[str] = field(default_factory=list)


@dataclass
class Book:
    pages: list[Page]


def test_gives_what_was_asked_for():
    content = '{"pages": [{"number": 3, "lines": ["Ärmel"], "colour": "red"}], "price": 7}'
    assert from_json("book.json", content, Book) == Book([Page(3, lines=["Ärmel"])])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"^book.json is not JSON \(EOF .*\): get the file again, or write it again$"),
        (b'{"pages": ["\\ud800"]}', r"^book.json is not JSON"),
        (b'{"pages": ' + b"[" * 9000, r"^book.json is not JSON \(recursion limit"),
        (b"{}", r'^book.json lacks the field "pages"$'),
        (b'{"pages": {}}', r"^book.json: pages is {}: wanted a valid array$"),
        (b'{"pages": [{"number": 1}, 7]}', r"^book.json: pages\[1\] is 7: wanted an object$"),
        (b'{"pages": [{"number": "1"}]}', r"^book.json: pages\[0\].number is '1': wanted a valid integer$"),
        (b'{"pages": [{"number": 1, "side": "up"}]}', r"side is 'up': wanted 'left' or 'right'$"),
        (
            b'{"pages": [{"number": 1, "lines": ["a", 2]}]}',
            r"pages\[0\].lines\[1\] is 2: wanted a valid string$",
        ),
    ],
)
def test_says_the_first_mistake_and_where_it_is(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json("book.json", content, Book)


def test_what_json_cannot_express_is_refused():
    nested: list = []
    nested.append(nested)
    for value in ({1, 2}, nested):
        with pytest.raises(ValueError, match=r"number is .*: wanted something that JSON can express"):
            convert("number", value, int)
