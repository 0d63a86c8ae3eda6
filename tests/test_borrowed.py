"""Whose work an answer is: nothing of the package may do it, however the answer holds it."""

from __future__ import annotations

import functools
import gc
import importlib
import io
import operator
import pickle
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_grading_trust import filed
from torch import nn

from vsecore import similarity
from vsecore.course.checks import EXERCISES, check
from vsecore.course.checks.borrowed import borrowed
from vsecore.course.grading.judging import judge_filed
from vsecore.pooling import KMaxPool

POOL = KMaxPool(2)
TOOLBOX = {"pools": [(3, KMaxPool)]}
SHELF = types.ModuleType("shelf")
SHELF.inner = types.ModuleType("inner")
SHELF.inner.pool = POOL
SPACE = types.SimpleNamespace(deep=types.SimpleNamespace(pool=POOL))
NETWORK = nn.Sequential(nn.Identity(), POOL)
MODULE = "vsecore.pooling"


def by_default(x: Any, mask: Any, k: int, pool: Any = KMaxPool) -> Any:
    return pool(k)(x, mask)


def by_keyword_default(x: Any, mask: Any, k: int, *, pool: Any = POOL) -> Any:
    pool.k = k
    return pool(x, mask)


def in_a_closure() -> Callable[..., Any]:
    pool = KMaxPool
    return lambda x, mask, k: pool(k)(x, mask)


def two_closures_deep() -> Callable[..., Any]:
    inner = in_a_closure()
    return lambda x, mask, k: inner(x, mask, k)


def in_a_container(x: Any, mask: Any, k: int) -> Any:
    return TOOLBOX["pools"][0][1](k)(x, mask)


def in_an_attribute(x: Any, mask: Any, k: int) -> Any:
    return SPACE.deep.pool(x, mask)


def in_a_module_of_another_name(x: Any, mask: Any, k: int) -> Any:
    return SHELF.inner.pool(x, mask)


def asked_for_by_text(x: Any, mask: Any, k: int) -> Any:
    name = "pool"
    return getattr(SHELF.inner, name)(x, mask)


def among_the_globals(x: Any, mask: Any, k: int) -> Any:
    return globals()["KMaxPool"](k)(x, mask)


def in_a_network(x: Any, mask: Any, k: int) -> Any:
    return NETWORK(x)


def imported_by_importlib(x: Any, mask: Any, k: int) -> Any:
    return importlib.import_module(MODULE).KMaxPool(k)(x, mask)


def imported_by_the_builtin(x: Any, mask: Any, k: int) -> Any:
    return __import__("vsecore.pooling", fromlist=["KMaxPool"]).KMaxPool(k)(x, mask)


def imported_inside(x: Any, mask: Any, k: int) -> Any:
    from vsecore.pooling import KMaxPool

    return KMaxPool(k)(x, mask)


def imported_by_exec(x: Any, mask: Any, k: int) -> Any:
    known: dict[str, Any] = {}
    exec("from vsecore.pooling import KMaxPool as pool", known)
    return known["pool"](k)(x, mask)


def in_a_comprehension(x: Any, mask: Any, k: int) -> Any:
    return torch.stack([KMaxPool(k)(x, mask) for _ in range(1)])[0]


def with_an_attribute(x: Any, mask: Any, k: int) -> Any:
    return with_an_attribute.pool(k)(x, mask)  # type: ignore[attr-defined]


with_an_attribute.pool = KMaxPool  # type: ignore[attr-defined]


class Pooler:
    """An object that keeps a pool of the package."""

    def __init__(self, pool: Any = KMaxPool) -> None:
        self.pool = pool

    def __call__(self, x: Any, mask: Any, k: int) -> Any:
        return self.pool(k)(x, mask)

    def pooled(self, x: Any, mask: Any, k: int) -> Any:
        return self.pool(k)(x, mask)


class Descendant(KMaxPool):
    """The package's pool under another name."""


def disguised() -> Callable[..., Any]:
    """A function of the package that says it comes from elsewhere."""
    made = types.FunctionType(similarity.cosine.__code__, similarity.cosine.__globals__)
    made.__module__ = "__main__"
    return made


@functools.lru_cache
def cached(x: Any, mask: Any, k: int) -> Any:
    return KMaxPool(k)(x, mask)


def compiled_before(x: Any, mask: Any, k: int) -> Any:
    return eval(COMPILED)


COMPILED = compile("KMaxPool(k)(x, mask)", "", "eval")


def compiled_inside(x: Any, mask: Any, k: int) -> Any:
    return eval(compile("KMaxPool(k)(x, mask)", "", "eval"))


def added_to_tensors(x: Any, mask: Any, k: int) -> Any:
    return x.pooled_by_k(mask, k)


def added_to_modules(x: Any, mask: Any, k: int) -> Any:
    return nn.Identity().pooled_by_k(x, mask, k)


def added_to_a_class_of_torch(x: Any, mask: Any, k: int) -> Any:
    return nn.Linear.pooled_in_linear(x, mask, k)  # type: ignore[operator]


@pytest.fixture(autouse=True)
def methods_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pooled_by_k", lambda x, m, k: KMaxPool(k)(x, m), raising=False)
    monkeypatch.setattr(nn.Module, "pooled_by_k", lambda self, x, m, k: KMaxPool(k)(x, m), raising=False)
    monkeypatch.setattr(nn.Linear, "pooled_in_linear", lambda x, m, k: KMaxPool(k)(x, m), raising=False)


def among_the_subclasses(x: Any, mask: Any, k: int) -> Any:
    (found,) = (kind for kind in nn.Module.__subclasses__() if kind.__name__.startswith("KMax"))
    return found(k)(x, mask)


def among_all_objects(x: Any, mask: Any, k: int) -> Any:
    found = next(one for one in gc.get_objects() if getattr(one, "__name__", "").startswith("KMaxP"))
    return found(k)(x, mask)


WEAK = weakref.ref(KMaxPool)
PICKLED = pickle.dumps(KMaxPool)


def by_a_weak_reference(x: Any, mask: Any, k: int) -> Any:
    return WEAK()(k)(x, mask)  # type: ignore[misc]


def by_a_pickle(x: Any, mask: Any, k: int) -> Any:
    return pickle.loads(PICKLED)(k)(x, mask)


def by_a_pickle_inside(x: Any, mask: Any, k: int) -> Any:
    return pickle.loads(b"\x80\x04cvsecore.pooling\nKMaxPool\n.")(k)(x, mask)


BORROWED = {
    "compiled before": compiled_before,
    "compiled inside": compiled_inside,
    "method added to tensors": added_to_tensors,
    "method added to modules": added_to_modules,
    "method added to a class of torch": added_to_a_class_of_torch,
    "subclasses": among_the_subclasses,
    "objects of the collector": among_all_objects,
    "weak reference": by_a_weak_reference,
    "pickle": by_a_pickle,
    "pickle inside": by_a_pickle_inside,
    "the function itself": POOL,
    "default": by_default,
    "keyword default": by_keyword_default,
    "closure": in_a_closure(),
    "two closures": two_closures_deep(),
    "container": in_a_container,
    "attribute": in_an_attribute,
    "module of another name": in_a_module_of_another_name,
    "getattr": asked_for_by_text,
    "globals": among_the_globals,
    "network": in_a_network,
    "importlib": imported_by_importlib,
    "__import__": imported_by_the_builtin,
    "import inside": imported_inside,
    "exec": imported_by_exec,
    "comprehension": in_a_comprehension,
    "attribute of the function": with_an_attribute,
    "partial": functools.partial(by_default),
    "partial of the package": functools.partial(lambda pool, x, mask, k: pool(k)(x, mask), KMaxPool),
    "bound method": Pooler().pooled,
    "callable object": Pooler(),
    "class": Descendant,
    "disguise": disguised(),
    "cache": cached,
    "method of the package's object": operator.methodcaller("forward", POOL),
}


@pytest.mark.parametrize("answer", BORROWED.values(), ids=BORROWED)
def test_an_answer_that_carries_the_package_is_refused_here_and_by_the_grader(answer: Any) -> None:
    here, there = check("10.kmax", answer), judge_filed(EXERCISES["10.kmax"], filed(answer))
    assert here.points == 0 and "does the work already" in here.message
    assert here.message == there.message


def helper(values: torch.Tensor, k: int) -> torch.Tensor:
    return values.topk(k, dim=1).values


PARTIAL = functools.partial(torch.topk, dim=1)
LOWEST = functools.partial(torch.where, other=torch.tensor(-torch.inf))


class Honest(nn.Module):
    """An answer with a state, on torch alone. Compare vsecore.pooling.KMaxPool."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.Softmax(1)
        self.steps = {"sort": [torch.sort, np.sort], "mean": functools.partial(np.mean, axis=0)}

    def forward(self, x: Any, mask: Any, k: int) -> Any:
        return self.softmax(x).sum(1)


def on_torch(x: Any, mask: Any, k: int, top: Any = PARTIAL) -> Any:
    """What vsecore.pooling does, by import of torch alone."""
    import math

    import torch.nn.functional as F

    hidden = LOWEST(mask[..., None], x)
    found = helper(hidden, min(k, x.shape[1])) if k else top(hidden, 1)[0]
    kept = found.isfinite()
    name = "sqrt"
    scale = getattr(math, name)(1.0)
    return F.relu(torch.where(kept, found, 0.0).sum(1) / kept.sum(1) * scale) * 1 + 0 * np.mean([0.0])


HONEST = [on_torch, functools.partial(on_torch, top=PARTIAL), Honest(), Honest().forward, Honest, PARTIAL]


@pytest.mark.parametrize("answer", HONEST, ids=lambda answer: type(answer).__name__)
def test_libraries_partials_and_helpers_of_ones_own_borrow_nothing(answer: Any) -> None:
    assert borrowed(answer) == ""


class Console(io.StringIO):
    """Where a kernel's words go: it leads to much of what the notebook holds."""

    def __init__(self) -> None:
        super().__init__()
        self.session = {"modules": [POOL]}


def speaking(x: Any, mask: Any, k: int) -> Any:
    print(x.shape, file=sys.stderr)
    return subprocess.run([sys.executable], capture_output=True).stdout


def hidden_in_the_console(x: Any, mask: Any, k: int) -> Any:
    return sys.stdout.pool(x, mask)  # type: ignore[attr-defined]


def test_an_answer_may_print_though_a_kernels_console_leads_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Console())
    assert borrowed(speaking) == ""
    sys.stdout.pool = POOL  # type: ignore[attr-defined]
    assert borrowed(hidden_in_the_console) != "", "what is put there and named is found"


def test_words_about_the_package_borrow_nothing() -> None:
    assert borrowed(("vsecore.pooling came out ahead", "from vsecore import it")) == ""
    assert borrowed(KMaxPool(2)(torch.ones(1, 3, 4))) == "", "a value may come from anywhere"


caption_ranks = helper


def test_what_the_notebook_defines_above_may_not_be_carried_either() -> None:
    def by_name(S: Any) -> Any:
        return caption_ranks(S, 1)

    def by_another_name(S: Any, ranks: Any = caption_ranks) -> Any:
        return ranks(S, 1)

    for answer in (by_name, by_another_name, functools.partial(caption_ranks, k=1)):
        assert borrowed(answer, ["caption_ranks"]) == "caption_ranks" and borrowed(answer) == ""


def gru_cell(x: Any, h: Any) -> Any:
    """A learner's own, under the name of torch's."""
    return torch.tanh(x + h)


ATTEND = torch.nn.functional.scaled_dot_product_attention
CELL = nn.GRUCell(4, 3)


def attending(q: Any, k: Any, u: Any, mask: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, u, attn_mask=mask[:, None, None])


def attending_by_another_name(q: Any, k: Any, u: Any, mask: Any) -> Any:
    return ATTEND(q, k, u, attn_mask=mask[:, None, None])


def attending_by_a_helper(q: Any, k: Any, u: Any, mask: Any) -> Any:
    return attending(q, k, u, mask)


def attending_by_text(q: Any, k: Any, u: Any, mask: Any) -> Any:
    name = "scaled_dot_product_attention"
    return getattr(torch.nn.functional, name)(q, k, u, attn_mask=mask[:, None, None])


def stepping(x: Any, h: Any, W: Any, U: Any, w: Any, u: Any) -> Any:
    return torch.gru_cell(x, h, W, U, w, u)


def stepping_by_a_module(x: Any, h: Any, W: Any, U: Any, w: Any, u: Any) -> Any:
    cell = nn.GRUCell(4, 3)
    for name, value in (("weight_ih", W), ("weight_hh", U), ("bias_ih", w), ("bias_hh", u)):
        cell.__dict__["_parameters"][name] = value
    return cell(x, h)


def stepping_by_a_module_made_before(x: Any, h: Any, W: Any, U: Any, w: Any, u: Any) -> Any:
    return CELL(x, h)


READY_MADE = {
    attending: "02.attention",
    attending_by_another_name: "02.attention",
    attending_by_a_helper: "02.attention",
    attending_by_text: "02.attention",
    functools.partial(ATTEND): "02.attention",
    stepping: "02.gru",
    stepping_by_a_module: "02.gru",
    stepping_by_a_module_made_before: "02.gru",
}


@pytest.mark.parametrize(("answer", "exercise"), READY_MADE.items())
def test_what_another_library_does_already_is_refused_here_and_by_the_grader(
    answer: Any, exercise: str
) -> None:
    here, there = check(exercise, answer), judge_filed(EXERCISES[exercise], filed(answer))
    names = EXERCISES[exercise].instead
    assert here.points == 0 and here.message == there.message
    assert here.message in [
        f"Your answer uses {x}, which does the work already. Write it out." for x in names
    ]


def test_a_learners_own_function_may_have_a_librarys_name() -> None:
    def step(x: Any, h: Any) -> Any:
        return gru_cell(x, h)

    assert borrowed(step, (), EXERCISES["02.gru"].instead) == ""
    assert borrowed(gru_cell, (), EXERCISES["02.gru"].instead) == ""
