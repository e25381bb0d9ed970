"""JSON documents at file boundaries: finite numbers only, one clear error for anything else."""

import json
import math
from pathlib import Path
from typing import Any

from placer.errors import BadInputError

MAX_DOCUMENT_BYTES = 512 * 2**20
"""No document of ours comes near; a larger file is a mistake or an attack."""


def read_document(path: Path, *, what: str, infinity: bool = False) -> dict[str, Any]:
    """The JSON object in the file at ``path``; ``what`` names it in errors ("profile", "placement").

    With ``infinity`` the constants Infinity and -Infinity are read as null.

    Raises
    ------
    BadInputError
        When the file is missing, not readable, not UTF-8, not JSON, not an object, or holds NaN or infinity.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise BadInputError(
                f"{what} {path} is larger than {MAX_DOCUMENT_BYTES:,} bytes", "check the path"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            f"cannot read {what} {path}: {error.strerror or error}", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise BadInputError(
            f"{what} {path} is not UTF-8 text", f"give a {what} file that placer wrote"
        ) from None
    try:
        document = json.loads(
            text,
            parse_constant=_infinity_as_null if infinity else _reject_constant,
            parse_float=_finite_float,
        )
    except RecursionError:
        raise BadInputError(f"{what} {path} is nested too deeply", "check the file") from None
    except ValueError as error:
        raise BadInputError(
            f"{what} {path} is not a JSON document of finite numbers: {error}", "write it again or restore it"
        ) from None
    if not isinstance(document, dict):
        raise BadInputError(f"{what} {path} is not a JSON object", "check the file")
    return document


def _infinity_as_null(name: str) -> None:
    if name == "NaN":
        _reject_constant(name)


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def dump_document(document: dict[str, Any]) -> str:
    """``document`` as indented JSON text; raises ValueError on a number that is not finite."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
