"""The Python that book and README print runs; parts of one's own run only where their user has named them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

import vsecore
from coco import make_album
from test_cli import SMALL, run
from test_cli import complaint as complaint
from vsecore.data.files import cache_folder
from vsecore.pooling import POOLS
from vsecore.recipes import own_parts
from vsecore.recipes.recipe import PARTS
from vsecore.training import load_run

ROOT = Path(__file__).resolve().parent.parent
USED, EXTENDED = (ROOT / "book" / "extending.md").read_text("utf-8").split("\n## Parts of your own\n")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def fresh(monkeypatch):
    """Return a function that forgets all parts of one's own, as a new process has."""
    known = {registry: dict(registry._entries) for registry in PARTS.values()}

    def forget():
        for registry, entries in known.items():
            monkeypatch.setattr(registry, "_entries", dict(entries))
        monkeypatch.setattr(own_parts, "_LOADED", {})

    forget()
    return forget


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VSECORE_CACHE", str(tmp_path / "cache"))
    album = make_album(Path("photos"), train=28, restval=2)
    run("data", "extract", album, "features/flickr8k", "--backbone", "scenes-cnn")
    for name, source in (("pool.jpg", "train0.jpg"), ("beach.jpg", "train1.jpg")):
        shutil.copy(album / "images" / source, name)
    return tmp_path


def test_its_python_runs_as_it_is_printed(place):
    run("train", "vsepp_grid_gru", "--data", "features/flickr8k", "--out", "runs/first", *SMALL)
    names = {}
    readme, manual = ((ROOT / name).read_text("utf-8") for name in ("README.md", "book/training.md"))
    assert blocks(readme, "python") == blocks(USED, "python")[:1]
    assert blocks(manual, "sh")[0] in blocks(readme, "sh")
    for block in blocks(USED, "python"):
        exec(block, names)
    assert names["scores"].shape == (2, 2) and names["run"].recipe.image.pool.name == "gpo"
    for number, name in enumerate(("pool.jpg", "beach.jpg")):
        one = names["model"].encode_images([Image.open(name)])
        torch.testing.assert_close(one.vectors[0], names["pictures"].vectors[number])
    sums = [entry["rsum"] for entry in names["run"].history]
    assert len(sums) == 5 or sums[-1] >= 450 > max(sums[:-1], default=0)


def test_its_parts_train_and_are_found_again(place, fresh):
    python = blocks(EXTENDED, "python")
    assert all(len(list(filter(str.strip, block.splitlines()))) < 15 for block in python)
    Path("myparts.py").write_text("\n".join(python))
    (commands,) = blocks(EXTENDED, "sh")
    for line in commands.replace("\\\n", "").splitlines():
        _, command, *options = shlex.split(line)
        run(command, *options, *(SMALL if command == "train" else []))
        fresh()  # the second command names no file
    trained = load_run("runs/own-parts").recipe
    assert (trained.image.pool.name, trained.losses[0].name) == ("median", "logistic")
    fresh()
    own = {"image.encoder": "linear", "text.encoder": "bag", "similarity": "near"}
    options = ["--data", "features/flickr8k", "--parts", "myparts.py"]
    settings = [f"--set={field}={name}" for field, name in own.items()]
    small = [
        one for pair in zip(SMALL[::2], SMALL[1::2], strict=True) for one in pair if "word_dim" not in pair[1]
    ]
    run("train", "vsepp_grid_gru", *options, "--out", "runs/others", *settings, *small)
    x = torch.randn(2, 4, 3)
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    pool = POOLS.build("median", {}, dim=3)
    assert torch.equal(pool(x, mask)[1], pool(x[1:, :3])[0]), "padding changes nothing"
    fresh()
    texts = vsecore.load("runs/others").encode_texts(["a caption"])
    assert texts.vectors.shape == (1, 16)


PART = """
from pathlib import Path
from vsecore.pooling import POOLS, MeanPool
Path(__file__).with_name("ran").touch()
class Own(MeanPool): pass
POOLS.register("own", Own)
"""


def test_a_run_from_somebody_else_imports_nothing_that_its_user_did_not_name(place, fresh, complaint):
    Path("parts.py").write_text(PART)
    data = ["--data", "features/flickr8k"]
    trained = ["train", "vsepp_grid_gru", *data, "--set", "image.pool=own", *SMALL, "--out", "runs/own"]
    run(*trained, "--parts", "parts.py")
    own = json.loads(Path("runs/own/run.json").read_text())["parts"]
    assert own == [{"file": "parts.py", "sha256": own[0]["sha256"]}]

    fresh()
    shutil.rmtree(cache_folder())  # as on another machine
    shutil.copy("parts.py", "runs/own/parts.py")
    Path("ran").unlink()
    for command in (
        ["evaluate", "runs/own", *data],
        ["train", "--resume", "runs/own"],
        ["mine", "runs/own", "--out=m"],
    ):
        said = complaint(*command)
        assert "parts.py" in said and "--parts" in said
    with pytest.raises(ValueError, match=r"parts\.py.*--parts"):
        vsecore.load("runs/own")
    assert not list(place.rglob("ran")), "it ran"

    first = run("evaluate", "runs/own", *data, "--parts", "parts.py")
    fresh()
    assert run("evaluate", "runs/own", *data) == first  # now it was named
    fresh()
    Path("parts.py").write_text(PART + "# changed\n")
    assert "has changed" in complaint("evaluate", "runs/own", *data)
    Path("parts.py").unlink()
    assert "which was" in complaint("evaluate", "runs/own", *data)
