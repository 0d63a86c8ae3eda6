"""The page of costs: its numbers are the records'."""

import json
from pathlib import Path

import pytest

from coursebook import costs
from vsecore import records
from vsecore.paths import assets


@pytest.fixture
def kept(tmp_path):
    for path in (assets() / "results").glob("benchmark_*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def changed(kept, name, **metrics):
    (path,) = kept.glob(f"benchmark_{name}-*.json")
    content = json.loads(path.read_text())
    content["metrics"] |= metrics
    path.write_text(json.dumps(content))
    return records.read(path)


def test_what_is_not_recorded_is_told(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        page = costs.page(folder)
        for name in costs.BENCHMARKS:
            assert f"Not recorded yet: `tests/benchmarks/{name}.py` measures it." in page
    for name in costs.BENCHMARKS:
        assert (Path(__file__).parent / "benchmarks" / f"{name}.py").is_file()


def test_the_numbers_are_those_of_the_records(kept):
    changed(kept, "search", real_flat_ms_a_query=0.6543, made_100000_hnsw_recall_at_10=0.7654)
    page = costs.page(kept)
    assert "| 8,091 | all numbers, exact | 138 ms | 2,048 | 0.654 | 1.00 |" in page
    assert "| 100,000 | a graph of neighbours | 16.5 seconds | 2,320 | 0.0944 | 0.77 |" in page
    assert "| 1,000,000 | a graph of neighbours" not in page, "it was not measured"
    metrics = changed(kept, "streaming", disk_speed_over_memory=0.9123).metrics
    assert "**0.91 times** as fast" in costs.page(kept) and f"{metrics['features_gb']:.1f} GB" in page
