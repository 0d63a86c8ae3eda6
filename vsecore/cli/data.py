"""`vse data`: get photographs, check them and features, extract features, and join them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from vsecore import stopping
from vsecore.cli.options import Collection, Features, Seed, writable

app = typer.Typer(no_args_is_help=True, help="Photographs and features: get, check, extract them.")

Out = Annotated[Path, typer.Argument(callback=writable, help="The folder to write features into.")]
OutOption = Annotated[
    Path, typer.Option("--out", callback=writable, help="The folder to write features into.")
]
Captions = Annotated[Path | None, typer.Option(help="The dataset_*.json, if not in the folder.")]
OnDisk = Annotated[Literal["float16", "float32"], typer.Option(help="Precision on disk, half or single.")]


@app.command("get")
def data_get(
    name: Annotated[Collection, typer.Argument(help="Which collection.")],
    root: Annotated[Path, typer.Option(callback=writable, help="The folder to put it into.")],
    only: Annotated[
        list[str] | None, typer.Option(help="Only this archive, such as val2014.zip. Can be repeated.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="The address of a folder of the same archives, not the official one."),
    ] = None,
    delete_archives: Annotated[
        bool, typer.Option("--delete-archives", help="Delete each archive once it is unpacked.")
    ] = False,
) -> None:
    """Download photographs and captions, as far as that is allowed, and say what else is to do. Resumes.

    Run it again to bring back pictures that are missing; delete damaged ones first.
    """
    from vsecore.data.collections import get

    stopping.advise(lambda: "continue with the same command")
    if not get(name, root, only=only or [], base=source, delete_archives=delete_archives, say=typer.echo):
        raise typer.Exit(1)
    typer.echo(f"next: vse data check {root}")


@app.command("check")
def data_check(
    root: Annotated[Path, typer.Argument(help="A folder of photographs with captions, or of features.")],
    captions: Captions = None,
) -> None:
    """Check a folder of photographs or of features, and list every problem."""
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


@app.command("extract")
def data_extract(
    root: Annotated[Path, typer.Argument(help="The folder with pictures and captions.")],
    out: Out,
    backbone: Annotated[
        str,
        typer.Option(help="A timm model, best with its weights (resnet152.tv_in1k), or a detector."),
    ] = "resnet50.tv_in1k",
    weights: Annotated[Path | None, typer.Option(help="A file of weights, instead of the hub's.")] = None,
    captions: Captions = None,
    mirror: Annotated[
        bool, typer.Option("--mirror", help="Also extract each picture's mirror image: twice the elements.")
    ] = False,
    picture_size: Annotated[
        int | None, typer.Option(min=32, help="The side of the pictures, if not the one it was trained on.")
    ] = None,
    dtype: OnDisk = "float16",
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Pictures at a time: 32, or 4 for a detector.", show_default=False),
    ] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out missing and unreadable pictures.")
    ] = False,
) -> None:
    """Extract features of every picture with a trained network. Resumes where it was stopped.

    torchvision/fasterrcnn_resnet50_fpn gives 36 regions and their boxes, a ViT gives patches, others a grid.
    Several processes share the work: accelerate launch -m vsecore data extract ...
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


@app.command("import")
def data_import(
    sources: Annotated[
        list[Path], typer.Argument(help="TSV files, or folders with one .npy or .npz file for each picture.")
    ],
    captions: Annotated[
        Path, typer.Option(help="The dataset_*.json that says which picture is in which split.")
    ],
    out: OutOption,
    boxes: Annotated[
        Path | None, typer.Option(help="A folder with each picture's boxes, if they are not in the sources.")
    ] = None,
    dtype: OnDisk = "float16",
) -> None:
    """Turn bottom-up attention's features, as they are shared, into a folder to train on. Resumes."""
    from vsecore.data.butd import import_regions

    stopping.advise(lambda: "continue with the same command")
    import_regions(sources, captions, out, boxes=boxes, dtype=dtype)
    _show(out)


@app.command("join")
def data_join(
    folders: Annotated[list[Path], typer.Argument(help="Folders of features, of the same pictures.")],
    out: OutOption,
    cells: Annotated[
        bool, typer.Option("--cells", help="Join grids of one size cell by cell, not picture by picture.")
    ] = False,
) -> None:
    """Put the features of several networks side by side, each picture as one vector."""
    from vsecore.data.joining import join

    _show(join(folders, out, cells))


@app.command("rehearse")
def data_rehearse(
    collection: Annotated[Collection, typer.Argument(help="Whose shape the numbers take.")],
    out: Out,
    features: Features = "region",
    share: Annotated[float, typer.Option(help="The share of the pictures.")] = 1.0,
    seed: Seed = 0,
) -> None:
    """Write drawn numbers in the exact shape of a collection, to train on before the real one is there.

    COCO's regions are 18.2 GB.
    """
    from vsecore.data.rehearsal import Shape, write_rehearsal

    write_rehearsal(out, Shape.of(collection, features, share), seed)
    _show(out)


def _show(folder: Path) -> None:
    """Print the splits of a folder of features; only one of several processes does."""
    from vsecore.data.features import open_precomp

    if os.environ.get("RANK", "0") == "0":
        dataset = open_precomp(folder)
        for split in (dataset.train, dataset.dev, dataset.test):
            typer.echo(repr(split))
