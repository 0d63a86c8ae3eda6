"""Arguments checked by their annotations: numbers and words by pydantic, tensors by their shapes."""

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

import numpy as np
import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from vsecore.typed import sentence, short

P = ParamSpec("P")
R = TypeVar("R")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Shape:
    """The shape of a tensor argument, for an annotation such as `Annotated[Tensor, Shape("B N D")]`.

    `axes` has a letter for each axis, which stands for the same size wherever it occurs in a signature. No
    axis is empty, except those marked with a star: "B* D". A "mask" is bool, (rows, elements), and each row
    must have a True, which is checked on a CPU only: on a GPU every step would have to wait for the answer.
    """

    axes: str
    kind: Literal["floating point", "whole numbers", "bool", "mask"] = "floating point"

    def check(self, name: str, x: object, sizes: dict[str, int]) -> None:
        """Refuse a tensor of another shape or type, and add its sizes to those that are known."""
        if not isinstance(x, Tensor):
            raise ValueError(f"{name} is {short(x)}: it must be a tensor")
        axes = self.axes.split()
        wanted = [sizes.get(axis.removesuffix("*"), axis.removesuffix("*")) for axis in axes]
        fits = x.ndim == len(axes) and all(
            size == want if isinstance(want, int) else size > 0 or axis.endswith("*")
            for size, want, axis in zip(x.shape, wanted, axes, strict=True)
        )
        if not fits or not _holds(x, self.kind):
            kind = "bool" if self.kind == "mask" else self.kind
            raise ValueError(
                f"{name} is {x.dtype} {tuple(x.shape)}: it must be {kind} ({', '.join(map(str, wanted))}), "
                "not empty"
            )
        sizes.update(zip((axis.removesuffix("*") for axis in axes), x.shape, strict=True))
        looked_at = self.kind == "mask" and x.device.type == "cpu" and not torch.compiler.is_compiling()
        if looked_at and not bool(x.any(1).all()):
            row = int((~x.any(1)).nonzero()[0])
            raise ValueError(f"{name} is False in all of row {row}: it must have a True in each")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check what a function or constructor is called with against its annotations, before it runs.

    Tensors are checked where they are annotated with a `Shape`; numbers, words and the like by pydantic, and
    nothing is converted. Code that is being compiled is not checked.

    Example:
        >>> @checked
        ... def scaled(x: Annotated[Tensor, Shape("B D")], by: Positive = 1.0) -> Tensor: ...
        >>> scaled(torch.zeros(2, 3), by=-1)
        ValueError: by is -1: wanted greater than 0
    """
    signature = inspect.signature(function)

    @functools.cache
    def checks() -> dict[str, Callable[[str, object, dict[str, int]], None]]:
        # Only now, since the names in annotations are known only after the import.
        hints = typing.get_type_hints(function, include_extras=True)
        return {
            name: _check_of(hints[name])
            for name in signature.parameters
            # Nobody passes a wrong object for a class of ours or torch's.
            if name in hints and not (inspect.isclass(hints[name]) and hints[name].__module__ != "builtins")
        }

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            sizes: dict[str, int] = {}
            given = signature.bind(*args, **kwargs).arguments
            for name, check in checks().items():
                if name in given:
                    check(name, given[name], sizes)
        return function(*args, **kwargs)

    return wrapper


def _check_of(hint: Any) -> Callable[[str, object, dict[str, int]], None]:
    """Make what checks an argument by its annotation, called with its name, its value and the known sizes."""
    members = (*typing.get_args(hint), hint)
    marks = (mark for member in members for mark in getattr(member, "__metadata__", ()))
    shape = next((mark for mark in marks if isinstance(mark, Shape)), None)
    adapter = TypeAdapter(Any if shape else hint, config=ConfigDict(arbitrary_types_allowed=True))

    def check(name: str, value: object, sizes: dict[str, int]) -> None:
        if shape is not None:
            if value is not None or NoneType not in members:
                shape.check(name, value, sizes)
            return
        try:
            adapter.validate_python(value.item() if isinstance(value, np.generic) else value, strict=True)
        except ValidationError as error:
            raise ValueError(sentence(name, error)) from None

    return check


def _holds(x: Tensor, kind: str) -> bool:
    if kind == "floating point":
        return x.is_floating_point()
    if kind == "whole numbers":
        return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    return x.dtype == torch.bool


def check_heads(heads: int, dim: int, name: str = "dim") -> None:
    """Refuse a number of attention heads that does not divide the width, which is called `name`."""
    if dim % heads:
        raise ValueError(f"heads is {heads}: it must divide {name}, which is {dim}")


def check_numbers(**given: Tensor | float) -> None:
    """Refuse tensors that do not hold one number each."""
    for name, number in given.items():
        if isinstance(number, Tensor) and number.numel() != 1:
            raise ValueError(f"{name} is {tuple(number.shape)}: it must be one number")
