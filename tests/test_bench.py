"""`placer bench`: every solver's row, records, and never behind HiGHS at equal time."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import psutil
import pytest
from shared_data import SHARED_DATA, needs_shared_data

from placer.answer.bench import bench_answer, write_csv
from placer.answer.console import print_answer
from placer.errors import BadInputError
from placer.solvers.bench.bench import BenchReport, bench
from placer.solvers.bench.comparison import comparison
from placer.solvers.bench.family import Size, generated
from placer.solvers.bench.instance_file import read_instance
from placer.solvers.bench.records import best_known, recorded_highs
from placer.solvers.bench.selection import selected
from placer.solvers.bench.solver_run import Limits, SolverRun
from placer.solvers.bench.trajectory import Milestone, at_limit
from placer.solvers.solution import SolverStatus

TINY = Size(3, 16, 4)


@pytest.fixture(scope="module")
def report() -> BenchReport:
    """Two small instances, one with levels, solved by all three solvers."""
    instances = [generated(family, size=TINY) for family in ("balanced", "multi-level")]
    return bench(instances, Limits(60.0, gap=1e-4), rivals=["highs", "cbc"])


def test_every_solver_has_a_row_and_all_agree(report: BenchReport) -> None:
    assert [row.solver for row in report.rows] == 2 * ["structured", "highs", "cbc"]
    for own, *rivals in (report.rows[:3], report.rows[3:]):
        assert own.objective_us is not None
        for row in (own, *rivals):
            assert row.objective_us == pytest.approx(own.objective_us, rel=2e-4)
            assert row.bound_us == pytest.approx(own.objective_us, rel=2e-4)
            assert row.bound_us <= row.objective_us
            assert row.lp_us is not None
            # No relaxation of these is trivial: HiGHS's first bound, from its columns alone, is 0 for levels.
            assert 0.8 * row.objective_us <= row.lp_us <= row.objective_us
            assert row.status == "optimal"
            assert row.seconds > 0
            assert row.best_known_us is not None
            assert row.best_known_us <= row.objective_us


def test_at_equal_time_never_behind_highs(report: BenchReport) -> None:
    assert {row.limit_s for row in report.comparison} == {5.0, 10.0, 30.0, 60.0}
    assert all(row.never_worse and not row.recorded for row in report.comparison)
    assert {row.solver for row in report.milestones} == {"highs", "cbc"}


def test_the_answer_fits_a_hundred_columns(
    report: BenchReport, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    print_answer(bench_answer(report))
    printed = capsys.readouterr().err
    assert "balanced-3x16x4-0: best known" in printed
    assert "never worse than HiGHS" in printed
    assert max(map(len, printed.splitlines())) <= 100
    write_csv(report.rows, tmp_path / "rows.csv")
    assert pd.read_csv(tmp_path / "rows.csv")["solver"].tolist() == [row.solver for row in report.rows]


RUN = SolverRun(
    solver="structured",
    status=SolverStatus.TIME_LIMIT,
    objective_us=100.0,
    lp_us=None,
    bound_us=90.0,
    gap=0.1,
    seconds=5.0,
    cpu_seconds=5.0,
    peak_bytes=0,
)


def test_the_comparison_reads_both_sides_at_the_limit() -> None:
    highs = [
        Milestone(1.0, 0.5, None, 80.0),
        Milestone(12.0, 8.0, 110.0, 85.0),
        Milestone(30.0, 29.0, 96.0, 88.0),
    ]
    runs = {5.0: RUN, 30.0: replace(RUN, objective_us=97.0)}
    rows = comparison("a", runs, highs, cpu=False, until_s=30.0, recorded=False)
    assert [(row.limit_s, row.structured_us, row.highs_us) for row in rows] == [
        (5.0, 100.0, None),
        (10.0, 100.0, None),
        (30.0, 97.0, 96.0),
    ]
    assert [row.never_worse for row in rows] == [True, True, False]
    assert {row.first_us for row in rows} == {100.0}
    # By HiGHS's CPU time it had 110 within 10 s.
    by_cpu = comparison("a", runs, highs, cpu=True, until_s=30.0, recorded=False)
    assert by_cpu[1].highs_us == 110.0
    assert at_limit(highs, 0.9, cpu=False) is None


def test_the_end_of_a_live_run_is_compared_too() -> None:
    # HiGHS goes ahead after 7 s: at 5 s level, at its end (8 s) 90 against 100.
    highs = [Milestone(1.0, 1.0, 100.0, 80.0), Milestone(7.0, 7.0, 90.0, 85.0)]
    own = SolverRun("structured", SolverStatus.SEARCHED, 100.0, None, 80.0, 0.2, 4.0, 4.0, 0)
    rows = comparison("one", {5.0: own, 8.0: own}, highs, cpu=False, until_s=8.0, recorded=False)
    assert [(row.limit_s, row.highs_us, row.never_worse) for row in rows] == [
        (5.0, 100.0, True),
        (8.0, 90.0, False),
    ]


def test_an_interrupted_benchmark_keeps_the_instances_that_are_finished() -> None:
    instances = [generated(family, size=TINY) for family in ("balanced", "multi-level")]

    def stop(text: str, _share: float) -> None:
        if text.startswith(instances[1].name):
            raise KeyboardInterrupt

    kept = bench(instances, Limits(60.0, gap=1e-4), progress=stop)
    assert kept.interrupted
    assert [row.name for row in kept.rows] == [instances[0].name]


def test_nothing_on_record_is_none() -> None:
    assert best_known("0" * 64) is None
    assert recorded_highs("0" * 64) == ()


@needs_shared_data
def test_the_instance_with_the_longest_record_of_highs_is_met_in_five_seconds() -> None:
    instance = read_instance(SHARED_DATA / "instances" / "balanced_62x160_80.npz")
    highs = recorded_highs(instance.sha256)
    assert [one.cpu_seconds for one in highs] == [5, 10, 30, 60, 120, 300]
    known = best_known(instance.sha256)
    assert known is not None
    report = bench([instance], Limits(5.0))
    (row,) = report.rows
    assert row.objective_us is not None
    # A busy machine gives a few tenths of the five seconds.
    assert row.objective_us <= 1.001 * known.objective_us
    assert len(report.comparison) == 6
    assert all(one.never_worse and one.recorded for one in report.comparison)


@needs_shared_data
def test_records_hold_a_best_objective_for_every_shared_instance() -> None:
    for path in sorted((SHARED_DATA / "instances").glob("*.npz")):
        instance = read_instance(path)
        known = best_known(instance.sha256)
        assert known is not None
        held = [one.objective_us for one in recorded_highs(instance.sha256) if one.objective_us is not None]
        assert all(known.objective_us <= objective for objective in held)


@pytest.mark.parametrize(
    ("limits", "rivals"),
    [(Limits(0.0), []), (Limits(1.0, gap=1.0), []), (Limits(1.0), ["gurobi"])],
)
def test_what_cannot_be_benchmarked_is_refused(limits: Limits, rivals: list[str]) -> None:
    with pytest.raises(BadInputError):
        bench([generated("balanced", size=TINY)], limits, rivals=rivals)


def test_files_and_families_are_selected_together(tmp_path: Path) -> None:
    names = [one.name for one in selected([], families=["jumps", "balanced"], size="3x16x4", seed=7)]
    assert names == ["jumps-3x16x4-7", "balanced-3x16x4-7"]
    assert len(selected([], size="2x16x2")) == 10
    for size in ("3x16", "0x16x4", "3x16x4x1"):
        with pytest.raises(BadInputError):
            selected([], size=size)
    with pytest.raises(BadInputError):
        selected([tmp_path / "missing.npz"])


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a POSIX terminal")
def test_an_interrupted_benchmark_leaves_no_solver_running() -> None:
    command = [sys.executable, "-m", "placer.cli", "bench", "--family", "small-batch-1", "--rivals", "highs"]
    process = psutil.Popen(
        ["nohup", *command, "--time-limit", "60"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    solvers: list[psutil.Process] = []
    while not solvers and time.monotonic() < deadline:
        solvers = [one for one in process.children() if "fresh_process" in " ".join(one.cmdline())]
        time.sleep(0.1)
    assert solvers
    # Under nohup the end of the terminal is no end of the work.
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in told
    assert not any(one.is_running() for one in solvers)


def test_no_family_leaves_highs_a_better_placement_at_equal_time() -> None:
    families = ["jumps", "unequal-layers"]
    report = bench([generated(name, size=TINY) for name in families], Limits(2.0, gap=1e-3), rivals=["highs"])
    for own, highs in zip(report.rows[::2], report.rows[1::2], strict=True):
        assert own.objective_us is not None
        # Either may stop anywhere within the gap.
        assert highs.objective_us is None or own.objective_us <= highs.objective_us * (1 + 1e-3)
