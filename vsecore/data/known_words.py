"""How much of what captions say a tokenizer knows, told before hours of training are spent on the rest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vsecore.data.splits import Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import Tokenizer, tokenize
from vsecore.typed import counted

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


def warnings_of(known: Mapping[str, Known]) -> Iterator[str]:
    """Yield a warning for each split of which much is unknown, or captions as a whole."""
    for name, one in known.items():
        if one.share > MANY or one.blank:
            blank = f"; without a known word: {counted(one.blank, 'caption')}" if one.blank else ""
            remedy = f": {REMEDY}" if one.share > MANY else ""
            share = f"{100 * one.share:.1f} % of its words are unknown ({one.unknown} of {one.words})"
            yield f"{name}: {share}{blank}{remedy}"


def look_at_words(splits: Mapping[str, Split]) -> tuple[list[str], list[str]]:
    """Say in facts and warnings what a vocabulary of the training split would know of each split."""
    warnings: list[str] = []
    spoken: dict[str, list[str]] = {}
    for name, split in splits.items():
        spoken[name] = [caption for caption in split.captions if tokenize(caption)]
        silent = [
            f"{caption} of {split.picture_ids[owner]}"
            for caption, owner in zip(split.captions, split.owner, strict=True)
            if not tokenize(caption)
        ]
        if silent:
            warnings.append(
                f"{name}: {counted(silent, 'caption')} without a word: all of them become the same vector; "
                "write what they show or leave them out"
            )
    try:
        vocabulary = Vocabulary.build(spoken.get("train", []))
    except ValueError as error:
        return [], [*warnings, f"train: {error}: a recipe that counts words cannot be trained"]
    known = {name: Known.of(vocabulary, own) for name, own in spoken.items() if name != "train" and own}
    facts = [f"{name}: {100 * one.share:.1f} % of its words are unknown" for name, one in known.items()]
    return facts, [*warnings, *warnings_of(known)]
