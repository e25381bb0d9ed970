"""A terminal that knows no character beyond ASCII is told the same in other characters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from placements import placement_dict

from placer.answer.spelling import ERRORS

ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("text", "spelled"),
    [("12 µs × 3", "12 us x 3"), ("▁▄█", "148"), ("plain", "plain"), ("é", r"\xe9"), ("\udcff", r"\udcff")],
)
def test_what_ascii_lacks_is_spelled(text: str, spelled: str) -> None:
    assert text.encode("ascii", ERRORS) == spelled.encode()


def test_utf8_lacks_only_what_is_no_character() -> None:
    assert "µ\udcff".encode("utf-8", ERRORS) == "µ\\udcff".encode()


def run(folder: Path, *arguments: str | bytes) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "placer", *arguments],
        cwd=folder,
        env={**os.environ, **ASCII},
        capture_output=True,
        encoding="ascii",
        check=False,
        timeout=60,
    )


def test_answers_help_and_errors_are_ascii_in_such_a_terminal(tmp_path: Path) -> None:
    plan = placement_dict({1: [0]}, layers=[1], experts=4)
    plan["sensitivity"] = {
        "value_us": {"1": [4.0, 1.0, 2.0, 0.5]},
        "multiplier_us_per_byte": 1e-9,
        "us_per_output_token_per_gib": 1.5,
        "expert_bytes_per_gpu": 20,
    }
    name = b"pl\xc3\xa4n\xff.json"
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(json.dumps(plan))
    answer = run(tmp_path, "explain", name, "--layer", "1")
    assert answer.returncode == 0, answer.stderr
    assert " us" in answer.stderr
    assert "\\x" not in answer.stderr
    missing = run(tmp_path, "explain", b"n\xc3\xb6\xff", "--layer", "1")
    assert missing.returncode == 2
    assert "no such file" in missing.stderr
    # The signature of numpy's files begins with a byte that is no character.
    assert "trace import" in run(tmp_path, "trace", "import", "--help").stdout
