"""A function in a fresh interpreter: its answer comes back, and the caller's script is not run again."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from placer.errors import BadInputError
from placer.solvers.fresh_process import EndedWithoutAnswerError, end_with, run_fresh


def test_what_a_function_returns_comes_back() -> None:
    assert run_fresh(divmod, 7, 2) == (3, 1)
    assert run_fresh(os.getpid) != os.getpid()


def test_what_a_function_raises_comes_back() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_fresh(divmod, 7, 0)
    assert "Traceback" in caught.value.__notes__[0]


def test_what_is_printed_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_fresh(os.system, "echo said") == 0
    assert run_fresh(print, "said") is None
    assert capfd.readouterr().out == ""


def test_an_answer_may_end_the_process() -> None:
    assert run_fresh(end_with, 3) == 3


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(EndedWithoutAnswerError, match=f"exit code -{signal.SIGKILL}"):
        run_fresh(signal.raise_signal, signal.SIGKILL)


CALLS = {
    "bench": "placer.bench(family='balanced', size='3x16x4', time_limit=5, rivals=['highs']).rows[0].status",
    "trace_bench": "placer.trace_bench(ids=100_000).rows[0].ids",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_script_without_a_main_guard_runs_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            f"""
            import placer
            print("begun")
            print("answer", {CALLS[name]})
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    begun, answer = done.stdout.splitlines()
    assert begun == "begun"
    assert answer.startswith("answer ")
    assert "Traceback" not in done.stderr


def test_an_error_of_ours_keeps_its_words() -> None:
    with pytest.raises(BadInputError, match=r"--ids is 3") as caught:
        run_fresh(_refuse)
    assert caught.value.hint == "give more"


def _refuse() -> None:
    raise BadInputError("--ids is 3", "give more")
