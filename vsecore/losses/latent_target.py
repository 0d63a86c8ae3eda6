"""Decode what a sentence encoder makes of the caption, so that a caption's vector must keep all it says."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from vsecore.losses.lagrange import Constraint
from vsecore.losses.step import Step


def reconstruction_loss(pred: Tensor, target: Tensor) -> Tensor:
    """Cosine distance of each prediction to its target: 0 if they point the same way, 1 at right angles.

    Args:
        pred: predicted vectors, (C, T).
        target: the vectors to predict, (C, T).

    Returns:
        The mean of 1 - cosine over the captions, a scalar from 0 to 2.

    Raises:
        ValueError: the shapes differ, or are not (C, T).

    Source: Bleeker, Yates and de Rijke 2023 (LTD), equation 6.
    """
    if pred.ndim != 2 or not len(pred) or pred.shape != target.shape:
        raise ValueError(
            f"pred has shape {tuple(pred.shape)} and target {tuple(target.shape)}: both must be (C, T), C > 0"
        )
    return (1 - cosine_similarity(pred, target.to(pred.dtype), dim=1)).mean()


class LatentTargetDecoder(nn.Module):
    """Three linear layers with ReLU between them, without biases: from a caption's vector to its target.

    Unlike a decoder of words, it sees nothing but the vector: what the vector does not keep, it cannot
    predict.

    Args:
        dim: width D of the caption's vector.
        target_dim: width T of the target.
        hidden: width of the layers between; None: as wide as the vector.

    Raises:
        ValueError: a width is not a whole number of at least 1.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), equation 5. The released code adds biases.
    """

    def __init__(self, dim: int, target_dim: int, hidden: int | None = None) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        for name, width in (("dim", dim), ("target_dim", target_dim), ("hidden", hidden)):
            if not isinstance(width, int) or isinstance(width, bool) or width < 1:
                raise ValueError(f"{name} is {width!r}: it must be a whole number of at least 1")
        self.dim = dim
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden, bias=False),
            nn.ReLU(),
            nn.Linear(hidden, hidden, bias=False),
            nn.ReLU(),
            nn.Linear(hidden, target_dim, bias=False),
        )
        for weight in self.layers.parameters():
            nn.init.xavier_uniform_(weight)  # as released

    def forward(self, captions: Tensor) -> Tensor:
        """Predict the targets, (C, D) to (C, T).

        Raises:
            ValueError: captions is not (C, D).
        """
        if captions.ndim != 2 or captions.shape[1] != self.dim:
            raise ValueError(f"captions has shape {tuple(captions.shape)}: it must be (C, {self.dim})")
        predicted: Tensor = self.layers(captions)
        return predicted


class LatentTarget(nn.Module):
    """`reconstruction_loss` of a step: each caption's target from its vector, as a term or a constraint.

    Beside any contrastive loss. The data must have targets (`Split.targets`); the decoder is used in training
    only.

    Args:
        dim: width D of the caption's vector.
        target_dim: width T of the targets.
        hidden: width of the decoder's inner layers; None: as wide as the vector.
        bound: eta; None: the loss is added as it is, times the weight of its part (beta).
        projected: see `LagrangeMultiplier`.

    Raises:
        ValueError: an argument is out of its range.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), section 3.4.
    """

    reads = ("vectors",)

    def __init__(
        self,
        dim: int,
        target_dim: int,
        hidden: int | None = None,
        bound: float | None = None,
        projected: bool = True,
    ) -> None:
        super().__init__()
        self.decoder = LatentTargetDecoder(dim, target_dim, hidden)
        self.constraint = Constraint(bound, projected)

    def forward(self, step: Step) -> Tensor:
        """The loss of a step, a scalar.

        Raises:
            ValueError: the step has no targets, or the captions are no single vectors.
        """
        if step.targets is None:
            raise ValueError("the step has no targets: the data must have them, see `Split.targets`")
        if step.t.vectors is None or step.t.vectors.ndim != 2:
            raise ValueError(
                "the captions have no single vectors: a latent target is decoded from one (C, D)"
            )
        rec = reconstruction_loss(self.decoder(step.t.vectors), step.targets)
        weighed: Tensor = self.constraint(rec)
        return weighed
