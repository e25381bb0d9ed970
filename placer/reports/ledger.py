"""Where the bytes go: the lines of a memory ledger, largest first."""

from collections.abc import Mapping
from dataclasses import dataclass

from placer.placement import PlacementDocument


@dataclass(frozen=True)
class Ledger:
    """One memory by purpose.

    Attributes
    ----------
    title
        Which memory.
    lines
        (purpose in words, bytes) of every line that is not zero, largest first; what is unused comes last.
    zero
        Purposes that take nothing.
    """

    title: str
    lines: tuple[tuple[str, int], ...]
    zero: tuple[str, ...]

    @property
    def total_bytes(self) -> int:
        """Sum of the lines."""
        return sum(size for _, size in self.lines)

    def share(self, size: int) -> float:
        """``size`` bytes as a share of the sum; 0 of nothing."""
        return size / self.total_bytes if self.total_bytes else 0.0


def hbm_ledger(document: PlacementDocument) -> Ledger:
    """Memory of one GPU."""
    return _ledger("GPU memory (HBM) of each GPU", document.hbm.ledger)


def host_ledger(document: PlacementDocument) -> Ledger:
    """Memory of the host."""
    return _ledger("host memory (every expert is held there, hot ones too)", document.host.ledger)


def _ledger(title: str, lines: Mapping[str, int]) -> Ledger:
    used = sorted(((_words(name), size) for name, size in lines.items() if size), key=lambda line: -line[1])
    used.sort(key=lambda line: line[0] == "unused")
    return Ledger(title, tuple(used), tuple(_words(name) for name, size in lines.items() if not size))


def _words(name: str) -> str:
    """A line of a placement's ledger as a person reads it: hot experts, KV pool, CUDA graphs."""
    words = name.replace("_", " ")
    for short, written in (("kv ", "KV "), ("cuda ", "CUDA "), ("mtp", "MTP layer")):
        words = words.replace(short, written)
    return words
