"""What every encoder has: a model asks for nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar

from torch import Tensor, nn

from vsecore.arguments import Shape
from vsecore.data.photographs import View
from vsecore.data.splits import FeatureKind
from vsecore.data.words import Tokenizer

Tokens = Annotated[Tensor, Shape("C* L", "whole numbers")]
"""Captions as numbers of words, (C, L)."""
WordMask = Annotated[Tensor, Shape("C* L", "mask")] | None
"""True where a word is real, (C, L); None: all are."""


class Encoder(nn.Module):
    """Turns pictures or captions into elements of the joint width D.

    It is called as `encoder(inputs, mask)` with a bool mask (B, N), True where an element is real (None: all
    are), and returns the elements (B, N, D) with their mask. Inputs of another shape are refused by a
    ValueError, and so is an option out of its range.
    """

    aligned: ClassVar[bool] = False
    """Whether its vectors can be compared, before any training, with those of the other encoder of the same
    weights."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone: nn.Module | None = None
        """The pretrained network, if there is one: its weights learn at a rate of their own."""

    def save_architecture(self, folder: Path) -> None:
        """Write what builds the encoder without its first weights, for those that are pretrained."""


class ImageEncoder(Encoder):
    """Turns pictures into elements: features (B, N, F), or pixels (B, 3, H, W)."""

    reads: ClassVar[FeatureKind | None] = None
    """What kind of features it reads, such as "pixels"; None: the kind that its name in the registry says.
    An encoder of photographs has a class method `sees` too, which takes some of its options and returns how
    they must be cut."""
    view: View | None = None
    """How a photograph is cut to what it sees; None: it reads features."""

    @property
    def is_linear(self) -> bool:
        """Whether each element is a linear projection of its features."""
        return False


class TextEncoder(Encoder):
    """Turns captions, as numbers of words (C, L), into elements."""

    pretrained_scale: float | None = None
    """What a tower that was trained with pictures multiplied its similarities by, for losses that go on from
    there: those whose constructors take an argument of this name."""
    pretrained_bias: float | None = None
    """And what it added to them."""

    tokenizer: ClassVar[Callable[..., Tokenizer]]
    """Class method that makes the tokenizer, of captions, which some count the words of, and of options."""

    @classmethod
    def load_tokenizer(cls, folder: Path) -> Tokenizer:
        """Load the tokenizer that a run's folder keeps."""
        raise NotImplementedError
