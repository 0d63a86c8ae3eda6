"""The word pieces of a caption tower that was trained together with a picture tower (CLIP, SigLIP)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tokenizers
from pydantic import Field

from vsecore.data import files
from vsecore.data.word_pieces import Number, PieceTokenizer, readable_pieces


@dataclass(frozen=True)
class _Numbers:
    """What a tokenizer of this kind needs besides its pieces."""

    pad: Number
    unknown: Number
    longest: Annotated[int, Field(ge=1)]


class TowerTokenizer(PieceTokenizer):
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
    numbers_kind = _Numbers

    def __init__(self, folder: str | Path, longest: int) -> None:
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} has no tokenizer.json: get that file of the model too, and put it into the folder"
            )
        named = Path(folder) / "tokenizer_config.json"
        config = files.read_json(named) if named.is_file() else {}
        with readable_pieces(path):
            pieces = tokenizers.Tokenizer.from_str(path.read_text("utf-8"))
            end = pieces.encode("a").ids[-1:]
            if not end:
                raise ValueError("it gives a caption no pieces")
            # Towers without a piece for padding are padded with the mark of the end.
            pad, unknown = (
                _number_of(pieces, config.get(f"{name}_token"), end[0]) for name in ("pad", "unk")
            )
            self._set_up(pieces, _Numbers(pad, unknown, longest))

    def _set_up(self, pieces: tokenizers.Tokenizer, numbers: _Numbers) -> None:
        super()._set_up(pieces, numbers)
        pieces.no_padding()
        pieces.enable_truncation(numbers.longest)
        self.pad, self.unknown, self.blank = numbers.pad, numbers.unknown, numbers.unknown
        self.special = frozenset({numbers.pad, *pieces.encode("").ids})  # and the marks around a caption


def _number_of(pieces: tokenizers.Tokenizer, named: Any, otherwise: int) -> int:
    """Return the number of a piece that a configuration names, as text or with its properties."""
    text = named.get("content") if isinstance(named, dict) else named
    number = pieces.token_to_id(text) if isinstance(text, str) else None
    return otherwise if number is None else number
