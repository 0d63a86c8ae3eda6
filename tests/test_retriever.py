"""Models for free input: pictures and sentences are embedded and compared as a split of data would be."""

import numpy as np
import pytest
import torch
from PIL import Image

import vsecore
from small import recipe, train
from towers import make_extracted, make_towers
from vsecore.data.features import open_precomp
from vsecore.data.picture_files import open_picture
from vsecore.recipes import get
from vsecore.recipes.written import written
from vsecore.retriever import Retriever
from vsecore.scoring import score_split
from vsecore.training import fit, load_run
from vsecore.training.command import Command

SENTENCES = ["a dog", "two red dogs and a cat on the beach", "a"]


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    return make_extracted(tmp_path_factory.mktemp("album"))


@pytest.mark.parametrize("name", ["vsepp_grid_gru", "pvse_grid", "scan_grid_gru"])
def test_vectors_sets_and_elements_are_those_of_an_evaluation(album, tmp_path, name):
    data = open_precomp(album / "features")
    settings = {"dim": 16, "text.encoder.word_dim": 8, "text.encoder.minimum_count": 1, "training.epochs": 1}
    chosen = get(name).override(settings | {"training.batch_size": 10})
    run = fit(chosen, data, folder=tmp_path, device="cpu")
    files = [album / name for name in data.train.picture_ids]
    model = vsecore.load(tmp_path, features=album / "features")
    wanted = score_split(run.model, data.train, run.tokenizer)
    images, texts = model.encode_images(files, batch_size=3), model.encode_texts(data.train.captions, 7)
    assert (len(images), len(texts)) == wanted.shape
    torch.testing.assert_close(model.similarity(images, texts), wanted, atol=2e-4, rtol=1e-3)


def test_a_picture_is_the_same_from_a_file_from_pillow_and_as_an_array(album, tmp_path):
    make_towers(tmp_path / "clip", "clip")
    model = vsecore.load(tmp_path / "clip")
    path = album / "3.png"
    with Image.open(path) as opened:
        kinds = [path, str(path), opened, np.asarray(open_picture(path))]
        vectors = model.encode_images(kinds).vectors
    torch.testing.assert_close(vectors, vectors[:1].expand(4, -1))
    texts = model.encode_texts(SENTENCES)
    one_by_one = [model.encode_texts([sentence]).vectors for sentence in SENTENCES]
    torch.testing.assert_close(texts.vectors, torch.cat(one_by_one), atol=1e-5, rtol=1e-4)
    assert model.similarity(model.encode_images([path]), texts).shape == (1, 3)


def test_the_features_that_a_training_noted_are_found_if_they_are_still_the_same(album, tmp_path):
    train(recipe(training__epochs=1), open_precomp(album / "features"), folder=tmp_path)
    model = vsecore.load(tmp_path)
    assert model.encode_texts(SENTENCES).vectors.shape == (3, 16)  # which needs no network before it
    with pytest.raises(ValueError, match=r"--features.*--backbone"):
        model.encode_images([album / "3.png"])
    Command(data=str(album / "features")).keep(tmp_path)
    noted, named = vsecore.load(tmp_path), vsecore.load(tmp_path, features=album / "features")
    assert torch.equal(*(one.encode_images([album / "3.png"]).vectors for one in (noted, named)))
    assert noted.source == named.source


def test_a_model_in_ones_home_is_found_and_an_index_finds_it_again_from_any_folder(tmp_path, monkeypatch):
    home = tmp_path / "c++"  # a plus sign also stands between a recipe and its variants
    make_towers(home / "clip", "clip")
    (home / "mine.yaml").write_text(f"recipe: {home / 'clip'}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    train(recipe(training__epochs=1), folder="~/run")
    assert (home / "run").is_dir() and load_run("~/run").recipe.training.epochs == 1
    for name in ("~/run", "~/clip", "~/mine.yaml", "clip", "mine.yaml"):
        model = vsecore.load(name)
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            again = Retriever.of(model.source)
        assert torch.equal(*(one.encode_texts(SENTENCES).vectors for one in (model, again)))


def test_what_is_no_list_of_pictures_or_of_sentences_is_named(album, tmp_path):
    make_towers(tmp_path / "clip", "clip")
    model = vsecore.load(tmp_path / "clip")
    arrays = [np.zeros((4, 4, 3))], [np.zeros((4, 4), np.float32)]
    for wrong in ([], "a.png", Image.new("RGB", (4, 4)), [album / "nowhere.png"], *arrays):
        with pytest.raises(ValueError, match=r"images|picture|pixels"):
            model.encode_images(wrong)
    for wrong in ([], "a dog", ["a dog", 3], [None]):
        with pytest.raises(ValueError, match="captions"):
            model.encode_texts(wrong)
    own_pool = get("clip_base_patch32").override({"image.pool": "projected"})  # its weights would be random
    (tmp_path / "own.yaml").write_text(written(own_pool))
    untrained = ("vsepp_grid_gru", tmp_path / "own.yaml")
    for name, said in (*((one, "trained first") for one in untrained), ("wrong_name", "wrong_name")):
        with pytest.raises(ValueError, match=said):
            vsecore.load(name)
