"""Programs of the examples end as the command line does: one line and what to do, whatever they are given."""

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from placer.examples import example_folder

MODEL = str(example_folder("tiny-moe"))
TRACE = f"{MODEL}/traces/trace.safetensors"


@pytest.fixture
def handlers() -> Iterator[None]:
    """What signals do, as it was before."""
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in known.items():
        signal.signal(number, handler)


# A module that a test imported before runs a second time.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("held_out_gains", "nope.npz", "--model", MODEL), "nope.npz: no such file"),
        (("held_out_gains", TRACE, "--model", "nope"), "no config.json at nope"),
        (("held_out_gains", TRACE, "--model", MODEL, "--share", "2"), "--share is 2"),
        (("held_out_gains", TRACE, "--model", MODEL, "--running", "0"), "--running is 0"),
        (("held_out_gains", TRACE, "--model", MODEL, "--hot-us", "nan"), "--hot-us is nan"),
        (("plan_picture", "nope.json", "-o", "x.svg"), "nope.json: no such file"),
        (("shown_output", "nope.md"), "nope.md: no such file"),
        (("shown_output", "latin.md"), "latin.md is no UTF-8 text"),
        (("shown_output", "empty.md", "--folder", "."), "--folder . is there already"),
        (("serving_validation", "--python", "latin.md"), "no Python with vLLM"),
        (("train_tiny_moe", "-o", "latin.md/out"), "Not a directory"),
        (("train_tiny_moe", "--steps", "-1"), "--steps is -1"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_a_hint(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "latin.md").write_bytes(b"\xe9")
    (tmp_path / "empty.md").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(arguments))
    with pytest.raises(SystemExit) as caught:
        runpy.run_module(f"placer.examples.{arguments[0]}", run_name="__main__")
    err = capsys.readouterr().err
    assert caught.value.code == (4 if "no Python" in message else 2)
    assert err.startswith("error: ")
    assert message in " ".join(err.split())
    assert err.count("  do: ") == 1


def test_an_interrupted_program_ends_with_130(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "at work\n"
    os.kill(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (130, "interrupted: no result was written\n")


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'PROGRAM' | true; exit ${{PIPESTATUS[0]}}".replace("PROGRAM", PRINTING)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: Broken pipe")


PROGRAM = """
import time
from placer.examples.ending import end_with

def main():
    print("at work", flush=True)
    time.sleep(60)
    return 0

end_with(main)
"""

PRINTING = """
import time
from placer.examples.ending import end_with

def main():
    time.sleep(0.5)
    print("x" * 100000)
    return 0

end_with(main)
"""
