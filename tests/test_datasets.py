"""Photographs behind one door: looked at once, and anew when what they are made from has changed."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from course import datasets
from course.lesson import Lesson
from vsecore.data.backbones import Backbone


class Cells(nn.Module):
    """The mean colours of sixteen cells, times a weight."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, pictures: Tensor) -> Tensor:
        return self.weight * nn.functional.avg_pool2d(pictures.float(), 8)


@pytest.fixture
def weight(tmp_path, monkeypatch):
    """The weight of the network that looks, which a test may change, and a cache of the test's own."""
    weight = {"is": 0.5}
    monkeypatch.setenv("VSECORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        datasets, "load_backbone", lambda *_: Backbone("cells", Cells(weight["is"]), nn.Identity(), 32)
    )
    return weight


def test_photographs_are_looked_at_once(album, weight, monkeypatch):
    folder, read, real = album(), [], datasets.extract
    monkeypatch.setattr(datasets, "extract", lambda *given: read.append(given) or real(*given))
    first, second = (datasets.open_dataset("flickr8k", folder) for _ in range(2))
    assert len(read) == 1 and first.fingerprint() == second.fingerprint() and len(first.train) == 6


def test_other_weights_and_captions_are_seen(album, tmp_path, weight):
    folder = album()
    before = datasets.open_dataset("flickr8k", folder)
    weight["is"] = 1.0
    after = datasets.open_dataset("flickr8k", folder)
    np.testing.assert_array_equal(np.asarray(after.test.pictures), 2 * np.asarray(before.test.pictures))
    assert len([*(tmp_path / "cache" / "features").iterdir()]) == 2
    path = folder / "dataset_album.json"
    path.write_text(path.read_text().replace('"raw": "', '"raw": "Now '))
    assert datasets.open_dataset("flickr8k", folder).train.captions[0].startswith("Now ")


def test_another_picture_under_an_old_name_is_seen(album, tmp_path, weight):
    folder = album()
    before = np.array(datasets.open_dataset("flickr8k", folder).train.pictures)  # a copy, not the file
    Image.new("RGB", (80, 60), "white").save(folder / "images" / "train1.jpg", quality=100)
    after = np.asarray(datasets.open_dataset("flickr8k", folder).train.pictures)
    assert (after[1] == 127.5).all() and not (before[1] == 127.5).any()
    np.testing.assert_array_equal(np.delete(after, 1, 0), np.delete(before, 1, 0))


def test_sizes_leave_the_first_pictures_and_no_other_is_looked_at(album, weight):
    folder = album()
    (folder / "images" / "train5.jpg").write_text("no picture")
    data = datasets.open_dataset("flickr8k", folder, sizes={"train": 2, "test": 99})
    assert [len(split) for split in (data.train, data.dev, data.test)] == [2, 2, 2]
    for wrong in ({"train": 0}, {"train": 2.5}, {"val": 3}):
        with pytest.raises(ValueError, match="sizes"):
            datasets.open_dataset("flickr8k", folder, sizes=wrong)


def test_regions_lie_beside_the_pictures_that_they_are_of(album, weight, tmp_path):
    folder, lesson = album(), Lesson("smoke", "flickr8k", tmp_path, 0)
    assert lesson.regions_or_grid() == "grid"
    cells = datasets.open_dataset("flickr8k", folder)
    (folder / "regions").mkdir()
    for name in ("train", "dev", "test"):
        split = getattr(cells, name)
        np.save(folder / "regions" / f"{name}_ims.npy", np.asarray(split.pictures))
        (folder / "regions" / f"{name}_caps.txt").write_text("".join(f"{line}\n" for line in split.captions))
        boxes = np.tile(np.float32([8, 6, 40, 30]), (*split.pictures.shape[:2], 1))
        np.save(folder / "regions" / f"{name}_boxes.npy", boxes)
    lesson = Lesson("smoke", "flickr8k", folder, 0)
    assert lesson.regions_or_grid() == "region"
    regions = lesson.dataset("region")
    assert regions.feature_kind == "region" and regions.test.captions == cells.test.captions
    width, height = Image.open(datasets.picture_files(folder, "test")[1]).size
    seen = lesson.seen(regions, "test", 1)
    np.testing.assert_allclose(seen.boxes[0], [8 / width, 6 / height, 40 / width, 30 / height])


def test_scenes_have_networks_of_their_own_and_one_that_there_is_not_is_refused(album):
    for features, name in (("grid", "scenes-cnn"), ("patch", "scenes-vit")):
        assert datasets.open_backbone("scenes", features=features).name == name
    for opened in (datasets.open_backbone, datasets.open_dataset):
        with pytest.raises(ValueError, match="name"):
            opened("flickr9k")
        with pytest.raises(ValueError, match="root"):
            opened("flickr8k")
    with pytest.raises(ValueError, match="features"):
        datasets.open_backbone("scenes", features="region")
    with pytest.raises(ValueError, match="region"):
        datasets.open_dataset("flickr8k", album(), features="region")
