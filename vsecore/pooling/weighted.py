"""Poolers whose weights depend on the values: SoftPool, AdaPool, LIP and attention."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsecore.arguments import Count, check_heads, checked
from vsecore.masking import checked_elements, count_real, softmax_over_real, widened, without_padding
from vsecore.pooling.basic import MeanPool


class SoftPool(nn.Module):
    """Each dimension's values weighed by their own softmax: a soft maximum with a gradient for every element.

    It has no weights of its own. Large values count more, and the further apart the values are, the closer
    the result is to `MaxPool`. AdPool's embedding level is the same formula (Zhang et al. 2022, eq. 4).

    Source: Stergiou et al. 2021 (SoftPool), over the whole set instead of a window of cells.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        x = checked_elements(x, mask)
        return (softmax_over_real(x, mask) * x).sum(1)  # (B, D)


class AdaPool(nn.Module):
    """A mixture of a soft mean and a soft maximum, in a learned proportion.

    The soft mean weighs each value by how near it is to the dimension's mean m: by the softmax of the Dice
    coefficient 2·x·m / (x² + m²), which is 1 at m and -1 at -m. The soft maximum is `SoftPool`. The share of
    the soft mean is the sigmoid of `beta`, which starts at one half.

    Source: Stergiou and Poppe 2021 (AdaPool), over the whole set instead of a window of cells, and so with
    one share. Their code clamps the share to [0, 1], where its gradient vanishes, and negative results to 0,
    because it expects to follow a ReLU; neither is done here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        x = checked_elements(x, mask)
        wide = widened(x)  # squares in half precision vanish
        mean = wide.sum(1, keepdim=True) / count_real(x, mask).view(-1, 1, 1)  # (B, 1, D)
        size = wide.square() + mean.square()  # (B, N, D)
        dice = 2 * wide * mean / torch.where(size == 0, 1, size)  # (B, N, D)   of 0 and 0 it is 0
        soft_mean = (softmax_over_real(dice, mask) * wide).sum(1)  # (B, D)
        soft_maximum = (softmax_over_real(wide, mask) * wide).sum(1)  # (B, D)
        return torch.lerp(soft_maximum, soft_mean, self.beta.to(wide.dtype).sigmoid()).to(x.dtype)  # (B, D)


class LIPPool(nn.Module):
    """Local importance pooling: a small network decides how much each value of each element counts.

    The weights are exp(G(x)) divided by their sum. G is a linear layer, normalised over the elements in each
    dimension, then squeezed between 0 and 12, so that no element counts more than e¹² times another. At the
    start of training it equals `MeanPool`.

    Args:
        dim: width D of the elements.

    Source: Gao et al. 2019 (LIP), in the released code's simplified form, over the whole set instead of a
    window. Its 3×3 convolution becomes a linear layer, because the elements of a set have no neighbours.
    """

    STEEPNESS = 12.0

    @checked
    def __init__(self, dim: Count) -> None:
        super().__init__()
        self.dim = dim
        self.importance = nn.Linear(dim, dim, bias=False)
        self.scale = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim))
        nn.init.zeros_(self.importance.weight)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        x = checked_elements(x, mask, self.dim)
        logits = widened(self.importance(x))  # (B, N, D)    0 at the padding
        count = count_real(x, mask).view(-1, 1, 1)
        centred = without_padding(logits - logits.sum(1, keepdim=True) / count, mask)
        variance = centred.square().sum(1, keepdim=True) / count  # (B, 1, D)
        normal = centred * (variance + 1e-5).rsqrt() * self.scale + self.shift  # (B, N, D)
        weights = softmax_over_real(self.STEEPNESS * normal.sigmoid(), mask)  # (B, N, D)
        return (weights.to(x.dtype) * x).sum(1)  # (B, D)


class SelfAttentionPool(nn.Module):
    """One weight for each element, from comparing it with the mean of all.

    Each of the two goes through a layer of its own, and the results are multiplied. A last layer turns the
    product into one number for each element, and a softmax turns these numbers into weights.

    Args:
        dim: width D of the elements.

    Source: Wang et al. 2020 (CVSE), the attention over one kind of input in the released code, without its
    dropout and without its batch normalisation, which would mix the sets of a batch.
    """

    @checked
    def __init__(self, dim: Count) -> None:
        super().__init__()
        self.dim = dim
        self.element = nn.Linear(dim, dim)
        self.memory = nn.Linear(dim, dim)
        self.score = nn.Linear(dim, 1)
        self.mean = MeanPool()

    def weights(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The weight of each element, (B, N); they add up to 1, and padding has 0."""
        x = checked_elements(x, mask, self.dim)
        memory = self.memory(self.mean(x, mask)).tanh().unsqueeze(1)  # (B, 1, D)
        scores = self.score(self.element(x).tanh() * memory)  # (B, N, 1)
        return softmax_over_real(scores, mask).squeeze(-1)  # (B, N)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        weights = self.weights(x, mask)  # (B, N)
        return (weights.unsqueeze(1) @ without_padding(x, mask)).squeeze(1)  # (B, D)


class AttentionPool(nn.Module):
    """Several heads each ask the set one learned question, and weigh the elements by how well they answer.

    A head compares its question with a key of each element; a softmax of the scaled products gives the
    weights, and the head's answer is the weighted mean of the elements' values. A last layer joins the heads'
    answers.

    Args:
        dim: width D of the elements.
        heads: how many questions, a divisor of D.

    Source: Radford et al. 2021 (CLIP), section 2.4, whose question is the mean of the elements; Lee et al.
    2019 (Set Transformer), section 3.2, whose question is learned, as here. CLIP adds positions to the cells
    of its grid. The elements of a set have none.
    """

    @checked
    def __init__(self, dim: Count, heads: Count = 8) -> None:
        super().__init__()
        check_heads(heads, dim)
        self.dim = dim
        self.heads = heads
        self.question = nn.Parameter(torch.randn(heads, dim // heads))
        self.key = nn.Linear(dim, dim, bias=False)  # a bias would change no weight
        self.value = nn.Linear(dim, dim)
        self.joined = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool (B, N, D) to (B, D)."""
        x = checked_elements(x, mask, self.dim)
        keys, values = (  # (B, H, N, D/H)
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.key, self.value)
        )
        questions = self.question.to(keys.dtype).view(1, self.heads, 1, -1).expand(len(x), -1, -1, -1)
        real = None if mask is None else mask[:, None, None, :]  # (B, 1, 1, N)
        answers = functional.scaled_dot_product_attention(questions, keys, values, real)  # (B, H, 1, D/H)
        return self.joined(answers.reshape(len(x), self.dim))
