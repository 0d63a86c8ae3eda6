"""Training in rounds: a first model finds the hard negatives that the second one learns from."""

import time
from dataclasses import replace
from typing import Any

from vsecore.data.splits import Dataset
from vsecore.mining import mine
from vsecore.processes import from_main_process
from vsecore.recipes import Recipe
from vsecore.training.checkpoints import locked, refuse_to_overwrite
from vsecore.training.distributed import best_device, make_accelerator
from vsecore.training.identity import RUN, compare, read_identity
from vsecore.training.loop import fit
from vsecore.training.run import Callback, Run, Settings

FIRST_ROUND = "first_round"
NEGATIVES = "negatives"


def fit_in_rounds(
    recipe: Recipe,
    data: Dataset,
    settings: Settings | None = None,
    *,
    first_callback: Callback | None = None,
    **keywords: Any,
) -> Run:
    """Train a recipe in as many rounds as it has: one, as `fit` does, or two with mining between them.

    With `Recipe.first_round`, the system is first trained by that round's losses. Its best epoch on the dev
    split finds the hard negatives of the training split. Then the system is trained on these
    by the recipe's losses, from the weights with which the first round began, or, if it keeps them, those
    with which it ended. The seed is the same in both rounds.

    What `fit` says of a run that is stopped and resumed holds for the whole, mining too. Several processes
    train both rounds together; one of them mines for all. The subfolder `first_round` keeps the first run,
    with its own history, and `negatives` what was mined. With negatives that another model has found there is
    no first round. The run's seconds are those of both rounds and of mining.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """
    settings = Settings.of(settings, keywords)
    first_round, folder = recipe.first_round, settings.folder
    if first_round is None or settings.negatives is not None:
        return fit(recipe, data, settings)
    if folder is not None:  # what the last round would refuse, before the first one is trained
        refuse_to_overwrite(folder, settings.resume)
        if (folder / RUN).is_file():
            before = read_identity(folder)
            compare(folder, before, {**before, "recipe": recipe.portable(), "seed": settings.seed})
    if settings.tokenizer is None:
        settings = replace(settings, tokenizer=recipe.tokenizer(data.train.captions))
    make_accelerator(settings.device, settings.precision)  # several processes know of each other now
    with locked(folder):
        first = fit(
            recipe.of_first_round(),
            data,
            settings,
            folder=None if folder is None else folder / FIRST_ROUND,
            callback=first_callback,
        )
        began = time.perf_counter()
        negatives = from_main_process(
            lambda: mine(
                first.model.to("cpu" if settings.device == "cpu" else best_device()),
                data.train,
                first.tokenizer,
                first_round.texts,
                first_round.pictures,
                folder=None if folder is None else folder / NEGATIVES,
                recipe=f"{first.recipe.name} {first.recipe.hash()}",
            )
        )
    return fit(
        recipe,
        data,
        settings,
        negatives=negatives,
        weights=dict(first.model.cpu().state_dict()) if first_round.keeps_weights else settings.weights,
        earlier_seconds=first.timings["seconds"] + time.perf_counter() - began,
    )
