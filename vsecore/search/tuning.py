"""Train a model further on pictures and captions of one's own, and stop by name what would go wrong.

Three mistakes are common with few pictures, and none of them shows in the loss: a picture stands both in the
training and in the test split, so that the test measures memory; captions do not belong to their pictures, or
the learning rate is wrong, so that nothing can be learned; and the model collapses, so that all pictures get
the same vector.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vsecore.data.annotations import read_annotations
from vsecore.data.copies import copies
from vsecore.data.files import expanded, write_json
from vsecore.data.karpathy import CaptionSplit, find_unreadable, from_files, load_karpathy
from vsecore.data.known_words import words_report
from vsecore.data.splits import Dataset, Split
from vsecore.data.words import Tokenizer
from vsecore.model import VSE
from vsecore.recipes import Recipe, get
from vsecore.retriever import SOURCE_FILE
from vsecore.scoring import encode
from vsecore.search.engine import Engine
from vsecore.training import Event, Run, evaluate_split, fit, load_run
from vsecore.training.checkpoints import CHECKPOINT
from vsecore.typed import counted

FEWEST = 20
"""Pictures with captions below which there is nothing to train and test on."""
OVERFIT = 128
"""Pairs that a model must be able to learn by heart."""
LEARNED = 90.0
"""R@1 in percent that a model must reach on pairs that it may learn by heart."""
COLLAPSED = 0.998
"""Mean cosine of different pictures above which a model tells no two of them apart."""
TELLING = 20
"""Test pictures below which no rsum is told: among ten, anything is found among the first ten."""


def read_captions(path: str | Path, pictures: str | Path) -> dict[str, CaptionSplit]:
    """Read a CSV of captions (see `annotations`), and split its pictures into "train", "dev" and "test".

    Without a column `split`, a tenth of the pictures becomes dev and a tenth test; which ones depends on
    their bytes alone. A picture that is missing, broken or in two splits is refused by its name.
    """
    path = expanded(path)
    if (count := len(read_annotations(path, expanded(pictures))[1])) < FEWEST:
        raise ValueError(f"{path} has captions of {count} pictures: wanted at least {FEWEST}")
    splits = load_karpathy(pictures, path)
    for name, split in splits.items():
        if len(split.files) < 2:
            raise ValueError(f"{path} has {len(split.files)} pictures in {name}: wanted 2 or more")
        for broken in find_unreadable(split.files).values():
            raise ValueError(broken)
    split_of = {file: name for name, split in splits.items() for file in split.files}
    groups = copies(list(split_of), sure=True)
    if leaks := [group for group in groups if len({split_of[file] for file in group}) > 1]:
        one = leaks[0][0]
        other = next(file for file in leaks[0] if split_of[file] != split_of[one])
        raise ValueError(
            f"split leakage: {one.name} ({split_of[one]}) and {other.name} ({split_of[other]}) are one "
            f"picture ({len(leaks)} such): put all copies into one split, or leave that column out"
        )
    return {name: replace(split, dataset=path.stem) for name, split in splits.items()}


def tune(
    engine: Engine,
    splits: dict[str, CaptionSplit],
    folder: str | Path,
    *,
    epochs: int = 10,
    learning_rate: float | None = None,
    seed: int = 0,
    resume: bool = False,
    tell: Callable[[str], None] = print,
) -> Run:
    """Train an engine's model further; first see whether it can learn 128 pairs by heart.

    The engine's source knows its recipe; the splits come from `read_captions`. Without a learning rate, a
    run's is divided by five, and the recipe of CLIP or SigLIP has its own. `tell` gets a line for each step
    of the work. A model that collapses is refused.

    Returns the run of the best epoch on dev.
    """
    folder, (recipe, weights) = expanded(folder), _recipe_and_weights(engine)
    rate = learning_rate or recipe.training.learning_rate * (1 if weights is None else 0.2)
    size = min(recipe.training.batch_size, len(splits["train"].files))
    # Pretrained weights rest while the others are new, and here none are.
    training = replace(recipe.training, learning_rate=rate, epochs=epochs, batch_size=size, frozen_epochs=0)
    rows = splits["train"].captions if training.batches == "pairs" else splits["train"].files
    steps = epochs * (len(rows) // size)  # a recipe's own warm-up may last longer
    training = replace(training, warmup_steps=min(training.warmup_steps, steps // 10))
    recipe = replace(recipe, training=training)
    data, tokenizer = _dataset(engine, splits), engine.tokenizer
    for warning in words_report(tokenizer, {name: split.captions for name, split in splits.items()})[1]:
        tell(f"warning: {warning}")
    if cut := [text for split in splits.values() for text in split.captions if tokenizer.is_cut(text)]:
        tell(f"note: {counted(cut, 'caption')} longer than the model reads: cut at their end")
    tell(f"before: {_quality_of(engine.model, data.test, tokenizer)}")
    if not (resume and (folder / CHECKPOINT).is_file()):  # a run that has begun has passed it
        found = check_overfit(recipe, data.train, tokenizer, weights, seed=seed)
        tell(f"overfit check: R@1 {found:.0f} % on pairs learned by heart, as it should be")

    some = data.train.subset(min(256, len(data.train)))

    def after_epoch(event: Event) -> None:
        if event.metrics is not None:
            refuse_collapse(event.model, some, tokenizer)
            found = f"dev rsum {event.metrics['rsum']:.1f}" if len(data.dev) >= TELLING else "done"
            tell(f"epoch {event.epoch + 1}: {found}")

    options: dict[str, Any] = {"tokenizer": tokenizer, "weights": weights, "seed": seed}
    run = fit(recipe, data, folder=folder, resume=resume, callback=after_epoch, **options)
    refuse_collapse(run.model, some, tokenizer)  # a resumed run may have no epoch left to look at
    if engine.source is not None and engine.backbone is not None:
        write_json(folder / SOURCE_FILE, asdict(engine.source), indent=1)
    tell(f"after: {_quality_of(run.model, data.test, tokenizer)}")
    return run


def _quality_of(model: VSE, test: Split, tokenizer: Tokenizer) -> str:
    if len(test) < TELLING:
        return f"no rsum, since {len(test)} test pictures say nothing (wanted {TELLING} or more)"
    return f"test rsum {evaluate_split(model, test, tokenizer)['rsum']:.1f} on {len(test)} pictures"


def check_overfit(
    recipe: Recipe,
    train: Split,
    tokenizer: Tokenizer,
    weights: dict[str, torch.Tensor] | None,
    *,
    epochs: int = 60,
    seed: int = 0,
) -> float:
    """Return the R@1 in percent of a model that learns 128 pairs by heart; refuse one that cannot."""
    rows: dict[str, int] = {}  # the first caption of each picture, if no earlier one has the same
    for row in np.unique(train.owner, return_index=True)[1].tolist():
        rows.setdefault(train.captions[row].casefold(), row)
    chosen = list(rows.values())[:OVERFIT]
    own, captions = train.owner[chosen], [train.captions[row] for row in chosen]
    names = [train.picture_ids[picture] for picture in own]
    pairs = Split("train", np.asarray(train.pictures[own]), captions, np.arange(len(chosen)), names)
    batch_size = min(recipe.training.batch_size, len(chosen))
    settings: dict[str, Any] = {"batches": "pairs", "batch_size": batch_size, "epochs": epochs}
    settings |= {"warmup_steps": 0, "schedule": "constant", "snapshots": 0, "patience": None}
    plain = replace(
        recipe,
        image=replace(recipe.image, element_drop=0.0),
        text=replace(recipe.text, word_drop=0.0),
        training=replace(recipe.training, **settings),
    )
    best = 0.0

    def until_learned(event: Event) -> bool:
        nonlocal best
        if event.metrics is not None:
            best = max(best, (event.metrics["i2t_r1"] + event.metrics["t2i_r1"]) / 2)
        return best < LEARNED

    data = Dataset("pairs", pairs, pairs, pairs, recipe.features)
    fit(plain, data, tokenizer=tokenizer, weights=weights, callback=until_learned, seed=seed)
    if best < LEARNED:
        raise ValueError(
            f"overfit check: after {epochs} epochs on {len(chosen)} pairs R@1 is {best:.0f} %: "
            "see whether captions stand beside their pictures, then try another learning rate"
        )
    return best


def refuse_collapse(model: VSE, split: Split, tokenizer: Tokenizer) -> float:
    """Return the mean cosine of different pictures of a split; refuse one above `COLLAPSED`."""
    vectors = encode(model, split, tokenizer)[0].vectors
    assert vectors is not None  # an engine compares vectors
    flat = torch.nn.functional.normalize(vectors.flatten(1), dim=1)  # (n, D), or (n, K·D) of sets
    count = len(flat)
    mean = float((flat.sum(0).square().sum() - count) / (count * (count - 1)))
    if mean > COLLAPSED:
        raise ValueError(
            f"the model has collapsed: different pictures have cosine {mean:.3f} on average; take a smaller "
            "learning rate, or a loss that does not count the hardest negatives alone"
        )
    return mean


def _recipe_and_weights(engine: Engine) -> tuple[Recipe, dict[str, torch.Tensor] | None]:
    """Return the recipe of an engine, and the weights to go on with; None: the recipe brings its own."""
    source = engine.source
    if source is None:
        raise ValueError(f"{engine.name} is a model of your own: train it by its own recipe")
    if source.recipe:
        return get(source.recipe), None
    recipe = load_run(source.run).recipe
    if recipe.learns_offline or recipe.predicts_targets:
        raise ValueError(f"{source.run} learns from more than pictures and captions: train it with vse train")
    return recipe, {name: weight.cpu() for name, weight in engine.model.state_dict().items()}


def _dataset(engine: Engine, splits: dict[str, CaptionSplit]) -> Dataset:
    """Return pixels, or features of the pictures as the engine's own network makes them."""
    if engine.backbone is None:
        assert engine.model.view is not None  # refused by the engine
        return from_files(splits, engine.model.view)
    train, dev, test = (
        Split(one.name, engine.features(one.files), one.captions, one.owner, one.picture_ids)
        for one in splits.values()
    )
    return Dataset(splits["train"].dataset, train, dev, test, engine.backbone.kind)
