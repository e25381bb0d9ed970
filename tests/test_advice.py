"""Advice names only options and commands that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import typer

import placer
from placer.cli import app

FOLDERS = [
    Path(placer.__file__).parent,
    *(Path(placer.__file__).parents[1] / name for name in ("profiler", "kernels", "solvers")),
]
OTHERS = {
    "--help",
    "--kt-method",
    "--enable-return-routed-experts",
    "--init-expert-location",
    "--output-format",
    "--max-concurrency",
    "--request-rate",
    "--save-detailed",
    "--disable-stream",
    "--ignore-eos",
}
"""What every command takes, and flags of runtimes that an error may name."""


def commands() -> dict[str, set[str]]:
    """The options of every command, by the words that call it."""
    found: dict[str, set[str]] = {}

    def walk(command: typer.core.TyperGroup | typer.core.TyperCommand, words: str) -> None:
        found[words] = {option for parameter in command.params for option in parameter.opts}
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{words} {name}")

    walk(typer.main.get_command(app), "placer")
    return found


def said(path: Path) -> Iterator[str]:
    """Every text inside the arguments of an error or a kernel's problem."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if name.endswith("Error") or name in ("Problem", "_broken"):
            yield " ".join(
                inner.value
                for inner in ast.walk(node)
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
            )


def test_every_option_and_command_in_an_error_exists() -> None:
    known = commands()
    options = OTHERS.union(*known.values())
    seen = 0
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            for text in said(path):
                for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text):
                    # What pip and other programs take is quoted as a whole command.
                    if not re.search(rf"'(?:pip|git) [^']*{option}", text):
                        assert option in options, f"{path}: {option} in {text!r}"
                        seen += 1
                for words in re.findall(r"['`](placer(?: [a-z]+)*)", text):
                    assert words in known, f"{path}: {words} in {text!r}"
                    seen += 1
    assert seen > 40
