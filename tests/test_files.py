import json
import re
import runpy
import stat
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


def test_a_folder_of_somebody_else_is_read_without_a_lock_unless_they_work_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files.FileLock, "acquire", Mock(side_effect=PermissionError))
    with files.locked(tmp_path, "is testing"), pytest.raises(PermissionError):
        (tmp_path / files.LOCK).touch()
        files.locked(tmp_path, "is testing").__enter__()


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
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
                np.savez(file, numbers)
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
