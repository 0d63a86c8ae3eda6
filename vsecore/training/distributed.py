"""Where a model trains: the device, its precision, and what a record says of the machine."""

import platform
import re
import sys
from pathlib import Path
from typing import Literal

import psutil
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs

from vsecore.processes import PATIENCE


def make_accelerator(
    device: Literal["auto", "cpu"] = "auto",
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    find_unused_parameters: bool = False,
) -> Accelerator:
    """Make the `Accelerator` for this machine: a CPU, a GPU, or as many of them as there are processes.

    With `find_unused_parameters`, processes do not wait for weights that get no gradient in some epochs. The
    rest is as in `Settings`.
    """
    if not dist.is_initialized():
        # accelerate keeps its first settings as long as the process lives; a notebook may need others.
        AcceleratorState._reset_state(reset_partial_state=True)
    cpu = device == "cpu" or not torch.accelerator.is_available()
    native = not cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    half = precision == "bfloat16" or (precision == "auto" and native)
    return Accelerator(
        cpu=cpu,
        mixed_precision="bf16" if half else "no",
        step_scheduler_with_optimizer=False,
        kwargs_handlers=[
            InitProcessGroupKwargs(timeout=PATIENCE),
            DistributedDataParallelKwargs(find_unused_parameters=find_unused_parameters),
        ],
    )


def best_device() -> torch.device:
    """Return the device that evaluates a trained model fastest: the GPU if there is one, else the CPU."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else found


def precision_of(accelerator: Accelerator) -> str:
    """Return the type in which products are computed: "bfloat16" or "float32"."""
    return "bfloat16" if accelerator.mixed_precision == "bf16" else "float32"


def hardware(device: torch.device) -> str:
    """Return the name of the processor behind a device, such as "NVIDIA H200"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file() and (found := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())):
        return found[1]
    return platform.processor() or platform.machine()


def peak_memory() -> int:
    """Return the most memory that this process ever had, in bytes."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # which Windows does not have

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in kilobytes
