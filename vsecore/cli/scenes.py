"""`vse scenes pretrain` and `vse export`: the networks of the embedded world, and its explainer."""

from pathlib import Path

import typer

from vsecore.cli.options import Folder, Seed, command, open_run

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


def export(run: Path, *, to: Folder = Path("explainer"), name: str = "") -> None:
    """Write a run as a script for the book's explainer, which then shows it beside the course's systems.

    Options:
        run: The folder of a run on scenes.
        to: The explainer's folder, such as book/_build/html/explainer.
        name: What its button says. [default: the run folder's name]
    """
    from vsecore.experiments import WORLDS
    from vsecore.export import exported, script_name, write_script
    from vsecore.training.identity import read_identity

    trained_on = read_identity(run)["data"]["name"]
    if trained_on not in WORLDS:  # before scenes are drawn, whose features it may not even read
        raise ValueError(f"{run} was trained on {trained_on}: the explainer shows pictures of scenes")
    opened, dataset = open_run(run, "scenes")
    told = name or run.resolve().name
    content = exported(opened.model, opened.recipe, opened.tokenizer, dataset.test, told)
    to.mkdir(parents=True, exist_ok=True)
    path = write_script(to, script_name(told), content)
    typer.echo(f"wrote {path}; open the explainer's page with ?run={path.stem} at the end of its address")
