"""Losses: which pairs a training step should pull together, and which push apart. One idea per file.

A recipe names a class, a `Loss`: it owns the defaults, reads what it needs from a `Step`, and may hold
parameters or state. Where a function stands beside it, the function takes tensors. All of them refuse an
argument of a wrong shape, type or range, and a picture or caption without a partner (`soft_contrastive` needs
none) or without a real element (on a CPU: on a GPU every step would have to wait), with a `ValueError` that
names it.
"""

from vsecore.losses.adaptive_optimization import (
    AdOpt,
    Rule,
    adopt,
    adopt_k,
    alignment,
    negatives_kept,
    uniformity,
)
from vsecore.losses.captioning import CaptionDecoder, Captioning, captioning_loss
from vsecore.losses.contrastive import InfoNCE, ScaledInfoNCE, SigmoidLoss, info_nce
from vsecore.losses.diversity import GramDiversity, SetDiversity, gram_diversity, set_diversity
from vsecore.losses.hinge import Triplet, triplet
from vsecore.losses.input_target import InputTarget, InputTargetDecoder
from vsecore.losses.lagrange import LagrangeMultiplier
from vsecore.losses.latent_target import LatentTarget, LatentTargetDecoder, reconstruction_loss
from vsecore.losses.maximum_mean_discrepancy import MMD, mmd
from vsecore.losses.node_alignment import (
    NodeCrossAttentionLoss,
    NodePooling,
    NodePoolingLoss,
    node_cross_attention_loss,
    node_pooling_loss,
)
from vsecore.losses.offline import (
    AdaptiveOfflineQuintuplet,
    OfflineQuintuplet,
    OfflineTriplet,
    adaptive_offline_quintuplet,
    offline_quintuplet,
    offline_triplet,
)
from vsecore.losses.probabilistic import SoftContrastive, sample_gaussians, soft_contrastive
from vsecore.losses.step import Loss, Step
from vsecore.registry import Registry

LOSSES = Registry(
    "loss",
    {
        "triplet": Triplet,
        "info_nce": InfoNCE,
        "scaled_info_nce": ScaledInfoNCE,
        "sigmoid": SigmoidLoss,
        "adopt": AdOpt,
        "captioning": Captioning,
        "node_pooling": NodePoolingLoss,
        "node_cross_attention": NodeCrossAttentionLoss,
        "mmd": MMD,
        "diversity": SetDiversity,
        "gram_diversity": GramDiversity,
        "soft_contrastive": SoftContrastive,
        "offline_triplet": OfflineTriplet,
        "offline_quintuplet": OfflineQuintuplet,
        "adaptive_offline_quintuplet": AdaptiveOfflineQuintuplet,
        "latent_target": LatentTarget,
        "input_target": InputTarget,
    },
    context=("dim", "target_dim", "vocabulary_size", "pretrained_scale", "pretrained_bias"),
    base=Loss,
)
"""Every loss by its name in recipes."""

__all__ = [
    "LOSSES",
    *LOSSES.class_names(),
    "CaptionDecoder",
    "InputTargetDecoder",
    "LagrangeMultiplier",
    "LatentTargetDecoder",
    "Loss",
    "NodePooling",
    "Rule",
    "Step",
    "adaptive_offline_quintuplet",
    "adopt",
    "adopt_k",
    "alignment",
    "captioning_loss",
    "gram_diversity",
    "info_nce",
    "mmd",
    "negatives_kept",
    "node_cross_attention_loss",
    "node_pooling_loss",
    "offline_quintuplet",
    "offline_triplet",
    "reconstruction_loss",
    "sample_gaussians",
    "set_diversity",
    "soft_contrastive",
    "triplet",
    "uniformity",
]
