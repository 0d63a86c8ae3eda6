"""Work shared by the threads of a processor, one part for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import torch


def workers_on(device: torch.device) -> int:
    """Return how many workers keep a device busy: one on a GPU, on a CPU one for each of torch's threads."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def on_threads(work: Callable[[int, int], Iterator[None]], workers: int) -> None:
    """Let several workers do their parts at the same time.

    A product of matrices keeps all threads busy, but what is done with its numbers often keeps only one. With
    a part of the work for each, all are busy all the time.

    Args:
        work: given a worker's number and how many workers there are, does its part, and yields now and then.
            When one fails, or the user interrupts, the others stop where they next yield.
        workers: how many; torch's threads are shared out among them.

    Raises:
        Exception: what a worker has raised.
    """
    if workers == 1:  # in this thread, with its device and its stream
        for _ in work(0, 1):
            pass
        return
    threads, stopped = torch.get_num_threads(), threading.Event()

    @torch.inference_mode(torch.is_inference_mode_enabled())  # each thread has a mode of its own
    def part(worker: int) -> None:
        torch.set_num_threads(max(1, threads // workers))  # in this thread
        for _ in work(worker, workers):
            if stopped.is_set():
                return

    try:
        with ThreadPoolExecutor(workers) as pool:
            try:
                parts = [pool.submit(part, worker) for worker in range(workers)]
                wait(parts, return_when=FIRST_EXCEPTION)
            finally:
                stopped.set()
            for done in parts:
                done.result()
    finally:
        torch.set_num_threads(threads)  # each worker has changed what threads that begin later get
