"""Ctrl-C and a polite kill at any moment: the old result or the new one, whole, and one line that says so."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from recordings import npy

ASKED_WHILE_LOADING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.{name})
sys.meta_path.insert(0, Finder())
sys.argv = ["placer", "--version"]
from placer.start import main
main()
"""


@pytest.mark.parametrize("module", ["placer.cli", "typer", "placer.cli.version"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_loading_can_be_interrupted(module: str, name: str) -> None:
    script = ASKED_WHILE_LOADING.format(module=module, name=name)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted: no result was written\n")


def test_a_command_under_nohup_is_not_hung_up() -> None:
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)" + ASKED_WHILE_LOADING.format(
        module="typer", name="SIGHUP"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


MOMENTS = 4


def test_an_import_that_is_interrupted_leaves_the_old_trace_or_the_new_one(tmp_path: Path) -> None:
    ids = np.argsort(np.random.default_rng(0).random((4000, 4, 16)), axis=2)[:, :, :2]
    (tmp_path / "ids.npy").write_bytes(npy(ids.astype(np.uint8)))
    arguments = ["trace", "import", "ids.npy", "-o", "trace.safetensors"]
    command = [sys.executable, "-m", "placer", *arguments]
    (tmp_path / "trace.safetensors").write_bytes(b"old")
    started = time.monotonic()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    longest_s = time.monotonic() - started
    new = (tmp_path / "trace.safetensors").read_bytes()
    for moment in range(MOMENTS):
        (tmp_path / "trace.safetensors").write_bytes(b"old")
        wait_s = longest_s * moment / MOMENTS
        code, said = interrupted(command, tmp_path, wait_s)
        assert "Traceback" not in said
        assert code in (0, 130, -signal.SIGTERM), said
        assert (tmp_path / "trace.safetensors").read_bytes() in ((new,) if code == 0 else (b"old", new))
        assert {path.name for path in tmp_path.iterdir()} == {"ids.npy", "trace.safetensors"}


def interrupted(command: list[str], folder: Path, wait_s: float) -> tuple[int, str]:
    """Exit code and stderr of a command that gets a signal ``wait_s`` after Python itself has loaded."""
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while not hears(process.pid, signal.SIGTERM):
            time.sleep(0.005)
        time.sleep(wait_s)
        os.kill(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    return process.returncode, said


def hears(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, or has ended."""
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return "Z" in fields["State"] or bool(int(fields["SigCgt"], 16) >> (number - 1) & 1)


WRITES_TWO_FILES = """
import os, signal
from pathlib import Path
import placer.cli.entry as entry
from placer.output import write_text
def command(**_options):
    write_text(Path("points.csv"), "")
    os.kill(os.getpid(), signal.SIGINT)
    write_text(Path("profile.json"), "")
entry.app = command
entry.main()
"""


def test_what_an_interrupted_command_had_written_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES_TWO_FILES],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted: written before that: points.csv\n")
    assert [path.name for path in tmp_path.iterdir()] == ["points.csv"]
