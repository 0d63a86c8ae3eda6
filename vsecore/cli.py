"""The `vse` command: everything the course can do, without a notebook.

Each command is a thin layer: it reads options, calls the library and prints. A mistake in the user's input
gives one sentence, no traceback, and exit status 2.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vsecore import paths, stopping, threads

if TYPE_CHECKING:
    from torch import Tensor

    from vsecore.data.splits import Dataset, FeatureKind, Split

# The heavy imports are inside the commands, so that `vse --help` answers at once.

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Visual-semantic embedding: data, training, evaluation, course.",
    rich_markup_mode=None,  # or a default that stands in brackets would be taken for markup, and not shown
)
scenes_app = typer.Typer(no_args_is_help=True, help="The embedded world: drawn pictures with captions.")
data_app = typer.Typer(no_args_is_help=True, help="Photographs and features: check them, extract them.")
app.add_typer(scenes_app, name="scenes")
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line. A user's mistake prints one sentence, or a traceback with --debug."""
    os.environ.update(threads.whole_machine(os.environ))  # before a command imports PyTorch
    try:
        app()
    except BrokenPipeError:  # the reader of the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is written at exit
        sys.exit(1)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("vsecore")
        expected = missing or isinstance(error, ValueError | OSError | FloatingPointError)
        if "--debug" in sys.argv or not expected:
            raise
        remedy = ", which this command needs: pip install 'vsecore[course]' brings it" if missing else ""
        _complain(f"{error}{remedy}")
        sys.exit(2)


def _complain(sentence: str) -> None:
    """Print an error on stderr, even if it holds a file name that is not valid text."""
    told = f"vse: {sentence}".encode(errors="backslashreplace").decode()
    typer.echo(told, err=True)


@app.callback()
def _everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Visual-semantic embedding: data, training, evaluation, course."""


def _settings(pairs: list[str]) -> dict[str, str]:
    """Read repeated --set NAME=VALUE options.

    Raises:
        ValueError: a pair has no equals sign.
    """
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair!r} has no '='; write it as --set training.epochs=10")
        settings[name.strip()] = value.strip()
    return settings


def _writable(option: str, path: Path | None, folder: bool = True) -> None:
    """Refuse, before hours of work, a path that could not be written at the end. Nothing is created yet.

    Args:
        option: the option that named the path, for the message.
        path: a folder or a file, which need not exist; None: nothing will be written.
        folder: whether it must be a folder rather than a file.

    Raises:
        OSError: it is a file where a folder is wanted, or the other way round, or cannot be written.
    """
    if path is None:
        return
    if path.exists() and path.is_dir() != folder:
        come, wanted = ("a file", "a folder") if folder else ("a folder", "a file")
        raise OSError(f"{option} {path} is {come}: name {wanted}")
    above = next((one for one in (path, *path.absolute().parents) if one.exists()), path)
    if not path.exists() and not above.is_dir():
        raise OSError(f"{option} {path} cannot be created: {above} is a file")
    if not os.access(above, os.W_OK):
        raise OSError(f"{option} {path} cannot be written: {above} belongs to someone else, or is read-only")


# Options that several commands share.
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seeds everything that is random.")]
DataOption = Annotated[
    str, typer.Option("--data", help="'scenes', or a folder of extracted features (see vse data extract).")
]
Features = Annotated[Literal["grid", "region", "patch"], typer.Option(help="What an element is.")]
VectorsOption = Annotated[
    Path | None,
    typer.Option("--vectors", help="A text file of word vectors, or glove: those of the extra offline."),
]
RecordOption = Annotated[
    Path | None, typer.Option("--record", help="Write a record into this folder, such as assets/results.")
]


@scenes_app.command("make")
def scenes_make(
    train: Annotated[int, typer.Option(min=1, max=1_000_000)] = 4000,
    dev: Annotated[int, typer.Option(min=1, max=1_000_000)] = 500,
    test: Annotated[int, typer.Option(min=1, max=1_000_000)] = 1000,
    features: Features = "grid",
    seed: Seed = 0,
) -> None:
    """Generate the embedded world and its features into the cache, so that notebooks open at once."""
    from vsecore import scenes

    typer.echo(scenes.load(train=train, dev=dev, test=test, seed=seed, features=features))


@scenes_app.command("show")
def scenes_show(
    out: Annotated[Path, typer.Argument(help="The PNG file to write.")],
    count: Annotated[int, typer.Option(min=1, max=100)] = 6,
    size: Annotated[int, typer.Option(min=28, max=1120, help="Side of a picture, in pixels.")] = 336,
    seed: Seed = 0,
) -> None:
    """Draw some pictures of the world with one caption each."""
    _writable("OUT", out, folder=False)
    from vsecore import scenes
    from vsecore.course import plots
    from vsecore.data.files import write_atomically

    plots.house_style()
    pictures = scenes.generate(count, seed=seed, split="train")
    drawn = [scenes.draw(picture.scene, size=size) for picture in pictures]
    # A different annotator describes each picture, to show all five habits.
    said = [picture.captions[row % len(picture.captions)].text for row, picture in enumerate(pictures)]
    figure = plots.picture_row(drawn, said, columns=min(count, 4))
    with write_atomically(out) as file:
        figure.savefig(file, format="png")
    typer.echo(f"wrote {out}")


@scenes_app.command("pretrain")
def scenes_pretrain(
    kind: Annotated[str, typer.Argument(help="scenes-cnn or scenes-vit.")],
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Train one of the two small networks on the world's facts, and save it in assets/."""
    _writable("--record", record)
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


@data_app.command("check")
def data_check(
    root: Annotated[Path, typer.Argument(help="A folder of photographs with captions, or of features.")],
    captions: Annotated[Path | None, typer.Option(help="The dataset_*.json, if not in the folder.")] = None,
) -> None:
    """Check a folder of photographs or of features, and list every problem."""
    from vsecore.data.features import check_precomp, holds_features
    from vsecore.data.karpathy import check_photographs

    features = captions is None and holds_features(root)
    report = check_precomp(root) if features else check_photographs(root, captions)
    for fact in report.facts:
        typer.echo(fact)
    for problem in report.problems:
        typer.echo(f"problem: {problem}", err=True)
    if report.problems:
        raise typer.Exit(1)
    typer.echo("ready")


@data_app.command("extract")
def data_extract(
    root: Annotated[Path, typer.Argument(help="The folder with pictures and captions.")],
    out: Annotated[Path, typer.Argument(help="The folder to write features into.")],
    backbone: Annotated[str, typer.Option(help="A timm model, or torchvision/NAME.")] = "resnet50",
    weights: Annotated[Path | None, typer.Option(help="A file of weights, instead of the hub's.")] = None,
    captions: Annotated[Path | None, typer.Option(help="The dataset_*.json, if not in the folder.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 32,
) -> None:
    """Extract features of every picture with a trained network. Resumes where it was stopped."""
    _writable("OUT", out)
    from vsecore.course.datasets import find_backbone
    from vsecore.data.features import extract, open_precomp
    from vsecore.data.karpathy import load_karpathy

    if out.resolve() == root.resolve():
        raise ValueError(f"OUT {out} is the folder of the photographs: name another one for the features")
    splits = load_karpathy(root, captions)
    stopping.advice = lambda: "; continue with the same command"
    extract(splits, find_backbone(backbone, weights), out, batch_size=batch_size)
    dataset = open_precomp(out)
    for split in (dataset.train, dataset.dev, dataset.test):
        typer.echo(repr(split))


@data_app.command("join")
def data_join(
    folders: Annotated[list[Path], typer.Argument(help="Folders of features, of the same pictures.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write the joined features into.")],
) -> None:
    """Put the features of several networks side by side, each picture as one vector."""
    _writable("--out", out)
    from vsecore.data.features import open_precomp
    from vsecore.data.joining import join

    dataset = open_precomp(join(folders, out))
    for split in (dataset.train, dataset.dev, dataset.test):
        typer.echo(repr(split))


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name; an unknown one lists them all.")],
    data: DataOption = "scenes",
    out: Annotated[
        Path | None, typer.Option(help="The run's folder. [default: runs/RECIPE-DATA-SEED]")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A field of the recipe: training.epochs=10. Repeatable.")
    ] = None,
    vectors: VectorsOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes that prepare batches.")] = 0,
    device: Annotated[Literal["auto", "cpu"], typer.Option(help="auto uses a GPU if there is one.")] = "auto",
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="auto uses bfloat16 if the GPU has it in hardware."),
    ] = "auto",
    save_every: Annotated[
        int | None,
        typer.Option(min=1, help="Save every N steps. [default: every epoch, and every ten minutes]"),
    ] = None,
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Train a recipe, keep its best epoch, and report the test split."""
    from vsecore import records
    from vsecore.data.words import Vocabulary, load_vectors
    from vsecore.recipes import get
    from vsecore.training import Event, evaluate_split, fit
    from vsecore.training.checkpoints import CHECKPOINT, refuse_to_overwrite
    from vsecore.training.distributed import best_device, is_main_process

    chosen = get(recipe).override(_settings(settings or []))
    _writable("--record", record)
    if out is not None:  # before the data are read, if we can: the default folder needs their name
        _writable("--out", out)
        refuse_to_overwrite(out, resume)
    dataset = _open(data, chosen.features)
    folder = out or Path("runs") / f"{recipe}-{dataset.name}-{seed}"
    _writable("--out", folder)
    refuse_to_overwrite(folder, resume)
    tokenizer = chosen.tokenizer(dataset.train.captions)
    word_vectors, found = None, ""
    if vectors is not None:
        if not isinstance(tokenizer, Vocabulary):
            raise ValueError(f"--vectors is given, but recipe {recipe} reads with BERT; leave it out")
        word_vectors, report = load_vectors(vectors, tokenizer, seed)
        found = f"; word vectors: {report}"
        typer.echo(f"word vectors: {report}")

    def tell(event: Event) -> None:
        if event.metrics is not None and is_main_process():
            typer.echo(f"epoch {event.epoch + 1}: {_spoken(event.metrics)}")

    if resume and not (folder / CHECKPOINT).is_file():
        typer.echo(f"note: {folder} holds no run to resume, so this one starts from the beginning", err=True)
    stopping.advice = lambda: (
        "; continue with --resume"
        if (folder / CHECKPOINT).is_file()
        else "; nothing was saved yet, so start again with the same command"
    )
    run = fit(
        chosen,
        dataset,
        folder=folder,
        resume=resume,
        tokenizer=tokenizer,
        vectors=word_vectors,
        callback=tell,
        seed=seed,
        device=device,
        precision=precision,
        workers=workers,
        save_every=save_every,
    )
    if not is_main_process():  # only one process prints and writes
        return
    model = run.model.to("cpu" if device == "cpu" else best_device())
    metrics = evaluate_split(model, dataset.test, tokenizer)
    typer.echo(f"test: {_spoken(metrics)}")
    step, waiting = run.timings["step_seconds"], run.timings["data_wait"]
    typer.echo(f"run: {folder} (a step took {step:.3f} s, {waiting:.1%} of it waiting for data)")
    if record is not None:
        note = f"best epoch on dev, evaluated on {len(dataset.test)} test pictures"
        entry = records.record_run(run, metrics, note + found)
        typer.echo(f"record: {records.write(entry, record)}")


@app.command()
def evaluate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="A run's folder, or cca, which is solved for; several are averaged: an ensemble."
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="'scenes', or a folder of extracted features: one for all runs, or one for each, in their "
            "order. [default: scenes]",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    folds: Annotated[int | None, typer.Option(min=1, help="Mean over this many folds (COCO 1K: 5).")] = None,
    vectors: VectorsOption = None,
    record: RecordOption = None,
) -> None:
    """Evaluate a trained run on a split, or several as an ensemble, by the mean of their similarities."""
    _writable("--record", record)
    from vsecore import records
    from vsecore.evaluation import ensemble
    from vsecore.evaluation import evaluate as measure

    if split not in ("train", "dev", "test"):
        raise ValueError(f"--split is {split!r}; it must be train, dev or test")
    if vectors is not None and CCA not in runs:
        raise ValueError("--vectors is given, but only cca takes them here: a run has its own")
    sources = data or ["scenes"]
    if len(sources) not in (1, len(runs)):
        raise ValueError(f"--data is given {len(sources)} times for {len(runs)} runs: give one, or one each")
    scores, parts, members, seconds = [], [], [], 0.0
    for row, folder in enumerate(runs):
        source = sources[row % len(sources)]
        if folder == CCA:
            score, part, member, took = _solved(source, split, vectors)
        else:
            score, part, member, took = _trained(folder, source, split, named=data is not None)
        scores.append(score)
        parts.append(part)
        members.append(member)
        seconds += took
        if part.captions != parts[0].captions or part.picture_ids != parts[0].picture_ids:
            raise ValueError(f"{folder} is evaluated on other pictures or captions than {runs[0]}")
    metrics = measure(ensemble(*scores), parts[0].owner, folds)
    for name, value in metrics.items():
        typer.echo(f"{name:<12} {value:8.2f}")
    if record is not None:
        in_folds = f", mean of {folds} folds" if folds else ""
        note = f"mean similarity of {len(runs)} systems on {len(parts[0])} {split} pictures{in_folds}"
        entry = records.record_ensemble(members, split, metrics, seconds, note)
        typer.echo(f"record: {records.write(entry, record)}")


CCA = Path("cca")
"""What `vse evaluate` takes in place of a run's folder; another name must do for a folder."""


def _trained(
    folder: Path, source: str, split: str, named: bool
) -> tuple[Tensor, Split, dict[str, Any], float]:
    """A run's similarities on a split of some data, the split, what tells the run apart, and its seconds."""
    from vsecore import records
    from vsecore.training import load_run, score_split
    from vsecore.training.distributed import best_device

    trained = load_run(folder)
    if not named and trained.data["name"] != "scenes":
        name = trained.data["name"]
        raise ValueError(f"{folder} was trained on {name!r}: name its features with --data")
    dataset = _open(source, trained.recipe.features)
    if dataset.feature_dim != trained.data["feature_dim"]:
        raise ValueError(
            f"{folder} reads features of width {trained.data['feature_dim']}, and {source} has "
            f"{dataset.feature_dim}: name features of the network that it was trained with"
        )
    if dataset.fingerprint() != trained.data["fingerprint"]:
        typer.echo(
            f"note: {folder} was trained on other data ({trained.data['name']!r}) than {source}; unless "
            "the same network made both features, these numbers mean nothing",
            err=True,
        )
    if len(trained.history) < trained.recipe.training.epochs:
        done = f"{len(trained.history)} of {trained.recipe.training.epochs} epochs"
        typer.echo(f"note: {folder} is an unfinished training, {done}", err=True)
    part = getattr(dataset, split)
    scores = score_split(trained.model.to(best_device()), part, trained.tokenizer)
    return scores, part, records.member(trained), trained.timings["seconds"]


def _solved(source: str, split: str, vectors: Path | None) -> tuple[Tensor, Split, dict[str, Any], float]:
    """The same of canonical correlation analysis, which is solved for here and now."""
    import time

    from vsecore.course.baselines import cca_scores

    dataset = _open(source, "grid")
    part, began = getattr(dataset, split), time.perf_counter()
    scores = cca_scores(dataset.train, part, vectors)
    data = {"name": dataset.name, "fingerprint": dataset.fingerprint(), "vectors": str(vectors or "none")}
    member = {"name": str(CCA), "config_hash": "", "seed": 0, "data": data}
    return scores, part, member, time.perf_counter() - began


@app.command()
def baselines(
    data: DataOption = "scenes",
    vectors: VectorsOption = None,
    seed: Seed = 0,
    record: RecordOption = None,
) -> None:
    """Evaluate chance, a ridge regression and CCA on the test split, with grid features."""
    _writable("--record", record)
    import time

    from vsecore import records
    from vsecore.course.baselines import cca_scores, chance_scores, ridge_scores
    from vsecore.evaluation import evaluate as measure

    dataset = _open(data, "grid")
    train, test = dataset.train, dataset.test
    with_vectors = "" if vectors is None else f", with word vectors ({vectors.name})"
    for name, score, note in (
        ("chance", lambda: chance_scores(test, seed), "uniform random scores"),
        (
            "ridge",
            lambda: ridge_scores(train, test),
            "ridge regression from the mean element to tf-idf words, compared by cosine",
        ),
        (
            "cca",
            lambda: cca_scores(train, test, vectors),
            f"canonical correlations of the mean element and tf-idf words{with_vectors}",
        ),
    ):
        began = time.perf_counter()
        metrics = measure(score(), test.owner)
        typer.echo(f"{name}: {_spoken(metrics)}")
        if record is not None:
            entry = records.record(
                name,
                config={},
                config_hash="",
                data={
                    "name": dataset.name,
                    "fingerprint": dataset.fingerprint(),
                    "vectors": vectors.name if vectors is not None and name == "cca" else "",
                },
                seed=seed,
                metrics=metrics,
                seconds=time.perf_counter() - began,
                note=f"{note}; {len(test)} test pictures",
            )
            typer.echo(f"record: {records.write(entry, record)}")


@app.command()
def experiment(
    name: Annotated[str, typer.Argument(help="An experiment's name; an unknown one lists them all.")],
    data: DataOption = "scenes",
    features: Features = "grid",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm, from the seeds 0, 1, ...")] = 3,
    arms: Annotated[
        list[str] | None, typer.Option("--arm", help="Only this arm. Repeatable. [default: all]")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of all arms. Repeatable. [default: the scale of a lesson]"),
    ] = None,
    vectors: VectorsOption = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="The folder of records. [default: the repository's]")
    ] = None,
) -> None:
    """Train the arms of an experiment that are not recorded yet; print all beside the paper's numbers."""
    from vsecore import experiments
    from vsecore.data.words import load_vectors

    folder = record or experiments.RESULTS
    _writable("--record", folder)
    experiments.run(
        name,
        lambda kind: _open(data, kind),
        features=features,
        seeds=range(seeds),
        arms=arms or (),
        scale=_settings(settings) if settings else None,
        vectors=None if vectors is None else lambda tokenizer: load_vectors(vectors, tokenizer)[0],
        folder=folder,
        tell=typer.echo,
    )
    if settings:
        typer.echo(f"records: {folder} (no table: with --set the arms are not those of the paper's table)")
    else:
        typer.echo(experiments.table(name, _open(data, features).name, features, folder))


@app.command()
def course(
    notebooks: Annotated[
        list[str] | None, typer.Argument(help="Beginnings of names, such as 04. [default: all]")
    ] = None,
    tier: Annotated[str, typer.Option(help="smoke, lesson or full.")] = "lesson",
    data: Annotated[str, typer.Option(help="scenes, flickr8k, flickr30k or coco.")] = "scenes",
    data_root: Annotated[str, typer.Option(help="The folder of a photograph collection.")] = "",
    seed: Seed = 0,
) -> None:
    """Run the notebooks into build/notebooks, then build the book."""
    paths.need_checkout("vse course")
    if tier != "full":  # two notebooks at a time, so one thread here and in each of them
        os.environ.update(threads.one_thread(os.environ))
    from vsecore.course import batch
    from vsecore.course.book import build_book
    from vsecore.course.lesson import begin

    begin(tier, data, data_root, seed)  # refuses a wrong parameter now, not after the first notebook
    executed = paths.ROOT / "build" / "notebooks"
    parameters = {
        "tier": tier,
        "data": data,
        "data_root": str(Path(data_root).resolve()) if data_root else "",
        "seed": seed,
    }
    chosen = batch.notebooks(notebooks or ())
    at_once = 1 if tier == "full" else 2
    if data == "scenes" and len(chosen) > 1:
        typer.echo("making the embedded world, unless it is in the cache")
        batch.make_world(tier)
    batch.run(chosen, executed, parameters, typer.echo, at_once)
    if notebooks:
        typer.echo(f"executed: {executed}")
        return
    typer.echo(f"open {build_book(executed, typer.echo)}")


@app.command()
def book(
    pdf: Annotated[bool, typer.Option("--pdf", help="Also print it as one PDF; needs Chromium.")] = False,
) -> None:
    """Build the book from the stored notebooks."""
    paths.need_checkout("vse book")
    from vsecore.course.book import build_book, find_chromium, print_book

    if pdf:
        find_chromium()  # if it is missing, say so before the book is built
    title_page = build_book(paths.ROOT / "notebooks", typer.echo)
    typer.echo(f"open {title_page}")
    if pdf:
        printed = paths.ROOT / "book" / "_build" / "book.pdf"
        typer.echo(f"printed {print_book(title_page.parent, printed, typer.echo)}")


@app.command()
def refresh(
    notebooks: Annotated[
        list[str] | None, typer.Argument(help="Beginnings of names, such as 04. [default: all]")
    ] = None,
    keep_numbers: Annotated[
        bool, typer.Option("--keep-numbers", help="Check this run against the stored numbers; record none.")
    ] = False,
    spread: Annotated[
        int,
        typer.Option(min=0, help="First run this often with other rounding, to see how far numbers vary."),
    ] = 0,
) -> None:
    """Rebuild the stored notebooks from their texts (for authors)."""
    paths.need_checkout("vse refresh")
    from vsecore.course import batch

    batch.refresh(notebooks or (), keep_numbers=keep_numbers, spread=spread, tell=typer.echo)


@app.command()
def learner(
    notebooks: Annotated[
        list[str] | None, typer.Argument(help="Beginnings of names, such as 04. [default: all]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the copies go. [default: build/learner]")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite older copies, and any work in them.")
    ] = False,
) -> None:
    """Write copies of the notebooks without their solutions, to work in or to hand out."""
    paths.need_checkout("vse learner")
    from vsecore.course.grading import LEARNER_FOLDER, write_learner_copies

    folder = out or LEARNER_FOLDER
    _writable("--out", folder)
    written = write_learner_copies(notebooks or (), folder, force=force)
    typer.echo(f"{len(written)} notebooks without solutions: {folder}")
    typer.echo(f'open them: "{Path(sys.executable).parent / "jupyter"}" lab "{written[0]}"')


@app.command()
def grade(
    folder: Annotated[
        Path, typer.Argument(help="A learner's notebooks, or a class: one subfolder per learner.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where the reports go. [default: grades, in the folder]")
    ] = None,
    homework: Annotated[
        list[str] | None,
        typer.Option(help="The number of a notebook that was set: 04. Repeatable. [default: all handed in]"),
    ] = None,
    tier: Annotated[str, typer.Option(help="smoke, lesson or full.")] = "smoke",
    minutes: Annotated[float, typer.Option(help="The limit for each notebook.")] = 10.0,
) -> None:
    """Run learners' notebooks and report every exercise. This runs their code: do it in a container."""
    paths.need_checkout("vse grade")
    from vsecore.course.grading import grade_folder

    _writable("--out", out)
    page = grade_folder(folder, out, tier=tier, minutes=minutes, homework=homework or (), tell=typer.echo)
    typer.echo(f"open {page}")


def _open(data: str, features: FeatureKind) -> Dataset:
    """Open the scenes, or a folder of extracted features."""
    from vsecore import scenes
    from vsecore.data.features import open_precomp

    if data == "scenes":
        return scenes.load(features=features)
    return open_precomp(Path(data))


def _spoken(metrics: dict[str, float]) -> str:
    """The six recalls and their sum in one line."""
    both = [" / ".join(f"{metrics[f'{way}_r{k}']:.1f}" for k in (1, 5, 10)) for way in ("i2t", "t2i")]
    return f"picture to text {both[0]}, text to picture {both[1]}, rsum {metrics['rsum']:.1f}"


if __name__ == "__main__":
    main()
