"""A CPU by its datasheet, and what a server differs in from it."""

from placer.cpu_datasheet import CpuAdjustment, CpuDatasheet, cpu_datasheet
from placer.errors import BadInputError


def named_cpu(
    name: str | None,
    *,
    cores: int | None,
    clock: float | None,
    turbo_off: bool,
    memory_channels: int | None,
    memory_mts: int | None,
) -> CpuDatasheet | None:
    """The CPU called ``name`` as adjusted, or None where none is named.

    Raises
    ------
    BadInputError
        When no such CPU is known, it cannot be so adjusted, or there is none to adjust.
    """
    adjustment = CpuAdjustment(cores, clock, turbo_off, memory_channels, memory_mts)
    if name is not None:
        return cpu_datasheet(name, adjustment)
    if not adjustment.is_none:
        raise BadInputError(
            "--cores, --clock, --turbo-off, --memory-channels and --memory-mts change a datasheet: none is named",
            "add --cpu NAME (placer hardware --list)",
        )
    return None
