"""The regions that a detector finds in a picture, and the features of each.

torchvision's own Faster R-CNN returns boxes, but no features. This module asks the parts of the same network
in turn: where there may be something, what it is, and then what the network sees in the best boxes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import batched_nms, clip_boxes_to_image, remove_small_boxes

REGIONS = 36
"""How many boxes each picture has in the features that the field shares."""


class Detector(nn.Module):
    """The best boxes of each picture by a Faster R-CNN, and the features pooled from each.

    Every proposal keeps its most likely class and the box that the network fits to that class. Its score is
    the probability of the class. Boxes of the same class that overlap too much (`nms_thresh` of the network,
    0.5) are one thing, and the most likely stays. No score is too low: a picture always has `count` boxes.

    If fewer than `count` are left, the best of the overlapping ones come next. If the network has made too
    few proposals even for that, as for a picture without any structure, the whole picture is repeated.

    Args:
        model: torchvision's `FasterRCNN`.
        count: boxes of a picture.

    Source: Ren et al. 2015 (Faster R-CNN); the fixed number of boxes as in Anderson et al. 2018 (bottom-up
    attention), who take features of the proposals, before they are fitted.
    """

    def __init__(self, model: Any, count: int = REGIONS) -> None:
        super().__init__()
        self.model, self.count = model, count

    def forward(self, pictures: Tensor, sizes: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Find the best boxes.

        Args:
            pictures: (B, 3, H, W), normalised, each at the top left, and 0 outside it.
            sizes: height and width of each in there.

        Returns:
            Features (B, count, F), and boxes (B, count, 4): left, top, right and bottom in pixels; both in
            the order of score, best first.
        """
        heads = self.model.roi_heads
        maps = self.model.backbone(pictures)
        proposals, _ = self.model.rpn(ImageList(pictures, sizes), maps)
        logits, offsets = heads.box_predictor(heads.box_head(heads.box_roi_pool(maps, proposals, sizes)))
        fitted = heads.box_coder.decode(offsets, proposals).view(*logits.shape, 4)  # (proposals, classes, 4)
        scores, classes = logits.softmax(-1)[:, 1:].max(-1)  # class 0 is "nothing"
        rows = torch.arange(len(fitted), device=fitted.device)
        counts = [len(some) for some in proposals]
        found = (part.split(counts) for part in (fitted[rows, classes + 1], scores, classes))
        boxes = list(map(self._best, *found, sizes))  # B of (count, 4)
        seen = heads.box_head(heads.box_roi_pool(maps, boxes, sizes))  # (B · count, F)
        return seen.view(len(boxes), self.count, -1), torch.stack(boxes)

    def _best(self, boxes: Tensor, scores: Tensor, classes: Tensor, size: tuple[int, int]) -> Tensor:
        """Return the best boxes of one picture, (count, 4)."""
        boxes = clip_boxes_to_image(boxes, size)
        large = remove_small_boxes(boxes, min_size=1)
        boxes, scores, classes = boxes[large], scores[large], classes[large]
        kept = batched_nms(boxes, scores, classes, self.model.roi_heads.nms_thresh)
        is_kept = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
        is_kept[kept] = True
        order = scores.argsort(descending=True, stable=True)
        best = torch.cat([kept, order[~is_kept[order]]])[: self.count]
        height, width = size
        whole = boxes.new_tensor([[0, 0, width, height]]).expand(self.count - len(best), 4)
        return torch.cat([boxes[best], whole])
