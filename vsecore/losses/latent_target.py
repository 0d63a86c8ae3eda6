"""Decode what a sentence encoder makes of the caption, so that a caption's vector must keep all it says."""

from typing import Annotated, Any

from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from vsecore.arguments import Count, Positive, Shape, checked
from vsecore.losses.lagrange import Constraint
from vsecore.losses.step import Loss, Step
from vsecore.masking import promoted

Targets = Annotated[Tensor, Shape("C T")]


@checked
def reconstruction_loss(pred: Targets, target: Targets) -> Tensor:
    """Cosine distance of each prediction to its target: 0 if they point the same way, 1 at right angles.

    Args:
        pred: predicted vectors, (C, T).
        target: the vectors to predict, (C, T).

    Returns:
        The mean of 1 - cosine over the captions, a scalar from 0 to 2, in float32 at least.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), equation 6.
    """
    return (1 - cosine_similarity(*promoted(pred, target), dim=1)).mean()


class LatentTargetDecoder(nn.Module):
    """Three linear layers with ReLU between them, without biases: from a caption's vector to its target.

    Unlike a decoder of words, it sees nothing but the vector: what the vector does not keep, it cannot
    predict.

    Args:
        dim: width D of the caption's vector.
        target_dim: width T of the target.
        hidden: width of the layers between; None: as wide as the vector.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), equation 5. The released code adds biases.
    """

    @checked
    def __init__(self, dim: Count, target_dim: Count, hidden: Count | None = None) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
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
        """Predict the targets, (C, D) to (C, T)."""
        return self.layers(captions)


class LatentTarget(Loss):
    """`reconstruction_loss` of a step: each caption's target from its vector, as a term or a constraint.

    Beside any contrastive loss. The data must have targets (`Split.targets`); the decoder is used in training
    only.

    Args:
        bound: eta, as for `Constraint`; None: the loss is added, times the weight of its part (beta).
        projected: as for `Constraint`.
        multiplier_lr: learning rate of the `LagrangeMultiplier`.
        **options: as for `LatentTargetDecoder`.

    Source: Bleeker, Yates and de Rijke 2023 (LTD), section 3.4.
    """

    reads = ("vectors",)
    constraint: Constraint

    Options = LatentTargetDecoder

    def __init__(
        self,
        bound: Positive | None = None,
        projected: bool = True,
        multiplier_lr: Positive = 5e-3,
        **options: Any,
    ) -> None:
        super().__init__()
        self.decoder = LatentTargetDecoder(**options)
        self.constraint = Constraint(bound, projected, multiplier_lr)

    def forward(self, step: Step) -> Tensor:
        """Return the loss; raise a ValueError if the data has no targets or captions are sets of vectors."""
        if step.targets is None:
            raise ValueError("the step has no targets: the data must have them, see `Split.targets`")
        rec = reconstruction_loss(self.decoder(step.t.needed("vectors")), step.targets)
        return self.constraint(rec)
