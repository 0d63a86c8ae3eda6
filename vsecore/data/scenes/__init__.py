"""The embedded world: pictures of which everything is known, with captions whose truth is known exactly.

>>> from vsecore.data import scenes
>>> data = scenes.load(features="grid")        # a Dataset, ready to train on
>>> pictures = scenes.pictures("test")         # the facts and captions of the same rows
>>> drawn = scenes.pixels("test")              # (1000, 112, 112, 3) uint8
>>> scenes.holds(scenes.parse("A red kite is above the beach."), pictures[0].scene)
"""

from vsecore.data.scenes.build import Knobs, Picture, generate, load, pictures, pixels
from vsecore.data.scenes.catalogue import CATALOGUE
from vsecore.data.scenes.drawing import draw
from vsecore.data.scenes.facts import COLOURS, PLACES, RELATIONS, Kind, Scene, Thing
from vsecore.data.scenes.language import Caption, describe, parse
from vsecore.data.scenes.layout import Dice, invent, mirror_relation, variant
from vsecore.data.scenes.networks import load_network
from vsecore.data.scenes.truth import Entity, Form, holds, relevance

__all__ = [
    "CATALOGUE",
    "COLOURS",
    "PLACES",
    "RELATIONS",
    "Caption",
    "Dice",
    "Entity",
    "Form",
    "Kind",
    "Knobs",
    "Picture",
    "Scene",
    "Thing",
    "describe",
    "draw",
    "generate",
    "holds",
    "invent",
    "load",
    "load_network",
    "mirror_relation",
    "parse",
    "pictures",
    "pixels",
    "relevance",
    "variant",
]
