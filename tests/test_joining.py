"""Features of several networks side by side."""

import json
import shutil

import numpy as np
import pytest

from test_features import write_precomp
from vsecore.data.features import check_precomp, open_precomp
from vsecore.data.joining import join, mean_elements
from vsecore.data.splits import Split


def features(folder, elements, width, words="dog"):
    return write_precomp(folder, shape=(elements, width), words=words)


def test_each_picture_is_its_mean_element_of_every_network(tmp_path):
    small, large = features(tmp_path / "small", 4, 3), features(tmp_path / "large", 9, 5)
    (large / "meta.json").write_text(json.dumps({"kind": "grid", "backbone": "resnet50"}))
    for file in large.glob("*_caps.txt"):  # as the field's folders have them
        file.write_text(file.read_text().replace("\n", " .\n"))
    for folder in (small, large):
        for file in folder.glob("test_*"):
            shutil.copy(file, folder / file.name.replace("test_", "testall_"))
    joined = open_precomp(join([small, large], tmp_path / "both"))
    wanted = np.concatenate([np.load(each / "dev_ims.npy").mean(1) for each in (small, large)], axis=1)
    assert np.allclose(joined.dev.pictures[:], wanted[:, None], atol=1e-3)
    assert (joined.feature_kind, joined.feature_dim) == ("grid", 8)
    before = open_precomp(small)
    assert joined.test.captions == before.test.captions
    assert joined.test.picture_ids == before.test.picture_ids
    assert json.loads((tmp_path / "both" / "meta.json").read_text())["backbone"] == "small + resnet50"
    assert not check_precomp(tmp_path / "both").problems
    every = open_precomp(tmp_path / "both", test="testall").test
    assert np.array_equal(every.pictures[:], joined.test.pictures[:])


def test_cells_of_one_place_are_joined_if_grids_are_equal(tmp_path):
    one, other = features(tmp_path / "one + 1", 4, 3), features(tmp_path / "other", 4, 5)
    for folder in (one, other):
        (folder / "meta.json").write_text(json.dumps({"kind": "grid"}))
    joined = open_precomp(join([one, other], tmp_path / "both", cells=True))
    wanted = np.concatenate([np.load(each / "test_ims.npy") for each in (one, other)], axis=2)
    assert np.allclose(joined.test.pictures[:], wanted, atol=1e-3)
    assert not check_precomp(tmp_path / "both").problems
    with pytest.raises(ValueError, match="grid of 4, region of 9"):
        join([one, features(tmp_path / "larger", 9, 5)], tmp_path / "no", cells=True)


def test_padding_is_not_averaged():
    pictures = np.array([[[1.0], [3.0], [99.0]], [[5.0], [99.0], [99.0]]], np.float32)
    split = Split("train", pictures, ["a", "b"], np.arange(2), ["0", "1"], np.array([2, 1]))
    assert mean_elements(split).tolist() == [[2.0], [5.0]]


def test_only_features_of_the_same_pictures_are_joined_and_nothing_is_overwritten(tmp_path):
    one, other = features(tmp_path / "one", 2, 3), features(tmp_path / "other", 2, 3, words="cat")
    with pytest.raises(ValueError, match=f"{other}: its train split has other pictures or captions"):
        join([one, other], tmp_path / "both")
    assert not (tmp_path / "both").exists()
    with pytest.raises(ValueError, match="wanted at least two"):
        join([one], tmp_path / "both")
    with pytest.raises(ValueError, match="holds features from elsewhere"):
        join([one, one], one)
    loud = features(tmp_path / "loud", 2, 3)
    np.save(loud / "train_ims.npy", 1e5 * np.load(one / "train_ims.npy"))
    with pytest.raises(ValueError, match=f"train0.jpg in {loud} are not finite in float16: float16 ends"):
        join([one, loud], tmp_path / "both")
