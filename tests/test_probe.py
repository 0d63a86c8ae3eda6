"""Probes find what a caption's vector knows, and nothing that it does not."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vsecore import scenes
from vsecore.embedding import Embedding
from vsecore.experiments import measures
from vsecore.experiments.measures import FACTS, PROBES, facts_of, probes


def captions_of(split):
    return [one for picture in scenes.pictures(split.name, len(split)) for one in picture.captions]


@pytest.fixture(scope="module")
def data():
    return scenes.load(120, 20, 60, features="region")


def knows(monkeypatch, data, facts, sets=False):
    """A model whose captions' vectors hold exactly some facts, and noise."""

    def encode(model, split, tokenizer):
        own, names = facts_of(captions_of(split)), facts_of(captions_of(data.train))
        empty = np.zeros(len(split.captions), bool)
        known = [own[fact].get(name, empty) for fact in facts for name in sorted(names[fact])]
        noise = np.random.default_rng(0).normal(size=(3, len(split.captions)))
        vectors = torch.tensor(np.stack([*known, *noise], axis=1), dtype=torch.float32)
        return None, SimpleNamespace(vectors=vectors[:, None] if sets else vectors)

    monkeypatch.setattr(measures, "encode", encode)
    return probes(None, data, None)


def test_what_a_caption_names_is_what_its_form_says():
    texts = "a girl holding a red kite", "two dogs on the beach"
    found = facts_of([SimpleNamespace(form=scenes.parse(text)) for text in texts])
    told = [{name: list(which) for name, which in found[fact].items()} for fact in FACTS]
    one, other = [True, False], [False, True]
    nouns = {"girl": one, "kite": one, "dog": other}
    assert told == [nouns, {"red": one}, {}, {"holding": one}, {"beach": other}]


def test_what_is_kept_is_read_and_what_is_not_stays_near_chance(monkeypatch, data):
    for kept, other in (("colour", "place"), ("place", "colour")):
        found = knows(monkeypatch, data, [kept])
        assert set(found) == set(PROBES)
        assert found[f"probe_{kept}"] > 99 and 40 < found[f"probe_{other}"] < 70


def test_only_scenes_and_single_vectors_are_probed(monkeypatch, data):
    assert knows(monkeypatch, data, ["colour"], sets=True) == {}
    for other in (
        replace(data, name="flickr8k"),
        replace(data, train=replace(data.train, captions=data.train.captions[::-1])),
    ):
        assert probes(None, other, None) == {}
    elements = Embedding(None, torch.ones(1, 1, 2), torch.ones(1, 1))
    monkeypatch.setattr(measures, "encode", lambda *_: (None, elements))
    assert probes(None, data, None) == {}
