"""CPUs as their datasheets describe them: cores, clocks, memory channels and peak arithmetic, with sources."""

import re
from dataclasses import dataclass, replace

from placer.cpu_models import CPU_MODELS, CpuModel
from placer.errors import BadInputError
from placer.known_name import unknown_name
from placer.units import counted

CHANNEL_BYTES = 8
"""A DDR channel moves 64 bits per transfer."""
_LEAST_MTS, _MOST_MTS = 800, 20_000
"""No DDR memory of a server is slower (DDR3-800), or as fast."""
_UNITS = {
    "--cores": "give the physical cores of all sockets",
    "--clock": "give GHz",
    "--memory-channels": "give the filled channels of one socket",
    "--memory-mts": "give millions of transfers per second: 4800 for DDR5-4800",
}
_LINE = re.compile(r"xeon-(?:platinum|gold|silver)-")
"""Lines that makers put between family and number, which is unique without."""
_SOCKETS = re.compile(r"(?P<name>.+)x(?P<sockets>[1-9])")


@dataclass(frozen=True)
class CpuDatasheet:
    """The CPUs of one server, all of one model.

    Attributes
    ----------
    name
        The name that ``--cpu`` takes: ``epyc-9654``, or ``xeon-8480+x2`` for two sockets.
    sockets, numa_nodes
        CPUs, and the memory nodes they show: one per socket (SNC off, NPS1).
    cores
        Physical cores of all sockets.
    clock_ghz, base_ghz
        Clock with all cores busy (the published all-core turbo where there is one, else the base clock), and
        without any turbo.
    memory_channels, memory_mts
        Channels per socket, all of them filled, and transfers per second and channel in millions.
    cache_bytes
        Last-level cache of all sockets.
    int8_ops_per_cycle, bf16_ops_per_cycle
        Dense peak of one core, two operations per multiply-add, in the fastest unit that it has.
    isa
        The instruction sets among those that INT4 kernels distinguish.
    pcie_generation
        Of its host links.
    source, arithmetic_source
        Where the figures come from, those without a source named; and those of the units.
    adjustments
        What was changed against the sheet, in words.
    """

    name: str
    sockets: int
    cores: int
    clock_ghz: float
    base_ghz: float
    memory_channels: int
    memory_mts: int
    cache_bytes: int
    int8_ops_per_cycle: int
    bf16_ops_per_cycle: int
    isa: tuple[str, ...]
    pcie_generation: int
    source: str
    arithmetic_source: str
    adjustments: tuple[str, ...] = ()

    @property
    def numa_nodes(self) -> int:
        """Memory nodes that kernel threads are spread over."""
        return self.sockets

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Peak memory bandwidth of all sockets."""
        return self.sockets * self.memory_channels * CHANNEL_BYTES * self.memory_mts * 1e6

    @property
    def int8_flops(self) -> float:
        """Dense INT8 peak of all cores at `clock_ghz`, operations per second."""
        return self.cores * self.clock_ghz * 1e9 * self.int8_ops_per_cycle

    @property
    def bf16_flops(self) -> float:
        """Dense bfloat16 peak of all cores at `clock_ghz`, operations per second."""
        return self.cores * self.clock_ghz * 1e9 * self.bf16_ops_per_cycle


@dataclass(frozen=True)
class CpuAdjustment:
    """What a server differs in from the sheet of its CPU; None is as the sheet says.

    Attributes
    ----------
    cores
        Physical cores of all sockets that are there (a virtual machine, cores switched off).
    clock_ghz
        Clock with all cores busy.
    turbo_off
        Run at the base clock.
    memory_channels
        Channels per socket that hold memory.
    memory_mts
        Their transfers per second, in millions (DDR5-4800: 4800).
    """

    cores: int | None = None
    clock_ghz: float | None = None
    turbo_off: bool = False
    memory_channels: int | None = None
    memory_mts: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether nothing is changed."""
        return self == CpuAdjustment()


AS_THE_SHEET = CpuAdjustment()


def cpu_datasheet(name: str, adjustment: CpuAdjustment = AS_THE_SHEET) -> CpuDatasheet:
    """The datasheet of the server CPUs called ``name``, changed by ``adjustment``.

    "Xeon Gold 6454S" and "epyc-9654p", the single-socket version, are understood too.

    Raises
    ------
    BadInputError
        When no such CPU is listed (the hint names those that are), the model does not run in so many sockets,
        or an adjustment is out of range.
    """
    model, sockets = _model(name)
    if sockets > model.most_sockets:
        raise BadInputError(
            f"{model.name} runs in {counted(model.most_sockets, 'socket')}, not {sockets}",
            f"use --cpu {model.name}" + (f" or {model.name}x2" if model.most_sockets > 1 else ""),
        )
    sheet = CpuDatasheet(
        name=model.name if sockets == 1 else f"{model.name}x{sockets}",
        sockets=sockets,
        cores=sockets * model.cores,
        clock_ghz=model.all_core_ghz or model.base_ghz,
        base_ghz=model.base_ghz,
        memory_channels=model.memory_channels,
        memory_mts=model.memory_mts,
        cache_bytes=sockets * model.cache_mib * 2**20,
        int8_ops_per_cycle=model.core.int8_ops_per_cycle,
        bf16_ops_per_cycle=model.core.bf16_ops_per_cycle,
        isa=model.core.isa,
        pcie_generation=5,
        source=model.source,
        arithmetic_source=model.core.source,
    )
    return _adjusted(sheet, adjustment)


def _model(name: str) -> tuple[CpuModel, int]:
    known = {model.name: model for model in CPU_MODELS}
    wanted = _LINE.sub("xeon-", "-".join(name.lower().split()))
    if wanted in known:
        return known[wanted], 1
    if wanted.startswith("epyc-") and wanted.removesuffix("p") in known:
        return known[wanted.removesuffix("p")], 1
    match = _SOCKETS.fullmatch(wanted)
    if match and match["name"] in known:
        return known[match["name"]], int(match["sockets"])
    raise unknown_name("CPU", name, CPU_NAMES)


def _adjusted(sheet: CpuDatasheet, asked: CpuAdjustment) -> CpuDatasheet:
    if asked.clock_ghz is not None and asked.turbo_off:
        raise BadInputError(
            "--clock gives a clock and --turbo-off the base clock: both were given", "give one of the two"
        )
    for flag, value, most in (
        ("--cores", asked.cores, sheet.cores),
        ("--clock", asked.clock_ghz, 7.0),
        ("--memory-channels", asked.memory_channels, sheet.memory_channels),
        ("--memory-mts", asked.memory_mts, _MOST_MTS),
    ):
        least = {"--cores": sheet.sockets, "--clock": 0.5, "--memory-mts": _LEAST_MTS}.get(flag, 1)
        if value is not None and not least <= value <= most:
            raise BadInputError(
                f"{flag} is {value:g}, {sheet.name} takes {least:g} to {most:g}", _UNITS[flag]
            )
    changed: list[str] = []
    if asked.cores is not None:
        changed.append(f"{asked.cores} of {sheet.cores} cores")
        cache = sheet.cache_bytes * asked.cores // sheet.cores
        sheet = replace(sheet, cores=asked.cores, cache_bytes=cache)
    if asked.turbo_off:
        changed.append(f"turbo off: {sheet.base_ghz:g} GHz")
        sheet = replace(sheet, clock_ghz=sheet.base_ghz)
    if asked.clock_ghz is not None:
        changed.append(f"{asked.clock_ghz:g} GHz")
        sheet = replace(sheet, clock_ghz=asked.clock_ghz)
    if asked.memory_channels is not None:
        changed.append(f"{asked.memory_channels} of {sheet.memory_channels} memory channels per socket")
        sheet = replace(sheet, memory_channels=asked.memory_channels)
    if asked.memory_mts is not None:
        changed.append(f"memory at {asked.memory_mts} MT/s")
        sheet = replace(sheet, memory_mts=asked.memory_mts)
    return replace(sheet, adjustments=tuple(changed))


CPU_NAMES = tuple(model.name for model in CPU_MODELS)
"""Names that ``--cpu`` takes; those of two-socket servers with "x2" behind them."""
