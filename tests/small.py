"""What tests of training share: a dataset of a few random pictures, and recipes small enough for it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from vsecore.data.files import LOCK
from vsecore.data.offline_negatives import OfflineNegatives
from vsecore.data.splits import Dataset, Split
from vsecore.recipes import get
from vsecore.training import fit

SMALL = {
    "dim": 16,
    "text.encoder.word_dim": 8,
    "text.encoder.minimum_count": 1,
    "training.batch_size": 10,
    "training.epochs": 3,
    "training.learning_rate": 0.01,
}


def small_split(name, count, seed=0, captions_of=lambda picture: 2, counts=True, **fields):
    """Pictures of random cells; a caption says which things are in the picture, its own number among them."""
    dice = np.random.default_rng(seed)
    owner = np.concatenate([np.full(captions_of(picture), picture) for picture in range(count)])
    captions = [
        f"thing{picture} " + " ".join(f"word{dice.integers(9)}" for _ in range(dice.integers(1, 6)))
        for picture in owner
    ]
    return Split(
        name,
        dice.standard_normal((count, 5, 7)).astype(np.float16),
        captions,
        owner,
        [f"{name}{picture}" for picture in range(count)],
        dice.integers(1, 6, count) if counts else None,
        **fields,
    )


def small_data(kind="grid", **options):
    """Twenty pictures that are train, dev and test at once."""
    split = small_split("train", 20, **options)
    return Dataset("small", split, split, split, kind)


def some_negatives(data):
    """Other pictures, and captions of others, for each of the twenty pictures and their captions."""
    owner = data.train.owner
    return OfflineNegatives(
        np.array([np.flatnonzero(owner != picture)[:9] for picture in range(20)]),
        np.array([np.delete(np.arange(20), picture)[:7] for picture in owner]),
    )


def make_bert(folder, captions):
    """A small BERT with random weights and the words of the captions."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = sorted({word for caption in captions for word in caption.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    BertTokenizerFast(vocab={word: number for number, word in enumerate(vocabulary)}).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def recipe(name="vsepp_grid_gru", **changes):
    """A recipe at the small scale; in the names of changes, two underscores stand for a dot."""
    small = {key: value for key, value in SMALL.items() if "gru" in name or "encoder" not in key}
    return get(name).override(small | {key.replace("__", "."): value for key, value in changes.items()})


def train(a_recipe=None, data=None, **options):
    return fit(a_recipe or recipe(), data or small_data(), device="cpu", **options)


class StopError(Exception):
    """Raised by a callback to end a run."""


def stop_at(step, kind="step"):

    def callback(event):
        if event.kind == kind and event.step == step:
            raise StopError

    return callback


def assert_same_run(one, other):
    """The same bits: history and weights."""
    assert one.history == other.history
    mine, theirs = one.model.state_dict(), other.model.state_dict()
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        assert torch.equal(weight, theirs[name]), name


def contents(folder):
    """The bytes of each file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != LOCK
    }


def start(module, function, *arguments, **environment):
    """Run a function of a test module in another process."""
    code = f"import {module} as here; here.{function}(*{list(map(str, arguments))!r})"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths} | environment
    )


def free_port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return str(some.getsockname()[1])


def start_two(module, function, *arguments):
    both = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "OMP_NUM_THREADS": "1"}
    workers = [start(module, function, *arguments, RANK=rank, LOCAL_RANK=rank, **both) for rank in "01"]
    assert [worker.wait(timeout=300) for worker in workers] == [0, 0]


def assert_resumes_with_the_same_bits(tmp_path, a_recipe, data=None, stop=6, **options):
    """Stop a run in the middle of an epoch, go on, and compare with one that was never stopped."""

    def callback(event):
        last.clear()
        last.update({name: x.detach().clone() for name, x in event.system.state_dict().items()})
        if event.step == stopping:
            raise StopError

    last, stopping = {}, stop
    with pytest.raises(StopError):
        train(a_recipe, data, folder=tmp_path, save_every=1, callback=callback, **options)
    stopping = None
    resumed = train(a_recipe, data, folder=tmp_path, resume=True, callback=callback, **options)
    state = dict(last)
    whole = train(a_recipe, data, callback=callback, **options)
    assert resumed.history == whole.history
    assert state.keys() == last.keys()
    assert all(torch.equal(state[name], last[name]) for name in last)
    return state
