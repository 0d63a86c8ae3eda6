"""The course's machinery: parameters, reports, the batch run, and the way of alt text into the book."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import course
from small import SMALL, small_split
from vsecore.data.splits import Dataset
from vsecore.recipes import get
from vsecore.training import RESULTS_VERSION


def test_parameters_are_checked_in_the_first_cell(tmp_path):
    for wrong, word in (
        ({"tier": "quick"}, "tier"),
        ({"data": "flickr"}, "data"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"data": "coco", "data_root": 5}, "data_root"),
        ({"data_root": "here"}, "data_root"),
        ({"data": "coco"}, "data_root"),
    ):
        with pytest.raises(ValueError, match=word):
            course.begin(**wrong)
    with pytest.raises(FileNotFoundError, match="data_root"):
        course.begin(data="coco", data_root="/no/such/folder")
    with pytest.raises(FileNotFoundError, match=r"dataset_coco\.json"):
        course.begin(data="coco", data_root=str(tmp_path))


def test_a_finding_that_fails_stops_the_stored_lesson_and_is_only_told_elsewhere(capsys):
    course.begin().finding("two is more than one", 2 > 1)
    assert capsys.readouterr().out == ""
    with pytest.raises(AssertionError, match="one is more than two"):
        course.begin().finding("one is more than two", 1 > 2)
    for other in (course.begin("smoke"), course.begin(seed=1)):
        other.finding("one is more than two", 1 > 2)
        assert "one is more than two" in capsys.readouterr().out


def test_scenes_are_looked_at_and_judged():
    lesson = course.begin("smoke")
    dataset = lesson.dataset("grid")
    shown = lesson.pictures("test", [0, 3])
    assert [picture.shape for picture in shown] == [(224, 224, 3)] * 2 and shown[0].dtype == np.uint8
    own = dataset.test.captions[int(np.flatnonzero(dataset.test.owner == 3)[0])]
    assert lesson.true_of(own, "test", [3]) == ([True], "")
    truth = lesson.relevance("test")
    assert truth.shape == (1000, 200) and truth[np.arange(1000), dataset.test.owner].all()


def test_two_notebooks_that_train_the_same_do_so_one_after_the_other(tmp_path, monkeypatch, capsys):
    """The second waits, although a training alone in a folder would refuse it; then it finds the run done."""
    lesson, split = course.begin("smoke"), small_split("train", 20)
    dataset = Dataset("small", split, split, split, "grid")
    recipe = get("vsepp_grid_gru").override(SMALL | {"training.epochs": 1})
    monkeypatch.setenv("VSECORE_CACHE", str(tmp_path))
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: lesson.trained(recipe, dataset), range(2))
    assert first.timings == second.timings  # trained once
    (folder,) = [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    assert folder == f"{recipe.hash()}-{dataset.fingerprint()[:12]}-{RESULTS_VERSION}-0"  # nothing else
    assert "waiting until it has finished" in capsys.readouterr().err


def test_photographs_are_opened_by_their_folder(album):
    root = album()
    lesson = course.begin("smoke", "flickr8k", str(root))
    assert lesson.pictures("test", [1])[0].shape == (224, 224, 3)
    assert lesson.true_of("whatever it is", "test", [0]) == (None, "")
    assert lesson.relevance("test") is None


def test_real_photographs_become_features_once(photographs):
    # The whole collection takes minutes: here only that the weights beside it are found.
    from course.datasets import _local_weights

    assert _local_weights(photographs / "flickr8k") == (
        photographs.resolve() / "weights" / "mobilenetv2_100_same.safetensors"
    )
