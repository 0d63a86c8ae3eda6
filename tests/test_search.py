"""An index of pictures: built, killed and resumed, searched by sentence and by picture, and kept honest."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from small import recipe, small_data, train
from towers import make_photographs, make_towers

pytest.importorskip("qdrant_client", reason="needs the extra search")

from qdrant_client import QdrantClient
from typer.testing import CliRunner

from vsecore import cli
from vsecore.data.backbones import MirroredBackbone
from vsecore.scenes.backbones import find_backbone
from vsecore.search import Engine, Found, Index
from vsecore.search import vectors as vectors_module
from vsecore.search.reference import flat, top
from vsecore.search.store import FILE, Store
from vsecore.training import load_run

WORDS = ["dog", "cat", "a red square", "a big green picture of a dog"]


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny CLIP."""
    folder = tmp_path_factory.mktemp("clip")
    make_towers(folder, "clip")
    return folder


@pytest.fixture(scope="module")
def engine(towers: Path) -> Engine:
    return Engine.of_recipe(str(towers))


@pytest.fixture
def album_of_colours(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    make_photographs(folder, 14)
    (folder / "dataset_flickr8k.json").unlink()
    return folder


def one_picture(path: Path, seed: int) -> None:
    noise = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


def ranked(found: list[Found]) -> list[int]:
    return [one.number for one in found]


def test_the_same_top_ten_as_faiss_finds_by_comparing_all(engine: Engine, album_of_colours: Path) -> None:
    index = Index.build(album_of_colours, engine)
    numbers, vectors = index.all_vectors()
    exact = flat(vectors)
    for words in WORDS:
        query = engine.sentence(words)
        assert ranked(index.search(words)) == numbers[top(exact, query[None])[0]].tolist()
        assert ranked(index.search(words)) == ranked(index.exact(query))


def test_scores_are_the_cosines_of_the_model(engine: Engine, album_of_colours: Path) -> None:
    index = Index.build(album_of_colours, engine)
    for one in index.search("a dog", k=3):
        assert one.score == pytest.approx(
            float(engine.picture(one.path) @ engine.sentence("a dog")), abs=1e-5
        )


def test_a_picture_finds_itself_first_and_leaves_itself_out_of_more_like_it(
    engine: Engine, album_of_colours: Path
) -> None:
    index = Index.build(album_of_colours, engine)
    for entry in index.store.entries()[:4]:
        first = index.search(entry.path, k=1)[0]
        assert first.score == pytest.approx(1, abs=1e-5)
        assert entry.number not in ranked(index.like(entry.number, k=20))
        assert len(index.like(entry.number, k=3)) == 3


def test_an_index_is_the_same_after_it_was_saved_and_loaded(
    engine: Engine, towers: Path, album_of_colours: Path, tmp_path: Path
) -> None:
    built = Index.build(album_of_colours, engine)
    built.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index")  # finds its model by itself
    assert [built.search(words) for words in WORDS] == [loaded.search(words) for words in WORDS]
    with pytest.raises(ValueError, match="holds an index already"):
        built.save(tmp_path / "index")
    named = {index.store.facts.collection for index in (built, loaded)}
    assert len(named) == 2  # on a server, each has its own


def test_new_changed_moved_and_removed_files_are_noticed(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    index = Index.build(album_of_colours, engine, tmp_path / "index")
    assert (index.report.added, index.report.kept) == (14, 0)
    (album_of_colours / "deeper").mkdir()
    one_picture(album_of_colours / "deeper" / "new.png", 1)
    one_picture(album_of_colours / "0.png", 2)
    (album_of_colours / "1.png").unlink()
    os.utime(album_of_colours / "2.png")  # written again with the same bytes
    report = index.add(album_of_colours)
    assert (report.added, report.changed, report.removed, report.kept) == (1, 1, 1, 12)
    fresh = Index.build(album_of_colours, engine)
    for words in WORDS:  # a batch of another size may round a vector's last digit another way
        found, wanted = index.search(words), fresh.search(words)
        assert [one.path for one in found] == [one.path for one in wanted]
        assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-5)
    assert index.add(album_of_colours).kept == 14


def test_another_picture_of_the_same_length_is_noticed(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    path = album_of_colours / "noise.bmp"  # not packed: its length says nothing of its content
    one_picture(path, 1)
    index = Index.build(album_of_colours, engine, tmp_path / "index")
    length = path.stat().st_size
    one_picture(path, 2)
    assert path.stat().st_size == length and index.add(album_of_colours).changed == 1
    assert index.search(path, k=1)[0].score == pytest.approx(1, abs=1e-5)


def test_an_index_may_hold_several_folders(engine: Engine, album_of_colours: Path, tmp_path: Path) -> None:
    other = tmp_path / "others"
    other.mkdir()
    one_picture(other / "one.png", 1)
    (other / "back").symlink_to(other, target_is_directory=True)  # a circle
    index = Index.build(album_of_colours, engine, tmp_path / "index")
    report = index.add(other)
    assert (report.added, report.removed, len(index)) == (1, 0, 15)
    assert (index.add(album_of_colours).removed, len(index)) == (0, 15)


def test_a_picture_that_changes_while_it_is_read_is_left_for_the_next_time(
    engine: Engine, album_of_colours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, path = engine._decode, album_of_colours / "4.png"

    def meanwhile(one: Path) -> np.ndarray:
        pixels = decode(one)
        if one == path:
            one_picture(path, 5)
        return pixels

    monkeypatch.setattr(engine, "_decode", meanwhile)
    index = Index.build(album_of_colours, engine)
    assert [file.name for file in index.report.broken] == ["4.png"]
    assert "changed while it was read" in index.report.broken[path]
    monkeypatch.undo()
    assert index.add(album_of_colours).added == 1


def test_broken_pictures_are_named_and_skipped_until_they_are_mended(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    whole = (album_of_colours / "3.png").read_bytes()
    (album_of_colours / "3.png").write_bytes(whole[: len(whole) // 2])
    (album_of_colours / "empty.jpg").touch()
    index = Index.build(album_of_colours, engine, tmp_path / "index")
    assert {path.name for path in index.report.broken} == {"3.png", "empty.jpg"}
    assert all("cannot be read" in problem for problem in index.report.broken.values())
    assert len(index) == 13
    for entry in index.store.entries():  # those after a broken one have their own vectors
        assert index.search(entry.path, k=1)[0].score == pytest.approx(1, abs=1e-5)
    assert {path.name for path in index.add(album_of_colours).broken} == {"3.png", "empty.jpg"}
    (album_of_colours / "3.png").write_bytes(whole)
    report = index.add(album_of_colours)
    assert report.added == 1 and {path.name for path in report.broken} == {"empty.jpg"}
    assert [path.name for path in index.store.problems()] == ["empty.jpg"]


def test_a_picture_that_breaks_later_leaves_the_index(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    index = Index.build(album_of_colours, engine, tmp_path / "index")
    (album_of_colours / "5.png").write_bytes(b"no picture")
    assert len(index.add(album_of_colours).broken) == 1
    assert album_of_colours / "5.png" not in {one.path for one in index.search("dog", k=20)}
    assert len(index) == 13


def test_another_model_is_refused_by_name(engine: Engine, album_of_colours: Path, tmp_path: Path) -> None:
    Index.build(album_of_colours, engine, tmp_path / "index").close()
    make_towers(tmp_path / "other", "siglip")
    other = Engine.of_recipe(str(tmp_path / "other"))
    for attempt in (Index.load, lambda folder, e: Index.build(album_of_colours, e, folder)):
        with pytest.raises(ValueError, match=rf"built with the model {engine.name}.*not with this other"):
            attempt(tmp_path / "index", other)


def test_a_model_that_has_changed_since_then_is_refused(
    towers: Path, album_of_colours: Path, tmp_path: Path
) -> None:
    engine = Engine.of_recipe(str(towers))
    Index.build(album_of_colours, engine, tmp_path / "index").close()
    changed = Engine.of_recipe(str(towers))
    with torch.no_grad():
        next(iter(changed.model.image_encoder.parameters())).mul_(1.5)
    with pytest.raises(ValueError, match="has changed since then"):
        Index.load(tmp_path / "index", changed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process that was forked")
def test_a_killed_indexing_goes_on_and_loses_nothing(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    embed, batches = engine._embed, []

    def embed_until_killed(read: list) -> list:
        batches.append(len(read))
        if len(batches) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return embed(read)

    child = os.fork()
    if child == 0:
        engine._embed = embed_until_killed  # type: ignore[method-assign]
        Index.build(album_of_colours, engine, tmp_path / "index", batch_size=2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    begun = len(Store(tmp_path / "index"))
    assert begun == 6
    index = Index.build(album_of_colours, engine, tmp_path / "index", batch_size=2)
    assert (index.report.kept, index.report.added) == (begun, 14 - begun)
    undisturbed = Index.build(album_of_colours, engine, batch_size=2)
    assert [entry.path for entry in index.store.entries()] == [e.path for e in undisturbed.store.entries()]
    np.testing.assert_allclose(index.all_vectors()[1], undisturbed.all_vectors()[1], atol=1e-6)


def test_a_picture_that_no_search_would_reach_is_damage(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    """SQLite counts from 1, and the vectors are read from there on."""
    Index.build(album_of_colours, engine, tmp_path / "index")
    with contextlib.closing(sqlite3.connect(tmp_path / "index" / FILE)) as file, file:
        file.execute("UPDATE pictures SET number = 0 WHERE number = 1")
    with pytest.raises(ValueError, match=r"is damaged \(a picture has the number 0\)"):
        Index.load(tmp_path / "index", engine)


def test_a_server_gets_what_it_lacks_and_loses_what_is_gone(
    engine: Engine, album_of_colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = QdrantClient(":memory:")  # stands in for one that goes on while programs come and go
    monkeypatch.setattr(
        vectors_module,
        "QdrantClient",
        lambda *_, url=None, **__: QdrantClient(":memory:") if url is None else server,
    )
    url, folder = "http://127.0.0.1:6333", tmp_path / "index"
    here = Index.build(album_of_colours, engine, folder)
    there = Index.load(folder, engine, url=url)
    assert there.search("dog") == here.search("dog")
    (album_of_colours / "1.png").unlink()
    one_picture(album_of_colours / "0.png", 3)
    here.add(album_of_colours)  # the server hears nothing of this
    again = Index.load(folder, engine, url=url)
    assert again.search("dog", k=20) == here.search("dog", k=20)
    assert len(again.vectors) == len(here) == 13  # the picture that is gone is gone there too
    server.delete_collection(here.store.facts.collection)  # a server that was set up anew
    assert Index.load(folder, engine, url=url).search("dog", k=20) == here.search("dog", k=20)


def test_a_collection_of_other_vectors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = QdrantClient(":memory:")
    monkeypatch.setattr(vectors_module, "QdrantClient", lambda *_, **__: server)
    url = "http://127.0.0.1:6333"
    vectors_module.Vectors((12,), "mine", url)
    assert len(vectors_module.Vectors((12,), "mine", url)) == 0
    for shape in ((13,), (4, 12)):
        with pytest.raises(ValueError, match="has a collection mine of other vectors"):
            vectors_module.Vectors(shape, "mine", url)


def test_a_server_that_cannot_be_reached_is_named(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    Index.build(album_of_colours, engine, tmp_path / "index").close()
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9 cannot be used.*is it running"):
        Index.load(tmp_path / "index", engine, url="http://127.0.0.1:9")


def test_damage_is_noticed(engine: Engine, album_of_colours: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    Index.build(album_of_colours, engine, folder).close()
    whole = (folder / FILE).read_bytes()
    stored = sqlite3.connect(folder / FILE)
    content = bytearray(stored.execute("SELECT vectors FROM pictures WHERE number = 3").fetchone()[0])
    content[5] ^= 1
    stored.execute("UPDATE pictures SET vectors = ? WHERE number = 3", (bytes(content),))
    stored.commit()
    stored.close()
    with pytest.raises(ValueError, match="vectors of picture 3 are damaged"):
        Index.load(folder, engine)
    (folder / FILE).write_bytes(whole)
    with contextlib.closing(sqlite3.connect(folder / FILE)) as stored:
        stored.execute("UPDATE pictures SET path = ? WHERE number = 7", (b"/pictures/other.png",))
        stored.commit()
    with pytest.raises(ValueError, match="vectors of picture 7 are damaged"):  # or their name
        Index.load(folder, engine)
    with contextlib.closing(sqlite3.connect(folder / FILE)) as stored:
        stored.execute("UPDATE facts SET value = replace(value, '\"version\": ', '\"version\": 9')")
        stored.commit()
    with pytest.raises(ValueError, match=r"is an index of version 9\d, and this program reads \d"):
        Index.load(folder, engine)
    for damaged in (whole[: len(whole) // 3], b"not a database, but long enough to be looked at" * 50, b""):
        (folder / FILE).write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            Index.load(folder, engine).search("dog")


def test_bad_questions_are_refused(engine: Engine, album_of_colours: Path, tmp_path: Path) -> None:
    index = Index.build(album_of_colours, engine)
    with pytest.raises(ValueError, match="sentence is empty"):
        index.search("  ")
    with pytest.raises(ValueError, match="k is 0"):
        index.search("dog", k=0)
    with pytest.raises(ValueError, match=r"nothing\.png cannot be read"):
        index.search(tmp_path / "nothing.png")
    with pytest.raises(FileNotFoundError, match="no folder"):
        Index.build(tmp_path / "nowhere", engine)
    (tmp_path / "hollow").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no pictures"):
        Index.build(tmp_path / "hollow", engine, tmp_path / "index")
    assert not (tmp_path / "index").exists()
    with pytest.raises(FileNotFoundError, match="holds no index"):
        Index.load(tmp_path / "hollow")


def test_hidden_files_and_the_index_itself_are_left_out(engine: Engine, album_of_colours: Path) -> None:
    (album_of_colours / ".cache").mkdir()
    one_picture(album_of_colours / ".cache" / "x.png", 1)
    one_picture(album_of_colours / ".y.png", 2)
    (album_of_colours / "index" / "thumbnails").mkdir(parents=True)
    one_picture(album_of_colours / "index" / "thumbnails" / "z.png", 3)
    assert len(Index.build(album_of_colours, engine, album_of_colours / "index")) == 14


@pytest.fixture(scope="module")
def scenes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on features that the scenes' network extracted from an album."""
    from vsecore.data.extraction import extract
    from vsecore.data.features import open_precomp
    from vsecore.data.karpathy import load_karpathy

    root = tmp_path_factory.mktemp("album")
    make_photographs(root, 14)
    annotations = json.loads((root / "dataset_flickr8k.json").read_text())
    for picture in annotations["images"]:
        picture["sentences"] = (3 * picture["sentences"])[:5]
    (root / "dataset_flickr8k.json").write_text(json.dumps(annotations))
    extract(load_karpathy(root), find_backbone("scenes-cnn"), root / "features")
    train(recipe(training__epochs=1), open_precomp(root / "features"), folder=root / "run")
    return root


def test_a_run_on_features_sees_new_pictures_as_it_saw_those_it_was_trained_on(scenes_run: Path) -> None:
    from vsecore.data.features import open_precomp
    from vsecore.encoding import encode

    engine = Engine.of_run(scenes_run / "run", features=scenes_run / "features")
    run, data = load_run(scenes_run / "run"), open_precomp(scenes_run / "features")
    pictures, _ = encode(run.model, data.train, run.tokenizer)
    files = [scenes_run / name for name in data.train.picture_ids]
    seen = np.stack([one.vectors for batch in engine.pictures(files) for one in batch])
    np.testing.assert_allclose(seen, pictures.vectors, atol=1e-5)
    features = engine._features(torch.from_numpy(np.stack([engine._decode(files[0])])))
    assert torch.equal(features, features.half().float())  # rounded as on disk


def test_all_that_decides_the_vectors_is_in_the_fingerprint(scenes_run: Path) -> None:
    run, network = load_run(scenes_run / "run"), find_backbone("scenes-cnn")

    def fingerprint(tokenizer: Any = run.tokenizer, **options: Any) -> str:
        return Engine(run.model, tokenizer, "mine", **{"backbone": network} | options).fingerprint

    assert fingerprint() == Engine.of_run(scenes_run / "run", features=scenes_run / "features").fingerprint
    other_words = run.recipe.tokenizer(["other", "words"])
    others = [fingerprint(other_words), fingerprint(dtype="float32")]
    others.append(fingerprint(backbone=MirroredBackbone(network)))
    assert len({fingerprint(), *others}) == 4


def test_a_run_on_features_needs_to_know_their_network(scenes_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--features.*--backbone"):
        Engine.of_run(scenes_run / "run")
    assert Engine.of_run(scenes_run / "run", backbone="scenes-cnn").fingerprint
    with pytest.raises(ValueError, match="features of width"):
        Engine.of_run(scenes_run / "run", backbone="scenes-vit")
    shutil.copytree(scenes_run / "features", tmp_path / "other")
    made = json.loads((tmp_path / "other" / "meta.json").read_text())
    (tmp_path / "other" / "meta.json").write_text(json.dumps(made | {"backbone_sha256": "0" * 64}))
    with pytest.raises(ValueError, match=r"weights of scenes-cnn are not those that made.*--weights"):
        Engine.of_run(scenes_run / "run", features=tmp_path / "other")
    rows = np.load(tmp_path / "other" / "train_ims.npy")
    np.save(tmp_path / "other" / "train_ims.npy", rows[::-1])
    with pytest.raises(ValueError, match="are not the features that"):
        Engine.of_run(scenes_run / "run", features=tmp_path / "other")


def test_words_that_the_model_never_learned_are_named(scenes_run: Path) -> None:
    engine = Engine.of_run(scenes_run / "run", backbone="scenes-cnn")
    assert engine.unknown_words("a dirigible dog") == ["dirigible"]


def test_a_model_that_compares_elements_is_refused() -> None:
    run = train(recipe("scan_grid_gru", training__epochs=1), small_data())
    with pytest.raises(ValueError, match="compares elements"):
        Engine(run.model, run.tokenizer, "mine")


def test_a_recipe_that_must_be_trained_first_is_refused() -> None:
    with pytest.raises(ValueError, match="vse train vsepp_grid_gru"):
        Engine.of_recipe("vsepp_grid_gru")


def test_from_a_folder_of_pictures_to_answers_by_commands_alone(
    towers: Path, album_of_colours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vse(*arguments: object) -> Any:
        return CliRunner().invoke(cli.app, ["search", *map(str, arguments)])

    monkeypatch.chdir(tmp_path)
    (album_of_colours / "broken.jpg").touch()
    refused = vse("index", album_of_colours)
    assert "--run RUN or --recipe" in str(refused.exception)
    first = vse("index", album_of_colours, "--recipe", towers)
    assert "14 added" in first.output and "broken.jpg cannot be read" in first.output
    assert "14 as before" in vse("index", album_of_colours).output  # it knows its model
    answer = vse("a big dog", "--top", 3).stdout.splitlines()
    wanted = Index.load("picture-index").search("a big dog", 3)
    assert answer == [f"{one.score:6.3f}  {one.path}" for one in wanted]
    own = vse("--picture", album_of_colours / "3.png", "--top", 1)
    assert own.stdout.split() == ["1.000", str(album_of_colours / "3.png")]
    assert "give a sentence" in str(vse("ask").exception)
    assert "leave one out" in str(vse("index", ".", "--run", "x", "--recipe", "y").exception)
    assert "belong to a run" in str(vse("index", ".", "--backbone", "x").exception)


def test_a_picture_that_another_process_took_out_is_not_found(
    engine: Engine, album_of_colours: Path, tmp_path: Path
) -> None:
    Index.build(album_of_colours, engine, tmp_path / "index").close()
    served = Index.load(tmp_path / "index", engine)
    (album_of_colours / "1.png").unlink()
    Index.build(album_of_colours, engine, tmp_path / "index").close()
    found = served.search("dog", k=20)
    assert len(found) == 13 and album_of_colours / "1.png" not in {one.path for one in found}
