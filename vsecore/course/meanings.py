"""Words that learners type and the drawn world does not know, and what it knows of a similar meaning."""

from __future__ import annotations

import re

MEANINGS = {
    "dog": "puppy hound poodle",
    "cat": "kitten kitty",
    "horse": "pony foal stallion",
    "cow": "calf bull cattle",
    "sheep": "lamb goat",
    "duck": "goose swan duckling",
    "bird": "seagull gull pigeon crow sparrow owl",
    "animal": "wolf fox bear pig rabbit",
    "man": "guy father dad gentleman grandfather",
    "woman": "mother mum mom grandmother",
    "boy": "son lad",
    "girl": "daughter",
    "child": "baby toddler teenager",
    "person": "somebody someone human walker tourist",
    "car": "automobile taxi cab van jeep",
    "bus": "coach tram",
    "truck": "pickup trailer",
    "bicycle": "motorbike motorcycle scooter tricycle",
    "boat": "ship ferry canoe raft barge",
    "sailboat": "yacht",
    "plane": "jet aircraft helicopter zeppelin rocket glider",
    "tree": "oak pine fir birch trunk",
    "bush": "hedge",
    "flower": "rose tulip daisy sunflower blossom",
    "ball": "football basketball",
    "umbrella": "parasol",
    "sledge": "toboggan sleigh",
    "sandcastle": "castle",
    "house": "home building hut barn cabin",
    "lamp": "lantern streetlight streetlamp",
    "bench": "seat chair",
    "cloud": "fog",
    "moon": "crescent",
    "beach": "coast shore ocean",
    "park": "garden meadow lawn",
    "street": "avenue",
    "harbour": "dock pier marina",
    "snow": "ice",
    "farm": "farmyard",
    "lake": "pond river",
    "night": "evening midnight",
    "red": "crimson scarlet pink",
    "orange": "amber",
    "yellow": "golden gold",
    "green": "lime olive",
    "blue": "navy turquoise azure",
    "brown": "beige tan",
    "grey": "silver",
    "small": "mini short",
    "large": "giant enormous tall",
}
_NEAREST = {word: known for known, unknown in MEANINGS.items() for word in unknown.split()}


def suggestion(sentence: str) -> str:
    """What to try in place of a sentence's unknown words, by meaning; "" if nothing is known to be near.

    Args:
        sentence: as a learner types it.
    """
    found = {}
    for word in re.findall(r"[a-z]+", sentence.lower()):
        if nearest := _NEAREST.get(word) or _NEAREST.get(word.removesuffix("s")):
            found[word] = nearest
    return f"Try {' and '.join(f'{near!r} for {word!r}' for word, near in found.items())}." if found else ""
