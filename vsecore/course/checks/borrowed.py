"""Whether an answer is the learner's own: not left empty, and not a call of what does the work already."""

from __future__ import annotations

import dis
from collections.abc import Collection, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_EMPTY = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "POP_TOP"}


def is_stub(answer: Any) -> bool:
    """Whether an answer was left as handed out: dots, None, or a function that returns nothing else."""
    if isinstance(answer, FunctionType):
        steps = list(dis.get_instructions(answer))
        given = {step.argval for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST")}
        return all(step.opname in _EMPTY for step in steps) and given <= {None, ...}
    if isinstance(answer, tuple | list):
        return any(is_stub(part) for part in answer)
    return answer is ... or answer is None


def borrowed(answer: Any, defined_above: Collection[str] = ()) -> str:
    """The name of what an answer calls in place of doing the work itself; "" if it calls nothing of the kind.

    Args:
        answer: a function or a class; anything else borrows nothing.
        defined_above: names of the notebook that an answer may not use. Whatever comes from `vsecore` may
            not be used either, also by way of another function of the notebook.
    """
    looked_at: set[int] = set()
    waiting = list(_functions(answer))
    own = {function.__qualname__.split(".")[0] for function in waiting}
    while waiting:
        function = waiting.pop()
        if id(function) in looked_at:
            continue
        looked_at.add(id(function))
        for name in _names(function.__code__):
            known = function.__globals__.get(name)
            if name.split(".")[0] == "vsecore" or _home(known).split(".")[0] == "vsecore":
                return name
            if name in defined_above and name in function.__globals__ and name not in own:
                return name
            if _home(known) == function.__module__:
                waiting += _functions(known)
    return ""


def _functions(answer: Any) -> Iterator[FunctionType]:
    """A function itself, or those of a class."""
    if isinstance(answer, FunctionType):
        yield answer
    elif isinstance(answer, type):
        yield from (part for part in vars(answer).values() if isinstance(part, FunctionType))


def _names(code: CodeType) -> Iterator[str]:
    """The names that code uses, that of functions inside it too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _home(thing: Any) -> str:
    """The module that something comes from, as far as it can be told."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    home = getattr(thing, "__module__", "") or type(thing).__module__
    return home if isinstance(home, str) else ""
