"""Every kind of thing in the embedded world: where it belongs, which colours it has, how large it is.

To add a kind: add its line here, a drawing of it in `drawing`, and its words and verbs in `grammar`.
"""

from vsecore.scenes.facts import PLACES, Kind

_BY_DAY = tuple(place for place in PLACES if place != "night")
_GREEN = ("park", "farm", "lake")
_COATS = ("red", "orange", "yellow", "green", "blue", "purple", "white", "black")
_BRIGHT = ("red", "orange", "yellow", "green", "blue", "purple")

# fmt: off
_KINDS = (
    # name, group, what carries it, places, colours, width, height
    # people: the colour is the coat's
    Kind("man", "person", "ground", PLACES, _COATS, 20, 50, sized=False, faces=True),
    Kind("woman", "person", "ground", PLACES, _COATS, 20, 48, sized=False, faces=True),
    Kind("boy", "person", "ground", PLACES, _COATS, 17, 38, sized=False, faces=True),
    Kind("girl", "person", "ground", PLACES, _COATS, 17, 38, sized=False, faces=True),
    # animals
    Kind("dog", "animal", "ground", PLACES, ("brown", "black", "white", "grey"), 30, 25, faces=True),
    Kind("cat", "animal", "ground", ("park", "street", "harbour", "farm", "night"),
         ("orange", "black", "white", "grey"), 25, 25, faces=True),
    Kind("horse", "animal", "ground", ("beach", "park", "snow", "farm"),
         ("brown", "black", "white", "grey"), 46, 42, sized=False, faces=True),
    Kind("cow", "animal", "ground", ("farm", "lake"),
         ("brown", "black", "white"), 46, 33, sized=False, faces=True),
    Kind("sheep", "animal", "ground", _GREEN, ("white", "black", "brown"), 32, 26, sized=False, faces=True),
    Kind("duck", "animal", "water", ("harbour", "lake"), ("white", "yellow", "brown"), 24, 19, faces=True),
    Kind("bird", "animal", "air", PLACES, ("red", "yellow", "blue", "white", "black"), 22, 17, faces=True),
    # vehicles; a sailboat's colour is that of its sails
    Kind("car", "vehicle", "road", ("street", "farm", "night"),
         ("red", "yellow", "green", "blue", "white", "black", "grey"), 50, 25, sized=False, faces=True),
    Kind("bus", "vehicle", "road", ("street", "night"), _BRIGHT, 66, 38, sized=False, faces=True),
    Kind("truck", "vehicle", "road", ("street", "farm", "night"),
         ("red", "orange", "green", "blue", "white"), 60, 35, sized=False, faces=True),
    Kind("bicycle", "vehicle", "ground", ("beach", "park", "street", "harbour", "lake", "night"),
         ("red", "yellow", "green", "blue", "purple", "black"), 40, 27, sized=False, faces=True),
    Kind("tractor", "vehicle", "ground", ("snow", "farm"),
         ("red", "yellow", "green", "blue"), 46, 37, sized=False, faces=True),
    Kind("boat", "vehicle", "water", ("beach", "harbour", "lake"),
         ("red", "orange", "green", "blue", "white", "brown"), 48, 24, faces=True),
    Kind("sailboat", "vehicle", "water", ("beach", "harbour", "lake"),
         ("red", "orange", "yellow", "blue", "purple", "white"), 38, 48, faces=True),
    Kind("plane", "vehicle", "air", PLACES, ("red", "yellow", "blue", "white", "grey"), 52, 22, faces=True),
    # plants
    Kind("tree", "plant", "ground", ("park", "street", "snow", "farm", "lake", "night"),
         ("green", "orange"), 40, 60),
    Kind("palm", "plant", "ground", ("beach", "street", "harbour"), ("green",), 42, 62),
    Kind("bush", "plant", "ground", ("park", "street", "farm", "lake", "night"), ("green", "purple"), 34, 21),
    Kind("flower", "plant", "ground", _GREEN,
         ("red", "orange", "yellow", "blue", "purple", "white"), 14, 22, held=True),
    # toys, and what people carry
    Kind("ball", "toy", "ground", ("beach", "park", "street", "farm", "lake"), _BRIGHT, 15, 15, held=True),
    Kind("kite", "toy", "air", _BY_DAY, _BRIGHT, 21, 44, held=True),
    Kind("balloon", "toy", "air", PLACES, _BRIGHT, 15, 38, held=True),
    Kind("umbrella", "toy", "ground", ("beach", "park", "lake"),
         (*_BRIGHT, "black"), 34, 37, held=True, sized=False),
    Kind("snowman", "toy", "ground", ("snow",), ("white",), 28, 42),
    Kind("sledge", "toy", "ground", ("snow",),
         ("red", "green", "blue", "brown"), 38, 16, sized=False, faces=True),
    Kind("sandcastle", "toy", "ground", ("beach",), ("yellow",), 36, 28),
    # the sky
    Kind("sun", "sky", "sky", _BY_DAY, ("yellow", "orange"), 24, 24, sized=False),
    Kind("moon", "sky", "sky", ("night",), ("white", "yellow"), 20, 20, sized=False),
    Kind("star", "sky", "sky", ("night",), ("white", "yellow"), 16, 16),
    Kind("cloud", "sky", "sky", PLACES, ("white", "grey"), 40, 19),
    # what is built
    Kind("bench", "building", "ground", ("beach", "park", "street", "harbour", "snow", "lake", "night"),
         ("red", "green", "blue", "brown"), 40, 22, sized=False),
    Kind("house", "building", "ground", ("park", "snow", "farm", "night"),
         ("red", "yellow", "blue", "white", "brown"), 64, 58, sized=False),
    Kind("lamp", "building", "ground", ("park", "street", "harbour", "night"),
         ("black", "grey"), 14, 58, sized=False),
)
# fmt: on

CATALOGUE: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
