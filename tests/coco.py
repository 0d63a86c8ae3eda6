"""A little COCO and an album, both in Karpathy's format."""

import json

import numpy as np
from PIL import Image

SPLITS = {"train": 5, "restval": 2, "val": 2, "test": 3}


def make_coco(root):
    """Write `train2014/`, `val2014/` and `dataset_coco.json` into a folder.

    Some pictures are grey, as a few of COCO's are, and one has six captions.
    """
    dice, number, karpathy = np.random.default_rng(0), 9, []
    for split, count in SPLITS.items():
        folder = "train2014" if split == "train" else "val2014"
        (root / folder).mkdir(parents=True, exist_ok=True)
        for place in range(count):
            number += int(dice.integers(1, 50_000))
            name = f"COCO_{folder}_{number:012d}.jpg"
            size = ((64, 48), (48, 64))[place % 2]
            picture = Image.fromarray(dice.integers(0, 256, (6, 8, 3), np.uint8)).resize(size)
            picture.convert("L" if place == 1 else "RGB").save(root / folder / name)
            sentences = [
                {"raw": f"A thing seen {which} times in {number}.", "sentid": 10 * number + which}
                for which in range(6 if place == 0 else 5)
            ]
            image = {"filepath": folder, "filename": name, "split": split, "cocoid": number}
            karpathy.append(image | {"imgid": len(karpathy), "sentences": sentences})
    (root / "dataset_coco.json").write_text(json.dumps({"images": karpathy, "dataset": "coco"}))
    return root


def make_album(where, train=5, restval=1, val=2, test=2, captions=5):
    """Make a folder `album` of small pictures, with a `dataset_album.json` in Karpathy's format."""
    folder = where / "album"
    (folder / "images").mkdir(parents=True)
    rng, entries = np.random.default_rng(0), []
    for split, count in (("train", train), ("restval", restval), ("val", val), ("test", test)):
        for number in range(count):
            name = f"{split}{number}.jpg"
            pixels = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((80, 60)).save(folder / "images" / name)
            sentences = [{"raw": f"Caption {c} of the {split} picture {number} ."} for c in range(captions)]
            entries.append({"filename": name, "split": split, "sentences": sentences})
    content = {"dataset": "album", "images": entries}
    (folder / "dataset_album.json").write_text(json.dumps(content), "utf-8")
    return folder
