"""Drawn numbers in the shape of a collection: they are what they say, read or written, and can be learned."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from vsecore.cli import app
from vsecore.data.features import check_precomp
from vsecore.data.rehearsal import COMMON, WORDS, Shape, rehearsal, write_rehearsal

SMALL = Shape({"train": 300, "dev": 20, "test": 20}, "region", 6, 16)


def test_captions_name_what_their_picture_shows():
    split = rehearsal(SMALL).train
    assert len(split.captions) == 5 * len(split) == 1_500
    shown = split.pictures.shown(np.arange(len(split)))
    assert shown.min() >= COMMON and shown.max() < WORDS
    lengths = []
    for caption, owner in zip(split.captions, split.owner, strict=True):
        words = [int(word.removeprefix("w")) for word in caption.split()]
        lengths.append(len(words))
        assert all(word < COMMON or word in shown[owner] for word in words)
    assert (min(lengths), max(lengths)) == (7, 14)
    assert 10 < np.mean(lengths) < 11


def test_a_picture_is_the_same_whenever_it_is_read():
    pictures = rehearsal(SMALL).train.pictures
    whole = pictures[np.arange(300)]
    assert whole.shape == pictures.shape == (300, 6, 16) and whole.dtype == pictures.dtype == np.float16
    assert (pictures[np.array([7, 0, 299])] == whole[[7, 0, 299]]).all()
    assert (np.asarray(pictures[20:30]) == whole[20:30]).all()
    assert (whole >= 0).all() and np.isfinite(whole).all()
    assert not (np.asarray(rehearsal(SMALL, seed=1).train.pictures[:5]) == whole[:5]).all()
    assert not (np.asarray(rehearsal(SMALL).dev.pictures[:5]) == whole[:5]).all()


def test_what_is_written_is_what_is_drawn(tmp_path):
    written = write_rehearsal(tmp_path / "folder", SMALL, seed=3)
    drawn = rehearsal(SMALL, seed=3)
    assert written.feature_kind == "region"
    assert check_precomp(tmp_path / "folder").facts[0] == "folder: region features of drawn numbers seed 3"
    for name in ("train", "dev", "test"):
        ours, theirs = getattr(written, name), getattr(drawn, name)
        assert (ours.pictures[np.arange(len(ours))] == theirs.pictures[np.arange(len(ours))]).all()
        assert ours.captions == theirs.captions and ours.picture_ids == theirs.picture_ids


@pytest.mark.parametrize("wrong", [{"collection": "mine"}, {"kind": "pixels"}, {"share": 0}, {"share": 2}])
def test_what_no_collection_has_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Shape.of(**{"collection": "coco"} | wrong)


def test_the_command_writes_a_share(tmp_path):
    out = str(tmp_path / "out")
    told = CliRunner().invoke(app, ["data", "rehearse", "flickr8k", out, "--share", "0.001"])
    assert told.exit_code == 0 and "6 pictures of (36, 2048), 30 captions" in told.output
    assert Shape.of("flickr30k", "patch", 0.1).pictures == {"train": 2_900, "dev": 101, "test": 100}
    assert json.loads((tmp_path / "out" / "meta.json").read_text())["kind"] == "region"
    assert (tmp_path / "out" / "train_ims.npy").stat().st_size == 128 + 2 * 6 * 36 * 2048
