"""How much of an answer is printed."""

from enum import IntEnum


class Detail(IntEnum):
    """The verdict alone (`-q`), what most readers need, or all of it (`-v`)."""

    QUIET = 0
    USUAL = 1
    FULL = 2
