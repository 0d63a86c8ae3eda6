"""Training in rounds: a first model finds the hard negatives that the second one learns from."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Dataset
from vsecore.data.words import Tokenizer
from vsecore.mining import mine
from vsecore.processes import from_main_process
from vsecore.recipes import FirstRound, Recipe
from vsecore.training.checkpoints import held, refuse_to_overwrite
from vsecore.training.distributed import best_device, make_accelerator
from vsecore.training.identity import RUN, compare, read_identity
from vsecore.training.loop import Beginning, Event, Run, fit

FIRST_ROUND = "first_round"
NEGATIVES = "negatives"


def fit_in_rounds(
    recipe: Recipe,
    data: Dataset,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    tokenizer: Tokenizer | None = None,
    vectors: Tensor | None = None,
    negatives: OfflineNegatives | None = None,
    callback: Callable[[Event], None] | None = None,
    first_callback: Callable[[Event], None] | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu"] = "auto",
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    workers: int = 0,
    save_every: int | None = None,
) -> Run:
    """Train a recipe in as many rounds as it has: one, as `fit` does, or two with mining between them.

    With `Recipe.first_round`, the system is first trained by that round's losses. Its best epoch on the dev
    split finds the hard negatives of the training split. Then the system is trained by the recipe's losses
    on these, from new weights (or the first round's, if it keeps them). The seed is the same in both rounds.

    Everything that `fit` says of a run that is stopped and resumed holds for the whole: a run that was killed
    in the first round, in mining or in the second round ends with the same bits on a CPU. Several
    processes train both rounds together; one of them mines for all.

    Args:
        recipe: what to train.
        data: what to train on.
        folder: where the second run is kept; its subfolder `first_round` keeps the first run, and
            `negatives` what was mined. None: nowhere.
        resume: continue wherever the training in the folder was stopped.
        tokenizer: for the captions; None: the recipe makes one from the training captions.
        vectors: initial word vectors, (len(tokenizer), width).
        negatives: hard negatives that another model has found; then there is no first round.
        callback: called with the events of the last round, see `fit`.
        first_callback: called with the events of the first round.
        seed: decides the initial weights, the order, and what is dropped.
        device: "auto" uses a GPU if there is one.
        precision: "auto" uses bfloat16 if the GPU has it in hardware, else float32.
        workers: processes that prepare batches ahead.
        save_every: save after every so many steps too; None: every ten minutes.

    Returns:
        The run of the last round. Its seconds are those of both rounds and of mining; the first round's own
        history is in the run that its folder keeps.

    Raises:
        ValueError: as `fit`; or the folder's negatives are another model's.
        BlockingIOError: another process trains in the folder.
        FloatingPointError: the loss, its gradient or a weight became NaN or infinite.

    Source: Chen, Deng and Luo 2020 (AOQ), section 3.2.
    """
    folder = None if folder is None else Path(folder)
    tokenizer = tokenizer or recipe.tokenizer(data.train.captions)
    settings: dict[str, Any] = {
        "resume": resume,
        "tokenizer": tokenizer,
        "vectors": vectors,
        "seed": seed,
        "device": device,
        "precision": precision,
        "workers": workers,
        "save_every": save_every,
    }
    begin = None
    if recipe.first_round is not None and negatives is None:
        if folder is not None:
            _check_folder(folder, resume, recipe, seed)
        make_accelerator(device, precision)  # from here on, several processes know of each other
        with held(folder):
            first_folder = None if folder is None else folder / FIRST_ROUND
            first = fit(
                recipe.of_first_round(), data, folder=first_folder, callback=first_callback, **settings
            )
            began = time.perf_counter()
            negatives = from_main_process(partial(_mine, first, recipe.first_round, data, folder, device))
            seconds = first.timings["seconds"] + time.perf_counter() - began
        weights = dict(first.model.cpu().state_dict()) if recipe.first_round.keeps_weights else None
        begin = Beginning(seconds, weights)
    return fit(recipe, data, folder=folder, negatives=negatives, begin=begin, callback=callback, **settings)


def _mine(
    run: Run, settings: FirstRound, data: Dataset, folder: Path | None, device: str
) -> OfflineNegatives:
    """Find the negatives of the training split, or read them, if they have been found."""
    return mine(
        run.model.to("cpu" if device == "cpu" else best_device()),
        data.train,
        run.tokenizer,
        settings.texts,
        settings.pictures,
        folder=None if folder is None else folder / NEGATIVES,
        recipe=f"{run.recipe.name} {run.recipe.hash()}",
    )


def _check_folder(folder: Path, resume: bool, recipe: Recipe, seed: int) -> None:
    """Refuse a folder that the last round would refuse, before the first one is trained."""
    refuse_to_overwrite(folder, resume)
    if (folder / RUN).is_file():
        before = read_identity(folder)
        compare(folder, before, {**before, "recipe": recipe.portable(), "seed": seed})
