"""Start a kernel that can do little else than compute: the program that the grader runs in Jupyter's place.

On Linux it may read what Python needs, and write into its own folder alone; it cannot open TCP
connections, nor signal or trace a process outside. That is Landlock, which asks for no rights. Where the
system lacks it, the kernel starts all the same: see the instructor page for what a container does.

It is run as a file, not imported, so it uses only the standard library.
"""

import ctypes
import json
import os
import signal
import struct
import sys
import sysconfig
from pathlib import Path

# From linux/landlock.h and linux/prctl.h.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
BENEATH = 1  # the kind of rule that names a folder
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
FIRST_VERSION, REFER, TRUNCATE = (1 << 13) - 1, 1 << 13, 1 << 14  # rights on files, as versions brought them
ON_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
TCP = 3  # to bind and to connect
SOCKETS_AND_SIGNALS = 3  # abstract ones
DIE_WITH_PARENT, NO_NEW_PRIVILEGES = 1, 38

SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/proc", "/sys", "/dev", "/nix/store")


def confine(readable: list[str], writable: list[str]) -> None:
    """Take from this process, and from all that it starts, what a lesson does not need, if the system can."""
    system = ctypes.CDLL(None, use_errno=True)
    version = system.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return
    files = FIRST_VERSION | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    rules = struct.pack("=QQQ", files, TCP if version >= 4 else 0, SOCKETS_AND_SIGNALS if version >= 6 else 0)
    ruleset = system.syscall(CREATE_RULESET, rules, len(rules), 0)
    reading = EXECUTE | READ_FILE | READ_DIR
    for paths, rights in ((readable, reading), (writable, files)):
        for path in map(Path, paths):
            if path.exists():
                fitting = rights if path.is_dir() else rights & ON_A_FILE
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
                system.syscall(ADD_RULE, ruleset, BENEATH, struct.pack("=Qi", fitting, opened), 0)
                os.close(opened)
    system.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    system.syscall(RESTRICT_SELF, ruleset, 0)


def main() -> None:
    """Confine this process, hide the checkout from its imports, and become the kernel."""
    settings = json.loads(sys.argv.pop(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        python = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
        confine([*SYSTEM, *python, *settings["readable"]], ["/dev/null", *settings["writable"]])
    # An installation from a checkout puts all of the checkout on the path, with its tests.
    checkouts = [Path(path) for path in sys.path if (Path(path) / "pyproject.toml").is_file()]
    hidden = {str(path / house) for path in checkouts for house in ("", "notebooks", "book/_ext")}
    sys.path[:] = [path for path in sys.path if path not in hidden]

    if settings["course"]:  # before the kernel is up, so that it takes none of a learner's time
        import course.checks  # noqa: F401
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
