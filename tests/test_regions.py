"""Regions: the best boxes of a detector, the features of each, and where the boxes are."""

import hashlib
import json

import numpy as np
import pytest
import torch
import torchvision
from PIL import ExifTags, Image
from safetensors.torch import save_file
from torchvision.ops import box_iou

from vsecore.data.backbones import RegionBackbone, _use_published_epsilon, load_backbone
from vsecore.data.extraction import extract
from vsecore.data.features import check_precomp, open_precomp
from vsecore.data.karpathy import load_karpathy
from vsecore.data.regions import REGIONS

NAME = "torchvision/fasterrcnn_mobilenet_v3_large_320_fpn"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Those of a detector that has learned nothing."""
    torch.manual_seed(0)
    model = torchvision.models.get_model(NAME[12:], weights=None, weights_backbone=None)
    torch.nn.init.normal_(model.rpn.head.cls_logits.weight, std=0.5)
    heads = model.roi_heads
    for layer in (heads.box_head.fc6, heads.box_head.fc7, heads.box_predictor.cls_score):
        torch.nn.init.zeros_(layer.bias)  # else every box would have the same scores
    logits = []
    hook = heads.box_predictor.cls_score.register_forward_hook(lambda *call: logits.append(call[2]))
    model.transform.min_size, model.transform.max_size = (96,), 192
    with torch.inference_mode():
        model.eval()([noise(3, 96, 128) / 255])
    hook.remove()
    with torch.no_grad():
        heads.box_predictor.cls_score.weight.mul_(2 / logits[0].std())
    path = tmp_path_factory.mktemp("weights") / "detector.safetensors"
    save_file(model.state_dict(), path)
    return path


@pytest.fixture
def detector(weights):
    backbone = load_backbone(NAME, weights, picture_size=96)
    assert isinstance(backbone, RegionBackbone)
    return backbone


def noise(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def test_a_picture_has_36_boxes_best_first(detector):
    assert (detector.kind, detector.elements, detector.feature_dim) == ("region", REGIONS, 1024)
    assert (detector.picture_size, detector.longest) == (96, 192)
    pictures = noise(2, 3, 96, 128)
    features, boxes = detector.features_and_boxes(pictures, torch.tensor([[96, 128, 96, 128]] * 2))
    assert features.shape == (2, 36, 1024) and boxes is not None and boxes.shape == (2, 36, 4)
    assert torch.equal(detector(pictures), features)
    left, top, right, bottom = boxes.unbind(-1)
    assert (left >= 0).all() and (top >= 0).all() and (right <= 128).all() and (bottom <= 96).all()
    assert (right - left >= 1).all() and (bottom - top >= 1).all()


@torch.inference_mode()
def test_the_best_box_is_the_one_that_torchvision_finds(detector):
    model = detector.network.model
    picture = noise(3, 96, 128)
    model.transform.min_size, model.transform.max_size = (96,), 192  # the size that it has already
    model.roi_heads.score_thresh = 0.0
    [found] = model([picture / 255])
    _, boxes = detector.features_and_boxes(picture[None], torch.tensor([[96, 128, 96, 128]]))
    assert boxes is not None
    torch.testing.assert_close(boxes[0, 0], found["boxes"][0], rtol=1e-4, atol=1e-3)
    # Each of ours is among theirs, who also keep a box's other classes.
    assert (box_iou(boxes[0, :5], found["boxes"]).amax(1) > 0.99).all()


@torch.inference_mode()
def test_a_feature_is_what_the_network_sees_in_its_box(detector):
    picture = noise(1, 3, 96, 128)
    features, boxes = detector.features_and_boxes(picture, torch.tensor([[96, 128, 96, 128]]))
    assert boxes is not None
    model = detector.network.model
    maps = model.backbone(detector.normalise(picture))
    for place in (0, 17, 35):
        pooled = model.roi_heads.box_roi_pool(maps, [boxes[0, place : place + 1]], [(96, 128)])
        torch.testing.assert_close(
            model.roi_heads.box_head(pooled)[0], features[0, place], rtol=1e-4, atol=1e-4
        )


@torch.inference_mode()
def test_what_is_beside_a_picture_in_its_frame_does_not_matter(detector):
    frame = torch.full((1, 3, 128, 160), 255, dtype=torch.uint8)
    frame[..., :96, :128] = noise(1, 3, 96, 128)
    black = torch.zeros_like(frame)
    black[..., :96, :128] = frame[..., :96, :128]
    size = torch.tensor([[96, 128, 480, 640]])
    one, other = detector.features_and_boxes(frame, size), detector.features_and_boxes(black, size)
    assert one[1] is not None and other[1] is not None
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert one[1].amax() > 160 and (one[1] <= torch.tensor([640, 480, 640, 480])).all()  # the file's pixels


@pytest.mark.parametrize("proposals", [0, 1, 20])
@torch.inference_mode()
def test_a_picture_with_fewer_proposals_still_has_36_boxes(detector, proposals):
    detector.network.model.rpn._post_nms_top_n["testing"] = proposals
    features, boxes = detector.features_and_boxes(noise(1, 3, 96, 128), torch.tensor([[96, 128, 96, 128]]))
    assert features.shape == (1, 36, 1024) and features.isfinite().all() and boxes is not None
    whole = (boxes[0] == torch.tensor([0, 0, 128, 96])).all(1)
    assert whole[proposals:].all() and int(whole.sum()) >= 36 - proposals
    if proposals:
        assert not whole[0]


@torch.inference_mode()
def test_boxes_that_overlap_come_after_all_others(detector):
    size = (96, 128)
    boxes = torch.tensor([[0, 0, 50, 50], [1, 0, 50, 50], [60, 60, 90, 90], [0, 1, 50, 50], [5, 5, 5.2, 9]])
    scores, one = torch.tensor([0.9, 0.8, 0.1, 0.7, 1.0]), torch.zeros(5, dtype=torch.long)
    best = detector.network._best(boxes, scores, one, size)
    # The last is too thin to be anything; the second and the fourth are the first again.
    assert torch.equal(best[:4], boxes[[0, 2, 1, 3]])
    assert (best[4:] == torch.tensor([0, 0, 128, 96])).all()
    two = detector.network._best(boxes, scores, torch.tensor([0, 1, 0, 0, 0]), size)
    assert torch.equal(two[:4], boxes[[0, 1, 2, 3]])  # another thing at the same place


def test_a_detector_sees_pictures_in_their_proportions(detector, tmp_path):
    Image.fromarray(noise(60, 80, 3).numpy()).save(tmp_path / "wide.png")
    pixels, shape = detector.decode(tmp_path / "wide.png")
    assert pixels.shape == (96, 128, 3) and shape == (60, 80)
    Image.fromarray(noise(200, 20, 3).numpy()).save(tmp_path / "tower.png")
    pixels, shape = detector.decode(tmp_path / "tower.png")
    assert pixels.shape == (192, 19, 3) and shape == (200, 20)


@pytest.fixture
def mixed(album):
    """An album with a picture that lies on its side."""
    folder = album(train=6)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    picture = Image.open(folder / "images" / "train0.jpg").convert("RGB")
    picture.resize((120, 40)).save(folder / "images" / "train4.jpg", exif=exif)
    return folder


def test_regions_are_extracted_with_their_boxes(mixed, detector, tmp_path):
    splits = load_karpathy(mixed)
    folder = extract(splits, detector, tmp_path / "features", batch_size=3, device="cpu", dtype="float32")
    assert check_precomp(folder).problems == []
    data = open_precomp(folder)
    assert data.feature_kind == "region" and data.train.pictures.shape == (7, 36, 1024)
    assert data.train.pictures.dtype == np.float32
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["boxes"] is True and meta["kind"] == "region"
    boxes = np.load(folder / "train_boxes.npy")
    assert boxes.shape == (7, 36, 4) and boxes.dtype == np.float32
    assert (boxes[:, :, 2:] > boxes[:, :, :2]).all()
    widths, heights = boxes[:, :, 2].max(1), boxes[:, :, 3].max(1)
    turned = [path.name for path in splits["train"].files].index("train4.jpg")
    assert widths[turned] <= 40 and 60 < heights[turned] <= 120  # upright
    others = np.arange(7) != turned
    assert (widths[others] <= 80).all() and (heights[others] <= 60).all()


def test_published_weights_of_a_detector_hold_no_code_and_get_their_epsilon(weights, tmp_path, monkeypatch):
    url = torchvision.models.get_model_weights(NAME[12:]).DEFAULT.url
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    path.parent.mkdir(parents=True)
    torch.save({"weight": print}, path)
    with pytest.raises(ValueError, match="cannot be read as weights"):
        load_backbone(NAME)
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(2))
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    _use_published_epsilon(model, "fasterrcnn_resnet50_fpn", weights, f"https://x/y-{digest[:8]}.pth")
    assert model[0].eps == 0
