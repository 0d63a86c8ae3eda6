import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from vsecore.data.batches import make_loader
from vsecore.data.features import MappedPictures, check_precomp, open_precomp
from vsecore.data.words import Vocabulary

SIZES = {"train": 6, "dev": 3, "test": 2}


def write_precomp(folder: Path, repeats: int = 1, ids: bool = True) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in SIZES.items():
        features = rng.standard_normal((count, 4, 8)).astype(np.float32)
        np.save(folder / f"{name}_ims.npy", features.repeat(repeats, 0))
        lines = [f"caption {c} of picture {p}" for p in range(count) for c in range(5)]
        (folder / f"{name}_caps.txt").write_text("\n".join(lines) + "\n")
        if ids:
            (folder / f"{name}_ids.txt").write_text("".join(f"{p}.jpg\n" * repeats for p in range(count)))
    return folder


@pytest.mark.parametrize("ids", [True, False])
def test_both_layouts_give_the_same_dataset(tmp_path: Path, ids: bool) -> None:
    once = open_precomp(write_precomp(tmp_path / "once", ids=ids))
    five = open_precomp(write_precomp(tmp_path / "five", repeats=5, ids=ids))
    assert once.feature_kind == "region" and once.feature_dim == 8
    for name, count in SIZES.items():
        one, other = getattr(once, name), getattr(five, name)
        assert one.fingerprint() == other.fingerprint()
        assert len(one) == count and one.captions[6] == "caption 1 of picture 1" and one.owner[6] == 1
        assert np.array_equal(np.asarray(one.pictures), np.asarray(other.pictures))
    assert once.train.picture_ids[1] == ("1.jpg" if ids else "1")
    assert check_precomp(tmp_path / "five").problems == []


def test_features_stay_on_disk_and_travel_by_name(tmp_path: Path) -> None:
    pictures = open_precomp(write_precomp(tmp_path / "five", repeats=5)).train.pictures
    whole = np.load(tmp_path / "five" / "train_ims.npy")[::5]
    assert isinstance(pictures, MappedPictures) and isinstance(pictures._map, np.memmap)
    assert len(pickle.dumps(pictures)) < 500
    part = pickle.loads(pickle.dumps(pictures))[2:5][1:]
    assert part.shape == (2, 4, 8) and part.dtype == np.float32
    assert np.array_equal(part[np.array([1, 0, 1])], whole[[4, 3, 4]])
    assert np.array_equal(part[0], whole[3])
    with pytest.raises(IndexError, match="0 to 1"):
        part[np.array([2])]
    for wrong in ((0, 1), [True, False]):  # numpy would take an element, or a part of the rows
        with pytest.raises(TypeError, match="wanted a slice, a number or an array of numbers"):
            part[wrong]


def test_batches_from_disk_are_those_from_memory(tmp_path: Path) -> None:
    split = open_precomp(write_precomp(tmp_path / "five", repeats=5)).train
    held = replace(split, pictures=np.asarray(split.pictures).astype(np.float16))
    vocabulary = Vocabulary.build(split.captions, 1)
    for one, other in zip(*(make_loader(s, vocabulary, 7, workers=1) for s in (split, held)), strict=True):
        assert one.pictures.dtype == torch.float32 and other.pictures.dtype == torch.float16
        assert torch.equal(one.pictures.half(), other.pictures)
        assert other.to("cpu").pictures.dtype == torch.float32


def test_another_split_can_be_the_test(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path / "coco")
    for end in ("ims.npy", "caps.txt", "ids.txt"):
        shutil.copy(folder / f"train_{end}", folder / f"testall_{end}")
    assert len(open_precomp(folder, kind="grid", test="testall").test) == 6


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def with_nan(path: Path) -> None:
    features = np.load(path)
    features[1, 2, 3] = np.nan
    np.save(path, features)


def without_last_line(path: Path) -> None:
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")


@pytest.mark.parametrize(
    ("file", "damage", "error", "message"),
    [
        ("dev_ims.npy", cut_off, ValueError, "dev_ims.npy is not a .npy file, or is cut off"),
        ("dev_ims.npy", with_nan, ValueError, "dev_ims.npy, row 1 holds NaN or infinity"),
        ("dev_ims.npy", Path.unlink, FileNotFoundError, "no file .*dev_ims.npy"),
        ("dev_ims.npy", lambda p: p.write_bytes(b""), ValueError, "dev_ims.npy is not a .npy file"),
        (
            "dev_ims.npy",
            lambda p: np.save(p, np.zeros((3, 8))),
            ValueError,
            r"dev_ims.npy holds float64 \(3, 8\)",
        ),
        ("dev_ims.npy", lambda p: np.save(p, np.array([{}])), ValueError, "dev_ims.npy is not a .npy file"),
        ("dev_ims.npy", lambda p: np.save(p, np.zeros((3, 4, 9))), ValueError, "differ in the width"),
        (
            "dev_caps.txt",
            without_last_line,
            ValueError,
            "dev_caps.txt has 14 captions for the 3 rows of dev_ims.npy",
        ),
        ("dev_caps.txt", lambda p: p.write_text("a\n\nb\n"), ValueError, "dev_caps.txt, line 2 is empty"),
        ("dev_caps.txt", lambda p: p.write_bytes(b"caf\xe9\n"), ValueError, "dev_caps.txt is not UTF-8"),
        ("dev_caps.txt", Path.unlink, FileNotFoundError, "no file .*dev_caps.txt"),
        ("dev_ids.txt", without_last_line, ValueError, "dev_ids.txt has 2 lines for 3 pictures"),
        ("meta.json", lambda p: p.write_text("{"), ValueError, "meta.json is not JSON"),
        ("meta.json", lambda p: p.write_text("[]"), ValueError, "meta.json holds a JSON list"),
        (
            "meta.json",
            lambda p: p.write_text('{"dataset": "../x"}'),
            ValueError,
            "meta.json: the field \"dataset\" is '../x'",
        ),
    ],
)
def test_a_damaged_folder_is_named_with_its_file(tmp_path: Path, file, damage, error, message) -> None:
    folder = write_precomp(tmp_path / "precomp")
    damage(folder / file)
    with pytest.raises(error, match=message):
        open_precomp(folder)
    if "width" not in message:  # what a dataset as a whole must be, a check of single files cannot see
        assert any(file in problem for problem in check_precomp(folder).problems)


def test_a_check_reads_the_rows_that_opening_skips(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path / "precomp")
    features = np.zeros((1000, 1, 2), np.float16)
    features[501] = np.inf
    np.save(folder / "dev_ims.npy", features)
    (folder / "dev_caps.txt").write_text("a caption\n" * 5000)
    (folder / "dev_ids.txt").unlink()
    assert "dev_ims.npy, row 501 holds NaN" in check_precomp(folder).problems[0]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        open_precomp(tmp_path / "nowhere")
    assert "nowhere" in check_precomp(tmp_path / "nowhere").problems[0]
