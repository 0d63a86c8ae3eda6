"""`vse scenes pretrain`: the networks of the embedded world."""

import typer

from vsecore.cli.options import Folder, Seed, command

app = typer.Typer(no_args_is_help=True, help="The networks of the embedded world.")


@command(app, "pretrain")
def scenes_pretrain(kind: str, *, seed: Seed = 0, record: Folder | None = None) -> None:
    """Train one of the two small networks on the world's facts, and save it in assets/.

    Options:
        kind: scenes-cnn or scenes-vit.
    """
    from vsecore import records
    from vsecore.data.files import digest_of
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
            "kind, colour, size and facing; weights sha256 " + digest_of(weights_file(kind)).hex(),
        )
        typer.echo(f"record: {records.write(entry, record)}")
