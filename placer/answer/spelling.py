"""Characters that the terminal's encoding lacks, spelled with those that every terminal has."""

import codecs
import contextlib
from typing import TextIO

ERRORS = "placer.spelled"
"""Name of the way of encoding, as `open` and `str.encode` take it under ``errors``."""
_SPELLED = str.maketrans(
    {
        **dict(zip("▁▂▃▄▅▆▇█", "12345678", strict=True)),
        **dict(zip("░▒▓·", ".-=.", strict=True)),
        **{"µ": "u", "×": "x", "²": "^2", "…": "...", "–": "-", "—": "-", "→": "->", "≤": "<=", "≥": ">="},
        **{"−": "-", "±": "+-", "≈": "~", "°": " deg", "’": "'", "“": '"', "”": '"'},
    }
)


def spell_out(stream: TextIO) -> None:
    """Let ``stream`` write what its encoding lacks in other characters, where it would fail or write escapes."""
    with contextlib.suppress(AttributeError):
        stream.reconfigure(errors=ERRORS)  # type: ignore[attr-defined]  # streams that stand for one may lack it


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    wanting = error.object[error.start : error.end].translate(_SPELLED)
    # The replacement must be writable itself: what has no spelling becomes its escape.
    return wanting.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(ERRORS, _spelled)
