"""Arguments whose text has to be read: counts, numbers, pins, choices, secrets."""

import os
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from placer.errors import BadInputError
from placer.known_name import unknown_value

if TYPE_CHECKING:
    from placer.profiler.trace.known_model import KnownModel


Chosen = TypeVar("Chosen")


def check_nothing_empty(arguments: list[str]) -> None:
    """Refuse empty values, which a shell makes of an unset variable and a path takes for this folder."""
    for before, argument in pairwise(["", *arguments]):
        assigned = argument.startswith("--") and argument.endswith("=")
        if assigned or not argument:
            flag = argument[:-1] if assigned else before if before.startswith("-") else "an argument"
            raise BadInputError(f"{flag} is empty", "give a value; a shell variable may not be set")


def given_flags(context: typer.Context, names: Collection[str] | None = None) -> list[str]:
    """The flags on the command line among parameters ``names`` (None: all), as they are spelled in full."""
    flags = []
    for parameter in context.command.params:
        wanted = parameter.name is not None and (names is None or parameter.name in names)
        source = context.get_parameter_source(parameter.name) if wanted and parameter.name else None
        # Which of click's copies typer brings, and with it the class, depends on its version.
        if source is not None and source.name == "COMMANDLINE":
            flags.append(max(parameter.opts, key=len))
    return flags


def refuse_flags(context: typer.Context, names: Collection[str], because: str, cure: str) -> None:
    """Raise BadInputError where flags were given that change nothing beside others."""
    if flags := given_flags(context, names):
        raise BadInputError(f"{', '.join(flags)} would change nothing: {because}", cure)


def secret(variable: str | None) -> str | None:
    """The value of an environment variable."""
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise BadInputError(
            f"--api-key-env {variable}: no such environment variable", "set it, or name another"
        )
    return os.environ[variable]


def known_model(model: Path | None) -> "KnownModel":
    """What a trace must belong to: all of it from the checkpoint, nothing without one."""
    from placer.model.spec import read_model
    from placer.profiler.trace.known_model import KnownModel

    if model is None:
        return KnownModel()
    spec = read_model(model)
    return KnownModel(spec.name, spec.moe_layers, spec.num_layers, spec.experts, spec.top_k)


def count_or_auto(text: str, flag: str) -> int | None:
    """A whole number, or None for "auto"."""
    if text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise BadInputError(f"{flag} {text!r} is not a number", "give a whole number or auto") from None


def numbers(flag: str, text: str) -> tuple[int, ...] | None:
    """None for "auto", nothing for "none", else numbers between commas."""
    if text in ("auto", "none"):
        return None if text == "auto" else ()
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise BadInputError(f"{flag} is {text!r}", "give numbers between commas, auto or none") from None


def solver_seconds(time_limit: float | None, prove: bool) -> float:
    """Solver seconds: as given, otherwise 30, or 120 to prove."""
    return time_limit if time_limit is not None else 120.0 if prove else 30.0


def pins_of(texts: list[str]) -> dict[int, bool]:
    """Layers by ``LAYER=all`` or ``LAYER=none``: whether all of a layer's experts are hot."""
    pins: dict[int, bool] = {}
    for text in texts:
        layer, separator, place = text.partition("=")
        if not separator or not layer.isdecimal() or place not in ("all", "none"):
            raise BadInputError(f"--pin {text!r} is not LAYER=all or LAYER=none", "for example: --pin 3=all")
        if pins.setdefault(int(layer), place == "all") != (place == "all"):
            raise BadInputError(f"--pin gives layer {layer} both all and none", "give one of the two")
    return pins


def check_budget(budget_bytes: int, device_bytes: int, gpu_name: str, given: str, cure: str) -> None:
    """Refuse a budget above what the GPU has."""
    if budget_bytes > device_bytes:
        raise BadInputError(
            f"--hbm-budget {given} is more than the {device_bytes / 2**30:,.2f} GiB that a process can use of "
            f"{gpu_name}",
            cure,
        )


def choice(text: str, choices: dict[str, Chosen], flag: str) -> Chosen:
    """What ``text`` stands for among ``choices``."""
    if text not in choices:
        raise unknown_value(flag, text, choices)
    return choices[text]


def prefill_side(text: str) -> str:
    """Whether decode tokens stand in for missing prompts."""
    return choice(text, {name: name for name in ("decode", "none")}, "--prefill-from")
