"""Word vectors: text files of GloVe and fastText, and GloVe from its package."""

import importlib.metadata
from pathlib import Path

import pytest
import torch

from vsecore.data import word_vectors
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_vectors import load_vectors

GLOVE = "the 1 2 3\nDog 4 5 6\ndog 7 8 9\ncat 1 1 -1\nFrisbee 0 0 1\n. . . 9 9 9\ndog 0 0 0\n"


def vectors_file(folder, text):
    path = folder / "vectors.txt"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("text", [GLOVE, "7 3\n" + GLOVE.replace("\n", " \n")], ids=["glove", "fasttext"])
def test_known_words_get_their_vectors_and_others_start_near_the_mean(tmp_path, text):
    path, vocabulary = vectors_file(tmp_path, text), Vocabulary(["dog", "frisbee", "the", "zyzzyva"])
    matrix, missing = load_vectors(path, vocabulary)
    found = torch.tensor([[7.0, 8, 9], [0, 0, 1], [1, 2, 3]])
    assert torch.equal(matrix[4:7], found)
    assert missing == ["zyzzyva"]
    assert torch.equal(matrix[vocabulary.pad], torch.zeros(3))
    distance = (matrix[[1, 2, 3, 7]] - found.mean(0)).abs() / found.std(0, correction=0)
    assert 0 < distance.mean() < 0.2
    again, other = (load_vectors(path, vocabulary, seed)[0] for seed in (0, 1))
    assert torch.equal(matrix, again) and not torch.equal(matrix, other)


DAMAGES = [
    GLOVE + "kite 1 2 3 4\n",
    "2 3\ndog 1 2\n",
    GLOVE.replace("7 8 9", "7 x 9"),
    GLOVE.replace("7 8 9", "7 1e39 9"),
    "the 1\0 2 3\n",
    "",
]


@pytest.mark.parametrize("text", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_vectors_file_is_named(tmp_path, text):
    with pytest.raises(ValueError, match=r"vectors.txt"):
        load_vectors(vectors_file(tmp_path, text), Vocabulary(["dog"]))


@pytest.fixture
def installed():
    for package in (word_vectors.PACKAGE, "pyarrow"):
        if not any(importlib.metadata.distributions(name=package)):
            pytest.skip(f"needs the extra: pip install {word_vectors.PACKAGE} pyarrow")


def test_the_installed_glove_is_the_published_one(installed):
    vocabulary = Vocabulary(["dog", "Frisbee", "a", "zyzzyvaxx"])
    matrix, missing = load_vectors("glove", vocabulary)
    assert matrix.shape == (len(vocabulary), 50)
    # Its line in glove.6B.50d.txt begins so.
    assert torch.allclose(matrix[vocabulary.numbers["dog"], :3], torch.tensor([0.11008, -0.38781, -0.57615]))
    assert missing == ["zyzzyvaxx"]
    with pytest.raises(ValueError, match="no vector for any of the 1 words"):
        load_vectors("glove", Vocabulary(["zyzzyvaxx"]))


def test_the_package_and_the_text_file_agree(installed, photographs):
    known = Vocabulary(["dog", "beach", "frisbee"])
    of_file, _ = load_vectors(photographs / "glove" / "glove.6B.50d.flickr8k.txt", known)
    assert torch.equal(of_file, load_vectors("glove", known)[0])


def test_another_package_in_its_place_is_refused_and_none_is_told(tmp_path, monkeypatch):
    class Entry:
        name = "glove_6B_50d_emb.npy"

        def locate(self) -> Path:
            return tmp_path / self.name

    monkeypatch.setattr(importlib.metadata, "files", lambda name: [])
    with pytest.raises(FileNotFoundError, match=f"pip install {word_vectors.PACKAGE} pyarrow"):
        load_vectors("glove", Vocabulary(["another"]))
    (tmp_path / Entry.name).write_bytes(b"other vectors")
    monkeypatch.setattr(importlib.metadata, "files", lambda name: [Entry()])
    with pytest.raises(ValueError, match="has sha256"):
        load_vectors("glove", Vocabulary(["another"]))
