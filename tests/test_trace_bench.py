"""The trace benchmark: sizes, and what a small run measures."""

from pathlib import Path

import pytest
from shared_data import SHARED_DATA, needs_shared_data

from placer.errors import BadInputError
from placer.profiler.trace.bench import bench_file, bench_sizes, bench_trace
from placer.profiler.trace.known_model import KnownModel


def test_sizes_rise_to_the_largest() -> None:
    assert bench_sizes(100_000_000) == (1_000_000, 3_333_333, 10_000_000, 33_333_333, 100_000_000)
    assert bench_sizes(200_000) == (200_000,)
    with pytest.raises(BadInputError, match="--ids"):
        bench_sizes(10)
    with pytest.raises(BadInputError, match="10000000000"):
        bench_sizes(10**15)


def test_a_small_trace_is_imported_and_replayed() -> None:
    (row,) = bench_trace((200_000,))
    # 24 layers of top-4: 96 ids a token.
    assert row.tokens == 200_000 // 96
    assert row.ids == row.tokens * 96
    stages = (row.import_s, row.write_s, row.read_s, row.replay_s)
    assert min(stages) > 0
    assert row.ids_per_s == pytest.approx(row.ids / sum(stages))
    assert 2**24 < row.peak_bytes < 2**30


def test_a_file_that_is_no_dump_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file"):
        bench_file(tmp_path / "nowhere.npz", KnownModel())


@needs_shared_data
def test_a_real_trace_of_twelve_million_ids_takes_under_half_a_gigabyte() -> None:
    row = bench_file(SHARED_DATA / "traces" / "gptoss20b_tokens.npz", KnownModel())
    assert row.ids == 127_201 * 24 * 4
    assert row.peak_bytes < 500 * 10**6
