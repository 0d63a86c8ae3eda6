import pickle
from dataclasses import replace

import numpy as np
import pytest

from vsecore.data.feature_folder import MappedPictures
from vsecore.data.splits import Dataset, Split

OWNER = np.array([1, 0, 2, 1, 3, 4, 4, 1])


def small_split(name="train", pixels=False, **changes):
    """Five pictures, of (3, 2) features or of 4×6 pixels, with eight captions."""
    rng = np.random.default_rng(0)
    features = np.arange(30, dtype=np.float16).reshape(5, 3, 2) / 8
    pictures = rng.integers(0, 256, (5, 3, 4, 6), dtype=np.uint8) if pixels else features
    captions = [f"caption {row} of picture {picture}" for row, picture in enumerate(OWNER)]
    return replace(Split(name, pictures, captions, OWNER, [f"{p}.jpg" for p in range(5)]), **changes)


def targets(width=2):
    return np.random.default_rng(1).standard_normal((8, width)).astype(np.float32)


def test_the_captions_of_pictures_come_picture_after_picture():
    split = small_split()
    for pictures in ([1, 0, 4], [2], [3, 3], []):
        wanted = [row for picture in pictures for row in np.flatnonzero(split.owner == picture)]
        assert split.captions_of(np.array(pictures, np.int64)).tolist() == wanted
    assert split.caption_counts.tolist() == [1, 3, 1, 1, 2]


def test_a_subset_keeps_the_captions_of_its_pictures():
    split = small_split(picture_counts=np.array([1, 2, 3, 2, 1]), targets=targets())
    part = split.subset(2)
    assert len(part) == 2 and part.picture_ids == ["0.jpg", "1.jpg"]
    assert part.picture_counts.tolist() == [1, 2] and part.caption_counts.tolist() == [1, 3]
    kept = [0, 1, 3, 7]
    assert part.captions == [split.captions[row] for row in kept]
    assert np.array_equal(part.targets, split.targets[kept])
    with pytest.raises(ValueError, match="pictures is 6"):
        split.subset(6)


def test_a_fingerprint_changes_with_every_part():
    split = small_split(picture_counts=np.array([1, 2, 3, 2, 1]))
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
    assert pickle.loads(pickle.dumps(split)).fingerprint() == split.fingerprint()
    # Targets say nothing of the data: they are one more thing that a run learns from.
    assert replace(split, targets=targets()).fingerprint() == split.fingerprint()


def test_fingerprints_are_those_that_records_name():
    counted = small_split(picture_counts=np.array([1, 2, 3, 2, 1]))
    assert small_split().fingerprint() == "2f01bac9ab1ffe5eab211c0f808dd7b7aabf91b7da6c2b1da10ab9a1d08196e1"
    assert counted.fingerprint() == "daa388cbbc04f1da413fae8dce3486adc41207faeb251dabd9b9f52477bcd76c"
    data = Dataset("small", counted, small_split("dev"), small_split("test"), feature_kind="grid")
    assert data.fingerprint() == "a8e4e842c383988aab89928e3dbfefdfbb800069fa026a5609ae5c915e7aded9"


def test_pixels_are_pictures_too_in_memory_and_on_disk(tmp_path):
    split = small_split(pixels=True)
    assert split.has_pixels and not small_split().has_pixels
    assert split.subset(2).pictures.shape == (2, 3, 4, 6)
    assert split.fingerprint() != small_split(pixels=True, pictures=split.pictures[::-1]).fingerprint()
    parts = [small_split(name, pixels=True) for name in ("train", "dev", "test")]
    assert Dataset("small", *parts, feature_kind="pixels").feature_dim == 3
    for kind in (np.float16, np.float32):
        assert replace(split, pictures=split.pictures.astype(kind)).has_pixels
    np.save(tmp_path / "pixels.npy", split.pictures)
    mapped = replace(split, pictures=MappedPictures(tmp_path / "pixels.npy"))
    assert mapped.pictures.dtype == np.uint8
    assert np.array_equal(mapped.pictures[np.array([3, 1])], split.pictures[[3, 1]])
    assert mapped.subset(3).fingerprint() == split.subset(3).fingerprint()


CHANGES = [
    {"pictures": np.zeros((5, 0, 4))},
    {"pictures": np.zeros((5, 4, 4, 3))},
    {"pictures": np.zeros((5, 3, 2), np.uint8)},
    {"captions": [], "owner": np.zeros(0, int)},
    {"captions": ["a"] * 7 + ["a" * 10_001]},
    {"owner": np.zeros(8)},
    {"owner": np.full(8, 5)},
    {"owner": OWNER % 4},  # a picture without a caption
    {"picture_ids": ["a"]},
    {"caption_ids": ["a"]},
    {"picture_counts": np.full(5, 4)},
    {"picture_counts": np.ones(5, int), "pixels": True},
    {"targets": targets()[:7]},
    {"targets": np.where(np.arange(16).reshape(8, 2) == 7, np.nan, 1)},
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_parts_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match=f"^{next(iter(change))} of split 'train' "):
        small_split(**change)


def of(**changes):
    """The three splits, those that are named changed."""
    return {name: small_split(name, **changes.get(name, {})) for name in ("train", "dev", "test")}


BIG = np.zeros((5, 3, 4, 4))
OTHERS = [
    ("pixel", of(), "feature_kind"),
    ("grid", of(test={"pictures": np.zeros((5, 3, 5))}), "differ"),
    ("pixels", of(train={"pixels": True}, dev={"pixels": True}, test={"pictures": BIG}), "differ"),
]


@pytest.mark.parametrize(("kind", "splits", "named"), OTHERS, ids=range(len(OTHERS)))
def test_splits_that_do_not_belong_together_are_refused(kind, splits, named):
    with pytest.raises(ValueError, match=named):
        Dataset("small", **splits, feature_kind=kind)
