"""Single changes with which host memory holds a server's experts, or with which it need not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from placer.demand import MemoryDemand
from placer.host import HostRoom
from placer.remedy import Remedy, chunk_step, largest
from placer.units import enough_gib


def host_short(demand: MemoryDemand, room: HostRoom) -> bool:
    """Whether ``room`` lacks memory that ``demand`` needs: none is needed where every expert is hot."""
    return demand.hot_per_layer < demand.model.experts and not room.holds(demand.model, demand.chunk_tokens)


def host_remedies(demand: MemoryDemand, room: HostRoom, flags: Mapping[str, str]) -> tuple[Remedy, ...]:
    """Every kind of single change that makes ``demand``, which fits the GPU, fit ``room``.

    Empty where it fits. ``flags`` is that of `placer.remedy.remedies`, with "host_memory" for the memory itself.
    """
    return tuple(_changes(demand, room, flags)) if host_short(demand, room) else ()


def with_host_memory(found: Iterable[Remedy], room: HostRoom, flag: str) -> tuple[Remedy, ...]:
    """``found``, each with the host memory that it needs beside it where ``room`` is too small."""
    return tuple(
        replace(remedy, advice=f"{remedy.advice} and {_enough(remedy.demand, room, flag)}")
        if host_short(remedy.demand, room)
        else remedy
        for remedy in found
    )


def _changes(demand: MemoryDemand, room: HostRoom, flags: Mapping[str, str]) -> Iterator[Remedy]:
    model = demand.model
    everywhere = replace(demand, hot_per_layer=model.experts)
    if "hot_per_layer" in flags and everywhere.fits:
        advice = f"{flags['hot_per_layer']} {model.experts} (every expert hot needs none in host memory)"
        yield Remedy("hot_per_layer", model.experts, advice, everywhere)
    # kt-kernel refuses a decode step larger than the chunk.
    step = chunk_step(model)
    steps = largest(
        -(-demand.running // step),
        (demand.chunk_tokens - 1) // step,
        lambda steps: room.holds(model, steps * step),
    )
    if "chunk_tokens" in flags and steps is not None:
        chunk = steps * step
        yield Remedy(
            "chunk_tokens",
            chunk,
            f"{flags['chunk_tokens']} of at most {chunk}",
            replace(demand, chunk_tokens=chunk),
        )
    needed = room.ledger(model, demand.chunk_tokens).total_bytes
    yield Remedy("host_memory", needed, _enough(demand, room, flags["host_memory"]), demand)


def _enough(demand: MemoryDemand, room: HostRoom, flag: str) -> str:
    needed = room.ledger(demand.model, demand.chunk_tokens).total_bytes
    return f"{flag} of at least {enough_gib(needed):.2f}GiB"
