"""The registry: options are held to the signature of the class that takes them."""

from typing import Literal

import pytest
from torch import nn

from vsecore.registry import Registry


class Sieve(nn.Module):
    """A part with weights: its width is known only when a model is built."""

    def __init__(self, dim: int, holes: int, shape: Literal["round", "square"] = "round", size: float = 0.5):
        super().__init__()
        self.dim, self.holes, self.shape, self.size = dim, holes, shape, size

    @classmethod
    def grind(cls, flour: str, fineness: int = 3, size: float = 0.5) -> str:
        """A method with an option of its own, and one that it shares with the constructor."""
        return f"{flour} ground {fineness} times to {size}"


class Bowl(nn.Module):
    """A part without a constructor, as the simplest modules are."""


def registry():
    return Registry("tool", {"sieve": Sieve, "bowl": Bowl}, context=("dim", "flour"), methods=("grind",))


def test_builds_from_options_and_what_the_class_wants_of_the_context():
    sieve = registry().build("sieve", {"holes": 9, "size": 1}, dim=4, flour="rye")
    assert (sieve.dim, sieve.holes, sieve.shape, sieve.size) == (4, 9, "round", 1)
    assert isinstance(registry().build("bowl", {}, dim=4), Bowl)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fork", {}, "tool 'fork' is unknown: there are bowl, sieve"),
        ("sieve", {}, "tool 'sieve' needs the option 'holes'"),
        ("sieve", {"holes": 9, "dim": 4}, "no option 'dim': it takes holes, shape, size, fineness"),
        ("bowl", {"holes": 9}, "tool 'bowl' has no option 'holes': it takes no options"),
        ("sieve", {"holes": "9"}, "option holes of tool 'sieve' is '9': wanted a valid integer"),
        ("sieve", {"holes": True}, "option holes of tool 'sieve' is True: wanted a valid integer"),
        ("sieve", {"holes": 9, "shape": "oval"}, "option shape .* 'oval': wanted 'round' or 'square'"),
    ],
)
def test_refuses_what_the_class_does_not_take(name, options, message):
    for use in (
        lambda: registry().read(name, options),
        lambda: registry().build(name, options, dim=4),
        lambda: registry().call(name, "grind", options, flour="rye"),
    ):
        with pytest.raises(ValueError, match=message):
            use()


def test_a_name_stays_with_its_class():
    tools = registry()
    tools.register("fork", nn.Identity)
    tools.register("fork", nn.Identity)
    assert isinstance(tools.build("fork", {}), nn.Identity)
    assert "fork" not in registry(), "another registry has its own names"
    with pytest.raises(ValueError, match="tool 'bowl' is taken: choose another name"):
        tools.register("bowl", Sieve)
    assert tools["bowl"] is Bowl
