"""A little COCO in the files that it is published in, and an album in Karpathy's format."""

import json

import numpy as np
from PIL import Image

SPLITS = {"train": 5, "restval": 2, "val": 2, "test": 3}


def make_coco(root):
    """Write `train2014/`, `val2014/`, `annotations/captions_*.json` and `dataset_coco.json` into a folder.

    Some pictures are grey, as a few of COCO's are, and one has six captions.
    """
    dice, number, karpathy = np.random.default_rng(0), 9, []
    official = {
        folder: {"info": {"year": 2014}, "licenses": [], "images": [], "annotations": []}
        for folder in ("train2014", "val2014")
    }
    for split, count in SPLITS.items():
        folder = "train2014" if split == "train" else "val2014"
        (root / folder).mkdir(parents=True, exist_ok=True)
        for place in range(count):
            number += int(dice.integers(1, 50_000))
            name = f"COCO_{folder}_{number:012d}.jpg"
            width, height = ((64, 48), (48, 64))[place % 2]
            picture = Image.fromarray(dice.integers(0, 256, (6, 8, 3), np.uint8)).resize((width, height))
            picture.convert("L" if place == 1 else "RGB").save(root / folder / name)
            sentences = []
            for which in range(6 if place == 0 else 5):
                sentid = 10 * number + which
                raw = f"A thing seen {which} times in {number}."
                tokens = raw.lower().strip(".").split()
                sentences.append({"tokens": tokens, "raw": raw, "imgid": len(karpathy), "sentid": sentid})
                official[folder]["annotations"].append({"image_id": number, "id": sentid, "caption": raw})
            official[folder]["images"].append(
                {"id": number, "file_name": name, "width": width, "height": height, "license": 3}
            )
            karpathy.append(
                {
                    "filepath": folder,
                    "sentids": [sentence["sentid"] for sentence in sentences],
                    "filename": name,
                    "imgid": len(karpathy),
                    "split": split,
                    "sentences": sentences,
                    "cocoid": number,
                }
            )
    (root / "annotations").mkdir()
    for folder, content in official.items():
        (root / "annotations" / f"captions_{folder}.json").write_text(json.dumps(content))
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
