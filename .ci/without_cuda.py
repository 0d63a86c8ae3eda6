"""Write the requirements of a machine without a GPU: the lock's, with PyTorch's own build for processors.

PyTorch as the package registry has it brings NVIDIA's libraries along, whether there is a GPU or not. They
are left out here. PyTorch itself keeps its version and loses its hashes, since its other build is another
file. `make TORCH=cpu` installs what this prints. Only the standard library is imported: nothing else is there
yet.
"""

import re
import sys
from pathlib import Path

PYTORCH = {"torch", "torchvision"}
CUDA = re.compile(r"(nvidia|cuda)-.+|triton")


def without_cuda(lock: str) -> str:
    """The lock's entries without those of CUDA, and those of PyTorch without their hashes."""
    kept = []
    for entry in re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE):
        requirement = entry.split("\n")[0]
        name = requirement.split("==")[0]
        if name in PYTORCH:
            kept.append(requirement.removesuffix("\\").rstrip() + "\n")
        elif not CUDA.fullmatch(name):
            kept.append(entry)
    return "".join(kept)


if __name__ == "__main__":
    sys.stdout.write(without_cuda(Path(sys.argv[1]).read_text(encoding="utf-8")))
