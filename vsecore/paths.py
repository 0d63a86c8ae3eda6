"""Where the project's own files are: in a checkout of the repository, or inside the installed package."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
"""The checkout's folder. For an installed package, the folder of all packages, with no file of ours."""


def is_checkout() -> bool:
    """Whether the package runs from a checkout of the repository rather than from an installation."""
    return not (PACKAGE / "_assets").is_dir()  # which a wheel has


def assets() -> Path:
    """Return the folder of files that ship with the code, such as the networks of the scenes."""
    return ROOT / "assets" if is_checkout() else PACKAGE / "_assets"


def results() -> Path:
    """Return the folder of records: the repository's, or outside a checkout `results` where you are."""
    return ROOT / "assets" / "results" if is_checkout() else Path("results")
