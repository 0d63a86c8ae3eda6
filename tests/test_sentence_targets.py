"""Sentence targets: computed once, kept by model and captions, whatever their order and number."""

from dataclasses import replace

import numpy as np
import pytest

from small import small_data
from vsecore.data import sentence_targets as module
from vsecore.data.sentence_targets import sentence_targets, with_targets

CAPTIONS = ["A dog on the beach.", "Two boats.", "A dog on the beach.", "A girl with a red kite in the park."]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VSECORE_CACHE", str(tmp_path / "cache"))


def test_vectors_are_those_of_the_sentence_encoder_and_are_kept(monkeypatch):
    from sentence_transformers import SentenceTransformer

    found = sentence_targets(CAPTIONS)
    encoder = SentenceTransformer(str(module.model_folder(module.MODEL)), device="cpu")
    assert found.shape == (4, 384) and found.dtype == np.float32
    assert np.allclose(found, encoder.encode(CAPTIONS), atol=1e-5)
    assert np.array_equal(found[0], found[2])

    def refuse(*_):
        raise AssertionError("the captions are read again")

    monkeypatch.setattr(module, "_read", refuse)
    assert np.array_equal(sentence_targets(CAPTIONS), found)  # as fresh
    assert np.array_equal(sentence_targets(CAPTIONS[::-1]), found[::-1])  # in any order
    for others in ([*CAPTIONS, "A new one."], [text.replace("dog", "cat") for text in CAPTIONS]):
        with pytest.raises(AssertionError, match="read again"):
            sentence_targets(others)


def test_another_model_has_vectors_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_read", lambda _, captions, *rest: np.full((len(captions), 3), number))
    for number, folder in enumerate(("a", "b", "a")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "model.safetensors").write_text(f"weights {number}")
        assert (sentence_targets(CAPTIONS, tmp_path / folder) == number).all()


def test_bad_input_is_named(tmp_path):
    for captions in ([], "A dog."):
        with pytest.raises(ValueError, match="captions is"):
            sentence_targets(captions)
    with pytest.raises(ValueError, match="holds no sentence encoder"):
        sentence_targets(CAPTIONS, tmp_path)


def test_a_dataset_gets_targets_for_its_training_split(monkeypatch):
    monkeypatch.setattr(module, "_read", lambda folder, captions, *_: np.ones((len(captions), 3), np.float32))
    data = small_data()
    found = with_targets(data)
    assert found.train.targets.shape == (len(data.train.captions), 3)
    assert found.dev.targets is None and found.test.targets is None
    assert found.fingerprint() == data.fingerprint()  # the same pictures and captions
    assert replace(found.train, targets=None).captions == data.train.captions
