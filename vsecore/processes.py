"""What the processes share that `accelerate launch` or `torchrun` has started: a piece of work, a batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from accelerate import PartialState

T = TypeVar("T")

PATIENCE = timedelta(hours=6)
"""How long the others wait for one process, which may mine the negatives of COCO or verify rows meanwhile."""


def from_main_process(work: Callable[[], T]) -> T:
    """Do some work in one process, and give all processes its result, plain data; all raise its error."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return work()
    from accelerate.utils import broadcast_object_list  # takes seconds to import

    shared: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            shared[0] = work()
        except BaseException as error:  # raised below, in every process: after Ctrl-C too, none may wait
            shared[1] = _portable(error)
    broadcast_object_list(shared)
    result, failed = shared
    if failed is not None:
        raise failed
    return cast(T, result)


def _portable(error: BaseException) -> BaseException:
    """Return an error, or one with its message if it cannot be sent to other processes."""
    try:
        pickle.loads(pickle.dumps(error))  # as it reaches another process
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    return error


def join_processes() -> PartialState:
    """Join the other processes, if a launcher has started several."""
    from accelerate import PartialState  # takes seconds to import

    if not dist.is_initialized():
        PartialState._reset_state()  # a training on the CPU may have chosen its device
    return PartialState(cpu=not torch.accelerator.is_available(), timeout=PATIENCE)


def gather(x: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
    """Gather the rows (n, ...) of all processes, in order; gradients flow back to where each row came from.

    With one process this is x. When the same loss of the gathered rows is computed in every process and the
    gradients of the weights are then averaged over processes (as DistributedDataParallel does), each weight
    gets the gradient that one process with the joint batch would give it. `sizes` are the n of each process,
    known without asking a GPU; None: all have the same n.

    Source: Radford et al. 2021 (CLIP), section 2.5; there each GPU computes only its own part of the
    similarities.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return x
    return _Gather.apply(x, list(sizes or [len(x)] * dist.get_world_size()))


class _Gather(torch.autograd.Function):
    """All-gather; the backward pass sums the gradients of each process's rows over all processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        longest = max(sizes)  # all_gather needs the same shape from every process
        sent = torch.cat([x, x.new_zeros(longest - len(x), *x.shape[1:])]).contiguous()
        received = [torch.empty_like(sent) for _ in sizes]
        dist.all_gather(received, sent)
        return torch.cat([part[:size] for part, size in zip(received, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # A copy: all_reduce overwrites its argument, and this gradient belongs to autograd.
        gradient = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient)  # the sum over processes
        return gradient.split(ctx.sizes)[dist.get_rank()], None
