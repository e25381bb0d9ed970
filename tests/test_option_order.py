"""An option that means nothing is refused before any file is read: here none of the files exists."""

from collections.abc import Callable
from pathlib import Path

import pytest

FILES = {
    "solve": ("--model", "--trace", "--profile"),
    "compare": ("--model", "--trace", "--profile"),
    "inspect": ("--model",),
}
WRONG = {
    ("--hbm-budget", "20"): "has no unit",
    ("--host-memory", "64"): "has no unit",
    ("--kv-dtype", "int3"): "--kv-dtype",
}


@pytest.mark.parametrize("command", FILES)
@pytest.mark.parametrize("wrong", WRONG)
def test_an_option_is_judged_before_files(
    command: str, wrong: tuple[str, str], run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    files = (part for flag in FILES[command] for part in (flag, tmp_path / "missing"))
    plan = ("--plan", 4) if command == "inspect" else ()
    code, out, err = run(command, *files, *plan, *wrong)
    assert (code, out) == (2, "")
    assert wrong[0] in err
    assert WRONG[wrong] in err


@pytest.mark.parametrize("wrong", [("--gap", 2), ("--max-running", 99), ("--rate", -1), ("--robust", "best")])
def test_a_solve_is_judged_whole_before_files(
    wrong: tuple[str, object], run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    files = (part for flag in FILES["solve"] for part in (flag, tmp_path / "missing"))
    code, _, err = run("solve", *files, *wrong)
    assert code == 2
    assert wrong[0] in err


def test_a_scheduler_is_judged_before_measurements(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    given = ("--placement", missing, "--model", missing, "--trace", missing, "--profile", missing)
    code, _, err = run("calibrate", *given, "--benchmark", missing, "--scheduler", "tgi")
    assert code == 2
    assert "--scheduler" in err
