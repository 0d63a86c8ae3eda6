"""Puts what an annotator wants to say into words and a logical form; `parsing` has the rules."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from vsecore.scenes import grammar
from vsecore.scenes.annotators import Annotator, Link, Unit
from vsecore.scenes.facts import Scene
from vsecore.scenes.layout import Dice
from vsecore.scenes.truth import NOUNS, STATES, Entity, Form

Word = TypeVar("Word")


@dataclass(frozen=True)
class Way:
    """One way to say a link: the verb's three forms, a preposition, and the state that the verb claims."""

    forms: tuple[str, str, str]
    preposition: str = ""
    state: str | None = None
    keeps: bool = False
    owned: int = 0


@dataclass
class Speaker:
    """Puts a plan into words; its form holds exactly what has been said."""

    scene: Scene
    dice: Dice
    habit: Annotator
    units: Sequence[Unit]
    links: Sequence[Link]
    wants_place: bool
    entities: list[Entity] = field(default_factory=list)
    relations: list[tuple[str, int, int]] = field(default_factory=list)
    place: str | None = None
    telegram: bool = False
    counts: bool = False
    said: dict[int, int] = field(default_factory=dict)  # unit -> its entity

    def form(self) -> Form:
        """What has been said so far."""
        return Form(self.place, tuple(self.entities), tuple(self.relations), self.scene.mark)

    def speak(self) -> str:
        """The whole sentence, with the mark where the picture has one."""
        self.telegram = self.dice.chance(self.habit.telegram)
        self.counts = self.habit.together == 100
        text = self._sentence()
        if self.scene.mark is not None:
            tag = f"{grammar.MARK_WORD} {self.scene.mark}"
            text = f"{tag}: {text}" if self.dice.chance(50) else f"{text}, {tag}"
        stop = "" if self.telegram else "."
        return ". ".join(part[0].upper() + part[1:] for part in text.split(". ")) + stop

    # --- the sentence ----------------------------------------------------------------------------

    def _sentence(self) -> str:
        objects = {link.object for link in self.links}
        heads = [unit for unit in range(len(self.units)) if unit not in objects]
        linked = [unit for unit in heads if self._chain_of(unit)]
        bare = [unit for unit in heads if unit not in linked]
        opening = ""
        if self.wants_place and self.dice.chance(self.habit.place_first) and not self.telegram:
            if self.dice.chance(30):
                return f"{self._say_place(grammar.PLACE_SCENES)} with {self._fragments(linked, bare)}"
            opening = self._say_place(grammar.PLACE_PHRASES) + self.dice.choice((", ", ", ", " "))
            if self.dice.chance(40 if linked else 60):
                return opening + self._there_is(linked, bare)
        if linked and not self.telegram and (opening or self.dice.chance(self.habit.finite)):
            return opening + self._clauses(linked, bare)
        if linked or self.telegram:
            return opening + self._fragments(linked, bare)
        return opening + self._list(bare)

    def _place_now(self) -> str:
        """The place behind what was said, if it is wanted and was not said yet."""
        if not self.wants_place or self.place is not None:
            return ""
        return " " + self._say_place(grammar.PLACE_PHRASES)

    def _say_place(self, table: dict[str, tuple[str, ...]]) -> str:
        self.place = self.scene.place
        return self._usually_first(table[self.scene.place])

    def _usually_first(self, words: Sequence[Word]) -> Word:
        return words[0] if self.dice.chance(45) else self.dice.choice(words)

    # --- clauses ---------------------------------------------------------------------------------

    def _list(self, bare: Sequence[int]) -> str:
        """Things without relations: named one after the other, or each with a verb of its own."""
        acting = self._acts(bare[0]) and all(self._acts(unit, placed=True) for unit in bare[1:])
        if len(bare) <= 2 and acting and not self.telegram and self.dice.chance(self.habit.finite):
            clauses = [self._simple_clause(unit) for unit in bare]
            return self.dice.choice((" while ", ", and ")).join(clauses)
        if self.place is not None:
            return self._there_is([], bare)
        frame = ""
        if self.dice.chance(55) and not self.telegram:
            frame = self.dice.choice(grammar.COUNT_FRAMES if self.counts else grammar.LIST_FRAMES) + " "
            if self.dice.chance(45):
                return self._there_is([], bare)
        names = self._names(bare)
        if len(bare) == 1 and self.wants_place and self.place is None and self._hovers(bare[0]):
            return frame + names + self._over_place(bare[0])
        return frame + names + self._place_now()

    def _there_is(self, linked: Sequence[int], bare: Sequence[int]) -> str:
        verb = grammar.BE[self._is_plural((linked or bare)[0])]
        return f"there {verb} {self._fragments(linked, bare)}"

    def _fragments(self, linked: Sequence[int], bare: Sequence[int]) -> str:
        """Things with participles and prepositions, without a finite verb."""
        if not linked:
            return self._names(bare) + self._place_now()
        pieces = [self._name(unit) + " " + self._linked_phrases(unit) for unit in linked]
        text = ", and ".join(pieces) if len(pieces) < 3 else ", ".join(pieces)
        text += self._place_now()
        if bare:
            text += self.dice.choice((", and ", ", with ")) + self._names(bare)
        return text

    def _clauses(self, linked: Sequence[int], bare: Sequence[int]) -> str:
        """Clauses with finite verbs."""
        text = self._linked_clause(linked[0]) + self._place_now()
        for unit in linked[1:]:
            text += self.dice.choice((" while ", ", and ", ". ")) + self._linked_clause(unit)
        if len(bare) == 1 and self._acts(bare[0], placed=True) and self.dice.chance(65):
            return text + self.dice.choice((" while ", ", and ", ". ")) + self._simple_clause(bare[0])
        if bare:
            verb = grammar.BE[self._is_plural(bare[0])]
            text += self.dice.choice((", with ", f", and there {verb} ", f". There {verb} also "))
            text += self._names(bare)
        return text

    def _simple_clause(self, unit: int) -> str:
        """One thing with a verb that says a state, where it looks or where it is."""
        plural = self._is_plural(unit)
        facing = self.units[unit].entity.facing
        postures = self._postures(unit, states=True, alone=True)
        if facing is not None and (self.dice.chance(70) or not postures):
            name = self._name(unit, facing_later=True)
            where = self._usually_first(grammar.FACING_WORDS[facing])
            return f"{name} {self._face_verb(unit)[plural]} {where}{self._place_now()}"
        name = self._name(unit)
        verb = self.dice.choice(postures or self._postures(unit, states=False))
        if postures:
            self._say_state(unit, grammar.STATE_OF_VERB[verb])
        return f"{name} {verb[plural]}{self._place_now()}"

    def _acts(self, unit: int, placed: bool = False) -> bool:
        """Whether a clause about one thing alone says something; `placed`: the place is said before it."""
        if self.units[unit].entity.facing is not None or self._postures(unit, states=True, alone=True):
            return True
        unplaced = self.wants_place and self.place is None and not placed
        return unplaced and bool(self._postures(unit, states=False))

    def _linked_clause(self, head: int) -> str:
        """A thing, a finite verb and what stands in relation to it."""
        plural = self._is_plural(head)
        name = self._name(head)
        links = self._links_of(head)
        if len(links) == 2 and not self._alike(*links) and self.dice.chance(35):
            # "a girl holding a kite stands beside a tree"
            return f"{name} {self._phrase(links[0], 2)} {self._phrase(links[1], plural)}"
        return f"{name} {self._linked_phrases(head, int(plural))}"

    def _linked_phrases(self, head: int, form: int = 2) -> str:
        """What is said of a thing's one or two relations; `form` is the verb form of the first."""
        links = self._links_of(head)
        if len(links) == 1:
            return self._phrase(links[0], form)
        first, second = links
        if self._alike(first, second):
            way = self._way(first)
            objects = f"{self._object(first, way)} and {self._object(second, replace(way, owned=0))}"
            return f"{self._words(way, form)} {objects}"
        way = self._way(first)
        text = self._words(way, form) + " " + self._object(first, way)
        if way.keeps and not self._chain_of(first.object) and self.dice.chance(60):
            bare = self._way(second, bare=True)
            return f"{text} {bare.preposition} {self._object(second, bare)}"
        other = self._way(second)
        if other.forms == way.forms and other.preposition:
            return f"{text} and {other.preposition} {self._object(second, other)}"
        if form == 2 or not other.forms[2] or self.dice.chance(60):
            return f"{text} and {self._words(other, form)} {self._object(second, other)}"
        return f"{text}, {self._words(other, 2)} {self._object(second, other)}"

    def _links_of(self, unit: int) -> list[Link]:
        """A thing's links; one whose object has a link of its own comes last, what is held comes first."""
        return sorted(
            self._chain_of(unit),
            key=lambda link: (bool(self._chain_of(link.object)), link.relation != "holding"),
        )

    def _is_plural(self, unit: int) -> bool:
        return len(self.units[unit].rows) > 1

    def _chain_of(self, unit: int) -> list[Link]:
        return [link for link in self.links if link.subject == unit]

    def _alike(self, first: Link, second: Link) -> bool:
        """Whether "and" can join the objects of two links: "beside a tree and a bench"."""
        return (first.relation, first.swapped) == (second.relation, second.swapped) and not (
            self._chain_of(first.object) or self._chain_of(second.object)
        )

    def _phrase(self, link: Link, form: int) -> str:
        way = self._way(link)
        return f"{self._words(way, form)} {self._object(link, way)}"

    @staticmethod
    def _words(way: Way, form: int) -> str:
        return f"{way.forms[form]} {way.preposition}".strip()

    def _object(self, link: Link, way: Way) -> str:
        """Enters a link into the form and names its object, with what the object itself stands to."""
        owner = None
        if way.owned and self.dice.chance(way.owned) and not self.telegram:
            subject = self.entities[self.said[link.subject]]
            owner = "their" if subject.count > 1 else grammar.OWNERS.get(subject.noun, "their")
        text = self._name(link.object, owner, silent_facing=way.keeps)
        subject_entity, object_entity = self.said[link.subject], self.said[link.object]
        ends = (object_entity, subject_entity) if link.swapped else (subject_entity, object_entity)
        self.relations.append((link.relation, *ends))
        for chained in self._chain_of(link.object):
            if self.dice.chance(70) and not self.telegram:
                text += " that " + self._phrase(chained, int(self._is_plural(link.object)))
            else:
                text += " " + self._phrase(chained, 2)
        return text

    # --- verbs -----------------------------------------------------------------------------------

    def _way(self, link: Link, bare: bool = False) -> Way:
        """Chooses how to say a link, and enters the state that the verb claims; bare: without a verb."""
        subject, other = self.units[link.subject].entity, self.units[link.object].entity
        ways: list[Way] = []
        weights: list[int] = []
        if not bare and not link.swapped:
            for verb in grammar.VERBS:
                suits = NOUNS[subject.noun] <= verb.subjects and (
                    verb.objects is None or NOUNS[other.noun] <= verb.objects
                )
                chained = verb.keeps and self._chain_of(link.object)
                if verb.relation == link.relation and suits and not chained:
                    ways.append(Way(verb.forms, keeps=verb.keeps, owned=verb.owned))
                    weights.append(5 if verb.owned > 10 else 2)
        prepositions = grammar.PREPOSITIONS.get((link.relation, link.swapped), ())
        if link.relation == "on" and not link.swapped and other.noun == "boat":
            prepositions = ("in",)
        said = self.entities[self.said[link.subject]]
        silent = [grammar.BE, *([] if bare else self._postures(link.subject, states=False))]
        stateful = [] if bare or said.state else self._postures(link.subject, states=True)
        for place, preposition in enumerate(prepositions):
            for verb_forms in (*silent, *stateful):
                state = grammar.STATE_OF_VERB.get(verb_forms)
                if state and (preposition == "by" or verb_forms[0].endswith(" by")):
                    continue
                if link.relation == "holding" and verb_forms is not grammar.BE:
                    continue
                ways.append(Way(verb_forms, preposition, state))
                weights.append(2 if place == 0 else 1)
        way = self.dice.choice(ways, weights)
        if way.state:
            self._say_state(link.subject, way.state)
        return way

    def _say_state(self, unit: int, state: str) -> None:
        entity = self.said[unit]
        self.entities[entity] = replace(self.entities[entity], state=state)

    def _postures(self, unit: int, states: bool, alone: bool = False) -> list[tuple[str, str, str]]:
        """The verbs that suit all things of a unit as they are, with or without the claim of a state.

        With `alone` only those that say something without a relation.
        """
        suiting = None
        on_others = {i for name, i, _ in self.scene.relations if name == "on"}
        held = {j for name, _, j in self.scene.relations if name == "holding"}
        for row in self.units[unit].rows:
            kind = self.scene.things[row].kind
            verbs = grammar.POSTURES[kind]
            if row in on_others:
                verbs = grammar.ON_TOP_POSTURES.get(kind, ())
            elif row in held:
                verbs = tuple(verb for verb in verbs if verb in grammar.STATE_OF_VERB)
            suiting = verbs if suiting is None else tuple(verb for verb in suiting if verb in verbs)
        unfit = grammar.NEEDS_COMPANY if alone else ()
        fit = [verb for verb in suiting or () if verb not in unfit]
        return [verb for verb in fit if (verb in grammar.STATE_OF_VERB) == states]

    def _face_verb(self, unit: int) -> tuple[str, str, str]:
        kinds = {self.scene.things[row].kind for row in self.units[unit].rows}
        faces, looks, heads = grammar.FACE_VERBS[:3]
        return self.dice.choice((faces, heads if kinds <= NOUNS["vehicle"] | {"sledge"} else looks))

    # --- names -----------------------------------------------------------------------------------

    def _names(self, units: Sequence[int]) -> str:
        """All of them in a row: A, B and C."""
        numbered = self.counts and self.dice.chance(40)
        names = [self._name(unit, numbered=numbered) for unit in units]
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

    def _name(
        self,
        unit: int,
        owner: str | None = None,
        facing_later: bool = False,
        silent_facing: bool = False,
        numbered: bool = False,
    ) -> str:
        """A noun phrase; enters its entity into the form.

        With `facing_later` a verb will say where the thing looks; with `silent_facing` nothing does, because
        after "walks a dog" it would be said of the person.
        """
        entity = self.units[unit].entity
        if silent_facing:
            entity = replace(entity, facing=None)
        person = NOUNS[entity.noun] <= NOUNS["person"]
        plural = entity.count > 1
        before = []
        if entity.size:
            before.append(self._usually_first(grammar.SIZE_WORDS[entity.size]))
        if entity.colour and not person:
            before.append(self._usually_first(grammar.COLOUR_WORDS[entity.colour]))
        noun = self._usually_first(grammar.NOUN_WORDS[entity.noun])[plural]
        last = self.entities[-1] if self.entities else None
        again = last is not None and last.noun == entity.noun and last.count == entity.count == 1
        if again and before and self.dice.chance(50):
            noun = "one"
        words = [*self._article(entity, owner, numbered, [*before, noun]), *before, noun]
        if person and entity.colour:
            words.append(self._coat(entity, plural))
        if entity.facing and not facing_later:
            words += [self._face_verb(unit)[2], self._usually_first(grammar.FACING_WORDS[entity.facing])]
        self.said[unit] = len(self.entities)
        self.entities.append(entity)
        return " ".join(words)

    def _article(
        self, entity: Entity, owner: str | None, numbered: bool, following: Sequence[str]
    ) -> list[str]:
        if entity.count > 1:
            return [grammar.NUMBER_WORDS[entity.count - 1]]
        namesakes = [other for other in self.entities if other.noun == entity.noun]
        if owner:
            return [owner]
        # "another red ball" would say that the first is red too; a coat is named behind the noun
        alike = NOUNS[entity.noun] <= NOUNS["person"] or any(
            entity.colour in (None, other.colour) and entity.size in (None, other.size) for other in namesakes
        )
        if namesakes and alike and following[-1] != "one":
            return ["another"]
        if self.telegram:
            return []
        if entity.noun in grammar.ONLY_ONE:
            return ["the"]
        if numbered and following[-1] != "one":
            return ["one"]
        return ["an" if following[0][0] in "aeiou" else "a"]

    def _coat(self, entity: Entity, plural: bool) -> str:
        word = self._usually_first(grammar.COLOUR_WORDS[str(entity.colour)])
        coat = self._usually_first(grammar.COAT_WORDS.get(entity.noun, (grammar.ANY_COAT,)))[plural]
        article = "" if plural else "an " if word[0] in "aeiou" else "a "
        if self.telegram:
            return f"in {word}"
        ways = f"in {word}", f"in {article}{word} {coat}", f"wearing {article}{word} {coat}"
        return self.dice.choice(ways, (4, 5, 2))

    def _hovers(self, unit: int) -> bool:
        """Whether all things of a unit are up in the sky, over a place that has a ground."""
        on_others = {i for name, i, _ in self.scene.relations if name == "on"}
        things = self.scene.things
        return self.scene.place in grammar.GROUNDS and all(
            things[row].kind in STATES["in the sky"] and row not in on_others for row in self.units[unit].rows
        )

    def _over_place(self, unit: int) -> str:
        """Says the place by what is above it, which claims that this is in the sky, too."""
        self.place = self.scene.place
        self._say_state(unit, "in the sky")
        preposition = self.dice.choice(grammar.PREPOSITIONS["above", False])
        ground = self.dice.choice((self.place,))  # a throw, as in the worlds of before
        return f" {preposition} the {ground}"
