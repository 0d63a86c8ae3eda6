"""Words that learners type and the drawn world does not know, and what it knows of a similar meaning."""

import re
from pathlib import Path

import yaml

MEANINGS: dict[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
"""Words of the world, each with the unknown words that it may stand for."""
_NEAREST = {word: known for known, unknown in MEANINGS.items() for word in unknown.split()}
_PLURALS = {"": "", "ies": "y", "ves": "f", "es": "", "s": ""}


def why_unread(reason: str, sentence: str) -> str:
    """Why the world's grammar cannot read a sentence, and what to try in its place.

    Words of similar meaning, where they are known, replace those that are only spelled like the unknown one.
    """
    found = {}
    for word in re.findall(r"[a-z]+", sentence.lower()):
        forms = [word.removesuffix(many) + one for many, one in _PLURALS.items() if word.endswith(many)]
        if nearest := next((_NEAREST[form] for form in forms if form in _NEAREST), ""):
            found[word] = nearest
    if not found:
        return reason
    unknown = re.search(r"'(\w+)'", reason)
    if unknown and unknown[1] in found:
        reason = re.sub("; the nearest words known are .*", ".", reason)
    return f"{reason} Try {' and '.join(f'{near!r} for {word!r}' for word, near in found.items())}."
