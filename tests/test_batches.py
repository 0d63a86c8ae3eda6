import multiprocessing
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from vsecore.data.batches import Batch, make_loader
from vsecore.data.noise import noise
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Split
from vsecore.data.vocabulary import Vocabulary
from vsecore.data.words import TokenizedCaptions

WORDS = ["a", "red", "kite", "above", "the", "beach", "and", "two", "small", "dogs", "run", "past"]


def small_split(pictures=23, name="train", counts=False):
    """Picture p has features p and 1 to 5 captions that begin with word p; a target names its row."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(pictures), rng.integers(1, 6, pictures))
    rng.shuffle(owner)
    captions = [" ".join([WORDS[p % 12], *rng.choice(WORDS, rng.integers(1, 9))]) for p in owner]
    return Split(
        name=name,
        pictures=np.ones((pictures, 7, 4), np.float16) * np.arange(pictures, dtype=np.float16)[:, None, None],
        captions=captions,
        owner=owner,
        picture_ids=[f"{p}.jpg" for p in range(pictures)],
        picture_counts=rng.integers(1, 8, pictures) if counts else None,
        targets=np.arange(2.0 * len(owner)).reshape(-1, 2),
    )


def hard_negatives(split, texts=4, pictures=3):
    """Some captions and pictures that are not the anchor's own, drawn at random."""
    rng, rows, all_pictures = np.random.default_rng(1), np.arange(len(split.captions)), np.arange(len(split))
    return OfflineNegatives(
        texts=np.stack([rng.choice(rows[split.owner != p], texts, False) for p in all_pictures]),
        pictures=np.stack([rng.choice(np.delete(all_pictures, p), pictures, False) for p in split.owner]),
    )


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(WORDS)


def same(a, b):
    for x, y in zip(vars(a).values(), vars(b).values(), strict=True):
        if isinstance(x, Tensor):
            if x.dtype != y.dtype or not torch.equal(x, y):
                return False
        elif isinstance(x, tuple) and x and isinstance(x[0], Batch):
            if not all(map(same, x, y)):
                return False
        elif x != y:
            return False
    return True


DROPS = {"element_drop": 0.3, "word_drop": 0.4}


def slow_epoch(split, vocabulary, size, mode, world=1, drops=DROPS):
    """What each process gets of each batch, row by row: caption, tokens, picture, its mask and the width."""
    count = len(split.captions) if mode == "pairs" else len(split)
    order = sorted(range(count), key=lambda row: noise(5, 2, "order", np.array([row]))[0])
    for start in range(0, count - size + 1, size):
        joint, shares = order[start : start + size], []
        own = [[c for c, owner in enumerate(split.owner) if owner == p] for p in range(len(split))]
        captions_of = {row: [row] if mode == "pairs" else own[row] for row in joint}
        widest = max(
            len(vocabulary.encode([split.captions[c]])[0][0]) for row in joint for c in captions_of[row]
        )
        for rank in range(world):
            rows = joint[rank * size // world : (rank + 1) * size // world]
            captions = [caption for row in rows for caption in captions_of[row]]
            read = {c: slow_words(c, split, vocabulary, drops["word_drop"]) for c in captions}
            drawn_by = captions if mode == "pairs" else rows
            pictures = [int(split.owner[c]) for c in captions] if mode == "pairs" else rows
            pairs = zip(pictures, drawn_by, strict=True)
            masks = [slow_mask(*pair, split, drops["element_drop"]) for pair in pairs]
            width = widest if world > 1 else max(map(len, read.values()))
            shares.append((captions, [read[c] for c in captions], pictures, masks, width))
        yield shares


def slow_words(caption, split, vocabulary, drop):
    """A caption's tokens: with a draw below half of `drop` a word is hidden, below `drop` it is left out."""
    tokens = vocabulary.encode([split.captions[caption]])[0][0].tolist()
    draws = noise(5, 2, "words", np.array([caption]), len(tokens))[0]
    places = range(1, len(tokens) - 1)
    highest = max(places, key=lambda place: draws[place])
    kept = []
    for place, token in enumerate(tokens):
        if place not in places or place == highest or draws[place] >= drop:
            kept.append(token)
        elif draws[place] < drop / 2:
            kept.append(vocabulary.unknown)
    return kept


def slow_mask(picture, drawn_by, split, drop):
    draws = noise(5, 2, "elements", np.array([drawn_by]), 7)[0]
    real = range(7 if split.picture_counts is None else split.picture_counts[picture])
    highest = max(real, key=lambda place: draws[place])
    return [place in real and (draws[place] >= drop or place == highest) for place in range(7)]


@pytest.mark.parametrize("mode", ["pairs", "pictures"])
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("drops", [DROPS, {"element_drop": 0.0, "word_drop": 0.0}], ids=["drops", "whole"])
@pytest.mark.parametrize("counts", [False, True])
def test_batches_are_those_that_are_made_row_by_row(vocabulary, mode, world, drops, counts):
    split = small_split(counts=counts)
    options = {"mode": mode, "seed": 5, "epoch": 2, **drops}
    loaders = [make_loader(split, vocabulary, 8, share=(rank, world), **options) for rank in range(world)]
    epoch = list(slow_epoch(split, vocabulary, 8, mode, world, drops))
    assert len(epoch) == len(loaders[0]) > 1
    for slow, fast in zip(epoch, zip(*loaders, strict=True), strict=True):
        sizes = tuple(len(captions) for captions, *_ in slow)
        for (captions, read, pictures, masks, width), batch in zip(slow, fast, strict=True):
            assert batch.caption_rows.tolist() == captions
            assert batch.tokens.tolist() == [row + [vocabulary.pad] * (width - len(row)) for row in read]
            lengths = torch.tensor([len(row) for row in read])
            assert torch.equal(batch.token_mask, torch.arange(width) < lengths[:, None])
            assert batch.picture_rows.tolist() == pictures
            assert batch.picture_mask.tolist() == masks
            assert np.array_equal(batch.pictures, split.pictures[pictures])
            assert batch.owner_rows.tolist() == split.owner[captions].tolist()
            assert np.array_equal(batch.positives, np.array(pictures)[:, None] == split.owner[captions])
            assert np.array_equal(batch.targets, split.targets[captions])
            assert batch.shares == (sizes if world > 1 else ())


@pytest.mark.parametrize("mode", ["pairs", "pictures"])
def test_an_epoch_begun_in_the_middle_goes_on_as_if_never_stopped(vocabulary, mode):
    hard = hard_negatives(small_split()) if mode == "pairs" else None
    options = {"mode": mode, "seed": 3, "epoch": 2, "negatives": hard, **DROPS}
    whole = list(make_loader(small_split(), vocabulary, 4, **options))
    rest = list(make_loader(small_split(), vocabulary, 4, start=2, **options))
    assert len(rest) == len(whole) - 2 > 0
    assert all(same(a, b) for a, b in zip(whole[2:], rest, strict=True))
    assert list(make_loader(small_split(), vocabulary, 4, start=len(whole), **options)) == []
    assert len(make_loader(small_split(), vocabulary, 1, mode="pictures")) == 23


def test_workers_change_nothing_and_serve_every_epoch(vocabulary):
    """Also after an epoch of which only the first batches were asked for."""
    options = {"negatives": hard_negatives(small_split()), **DROPS}
    served, others = set(), {*multiprocessing.active_children()}
    loader = make_loader(small_split(), vocabulary, 8, workers=2, **options)
    for epoch, start, asked in ((0, 0, None), (1, 0, 1), (1, 2, None), (2, 0, None)):
        alone = make_loader(small_split(), vocabulary, 8, epoch=epoch, start=start, **options)
        pairs = zip(alone, loader.of_epoch(epoch, start), strict=asked is None)
        assert all(same(a, b) for a, b in islice(pairs, asked))
        served |= {child.pid for child in {*multiprocessing.active_children()} - others}
    assert len(served) == 2


def test_hard_negatives_are_shared_among_processes_and_padded_alike(vocabulary):
    options = {"negatives": hard_negatives(small_split()), **DROPS}
    joint = list(make_loader(small_split(), vocabulary, 8, **options))
    parts = [make_loader(small_split(), vocabulary, 8, share=(rank, 4), **options) for rank in range(4)]
    for batch, *shared in zip(joint, *parts, strict=True):
        groups = zip(batch.offline, zip(*(part.offline for part in shared), strict=True), strict=True)
        for whole, group in groups:
            assert len({part.tokens.shape[1] for part in group}) == 1
            assert {part.shares for part in group} == {(2, 2, 2, 2)}
            assert [row for part in group for row in words_of(part)] == words_of(whole)
            assert torch.equal(torch.cat([part.caption_rows for part in group]), whole.caption_rows)


def words_of(batch):
    return [tokens[mask].tolist() for tokens, mask in zip(batch.tokens, batch.token_mask, strict=True)]


def test_noise_is_uniform_and_knows_its_place():
    numbers = noise(1, 2, "elements", np.arange(2000), 50)
    assert numbers.min() >= 0 and numbers.max() < 1
    # Runs that go on in another version must see the same batches.
    assert numbers[7, :2].tolist() == [0.03136489356080263, 0.8544256595284034]
    assert noise(1, 2, "order", np.array([7])).tolist() == [0.9275653224343348]
    counts, _ = np.histogram(numbers, 20, (0, 1))
    assert ((counts - 5000) ** 2 / 5000).sum() < 44  # chi square, 19 degrees of freedom: 1 in 1,000
    assert np.array_equal(noise(1, 2, "elements", np.array([7, 3]), 9), numbers[[7, 3], :9])
    rows = np.arange(2000)
    for other in ((0, 2, "elements"), (1, 0, "elements"), (1, 2, "words")):
        assert abs(np.corrcoef(noise(*other, rows), noise(1, 2, "elements", rows))[0, 1]) < 0.1


def test_a_batch_moves_to_a_device_as_a_whole(vocabulary):
    batch = next(iter(make_loader(small_split(), vocabulary, 8, negatives=hard_negatives(small_split()))))
    moved = batch.to("meta")
    for one, other in ((moved, batch), *zip(moved.offline, batch.offline, strict=True)):
        for name, tensor in vars(one).items():
            if isinstance(tensor, Tensor):
                assert tensor.device.type == "meta", name
        assert other.pictures.dtype == torch.float16 and one.pictures.dtype == torch.float32
        assert one.shares == other.shares
    doubled = batch.map(lambda tensor: 2 * tensor)
    for one, other in zip((doubled, *doubled.offline), (batch, *batch.offline), strict=True):
        assert torch.equal(one.caption_rows, 2 * other.caption_rows)
    if torch.cuda.is_available():
        assert batch.pin_memory().pictures.is_pinned() and batch.pin_memory().offline[1].tokens.is_pinned()


def test_pixels_make_batches_without_a_mask_and_stay_bytes(vocabulary):
    pixels = np.random.default_rng(0).integers(0, 256, (23, 3, 4, 6), dtype=np.uint8)
    split = replace(small_split(), pictures=pixels)
    for mode in ("pairs", "pictures"):
        for batch in make_loader(split, vocabulary, 8, mode=mode, word_drop=0.2):
            assert batch.picture_mask is None and batch.pictures.dtype == torch.uint8
            assert np.array_equal(batch.pictures, split.pictures[batch.picture_rows])
            assert batch.to("cpu").pictures.dtype == torch.uint8
    with pytest.raises(ValueError, match="element_drop"):
        make_loader(split, vocabulary, 8, element_drop=0.1)


def test_captions_may_come_tokenised(vocabulary):
    split = small_split()
    tokenised = TokenizedCaptions.encode(vocabulary, split.captions)
    one, other = (list(make_loader(split, words, 8, **DROPS)) for words in (vocabulary, tokenised))
    assert all(map(same, one, other))
    with pytest.raises(ValueError, match="captions"):
        make_loader(split.subset(20), tokenised, 8)


def slow_draw(negatives, split, caption, epoch):
    """The two captions that a pair draws, and whether all ten draws belonged together."""
    texts, pictures = negatives.texts[split.owner[caption]], negatives.pictures[caption]
    draws = (noise(0, epoch, f"offline {name}", np.array([caption]), 10)[0] for name in ("texts", "pictures"))
    for first, second in zip(*draws, strict=True):
        text, picture = texts[int(first * len(texts))], pictures[int(second * len(pictures))]
        if together := split.owner[text] == picture:
            continue
        break
    others = [other for other in pictures if other != split.owner[text]]
    if together and others:
        picture = others[int(second * len(others))]
    own = np.flatnonzero(split.owner == picture)
    which = noise(0, epoch, "offline captions", np.array([caption]))[0]
    return int(text), int(own[int(which * len(own))]), bool(together)


def clinging(split):
    """Most hard captions belong to the usual hard picture; pictures 0 and 1 have no choice."""
    captions = [np.flatnonzero(split.owner == picture)[0] for picture in range(3)]
    texts, pictures = np.full((len(split), 20), captions[0]), np.zeros((len(split.owner), 12), int)
    texts[:, 0], pictures[:, -1] = captions[1], np.where(split.owner == 22, 21, 22)
    texts[0], texts[1] = captions[2], captions[0]
    pictures[split.owner == 0], pictures[split.owner == 1] = 2, 0
    return OfflineNegatives(texts, pictures)


@pytest.mark.parametrize("lists", [hard_negatives, clinging])
def test_hard_negatives_are_those_that_are_drawn_one_by_one(vocabulary, lists):
    split = small_split()
    negatives, helped, helpless = lists(split), 0, 0
    for epoch in range(10):
        batches = list(make_loader(split, vocabulary, 19, negatives=negatives, epoch=epoch, **DROPS))
        online = {
            int(row): (words_of(batch)[r], batch.picture_mask[r].tolist())
            for batch in batches
            for r, row in enumerate(batch.caption_rows)
        }
        for batch in batches:
            for r, caption in enumerate(batch.caption_rows.tolist()):
                text, of_picture, together = slow_draw(negatives, split, caption, epoch)
                assert [int(side.caption_rows[r]) for side in batch.offline] == [text, of_picture]
                belong = split.owner[text] == split.owner[of_picture]
                helped, helpless = helped + (together and not belong), helpless + int(belong)
            for side in batch.offline:  # each with its own picture, and with what drops in its own pair
                assert torch.equal(side.picture_rows, side.owner_rows)
                assert torch.equal(side.owner_rows, torch.from_numpy(split.owner)[side.caption_rows])
                assert torch.equal(side.pictures[:, 0, 0], side.picture_rows.half())
                for r, row in enumerate(side.caption_rows.tolist()):
                    assert online[row] == (words_of(side)[r], side.picture_mask[r].tolist())
    assert (helped > 20 and helpless > 0) if lists is clinging else helpless == 0


DAMAGES = [
    ("texts", lambda rows, split: rows[1:]),
    ("texts", lambda rows, split: rows[:, :0]),
    ("texts", lambda rows, split: rows.astype(float)),
    ("pictures", lambda rows, split: rows[:, 0]),
    ("pictures", lambda rows, split: np.where(rows == rows[0, 0], 23, rows)),
    ("texts", lambda rows, split: rows - 1000),
    ("texts", lambda rows, split: np.where(np.arange(23)[:, None] == 7, np.argmax(split.owner == 7), rows)),
    ("pictures", lambda rows, split: np.where(np.arange(len(rows))[:, None] == 9, split.owner[9], rows)),
]


@pytest.mark.parametrize(("side", "damage"), DAMAGES, ids=range(len(DAMAGES)))
def test_negatives_that_do_not_fit_the_split_are_refused(vocabulary, side, damage):
    split = small_split()
    negatives = hard_negatives(split)
    make_loader(split, vocabulary, 8, negatives=negatives)
    damaged = replace(negatives, **{side: damage(getattr(negatives, side), split)})
    with pytest.raises(ValueError, match=f"{side} of the offline negatives"):
        make_loader(split, vocabulary, 8, negatives=damaged)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "triples"},
        {"element_drop": 1.0},
        {"word_drop": -0.1},
        {"batch_size": 0},
        {"batch_size": 1000},
        {"batch_size": 24, "mode": "pictures"},
        {"batch_size": 8, "share": (0, 3)},
        {"share": (2, 2)},
        {"start": 99},
        {"negatives": hard_negatives(small_split()), "mode": "pictures"},
    ],
    ids=lambda options: " ".join(options),
)
def test_options_out_of_range_are_refused(vocabulary, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        make_loader(small_split(), vocabulary, **{"batch_size": 8, **options})
