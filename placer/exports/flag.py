"""A flag of a serving runtime that a placement decides."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

import yaml


@dataclass(frozen=True)
class Flag:
    """One server flag (``name`` without dashes), its value and what it does for the plan."""

    name: str
    value: str | int | float | bool | tuple[int | str, ...]
    why: str


def yaml_lines(flags: Iterable[Flag]) -> list[str]:
    """The flags as lines of a YAML file, one each."""
    return [f"{flag.name}: {_scalar(flag.value)}" for flag in flags]


def command_line(flags: Iterable[Flag]) -> str:
    """The flags as words of a shell command; those that are True stand alone."""
    words: list[str] = []
    for flag in flags:
        words += [f"--{flag.name}"] if flag.value is True else [f"--{flag.name}", str(flag.value)]
    return shlex.join(words)


def _scalar(value: str | int | float | bool | tuple[int | str, ...]) -> str:
    if isinstance(value, float):
        # Nine decimals, never an exponent.
        whole, _, decimals = f"{value:.9f}".partition(".")
        return f"{whole}.{decimals.rstrip('0') or '0'}"
    if isinstance(value, tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"
    # The document end marker that safe_dump adds to a bare scalar is not part of the value.
    return yaml.safe_dump(value, allow_unicode=True, width=10**6).removesuffix("...\n").strip()
