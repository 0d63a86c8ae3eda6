"""The word pieces that pretrained language models and pairs of towers (CLIP, SigLIP) read."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import tokenizers

from vsecore.arguments import Whole
from vsecore.data import files
from vsecore.data.language_models import model_folder
from vsecore.data.words import Tokenizer


@dataclass(frozen=True)
class _Saved:
    """What a tokenizer's file holds: the numbers that a model gives to some pieces, and the pieces."""

    numbers: dict[str, Whole]
    pieces: dict[str, Any]


class PieceTokenizer(Tokenizer):
    """Word pieces as the library `tokenizers` reads them. A subclass names the file that it is saved in."""

    file_name: ClassVar[str]

    def _set_up(self, pieces: tokenizers.Tokenizer, numbers: dict[str, int]) -> None:
        """Take pieces and the numbers of some, from a model or from a file."""
        self._saved = {"numbers": numbers, "pieces": json.loads(pieces.to_str())}
        pieces.no_padding()  # `encode` pads
        self._pieces, self.pad = pieces, numbers["pad"]
        self.unknown = numbers["unk" if "unk" in numbers else "unknown"]
        self.blank = numbers.get("mask", self.unknown)
        self.special = frozenset({self.pad, *pieces.encode("").ids})  # and the marks around a caption

    def __len__(self) -> int:
        return max(self._pieces.get_vocab_size(), 1 + max(self._pieces.get_vocab().values()))

    def numbers_of(self, captions: list[str]) -> list[list[int]]:
        return [row.ids or [self.unknown] for row in self._pieces.encode_batch(captions)]

    def is_cut(self, caption: str) -> bool:
        return bool(self._pieces.encode(caption).overflowing)

    def words_of(self, caption: str) -> list[tuple[str, list[int]]]:
        """Return the words of a caption, which run from one space or punctuation mark to the next."""
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
        files.write_json(Path(folder) / self.file_name, self._saved, ensure_ascii=False)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote."""
        path = Path(folder) / cls.file_name
        saved: _Saved = files.read_json(path, _Saved)
        tokenizer = cls.__new__(cls)
        with _readable(path):
            tokenizer._set_up(tokenizers.Tokenizer.from_str(json.dumps(saved.pieces)), saved.numbers)
        return tokenizer


@contextlib.contextmanager
def _readable(source: Path) -> Iterator[None]:
    """Turn whatever the library raises for damaged pieces into a ValueError; its Rust code may even panic."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())[:500]
        raise ValueError(f"{source} holds no tokenizer that can be read ({reason}): get it again") from error


class BERTTokenizer(PieceTokenizer):
    """The word pieces of a BERT, by the model's name or folder (see `language_models.model_folder`)."""

    file_name = "bert_tokenizer.json"

    def __init__(self, name_or_path: str | Path) -> None:
        from transformers import AutoTokenizer  # takes seconds, and only BERT needs it

        folder = model_folder(name_or_path)
        with _readable(folder):
            loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            pieces, names = loaded.backend_tokenizer, ("pad", "unk", "mask", "cls", "sep")
            numbers = {name: getattr(loaded, f"{name}_token_id") for name in names}
            pieces.enable_padding(pad_id=numbers["pad"], pad_token=loaded.pad_token)
            pieces.enable_truncation(min(loaded.model_max_length, 512))
            read = pieces.encode("a").ids
            if None in numbers.values() or [read[0], read[-1]] != [numbers["cls"], numbers["sep"]]:
                raise ValueError(f"its marks are {numbers}, and BERT's stand around each caption")
            self._set_up(pieces, numbers)


class TowerTokenizer(PieceTokenizer):
    """The word pieces of a pretrained pair of towers, as its folder's `tokenizer.json` describes them.

    `tokenizer_config.json` names the pieces for padding and for unknown words. A caption of more pieces than
    `longest` is cut, and keeps its mark of the end.
    """

    file_name = "tower_tokenizer.json"

    def __init__(self, folder: str | Path, longest: int) -> None:
        path, config = Path(folder) / "tokenizer.json", Path(folder) / "tokenizer_config.json"
        if not path.is_file():
            raise FileNotFoundError(f"{folder} has no tokenizer.json: get that file of the model too")
        named = files.read_json(config) if config.is_file() else {}
        with _readable(path):
            pieces = tokenizers.Tokenizer.from_str(path.read_text("utf-8"))
            end = pieces.encode("a").ids[-1:]
            if not end:
                raise ValueError("it gives a caption no pieces")
            # Towers without a piece for padding are padded with the mark of the end.
            numbers = {"pad": end[0], "unknown": end[0], "longest": longest}
            for name, key in (("pad", "pad_token"), ("unknown", "unk_token")):
                token = named.get(key)  # text, or a mapping that holds it as its content
                text = token.get("content") if isinstance(token, dict) else token
                if isinstance(text, str) and (number := pieces.token_to_id(text)) is not None:
                    numbers[name] = number
            pieces.no_padding()
            pieces.enable_truncation(longest)
            self._set_up(pieces, numbers)
