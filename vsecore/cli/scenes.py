"""`vse scenes`: make the embedded world, draw it, and train its two small networks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vsecore.cli.options import Features, RecordOption, Seed, writable_file

app = typer.Typer(no_args_is_help=True, help="The embedded world: drawn pictures with captions.")

Count = Annotated[int, typer.Option(min=1, max=1_000_000)]


@app.command("make")
def scenes_make(
    train: Count = 4000, dev: Count = 500, test: Count = 1000, features: Features = "grid", seed: Seed = 0
) -> None:
    """Generate the embedded world and its features into the cache, so that notebooks open at once."""
    from vsecore import scenes

    typer.echo(scenes.load(train=train, dev=dev, test=test, seed=seed, features=features))


@app.command("show")
def scenes_show(
    out: Annotated[Path, typer.Argument(callback=writable_file, help="The PNG file to write.")],
    count: Annotated[int, typer.Option(min=1, max=100)] = 6,
    size: Annotated[int, typer.Option(min=28, max=1120, help="Side of a picture, in pixels.")] = 336,
    seed: Seed = 0,
) -> None:
    """Draw some pictures of the world, four a row, and print a caption of each."""
    from PIL import Image

    from vsecore import scenes
    from vsecore.data.files import write_atomically

    sheet = Image.new("RGB", (size * min(count, 4), size * -(-count // 4)), "white")
    for place, picture in enumerate(scenes.generate(count, seed=seed, split="train")):
        drawn = Image.fromarray(scenes.draw(picture.scene, size=size))
        sheet.paste(drawn, (size * (place % 4), size * (place // 4)))
        # A different annotator describes each picture, to show all five habits.
        typer.echo(f"{place + 1}. {picture.captions[place % len(picture.captions)].text}")
    with write_atomically(out) as file:
        sheet.save(file, format="png")
    typer.echo(f"wrote {out}")


@app.command("pretrain")
def scenes_pretrain(
    kind: Annotated[str, typer.Argument(help="scenes-cnn or scenes-vit.")],
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Train one of the two small networks on the world's facts, and save it in assets/."""
    import hashlib

    from vsecore import records
    from vsecore.scenes.build import WORLD_VERSION
    from vsecore.scenes.networks import weights_file
    from vsecore.scenes.pretraining import pretrain

    metrics = pretrain(kind, seed=seed)
    seconds = metrics.pop("seconds")
    typer.echo(", ".join(f"{name} {value:.1f}" for name, value in metrics.items()))
    if record is not None:
        entry = records.record(
            kind,
            config={},
            config_hash="",
            data={"name": "scenes", "split": "pretrain", "fingerprint": WORLD_VERSION},
            seed=seed,
            metrics=metrics,
            seconds=seconds,
            note="facts read by lines from the features of held-out pictures, in percent: mean average "
            "precision of kinds, and of kinds with their colour; accuracy of the place, and cell by cell of "
            "kind, colour, size and facing; weights sha256 "
            + hashlib.sha256(weights_file(kind).read_bytes()).hexdigest(),
        )
        typer.echo(f"record: {records.write(entry, record)}")
