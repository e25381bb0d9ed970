"""`placer version`, `placer --version` and `python -m placer` say the same, and what the package's metadata says."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., tuple[int, str, str]]
VERSION = f"placer {importlib.metadata.version('moe-placer')}\n"


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_the_version_is_the_installed_one(run: Run, argument: str) -> None:
    assert run(argument) == (0, VERSION, "")


@pytest.mark.parametrize("module", ["placer", "placer.cli"])
def test_python_runs_the_module(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (VERSION, "")


def test_the_module_ends_with_the_commands_exit_code() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "placer", "inspect", "--model", "absent"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
