"""The page of costs: its numbers are the records'."""

import json
from pathlib import Path

import pytest

from coursebook import costs
from vsecore import records
from vsecore.paths import assets


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """The repository's own benchmarks, to be changed."""
    for path in (assets() / "results").glob("benchmark_*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def changed(kept: Path, name: str, **metrics: float) -> records.Record:
    """Change some numbers of a record, and return it."""
    (path,) = kept.glob(f"benchmark_{name}-*.json")
    content = json.loads(path.read_text())
    content["metrics"] |= metrics
    path.write_text(json.dumps(content))
    return records.read(path)


def rows_below(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by their first cell."""
    lines = iter(page.split(heading, 1)[1].splitlines())
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return {row[0]: row[1:] for row in reversed(table)}  # of several tables the first counts


def test_what_is_not_recorded_is_told(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        page = costs.page(folder)
        for name in costs.BENCHMARKS:
            assert f"Not recorded yet: `tests/benchmarks/{name}.py` measures it." in page
    for name in costs.BENCHMARKS:
        assert (Path(__file__).parent / "benchmarks" / f"{name}.py").is_file()


def test_the_numbers_are_those_of_the_records(kept: Path) -> None:
    changed(kept, "search", real_flat_ms_a_query=0.6543, made_100000_hnsw_recall_at_10=0.7654)
    page = costs.page(kept)
    assert "| 8,091 | all numbers, exact | 138 ms | 2,048 | 0.654 | 1.00 |" in page
    assert "| 100,000 | a graph of neighbours | 16 s | 2,320 | 0.0944 | 0.77 |" in page
    assert "| 1,000,000 | a graph of neighbours" not in page, "it was not measured"
    metrics = changed(kept, "streaming", disk_speed_over_memory=0.9123).metrics
    assert "**0.91 times** as fast" in costs.page(kept) and f"{metrics['features_gb']:.1f} GB" in page


def test_all_that_must_be_embedded_is_reckoned_from_what_was_indexed(kept: Path) -> None:
    clocks = {"train_seconds": 60.0, "train_processor_seconds": 59.0, "index_processor_seconds": 60.0}
    entry = changed(kept, "end_to_end", **clocks, indexed_pictures=6000, rsum=210.5)
    page = costs.page(kept)
    assert rows_below(page, "From photographs")["`vse train`"] == ["60 s", "59 s"]
    words = " ".join(page.split())
    assert "One takes 10 ms here, so ten million take 27.8 hours" in words and "test rsum of 210.5" in words
    assert f"({entry.device}, one thread a process, {entry.date}.)" in words


def test_the_page_is_laid_in_the_book(tmp_path: Path) -> None:
    costs.lay_costs(tmp_path)
    assert (tmp_path / f"{costs.PAGE}.md").read_text("utf-8").startswith("# What full scale costs")
    contents = (Path(__file__).parents[1] / "book" / "_toc.yml").read_text()
    assert f"evidence/{costs.PAGE}" in contents
