"""Where files lie: a checkout has all, an installed package what it needs to train."""

import tempfile
import tomllib
from pathlib import Path

import pytest

from vsecore import cli, paths
from vsecore.scenes.networks import NETWORKS, weights_file


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with ours in it, as pip leaves it, in place of this checkout."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "vsecore")
    (tmp_path / "vsecore" / "_assets").mkdir(parents=True)
    return tmp_path


def test_this_is_a_checkout_and_its_assets_are_there() -> None:
    assert paths.assets() == paths.ROOT / "assets" and paths.results().is_dir()
    assert all(weights_file(name).parent == paths.assets() for name in NETWORKS)


def test_the_wheel_carries_every_asset_but_the_results() -> None:
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    files = {f"assets/{path.name}" for path in paths.assets().iterdir() if path.name != "results"}
    assert carried == {file: file.replace("assets", "vsecore/_assets") for file in files}


def test_an_installed_package_has_assets_of_its_own_and_writes_results_where_one_works(
    installed: Path,
) -> None:
    assert not paths.is_checkout()
    assert paths.assets() == installed / "vsecore" / "_assets"
    assert paths.results() == Path("results")


def test_a_folder_can_be_written_if_a_file_can_be_made_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert paths.can_be_written(tmp_path) and list(tmp_path.iterdir()) == []
    assert not paths.can_be_written(tmp_path / "nowhere")
    if Path("/proc/self").exists():  # where even root, which may do anything, can make no file
        assert not paths.can_be_written(Path("/proc"))

    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    out = tmp_path / "new" / "out"
    monkeypatch.setattr("sys.argv", ["vse", "data", "extract", str(tmp_path), str(out)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert f"OUT {out} cannot be written: {tmp_path} belongs to someone" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
