"""How many processor threads a program computes with, and what a thread does while it waits.

A lesson's models are small: a step is as fast on one thread as on two. So notebooks and tests take
**one thread each**, and two of them run side by side. A wide model can use the whole machine: `vse train`,
`vse experiment` and `vse evaluate` take **all cores**, but their threads **sleep** while they wait for one
another. By default they spin, and then a step that shares its cores with another program takes five to fifty
times as long.

Whoever starts a program decides: `one_thread` and `whole_machine` give it the variables that OpenMP reads
when PyTorch loads, so they must be set before that. This module imports only the standard library. `start`
hands over to a program that starts others, such as JupyterLab: each of its kernels then has one thread.

A variable that the user has set is never changed.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

COUNT, WAITING = "OMP_NUM_THREADS", "OMP_WAIT_POLICY"


def whole_machine(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that runs alone: all cores, and threads that sleep while they wait.

    Args:
        environment: what is set already, usually `os.environ`; it wins.
    """
    return {WAITING: "PASSIVE", **environment}


def one_thread(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a notebook or a test: one thread, since two programs run side by side.

    Args:
        environment: what is set already, usually `os.environ`; it wins.
    """
    return {COUNT: "1", **whole_machine(environment)}


def start(command: Sequence[str]) -> NoReturn:
    """Run a program in place of this one; what it starts has one thread each.

    Args:
        command: the program's path, and its arguments.
    """
    environment = one_thread(os.environ)
    if os.name == "posix":  # replaces this process, so that Ctrl-C reaches the program
        os.execve(command[0], list(command), environment)
    sys.exit(subprocess.call(command, env=environment))
