"""The word pieces that a pretrained language model reads."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import tokenizers
import torch
from pydantic import Field
from torch import Tensor

from vsecore.data import files
from vsecore.data.language_models import model_folder
from vsecore.data.words import checked_sentences, padded
from vsecore.typed import from_json, short

Number = Annotated[int, Field(ge=0)]


class PieceTokenizer:
    """Word pieces as the library `tokenizers` reads them, with the numbers that a model gives to some.

    A subclass names the file that it is saved in and the numbers it needs.
    """

    file_name: ClassVar[str]
    numbers_kind: ClassVar[Any]
    """A dataclass: the numbers that are saved beside the pieces."""

    pad: int
    unknown: int
    blank: int
    special: frozenset[int]

    def _set_up(self, pieces: tokenizers.Tokenizer, numbers: Any) -> None:
        """Take pieces and numbers, from a model or from a file.

        Raises:
            ValueError: they do not belong to such a model.
        """
        self._pieces, self._numbers = pieces, numbers

    def __len__(self) -> int:
        """Return the number of word pieces."""
        return max(self._pieces.get_vocab_size(), 1 + max(self._pieces.get_vocab().values()))

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Turn captions into numbers: the model's marks and the pieces, then padding to the longest.

        Args:
            captions: C sentences.

        Returns:
            Numbers (C, L) int64 and their mask (C, L) bool.

        Raises:
            ValueError: `captions` is empty or one string.
        """
        rows = self._pieces.encode_batch(checked_sentences(captions))
        return padded([row.ids or [self.unknown] for row in rows], self.pad)

    def words_of(self, caption: str) -> list[tuple[str, list[int]]]:
        """Return the words of a caption in lower case, each with the places of its pieces in `encode`'s row.

        A word runs from one space or punctuation mark to the next, and punctuation is left out.
        """
        read, places = self._pieces.encode(caption), dict[int, list[int]]()
        for place, (number, word) in enumerate(zip(read.ids, read.word_ids, strict=True)):
            if word is not None and number not in self.special:
                places.setdefault(word, []).append(place)
        words = [
            (caption[read.offsets[pieces[0]][0] : read.offsets[pieces[-1]][1]].strip().lower(), pieces)
            for pieces in places.values()
        ]
        return [(word, pieces) for word, pieces in words if any(letter.isalnum() for letter in word)]

    def save(self, folder: str | Path) -> None:
        """Write one file into a folder. It is complete: the model's own folder may go."""
        content = {"numbers": asdict(self._numbers), "pieces": json.loads(self._pieces.to_str())}
        with files.write_atomically(Path(folder) / self.file_name, "w") as file:
            json.dump(content, file, ensure_ascii=False)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: the folder has no such file.
            ValueError: the file is not a saved tokenizer.
        """
        path = Path(folder) / cls.file_name
        saved = files.read_json(path)
        if set(saved) != {"numbers", "pieces"}:
            raise ValueError(f"{path} has fields {short(list(saved))}: wanted numbers and pieces")
        numbers = from_json(f"{path}: numbers", json.dumps(saved["numbers"]), cls.numbers_kind)
        tokenizer = cls.__new__(cls)
        with readable_pieces(path):
            tokenizer._set_up(tokenizers.Tokenizer.from_str(json.dumps(saved["pieces"])), numbers)
        return tokenizer


@contextlib.contextmanager
def readable_pieces(source: Path) -> Iterator[None]:
    """Turn whatever the library raises for damaged pieces into one sentence; its Rust code may even panic.

    Raises:
        ValueError: the block failed.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:500]
        raise ValueError(f"{source} holds no tokenizer that can be read ({reason}): get it again") from error


@dataclass(frozen=True)
class _Special:
    """The numbers of the pieces that are not words, under BERT's names for them."""

    pad: Number
    unk: Number
    mask: Number
    cls: Number
    sep: Number


class BERTTokenizer(PieceTokenizer):
    """The word pieces of a BERT, by the model's name or folder (see `language_models.model_folder`).

    Args:
        name_or_path: a model of the hub, or a folder that holds its `tokenizer.json`.

    Raises:
        FileNotFoundError: the model is not here and cannot be downloaded.
        ValueError: the model's tokenizer lacks padding or a mask, or is not a fast one.
    """

    file_name = "bert_tokenizer.json"
    numbers_kind = _Special

    def __init__(self, name_or_path: str | Path) -> None:
        from transformers import AutoTokenizer  # takes seconds, and only BERT needs it

        folder = model_folder(name_or_path)
        with readable_pieces(folder):
            loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            special = {
                name: getattr(loaded, f"{name}_token_id") for name in ("pad", "unk", "mask", "cls", "sep")
            }
            lacking = [name for name, number in special.items() if number is None]
            if lacking or not loaded.is_fast:
                raise ValueError(f"it is no fast one of BERT's kind, or lacks {lacking}")
            loaded.backend_tokenizer.enable_padding(pad_id=special["pad"], pad_token=loaded.pad_token)
            loaded.backend_tokenizer.enable_truncation(min(loaded.model_max_length, 512))
            self._set_up(loaded.backend_tokenizer, _Special(**special))

    def _set_up(self, pieces: tokenizers.Tokenizer, numbers: _Special) -> None:
        super()._set_up(pieces, numbers)
        if max([*pieces.get_vocab().values(), *asdict(numbers).values()]) >= pieces.get_vocab_size():
            raise ValueError("a piece has a number that is too large")
        if not pieces.padding or pieces.padding["pad_id"] != numbers.pad or not pieces.truncation:
            raise ValueError("it does not pad and cut captions")
        read = pieces.encode("a").ids
        if read[:1] + read[-1:] != [numbers.cls, numbers.sep]:
            raise ValueError("it does not put captions between [CLS] and [SEP]")
        self.pad, self.unknown, self.blank = numbers.pad, numbers.unk, numbers.mask
        self.special = frozenset({numbers.pad, numbers.cls, numbers.sep})

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Turn captions into numbers: see `PieceTokenizer.encode`; these pieces come padded."""
        rows = self._pieces.encode_batch(checked_sentences(captions))
        numbers = torch.tensor([row.ids for row in rows])
        return numbers, torch.tensor([row.attention_mask for row in rows]).bool()
