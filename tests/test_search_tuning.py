"""Captions of one's own: read, split without leaks, learned by heart first, and never collapsed."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from small import recipe, small_data, train
from towers import make_extracted

pytest.importorskip("qdrant_client", reason="needs the extra search")

from vsecore.data.copies import copies
from vsecore.data.features import open_precomp
from vsecore.data.splits import Split
from vsecore.search import Engine
from vsecore.search.tuning import check_overfit, read_captions, refuse_collapse, tune
from vsecore.training import load_run

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (30, 40, 210), "yellow": (220, 210, 40)}
THINGS = ["house", "tree", "boat", "tower", "bridge", "lamp"]


@pytest.fixture
def album(tmp_path):
    root = tmp_path / "album"
    root.mkdir()
    for row in range(24):
        pixels = np.random.default_rng(row).integers(118, 132, (64, 64, 3)).astype(np.uint8)
        colour = list(COLOURS.values())[row % 4]
        pixels[8 * (row // 4) : 8 * (row // 4) + 16, : 8 + 2 * row] = colour
        Image.fromarray(pixels).save(root / f"{row}.png")
    return root


def captions_of(count=24):
    return [
        [f"{row}.png", f"a {list(COLOURS)[row % 4]} {THINGS[row // 4]} number {row}"] for row in range(count)
    ]


@pytest.fixture
def written(album):
    def write(*rows, header=("file", "caption")):
        path = album.parent / "captions.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
        return path

    return write


def test_every_picture_is_in_one_split_and_keeps_its_captions(album, written):
    splits = read_captions(written(*captions_of(), ["3.png", "one more of number 3"]), album)
    assert {name: len(split.files) for name, split in splits.items()} == {"train": 20, "dev": 2, "test": 2}
    assert len({file for one in splits.values() for file in one.files}) == 24
    for one in splits.values():
        for caption, owner in zip(one.captions, one.owner, strict=True):
            assert caption.endswith(f"number {one.files[owner].stem}") or one.files[owner].stem == "3"
    assert read_captions(written(*captions_of()), album)["test"].files == splits["test"].files


def test_captions_that_are_not_there_are_no_empty_ones(album):
    with pytest.raises(FileNotFoundError, match=r"captoins\.csv"):
        read_captions(album.parent / "captoins.csv", album)


def test_copies_of_a_picture_stay_in_one_split(album, written):
    for row in range(24):
        Image.open(album / f"{row}.png").resize((50, 50)).save(album / f"copy{row}.jpg", quality=90)
    rows = [*captions_of(), *([f"copy{file[:-4]}.jpg", caption] for file, caption in captions_of())]
    splits = read_captions(written(*rows), album)
    for one in splits.values():
        stems = {file.stem.removeprefix("copy") for file in one.files}
        assert len(stems) == len(one.files) / 2


def test_of_pictures_that_cannot_be_read_only_the_bytes_are_compared(tmp_path):
    files = [tmp_path / name for name in ("a.jpg", "b.jpg", "c.jpg", "black.png")]
    for file, junk in zip(files, (b"one", b"other", b"one"), strict=False):
        file.write_bytes(junk)
    Image.new("RGB", (40, 30)).save(files[-1])
    assert copies(files) == [[files[0], files[2]], [files[1]], [files[3]]]


def test_pale_copies_are_found_among_many_pictures(tmp_path):
    pale = Image.fromarray(np.random.default_rng(0).integers(244, 256, (40, 40, 3), np.uint8))
    files = [tmp_path / f"{row}.png" for row in range(90)]
    for row, file in enumerate(files[:-2]):
        Image.new("RGB", (40, 40), (250, 250, 160 + row)).save(file)
    for file, level in zip(files[-2:], (0, 9), strict=True):
        pale.save(file, compress_level=level)
    files.append(tmp_path / "the first.png")
    files[-1].write_bytes(files[0].read_bytes())  # nearly flat: the same bytes are the same picture
    groups = copies(files)
    assert files[-3:-1] in groups and [files[0], files[-1]] in groups


def test_split_leakage_is_refused_by_name(album, written):
    names = ["train"] * 18 + ["dev"] * 3 + ["test"] * 3
    rows = [[*row, name] for row, name in zip(captions_of(), names, strict=True)]
    header = ("file", "caption", "split")
    assert len(read_captions(written(*rows, header=header), album)["dev"].files) == 3
    Image.open(album / "2.png").save(album / "holiday.jpg", quality=92)
    leak = ["holiday.jpg", "a picture once more", "test"]
    with pytest.raises(ValueError, match=r"split leakage: 2\.png \(train\) and holiday\.jpg \(test\)"):
        read_captions(written(*rows, leak, header=header), album)
    with pytest.raises(ValueError, match=r"split leakage.*2\.png is in test and in train"):
        read_captions(written(*rows, ["2.png", "again", "test"], header=header), album)


def test_a_csv_that_cannot_be_used_is_told_with_its_line(album, written):
    lines = [["0.png", "a dog\non two lines"], ["1.png", "with a \u2028 separator"]]
    splits = read_captions(written(*lines, *captions_of()[2:]), album)
    captions = [caption for one in splits.values() for caption in one.captions]
    assert {"a dog on two lines", "with a separator"} < set(captions)
    for rows, error, named in (
        ([*lines, ["2.png", " "]], ValueError, "line 5: .*caption ''"),  # as an editor counts them
        ([*captions_of(), ["nothing.png", "x"]], FileNotFoundError, r"nothing\.png of line 26"),
        ([["../captions.csv", "x"]], ValueError, "line 2: .*outside"),
        (captions_of(3), ValueError, "captions of 3 pictures"),
    ):
        with pytest.raises(error, match=named):
            read_captions(written(*rows), album)
    with pytest.raises(ValueError, match="columns"):
        read_captions(written(header=("picture", "text")), album)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    words = " ".join([*COLOURS, *THINGS, "number", *map(str, range(24))])
    root = make_extracted(tmp_path_factory.mktemp("first"), words)
    frozen = {"training__epochs": 2, "training__frozen_epochs": 1}  # as many as are tuned below
    chosen = recipe(losses="info_nce", training__learning_rate=0.01, **frozen)
    train(chosen, open_precomp(root / "features"), folder=root / "run")
    return Engine.of_run(root / "run", features=root / "features")


def test_a_stopped_tuning_goes_on_with_the_same_bits_and_its_run_knows_its_network(
    engine, album, written, tmp_path
):
    splits, said = read_captions(written(*captions_of()), album), []

    def stop(line):
        if line.startswith("epoch 1"):
            raise KeyboardInterrupt

    options = {"epochs": 2, "learning_rate": 0.01}
    with pytest.raises(KeyboardInterrupt):
        tune(engine, splits, tmp_path / "stopped", **options, tell=stop)
    with pytest.raises(ValueError, match="stopped"):
        tune(engine, splits, tmp_path / "stopped", **options, tell=stop)
    resumed = tune(engine, splits, tmp_path / "stopped", **options, resume=True, tell=said.append)
    assert not any("learned by heart" in line for line in said)  # that was seen before it was stopped
    whole = tune(engine, splits, tmp_path / "whole", **options, resume=True, tell=said.append)
    assert any("learned by heart" in line for line in said)  # nothing was there to go on with
    assert "before: no rsum" in "".join(said) and said[-1].startswith("after: no rsum")  # of two pictures
    pairs = zip(resumed.model.state_dict().values(), whole.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    tuned = Engine.of_run(tmp_path / "whole")
    assert tuned.backbone is not None and tuned.backbone.name == "scenes-cnn"
    assert tuned.fingerprint != engine.fingerprint


def test_tuning_goes_on_from_the_engines_weights_and_ends_if_the_model_collapses(
    engine, album, written, tmp_path, monkeypatch
):
    monkeypatch.setattr("vsecore.search.tuning.check_overfit", lambda *_, **__: 100.0)
    splits, options = read_captions(written(*captions_of()), album), {"epochs": 1, "learning_rate": 1e-9}
    run = tune(engine, splits, tmp_path / "run", **options)
    weights = engine.model.state_dict()
    for name, weight in run.model.state_dict().items():  # a rate of nearly nothing changes nearly nothing
        torch.testing.assert_close(weight, weights[name].cpu(), atol=1e-6, rtol=0)
    usual = tune(engine, splits, tmp_path / "usual", epochs=1)
    before = load_run(engine.source.run).recipe.training.learning_rate
    assert usual.recipe.training.learning_rate == pytest.approx(before / 5)
    monkeypatch.setattr("vsecore.search.tuning.COLLAPSED", -1.0)
    for resume in (False, True):  # at last no epoch is left, and still it says so
        with pytest.raises(ValueError, match="collapsed"):
            tune(engine, splits, tmp_path / "other", **options, resume=resume)


def test_pairs_that_cannot_be_learned_by_heart_end_the_work(engine, monkeypatch):
    """The pictures are all the same, so that nothing tells which caption is whose."""
    features = np.ones((20, 49, engine.backbone.feature_dim), np.float16)
    captions = [f"number {row}" for row in range(20)]
    split = Split("train", features, captions, np.arange(20), [f"{row}.png" for row in range(20)])
    learner = load_run(engine.source.run).recipe
    with pytest.raises(ValueError, match=r"overfit check: after 3 epochs on 20 pairs"):
        check_overfit(learner, split, engine.tokenizer, None, epochs=3)
    asked = []  # it judges the model and no average, and nothing is left out of what it reads
    monkeypatch.setattr("vsecore.search.tuning.fit", lambda plain, *_, **__: asked.append(plain))
    training = replace(learner.training, snapshots=5, warmup_steps=9)
    drop = {"text": replace(learner.text, word_drop=0.2), "image": replace(learner.image, element_drop=0.2)}
    learner = replace(learner, training=training, **drop)
    with pytest.raises(ValueError, match="overfit check"):
        check_overfit(learner, split, engine.tokenizer, None, epochs=3)
    shorter = asked[0].training
    assert (shorter.snapshots, shorter.warmup_steps, shorter.epochs) == (0, 0, 3)
    assert asked[0].text.word_drop == asked[0].image.element_drop == 0


def test_a_collapsed_model_is_refused_by_name():
    run = train(recipe(training__epochs=1))
    data = small_data()
    assert refuse_collapse(run.model, data.dev, run.tokenizer) < 0.99
    with torch.no_grad():
        for weight in run.model.image_encoder.parameters():
            weight.mul_(1e-3)
        next(p for n, p in run.model.image_encoder.named_parameters() if n.endswith("bias")).fill_(1.0)
    with pytest.raises(ValueError, match=r"has collapsed.*cosine"):
        refuse_collapse(run.model, data.dev, run.tokenizer)
