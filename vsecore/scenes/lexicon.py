"""Every word and phrase that can be read, with its part in a sentence; made from `grammar`'s tables."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from vsecore.scenes import grammar


@dataclass(frozen=True)
class Token:
    """A word or phrase with its part in the sentence."""

    part: str  # as `_lexicon` calls it: "noun", "verb", "place", ...
    value: Any = None  # what it says, as the part needs it
    finite: bool = False  # whether it is a finite verb, which speaks of the thing that the clause began with
    plural: bool = False  # whether it is a plural noun or verb
    text: str = ""


@lru_cache(maxsize=1)
def _lexicon() -> dict[tuple[str, ...], Token]:
    """Every phrase of the grammar, as a tuple of its words."""
    lexicon: dict[tuple[str, ...], Token] = {}

    def learn(phrase: str, part: str, value: Any = None, finite: bool = False, plural: bool = False) -> None:
        if phrase:
            lexicon.setdefault(tuple(phrase.split()), Token(part, value, finite, plural, phrase))

    def learn_verb(forms: tuple[str, str, str], part: str, value: Any = None) -> None:
        learn(forms[0], part, value, finite=True)
        learn(forms[1], part, value, finite=True, plural=True)
        learn(forms[2], part, value)

    def learn_all(part: str, table: Mapping[Any, Iterable[str]]) -> None:
        for value, phrases in table.items():
            for phrase in phrases:
                learn(phrase, part, value)

    for noun, names in grammar.NOUN_WORDS.items():
        for singular, plural in names:
            learn(singular, "noun", noun)
            learn(plural, "noun", noun, plural=True)
    for colours in (grammar.COLOUR_WORDS, grammar.OTHER_COLOUR_WORDS):
        learn_all("colour", colours)
    for sizes in (grammar.SIZE_WORDS, grammar.OTHER_SIZE_WORDS):
        learn_all("size", sizes)
    learn_all("number", {row: (word, str(row)) for row, word in enumerate(grammar.NUMBER_WORDS, start=1)})
    learn_all("article", {None: grammar.ARTICLES})
    learn_all("relation", grammar.PREPOSITIONS)
    verbs: dict[tuple[str, str, str], list[grammar.Verb]] = {}
    for verb in grammar.VERBS:
        verbs.setdefault(verb.forms, []).append(verb)
    for forms, meanings in verbs.items():
        learn_verb(forms, "verb", meanings)
    for forms, state in grammar.STATE_OF_VERB.items():
        learn_verb(forms, "state", state)
    learn_all("state", grammar.STATE_PHRASES)
    for facing, ends in grammar.FACING_WORDS.items():
        for end in ends:
            for one, many, participle in grammar.FACE_VERBS:
                learn_verb((f"{one} {end}", f"{many} {end}", f"{participle} {end}"), "facing", facing)
    for forms in grammar.SILENT_VERBS:
        learn_verb(forms, "silent")
    for places in (grammar.PLACE_PHRASES, grammar.OTHER_PLACE_PHRASES):
        learn_all("place", places)
    for place, phrases in grammar.PLACE_SCENES.items():
        learn_all("scene", {place: [phrase.removeprefix("a ") for phrase in phrases]})
    for preposition in grammar.PREPOSITIONS["above", False]:
        for article in ("the", "a"):
            learn_all("ground", {place: [f"{preposition} {article} {place}"] for place in grammar.GROUNDS})
    learn_verb(("wears", "wear", "wearing"), "wear")
    for part, words_of_part in (
        ("coat", [word for coats in grammar.COAT_WORDS.values() for both in coats for word in both]),
        ("wear", ("in", "dressed in")),
        ("frame", grammar.SILENT_PHRASES),
        ("and", ("and",)),
        ("comma", (",",)),
        ("stop", (".", ":", ";", "!", "?", "while", "as")),
        ("with", ("with",)),
        ("that", ("that", "which", "who")),
        ("mark", (grammar.MARK_WORD,)),
    ):
        learn_all(part, {None: words_of_part})
    return lexicon


@lru_cache(maxsize=1)
def words() -> frozenset[str]:
    return frozenset(word for phrase in _lexicon() for word in phrase if word[0].isalpha())


def tokens_of(sentence: str) -> list[Token]:
    """Cuts a sentence into the longest phrases of the lexicon."""
    lexicon = _lexicon()
    longest = max(map(len, lexicon))
    spelled = re.findall(r"[a-z]+(?:[-'][a-z]+)*|\d+|[^\s\w]", sentence.lower())
    tokens: list[Token] = []
    at = 0
    while at < len(spelled):
        if tokens and tokens[-1].part == "mark" and spelled[at].isdigit():
            tokens[-1] = replace(tokens[-1], value=int(spelled[at]))
            at += 1
            continue
        for length in range(min(longest, len(spelled) - at), 0, -1):
            token = lexicon.get(tuple(spelled[at : at + length]))
            if token is not None and not _cuts_a_phrase(spelled[at + length - 1 :], length):
                tokens.append(token)
                at += length
                break
        else:
            raise ValueError(_unknown(spelled[at]))
    return tokens


def _cuts_a_phrase(rest: list[str], length: int) -> bool:
    """Whether the last word of a phrase belongs to the next: "on the street lamp", "fly by the sea"."""
    if length == 1:
        return False
    if len(rest) > 1 and (rest[0], rest[1]) in _lexicon():
        return True
    after = _lexicon().get(tuple(rest[:3]))
    return after is not None and after.part == "place"


def _unknown(word: str) -> str:
    """What to say of a word that cannot be read."""
    if word in words():
        return f"The word {word!r} cannot stand here by itself; it is known only as a part of longer phrases."
    nearest = get_close_matches(word, sorted(words()), n=3, cutoff=0.5)
    hint = f"the nearest words known are {', '.join(nearest)}" if nearest else "no word known is near it"
    return f"The word {word!r} is not known in the world of scenes; {hint}."
