"""Arguments checked by their annotations: numbers and words by pydantic, tensors by their shapes."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from vsecore.typed import short, spoken

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
        if self.kind == "mask" and x.device.type == "cpu" and not bool(x.any(1).all()):
            row = int((~x.any(1)).nonzero()[0])
            raise ValueError(f"{name} is False in all of row {row}: it must have a True in each")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Check what a function or constructor is called with against its annotations, before it runs.

    Tensors are checked where they are annotated with a `Shape`; numbers, words and the like by pydantic, and
    nothing is converted. Code that is being compiled is not checked.

    Raises:
        ValueError: from the call, naming the argument, what came, and what is wanted.

    Example:
        >>> @checked
        ... def scaled(x: Annotated[Tensor, Shape("B D")], by: Positive = 1.0) -> Tensor: ...
        >>> scaled(torch.zeros(2, 3), by=-1)
        ValueError: by is -1: it must be more than 0
    """
    signature = inspect.signature(function)

    @functools.cache
    def checks() -> dict[str, _Check]:  # the names in annotations are known only after the import
        hints = typing.get_type_hints(function, include_extras=True)
        # Nobody passes a wrong object for a class of ours or torch's.
        classes = {
            name for name, hint in hints.items() if inspect.isclass(hint) and hint.__module__ != "builtins"
        }
        return {
            name: _Check.read(hints[name]) for name in signature.parameters if name in hints.keys() - classes
        }

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            sizes: dict[str, int] = {}
            given = signature.bind(*args, **kwargs).arguments
            for name, check in checks().items():
                if name in given:
                    check.apply(name, given[name], sizes)
        return function(*args, **kwargs)

    return wrapper


class _Check(NamedTuple):
    """What an annotation asks for, and whether None will do."""

    of: Shape | TypeAdapter[Any]
    optional: bool

    @classmethod
    def read(cls, hint: Any) -> _Check:
        members = (*typing.get_args(hint), hint)
        shapes = (
            x for member in members for x in getattr(member, "__metadata__", ()) if isinstance(x, Shape)
        )
        shape = next(shapes, None)
        return cls(
            TypeAdapter(hint, config={"arbitrary_types_allowed": True}) if shape is None else shape,
            NoneType in members,
        )

    def apply(self, name: str, value: object, sizes: dict[str, int]) -> None:
        if value is None and self.optional:
            return
        if isinstance(self.of, Shape):
            self.of.check(name, value, sizes)
            return
        try:
            self.of.validate_python(value.item() if isinstance(value, np.generic) else value, strict=True)
        except ValidationError as error:
            wanted = " or ".join(dict.fromkeys(spoken(dict(one)) for one in error.errors()))
            raise ValueError(f"{name} is {short(value)}: it must be {wanted}") from None


def _holds(x: Tensor, kind: str) -> bool:
    if kind == "floating point":
        return x.is_floating_point()
    if kind == "whole numbers":
        return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool
    return x.dtype == torch.bool
