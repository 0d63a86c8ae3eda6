"""The word pieces of a caption tower that was trained together with a picture tower (CLIP, SigLIP)."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tokenizers
from pydantic import Field
from torch import Tensor

from vsecore.data import files
from vsecore.data.word_pieces import words_of_pieces
from vsecore.data.words import checked_sentences, padded

_Number = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class _Numbers:
    """What a tokenizer of this kind needs besides its pieces."""

    pad: _Number
    unknown: _Number
    longest: Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class _Saved:
    numbers: _Numbers
    pieces: dict[str, Any]


class TowerTokenizer:
    """The word pieces of a pretrained pair of towers, as its folder's `tokenizer.json` describes them.

    Args:
        folder: holds `tokenizer.json`, and `tokenizer_config.json`, which names the pieces for padding and
            for unknown words.
        longest: how many pieces the tower reads; a longer caption is cut, its mark of the end is kept.

    Raises:
        FileNotFoundError: the folder has no `tokenizer.json`.
        ValueError: the file is damaged, or gives a caption no pieces.
    """

    file_name = "tower_tokenizer.json"

    def __init__(self, folder: str | Path, longest: int) -> None:
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} has no tokenizer.json: get that file of the model too, and put it into the folder"
            )
        pieces = _parsed(path.read_text("utf-8"), path)
        ids = pieces.encode("a").ids
        if not ids:
            raise ValueError(f"{path} gives a caption no pieces: get the file again")
        named = Path(folder) / "tokenizer_config.json"
        config = files.read_json(named) if named.is_file() else {}
        pad, unknown = (_number_of(pieces, config.get(f"{name}_token")) for name in ("pad", "unk"))
        # Towers without a piece for padding are padded with the mark of the end.
        end = ids[-1]
        self._set_up(
            pieces, _Numbers(end if pad is None else pad, end if unknown is None else unknown, longest)
        )

    def _set_up(self, pieces: tokenizers.Tokenizer, numbers: _Numbers) -> None:
        pieces.no_padding()
        pieces.enable_truncation(numbers.longest)
        self._pieces, self._numbers = pieces, numbers
        self.pad, self.unknown, self.blank = numbers.pad, numbers.unknown, numbers.unknown
        marks = pieces.encode("").ids  # the start and the end of a caption
        self.special = frozenset({numbers.pad, *marks})

    def __len__(self) -> int:
        """Return the number of word pieces."""
        return max(self._pieces.get_vocab_size(), 1 + max(self._pieces.get_vocab().values()))

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Turn captions into numbers: the tower's marks and pieces, then padding to the longest.

        Args:
            captions: C sentences.

        Returns:
            Numbers (C, L) int64 and their mask (C, L) bool.

        Raises:
            ValueError: `captions` is empty or one string.
        """
        rows = [one.ids or [self.unknown] for one in self._pieces.encode_batch(checked_sentences(captions))]
        return padded(rows, self.pad)

    def words_of(self, caption: str) -> list[tuple[str, list[int]]]:
        """Return the words of a caption, each with the places of its pieces in `encode`'s row."""
        return words_of_pieces(caption, self._pieces.encode(caption), self.special)

    def save(self, folder: str | Path) -> None:
        """Write `tower_tokenizer.json` into a folder. It is complete: the model's own folder may go."""
        content = {"numbers": asdict(self._numbers), "pieces": json.loads(self._pieces.to_str())}
        with files.write_atomically(Path(folder) / self.file_name, "w") as file:
            json.dump(content, file, ensure_ascii=False)

    @classmethod
    def load(cls, folder: str | Path) -> "TowerTokenizer":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: the folder has no `tower_tokenizer.json`.
            ValueError: the file is not a saved tokenizer.
        """
        path = Path(folder) / cls.file_name
        saved: _Saved = files.read_json(path, _Saved)
        tokenizer = cls.__new__(cls)
        tokenizer._set_up(_parsed(json.dumps(saved.pieces), path), saved.numbers)
        return tokenizer


def _parsed(text: str, path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except BaseException as error:  # the library raises nothing narrower, and its Rust code may panic
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ValueError(f"{path} holds no tokenizer ({error}): get the file again") from None


def _number_of(pieces: tokenizers.Tokenizer, named: Any) -> int | None:
    """Return the number of a piece that a configuration names, as text or with its properties."""
    text = named.get("content") if isinstance(named, dict) else named
    return pieces.token_to_id(text) if isinstance(text, str) else None
