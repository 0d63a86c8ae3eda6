"""How much of what captions say a tokenizer knows, told before hours of training are spent on the rest."""

from collections.abc import Mapping, Sequence

from vsecore.data.splits import Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import Tokenizer, tokenize
from vsecore.typed import counted

MANY = 0.1
"""The share of unknown words above which there is a warning."""
REMEDY = "give train more captions, or take a recipe that reads pieces of words (BERT, CLIP, SigLIP)"


def words_report(tokenizer: Tokenizer, captions: Mapping[str, Sequence[str]]) -> tuple[list[str], list[str]]:
    """Return how many words of each split a tokenizer does not know, and warnings where that hurts."""
    told, warnings = list[str](), list[str]()
    for name, sentences in captions.items():
        rows = [
            [number for number in row if number not in tokenizer.special]
            for row in tokenizer.numbers_of(list(sentences))
        ]
        unknown = [row.count(tokenizer.unknown) for row in rows]
        blank = [s for s, row, count in zip(sentences, rows, unknown, strict=True) if count == len(row)]
        count, words = sum(unknown), sum(map(len, rows))
        told.append(f"{name}: {100 * count / max(1, words):.1f} % of its words are unknown")
        if (many := count > MANY * words) or blank:
            silent = f"; without a known word: {counted(blank, 'caption')}" if blank else ""
            warnings.append(f"{told[-1]} ({count} of {words}){silent}{f': {REMEDY}' if many else ''}")
    return told, warnings


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
    told, more = words_report(vocabulary, {n: own for n, own in spoken.items() if n != "train" and own})
    return told, [*warnings, *more]
