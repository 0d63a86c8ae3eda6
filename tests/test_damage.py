"""However an input is damaged, a command does its work, or says in one sentence what is wrong.

A few damaged files of each kind are tried here. `make battery` tries hundreds, and prints a table.
"""

import collections
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from battery.attempt import Defect
from battery.damage import damage
from battery.kinds import KINDS, Kind, copy

EXAMPLES = int(os.environ.get("VSECORE_BATTERY", "15"))
"""How many damaged files of each kind are tried."""
OUTCOMES = ("works", "refused", "traceback", "silent", "hang")


@pytest.fixture(scope="module")
def counts() -> Iterator[dict[str, collections.Counter[str]]]:
    """How the attempts ended, by kind; printed at the end (with -s, as `make battery` does)."""
    ended: dict[str, collections.Counter[str]] = {}
    yield ended
    print("\n| kind | tried |", " | ".join(OUTCOMES), "|\n|---|", "---|" * (1 + len(OUTCOMES)), sep="")
    for kind, outcomes in ended.items():
        numbers = [outcomes.total(), *(outcomes[name] for name in OUTCOMES)]
        print(f"| {kind} |", " | ".join(map(str, numbers)), "|")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damage_is_told_in_a_sentence_or_does_no_harm(
    kind: Kind, counts: dict[str, collections.Counter[str]], tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    kind.make(whole)
    assert kind.attempt(copy(whole, tmp_path / "copy" / "it"), whole), "an undamaged one works"
    files = sorted({path.relative_to(whole) for pattern in kind.files for path in whole.glob(pattern)})
    outcomes, defects = counts.setdefault(kind.name, collections.Counter()), []

    # Every defect is collected for the table, so hypothesis need not stop at the first and shrink it.
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        derandomize="VSECORE_BATTERY" not in os.environ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def attempt(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as place:
            folder = copy(whole, Path(place) / "it")
            said = damage(folder / data.draw(st.sampled_from(files)), data.draw)
            try:
                outcome = "works" if kind.attempt(folder, whole) else "refused"
            except Defect as defect:
                outcome = str(defect).partition(":")[0]
                defects.append(f"{said}\n{defect}".replace(place, "PLACE"))
        outcomes[outcome] += 1

    attempt()
    assert not defects, f"{len(defects)} defects:\n\n" + "\n\n".join(defects)


def test_work_that_is_killed_goes_on_and_loses_nothing():
    script = Path(__file__).parent / "battery" / "kills.py"
    few = ["--kills", "1", "--only", "training", "extraction"]  # other tests kill the others
    ended = subprocess.run([sys.executable, script, *few], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("lost: nothing") == 2
