"""Probes find what a caption's vector knows, and nothing that it does not."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vsecore import scenes
from vsecore.embedding import Embedding
from vsecore.experiments import probe
from vsecore.experiments.probe import FACTS, probe_metric, probes, said_in


@pytest.fixture(scope="module")
def data():
    return scenes.load(120, 20, 60, features="region")


def knows(monkeypatch, data, facts, sets=False):
    """A model whose captions' vectors hold exactly some facts, and noise."""

    def encode(model, split, tokenizer):
        said = said_in(split, data.name)
        names = {fact: sorted(said_in(data.train, data.name)[fact]) for fact in facts}
        empty = np.zeros(len(split.captions), bool)
        known = [said[fact].get(name, empty) for fact in facts for name in names[fact]]
        noise = np.random.default_rng(0).normal(size=(3, len(split.captions)))
        vectors = torch.tensor(np.stack([*known, *noise], axis=1), dtype=torch.float32)
        return None, SimpleNamespace(vectors=vectors[:, None] if sets else vectors)

    monkeypatch.setattr(probe, "encode", encode)
    return probes(None, data, None)


def test_what_is_kept_is_read_and_what_is_not_stays_near_chance(monkeypatch, data):
    for kept in ("colour", "place"):
        found = knows(monkeypatch, data, [kept])
        assert set(found) == {probe_metric(fact) for fact in FACTS}
        assert found[probe_metric(kept)] > 99
        other = "place" if kept == "colour" else "colour"
        assert 40 < found[probe_metric(other)] < 70


def test_a_caption_names_what_its_form_says(data):
    said = said_in(data.train, "scenes")
    first = scenes.pictures("train", 120)[0].captions[0]
    for noun in {entity.noun for entity in first.form.entities}:
        assert said["noun"][noun][0]
    assert sum(named[0] for named in said["noun"].values()) == len({e.noun for e in first.form.entities})
    assert all(named.shape == (len(data.train.captions),) for fact in FACTS for named in said[fact].values())


def test_only_scenes_and_single_vectors_are_probed(monkeypatch, data):
    assert said_in(data.train, "flickr8k") is None
    assert said_in(replace(data.train, captions=data.train.captions[::-1]), "scenes") is None
    assert knows(monkeypatch, data, ["colour"], sets=True) == {}
    monkeypatch.setattr(
        probe, "encode", lambda *_: (None, Embedding(None, torch.ones(1, 1, 2), torch.ones(1, 1)))
    )
    assert probes(None, data, None) == {}
