import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from vsecore.data import extraction, files
from vsecore.data.backbones import Backbone, load_backbone
from vsecore.data.batches import make_loader
from vsecore.data.features import MappedPictures, check_precomp, extract, open_precomp
from vsecore.data.karpathy import CaptionSplit, check_photographs, load_karpathy
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
        (with_meta(dtype="float16"), "has dtype float32, and meta.json says 'float16'"),
        (with_meta(elements=5), "has elements 4, and meta.json says 5"),
        (with_meta(feature_dim=9), "has feature_dim 8, and meta.json says 9"),
        (with_meta(pictures=SIZES | {"dev": 4}), "has pictures 3, and meta.json says 4"),
        (with_meta(pictures=[6, 3, 2]), "meta.json: pictures is .*wanted named values"),
        (with_meta(captions_sha256={"dev": "0" * 64}), "captions or ids of split 'dev' are not those"),
        # Arrays that no network takes, or that do not fit each other.
        (with_array(lambda array: array.astype(">f4")), "holds >f4"),
        (with_array(lambda array: array.astype(int)), "holds int64"),
        (with_array(lambda array: array.astype(object)), "holds object"),
        (with_array(lambda array: array[..., :7]), "differ in the width of their features"),
        (with_array(lambda array: array[:0]), r"holds float32 \(0, 4, 8\)"),
        (with_array(lambda array: array[:2]), "has 15 captions for the 2 rows"),
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


def test_captions_that_are_not_those_of_the_extraction_are_refused(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    folder = extract(load_karpathy(album()), tiny, tmp_path / "features", device="cpu")
    lines = (folder / "dev_caps.txt").read_text().splitlines(keepends=True)
    (folder / "dev_caps.txt").write_text("".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(ValueError, match=r"captions or ids of split 'dev'.*delete .captions_sha256."):
        open_precomp(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda images: None,
        lambda images: images[3].update(sentences=images[3]["sentences"][:4]),
        lambda images: images[3]["sentences"][2].update(raw=" \n"),
        lambda images: images[3]["sentences"][2].update(raw="\ufeff\u2028 A dog\x85 runs .\x1c"),
        lambda images: images[3].update(cocoid=-7),
        lambda images: images.append(images[0]),
        lambda images: images[0].update(split="test"),
    ],
)
def test_a_check_of_photographs_says_what_extraction_will(
    album: Callable, tiny: Backbone, tmp_path: Path, change: Callable
) -> None:
    folder = album()
    path = folder / "dataset_album.json"
    content = json.loads(path.read_text())
    change(content["images"])
    path.write_text(json.dumps(content))
    try:
        extract(load_karpathy(folder), tiny, tmp_path / "features", device="cpu")
        open_precomp(tmp_path / "features")
        works = True
    except (ValueError, OSError):
        works = False
    assert works == (check_photographs(folder).problems == [])


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere"):
        open_precomp(tmp_path / "nowhere")
    assert "nowhere" in check_precomp(tmp_path / "nowhere").problems[0]


class Halve(nn.Module):
    """uint8 to numbers from 0 to 2, so that a cell's feature can be told by hand."""

    def forward(self, pictures: Tensor) -> Tensor:
        return pictures.float() / 127.5


@pytest.fixture
def tiny() -> Backbone:
    """A grid of 4 × 4 cells whose features are the mean colours of its pixels, times a little matrix."""
    torch.manual_seed(0)
    return Backbone("tiny", nn.Sequential(nn.AvgPool2d(8), nn.Conv2d(3, 5, 1)), Halve(), 32)


def test_a_backbone_gives_cells_row_by_row(tiny: Backbone) -> None:
    assert (tiny.kind, tiny.elements, tiny.feature_dim) == ("grid", 16, 5)
    picture = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    picture[0, :, 8:16, 24:] = 255  # the second row's last cell
    with torch.no_grad():
        cells = tiny(picture)[0]
    different = (cells - cells[0]).abs().sum(1) > 0
    assert different.nonzero().flatten().tolist() == [7]
    for wrong in (picture.float(), picture[:, :, :16], picture[0]):
        with pytest.raises(ValueError, match=r"tiny wants uint8 \(B, 3, 32, 32\)"):
            tiny(wrong)


def test_extracted_rows_are_what_the_backbone_sees(album: Callable, tiny: Backbone, tmp_path: Path) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, tiny, tmp_path / "features", batch_size=4, device="cpu")
    data = open_precomp(folder)
    assert (data.name, data.feature_kind, data.train.pictures.dtype) == ("album", "grid", np.float16)
    assert data.train.captions == splits["train"].captions
    assert data.dev.picture_ids == ["val0.jpg", "val1.jpg"]
    for row, path in enumerate(splits["train"].files):
        with Image.open(path) as picture:
            pixels = np.asarray(picture.resize((32, 32), Image.Resampling.BICUBIC))
        with torch.no_grad():
            seen = tiny(torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None])[0]
        assert torch.equal(torch.from_numpy(data.train.pictures[row]), seen.half())
    names = {f"{split}_{end}" for split in splits for end in ("ims.npy", "caps.txt", "ids.txt")}
    assert {path.name for path in folder.iterdir()} == names | {"meta.json"}
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["backbone"], meta["picture_size"], meta["pictures"]["train"]) == ("tiny", 32, 6)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("broken", ["train3.jpg", "val1.jpg", "test0.jpg"])
def test_an_interrupted_extraction_ends_as_if_never_interrupted(
    album: Callable, tiny: Backbone, tmp_path: Path, broken: str
) -> None:
    splits = load_karpathy(album())
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=2, device="cpu")
    picture = next(file for split in splits.values() for file in split.files if file.name == broken)
    good = picture.read_bytes()
    picture.write_text("no picture")
    folder = tmp_path / "stopped"
    with pytest.raises(ValueError, match=f"{broken} is no picture that can be read"):
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert not (folder / "meta.json").exists()
    with pytest.raises(ValueError, match="unfinished extraction"):
        open_precomp(folder)
    picture.write_bytes(good)
    looked_at = []
    tiny.register_forward_pre_hook(lambda _, inputs: looked_at.append(len(inputs[0])))
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert sum(looked_at) < 10  # of ten pictures some were done
    assert contents(folder) == contents(whole)


def test_a_finished_extraction_is_not_done_again(album: Callable, tiny: Backbone, tmp_path: Path) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, tiny, tmp_path / "features", device="cpu")
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    extract(splits, tiny, folder, device="cpu")
    assert times == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    before = contents(folder)
    (folder / "dev_ims.npy").unlink()
    extract(splits, tiny, folder, device="cpu")
    assert contents(folder) == before


def test_two_that_extract_at_once_do_the_work_once(
    album: Callable, tiny: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    splits = load_karpathy(album())
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=4, device="cpu")
    began, go_on, looked_at = threading.Event(), threading.Event(), []

    def slow(_: object, inputs: tuple[Tensor]) -> None:
        looked_at.append(len(inputs[0]))
        began.set()
        assert go_on.wait(60)

    tiny.register_forward_pre_hook(slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(extract, splits, tiny, tmp_path / "both", batch_size=4, device="cpu")
        assert began.wait(60)
        second = pool.submit(extract, splits, tiny, tmp_path / "both", batch_size=4, device="cpu")
        time.sleep(0.3)
        assert not second.done()
        go_on.set()
        assert first.result() == second.result()
    assert sum(looked_at) == 10
    assert contents(tmp_path / "both") == contents(whole)
    assert "another process extracts into" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_a_process_that_is_killed_lets_go_of_its_folder(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    folder = tmp_path / "features"
    folder.mkdir()
    hold = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'ab'); fcntl.flock(file, fcntl.LOCK_EX); "
        "print(flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, folder / files.LOCK], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None and other.stdout.readline() == "\n"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(extract, load_karpathy(album()), tiny, folder, device="cpu")
        time.sleep(0.3)
        assert not waiting.done()
        other.kill()
        other.communicate()
        assert waiting.result(60) == folder
    assert not (folder / files.LOCK).exists()


def test_a_folder_of_other_features_is_left_alone(album: Callable, tiny: Backbone, tmp_path: Path) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, tiny, tmp_path / "features", device="cpu")
    before = contents(folder)
    with pytest.raises(ValueError, match="dtype was 'float16' and is 'float32' now"):
        extract(splits, tiny, folder, device="cpu", dtype="float32")
    other = Backbone("tiny", nn.Conv2d(3, 5, 8, 8), Halve(), 32)
    with pytest.raises(ValueError, match="backbone_sha256 was"):
        extract(splits, other, folder, device="cpu")
    assert contents(folder) == before
    with pytest.raises(ValueError, match=r"features from elsewhere \(.*_ims.npy\)"):
        extract(splits, tiny, write_precomp(tmp_path / "precomp"), device="cpu")


def test_numbers_too_large_for_half_precision_are_refused(album: Callable, tmp_path: Path) -> None:
    class Loud(nn.Module):
        def forward(self, pictures: Tensor) -> Tensor:
            return 1e4 * pictures[:, :, ::16, ::16]

    splits, loud = load_karpathy(album()), Backbone("loud", Loud(), nn.Identity(), 32)
    with pytest.raises(ValueError, match='not finite in float16: set dtype="float32"'):
        extract(splits, loud, tmp_path / "half", device="cpu")
    extract(splits, loud, tmp_path / "single", device="cpu", dtype="float32")


def test_what_cannot_be_extracted_is_refused(
    album: Callable, tiny: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = load_karpathy(album(captions=4))
    with pytest.raises(ValueError, match=r"'train': .*train0.jpg has 4 captions"):
        extract(splits, tiny, tmp_path / "features")
    with pytest.raises(ValueError, match="caption_splits is empty"):
        extract({}, tiny, tmp_path / "features")
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        extract(splits, tiny, tmp_path / "features", dtype="int8")
    with pytest.raises(ValueError, match="batch_size is 0"):
        extract(splits, tiny, tmp_path / "features", batch_size=0)
    assert not (tmp_path / "features").exists()
    full = shutil._ntuple_diskusage(100, 100, 0)
    monkeypatch.setattr(extraction.shutil, "disk_usage", lambda folder: full)
    five = {
        name: CaptionSplit(
            name, "album", s.files, ["a"] * 5 * len(s.files), np.arange(len(s.files)).repeat(5), s.picture_ids
        )
        for name, s in splits.items()
    }
    with pytest.raises(OSError, match=r"needs 0.0 GB, its disk has 0.0 GB left"):
        extract(five, tiny, tmp_path / "features")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("test_resnet", "grid"),
        ("test_vit", "patch"),
        ("torchvision/squeezenet1_1", "grid"),
        ("torchvision/resnet18", "grid"),
    ],
)
def test_weights_of_a_local_file_are_loaded(tmp_path: Path, name: str, kind: str) -> None:
    torch.manual_seed(0)
    is_torchvision = name.startswith("torchvision/")
    network = (
        torchvision.models.get_model(name[12:], weights=None) if is_torchvision else timm.create_model(name)
    )
    path = tmp_path / ("w.pth" if is_torchvision else "w.safetensors")
    torch.save(network.state_dict(), path) if is_torchvision else save_file(network.state_dict(), path)
    backbone = load_backbone(name, path)
    assert backbone.kind == kind and backbone.fingerprint() == load_backbone(name, path).fingerprint()
    size = backbone.picture_size
    pictures = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    with torch.no_grad():
        seen = backbone(pictures)
        assert seen.shape == (2, backbone.elements, backbone.feature_dim)
        if kind == "grid":
            network.eval()
            mean, std = (
                torch.tensor(x)[:, None, None] for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
            )
            maps = (pictures / 255 - mean) / std
            if name == "torchvision/resnet18":
                for part in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
                    maps = getattr(network, part)(maps)
                torch.testing.assert_close(seen, maps.flatten(2).mT, rtol=1e-4, atol=1e-4)


def test_a_grid_can_look_at_larger_pictures_and_patches_cannot(tmp_path: Path) -> None:
    for name in ("test_resnet", "test_vit"):
        save_file(timm.create_model(name).state_dict(), tmp_path / f"{name}.safetensors")
    large = load_backbone("test_resnet", tmp_path / "test_resnet.safetensors", picture_size=320)
    assert large.elements == 4 * load_backbone("test_resnet", tmp_path / "test_resnet.safetensors").elements
    with pytest.raises(ValueError, match="picture_size is 320: test_vit takes"):
        load_backbone("test_vit", tmp_path / "test_vit.safetensors", picture_size=320)
    with pytest.raises(ValueError, match="at least 32"):
        load_backbone("test_resnet", tmp_path / "test_resnet.safetensors", picture_size=8)


def test_a_pickle_of_the_hub_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return str(tmp_path)

    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    published = replace(timm.get_pretrained_cfg("test_resnet"), hf_hub_filename="open_clip_pytorch_model.bin")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr(timm, "get_pretrained_cfg", lambda name: published)
    with pytest.raises(FileNotFoundError, match=r"has no open_clip_model.safetensors for test_resnet"):
        load_backbone("test_resnet")
    assert asked == ["open_clip_model.safetensors"]


class Program:
    """What a pickle can do when it is read."""

    def __reduce__(self) -> tuple:
        return print, ("this ran",)


def test_published_weights_that_are_a_program_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    url = torchvision.models.get_model_weights("squeezenet1_1").DEFAULT.url
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.save({"weight": Program()}, path)
    with pytest.raises(ValueError, match=r"squeezenet1_1.*\.pth holds more than weights"):
        load_backbone("torchvision/squeezenet1_1")
    assert "this ran" not in capsys.readouterr().out
    torch.save(torchvision.models.get_model("squeezenet1_1", weights=None).state_dict(), path)
    assert load_backbone("torchvision/squeezenet1_1").kind == "grid"


def test_published_weights_come_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: str(tmp_path))
    assert (
        load_backbone("test_resnet").fingerprint()
        == load_backbone("test_resnet", tmp_path / "model.safetensors").fingerprint()
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5O", "unknown backbone 'resnet5O': did you mean resnet50"),
        ("qqqqqq", "unknown backbone 'qqqqqq'"),
        ("torchvision/resnet19", "torchvision has no 'resnet19'"),
        ("mobilenetv2_100_same", "nobody publishes weights for mobilenetv2_100_same"),
    ],
)
def test_an_unknown_backbone_is_named(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_backbone(name)


def test_weights_that_cannot_be_downloaded_say_what_to_get() -> None:
    with pytest.raises(FileNotFoundError, match=r"weights of test_resnet are not here.*timm/test_resnet"):
        load_backbone("test_resnet")


def test_weights_that_do_not_fit_are_named_with_their_tensor(tmp_path: Path) -> None:
    good = timm.create_model("test_resnet").state_dict()
    path = tmp_path / "w.safetensors"
    first = next(name for name in good if name.endswith("conv1.weight"))
    for weights, message in (
        (
            {**good, first: torch.zeros(2, 3, 4, 5)},
            rf"tensor '{first}' has shape \(2, 3, 4, 5\), test_resnet wants",
        ),
        ({name: t for name, t in good.items() if name != first}, f"lacks tensor '{first}'"),
        ({**good, "head.other": torch.zeros(1)}, "unknown tensor 'head.other'"),
    ):
        save_file(weights, path)
        with pytest.raises(ValueError, match=f"w.safetensors.*{message}"):
            load_backbone("test_resnet", path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"w.safetensors cannot be read as weights"):
        load_backbone("test_resnet", path)
    (tmp_path / "w.pth").write_text("no weights")
    with pytest.raises(ValueError, match=r"w.pth cannot be read as weights"):
        load_backbone("test_resnet", tmp_path / "w.pth")
    with pytest.raises(FileNotFoundError, match=r"nowhere.pth"):
        load_backbone("test_resnet", tmp_path / "nowhere.pth")


@pytest.fixture(scope="module")
def mobilenet(photographs: Path) -> Backbone:
    return load_backbone("mobilenetv2_100_same", photographs / "weights" / "mobilenetv2_100_same.safetensors")


def few(splits: dict[str, CaptionSplit], pictures: int) -> dict[str, CaptionSplit]:
    return {
        name: replace(
            split,
            files=split.files[:pictures],
            captions=split.captions[: 5 * pictures],
            owner=split.owner[: 5 * pictures],
            picture_ids=split.picture_ids[:pictures],
        )
        for name, split in splits.items()
    }


def test_mobilenet_sees_dogs_where_captions_say_dog(photographs: Path, mobilenet: Backbone) -> None:
    labels = (photographs / "weights" / "imagenet_labels.txt").read_text().splitlines()[1:]
    assert (
        labels[151] == "Chihuahua" and labels[268] == "Mexican hairless"
    )  # ImageNet's dogs lie between them
    test = load_karpathy(photographs / "flickr8k")["test"]
    said = np.array([" dog " in caption.lower() for caption in test.captions]).reshape(-1, 5).sum(1)
    dogs, others = np.flatnonzero(said == 5)[:12], np.flatnonzero(said == 0)[:12]
    pictures = torch.stack(
        [
            torch.from_numpy(extraction._decode_picture(test.files[row], 224).copy())
            for row in [*dogs, *others]
        ]
    )
    with torch.inference_mode():
        cells = mobilenet(pictures.permute(0, 3, 1, 2))  # (24, 49, 1280)
        best = mobilenet.network.model.classifier(cells.mean(1)).argmax(1)
    is_dog = (best >= 151) & (best <= 268)
    assert is_dog[:12].float().mean() >= 0.8 and is_dog[12:].float().mean() <= 0.1


def test_real_pictures_interrupted_are_real_pictures_uninterrupted(
    photographs: Path, mobilenet: Backbone, tmp_path: Path
) -> None:
    splits = few(load_karpathy(photographs / "flickr8k"), 6)
    whole = extract(splits, mobilenet, tmp_path / "whole", batch_size=4, device="cpu")
    seen = []

    def stop(*_: object) -> None:
        seen.append(1)
        if len(seen) == 4:
            raise KeyboardInterrupt

    hook = mobilenet.register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        extract(splits, mobilenet, tmp_path / "stopped", batch_size=4, device="cpu")
    hook.remove()
    extract(splits, mobilenet, tmp_path / "stopped", batch_size=4, device="cpu")
    assert contents(tmp_path / "stopped") == contents(whole)
    data = open_precomp(whole)
    assert data.train.pictures.shape == (6, 49, 1280) and data.name == "flickr8k"
