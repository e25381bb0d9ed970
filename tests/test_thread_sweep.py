"""Thread counts worth trying, which of them wins, and a real sweep on small experts."""

from dataclasses import replace
from pathlib import Path

import pytest

from placer.errors import MissingComponentError
from placer.kernels.backends import CPU_BACKENDS, Backend
from placer.kernels.cores import usable_cores
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.kt_amx import KtAmxInt8
from placer.kernels.kt_llamafile import KtLlamafile
from placer.kernels.kt_rawint4 import KtRawInt4
from placer.kernels.torch_int4 import TorchInt4
from placer.profiler.timing import subpools
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.cpu_profile import profile_cpu
from placer.profiler.timing.grid import decode_call
from placer.profiler.timing.machine import this_machine
from placer.profiler.timing.subpools import default_subpools, subpool_counts
from placer.profiler.timing.thread_sweep import (
    fastest,
    settings,
    sweep_threads,
    thread_counts,
)
from placer.profiler.timing.thread_timing import ThreadTiming

SHAPE = ExpertShape(hidden_size=64, expert_intermediate_size=32, experts=8, top_k=2)
SHAPE_OF_ALL = ExpertShape(hidden_size=256, expert_intermediate_size=256, experts=8, top_k=2)
"""What every kernel can run."""
CALL = Call((1,) * 4, 2, Role.HELDOUT, "zipf")


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


@pytest.fixture
def four_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(this_machine(), numa_nodes=4)
    monkeypatch.setattr(subpools, "this_machine", lambda: machine)


@pytest.mark.usefixtures("four_nodes")
def test_the_nodes_of_a_kernel_are_those_its_blocks_allow() -> None:
    # 768 = 6 · 128 = 3 · 256 = 12 · 64.
    shape = ExpertShape(2048, 768, 128, 8)
    assert subpool_counts(KtRawInt4, shape, threads=16) == (1, 2, 3)
    assert subpool_counts(KtLlamafile, shape, threads=16) == (1, 3)
    assert subpool_counts(KtAmxInt8, shape, threads=16) == (1, 2, 3, 4)
    assert subpool_counts(TorchInt4, shape, threads=16) == (1,)
    assert subpool_counts(KtRawInt4, shape, threads=2) == (1, 2)
    assert default_subpools(KtAmxInt8, shape, threads=16) == (4, ())
    assert default_subpools(TorchInt4, shape, threads=16) == (1, ())
    nodes, notes = default_subpools(KtLlamafile, shape, threads=16)
    assert nodes == 3
    assert "LLAMAFILE cannot cut expert width 768 into 4 shares" in notes[0]
    assert "--kt-threadpool-count 3" in notes[0]


@pytest.mark.runtime
@pytest.mark.parametrize("kernel", CPU_BACKENDS, ids=lambda kernel: kernel.name)
def test_every_kernel_is_swept_within_its_limits(kernel: Backend) -> None:
    if problem := kernel.problem(SHAPE_OF_ALL, 1):
        pytest.skip(str(problem))
    timings = sweep_threads(kernel, SHAPE_OF_ALL, CALL, max_seconds=4.0, seed=0, resident_bytes=1 << 20)
    # kt-kernel needs a core beside its threads, torch does not.
    most = usable_cores() if kernel is TorchInt4 else usable_cores() - 1
    assert timings[-1].threads == most
    assert all(timing.problem is None for timing in timings)


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
