"""`vse data`: get photographs, check them and features, extract features, and join them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from vsecore import stopping
from vsecore.cli.options import Collection, Count, Folder, Kind, Seed, command

app = typer.Typer(no_args_is_help=True, help="Photographs and features: get, check, extract them.")


@command(app, "get")
def data_get(name: Collection, *, root: Folder, from_: str | None = None) -> None:
    """Download photographs and captions, as far as that is allowed, and say what else is to do. Resumes.

    Run it again to bring back pictures that are missing; delete damaged ones first.

    Options:
        name: Which collection.
        root: The folder to put it into.
        from: The address of a folder of the same archives, not the official one.
    """
    from vsecore.data.collections import get

    stopping.advise(lambda: "continue with the same command")
    if not get(name, root, base=from_, say=typer.echo):
        raise typer.Exit(1)
    typer.echo(f"next: vse data check {root}")


@command(app, "check")
def data_check(root: Path, *, captions: Path | None = None) -> None:
    """Check a folder of photographs or of features, and list every problem.

    Options:
        root: A folder of photographs with captions, or of features.
        captions: The dataset_*.json, if not in the folder.
    """
    from vsecore.data.features import check_precomp, holds_features
    from vsecore.data.karpathy import check_photographs

    features = captions is None and holds_features(root)
    report = check_precomp(root) if features else check_photographs(root, captions)
    for fact in report.facts:
        typer.echo(fact)
    for warning in report.warnings:
        typer.echo(f"warning: {warning}", err=True)
    for problem in report.problems:
        typer.echo(f"problem: {problem}", err=True)
    if report.problems:
        raise typer.Exit(1)
    typer.echo("ready")


@command(app, "extract")
def data_extract(
    root: Path,
    out: Folder,
    *,
    backbone: str = "resnet50.tv_in1k",
    weights: Path | None = None,
    captions: Path | None = None,
    mirror: bool = False,
    picture_size: Annotated[int | None, Kind(min=32)] = None,
    dtype: Literal["float16", "float32"] = "float16",
    batch_size: Count | None = None,
    skip_unreadable: bool = False,
) -> None:
    """Extract features of every picture with a trained network. Resumes where it was stopped.

    torchvision/fasterrcnn_resnet50_fpn gives 36 regions and their boxes, a ViT gives patches, others a grid.
    Several processes share the work: accelerate launch -m vsecore data extract ...

    Options:
        root: The folder with pictures and captions.
        backbone: A timm model, best with its weights (resnet152.tv_in1k), or a detector.
        weights: A file of weights, instead of the hub's.
        captions: The dataset_*.json, if not in the folder.
        mirror: Also extract each picture's mirror image: twice the elements.
        picture_size: The side of the pictures, if not the one it was trained on.
        batch_size: Pictures at a time: 32, or 4 for a detector.
        skip_unreadable: Leave out missing and unreadable pictures.
    """
    from vsecore.data.backbones import MirroredBackbone
    from vsecore.data.extraction import extract
    from vsecore.data.karpathy import load_karpathy
    from vsecore.scenes.backbones import find_backbone

    if out.resolve() == root.resolve():
        raise ValueError(f"OUT {out} is the folder of the photographs: name another one for the features")
    splits = load_karpathy(root, captions, missing=skip_unreadable)
    stopping.advise(lambda: "continue with the same command")
    network = find_backbone(backbone, weights, picture_size)
    whole = MirroredBackbone(network) if mirror else network
    extract(splits, whole, out, batch_size=batch_size, dtype=dtype, skip_unreadable=skip_unreadable)
    _show(out)


@command(app, "import")
def data_import(
    sources: list[Path],
    *,
    captions: Path,
    out: Folder,
    dtype: Literal["float16", "float32"] = "float16",
) -> None:
    """Turn bottom-up attention's features, as they are shared, into a folder to train on. Resumes.

    Options:
        sources: TSV files, or folders with one .npy or .npz file for each picture; in .npz, features are
            called feat, features or x, and boxes bbox or boxes.
        captions: The dataset_*.json that says which picture is in which split.
    """
    from vsecore.data.butd import import_regions

    stopping.advise(lambda: "continue with the same command")
    import_regions(sources, captions, out, dtype=dtype)
    _show(out)


@command(app, "join")
def data_join(folders: list[Path], *, out: Folder, cells: bool = False) -> None:
    """Put the features of several networks side by side, each picture as one vector.

    Options:
        folders: Folders of features, of the same pictures.
        cells: Join grids of one size cell by cell, not picture by picture.
    """
    from vsecore.data.joining import join

    stopping.advise(lambda: "continue with the same command")
    _show(join(folders, out, cells))


@command(app, "rehearse")
def data_rehearse(
    collection: Collection,
    out: Folder,
    *,
    features: Literal["grid", "region", "patch"] = "region",
    share: float = 1.0,
    seed: Seed = 0,
) -> None:
    """Write random numbers in the exact shape of a collection, to train on before the real one is there.

    COCO's regions are 18.2 GB.

    Options:
        collection: Whose shape the numbers take.
        features: What an element is.
        share: The share of the pictures.
    """
    from vsecore.data.rehearsal import Shape, write_rehearsal

    stopping.advise(lambda: "continue with the same command")
    write_rehearsal(out, Shape.of(collection, features, share), seed)
    _show(out)


def _show(folder: Path) -> None:
    from vsecore.data.features import open_precomp

    if stopping.is_main_process():
        dataset = open_precomp(folder)
        for split in (dataset.train, dataset.dev, dataset.test):
            typer.echo(repr(split))
