"""Whether an answer is the learner's own: not left empty, and not carried by what does the work already."""

import dis
from collections.abc import Collection, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

_EMPTY = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
_METHODS = {*dir(dict), *dir(str), *dir(np.ndarray), *dir(Tensor)}
_LOOKED_UP = [dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_FROM")]


def is_stub(answer: Any) -> bool:
    """Whether an answer was left as handed out: dots, None, or a function that returns nothing else."""
    if isinstance(answer, FunctionType):
        steps = list(dis.get_instructions(answer.__code__))
        given = {step.argval for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST")}
        return {step.opname for step in steps} <= _EMPTY and given <= {None, ...}
    if isinstance(answer, tuple | list):
        return any(is_stub(part) for part in answer)
    return answer is None or holds_dots(answer)


def holds_dots(value: Any) -> bool:
    """Whether a value is `...` or `NotImplemented`, or a tuple or list that holds one."""
    if isinstance(value, tuple | list):
        return any(holds_dots(part) for part in value)
    return value is ... or value is NotImplemented


def borrowed(answer: Any, defined_above: Collection[str] = (), instead: Collection[str] = ()) -> str:
    """The name of what an answer uses in place of doing the work itself; "" if it uses nothing of the kind.

    A friendly reminder by name, and no guard: only the names in the answer's own code are read. It may use
    nothing of `vsecore`, but for the course's own functions, which draw and tell; none of the names that the
    notebook has `defined_above`; and none of those `instead`, which other libraries give to what already does
    the work, unless the learner's own function has the name. Anything but functions, classes and containers
    of such borrows nothing.
    """
    parts = list(answer.values()) if isinstance(answer, dict) else answer
    for part in parts if isinstance(parts, list | tuple) else [answer]:
        if _of_the_package(part):
            return str(getattr(part, "__name__", type(part).__name__))
        for function in _functions(part):
            used, looked_up = (names_in(function.__code__, by) for by in (dis.hasname, _LOOKED_UP))
            for name in sorted(used - {function.__qualname__.split(".")[0]}):
                method = name in _METHODS - looked_up  # as in `found.get(row)`, beside a `get` of the package
                thing = None if method else function.__globals__.get(name)
                own = getattr(thing, "__module__", None) == function.__module__
                if name in defined_above or (name in instead and not own) or _of_the_package(thing):
                    return name
                if name.split(".")[0] == "vsecore" and thing is None:  # imported inside
                    return name
    return ""


def names_in(code: CodeType, by: Collection[int]) -> set[str]:
    """The names that code and functions inside it use `by` some instructions, but for its own variables."""
    inner = (names_in(constant, by) for constant in code.co_consts if isinstance(constant, CodeType))
    return {step.argval for step in dis.get_instructions(code) if step.opcode in by}.union(*inner)


def _functions(answer: Any) -> Iterator[FunctionType]:
    """A function itself, or those of a class."""
    members = vars(answer).values() if isinstance(answer, type) else (answer,)
    return (member for member in members if isinstance(member, FunctionType))


def _of_the_package(thing: Any) -> bool:
    """Whether the package made something that can be called, or a module."""
    if not (callable(thing) or isinstance(thing, ModuleType)):
        return False
    home = str(thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", ""))
    return home.split(".")[0] == "vsecore"
