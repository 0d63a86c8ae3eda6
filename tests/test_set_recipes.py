"""DivE, PVSE and PCME: every one of them, and every variant, trains."""

from dataclasses import replace

import pytest
import torch

from small import SMALL, assert_resumes_with_the_same_bits, small_data, train
from vsecore.pooling import GaussianPool
from vsecore.recipes import get
from vsecore.recipes.written import read_work
from vsecore.training import encode

NAMES = ("dive_grid_gru", "dive_region_gru", "pvse_grid", "pvse_region", "pcme_grid", "pcme_region")
DIVE = read_work("dive")[1]


def squares(kind, **options):
    """The small data with four elements a picture: a grid of two by two cells."""
    data = small_data(kind, counts=False, **options)
    split = replace(data.train, pictures=data.train.pictures[:, :4])
    return replace(data, train=split, dev=split, test=split)


def small_recipe(name, **changes):
    """The recipe at the small scale: narrow pools too."""
    base, *_ = name.split("+")
    scale = dict(SMALL) | {"training.epochs": 1, "training.set_factor": 1.0}
    if base.startswith("dive"):
        scale |= {"image.pool.hidden": 8, "text.pool.hidden": 8}
    return get(name, scale).override({key.replace("__", "."): value for key, value in changes.items()})


SYSTEMS = (
    *NAMES,
    # Small batches are larger than this test's data.
    *(f"dive_region_gru+{one}" for one in DIVE if not one[-1].isdigit() and "small_batches" not in one),
    *(f"dive_region_gru+{variant}" for variant in ("slots_1", "rounds_1", "alpha_64")),
    *(f"pcme_grid+{variant}" for variant in read_work("pcme")[1]),
)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_trains_and_no_weight_is_left_behind(name):
    def callback(event):
        if event.kind == "step":
            named = event.system.named_parameters()
            missing = [place for place, weight in named if weight.grad is None]
            assert not missing, f"no gradient reaches {missing}"

    data = squares("grid" if "_grid" in name else "region")
    run = train(small_recipe(name), data, callback=callback)
    assert run.history[-1]["loss"] == run.history[-1]["loss"] > 0


@pytest.mark.parametrize(
    ("name", "epochs"), [("dive_region_gru", 80), ("pvse_region", 30), ("pcme_region", 30)]
)
def test_a_system_learns_a_few_pictures_by_heart(name, epochs):
    """DivE takes half as many steps in an epoch, since a batch has all captions of its pictures."""
    changes = {"dim": 32, "training__epochs": epochs, "training__schedule": "constant"}
    run = train(small_recipe(name, **changes), squares("region"))
    assert run.best["rsum"] > 400  # of 600; chance is 160


def test_a_run_with_random_slots_goes_on_where_it_stopped(tmp_path):
    a_recipe = small_recipe("dive_region_gru+slot_attention", training__epochs=3)
    assert_resumes_with_the_same_bits(tmp_path, a_recipe, squares("region"), stop=3)


def test_a_set_is_the_same_in_every_batch_of_evaluation():
    data = squares("region")
    for name in ("dive_region_gru+random_slots", "pcme_region"):
        run = train(small_recipe(name), data)
        (v, t), (v2, t2) = (encode(run.model, data.dev, run.tokenizer, batch_size=size) for size in (3, 20))
        torch.testing.assert_close(v.vectors, v2.vectors)
        torch.testing.assert_close(t.vectors, t2.vectors)
    assert isinstance(run.model.text_pool, GaussianPool)
