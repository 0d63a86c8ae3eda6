"""However an input is damaged, a command does its work, or says in one sentence what is wrong.

One damage of each sort is tried on runs and unfinished extractions. Other formats have a table of damages of
their own: captions, pictures, features, bottom-up attention's, word vectors, weights, archives, indexes.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from coco import make_album
from small import contents
from test_features import write_precomp
from vsecore import cli
from vsecore.data.feature_folder import FeatureRows

SECONDS = 120
"""Whatever takes longer than this on these small files counts as hanging."""
SMALL = ["--set", "dim=8", "--set", "training.epochs=1", "--set", "training.batch_size=4"]
SMALL += ["--set", "text.encoder.word_dim=4", "--set", "text.encoder.minimum_count=1"]


class Defect(AssertionError):
    """Damage that was not reported in one sentence."""


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    works: bool
    out: str
    err: str


def vse(*arguments):
    """Run a command in this process; it must not hang, show a traceback or refuse without a sentence."""
    out, err, status = io.StringIO(), io.StringIO(), None
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        in_time(),
        mock.patch.object(sys, "argv", ["vse", *map(str, arguments)]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", RuntimeWarning)  # numbers that went wrong without a word
        try:
            cli.main()
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
def in_time():
    def stop(*_):
        raise Defect("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def put(path, change):
    path.write_bytes(change(path.read_bytes()))


def replaced(path, make):
    path.unlink()
    make(path)


def flipped(content):
    place = len(content) // 2
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def in_json(path, change):
    """Change the last value of a JSON file, however deep it stands."""
    content = json.loads(path.read_text("utf-8"))
    holder, key = {"": content}, ""
    while isinstance(holder[key], dict | list) and holder[key]:
        holder = holder[key]
        key = list(holder)[-1] if isinstance(holder, dict) else len(holder) - 1
    change(holder, key)
    path.write_text(json.dumps(content), "utf-8")


def in_array(path, change):
    np.save(path, change(np.load(path)), allow_pickle=True)


def in_tensors(path, change):
    tensors = load_file(path)
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    save_file(tensors | {name: change(tensors[name])}, path)


ANY = {
    "cut": lambda path: put(path, lambda content: content[: len(content) // 2]),
    "flipped": lambda path: put(path, flipped),
    "a web page": lambda path: path.write_bytes(b"<!DOCTYPE html><html><body>404 Not Found</body></html>"),
    "missing": lambda path: path.unlink(),
    "a pipe": lambda path: replaced(path, os.mkfifo),
    "a folder": lambda path: replaced(path, Path.mkdir),
}
JSON = {
    "a field less": lambda path: in_json(path, lambda holder, key: holder.pop(key)),
    "nothing": lambda path: in_json(path, lambda holder, key: holder.__setitem__(key, None)),
    "outside": lambda path: in_json(path, lambda holder, key: holder.__setitem__(key, "../../outside")),
    "huge": lambda path: in_json(path, lambda holder, key: holder.__setitem__(key, 2**70)),
}
ARRAYS = {
    "a row less": lambda path: in_array(path, lambda array: array[:-1]),
    "objects": lambda path: in_array(path, lambda array: array.astype(object)),
}
TENSORS = {
    "NaN tensor": lambda path: in_tensors(path, lambda tensor: tensor * torch.nan),
    "another shape": lambda path: in_tensors(path, lambda tensor: torch.ones(2, 3, 5)),
    "another type": lambda path: in_tensors(path, lambda tensor: tensor.bool()),
}
BY_FORMAT = {".json": JSON, ".npy": ARRAYS, ".safetensors": TENSORS}


def extract(folder, *options):
    return vse("data", "extract", folder / "album", folder / "out", "--backbone", "scenes-cnn", *options)


def make_unfinished(folder):
    """An extraction that was interrupted: one split whole, one begun, one not begun."""
    make_album(folder)
    write, written = FeatureRows.write, []

    def stops(rows, *given):
        written.append(write(rows, *given))
        if len(written) == 7:
            raise OSError("stopped")

    with mock.patch.object(FeatureRows, "write", stops):
        extract(folder, "--batch-size", 1)
    assert (folder / "out" / "train_ims.npy").exists() and not (folder / "out" / "meta.json").exists()


def _extraction(folder, whole):
    """Extracting again ends with the right rows, or refuses."""
    again = extract(folder, "--batch-size", 1)
    if again.works:
        finished = whole.with_name("finished")
        if not finished.exists():
            make_album(finished)
            assert extract(finished).works
        for split in ("train", "dev", "test"):
            rows, right = (np.load(one / "out" / f"{split}_ims.npy") for one in (folder, finished))
            if rows.shape != right.shape or not np.allclose(rows, right, rtol=0.02, atol=0.02):
                raise Defect(f"the extraction of {split} is finished, with wrong rows")
    return again.works


def make_run(folder):
    """A run, and the features that it was trained on."""
    write_precomp(folder / "features")
    command = ["train", "2ad_region_gru", "--data", folder / "features", "--out", folder / "run", *SMALL]
    assert vse(*command).works


def _run(folder, whole):
    """Evaluated and resumed, it gives the same numbers as before, or is refused and left as it is."""
    data = ["--data", folder / "features"]
    evaluated = vse("evaluate", folder / "run", *data)
    if evaluated.works and evaluated.out != vse("evaluate", whole / "run", "--data", whole / "features").out:
        raise Defect(f"evaluated, with other numbers:\n{evaluated.out}")
    before = contents(folder / "run")
    resumed = vse("train", "2ad_region_gru", *SMALL, *data, "--out", folder / "run", "--resume")
    if not resumed.works and contents(folder / "run") != before:
        raise Defect("refused to resume, and changed the run")
    if left := list(folder.rglob("*.part")):
        raise Defect(f"{left} left behind")
    return evaluated.works and resumed.works


def _command(folder, whole):
    """Resumed from its folder alone, it gives the same numbers as before, or is refused and left as it is."""
    before = contents(folder / "run")
    resumed = vse("train", "--resume", folder / "run", "--data", folder / "features")
    if not resumed.works and contents(folder / "run") != before:
        raise Defect("refused to resume, and changed the run")
    return resumed.works


KINDS = {
    "unfinished extractions": (make_unfinished, ("out/extraction.json", "out/dev_made.npy"), _extraction),
    "runs": (make_run, ("run/run.json", "run/vocabulary.json", "run/*.safetensors"), _run),
    "commands of runs": (make_run, ("run/command.json",), _command),
}
"""How each is made, the files that are damaged (one of each pattern), and the attempt to use them.

An attempt gets a damaged folder, and the whole one to compare with: True if all works, False if it was
refused in a sentence. It raises a `Defect` otherwise.
"""


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_in_a_sentence_or_does_no_harm(kind, tmp_path):
    make, patterns, attempt = KINDS[kind]
    whole = tmp_path / "whole"
    whole.mkdir()
    make(whole)

    def tried(place):
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
