"""What is told while a function works."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of the whole that is done, 0 to 1."""


def silent(_text: str, _share: float) -> None:
    """Tell nothing: what functions do unless they are given a callback."""
