"""The word pieces that a BERT was trained on."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tokenizers
import torch
from pydantic import Field
from torch import Tensor

from vsecore.data import files
from vsecore.data.language_models import model_folder
from vsecore.data.words import checked_sentences

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


def words_of_pieces(
    caption: str, read: tokenizers.Encoding, special: frozenset[int]
) -> list[tuple[str, list[int]]]:
    """Return the words of a caption in lower case, each with the places of its pieces; no punctuation.

    Args:
        caption: the sentence.
        read: its pieces.
        special: numbers of pieces that belong to no word.
    """
    places: dict[int, list[int]] = {}
    for place, (number, word) in enumerate(zip(read.ids, read.word_ids, strict=True)):
        if word is not None and number not in special:
            places.setdefault(word, []).append(place)
    words = [
        (caption[read.offsets[pieces[0]][0] : read.offsets[pieces[-1]][1]].strip().lower(), pieces)
        for pieces in places.values()
    ]
    return [(word, pieces) for word, pieces in words if any(letter.isalnum() for letter in word)]


class BERTTokenizer:
    """The word pieces of a BERT, by the model's name or folder (see `language_models.model_folder`).

    Args:
        name_or_path: a model of the hub, or a folder that holds its `tokenizer.json`.

    Raises:
        FileNotFoundError: the model is not here and cannot be downloaded.
        ValueError: the model's tokenizer lacks padding or a mask, or is not a fast one.
    """

    file_name = "bert_tokenizer.json"

    def __init__(self, name_or_path: str | Path) -> None:
        folder = model_folder(name_or_path)
        try:
            pieces, special = _read_pieces(folder)
        except Exception as error:  # of any kind: the library trusts whatever the folder's files say
            reason = " ".join(str(error).split())[:500]
            raise ValueError(f"{folder} holds no fast tokenizer of BERT's kind ({reason})") from error
        self._set_up(pieces, special)

    def _set_up(self, pieces: tokenizers.Tokenizer, numbers: _Special) -> None:
        self._pieces, self._numbers = pieces, numbers
        self.pad, self.unknown, self.blank = numbers.pad, numbers.unk, numbers.mask
        self.special = frozenset({numbers.pad, numbers.cls, numbers.sep})

    def __len__(self) -> int:
        """Return the number of word pieces."""
        return self._pieces.get_vocab_size()

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Turn captions into numbers: [CLS], the pieces, [SEP], then padding to the longest.

        Args:
            captions: C sentences.

        Returns:
            Numbers (C, L) int64 and their mask (C, L) bool.

        Raises:
            ValueError: `captions` is empty or one string.
        """
        rows = self._pieces.encode_batch(checked_sentences(captions))
        return torch.tensor([row.ids for row in rows]), torch.tensor(
            [row.attention_mask for row in rows]
        ).bool()

    def words_of(self, caption: str) -> list[tuple[str, list[int]]]:
        """Return the words of a caption in lower case, each with the places of its pieces in `encode`'s row.

        A word runs from one space or punctuation mark to the next, and punctuation is left out.
        """
        return words_of_pieces(caption, self._pieces.encode(caption), self.special)

    def save(self, folder: str | Path) -> None:
        """Write `bert_tokenizer.json` into a folder. It is complete: the model's own folder may go."""
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


def _read_pieces(folder: Path) -> tuple[tokenizers.Tokenizer, _Special]:
    """Load a model's tokenizer, and the numbers of its special pieces."""
    from transformers import AutoTokenizer  # takes seconds, and only BERT needs it

    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    special = {name: getattr(loaded, f"{name}_token_id") for name in ("pad", "unk", "mask", "cls", "sep")}
    lacking = [name for name, number in special.items() if number is None]
    if lacking or not loaded.is_fast:
        raise ValueError(f"it lacks {lacking}")
    pieces = loaded.backend_tokenizer
    pieces.enable_padding(pad_id=special["pad"], pad_token=loaded.pad_token)
    pieces.enable_truncation(min(loaded.model_max_length, 512))
    return pieces, _Special(**special)


def _wrong_with(pieces: tokenizers.Tokenizer, numbers: _Special) -> str:
    """Say what keeps a tokenizer from reading captions as BERT's does; "" if nothing."""
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
