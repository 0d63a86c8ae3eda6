import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from vsecore.data.batches import Batch, make_loader, noise
from vsecore.data.splits import Dataset, Split
from vsecore.data.words import Vocabulary

WORDS = ["a", "red", "kite", "above", "the", "beach", "and", "two", "small", "dogs", "run", "past"]


def small_split(pictures: int = 23, name: str = "train", counts: bool = False) -> Split:
    """Picture p has features p everywhere, and 1 to 5 captions that begin with word p."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(pictures), rng.integers(1, 6, pictures))
    rng.shuffle(owner)
    captions = [" ".join([WORDS[p % 12], *rng.choice(WORDS, rng.integers(1, 9))]) for p in owner]
    return Split(
        name=name,
        pictures=np.broadcast_to(
            np.arange(pictures, dtype=np.float16)[:, None, None], (pictures, 7, 4)
        ).copy(),
        captions=captions,
        owner=owner,
        picture_ids=[f"{p}.jpg" for p in range(pictures)],
        picture_counts=rng.integers(1, 8, pictures) if counts else None,
    )


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(WORDS)


def same(a: Batch, b: Batch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


def rows_seen(batches: list[Batch], field: str) -> list[int]:
    return torch.cat([getattr(batch, field) for batch in batches]).tolist()


@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_of_pairs_shows_every_caption_once_with_its_picture(vocabulary, shuffle) -> None:
    split = small_split()
    batches = list(make_loader(split, vocabulary, 8, shuffle=shuffle, drop_last=False))
    seen = rows_seen(batches, "caption_rows")
    assert sorted(seen) == list(range(len(split.captions)))
    assert (seen == sorted(seen)) is not shuffle
    for batch in batches:
        assert torch.equal(batch.picture_rows, torch.from_numpy(split.owner)[batch.caption_rows])
        assert torch.equal(batch.pictures[:, 0, 0], batch.picture_rows.float())
        tokens, mask = vocabulary.encode([split.captions[row] for row in batch.caption_rows])
        assert torch.equal(batch.tokens, tokens) and torch.equal(batch.token_mask, mask)


def test_an_epoch_of_pictures_shows_every_picture_once_with_all_its_captions(vocabulary) -> None:
    split = small_split()
    batches = list(make_loader(split, vocabulary, 8, mode="pictures", drop_last=False))
    assert sorted(rows_seen(batches, "picture_rows")) == list(range(len(split)))
    assert sorted(rows_seen(batches, "caption_rows")) == list(range(len(split.captions)))
    for batch in batches:
        assert set(batch.owner_rows.tolist()) == set(batch.picture_rows.tolist())


@pytest.mark.parametrize("mode", ["pairs", "pictures"])
def test_positives_agree_with_the_double_loop(vocabulary, mode) -> None:
    split = small_split()
    for batch in make_loader(split, vocabulary, 10, mode=mode):
        for b, picture in enumerate(batch.picture_rows):
            for c, caption in enumerate(batch.caption_rows):
                assert batch.positives[b, c] == (split.owner[caption] == picture)


DROPS = {"element_drop": 0.3, "word_drop": 0.4}


@pytest.mark.parametrize("mode", ["pairs", "pictures"])
def test_an_epoch_begun_in_the_middle_goes_on_as_if_never_stopped(vocabulary, mode) -> None:
    options = {"mode": mode, "seed": 3, "epoch": 2, **DROPS}
    whole = list(make_loader(small_split(), vocabulary, 4, **options))
    rest = list(make_loader(small_split(), vocabulary, 4, start=2, **options))
    assert len(rest) == len(whole) - 2 > 0
    assert all(same(a, b) for a, b in zip(whole[2:], rest, strict=True))
    assert list(make_loader(small_split(), vocabulary, 4, start=len(whole), **options)) == []


def test_workers_change_nothing(vocabulary) -> None:
    alone = list(make_loader(small_split(), vocabulary, 8, **DROPS))
    helped = list(make_loader(small_split(), vocabulary, 8, workers=2, **DROPS))
    assert all(same(a, b) for a, b in zip(alone, helped, strict=True))


def test_ranks_share_the_joint_batch_in_order(vocabulary) -> None:
    joint = list(make_loader(small_split(), vocabulary, 8, **DROPS))
    parts = [list(make_loader(small_split(), vocabulary, 8, rank=rank, world=2, **DROPS)) for rank in (0, 1)]
    for batch, first, second in zip(joint, *parts, strict=True):
        assert torch.equal(batch.caption_rows, torch.cat([first.caption_rows, second.caption_rows]))
        assert torch.equal(batch.picture_mask, torch.cat([first.picture_mask, second.picture_mask]))


def test_the_order_changes_with_the_epoch_and_with_the_seed(vocabulary) -> None:
    orders = [
        rows_seen(list(make_loader(small_split(), vocabulary, 4, seed=seed, epoch=epoch)), "caption_rows")
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_batches_take_nothing_from_the_global_dice(vocabulary) -> None:
    torch.manual_seed(0)
    wanted = torch.rand(1)
    torch.manual_seed(0)
    list(make_loader(small_split(), vocabulary, 8, **DROPS))
    assert torch.equal(torch.rand(1), wanted)


def test_padding_elements_are_masked_and_at_least_one_element_stays(vocabulary) -> None:
    split = small_split(counts=True)
    batches = list(make_loader(split, vocabulary, 8, element_drop=0.95))
    for batch in batches:
        real = torch.arange(7) < torch.from_numpy(split.picture_counts)[batch.picture_rows, None]
        assert not (batch.picture_mask & ~real).any()
        assert batch.picture_mask.any(1).all()


def test_elements_are_dropped_as_often_as_asked(vocabulary) -> None:
    split = replace(small_split(), pictures=np.zeros((23, 400, 1), np.float16))
    batch = next(iter(make_loader(split, vocabulary, 23, element_drop=0.25)))
    assert batch.picture_mask.float().mean() == pytest.approx(0.75, abs=0.02)


def test_half_of_the_dropped_words_are_hidden_and_half_left_out(vocabulary) -> None:
    long = [" ".join(WORDS * 10)] * 20
    split = Split(
        "train", np.zeros((20, 1, 1), np.float32), long, np.arange(20), [str(row) for row in range(20)]
    )
    batch = next(iter(make_loader(split, vocabulary, 20, word_drop=0.4, shuffle=False)))
    words = batch.token_mask.sum(1) - 2
    assert words.float().mean() / 120 == pytest.approx(0.8, abs=0.03)
    assert (batch.tokens == vocabulary.unknown).sum() / (20 * 120) == pytest.approx(0.2, abs=0.03)
    original = vocabulary.encode(long[:1])[0][0].tolist()
    for tokens, mask in zip(batch.tokens.tolist(), batch.token_mask, strict=True):
        kept = tokens[: int(mask.sum())]
        assert kept[0] == vocabulary.start and kept[-1] == vocabulary.end
        rest = iter(original)  # the words that are left stand in their old order
        assert all(token in rest for token in kept if token != vocabulary.unknown)


def test_a_word_always_stays(vocabulary) -> None:
    split = small_split()
    for batch in make_loader(split, vocabulary, 8, word_drop=0.99):
        assert (batch.tokens > vocabulary.unknown).any(1).all()


def test_what_is_dropped_does_not_depend_on_the_neighbours_in_the_batch(vocabulary) -> None:
    def by_caption(batch_size: int) -> dict[int, tuple]:
        loader = make_loader(small_split(), vocabulary, batch_size, drop_last=False, **DROPS)
        return {
            int(row): (batch.tokens[i][batch.token_mask[i]].tolist(), batch.picture_mask[i].tolist())
            for batch in loader
            for i, row in enumerate(batch.caption_rows)
        }

    assert by_caption(3) == by_caption(17)


def test_noise_is_uniform_and_knows_its_place() -> None:
    numbers = noise(1, 2, "elements", np.arange(2000), 50)
    assert numbers.min() >= 0 and numbers.max() < 1
    counts, _ = np.histogram(numbers, 20, (0, 1))
    assert ((counts - 5000) ** 2 / 5000).sum() < 44  # chi square, 19 degrees of freedom: 1 in 1,000
    assert np.array_equal(noise(1, 2, "elements", np.array([7, 3]), 9), numbers[[7, 3], :9])
    for other in ((0, 2, "elements"), (1, 0, "elements"), (1, 2, "words")):
        assert (
            abs(np.corrcoef(noise(*other, np.arange(2000)), noise(1, 2, "elements", np.arange(2000)))[0, 1])
            < 0.1
        )


def test_a_subset_keeps_the_captions_of_its_pictures() -> None:
    split = small_split(counts=True)
    part = split.subset(5)
    assert len(part) == 5 and part.picture_ids == split.picture_ids[:5] and len(part.picture_counts) == 5
    assert part.captions == [c for c, o in zip(split.captions, split.owner, strict=True) if o < 5]
    with pytest.raises(ValueError, match="pictures is 24"):
        split.subset(24)


def test_a_fingerprint_changes_with_every_part() -> None:
    split = small_split(counts=True)
    other = split.pictures.copy()
    other[3] += 1
    changed = [
        split,
        replace(split, captions=[*split.captions[1:], "new"]),
        replace(split, owner=split.owner[::-1]),
        replace(split, picture_ids=[*split.picture_ids[1:], "new"]),
        replace(split, picture_counts=None),
        replace(split, pictures=other),
    ]
    assert len({part.fingerprint() for part in changed}) == len(changed)
    assert small_split(counts=True).fingerprint() == split.fingerprint()


def test_a_dataset_knows_its_width_and_refuses_splits_of_two_widths() -> None:
    parts = [small_split(name=name) for name in ("train", "dev", "test")]
    data = Dataset("small", *parts, feature_kind="region")
    assert data.feature_dim == 4
    assert data.fingerprint() != Dataset("small", *parts, feature_kind="grid").fingerprint()
    assert "23 pictures of (7, 4)" in repr(data)
    with pytest.raises(ValueError, match="width"):
        Dataset("small", *parts[:2], replace(parts[2], pictures=np.zeros((23, 7, 5))), feature_kind="region")
    with pytest.raises(ValueError, match="feature_kind is 'pixel'"):
        Dataset("small", *parts, feature_kind="pixel")


def test_a_batch_moves_to_a_device(vocabulary) -> None:
    batch = next(iter(make_loader(small_split(), vocabulary, 8)))
    assert same(batch.to("cpu"), batch)
    assert batch.to("meta").tokens.device.type == "meta"
    if torch.cuda.is_available():
        assert batch.pin_memory().pictures.is_pinned()


def test_a_split_travels_to_a_worker() -> None:
    assert pickle.loads(pickle.dumps(small_split())).fingerprint() == small_split().fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pictures": np.zeros((23, 4))}, r"pictures of split 'train' have shape \(23, 4\)"),
        ({"captions": [], "owner": np.zeros(0, int)}, "split 'train' has no captions"),
        ({"owner": np.zeros(3, int)}, "owner of split 'train'"),
        ({"owner": np.full(70, 23)}, "names pictures"),
        ({"picture_ids": ["a"]}, "picture_ids of split 'train' has 1 entries"),
        ({"picture_counts": np.full(23, 8)}, "picture_counts of split 'train'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message) -> None:
    split = small_split()
    if "owner" in change and len(change["owner"]) == 70:
        change["owner"] = np.full(len(split.captions), 23)
    with pytest.raises(ValueError, match=message):
        replace(split, **change)


def test_a_picture_without_a_caption_is_named() -> None:
    with pytest.raises(ValueError, match="without a caption, the first is 'y'"):
        Split("dev", np.zeros((2, 1, 1)), ["a"], np.array([0]), ["x", "y"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "triples"}, "mode is 'triples'"),
        ({"element_drop": 1.0}, "element_drop is 1.0"),
        ({"word_drop": -0.1}, "word_drop is -0.1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 1000}, "batch_size is 1000, more than"),
        ({"world": 3}, "multiple of world"),
        ({"rank": 2, "world": 2}, "rank is 2"),
        ({"world": 2, "drop_last": False}, "drop_last is False"),
        ({"start": 99}, "start is 99"),
    ],
)
def test_options_out_of_range_are_refused(vocabulary, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        make_loader(small_split(), vocabulary, **{"batch_size": 8, **options})
