"""Build the book from executed notebooks.

What jupyter-book wants in one folder is laid there first: the book's own pages, the notebooks, and the front
end of the widgets, so that the built book asks the network for nothing.
"""

import base64
import importlib.resources
import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import typer
import yaml
from PIL import Image

from course.batch import CourseError, notebooks
from course.explainer.laying import lay_explainer
from course.grading.parts import key_of
from course.grading.plain import facts_of, key_of_label
from coursebook import costs
from coursebook.evidence import lay_evidence
from coursebook.instructor import instructor_page
from vsecore import scenes
from vsecore.paths import ROOT, results

# The search on the title page: the notebook that shows it, and what is asked there.
FIRST_NOTEBOOK, QUERY = "00_start_here.ipynb", "two boats on the lake"
LIVE_SEARCH = """<div class="live-search">
<p class="live-fallback">Type a sentence, and the pictures that fit it best appear. This search runs in your
browser and needs JavaScript, which is off here. The cells below show what it finds.</p>
</div>
"""
"""What stands below the first notebook's title; `book/_static/live.js` puts the search in its place."""


def build_book(executed: Path) -> Path:
    """Build the book from executed notebooks, every warning an error; return the page to open.

    They lie in `build/notebooks`, or, as they are stored, in `notebooks`.

    Raises:
        CourseError: the book did not build; what was wrong is in the printed log.
    """
    source = ROOT / "build" / "book"
    lay_book(executed, source)
    typer.echo(f"building the book from {executed.relative_to(ROOT)}")
    program, out = Path(sysconfig.get_path("scripts")) / "jupyter-book", ROOT / "book"
    command = [str(program), "build", "-W", "-n", "--keep-going", "--quiet"]
    command += ["--path-output", str(out), str(source)]
    shutil.rmtree(out / "_build", ignore_errors=True)  # no page of an earlier book stays behind
    built = subprocess.run(command, env=os.environ | {"PYTHONWARNINGS": "ignore"}, check=False)
    if built.returncode != 0:
        raise CourseError("the book did not build without warnings: the lines above name page and line")
    return out / "_build" / "html" / "index.html"


def lay_book(executed: Path, source: Path) -> None:
    """Lay everything that the book is made of into one folder, anew."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "book", source, ignore=shutil.ignore_patterns("_build"))
    lay_notebooks(executed, source / "notebooks")
    lay_title_page(executed, source / "_generated")
    lay_evidence(source / "evidence")
    (source / "evidence" / "costs.md").write_text(costs.page(results()), encoding="utf-8")
    lay_widgets(source / "_extra" / "widgets")
    lay_explainer(source / "_extra" / "explainer")
    instructors = source / "instructor.md"
    instructors.write_text(instructor_page(instructors.read_text(encoding="utf-8")), encoding="utf-8")
    configure(source / "_config.yml", repository_of(ROOT))


def lay_notebooks(executed: Path, folder: Path) -> None:
    """Copy the executed notebooks to where the book's table of contents looks for them."""
    folder.mkdir(parents=True)
    for stored in notebooks():
        notebook = json.loads((executed / stored.name).read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            _give_alt_text(cell)
            _give_facts(cell)
            if "injected-parameters" in (tags := cell["metadata"].get("tags", [])):
                cell["metadata"]["tags"] = [*tags, "remove-cell"]  # the page shows the notebook's own
            _fold_answer(cell)
            if stored.name == FIRST_NOTEBOOK and cell["cell_type"] == "markdown":
                cell["source"] = re.sub(r"^(# .+\n)\s*", rf"\1\n{LIVE_SEARCH}\n", "".join(cell["source"]))
        (folder / stored.name).write_text(json.dumps(notebook), encoding="utf-8")


def _give_alt_text(cell: dict[str, Any]) -> None:
    """Hand a figure's words to the book: `plots.show` stores them beside the picture as plain text."""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data and "text/plain" in data:
            words = "".join(data["text/plain"])
            cell.setdefault("metadata", {}).setdefault("mystnb", {}).setdefault("image", {})["alt"] = words


def _give_facts(cell: dict[str, Any]) -> None:
    """Write below an exercise's title its key, the one that Lab and grader know, and what it asks for."""
    if cell["cell_type"] == "markdown":
        cell["source"] = _EXERCISE.sub(
            lambda found: f"{found[0]}:nonumber:\n\n{facts_of(key_of_label(found['label']))}\n",
            "".join(cell["source"]),
        )


_EXERCISE = re.compile(r"\{exercise\}.*\n:label: (?P<label>ex-\S+)\n")


def _fold_answer(cell: dict[str, Any]) -> None:
    """Fold the cell that answers an exercise, so that a reader can think first; its output stays open."""
    if cell["cell_type"] == "code" and key_of("".join(cell["source"])):
        metadata = cell["metadata"]
        metadata["tags"] = [*metadata.get("tags", []), "hide-input"]
        labels = {"code_prompt_show": "Show the answer", "code_prompt_hide": "Hide the answer"}
        metadata["mystnb"] = metadata.get("mystnb", {}) | labels


def lay_title_page(executed: Path, folder: Path) -> None:
    """Write what the title page shows: the first notebook's search for `QUERY`, and a scene of each place."""
    folder.mkdir(parents=True)
    first = json.loads((executed / FIRST_NOTEBOOK).read_text(encoding="utf-8"))
    for output in (output for cell in first["cells"] for output in cell.get("outputs", [])):
        words = "".join(output.get("data", {}).get("text/plain", ""))
        if f"found for: {QUERY}" in words and "image/png" in output["data"]:
            (folder / "found.png").write_bytes(base64.b64decode(output["data"]["image/png"]))
            break
    else:
        raise ValueError(f"{FIRST_NOTEBOOK} shows no pictures found for {QUERY!r}: the title page needs them")
    # Written as the title page includes it, so with paths from there.
    (folder / "found.md").write_text(
        f"```{{image}} _generated/found.png\n:alt: {words}\n:width: 100%\n:class: figure\n```\n",
        encoding="utf-8",
    )
    cards, made = [], scenes.generate(100, seed=0, split="train")
    first_of = {picture.scene.place: picture for picture in reversed(made)}
    for number, picture in enumerate(first_of[place] for place in scenes.PLACES if place in first_of):
        pixels = scenes.draw(picture.scene, size=336)
        Image.fromarray(pixels).save(folder / f"scene{number}.png", optimize=True)
        said = [caption.text for caption in picture.captions]
        cards.append(
            f":::{{grid-item-card}}\n:img-top: _generated/scene{number}.png\n"
            f":img-alt: Drawn scene. {said[-1]}\n\n{said[number % len(said)]}\n:::\n"
        )
    grid = "::::{grid} 2 2 4 4\n:gutter: 2\n:class-container: scenes\n\n" + "\n".join(cards) + "::::\n"
    (folder / "scenes.md").write_text(grid, encoding="utf-8")


def lay_widgets(folder: Path) -> None:
    """Copy the front end of ipywidgets, which its own package brings along; `widgets.js` starts it."""
    folder.mkdir(parents=True)
    front_end = importlib.resources.files("widgetsnbextension") / "static"
    for name in ("extension.js", "extension.js.LICENSE.txt"):
        (folder / name).write_bytes((front_end / name).read_bytes())


def repository_of(folder: Path) -> str | None:
    """Return the address of a checkout's GitHub repository, without credentials; None where it has none."""
    command = ["git", "-C", str(folder), "remote", "get-url", "origin"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:  # no git here: the project came as an archive
        return None
    named = re.fullmatch(r"(?:https://(?:[^/@]+@)?|git@)github\.com[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?", said)
    return f"https://github.com/{named[1]}" if named else None


def configure(path: Path, repository: str | None) -> None:
    """Tell the book where its repository is, so that pages can be opened there; without one, leave it be."""
    if repository is None:
        return
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    config["sphinx"]["config"]["html_theme_options"] |= {
        "repository_url": repository,
        "repository_branch": "main",
        "use_repository_button": True,
        "launch_buttons": {"notebook_interface": "jupyterlab", "binderhub_url": "https://mybinder.org"},
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
