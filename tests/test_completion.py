"""Completion: shells are offered commands, options and the names that options take; elsewhere, files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLACER = Path(sys.executable).with_name("placer")


def offered(line: str) -> list[str]:
    """What bash is offered for the last word of ``line``."""
    words = line.split(" ")
    done = subprocess.run(
        [PLACER],
        env={
            **os.environ,
            "COMP_WORDS": "\n".join(words),
            "COMP_CWORD": str(len(words) - 1),
            "_PLACER_COMPLETE": "complete_bash",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("placer ins", ["inspect"]),
        ("placer trace inf", ["info"]),
        ("placer inspect --mod", ["--model"]),
        ("placer inspect --gpu h100", ["h100-pcie", "h100-sxm"]),
        ("placer inspect --cpu-method AMX", ["AMXINT4", "AMXINT8"]),
        ("placer profile --cpu xeon-697", ["xeon-6979p", "xeon-6972p"]),
        ("placer export plan.json --runtime vl", ["vllm", "vllm-plugin"]),
        ("placer trace synth --preset q", ["qwen3-30b-a3b", "qwen3-next-80b-a3b"]),
    ],
)
def test_names_are_completed(line: str, names: list[str]) -> None:
    assert offered(line) == names


@pytest.mark.parametrize("line", ["placer inspect --model mod", "placer explain pla"])
def test_paths_are_left_to_the_shell(line: str) -> None:
    assert offered(line) == []


BASH = """
eval "$(_PLACER_COMPLETE=source_bash placer)"
COMP_WORDS=(placer inspect --gpu h100); COMP_CWORD=3
_placer_completion placer
echo "${COMPREPLY[@]}"
complete -p placer
"""
# A shell that was told that a word is being completed runs the function that the script named.
ZSH = """
compdef() { registered=$1; }
_arguments() { print -- "$@"; }
eval "$(_PLACER_COMPLETE=source_zsh placer)"
words=(placer inspect --gpu h100); CURRENT=4
$registered
"""
FISH = """
_PLACER_COMPLETE=source_fish placer | source
complete --do-complete "placer inspect --gpu h100"
"""


@pytest.mark.parametrize(
    ("shell", "script"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)], ids=["bash", "zsh", "fish"]
)
def test_the_script_completes_in_the_shell_itself(shell: str, script: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{PLACER.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [shell, "-c", script],
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "h100-pcie" in done.stdout
    assert "h100-sxm" in done.stdout
    assert done.stderr == ""
    if shell == "bash":
        # Where placer offers nothing, bash completes file names.
        assert "-o default" in done.stdout
