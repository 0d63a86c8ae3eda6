"""The exercises of notebook 17, *All together*."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course.checks.comparing import equals, holds, like, passed, same
from course.checks.kinds import code, compute, explore, predict


def parts_of(combine: Callable[..., Any]) -> Any:
    """What a learner makes of VSE++: reasoners, pools, losses, and whether all else stayed."""
    import operator

    from vsecore.recipes import Recipe, get

    plain = get("vsepp_grid_gru")
    made = combine(plain)
    if not isinstance(made, Recipe):
        return made
    parts = [
        ["" if part is None else part.name for part in both]
        for both in ((made.image.reasoner, made.text.reasoner), (made.image.pool, made.text.pool))
    ]
    rest = operator.attrgetter("image.encoder", "text.encoder", "similarity", "training", "dim", "shared")
    return [*parts, [part.name for part in made.losses], rest(made) == rest(plain)]


def combine(recipe: Any) -> Any:
    """VSE++ with a Transformer over its regions, AdPool and AdOpt."""
    pools = {"image.pool": "adpool", "text.pool": "adpool"}
    return recipe.override(pools | {"image.reasoner": "transformer", "losses": "adopt"})


def combined(**changes: Any) -> Callable[[Any], Any]:
    """Make the combination with changes; an underscore stands for a dot."""
    given = {name.replace("_", "."): value for name, value in changes.items()}
    return lambda recipe: combine(recipe).override(given)


COMBINE = {
    "Return the recipe that `recipe.override` makes of the changes.": same(
        by=len, wrong=[lambda recipe: "adopt"]
    ),
    "The Transformer reasons in the pictures' tower alone: the field is `image.reasoner`.": same(
        by=0, wrong=[lambda recipe: recipe, combined(text_reasoner="transformer")]
    ),
    "AdPool belongs into both towers: the fields are `image.pool` and `text.pool`.": same(by=1),
    "`losses` should be AdOpt alone, in place of the triplet loss.": same(by=2),
    "The encoders, the similarity and the training stay as they are.": same(
        by=3, wrong=[combined(training_epochs=1)]
    ),
    "The triplet loss is still among the losses: AdOpt takes its place.": like(
        combined(losses=["triplet", "adopt"]), combined(losses=["adopt", "triplet"]), by=2
    ),
    "Only one tower has AdPool.": like(combined(image_pool="mean"), combined(text_pool="mean"), by=1),
    "Right. A system is a row of choices, and so is this one.": passed,
}

COST = {
    "Two numbers are wanted: trainings, and minutes.": holds(lambda answer: len(answer) == 2, wrong=[6]),
    "How many seeds does each system lack? The seeds of one must be those of the other.": holds(
        lambda answer: float(answer[0]) == 6, wrong=[(5, 48)]
    ),
    "The trainings are right. Each system's own take as long as its others did.": equals(
        (6, 48), 0.5, wrong=[(6, 42)]
    ),
    "That is for B alone. A has three of five seeds.": like((4, 40)),
    "Five seeds of each are ten trainings, but four are recorded already.": like(
        (10, 70), when=lambda answer: float(answer[0]) == 10
    ),
}

EXERCISES = {
    "17.combine": code("Three ideas in one recipe", 8, COMBINE, combine, caller=parts_of),
    "17.predict": predict("Do gains add up?", 2, "more", "as much", "less"),
    "17.cost": compute("What opens a gate", 5, COST, difficulty="easy"),
    "17.explore": explore("Your own combination", 15),
}
