"""Says what is in a scene, as five people would; `parsing` reads such sentences back.

A `Planner` (`annotators`) decides what an annotator speaks of; a `Speaker` writes the words and the logical
form side by side: whatever it says it enters into the form, and nothing else. So every caption is true of its
own scene, and its form is exactly what its words claim.
"""

from dataclasses import dataclass

from vsecore.scenes.annotators import ANNOTATORS, Planner
from vsecore.scenes.facts import Scene
from vsecore.scenes.layout import Dice
from vsecore.scenes.speaking import Speaker
from vsecore.scenes.truth import Form, holds

FEWEST_WORDS, MOST_WORDS = 4, 18


@dataclass(frozen=True)
class Caption:
    """A sentence about a picture."""

    text: str
    form: Form  #: what it claims
    annotator: str  #: who said it, a key of `ANNOTATORS`


def describe(
    scene: Scene, dice: Dice, ambiguity: float | None = None, unlike: Scene | None = None
) -> tuple[Caption, ...]:
    """Five captions by the five annotators of `ANNOTATORS`, in their order, each true of the scene.

    Equal dice give equal captions. A scene with a mark gets captions that name it. The higher the ambiguity,
    from 0 to 1, the wider are the words and the less is said, so that more scenes fit; None: as annotators
    like, which is one half. A scene `unlike` it has the same things in the same order, and other relations:
    every caption then names one that tells the two apart; a ValueError says that words cannot.
    """
    if ambiguity is not None and not 0 <= ambiguity <= 1:
        raise ValueError(f"ambiguity is {ambiguity}; a number from 0 to 1 or None is wanted.")
    level = 0.5 if ambiguity is None else ambiguity
    deciding = [relation for relation in scene.relations if unlike and relation not in unlike.relations]
    if unlike is not None and not deciding:
        raise ValueError("unlike has every relation that scene has, so no relation can tell the two apart.")
    captions: list[Caption] = []
    for name, habit in ANNOTATORS.items():
        for attempt in range(160):
            # What is too long gets fewer things; what does not tell the twin apart is said more exactly.
            vagueness = level if unlike is None or attempt < 8 else 0.0
            planner = Planner(scene, dice, habit, vagueness)
            units, links = planner.plan(deciding, most=5 - attempt // 3 % 4)
            speaker = Speaker(scene, dice, habit, units, links, dice.chance(planner.lean(habit.place)))
            caption = Caption(speaker.speak(), speaker.form(), name)
            long_enough = FEWEST_WORDS <= len(caption.text.split()) <= MOST_WORDS
            said_before = attempt < 8 and any(caption.text == other.text for other in captions)
            if long_enough and not said_before and (unlike is None or not holds(caption.form, unlike)):
                captions.append(caption)
                break
        else:
            raise ValueError(
                "unlike cannot be told apart from scene by the relation of two things that words name."
            )
    return tuple(captions)
