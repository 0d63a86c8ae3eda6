"""The world as data: a size begins every larger one, knobs turn, the cache is whole or not used."""

import json
import math
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from vsecore import scenes
from vsecore.scenes import build, generation


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Each test has a cache of its own."""
    monkeypatch.setenv("VSECORE_CACHE", str(tmp_path))
    return tmp_path


def looks(scene):
    return [(thing.kind, thing.colour, thing.size, thing.facing) for thing in scene.things]


def facts_apart(one, other):
    """How many facts differ between two scenes of equally many things."""
    if len(one.things) != len(other.things):
        return 99
    pairs = zip(looks(one), looks(other), strict=True)
    return (one.place != other.place) + sum(a != b for things in pairs for a, b in zip(*things, strict=True))


TURNED = dict(near_duplicates=0.3, ambiguity=0.5, relations_only=0.4, shortcut=0.5)


def test_a_picture_is_the_same_whichever_block_or_size_it_is_made_in():
    alone = [generation.Stream(5, "dev", scenes.Knobs(**TURNED)).picture(index) for index in range(40)]
    assert alone == scenes.generate(40, seed=5, split="dev", **TURNED)


def test_seeds_and_splits_share_no_chance():
    worlds = [scenes.generate(30, seed=seed, split=split) for seed in (0, 1) for split in ("train", "dev")]
    facts = [{repr(replace(picture.scene, look=0)) for picture in world} for world in worlds]
    assert len(set.union(*facts)) == 4 * 30


def test_every_caption_is_true_of_its_own_picture():
    for picture in scenes.generate(150, seed=1, **TURNED):
        assert len(picture.captions) == 5
        assert all(scenes.holds(caption.form, picture.scene) for caption in picture.captions)


def test_near_duplicates_differ_in_one_fact_from_an_earlier_picture():
    made = [picture.scene for picture in scenes.generate(400, near_duplicates=0.5)]
    near = [any(facts_apart(scene, earlier) == 1 for earlier in made[:row]) for row, scene in enumerate(made)]
    assert 0.42 < np.mean(near) < 0.58
    assert len({(scene.place, *looks(scene), *scene.relations) for scene in made}) > 0.98 * len(made)
    plain = [picture.scene for picture in scenes.generate(400)]
    assert np.mean([any(facts_apart(s, e) == 1 for e in plain[:row]) for row, s in enumerate(plain)]) < 0.05


def test_pairs_have_the_same_things_and_captions_that_tell_them_apart():
    made = scenes.generate(200, relations_only=1.0)
    for one, other in zip(made[::2], made[1::2], strict=True):
        assert one.scene.place == other.scene.place
        assert Counter(looks(one.scene)) == Counter(looks(other.scene))
        for own, foreign in ((one, other.scene), (other, one.scene)):
            assert all(caption.form.relations for caption in own.captions)
            assert not any(scenes.holds(caption.form, foreign) for caption in own.captions)
    made = scenes.generate(600, relations_only=0.3)
    paired = [
        Counter(looks(a.scene)) == Counter(looks(b.scene)) for a, b in zip(made[::2], made[1::2], strict=True)
    ]
    assert 0.22 < np.mean(paired) < 0.38  # the share of pictures in pairs


def test_marks_are_unique_drawn_and_written_in_every_caption_and_change_nothing_else():
    made = scenes.generate(300, shortcut=0.5)
    marked = [picture for picture in made if picture.scene.mark is not None]
    marks = [picture.scene.mark for picture in marked]
    assert 0.4 < len(marked) / len(made) < 0.6
    assert len(set(marks)) == len(marks)
    for picture in made:
        assert all(caption.form.mark == picture.scene.mark for caption in picture.captions)
    for picture in marked:
        assert all(str(picture.scene.mark) in caption.text for caption in picture.captions)
    plain, marked = scenes.generate(3)[2].scene, scenes.generate(3, shortcut=1.0)[2].scene
    assert replace(marked, mark=None) == plain
    assert (scenes.draw(plain) != scenes.draw(marked)).any()


def test_bad_requests_are_told_before_anything_is_made(cache):
    for call, named in (
        (lambda: scenes.generate(0), "count is 0"),
        (lambda: scenes.generate(3, near_duplicates=1.2), "near_duplicates is 1.2"),
        (lambda: scenes.generate(3, shortcut=math.nan), "shortcut is nan"),
        (lambda: scenes.generate(3, near_duplicates=0.7, relations_only=0.7), "sum is at most 1"),
        (lambda: build.pictures("train", 0), "train is 0"),
        (lambda: build.pictures("mine"), "'mine' has no size"),
        (lambda: build.pictures("../../escape", 3), "split is '../../escape'"),
        (lambda: build.pixels("", 3), "split is ''"),
        (lambda: build.pictures("train", 3, dups=0.5), "no knob 'dups'"),
        (lambda: build.load(3, 3, 3, features="cells"), "features is 'cells'"),
    ):
        with pytest.raises(ValueError, match=named):
            call()
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_what_is_on_disk_is_what_was_made():
    made = scenes.generate(12, seed=2, split="dev", **TURNED)
    assert build.pictures("dev", 12, seed=2, **TURNED) == made
    drawn = build.pixels("dev", 12, seed=2, **TURNED)
    assert drawn.dtype == np.uint8 and drawn.shape == (12, 112, 112, 3)
    np.testing.assert_array_equal(drawn[7], scenes.draw(made[7].scene))


def test_what_is_made_once_is_not_made_again(monkeypatch):
    build.pictures("dev", 4)
    monkeypatch.setattr(build, "_build", lambda *_: pytest.fail("built twice"))
    build.pictures("dev", 4)
    build.pixels("dev", 4)


def test_a_build_that_breaks_is_made_anew(cache, monkeypatch):
    def broken(scene):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build, "draw", broken)
        build.pixels("dev", 4)
    assert not list(cache.rglob("pictures.jsonl")), "nothing is taken for whole"
    assert build.pixels("dev", 4).shape == (4, 112, 112, 3)


def test_of_two_that_build_at_once_one_waits_for_the_other(cache, monkeypatch):
    real, built = build._build, []

    def slow(*arguments):
        built.append(arguments)
        time.sleep(0.3)  # the other one comes meanwhile
        real(*arguments)

    monkeypatch.setattr(build, "_build", slow)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: np.array(build.pixels("dev", 4)), range(2))
    np.testing.assert_array_equal(first, second)
    assert len(built) == 1 and len(list((cache / "scenes").iterdir())) == 1


def test_a_world_of_near_duplicates_alone_begins_families_anew():
    made = generation.Stream(0, "dev", scenes.Knobs(near_duplicates=1.0))
    assert made.picture(9_999).captions and len(made.made) <= 2 * generation.FAMILY


def blocks_of(folder, **changed):
    """Thirty pictures, each a block."""
    np.lib.format.open_memmap(folder / "pixels.npy", "w+", np.uint8, (30, 112, 112, 3)).flush()
    request = {"split": "dev", "seed": 0, "version": build.WORLD_VERSION, **vars(scenes.Knobs()), **changed}
    return [(request, start, start + 1, folder) for start in range(30)]


def test_several_processes_make_what_one_makes(tmp_path):
    lines = "".join(block for _, block in sorted(build._made(blocks_of(tmp_path))))
    texts = [json.loads(line)["captions"][0]["text"] for line in lines.splitlines()]
    made = scenes.generate(30, split="dev")
    assert texts == [picture.captions[0].text for picture in made]
    drawn = np.load(tmp_path / "pixels.npy")
    assert all((drawn[row] == scenes.draw(picture.scene)).all() for row, picture in enumerate(made))


def test_worlds_of_two_versions_are_never_mixed(tmp_path):
    with pytest.raises(RuntimeError, match="changed while this program ran"):
        build._make_block(blocks_of(tmp_path, version="another")[0])


@pytest.mark.parametrize(
    ("features", "shape"), [("grid", (49, 144)), ("patch", (49, 128)), ("region", (6, 246))]
)
def test_load_gives_features_of_the_pictures_in_order(features, shape):
    data = build.load(6, 4, 5, features=features)
    assert data.name == "scenes" and data.feature_kind == features and data.feature_dim == shape[1]
    assert data.train.pictures.shape == (6, *shape) and data.train.pictures.dtype == np.float16
    made = build.pictures("test", 5)
    assert data.test.captions == [caption.text for picture in made for caption in picture.captions]
    np.testing.assert_array_equal(data.test.owner, np.repeat(np.arange(5), 5))
    again = build.load(6, 4, 5, features=features)
    assert data.fingerprint() == again.fingerprint()
    if features == "region":
        things = [len(picture.scene.things) for picture in made]
        np.testing.assert_array_equal(data.test.picture_counts, np.array(things) + 1)
        for row, number in enumerate(things):
            assert (data.test.pictures[row][number + 1 :] == 0).all()
            boxes = np.array([thing.box for thing in made[row].scene.things]) / 112
            np.testing.assert_allclose(data.test.pictures[row][1 : number + 1, -6:-2], boxes, atol=1e-3)
    else:
        assert data.test.picture_counts is None


def test_features_do_not_depend_on_the_other_pictures_and_are_rebuilt_when_cut_short(cache):
    small, large = build.load(3, 3, 3, features="region"), build.load(3, 3, 9, features="region")
    np.testing.assert_allclose(small.test.pictures, large.test.pictures[:3], atol=2e-2)
    before = np.array(large.test.pictures)
    (path,) = (cache / "scenes").glob("test-9-*/region-*.npy")
    path.write_bytes(path.read_bytes()[:1000])
    np.testing.assert_array_equal(build.load(3, 3, 9, features="region").test.pictures, before)
