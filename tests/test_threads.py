"""Threads: one for a lesson or a test, all cores and sleeping waiters for a script, the user's own first."""

import os
import subprocess
import sys

import pytest
import torch

import course
from course import batch
from vsecore import threads
from vsecore.paths import ROOT

LOOK = "import os; print(os.environ.get('OMP_NUM_THREADS'), os.environ.get('OMP_WAIT_POLICY'))"


def start(*arguments, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command, environment = [sys.executable, *arguments], clean | paths | variables
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.strip().splitlines()[-1]


def test_what_the_user_sets_wins():
    own = {"OMP_NUM_THREADS": "3", "OMP_WAIT_POLICY": "ACTIVE", "HOME": "/"}
    assert threads.one_thread(own) == own == threads.whole_machine(own)
    assert threads.whole_machine({}) == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert threads.one_thread({}) == {"OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}


def test_the_command_line_has_all_cores_and_sleeping_waiters():
    look = f"from vsecore.cli import main\ntry: main()\nexcept SystemExit: {LOOK}"
    assert start("-c", look, "--help") == "None PASSIVE"


@pytest.mark.parametrize(
    ("tier", "own", "wanted"), [("lesson", "", [1]), ("lesson", "4", []), ("full", "", [])]
)
def test_a_lesson_takes_one_thread_in_a_kernel_that_somebody_else_has_started(tier, own, wanted, monkeypatch):
    taken = []
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    monkeypatch.setenv("OMP_NUM_THREADS", own)
    if not own:
        monkeypatch.delenv("OMP_NUM_THREADS")
    course.begin(tier)
    assert taken == wanted


@pytest.mark.parametrize(("at_once", "wanted"), [(1, "None PASSIVE"), (2, "1 PASSIVE")])
def test_notebooks_side_by_side_have_one_thread_each_and_alone_all_cores(
    at_once, wanted, tmp_path, monkeypatch
):
    seen = []

    def execute(command, output, environment, bar):
        seen.append(environment)
        return 1.0, 1.0

    monkeypatch.setattr(batch, "_execute", execute)
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name)
    batch.run([tmp_path / "00_small.ipynb"], tmp_path / "out", {}, at_once=at_once)
    assert f"{seen[0].get('OMP_NUM_THREADS')} {seen[0]['OMP_WAIT_POLICY']}" == wanted
