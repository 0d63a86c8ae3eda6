"""`python -m course`: run and show the notebooks, build the book, make and grade learners' copies."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from course.datasets import DatasetName
from course.lesson import Tier, begin
from vsecore import cli, paths, stopping, threads
from vsecore.cli.options import check_writable

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The course on visual-semantic embedding: its notebooks and its book.",
    rich_markup_mode=None,
)
app.callback()(cli.everywhere)


Names = Annotated[list[str] | None, Argument(help="Beginnings of names, such as 04. [default: all]")]


@app.command()
def course(
    notebooks: Names = None,
    tier: Annotated[Tier, Option(help="smoke, lesson or full.")] = "lesson",
    data: Annotated[DatasetName, Option(help="scenes, flickr8k, flickr30k or coco.")] = "scenes",
    data_root: Annotated[str, Option(help="The folder of a photograph collection.")] = "",
    seed: Annotated[int, Option(min=0, max=2**63 - 1, help="Seeds everything that is random.")] = 0,
) -> None:
    """Run the notebooks into build/notebooks, then build the book."""
    if tier != "full":  # two notebooks at a time, so one thread here and in each of them
        os.environ.update(threads.one_thread(os.environ))
    from course import batch
    from coursebook.build import build_book

    # It refuses a wrong parameter now, not after the first notebook.
    lesson = begin(tier, data, data_root, seed)
    executed = paths.ROOT / "build" / "notebooks"
    root = str(lesson.data_root.resolve()) if lesson.data_root else ""
    parameters = {"tier": tier, "data": data, "data_root": root, "seed": seed}
    chosen = batch.notebooks(notebooks or ())
    at_once = 1 if tier == "full" else 2
    if data == "scenes" and len(chosen) > 1:
        typer.echo("making the embedded world, unless it is in the cache")
        batch.make_world(tier)
    batch.run(chosen, executed, parameters, at_once)
    if notebooks:
        typer.echo(f"executed: {executed}")
        return
    typer.echo(f"open {build_book(executed)}")


@app.command()
def book(pdf: Annotated[bool, Option("--pdf", help="Also as one PDF; needs Chromium.")] = False) -> None:
    """Build the book from the stored notebooks."""
    from coursebook.browser import find_chromium
    from coursebook.build import build_book
    from coursebook.pdf import print_book

    if pdf:
        find_chromium()  # if it is missing, say so before the book is built
    title_page = build_book(paths.ROOT / "notebooks")
    typer.echo(f"open {title_page}")
    if pdf:
        printed = paths.ROOT / "book" / "_build" / "book.pdf"
        typer.echo(f"printed {print_book(title_page.parent, printed)}")


@app.command()
def slides(
    notebooks: Names = None,
    out: Annotated[Path | None, Option(help="Where the decks go. [default: build/slides]")] = None,
) -> None:
    """Make slides of the stored notebooks: each deck is one file that needs no network."""
    from coursebook.slides import SLIDES_FOLDER, write_slides

    folder = out or SLIDES_FOLDER
    check_writable("--out", folder)
    for path in write_slides(notebooks or (), folder):
        typer.echo(f"open {path}")


@app.command()
def explain(
    run: Annotated[Path, Argument(help="The folder of a run on scenes.")],
    to: Annotated[Path, Option(help="The explainer's folder.")] = paths.ROOT / "book/_build/html/explainer",
    name: Annotated[str, Option(help="What its button says. [default: the run folder's name]")] = "",
) -> None:
    """Show a run beside the course's systems in the book's explainer, which reads what this writes."""
    from course.explainer import laying, twins
    from vsecore.training import load_run

    page = to.resolve() / "index.html"
    if not page.is_file():
        raise ValueError(f"{to} holds no explainer: build the book (make book), or name its folder with --to")
    name = name or run.resolve().name
    path = twins.write_script(to, twins.script_name(name), laying.own(load_run(run), name))
    typer.echo(f"open {page.as_uri()}?run={path.stem}")


@app.command()
def refresh(
    notebooks: Names = None,
    results: Annotated[bool, Option("--results", help="Only words, and what draws from records.")] = False,
    cost: Annotated[bool, Option("--cost", help="Also record time and memory; on a quiet machine.")] = False,
) -> None:
    """Rebuild the stored notebooks from their texts (for authors)."""
    from course import batch

    if results:
        batch.refresh_results(notebooks or ())
    else:
        batch.refresh(notebooks or (), cost=cost)


@app.command()
def learner(
    notebooks: Names = None,
    out: Annotated[Path | None, Option(help="Where the copies go. [default: build/learner]")] = None,
    solutions: Annotated[bool, Option(help="Fold a solution beneath each exercise, or none.")] = True,
    force: Annotated[bool, Option("--force", help="Overwrite also what somebody has worked in.")] = False,
    package: Annotated[
        bool, Option("--package", help="Add the library as a wheel, `course`, and records.")
    ] = False,
    otter: Annotated[bool, Option("--otter", help="Write assignments for otter-grader instead.")] = False,
) -> None:
    """Write copies of the notebooks to work in: the parts that a learner writes are cut out.

    Given again, it brings new notebooks and newer versions, and leaves alone what somebody has worked in.
    """
    from course.grading.copies import LEARNER_FOLDER, Fate, write_learner_copies, write_package
    from course.grading.otter import write_assignments
    from course.wording import counted

    folder = out or (LEARNER_FOLDER.with_name("otter") if otter else LEARNER_FOLDER)
    check_writable("--out", folder)
    if package and folder.resolve() == LEARNER_FOLDER:
        raise ValueError("--package is for copies that are handed out: name their folder with --out")
    if otter and (package or force or not solutions):
        raise ValueError("--otter writes assignments: leave out --package, --force and --no-solutions")
    if otter:
        for path in write_assignments(notebooks or (), folder):
            typer.echo(f'otter assign "{path}" "{path.with_suffix("")}"')
        return
    fates = write_learner_copies(notebooks or (), folder, solutions=solutions, force=force)
    typer.echo(f"{counted(len(fates), 'notebook')} to work in: {folder}")
    for path, fate in fates.items():
        typer.echo(f"  {path.stem}: {fate}")
    program = f'"{sys.executable}" -m course'
    if behind := [path.stem[:2] for path, fate in fates.items() if fate is Fate.BEHIND]:
        options = f'--out "{folder.resolve()}-newer"{"" if solutions else " --no-solutions"}'
        typer.echo(f"newer versions, beside yours: {program} learner {' '.join(behind)} {options}")
    if package:
        made = write_package(folder)
        typer.echo(
            f"the package: {made.name}; install it with pip install '{made.name}[course]', and keep "
            "the folders course and results beside the notebooks"
        )
    typer.echo(f'open them: {program} lab "{next(iter(fates))}"')


@app.command()
def lab(
    notebook: Annotated[Path | None, Argument(help="Which. [default: first of build/learner]")] = None,
) -> None:
    """Open your copies of the notebooks in JupyterLab."""
    from course.lab import open_lab

    open_lab(notebook)


@app.command()
def grade(
    folder: Annotated[Path, Argument(help="A learner's notebooks, or a class: one subfolder per learner.")],
    out: Annotated[Path | None, Option(help="Where the tables go. [default: FOLDER/grades]")] = None,
    homework: Annotated[
        list[str] | None, Option(help="What was set: 04, or 04.step. Repeatable. [default: all handed in]")
    ] = None,
    tier: Annotated[Tier, Option(help="smoke, lesson or full.")] = "smoke",
    minutes: Annotated[float, Option(help="The limit for each notebook.")] = 10.0,
    jobs: Annotated[int, Option(help="How many learners at a time.")] = 1,
) -> None:
    """Run learners' notebooks and list their points. This runs their code: do it in a container."""
    os.environ.update(threads.one_thread(os.environ))
    from course.grading.grade import grade_folder

    check_writable("--out", out)
    table = grade_folder(folder, out, homework=homework or (), tier=tier, minutes=minutes, jobs=jobs)
    typer.echo(f"open {table}")


def main() -> None:
    """Run the command line; it can be stopped tidily."""
    stopping.stop_tidily("course")
    try:
        cli.main(app, "course", extra="course")
    except stopping.Stopped as stopped:
        stopping.end(int(stopped.code or 0))


if __name__ == "__main__":
    main()
