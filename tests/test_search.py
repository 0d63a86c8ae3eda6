"""An index of pictures: built, killed and resumed, searched by sentence and by picture, and kept honest."""

import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import logit

from small import recipe, small_data, train
from towers import make_extracted, make_photographs, make_towers

pytest.importorskip("qdrant_client", reason="needs the extra search")

from qdrant_client import QdrantClient
from typer.testing import CliRunner

from course.approximate import flat, quantised, recall, top
from vsecore import cli
from vsecore.data.backbones import MirroredBackbone
from vsecore.data.features import open_precomp
from vsecore.data.karpathy import CaptionSplit
from vsecore.data.photographs import Photographs, View
from vsecore.data.picture_folders import list_pictures
from vsecore.embedding import Embedding
from vsecore.recipes import get
from vsecore.scenes.backbones import find_backbone
from vsecore.scoring import encode
from vsecore.search import Engine, Index, Seen, Source
from vsecore.search.index import PROPOSED, Term
from vsecore.search.relevance import calibrate, relevance_of
from vsecore.search.store import FILE, Facts, Store
from vsecore.similarity import SIMILARITIES, Similarity, max_sim, unit
from vsecore.training import load_run

WORDS = ["dog", "cat", "a red square", "a big green picture of a dog"]
URL = "http://127.0.0.1:6333"
SETS = (4, 32)


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """A folder with a tiny CLIP."""
    folder = tmp_path_factory.mktemp("clip")
    make_towers(folder, "clip")
    return folder


@pytest.fixture(scope="module")
def engine(towers):
    return Engine.of_recipe(str(towers))


@pytest.fixture
def album(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    make_photographs(folder, 14)
    (folder / "dataset_flickr8k.json").unlink()
    return folder


def one_picture(path, seed):
    noise = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


def ranked(found):
    return [one.number for one in found]


def test_the_top_ten_are_those_of_faiss_and_scores_are_the_models_cosines(engine, album):
    index = Index.build(album, engine)
    numbers, vectors = index.all_vectors()
    for words in WORDS:
        query, found = engine.sentence(words), index.search(words)
        nearest = numbers[top(flat(vectors), query[None])[0]].tolist()
        assert ranked(found) == nearest
        cosines = [float(engine.picture(one.path) @ query) for one in found[:2]]
        assert [one.score for one in found[:2]] == pytest.approx(cosines, abs=1e-5)
    for entry in index.store.entries()[:4]:
        assert index.search(entry.path, k=1)[0].score == pytest.approx(1, abs=1e-5)
        assert entry.number not in ranked(index.like(entry.number, k=20))
        assert len(index.like(entry.number, k=3)) == 3


def test_new_changed_touched_and_removed_files_are_noticed(engine, album, tmp_path):
    one_picture(album / "noise.bmp", 7)  # not packed: its length says nothing of its content
    index = Index.build(album, engine, tmp_path / "index")
    assert (index.report.added, index.report.kept) == (15, 0)
    (album / "deeper").mkdir()
    one_picture(album / "deeper" / "new.png", 1)
    one_picture(album / "0.png", 2)
    one_picture(album / "noise.bmp", 8)
    (album / "1.png").unlink()
    os.utime(album / "2.png")  # written again with the same bytes
    served = Index.load(tmp_path / "index", engine)
    report = index.add(album)
    assert (report.added, report.changed, report.removed, report.kept) == (1, 2, 1, 12)
    dates = {entry.path: entry.changed for entry in index.store.entries()}
    assert dates[album / "2.png"] == (album / "2.png").stat().st_mtime_ns, "so that it is not read again"
    assert len(served.search("dog", k=20)) == 15  # by another process, such as a page
    fresh = Index.build(album, engine)
    for words in (*WORDS, album / "noise.bmp"):  # a batch of another size may round a last digit another way
        found, wanted = index.search(words), fresh.search(words)
        assert [one.path for one in found] == [one.path for one in wanted]
        assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-5)
    assert index.add(album).kept == 15


def test_an_index_may_hold_several_folders_but_nothing_hidden_nor_itself(engine, album, tmp_path):
    other = tmp_path / "others"
    hidden = (".cache/x.png", ".y.png", "index/thumbnails/z.png")
    for path in (*(album / name for name in hidden), other / "one.png", other / "b" / "two.png"):
        path.parent.mkdir(parents=True, exist_ok=True)
        one_picture(path, 1)
    index = Index.build(album, engine, album / "index")
    assert len(index) == 14
    (other / "back").symlink_to(other, target_is_directory=True)  # a circle
    report = index.add(other)
    assert (report.added, report.removed, len(index)) == (2, 0, 16)
    assert (index.add(album).removed, len(index)) == (0, 16)
    other.rename(tmp_path / "unplugged")
    report = index.add(album, exclude=["others"])  # one of the album's, if it has any
    assert report.removed == 0 and report.absent == [other]
    assert (index.add(album, exclude=[str(other)]).removed, len(index)) == (2, 14)


def test_broken_pictures_are_named_and_left_out_until_they_are_mended(engine, album, tmp_path):
    whole = (album / "3.png").read_bytes()
    (album / "3.png").write_bytes(whole[: len(whole) // 2])
    (album / "empty.jpg").touch()
    index = Index.build(album, engine, tmp_path / "index")
    assert {path.name for path in index.report.broken} == {"3.png", "empty.jpg"}
    assert len(index) == 13
    for entry in index.store.entries():  # those after a broken one have their own vectors
        assert index.search(entry.path, k=1)[0].score == pytest.approx(1, abs=1e-5)
    (album / "3.png").write_bytes(whole)
    (album / "5.png").write_bytes(b"no picture any more")
    report = index.add(album)
    assert report.added == 1 and {path.name for path in report.broken} == {"5.png", "empty.jpg"}
    assert len(index) == 13 and album / "5.png" not in {one.path for one in index.search("dog", k=20)}


def test_pictures_in_a_folder_that_cannot_be_read_stay_until_it_can_be(engine, album, tmp_path, monkeypatch):
    (album / "deeper").mkdir()
    (album / "1.png").rename(album / "deeper" / "1.png")
    index, scan = Index.build(album, engine, tmp_path / "index"), os.scandir

    def refused(folder):
        if Path(folder).name == "deeper":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(os, "scandir", refused)
    report = index.add(album)
    assert (report.removed, report.kept, len(index)) == (0, 13, 14)
    assert "deeper cannot be read" in report.notes[0]


def test_another_model_or_one_that_has_changed_is_refused_by_name(engine, towers, album, tmp_path):
    Index.build(album, engine, tmp_path / "index").close()
    make_towers(tmp_path / "other", "siglip")
    other, changed = Engine.of_recipe(str(tmp_path / "other")), Engine.of_recipe(str(towers))
    with torch.no_grad():
        next(iter(changed.model.image_encoder.parameters())).mul_(1.5)
    for wrong in (other, changed):
        for attempt in (Index.load, lambda folder, e: Index.build(album, e, folder)):
            with pytest.raises(ValueError, match=rf"{engine.name}.*{wrong.name}"):
                attempt(tmp_path / "index", wrong)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process that was forked")
def test_a_killed_indexing_goes_on_and_loses_nothing(engine, album, tmp_path):
    embed, batches = engine._embed, []

    def embed_until_killed(read):
        batches.append(len(read))
        if len(batches) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return embed(read)

    if (child := os.fork()) == 0:
        engine._embed = embed_until_killed
        Index.build(album, engine, tmp_path / "index", batch_size=2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(Store(tmp_path / "index")) == 6
    index = Index.build(album, engine, tmp_path / "index", batch_size=2)
    assert (index.report.kept, index.report.added) == (6, 8)
    undisturbed = Index.build(album, engine, batch_size=2)
    assert [entry.path for entry in index.store.entries()] == [e.path for e in undisturbed.store.entries()]
    np.testing.assert_allclose(index.all_vectors()[1], undisturbed.all_vectors()[1], atol=1e-6)


@pytest.mark.parametrize("damage", ["vectors", "path", "version", "cut"])
def test_damage_is_refused_and_the_file_is_named(engine, album, tmp_path, damage):
    Index.build(album, engine, tmp_path / "index").close()
    path = tmp_path / "index" / FILE
    with contextlib.closing(sqlite3.connect(path)) as stored, stored:
        if damage == "vectors":
            content = bytearray(stored.execute("SELECT vectors FROM pictures WHERE number = 3").fetchone()[0])
            content[5] ^= 1
            stored.execute("UPDATE pictures SET vectors = ? WHERE number = 3", (bytes(content),))
        elif damage == "path":
            stored.execute("UPDATE pictures SET path = ? WHERE number = 7", (b"/pictures/other.png",))
        elif damage == "version":
            stored.execute("UPDATE facts SET value = replace(value, '\"version\": ', '\"version\": 9')")
    if damage == "cut":
        os.truncate(path, path.stat().st_size // 3)
    with pytest.raises(ValueError, match=str(path)):
        Index.load(tmp_path / "index", engine)


def test_an_index_of_before_goes_on(engine, album, tmp_path):
    """Its table once said which pictures a server had, and another one held the files that were broken."""
    built, other = Index.build(album, engine, tmp_path / "index"), Index.build(album, engine)
    wanted = built.search("dog")
    assert Index.load(tmp_path / "index").search("dog") == wanted == other.search("dog")
    assert built.store.facts.collection != other.store.facts.collection  # on a server, each has its own
    with contextlib.closing(sqlite3.connect(tmp_path / "index" / FILE)) as stored, stored:
        stored.execute("ALTER TABLE pictures ADD COLUMN sent INTEGER NOT NULL DEFAULT 0")
        stored.execute("CREATE TABLE problems (path BLOB PRIMARY KEY, problem TEXT NOT NULL)")
    one_picture(album / "new.png", 1)
    index = Index.build(album, engine, tmp_path / "index")
    assert (index.report.added, index.report.kept) == (1, 14)
    assert [one for one in index.search("dog", k=11) if one.path.name != "new.png"][:10] == wanted


def test_bad_questions_are_refused(engine, album, tmp_path):
    index = Index.build(album, engine)
    (tmp_path / "hollow").mkdir()
    for attempt, error, named in (
        (lambda: index.search("  "), ValueError, "sentence"),
        (lambda: index.search("dog", k=0), ValueError, "k"),
        (lambda: index.search(tmp_path / "nothing.png"), ValueError, r"nothing\.png"),
        (lambda: Index.build(tmp_path / "nowhere", engine), FileNotFoundError, "nowhere"),
        (lambda: Index.build(tmp_path / "hollow", engine, tmp_path / "index"), FileNotFoundError, "hollow"),
        (lambda: Index.load(tmp_path / "hollow"), FileNotFoundError, "hollow"),
        (lambda: Engine.of_recipe("vsepp_grid_gru"), ValueError, "vse train vsepp_grid_gru"),
    ):
        with pytest.raises(error, match=named):
            attempt()
    assert not (tmp_path / "index").exists()
    run = train(recipe("scan_grid_gru", training__epochs=1), small_data())
    with pytest.raises(ValueError, match="mine compares elements"):
        Engine(run.model, run.tokenizer, "mine")


def test_a_server_gets_what_it_lacks_and_loses_what_is_gone(engine, album, tmp_path, monkeypatch):
    client = QdrantClient(":memory:")  # stands in for a server that goes on while programs come and go
    monkeypatch.setattr("qdrant_client.QdrantClient", lambda **_: client)
    here = Index.build(album, engine, tmp_path / "index")

    def the_same():
        there = Index.load(tmp_path / "index", engine, url=URL)
        found, wanted = there.search("dog", k=20), here.search("dog", k=20)
        assert ranked(found) == ranked(wanted) and len(there.vectors.numbers()) == len(here)
        assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-5)

    the_same()
    there, other = (Index.load(tmp_path / "index", engine, url=URL) for _ in range(2))
    (album / "1.png").unlink()
    one_picture(album / "0.png", 3)
    here.add(album)  # the server hears nothing of this
    assert len(there.search("dog", k=20)) == 12  # but what is gone is not shown
    the_same()
    one_picture(album / "new.png", 4)
    there.vectors.numbers = lambda: other.add(album) and other.vectors.numbers()  # it comes in between
    there.vectors.synchronise(there.store)
    assert len(other.vectors.numbers()) == 14
    client.delete_collection(here.store.facts.collection)  # a server that was set up anew
    the_same()
    monkeypatch.undo()
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9 "):
        Index.load(tmp_path / "index", engine, url="http://127.0.0.1:9")


@pytest.fixture(scope="module")
def scenes_run(tmp_path_factory):
    root = make_extracted(tmp_path_factory.mktemp("album"))
    train(recipe(training__epochs=1), open_precomp(root / "features"), folder=root / "run")
    return root


def test_a_run_on_features_sees_new_pictures_as_it_saw_those_it_was_trained_on(scenes_run):
    engine = Engine.of_run(scenes_run / "run", features=scenes_run / "features")
    run, data = load_run(scenes_run / "run"), open_precomp(scenes_run / "features")
    files = [scenes_run / name for name in data.train.picture_ids]
    seen = np.stack([one.vectors for batch in engine.pictures(files) for one in batch])
    np.testing.assert_allclose(seen, encode(run.model, data.train, run.tokenizer)[0].vectors, atol=1e-5)
    features = engine.features(files[:1])
    assert np.array_equal(features, features.astype(np.float16))  # rounded as on disk
    assert engine.notes("a dirigible dog") == ["the model never learned dirigible, and searches without"]


def test_all_that_decides_the_vectors_is_in_the_fingerprint(scenes_run):
    run, network = load_run(scenes_run / "run"), find_backbone("scenes-cnn")
    usual = {"tokenizer": run.tokenizer, "backbone": network}
    changes = ({"tokenizer": run.recipe.tokenizer(["other", "words"])}, {"dtype": "float32"})
    changes = ({}, *changes, {"backbone": MirroredBackbone(network)})
    found = [Engine(run.model, name="mine", **usual | change).fingerprint for change in changes]
    assert len(set(found)) == 4
    assert found[0] == Engine.of_run(scenes_run / "run", features=scenes_run / "features").fingerprint


def test_a_run_on_features_needs_to_know_their_network(scenes_run, tmp_path):
    run = scenes_run / "run"
    with pytest.raises(ValueError, match=r"--features.*--backbone"):
        Engine.of_run(run)
    with pytest.raises(ValueError, match="width"):
        Engine.of_run(run, backbone="scenes-vit")
    of_others = load_run(run)
    of_others.data["network"] = "scenes-cnn 0123456789ab"
    with pytest.raises(ValueError, match=r"by scenes-cnn 0123456789ab.*--weights"):
        Engine.of(Source(str(run), backbone="scenes-cnn"), of_others)
    shutil.copytree(scenes_run / "features", tmp_path / "other")
    made = json.loads((tmp_path / "other" / "meta.json").read_text())
    (tmp_path / "other" / "meta.json").write_text(json.dumps(made | {"backbone_sha256": "0" * 64}))
    with pytest.raises(ValueError, match="--weights"):
        Engine.of_run(run, features=tmp_path / "other")
    rows = np.load(tmp_path / "other" / "train_ims.npy")
    np.save(tmp_path / "other" / "train_ims.npy", rows[::-1])
    with pytest.raises(ValueError, match="--features"):
        Engine.of_run(run, features=tmp_path / "other")


def test_from_a_folder_of_pictures_to_answers_by_commands_alone(towers, album, tmp_path, monkeypatch):
    def vse(*arguments):
        return CliRunner().invoke(cli.app, ["search", *map(str, arguments)])

    monkeypatch.chdir(tmp_path)
    (album := album.rename(tmp_path / "album[1]")).joinpath("broken.jpg").touch()
    towers = shutil.copytree(towers, "towers")
    assert "--run RUN or --recipe" in str(vse("index", album).exception)
    built = vse("index", album, "--recipe", towers)
    assert "14 added" in built.output and "broken.jpg" in built.output
    assert "14 as before" in vse("index", album).output  # it knows its model
    answer = vse("a big dog", "--top", 3).stdout.splitlines()
    wanted = Index.load("picture-index").search("a big dog", 3)
    assert answer == [f"{one.score:6.3f}  {one.path}" for one in wanted]
    assert vse("--picture", album / "3.png", "--top", 1).stdout.split() == ["1.000", str(album / "3.png")]
    summed = vse("a", "dog", "+", "0.5", album / "3.png", "-", "cat", "--top", 1, "--paths").stdout.split()
    terms = [Term("a dog"), Term(album / "3.png", 0.5), Term("cat", -1)]
    assert summed == [str(Index.load("picture-index").search(terms, 1)[0].path)]
    monkeypatch.setattr("vsecore.data.picture_files.HEIC_SUFFIXES", {".heic"})
    assert "no picture gone.heic" in str(vse("gone.heic").exception)
    shutil.copy(album / "3.png", album / "the same.png")
    assert "1 added" in vse("index", album).output
    first, second = vse("--picture", album / "3.png", "--top", 2).stdout.splitlines()
    assert "(a copy of" in second and first.split(maxsplit=1)[1] in second
    Path(towers).rename("moved")
    assert "if it was moved" in str(vse("a dog").exception)
    Path("mine.yaml").write_text(f"recipe: {tmp_path / 'moved'}")
    for model in ("moved", tmp_path / "mine.yaml"):
        assert "15 as before" in vse("index", album, "--recipe", model).output and vse("a dog").exit_code == 0
    album.rename("unplugged")
    one_picture("moved/1.png", 1)
    told = vse("index", "moved").output
    line = next(line for line in told.splitlines() if "--exclude" in line)
    assert ", 0 removed" in told and "left out" not in line
    assert ", 15 removed" in vse("index", "moved", *shlex.split(line.partition(": ")[2])).output


def test_a_moved_library_is_known_by_its_bytes_and_what_is_nowhere_is_forgotten(engine, album, tmp_path):
    index = Index.build(album, engine, tmp_path / "index")
    before = {entry.digest: entry.number for entry in index.store.entries()}
    (album / "0.png").unlink()
    moved = album.rename(tmp_path / "elsewhere") / "deeper"
    moved.mkdir()
    for path in list(moved.parent.glob("*.png")):
        path.rename(moved / f"new-{path.name}")
    report = index.add(moved.parent)
    assert (report.added, report.moved, report.removed, report.kept) == (0, 13, 1, 0)
    assert {entry.digest: entry.number for entry in index.store.entries()}.items() <= before.items()
    assert index.search("dog", 1)[0].path.parent == moved
    assert index.add(moved.parent).kept == 13


def test_what_systems_keep_beside_pictures_is_left_out_and_links_are_followed_once(album, tmp_path):
    outside = tmp_path / "disk"
    inside = ("@eaDir/a.jpg/SMALL.jpg", "one.JP2", "x.jfif", "appdata_oc1/b.jpg")
    for path in (outside / "a.png", *(album / name for name in inside)):
        path.parent.mkdir(parents=True, exist_ok=True)
        one_picture(path.with_suffix(".png"), 1)
        path.with_suffix(".png").rename(path)
    for name in ("link", "link again"):
        (album / name).symlink_to(outside, target_is_directory=True)
    (outside / "round").symlink_to(album, target_is_directory=True)
    found = list_pictures(album)
    assert len(found.pictures) == 16 and album / "link" / "a.png" in found.pictures
    assert found.others == {".jp2": 1} and {path.name for path in found.systems} == {"@eaDir", "appdata_oc1"}
    some = list_pictures(album, exclude=["LINK", "1*.png"])
    assert len(some.pictures) == 10 + 1 + 1 - 1 and some.excluded == 6


def test_terms_add_and_subtract_what_they_are_alike(engine, album):
    index = Index.build(album, engine)
    picture = album / "3.png"
    terms = [Term("dog"), Term(picture, 0.5), Term("cat", -1)]
    numbers, vectors = index.all_vectors()
    sums = vectors @ (engine.sentence("dog") + 0.5 * engine.picture(picture) - engine.sentence("cat"))
    found = index.search(terms, 5)
    assert ranked(found) == numbers[np.argsort(-sums, kind="stable")[:5]].tolist()
    with pytest.raises(ValueError, match="cancel"):
        index.search([Term("dog"), Term("dog", -1)])


def test_vectors_are_ranked_by_the_models_own_similarity_whatever_it_is(towers, album):
    class Apart(Similarity):
        reads = "vectors"

        def forward(self, v, t):
            return torch.cdist(v.vectors, t.vectors)

    model = get(str(towers))
    own = Engine(model.build(3, model.tokenizer(["-"])), model.tokenizer(["-"]), "mine")
    own.model.similarity = Apart()
    index = Index.build(album, own)
    numbers, vectors = index.all_vectors()
    distances = np.linalg.norm(vectors - own.sentence("dog"), axis=1)
    found = index.search("dog", 5)
    assert ranked(found) == numbers[np.argsort(-distances, kind="stable")[:5]].tolist()
    assert [one.score for one in found] == pytest.approx(sorted(distances)[:-6:-1], abs=1e-5)
    assert ranked(index.search([Term("dog", -1)], 1)) == numbers[[distances.argmin()]].tolist()


def test_probabilities_add_up_to_what_was_right_and_an_index_keeps_them(engine, album, tmp_path, monkeypatch):
    index = Index.build(album, engine, tmp_path / "index")
    files, captions = sorted(album.glob("*.png")), WORDS * 7
    names = [path.name for path in files]
    split = CaptionSplit("test", Photographs(files, View()), captions, np.arange(28) // 2, names)
    learned, _ = calibrate(index, {"test": split})
    assert learned.captions == 14
    expected = []
    for caption in captions[::2]:  # those that it learned from
        found = index.search(caption, len(index))
        scores = np.array([one.score for one in found])
        standard = (scores - scores.mean()) / scores.std()
        shares = 1 / (1 + np.exp(-learned.offset - learned.slope * standard))
        assert learned.of(index, engine.sentence(caption), found) == pytest.approx(shares, abs=1e-5)
        expected.append(shares)
    assert np.mean(expected) == pytest.approx(1 / len(index), abs=1e-4)  # as in every logistic regression
    assert relevance_of(Index.load(tmp_path / "index", engine)) == learned
    both = learned, replace(learned, pictures=7)  # of which the index has grown to 14
    told, less = (one.of(index, engine.sentence("dog"), found) for one in both)
    np.testing.assert_allclose(logit(less), logit(told) - np.log(2), atol=1e-6)
    monkeypatch.setattr("vsecore.search.relevance.ENOUGH", 2)
    split = CaptionSplit("test", Photographs(files[:7], View()), captions, np.arange(28) // 4, names[:7])
    assert calibrate(index, {"test": split})[0].pictures == 7 + 1  # and the last, which has no caption
    with pytest.raises(ValueError, match="of 0 captions"):
        calibrate(index, {})


class SetEngine:
    """Stands in for a trained set model: it compares, and the test hands it sets that are made already."""

    name, fingerprint, shape, source = "sets", "0" * 64, SETS, None
    has_sets, by_cosine = True, False

    def __init__(self, similarity):
        self.similarity = SIMILARITIES.build(similarity, {}, dim=32)

    def compare(self, vectors, query):
        pictures, wanted = Embedding(torch.from_numpy(vectors)), Embedding(torch.from_numpy(query[None]))
        with torch.inference_mode():
            return self.similarity(pictures, wanted)[:, 0].numpy()


def sets(count, seed, spread):
    """Sets as trained slots make them: pictures of a topic are near each other, each slot a little apart."""
    dice = torch.Generator().manual_seed(seed)
    topics = torch.randn(60, 1, SETS[1], generator=torch.Generator().manual_seed(9))
    own = torch.randn(count, 1, SETS[1], generator=dice)
    slots = torch.randn(count, *SETS, generator=dice)
    return unit(topics[torch.arange(count) % 60] + 0.5 * own + spread * slots).numpy()


def index_of(vectors, similarity="smooth_chamfer", url=None):
    store = Store(None, Facts("sets", "0" * 64, list(SETS), None, "sets"))
    store.put(Seen(Path(f"/{row}.png"), 1, 1, "", one) for row, one in enumerate(vectors))
    return Index(SetEngine(similarity), store, url)


@pytest.mark.parametrize("similarity", ["smooth_chamfer", "chamfer"])
@pytest.mark.parametrize("spread", [0.3, 0.7])
def test_maxsim_proposes_what_the_exact_similarity_would_rank_first(similarity, spread):
    index = index_of(sets(1500, 0, spread), similarity)
    kept = 0
    for query in sets(60, 1, spread)[::3]:  # captions of some topics
        found, wanted = index.nearest(query, 10), index._ranked([(1.0, query)], index.store.vectors())[:10]
        kept += len(set(ranked(found)) & {number for number, _ in wanted})
        assert found[0].score == pytest.approx(wanted[0][1], abs=1e-6)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert kept / 200 >= 0.99


def test_sets_are_kept_as_they_were_and_a_server_proposes_the_same(monkeypatch):
    client, sizes = QdrantClient(":memory:"), []
    upsert, pictures, query = client.upsert, sets(300, 2, 1.0), sets(1, 3, 1.0)[0]
    client.upsert = lambda *batch: sizes.append(np.size(batch[1].vectors["all"])) or upsert(*batch)
    monkeypatch.setattr("qdrant_client.QdrantClient", lambda **_: client)
    monkeypatch.setattr("vsecore.search.store.AT_ONCE", 2**12)
    here, there = index_of(pictures), index_of(pictures, url=URL)
    assert max(sizes) <= 2**12  # or a server refuses it
    numbers, kept = here.all_vectors()
    assert numbers.tolist() == list(range(1, 301)) and np.array_equal(kept, pictures)
    scores = max_sim(torch.from_numpy(pictures), torch.from_numpy(query[None]))[:, 0]
    assert [n for n, _ in here.vectors.nearest(query, 20)] == (scores.topk(20).indices + 1).tolist()
    for by in ("all", "mean"):
        ours, theirs = (index.vectors.nearest(query, 20, by=by) for index in (here, there))
        assert [number for number, _ in ours] == [number for number, _ in theirs]
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-5)
    assert ranked(here.nearest(query, 10)) == ranked(there.nearest(query, 10))


def test_terms_of_sets_add_and_subtract_their_similarities():
    index, told = index_of(sets(50, 2, 0.7)), dict(zip("ab", sets(2, 3, 0.7), strict=True))
    index.engine.sentence = told.__getitem__
    numbers, pictures = index.all_vectors()
    one, other = (index.engine.compare(pictures, told[name]) for name in "ab")
    found = index.search([Term("a"), Term("b", -0.5)], 5)
    assert ranked(found) == numbers[np.argsort(-(one - 0.5 * other), kind="stable")[:5]].tolist()


def test_a_picture_that_only_the_means_propose_is_found_too():
    """MaxSim is content with one slot that fits, and more pictures have one than it may propose."""
    x, y = np.eye(SETS[1], dtype=np.float32)[:2]
    lures = np.stack([[x, -x, -x, -x]] * (PROPOSED + 50))
    near = np.stack([0.9 * x + math.sqrt(1 - 0.9**2) * y] * 4)  # all of its slots fit nearly as well
    index = index_of(np.concatenate([lures, near[None]]).astype(np.float32))
    caption = np.stack([-y, x, x, x])  # its first is like none of them
    exact = index._ranked([(1.0, caption)], index.store.vectors())
    assert index.nearest(caption, 1)[0].number == len(lures) + 1 == exact[0][0]


def noise(count, seed):
    x = np.random.default_rng(seed).standard_normal((count, 32)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_a_quantised_index_finds_most_of_what_the_exact_one_does():
    pictures, queries, others = noise(2000, 0), noise(50, 1), np.roll(noise(2000, 2), 1) ** 3
    exact = top(flat(pictures), queries)
    assert np.array_equal(exact, np.argsort(-(queries @ pictures.T), kind="stable")[:, :10])
    assert recall(exact, exact) == 1
    assert recall(top(quantised("SQ8", pictures, pictures), queries), exact) > 0.95
    own, foreign = (recall(top(quantised("PQ8x4", pictures, x), queries), exact) for x in (pictures, others))
    assert 0.01 < foreign < own < 0.9, "codebooks are learned from the examples"
