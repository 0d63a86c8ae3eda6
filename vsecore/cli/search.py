"""`vse search`: index one's own pictures, and find them by a sentence, by another picture, or on a page."""

from __future__ import annotations

import glob
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from vsecore import stopping
from vsecore.cli.options import Count, Folder, Kind, Seed, command
from vsecore.data.picture_folders import readable_suffixes

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

INDEX = Path("picture-index")


@command(app, "index", own_parts=True)
def search_index(
    pictures: Path,
    *,
    run: Path | None = None,
    recipe: str | None = None,
    index: Folder = INDEX,
    features: Path | None = None,
    backbone: str = "",
    weights: Path | None = None,
    exclude: list[str] | None = None,
    url: str | None = None,
) -> None:
    """Index a folder of pictures, or bring its index up to date. Resumes where it was stopped.

    Name a run or a recipe the first time; later the index knows its model.

    Options:
        pictures: A folder of pictures; folders in it are searched too.
        run: The folder of a trained run.
        recipe: A recipe of CLIP or SigLIP, or such a model's folder: no training.
        index: The folder to keep the index in.
        features: The folder of features that the run was trained on.
        backbone: Or the network that made them.
        weights: A file of that network's weights.
        exclude: Files and folders to leave out, such as "drafts" or "*.png"; or the whole path of a folder
            that is not there any more, to forget it. Can be repeated.
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
            f"{index} holds no index yet: name its model, --run RUN or --recipe clip_base_patch32"
        )
    built = Index.build(pictures, engine, index, url=url, exclude=exclude or ())
    report = built.report
    for problem in (*report.broken.values(), *report.notes):
        typer.echo(f"left out: {problem}", err=True)
    if report.absent:
        forget = " ".join(f"--exclude {shlex.quote(glob.escape(str(folder)))}" for folder in report.absent)
        typer.echo(f"pictures of folders not there stay in the index; to forget them: {forget}", err=True)
    moved = f"{report.moved} moved, " if report.moved else ""
    typer.echo(
        f"{report.added} added, {report.changed} changed, {moved}{report.removed} removed, "
        f"{report.kept} as before"
    )
    where = "" if index == INDEX else f" --index {index}"
    typer.echo(f'{len(built)} pictures in {index}; next: vse search "two dogs on the beach"{where}')


@command(app, "tune", own_parts=True)
def search_tune(
    captions: Path,
    pictures: Path,
    *,
    out: Folder,
    index: Path = INDEX,
    epochs: Count = 10,
    learning_rate: Annotated[float | None, Kind(min=1e-12)] = None,
    resume: bool = False,
    seed: Seed = 0,
) -> None:
    """Train an index's model further on captions of your own; build another index with the new run.

    First the model must learn 128 pairs by heart. Pictures in two splits, and a model that collapses, are
    refused by name.

    Options:
        captions: A CSV with the columns file and caption.
        pictures: The folder that its files are in.
        out: The folder of the new run.
        epochs: How long.
        learning_rate: [default: a fifth of the run's; a recipe's own]
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


@command(app, ASK, own_parts=True)
def search_ask(
    sentence: list[str] | None = None,
    *,
    picture: Path | None = None,
    index: Path = INDEX,
    top: Annotated[int, Kind(min=1, max=1000)] = 10,
    paths: bool = False,
    url: str | None = None,
) -> None:
    """Print the pictures that a sentence describes, with their scores; "ask" itself may be left out.

    After vse search calibrate, also how probable it is that each is the right one.

    Options:
        sentence: What the picture should show. + and - add and subtract sentences and pictures, a number
            weighs the next one: "a dog on a beach" + 0.5 pool.jpg - car
        picture: Or a picture, to find similar ones.
        top: How many pictures.
        paths: Print the paths alone, a line each, for other programs.
    """
    words = [word for word in sentence or () if word.strip()]
    if bool(words) == (picture is not None):
        raise ValueError('give a sentence (vse search "two dogs"), or a picture (--picture FILE)')
    from vsecore.data.copies import copies
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
        alike = copies([one.path for one in found if one.path.is_file()])
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
    from vsecore.data.files import expanded
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
            raise ValueError("a + or - has nothing after it: write a sentence or a picture there")
        is_picture = Path(text).suffix.lower() in readable_suffixes()
        if is_picture and not expanded(text).is_file():
            raise FileNotFoundError(f"no picture {text}: name its file, or write a sentence")
        terms.append(Term(expanded(text) if is_picture else text, sign * weight))
    return terms


def _shown(path: Path) -> str:
    """Return a path on one line, whatever is in it."""
    text = str(path).encode(errors="backslashreplace").decode()
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@command(app, "calibrate", own_parts=True)
def search_calibrate(captions: Path, pictures: Path, *, index: Path = INDEX) -> None:
    """Learn where relevance ends, from captions of the index's own kind that the model has not seen.

    Afterwards, a search tells of each picture how probable it is that such a caption was written for it.

    Options:
        captions: A CSV with the columns file and caption.
        pictures: The folder that its files are in, which is indexed.
    """
    from vsecore.data.karpathy import load_karpathy
    from vsecore.search import Index
    from vsecore.search.relevance import calibrate

    typer.echo(calibrate(Index.load(index), load_karpathy(pictures, captions))[1])


@command(app, "duplicates")
def search_duplicates(*, index: Path = INDEX) -> None:
    """Show the pictures of an index that are copies of one: the same bytes, or saved at another size."""
    from vsecore.data.copies import copies
    from vsecore.search.store import Store

    files = [entry.path for entry in Store(index).entries() if entry.path.is_file()]
    groups = [group for group in copies(files) if len(group) > 1]
    for group in groups:
        typer.echo("\n".join(_shown(path) for path in group) + "\n")
    have = "picture has" if len(groups) == 1 else "pictures have"
    typer.echo(f"{len(groups)} {have} copies, {sum(map(len, groups)) - len(groups)} in all", err=True)


@command(app, "page", own_parts=True)
def search_page(
    *,
    index: Path = INDEX,
    port: Annotated[int, Kind(min=1, max=65535)] = 8123,
    url: str | None = None,
) -> None:
    """Serve a page to search with: by a sentence, by a picture of yours, or by more like this.

    Options:
        port: Where the page is served.
    """
    from vsecore.search import Index
    from vsecore.search.page import HOST, serve

    opened = Index.load(index, url=url)
    typer.echo(f"{len(opened)} pictures: open http://{HOST}:{port} (Ctrl-C ends it)")
    serve(opened, port)
