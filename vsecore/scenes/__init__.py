"""The embedded world: pictures of which everything is known, with captions whose truth is known exactly.

>>> from vsecore import scenes
>>> data = scenes.load(features="grid")        # a Dataset, ready to train on
>>> pictures = scenes.pictures("test")         # the facts and captions of the same rows
>>> drawn = scenes.pixels("test")              # (1000, 112, 112, 3) uint8
>>> scenes.holds(scenes.parse("A red kite is above the beach."), pictures[0].scene)
"""

from vsecore.scenes.build import load, pictures, pixels
from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.drawing import draw
from vsecore.scenes.facts import COLOURS, PLACES, RELATIONS, Kind, Scene, Thing
from vsecore.scenes.generation import Knobs, Picture, generate
from vsecore.scenes.language import Caption, describe
from vsecore.scenes.layout import Dice, invent, mirror_relation, variant
from vsecore.scenes.networks import load_network
from vsecore.scenes.parsing import parse
from vsecore.scenes.truth import Entity, Form, holds, relevance

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
