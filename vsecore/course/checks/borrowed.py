"""Whether an answer is the learner's own: not left empty, and not carried by what does the work already."""

from __future__ import annotations

import builtins
import dis
import gc
import inspect
import re
import sys
import sysconfig
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

_EMPTY = {"RESUME", "NOP", "COPY", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE", "POP_TOP"}
_PACKAGE = "vsecore"
_NAMED = re.compile(rf"\A\s*{_PACKAGE}[.:\w]*\s*\Z|\b(?:from|import)\s+{_PACKAGE}\b")  # text that imports it
_BY_TEXT = {"globals", "vars", "locals", "getattr", "attrgetter", "__dict__", "eval", "exec"}
_LEADS_ANYWHERE = {"__subclasses__", "get_objects", "get_referrers"}  # also into the package
_AT_HAND = (torch.Tensor, nn.Module)  # what is added to these reaches an answer without their names
_STANDARD = sysconfig.get_path("stdlib")


def is_stub(answer: Any) -> bool:
    """Whether an answer was left as handed out: dots, None, or a function that returns nothing else."""
    if isinstance(answer, FunctionType):
        return _does_nothing(answer.__code__)
    if isinstance(answer, tuple | list):
        return any(is_stub(part) for part in answer)
    return answer is None or holds_dots(answer)


def holds_dots(value: Any) -> bool:
    """Whether a value is `...` or `NotImplemented`, or a tuple or list that holds one."""
    if isinstance(value, tuple | list):
        return any(holds_dots(part) for part in value)
    return value is ... or value is NotImplemented


def _does_nothing(code: CodeType) -> bool:
    """Whether a function only passes None and dots on, perhaps under names of its own."""
    steps = list(dis.get_instructions(code))
    given = {step.argval for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST")}
    named = [step for step in steps if step.opname.startswith(("LOAD_FAST", "STORE_FAST"))]
    names: set[str] = set()  # newer Pythons join two steps, which then have two names
    names.update(*([step.argval] if isinstance(step.argval, str) else step.argval for step in named))
    taken = inspect.getargs(code)
    return (
        all(step.opname in _EMPTY or step in named for step in steps)
        and given <= {None, ...}
        and names.isdisjoint({*taken.args, taken.varargs, taken.varkw})
    )


def borrowed(
    answer: Any,
    defined_above: Collection[str] = (),
    instead: Collection[str] = (),
    stand_ins: Collection[Callable[..., Any]] = (),
) -> str:
    """The name of what an answer uses in place of doing the work itself; "" if it uses nothing of the kind.

    Everything that the answer holds is searched: the names in its code, the defaults of its arguments, the
    variables of a function around it, attributes, containers, partials, bound methods, and what these hold in
    turn. So are methods that somebody added to a library's classes. Code of installed libraries is not
    searched.

    Args:
        answer: a function, a class, another callable, or a container of such; anything else borrows nothing.
        defined_above: names of the notebook that an answer may not use. Nothing of `vsecore` may be used
            either, also by way of another function of the notebook.
        instead: names of other libraries' functions and classes that already do the work. The learner's own
            functions may have these names.
        stand_ins: solutions of earlier exercises that an answer may call where the learner's own failed.
    """
    parts = list(answer.values()) if isinstance(answer, dict) else answer
    roots = [root for root in (parts if isinstance(parts, list | tuple) else [answer]) if callable(root)]
    above = _above(roots, defined_above)
    waiting = [(_called(root), root) for root in roots]
    seen: dict[int, Any] = {}  # it keeps what it holds alive, so that no number is given twice
    while waiting:
        name, thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if any(thing is one for one in stand_ins):
            continue
        if _of_the_package(thing):
            return name
        if id(thing) in above:
            return above[id(thing)]
        if ready := _ready_made(thing, instead):
            return ready
        waiting += _held_by(thing)
    return ""


def _above(roots: list[Callable[..., Any]], names: Collection[str]) -> dict[int, str]:
    """What the notebook defines under some names, by its id; the answer itself may have one of them."""
    functions = [function for root in roots for function in _functions(root)]
    own = {function.__qualname__.split(".")[0] for function in functions}
    return {
        id(function.__globals__[name]): name
        for function in functions
        for name in names
        if name not in own and callable(function.__globals__.get(name))
    }


def _ready_made(thing: Any, names: Collection[str]) -> str:
    """Which of some names something is, if it is a library's; or which of them its code takes from one."""
    if isinstance(thing, FunctionType) and not _in_a_library(
        thing.__globals__.get("__name__"), thing.__globals__
    ):
        known, attributes, texts = names_in(thing.__code__)
        own = {name for name in known if isinstance(thing.__globals__.get(name), FunctionType | type)}
        used = (attributes - own) | (_words(texts) if attributes & _BY_TEXT else set())
        return min(used.intersection(names), default="")
    if isinstance(thing, FunctionType | BuiltinFunctionType):
        return thing.__name__ if thing.__name__ in names else ""
    kinds = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
    found = (kind.__name__ for kind in kinds if kind.__name__ in names and _in_a_library(kind.__module__))
    return next(found, "")


def _functions(answer: Any) -> Iterator[FunctionType]:
    """A function itself, those of a class, or those that a callable object holds."""
    if isinstance(answer, FunctionType):
        yield answer
    elif isinstance(answer, type):
        yield from (part for part in vars(answer).values() if isinstance(part, FunctionType))
    else:
        yield from (part for part in gc.get_referents(answer) if isinstance(part, FunctionType))


def _of_the_package(thing: Any) -> bool:
    """Whether something was made by the package, or is a text that imports it."""
    if isinstance(thing, str):
        return _NAMED.search(thing) is not None
    if isinstance(thing, bytes):  # a pickle names what it makes
        return _PACKAGE.encode() in thing
    if isinstance(thing, FunctionType):  # its module's name can be changed, its globals cannot
        homes = [thing.__module__, thing.__globals__.get("__name__")]
    elif isinstance(thing, ModuleType):
        homes = [thing.__name__]
    else:
        kinds = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
        homes = [kind.__module__ for kind in kinds]
    return any(isinstance(home, str) and home.split(".")[0] == _PACKAGE for home in homes)


def _held_by(thing: Any) -> Iterator[tuple[str, Any]]:
    """What something holds, by name."""
    if isinstance(thing, FunctionType):
        if not _in_a_library(thing.__globals__.get("__name__"), thing.__globals__):
            yield from _held_by_function(thing)
    elif isinstance(thing, type):
        for kind in thing.__mro__:
            if kind is not object and not _in_a_library(kind.__module__):
                parts = (part for name, part in vars(kind).items() if name not in ("__doc__", "__module__"))
                yield from ((_called(part), part) for part in parts)
    elif isinstance(thing, weakref.ref):
        yield _called(thing()), thing()
    elif _is_console(thing):
        return  # in a kernel it leads to the messages, the cells and all that they made
    elif not isinstance(thing, str | bytes | ModuleType | FrameType) and not _is_namespace(thing):
        yield from ((_called(part), part) for part in (type(thing), *gc.get_referents(thing)))


def _held_by_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function's code names, and what it carries with it."""
    known, attributes, texts = names_in(function.__code__)
    if attributes & _BY_TEXT:  # what is asked for by text has its name in a text
        said = _words(texts)
        known, attributes = known | said, attributes | said
    held: list[tuple[str, Any]] = [(_called(text), text) for text in texts]
    held += [(name, sys.modules[_PACKAGE]) for name in attributes & _LEADS_ANYWHERE]
    held += [(name, module) for name, module in sys.modules.copy().items() if name in texts]
    for name in known:
        for scope in (function.__globals__, vars(builtins)):
            if name in scope:
                held.append((name, scope[name]))
                break
    held += [(_called(kind), kind) for kind in _AT_HAND]
    carried = [*gc.get_referents(*(function.__closure__ or ())), *(function.__defaults__ or ())]
    carried += [*(function.__kwdefaults__ or {}).values(), *vars(function).values()]
    held += [(_called(part), part) for part in carried]
    for _, space in held:  # it grows, since a module may lead to another
        if isinstance(space, ModuleType) and not _of_the_package(space):
            found = [(name, vars(space)[name]) for name in attributes & vars(space).keys()]
        elif _is_console(space):
            given = getattr(space, "__dict__", {})
            found = [(name, given[name]) for name in attributes & given.keys()]
        elif _is_namespace(space):
            found = [(name, space[name]) for name in (attributes | texts) & space.keys()]
        elif isinstance(space, type):  # of a library too: anybody can add a method to it
            found = [
                (name, vars(kind)[name]) for kind in space.__mro__ for name in attributes & vars(kind).keys()
            ]
        elif isinstance(space, CodeType):  # compiled before, for eval or exec
            compiled, more, said_there = names_in(space)
            attributes |= more
            names = function.__globals__
            found = [(name, names[name]) for name in compiled & names.keys()]
            found += [(_called(text), text) for text in said_there]
        else:
            continue
        held += [(name, part) for name, part in found if not any(part is other for _, other in held)]
    yield from held


def names_in(code: CodeType) -> tuple[set[str], set[str], set[str | bytes]]:
    """The global names that code uses, all its names, and its texts; those of functions inside it too."""
    known: set[str] = set()
    attributes = set(code.co_names)
    texts: set[str | bytes] = set()
    for step in dis.get_instructions(code):  # a docstring is a constant that no step loads
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            known.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            texts.add(step.argval)
        elif isinstance(step.argval, CodeType):
            inner = names_in(step.argval)
            known, attributes, texts = known | inner[0], attributes | inner[1], texts | inner[2]
        elif step.opname in ("LOAD_CONST", "RETURN_CONST"):
            parts = step.argval if isinstance(step.argval, tuple | frozenset) else (step.argval,)
            texts |= {part for part in parts if isinstance(part, str | bytes)}
    return known, attributes, texts


def _words(texts: Collection[str | bytes]) -> set[str]:
    """The words of texts, any of which may be a name."""
    return {word for text in texts if isinstance(text, str) for word in re.findall(r"\w+", text)}


def _is_console(thing: Any) -> bool:
    """Whether something is where a program's words go to, or come from."""
    return thing is not None and any(thing is stream for stream in (sys.stdin, sys.stdout, sys.stderr))


def _is_namespace(thing: Any) -> bool:
    """Whether something is the dictionary of a module's names, of which a function uses but a few."""
    return isinstance(thing, dict) and "__builtins__" in thing


def _in_a_library(name: Any, names: Mapping[str, Any] | None = None) -> bool:
    """Whether a module, given by its name and perhaps its names, belongs to Python or was installed."""
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or name == "__main__" or (names is not None and names is not vars(module)):
        return False
    origin = str(getattr(getattr(module, "__spec__", None), "origin", None) or "")
    return origin in ("built-in", "frozen") or origin.startswith(_STANDARD) or "-packages" in origin


def _called(thing: Any) -> str:
    """What something is called."""
    if isinstance(thing, str):
        return thing
    return thing.__name__ if isinstance(thing, FunctionType | type | ModuleType) else type(thing).__name__
