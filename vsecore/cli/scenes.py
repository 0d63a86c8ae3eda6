"""`vse scenes`: train the two small networks of the embedded world."""

from __future__ import annotations

from typing import Annotated

import typer

from vsecore.cli.options import RecordOption, Seed

app = typer.Typer(no_args_is_help=True, help="The networks of the embedded world.")


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
