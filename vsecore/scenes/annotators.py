"""Five people who describe pictures, each with habits of their own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Annotator:
    """The habits of one annotator. All numbers but the weights are percent.

    Attributes:
        units: weights of speaking of 1, 2, 3, 4 things or groups.
        links: weights of naming 0, 1, 2, 3 relations.
        place: says where it is.
        place_first: begins with it, if it is said.
        colour: says the colour of a thing.
        size: says its size.
        facing: says where it looks.
        together: says like things as a number of them.
        wide: uses a wider word than the kind.
        finite: makes a sentence with a verb.
        telegram: leaves the articles out.
    """

    units: tuple[int, int, int, int]
    links: tuple[int, int, int, int]
    place: int
    place_first: int
    colour: int
    size: int
    facing: int
    together: int
    wide: int
    finite: int
    telegram: int = 0


ANNOTATORS: dict[str, Annotator] = {
    "terse": Annotator((45, 55, 0, 0), (35, 65, 0, 0), 30, 0, 40, 6, 4, 60, 14, 30, telegram=30),
    "counter": Annotator((5, 35, 40, 20), (85, 15, 0, 0), 50, 30, 22, 10, 3, 100, 22, 20),
    "place_first": Annotator((15, 50, 35, 0), (35, 50, 15, 0), 100, 100, 35, 12, 8, 70, 12, 65),
    "relations": Annotator((0, 45, 45, 10), (0, 55, 40, 5), 25, 30, 38, 12, 4, 60, 8, 60),
    "detail": Annotator((25, 50, 25, 0), (25, 55, 20, 0), 45, 25, 96, 65, 38, 60, 2, 50),
}
