"""However an input is damaged, a command does its work, or says in one sentence what is wrong.

One damage of each sort is tried on files that people hand to `vse`. Formats with a table of damages of their
own (features, bottom-up attention's, word vectors, weights) are not among them.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import os
import shutil
import signal
import sys
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from towers import make_towers
from vsecore import cli, records
from vsecore.data.collections import unpack
from vsecore.data.feature_folder import FeatureRows
from vsecore.recipes import get

SECONDS = 20
"""Whatever takes longer than this on these small files counts as hanging."""
SHORT = ["--set", "dim=8", "--set", "training.epochs=1", "--set", "training.batch_size=4"]
SMALL = [*SHORT, "--set", "text.encoder.word_dim=4", "--set", "text.encoder.minimum_count=1"]


class Defect(AssertionError):
    """Damage that was not reported in one sentence."""


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    works: bool
    out: str
    err: str


def vse(*arguments: Any) -> Said:
    """Run a command in this process; it must not hang, show a traceback or refuse without a sentence."""
    with mock.patch.object(sys, "argv", ["vse", *map(str, arguments)]):
        return watched(cli.main)


def library(work: Callable[[], Any]) -> Said:
    """Call the package where `vse` has no command for it; the errors of a user's mistake are its refusals."""

    def told() -> None:
        try:
            work()
        except (ValueError, OSError) as error:
            print(f"vse: {error}", file=sys.stderr)
            sys.exit(2)

    return watched(told)


def watched(work: Callable[[], None]) -> Said:
    out, err, status = io.StringIO(), io.StringIO(), None
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        in_time(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", RuntimeWarning)  # numbers that went wrong without a word
        try:
            work()
        except SystemExit as stopped:
            status = stopped.code
        except BaseException:
            raise Defect(f"a traceback:\n{traceback.format_exc(limit=-6)}") from None
    lines = [line for line in err.getvalue().splitlines() if line.strip()]
    if status and not any(line.startswith(("vse: ", "problem: ")) or "Usage" in line for line in lines):
        raise Defect(f"refused without a sentence: {err.getvalue()[-2000:]!r}")
    if "Traceback" in err.getvalue() or max(map(len, lines), default=0) > 2_000:
        raise Defect(f"more than a sentence: {err.getvalue()[-2000:]!r}")
    return Said(not status, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise Defect("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- Damages


def put(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def flipped(content: bytes) -> bytes:
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def in_json(path: Path, change: Callable[[Any, Any], None]) -> None:
    """Change the last value of a JSON file, however deep it stands."""
    content = json.loads(path.read_text("utf-8"))
    holder, key = {"": content}, ""
    while isinstance(holder[key], dict | list) and holder[key]:
        holder = holder[key]
        key = list(holder)[-1] if isinstance(holder, dict) else len(holder) - 1
    change(holder, key)
    path.write_text(json.dumps(content), "utf-8")


def in_lines(path: Path, change: Callable[[list[bytes]], object]) -> None:
    lines = path.read_bytes().split(b"\n")
    change(lines)
    path.write_bytes(b"\n".join(lines))


def in_array(path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    np.save(path, change(np.load(path)), allow_pickle=True)


def in_tensors(path: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    safe = path.suffix == ".safetensors"
    tensors = load_file(path) if safe else torch.load(path, weights_only=True)
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    (save_file if safe else torch.save)(tensors | {name: change(tensors[name])}, path)


Damage = Callable[[Path], object]
ANY: dict[str, Damage] = {
    "cut": lambda path: put(path, lambda content: content[: len(content) // 2]),
    "flipped": lambda path: put(path, flipped),
    "a web page": lambda path: path.write_bytes(b"<!DOCTYPE html><html><body>404 Not Found</body></html>"),
    "missing": lambda path: path.unlink(),
    "a pipe": lambda path: replaced(path, os.mkfifo),
    "a folder": lambda path: replaced(path, Path.mkdir),
}
JSON: dict[str, Damage] = {
    "a field less": lambda path: in_json(path, lambda holder, key: holder.pop(key)),
    "nothing": lambda path: in_json(path, lambda holder, key: holder.__setitem__(key, None)),
    "outside": lambda path: in_json(path, lambda holder, key: holder.__setitem__(key, "../../outside")),
    "huge": lambda path: in_json(path, lambda holder, key: holder.__setitem__(key, 2**70)),
}
LINES: dict[str, Damage] = {
    "a line less": lambda path: in_lines(path, lambda lines: lines.pop(1)),
    "a line twice": lambda path: in_lines(path, lambda lines: lines.insert(1, lines[1])),
    "Latin-1": lambda path: in_lines(path, lambda lines: lines.insert(1, b"\xe4")),
    "blank": lambda path: in_lines(path, lambda lines: lines.__setitem__(1, b" ")),
    "long": lambda path: in_lines(path, lambda lines: lines.__setitem__(1, lines[1] * 10_000)),
}
ARRAYS: dict[str, Damage] = {
    "a row less": lambda path: in_array(path, lambda array: array[:-1]),
    "other numbers": lambda path: in_array(path, lambda array: array.astype(np.complex64)),
    "objects": lambda path: in_array(path, lambda array: array.astype(object)),
    "flat": lambda path: in_array(path, lambda array: array.reshape(len(array), -1)),
    "NaN": lambda path: in_array(path, lambda array: np.full(array.shape, np.nan, np.float32)),
}
TENSORS: dict[str, Damage] = {
    "NaN tensor": lambda path: in_tensors(path, lambda tensor: tensor * torch.nan),
    "another shape": lambda path: in_tensors(path, lambda tensor: torch.ones(2, 3, 5)),
    "another type": lambda path: in_tensors(path, lambda tensor: tensor.bool()),
}
BY_FORMAT = {".json": JSON, ".txt": LINES, ".tsv": LINES, ".csv": LINES, ".yaml": LINES, ".npy": ARRAYS}
BY_FORMAT |= {".safetensors": TENSORS, ".pth": TENSORS}


# ---- What people hand to `vse`: how a whole one is made, and what must hold when a file of it is damaged


def _refuse_left_overs(folder: Path) -> None:
    """A command that refuses leaves nothing half written behind."""
    if left := [path.name for path in folder.rglob("*.part") if "_ims.npy" not in path.name]:
        raise Defect(f"{left} left behind")


def _agreed(check: Said, use: Said, what: str) -> bool:
    """`vse data check` says "ready" exactly when the next command does its work."""
    if check.works != use.works:
        words = "ready" if check.works else check.err
        raise Defect(f"check says {words!r}, but {what} says {use.err or use.out}")
    return use.works


def _make_pictures(folder: Path, train: int = 6) -> list[tuple[str, str, list[str]]]:
    """Pictures; returns their names, splits and captions."""
    dice, made = np.random.default_rng(0), []
    for split, count in (("train", train), ("val", 2), ("test", 2)):
        for number in range(count):
            name = f"{split}{number}.jpg"
            pixels = dice.integers(0, 256, (6, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((80, 60)).save(folder / name)
            made.append((name, split, [f"Caption {c} of the {split} picture {number} ." for c in range(5)]))
    return made


def make_album(folder: Path, pictures: int = 10) -> None:
    """Karpathy's format, with the fields that COCO's file has."""
    (folder / "images").mkdir()
    images = [
        {
            "filename": name,
            "filepath": "images",
            "split": split,
            "cocoid": 100 + row,
            "imgid": row,
            "sentids": list(range(5 * row, 5 * row + 5)),
            "sentences": [
                {"raw": text, "tokens": text.split(), "imgid": row, "sentid": 5} for text in captions
            ],
        }
        for row, (name, split, captions) in enumerate(_make_pictures(folder / "images", train=pictures - 4))
    ]
    (folder / "dataset_album.json").write_text(json.dumps({"dataset": "album", "images": images}), "utf-8")


def _photographs(folder: Path, whole: Path) -> bool:
    check = vse("data", "check", folder)
    extract = vse("data", "extract", folder, folder / "out", "--backbone", "scenes-cnn")
    if not extract.works and (folder / "out" / "meta.json").exists():
        raise Defect("a folder that looks whole, after a refusal")
    return _agreed(check, extract, "extract")


def make_archive(folder: Path) -> None:
    """A zip file of pictures, as it is downloaded."""
    (folder / "pictures").mkdir()
    _make_pictures(folder / "pictures")
    with zipfile.ZipFile(folder / "pictures.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((folder / "pictures").iterdir()):
            archive.write(path, f"pictures/{path.name}")


def _archive(folder: Path, whole: Path) -> bool:
    archive, out = folder / "pictures.zip", folder / "out"
    said = library(lambda: unpack(archive, "pictures/", out))
    found = _contents(out / "pictures") if (out / "pictures").exists() else {}
    if said.works and found != _contents(whole / "pictures"):
        raise Defect("other pictures than were packed")
    if not found.items() <= _contents(whole / "pictures").items():
        raise Defect("half a picture, after a refusal")
    return said.works


def make_features(folder: Path) -> None:
    """A folder of extracted features."""
    dice = np.random.default_rng(0)
    for split, count in (("train", 8), ("dev", 3), ("test", 3)):
        features = dice.standard_normal((count, 4, 6)).astype(np.float16)
        np.save(folder / f"{split}_ims.npy", features)
        captions = [f"a {split} thing {row} {n} here\n" for row in range(count) for n in range(5)]
        (folder / f"{split}_caps.txt").write_text("".join(captions), "utf-8")
        (folder / f"{split}_ids.txt").write_text(
            "".join(f"{split}{row}.jpg\n" for row in range(count)), "utf-8"
        )
    (folder / "meta.json").write_text(json.dumps({"dataset": "album", "kind": "region", "backbone": "none"}))


def make_unfinished(folder: Path) -> None:
    """An extraction that was interrupted: one split whole, one begun, one not begun."""
    make_album(folder)
    write, written = FeatureRows.write, []

    def stops(rows: FeatureRows, *given: Any) -> None:
        written.append(write(rows, *given))
        if len(written) == 7:
            raise OSError("stopped")

    with mock.patch.object(FeatureRows, "write", stops):
        vse("data", "extract", folder, folder / "out", "--backbone", "scenes-cnn", "--batch-size", 1)
    assert (folder / "out" / "train_ims.npy").exists() and not (folder / "out" / "meta.json").exists()


def make_finished(folder: Path) -> None:
    """A whole extraction."""
    make_album(folder)
    assert vse("data", "extract", folder, folder / "out", "--backbone", "scenes-cnn").works


def _extraction(folder: Path, whole: Path) -> bool:
    """Extracting again ends with the right rows, or refuses."""
    extract = vse("data", "extract", folder, folder / "out", "--backbone", "scenes-cnn", "--batch-size", 1)
    if extract.works:
        finished = whole.with_name("finished")
        if not finished.exists():
            finished.mkdir()
            make_finished(finished)
        for split in ("train", "dev", "test"):
            rows, right = (np.load(one / "out" / f"{split}_ims.npy") for one in (folder, finished))
            if rows.shape != right.shape or not np.allclose(rows, right, rtol=0.02, atol=0.02):
                raise Defect(f"the extraction of {split} is finished, with wrong rows")
    return extract.works


def make_run(folder: Path) -> None:
    """A run, and the features that it was trained on."""
    (folder / "features").mkdir()
    make_features(folder / "features")
    command = ["train", "2ad_region_gru", "--data", folder / "features", "--out", folder / "run", *SMALL]
    assert vse(*command).works


def _run(folder: Path, whole: Path, *settings: object) -> bool:
    """Evaluated and resumed, it gives the same numbers as before, or is refused and left as it is."""
    settings = settings or ("2ad_region_gru", *SMALL)
    data = ["--data", folder / "features"]
    evaluated = vse("evaluate", folder / "run", *data)
    if evaluated.works and evaluated.out != vse("evaluate", whole / "run", "--data", whole / "features").out:
        raise Defect(f"evaluated, with other numbers:\n{evaluated.out}")
    before = _contents(folder / "run")
    resumed = vse("train", *settings, *data, "--out", folder / "run", "--resume")
    if not resumed.works and _contents(folder / "run") != before:
        raise Defect("refused to resume, and changed the run")
    _refuse_left_overs(folder)
    return evaluated.works and resumed.works


def _command(folder: Path, whole: Path) -> bool:
    """Resumed from its folder alone, it gives the same numbers as before, or is refused and left as it is."""
    before = _contents(folder / "run")
    resumed = vse("train", "--resume", folder / "run", "--data", folder / "features")
    if not resumed.works and _contents(folder / "run") != before:
        raise Defect("refused to resume, and changed the run")
    return resumed.works


def make_recipe(folder: Path) -> None:
    """A recipe of one's own."""
    (folder / "my.yaml").write_text(vse("recipes", "aoq_vsrn_region").out, "utf-8")


def _recipe(folder: Path, whole: Path) -> bool:
    return library(lambda: print(get(str(folder / "my.yaml")).hash())).works


def _contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def make_record(folder: Path) -> None:
    """A record of a run."""
    entry = records.record(
        "2ad_region_gru", config={"dim": 8}, config_hash="ab12", data={"name": "album"}, seed=0,
        metrics={"rsum": 100.0}, seconds=1.0,
    )  # fmt: skip
    records.write(entry, folder)


def _record(folder: Path, whole: Path) -> bool:
    def read() -> None:
        if found := records.find(folder):
            print(found)

    said = library(read)
    return said.works and bool(said.out)


def make_index(folder: Path) -> None:
    """An index of pictures, and the model that it was built with."""
    make_album(folder)
    make_towers(folder / "clip", "clip")
    command = ["search", "index", folder / "images", "--recipe", folder / "clip", "--index", folder / "index"]
    assert vse(*command).works


def _index(folder: Path, whole: Path) -> bool:
    """Asked, and asked again when it was brought up to date, it answers as before; or it is refused."""

    def ask(index: Path) -> Said:
        return vse("search", "a big dog", "--top", 3, "--index", index)

    wanted, asked = ask(whole / "index").out, ask(folder / "index")
    if asked.works and asked.out != wanted:
        raise Defect(f"other answers:\n{asked.out}")
    renewed = vse("search", "index", whole / "images", "--index", folder / "index")
    if renewed.works and ask(folder / "index").out != wanted:
        raise Defect("brought up to date, and gives other answers")
    return asked.works and renewed.works


def make_captions(folder: Path) -> None:
    """A table of captions of one's own, some of them quoted, and the pictures."""
    (folder / "images").mkdir()
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["file", "caption", "split"])
        for name, split, captions in _make_pictures(folder / "images", train=20):
            for caption in captions[:2]:
                lines.writerow([name, f'"{caption}", they say', {"val": "dev"}.get(split, split)])


def _captions(folder: Path, whole: Path) -> bool:
    """Read, every picture has captions and is in one split."""
    from vsecore.search.tuning import read_captions

    def read() -> None:
        splits = read_captions(folder / "captions.csv", folder / "images").values()
        files = [file for split in splits for file in split.files]
        captions = [caption for split in splits for caption in split.captions]
        if len(set(files)) != len(files) or not all(map(str.strip, captions)):
            raise Defect("a picture twice, or a caption without a word")
        for split in splits:
            if set(split.owner) != set(range(len(split.files))):
                raise Defect(f"a picture of {split.name} without captions")

    return library(read).works


Attempt = Callable[[Path, Path], bool]
KINDS: dict[str, tuple[Callable[[Path], None], tuple[str, ...], Attempt]] = {
    "annotations": (make_album, ("dataset_album.json",), _photographs),
    "pictures": (make_album, ("images/val1.jpg",), _photographs),
    "archives": (make_archive, ("pictures.zip",), _archive),
    "unfinished extractions": (make_unfinished, ("out/extraction.json", "out/dev_made.npy"), _extraction),
    "finished extractions": (
        make_finished,
        ("out/dev_ims.npy", "out/meta.json", "out/test_caps.txt"),
        _extraction,
    ),
    "runs": (make_run, ("run/run.json", "run/vocabulary.json", "run/*.safetensors"), _run),
    "commands of runs": (make_run, ("run/command.json",), _command),
    "recipes": (make_recipe, ("my.yaml",), _recipe),
    "records": (make_record, ("*.json",), _record),
    "captions of one's own": (make_captions, ("captions.csv",), _captions),
    "search indexes": (make_index, ("index/*.sqlite",), _index),
}
"""How each is made, the files that are damaged (one of each pattern), and the attempt to use them.

An attempt gets a damaged folder, and the whole one to compare with: True if all works, False if it was
refused in a sentence. It raises a `Defect` otherwise.
"""


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_in_a_sentence_or_does_no_harm(kind: str, tmp_path: Path) -> None:
    make, patterns, attempt = KINDS[kind]
    if kind in ("captions of one's own", "search indexes") and not importlib.util.find_spec("starlette"):
        pytest.skip("needs the extra search")
    whole = tmp_path / "whole"
    whole.mkdir()
    make(whole)

    def tried(place: str) -> Path:
        return Path(shutil.copytree(whole, tmp_path / place / "it"))

    assert attempt(tried("copy"), whole), "an undamaged one works"
    defects = []
    for pattern in patterns:
        file = next(path.relative_to(whole) for path in sorted(whole.glob(pattern)))
        for number, (name, damage) in enumerate((ANY | BY_FORMAT.get(file.suffix, {})).items()):
            folder = tried(f"{file.name}{number}")
            damage(folder / file)
            try:
                attempt(folder, whole)
            except Defect as defect:
                defects.append(f"{file}, {name}: {defect}")
            shutil.rmtree(folder.parent)
    assert not defects, "\n\n".join(defects)
