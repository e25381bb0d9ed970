"""A pool: buffers of one GPU in equal slots, for cached tokens or for the state of requests."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pool:
    """Buffers that a runtime allocates together.

    Attributes
    ----------
    name
        What the slots hold.
    tokens
        Tokens of context that find room; 0 where slots hold the state of requests.
    slots, slot_bytes
        Allocated slots, those that no token or request may use included, and bytes of one in all layers.
    layers
        Layers that the bytes of a slot are for.
    """

    name: str
    tokens: int
    slots: int
    slot_bytes: int
    layers: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all slots."""
        return self.slots * self.slot_bytes


def pools_bytes(pools: Iterable[Pool]) -> int:
    """Bytes of all pools."""
    return sum(pool.total_bytes for pool in pools)
