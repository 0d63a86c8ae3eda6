"""Encoders turn a picture or a caption into elements, vectors of one width.

Pooling them to one vector, or predicting a set from them, comes after: see `vsecore.model`.
"""

from vsecore.encoders.base import ImageEncoder, TextEncoder
from vsecore.encoders.bert import BERTEncoder
from vsecore.encoders.caption_transformer import CaptionTransformer
from vsecore.encoders.pictures import CellEncoder, RegionEncoder
from vsecore.encoders.pixels import PixelEncoder
from vsecore.encoders.pretrained_towers import CLIPCaptions, CLIPPictures, SigLIPCaptions, SigLIPPictures
from vsecore.encoders.windows import WindowEncoder
from vsecore.encoders.words import BiGRUEncoder, GRUEncoder
from vsecore.registry import Registry

IMAGE_ENCODERS = Registry(
    "picture encoder",
    {
        "grid": CellEncoder,
        "region": RegionEncoder,
        "patch": CellEncoder,
        "pixels": PixelEncoder,
        "clip": CLIPPictures,
        "siglip": SigLIPPictures,
    },
    context=("feature_dim", "dim", "backbone", "architecture"),
    methods=("sees",),
)
"""Picture encoders by name."""

TEXT_ENCODERS = Registry(
    "caption encoder",
    {
        "gru": BiGRUEncoder,
        "forward_gru": GRUEncoder,
        "window": WindowEncoder,
        "transformer": CaptionTransformer,
        "bert": BERTEncoder,
        "clip": CLIPCaptions,
        "siglip": SigLIPCaptions,
    },
    context=("vocabulary_size", "dim", "vectors", "architecture", "captions"),
    methods=("tokenizer",),
)
"""Caption encoders by name; the options of each include those of its tokenizer."""

__all__ = [
    "IMAGE_ENCODERS",
    "TEXT_ENCODERS",
    "ImageEncoder",
    "TextEncoder",
    *IMAGE_ENCODERS.class_names(),
    *TEXT_ENCODERS.class_names(),
]
