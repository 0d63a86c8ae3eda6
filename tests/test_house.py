"""The house itself: what one file says of another holds."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()


def required() -> list[str]:
    """Every requirement that set-up installs: the package's own and both extras."""
    extras = PROJECT["optional-dependencies"]
    return [*PROJECT["dependencies"], *extras["offline"], *extras["dev"]]


def locked() -> dict[str, str]:
    pairs = re.findall(r"^([\w.-]+)==([^ ;\\]+)", LOCK, flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_the_lock_holds_every_requirement_with_hashes() -> None:
    for requirement in required():
        name = re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()
        assert name in locked(), f"{requirement} is not in requirements.lock: run make lock"
        floor = re.search(r">=\s*([\d.]+)", requirement)
        if floor:
            asked = [int(part) for part in floor[1].split(".")]
            given = [int(part) for part in re.findall(r"\d+", locked()[name])]
            assert given[: len(asked)] >= asked, requirement
    blocks = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_lock_holds_no_addresses() -> None:
    assert not re.search(r"https?://|--index|--find-links|file:", LOCK)


def test_conda_gives_the_same_environment() -> None:
    environment = (ROOT / "environment.yml").read_text()
    assert f"python{PROJECT['requires-python']}" in environment
    assert "--requirement requirements.lock" in environment
    # What conda itself brings is no Python package of ours: everything else comes from the lock.
    conda = re.findall(r"^  - ([\w-]+)", environment.split("dependencies:")[1], flags=re.MULTILINE)
    assert set(conda) == {"python", "git", "make", "pip"}


@pytest.mark.parametrize(
    "name", ["LICENSE", "README.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", ".ci/run"]
)
def test_the_usual_files_are_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 200


def test_the_readme_names_only_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text())) <= targets
