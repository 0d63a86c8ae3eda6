"""Train a model further on pictures and captions of one's own, and stop by name what would go wrong.

Three mistakes are common with few pictures, and none of them shows in the loss: a picture stands both in the
training and in the test split, so that the test measures memory; captions do not belong to their pictures, or
the learning rate is wrong, so that nothing can be learned; and the model collapses, so that all pictures get
the same vector.
"""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vsecore.data.files import digest_of, read_text
from vsecore.data.karpathy import CaptionSplit
from vsecore.data.photographs import from_files
from vsecore.data.picture_files import open_picture
from vsecore.data.splits import LONGEST_CAPTION, Dataset, Split
from vsecore.data.words import Tokenizer
from vsecore.model import VSE
from vsecore.recipes import Recipe, get
from vsecore.retriever import keep_source
from vsecore.scoring import encode
from vsecore.search.engine import Engine
from vsecore.training import Event, Run, evaluate_split, fit, load_run
from vsecore.training.checkpoints import CHECKPOINT
from vsecore.typed import short

SPLITS = ("train", "dev", "test")
FEWEST = 20
"""Pictures with captions below which there is nothing to train and test on."""
OVERFIT = 128
"""Pairs that a model must be able to learn by heart."""
LEARNED = 90.0
"""R@1 in percent that a model must reach on pairs that it may learn by heart."""
COLLAPSED = 0.998
"""Mean cosine of different pictures above which a model tells no two of them apart."""
SAME = 3.0
"""Mean difference of two pictures' small copies, of 255 levels, below which they are the same picture."""


class _LearnedError(Exception):
    """Ends a training whose pairs are learned."""


def read_captions(path: str | Path, pictures: str | Path) -> dict[str, CaptionSplit]:
    """Read a CSV of captions, and split its pictures.

    Args:
        path: a CSV in UTF-8 with the columns `file` and `caption`, a line for each caption, and perhaps
            `split`: train, dev or test for every line. Without it, a tenth of the pictures becomes dev and
            a tenth test; which ones depends on their bytes alone. Copies of a picture stay in one split.
        pictures: the folder in which the files are.

    Returns:
        "train", "dev" and "test".

    Raises:
        FileNotFoundError: the CSV, or a picture that it names, is missing.
        ValueError: it is damaged; a line lacks something; a file is outside the folder, or cannot be read as
            a picture; there are too few pictures; or a picture stands in two splits.
    """
    path, root = Path(path).expanduser(), Path(pictures).expanduser().resolve()
    captions, split_of = _read_lines(path, root)
    if len(captions) < FEWEST:
        raise ValueError(f"{path} has captions of {len(captions)} pictures: wanted at least {FEWEST}")
    groups = _copies(list(captions))
    if split_of:
        _refuse_leakage(groups, split_of)
    else:
        split_of = _share_out(groups)
    made = {}
    for name in SPLITS:
        own = [file for file in captions if split_of[file] == name]
        if len(own) < 2:
            raise ValueError(f"{path} has {len(own)} pictures in {name}: wanted at least 2 in each split")
        sentences = [caption for file in own for caption in captions[file]]
        owner = np.repeat(np.arange(len(own)), [len(captions[file]) for file in own])
        ids = [file.relative_to(root).as_posix() for file in own]
        made[name] = CaptionSplit(name, path.stem, own, sentences, owner, ids)
    return made


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

    Args:
        engine: with its own source, so that its recipe is known.
        splits: from `read_captions`.
        folder: the new run's folder.
        epochs: how long.
        learning_rate: None: a fifth of the one that a run was trained with; a recipe's own for CLIP and
            SigLIP.
        seed: seeds everything random.
        resume: continue a run in the folder that was stopped.
        tell: gets a line for each step of the work.

    Returns:
        The run of the best epoch on dev. Its history says how good the model was.

    Raises:
        ValueError: the 128 pairs could not be learned; the model collapses; the folder holds a run, and
            `resume` is False; or a picture cannot be read.
    """
    recipe, weights = _beginning(engine)
    rate = learning_rate or recipe.training.learning_rate * (1 if weights is None else 0.2)
    recipe = replace(recipe, training=replace(recipe.training, learning_rate=rate, epochs=epochs))
    data, tokenizer = _dataset(engine, splits), engine.tokenizer
    before = evaluate_split(engine.model, data.test, tokenizer)
    tell(f"before: test rsum {before['rsum']:.1f} on {len(data.test)} pictures")
    if not (resume and (Path(folder) / CHECKPOINT).is_file()):  # a run that has begun has passed it
        found = check_overfit(recipe, data.train, tokenizer, weights, seed=seed)
        tell(f"overfit check: R@1 {found:.0f} % on pairs learned by heart, as it should be")

    some = data.train.subset(min(256, len(data.train)))

    def after_epoch(event: Event) -> None:
        if event.metrics is not None:
            refuse_collapse(event.model, some, tokenizer)
            tell(f"epoch {event.epoch + 1}: dev rsum {event.metrics['rsum']:.1f}")

    options: dict[str, Any] = {"folder": folder, "resume": resume, "seed": seed, "callback": after_epoch}
    run = fit(recipe, data, tokenizer=tokenizer, weights=weights, **options)
    refuse_collapse(run.model, some, tokenizer)  # a resumed run may have no epoch left to look at
    if engine.source is not None and engine.backbone is not None:
        keep_source(engine.source, folder)
    after = evaluate_split(run.model, data.test, tokenizer)
    tell(f"after: test rsum {after['rsum']:.1f}")
    return run


def check_overfit(
    recipe: Recipe,
    train: Split,
    tokenizer: Tokenizer,
    weights: dict[str, torch.Tensor] | None,
    *,
    epochs: int = 60,
    seed: int = 0,
) -> float:
    """Let a model learn at most 128 pairs by heart: what cannot even do that will not learn more.

    Returns:
        R@1 on these pairs in percent, the mean of both directions.

    Raises:
        ValueError: it is below `LEARNED`.
    """
    rows: dict[str, int] = {}  # the first caption of each picture, if no earlier one has the same
    for row in np.unique(train.owner, return_index=True)[1].tolist():
        rows.setdefault(train.captions[row].casefold(), row)
    chosen = list(rows.values())[:OVERFIT]
    own, captions = train.owner[chosen], [train.captions[row] for row in chosen]
    names = [train.picture_ids[picture] for picture in own]
    pairs = Split("train", np.asarray(train.pictures[own]), captions, np.arange(len(chosen)), names)
    settings: dict[str, Any] = {
        "batches": "pairs",
        "batch_size": min(recipe.training.batch_size, len(chosen)),
    }
    settings |= {"epochs": epochs, "warmup_steps": 0, "schedule": "constant", "snapshots": 0}
    plain = replace(
        recipe,
        image=replace(recipe.image, element_drop=0.0),
        text=replace(recipe.text, word_drop=0.0),
        training=replace(recipe.training, **settings),
    )
    best = 0.0

    def until_learned(event: Event) -> None:
        nonlocal best
        if event.metrics is not None:
            best = max(best, (event.metrics["i2t_r1"] + event.metrics["t2i_r1"]) / 2)
            if best >= LEARNED:
                raise _LearnedError

    with contextlib.suppress(_LearnedError):
        data = Dataset("pairs", pairs, pairs, pairs, recipe.features)
        fit(plain, data, tokenizer=tokenizer, weights=weights, callback=until_learned, seed=seed)
    if best < LEARNED:
        raise ValueError(
            f"overfit check: after {epochs} epochs on {len(chosen)} pairs the model finds only {best:.0f} % "
            f"of them again, wanted {LEARNED:.0f} %: see whether each caption stands beside its own picture, "
            "then try another learning rate"
        )
    return best


def refuse_collapse(model: VSE, split: Split, tokenizer: Tokenizer) -> float:
    """Return the mean cosine of different pictures of a split.

    Raises:
        ValueError: it is above `COLLAPSED`.
    """
    vectors = encode(model, split, tokenizer)[0].vectors
    assert vectors is not None  # an engine compares vectors
    flat = torch.nn.functional.normalize(vectors.flatten(1), dim=1)  # (n, D), or (n, K·D) of sets
    count = len(flat)
    mean = float((flat.sum(0).square().sum() - count) / (count * (count - 1)))
    if mean > COLLAPSED:
        raise ValueError(
            f"the model has collapsed: different pictures have cosine {mean:.3f} on average, so no search "
            "can tell them apart; take a smaller learning rate, or a loss that does not count the hardest "
            "negatives alone"
        )
    return mean


def _beginning(engine: Engine) -> tuple[Recipe, dict[str, torch.Tensor] | None]:
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
        Split(name, engine.features(one.files), one.captions, one.owner, one.picture_ids)
        for name, one in ((name, splits[name]) for name in SPLITS)
    )
    return Dataset(splits["train"].dataset, train, dev, test, engine.backbone.kind)


def _read_lines(path: Path, root: Path) -> tuple[dict[Path, list[str]], dict[Path, str]]:
    """Return the captions of each picture, and its split if the CSV says so."""
    captions: dict[Path, list[str]] = {}
    split_of: dict[Path, str] = {}
    try:
        text = read_text(path).decode("utf-8-sig")
        lines = csv.DictReader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
        rows = [(f"{path}, line {lines.line_num}", row) for row in lines]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV in UTF-8 ({error}): save it again as one") from None
    columns = lines.fieldnames or ()
    if not {"file", "caption"} <= set(columns):
        raise ValueError(f"{path} has the columns {short(', '.join(columns))}: wanted file and caption")
    for line, row in rows:
        name, caption = (row["file"] or "").strip(), " ".join((row["caption"] or "").split())
        file, split = (root / name).resolve(), (row.get("split") or "").strip()
        if not name or not caption or len(caption) > LONGEST_CAPTION:
            raise ValueError(
                f"{line}: file is {short(name)} and caption {short(caption)}: wanted both, and at most "
                f"{LONGEST_CAPTION} characters"
            )
        if not file.is_relative_to(root):
            raise ValueError(f"{line}: {short(name)} is outside {root}")
        if not file.is_file():
            raise FileNotFoundError(f"{line}: no picture {file}")
        if "split" in columns and split not in SPLITS:
            raise ValueError(f"{line}: split is {short(split)}: wanted train, dev or test")
        if split and split_of.setdefault(file, split) != split:
            raise ValueError(f"split leakage: {line}: {name} is in {split} and in {split_of[file]}: one only")
        captions.setdefault(file, []).append(caption)
    return captions, split_of


def _copies(files: Sequence[Path]) -> list[list[Path]]:
    """Group files that show the same picture: the same bytes, or saved again at another size or quality."""
    small = np.stack(
        [np.asarray(open_picture(file, at_least=32).resize((16, 16)), np.float32).ravel() for file in files]
    )  # (n, 768)
    squares = np.square(small).sum(1)  # (n,)
    group = np.arange(len(files))
    for start in range(0, len(files), 1024):
        block = small[start : start + 1024]
        gaps = squares[start : start + 1024, None] + squares - 2 * block @ small.T  # (b, n)
        for row, column in zip(*np.nonzero(gaps <= SAME**2 * small.shape[1]), strict=True):
            if start + row < column:
                group[group == group[column]] = group[start + row]
    return [[files[int(row)] for row in np.flatnonzero(group == one)] for one in np.unique(group)]


def _refuse_leakage(groups: Sequence[Sequence[Path]], split_of: dict[Path, str]) -> None:
    leaks = [group for group in groups if len({split_of[file] for file in group}) > 1]
    if leaks:
        one = leaks[0][0]
        other = next(file for file in leaks[0] if split_of[file] != split_of[one])
        raise ValueError(
            f"split leakage: {one.name} ({split_of[one]}) and {other.name} ({split_of[other]}) show the same "
            f"picture ({len(leaks)} such pictures): put all copies of one into one split, or leave that "
            "column out"
        )


def _share_out(groups: Sequence[Sequence[Path]]) -> dict[Path, str]:
    """Give a tenth of the pictures, at least two, to dev and to test; copies stay together."""
    wanted = max(2, round(sum(map(len, groups)) / 10))
    made: dict[str, list[Path]] = {"test": [], "dev": [], "train": []}
    for group in sorted(groups, key=lambda group: min(sha256(digest_of(file)).digest() for file in group)):
        name = next((name for name in ("test", "dev") if len(made[name]) < wanted), "train")
        made[name].extend(group)
    return {file: name for name, files in made.items() for file in files}
