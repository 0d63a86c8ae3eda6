"""The words that a model knows, counted in the training split."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from vsecore.data import files
from vsecore.data.words import Tokenizer, checked_sentences, tokenize


class Vocabulary(Tokenizer):
    """The words that a model knows, each with its number.

    Numbers 0 to 3 are padding, start, end and the unknown word; then the words, the most frequent first.
    """

    pad, start, end, unknown = range(4)
    blank = unknown
    special = frozenset({pad, start, end})
    file_name = "vocabulary.json"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.numbers = {word: number for number, word in enumerate(self.words, start=4)}
        if not self.words or len(self.numbers) < len(self.words):
            twice = [word for word, count in Counter(self.words).items() if count > 1]
            raise ValueError(f"words is {len(self.words)} words, twice {twice[:3]}: wanted some, each once")

    @classmethod
    def build(cls, captions: Iterable[str], minimum_count: int = 4) -> "Vocabulary":
        """Count the words of captions and keep the frequent ones.

        Pass only the training split: the words of the test split must stay unknown.

        Args:
            captions: sentences.
            minimum_count: how often a word must occur to be kept; the others become the unknown word.

        Source: the threshold of 4 is that of Faghri et al. 2018 (VSE++).
        """
        counts = Counter(word for caption in checked_sentences(captions) for word in tokenize(caption))
        kept = [word for word, count in counts.items() if count >= minimum_count]
        if not kept:
            raise ValueError(f"minimum_count is {minimum_count}: no word of the captions occurs so often")
        # Ties in alphabetical order, so that the order of the captions does not change a model.
        return cls(sorted(kept, key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(self.words) + 4

    def numbers_of(self, captions: list[str]) -> list[list[int]]:
        return [
            [self.start, *(self.numbers.get(word, self.unknown) for word in tokenize(caption)), self.end]
            for caption in captions
        ]

    def words_of(self, caption: str) -> list[tuple[str, list[int]]]:
        return [(word, [place]) for place, word in enumerate(tokenize(caption), start=1)]

    def save(self, folder: str | Path) -> None:
        """Write `vocabulary.json` into a folder."""
        files.write_json(Path(folder) / self.file_name, {"words": self.words}, ensure_ascii=False, indent=0)

    @classmethod
    def load(cls, folder: str | Path) -> "Vocabulary":
        """Read what `save` wrote."""
        path = Path(folder) / cls.file_name
        saved = files.read_json(path, dict[str, list[str]])
        try:
            return cls(saved.get("words", []))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
