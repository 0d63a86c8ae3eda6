"""A step of training with everything that any loss reads, small and without encoders."""

import torch

from vsecore.embedding import Embedding
from vsecore.losses import LOSSES, Step
from vsecore.similarity import Cosine

DIM, TARGET, WORDS = 3, 5, 11
SIBLINGS = [0, 1, 0, 3, 1]
"""The pictures of a batch of pairs in which two of them occur twice."""
SMALL = {
    "captioning": {"hidden": 4, "word_dim": 3, "drop": 0.0},
    "input_target": {"word_dim": 3},
    "node_pooling": {"pools": 2},
    "soft_contrastive": {"scale": 2.0, "shift": 1.0, "samples": 3},
}


def build(name, **options):
    """A loss at the small scale, in float64, with the same weights each time."""
    torch.manual_seed(0)
    context = {"dim": DIM, "target_dim": TARGET, "vocabulary_size": WORDS}
    return LOSSES.build(name, SMALL.get(name, {}) | options, **context)


def a_step(rows=SIBLINGS, owners=None, seed=0, epoch=5, dtype=torch.float64, device="cpu", sets=False):
    """A step of pictures `rows`, and of captions that belong to the pictures `owners`; None: to these."""
    owners = rows if owners is None else owners
    torch.manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64, device=device).to(dtype)

    def side(count, width):
        lengths = torch.arange(count, device=device) % width + 1
        mask = torch.arange(width, device=device) < lengths[:, None]
        extra = {"slots": drawn(count, 2, DIM), "log_variance": 0.1 * drawn(count, DIM)}
        return Embedding(drawn(count, *([2] if sets else []), DIM), drawn(count, width, DIM), mask, extra)

    v, t = side(len(rows), 3), side(len(owners), 4)
    offline = tuple((side(len(owners), 3), side(len(owners), 4)) for _ in range(2))
    positives = torch.tensor(rows, device=device)[:, None] == torch.tensor(owners, device=device)[None]
    scores = 0.5 * drawn(len(rows), len(owners)).clamp(-2, 2)
    tokens = torch.randint(WORDS, (len(owners), 4), device=device)
    targets = drawn(len(owners), TARGET)
    mask = torch.arange(4, device=device) < torch.arange(len(owners), device=device)[:, None] % 3 + 2
    return Step(scores, positives, v, t, offline, targets, None, Cosine(), epoch, tokens, mask)


def step_of_scores(scores, positives=None):
    """A step of which a loss reads the scores alone; without positives it is of pairs."""
    positives = torch.eye(len(scores), dtype=torch.bool) if positives is None else positives
    return Step(scores, positives, Embedding(None), Embedding(None), (), None, None, Cosine(), 0)
