"""Mining: the same as sorting every row and every column, whatever the blocks."""

import contextlib
import itertools
import json
import signal
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from small import recipe, small_data, train
from vsecore.mining import load_negatives, mine, mine_offline_negatives, negatives_identity
from vsecore.mining.blocks import Search
from vsecore.mining.folder import STATE, MiningState
from vsecore.mining.topk import TopK, rows_of
from vsecore.training import score_split


def collection(seed, pictures=9, captions=20, dim=5, crowd=0, ties=False, rising=False):
    """Vectors whose products are exact, and owners in any order; one picture has a crowd of captions besides.

    Rising: later rows score higher with every anchor, so that the buffers overflow time and again.
    """
    dice = np.random.default_rng(seed)
    owner = np.concatenate(
        [np.arange(pictures), dice.integers(pictures, size=captions), np.full(crowd, dice.integers(pictures))]
    )
    dice.shuffle(owner)
    grain = 1 if ties else 128
    v, t = ((dice.normal(size=(n, dim)) * grain).round() / grain for n in (pictures, len(owner)))
    if rising:
        ones, rows = np.ones((pictures, 1)), np.arange(pictures)[:, None] // 3
        v = np.hstack([v, ones, rows])
        t = np.hstack([t, np.arange(len(t))[:, None] // 3, np.ones((len(t), 1))])
    return v.astype(np.float32), t.astype(np.float32), owner


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


def same(found, wanted):
    return np.array_equal(found.texts, wanted[0]) and np.array_equal(found.pictures, wanted[1])


def model_of(name, data, **changes):
    """An untrained model, and its tokenizer."""
    chosen = recipe(name, **changes)
    tokenizer = chosen.tokenizer(data.train.captions)
    torch.manual_seed(0)
    return chosen.build(data.feature_dim, tokenizer).eval(), tokenizer


@contextlib.contextmanager
def torch_threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@given(
    seed=st.integers(0, 10_000),
    pictures=st.integers(2, 120),
    captions=st.integers(0, 200),
    crowd=st.sampled_from([0, 20, 300]),
    ties=st.booleans(),
    rising=st.booleans(),
    block=st.tuples(st.integers(3, 120), st.integers(3, 120)),
    kept=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    threads=st.integers(1, 3),
)
@settings(max_examples=100, deadline=None)
def test_mining_is_sorting_whatever_the_blocks(
    seed, pictures, captions, crowd, ties, rising, block, kept, threads
):
    v, t, owner = collection(seed, pictures, captions, 4, crowd, ties, rising)
    with torch_threads(threads), torch.autocast("cpu", torch.bfloat16):  # which must not reach the products
        found = mine_offline_negatives(v, t, owner, *kept, block=block)
    assert found.texts.dtype == found.pictures.dtype == np.int32
    assert same(found, by_sorting(v @ t.T, owner, *kept))


@given(
    seed=st.integers(0, 10_000),
    ties=st.booleans(),
    block=st.tuples(st.integers(20, 60), st.integers(40, 200)),
    kept=st.tuples(st.integers(1, 40), st.integers(10, 30)),
    stop=st.floats(0, 1),
)
@settings(max_examples=30, deadline=None)
def test_a_search_goes_on_from_wherever_it_stood(seed, ties, block, kept, stop):
    v, t, owner = collection(seed, 120, 240, ties=ties)
    scores, states = torch.from_numpy(v @ t.T), []

    def begin():
        def score(pictures, captions):
            return scores[pictures][:, captions].clone(memory_format=torch.contiguous_format)

        return Search(score, torch.from_numpy(owner), len(v), kept, block, torch.device("cpu"))

    first, second = begin(), begin()
    first.run(1, lambda: states.append({name: x.copy() for name, x in first.state().items()}))
    second.restore(states[int(stop * (len(states) - 1))])
    assert second.done
    for keys, rows in zip(second.run(2), by_sorting(v @ t.T, owner, *kept), strict=True):
        assert np.array_equal(rows_of(keys).numpy(), rows)


def test_threads_never_note_pictures_for_the_same_captions_at_once(monkeypatch):
    busy, overlaps, threads, add = set(), [], set(), TopK.add

    def watch(self, scores, first_anchor, first_item, dim=1):
        if dim == 0:
            threads.add(threading.get_ident())
            overlaps.append(first_anchor in busy)
            busy.add(first_anchor)
            time.sleep(0.002)
        add(self, scores, first_anchor, first_item, dim)
        if dim == 0:
            busy.remove(first_anchor)

    monkeypatch.setattr(TopK, "add", watch)
    v, t, owner = collection(0, pictures=40, captions=80, ties=True)
    with torch_threads(2):
        found = mine_offline_negatives(v, t, owner, 5, 5, block=(4, len(t)))
        assert torch.get_num_threads() == 2
    assert same(found, by_sorting(v @ t.T, owner, 5, 5))
    assert len(overlaps) == 10 and not any(overlaps)
    assert len(threads) >= 2, "otherwise the test would say nothing"


@pytest.mark.parametrize("interrupted", [False, True])
def test_when_one_thread_fails_or_the_user_interrupts_the_others_stop(interrupted):
    """Only the main thread gets an interrupt."""
    owner, seen, count = torch.arange(4000) % 20, [], itertools.count()

    def score(pictures, captions):
        seen.append(captions)
        number = next(count)  # the length of `seen` may have grown by two before it is looked at
        time.sleep(0.005)
        if number == 4 and not interrupted:
            raise ValueError("no")
        if number == 4:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return torch.zeros(10, 1)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with torch_threads(2):
            with pytest.raises(KeyboardInterrupt if interrupted else ValueError):
                Search(score, owner, 20, (5, 5), (10, 1), torch.device("cpu")).run(2)
            assert torch.get_num_threads() == 2
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) < 400, "each of the two had 4,000 blocks"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("images", lambda v, t, owner: {"images": v[0]}),
        ("images", lambda v, t, owner: {"images": v * 1e30, "captions": t * 1e30}),
        ("captions", lambda v, t, owner: {"captions": t * np.nan}),
        ("owner", lambda v, t, owner: {"owner": owner[:-1]}),
        ("owner", lambda v, t, owner: {"owner": owner + 1}),
        ("texts", lambda v, t, owner: {"texts": 0}),
        ("pictures", lambda v, t, owner: {"images": v[:1], "owner": owner * 0}),
    ],
)
def test_what_cannot_be_mined_is_refused_by_name(name, change):
    v, t, owner = collection(0)
    with pytest.raises(ValueError, match=name):
        mine_offline_negatives(**{"images": v, "captions": t, "owner": owner} | change(v, t, owner))


def test_a_trained_model_is_mined_and_kept(tmp_path):
    run, data = train(recipe()), small_data()
    found = mine(run.model, data.train, run.tokenizer, 7, 5, folder=tmp_path)
    scores = score_split(run.model, data.train, run.tokenizer).numpy()
    assert same(found, by_sorting(scores, data.train.owner, 7, 5))
    assert same(load_negatives(tmp_path, data.train), (found.texts, found.pictures))
    with pytest.raises(ValueError, match="texts: 7 in the folder, 8 now"):
        mine(run.model, data.train, run.tokenizer, 8, 5, folder=tmp_path)
    with torch.no_grad():
        next(run.model.parameters()).add_(1)
    with pytest.raises(ValueError, match="model"):
        mine(run.model, data.train, run.tokenizer, 7, 5, folder=tmp_path)
    with torch.no_grad():
        next(run.model.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        mine(run.model, data.train, run.tokenizer, 7, 5)


def test_a_model_that_is_still_training_is_mined_without_its_dropout():
    data = small_data("region")
    model, tokenizer = model_of("sgraf_region_gru", data)
    scores = score_split(model, data.train, tokenizer).numpy()
    assert same(mine(model.train(), data.train, tokenizer, 7, 5), by_sorting(scores, data.train.owner, 7, 5))
    assert model.training, "it is left as it was"


class Killed(Exception):
    pass


@pytest.mark.parametrize("name", ["vsepp_grid_gru", "scan_region_gru"])
@pytest.mark.parametrize("after", [1, 3])
def test_a_killed_search_goes_on_and_finds_the_same(tmp_path, monkeypatch, name, after):
    data = small_data("region" if "region" in name else "grid")
    model, tokenizer = model_of(name, data)
    monkeypatch.setattr(model.similarity, "block", (6, 8))
    monkeypatch.setattr("vsecore.mining.folder.SAVE_SECONDS", 0)
    wanted = mine(model, data.train, tokenizer, 7, 10)  # ten pictures: more than are done at the first save
    keep, seen = MiningState.keep, []

    def keep_and_die(self, search):
        keep(self, search)
        seen.append(search.done)
        if len(seen) == after:
            raise Killed

    monkeypatch.setattr(MiningState, "keep", keep_and_die)
    with pytest.raises(Killed), torch_threads(1):
        mine(model, data.train, tokenizer, 7, 10, folder=tmp_path)
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        load_negatives(tmp_path, data.train)
    with torch_threads(1 if after == 1 else 2):
        found = mine(model, data.train, tokenizer, 7, 10, folder=tmp_path)
    assert same(found, (wanted.texts, wanted.pictures))
    assert seen[after] == min(6 * (after + 1), 20), "it went on where it was, in blocks of six pictures"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["negatives.json", "pictures.npy", "texts.npy"]


@pytest.mark.parametrize("damage", ["cut", "other model", "other blocks"])
def test_a_search_that_cannot_go_on_starts_over_and_says_so(tmp_path, monkeypatch, capsys, damage):
    data = small_data()
    model, tokenizer = model_of("vsepp_grid_gru", data)
    monkeypatch.setattr(model.similarity, "block", (6, 8))
    with monkeypatch.context() as dying:
        dying.setattr("vsecore.mining.folder.SAVE_SECONDS", 0)
        dying.setattr("vsecore.mining.models.save_negatives", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mine(model, data.train, tokenizer, 7, 5, folder=tmp_path)
    if damage == "cut":
        content = (tmp_path / STATE).read_bytes()
        (tmp_path / STATE).write_bytes(content[: len(content) // 2])
    elif damage == "other blocks":
        monkeypatch.setattr(model.similarity, "block", (5, 8))
    else:
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    wanted = mine(model, data.train, tokenizer, 7, 5)
    found = mine(model, data.train, tokenizer, 7, 5, folder=tmp_path)
    assert same(found, (wanted.texts, wanted.pictures))
    assert "starts over" in capsys.readouterr().err


def test_negatives_that_changed_or_belong_elsewhere_are_refused(tmp_path):
    data = small_data()
    model, tokenizer = model_of("vsepp_grid_gru", data)
    mine(model, data.train, tokenizer, 7, 5, folder=tmp_path, recipe="teacher")
    with pytest.raises(ValueError, match="data: "):
        load_negatives(tmp_path, data.train.subset(12))
    own, other = (
        negatives_identity(model, data.train, tokenizer, 7, number, who)
        for number, who in ((5, "teacher"), (6, "pupil"))
    )
    load_negatives(tmp_path, data.train, expected=own)
    with pytest.raises(ValueError, match="recipe: teacher in the folder, pupil now; pictures: 5"):
        load_negatives(tmp_path, data.train, expected=other)
    rows = np.load(tmp_path / "texts.npy")
    for damage in (
        lambda path: np.save(path, rows[:, ::-1].copy()),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
    ):
        damage(tmp_path / "texts.npy")
        with pytest.raises((ValueError, FileNotFoundError), match=r"texts\.npy"):
            load_negatives(tmp_path, data.train)
    (tmp_path / "negatives.json").write_text(json.dumps({"identity": {}}))
    with pytest.raises(ValueError, match=r"negatives\.json"):
        load_negatives(tmp_path, data.train)


def test_the_identity_counts_what_the_weights_do_not_tell():
    """Pools without weights differ in their settings only."""
    data = small_data()
    digests = set()
    kmax = [{"image__pool": "kmax", "image__pool__k": k} for k in (1, 3)]
    for pool in (*kmax, {"image__pool": "max"}):
        model, tokenizer = model_of("vsepp_grid_gru", data, **pool)
        for model.image_pool.keep_attention in (True, False):  # which changes no score
            digests.add(negatives_identity(model, data.train, tokenizer).model)
    assert len(digests) == 3
