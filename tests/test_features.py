import json
import os
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from vsecore.data.batches import make_loader
from vsecore.data.feature_folder import MappedPictures
from vsecore.data.features import check_precomp, open_precomp
from vsecore.data.vocabulary import Vocabulary

SIZES = {"train": 6, "dev": 3, "test": 2}


def write_precomp(folder, repeats=1, ids=True, shape=(4, 8), words="caption"):
    folder.mkdir()
    rng = np.random.default_rng(shape[1])
    for name, count in SIZES.items():
        features = rng.standard_normal((count, *shape)).astype(np.float32)
        np.save(folder / f"{name}_ims.npy", features.repeat(repeats, 0))
        lines = [f"{words} {c} of picture {p}" for p in range(count) for c in range(5)]
        (folder / f"{name}_caps.txt").write_text("\n".join(lines) + "\n")
        if ids:
            identities = "".join(f"{name}{p}.jpg\n" * repeats for p in range(count))
            (folder / f"{name}_ids.txt").write_text(identities)
    return folder


@pytest.mark.parametrize("ids", [True, False])
def test_both_layouts_give_the_same_dataset(tmp_path, ids):
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


def test_features_stay_on_disk_and_travel_by_name(tmp_path):
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


def test_another_split_can_be_the_test(tmp_path):
    folder = write_precomp(tmp_path / "coco")
    for end in ("ims.npy", "caps.txt"):
        shutil.copy(folder / f"train_{end}", folder / f"testall_{end}")
    ids = [f"test{p}.jpg\n" for p in range(6)]  # those of "test", and four more
    (folder / "testall_ids.txt").write_text("".join(ids))
    assert len(open_precomp(folder, test="testall").test) == 6
    with pytest.raises(ValueError, match="test is 'train': wanted a split of its own"):
        open_precomp(folder, test="train")
    report = check_precomp(folder)
    assert not report.problems and any("testall" in fact for fact in report.facts)
    features = np.load(folder / "testall_ims.npy")
    features[5] = np.nan
    np.save(folder / "testall_ims.npy", features)
    (folder / "testall_ids.txt").write_text("".join([*ids[:4], "train0.jpg\n", ids[5]]))
    damaged, shared = check_precomp(folder).problems
    assert "testall_ims.npy, row 5 holds NaN" in damaged
    assert "'train0.jpg' is in split 'train' and in split 'testall'" in shared


def test_a_check_reads_the_rows_that_opening_skips(tmp_path):
    folder = write_precomp(tmp_path / "precomp")
    features = np.zeros((1000, 1, 2), np.float16)
    features[501] = np.inf
    np.save(folder / "dev_ims.npy", features)
    (folder / "dev_caps.txt").write_text("a caption\n" * 5000)
    (folder / "dev_ids.txt").unlink()
    assert "dev_ims.npy, row 501 holds NaN" in check_precomp(folder).problems[0]


def with_meta(**changes):
    """Write a `meta.json` that is right but for the changes."""
    whole = {"kind": "grid", "dtype": "float32", "elements": 4, "feature_dim": 8, "pictures": SIZES}
    return lambda folder: (folder / "meta.json").write_text(json.dumps(whole | changes))


def with_array(change):
    return lambda folder: np.save(folder / "dev_ims.npy", change(np.load(folder / "dev_ims.npy")))


def with_ids(*lines, split="dev"):
    return lambda folder: (folder / f"{split}_ids.txt").write_text("".join(f"{line}\n" for line in lines))


PIPE = getattr(os, "mkfifo", Path.mkdir)  # Windows has none


def in_place_of(file, make):
    def damage(folder):
        (folder / file).unlink(missing_ok=True)
        make(folder / file)

    return damage


def with_nan(array):
    array[1, 2, 3] = np.nan
    return array


def changed(file, change):
    return lambda folder: (folder / file).write_bytes(change((folder / file).read_bytes()))


DAMAGES = [
    # The same picture in two splits, or twice in one.
    (with_ids("train1.jpg", "test1.jpg", split="test"), "'train1.jpg'.*'train'.*'test'"),
    (with_ids("0", "1", "train1.jpg"), "'train1.jpg'.*'train'.*'dev'"),
    (with_ids("a", "b", "a"), "dev_ids.txt, line 3"),
    (with_ids(*"aaaaabbbbbaaaaa"), "dev_ids.txt, line 11"),
    (with_ids(*"aaaaabbbbbccacc"), "dev_ids.txt, lines 11 to 15"),
    (with_ids(*"abcdef"), "dev_ids.txt"),
    # What meta.json says is so.
    (in_place_of("meta.json", lambda path: path.write_text("{")), "meta.json"),
    *(
        (with_meta(**{name: value}), name)
        for name, value in [
            ("kind", "grids"),
            ("dtype", "float16"),
            ("elements", 5),
            ("feature_dim", 9),
            ("pictures", SIZES | {"dev": 4}),
            ("captions_sha256", {"dev": "0" * 64}),
        ]
    ),
    (with_meta(captions_a_picture=4), "train_caps.txt"),
    # Arrays that no network takes, or that do not fit each other.
    (changed("dev_ims.npy", lambda content: content[:-100]), "dev_ims.npy"),
    (with_array(with_nan), "dev_ims.npy, row 1"),
    (with_array(lambda array: array[0]), "dev_ims.npy"),
    (with_array(lambda array: array[..., :7]), "differ in the width"),
    (with_array(lambda array: array[:0]), "dev_ims.npy"),
    (with_array(lambda array: array[:2]), "dev_caps.txt"),
    # Texts that are not whole.
    (changed("dev_caps.txt", lambda content: content[: content[:-1].rindex(b"\n") + 1]), "dev_caps.txt"),
    (changed("dev_caps.txt", lambda content: b"a\n\nb\n"), "dev_caps.txt, line 2"),
    (changed("dev_caps.txt", lambda content: b"caf\xe9\n"), "dev_caps.txt"),
    (in_place_of("dev_caption_ids.txt", lambda path: path.write_text("1\n2\n")), "dev_caption_ids.txt"),
    # Something else in a file's place.
    (in_place_of("dev_ims.npy", lambda path: None), "dev_ims.npy"),
    (in_place_of("dev_caps.txt", lambda path: None), "dev_caps.txt"),
    (in_place_of("dev_ids.txt", Path.mkdir), "dev_ids.txt"),
    (in_place_of("dev_ids.txt", PIPE), "dev_ids.txt"),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGES, ids=range(len(DAMAGES)))
def test_opening_and_checking_refuse_the_same(tmp_path, damage, named):
    folder = write_precomp(tmp_path / "precomp")
    damage(folder)
    with pytest.raises((ValueError, OSError), match=named) as caught:
        open_precomp(folder)
    assert "\n" not in str(caught.value)
    assert any(re.search(named, problem) for problem in check_precomp(folder).problems)


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
def test_what_a_check_calls_ready_can_be_trained_on(tmp_path, change):
    folder = write_precomp(tmp_path / "precomp")
    change(folder)
    assert check_precomp(folder).problems == []
    data = open_precomp(folder)
    vocabulary = Vocabulary.build(data.train.captions, 1)
    for split in (data.train, data.dev, data.test):
        for batch in make_loader(split, vocabulary, 2):
            assert batch.to("cpu").pictures.shape[-1] == data.feature_dim


def test_ids_that_only_count_rows_name_no_pictures(tmp_path):
    folder = write_precomp(tmp_path / "precomp")
    for name, count in SIZES.items():
        with_ids(*map(str, range(count)), split=name)(folder)
    assert check_precomp(folder).problems == []
    assert open_precomp(folder).dev.picture_ids == ["0", "1", "2"]
    with_ids("4", "3", "2", "1", "0", "99", split="train")(folder)
    with pytest.raises(ValueError, match="'0' is in split 'train' and in split 'dev'"):
        open_precomp(folder)


def test_a_check_compares_all_rows_that_are_repeated(tmp_path):
    folder = write_precomp(tmp_path / "five", repeats=5)
    features = np.load(folder / "train_ims.npy")
    features[7, 0, 0] += 1  # in the second five, of six
    np.save(folder / "train_ims.npy", features)
    assert "train_ims.npy, rows 5 to 9 differ" in check_precomp(folder).problems[0]


def test_five_pictures_with_a_caption_each_are_not_one_that_is_repeated(tmp_path):
    folder = write_precomp(tmp_path / "precomp", ids=False)
    np.save(folder / "dev_ims.npy", np.random.default_rng(0).random((15, 4, 8), np.float32))
    (folder / "dev_caption_counts.txt").write_text("1\n" * 15)
    assert len(open_precomp(folder).dev) == 15
    for name in SIZES:
        (folder / f"{name}_caption_counts.txt").unlink(missing_ok=True)
        np.save(folder / f"{name}_ims.npy", np.random.default_rng(0).random((5, 4, 8), np.float32))
        (folder / f"{name}_caps.txt").write_text("".join(f"caption {row}\n" for row in range(5)))
    with_meta(captions_a_picture=1, pictures={})(folder)
    assert [len(split) for split in (open_precomp(folder).train, open_precomp(folder).dev)] == [5, 5]
