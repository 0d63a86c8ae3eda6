"""Encoders: a picture or a caption becomes elements, vectors of one width.

Pooling them to one vector, or predicting a set from them, is not theirs: see `vsecore.model`.
"""

from vsecore.encoders.pictures import GridEncoder, PatchEncoder, RegionEncoder
from vsecore.encoders.words import BERTEncoder, BiGRUEncoder

__all__ = ["BERTEncoder", "BiGRUEncoder", "GridEncoder", "PatchEncoder", "RegionEncoder"]
