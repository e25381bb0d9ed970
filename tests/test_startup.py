"""Starting: a command loads what it needs alone, and answers at once."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "qwen3-30b-a3b"
HEAVY = (
    "torch",
    "numpy",
    "pandas",
    "scipy",
    "plotly",
    "matplotlib",
    "highspy",
    "pulp",
    "transformers",
    "dask",
)
INSPECT = ("inspect", "--model", str(EXAMPLE))

LOADED = """
import sys
from placer.cli import main
sys.argv = ["placer", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
print(*sys.modules)
"""


def seconds(command: list[str], runs: int = 7) -> float:
    """Least processor time of several runs: what waits for other programs does not count."""
    best = float("inf")
    for _ in range(runs):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, command
        best = min(best, used.ru_utime + used.ru_stime)
    return best


@pytest.fixture(scope="module")
def nothing_seconds() -> float:
    return seconds([sys.executable, "-c", "pass"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("solve", "--help"),
        ("hardware", "--list"),
        INSPECT,
        (*INSPECT, "--plan", "40", "--gpu", "h100-sxm"),
    ],
    ids=" ".join,
)
def test_what_computes_nothing_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "placer.cli" in loaded
    assert not loaded.intersection(HEAVY)


def test_help_loads_neither_rich_nor_pydantic_of_its_own() -> None:
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "placer", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "placer.cli.solve" in loaded
    assert "rich.console" not in loaded


# On an idle core Python itself takes about 0.025 s, so that 0.3 s and 1 s are 12 and 40 times that.
@pytest.mark.parametrize(("arguments", "most"), [(("--help",), 12), (INSPECT, 40)], ids=["help", "inspect"])
def test_an_answer_takes_a_bounded_multiple_of_starting_python(
    arguments: tuple[str, ...], most: float, nothing_seconds: float
) -> None:
    taken = seconds([sys.executable, "-m", "placer", *arguments])
    assert taken < most * nothing_seconds, f"{taken:.3f} s, {taken / nothing_seconds:.1f} x python -c pass"


@pytest.mark.parametrize("command", ["hardware --list --json", "--version", "version", "hardware --help"])
def test_what_a_closed_stdout_swallows_is_told(command: str) -> None:
    done = subprocess.run(
        f"exec {shlex.quote(sys.executable)} -m placer {command} >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: stdout is closed: what was to be printed there is lost\n  do: send it to a file or a pipe\n"
    )


def test_a_command_that_prints_nothing_there_needs_no_stdout() -> None:
    done = subprocess.run(
        f"exec {shlex.quote(sys.executable)} -m placer hardware --list >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert "h100-sxm" in done.stderr
