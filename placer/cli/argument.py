"""Arguments whose text has to be read: counts, numbers, pins, secrets."""

import os
from itertools import pairwise

import typer

from placer.errors import BadInputError


def check_nothing_empty(arguments: list[str]) -> None:
    """Refuse empty values, which a shell makes of an unset variable and a path takes for this folder."""
    for before, argument in pairwise(["", *arguments]):
        assigned = argument.startswith("--") and argument.endswith("=")
        if assigned or not argument:
            flag = argument[:-1] if assigned else before if before.startswith("-") else "an argument"
            raise BadInputError(f"{flag} is empty", "give a value; a shell variable may not be set")


def given_flags(context: typer.Context) -> list[str]:
    """The flags on the command line, as they are spelled in full."""
    flags = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name) if parameter.name else None
        # Which of click's copies typer brings, and with it the class, depends on its version.
        if source is not None and source.name == "COMMANDLINE":
            flags.append(max(parameter.opts, key=len))
    return flags


def secret(variable: str | None) -> str | None:
    """The value of an environment variable."""
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise BadInputError(
            f"--api-key-env {variable}: no such environment variable", "set it, or name another"
        )
    return os.environ[variable]


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
    return _between_commas(flag, text, "give numbers between commas, auto or none")


def gpu_counts(flag: str, text: str) -> tuple[int, ...]:
    """Numbers of GPUs between commas; how many there may be is checked where they are used."""
    from placer.modes.request import GPU_COUNTS

    return _between_commas(flag, text, f"give {GPU_COUNTS}, such as 1,2,4")


def _between_commas(flag: str, text: str, cure: str) -> tuple[int, ...]:
    found = []
    for word in text.split(","):
        try:
            found.append(int(word))
        except ValueError:
            raise BadInputError(f"{flag} is {text!r:.80}: {word!r:.40} is not a number", cure) from None
    return tuple(found)


def pins_of(texts: list[str]) -> dict[int, str]:
    """Where the experts of layers are, "all" or "none", by ``LAYER=all`` or ``LAYER=none``."""
    pins: dict[int, str] = {}
    for text in texts:
        layer, separator, place = text.partition("=")
        if not separator or not layer.isdecimal() or place not in ("all", "none"):
            raise BadInputError(f"--pin {text!r} is not LAYER=all or LAYER=none", "for example: --pin 3=all")
        if pins.setdefault(int(layer), place) != place:
            raise BadInputError(f"--pin gives layer {layer} both all and none", "give one of the two")
    return pins
