"""Thread counts worth trying, which of them wins, and a real sweep on small experts."""

from pathlib import Path

import pytest

from placer.errors import MissingComponentError
from placer.kernels.cores import usable_cores
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.torch_int4 import TorchInt4
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.cpu_profile import profile_cpu
from placer.profiler.timing.grid import decode_call
from placer.profiler.timing.thread_sweep import (
    ThreadTiming,
    fastest,
    settings,
    sweep_threads,
    thread_counts,
)

SHAPE = ExpertShape(hidden_size=64, expert_intermediate_size=32, experts=8, top_k=2)


def test_quarters_of_the_cores_the_physical_ones_and_all_but_one_are_tried() -> None:
    assert thread_counts(cores=64, physical_cores=32) == (16, 31, 32, 48, 63, 64)
    assert thread_counts(cores=2, physical_cores=2) == (1, 2)
    assert thread_counts(cores=1, physical_cores=1) == (1,)


def test_fewer_threads_win_a_tie_of_two_percent() -> None:
    slow, near, best = (ThreadTiming(n, 1, us, us) for n, us in ((4, 150.0), (8, 101.5), (15, 100.0)))
    assert fastest((slow, near, best)) == near
    assert fastest((slow, ThreadTiming(8, 1, 103.0, 103.0), best)) == best
    # One memory node instead of two, where it is as fast.
    assert fastest((ThreadTiming(8, 2, 99.0, 99.0), ThreadTiming(8, 1, 100.0, 100.0))).subpools == 1
    assert fastest((ThreadTiming(8, 1, None, None, "crashed"), best)) == best


def test_the_decode_call_is_the_traces_median_or_eight_made_up_tokens() -> None:
    calls = tuple(Call((1,) * n, 4, Role.HELDOUT, "trace") for n in (3, 1, 5))
    assert decode_call(SHAPE, calls, seed=0) == calls[0]
    made_up = decode_call(SHAPE, (), seed=0)
    assert made_up.tokens == 8
    assert sum(made_up.rows) == 8 * SHAPE.top_k


def test_only_settings_that_the_kernel_accepts_are_tried() -> None:
    found = [threads for threads, _ in settings(TorchInt4, SHAPE)]
    assert found == sorted(set(found))
    assert found[-1] == usable_cores()
    call = Call((1,), 1, Role.HELDOUT, "zipf")
    with pytest.raises(MissingComponentError, match="no thread count runs here"):
        sweep_threads(TorchInt4, ExpertShape(64, 40, 8, 2), call, max_seconds=1.0, seed=0)


def test_a_profile_keeps_the_table_and_runs_with_the_best(tmp_path: Path) -> None:
    profile = profile_cpu(
        SHAPE,
        backend="torch",
        threads=None,
        max_seconds=6.0,
        resident_bytes=1 << 20,
        keep_samples=tmp_path,
    )
    assert [timing.threads for timing in profile.sweep] == [t for t, _ in settings(TorchInt4, SHAPE)]
    best = fastest(profile.sweep)
    assert (profile.threads, profile.numa_nodes) == (best.threads, best.subpools)
    # Every setting left its samples, and so did the campaign itself.
    assert len(list(tmp_path.glob("cpu-torch-*-calls.jsonl"))) == len(profile.sweep)
    assert (tmp_path / f"cpu-torch-{best.threads}x1.jsonl").exists()
