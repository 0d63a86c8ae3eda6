"""From photographs to features: interrupted or not, the same rows, and each of its own picture."""

import json
import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from small import contents
from vsecore.data import feature_folder, files, folder_writer
from vsecore.data.backbones import Backbone, MirroredBackbone
from vsecore.data.extraction import extract
from vsecore.data.features import check_precomp, open_precomp
from vsecore.data.karpathy import load_karpathy


@pytest.fixture
def splits(album):
    return load_karpathy(album())


def looked_at(backbone):
    """How many pictures each batch from now on has."""
    seen = []
    backbone.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    return seen


def test_a_backbone_gives_cells_row_by_row(tiny):
    assert (tiny.kind, tiny.elements, tiny.feature_dim) == ("grid", 16, 5)
    picture = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    picture[0, :, 8:16, 24:] = 255  # the second row's last cell
    with torch.no_grad():
        cells = tiny(picture)[0]
    different = (cells - cells[0]).abs().sum(1) > 0
    assert different.nonzero().flatten().tolist() == [7]
    for wrong in (picture.float(), picture[:, :, :16], picture[0]):
        with pytest.raises(ValueError, match="pictures"):
            tiny(wrong)


def test_a_disk_without_room_is_told_before_the_work(splits, tiny, tmp_path, monkeypatch):
    seen, folder = looked_at(tiny), tmp_path / "features"
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(OSError, match="features"):
        extract(splits, tiny, folder, device="cpu")
    assert not seen and not list(folder.glob("*.npy*"))


def test_extracted_rows_are_what_the_backbone_sees(splits, tiny, tmp_path):
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "train_counts.txt").write_text("1\n" * 6)  # of regions that once were here
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
    assert {path.name for path in folder.iterdir()} == names | {"meta.json", "checksums.json"}
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["backbone"], meta["picture_size"], meta["pictures"]["train"]) == ("tiny", 32, 6)


def test_a_mirrored_backbone_adds_the_cells_of_the_mirror_image(splits, tiny, tmp_path):
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
    folder = extract(splits, mirrored, tmp_path / "features", device="cpu")
    assert open_precomp(folder).dev.pictures.shape == (2, 32, 5)
    with pytest.raises(ValueError, match="backbone"):
        extract(splits, tiny, folder, device="cpu")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process must fork")
@pytest.mark.parametrize("batch", [0, 2, 4])
def test_a_killed_extraction_goes_on_with_the_next_batch(splits, tiny, tmp_path, batch):
    folder, seen = tmp_path / "killed", []
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=2, device="cpu")

    def kill(*_):
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
    (folder / ".meta.json.12345678.part").write_text("{")  # what it was writing
    again = looked_at(tiny)
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert len(again) == 5 - batch
    assert contents(folder) == contents(whole)


def test_a_finished_extraction_is_not_done_again(splits, tiny, tmp_path):
    folder = extract(splits, tiny, tmp_path / "features", device="cpu")
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    extract(splits, tiny, folder, device="cpu")
    assert times == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    # A folder from before there were digests is taken as it is.
    (folder / "checksums.json").unlink()
    before, seen = contents(folder), looked_at(tiny)
    extract(splits, tiny, folder, device="cpu")
    assert contents(folder) == before and not seen
    assert check_precomp(folder).problems == []
    assert any(fact.startswith("no checksums") for fact in check_precomp(folder).facts)


def test_an_extraction_waits_for_another_in_its_folder(splits, tiny, tmp_path):
    (tmp_path / "features").mkdir()
    with ThreadPoolExecutor(1) as pool:
        with files.locked(tmp_path / "features", "is testing"):
            waiting = pool.submit(extract, splits, tiny, tmp_path / "features", device="cpu")
            time.sleep(0.3)
            assert not waiting.done()
        assert waiting.result() == tmp_path / "features"


def test_a_folder_of_other_features_is_left_alone(splits, tiny, tmp_path):
    folder = extract(splits, tiny, tmp_path / "features", device="cpu")
    before = contents(folder)
    other = Backbone("tiny", nn.Conv2d(3, 5, 8, 8), tiny.normalise, 32)
    renamed = splits | {"dev": replace(splits["dev"], picture_ids=["other0.jpg", "other1.jpg"])}
    for given, network, dtype, named in (
        (splits, tiny, "float32", "dtype"),
        (splits, other, "float16", "backbone_sha256"),
        (renamed, tiny, "float16", "picture_ids_sha256"),
    ):
        with pytest.raises(ValueError, match=named):
            extract(given, network, folder, device="cpu", dtype=dtype)
    assert contents(folder) == before
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    np.save(elsewhere / "dev_ims.npy", np.zeros((3, 4, 8), np.float16))
    with pytest.raises(ValueError, match="elsewhere"):
        extract(splits, tiny, elsewhere, device="cpu")


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 255
    path.write_bytes(content)


DAMAGES = {
    "cut short": lambda path: os.truncate(path, max(path.stat().st_size - 300, 9)),
    "first byte": lambda path: flip(path, 0),
    "last byte": lambda path: flip(path, -1),
    "removed": lambda path: path.unlink(),
    "another type": lambda path: np.save(path.open("wb"), np.ones((6, 16, 5), np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["train_ims.npy", "train_caps.txt"])
def test_a_finished_folder_that_is_damaged_is_mended(splits, tiny, tmp_path, file, damage):
    folder = extract(splits, tiny, tmp_path / "features", batch_size=2, device="cpu")
    before = contents(folder)
    DAMAGES[damage](folder / file)
    [problem] = check_precomp(folder).problems  # one mistake, one line
    assert "train_" in problem
    extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert contents(folder) == before
    assert not check_precomp(folder).problems


def test_only_blocks_that_are_damaged_are_made_again(splits, tiny, tmp_path, monkeypatch):
    for module in (feature_folder, folder_writer):
        monkeypatch.setattr(module, "BLOCK", 2)
    folder = extract(splits, tiny, tmp_path / "features", batch_size=1, device="cpu")
    before = contents(folder)
    flip(folder / "train_ims.npy", -81)  # of the last row but none before it: a row has 160 bytes
    [problem] = check_precomp(folder).problems
    assert "rows 4 to 5" in problem
    with monkeypatch.context() as patch, pytest.raises(OSError, match="lacks rows"):
        patch.setattr(feature_folder.FeatureRows, "write", lambda *_: None)  # as if the disk had lost them
        extract(splits, tiny, folder, batch_size=1, device="cpu")
    with pytest.raises(ValueError, match="unfinished"):
        open_precomp(folder)
    seen = looked_at(tiny)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))  # the files have their room
    extract(splits, tiny, folder, batch_size=1, device="cpu")
    assert seen == [1, 1] and contents(folder) == before


def test_pictures_that_cannot_be_read_are_named_and_left_out_on_request(album, tiny, tmp_path, capsys):
    pictures, folder, left_out = album(), tmp_path / "features", {"train3.jpg", "test0.jpg"}
    splits, seen = load_karpathy(pictures), looked_at(tiny)
    for path in (pictures / "images" / name for name in left_out):
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"train3.jpg.*--skip-unreadable"):
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert not seen and not folder.exists()  # before any work
    extract(splits, tiny, folder, batch_size=2, device="cpu", skip_unreadable=True)
    message = capsys.readouterr().err
    assert all(f"1 picture ({name}) left out" in message for name in left_out)
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["unreadable"] == {"train": ["train3.jpg"], "test": ["test0.jpg"]}
    report = check_precomp(folder)
    assert report.problems == [] and any("train3.jpg" in fact for fact in report.facts)
    # The folder is that of an album that never had the two pictures; only `meta.json` says more.
    annotations = pictures / "dataset_album.json"
    content = json.loads(annotations.read_text())
    content["images"] = [one for one in content["images"] if one["filename"] not in left_out]
    annotations.write_text(json.dumps(content))
    without = extract(load_karpathy(pictures), tiny, tmp_path / "without", batch_size=2, device="cpu")
    held, other = contents(folder), contents(without)
    assert {name for name in held if held[name] != other[name]} == {"meta.json"}
    assert held.keys() == other.keys()
    with pytest.raises(ValueError, match="unreadable"):
        extract(splits, tiny, folder, batch_size=2, device="cpu")
    assert contents(folder) == held


def test_a_missing_picture_is_left_out_on_request_as_one_that_cannot_be_read(album, tiny, tmp_path):
    pictures, folder = album(), tmp_path / "features"
    (pictures / "images" / "train3.jpg").unlink()
    splits = load_karpathy(pictures, missing=True)
    extract(splits, tiny, folder, batch_size=2, device="cpu", skip_unreadable=True)
    assert json.loads((folder / "meta.json").read_text())["unreadable"]["train"] == ["train3.jpg"]
    assert len(open_precomp(folder).train) == len(splits["train"].files) - 1


def test_corrected_captions_are_written_and_no_picture_is_decoded(album, tiny, tmp_path):
    pictures, folder = album(captions=4), tmp_path / "features"
    extract(load_karpathy(pictures), tiny, folder, batch_size=2, device="cpu")
    annotations = pictures / "dataset_album.json"
    better = annotations.read_text().replace("Caption 2 of the train", "A better one of the train")
    better = json.loads(better)
    better["images"][0]["sentences"].append({"raw": "One more ."})
    annotations.write_text(json.dumps(better))
    corrected, seen = load_karpathy(pictures), looked_at(tiny)
    extract(corrected, tiny, folder, batch_size=2, device="cpu")
    assert not seen
    assert open_precomp(folder).train.captions[2] == "A better one of the train picture 0 ."
    assert not check_precomp(folder).problems
    new = extract(corrected, tiny, tmp_path / "new", batch_size=2, device="cpu")
    assert contents(folder) == contents(new)


def test_numbers_too_large_for_half_precision_are_refused(splits, tmp_path):
    class Loud(nn.Module):
        def forward(self, pictures: Tensor) -> Tensor:
            return 1e4 * pictures[:, :, ::16, ::16]

    loud = Backbone("loud", Loud(), nn.Identity(), 32)
    with pytest.raises(ValueError, match="not finite in float16: float16 ends"):
        extract(splits, loud, tmp_path / "half", device="cpu")
    extract(splits, loud, tmp_path / "single", device="cpu", dtype="float32")


def test_what_cannot_be_extracted_is_refused(album, tiny, tmp_path):
    splits = load_karpathy(album(captions=4))
    mixed = {name: replace(split, owner=split.owner[::-1].copy()) for name, split in splits.items()}
    for given, options, named in (
        (mixed, {}, "in the pictures' order"),
        ({}, {}, "no splits"),
        (splits, {"dtype": "int8"}, "dtype"),
        (splits, {"batch_size": 0}, "batch_size"),
    ):
        with pytest.raises(ValueError, match=named):
            extract(given, tiny, tmp_path / "features", **options)
    assert not (tmp_path / "features").exists()


def test_a_picture_has_as_many_captions_as_it_has(album, tiny, tmp_path):
    splits = load_karpathy(album(captions=2))
    kept = np.flatnonzero(np.arange(len(splits["train"].captions)) != 1)  # the first has one, the others two
    captions = [splits["train"].captions[row] for row in kept]
    splits["train"] = replace(splits["train"], captions=captions, owner=splits["train"].owner[kept])
    found = open_precomp(extract(splits, tiny, tmp_path / "features", device="cpu"))
    for split in (found.train, found.dev, found.test):
        assert split.captions == splits[split.name].captions
        assert np.array_equal(split.owner, splits[split.name].owner)
    assert check_precomp(tmp_path / "features").problems == []
    counts = tmp_path / "features" / "train_caption_counts.txt"
    lines = counts.read_text().split()
    counts.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    with pytest.raises(ValueError, match=r"meta\.json"):
        open_precomp(tmp_path / "features")
