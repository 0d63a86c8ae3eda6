"""Answers and arguments as JSON, between the grader and the process that runs a learner's code.

Only plain values pass: numbers, text, lists, tuples, tensors and arrays. Reading one never runs anything, as
unpickling would. The same file serves both sides.
"""

import base64
import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

LARGEST = 16_000_000
"""Characters of a value."""
LONGEST_TEXT, DEEPEST = 20_000, 20
"""Characters of a text inside it; lists in lists."""


def encode(
    value: Any,
    functions: list[Callable[..., Any]] | None = None,
    tensors: list[Tensor] | None = None,
    depth: int = 0,
) -> Any:
    """Return a value as what JSON can say. What cannot be said is named by its type.

    A function is added to `functions`, and called by its place there. A tensor that requires a gradient is
    added to `tensors`, in the order in which `decode` meets it. `depth` is how many lists the value lies in.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value) if len(value) <= LONGEST_TEXT else {"other": "a text that is too long"}
    if isinstance(value, Tensor | np.ndarray):
        return _array(value, tensors)
    if isinstance(value, int):
        return int(value) if abs(value) < 2**63 else {"other": "a number with too many digits"}
    if isinstance(value, float):
        return float(value)
    if value is ... or value is NotImplemented:  # both stand for a part that is not written yet
        return {"dots": True}
    if callable(value) and functions is not None:
        functions.append(value)
        return {"function": len(functions) - 1}
    if depth < DEEPEST and isinstance(value, list | tuple | range | Iterator):
        parts = [encode(part, functions, tensors, depth + 1) for part in islice(value, LARGEST // 10)]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if hasattr(value, "__float__"):  # such as a fraction
        return float(value)
    return {"other": f"of the type {type(value).__name__}"}


def _array(value: Tensor | np.ndarray, tensors: list[Tensor] | None) -> Any:
    try:
        numbers = value.detach().cpu() if isinstance(value, Tensor) else torch.as_tensor(np.array(value))
        if numbers.nbytes > LARGEST / 2:
            return {"other": "an array that is too large"}
        content = save({"value": numbers.to_dense().contiguous().clone()})
    except (TypeError, ValueError, RuntimeError, KeyError):  # such as an array of words
        return {"other": f"an array of {getattr(value, 'dtype', 'something else')}"}
    kind = "tensor" if isinstance(value, Tensor) else "array"
    form = {"tensor": base64.b64encode(content).decode("ascii"), "kind": kind, "gradient": False}
    if isinstance(value, Tensor) and value.requires_grad and tensors is not None:
        tensors.append(value)
        form["gradient"] = True
    return form


def decode(
    form: Any, function: Callable[[int], Any] | None = None, tensor: Callable[[Tensor], Tensor] | None = None
) -> Any:
    """Return the value that `encode` made a form of.

    Anybody may have written the form; one that `encode` does not make is a ValueError. `function` makes what
    stands for the function of a number, and `tensor` what stands for a tensor that a gradient shall reach.
    """
    match form:
        case None | bool() | str() | float() | int():
            return form
        case list():
            return [decode(part, function, tensor) for part in form]
        case {"tuple": list(parts)}:
            return tuple(decode(part, function, tensor) for part in parts)
        case {"tensor": str(content), "kind": "tensor" | "array" as kind, "gradient": bool(asks)}:
            numbers = load(base64.b64decode(content, validate=True))["value"]
            if kind == "array":
                return numbers.numpy()
            return tensor(numbers) if asks and tensor else numbers
        case {"dots": True}:
            return ...
        case {"function": int(number)} if function:
            return function(number)
        case {"other": str(name)}:
            raise ValueError(f"it is {name[:80]}, not a number, text, list, tuple, tensor or array")
    raise ValueError("it is no value")


def write(form: Any) -> str:
    """Return a form as JSON in ASCII, or raise a ValueError if it is too large."""
    text = json.dumps(form)
    if len(text) > LARGEST:
        raise ValueError("it is too large")
    return text


def read(text: str) -> Any:
    """Return the form that a text holds, or raise a ValueError if it is too large or no JSON."""
    if len(text) > LARGEST:
        raise ValueError("it is too large")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is no value") from None
