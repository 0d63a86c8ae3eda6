"""Networks that have seen many pictures: their weights come from files that may be anything."""

from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

from vsecore.data.backbones import load_backbone


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("test_resnet", "grid"),
        ("test_vit", "patch"),
        ("torchvision/squeezenet1_1", "grid"),
        ("torchvision/resnet18", "grid"),
    ],
)
def test_weights_of_a_local_file_are_loaded(tmp_path: Path, name: str, kind: str) -> None:
    torch.manual_seed(0)
    is_torchvision = name.startswith("torchvision/")
    network = (
        torchvision.models.get_model(name[12:], weights=None) if is_torchvision else timm.create_model(name)
    )
    path = tmp_path / ("w.pth" if is_torchvision else "w.safetensors")
    torch.save(network.state_dict(), path) if is_torchvision else save_file(network.state_dict(), path)
    backbone = load_backbone(name, path)
    assert backbone.kind == kind and backbone.fingerprint() == load_backbone(name, path).fingerprint()
    size = backbone.picture_size
    pictures = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    with torch.no_grad():
        seen = backbone(pictures)
        assert seen.shape == (2, backbone.elements, backbone.feature_dim)
        if kind == "grid":
            network.eval()
            mean, std = (
                torch.tensor(x)[:, None, None] for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
            )
            maps = (pictures / 255 - mean) / std
            if name == "torchvision/resnet18":
                for part in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
                    maps = getattr(network, part)(maps)
                torch.testing.assert_close(seen, maps.flatten(2).mT, rtol=1e-4, atol=1e-4)


def test_a_grid_can_look_at_larger_pictures_and_patches_cannot(tmp_path: Path) -> None:
    for name in ("test_resnet", "test_vit"):
        save_file(timm.create_model(name).state_dict(), tmp_path / f"{name}.safetensors")
    large = load_backbone("test_resnet", tmp_path / "test_resnet.safetensors", picture_size=320)
    assert large.elements == 4 * load_backbone("test_resnet", tmp_path / "test_resnet.safetensors").elements
    with pytest.raises(ValueError, match="picture_size is 320: test_vit takes"):
        load_backbone("test_vit", tmp_path / "test_vit.safetensors", picture_size=320)
    with pytest.raises(ValueError, match="at least 32"):
        load_backbone("test_resnet", tmp_path / "test_resnet.safetensors", picture_size=8)


def test_a_pickle_of_the_hub_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return str(tmp_path)

    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    published = replace(timm.get_pretrained_cfg("test_resnet"), hf_hub_filename="open_clip_pytorch_model.bin")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr(timm, "get_pretrained_cfg", lambda name: published)
    with pytest.raises(FileNotFoundError, match=r"has no open_clip_model.safetensors for test_resnet"):
        load_backbone("test_resnet")
    assert asked == ["open_clip_model.safetensors"]


class Program:
    """What a pickle can do when it is read."""

    def __reduce__(self) -> tuple:
        return print, ("this ran",)


def test_published_weights_that_are_a_program_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    url = torchvision.models.get_model_weights("squeezenet1_1").DEFAULT.url
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.save({"weight": Program()}, path)
    with pytest.raises(ValueError, match=r"squeezenet1_1.*\.pth holds more than weights"):
        load_backbone("torchvision/squeezenet1_1")
    assert "this ran" not in capsys.readouterr().out
    torch.save(torchvision.models.get_model("squeezenet1_1", weights=None).state_dict(), path)
    assert load_backbone("torchvision/squeezenet1_1").kind == "grid"


def test_published_weights_come_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: str(tmp_path))
    assert (
        load_backbone("test_resnet").fingerprint()
        == load_backbone("test_resnet", tmp_path / "model.safetensors").fingerprint()
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet5O", "unknown backbone 'resnet5O': did you mean resnet50"),
        ("qqqqqq", "unknown backbone 'qqqqqq'"),
        ("torchvision/resnet19", "torchvision has no 'resnet19'"),
        ("mobilenetv2_100_same", "nobody publishes weights for mobilenetv2_100_same"),
    ],
)
def test_an_unknown_backbone_is_named(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_backbone(name)


def test_weights_that_cannot_be_downloaded_say_what_to_get() -> None:
    with pytest.raises(FileNotFoundError, match=r"weights of test_resnet are not here.*timm/test_resnet"):
        load_backbone("test_resnet")


def test_weights_that_do_not_fit_are_named_with_their_tensor(tmp_path: Path) -> None:
    good = timm.create_model("test_resnet").state_dict()
    path = tmp_path / "w.safetensors"
    first = next(name for name in good if name.endswith("conv1.weight"))
    for weights, message in (
        (
            {**good, first: torch.zeros(2, 3, 4, 5)},
            rf"tensor '{first}' has shape \(2, 3, 4, 5\), test_resnet wants",
        ),
        ({name: t for name, t in good.items() if name != first}, f"lacks tensor '{first}'"),
        ({**good, "head.other": torch.zeros(1)}, "unknown tensor 'head.other'"),
    ):
        save_file(weights, path)
        with pytest.raises(ValueError, match=f"w.safetensors.*{message}"):
            load_backbone("test_resnet", path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"w.safetensors cannot be read as weights"):
        load_backbone("test_resnet", path)
    (tmp_path / "w.pth").write_text("no weights")
    with pytest.raises(ValueError, match=r"w.pth cannot be read as weights"):
        load_backbone("test_resnet", tmp_path / "w.pth")
    with pytest.raises(FileNotFoundError, match=r"nowhere.pth"):
        load_backbone("test_resnet", tmp_path / "nowhere.pth")
