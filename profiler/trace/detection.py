"""Which format a file is in, by its content."""

import zipfile
from pathlib import Path

from placer.errors import BadInputError
from placer.profiler.trace.formats import FORMATS

_HEAD_BYTES = 4096
_MOST_HEADER_BYTES = 100 * 2**20
"""A longer safetensors header is refused by its own reader."""
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


def detect_format(path: Path) -> str:
    """The key of `FORMATS` that the content of ``path`` shows.

    Raises
    ------
    BadInputError
        When it is none of them; the message lists what was tried.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror or error}", "give a file that can be read") from None
    if not head:
        raise BadInputError(f"{path}: the file is empty", "record again, or give another file")
    for magic, name in ((b"GGUF", "imatrix"), (b"PAR1", "parquet"), (b"\x93NUMPY", "npy")):
        if head.startswith(magic):
            return name
    if head.startswith(b"PK"):
        return _of_archive(path)
    if int.from_bytes(head[:8], "little") < _MOST_HEADER_BYTES and head[8:9] == b"{":
        return "trace"
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise BadInputError(f"{path}: packed with {name}", f"unpack it first ({name} -d)")
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        raise BadInputError(
            f"{path}: a bare pickle, which can run code and is never loaded",
            "save arrays as .npz, tables as CSV or Parquet, recorder dumps with torch.save's zip format",
        )
    return _of_text(head, path)


def _of_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except Exception as error:  # the zip reader raises many kinds for a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(f"{path}: a damaged zip archive ({reason})", "copy or record it again") from None
    if any(member.endswith(".npy") for member in members):
        return "npz"
    if any(member.endswith("data.pkl") for member in members):
        return "sglang"
    raise unknown_format(path)


def _of_text(head: bytes, path: Path) -> str:
    text = head.decode("utf-8-sig", errors="replace").lstrip()
    if text[:1] in ("{", "["):
        return "routed"
    first = text.splitlines()[0].lower() if text else ""
    if "layer" in first and "expert" in first:
        return "csv"
    raise unknown_format(path)


def unknown_format(path: Path) -> BadInputError:
    """The error for a file that is in none of the formats."""
    tried = "; ".join(f"{name} ({one.told_by})" for name, one in FORMATS.items())
    return BadInputError(f"{path}: of no known format; tried {tried}", "see placer trace import --help")
