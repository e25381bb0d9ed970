"""Commands that documents show: found in Markdown, and read by the command line's own parser without being run."""

import argparse
import importlib.util
import re
import runpy
import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from placer.cli import app
from placer.cli.completion import cpu_methods, runtimes, trace_presets
from placer.cpu_datasheet import cpu_datasheet
from placer.datasheet import gpu_datasheet
from placer.errors import PlacerError
from placer.profiler.trace.mix import parse_mix
from placer.units import parse_size

LEFT_OUT = "…"
_OPERATORS = ("|", "||", "&&", ";", "&", ">", ">>")


@dataclass(frozen=True)
class DocumentedCommand:
    """A command of a document.

    ``words`` are as a shell splits them; ``whole`` says that nothing is left out of it, neither by ``…`` nor, in a
    sentence, by naming the command alone.
    """

    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return " ".join(self.words)


def commands_in(markdown: str, program: str) -> list[DocumentedCommand]:
    """Every command of ``program`` (``placer``, ``make``, ``python -m``) in blocks and in code within sentences."""
    start = rf"{re.escape(program)}(?: |$)"
    blocks = re.findall(r"^(`{3,})(?:sh[^\n]*)?\n(.*?)^\1$", markdown, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^(`{3,})[^`\n]*\n.*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    indented = "\n".join(re.findall(r"^(?: {4})+(.*)$", prose, re.MULTILINE))
    found = []
    for text in (*(text for _, text in blocks), indented):
        for line in re.sub(r"\\\n\s*", " ", text).splitlines():
            command = re.sub(r"^\s*(\$ |[A-Z_]+=\S+ )*", "", line)
            if re.match(start, command):
                found.append(_command(command, comments=True))
    for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose):
        text = re.sub(r"\s+", " ", code).strip()
        # A colon at the end makes it the beginning of a message.
        if re.match(start, text) and text != program and not text.endswith(":"):
            found.append(_command(text.replace(r"\|", "|"), comments=False))
    return found


def _command(text: str, *, comments: bool) -> DocumentedCommand:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=comments)
    lexer.whitespace_split = True
    lexer.commenters = "#" if comments else ""
    words: list[str] = []
    for word in lexer:
        if word in _OPERATORS:
            break
        words.append(word if comments else word.strip("[]"))
    left_out = LEFT_OUT in words or "--help" in words
    named_alone = not comments and not any(word.startswith("-") for word in words)
    kept = tuple(word for word in words if word not in (LEFT_OUT, "--help"))
    return DocumentedCommand(kept, not (left_out or named_alone))


def parse(command: DocumentedCommand) -> None:
    """Read a `placer` command as the command line would, up to running it.

    Raises
    ------
    AssertionError
        When a command, option or value is not known, or something required is missing from a whole command.
    """
    level: Any = typer.main.get_command(app)
    context: Any = None
    name, rest = "placer", [_placeholder(word) for word in command.words[1:]]
    while True:
        if context is None and rest and rest[0].startswith("--"):
            # These run while they are read: they print, or write to the user's shell.
            asleep = level.make_context(name, [], resilient_parsing=True)
            known = [option for each in level.get_params(asleep) for option in each.opts]
            assert rest[0] in known, f"{command}: {rest[0]} is no option of placer"
            return
        try:
            context = level.make_context(name, list(rest), parent=context)
            arguments = [*getattr(context, "_protected_args", ()), *context.args]
            _read_values(level, context)
            if not hasattr(level, "resolve_command") or not arguments:
                return
            name, level, rest = level.resolve_command(context, arguments)
        except Exception as error:
            if type(error).__name__ == "NoArgsIsHelpError" and not command.whole:
                return
            if type(error).__name__ == "MissingParameter" and not command.whole:
                # What is given is read before what is missing.
                _read_values(level, getattr(error, "ctx"))  # noqa: B009
                return
            raise AssertionError(f"{command}: {getattr(error, 'message', error)}") from error


def _placeholder(word: str) -> str:
    """``N`` stands for a number."""
    return "1" if word == "N" else word


def parse_module(command: DocumentedCommand) -> None:
    """Read a `python -m` command with the module's own parser, up to running it.

    Raises
    ------
    AssertionError
        When there is no such module, or it does not take these arguments.
    """
    name, arguments = command.words[2], command.words[3:]
    found = importlib.util.find_spec(name)
    assert found is not None, f"{command}: no such module"
    if not arguments or found.origin is None:
        return
    assert "argparse" in Path(found.origin).read_text(encoding="utf-8"), f"{command}: it takes no arguments"
    read = argparse.ArgumentParser.parse_args

    def only_read(parser: argparse.ArgumentParser, *_: object) -> None:
        read(parser, list(arguments))
        raise _WasReadError

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # A test may have imported the module already.
        warnings.simplefilter("ignore", RuntimeWarning)
        patch.setattr(argparse.ArgumentParser, "parse_args", only_read)
        try:
            runpy.run_module(name, run_name="__main__")
        except _WasReadError:
            return
        except SystemExit:
            raise AssertionError(f"{command}: the module does not take these arguments") from None


class _WasReadError(Exception):
    """Ends a module once it has read its arguments."""


def _one_of(names: tuple[str, ...] | list[str]) -> Callable[[str], None]:
    def check(text: str) -> None:
        assert text in names, f"{text!r} is none of {', '.join(names)}"

    return check


_VALUES: dict[str, Callable[[str], object]] = {
    "--gpu": gpu_datasheet,
    "--cpu": cpu_datasheet,
    "--hbm-budget": lambda text: parse_size(text, whole_bytes=2**40),
    "--host-memory": parse_size,
    "--gpu-free": parse_size,
    "--mix": parse_mix,
    "--cpu-method": _one_of(cpu_methods()),
    "--cpu-kernel": _one_of(["auto", "kt", "kt-amxint4", "kt-amxint8", "kt-llamafile", "torch"]),
    "--runtime": _one_of(runtimes()),
    "--preset": _one_of(trace_presets()),
    "--kv-dtype": _one_of(["bf16", "fp8", "auto"]),
    "--solver": _one_of(["auto", "highs", "cbc"]),
    "--robust": _one_of(["time", "regret"]),
    "--scheduler": _one_of(["sglang", "vllm"]),
    "--objective": _one_of(["throughput", "latency", "goodput"]),
    "--clock": _one_of(["wall", "cpu"]),
}
"""How the text of an option is read that the parser itself leaves as it is."""


def _read_values(level: Any, context: Any) -> None:
    for parameter in level.params:
        source = context.get_parameter_source(parameter.name)
        given = source is not None and source.name == "COMMANDLINE"
        value = context.params.get(parameter.name) if given else None
        for option in parameter.opts:
            if isinstance(value, str) and option in _VALUES and value != "NAME":
                for alternative in value.split("|"):
                    try:
                        _VALUES[option](alternative)
                    except PlacerError as error:
                        raise AssertionError(f"{option} {alternative}: {error}") from error


def documents(repository: Path) -> list[Path]:
    """Every Markdown file of the repository, without what its commands write there."""
    return sorted(
        path
        for path in repository.rglob("*.md")
        if not any(
            part.startswith(".") or part in ("build", "demo-output", "node_modules", "tutorial")
            for part in path.relative_to(repository).parts
        )
    )
