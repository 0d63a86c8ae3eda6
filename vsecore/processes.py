"""One piece of work, shared by the processes that `accelerate launch` or `torchrun` has started."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist

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
        copy.deepcopy(error)  # made anew from its arguments, as in another process
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    return error


def join_processes() -> PartialState:
    """Join the other processes, if a launcher has started several."""
    from accelerate import PartialState  # takes seconds to import

    if not dist.is_initialized():
        PartialState._reset_state()  # a training on the CPU may have chosen its device
    return PartialState(cpu=not torch.accelerator.is_available(), timeout=PATIENCE)
