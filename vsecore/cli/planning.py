"""`vse plan`: what a training will cost on this machine, before it begins."""

from __future__ import annotations

from typing import Annotated

import typer

from vsecore.cli.options import Device, Precision, SettingsOption, Workers, open_dataset, read_settings


def plan(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; an unknown one lists them all.")],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            help="What vse train takes; or coco, flickr30k or flickr8k: drawn numbers of that shape, which "
            "need neither disk nor download.",
        ),
    ] = "coco",
    settings: SettingsOption = None,
    seconds: Annotated[float, typer.Option(help="How long to take steps, of each round.")] = 20.0,
    workers: Workers = 0,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Take some real steps of a recipe, throw them away, and say what all of them will cost."""
    from vsecore.data.rehearsal import PICTURES, Shape, rehearsal
    from vsecore.recipes import get
    from vsecore.training.planning import plan as count

    chosen = get(recipe).override(read_settings(settings))
    if data in PICTURES:
        if chosen.features == "pixels":
            raise ValueError(
                f"--data is {data}, and recipe {recipe} reads pixels: name a folder of photographs"
            )
        dataset = rehearsal(Shape.of(data, chosen.features))
    else:
        view = chosen.view() if chosen.features == "pixels" else None
        dataset = open_dataset(data, chosen.features, view, chosen.image.boxes)
    cost = count(chosen, dataset, seconds=seconds, device=device, precision=precision, workers=workers)
    typer.echo(f"{chosen.name} on {data}: {dataset.train!r}")
    for name, value in cost.rows().items():
        typer.echo(f"{name:<20} {value}")
