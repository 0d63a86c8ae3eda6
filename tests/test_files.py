import json
import re
import runpy
import stat
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import tqdm.notebook

from vsecore.data import files
from vsecore.training import checkpoints


def test_a_file_appears_whole(tmp_path):
    target = tmp_path / "new" / "words.json"
    with files.write_atomically(target, "w") as file:
        json.dump({"word": "Ärmel"}, file, ensure_ascii=False)
        assert not target.exists()
    assert target.read_text("utf-8") == '{"word": "Ärmel"}'
    assert list(target.parent.iterdir()) == [target]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "weights.bin"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), files.write_atomically(target) as file:
        file.write(b"half of the new")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_others_may_read_what_is_written(tmp_path):
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


def test_a_lock_keeps_others_out_until_its_process_ends_even_if_it_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline().strip() == b""
        try:
            with pytest.raises(BlockingIOError, match="another process is testing"):
                files.locked(tmp_path, "is testing", wait=False).__enter__()
        finally:
            other.kill()
    with files.locked(tmp_path, "is testing", wait=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_somebody_else_is_read_without_a_lock_unless_they_work_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files.FileLock, "acquire", Mock(side_effect=PermissionError))
    with files.locked(tmp_path, "is testing"), pytest.raises(PermissionError):
        (tmp_path / files.LOCK).touch()
        files.locked(tmp_path, "is testing").__enter__()


@pytest.mark.parametrize("kind", ["bytes", "npy", "npz", "safetensors"])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, kind):
    """Files that may not grow any more stand in for the disk."""
    resource = pytest.importorskip("resource")
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


def test_a_notebooks_bar_takes_its_output_along_unless_it_stopped_before_its_end(monkeypatch):
    monkeypatch.setattr("tqdm.auto.tqdm", tqdm.notebook.tqdm)
    monkeypatch.setattr("tqdm.notebook.display", display := Mock())
    monkeypatch.delenv("VSECORE_BATCH")
    progress = runpy.run_path(files.__file__)["progress"]  # as it is where tqdm draws widgets
    progress(total=2).close()
    assert not display().update.called
    list(progress(range(2)))
    display().update.assert_called_once_with({"text/plain": ""}, raw=True)
