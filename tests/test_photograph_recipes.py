"""Systems that reason or attend, on real photographs: the features of a few pictures, learned by heart."""

from pathlib import Path

import pytest

from small import SMALL, train
from vsecore.data.backbones import load_backbone
from vsecore.data.extraction import extract
from vsecore.data.features import open_precomp
from vsecore.data.karpathy import load_karpathy
from vsecore.data.splits import Dataset
from vsecore.recipes import get
from vsecore.training import fit_in_rounds

PICTURES = 8
SYSTEMS = (
    "thesis_grid",
    "thesis_grid+node_pooling",
    "thesis_grid+node_cross_attention",
    "scan_grid_gru",
    "scan_grid_gru+i2t",
    "bfan_grid_gru",
    "bfan_grid_gru+equal",
    "vsrn_grid+small_decoder",
    "tern_grid_words",
    "dive_grid_gru",
    "pvse_grid",
    "pcme_grid",
)


@pytest.fixture(scope="module")
def few(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The cells of a few photographs of each part, with all their captions."""
    weights = photographs / "weights" / "mobilenetv2_100_same.safetensors"
    splits = {name: split.subset(PICTURES) for name, split in load_karpathy(photographs / "flickr8k").items()}
    folder = tmp_path_factory.mktemp("photographs") / "features"
    return open_precomp(extract(splits, load_backbone("mobilenetv2_100_same", weights), folder, device="cpu"))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_learns_from_the_cells_of_photographs(few: Dataset, name: str) -> None:
    assert few.feature_dim == 1280 and few.train.pictures.shape == (PICTURES, 49, 1280)
    scale = SMALL | {"training.epochs": 4, "training.warmup_steps": 0}
    if get(name).training.batches == "pictures":  # a batch has five times as many captions
        scale |= {"training.batch_size": 2}
    run = train(get(name).override(scale), few)
    first, last = run.history[0]["loss"], run.history[-1]["loss"]
    assert 0 < last < 0.95 * first


def test_a_system_learns_in_two_rounds_from_the_cells_of_photographs(few: Dataset) -> None:
    """Half of the seven other pictures are negatives, so the second round is about them."""
    changes = {"training.epochs": 8, "first_round.texts": 10, "first_round.pictures": 3}
    name = "aoq_vsepp_grid_gru"
    run = fit_in_rounds(get(name).override(SMALL | changes), few, device="cpu")
    losses = [entry["loss"] for entry in run.history]
    assert 0 < losses[-1] < 0.95 * losses[1], "the first epoch learns by another loss"
