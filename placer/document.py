"""JSON documents at file boundaries: finite numbers only, one clear error for anything else."""

import json
import math
import re
from pathlib import Path
from typing import Any

from placer.errors import BadInputError
from placer.input import checked_input

MAX_DOCUMENT_BYTES = 512 * 2**20
"""No document of ours comes near; a larger file is a mistake or an attack."""
MAX_DEPTH = 64
MAX_DIGITS = 40
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_document(
    path: Path, *, what: str, cure: str = "check the file", infinity: bool = False
) -> dict[str, Any]:
    """The JSON object in the file at ``path``; ``what`` names it in errors ("profile", "placement").

    ``cure`` is the advice in errors about the file's content. A byte order mark is skipped. With ``infinity``
    the constants Infinity and -Infinity are read as null.

    Raises
    ------
    BadInputError
        When the file is missing, not readable, not UTF-8, not JSON, not an object, nested too deeply, or holds
        NaN, infinity or an absurd integer.
    """
    return _parsed(_text(path, what, cure), f"{what} {path}", cure, infinity)


def read_documents(
    path: Path, *, what: str, cure: str = "check the file", infinity: bool = False
) -> tuple[dict[str, Any], ...]:
    """The JSON objects in the file at ``path``: one, or one on every line (JSONL).

    Raises
    ------
    BadInputError
        As `read_document`; where a line is at fault, it is named.
    """
    text = _text(path, what, cure)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) == 1 or not _is_whole(lines[0][1]):
        return (_parsed(text, f"{what} {path}", cure, infinity),)
    return tuple(_parsed(line, f"line {number} of {what} {path}", cure, infinity) for number, line in lines)


def _is_whole(line: str) -> bool:
    """Whether a first line is a JSON value by itself, as in JSONL."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _text(path: Path, what: str, cure: str) -> str:
    path = checked_input(path, what=what, cure="check the path", regular=False)
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise BadInputError(
                f"{what} {path} is larger than {MAX_DOCUMENT_BYTES:,} bytes", "check the path"
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInputError(
            f"cannot read {what} {path}: {error.strerror or error}", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise BadInputError(f"{what} {path} is not UTF-8 text", cure) from None
    if not text.strip():
        raise BadInputError(f"{what} {path} is empty", cure)
    return text


def _parsed(text: str, name: str, cure: str, infinity: bool) -> dict[str, Any]:
    """The JSON object that ``text`` holds; ``name`` says in errors where it stands."""
    try:
        document = json.loads(
            text,
            parse_constant=_infinity_as_null if infinity else _reject_constant,
            parse_float=_finite_float,
            parse_int=_short_int,
        )
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise BadInputError(f"{name} is nested too deeply", cure) from None
    except json.JSONDecodeError as error:
        raise BadInputError(
            f"{name} is not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})", cure
        ) from None
    except UnicodeEncodeError:
        raise BadInputError(f"{name} holds an escaped half of a character (\\ud800)", cure) from None
    except ValueError as error:
        raise BadInputError(f"{name}: {error}", cure) from None
    if not isinstance(document, dict):
        raise BadInputError(f"{name} is not a JSON object", cure)
    if _deeper_than(document, MAX_DEPTH):
        raise BadInputError(f"{name} is nested too deeply", cure)
    return document


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [inner for outer in level for inner in _children(outer)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [inner for inner in value if isinstance(inner, dict | list)] if isinstance(value, list) else []


def _infinity_as_null(name: str) -> None:
    if name == "NaN":
        _reject_constant(name)


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is not a finite number")
    return value


def _short_int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:8]}… has {len(text)} digits, more than any figure here")
    return int(text)


def dump_document(document: dict[str, Any]) -> str:
    """``document`` as indented JSON text; raises ValueError on a number that is not finite."""
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
