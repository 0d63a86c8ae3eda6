"""Mining: the same as sorting every row and every column, whatever the blocks."""

import contextlib
import json
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from small import make_bert, recipe, small_data, train
from vsecore.data.offline_negatives import OfflineNegatives, draw_offline
from vsecore.data.splits import Split
from vsecore.mining import blocks, load_negatives, mine, mine_offline_negatives, negatives_identity
from vsecore.mining.again import search_again
from vsecore.mining.best import NOTHING, Best, likely_rank, rows_of
from vsecore.mining.blocks import Search
from vsecore.mining.half import bound, rounding
from vsecore.mining.pairs import Own
from vsecore.mining.state import STATE, MiningState
from vsecore.mining.threads import on_threads
from vsecore.model import VSE
from vsecore.training import load_run, score_split


def collection(seed, pictures=9, dim=5, ties=True):
    """Vectors, and one to four captions a picture, in any order."""
    dice = np.random.default_rng(seed)
    owner = np.concatenate(
        [np.arange(pictures), dice.integers(pictures, size=int(dice.integers(3 * pictures)))]
    )
    dice.shuffle(owner)
    v, t = dice.normal(size=(pictures, dim)), dice.normal(size=(len(owner), dim))
    if ties:  # whole numbers, whose products are exact: most scores tie
        v, t = v.round(), t.round()
    return v.astype(np.float32), t.astype(np.float32), owner


def crowded(seed, pictures, captions, crowd, ties, rising):
    """Vectors whose products are exact, and owners in any order; one picture has a crowd of captions besides.

    Rising: later rows score higher, with every anchor, so that the buffers overflow time and again.
    """
    dice = np.random.default_rng(seed)
    owner = np.concatenate([dice.integers(pictures, size=captions), np.full(crowd, dice.integers(pictures))])
    if dice.integers(2):
        dice.shuffle(owner)
    grain = 1 if ties else 128
    v, t = ((dice.normal(size=(n, 4)) * grain).round() / grain for n in (pictures, len(owner)))
    if rising:
        ones, rows = np.ones((pictures, 1)), np.arange(pictures)[:, None] // 3
        v = np.hstack([v, ones, rows])
        t = np.hstack([t, np.arange(len(t))[:, None] // 3, np.ones((len(t), 1))])
    return v.astype(np.float32), t.astype(np.float32), owner


def model_of(name, data, **changes):
    """An untrained model, and its tokenizer."""
    chosen = recipe(name, **changes)
    tokenizer = chosen.tokenizer(data.train.captions)
    torch.manual_seed(0)
    return chosen.build(data.feature_dim, tokenizer).eval(), tokenizer


def by_sorting(scores, owner, texts, pictures):
    """Sort every row and every column of (Ni, Nc) scores, and leave out what is the anchor's own."""
    n, captions = scores.shape
    texts = min(texts, captions - np.bincount(owner, minlength=n).max())
    pictures = min(pictures, n - 1)
    order = np.argsort(-scores, axis=1, kind="stable")
    other = np.argsort(-scores.T, axis=1, kind="stable")
    return (
        np.array([[c for c in order[p] if owner[c] != p][:texts] for p in range(n)]),
        np.array([[p for p in other[c] if owner[c] != p][:pictures] for c in range(captions)]),
    )


@contextlib.contextmanager
def torch_threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_of_a_new_thread():
    """How many threads torch gives to a thread that begins now; workers could change that for good."""
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def same(found, wanted):
    return np.array_equal(found.texts, wanted[0]) and np.array_equal(found.pictures, wanted[1])


@given(
    seed=st.integers(0, 10_000),
    ties=st.booleans(),
    block=st.tuples(st.integers(1, 12), st.integers(1, 40)),
    texts=st.integers(1, 12),
    pictures=st.integers(1, 9),
    threads=st.integers(1, 3),
)
@settings(max_examples=150, deadline=None)
def test_mining_is_sorting_whatever_the_blocks(seed, ties, block, texts, pictures, threads):
    v, t, owner = collection(seed, ties=ties)
    with torch_threads(threads):
        found = mine_offline_negatives(v, t, owner, texts, pictures, block=block)
    assert found.texts.dtype == found.pictures.dtype == np.int32
    assert same(found, by_sorting(v @ t.T, owner, texts, pictures))


@given(
    seed=st.integers(0, 10_000),
    pictures=st.integers(2, 120),
    captions=st.integers(100, 200),
    crowd=st.sampled_from([0, 20, 200]),
    ties=st.booleans(),
    rising=st.booleans(),
    block=st.tuples(st.integers(3, 120), st.integers(3, 120)),  # of less, see above; they take long
    kept=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    threads=st.integers(1, 3),
)
@settings(max_examples=150, deadline=None)
def test_mining_is_sorting_when_buffers_overflow(
    seed, pictures, captions, crowd, ties, rising, block, kept, threads
):
    v, t, owner = crowded(seed, pictures, captions, crowd, ties, rising)
    with torch_threads(threads):
        found = mine_offline_negatives(v, t, owner, *kept, block=block)
    assert same(found, by_sorting(v @ t.T, owner, *kept))


@pytest.mark.parametrize("ties", [False, True])
def test_a_picture_that_owns_most_captions_keeps_what_little_it_finds(monkeypatch, ties):
    """The others' buffers overflow while its own list is not yet full."""
    overflowed, prune = [], Best._prune

    def watch(self, here, keys):
        few = ((keys != NOTHING).sum(1) < self.k).any()
        overflowed.append(keys.shape[1] > self.width and bool(few))
        prune(self, here, keys)

    monkeypatch.setattr(Best, "_prune", watch)
    for seed in range(20):
        v, t, owner = crowded(seed, 5, 24, 300, ties=ties, rising=True)
        found = mine_offline_negatives(v, t, owner, block=(5, 20))
        assert same(found, by_sorting(v @ t.T, owner, 300, 60))
    assert any(overflowed), "otherwise the test would say nothing"


def test_the_same_scores_are_found_as_by_faiss():
    """Products of small whole numbers are exact, so that both compute the same scores; ties it may order."""
    dice = np.random.default_rng(0)
    owner = np.concatenate([np.arange(300), dice.integers(300, size=900)])
    v, t = (dice.integers(-9, 10, size=(n, 24)).astype(np.float32) for n in (300, 1200))
    found = mine_offline_negatives(v, t, owner, 30, 12, block=(70, 110))
    rows = np.arange(300)[:, None]
    most = int(np.bincount(owner).max())
    for mined, anchors, items, spare, true in (
        (found.texts, v, t, most, lambda theirs: owner[theirs] == rows),
        (found.pictures, t, v, 1, lambda theirs: theirs == owner[:, None]),
    ):
        index = faiss.IndexFlatIP(24)
        index.add(items)
        scores, theirs = index.search(anchors, mined.shape[1] + spare)
        for anchor, ours, reached, rows_there, own in zip(
            anchors, mined, scores, theirs, true(theirs), strict=True
        ):
            wanted, there = reached[~own][: len(ours)], rows_there[~own][: len(ours)]
            assert np.array_equal(items[ours] @ anchor, wanted)
            sure = wanted > wanted[-1]  # of those that tie with the last, FAISS may take others
            assert set(ours[sure]) == set(there[sure])


def test_a_trained_model_is_mined_and_kept(tmp_path):
    run, data = train(recipe()), small_data()
    found = mine(run.model, data.train, run.tokenizer, 7, 5, folder=tmp_path)
    scores = score_split(run.model, data.train, run.tokenizer).numpy()
    assert same(found, by_sorting(scores, data.train.owner, 7, 5))
    again = load_negatives(tmp_path, data.train)
    assert same(again, (found.texts, found.pictures))
    with pytest.raises(ValueError, match="texts: 7 in the folder, 8 now"):
        mine(run.model, data.train, run.tokenizer, 8, 5, folder=tmp_path)
    with torch.no_grad():
        next(run.model.parameters()).add_(1)
    with pytest.raises(ValueError, match="the model: not the same"):
        mine(run.model, data.train, run.tokenizer, 7, 5, folder=tmp_path)


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", ["vsepp_grid_gru", "scan_region_gru"])
@pytest.mark.parametrize("after", [1, 3])
def test_a_killed_search_goes_on_and_finds_the_same(tmp_path, monkeypatch, name, after):
    data = small_data("region" if "region" in name else "grid")
    model, tokenizer = model_of(name, data)
    monkeypatch.setattr(VSE, "block", (6, 8))
    wanted = mine(model, data.train, tokenizer, 7, 10)  # ten pictures: more than are done at the first save
    whole, seen = MiningState.keep, []

    def keep_and_die(self, search):
        whole(self, search)
        seen.append(search.done)
        if len(seen) == after:
            raise Killed

    monkeypatch.setattr(MiningState, "keep", keep_and_die)
    with pytest.raises(Killed), torch_threads(1):
        mine(model, data.train, tokenizer, 7, 10, folder=tmp_path, save_seconds=0)
    assert (tmp_path / STATE).is_file() and not (tmp_path / "negatives.json").exists()
    with pytest.raises(FileNotFoundError, match="holds no finished mining"):
        load_negatives(tmp_path, data.train)
    with torch_threads(1 if after == 1 else 2):
        found = mine(model, data.train, tokenizer, 7, 10, folder=tmp_path, save_seconds=0)
    assert same(found, (wanted.texts, wanted.pictures))
    assert seen[after] == 5 * (after + 1), "it went on where it was: twenty pictures make four blocks of five"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["negatives.json", "pictures.npy", "texts.npy"]


@pytest.mark.parametrize("damage", ["cut", "other model", "other blocks"])
def test_a_search_that_cannot_go_on_starts_over_and_says_so(tmp_path, monkeypatch, capsys, damage):
    data = small_data()
    model, tokenizer = model_of("vsepp_grid_gru", data)
    monkeypatch.setattr(VSE, "block", (6, 8))
    with monkeypatch.context() as dying:
        dying.setattr(MiningState, "remove", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mine(model, data.train, tokenizer, 7, 5, folder=tmp_path, save_seconds=0)
    (tmp_path / "negatives.json").unlink()
    if damage == "cut":
        content = (tmp_path / STATE).read_bytes()
        (tmp_path / STATE).write_bytes(content[: len(content) // 2])
    elif damage == "other blocks":
        monkeypatch.setattr(VSE, "block", (5, 8))
    else:
        with torch.no_grad():
            next(model.parameters()).mul_(1.5)
    wanted = mine(model, data.train, tokenizer, 7, 5)
    found = mine(model, data.train, tokenizer, 7, 5, folder=tmp_path)
    assert same(found, (wanted.texts, wanted.pictures))
    assert "mining starts over" in capsys.readouterr().err


def test_negatives_that_changed_or_belong_elsewhere_are_refused(tmp_path):
    data = small_data()
    model, tokenizer = model_of("vsepp_grid_gru", data)
    mine(model, data.train, tokenizer, 7, 5, folder=tmp_path, recipe="teacher")
    with pytest.raises(ValueError, match="the data's pictures, features or captions: not the same"):
        load_negatives(tmp_path, data.train.subset(12))
    expected = negatives_identity(model, data.train, tokenizer, 7, 5, "teacher")
    load_negatives(tmp_path, data.train, expected=expected)
    other = negatives_identity(model, data.train, tokenizer, 7, 6, "pupil")
    with pytest.raises(
        ValueError, match=re.escape("recipe: 'teacher' in the folder, 'pupil' now; pictures: 5")
    ):
        load_negatives(tmp_path, data.train, expected=other)
    rows = np.load(tmp_path / "texts.npy")
    np.save(tmp_path / "texts.npy", rows[:, ::-1].copy())
    with pytest.raises(ValueError, match="it has changed since it was mined"):
        load_negatives(tmp_path, data.train)
    (tmp_path / "texts.npy").write_bytes(b"")
    with pytest.raises(ValueError, match="is damaged"):
        load_negatives(tmp_path, data.train)
    (tmp_path / "texts.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"texts\.npy"):
        load_negatives(tmp_path, data.train)
    (tmp_path / "negatives.json").write_text(json.dumps({"identity": {}}))
    with pytest.raises(ValueError, match="lacks the field"):
        load_negatives(tmp_path, data.train)


def test_what_cannot_be_mined_is_refused():
    v, t, owner = collection(0)
    for change, message in (
        ({"images": v[0]}, "images is"),
        ({"images": v[:, :2]}, "it must have the width"),
        ({"captions": t * np.nan}, "captions holds NaN"),
        ({"owner": owner[:-1]}, "owner is"),
        ({"owner": owner + 1}, "owner names pictures 1 to 9: it must name 0 to 8"),
        ({"texts": 0}, "texts is 0: it must be at least 1"),
        ({"texts": 2.5}, "texts is 2.5: it must be a whole number"),
        ({"pictures": True}, "pictures is True: it must be a whole number"),
        ({"block": 0}, "block is 0: it must be at least 1"),
        ({"block": 2.5}, "block is 2.5: it must be a whole number"),
        ({"block": (3,)}, r"block is \(3,\): it must be one whole number, or two"),
        ({"block": (3, 2.5)}, "block is 2.5: it must be a whole number"),
        ({"precision": "half"}, 'precision is .half.: it must be "auto", "float32", '),
        ({"images": v[:1], "owner": owner * 0}, "negatives need at least two pictures"),
    ):
        with pytest.raises(ValueError, match=message):
            mine_offline_negatives(**{"images": v, "captions": t, "owner": owner} | change)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_scores_too_large_for_float32_are_refused_and_large_ones_mined(precision):
    v, t, owner = collection(0)
    with pytest.raises(ValueError, match="scores of pictures 0 to 8 are not finite numbers: scale"):
        mine_offline_negatives(v * 1e20, t * 1e20, owner, 3, 3, precision=precision)
    v, t = v * np.float32(2.0**62), t * np.float32(2.0**60)
    found = mine_offline_negatives(v, t, owner, 3, 3, precision=precision)
    assert same(found, by_sorting(v @ t.T, owner, 3, 3))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("ties", [False, True])
def test_an_anchor_whose_floor_was_guessed_too_high_is_searched_again(monkeypatch, precision, ties):
    """Captions and pictures whose neighbours all lie in the first block: the sample is not fair."""
    again = []

    def watch(found, some, *rest, **options):
        again.append(len(some))
        search_again(found, some, *rest, **options)

    monkeypatch.setattr(blocks, "search_again", watch)
    v, t, owner = collection(0, pictures=200, dim=6, ties=ties)
    v[::4] *= 8
    t[:: -(-len(t) // 100)] *= 8
    found = mine_offline_negatives(v, t, owner, 20, 20, block=(50, 100), precision=precision)
    assert same(found, by_sorting(v @ t.T, owner, 20, 20))
    # Half precision keeps so many pictures that only the guesses for captions are too high.
    assert again[0] and (again[1] or precision != "float32"), "otherwise the test would say nothing"


@given(
    seed=st.integers(0, 10_000),
    ties=st.booleans(),
    block=st.tuples(st.integers(20, 60), st.integers(40, 200)),
    kept=st.tuples(st.integers(1, 40), st.integers(10, 30)),
    stop=st.floats(0, 1),
)
@settings(max_examples=40, deadline=None)
def test_a_search_goes_on_from_wherever_it_stood(seed, ties, block, kept, stop):
    """Also if a guessed floor was too high: what was left out before must not be replaced by less."""
    v, t, owner = collection(seed, pictures=120, ties=ties)
    parts = -(-len(v) // block[0])
    v[seed % parts :: parts] *= 8  # one block is no fair sample
    scores, states = torch.from_numpy(v @ t.T), []

    def score(pictures, captions):
        return scores[pictures][:, captions].clone(memory_format=torch.contiguous_format)

    def begin():
        own = Own(owner, len(v), len(t))
        return Search(score, own, own.most(*kept), block, torch.device("cpu"), True, "")

    def note():
        keys = first.best_pictures.keep()
        states.append((first.texts[: first.done].clone(), keys, first.best_pictures.floor.clone()))

    first = begin()
    first.run(1, note)
    second = begin()
    second.restore(*states[int(stop * (len(states) - 1))])
    wanted = by_sorting(v @ t.T, owner, *kept)
    for search in (second, begin()):
        for keys, rows in zip(search.run(2), wanted, strict=True):
            assert np.array_equal(rows_of(keys).numpy(), rows)


@given(sample=st.integers(1, 4000), parts=st.integers(1, 40), k=st.integers(1, 300))
def test_a_guessed_floor_is_reached_by_enough_items_of_a_fair_sample(sample, parts, k):
    """A sample that holds up to three standard deviations more of the best than it should still does."""
    rank, expected = likely_rank(k, sample, sample * parts), k / parts
    assert rank == k or rank > expected + 3 * expected**0.5
    assert parts > 1 or rank == k, "of all the items, the k-th best is the floor, and nothing is guessed"


@given(rows=st.integers(1, 300), size=st.integers(1, 300))
def test_rows_are_dealt_into_blocks_of_equal_size_that_hold_each_once(rows, size):
    dealt = blocks.deal(rows, size)
    assert sorted(row for block in dealt for row in block) == list(range(rows))
    sizes = [len(block) for block in dealt]
    assert max(sizes) <= size and max(sizes) - min(sizes) <= 1


def test_threads_share_the_work_and_keep_their_number():
    """Each worker has its part of torch's threads; all work at the same time, in one mode."""
    together, parts = threading.Barrier(3, timeout=60), []

    def work(worker, workers):
        together.wait()
        parts.append((worker, workers, torch.get_num_threads(), torch.is_inference_mode_enabled()))
        yield

    with torch_threads(6), torch.inference_mode():
        on_threads(work, 3)
        assert torch.get_num_threads() == threads_of_a_new_thread() == 6
    assert sorted(parts) == [(worker, 3, 2, True) for worker in range(3)]


def test_two_threads_never_note_pictures_for_the_same_captions_at_once(monkeypatch):
    busy, overlaps, threads, add = set(), [], set(), Best.add

    def watch(self, scores, first_anchor, items, dim=1):
        shared = dim == 0 and self.dealt is not None  # not where an anchor is searched again
        if shared:
            threads.add(threading.get_ident())
            overlaps.append(first_anchor in busy)
            busy.add(first_anchor)
            time.sleep(0.002)
        add(self, scores, first_anchor, items, dim)
        if shared:
            busy.remove(first_anchor)

    monkeypatch.setattr(Best, "add", watch)
    v, t, owner = collection(0, pictures=40)
    with torch_threads(2):
        found = mine_offline_negatives(v, t, owner, 5, 5, block=(4, len(t)))
    assert same(found, by_sorting(v @ t.T, owner, 5, 5))
    assert len(overlaps) == 10 and not any(overlaps)
    assert len(threads) >= 2, "otherwise the test would say nothing"


def until_stopped(ended):
    """A worker's part, which goes on until it is stopped; if nobody stops it, it gives up and says so."""
    last = time.monotonic() + 20
    while time.monotonic() < last:
        yield
    ended.append(True)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_when_one_thread_fails_the_others_stop(error):
    ended = []

    def work(worker, workers):
        if worker == 1:
            raise error("no")
        yield from until_stopped(ended)

    with torch_threads(2):
        with pytest.raises(error, match="no"):
            on_threads(work, 2)
        assert not ended
        assert torch.get_num_threads() == threads_of_a_new_thread() == 2


def test_an_interrupt_stops_all_threads():
    """Only the main thread gets it."""
    ended = []

    def work(worker, workers):
        if worker == 1:
            time.sleep(0.05)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        yield from until_stopped(ended)

    with torch_threads(2):
        with pytest.raises(KeyboardInterrupt):
            on_threads(work, 2)
        assert not ended
        assert torch.get_num_threads() == threads_of_a_new_thread() == 2


def test_workers_stop_if_there_is_no_thread_for_the_next(monkeypatch):
    submit, ended = ThreadPoolExecutor.submit, []

    def refuse(self, part, worker):
        if worker:
            raise RuntimeError("can't start new thread")
        return submit(self, part, worker)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    with torch_threads(2):
        with pytest.raises(RuntimeError, match="new thread"):
            on_threads(lambda worker, workers: until_stopped(ended), 2)
        assert not ended
        assert torch.get_num_threads() == threads_of_a_new_thread() == 2


def test_rows_of_embeddings_on_the_cpu_are_named_by_numbers_on_the_cpu(monkeypatch):
    """Numbers on a GPU cannot index them: where some are searched again there, they are brought over."""
    brought = []

    class OnGPU(Tensor):
        def cpu(self):
            brought.append(len(self))
            return self.as_subclass(Tensor)

    def search_all_again(found, some, *rest):
        search_again(found, torch.arange(len(found)).as_subclass(OnGPU), *rest)

    data = small_data()
    model, tokenizer = model_of("vsepp_grid_gru", data)
    wanted = mine(model, data.train, tokenizer, 7, 5)
    monkeypatch.setattr(blocks, "search_again", search_all_again)
    assert same(mine(model, data.train, tokenizer, 7, 5), (wanted.texts, wanted.pictures))
    assert sum(brought) >= len(data.train) + len(data.train.captions)


def test_an_empty_place_is_never_returned():
    with pytest.raises(RuntimeError, match="keys hold 1 empty places"):
        rows_of(torch.tensor([3, NOTHING]))


def test_the_identity_counts_what_the_weights_do_not_tell():
    """Pools without weights differ in their settings only."""
    data = small_data()
    digests = set()
    for pool in ({"image__pool": "kmax", "image__pool__k": k} for k in (1, 3)):
        model, tokenizer = model_of("vsepp_grid_gru", data, **pool)
        digests.add(negatives_identity(model, data.train, tokenizer).model)
    model, tokenizer = model_of("vsepp_grid_gru", data, image__pool="max")
    digests.add(negatives_identity(model, data.train, tokenizer).model)
    assert len(digests) == 3


@pytest.mark.parametrize("name", ["vsepp_grid_gru", "scan_region_gru", "vsepp_grid_bert"])
def test_a_model_has_the_same_identity_when_it_is_loaded(tmp_path, name):
    data = small_data("region" if "region" in name else "grid")
    changes = {"training__epochs": 1}
    if "bert" in name:
        make_bert(tmp_path / "bert", data.train.captions)
        changes["text__encoder__weights"] = str(tmp_path / "bert")
    run = train(recipe(name, **changes), data, folder=tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    loaded = load_run(tmp_path / "elsewhere")
    one, other = (negatives_identity(each.model, data.train, each.tokenizer) for each in (run, loaded))
    assert one == other
    assert run.recipe.hash() == loaded.recipe.hash()


def test_draws_from_mined_negatives_are_never_true_pairs():
    v, t, owner = collection(3, pictures=40)
    negatives = mine_offline_negatives(v, t, owner, 12, 6)
    split = Split("train", np.zeros((40, 1, 1), np.float32), ["x"] * len(owner), owner, ["x"] * 40)
    rows, drawn = np.arange(len(owner)), 0
    for epoch in range(1 + 10_000 // len(owner)):
        hard_text, of_hard_picture = draw_offline(negatives, split, rows, seed=0, epoch=epoch)
        assert (owner[hard_text] != owner[rows]).all()
        assert (owner[of_hard_picture] != owner[rows]).all()
        assert (owner[hard_text] != owner[of_hard_picture]).all()
        drawn += len(rows)
    assert drawn >= 10_000


def test_a_draw_depends_on_seed_epoch_and_row_and_on_nothing_else():
    v, t, owner = collection(3, pictures=40)
    negatives = mine_offline_negatives(v, t, owner, 12, 6)
    split = Split("train", np.zeros((40, 1, 1), np.float32), ["x"] * len(owner), owner, ["x"] * 40)
    rows, some = np.arange(len(owner)), np.array([7, 3, 3, 30])
    usual = draw_offline(negatives, split, rows, seed=0, epoch=4)
    for whole, few in zip(usual, draw_offline(negatives, split, some, seed=0, epoch=4), strict=True):
        assert np.array_equal(few, whole[some])
    for change in ({"seed": 1}, {"epoch": 5}):
        text, of_picture = draw_offline(negatives, split, rows, **{"seed": 0, "epoch": 4, **change})
        assert (text != usual[0]).mean() > 0.5
        assert (owner[of_picture] != owner[usual[1]]).mean() > 0.5


def test_the_caption_and_the_picture_of_a_pair_are_drawn_independently():
    """Each place in the one list goes with each place in the other equally often."""
    n, places = 2000, np.arange(4)
    rows = np.arange(n)
    negatives = OfflineNegatives((rows[:, None] + 1 + places) % n, (rows[:, None] + 5 + places) % n)
    split = Split("train", np.zeros((n, 1, 1), np.float32), ["x"] * n, rows, ["x"] * n)
    text, picture = draw_offline(negatives, split, rows, seed=0, epoch=0)
    counts = np.zeros((4, 4))
    np.add.at(counts, ((text - rows) % n - 1, (picture - rows) % n - 5), 1)
    assert ((counts - n / 16) ** 2 / (n / 16)).sum() < 40  # chi square with 15 degrees of freedom


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("ties", [False, True])
def test_half_precision_gives_the_answer_of_float32(precision, ties):
    for seed in range(3):
        v, t, owner = collection(seed, pictures=250, dim=24, ties=ties)
        found = mine_offline_negatives(v, t, owner, 9, 6, precision=precision, block=(64, 200))
        assert same(found, by_sorting(v @ t.T, owner, 9, 6))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_autocast_does_not_change_the_answer(precision):
    v, t, owner = collection(0, pictures=200, dim=24, ties=False)
    v[::4] *= 8  # so that some anchors are searched again
    t[:: -(-len(t) // 100)] *= 8
    with torch.autocast("cpu", torch.bfloat16):
        found = mine_offline_negatives(v, t, owner, 20, 20, precision=precision, block=(50, 100))
    assert same(found, by_sorting(v @ t.T, owner, 20, 20))


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-3, 1.0, 30.0]), half=st.booleans())
@settings(max_examples=40, deadline=None)
def test_no_half_precision_score_is_further_off_than_the_bound(seed, scale, half):
    dtype = torch.float16 if half else torch.bfloat16
    dice = torch.Generator().manual_seed(seed)
    v, t = (scale * torch.randn(n, 33, generator=dice) for n in (20, 30))
    rounded = (v.to(dtype) @ t.to(dtype).T).float()
    assert ((rounded - v @ t.T).abs() <= bound(v, t, dtype)[:, None] + rounding(rounded, dtype)).all()


def test_half_precision_alone_would_be_wrong_and_float32_looks_again():
    """A thousand captions that bfloat16 cannot distinguish: more than any list of candidates holds."""
    v, dice = torch.eye(2), np.random.default_rng(0)
    t = torch.cat([torch.zeros(1, 2), torch.ones(1000, 2)])
    t[1:, 0] += torch.from_numpy(dice.permutation(1000) * 1e-6).float()
    owner = np.ones(1001, np.int64)
    owner[0] = 0
    assert len(t[1:, 0].bfloat16().unique()) == 1
    found = mine_offline_negatives(v, t, owner, 5, 1, precision="bfloat16")
    # Picture 1 owns all but one of the captions, so that every picture gets one.
    assert found.texts.tolist() == [[int(t[:, 0].argmax())], [0]]
