"""Results query by query: their files say what the table says, and the intervals how sure it is."""

import json

import numpy as np
import pytest
import torch

from small import small_split
from test_cli import SMALL, complaint, features, run, trained, trained_once  # noqa: F401
from vsecore.data.features import open_precomp
from vsecore.evaluation import evaluate, ranks
from vsecore.experiments.queries import intervals, per_query
from vsecore.training import load_run, score_split


def test_intervals_are_those_of_drawing_pictures_one_by_one():
    dice = np.random.default_rng(0)
    owner = np.repeat(np.arange(60), dice.integers(1, 5, 60))
    scores = torch.from_numpy(dice.standard_normal((60, len(owner)))) + 1.5 * torch.from_numpy(
        np.arange(60)[:, None] == owner[None]
    )
    found, metrics = intervals(scores, owner), evaluate(scores, owner)
    i2t, t2i = (rank.numpy() for rank in ranks(scores, owner))
    drawn = {name: [] for name in found}
    for _ in range(600):
        pictures = dice.integers(0, 60, 60)
        captions = np.concatenate([np.flatnonzero(owner == picture) for picture in pictures])
        for k in (1, 5, 10):
            drawn[f"i2t_r{k}"].append(100 * np.mean(i2t[pictures] < k))
            drawn[f"t2i_r{k}"].append(100 * np.mean(t2i[captions] < k))
    drawn["rsum"] = np.sum([drawn[name] for name in found if name != "rsum"], axis=0)
    for name, values in drawn.items():
        assert found[name] == pytest.approx(
            np.quantile(values, (0.025, 0.975)), abs=12 if name == "rsum" else 3.5
        ), name
    for name, (low, high) in found.items():
        assert low < metrics[name] < high


def test_each_query_has_the_rank_of_the_table_and_what_stands_before_it():
    split = small_split("test", 20)
    dice = np.random.default_rng(1)
    scores = torch.from_numpy(dice.integers(0, 6, (20, 40)).astype(np.float32))  # with many ties
    queries = list(per_query(scores, split))
    table = evaluate(scores, split.owner)
    assert len(queries) == 60
    for kind, way in (("picture", "i2t"), ("caption", "t2i")):
        own = [query for query in queries if kind in query]
        for k in (1, 5, 10):
            assert table[f"{way}_r{k}"] == pytest.approx(100 * np.mean([query["rank"] <= k for query in own]))
        for query in own:
            assert len(query["found"]) == 10
            first = [place for place, one in enumerate(query["found"], start=1) if one["right"]]
            values = [one["score"] for one in query["found"]]
            assert values == sorted(values, reverse=True)
            assert first[:1] == [query["rank"]] * (query["rank"] <= 10), (
                "wrong ones of the same score come first"
            )


def test_an_evaluation_writes_queries_embeddings_and_intervals(features, trained, tmp_path, complaint):  # noqa: F811
    out, _ = trained
    files = {
        "--json": tmp_path / "all.json",
        "--per-query": tmp_path / "q.jsonl",
        "--embeddings": tmp_path / "e",
    }
    said = run("evaluate", out, "--data", features, *(one for pair in files.items() for one in pair))
    content = json.loads((tmp_path / "all.json").read_text())
    low, high = content["intervals"]["rsum"]
    assert low <= content["metrics"]["rsum"] <= high and f"({low:.2f} to {high:.2f})" in said
    test, model = open_precomp(features).test, load_run(out)
    ids = json.loads((tmp_path / "e" / "ids.json").read_text())
    assert ids["pictures"] == test.picture_ids and ids["captions"] == test.captions
    v, t = (np.load(tmp_path / "e" / f"{side}_vectors.npy") for side in ("pictures", "captions"))
    wanted = score_split(model.model, test, model.tokenizer)
    np.testing.assert_allclose(v @ t.T, wanted, atol=1e-5)
    lines = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert len(lines) == len(test) + len(test.captions)
    assert lines[0]["found"][0]["score"] == pytest.approx(float(wanted[0].max()), abs=1e-5)
    assert ids["owner"] == test.owner.tolist()
    said = complaint("evaluate", out, out, "--data", features, "--embeddings", tmp_path / "f")
    assert "--embeddings" in said and not (tmp_path / "f").exists()


def test_elements_are_written_with_their_mask(features, tmp_path):  # noqa: F811
    run("train", "scan_grid_gru", "--data", features, "--out", tmp_path / "run", *SMALL)
    run("evaluate", tmp_path / "run", "--data", features, "--embeddings", tmp_path / "e")
    for side, count in (("pictures", 2), ("captions", 10)):
        elements, mask = (np.load(tmp_path / "e" / f"{side}_{name}.npy") for name in ("elements", "mask"))
        assert elements.shape[0] == count and elements.shape[:2] == mask.shape and mask.dtype == bool
