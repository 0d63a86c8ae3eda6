"""`vse search`: index one's own pictures, and find them by a sentence, by another picture, or on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vsecore import stopping
from vsecore.cli.options import Resume, Seed, with_parts, writable

ASK = "ask"


class _SentenceFirst(TyperGroup):
    """A group whose first argument may be a sentence: then the command is `ask`."""

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        if arguments and arguments[0] not in (*self.commands, "--help"):
            arguments = [ASK, *arguments]
        return super().parse_args(context, arguments)


app = typer.Typer(
    cls=_SentenceFirst,
    no_args_is_help=True,
    help='Search your own pictures: vse search index FOLDER, then vse search "two dogs on the beach".',
)

IndexOption = Annotated[Path, typer.Option("--index", help="The folder that the index is kept in.")]
INDEX = Path("picture-index")
UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="A Qdrant server, such as http://localhost:6333. [default: none is needed]"),
]
Top = Annotated[int, typer.Option("--top", min=1, max=1000, help="How many pictures.")]


@app.command("index")
@with_parts
def search_index(
    pictures: Annotated[Path, typer.Argument(help="A folder of pictures; folders in it are searched too.")],
    run: Annotated[Path | None, typer.Option(help="The folder of a trained run.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A recipe of CLIP or SigLIP, or such a model's folder: no training.")
    ] = None,
    index: Annotated[
        Path, typer.Option("--index", callback=writable, help="The folder to keep the index in.")
    ] = INDEX,
    features: Annotated[
        Path | None, typer.Option(help="The folder of features that the run was trained on.")
    ] = None,
    backbone: Annotated[str, typer.Option(help="Or the network that made them.", show_default=False)] = "",
    weights: Annotated[Path | None, typer.Option(help="A file of that network's weights.")] = None,
    url: UrlOption = None,
) -> None:
    """Index a folder of pictures, or bring its index up to date. Resumes where it was stopped.

    Name a run or a recipe the first time; later the index knows its model.
    """
    if run is not None and recipe is not None:
        raise ValueError("--run and --recipe are both given: an index has one model; leave one out")
    if run is None and (features or backbone or weights):
        raise ValueError("--features, --backbone and --weights belong to a run: name it with --run")
    from vsecore.search import Engine, Index
    from vsecore.search.store import FILE

    stopping.advise(lambda: "continue with the same command")
    if run is not None:
        engine = Engine.of_run(run, features=features, backbone=backbone, weights=weights)
    elif recipe is not None:
        engine = Engine.of_recipe(recipe)
    elif (index / FILE).is_file():
        engine = Index.load(index).engine
    else:
        raise ValueError(
            f"{index} holds no index yet: name the model to build one with, --run RUN or --recipe "
            "clip_base_patch32"
        )
    built = Index.build(pictures, engine, index, url=url)
    report = built.report
    for problem in report.broken.values():
        typer.echo(f"left out: {problem}", err=True)
    typer.echo(
        f"{report.added} added, {report.changed} changed, {report.removed} removed, {report.kept} as before"
    )
    where = "" if index == INDEX else f" --index {index}"
    typer.echo(f'{len(built)} pictures in {index}; next: vse search "two dogs on the beach"{where}')


@app.command("tune")
@with_parts
def search_tune(
    captions: Annotated[Path, typer.Argument(help="A CSV with the columns file and caption.")],
    pictures: Annotated[Path, typer.Argument(help="The folder that its files are in.")],
    out: Annotated[Path, typer.Option("--out", callback=writable, help="The folder of the new run.")],
    index: IndexOption = INDEX,
    epochs: Annotated[int, typer.Option(min=1, help="How long.")] = 10,
    learning_rate: Annotated[
        float | None,
        typer.Option(min=1e-12, help="[default: a fifth of the run's; a recipe's own]", show_default=False),
    ] = None,
    resume: Resume = False,
    seed: Seed = 0,
) -> None:
    """Train an index's model further on captions of your own; build another index with the new run.

    First the model must learn 128 pairs by heart. Pictures in two splits, and a model that collapses, are
    refused by name.
    """
    from vsecore.search import Index
    from vsecore.search.tuning import read_captions, tune
    from vsecore.training.checkpoints import refuse_to_overwrite

    refuse_to_overwrite(out, resume)
    stopping.advise(lambda: "continue with --resume")
    splits = read_captions(captions, pictures)
    options: dict[str, Any] = {"epochs": epochs, "learning_rate": learning_rate, "resume": resume}
    tune(Index.load(index).engine, splits, out, **options, seed=seed, tell=typer.echo)
    typer.echo(f"run: {out}; next: vse search index {pictures} --run {out} --index another-index")


@app.command(ASK)
@with_parts
def search_ask(
    sentence: Annotated[str, typer.Argument(help="What the picture should show.")] = "",
    picture: Annotated[Path | None, typer.Option(help="Or a picture, to find similar ones.")] = None,
    index: IndexOption = INDEX,
    top: Top = 10,
    url: UrlOption = None,
) -> None:
    """Print the pictures that a sentence describes, with their scores; "ask" itself may be left out."""
    if bool(sentence.strip()) == (picture is not None):
        raise ValueError('give a sentence (vse search "two dogs"), or a picture (--picture FILE)')
    from vsecore.search import Index

    opened = Index.load(index, url=url)
    if picture is None and (unknown := opened.engine.unknown_words(sentence)):
        typer.echo(f"note: the model never learned {', '.join(unknown)}", err=True)
    for found in opened.search(sentence if picture is None else picture, k=top):
        typer.echo(f"{found.score:6.3f}  {str(found.path).encode(errors='backslashreplace').decode()}")


@app.command("page")
@with_parts
def search_page(
    index: IndexOption = INDEX,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the page is served.")] = 8123,
    host: Annotated[
        str,
        typer.Option(
            help="127.0.0.1 keeps the page to this machine; another address shows your pictures to it."
        ),
    ] = "127.0.0.1",
    url: UrlOption = None,
) -> None:
    """Serve a page to search with: by a sentence, by a picture of yours, or by more like this."""
    from vsecore.search import Index
    from vsecore.search.page import serve

    opened = Index.load(index, url=url)
    typer.echo(f"{len(opened)} pictures: open http://{host}:{port} (Ctrl-C ends it)")
    serve(opened, host, port)
