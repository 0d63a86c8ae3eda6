"""Reads a sentence of the embedded world back into its logical form.

The reader goes through the sentence once, from left to right, with a few rules that say to whom a phrase
belongs. They are those by which `language` speaks:

- a phrase belongs to the thing named last: in "a dog beside a tree behind a house" the tree is behind it;
- what is held, walked or ridden goes with its person: in "a girl holding a kite beside a tree" it is the
  girl who is beside the tree;
- after a comma or "and", and with a finite verb ("stands", "holds"), it belongs to the thing that the clause
  began with; after "that", to the thing named last;
- "a girl and a dog stand beside a tree": a plural verb speaks of both;
- "beside a tree and a bench" is beside both, if nothing more is said of the bench;
- "a girl with a kite" holds it; any other "with" only says that something is there too.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from vsecore.scenes import grammar
from vsecore.scenes.lexicon import Token, tokens_of
from vsecore.scenes.truth import NOUNS, STATES, Entity, Form


@dataclass
class _Pending:
    """A relation that waits for its object."""

    subjects: list[int]
    text: str
    relation: str = ""
    swapped: bool = False
    verbs: list[grammar.Verb] | None = None


@dataclass
class _Reader:
    """The state of reading one sentence."""

    tokens: list[Token]
    at: int = 0
    entities: list[Entity] = field(default_factory=list)
    relations: list[tuple[str, int, int]] = field(default_factory=list)
    place: str | None = None
    mark: int | None = None
    heads: list[int] = field(default_factory=list)  # what the clause began with
    group: list[int] = field(default_factory=list)  # "a girl and a dog": what a plural verb speaks of
    target: list[int] = field(default_factory=list)  # to whom the next phrase belongs
    last: int | None = None  # the thing named last
    pending: _Pending | None = None
    joined: _Pending | None = None  # the relation that "and" may repeat
    fresh: bool = True  # a new thing may begin here
    comma: bool = False
    after_and: bool = False
    after_with: bool = False
    relative: bool = False  # after "that"

    def peek(self, ahead: int = 0) -> Token:
        """The token so far ahead; a stop behind the end."""
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else Token("stop")

    def read(self) -> Form:
        """The form of the whole sentence."""
        while self.at < len(self.tokens):
            token = self.peek()
            if self._thing_begins(0):
                self._thing()
                continue
            if self.pending and token.part not in ("silent", "frame"):
                raise ValueError(f"After {self.pending.text!r} a thing is wanted; {token.text!r} came.")
            self.at += 1
            if token.part in ("state", "facing", "colour", "size"):  # "the kite is red"
                self._describe(token, token.part, token.value)
            elif token.part in ("place", "scene"):
                self._read_place(token)
            elif token.part != "article":  # before a scene; before anything else it begins a thing
                getattr(self, f"_read_{token.part}")(token)
        if self.pending:
            raise ValueError(f"After {self.pending.text!r} a thing is wanted; the sentence ends.")
        if not self.entities and self.place is None and self.mark is None:
            raise ValueError("The sentence names no thing and no place; try 'a red kite above the beach'.")
        return Form(self.place, tuple(self.entities), tuple(self.relations), self.mark)

    # --- things ----------------------------------------------------------------------------------

    def _thing_begins(self, ahead: int) -> bool:
        """Whether a noun phrase begins so far ahead: articles, numbers, sizes and colours up to a noun."""
        if self.peek(ahead).text in grammar.STATE_ADJECTIVES and self.entities:
            return False  # "a girl flying a kite"
        if self.peek(ahead).part == "article" and self.peek(ahead + 1).part == "scene":
            return False  # "a beach with two dogs"
        while self._before_noun(self.peek(ahead)):
            if self.peek(ahead).part in ("article", "number"):
                return True
            ahead += 1
        return self.peek(ahead).part == "noun"

    @staticmethod
    def _before_noun(token: Token) -> bool:
        """Whether a token may stand between an article and its noun, as in "two small red parked cars"."""
        return token.part in ("article", "number", "size", "colour") or token.text in grammar.STATE_ADJECTIVES

    def _thing(self) -> None:
        """Reads a noun phrase and ties it to what came before."""
        count, colour, size, state, first = None, None, None, None, self.peek().text
        while self._before_noun(token := self.peek()):
            if token.part == "number":
                if token.value == 1 and not self._thing_begins(1) and self.last is not None:
                    break  # "a black one"
                count = token.value
            elif token.part == "colour":
                colour = token.value
            elif token.part == "size":
                size = token.value
            elif token.part != "article":
                state = grammar.STATE_ADJECTIVES[token.text]
            self.at += 1
        self.at += 1
        if token.part == "number":
            assert self.last is not None
            noun = self.entities[self.last].noun
        elif token.part != "noun":
            raise ValueError(f"After {first!r} a thing is wanted; {token.text or 'the end'!r} came.")
        else:
            noun = token.value
            if count is None and token.plural and (token.text,) * 2 not in grammar.NOUN_WORDS[noun]:
                singular = next(one for one, many in grammar.NOUN_WORDS[noun] if many == token.text)
                raise ValueError(
                    f"Say how many {token.text}: 'two {token.text}', or '{singular}' for at least one."
                )
        self.entities.append(Entity(noun, count or 1, colour, size))
        if state:
            self._add_state(len(self.entities) - 1, state)
        self._tie(len(self.entities) - 1)

    def _tie(self, new: int) -> None:
        """Decides what a new thing is to those before it."""
        before, repeated = self.last, self.joined
        self.joined = None
        if self.pending:
            self._relate(self.pending, new)
            self.joined, self.pending = self.pending, None
        elif self.after_with and not self.comma and before is not None and self._may_hold(before, new):
            self.relations.append(("holding", before, new))
            self.target = [before]
        elif self.after_and and not self.comma and repeated and self._repeats(repeated, new):
            self._relate(repeated, new)
        elif self.fresh:
            self.group = [*self.group, new] if self.after_and and not self.comma else [new]
            self.heads = self.target = [new]
        else:
            raise ValueError(
                f"Nothing says how {self._name(new)} stands to what comes before; a comma or 'and' would do."
            )
        self.last = new
        self.fresh = self.comma = self.after_and = self.after_with = self.relative = False

    def _relate(self, pending: _Pending, new: int) -> None:
        """Adds a relation of its subjects to a new thing, and says to whom the next phrase belongs."""
        relation, swapped, keeps = pending.relation, pending.swapped, False
        if pending.verbs is not None:
            kinds = self.entities[new].kinds()
            for verb in pending.verbs:
                if (verb.objects is None or kinds <= verb.objects) and all(
                    self.entities[i].kinds() & verb.subjects for i in pending.subjects
                ):
                    relation, keeps = verb.relation, verb.keeps
                    break
            else:
                subjects = " and ".join(self._name(i) for i in pending.subjects)
                raise ValueError(f"In this world {subjects} never {pending.text!r} {self._name(new)}.")
        for subject in pending.subjects:
            self.relations.append((relation, new, subject) if swapped else (relation, subject, new))
        self.target = pending.subjects if keeps else [new]

    def _may_hold(self, person: int, held: int) -> bool:
        return (
            self.entities[person].kinds() <= NOUNS["person"] and self.entities[held].kinds() <= grammar.HELD
        )

    def _repeats(self, joined: _Pending, new: int) -> bool:
        """Whether "and" repeats the relation before it: "beside a tree and a bench"."""
        holding = joined.verbs is not None and joined.verbs[0].relation == "holding"
        if holding and not self.entities[new].kinds() <= grammar.HELD:
            return False
        after, ends = self.peek(), ("stop", "comma", "place", "mark", "ground", "wear", "facing")
        return not after.finite and after.part in ends

    def _name(self, entity: int) -> str:
        return repr(self.entities[entity].noun)

    # --- phrases, by their part in the sentence --------------------------------------------------

    def _turn_to_subject(self, token: Token) -> None:
        """A finite verb speaks of what the clause began with, after "that" of the thing named last."""
        if not token.finite:
            return
        if self.relative and self.last is not None:
            self.target = [self.last]
        elif token.plural and len(self.group) > 1:
            self.target = self.heads = self.group
        else:
            self.target = self.heads
        self.relative = False

    def _subjects(self, token: Token) -> list[int]:
        self._turn_to_subject(token)
        if not self.target:
            raise ValueError(f"Before {token.text!r} a thing is wanted that it speaks of.")
        self.fresh = self.after_and = self.comma = self.after_with = False
        return list(self.target)

    def _read_relation(self, token: Token) -> None:
        relation, swapped = token.value
        self.pending = _Pending(self._subjects(token), token.text, relation, swapped)

    def _read_verb(self, token: Token) -> None:
        if token.text in grammar.FLY and not self._thing_begins(0):
            self._describe(token, "state", "flying")
            return
        self.pending = _Pending(self._subjects(token), token.text, verbs=token.value)

    def _read_wear(self, token: Token) -> None:
        ahead = 1 if self.peek().part == "article" else 0
        colour = self.peek(ahead)
        if colour.part == "colour" and self.peek(ahead + 1).part not in ("noun", "size", "colour"):
            self.at += ahead + 1 + (self.peek(ahead + 1).part == "coat")
            self._describe(token, "colour", colour.value)
        elif token.text == "in":  # "in a boat"
            self._read_relation(replace(token, value=("on", False)))
        else:
            raise ValueError(
                f"After {token.text!r} the colour of a coat is wanted, as in 'wearing a yellow coat'."
            )

    def _describe(self, token: Token, attribute: str, value: str) -> None:
        """Says one thing more of those to whom the phrase belongs, or of the thing named last."""
        subjects = self._subjects(token)
        if token.part == "wear":
            fitting = NOUNS["person"]
        else:
            fitting = STATES[value] if attribute == "state" else frozenset().union(*NOUNS.values())
        for candidates in (subjects, [self.last] if self.last is not None else []):
            if all(self.entities[i].kinds() & fitting for i in candidates) and candidates:
                for i in candidates:
                    if attribute == "state":
                        self._add_state(i, value)
                        continue
                    said = getattr(self.entities[i], attribute)
                    if said not in (None, value):
                        raise ValueError(f"{self._name(i)} is said to be both {said!r} and {value!r}.")
                    change: dict[str, Any] = {attribute: value}
                    self.entities[i] = replace(self.entities[i], **change)
                return
        raise ValueError(f"{token.text!r} is never true of {self._name(subjects[0])}.")

    def _add_state(self, entity: int, state: str) -> None:
        """Says a state too; of two states the narrower is kept, as it says both ("flying in the sky")."""
        thing = self.entities[entity]
        for narrow, wide in ((state, thing.state or state), (thing.state or state, state)):
            if STATES[narrow] <= STATES[wide] and NOUNS[thing.noun] & STATES[narrow]:
                self.entities[entity] = replace(thing, state=narrow)
                return
        raise ValueError(f"{thing.noun!r} is never {' and '.join(filter(None, (thing.state, state)))}.")

    def _read_silent(self, token: Token) -> None:
        self._turn_to_subject(token)

    def _read_place(self, token: Token) -> None:
        if self.place not in (None, token.value):
            raise ValueError(
                f"The sentence names two places, {self.place!r} and {token.value!r}; one is wanted."
            )
        self.place = token.value

    def _read_ground(self, token: Token) -> None:
        self._read_place(token)
        if self.target:
            self._describe(token, "state", "in the sky")  # "a red kite above the beach"

    def _read_and(self, token: Token) -> None:
        self.fresh, self.after_and, self.target = True, True, list(self.heads)

    def _read_comma(self, token: Token) -> None:
        self.fresh, self.comma, self.target = True, True, list(self.heads)

    def _read_stop(self, token: Token) -> None:
        self.fresh, self.target, self.group, self.joined = True, list(self.heads), [], None

    def _read_with(self, token: Token) -> None:
        self.fresh = self.after_with = True

    def _read_that(self, token: Token) -> None:
        self.relative = True
        self.target = [] if self.last is None else [self.last]

    def _read_frame(self, token: Token) -> None:
        self.fresh = True

    def _read_coat(self, token: Token) -> None:
        raise ValueError(f"Say the colour and who wears it, as in 'a girl in a yellow {token.text}'.")

    def _read_mark(self, token: Token) -> None:
        if token.value is None:
            raise ValueError(f"After {token.text!r} the figures of a mark are wanted, as in 'number 417'.")
        self.mark = token.value


def parse(sentence: str) -> Form:
    """Reads a sentence, a caption or a learner's own query, as the form of exactly what it claims.

    Capitals and the last full stop do not matter. A ValueError names a word that is not known and the nearest
    words that are, or says why the words do not make a sentence.
    """
    return _Reader(tokens_of(sentence)).read()
