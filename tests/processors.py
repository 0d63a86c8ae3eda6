"""Run the stored notebooks as other processors would: other instructions, other threads, other last digits.

`python tests/processors.py` runs `pytest --nbval` under each setting and says what failed. This machine
stands for a processor with AVX2, for one with SSE4 alone, and for one with more threads. And since a rounding
error is all that tells one machine's training from another's, initial weights multiplied by
1 + 1e-7 * noise stand for as many further machines as are asked for. Like a rounding error, the noise depends
on the weight alone: the same training begins from the same weights each time, and equal weights stay equal.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "as it is": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "SSE4": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "two threads": {"OMP_NUM_THREADS": "2"},
    "four threads": {"OMP_NUM_THREADS": "4"},
}
DISTURB = """
import torch
_begin = torch.optim.Optimizer.__init__
def _disturbed(self, *arguments, **options):
    _begin(self, *arguments, **options)
    for group in self.param_groups:
        for weights in group["params"]:
            weights.data *= 1 + 1.4e-7 * torch.sin({seed} + 1e7 * weights.data)
torch.optim.Optimizer.__init__ = _disturbed
"""
"""Run by each kernel as it starts: whatever is trained begins from slightly other weights."""


def run(name, environment, notebooks):
    began = time.perf_counter()
    command = [
        sys.executable,
        *["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"],
    ]
    command += ["--nbval", *notebooks, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    *_, last = done.stdout.strip().splitlines()
    print(f"{name}: {last.strip('= ')} ({time.perf_counter() - began:.0f} s)", flush=True)
    if done.returncode != 0:
        print(done.stdout, flush=True)
    return done.returncode == 0


def main():
    """Run what is asked for; the exit status says whether all of it passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", default=["notebooks"], help="files [default: all]")
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="[default: all]")
    parser.add_argument("--disturbed", type=int, default=10, help="how many times with other weights")
    asked = parser.parse_args()
    passed = [run(name, SETTINGS[name], asked.notebooks) for name in asked.setting or SETTINGS]
    for seed in range(asked.disturbed):
        with tempfile.TemporaryDirectory() as folder:
            startup = Path(folder) / "profile_default" / "startup" / "disturb.py"
            startup.parent.mkdir(parents=True)
            startup.write_text(DISTURB.format(seed=seed))
            passed.append(run(f"other weights, {seed}", {"IPYTHONDIR": folder}, asked.notebooks))
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
