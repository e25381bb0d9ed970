"""Sizes as functions take them: bytes, or text as commands take it."""

from placer.units import parse_size

Size = str | int
"""Bytes, or text such as 72GiB, 80GB and, where that has a meaning, 75%."""


def size_bytes(
    size: Size, name: str, *, whole_bytes: int | None = None, whole_name: str | None = None
) -> int:
    """Bytes that ``size`` means; see `parse_size` for the other parameters and the errors."""
    text = size if isinstance(size, str) else f"{size}B"
    return parse_size(text, whole_bytes=whole_bytes, whole_name=whole_name, name=name)
