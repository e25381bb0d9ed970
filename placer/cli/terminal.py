"""The terminal: JSON on stdout, text and progress on stderr, as much of it as -q and -v ask for."""

import json
import sys
from contextvars import ContextVar
from typing import Any

from placer.answer.detail import Detail
from placer.errors import BadInputError, PlacerError

_detail = ContextVar("detail", default=Detail.USUAL)


def set_detail(*, quiet: bool = False, verbose: bool = False) -> None:
    """Print from here on what -q or -v asks for; neither leaves it as it is."""
    if quiet and verbose:
        raise BadInputError("-q and -v were both given", "give one of the two")
    if quiet or verbose:
        _detail.set(Detail.QUIET if quiet else Detail.FULL)


def reset_detail() -> None:
    """Print as much as is usual."""
    _detail.set(Detail.USUAL)


def quiet() -> bool:
    """Whether the verdict and errors alone are printed."""
    return _detail.get() is Detail.QUIET


def print_json(document: dict[str, Any]) -> None:
    """``document`` as one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def show(answer: Any) -> None:
    """An answer on stderr, as much of it as was asked for."""
    from placer.answer.console import print_answer

    print_answer(answer, _detail.get())


def say(text: str, indent: str = "  ") -> None:
    """One message on stderr, wrapped between its words; what the user typed stays whole."""
    from placer.answer.console import print_line

    print_line(text, indent=indent, whole=sys.argv[1:])


def add(text: str) -> None:
    """One message beside the verdict, such as a note: `say`, but not under -q."""
    if not quiet():
        say(text)


def fail(error: PlacerError) -> None:
    """What is wrong, and what to do."""
    say(f"error: {error.what}")
    if error.hint:
        say(f"  do: {error.hint}", indent="    ")
