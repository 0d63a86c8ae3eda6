import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from vsecore.data.batches import make_loader
from vsecore.data.features import MappedPictures, check_precomp, open_precomp
from vsecore.data.vocabulary import Vocabulary

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
            identities = "".join(f"{name}{p}.jpg\n" * repeats for p in range(count))
            (folder / f"{name}_ids.txt").write_text(identities)
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
    assert once.train.picture_ids[1] == ("train1.jpg" if ids else "1")
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
    for end in ("ims.npy", "caps.txt"):
        shutil.copy(folder / f"train_{end}", folder / f"testall_{end}")
    ids = [f"test{p}.jpg\n" for p in range(6)]  # those of "test", and four more
    (folder / "testall_ids.txt").write_text("".join(ids))
    assert len(open_precomp(folder, kind="grid", test="testall").test) == 6
    with pytest.raises(ValueError, match="test is 'train': wanted a split of its own"):
        open_precomp(folder, test="train")


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
        ("dev_ims.npy", lambda p: np.save(p, np.array([{}])), ValueError, r"dev_ims.npy holds object \(1,\)"),
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
        ("meta.json", lambda p: p.write_text("[]"), ValueError, r"meta.json is \[\]: wanted named values"),
        (
            "meta.json",
            lambda p: p.write_text('{"dataset": "../x"}'),
            ValueError,
            "meta.json: dataset is '../x': wanted a name",
        ),
    ],
)
def test_a_damaged_folder_is_named_with_its_file(tmp_path: Path, file, damage, error, message) -> None:
    folder = write_precomp(tmp_path / "precomp")
    damage(folder / file)
    with pytest.raises(error, match=message):
        open_precomp(folder)
    assert any(re.search(message, problem) for problem in check_precomp(folder).problems)


def test_a_check_reads_the_rows_that_opening_skips(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path / "precomp")
    features = np.zeros((1000, 1, 2), np.float16)
    features[501] = np.inf
    np.save(folder / "dev_ims.npy", features)
    (folder / "dev_caps.txt").write_text("a caption\n" * 5000)
    (folder / "dev_ids.txt").unlink()
    assert "dev_ims.npy, row 501 holds NaN" in check_precomp(folder).problems[0]


def with_meta(**changes: object) -> Callable[[Path], object]:
    """Write a `meta.json` that is right but for the changes."""
    whole = {"kind": "grid", "dtype": "float32", "elements": 4, "feature_dim": 8, "pictures": SIZES}
    return lambda folder: (folder / "meta.json").write_text(json.dumps(whole | changes))


def with_array(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    return lambda folder: np.save(folder / "dev_ims.npy", change(np.load(folder / "dev_ims.npy")))


def with_ids(*lines: str, split: str = "dev") -> Callable[[Path], object]:
    return lambda folder: (folder / f"{split}_ids.txt").write_text("".join(f"{line}\n" for line in lines))


PIPE = getattr(os, "mkfifo", Path.mkdir)  # Windows has none


def as_large_as_memory(file: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        (folder / file).touch()
        os.truncate(folder / file, psutil.virtual_memory().total)

    return damage


def in_place_of(file: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        (folder / file).unlink(missing_ok=True)
        make(folder / file)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        # The same picture in two splits, or twice in one.
        (
            with_ids("train1.jpg", "test1.jpg", split="test"),
            "'train1.jpg' is in split 'train' and in .*'test'",
        ),
        (with_ids("0", "1", "train1.jpg"), "'train1.jpg' is in split 'train' and in split 'dev'"),
        (with_ids("a", "b", "a"), "dev_ids.txt, line 3 names the picture 'a' of line 1 again"),
        (with_ids(*"aaaaabbbbbaaaaa"), "dev_ids.txt, line 11 names the picture 'a' of line 1 again"),
        (with_ids(*"aaaaabbbbbccacc"), "dev_ids.txt, lines 11 to 15 name different pictures for one row"),
        (with_ids(*"abcdef"), "has 6 lines for 3 pictures"),
        (with_ids("a", "", "b"), "line 2 is empty"),
        # What meta.json says is so.
        (with_meta(kind="grids"), "meta.json: kind is 'grids': wanted one of"),
        (with_meta(kind="pixels"), "feature_kind is 'pixels'"),
        (with_meta(kind=None), "meta.json: kind is None"),
        (with_meta(dataset=7), "meta.json: dataset is 7"),
        (with_meta(captions_a_picture=0), "captions_a_picture is 0: wanted at least 1"),
        (with_meta(captions_a_picture=4), "wanted 24, 4 for each"),
        (with_meta(dtype="float16"), "has dtype float32, but meta.json says 'float16'"),
        (with_meta(elements=5), "has elements 4, but meta.json says 5"),
        (with_meta(feature_dim=9), "has feature_dim 8, but meta.json says 9"),
        (with_meta(pictures=SIZES | {"dev": 4}), "has pictures 3, but meta.json says 4"),
        (with_meta(pictures=[6, 3, 2]), "meta.json: pictures is .*wanted named values"),
        (with_meta(captions_sha256={"dev": "0" * 64}), "dev_caps.txt or dev_ids.txt does not match"),
        # Arrays that no network takes, or that do not fit each other.
        (with_array(lambda array: array.astype(">f4")), "holds >f4"),
        (with_array(lambda array: array.astype(int)), "holds int64"),
        (with_array(lambda array: array.astype(object)), "holds object"),
        (with_array(lambda array: array[..., :7]), "differ in the width of their features"),
        (with_array(lambda array: array[:0]), r"holds float32 \(0, 4, 8\)"),
        (with_array(lambda array: array[:2]), "has 15 captions for the 2 rows"),
        # Texts larger than the memory; the zeros take no room on the disk.
        (as_large_as_memory("dev_caps.txt"), "dev_caps.txt has .* GB, and to read it takes 4 times"),
        (as_large_as_memory("dev_ids.txt"), "dev_ids.txt has .* GB, and to read it takes 4 times"),
        (as_large_as_memory("meta.json"), "meta.json has .* GB, and to read it takes 4 times"),
        # Something else in a file's place.
        (in_place_of("dev_ims.npy", Path.mkdir), "no file .*dev_ims.npy"),
        (in_place_of("dev_caps.txt", Path.mkdir), "no file .*dev_caps.txt"),
        (in_place_of("dev_ids.txt", Path.mkdir), "no file .*dev_ids.txt"),
        (in_place_of("meta.json", Path.mkdir), "no file .*meta.json"),
        (in_place_of("dev_ims.npy", PIPE), "no file .*dev_ims.npy"),
        (in_place_of("dev_ids.txt", PIPE), "no file .*dev_ids.txt"),
        (in_place_of("meta.json", PIPE), "no file .*meta.json"),
        (in_place_of("dev_caps.txt", lambda path: path.write_bytes(b"\xed\xa0\x80\n" * 15)), "is not UTF-8"),
    ],
)
def test_opening_and_checking_refuse_the_same(tmp_path: Path, damage: Callable, message: str) -> None:
    folder = write_precomp(tmp_path / "precomp")
    damage(folder)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        open_precomp(folder)
    assert str(caught.value) in check_precomp(folder).problems
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        with_meta(),
        with_meta(captions_sha256={"testall": "0" * 64}),
        with_array(np.asfortranarray),
        with_array(lambda array: array.astype(np.float64)),
        with_array(lambda array: array.astype(np.float16)),
        with_array(lambda array: array[:, :3]),
        with_ids(*"aaaaabbbbbccccc"),
        with_ids(*map(str, range(100, 115))),  # the captions' own numbers
        in_place_of("dev_ids.txt", lambda path: None),
        in_place_of("dev_ids.txt", lambda path: path.write_bytes(b"\xef\xbb\xbfa\r\nb\r\nc\r\n")),
    ],
)
def test_what_a_check_calls_ready_can_be_trained_on(tmp_path: Path, change: Callable) -> None:
    folder = write_precomp(tmp_path / "precomp")
    change(folder)
    assert check_precomp(folder).problems == []
    data = open_precomp(folder)
    vocabulary = Vocabulary.build(data.train.captions, 1)
    for split in (data.train, data.dev, data.test):
        for batch in make_loader(split, vocabulary, 2):
            assert batch.to("cpu").pictures.shape[-1] == data.feature_dim


def test_ids_that_only_count_rows_name_no_pictures(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path / "precomp")
    for name, count in SIZES.items():
        with_ids(*map(str, range(count)), split=name)(folder)
    assert check_precomp(folder).problems == []
    assert open_precomp(folder).dev.picture_ids == ["0", "1", "2"]
    with_ids("4", "3", "2", "1", "0", "5", split="train")(folder)
    with pytest.raises(ValueError, match="'0' is in split 'train' and in split 'dev'"):
        open_precomp(folder)
    for name in ("dev", "test"):
        (folder / f"{name}_ids.txt").unlink()
    assert check_precomp(folder).problems == []
    assert open_precomp(folder).train.picture_ids[0] == "4"


def test_a_check_compares_all_rows_that_are_repeated(tmp_path: Path) -> None:
    folder = write_precomp(tmp_path / "five", repeats=5)
    features = np.load(folder / "train_ims.npy")
    features[7, 0, 0] += 1  # in the second five, of six
    np.save(folder / "train_ims.npy", features)
    assert "train_ims.npy, rows 5 to 9 differ" in check_precomp(folder).problems[0]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        open_precomp(tmp_path / "nowhere")
    assert "nowhere" in check_precomp(tmp_path / "nowhere").problems[0]


@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("each", [1, 5])
def test_ids_that_only_count_in_each_split_name_no_picture(tmp_path: Path, begin: int, each: int) -> None:
    folder = write_precomp(tmp_path / "features")
    for name, count in SIZES.items():
        lines = [f"{number}\n" for number in range(begin, begin + each * count)]
        (folder / f"{name}_ids.txt").write_text("".join(lines))
    assert check_precomp(folder).problems == []
    open_precomp(folder)
