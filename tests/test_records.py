"""Records: every number with all it takes to make it again, and nothing that names the machine."""

import dataclasses
import json
import os
import socket
import subprocess

import pytest

from vsecore import records
from vsecore.recipes import get
from vsecore.records import RECALLS, Published, find, read, record_run, write
from vsecore.training import Run


def a_run(seed=0, **changes):
    recipe = get("vsepp_grid_gru").override(changes)
    data = {"name": "small", "fingerprint": "0" * 64, "feature_kind": "grid", "feature_dim": 7}
    timings = {"seconds": 12.3456}
    return Run(None, None, recipe, data, seed, "bfloat16", [], {}, timings, "a small processor", 2)


def a_record(rsum=250.0, **options):
    return record_run(a_run(**options), {"rsum": rsum, "i2t_r1": 20}, note="test split, best epoch of dev")


def test_a_record_says_what_was_run_with_what_and_where_and_survives_the_disk(tmp_path):
    entry = a_record()
    path = write(entry, tmp_path)
    assert read(path) == entry
    assert path.name == f"vsepp_grid_gru-small-00000000-{entry.config_hash}-bfloat16-seed0.json"
    assert entry.config == get("vsepp_grid_gru").to_dict()
    assert entry.config_hash == get("vsepp_grid_gru").hash()
    assert (entry.data["fingerprint"], entry.seconds, entry.cpus) == ("0" * 64, 12.346, os.cpu_count())
    assert 0.01 < entry.peak_memory_gb < 100
    assert entry.versions.keys() >= {"python", "torch", "vsecore"}
    assert (entry.device, entry.processes, entry.precision) == ("a small processor", 2, "bfloat16")


def test_only_the_same_thing_run_again_takes_the_place_of_a_record(tmp_path):
    for other in ({}, {"fingerprint": "1" * 64}, {"vectors": "a" * 12}, {"tokenizer": "c" * 12}):
        run = a_run()
        run.data |= other
        write(record_run(run, {"rsum": 250.0}), tmp_path)
    write(a_record(seed=1), tmp_path)
    write(a_record(**{"losses.triplet.margin": 0.1}), tmp_path)
    assert len(find(tmp_path)) == 6
    write(a_record(rsum=251.0), tmp_path)
    assert sorted(entry.metrics["rsum"] for entry in find(tmp_path)) == [250.0] * 5 + [251.0]
    ensembles = [{"name": "small", "members": [{"fingerprint": one * 64}, {}]} for one in "01"]
    assert len({dataclasses.replace(a_record(), data=data).file_name for data in ensembles}) == 2


def test_a_record_names_the_commit_and_whether_it_is_what_was_run(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        return subprocess.check_output(["git", *identity, "-C", tmp_path, *arguments], text=True).strip()

    source = tmp_path / "vsecore" / "records.py"
    source.parent.mkdir()
    source.write_text("1")
    monkeypatch.setattr(records, "ROOT", tmp_path)
    assert records._code() == ("", False)  # no checkout
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    assert records._code() == (git("rev-parse", "HEAD"), False)
    (tmp_path / "notes.txt").write_text("not the code")
    assert not records._code()[1]
    source.write_text("2")
    assert records._code()[1]


def test_a_record_names_neither_paths_nor_the_machine(tmp_path):
    folder = tmp_path / "minilm"
    folder.mkdir()
    recipe = get("vsepp_grid_bert").override({"text.encoder.weights": str(folder)})
    run = dataclasses.replace(a_run(), recipe=recipe)
    text = write(record_run(run, {"rsum": 1.0}), tmp_path).read_text()
    assert str(tmp_path) not in text
    assert f'"{socket.gethostname()}"' not in text
    assert json.loads(text)["config"]["text"]["encoder"]["options"]["weights"] == "minilm"


def test_an_older_record_is_read_and_its_slashes_are_no_paths(tmp_path):
    content = dataclasses.asdict(a_record()) | {"note": "R@1/5/10 of picture/text, 1,000 / 5,000"}
    del content["processes"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert read(tmp_path / "old.json").processes == 1


def test_find_picks_by_value(tmp_path):
    for seed in (0, 1):
        write(a_record(seed=seed), tmp_path)
    assert [entry.seed for entry in find(tmp_path, name="vsepp_grid_gru", data="small")] == [0, 1]
    assert [entry.seed for entry in find(tmp_path, seed=1)] == [1]
    assert find(tmp_path, data="coco") == []
    with pytest.raises(ValueError, match="'colour' is unknown"):
        find(tmp_path, colour="red")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find(tmp_path / "nowhere")


PUBLISHED = records.published()
COLLECTIONS = {
    "coco, mean of five folds of 1,000 test pictures",
    "coco, 5,000 test pictures",
    "coco, 1,000 test pictures",
    "flickr30k, 1,000 test pictures",
    "flickr8k, 1,000 test pictures",
    "eccv caption and cxc, on the 5,000 test pictures of coco",
    "cxc, on the 5,000 test pictures of coco",
}
OTHERS = ("i2t_r_precision", "t2i_ndcg_rouge", "t2i_ndcg_spice", "log_variance")


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row.system}, {row.data.split(',')[0]}")
def test_a_published_row_is_whole_and_possible(row):
    assert row.data in COLLECTIONS
    assert all(text.strip() == text != "" for text in (row.system, row.backbone, row.source, row.read_in))
    assert [other.data for other in PUBLISHED if other.system == row.system].count(row.data) == 1
    assert 1 <= row.models <= 3
    assert row.pretraining_pairs is None or row.pretraining_pairs == 0 or row.pretraining_pairs > 1e6
    for name, value in row.metrics.items():
        assert name in (*RECALLS, *OTHERS) or name.startswith(("eccv_", "cxc_", "rsum_")), name
        assert 0 <= value <= (600 if name.startswith("rsum_") else 100) or name == "log_variance", name
    for way in ("i2t", "t2i"):
        found = [row.metrics[f"{way}_r{k}"] for k in (1, 5, 10) if f"{way}_r{k}" in row.metrics]
        assert found == sorted(found)
    # A row without recalls says where its sum is from; only the rows of other measures have no sum at all.
    assert (row.rsum is None) == row.data.startswith(("eccv", "cxc"))
    if not set(row.metrics) & {*RECALLS} and row.rsum is not None:
        assert row.printed_rsum is not None and row.read_in.startswith("the sum ")


def test_the_rsum_is_added_up_here_and_the_printed_one_stands_only_where_recalls_are_missing():
    row = Published("x", "coco", "?", 1, 0, "a", "b", dict.fromkeys(RECALLS, 10.1), printed_rsum=61.0)
    few = dataclasses.replace(row, metrics={"i2t_r1": 10.1})
    assert [one.rsum for one in (row, few, dataclasses.replace(few, printed_rsum=None))] == [60.6, 61.0, None]


def test_recalls_add_up_to_the_printed_rsum_but_for_misprints_that_are_named():
    wrong = []
    for row in PUBLISHED:
        if row.printed_rsum is None or not set(row.metrics) & {*RECALLS}:
            continue
        least = most = 0.0  # a recall that is not printed lies between its neighbours
        for way in ("i2t", "t2i"):
            one, five, ten = (row.metrics.get(f"{way}_r{k}") for k in (1, 5, 10))
            top = 100.0 if ten is None else ten
            low = one if five is None else five
            least += one + low + (low if ten is None else ten)
            most += one + (top if five is None else five) + top
        if not least - 0.15 <= row.printed_rsum <= most + 0.15:
            assert f"printed as {row.printed_rsum}; the recalls add up to {row.rsum:.1f}" in row.misprint
            wrong.append((row.system, row.data.split(",")[0]))
    assert wrong == [
        ("VSE∞ (R, BiGRU)", "coco"),
        ("DIME i2t (R, BERT)", "flickr30k"),
        ("VSE+2AD (R, BERT)", "flickr30k"),
    ]
    # The last two have exchanged a number: put back, both add up.
    dime, ours = [row for row in PUBLISHED if (row.system, row.data.split(",")[0]) in wrong[1:]]
    for row, other in ((dime, ours), (ours, dime)):
        back = row.metrics | {"t2i_r1": other.metrics["t2i_r1"]}
        assert sum(back[name] for name in RECALLS) == pytest.approx(row.printed_rsum, abs=0.01)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"metrics": {"rsum": float("inf")}}, r"metrics\.rsum"),
        ({"colour": "red"}, "colour"),
        *(({"note": x}, "note") for x in ("see /home/ann/runs", "~/runs/3", "C:\\runs", "data='/mnt/a/b'")),
    ],
)
def test_a_damaged_record_is_told_by_file_and_place(tmp_path, change, names):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(dataclasses.asdict(a_record()) | change))
    with pytest.raises(ValueError, match=rf"odd\.json.*{names}") as told:
        read(path)
    assert "\n" not in str(told.value)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"odd\.json"):
        find(tmp_path)
