"""Parts by name: classes that a recipe can ask for, whose constructors alone say their options."""

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from vsecore.typed import convert, unknown


class Registry:
    """Classes of one kind by name.

    Args:
        kind: what error messages call the classes, such as "pool".
        entries: the classes by name; `register` adds to them.
        context: arguments that are known only when a model is built, such as "dim"; they are no options.
        methods: class methods whose arguments are options too, such as "tokenizer".
        base: the base class of all of them, with the attributes that others rely on.

    Example:
        >>> Registry("loss", {"triplet": Triplet}).build("triplet", {"margin": 0.1})
        Triplet(margin=0.1)
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, type[Any]],
        context: Collection[str] = (),
        methods: Collection[str] = (),
        base: type = object,
    ) -> None:
        self.kind = kind
        self._entries = dict(entries)
        self._context = frozenset(context)
        self._methods = tuple(methods)
        self._base = base

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            raise unknown(self.kind, name, self._entries)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def class_names(self) -> list[str]:
        """Return the names of the classes themselves, in order, for a package's `__all__`."""
        return sorted({entry.__name__ for entry in self._entries.values()})

    def register(self, name: str, entry: type[Any]) -> None:
        """Add a class of your own, so that recipes can name it."""
        if not inspect.isclass(entry) or not issubclass(entry, self._base):
            raise ValueError(f"{self.kind} {name!r} is {entry!r}: wanted a subclass of {self._base.__name__}")
        if self._entries.setdefault(name, entry) is not entry:
            raise ValueError(f"{self.kind} {name!r} is taken: choose another name")

    def read(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check options by the annotations of the class, and convert lists to tuples and the like."""
        known = self.options(name)
        for option in options:
            if option not in known:
                takes = ", ".join(known) or "no options"
                raise ValueError(f"{self.kind} {name!r} has no option {option!r}: it takes {takes}")
        for option, parameter in known.items():
            if parameter.default is inspect.Parameter.empty and option not in options:
                raise ValueError(f"{self.kind} {name!r} needs the option {option!r}")
        return {
            option: convert(f"option {option} of {self.kind} {name!r}", value, known[option].annotation)
            for option, value in options.items()
        }

    def build(self, name: str, options: Mapping[str, Any], **context: Any) -> Any:
        """Build a part from its options, and from what its constructor asks for of the context."""
        return _call(self[name], self.read(name, options), context)

    def call(self, name: str, method: str, options: Mapping[str, Any], **context: Any) -> Any:
        """Call a class method of a part with the options that the method takes."""
        typed = self.read(name, options)
        if not hasattr(self[name], method):
            raise ValueError(f"{self.kind} {name!r} has no class method {method!r}")
        return _call(getattr(self[name], method), typed, context)

    def takes(self, name: str, argument: str) -> bool:
        """Whether the constructor of a part has an argument of this name."""
        return argument in _parameters(self[name])

    def changed(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that differ from the class's defaults: they identify a part."""
        known, typed = self.options(name), self.read(name, options)
        return {option: value for option, value in typed.items() if known[option].default != value}

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """Return a part's options: its parameters besides the context, including those of its methods."""
        entry, found = self[name], dict[str, inspect.Parameter]()
        for taker in (entry, *(getattr(entry, method) for method in self._methods if hasattr(entry, method))):
            found |= {option: kind for option, kind in _parameters(taker).items() if option not in found}
        return {option: kind for option, kind in found.items() if option not in self._context}


@functools.cache
def _parameters(entry: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a class or function, their annotations as types rather than text.

    A class with many options, or with those of another class, names what has them in its attribute `Options`,
    and takes them by keyword.
    """
    plain = inspect.isclass(entry) and not is_dataclass(entry)
    hints = typing.get_type_hints(entry.__init__ if plain else entry, include_extras=True)
    own = {
        name: parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(entry).parameters.items()
        # nn.Module's own *args and **kwargs take nothing.
        if parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    }
    return own | (_parameters(entry.Options) if hasattr(entry, "Options") else {})


def _call(entry: Callable[..., Any], options: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    given = {**options, **context}
    return entry(**{name: given[name] for name in _parameters(entry) if name in given})


def names_read(part: Any) -> tuple[str, ...]:
    """Return what a `Loss` or a `Similarity` reads of an `Embedding`: one name, or several."""
    return (part.reads,) if isinstance(part.reads, str) else tuple(part.reads)
