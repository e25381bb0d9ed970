"""The terminal: JSON on stdout, text and a progress bar on stderr."""

import json
import sys
from typing import Any

from placer.errors import PlacerError


def print_json(document: dict[str, Any]) -> None:
    """``document`` as one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def show(answer: Any) -> None:
    """A whole answer on stderr."""
    from placer.answer.console import print_answer

    print_answer(answer)


def say(text: str, indent: str = "  ") -> None:
    """One message on stderr, wrapped between its words; what the user typed stays whole."""
    from placer.answer.console import print_line

    print_line(text, indent=indent, whole=sys.argv[1:])


def fail(error: PlacerError) -> None:
    """What is wrong, and what to do."""
    say(f"error: {error.what}")
    if error.hint:
        say(f"  do: {error.hint}", indent="    ")
