"""Judge an answer that lies in another process, by calling it there: no code of a learner runs here."""

from __future__ import annotations

import builtins
import dis
import inspect
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from course.checks.borrowed import is_stub, names_in
from course.checks.exercise import Exercise, Judgement, judge_by_trials, not_answered, refused
from course.grading import values
from course.grading.kernel import Filed


def judge_filed(task: Exercise, filed: Filed) -> Judgement:
    """Judge an answer that a learner's kernel has filed.

    A function is called there, and what it returns is read as a plain value, so it can only be an answer.
    """
    try:
        answer = values.decode(filed.form, lambda number: Distant(filed.ask, number))
        if isinstance(answer, Distant):
            judgement = _judge_function(task, answer, filed.ask)
            if not judgement.passed:
                go_on(task, filed)
            return judgement
    except Exception as error:  # whatever the form is
        hint = f"{task.trials[0].hint} (Your answer could not be read: {error}.)"
        return Judgement(task.title, 0, len(task.trials), hint)
    return not_answered(task, answer) if is_stub(answer) else judge_by_trials(task, answer)


def _judge_function(task: Exercise, answer: Distant, ask: Callable[[str], Any]) -> Judgement:
    """Judge a function by calls of it, unless it is empty or uses what does the work already."""
    match ask(f"own_work({answer.number}, {list(task.defined_above)!r}, {list(task.instead)!r})"):
        case [True, str()]:
            return not_answered(task)
        case [bool(), str(helper)] if helper:
            return refused(task, helper)
        case _ if task.caller:
            called = ask(f"call_through({source_of(task.caller)}, {answer.number})")
            if not isinstance(called, int):
                raise ValueError("its reply makes no sense")
            return judge_by_trials(task, Distant(ask, called))
    return judge_by_trials(task, answer)


def go_on(task: Exercise, filed: Filed) -> None:
    """Give the cells below a right function in place of a wrong answer, if that is a function."""
    match filed.form:
        case {"function": int(number)} if task.reference:
            with suppress(ConnectionError, TimeoutError, ValueError):
                filed.ask(f"go_on_with({source_of(task.reference)}, {number})")


def source_of(function: Callable[..., Any]) -> str:
    """Return a function's code, with what it uses of its module, as the arguments of `inside.made_from`."""
    imports: dict[str, str] = {}
    parts = [function]
    if not function.__module__.startswith("course.checks"):  # one of the package's own
        imports[function.__name__], parts = f"{function.__module__}:{function.__name__}", []
    for part in parts:  # which grows
        for name in names_in(part.__code__, [dis.opmap["LOAD_GLOBAL"]]):
            used = part.__globals__.get(name)
            if isinstance(used, ModuleType):
                imports[name] = used.__name__
            elif isinstance(used, FunctionType) and used.__module__ == function.__module__:
                parts += [used] if used not in parts else []
            elif callable(used):
                imports[name] = f"{used.__module__}:{used.__name__}"
    source = "\n".join(map(inspect.getsource, parts))
    return f"{function.__name__!r}, {source!r}, {imports!r}"


class Distant:
    """A function in another process, with gradients. After a call that took too long, no other is tried."""

    def __init__(self, ask: Callable[[str], Any], number: int) -> None:
        self._ask, self.number = ask, number
        self._broken: Exception | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function on plain values, and return its result."""
        inputs: list[Tensor] = []
        form = values.write(values.encode(list(arguments), tensors=inputs))
        outputs = 0

        def joined(tensor: Tensor) -> Tensor:
            nonlocal outputs
            outputs += 1
            return _Joined.apply(self._backward, outputs - 1, tensor, *inputs) if inputs else tensor

        result = self._asked(f"call({self.number}, {form!r})")
        return values.decode(result, lambda other: Distant(self._ask, other), joined)

    def _backward(self, output: int, gradient: Tensor) -> list[Tensor | None]:
        form = values.write(values.encode(gradient))
        return list(values.decode(self._asked(f"backward({output}, {form!r})")))

    def _asked(self, call: str) -> Any:
        if self._broken:
            raise self._broken
        try:
            said = self._ask(call)
        except (ConnectionError, TimeoutError) as error:
            self._broken = error
            raise
        match said:
            case {"result": result}:
                return result
            case {"stopped": [str(name), str(why)]}:
                raise _exception(name)(why)
        raise ValueError("its reply makes no sense")


def _exception(name: str) -> type[Exception]:
    """Return Python's own exception of a name, or else one that only has the name."""
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, UnicodeError):
        return known
    return type(name, (Exception,), {})


class _Joined(torch.autograd.Function):
    """Joins the result of a call in another process to its inputs here."""

    @staticmethod
    def forward(context: Any, backward: Any, output: int, result: Tensor, *inputs: Tensor) -> Tensor:
        context.backward, context.output = backward, output
        return result.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Any, ...]:
        return None, None, None, *context.backward(context.output, gradient)
