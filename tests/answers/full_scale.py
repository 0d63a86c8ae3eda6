"""Answers to the exercises of notebook 18, written differently from the references."""

import random

import torch


def order_by_torch(seed, epoch, count):
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(count, generator=generator)


def order_by_python(seed, epoch, count):
    rows = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(rows)
    return rows


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


def return_by_chunk(gradients, rank):
    return sum(one.chunk(len(gradients))[rank] for one in gradients)


def return_by_view(gradients, rank):
    processes, rows, width = gradients.shape
    return torch.einsum("pqnd->qnd", gradients.view(processes, processes, rows // processes, width))[rank]


RIGHT = {
    "18.order": [order_by_torch, order_by_python],
    "18.cache": [cache_by_product, cache_by_detaching],
    "18.gather": [return_by_chunk, return_by_view],
}
