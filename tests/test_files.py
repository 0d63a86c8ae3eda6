import json
import os
import re
import resource
import stat
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pytest
import torch

from vsecore.data import files
from vsecore.training import checkpoints


def test_a_file_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "words.json"
    with files.write_atomically(target, "w") as file:
        json.dump({"word": "Ärmel"}, file, ensure_ascii=False)
        assert not target.exists()
    assert target.read_text("utf-8") == '{"word": "Ärmel"}'
    assert list(target.parent.iterdir()) == [target]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "weights.bin"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), files.write_atomically(target) as file:
        file.write(b"half of the new")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_others_may_read_what_is_written(tmp_path: Path) -> None:
    usual, atomic, checkpoint = (tmp_path / name for name in ("usual", "atomic", "checkpoint"))
    usual.touch()
    with files.write_atomically(atomic) as file:
        file.write(b"")
    checkpoints.save(checkpoint, {"numbers": torch.zeros(1)}, {})
    assert len({stat.S_IMODE(path.stat().st_mode) for path in (usual, atomic, checkpoint)}) == 1


HOLD = """
import pathlib, sys, time
from vsecore.data.files import locked
with locked(pathlib.Path(sys.argv[1]), "is testing"):
    print(flush=True)
    time.sleep(60)
"""


def test_a_lock_keeps_others_out_until_its_process_ends_even_if_it_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline().strip() == b""
        try:
            with (
                pytest.raises(BlockingIOError, match="another process is testing"),
                files.locked(tmp_path, "is testing", wait=False),
            ):
                pass
        finally:
            other.kill()
    with files.locked(tmp_path, "is testing", wait=False):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["bytes", "npy", "npz", "safetensors"])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, kind: str) -> None:
    """Files that may not grow any more stand in for the disk."""
    numbers, target = np.zeros(9999), tmp_path / f"numbers.{kind}"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match=re.escape(str(target))):
            if kind == "safetensors":
                checkpoints.save(target, {"numbers": torch.from_numpy(numbers)}, {})
            with files.write_atomically(target) as file:
                if kind == "bytes":
                    file.write(numbers.tobytes())
                else:
                    (np.save if kind == "npy" else np.savez)(file, numbers)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSECORE_CACHE", str(tmp_path / "here"))
    assert files.cache_folder("scenes", "one") == tmp_path / "here" / "scenes" / "one"
    assert files.cache_folder("scenes").is_dir()


def test_progress_can_be_silent_and_can_be_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert list(files.progress(range(3))) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("VSECORE_BATCH", "0")
    assert list(files.progress(range(3), desc="pictures")) == [0, 1, 2]
    assert "pictures" in capsys.readouterr().err
    with files.without_progress():
        assert list(files.progress(range(3))) == [0, 1, 2]
    assert capsys.readouterr().err == ""
    assert list(files.progress(range(3), desc="afterwards")) == [0, 1, 2]
    assert "afterwards" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "is not JSON"), (b"\xff", "is not JSON"), (b"[1]", r"is \[1\]: wanted named values")],
)
def test_a_file_that_is_no_json_object_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "facts.json"
    with pytest.raises(FileNotFoundError, match=r"no file .*facts.json"):
        files.read_json(path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"facts.json {message}"):
        files.read_json(path)
    path.write_text('{"word": "Ärmel"}', "utf-8")
    assert files.read_json(path) == {"word": "Ärmel"}


def test_a_bar_in_a_notebook_leaves_nothing_that_a_saved_copy_could_not_show() -> None:
    work = (
        "from vsecore.data.files import progress\nfor _ in range(2): list(progress(range(3), desc='epoch'))"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(work)])
    environment = os.environ | {"VSECORE_BATCH": "0"}
    nbclient.NotebookClient(notebook, store_widget_state=True, kernel_name="python3").execute(env=environment)
    outputs = notebook.cells[0].outputs
    assert len(outputs) == 2 and not any(
        "widget-view" in kind for output in outputs for kind in output["data"]
    )
