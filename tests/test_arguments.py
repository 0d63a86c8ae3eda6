"""Arguments are checked by their annotations: numbers, words, and shapes that belong together."""

import math
from typing import Annotated, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vsecore.arguments import Count, NotNegative, Positive, Shape, checked


@checked
def attend(
    x: Annotated[Tensor, Shape("B N D")],
    mask: Annotated[Tensor, Shape("B N", "mask")] | None,
    y: Annotated[Tensor, Shape("C* D")],
    words: Annotated[Tensor, Shape("B L", "whole numbers")] | None = None,
    sharpness: Positive = 1.0,
    scale: Tensor | float = 1.0,
    kind: Literal["hard", "soft"] = "soft",
) -> int:
    """Something with a docstring."""
    return len(x)


class Part(nn.Module):
    @checked
    def __init__(self, dim: Count, margin: NotNegative = 0.2, most: Count | None = None) -> None:
        super().__init__()
        self.dim = dim


X, Y = torch.zeros(2, 3, 4), torch.zeros(5, 4)
MASK = torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize("sharpness", [2, 0.5, np.float32(0.5), np.int64(3)])
def test_what_fits_is_passed_on_as_it_is(sharpness):
    assert attend(X, None, Y) == attend(X, MASK, y=Y[:0], sharpness=sharpness, scale=torch.ones(())) == 2
    assert attend(X.half(), MASK, Y.double(), torch.zeros(2, 9, dtype=torch.int32), kind="hard") == 2
    assert Part(3, margin=0).dim == Part(dim=3, most=4).dim == 3
    assert attend.__doc__ == "Something with a docstring."


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *[("x", {"x": x}) for x in (X[0], X[:0], X[:, :0], X.long(), X.bool(), None, "x", X * 1j)],
        *[("mask", {"mask": mask}) for mask in (MASK[:1], MASK[:, :2], MASK.float(), MASK & False, "real")],
        *[("y", {"y": y}) for y in (Y[:, :3], Y[0], Y.long())],
        *[("words", {"words": words}) for words in (MASK, X[:, 0], MASK[:1].long())],
        *[("sharpness", {"sharpness": x}) for x in (0, -1.0, math.nan, math.inf, "9", True, None)],
        *[("scale", {"scale": x}) for x in ("1", None)],
        *[("kind", {"kind": x}) for x in ("medium", 1, None)],
    ],
)
def test_what_does_not_fit_is_named(name, change):
    with pytest.raises(ValueError, match=f"^{name} is "):
        attend(**{"x": X, "mask": None, "y": Y} | change)


def test_nothing_is_checked_in_code_that_is_compiled():
    compiled = torch.compile(lambda x: x * attend(x, None, Y), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(X + 1), 2 * (X + 1))
