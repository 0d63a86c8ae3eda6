"""How much of what captions say a tokenizer knows, told before hours of training are spent on the rest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import Tokenizer, tokenize
from vsecore.typed import counted

if TYPE_CHECKING:
    from vsecore.data.karpathy import CaptionSplit
    from vsecore.data.splits import Split

MANY = 0.1
"""The share of unknown words above which there is a warning."""
REMEDY = "give train more captions, or take a recipe that reads pieces of words (BERT, CLIP, SigLIP)"


@dataclass(frozen=True)
class Known:
    """What a tokenizer knows of some captions."""

    words: int
    unknown: int
    """How many of the words are unknown."""
    blank: list[str]
    """Captions without a known word: all of them become the same vector."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, captions: Sequence[str]) -> "Known":
        """Count the words of captions."""
        rows = [
            [number for number in row if number not in tokenizer.special]
            for row in tokenizer.numbers_of(list(captions))
        ]
        counts = [row.count(tokenizer.unknown) for row in rows]
        blank = [c for c, row, count in zip(captions, rows, counts, strict=True) if count == len(row)]
        return cls(sum(map(len, rows)), sum(counts), blank)

    @property
    def share(self) -> float:
        """The share of the words that are unknown."""
        return self.unknown / max(1, self.words)

    def sentence(self, name: str) -> str:
        """Say it of a split, in one sentence."""
        said = f"{name}: {100 * self.share:.1f} % of its words are unknown ({self.unknown} of {self.words})"
        return said + (f"; without a known word: {counted(self.blank, 'caption')}" if self.blank else "")


def warnings_of(known: Mapping[str, Known]) -> Iterator[str]:
    """Yield a warning for each split of which much is unknown, or captions as a whole."""
    for name, one in known.items():
        if one.share > MANY:
            yield f"{one.sentence(name)}: {REMEDY}"
        elif one.blank:
            yield one.sentence(name)


def look_at_words(splits: "Mapping[str, CaptionSplit | Split]") -> tuple[list[str], list[str]]:
    """Say what a vocabulary of the training split, as recipes build it, would know of each split.

    Returns:
        Facts and warnings, a sentence each.
    """
    facts: list[str] = []
    warnings: list[str] = []
    spoken: dict[str, list[str]] = {}
    for name, split in splits.items():
        has_words = [bool(tokenize(caption)) for caption in split.captions]
        spoken[name] = [caption for caption, has in zip(split.captions, has_words, strict=True) if has]
        silent = [
            f"{caption} of {split.picture_ids[owner]}"
            for caption, owner, has in zip(split.captions, split.owner, has_words, strict=True)
            if not has
        ]
        if silent:
            warnings.append(
                f"{name}: {counted(silent, 'caption')} without a word: all of them become the same vector; "
                "write what they show or leave them out"
            )
    try:
        vocabulary = Vocabulary.build(spoken["train"])
    except ValueError as error:
        warnings.append(f"train: {error}: a recipe that counts words cannot be trained")
        return facts, warnings
    known = {name: Known.of(vocabulary, own) for name, own in spoken.items() if name != "train" and own}
    facts += [f"{name}: {100 * one.share:.1f} % of its words are unknown" for name, one in known.items()]
    return facts, warnings + list(warnings_of(known))
