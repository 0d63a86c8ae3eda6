"""The book: the way of the executed notebooks into it, and what is laid beside them."""

import subprocess
from pathlib import Path

import pytest
import yaml

from vsecore.book import build


def test_a_figures_words_become_the_books_alt_text() -> None:
    picture = {"image/png": "AAAA", "text/plain": ["A curve ", "that falls."]}
    cell = {"metadata": {}, "outputs": [{"output_type": "display_data", "data": picture}]}
    build._give_alt_text(cell)
    assert cell["metadata"]["mystnb"]["image"]["alt"] == "A curve that falls."
    silent = {"metadata": {}, "outputs": [{"output_type": "stream", "text": "x"}]}
    build._give_alt_text(silent)
    assert silent["metadata"] == {}


def test_a_notebook_that_was_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="00_start_here"):
        build.lay_notebooks(tmp_path, tmp_path / "book" / "notebooks")


def test_the_widgets_front_end_is_served_from_the_book(tmp_path: Path) -> None:
    build.lay_widgets(tmp_path / "widgets")
    front_end = (tmp_path / "widgets" / "extension.js").read_text(encoding="utf-8")
    assert "load_ipython_extension" in front_end
    assert (tmp_path / "widgets" / "extension.js.LICENSE.txt").stat().st_size > 0


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://github.com/someone/course.git", "https://github.com/someone/course"),
        ("https://someone:secret@github.com/someone/course", "https://github.com/someone/course"),
        ("git@github.com:someone/course.git", "https://github.com/someone/course"),
        ("https://github.com.elsewhere.net/someone/course", None),
        ("/home/someone/course", None),
        (None, None),
    ],
)
def test_launch_buttons_know_the_repository_of_this_clone_alone(
    origin: str | None, address: str | None, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    if origin is not None:
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)
    assert build.repository_of(tmp_path) == address


def test_without_a_repository_there_is_no_button_that_leads_nowhere(tmp_path: Path) -> None:
    config = tmp_path / "_config.yml"
    config.write_text("sphinx: {config: {html_theme_options: {show_toc_level: 2}}}")
    build.configure(config, None)
    assert "launch_buttons" not in config.read_text()
    build.configure(config, "https://github.com/someone/course")
    options = yaml.safe_load(config.read_text())["sphinx"]["config"]["html_theme_options"]
    assert options["repository_url"] == "https://github.com/someone/course"
    assert options["launch_buttons"]["binderhub_url"] and options["show_toc_level"] == 2
