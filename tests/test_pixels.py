"""Photographs that are decoded on the fly, and networks that are trained on them."""

import pickle
from itertools import chain

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.ops.misc import FrozenBatchNorm2d

from small import assert_resumes_with_the_same_bits
from vsecore.cli.experiments import show
from vsecore.data.backbones import load_backbone
from vsecore.data.batches import make_loader
from vsecore.data.karpathy import from_files, load_karpathy
from vsecore.data.photographs import View
from vsecore.data.vocabulary import Vocabulary
from vsecore.encoders.pixels import PixelEncoder
from vsecore.experiments.scales import at_scale, changes_of
from vsecore.recipes import RECIPES, Training, get
from vsecore.training import System, evaluate_split, fit, load_run
from vsecore.training.optimization import make_optimizer

SMALL = {
    "dim": 16,
    "text.encoder.word_dim": 8,
    "text.encoder.minimum_count": 1,
    "image.encoder.network": "resnet10t",
    "image.encoder.picture_size": 32,
    "training.batch_size": 8,
    "training.epochs": 3,
    "training.frozen_epochs": 1,
    "training.learning_rate": 1e-3,
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A small network's weights in a file, with statistics as if it had been trained."""
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = timm.create_model("resnet10t", pretrained=False)
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)  # timm begins with some at 0, behind which nothing learns
    path = tmp_path_factory.mktemp("weights") / "resnet10t.safetensors"
    save_file(network.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def recipe(weights):
    return get("vsepp_pixels_gru").override(SMALL | {"image.encoder.weights": str(weights)})


@pytest.fixture(scope="module")
def data(drawn_photographs, recipe):
    return from_files(load_karpathy(drawn_photographs), recipe.view())


def test_a_picture_is_evaluated_as_torchvision_cuts_its_middle(tmp_path):
    from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

    wanted = Compose([Resize(40, InterpolationMode.BICUBIC), CenterCrop(32)])
    for place, (height, width) in enumerate(((60, 90), (91, 50), (40, 40))):
        dice = np.random.default_rng(place)
        picture = Image.fromarray(dice.integers(0, 256, (height, width, 3), dtype=np.uint8))
        seen = View(32, 40).plain(picture)
        assert seen.shape == (3, 32, 32) and seen.dtype == np.uint8
        whole = np.asarray(wanted(picture)).transpose(2, 0, 1)
        inner = np.s_[:, 1:-1, 1:-1]  # torchvision rounds half a pixel to the even side
        turned = [np.roll(whole, turn, (1, 2)) for turn in ((0, 0), (1, 0), (0, 1), (1, 1))]
        assert any(np.array_equal(one[inner], seen[inner]) for one in turned)
    red = View(8, None).plain(Image.new("RGB", (30, 9), "red"))
    assert (red == np.array([255, 0, 0])[:, None, None]).all()


def test_an_encoder_sees_the_middle_seven_eighths_and_cuts_as_it_is_told(weights):
    assert PixelEncoder.sees(224) == View(224, 256, "bicubic", 0.08, True)
    encoder = PixelEncoder(8, "resnet10t", str(weights), 32, smallest_crop=0.5, flip=False)
    assert encoder.view == PixelEncoder.sees(32, 0.5, False) != PixelEncoder.sees(32)


def test_cuts_keep_their_share_and_their_ratio():
    sides = np.arange(200 * 300).reshape(200, 300)
    stamped = np.stack([sides // 300, sides % 300 // 2, np.zeros_like(sides)], -1).astype(np.uint8)
    picture, dice = Image.fromarray(stamped), np.random.default_rng(0)
    view = View(64, 64, smallest_crop=0.25, flip=False)
    shares, turned = [], 0
    for draws in dice.random((200, 5)):
        rows, columns, _ = view.varied(picture, draws).astype(float)
        high, wide = (np.ptp(rows) + 1) / 200, 2 * (np.ptp(columns) + 1) / 300
        shares.append(high * wide)
        mirrored = View(64, 64, smallest_crop=0.25).varied(picture, draws)
        assert (draws[4] < 0.5) == (not np.array_equal(mirrored[1], columns))
        turned += draws[4] < 0.5
    assert 0.2 < min(shares) < 0.35 and 0.8 < max(shares) <= 1.1 and 70 < turned < 130


def test_what_a_step_sees_depends_only_on_seed_epoch_and_row(data):
    tokens = Vocabulary.build(data.train.captions, 1)

    def seen(batch_size=4, **options):
        batches = make_loader(data.train, tokens, batch_size, **options)
        pairs = (zip(batch.caption_rows, batch.pictures, strict=True) for batch in batches)
        return {int(row): picture for row, picture in chain.from_iterable(pairs)}

    first = seen()
    for again in (seen(batch_size=8), seen(workers=1), seen()):
        assert all(torch.equal(first[row], again[row]) for row in first)
    late = seen(start=2)
    assert 0 < len(late) < len(first) and all(torch.equal(first[row], late[row]) for row in late)
    for other in (seen(seed=1), seen(epoch=1)):
        assert not any(torch.equal(first[row], other[row]) for row in first)
    owner = data.train.owner
    assert not torch.equal(first[0], first[1]) and owner[0] == owner[1]  # each pair has a cut of its own


def test_evaluation_sees_the_same_pixels_each_time(data):
    pictures = data.train.pictures
    rows = np.array([3, 0, 3])
    read = pictures[rows]
    assert read.shape == (3, 3, 32, 32) and read.dtype == np.uint8
    assert np.array_equal(read, pickle.loads(pickle.dumps(pictures))[rows])
    assert np.array_equal(read[1], pictures[0]) and np.array_equal(np.asarray(pictures[3:4])[0], read[0])
    later = pictures[3:].varied(np.array([0]), 0, 0, np.array([7]))
    assert np.array_equal(later, pictures.varied(rows[:1], 0, 0, np.array([7])))
    assert len(pictures) == pictures.shape[0] == 8 and pictures[np.empty(0, int)].shape == (0, 3, 32, 32)


def test_the_network_learns_and_its_statistics_stay(recipe, data, weights):
    from safetensors.torch import load_file

    began = load_file(weights)
    run = fit(recipe.override({"training.frozen_epochs": 0}), data, device="cpu")
    kept = run.model.image_encoder.backbone.network.model.state_dict()
    assert not any(isinstance(module, _BatchNorm) for module in run.model.modules())
    assert any(isinstance(module, FrozenBatchNorm2d) for module in run.model.modules())
    frozen = [name for name in kept if "running_" in name]
    assert len(frozen) > 10 and all(torch.equal(kept[name], began[name]) for name in frozen)
    moved = [name for name in kept if name.endswith("conv1.weight")]
    assert moved and not any(torch.equal(kept[name], began[name]) for name in moved)
    assert torch.equal(kept["fc.weight"], began["fc.weight"])  # no element depends on it


@pytest.mark.parametrize("name", [name for name, one in RECIPES.items() if one.training.frozen_epochs])
def test_the_network_learns_at_every_scale_and_not_at_a_rate_of_nearly_0(name):
    for scale in ("fair", "lesson", "paper"):
        how = at_scale(name, changes_of(scale, "flickr8k")).training
        assert 0 < how.frozen_epochs < how.epochs
        assert how.schedule == "cosine" or how.decay_factor ** (how.frozen_epochs // how.decay_epochs) > 0.01


@pytest.mark.parametrize("network", ["resnet10t", "mobilenetv2_035", "vit_tiny_patch16_224"])
def test_in_training_the_network_gives_what_it_gave_before(network, tmp_path):
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = tmp_path / "weights.safetensors"
    save_file(timm.create_model(network).state_dict(), path)
    side = 224 if "vit" in network else 64
    pixels = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8)
    encoder = PixelEncoder(8, network, str(path), side).train()
    with torch.no_grad():
        torch.testing.assert_close(encoder.backbone(pixels), load_backbone(network, path, side)(pixels))
    encoder(pixels)[0].sum().backward()
    trained = [weight for weight in encoder.parameters() if weight.requires_grad]
    assert len(trained) > 10 and all(weight.grad is not None for weight in trained)


def test_one_picture_does_not_change_what_another_gives(weights):
    encoder = PixelEncoder(8, "resnet10t", str(weights), 32).train()
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.manual_seed(0))
    together = encoder(pixels)[0]
    torch.testing.assert_close(encoder(pixels[:1])[0], together[:1])
    assert together.shape == (4, 1, 8) and encoder(pixels)[1] is None


def test_the_network_rests_for_the_first_epochs_and_then_learns(recipe, data):
    weights, gradients = {}, {}

    def watch(event):
        if event.kind == "step":
            network = list(event.model.pretrained_parameters("picture"))
            weights[event.step] = torch.cat([one.detach().flatten() for one in network]).clone()
            gradients[event.step] = any(one.grad is not None for one in network)

    fit(recipe.override({"training.weight_decay": 0.1}), data, device="cpu", callback=watch)
    assert sorted(weights) == [1, 2, 3, 4, 5, 6]  # two steps an epoch
    assert torch.equal(weights[1], weights[2]) and not gradients[1] and not gradients[2]
    assert not torch.equal(weights[2], weights[3]) and gradients[3]


def test_each_side_has_its_own_learning_rate(recipe, data, tmp_path):
    from small import make_bert

    make_bert(tmp_path, data.train.captions)
    mixed = recipe.override({"text.encoder": "bert", "text.encoder.weights": str(tmp_path)})
    system = System(mixed, data, mixed.tokenizer(data.train.captions))

    def rates(**settings):
        groups = make_optimizer(system, Training(learning_rate=1.0, **settings)).param_groups
        return {id(one): group["lr"] for group in groups for one in group["params"]}

    network = {id(one) for one in system.model.image_encoder.backbone.parameters() if one.requires_grad}
    bert = {id(one) for one in system.model.text_encoder.backbone.parameters()}
    told = rates(pretrained_factor=0.1, picture_factor=0.01)
    assert {told[one] for one in network} == {0.01} and {told[one] for one in bert} == {0.1}
    assert {rate for one, rate in told.items() if one not in network | bert} == {1.0}
    assert {rates(pretrained_factor=0.1)[one] for one in network} == {0.1}


def test_a_run_from_pixels_resumes_with_the_same_bits_and_is_shown(recipe, data, drawn_photographs, tmp_path):
    assert_resumes_with_the_same_bits(tmp_path, recipe, data, stop=3)
    run = load_run(tmp_path)
    show([tmp_path], out=tmp_path / "found.png", data=str(drawn_photographs))
    assert (tmp_path / "found.png").stat().st_size > 0
    assert run.model.image_encoder.view == recipe.view()
    assert evaluate_split(run.model, data.dev, run.tokenizer)["rsum"] == run.best["rsum"]
