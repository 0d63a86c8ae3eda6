"""Networks that have seen many pictures: their weights come from files that may be anything."""

import pickle
from contextlib import suppress
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from vsecore.data import weights as weight_files
from vsecore.data.backbones import load_backbone


@pytest.mark.parametrize(("name", "kind"), [("test_resnet", "grid"), ("test_vit", "patch")])
def test_weights_of_a_local_file_are_loaded(tmp_path, name, kind):
    torch.manual_seed(0)
    network, path = timm.create_model(name).eval(), tmp_path / "w.safetensors"
    save_file(network.state_dict(), path)
    backbone = load_backbone(name, path)
    assert backbone.kind == kind and backbone.fingerprint() == load_backbone(name, path).fingerprint()
    size, config = backbone.picture_size, network.pretrained_cfg
    pictures = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    with torch.no_grad():
        mean, std = (torch.tensor(config[x])[:, None, None] for x in ("mean", "std"))
        seen, wanted = backbone(pictures), network.forward_features((pictures / 255 - mean) / std)
    assert seen.shape == (2, backbone.elements, backbone.feature_dim)
    if kind == "grid":
        torch.testing.assert_close(seen, wanted.flatten(2).mT, rtol=1e-4, atol=1e-4)


def test_a_grid_can_look_at_larger_pictures_and_patches_cannot(tmp_path):
    for name in ("test_resnet", "test_vit"):
        save_file(timm.create_model(name).state_dict(), tmp_path / f"{name}.safetensors")
    large = load_backbone("test_resnet", tmp_path / "test_resnet.safetensors", picture_size=320)
    assert large.elements == 4 * load_backbone("test_resnet", tmp_path / "test_resnet.safetensors").elements
    with pytest.raises(ValueError, match="picture_size is 320: test_vit takes"):
        load_backbone("test_vit", tmp_path / "test_vit.safetensors", picture_size=320)
    with pytest.raises(ValueError, match="at least 32"):
        load_backbone("test_resnet", tmp_path / "test_resnet.safetensors", picture_size=8)


def test_published_weights_come_from_the_hub(tmp_path, monkeypatch):
    weights = tmp_path / "model.safetensors"
    save_file(timm.create_model("test_resnet").state_dict(), weights)
    monkeypatch.setattr(timm.models._hub, "hf_hub_download", lambda *_, **__: str(weights))
    assert load_backbone("test_resnet").fingerprint() == load_backbone("test_resnet", weights).fingerprint()


@pytest.mark.parametrize(
    "name",
    ["resnet5O", "torchvision/resnet19", "resnet50.nobody", "x" * 10**5, "", "../\0\n", "local-dir:/tmp"],
    ids=range(7),
)
def test_an_unknown_backbone_is_named(name):
    with pytest.raises(ValueError, match=r"backbone .* is unknown") as told:
        load_backbone(name)
    assert len(str(told.value)) < 300
    with pytest.raises(ValueError, match="nobody publishes weights for mobilenetv2_100_same"):
        load_backbone("mobilenetv2_100_same")


def test_weights_that_cannot_be_downloaded_say_what_to_get():
    with pytest.raises(FileNotFoundError, match=r"weights of test_resnet are not here.*timm/test_resnet"):
        load_backbone("test_resnet")


ANY = "layer1.0.conv1.weight"


@pytest.fixture(scope="module")
def good():
    torch.manual_seed(0)
    return timm.create_model("test_resnet").state_dict()


@pytest.mark.parametrize(
    "wrap",
    [
        lambda weights: {"state_dict": weights, "epoch": 3},
        lambda weights: {"model": weights},
        lambda weights: {f"module.{name}": value for name, value in weights.items()},
        lambda weights: {"state_dict": {f"module.{name}": value for name, value in weights.items()}},
        lambda weights: {name: nn.Parameter(v, v.is_floating_point()) for name, v in weights.items()},
        lambda weights: {name: v for name, v in weights.items() if "num_batches" not in name},
    ],
)
def test_weights_may_be_wrapped_as_training_programs_do(tmp_path, good, wrap):
    save_file(good, tmp_path / "plain.safetensors")
    torch.save(wrap(good), tmp_path / "wrapped.pth")
    plain = load_backbone("test_resnet", tmp_path / "plain.safetensors").state_dict()
    wrapped = load_backbone("test_resnet", tmp_path / "wrapped.pth").state_dict()
    assert all(torch.equal(wrapped[name], value) for name, value in plain.items() if "batches" not in name)


@pytest.mark.parametrize(
    "change",
    [
        lambda w: 3,
        lambda w: w * torch.nan,
        lambda w: w.int(),
        lambda w: w.to(torch.float8_e4m3fn),
        lambda w: torch.zeros(2, 3, 4, 5),
    ],
    ids=range(5),
)
def test_a_tensor_that_is_no_plain_weight_is_named(tmp_path, good, change):
    torch.save({**good, ANY: change(good[ANY])}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=rf"w.pth .*{ANY}"):
        load_backbone("test_resnet", tmp_path / "w.pth")


def test_weights_of_another_network_are_named_with_their_tensor(tmp_path, good):
    fewer = {name: tensor for name, tensor in good.items() if name != ANY}
    for weights, named in ((fewer, ANY), ({**good, "head.other": torch.zeros(1)}, "head.other")):
        save_file(weights, tmp_path / "w.safetensors")
        with pytest.raises(ValueError, match=rf"w.safetensors .*{named}"):
            load_backbone("test_resnet", tmp_path / "w.safetensors")


class Marker:
    """A pickle that writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "how", ["in a tensor's place", "as a whole", "as a bare pickle", "in the old format"]
)
def test_a_program_among_the_weights_does_not_run(tmp_path, good, how):
    marker, path = Marker(tmp_path / "it ran"), tmp_path / "w.pth"
    if how == "as a bare pickle":
        path.write_bytes(pickle.dumps(marker))
    else:
        weights = marker if how == "as a whole" else {**good, ANY: marker}
        torch.save(weights, path, _use_new_zipfile_serialization=how != "in the old format")
    with pytest.raises(ValueError, match=r"w.pth cannot be read as weights"):
        load_backbone("test_resnet", path)
    assert not marker.path.exists()
    with suppress(RuntimeError, AttributeError):  # what it gives is no network's
        torch.load(path, weights_only=False)
    assert marker.path.exists()  # it was no idle threat


def test_a_program_that_the_hub_publishes_does_not_run(tmp_path, monkeypatch):
    marker, path = Marker(tmp_path / "it ran"), tmp_path / "pytorch_model.bin"
    torch.save({ANY: marker}, path)
    monkeypatch.setattr(timm.models._hub, "_get_safe_alternatives", lambda name: [])
    monkeypatch.setattr(timm.models._hub, "hf_hub_download", lambda *_, **__: str(path))
    with pytest.raises(FileNotFoundError, match="or are damaged"):
        load_backbone("test_resnet")
    assert not marker.path.exists()


def test_weights_under_another_networks_name_are_noticed(tmp_path, monkeypatch):
    """The two networks have the same tensors, but TensorFlow's pads pictures differently."""
    right, wrong, path = "tf_efficientnet_lite0", "efficientnet_lite0", tmp_path / "w.pth"
    given = timm.create_model(right).state_dict()
    torch.save(given, path)
    load_backbone(wrong, path)  # nobody knows these
    numbers = {name: value for name, value in given.items() if "num_batches" not in name}
    monkeypatch.setitem(weight_files.KNOWN_WEIGHTS, weight_files.sha256_of(numbers), right)
    assert load_backbone(right, path).name == right
    with pytest.raises(ValueError, match=rf"{path} holds the weights of {right}"):
        load_backbone(wrong, path)


def test_the_weights_of_tensorflows_mobilenet_are_known(photographs):
    path = photographs / "weights" / "mobilenetv2_100_same.safetensors"
    with pytest.raises(ValueError, match="weights of mobilenetv2_100_same"):
        load_backbone("mobilenetv2_100", path)
