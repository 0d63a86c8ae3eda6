"""Bottom-up attention's features, in the two formats that the field shares, become a folder to train on."""

import base64
import json
import os
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from small import contents
from vsecore.cli import app
from vsecore.data.boxes import places_of, with_boxes
from vsecore.data.butd import import_regions
from vsecore.data.features import check_precomp, open_precomp
from vsecore.experiments import run, running
from vsecore.recipes import get
from vsecore.training import fit

REGIONS, WIDTH = 6, 8
NUMBERS = {"train": [9, 391895, 522418], "restval": [184613], "val": [574769], "test": [203564, 318219]}


@pytest.fixture
def coco(tmp_path):
    """COCO's `dataset_coco.json` as Karpathy shares it, with pictures of both of its folders."""
    images = []
    for split, numbers in NUMBERS.items():
        for number in numbers:
            folder = "train2014" if split == "train" else "val2014"
            sentences = [
                {"tokens": ["a", "dog"], "raw": f"A dog {c} of {number}.", "imgid": len(images), "sentid": c}
                for c in range(5 + (number == 9))  # some have more than five
            ]
            name = f"COCO_{folder}_{number:012d}.jpg"
            image = {"filepath": folder, "filename": name, "split": split, "cocoid": number}
            images.append(image | {"imgid": len(images), "sentences": sentences})
    path = tmp_path / "dataset_coco.json"
    path.write_text(json.dumps({"images": images, "dataset": "coco"}))
    return path


def region(number, regions=REGIONS):
    dice = np.random.default_rng(number)
    corner = dice.uniform(0, 200, (regions, 2))
    boxes = np.concatenate([corner, corner + dice.uniform(1, 200, (regions, 2))], 1)
    return dice.random((regions, WIDTH), np.float32), boxes.astype(np.float32)


def encoded(array):
    return base64.b64encode(array.astype(np.float32).tobytes()).decode()


def line(number, name=None, columns=6, regions=REGIONS):
    features, boxes = region(number, regions)
    between = {6: ["640", "480"], 10: ["480", "640", "ids", "conf", "ids", "conf"]}[columns]
    return "\t".join([name or str(number), *between, str(regions), encoded(boxes), encoded(features)]) + "\n"


ALL = [number for numbers in NUMBERS.values() for number in numbers]


@pytest.fixture
def table(tmp_path):
    """Another order than that of the captions, and pictures that no split has."""
    path = tmp_path / "trainval_36.tsv"
    path.write_text("".join(line(number) for number in [77, *reversed(ALL), 78]))
    return path


def holds_them(folder, dtype="float16"):
    assert check_precomp(folder).problems == []
    data = open_precomp(folder)
    assert data.name == "coco" and data.feature_kind == "region"
    wanted = {"train": NUMBERS["train"] + NUMBERS["restval"], "dev": NUMBERS["val"], "test": NUMBERS["test"]}
    for name, numbers in wanted.items():
        split, boxes = getattr(data, name), np.load(folder / f"{name}_boxes.npy")
        assert split.picture_ids == [str(number) for number in numbers]
        assert split.captions[:2] == [f"A dog {c} of {numbers[0]}." for c in (0, 1)]
        assert split.pictures.dtype == dtype
        for row, number in enumerate(numbers):
            features, places = region(number)
            assert np.array_equal(split.pictures[row], features.astype(dtype))
            assert np.array_equal(boxes[row], places)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_table_becomes_a_folder(coco, table, tmp_path, dtype):
    folder = tmp_path / "out"
    command = ["data", "import", str(table), "--captions", str(coco), "--out", str(folder), "--dtype", dtype]
    said = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "4 pictures" in said.stdout and "2 lines of pictures that are in no split: left out" in said.stderr
    holds_them(folder, dtype)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    import_regions([table], coco, folder, dtype=dtype)
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_tables_may_be_several_with_names_of_columns_and_ten_of_them(coco, tmp_path):
    one, other = tmp_path / "a.tsv.0", tmp_path / "a.tsv.1"
    head = "image_id\timage_w\timage_h\tnum_boxes\tboxes\tfeatures\r\n"
    one.write_text(head + "".join(line(number).replace("\n", "\r\n") for number in ALL[:4]))
    # Of a picture with two lines, the first counts.
    rest = "".join(line(number, f"COCO_val2014_{number:012d}", 10) for number in ALL[4:])
    other.write_text(line(1, str(ALL[2])) + rest)
    holds_them(import_regions([one, other], coco, tmp_path / "out"))


NAMES = {
    "number": str,
    "twelve digits": lambda number: f"{number:012d}",
    "file of 2017": lambda number: f"{number:012d}.jpg",
    "file": lambda number: f"COCO_{'train' if number in NUMBERS['train'] else 'val'}2014_{number:012d}.jpg",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_arrays_becomes_a_folder(coco, tmp_path, name):
    (tmp_path / "plain").mkdir()
    (tmp_path / "boxed").mkdir()
    for number in [*ALL, 77]:
        features, boxes = region(number)
        np.save(tmp_path / "plain" / f"{NAMES[name](number)}.npy", features)
        np.savez(tmp_path / "boxed" / f"{NAMES[name](number)}.npz", features=features, bbox=boxes)
    holds_them(import_regions([tmp_path / "boxed"], coco, tmp_path / "out"))
    plain = import_regions([tmp_path / "plain"], coco, tmp_path / "other")
    assert check_precomp(plain).problems == [] and not list(plain.glob("*_boxes.npy"))


@pytest.mark.parametrize("kind", ["table", "archives"])
def test_pictures_with_different_numbers_of_regions_are_padded_and_masked(coco, tmp_path, kind):
    counts = {number: 10 + 7 * place for place, number in enumerate(ALL)}
    source = tmp_path / "source"
    if kind == "table":
        source.write_text("".join(line(number, regions=count) for number, count in counts.items()))
    else:
        source.mkdir()
        for number, count in counts.items():
            features, places = region(number, count)
            np.savez_compressed(source / f"{number}.npz", bbox=places, features=features)
    folder = import_regions([source], coco, tmp_path / "out")
    assert check_precomp(folder).problems == []
    data = with_boxes(open_precomp(folder))
    for split in (data.train, data.dev, data.test):
        real = [counts[int(identity)] for identity in split.picture_ids]
        assert split.picture_counts is not None and split.picture_counts.tolist() == real
        for row, count in enumerate(real):
            features, places = region(int(split.picture_ids[row]), count)
            picture = split.pictures[row]
            assert picture.shape == (max(counts.values()), WIDTH + 6)
            assert np.array_equal(picture[:count, :WIDTH], features.astype(np.float16))
            assert np.array_equal(picture[:count, WIDTH:], places_of(places).astype(np.float16))
            assert not picture[count:].any()
    before = contents(folder)
    import_regions([source], coco, folder)
    assert contents(folder) == before
    (folder / "dev_counts.txt").write_text("11\n")
    assert "dev_counts.txt" in check_precomp(folder).problems[0]
    with pytest.raises(ValueError, match=r"dev_counts.txt"):
        open_precomp(folder)
    import_regions([source], coco, folder)
    assert contents(folder) == before


DAMAGES = {
    "a column is missing": lambda fields: fields[:4],
    "another count of boxes": lambda fields: [*fields[:3], "5", *fields[4:]],
    "features that are not finite": lambda fields: [*fields[:5], encoded(np.full((REGIONS, WIDTH), np.nan))],
    "narrower than the first": lambda fields: [*fields[:5], encoded(region(1)[0][:, :4])],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_table_is_named_and_what_was_done_is_kept(coco, table, tmp_path, damage):
    whole, good = contents(import_regions([table], coco, tmp_path / "whole")), table.read_text()
    lines = good.splitlines()
    lines[2] = "\t".join(DAMAGES[damage](lines[2].split("\t")))
    table.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(ValueError, match=r"trainval_36.tsv, line 3"):
        import_regions([table], coco, tmp_path / "out")
    table.write_text(good)
    assert contents(import_regions([table], coco, tmp_path / "out")) == whole


def test_damaged_arrays_are_named(coco, tmp_path):
    source = tmp_path / "features"
    source.mkdir()
    for number in ALL:
        np.save(source / f"{number}.npy", region(number)[0])
    path = source / "522418.npy"
    good = path.read_bytes()
    pickle, wide, infinite = np.array([{}]), np.zeros((REGIONS, WIDTH + 1)), np.full((REGIONS, WIDTH), 1e9)
    for bad in (good[:-9], b"", b"text" * 99, pickle, np.zeros((2, 3, 4)), wide, infinite):
        if isinstance(bad, bytes):
            path.write_bytes(bad)
        else:
            np.save(path, bad, allow_pickle=True)
        with pytest.raises(ValueError, match=r"522418.npy"):
            import_regions([source], coco, tmp_path / "out")
    path.unlink()
    with pytest.raises(ValueError, match=r"COCO_train2014_000000522418.jpg.* of split 'train' not found"):
        import_regions([source], coco, tmp_path / "out")
    path.write_bytes(good)
    import_regions([source], coco, tmp_path / "out")
    (source / "000000522418.npy").write_bytes(good)
    with pytest.raises(ValueError, match="are both of one picture"):
        import_regions([source], coco, tmp_path / "out")


def test_what_cannot_be_imported_is_refused(coco, table, tmp_path):
    out = tmp_path / "out"
    os.mkfifo(tmp_path / "pipe.tsv")
    for sources, captions, options, kind, named in (
        ([], coco, {}, ValueError, "sources"),
        ([tmp_path / "pipe.tsv"], coco, {}, FileNotFoundError, "pipe.tsv"),
        ([table, tmp_path], coco, {}, ValueError, "sources"),
        ([out.parent], coco, {"folder": tmp_path}, ValueError, "sources"),
        ([table], coco, {"dtype": "int8"}, ValueError, "dtype"),
    ):
        with pytest.raises(kind, match=named):
            import_regions(sources, captions, **{"folder": out, **options})
    assert not out.exists()
    import_regions([table], coco, out)
    with pytest.raises(ValueError, match="dtype"):
        import_regions([table], coco, out, dtype="float32")


def test_memory_does_not_grow_with_the_table(coco, tmp_path):
    """A table of 40 MB, most of it of a picture in no split."""
    table = tmp_path / "large.tsv"
    with table.open("w") as file:
        for number in ALL:
            file.write(line(number))
        strange = line(1, "1000000", regions=100 * REGIONS)
        for _ in range(40 * 2**20 // len(strange)):
            file.write(strange)
    tracemalloc.start()
    folder = import_regions([table], coco, tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    tracemalloc.stop()
    holds_them(folder)


def test_where_a_region_lies_is_told_in_shares_of_its_picture():
    boxes = np.array([[0, 0, 640, 480], [320, 120, 480, 360]], np.float32)
    assert places_of(boxes).tolist() == [[0, 0, 1, 1, 1, 1], [0.5, 0.25, 0.75, 0.75, 0.25, 0.5]]
    assert np.array_equal(places_of(np.stack([boxes, boxes / 2])), np.stack([places_of(boxes)] * 2))


def test_without_its_boxes_a_folder_is_refused_by_name(coco, table, tmp_path, monkeypatch):
    folder = import_regions([table], coco, tmp_path / "out")
    with pytest.raises(ValueError, match="reads boxes"):
        fit(get("tern_region_words"), open_precomp(folder))
    (folder / "dev_boxes.npy").unlink()
    planned, said, one = [], [], SimpleNamespace(seconds=1.0)
    how = {"scale": "paper", "dry_run": True, "log": said.append, "open_data": lambda _: open_precomp(folder)}
    monkeypatch.setattr(running, "plan", lambda recipe, *_, **how: planned.append(recipe.name) or one)
    with pytest.raises(FileNotFoundError, match=r"dev_boxes\.npy"):
        run("cross_attention", arms=["TERN"], **how)
    run("cross_attention", **how)
    assert said[0].startswith("TERN is left out: no file") and not any("--vectors" in line for line in said)
    assert "scan_region_gru+scan_coco+i2t+i2t_coco" in planned, "as its paper has it on COCO"
    run("set_similarities", arms=["DivE"], **how)
    assert any("--vectors" in line for line in said), "it begins with GloVe"
    np.save(folder / "dev_boxes.npy", np.zeros((1, REGIONS - 1, 4), np.float32))
    with pytest.raises(ValueError, match=r"dev_boxes\.npy"):
        with_boxes(open_precomp(folder))


def as_python_writes_bytes(number):
    *others, boxes, features = line(number).rstrip("\n").split("\t")
    return "\t".join([*others, f"b'{boxes}'", f"b'{features}'"]) + "\n"


def half_then_whole(number):
    whole = line(number)
    return whole[: len(whole) * 2 // 3] + "\n" + whole


@pytest.mark.parametrize("written", [as_python_writes_bytes, half_then_whole])
def test_tables_as_other_programs_leave_them_are_read(coco, tmp_path, written):
    path = tmp_path / "others.tsv"
    path.write_text("".join(map(written, ALL)))
    found = open_precomp(import_regions([path], coco, tmp_path / "out"))
    for row, number in enumerate(NUMBERS["train"]):
        assert np.array_equal(found.train.pictures[row], region(number)[0].astype("float16"))


def test_arrays_may_be_turned(coco, tmp_path):
    (tmp_path / "features").mkdir()
    for number in ALL:
        features = np.full((600, REGIONS), number % 7, np.float32)
        np.savez(tmp_path / "features" / f"{number}.npz", features=features, bbox=region(number)[1].T)
    folder = import_regions([tmp_path / "features"], coco, tmp_path / "out")
    assert open_precomp(folder).train.pictures.shape[1:] == (REGIONS, 600)
    assert np.array_equal(np.load(folder / "dev_boxes.npy")[0], region(NUMBERS["val"][0])[1])
