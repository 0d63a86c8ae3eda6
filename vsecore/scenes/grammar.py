"""The words of the embedded world: what each noun, attribute, relation and place is called.

`speaking` chooses among these words and `parsing` reads them back; `truth` says what they mean. Every word
here either makes a claim that can be checked in the facts or, as "stands" and "there is", makes none.
To add a kind, give it verbs in `POSTURES`, and words in `_OTHER_NOUNS` if its name is not enough; to add a
phrase, give it to one table: it is then both said and read.
"""

from dataclasses import dataclass

from vsecore.scenes.catalogue import CATALOGUE
from vsecore.scenes.facts import COLOURS
from vsecore.scenes.truth import FACINGS, NOUNS

# Nouns with other words than their own name and an s, the usual one first, each as (singular, plural).
_OTHER_NOUNS = {
    "man": (("man", "men"),),
    "woman": (("woman", "women"), ("lady", "ladies")),
    "child": (("child", "children"), ("kid", "kids")),
    "adult": (("adult", "adults"), ("grown-up", "grown-ups")),
    "person": (("person", "people"),),
    "sheep": (("sheep", "sheep"),),
    "bus": (("bus", "buses"),),
    "truck": (("truck", "trucks"), ("lorry", "lorries")),
    "bicycle": (("bicycle", "bicycles"), ("bike", "bikes")),
    "plane": (("plane", "planes"), ("airplane", "airplanes"), ("aeroplane", "aeroplanes")),
    "palm": (("palm tree", "palm trees"), ("palm", "palms")),
    "bush": (("bush", "bushes"), ("shrub", "shrubs")),
    "snowman": (("snowman", "snowmen"),),
    "sledge": (("sledge", "sledges"), ("sled", "sleds")),
    "bench": (("bench", "benches"),),
    "house": (("house", "houses"), ("cottage", "cottages")),
    "lamp": (("lamp", "lamps"), ("street lamp", "street lamps"), ("lamp post", "lamp posts")),
}
NOUN_WORDS = {noun: _OTHER_NOUNS.get(noun, ((noun, f"{noun}s"),)) for noun in NOUNS}
ONLY_ONE = ("sun", "moon")  # "the sun", never "a sun"

COLOUR_WORDS: dict[str, tuple[str, ...]] = {colour: (colour,) for colour in COLOURS}
SIZE_WORDS = {"small": ("small", "little"), "large": ("large", "big")}
OTHER_COLOUR_WORDS = {"purple": ("violet",), "grey": ("gray",)}  # read, never said, as all tables of "other"
OTHER_SIZE_WORDS = {"small": ("tiny",), "large": ("huge",)}
NUMBER_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
# who wears it -> its words; its colour is the person's
COAT_WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "man": (("coat", "coats"), ("jacket", "jackets")),
    "boy": (("jacket", "jackets"), ("coat", "coats")),
    "woman": (("coat", "coats"),),
    "girl": (("coat", "coats"), ("dress", "dresses")),
}
ANY_COAT = ("coat", "coats")  # where the noun leaves open who it is
OWNERS = {"woman": "her", "girl": "her", "man": "his", "boy": "his"}
ARTICLES = ("a", "an", "the", "another", "her", "his", "their", "its")

# --- Verbs: finite singular, finite plural, participle -------------------------------------------

STAND = ("stands", "stand", "standing")
WAIT = ("waits", "wait", "waiting")
LIE = ("lies", "lie", "lying")
REST = ("rests", "rest", "resting")
SIT = ("sits", "sit", "sitting")
PERCH = ("perches", "perch", "perched")
HANG = ("hangs", "hang", "hanging")
BE = ("is", "are", "")
# They claim nothing: a picture shows no posture.
SILENT_VERBS = (BE, STAND, WAIT, LIE, REST, SIT, PERCH, HANG)

FLY = ("flies", "fly", "flying")
# state -> what says it: verbs as above, then phrases that stand behind a noun
STATE_VERBS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "flying": (FLY, ("flies by", "fly by", "flying by")),
    "on the water": (("swims", "swim", "swimming"),),
    "floating": (("floats", "float", "floating"), ("drifts", "drift", "drifting")),
    "sailing": (("sails", "sail", "sailing"), ("sails by", "sail by", "sailing by")),
    "parked": (("is parked", "are parked", "parked"),),
    "shining": (("shines", "shine", "shining"),),
    "growing": (("grows", "grow", "growing"),),
}
STATE_PHRASES: dict[str, tuple[str, ...]] = {
    "flying": ("in the air", "up in the air", "in flight"),
    "in the sky": ("in the sky", "up in the sky"),
    "on the water": ("on the water", "in the water"),
    "on the road": ("on the road",),
}
SAIL, SAIL_BY = STATE_VERBS["sailing"]
FLY_BY = STATE_VERBS["flying"][1]
SWIM = STATE_VERBS["on the water"][0]
FLOAT, DRIFT = STATE_VERBS["floating"]
PARK = STATE_VERBS["parked"][0]
SHINE = STATE_VERBS["shining"][0]
GROW = STATE_VERBS["growing"][0]
STATE_OF_VERB = {forms: state for state, verbs in STATE_VERBS.items() for forms in verbs}
# kind -> the verbs that suit it, the usual one first; "is" suits all
POSTURES: dict[str, tuple[tuple[str, str, str], ...]] = {
    **dict.fromkeys(("man", "woman", "boy", "girl"), (STAND, WAIT)),
    **dict.fromkeys(("dog", "horse", "cow", "sheep"), (STAND,)),
    "cat": (SIT,),
    "duck": (SWIM, FLOAT),
    "bird": (FLY, FLY_BY),
    **dict.fromkeys(("car", "bus", "truck", "bicycle", "tractor"), (PARK, STAND)),
    "boat": (FLOAT, SAIL, SAIL_BY, DRIFT),
    "sailboat": (SAIL, SAIL_BY, FLOAT, DRIFT),
    "plane": (FLY, FLY_BY),
    **dict.fromkeys(("tree", "palm", "bush"), (GROW, STAND)),
    "flower": (),
    **dict.fromkeys(("ball", "sledge"), (LIE,)),
    "kite": (FLY,),
    "balloon": (FLOAT, DRIFT),
    "umbrella": (),
    **dict.fromkeys(("snowman", "sandcastle", "bench", "house", "lamp"), (STAND,)),
    **dict.fromkeys(("sun", "moon", "star"), (SHINE,)),
    "cloud": (DRIFT, FLOAT, HANG),
}
# of a thing that is on another one
ON_TOP_POSTURES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "bird": (SIT, PERCH),
    "cat": (SIT,),
    "ball": (LIE,),
    **dict.fromkeys(("man", "woman", "boy", "girl", "dog"), (STAND,)),
}
NEEDS_COMPANY = (GROW,)  # "a tree grows" says too little; "a tree grows beside a house" is well

# a participle that may stand before its noun ("two parked cars") -> the state that it says
STATE_ADJECTIVES = {"flying": "flying", "floating": "floating", "parked": "parked", "shining": "shining"}
FACE_VERBS = (
    ("faces", "face", "facing"),
    ("looks", "look", "looking"),
    ("heads", "head", "heading"),
    ("turns", "turn", "turned"),
)
FACING_WORDS = {facing: (facing, f"to the {facing}") for facing in FACINGS}

# --- Relations -----------------------------------------------------------------------------------

# (relation, whether the subject is the relation's second thing) -> prepositions, the usual one first
PREPOSITIONS: dict[tuple[str, bool], tuple[str, ...]] = {
    ("left of", False): ("to the left of", "left of", "on the left of"),
    ("right of", False): ("to the right of", "right of", "on the right of"),
    ("above", False): ("above", "over"),
    ("above", True): ("below", "under", "beneath", "underneath"),
    ("on", False): ("on", "on top of"),
    ("in front of", False): ("in front of",),
    ("in front of", True): ("behind",),
    ("beside", False): ("beside", "next to", "by", "near", "alongside"),
    ("holding", True): ("held by", "carried by"),
}
_PEOPLE = NOUNS["person"]
HELD = frozenset(name for name, kind in CATALOGUE.items() if kind.held)
_WALKERS = _PEOPLE | {"dog", "horse", "cow", "sheep"}  # cats are drawn sitting
_DRIVEN = frozenset(["car", "bus", "truck"])
_ROLLING = _DRIVEN | frozenset(["tractor", "bicycle"])


@dataclass(frozen=True)
class Verb:
    """A verb that is a relation among certain kinds: a person beside a dog "walks" it."""

    relation: str  # what it claims, always of its subject to its object
    forms: tuple[str, str, str]  # finite singular, finite plural, participle; with their preposition
    subjects: frozenset[str]  # the kinds that can do it
    objects: frozenset[str] | None  # the kinds that it can be done to; None: any
    keeps: bool = False
    """Whether its object goes with the subject ("holds a kite beside a tree": she is beside the tree)."""
    owned: int = 0  # percent of the captions in which the object is the subject's own ("her dog")


VERBS = (
    Verb("holding", ("holds", "hold", "holding"), _PEOPLE, None, keeps=True, owned=10),
    Verb("holding", ("carries", "carry", "carrying"), _PEOPLE, None, keeps=True, owned=10),
    Verb("holding", FLY, _PEOPLE, frozenset(["kite"]), keeps=True, owned=35),
    Verb("beside", ("walks", "walk", "walking"), _PEOPLE, frozenset(["dog"]), keeps=True, owned=75),
    Verb("on", ("rides", "ride", "riding"), _PEOPLE, frozenset(["sledge"]), keeps=True, owned=20),
    Verb("on", ("rides in", "ride in", "riding in"), _PEOPLE, NOUNS["boat"], keeps=True),
    Verb("in front of", ("walks past", "walk past", "walking past"), _WALKERS, None),
    Verb("in front of", ("passes", "pass", "passing"), _PEOPLE | _ROLLING, None),
    Verb("in front of", ("drives past", "drive past", "driving past"), _DRIVEN, None),
    Verb("in front of", ("goes past", "go past", "past"), _WALKERS | _ROLLING, None),
)

# --- Places --------------------------------------------------------------------------------------

# place -> where something is; the usual phrase first
PLACE_PHRASES: dict[str, tuple[str, ...]] = {
    "beach": ("on the beach", "at the beach", "at the seaside", "by the sea"),
    "park": ("in the park", "in a park", "at the park"),
    "street": ("on the street", "in the street", "in town", "in the city"),
    "harbour": ("in the harbour", "at the harbour", "by the harbour", "in the port"),
    "snow": ("in the snow", "on a snowy day", "in winter", "in a snowy field"),
    "farm": ("on the farm", "on a farm", "at the farm"),
    "lake": ("by the lake", "at the lake", "by a lake", "at the lakeside"),
    "night": ("at night", "after dark", "by night", "in the dark"),
}
# place -> a scene that is it ("a beach with two dogs")
PLACE_SCENES: dict[str, tuple[str, ...]] = {
    "beach": ("a beach", "a beach scene", "a day at the beach"),
    "park": ("a park", "a park scene", "a day in the park"),
    "street": ("a street", "a street scene"),
    "harbour": ("a harbour", "a harbour scene"),
    "snow": ("a snowy scene", "a winter day", "a snowy field"),
    "farm": ("a farm", "a farm scene", "a day on the farm"),
    "lake": ("a lake", "a lakeside scene", "a day by the lake"),
    "night": ("a night scene", "a dark night"),
}
# flying things are above "the beach", but not above "the night"
GROUNDS = tuple(place for place in PLACE_PHRASES if place != "night")
# what a learner may also write
_AMERICAN = ("in the harbor", "at the harbor", "in a harbor")
OTHER_PLACE_PHRASES: dict[str, tuple[str, ...]] = {
    "beach": ("on a beach", "at a beach", "near the beach", "by the beach", "on the sand", "at the sea"),
    "park": ("at a park",),
    "street": ("on a street", "in a street", "in a town", "in a city"),
    "harbour": ("in a harbour", "at a harbour", "at the port", *_AMERICAN),
    "snow": ("on the snow", "in snow", "on a winter day"),
    "farm": ("at a farm",),
    "lake": (
        "at a lake",
        "on the lake",
        "on a lake",
        "near the lake",
        "near a lake",
        "beside the lake",
        "next to the lake",
    ),
    "night": ("in the night", "on a dark night", "during the night", "under the night sky"),
}

# --- Words that only open or join ----------------------------------------------------------------

LIST_FRAMES = ("a picture of", "a view of", "a photo of", "we see", "you can see", "this picture shows")
COUNT_FRAMES = ("I count", "I see", "I can see", "here we have")
SILENT_PHRASES = (
    *(frame.lower() for frame in (*LIST_FRAMES, *COUNT_FRAMES)),
    *("there is", "there are", "here is", "here are", "this is", "an image of", "show me", "find"),
    *("also", "too", "as well", "out", "up", "it is"),
)
MARK_WORD = "number"
