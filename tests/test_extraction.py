"""From photographs to features: interrupted or not, the same rows, and each of its own picture."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from vsecore.data import decoding, extraction, files
from vsecore.data.backbones import Backbone, MirroredBackbone, load_backbone
from vsecore.data.features import check_precomp, extract, open_precomp
from vsecore.data.karpathy import CaptionSplit, check_photographs, load_karpathy


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
    names = {f"{split}_{end}" for split in splits for end in ("ims.npy", "sums.npy", "caps.txt", "ids.txt")}
    assert {path.name for path in folder.iterdir()} == names | {"meta.json"}
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["backbone"], meta["picture_size"], meta["pictures"]["train"]) == ("tiny", 32, 6)


def test_a_mirrored_backbone_adds_the_cells_of_the_mirror_image(tiny: Backbone) -> None:
    mirrored = MirroredBackbone(tiny)
    assert (mirrored.kind, mirrored.elements, mirrored.feature_dim) == ("grid", 32, 5)
    dice = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=dice)
    with torch.no_grad():
        seen, plain = mirrored(pictures), tiny(pictures)
        assert torch.equal(seen[:, :16], plain)
        # A cell of this network depends on its own pixels' mean alone, so the mirror only changes the order.
        assert torch.allclose(seen[:, 16:].view(2, 4, 4, 5), plain.view(2, 4, 4, 5).flip(2), atol=1e-6)
        # So the mean of all elements is the same for a picture and its mirror image, whatever the network.
        assert torch.allclose(mirrored(pictures.flip(-1)).mean(1), seen.mean(1), atol=1e-6)


def test_features_with_and_without_mirror_images_are_not_mixed(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, MirroredBackbone(tiny), tmp_path / "features", device="cpu")
    assert open_precomp(folder).dev.pictures.shape == (2, 32, 5)
    assert not check_precomp(folder).problems
    with pytest.raises(ValueError, match="backbone was 'tiny, mirrored' and is now 'tiny'"):
        extract(splits, tiny, folder, device="cpu")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_patches_of_a_vit_are_extracted(album: Callable, tmp_path: Path, dtype: str) -> None:
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "w.safetensors")
    vit = load_backbone("test_vit", tmp_path / "w.safetensors")
    splits = load_karpathy(album())
    folder = extract(splits, vit, tmp_path / "features", batch_size=6, device="cpu", dtype=dtype)
    data = open_precomp(folder)
    assert data.feature_kind == "patch" and data.train.pictures.dtype == dtype
    assert data.train.pictures.shape == (6, vit.elements, vit.feature_dim)
    pixels = [decoding.decode_picture(path, vit.picture_size) for path in splits["train"].files]
    with torch.inference_mode():
        seen = vit(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)).numpy()
    close = {"rtol": 1e-3, "atol": 1e-3}
    assert np.allclose(data.train.pictures[np.arange(6)].astype(np.float32), seen, **close)
    assert not list(folder.glob("*_boxes.npy"))


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
    with pytest.raises(ValueError, match=f"{broken} cannot be read as a picture"):
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
    assert "another process is extracting into" in capsys.readouterr().err


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
    with pytest.raises(ValueError, match="dtype was 'float16' and is now 'float32'"):
        extract(splits, tiny, folder, device="cpu", dtype="float32")
    other = Backbone("tiny", nn.Conv2d(3, 5, 8, 8), Halve(), 32)
    with pytest.raises(ValueError, match="backbone_sha256 was"):
        extract(splits, other, folder, device="cpu")
    assert contents(folder) == before
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    np.save(elsewhere / "dev_ims.npy", np.zeros((3, 4, 8), np.float16))
    with pytest.raises(ValueError, match=r"features from elsewhere \(.*_ims.npy\)"):
        extract(splits, tiny, elsewhere, device="cpu")


def stop_at(broken: str, splits: dict[str, CaptionSplit], tiny: Backbone, folder: Path) -> None:
    """Leave an unfinished extraction, stopped by a picture that is none for a while."""
    picture = next(file for split in splits.values() for file in split.files if file.name == broken)
    good = picture.read_bytes()
    picture.write_text("no picture")
    with pytest.raises(ValueError, match="cannot be read as a picture"):
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    picture.write_bytes(good)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 255
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: os.truncate(path, max(path.stat().st_size - 300, 9)),
    "cut to nothing": lambda path: os.truncate(path, 0),
    "grown": lambda path: os.truncate(path, path.stat().st_size + 300),
    "zeros at its end": lambda path: path.write_bytes(
        path.read_bytes()[: min(200, path.stat().st_size // 2)].ljust(path.stat().st_size, b"\0")
    ),
    "first byte": lambda path: flip(path, 0),
    "last byte": lambda path: flip(path, -1),
    "removed": lambda path: path.unlink(),
    "another shape": lambda path: np.save(path.open("wb"), np.ones((6, 8, 10), np.float16)),
    "another type": lambda path: np.save(path.open("wb"), np.ones((6, 16, 5), np.float32)),
    "text": lambda path: path.write_text("features"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", [".train_ims.npy.part", "train_sums.npy"])
def test_rows_that_are_damaged_while_it_is_unfinished_are_made_again(
    album: Callable, tiny: Backbone, tmp_path: Path, file: str, damage: str
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "stopped"
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=2, device="cpu")
    stop_at("train4.jpg", splits, tiny, folder)
    DAMAGES[damage](folder / file)
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["train_ims.npy", "train_sums.npy", "train_caps.txt", "train_ids.txt"])
def test_a_finished_folder_that_is_damaged_is_mended(
    album: Callable, tiny: Backbone, tmp_path: Path, file: str, damage: str
) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, tiny, tmp_path / "features", batch_size=2, device="cpu")
    before = contents(folder)
    DAMAGES[damage](folder / file)
    [problem] = check_precomp(folder).problems  # one mistake, one line
    assert "train_" in problem
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert contents(folder) == before
    assert not check_precomp(folder).problems


def test_only_rows_that_are_damaged_are_made_again(
    album: Callable, tiny: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, tiny, tmp_path / "features", batch_size=2, device="cpu")
    flip(folder / "train_ims.npy", -1)
    looked_at: list[int] = []
    tiny.register_forward_pre_hook(lambda _, inputs: looked_at.append(len(inputs[0])))
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert looked_at == [2]
    assert "train: 1 row (5) damaged or cut off: made again" in capsys.readouterr().err


def test_missing_checksums_are_named_and_their_rows_made_again(
    album: Callable, tiny: Backbone, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, tiny, tmp_path / "features", batch_size=2, device="cpu")
    before = contents(folder)
    (folder / "train_sums.npy").unlink()
    lacking = (
        f"{folder / 'train_sums.npy'} is missing, and without it nothing shows whether the rows are whole"
    )
    assert check_precomp(folder).problems == [f"{lacking}: run the same extraction again"]
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert capsys.readouterr().err.splitlines() == [f"train: {lacking}: all rows made again"]
    assert contents(folder) == before
    for name in splits:
        (folder / f"{name}_sums.npy").unlink()
    assert check_precomp(folder).problems == []
    assert any(fact.startswith("no checksums") for fact in check_precomp(folder).facts)


@pytest.mark.parametrize("finished", [True, False])
def test_corrected_captions_are_written_and_no_picture_is_decoded(
    album: Callable,
    tiny: Backbone,
    tmp_path: Path,
    finished: bool,
    capsys: pytest.CaptureFixture,
) -> None:
    pictures, folder = album(), tmp_path / "features"
    splits = load_karpathy(pictures)
    if finished:
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    else:
        stop_at("test1.jpg", splits, tiny, folder)
    rows = (folder / "train_ims.npy").read_bytes()
    annotations = pictures / "dataset_album.json"
    annotations.write_text(
        annotations.read_text().replace("Caption 2 of the train", "A better one of the train")
    )
    corrected = load_karpathy(pictures)
    looked_at: list[int] = []
    watch = tiny.register_forward_pre_hook(lambda _, inputs: looked_at.append(len(inputs[0])))
    extract(corrected, tiny, folder, batch_size=2, device="cpu")
    assert looked_at == ([] if finished else [2])  # test0 and test1, which had not been done
    said = "captions of train changed since the last time: written again"
    assert capsys.readouterr().err.splitlines() == [said]
    assert open_precomp(folder).train.captions[2] == "A better one of the train picture 0 ."
    assert not check_precomp(folder).problems and (folder / "train_ims.npy").read_bytes() == rows
    watch.remove()
    assert contents(folder) == contents(
        extract(corrected, tiny, tmp_path / "new", batch_size=2, device="cpu")
    )
    capsys.readouterr()
    extract(corrected, tiny, folder, batch_size=2, device="cpu")
    assert capsys.readouterr().err == ""


def test_the_same_number_of_other_pictures_is_another_extraction(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    splits = load_karpathy(album())
    folder = extract(splits, tiny, tmp_path / "features", device="cpu")
    before = contents(folder)
    other = splits | {"dev": replace(splits["dev"], picture_ids=["other0.jpg", "other1.jpg"])}
    with pytest.raises(ValueError, match="picture_ids_sha256 of dev was"):
        extract(other, tiny, folder, device="cpu")
    assert contents(folder) == before


@pytest.mark.parametrize("finished", [True, False])
def test_another_picture_under_an_old_name_is_looked_at_again(
    album: Callable, tiny: Backbone, tmp_path: Path, finished: bool, capsys: pytest.CaptureFixture
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "features"
    if finished:
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    else:
        stop_at("test0.jpg", splits, tiny, folder)
    picture, other = splits["train"].files[1:3]
    before = picture.stat()
    Image.new("RGB", (80, 60)).save(picture)
    os.truncate(picture, before.st_size)  # the same size, and the same time
    os.utime(picture, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(other)  # only touched: it is the same picture
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    again = "train: 1 picture (train1.jpg) changed since the last time: features made again"
    assert capsys.readouterr().err.splitlines() == [again]
    assert contents(folder) == contents(extract(splits, tiny, tmp_path / "new", batch_size=2, device="cpu"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("extraction.json", "", "extraction.json is not JSON"),
        ("extraction.json", "{", "extraction.json is not JSON"),
        ("extraction.json", "[]", "extraction.json is a list|extraction.json is \\[\\]"),
        ("extraction.json", "{}", 'extraction.json lacks the field "dataset"'),
        ("extraction.json", '"elements": "16"', "extraction.json: elements is '16': wanted a whole number"),
        ("extraction.json", '"elements": -1', "extraction.json: elements is -1: wanted at least 1"),
        (
            "extraction.json",
            '"pictures": {"train": 7}',
            "pictures of train was 7 and is now 6",
        ),
        ("meta.json", "{", "meta.json is not JSON"),
        ("meta.json", '"dtype": "int8"', "meta.json: dtype is 'int8': wanted one of 'float16' or 'float32'"),
    ],
)
def test_a_damaged_account_of_the_settings_is_named(
    album: Callable, tiny: Backbone, tmp_path: Path, file: str, content: str, message: str
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "features"
    if file == "meta.json":
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    else:
        stop_at("train4.jpg", splits, tiny, folder)
    path = folder / file
    good = json.loads(path.read_text())
    path.write_text(json.dumps(good | json.loads(f"{{{content}}}")) if ":" in content else content)
    before = contents(folder)
    with pytest.raises(ValueError, match=message):
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert contents(folder) == before


@pytest.mark.parametrize("file", [".train_ims.npy.part", "train_sums.npy"])
def test_what_is_no_file_is_not_written_to(
    album: Callable, tiny: Backbone, tmp_path: Path, file: str
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "features"
    folder.mkdir()
    (folder / file).mkdir()
    with pytest.raises(ValueError, match=f"{file} is not a file"):
        extract(splits, tiny, folder, device="cpu")
    (folder / file).rmdir()
    (tmp_path / "dear").write_text("keep this")
    (folder / file).symlink_to(tmp_path / "dear")
    with pytest.raises(ValueError, match=f"{file} is a link"):
        extract(splits, tiny, folder, device="cpu")
    assert (tmp_path / "dear").read_text() == "keep this"


def test_a_folder_where_captions_should_be_is_told_before_the_work(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "features"
    stop_at("train4.jpg", splits, tiny, folder)
    (folder / "test_caps.txt").mkdir()
    before = (folder / ".train_ims.npy.part").read_bytes()
    with pytest.raises(ValueError, match=r"test_caps.txt is not a file: move it away"):
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert (folder / ".train_ims.npy.part").read_bytes() == before


def test_rows_of_another_network_do_not_count(album: Callable, tiny: Backbone, tmp_path: Path) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "features"
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=2, device="cpu")
    other = Backbone("tiny", nn.Sequential(nn.AvgPool2d(8), nn.Conv2d(3, 5, 1)), Halve(), 32)
    foreign = extract(splits, other, tmp_path / "other", batch_size=2, device="cpu")
    stop_at("train4.jpg", splits, tiny, folder)
    shutil.copy(foreign / "train_ims.npy", folder / ".train_ims.npy.part")
    shutil.copy(foreign / "train_sums.npy", folder)
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert contents(folder) == contents(whole)


def test_what_a_killed_process_was_writing_is_cleared_away(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "features"
    extract(splits, tiny, folder, device="cpu")
    before = contents(folder)
    (folder / "meta.json").rename(folder / "extraction.json")
    for name in (".meta.json.12345678.part", ".extraction.json.12345678.part"):
        (folder / name).write_text("{")
    extract(splits, tiny, folder, device="cpu")
    assert contents(folder) == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process must fork")
@pytest.mark.parametrize("batch", [0, 2, 4])
def test_a_killed_extraction_goes_on_with_the_next_batch(
    album: Callable, tiny: Backbone, tmp_path: Path, batch: int
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "killed"
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=2, device="cpu")
    seen: list[int] = []

    def kill(*_: object) -> None:
        if len(seen) == batch:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(1)

    hook = tiny.register_forward_pre_hook(kill)
    child = multiprocessing.get_context("fork").Process(
        target=extract, args=(splits, tiny, folder), kwargs={"batch_size": 2, "device": "cpu"}
    )
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    hook.remove()
    tiny.register_forward_pre_hook(lambda *_: seen.append(1))
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert len(seen) == 5 - batch
    assert contents(folder) == contents(whole)


def test_a_picture_that_changes_while_it_is_read_is_named(
    album: Callable, tiny: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits, decode = load_karpathy(album()), decoding.decode_picture

    def replace_after_decoding(path: Path, size: int) -> np.ndarray:
        pixels = decode(path, size)
        if path.name == "val1.jpg":
            path.write_bytes(splits["test"].files[0].read_bytes())
        return pixels

    monkeypatch.setattr(decoding, "decode_picture", replace_after_decoding)
    with pytest.raises(ValueError, match=r"val1.jpg changed while it was read"):
        extract(splits, tiny, tmp_path / "features", device="cpu")


def test_a_picture_that_becomes_a_folder_is_named(album: Callable, tiny: Backbone, tmp_path: Path) -> None:
    splits = load_karpathy(album())
    picture = splits["test"].files[1]
    picture.unlink()
    picture.mkdir()
    with pytest.raises(ValueError, match=r"test1.jpg"):
        extract(splits, tiny, tmp_path / "features", device="cpu")


def test_room_that_is_taken_is_not_asked_for_again(
    album: Callable, tiny: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits, folder = load_karpathy(album()), tmp_path / "features"
    stop_at("train4.jpg", splits, tiny, folder)
    monkeypatch.setattr(extraction.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))
    extract(splits, tiny, folder, batch_size=2, device="cpu")


@pytest.mark.skipif(sys.platform == "win32", reason="files have no limits there")
def test_files_that_may_not_grow_so_large_are_told_at_once(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    import resource

    splits, folder = load_karpathy(album()), tmp_path / "features"
    looked_at: list[int] = []
    tiny.register_forward_pre_hook(lambda *_: looked_at.append(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"needs 0.0 MB more, .* \(File too large\): make room"):
            extract(splits, tiny, folder, device="cpu")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not looked_at and not list(folder.glob("*.npy*")) and not list(folder.glob(".*"))
    extract(splits, tiny, folder, device="cpu")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB: a little less than what the large album's features take."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("can_reserve", [True, False])
def test_a_full_disk_is_an_error_and_not_the_end(
    album: Callable, tiny: Backbone, small_disk: Path, monkeypatch: pytest.MonkeyPatch, can_reserve: bool
) -> None:
    splits = load_karpathy(album(train=400))  # of 160 bytes a row
    with pytest.raises(OSError, match=r"needs 0.1 MB more, but its disk has 0.1 MB left \(No space left"):
        extract(splits, tiny, small_disk / "features", device="cpu")
    plenty = shutil._ntuple_diskusage(10**9, 0, 10**9)  # others may fill the disk after one has looked
    monkeypatch.setattr(extraction.shutil, "disk_usage", lambda _: plenty)
    if not can_reserve:
        monkeypatch.delattr(os, "posix_fallocate")
    message = "needs 0.1 MB more" if can_reserve else r"cannot be written \(No space left"
    with pytest.raises(OSError, match=message):
        extract(splits, tiny, small_disk / "features", device="cpu")
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    folder = extract(splits, tiny, small_disk / "features", device="cpu")
    assert check_precomp(folder).problems == []


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
    five = {
        name: CaptionSplit(
            name, "album", s.files, ["a"] * 5 * len(s.files), np.arange(len(s.files)).repeat(5), s.picture_ids
        )
        for name, s in splits.items()
    }
    (tmp_path / "file").write_text("")
    for place in ("file", "file/features"):
        with pytest.raises(OSError, match=rf"{place} cannot be created \(.*\): name another folder"):
            extract(five, tiny, tmp_path / place)
    full = shutil._ntuple_diskusage(100, 100, 0)
    monkeypatch.setattr(extraction.shutil, "disk_usage", lambda folder: full)
    five = {
        name: CaptionSplit(
            name, "album", s.files, ["a"] * 5 * len(s.files), np.arange(len(s.files)).repeat(5), s.picture_ids
        )
        for name, s in splits.items()
    }
    with pytest.raises(OSError, match=r"needs 0.0 MB more, but its disk has 0.0 MB left"):
        extract(five, tiny, tmp_path / "features")


@pytest.fixture(scope="module")
def mobilenet(photographs: Path) -> Backbone:
    return load_backbone("mobilenetv2_100_same", photographs / "weights" / "mobilenetv2_100_same.safetensors")


def few(splits: dict[str, CaptionSplit], pictures: int) -> dict[str, CaptionSplit]:
    return {name: split.subset(pictures) for name, split in splits.items()}


def test_mobilenet_sees_dogs_where_captions_say_dog(photographs: Path, mobilenet: Backbone) -> None:
    labels = (photographs / "weights" / "imagenet_labels.txt").read_text().splitlines()[1:]
    assert (
        labels[151] == "Chihuahua" and labels[268] == "Mexican hairless"
    )  # ImageNet's dogs lie between them
    test = load_karpathy(photographs / "flickr8k")["test"]
    said = np.array([" dog " in caption.lower() for caption in test.captions]).reshape(-1, 5).sum(1)
    dogs, others = np.flatnonzero(said == 5)[:12], np.flatnonzero(said == 0)[:12]
    pictures = torch.stack(
        [torch.from_numpy(decoding.decode_picture(test.files[row], 224).copy()) for row in [*dogs, *others]]
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


def test_captions_that_are_not_those_of_the_extraction_are_refused(
    album: Callable, tiny: Backbone, tmp_path: Path
) -> None:
    folder = extract(load_karpathy(album()), tiny, tmp_path / "features", device="cpu")
    lines = (folder / "dev_caps.txt").read_text().splitlines(keepends=True)
    (folder / "dev_caps.txt").write_text("".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(
        ValueError, match=r"dev_caps.txt or dev_ids.txt does not match.*delete .captions_sha256."
    ):
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
