"""SGRAF: a picture and a caption are compared by many small vectors, from which a score is learned.

The similarity vector of two vectors x and y says how they differ, dimension by dimension: the unit vector of
W (x - y)². A pair has one for each word, compared with what the word reads from the picture (SCAN's attention
from text to image), and one for the whole picture and the whole caption. These *alignments* are the nodes
that two modules bring together: a graph reasons over them (SGR), or a gate filters them (SAF).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, pad
from torch.utils.checkpoint import checkpoint

from vsecore.arguments import Count, Share, checked
from vsecore.embedding import Embedding, unit
from vsecore.masking import softmax_over_real
from vsecore.normalisation import ElementNorm, projection
from vsecore.similarity.base import Similarity, check_rows
from vsecore.similarity.fragments import MEMORY, Fragments, by_length, of_elements

SMOOTH, NEGATIVE_SLOPE = 9.0, 0.1
"""SCAN's attention from text to image, as in the released code."""


class _Whole(nn.Module):
    """Pools elements to one unit vector; each has a weight by how it goes with their mean."""

    def __init__(self, dim: int, dropout: float, norms: bool) -> None:
        super().__init__()
        self.local, self.mean, self.weight = projection(dim, dim), projection(dim, dim), projection(dim, 1)
        self.local_norm, self.mean_norm = (ElementNorm(dim) if norms else None for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, side: Fragments) -> Tensor:
        x, mask = side.elements, side.mask  # (B, N, D), (B, N)
        count = x.shape[1] if mask is None else mask.sum(1).view(-1, 1, 1)
        local, mean = self.local(x), self.mean(x.sum(1, keepdim=True) / count)  # (B, N, D), (B, 1, D)
        if self.local_norm is not None and self.mean_norm is not None:
            local, mean = self.local_norm(local, mask), self.mean_norm(mean)
        both = self.dropout(local.tanh()) * self.dropout(mean.tanh())
        return unit((softmax_over_real(self.weight(both), mask) * x).sum(1))  # (B, D)


class _Alignments(Similarity):
    """What both modules share: the alignments of all pairs, in blocks of captions."""

    reads = "elements"

    def __init__(self, dim: int, width: int | None, dropout: float) -> None:
        super().__init__()
        self.width = width = width or max(1, dim // 4)
        self.picture = _Whole(dim, dropout, norms=True)
        self.caption = _Whole(dim, dropout, norms=False)
        self.of_words, self.of_wholes = (projection(dim, width) for _ in range(2))
        self.score = projection(width, 1)

    def combine(self, nodes: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Make one vector (K, Q, M) of a pair's alignments, (K, Q, 1 + L, M): of the whole, then of words.

        The mask is (Q, 1 + L). In training, what is to be averaged over captions is returned too, if
        anything.
        """
        raise NotImplementedError

    def forward(self, v: Embedding, t: Embedding) -> Tensor:
        dtype = self.score.weight.dtype
        pictures, captions = (Fragments(side.elements.to(dtype), side.mask) for side in of_elements(v, t))
        with torch.autocast(pictures.elements.device.type, enabled=False):
            return self._compare(pictures, captions)

    def pairs(self, v: Embedding, t: Embedding) -> Tensor:
        check_rows(v, t)
        return self(v, t).diagonal()  # in training, a pair alone would be normalised by itself

    def _compare(self, pictures: Fragments, captions: Fragments) -> Tensor:
        (k, _, dim), q = pictures.elements.shape, len(captions.elements)
        if not k or not q:
            return pictures.elements.new_zeros(k, q)
        limits = MEMORY.get(pictures.elements.device.type, MEMORY["cpu"])
        groups, place = by_length(captions)
        word = k * dim * pictures.elements.element_size()  # bytes of what one word reads from all pictures
        words = sum(group.elements.shape[:2].numel() for group in groups)
        again = torch.is_grad_enabled() and words * word > limits.kept
        whole, scores, found = self.picture(pictures), [], []
        for part in (part for group in groups for part in group.split(max(1, limits.block // word))):
            given = (pictures, whole, part, self.caption(part))
            block, means = (
                checkpoint(self._block, *given, use_reentrant=False) if again else self._block(*given)
            )
            scores.append(block)
            found.append(means)
        self.average(found)
        joint = torch.cat(scores, 1)
        return joint if place is None else joint[:, place]

    def average(self, found: list[Tensor | None]) -> None:
        """Take note of what `combine` found in each block; here of nothing."""

    def _block(
        self, pictures: Fragments, whole: Tensor, captions: Fragments, caption: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        regions, words, real = pictures.elements, captions.elements, captions.mask
        affinities = leaky_relu(torch.einsum("ksd,qld->kqsl", regions, words), NEGATIVE_SLOPE)
        logits = SMOOTH * unit(affinities)  # (K, Q, S, L)   each region's affinities over their norm
        if pictures.mask is not None:
            logits = logits.masked_fill(~pictures.mask[:, None, :, None], -torch.inf)
        attended = unit(torch.einsum("kqsl,ksd->kqld", logits.softmax(2), regions))  # (K, Q, L, D)
        by_word = unit(self.of_words((attended - words).square()))  # (K, Q, L, M)
        by_whole = unit(self.of_wholes((whole.unsqueeze(1) - caption).square()))  # (K, Q, M)
        nodes = torch.cat([by_whole.unsqueeze(2), by_word], 2)
        if real is None:
            real = words.new_ones(words.shape[:2], dtype=torch.bool)
        vectors, means = self.combine(nodes, pad(real, (1, 0), value=True))
        return self.score(vectors).squeeze(2).sigmoid(), means  # (K, Q)


class GraphReasoning(_Alignments):
    """SGR: the alignments of a pair are the nodes of a graph, and each step lets all of them read all others.

    Args:
        dim: width D of the elements.
        width: width M of the alignments; None: a quarter of D, as in the paper.
        steps: how often the nodes read each other; each step has its own weights.
        dropout: of what weighs the elements of a whole picture or caption.

    Source: Diao et al. 2021 (SGRAF), equations 1 to 7; the weights of each step and the dropout from its
    released code.
    """

    @checked
    def __init__(
        self, dim: Count, width: Count | None = None, steps: Count = 3, dropout: Share = 0.4
    ) -> None:
        super().__init__(dim, width, dropout)
        self.query, self.key, self.value = (
            nn.ModuleList(projection(self.width, self.width) for _ in range(steps)) for _ in range(3)
        )

    def combine(self, nodes: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        for query, key, value in zip(self.query, self.key, self.value, strict=True):
            edges = query(nodes) @ key(nodes).mT  # (K, Q, 1 + L, 1 + L)
            edges = edges.masked_fill(~mask[:, None], -torch.inf).softmax(3)
            nodes = value(edges @ nodes).relu()
        return nodes[:, :, 0], None


class AttentionFiltration(_Alignments):
    """SAF: a gate weighs the alignments of a pair, so that words without a counterpart count little.

    The gate is a sigmoid of a number that is normalised over a batch: in training, for each caption by its
    words and all pictures, as the released code does.

    Args:
        dim, width, dropout: as for `GraphReasoning`.

    Source: Diao et al. 2021 (SGRAF), equations 1 to 4, 8 and 9; the dropout from its released code.
    """

    @checked
    def __init__(self, dim: Count, width: Count | None = None, dropout: Share = 0.4) -> None:
        super().__init__(dim, width, dropout)
        self.gate, self.norm = projection(self.width, 1), ElementNorm(1)

    def combine(self, nodes: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        logits, norm, found = self.gate(nodes).squeeze(3), self.norm, None  # (K, Q, 1 + L)
        mean, variance = norm.running_mean, norm.running_var
        if self.training:
            count = len(logits) * mask.sum(1, keepdim=True)  # (Q, 1)
            mean = torch.where(mask, logits, 0).sum((0, 2)).unsqueeze(1) / count
            variance = torch.where(mask, (logits - mean).square(), 0).sum((0, 2)).unsqueeze(1) / count
            found = torch.cat([mean, variance * count / (count - 1)], 1).detach()  # (Q, 2)
        normal = (logits - mean) * (variance + norm.eps).rsqrt() * norm.weight + norm.bias
        weights = torch.where(mask, normal.sigmoid(), 0)
        return unit((weights.unsqueeze(2) @ nodes).squeeze(2)), found

    def average(self, found: list[Tensor | None]) -> None:
        """Move the running averages by this batch's mean over captions."""
        if seen := [one for one in found if one is not None]:
            self.norm.track(*torch.cat(seen).mean(0))
