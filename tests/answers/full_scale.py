"""Answers to the exercises of notebook 18: right ones, and typical mistakes."""

import random

import numpy as np
import torch


def right_order(seed, epoch, count):
    return np.random.default_rng([seed, epoch]).permutation(count)


def order_by_torch(seed, epoch, count):
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(count, generator=generator)


def order_by_python(seed, epoch, count):
    rows = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(rows)
    return rows


shared = np.random.default_rng(0)


def stateful_order(seed, epoch, count):
    return shared.permutation(count)


def with_replacement(seed, epoch, count):
    return np.random.default_rng([seed, epoch]).integers(count, size=count)


def same_every_epoch(seed, epoch, count):
    return np.random.default_rng(seed).permutation(count)


def same_every_seed(seed, epoch, count):
    return np.random.default_rng(epoch).permutation(count)


def summed_order(seed, epoch, count):
    return np.random.default_rng(seed + epoch).permutation(count)


def unshuffled(seed, epoch, count):
    return range(count)


def too_few(seed, epoch, count):
    return np.random.default_rng([seed, epoch]).permutation(count - 1)


def right_cache(towers, inputs, loss, size):
    with torch.no_grad():
        embedded = [
            torch.cat([tower(part) for part in x.split(size)])
            for tower, x in zip(towers, inputs, strict=True)
        ]
    embedded = [vectors.requires_grad_() for vectors in embedded]
    value = loss(*embedded)
    value.backward()
    for tower, x, vectors in zip(towers, inputs, embedded, strict=True):
        for part, pull in zip(x.split(size), vectors.grad.split(size), strict=True):
            tower(part).backward(pull)
    return value.item()


def cache_by_product(towers, inputs, loss, size):
    with torch.no_grad():
        v, t = (torch.cat([f(part) for part in x.split(size)]) for f, x in zip(towers, inputs, strict=True))
    v, t = v.clone().requires_grad_(), t.clone().requires_grad_()
    value = loss(v, t)
    pulls = torch.autograd.grad(value, (v, t))
    for f, x, pull in zip(towers, inputs, pulls, strict=True):
        for first in range(0, len(x), size):
            rows = slice(first, first + size)
            (f(x[rows]) * pull[rows]).sum().backward()
    return float(value)


def cache_by_detaching(towers, inputs, loss, size):
    embedded = []
    for tower, x in zip(towers, inputs, strict=True):
        with torch.inference_mode():
            parts = [tower(x[first : first + size]) for first in range(0, len(x), size)]
        embedded.append(torch.cat(parts).clone().requires_grad_())
    value = loss(*embedded)
    for side, pull in enumerate(torch.autograd.grad(value, embedded)):
        for x, rows in zip(inputs[side].split(size), pull.split(size), strict=True):
            torch.autograd.backward(towers[side](x), rows)
    return value.detach().item()


def small_batches(towers, inputs, loss, size):
    total, count = 0.0, len(inputs[0]) / size
    for x, y in zip(inputs[0].split(size), inputs[1].split(size), strict=True):
        value = loss(towers[0](x), towers[1](y)) / count
        value.backward()
        total += value.item()
    return total


def whole_batch(towers, inputs, loss, size):
    value = loss(towers[0](inputs[0]), towers[1](inputs[1]))
    value.backward()
    return value.item()


def first_pass_only(towers, inputs, loss, size):
    with torch.no_grad():
        value = loss(towers[0](inputs[0]), towers[1](inputs[1]))
    return value.item()


def graph_of_everything(towers, inputs, loss, size):
    embedded = [
        torch.cat([tower(part) for part in x.split(size)]) for tower, x in zip(towers, inputs, strict=True)
    ]
    value = loss(*embedded)
    value.backward()
    return value.item()


def pictures_alone(towers, inputs, loss, size):
    with torch.no_grad():
        v, t = (torch.cat([f(part) for part in x.split(size)]) for f, x in zip(towers, inputs, strict=True))
    v.requires_grad_()
    value = loss(v, t)
    value.backward()
    for part, pull in zip(inputs[0].split(size), v.grad.split(size), strict=True):
        towers[0](part).backward(pull)
    return value.item()


def captions_alone(towers, inputs, loss, size):
    with torch.no_grad():
        v, t = (torch.cat([f(part) for part in x.split(size)]) for f, x in zip(towers, inputs, strict=True))
    t.requires_grad_()
    value = loss(v, t)
    value.backward()
    for part, pull in zip(inputs[1].split(size), t.grad.split(size), strict=True):
        towers[1](part).backward(pull)
    return value.item()


def first_rows_again(towers, inputs, loss, size):
    with torch.no_grad():
        v, t = (torch.cat([f(part) for part in x.split(size)]) for f, x in zip(towers, inputs, strict=True))
    v.requires_grad_()
    t.requires_grad_()
    value = loss(v, t)
    value.backward()
    for f, x, vectors in ((towers[0], inputs[0], v), (towers[1], inputs[1], t)):
        for part in x.split(size):
            f(part).backward(vectors.grad[: len(part)])
    return value.item()


def right_return(gradients, rank):
    own = gradients.shape[1] // len(gradients)
    return gradients.sum(0)[rank * own : (rank + 1) * own]


def return_by_chunk(gradients, rank):
    return sum(one.chunk(len(gradients))[rank] for one in gradients)


def return_by_view(gradients, rank):
    processes, rows, width = gradients.shape
    return torch.einsum("pqnd->qnd", gradients.view(processes, processes, rows // processes, width))[rank]


def only_own(gradients, rank):
    return gradients[rank].chunk(len(gradients))[rank]


def mean_of_all(gradients, rank):
    return gradients.mean(0).chunk(len(gradients))[rank]


def everybodys(gradients, rank):
    return gradients.sum(0)


def the_others_rows(gradients, rank):
    return gradients.sum(0).chunk(len(gradients))[rank - 1]


def for_two_alone(gradients, rank):
    own = gradients.shape[1] // 2
    return gradients.sum(0)[rank * own : (rank + 1) * own]


BYTES = 123_287 * 36 * 2048 * 2 / 1e9
RIGHT = {
    "18.bytes": [BYTES, 18.2, torch.tensor(18.18)],
    "18.steps": [25 * (5 * 113_287 // 128), 110_625.0, torch.tensor(110_625)],
    "18.plan": ["within 10 %", "within a factor of two", "further off"],
    "18.order": [right_order, order_by_torch, order_by_python],
    "18.break": [3 / 16, 0.1875, torch.tensor(0.25 * 0.75)],
    "18.share": [1 - 63 / 1023, 0.938, torch.tensor(960 / 1023)],
    "18.cache": [right_cache, cache_by_product, cache_by_detaching],
    "18.gather": [right_return, return_by_chunk, return_by_view],
    "18.explore": [
        ("Parts of 128 miss less than parts of 32", "the cosine is 0.97 against 0.92"),
        ("a longer part is always nearer", "it was nearer for each size that I tried"),
        ("no difference is expected", "the two cosines differ in the second digit"),
    ],
}
WRONG = {
    "18.bytes": [BYTES * 1e9, 2 * BYTES, BYTES / 2, 8 * BYTES, 16.7, 16.93, 5 * BYTES, 10, -1],
    "18.steps": [4425, 22_125, 110_650, 110_631, 25 * (5 * 123_287 // 128), 110_625.5, 3],
    "18.plan": ["10 %", "soon", 3, ""],
    "18.order": [
        stateful_order,
        with_replacement,
        same_every_epoch,
        same_every_seed,
        summed_order,
        unshuffled,
        too_few,
    ],
    "18.break": [0.25, 1 / 16, 9 / 16, 0, 18.75, 0.2],
    "18.share": [63 / 1023, 1 / 16, 15 / 16, 93.8, 0.5, 2],
    "18.cache": [
        small_batches,
        whole_batch,
        first_pass_only,
        graph_of_everything,
        pictures_alone,
        captions_alone,
        first_rows_again,
    ],
    "18.gather": [only_own, mean_of_all, everybodys, the_others_rows, for_two_alone],
    "18.explore": ["nearer", ("more", "0.97 against 0.92"), ("parts of 128 are nearer", "yes"), 5],
}
