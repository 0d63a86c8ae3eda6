"""`vse search`: index one's own pictures, and find them by a sentence, by another picture, or on a page."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vsecore import stopping
from vsecore.cli.options import Resume, Seed, with_parts, writable
from vsecore.data.picture_folders import SUFFIXES

if TYPE_CHECKING:
    from vsecore.search.index import Term

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
    exclude: Annotated[
        list[str] | None,
        typer.Option(help='Files and folders to leave out, such as "drafts" or "*.png". Can be repeated.'),
    ] = None,
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
    built = Index.build(pictures, engine, index, url=url, exclude=exclude or ())
    report = built.report
    for problem in (*report.broken.values(), *report.notes):
        typer.echo(f"left out: {problem}", err=True)
    moved = f"{report.moved} moved, " if report.moved else ""
    typer.echo(
        f"{report.added} added, {report.changed} changed, {moved}{report.removed} removed, "
        f"{report.kept} as before"
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
    sentence: Annotated[
        list[str] | None,
        typer.Argument(
            help="What the picture should show. + and - add and subtract sentences and pictures, a number "
            'weighs the next one: "a dog on a beach" + 0.5 pool.jpg - car'
        ),
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Or a picture, to find similar ones.")] = None,
    index: IndexOption = INDEX,
    top: Top = 10,
    paths: Annotated[
        bool, typer.Option("--paths", help="Print the paths alone, a line each, for other programs.")
    ] = False,
    url: UrlOption = None,
) -> None:
    """Print the pictures that a sentence describes, with their scores; "ask" itself may be left out.

    After vse search calibrate, also how probable it is that each is the right one.
    """
    words = [word for word in sentence or () if word.strip()]
    if bool(words) == (picture is not None):
        raise ValueError('give a sentence (vse search "two dogs"), or a picture (--picture FILE)')
    from vsecore.data.files import without_progress
    from vsecore.search import Index
    from vsecore.search.relevance import relevance_of

    terms = _terms(words) if picture is None else []
    query: Any = picture or terms
    if len(terms) == 1 and terms[0].weight == 1:
        query = terms[0].query
    opened = Index.load(index, url=url)
    for text in (term.query for term in terms if isinstance(term.query, str)):
        for note in opened.engine.notes(text):
            typer.echo(f"note: {note}", err=True)
    found = opened.search(query, k=top)
    if paths:
        for one in found:
            typer.echo(os.fsencode(one.path))
        return
    relevance = relevance_of(opened) if isinstance(query, str) else None
    likely = relevance.of(opened, opened.embed(query), found) if relevance and found else []
    with without_progress():
        alike = _copies([one.path for one in found])
    first = {path: group[0] for group in alike for path in group[1:]}
    for row, one in enumerate(found):
        told = f"  {100 * likely[row]:3.0f} %" if likely else ""
        copy = f"  (a copy of {_shown(first[one.path])})" if one.path in first else ""
        typer.echo(f"{one.score:6.3f}{told}  {_shown(one.path)}{copy}")
    if likely and min(likely) < 0.5:
        count = sum(share >= 0.5 for share in likely)
        typer.echo(f"note: {count} of these are more likely right than wrong", err=True)


def _terms(words: list[str]) -> list[Term]:
    """Read sentences and pictures with + and - between them, and perhaps a number before each."""
    from vsecore.search.index import Term

    groups: list[tuple[float, list[str]]] = [(1.0, [])]
    for word in words:
        if word in ("+", "-"):
            groups.append((1.0 if word == "+" else -1.0, []))
        else:
            groups[-1][1].append(word)
    groups = groups if groups[0][1] else groups[1:]  # the query may begin with a minus
    terms = []
    for sign, own in groups:
        weighs = len(own) > 1 and len(groups) > 1 and re.fullmatch(r"\d*\.?\d+", own[0])
        weight, text = (float(own[0]), " ".join(own[1:])) if weighs else (1.0, " ".join(own))
        if not text:
            raise ValueError(
                "a + or - of the query has nothing after it: write a sentence or a picture there"
            )
        is_picture = Path(text).suffix.lower() in SUFFIXES
        if is_picture and not Path(text).expanduser().is_file():
            raise FileNotFoundError(f"no picture {text}: name its file, or write a sentence")
        terms.append(Term(Path(text).expanduser() if is_picture else text, sign * weight))
    return terms


def _copies(pictures: list[Path]) -> list[list[Path]]:
    """Group pictures that are still there, in their order, by what they show."""
    from vsecore.data.copies import copies

    there = [path for path in pictures if path.is_file()]
    return copies(there) if there else []


def _shown(path: Path) -> str:
    """Return a path on one line, whatever is in it."""
    text = str(path).encode(errors="backslashreplace").decode()
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@app.command("calibrate")
def search_calibrate(
    captions: Annotated[Path, typer.Argument(help="A CSV with the columns file and caption.")],
    pictures: Annotated[Path, typer.Argument(help="The folder that its files are in, which is indexed.")],
    index: IndexOption = INDEX,
) -> None:
    """Learn where relevance ends, from captions of the index's own kind that the model has not seen.

    Afterwards, a search tells of each picture how probable it is that such a caption was written for it.
    """
    from vsecore.data.karpathy import load_karpathy
    from vsecore.search import Index
    from vsecore.search.relevance import calibrate

    typer.echo(calibrate(Index.load(index), load_karpathy(pictures, captions))[1])


@app.command("duplicates")
def search_duplicates(index: IndexOption = INDEX) -> None:
    """Show the pictures of an index that are copies of one: the same bytes, or saved at another size."""
    from vsecore.search.store import Store

    files = [entry.path for entry in Store(index.expanduser()).entries()]
    groups = [group for group in _copies(files) if len(group) > 1]
    for group in groups:
        typer.echo("\n".join(_shown(path) for path in group) + "\n")
    have = "picture has" if len(groups) == 1 else "pictures have"
    typer.echo(f"{len(groups)} {have} copies, {sum(map(len, groups)) - len(groups)} in all", err=True)


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
