"""What `course.checks` is while the grader runs a notebook: it files answers, and judges nothing.

The grader copies this file into the package that a learner's kernel sees, in the place of the checks, so that
no trial and no expected value lies in the learner's process. Whatever a learner does to it, it can only send
another answer.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import Tensor

from course.checks import borrowed

from . import values  # beside this file in either place

Answer = TypeVar("Answer", bound=Callable[..., Any])

_filed: list[tuple[str, Any]] = []  # exercises and answers since the grader last asked
_functions: list[Callable[..., Any]] = []
_given: list[Any] = []  # right functions, in the place of answers
_inputs: list[Tensor] = []  # of the last call: those that a gradient may be asked for
_outputs: list[Tensor] = []


class Receipt(SimpleNamespace):
    """What `check` returns here. It has a judgement's fields, for cells that read them, and tells nothing."""

    def __repr__(self) -> str:
        """Say what becomes of the answer."""
        return f"{self.title}: handed in for grading."


def check(exercise: str, answer: Any) -> Receipt:
    """Hand in an answer, unless the grader gave it; the last one to an exercise counts."""
    try:
        form = values.encode(answer, _functions)
    except Exception as error:  # whatever a learner has made
        form = {"other": f"a {type(answer).__name__} that stops with {type(error).__name__}"}
    if not any(answer is one for one in _given):
        _filed.append((str(exercise), form))
    return Receipt(title=str(exercise), points=0, possible=0, message="Handed in.", passed=False)


def exercise(key: str) -> Callable[[Answer], Answer]:
    """Hand in the function or class below."""

    def handed_in(answer: Answer) -> Answer:
        check(key, answer)
        return answer

    return handed_in


# ---- What the grader asks for, after each cell --------------------------------------------------------


def hand_over() -> str:
    """Return what was filed since the last time."""
    filed = list(_filed)
    _filed.clear()
    return values.write(filed)


def call(number: int, arguments: str) -> str:
    """Call a function that was an answer. Return its result, or what stopped it."""
    _inputs.clear()
    _outputs.clear()
    try:
        given = values.decode(values.read(arguments), tensor=_input)
        return values.write({"result": values.encode(_functions[number](*given), _functions, _outputs)})
    except BaseException as error:  # also an exit, and the interrupt of what goes on for too long
        return _stopped(error)


def backward(output: int, gradient: str) -> str:
    """Return the gradients of the last call's inputs, from the gradient of one of its outputs."""
    try:
        given = values.decode(values.read(gradient))
        found = torch.autograd.grad(_outputs[output], _inputs, given, retain_graph=True, allow_unused=True)
        return values.write({"result": values.encode(list(found))})
    except BaseException as error:
        return _stopped(error)


def _input(tensor: Tensor) -> Tensor:
    _inputs.append(tensor.requires_grad_())
    return _inputs[-1]


def _stopped(error: BaseException) -> str:
    return values.write({"stopped": [type(error).__name__, str(error)[:1000]]})


def own_work(number: int, defined_above: list[str], instead: list[str]) -> str:
    """Return whether a function was left empty, and what it uses in place of the work (see `borrowed`)."""
    function = _functions[number]
    return values.write([borrowed.is_stub(function), borrowed.borrowed(function, defined_above, instead)])


def call_through(name: str, source: str, imports: dict[str, str], number: int) -> str:
    """Put a function of the grader, which builds what the answer takes, before it; return their number."""
    _functions.append(functools.partial(made_from(name, source, imports), _functions[number]))
    return values.write(len(_functions) - 1)


def go_on_with(name: str, source: str, imports: dict[str, str], number: int) -> str:
    """Give the cells below a right function in place of one that is not, under its name if it has one."""
    if known := getattr(_functions[number], "__name__", ""):
        _given.append(made_from(name, source, imports))
        sys.modules["__main__"].__dict__[known] = _given[-1]
    return values.write(None)


def made_from(name: str, source: str, imports: dict[str, str]) -> Any:
    """Return what a source defines under a name.

    What it uses of other modules, "torch" or "torch.nn:Linear", is imported by the name that it uses.
    """
    known: dict[str, Any] = {}
    for used, home in imports.items():
        module, _, part = home.partition(":")
        loaded = importlib.import_module(module)
        known[used] = getattr(loaded, part) if part else loaded
    exec(f"from __future__ import annotations\n{source}", known)
    return known[name]
