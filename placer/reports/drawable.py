"""Whether the numbers of a document can be drawn: sums and scales of absurd ones would overflow."""

from collections.abc import Iterator
from typing import Any

from placer.errors import BadInputError

MOST = 1e30
"""No time, rate or size comes near."""


def check_drawable(document: dict[str, Any], name: str, cure: str) -> None:
    """Raise BadInputError naming the first number of ``document`` whose size exceeds `MOST`.

    ``name`` says which file it is from, ``cure`` what to do.
    """
    for path, value in _numbers(document, ""):
        if abs(value) > MOST:
            raise BadInputError(f"{name}: field {path} is {value:.3g}, which no figure can be", cure)


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{path}.{index}")
    elif isinstance(value, int | float):
        yield path, value
