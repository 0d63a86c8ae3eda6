"""Where files lie: a checkout has all, an installed package what it needs to train."""

import tomllib
from pathlib import Path

import pytest

from vsecore import paths
from vsecore.scenes.networks import NETWORKS, weights_file


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder of packages with ours in it, as pip leaves it, in place of this checkout."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "vsecore")
    (tmp_path / "vsecore" / "_assets").mkdir(parents=True)
    return tmp_path


def test_this_is_a_checkout_and_its_assets_are_there():
    assert paths.assets() == paths.ROOT / "assets" and paths.results().is_dir()
    assert all(weights_file(name).parent == paths.assets() for name in NETWORKS)


def test_the_wheel_carries_every_asset_but_the_results_and_what_the_course_alone_reads():
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    left = {"results", "explainer", "first_engine"}
    files = {f"assets/{path.name}" for path in paths.assets().iterdir() if path.name not in left}
    assert carried == {file: file.replace("assets", "vsecore/_assets") for file in files}


def test_an_installed_package_has_assets_of_its_own_and_writes_results_where_one_works(installed):
    assert not paths.is_checkout()
    assert paths.assets() == installed / "vsecore" / "_assets"
    assert paths.results() == Path("results")
