"""Kill work of each kind at random moments, resume it, and see whether anything is lost.

    python tests/battery/kills.py            # twenty kills of each
    python tests/battery/kills.py --kills 3

A kill is SIGKILL: the process can do nothing about it. After each, the same command goes on from what is on
disk. At the end everything must be as if nothing had ever been killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process with threads cannot be forked safely
os.environ.setdefault("VSECORE_BATCH", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from battery.kinds import SMALL, make_album, make_features, make_table
from towers import make_towers
from vsecore import cli
from vsecore.training import checkpoints
from vsecore.training.identity import read_identity


def start(command: list[str], **environment: str) -> int:
    """Start a command of `vse` in a child process, and return the child's number."""
    child = os.fork()
    if child:
        return child
    os.environ.update(environment)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    sys.argv = ["vse", *command]
    try:
        cli.main()
        os._exit(0)
    except SystemExit as stopped:
        os._exit(int(stopped.code or 0))
    except BaseException:
        os._exit(70)


def finish(command: list[str]) -> float:
    """Run a command to its end, and return how many seconds it took."""
    began = time.perf_counter()
    _, status = os.waitpid(start(command), 0)
    if status != 0:
        sys.exit(f"vse {' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began


def kill_and_go_on(command: list[str], seconds: float, kills: int, dice: random.Random) -> int:
    """Kill a command again and again, then let it end.

    Returns:
        How many kills caught it at work; the others came when it was done.
    """
    met = 0
    for _ in range(kills):
        child = start(command)
        time.sleep(dice.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        met += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    finish(command)
    return met


def training(kills: int, dice: random.Random, folder: Path) -> tuple[int, list[str]]:
    """Kills of a training, and what differs in the end from one that was left alone."""
    data = folder / "features"
    data.mkdir()
    make_features(data)

    def command(name: str) -> list[str]:
        options = ["--data", str(data), "--out", str(folder / name), "--resume", "--save-every", "1"]
        return ["train", "2ad_region_gru", *options, *SMALL, "--set", "training.epochs=20"]

    seconds = finish(command("whole"))
    met = kill_and_go_on(command("killed"), seconds / 4, kills, dice)
    whole, killed = (_checkpoint(folder / name) for name in ("whole", "killed"))
    differing = [name for name in ("system", "best", "moments") if not _same(whole, killed, name)]
    return met, differing + ["history"] * (whole.state.history != killed.state.history)


def _checkpoint(folder: Path) -> checkpoints.Checkpoint:
    return checkpoints.read_checkpoint(folder, read_identity(folder))


def _same(whole: checkpoints.Checkpoint, killed: checkpoints.Checkpoint, name: str) -> bool:
    tensors, others = getattr(whole, name), getattr(killed, name)
    return tensors.keys() == others.keys() and all(torch.equal(tensors[key], others[key]) for key in tensors)


def extraction(kills: int, dice: random.Random, folder: Path) -> tuple[int, list[str]]:
    """Kills of an extraction, and which rows differ in the end."""
    make_album(folder, pictures=100)

    def command(name: str) -> list[str]:
        options = ["--backbone", "scenes-cnn", "--batch-size", "4"]
        return ["data", "extract", str(folder), str(folder / name), *options]

    seconds = finish(command("whole"))
    met = kill_and_go_on(command("killed"), seconds / 4, kills, dice)
    return met, _differing(folder)


def shared_extraction(kills: int, dice: random.Random, folder: Path) -> tuple[int, list[str]]:
    """Kills of one of two processes that extract together, and which rows differ in the end.

    The other one is killed a moment later, as `accelerate launch` does.
    """
    make_album(folder, pictures=100)

    def command(name: str) -> list[str]:
        options = ["--backbone", "scenes-cnn", "--batch-size", "4"]
        return ["data", "extract", str(folder), str(folder / name), *options]

    def start_two(name: str) -> list[int]:
        with socket.socket() as some:
            some.bind(("127.0.0.1", 0))
            port = some.getsockname()[1]
        common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        common |= {"MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
        return [start(command(name), RANK=rank, LOCAL_RANK=rank, **common) for rank in ("0", "1")]

    seconds, met = finish(command("whole")), 0
    for _ in range(kills):
        children = start_two("killed")
        dice.shuffle(children)
        time.sleep(dice.uniform(0, seconds))
        ended = []
        for child in children:
            os.kill(child, signal.SIGKILL)
            ended.append(os.waitpid(child, 0)[1])
            time.sleep(0.05)
        met += os.WIFSIGNALED(ended[0])
    if any([os.waitpid(child, 0)[1] for child in start_two("killed")]):
        sys.exit("two processes did not finish what others had begun")
    return met, _differing(folder)


def importing(kills: int, dice: random.Random, folder: Path) -> tuple[int, list[str]]:
    """Kills of an import of others' features, and which rows differ in the end."""
    make_table(folder, pictures=400, width=2048)

    def command(name: str) -> list[str]:
        captions = ["--captions", str(folder / "dataset_album.json")]
        return ["data", "import", str(folder / "table.tsv"), *captions, "--out", str(folder / name)]

    seconds = finish(command("whole"))
    met = kill_and_go_on(command("killed"), seconds / 4, kills, dice)
    return met, _differing(folder)


def indexing(kills: int, dice: random.Random, folder: Path) -> tuple[int, list[str]]:
    """Kills of an indexing, and in which tables the index differs in the end."""
    import vsecore.search.tuning  # noqa: F401  imported once, so that kills meet the work and not the imports

    make_album(folder, pictures=1500)
    make_towers(folder / "clip", "clip")

    def command(name: str) -> list[str]:
        options = ["--recipe", str(folder / "clip"), "--index", str(folder / name)]
        return ["search", "index", str(folder / "images"), *options]

    seconds = finish(command("whole"))
    met = kill_and_go_on(command("killed"), seconds / 4, kills, dice)
    whole, killed = (_tables(folder / name / "index.sqlite") for name in ("whole", "killed"))
    return met, [name for name in whole if whole[name] != killed[name]]


def _tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of an index's tables; what it calls itself on a server is its own."""
    with contextlib.closing(sqlite3.connect(path)) as opened:
        return {name: opened.execute(f"SELECT * FROM {name}").fetchall() for name in ("pictures", "problems")}


def _differing(folder: Path) -> list[str]:
    """Return the files that are not the same in a folder that was killed and in one that was left alone."""
    whole, killed = ({path.name: path for path in (folder / name).iterdir()} for name in ("whole", "killed"))
    return [
        name
        for name in sorted(whole.keys() | killed.keys())
        if not (name in whole and name in killed and whole[name].read_bytes() == killed[name].read_bytes())
    ]


def main() -> None:
    """Kill each, and print what was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each kind of work")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    work: dict[str, Callable[..., tuple[int, list[str]]]] = {
        "training": training,
        "extraction": extraction,
        "extraction by two": shared_extraction,
        "import": importing,
        "indexing": indexing,
    }
    parser.add_argument("--only", nargs="+", choices=work, default=work, help="kinds of work")
    options = parser.parse_args()
    dice, lost = random.Random(options.seed), False
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            met, differing = work[name](options.kills, dice, Path(folder))
        print(
            f"{name}: {options.kills} kills, {met} of them at work; lost: {', '.join(differing) or 'nothing'}"
        )
        lost = lost or bool(differing)
    sys.exit(lost)


if __name__ == "__main__":
    main()
