"""How many processor threads a program computes with, and what a thread does while it waits.

A small model's step is as fast on one thread as on two, so two small programs run side by side. `vse train`
takes all cores, but its threads sleep while they wait for one another: by default they spin, and then a step
that shares its cores with another program takes five to fifty times as long. OpenMP reads these variables
when PyTorch loads. A variable that the user has set is never changed.
"""

from collections.abc import Mapping

COUNT = "OMP_NUM_THREADS"


def whole_machine(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment, such as `os.environ`, of a program that runs alone: its threads sleep."""
    return {"OMP_WAIT_POLICY": "PASSIVE", **environment}


def one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that shares the machine: like `whole_machine`, with one thread."""
    return {COUNT: "1", **whole_machine(environment)}
