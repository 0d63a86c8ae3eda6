"""COCO's numbers of the captions go with them, from the annotations to the tables that ask for them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coco import make_coco
from vsecore import evaluation
from vsecore.cli import app
from vsecore.data.extraction import extract
from vsecore.data.features import check_precomp, open_precomp
from vsecore.data.joining import join
from vsecore.data.karpathy import from_files, load_karpathy, numbered
from vsecore.data.photographs import View


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    return make_coco(tmp_path_factory.mktemp("coco"))


@pytest.fixture
def features(coco, tiny, tmp_path_factory):
    return extract(load_karpathy(coco), tiny, tmp_path_factory.mktemp("features") / "coco")


def copied(features, folder, without="-"):
    for path in features.iterdir():
        if without not in path.name:
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def test_each_caption_keeps_its_number(coco, features):
    images = json.loads((coco / "dataset_coco.json").read_text())["images"]
    known = {str(one["sentid"]): one["raw"] for image in images for one in image["sentences"]}
    for name in ("train", "dev", "test"):
        sources = (load_karpathy(coco)[name], getattr(open_precomp(features), name))
        for split in (*sources, getattr(from_files(load_karpathy(coco), View()), name)):
            assert split.caption_ids is not None
            assert [known[number] for number in split.caption_ids] == split.captions
    assert len(known) > sum(len(split.captions) for split in load_karpathy(coco).values())  # one has six


def test_numbers_change_no_fingerprint(features, tmp_path):
    with_numbers, without = open_precomp(features), open_precomp(copied(features, tmp_path, "caption_ids"))
    assert without.test.caption_ids is None
    assert without.fingerprint() == with_numbers.fingerprint()
    assert without.test.names_digest() == with_numbers.test.names_digest() != with_numbers.dev.names_digest()
    assert not check_precomp(features).problems


def test_a_subset_and_a_joined_folder_keep_them(coco, features, tmp_path):
    split, first = load_karpathy(coco)["test"], load_karpathy(coco)["test"].subset(2)
    assert split.caption_ids is not None and first.caption_ids == split.caption_ids[:10]
    assert first.captions == split.captions[:10]
    assert len(first.files) == len(first.picture_ids) == 2 and first.owner.tolist() == [0] * 5 + [1] * 5
    assert open_precomp(features).test.subset(2).caption_ids == first.caption_ids
    join([features, features], tmp_path / "joined")
    assert open_precomp(tmp_path / "joined").test.caption_ids == split.caption_ids


def test_the_tables_of_coco_get_the_numbers_of_the_run(coco, features, tmp_path, monkeypatch):
    given = []

    def tables(scores, pictures, captions):
        given.append((tuple(scores.shape), pictures, captions))
        return {"cxc_i2t_r1": 12.5}

    def ask(*words):
        told = CliRunner().invoke(app, list(words), catch_exceptions=False)
        assert told.exit_code == 0, told.output
        return told.output

    monkeypatch.setattr(evaluation, "coco_benchmarks", tables)
    out, records = str(tmp_path / "run"), str(tmp_path / "records")
    small = ["dim=8", "training.epochs=1", "training.batch_size=4", "text.encoder.word_dim=4"]
    settings = [f"--set={one}" for one in (*small, "text.encoder.minimum_count=1")]
    ask("train", "vsepp_grid_gru", "--data", str(features), "--out", out, "--device", "cpu", *settings)
    asked = ["evaluate", out, "--data", str(features), "--coco", "--record", records]
    said, test = ask(*asked), open_precomp(features).test
    assert given == [((3, 15), test.picture_ids, test.caption_ids)]
    assert f"3 test pictures, 15 captions, split {test.names_digest()}" in said
    assert "cxc_i2t_r1" in said and "12.50" in said
    entry = json.loads(next(Path(records).iterdir()).read_text())
    assert entry["metrics"] == {"cxc_i2t_r1": 12.5} and test.names_digest() in entry["note"]
    with pytest.raises(ValueError, match="--coco is given with --folds or --split"):
        ask("evaluate", out, "--coco", "--folds", "5")
    bare = tmp_path / "bare"
    bare.mkdir()
    copied(features, bare, "caption_ids")
    with pytest.raises(ValueError, match="--coco"):
        ask("evaluate", out, "--data", str(bare), "--coco")  # neither numbers nor 5,000 pictures
    ask("evaluate", out, "--data", str(bare), "--coco", "--captions", str(coco / "dataset_coco.json"))
    assert given[-1] == given[0]


def test_features_without_numbers_get_them_from_karpathys_file(coco):
    whole = from_files(load_karpathy(coco), View()).test
    bare = replace(
        whole,
        captions=[caption.lower().replace(".", " .") for caption in whole.captions],  # as folders have them
        caption_ids=None,
        picture_ids=[str(row) for row in range(len(whole))],
    )
    found = numbered(bare, coco / "dataset_coco.json")
    assert (found.caption_ids, found.picture_ids) == (whole.caption_ids, whole.picture_ids)
    for captions in (bare.captions[::-1], [*bare.captions[:-1], "another"]):
        with pytest.raises(ValueError, match="caption"):
            numbered(replace(bare, captions=captions), coco / "dataset_coco.json")
