"""Which parts of a picture each word of a caption belongs to: maps from words to boxes or cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor
from torch.nn.functional import cosine_similarity

from course.sketch import rectangle
from vsecore.data.splits import Split
from vsecore.data.words import Tokenizer
from vsecore.model import VSE
from vsecore.scoring import evaluating
from vsecore.training import Run

MOST_WORDS = 15
"""More small maps than this are too small to be read."""
FRAME = "#D55E00"  # Okabe and Ito's vermilion: seen on every colour of the maps, by colour-blind readers too

Measure = Literal["weight", "weight of the words", "cosine"]


@dataclass(frozen=True, eq=False)
class Seen:
    """One picture, for people and for a model.

    Args:
        pixels: what people see, uint8 (H, W, 3).
        features: what the model reads: its elements (N, F).
        boxes: where each element lies, (N, 4): left, top, right and bottom as shares of the picture's width
            and height. None: the elements are the cells of a square grid, row by row from the top left.

    Raises:
        ValueError: the boxes have another shape, or one is empty or outside the picture.
    """

    pixels: np.ndarray
    features: np.ndarray | Tensor
    boxes: np.ndarray | Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        if self.boxes is not None:
            boxes = np.asarray(self.boxes, dtype=float)
            shares = boxes.min(initial=0) >= -1e-3 and boxes.max(initial=1) <= 1 + 1e-3
            each = boxes.shape == (len(self.features), 4) and (boxes[:, :2] < boxes[:, 2:]).all()
            if not (each and shares):
                raise ValueError(
                    f"boxes are {boxes.shape}: each element must have one, (N, 4), not empty, in shares of "
                    "the picture's width and height, from 0 to 1"
                )

    @classmethod
    def of_row(
        cls, split: Split, row: int, pixels: np.ndarray, boxes: np.ndarray | Tensor | None = None
    ) -> Seen:
        """Take a picture's features from a split; padding is left out, and so are its boxes."""
        features = np.asarray(split.pictures[row : row + 1])[0]
        if split.picture_counts is not None:
            features = features[: split.picture_counts[row]]
            boxes = None if boxes is None else boxes[: split.picture_counts[row]]
        return cls(pixels, features, boxes)


@dataclass(frozen=True, eq=False)
class WordMaps:
    """What belongs together in a picture and a caption, word by word. Made by `word_maps`.

    Attributes:
        words: the words that have a map, M of them.
        values: (M, N), a value for each word and each element of the picture.
        measure: what a value is: "weight" (of an element for a word: each row adds up to one), "weight of
            the words" (of a word for an element: each column adds up to at most one) or "cosine".
        boxes: (N, 4), where each element lies, as in `Seen`.
        hidden: how many words of the caption have no map.
    """

    seen: Seen
    caption: str
    words: tuple[str, ...]
    values: np.ndarray
    measure: Measure
    boxes: np.ndarray
    hidden: int = 0

    def describe(self) -> str:
        """Say in words what the figure shows, for its alt text.

        Where the largest values lie is left out: a training on another machine may give others.
        """
        kind = "cells" if self.seen.boxes is None else "boxes"
        return (
            f"A picture, and a small map of its {len(self.boxes)} {kind} for each of {len(self.words)} words "
            f'of the caption "{self.caption}". A colour gives the {self.measure}; a frame marks the largest.'
        )

    def figure(self, columns: int = 5) -> Figure:
        """Draw the picture, then a map for each word, all on one scale, in so many columns.

        A small box is drawn over a larger one, so that each shows its own colour.
        """
        columns = min(columns, 1 + len(self.words))
        rows = -(-(1 + len(self.words)) // columns)
        height, width = self.seen.pixels.shape[:2]
        size = (2.0 * columns + 0.8, (2.0 * height / width + 0.25) * rows + 0.35)
        figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
        panels, under = list(grid.flat), {"fontsize": 9, "loc": "center", "y": -0.13}
        for axes in panels:
            axes.set_axis_off()
        whole = {"extent": (0, 1, 1, 0), "aspect": height / width, "interpolation": "lanczos"}
        panels[0].imshow(self.seen.pixels, **whole)
        panels[0].set_title("the picture", **under)
        for box in self.boxes if self.seen.boxes is not None else ():
            panels[0].add_patch(_outline(box, 1.0))
        low = float(self.values.min()) if self.measure == "cosine" else 0.0
        scale = ScalarMappable(Normalize(low, float(self.values.max())), cmap="viridis")
        left, top, right, bottom = self.boxes.T
        smaller_later = np.argsort((left - right) * (bottom - top), kind="stable")
        for axes, word, values in zip(panels[1:], self.words, self.values, strict=False):
            for place in smaller_later:
                style = {"facecolor": scale.to_rgba(values[place]), "linewidth": 0, "antialiased": False}
                axes.add_patch(rectangle(self.boxes[place], **style))
            grey = self.seen.pixels.mean(2)  # (H, W), which shines through
            axes.imshow(grey, cmap="gray", alpha=0.3, zorder=2, **whole)
            axes.set_title(word, **under)
            axes.add_patch(_outline(self.boxes[values.argmax()], 2.2))
        figure.colorbar(scale, ax=panels, label=self.measure, shrink=0.8, aspect=25)
        more = f" ({self.hidden} words have no map)" if self.hidden else ""
        figure.suptitle(f"{self.caption}{more}", fontsize=11)
        return figure


@torch.inference_mode()
def word_maps(run: Run, picture: Seen, caption: str, *, words: Sequence[str] | None = None) -> WordMaps:
    """Compute for a run how much each word of a caption has to do with each element of a picture.

    A similarity that attends (SCAN, BFAN) says so itself: its weights are taken. Of every other model, the
    cosines between the elements of both sides are taken, as they are before pooling. Such a model was not
    trained to make these cosines mean anything: look at them as a hint.

    The pieces of a word (BERT) are averaged. A class element has no place in the picture and is left out, and
    so are the marks of a caption's start and end.

    The picture's features are of the kind that the model was trained on. Of a caption's words only the chosen
    ones are shown, at most 15, or its first 15.
    """
    tokens, mask = run.tokenizer.encode([caption])  # (1, L) each
    values, measure = _values(run.model, picture, tokens, mask)
    boxes = places_of(picture, values.shape[1])
    values = values[:, values.shape[1] - len(boxes) :].double().cpu()  # a class element stands in front
    rows = _rows_of_words(run.tokenizer, caption, tokens[0].tolist(), len(values))
    if not rows:
        raise ValueError(f"caption is {caption!r}: it must have at least one word")
    shown = _chosen(rows, caption, words)
    return WordMaps(
        picture,
        caption,
        tuple(word for word, _ in shown),
        np.stack([values[pieces].mean(0).numpy() for _, pieces in shown]),
        measure,
        boxes,
        len(rows) - len(shown),
    )


def _values(vse: VSE, picture: Seen, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Measure]:
    """What a model says of each word with each element of the picture, (M, N), and what that is."""
    features = torch.from_numpy(np.array(picture.features, np.float32))[None]  # (1, N, F)
    with evaluating(vse) as device:
        v = vse.encode_pictures(features.to(device))
        t = vse.encode_captions(tokens.to(device), mask.to(device))
    assert v.elements is not None and t.elements is not None  # `VSE` always gives them
    weigh = getattr(vse.similarity, "weights", None)
    if weigh is None:
        return cosine_similarity(t.elements[0][:, None], v.elements[0][None], dim=-1), "cosine"
    of_words = getattr(vse.similarity, "direction", "") == "i2t"
    return weigh(v, t)[0], "weight of the words" if of_words else "weight"


def places_of(picture: Seen, elements: int) -> np.ndarray:
    """Where the picture's elements lie, (N, 4), as in `Seen`, if the model gives so many."""
    if picture.boxes is not None:
        boxes = np.asarray(picture.boxes, dtype=float)
    else:
        count = len(picture.features)
        side = math.isqrt(count)
        if side**2 != count:
            raise ValueError(f"boxes is None, but {count} elements form no square grid: say where each lies")
        row, column = np.divmod(np.arange(count), side)
        boxes = np.stack([column, row, column + 1, row + 1], 1) / side
    if elements < len(boxes):
        raise ValueError(f"picture has {len(boxes)} elements, but the model keeps only {elements} of them")
    return boxes


Row = tuple[str, list[int]]


def _rows_of_words(tokenizer: Tokenizer, caption: str, tokens: list[int], rows: int) -> list[Row]:
    """Each word of a caption, marked if the model does not know it, and its rows among the elements."""
    front = max(0, rows - len(tokens))  # a class element, where the model adds one
    found = []
    for word, places in tokenizer.words_of(caption):
        unknown = any(tokens[place] == tokenizer.unknown for place in places)
        if kept := [front + place for place in places if front + place < rows]:  # a model may cut a caption
            found.append((f"{word} (unknown)" if unknown else word, kept))
    return found


def _chosen(rows: list[Row], caption: str, words: Sequence[str] | None) -> list[Row]:
    """The words to show."""
    if words is None:
        return rows[:MOST_WORDS]
    wanted = {word.lower() for word in words}
    chosen = [row for row in rows if row[0].removesuffix(" (unknown)") in wanted]
    if len({name for name, _ in chosen}) < len(wanted) or not 1 <= len(chosen) <= MOST_WORDS:
        raise ValueError(
            f"words is {words!r}: it must be 1 to {MOST_WORDS} words of the caption {caption!r}, which has "
            f"{', '.join(word for word, _ in rows)}"
        )
    return chosen


def _outline(box: np.ndarray, line: float) -> Rectangle:
    """The frame of a box, which every colour below it lets see."""
    halo = [withStroke(linewidth=line + 1.2, foreground="white")]
    return rectangle(box, fill=False, edgecolor=FRAME, linewidth=line, zorder=3, path_effects=halo)
