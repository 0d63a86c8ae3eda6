"""`vse mine`: the hardest negatives of the whole training set, found by a trained run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vsecore import stopping
from vsecore.cli.options import DataOption, check_writable, open_dataset


def mine(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write the negatives into.")],
    data: DataOption = "scenes",
    texts: Annotated[int, typer.Option(min=1, help="Captions for each picture.")] = 300,
    pictures: Annotated[int, typer.Option(min=1, help="Pictures for each caption.")] = 60,
) -> None:
    """Find the hardest negatives of the training split, for vse train --negatives. Resumes."""
    check_writable("--out", out)
    from vsecore import mining
    from vsecore.training import load_run
    from vsecore.training.distributed import best_device
    from vsecore.training.identity import check_features

    if out.resolve() == run.resolve():
        raise ValueError(f"--out is {out}, the run's folder: it must be another one")
    trained = load_run(run)
    recipe = trained.recipe
    dataset = open_dataset(data, recipe.features, trained.model.view, recipe.image.boxes)
    check_features(run, trained.data, data, dataset)
    stopping.advise(lambda: "continue with the same command")
    model = trained.model.to(best_device())
    by = f"{recipe.name} {recipe.hash()}"
    found = mining.mine(model, dataset.train, trained.tokenizer, texts, pictures, folder=out, recipe=by)
    for name, rows, asked in (("texts", found.texts, texts), ("pictures", found.pictures, pictures)):
        if rows.shape[1] < asked:
            typer.echo(
                f"note: --{name} is {asked}; there are only {rows.shape[1]} negatives, so all are used"
            )
    anchors = f"{len(found.texts)} pictures and {len(found.pictures)} captions"
    typer.echo(f"negatives of {anchors}: {out} (vse train RECIPE --negatives {out})")
