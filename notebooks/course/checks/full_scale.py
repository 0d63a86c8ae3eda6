"""The exercises of notebook 18, *Full scale*."""

import weakref
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from course.checks.comparing import between, equals, holds, like, passed, same, shape
from course.checks.kinds import break_it, code, compute, explore, predict
from course.checks.samples import normal
from vsecore import similarity

PICTURES, ALL = 113_287, 123_287  # COCO's, of the training split and of all three
GIGABYTES = ALL * 36 * 2048 * 2 / 1e9
STEPS = 5 * PICTURES // 128

BYTES = {
    "Answer in GB, billions of bytes: it is more than one and less than a thousand.": between(1, 1000),
    "Multiply: pictures of all three splits, regions of each, numbers of each, bytes of each.": equals(
        GIGABYTES, 0.02 * GIGABYTES
    ),
    "Those are bytes. A GB is a billion of them.": 1e9 * GIGABYTES,
    "That is single precision: a number in half precision takes two bytes.": 2 * GIGABYTES,
    "That is the training split alone. The other pictures have features too.": GIGABYTES / ALL * PICTURES,
    "Those are GiB, of 2 to the 30 bytes. A GB has a billion.": 1e9 / 2**30 * GIGABYTES,
    "A picture's features are stored once, not once for each of its five captions.": 5 * GIGABYTES,
    "Right. The ten thousand pictures that only measure are a small part of it.": passed,
}

COUNT = {
    "Steps are counted: the answer is a whole number.": holds(
        lambda answer: float(answer) == int(answer) and int(answer) > 0
    ),
    "How many captions are trained on, how many full batches do they make, and how many epochs are "
    "there?": equals(25 * STEPS),
    "That is one epoch. The exercise asks for 25.": like(STEPS, 5 * PICTURES / 128, tolerance=0.1),
    "You counted pictures. A batch is made of captions, each with its picture.": 25 * (PICTURES // 128),
    "The last batch of each epoch is not full, and it is left out.": like(25 * (STEPS + 1), tolerance=1),
    "What is left over at the end of an epoch is dropped, not carried on to the next. Round down before you "
    "multiply by the epochs.": like(25 * 5 * PICTURES / 128, tolerance=0.99),
    "Only the training split is learned from.": like(25 * (5 * ALL // 128), 25 * (ALL // 128)),
}


def epoch_order(seed, epoch, count):
    return np.random.default_rng([seed, epoch]).permutation(count)


def rows(order, seed, epoch, count=40):
    return [int(row) for row in order(seed, epoch, count)]


FEW_AND_MANY = (*range(17), 32, 64, 100, 128, 1000)
PAIRS = [(seed, epoch) for seed in FEW_AND_MANY for epoch in FEW_AND_MANY if seed * epoch < 3]
"""Seeds and epochs, some of which a sum such as 10 · seed + epoch takes for the same."""

ORDER = {
    "Return `count` row numbers.": holds(
        lambda answer: len(rows(answer, 0, 0)) == 40, wrong=[lambda *given: epoch_order(*given)[:5]]
    ),
    "Each row from 0 to count - 1 must come exactly once.": holds(
        lambda answer: all(sorted(rows(answer, 0, 0, count)) == list(range(count)) for count in (40, 7)),
        wrong=[lambda *given: epoch_order(*given) // 2],
    ),
    "The second call with the same arguments gave another order. Something remembers the first: make a new "
    "generator in each call, from the arguments alone.": holds(
        lambda answer: rows(answer, 0, 3) == rows(answer, 0, 3),
        wrong=[lambda seed, epoch, count: torch.randperm(count)],
    ),
    "Each epoch needs a shuffled order of its own.": holds(
        lambda answer: rows(answer, 0, 0) not in (rows(answer, 0, 1), list(range(40))),
        wrong=[lambda seed, epoch, count: epoch_order(seed, 0, count)],
    ),
    "The order must depend on the seed too.": holds(
        lambda answer: rows(answer, 0, 0) != rows(answer, 1, 0),
        wrong=[lambda seed, epoch, count: epoch_order(0, epoch, count)],
    ),
    "Two pairs of seed and epoch have the same order, such as (0, 1) and (1, 0), or (0, 1000) and (1, 0). "
    "Put both numbers into the generator, not a sum or a product of them.": holds(
        lambda answer: len({tuple(rows(answer, *pair)) for pair in PAIRS}) == len(PAIRS),
        wrong=[
            lambda seed, epoch, count: epoch_order(seed + epoch, 0, count),
            lambda seed, epoch, count: epoch_order(10 * seed + epoch, 0, count),
            lambda seed, epoch, count: epoch_order(1000 * seed + epoch, 0, count),
        ],
    ),
    "Right. It remembers nothing, so it can be entered anywhere.": passed,
}

BREAK = {
    "A share of the captions, as a number between 0 and 1. After the kill only a quarter of the epoch is "
    "left.": between(-1e-6, 0.25 + 1e-6),
    "A caption is never seen if it is in the last quarter of the first order and not in the last quarter of "
    "the second. The two orders know nothing of each other.": equals(3 / 16),
    "That many were not seen before the kill. Some of them come after it.": 0.25,
    "That is the share in the last quarter of both orders. Those are seen, once.": 1 / 16,
    "That would be so if the second order went on where the first stopped. It begins anew.": 0.0,
    "That is in percent: answer with a number between 0 and 1.": 18.75,
    "Right. As many are seen twice, and no message tells you.": passed,
}

SHARE = {
    "A share is a number between 0 and 1.": between(0, 1),
    "Count the wrong captions that a picture meets in a batch of 1,024, and in a part of 64. Give "
    "three digits after the point.": equals(1 - 63 / 1023, 6e-4),
    "That is the share which they do compare.": like(63 / 1023, 1 / 16, tolerance=2e-3),
    "Nearly: its own caption is no negative. Leave it out of both counts.": like(1 - 1 / 16, tolerance=4e-4),
    "That is in percent: answer with a number between 0 and 1.": 93.8,
}


def cached_step(towers, inputs, loss, size):
    sides = list(zip(towers, inputs, strict=True))
    with torch.no_grad():
        embedded = [torch.cat([tower(part) for part in x.split(size)]) for tower, x in sides]
    for vectors in embedded:
        vectors.requires_grad_()
    value = loss(*embedded)
    value.backward()
    for (tower, x), vectors in zip(sides, embedded, strict=True):
        assert vectors.grad is not None
        for part, pull in zip(x.split(size), vectors.grad.split(size), strict=True):
            tower(part).backward(pull)
    return value.item()


def whole_step(towers, inputs, loss, size):
    value = loss(towers[0](inputs[0]), towers[1](inputs[1]))
    value.backward()
    return value.item()


def learned(step, size):
    """A step's loss on six pairs, the weights' gradients, the most rows with a graph at once, and without."""

    class Tower(nn.Linear):
        """A tower of one layer, which remembers how many rows its graphs held at once."""

        alive = with_graph = without = 0

        def forward(self, x):
            vectors = nn.functional.normalize(torch.tanh(super().forward(x)), dim=-1)
            if vectors.requires_grad:
                self.alive += len(x)

                def used(_):
                    freed()

                vectors.register_hook(used)
                freed = weakref.finalize(used, self.freed, len(x))  # once: the graph is used, or dropped
                self.with_graph = max(self.with_graph, self.alive)
            else:
                self.without = max(self.without, len(x))
            return vectors

        def freed(self, rows):
            self.alive -= rows

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        towers = Tower(5, 3).double(), Tower(4, 3).double()
        inputs = torch.randn(6, 5).double(), torch.randn(6, 4).double()

    def loss(v, t):
        """Each picture chooses its caption among all of the batch."""
        return -(4 * v @ t.T).log_softmax(1).diag().mean()

    value = step(towers, inputs, loss, size)
    weights = [weight for tower in towers for weight in tower.parameters()]
    gradients = [[] if weight.grad is None else weight.grad.flatten().tolist() for weight in weights]
    most = [max(getattr(tower, rows) for tower in towers) for rows in ("with_graph", "without")]
    return value, gradients, *most


CACHE = {
    "With one part that holds everything, the loss must be that of the whole batch, as a plain number.": same(
        size=6, by=lambda made: (isinstance(made[0], float), made[0]), tolerance=1e-4
    ),
    "In several parts, the loss must still be that of the whole batch, with all its negatives: embed all "
    "parts, join them, and then compute one loss.": same(by=0, tolerance=1e-4),
    "Some weights have no gradient. Embed each part once more, with a graph, and go backward from it.": same(
        by=lambda made: list(map(bool, made[1]))
    ),
    "The gradient is not that of the whole batch. Give each part its own rows of the gradient at the "
    "embeddings: `vectors.backward(rows)`.": same(size=3, by=1, tolerance=1e-8),
    "It is right where all parts are equal, and wrong where the last one is smaller: `split` both, the "
    "inputs and the gradients.": same(size=4, by=1, tolerance=1e-8),
    "The gradient is right, but a tower was given more rows at once than `size`, or kept the graphs of more. "
    "That is the memory that we want to save.": same(size=4, by=lambda made: (made[2] <= 4, made[3] <= 4)),
    "The first pass keeps a graph of the whole batch: put it under `torch.no_grad()`.": like(
        whole_step, when=lambda answer: answer(2)[2] >= 6 and not answer(2)[3]
    ),
    "The second pass keeps the graphs of all parts: go backward from each before you embed the next.": like(
        lambda *given: cached_step(*given) and whole_step(*given),
        when=lambda answer: answer(2)[2] >= 6 and answer(2)[3] == 2,
    ),
    "Right. The same gradient, with a graph of one part at a time.": passed,
}


def returned(gradients, rank):
    own = gradients.shape[1] // len(gradients)
    return gradients.sum(0)[rank * own : (rank + 1) * own]


def arrived(processes=2, own=3, rank=1):
    """Gradients (W, W · n, 2) and the number of a process."""
    generator = torch.Generator().manual_seed(10 * processes + own)
    return torch.randn(processes, processes * own, 2, generator=generator, dtype=torch.float64), rank


GATHER = {
    "Return a gradient for this process's own rows, (n, D).": shape(processes=3, own=4),
    "With one process, its gradient must come back as it is.": same(processes=1, rank=0),
    "All processes have used these rows, and each has a gradient for them. What does the chain rule do with "
    "several uses? And which rows are those of this process?": same({"rank": 0}, {"rank": 1}),
    "It is right for two processes. Work out n from the shape: rows over processes.": same(
        *({"rank": rank} for rank in range(4)), processes=4, own=2
    ),
    "That is only what this process found for its own rows. The other processes compared theirs with "
    "them.": lambda gradients, rank: gradients[rank].chunk(len(gradients))[rank],
    "That is the mean. The chain rule adds; the mean over processes is taken later, of the weights' "
    "gradients.": lambda gradients, rank: returned(gradients, rank) / len(gradients),
    "Right. This is the backward pass of the package's `gather`.": passed,
}


def cross_attention(elements, words):
    """The notebook's cross-attention: (n, N, D) and (L, D) make (n,)."""
    return similarity.cross_attention(
        elements, None, words[None], None, aggregate="mean", negative_slope=0.0
    )[:, 0]


def rerank(quick, elements, words, k):
    candidates = quick.topk(k).indices  # (k,)
    return candidates[cross_attention(elements[candidates], words).argsort(descending=True)]


def looked_at(answer, quick, elements, words, k):
    """The rows that an answer returns, and how many pictures it has given to cross-attention."""
    scope, given = getattr(answer, "__globals__", globals()), []
    real = scope.get("cross_attention", cross_attention)

    def counted(elements, *rest, **named):
        given.append(len(elements))
        return real(elements, *rest, **named)

    with patch.dict(scope, cross_attention=counted):
        return answer(quick, elements, words, k), sum(given)


def query(seed=1, k=4):
    """A query's quick similarities (9,), the pictures' elements (9, 4, 6), its words (3, 6), and k."""
    return *normal((9,), (9, 4, 6), (3, 6), seed=seed), k


RERANK = {
    "Return k row numbers.": same(by=lambda made: len(made[0])),
    "The candidates are the pictures with the highest `quick`, as row numbers of all pictures.": same(
        by=lambda made: made[0].sort().values
    ),
    "The candidates are right. Now order them by cross-attention, the highest score first.": same(by=0),
    "It must be right for every k, from 1 to as many as there are pictures.": same(
        *({"seed": seed, "k": k} for seed, k in ((2, 1), (3, 9), (4, 5))), by=0
    ),
    "The rows are right, but `cross_attention` has seen more than the k candidates. That is the time that we "
    "want to save.": same(by=lambda made: made[1] <= 4),
    "That is the worst first: sort in descending order.": like(
        lambda quick, elements, words, k: rerank(quick, elements, words, k).flip(0), by=0
    ),
    "Those are places among the candidates: use them to look up the candidates' row numbers.": like(
        lambda quick, elements, words, k: cross_attention(elements[quick.topk(k).indices], words).argsort(
            descending=True
        ),
        by=0,
    ),
    "Those are the best of all pictures by cross-attention. Choose the candidates by `quick`.": like(
        lambda quick, elements, words, k: cross_attention(elements, words).topk(k).indices, by=0
    ),
    "Right. Looked at by cross-attention, k pictures cost the same however many there are.": passed,
}

EXERCISES = {
    "18.bytes": compute("What the features take", 5, BYTES, difficulty="easy"),
    "18.steps": compute("How many steps", 5, COUNT, difficulty="easy"),
    "18.plan": predict("How good is a plan?", 2, "within 10 %", "within a factor of two", "further off"),
    "18.order": code("A shuffle that you can resume at any step", 10, ORDER, epoch_order),
    "18.break": break_it("Never seen", 8, BREAK, tolerance=3e-3),
    "18.share": compute("What small batches never compare", 5, SHARE, difficulty="easy"),
    "18.cache": code(
        "A large batch, part by part",
        20,
        CACHE,
        cached_step,
        lambda size=2: (size,),
        difficulty="hard",
        caller=learned,
    ),
    "18.gather": code("The backward pass of a gather", 8, GATHER, returned, arrived),
    "18.rerank": code("Find fast, then look closely", 12, RERANK, rerank, query, caller=looked_at),
    "18.explore": explore("When does a large batch matter?", 15),
}
