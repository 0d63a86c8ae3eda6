"""Several processes extract together: the folder is what one process writes, whichever of them is killed."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from accelerate.state import PartialState

from small import contents, free_port
from vsecore.data.extraction import extract
from vsecore.data.features import open_precomp
from vsecore.data.karpathy import load_karpathy

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process must fork")


def crew(count, splits, backbone, folder, before=None):
    """Extract by processes as a launcher starts them: when one ends badly, it kills the others.

    Return their exit codes, and how many batches each has seen; `before` is called before each.
    """
    fork, port = multiprocessing.get_context("fork"), free_port()
    seen = fork.Array("i", count)

    def work(index):
        os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(index))
        os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(count))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true"}
        PartialState._reset_state()  # of a training that this process has run before

        def look(*_):
            if before is not None:
                before(index, seen[index])
            seen[index] += 1

        backbone.register_forward_pre_hook(look)
        extract(splits, backbone, folder, batch_size=2, device="cpu")
        os._exit(0)

    processes = [fork.Process(target=work, args=(index,)) for index in range(count)]
    for process in processes:
        process.start()
    until = time.monotonic() + 60
    while any(process.is_alive() for process in processes) and time.monotonic() < until:
        if any(process.exitcode for process in processes):
            break
        time.sleep(0.02)
    for process in processes:
        process.kill()
        process.join()
    return [process.exitcode for process in processes], list(seen)


def test_the_folder_is_what_one_process_writes(album, tiny, tmp_path):
    splits = load_karpathy(album(train=20, val=3, test=1))
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=2, device="cpu")
    # 21, 3 and 1 pictures are 11, 2 and 1 batches, dealt out one after the other.
    assert crew(3, splits, tiny, tmp_path / "shared") == ([0, 0, 0], [4 + 1 + 1, 4 + 1, 3])
    assert contents(tmp_path / "shared") == contents(whole)
    assert crew(2, splits, tiny, tmp_path / "shared") == ([0, 0], [0, 0])


@pytest.mark.parametrize(("victim", "at"), [(0, 0), (1, 2)])
def test_whichever_is_killed_nothing_is_lost_and_nothing_done_twice(album, tiny, tmp_path, victim, at):
    splits, folder = load_karpathy(album(train=11, val=2, test=2)), tmp_path / "killed"
    whole = extract(splits, tiny, tmp_path / "whole", batch_size=2, device="cpu")

    def kill(index, batch):
        if (index, batch) == (victim, at):
            os.kill(os.getpid(), signal.SIGKILL)

    assert -signal.SIGKILL in crew(2, splits, tiny, folder, kill)[0]
    with pytest.raises(ValueError, match="unfinished"):
        open_precomp(folder)
    made = sum(int((np.load(path) != 0).sum()) for path in folder.glob("*_made.npy"))
    codes, seen = crew(3, splits, tiny, folder)  # with more processes than before
    assert codes == [0, 0, 0]
    assert contents(folder) == contents(whole)
    assert sum(seen) == (6 + 1 + 1) - -(-made // 2)  # batches of two
