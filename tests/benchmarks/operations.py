"""What the package's operations cost: each over the plainest work that it cannot do without.

Run as: python tests/benchmarks/operations.py cross_attention|sets|pooling|evaluation [--record]

- cross_attention: SCAN and BFAN on 36 regions and 5 to 20 words, over the bare product of regions and words
  (a training step of 128 pairs: over three products), and a loop over captions that follows the papers.
- sets: similarities of sets of 4 vectors, the cosine of one vector each, and SCAN on a twenty-fifth of the
  pairs, over the bare product of all elements.
- pooling: each pooler on 36 regions and on 577 patches, over the mean; how far our sorting beats torch's.
- evaluation: each metric on 1,000 and 5,000 pictures, over sorting every row and column.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import torch
from harness import Run, benchmark, devices, extra_mb, noise, table, take_turns
from torch import Tensor
from torch.nn.functional import cosine_similarity, leaky_relu, normalize

from vsecore import evaluation
from vsecore.pooling import POOLS, GaussianPool, adpool, build_pool, sort_descending
from vsecore.pooling.set_pools import SetPool
from vsecore.similarity import (
    chamfer,
    cosine,
    cross_attention,
    focal_attention,
    match_probability,
    max_sim,
    mil,
    smooth_chamfer,
)

SHARE = 20.0
"""Seconds after which a task takes no more turns: the graph and the recurrent pool of 577 take a minute."""
FRAGMENTS = {
    "t2i_lse": partial(cross_attention, direction="t2i", smooth=9.0, aggregate="lse", lse=6.0),
    "t2i_mean": partial(cross_attention, direction="t2i", smooth=9.0, aggregate="mean"),
    "i2t_lse": partial(cross_attention, direction="i2t", smooth=4.0, aggregate="lse", lse=5.0),
    "i2t_mean": partial(cross_attention, direction="i2t", smooth=4.0, aggregate="mean"),
    "focal_equal": partial(focal_attention, focus="equal", smooth=20.0),
    "focal_prob": partial(focal_attention, focus="prob", smooth=20.0),
}
SETS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "smooth_chamfer": smooth_chamfer,
    "chamfer": chamfer,
    "mil": mil,
    "match_probability": lambda v, t: match_probability(v, t, 10.0, -5.0),
    "max_sim": max_sim,
}


@dataclass
class Group:
    """Tasks that are compared with one of them, the baseline."""

    place: str
    """How the names of its numbers begin."""
    tasks: dict[str, Run]
    baseline: str
    ratio: str = "over_product"
    """What a task's time over the baseline's is called."""
    times: dict[str, float] = field(default_factory=dict)
    """How many times its own work a task stands for, if it does only a part."""
    only_ratios: bool = False


def product(v: Tensor, t: Tensor, learns: bool = False) -> Run:
    """The bare product of all rows, some at a time: storing the whole would cost more."""

    def run() -> None:
        for part in t.split(1024):
            found = v @ part.T
            if learns:  # the gradient of either side
                found @ part
                found.T @ v

    return run


def scored(function: Callable[..., Tensor], v: Tensor, t: Tensor, learns: bool = False) -> Run:
    """All scores without gradient, or the forward and the backward pass."""

    def run() -> object:
        if not learns:
            with torch.no_grad():
                return function(v, t)
        x, y = v.detach().requires_grad_(), t.detach().requires_grad_()
        return torch.autograd.grad(function(x, y).sum(), (x, y))

    return run


def loop(name: str, v: Tensor, t: Tensor, lengths: list[int]) -> Tensor:
    """One caption after the other with all pictures at once, as the released codes do it."""
    options, columns = FRAGMENTS[name].keywords, []
    v, t = normalize(v, dim=-1), normalize(t, dim=-1)

    def answer(query: Tensor, context: Tensor) -> Tensor:
        affinity = leaky_relu(context @ query.mT, 0.1)  # (B, S, L)
        weights = (options["smooth"] * normalize(affinity, dim=2).mT).softmax(-1)
        if "focus" in options:  # BFAN's second look: what is less relevant than the rest is left out
            trust = weights.sqrt() if options["focus"] == "prob" else torch.ones_like(weights)
            relevance = weights * trust.sum(-1, keepdim=True) - (weights * trust).sum(-1, keepdim=True)
            kept = torch.where(relevance > 0, weights, 0)
            weights = kept / kept.sum(-1, keepdim=True)
        return cosine_similarity(query, weights @ context, dim=-1)  # (B, L)

    for words, length in zip(t, lengths, strict=True):
        caption = words[:length].expand(len(v), -1, -1)  # (B, L, D)
        if "focus" in options:
            columns.append(answer(caption, v).mean(1) + answer(v, caption).mean(1))
            continue
        cosines = answer(caption, v) if options["direction"] == "t2i" else answer(v, caption)
        if options["aggregate"] == "mean":
            columns.append(cosines.mean(1))
        else:
            columns.append((options["lse"] * cosines).logsumexp(1) / options["lse"])
    return torch.stack(columns, 1)


def words_of(captions: int, dim: int, device: str) -> tuple[Tensor, Tensor, list[int]]:
    """Captions of 5 to 20 words: (C, 20, D), their mask, and their lengths."""
    lengths = torch.randint(5, 21, (captions,), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(20) < lengths[:, None]
    return noise(captions, 20, dim, device=device), mask.to(device), lengths.tolist()


def fragments(options: Namespace, device: str) -> Iterator[Group]:
    """Scores of all pairs, and a training step of 128."""
    for kind, pictures, captions in (("scores", options.pictures, options.captions), ("step", 128, 128)):
        learns = kind == "step"
        v = noise(pictures, 36, options.dim, seed=1, device=device)
        t, mask, lengths = words_of(captions, options.dim, device)
        tasks = {"product": product(v.flatten(0, 1), t[mask], learns)}
        for name, function in FRAGMENTS.items():
            ours = lambda x, y, function=function, mask=mask: function(x, None, y, mask)  # noqa: E731
            looped = lambda x, y, name=name, lengths=lengths: loop(name, x, y, lengths)  # noqa: E731
            few = loop(name, v[:4], t[:20], lengths[:20])
            torch.testing.assert_close(function(v[:4], None, t[:20], mask[:20]), few, rtol=1e-3, atol=1e-3)
            tasks[name] = scored(ours, v, t, learns)
            tasks[f"{name}_loop"] = scored(looped, v, t, learns)
        yield Group(f"{device}_{kind}", tasks, "product")


def sets(options: Namespace, device: str) -> Iterator[Group]:
    """Scores of all pairs, and a training step of smooth-Chamfer."""
    v = noise(options.pictures, 4, options.dim, seed=1, device=device)
    t = noise(options.captions, 4, options.dim, seed=2, device=device)
    regions = noise(max(1, options.pictures // 5), 36, options.dim, device=device)
    words, mask, _ = words_of(max(1, options.captions // 5), options.dim, device)
    more = options.pictures * options.captions / (len(regions) * len(words))
    tasks = {"product": product(v.flatten(0, 1), t.flatten(0, 1))}
    tasks["single_vector"] = scored(cosine, v[:, 0].contiguous(), t[:, 0].contiguous())
    tasks |= {name: scored(function, v, t) for name, function in SETS.items()}
    tasks["scan"] = scored(lambda x, y: cross_attention(x, None, y, mask), regions, words)
    yield Group(device, tasks, "product", times={"scan": more})
    v, t = v[:200], t[:1000]
    step = scored(smooth_chamfer, v, t, learns=True)
    bare = product(v.flatten(0, 1), t.flatten(0, 1), learns=True)
    yield Group(f"{device}_step", {"product": bare, "smooth_chamfer": step}, "product")


def pooling(options: Namespace, device: str) -> Iterator[Group]:
    """Each pooler forward, as in search, and both ways, as in training."""
    for elements in (36, 577):
        x = noise(128, elements, options.dim, device=device)
        runs: dict[str, Callable[[Tensor], Tensor]] = {
            name: build_pool(name, options.dim, **({"k": 5} if name == "kmax" else {})).to(device)
            for name in POOLS
            if not issubclass(POOLS[name], SetPool | GaussianPool)  # type: ignore[arg-type]
        }

        def by_torch(y: Tensor, _: object = None) -> Tensor:
            return y.sort(dim=1, descending=True).values

        def adpool_by_torch(y: Tensor, pool: Callable[[Tensor], Tensor] = runs["adpool"]) -> Tensor:
            with mock.patch.object(adpool, "sort_descending", by_torch):
                return pool(y)

        runs |= {"adpool_on_torch_sort": adpool_by_torch}
        runs |= {"sort_descending": sort_descending, "torch.sort": by_torch}
        assert torch.equal(sort_descending(x), by_torch(x))

        def forward(run: Callable[[Tensor], Tensor], x: Tensor = x) -> object:
            with torch.no_grad():
                return run(x)

        def both(run: Callable[[Tensor], Tensor], x: Tensor = x) -> object:
            return run(x.detach().requires_grad_()).sum().backward()

        for kind, way in (("forward", forward), ("both", both)):
            tasks = {name: partial(way, run) for name, run in runs.items()}
            yield Group(f"{device}_{elements}", tasks, "mean", kind, only_ratios=True)


def metrics(options: Namespace, device: str) -> Iterator[Group]:
    """Ranks and graded metrics from a whole matrix of scores."""

    def by_sorting(scores: Tensor, owner: Tensor) -> object:
        own = torch.arange(len(scores), device=scores.device)[:, None]
        i2t = (owner[scores.argsort(1, descending=True)] == own).int().argmax(1)
        return i2t, (scores.argsort(0, descending=True) == owner).int().argmax(0)

    for pictures in (1000, 5000):
        scores, owner = noise(pictures, 5 * pictures, device=device), torch.arange(5 * pictures) // 5
        own = owner == torch.arange(pictures)[:, None]
        tasks: dict[str, Run] = {
            "by_sorting": partial(by_sorting, scores, owner.to(device)),
            "ranks": partial(evaluation.ranks, scores, owner),
            "evaluate": partial(evaluation.evaluate, scores, owner),
            "evaluate_5_folds": partial(evaluation.evaluate, scores, owner, folds=5),
            "r_precision": partial(evaluation.r_precision, scores, own),
            "map_at_r": partial(evaluation.map_at_r, scores, own),
            "ndcg": partial(evaluation.ndcg, scores, own),
        }
        yield Group(f"{device}_{pictures}", tasks, "by_sorting", "over_sorting")


def compared(groups: Callable[[Namespace, str], Iterator[Group]], options: Namespace) -> dict[str, float]:
    """Measure every group on every device; print a table of each, and return its numbers by name."""
    numbers: dict[str, float] = {}
    for device in devices():
        for group in groups(options, device):
            extra = {name: extra_mb(run, device) for name, run in group.tasks.items()}
            times = take_turns(group.tasks, options.turns, SHARE)
            base, rows = times[group.baseline].medians, []
            for name, taken in times.items():
                clock, processor = (group.times.get(name, 1.0) * seconds for seconds in taken.medians)
                row = {
                    "seconds": clock,
                    group.ratio: clock / base[0],
                    f"processor_{group.ratio}": processor / base[1],
                    "extra_mb": extra[name],
                }
                rows.append({group.place: name, **row})
                kept = row.keys() & {group.ratio} if group.only_ratios else row
                numbers |= {f"{group.place}_{name}_{key}": row[key] for key in kept}
            table(rows)
            for slow, fast in (("torch.sort", "sort_descending"), ("adpool_on_torch_sort", "adpool")):
                if slow in times:
                    gain = times[slow].medians[0] / times[fast].medians[0]
                    numbers[f"{group.place}_{fast}_gain_{group.ratio}"] = gain
            for name in times.keys() & {f"{other}_loop" for other in times}:
                ours, looped = times[name.removesuffix("_loop")].medians, times[name].medians
                numbers[f"{group.place}_{name}_over_ours"] = looped[0] / ours[0]
    return numbers


OPERATIONS: dict[str, tuple[Callable[[Namespace, str], Iterator[Group]], dict[str, int]]] = {
    "cross_attention": (fragments, {"pictures": 200, "captions": 1000, "dim": 1024, "turns": 2}),
    "sets": (sets, {"pictures": 1000, "captions": 5000, "dim": 1024, "turns": 3}),
    "pooling": (pooling, {"dim": 1024, "turns": 7}),
    "evaluation": (metrics, {"turns": 2}),
}
NOTE = (
    "Seconds by the clock, time as a multiple of the baseline's by the clock and by the processor's seconds, "
    "and the extra memory; medians of turns."
)

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in OPERATIONS:
        sys.exit(f"name one of {', '.join(OPERATIONS)}")
    chosen = sys.argv.pop(1)
    groups, defaults = OPERATIONS[chosen]

    def measure(options: Namespace) -> dict[str, float]:
        """Measure the chosen operations."""
        return compared(groups, options)

    benchmark(chosen, measure, NOTE, threads=2, **defaults)
