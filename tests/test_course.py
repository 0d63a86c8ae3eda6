"""The course's machinery: parameters, reports, the batch run, and the way of alt text into the book."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import course
from course import lesson as lessons
from small import SMALL, small_split
from vsecore.data.splits import Dataset
from vsecore.recipes import get
from vsecore.training import RESULTS_VERSION


def test_parameters_are_checked_in_the_first_cell(tmp_path: Path) -> None:
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


def test_each_tier_picks_its_own() -> None:
    for tier in lessons.TIERS:
        assert course.begin(tier).pick(smoke="smoke", lesson="lesson", full="full") == tier


def test_a_finding_that_fails_stops_the_stored_lesson_and_is_only_told_elsewhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    course.begin().finding("two is more than one", 2 > 1)
    assert capsys.readouterr().out == ""
    with pytest.raises(AssertionError, match="one is more than two"):
        course.begin().finding("one is more than two", 1 > 2)
    for other in (course.begin("smoke"), course.begin(seed=1)):
        other.finding("one is more than two", 1 > 2)
        assert "one is more than two" in capsys.readouterr().out


def test_published_numbers_add_up_to_the_papers_own_rsum() -> None:
    table = course.published("VSE++")
    assert all(rsum in table for rsum in ("409.8", "478.6", "355.7"))  # as Kim et al. 2023 print them
    names = ("PVSE", "SCAN", "VSRN", "VSE∞, ResNeXt-101, BERT", "DivE, ResNeXt-101, BERT")
    table = course.published(*names, data="coco")
    printed = [492.8, 374.4, 507.9, 410.9, 516.8, 415.7, 545.4, 468.9, 549.9, 482.0]  # of rounded recalls
    sums = [float(line.split(" | ")[7]) for line in table.splitlines()[2:]]
    assert sums == pytest.approx(printed, abs=0.11)
    assert "flickr30k" not in course.published("VSE++", data="coco")
    with pytest.raises(ValueError, match="VSE-"):
        course.published("VSE--")


def test_a_published_row_says_what_it_took() -> None:
    (shown,) = course.published("CLIP ViT-B/32, zero-shot", data="flickr30k").splitlines()[2:]
    cells = [cell.strip() for cell in shown.strip("|").split("|")]
    assert cells[1:4] == ["whole picture (ViT-B/32), Transformer", "1", "400 million"]
    assert cells[5:8] == ["– / – / –", "– / – / –", "504.4"] and "not checked" in cells[9]
    assert " | 2 | 0 | " in course.published("ESA, BiGRU") and " | 1 | not known | " in course.published(
        "MVP"
    )


def test_what_is_not_printed_is_a_dash_and_the_printed_rsum_stands() -> None:
    (shown,) = course.published("VSE+2AD with LIP").splitlines()[2:]
    assert " | 52.2 / 81.1 / – | 38.4 / 69.3 / – | 414.8 | " in shown
    table = course.published("VSE∞ (R, BiGRU)", data="coco")
    assert "520.8 | Chen et al. 2021" in table and "; misprint: the rsum is printed as 520.5" in table


def test_this_machine_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    course.check_machine()
    assert "This machine is ready." in capsys.readouterr().out
    course.check_machine(least_gigabytes=1e6)
    assert "✗ memory" in capsys.readouterr().out


def test_scenes_are_looked_at_judged_and_trained_on_once() -> None:
    lesson = course.begin("smoke")
    dataset = lesson.dataset("grid")
    shown = lesson.pictures("test", [0, 3])
    assert [picture.shape for picture in shown] == [(224, 224, 3)] * 2 and shown[0].dtype == np.uint8
    own = dataset.test.captions[int(np.flatnonzero(dataset.test.owner == 3)[0])]
    assert lesson.true_of(own, "test", [3]) == ([True], "")
    truth = lesson.relevance("test")
    assert truth.shape == (1000, 200) and truth[np.arange(1000), dataset.test.owner].all()
    recipe = get("vsepp_grid_gru").override({"dim": 16, "text.encoder.word_dim": 8, "training.epochs": 1})
    first, second = lesson.trained(recipe, dataset), lesson.trained(recipe, dataset)
    assert second.best == first.best and second.timings == first.timings  # not trained again


def test_two_notebooks_that_train_the_same_do_so_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_photographs_are_opened_by_their_folder(album: Callable[..., Path]) -> None:
    root = album()
    lesson = course.begin("smoke", "flickr8k", str(root))
    assert lesson.pictures("test", [1])[0].shape == (224, 224, 3)
    assert lesson.true_of("whatever it is", "test", [0]) == (None, "")
    assert lesson.relevance("test") is None


def test_real_photographs_become_features_once(photographs: Path) -> None:
    # The whole collection takes minutes: here only that the weights beside it are found.
    from course.datasets import _local_weights

    assert _local_weights(photographs / "flickr8k") == (
        photographs.resolve() / "weights" / "mobilenetv2_100_same.safetensors"
    )
