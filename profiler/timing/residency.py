"""How many layers of expert weights a campaign keeps in memory, so that every sample reads cold weights."""

from dataclasses import dataclass

from placer.errors import MissingComponentError

CACHES = 3
"""Distinct weights resident, in last-level caches: fewer leave a part of them in the cache."""
SHARE_OF_FREE = 0.6
"""Share of the free memory that the weights may take."""
LEAST_BYTES = 256 << 20
"""Where the cache size is not known: more than most caches hold."""


@dataclass(frozen=True)
class Residency:
    """``layers`` layers to load, the bytes they take, and a note where that is fewer than the rule asks."""

    layers: int
    resident_bytes: int
    note: str | None


def choose_residency(
    layer_bytes: int, cache_bytes: int, free_bytes: int, wanted_bytes: int | None
) -> Residency:
    """Enough layers for three times the cache (or ``wanted_bytes``), as far as memory allows.

    Raises
    ------
    MissingComponentError
        When not even one layer fits.
    """
    most = int(SHARE_OF_FREE * free_bytes) // layer_bytes
    if most < 1:
        raise MissingComponentError(
            f"a layer of experts takes {layer_bytes / 2**30:.1f} GiB, {free_bytes / 2**30:.1f} GiB are free",
            "close other programs, or profile where more memory is free",
        )
    wanted = wanted_bytes if wanted_bytes is not None else max(CACHES * cache_bytes, LEAST_BYTES)
    needed = max(1, -(-wanted // layer_bytes))
    layers = min(needed, most)
    note = None
    if layers < needed:
        note = (
            f"memory holds {layers} layers of expert weights instead of {needed}: some samples may find "
            "weights in the cache and be too fast"
        )
    return Residency(layers, layers * layer_bytes, note)
