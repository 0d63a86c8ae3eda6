"""Where each region lies: a folder's boxes, joined to its features for recipes that read them."""

from dataclasses import replace

import numpy as np

from vsecore.data.feature_folder import MappedPictures
from vsecore.data.splits import Dataset, Pictures, Split, UnreadPictures
from vsecore.typed import short

NUMBERS = 6
"""How many numbers say where a region lies."""
_FEATURES, _BOXES = "_ims.npy", "_boxes.npy"


class BoxedPictures(UnreadPictures):
    """Features (n, N, F) followed by the places of boxes (n, N, 4) in their type, (n, N, F + 6)."""

    def __init__(self, features: Pictures, boxes: Pictures) -> None:
        self.features, self.boxes, self.dtype = features, boxes, features.dtype
        count, elements, width = features.shape
        self.rows, self.one = range(count), (elements, width + NUMBERS)

    def read(self, rows: np.ndarray) -> np.ndarray:
        places = places_of(self.boxes[rows]).astype(self.dtype)
        return np.concatenate([self.features[rows], places], -1)


def places_of(boxes: np.ndarray) -> np.ndarray:
    """Return left, top, right, bottom, width and height of boxes (..., N, 4) as shares of their picture.

    Folders of features do not keep the size of the picture. It is taken to end where its boxes do, since
    among 36 boxes some reach the edge.

    Returns:
        (..., N, 6), as the features of scenes end.
    """
    corner = np.maximum(boxes[..., 2:].max(-2, keepdims=True), 1)  # (..., 1, 2): shares stay what they are
    edges = boxes / np.concatenate([corner, corner], -1)  # (..., N, 4)
    return np.concatenate([edges, edges[..., 2:] - edges[..., :2]], -1)


def with_boxes(data: Dataset) -> Dataset:
    """Return the data of a folder with its boxes joined to the features; scenes have them there already."""
    pictures = data.train.pictures
    if not (isinstance(pictures, MappedPictures) and pictures.path.name.endswith(_FEATURES)):
        return data
    return replace(data, train=_boxed(data.train), dev=_boxed(data.dev), test=_boxed(data.test))


def _boxed(split: Split) -> Split:
    features = split.pictures
    assert isinstance(features, MappedPictures)
    path = features.path.with_name(features.path.name.removesuffix(_FEATURES) + _BOXES)
    if not path.is_file():
        raise FileNotFoundError(
            f"no file {path}: the recipe reads where each region lies, so import or extract features with "
            "boxes, or leave that out (--set image.boxes=false)"
        )
    whole = MappedPictures(path)
    if whole.shape[1:] != (features.shape[1], 4) or len(whole) != len(MappedPictures(features.path)):
        raise ValueError(f"{path} holds {short(whole.shape)}: wanted boxes for {features.path.name}")
    return replace(split, pictures=BoxedPictures(features, MappedPictures(path, features.rows)))
