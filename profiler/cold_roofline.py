"""The cold side from a CPU's datasheet: kernels' rates per core and cycle under the memory's speed."""

import math

from placer.cpu_datasheet import CpuDatasheet
from placer.errors import BadInputError
from placer.kernels.cpu_method_needs import CPU_METHOD_NEEDS
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cold_kernel import COLD_KERNELS, ColdKernel, KernelRate
from placer.profiler.cost import Provenance, Regime, SideCost
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.units import counted

BANDWIDTH_SHARE = 0.47
"""Share of peak memory bandwidth at which experts are read.

Tuned on the odd points of docs/published.md: DeepSeek-V3 on one Xeon Gold 6454S and on an EPYC 9274F asks for 0.41,
MiniMax-M2.1 on two Xeon 8488C and two EPYC 9355 for 0.50, with the other factors as they stand. A plain read of all
memory does better, at 61 % (Xeon 6980P: about 512 of 845 GB/s, ik_llama.cpp pull request 534) to 68 % (two EPYC 9654,
eight channels each: 415 of 614 GB/s, ktransformers issue 828).
"""
NUMA_SHARE = 0.77
"""What two sockets do of twice what one does, with an expert cut over both.

DeepSeek-V3 on one and on two Xeon Gold 6454S: prefill 54.21 and 82.94 tokens/s, 77 % of twice as fast; decode 8.73 and
12.21, 70 % with the GPU's part in it (ktransformers doc/en/DeepseekR1_V3_tutorial.md).
"""
JOBS = 5
"""Jobs of a call that all threads end together: rows in, gate and up, SwiGLU, rows of it, down (kt-kernel's
operators/amx/moe_base.hpp)."""
JOIN_US = 1.75
"""What starting and joining a job takes for every doubling of the threads.

Tuned on the odd points of docs/published.md where experts are small; 52 µs of a call on 63 threads.
"""
BAND = (0.65, 2.0)
"""What the true time is of the predicted, at least and at most.

Below: experts read at 92 % of peak bandwidth. Above: rooflines without a calibration miss by 2 to 3 (gpu-container's
receipts); the kernels' rates, which were timed, hold within 30 % on one and two cores of two makers, so the rest is
what was not timed: many threads, full memory channels, clocks under load.
"""
MAX_ROWS = 65536
"""A roofline has no measured range; everything it says is marked datasheet."""


def cold_kernel(method: str) -> ColdKernel:
    """The kernel of ``method``.

    Raises
    ------
    BadInputError
        When there is none of that name.
    """
    known = {name.lower(): kernel for name, kernel in COLD_KERNELS.items()}
    if method.lower() not in known:
        raise BadInputError(f"unknown CPU method {method!r:.40}", f"use one of: {', '.join(COLD_KERNELS)}")
    return known[method.lower()]


def roofline_cold(
    cpu: CpuDatasheet,
    shape: ExpertShape,
    bytes_per_expert: int,
    *,
    method: str = "RAWINT4",
    threads: int | None = None,
    numa_nodes: int | None = None,
) -> DatasheetCpu:
    """The cold side of ``cpu`` at ``shape``, without timing anything.

    An expert with m rows takes max(bytes / bandwidth, (unpacking + tiles of rows) / (ops per cycle · clock ·
    threads)), in each regime of the kernel.

    Parameters
    ----------
    bytes_per_expert
        Of one whole expert in the method's format.
    threads
        Kernel threads, up to the cores of ``numa_nodes``; None for all of them but one, since kt-kernel keeps one more
        spinning.
    numa_nodes
        Memory nodes that the experts are cut over, each a socket with its cores and channels; None for all.

    Raises
    ------
    BadInputError
        When the method is unknown, or threads are more than the cores.
    """
    kernel = cold_kernel(method)
    nodes = cpu.numa_nodes if numa_nodes is None else numa_nodes
    cores = cpu.cores * nodes // cpu.numa_nodes
    count = max(1, cores - 1) if threads is None else threads
    if not 1 <= count <= cores:
        unused = unused_nodes(cpu, kernel.method, shape, nodes)
        raise BadInputError(
            f"--threads is {count}, " + (unused or f"{cpu.name} has {counted(cores, 'core')}"),
            f"use --threads {max(1, cores - 1)} or fewer",
        )
    numa = 1.0 if nodes == 1 else NUMA_SHARE
    bandwidth = cpu.bandwidth_bytes_per_s * nodes / cpu.numa_nodes * BANDWIDTH_SHARE * numa
    cycles_per_us = cpu.clock_ghz * 1e3 * count * numa
    read_us = bytes_per_expert / bandwidth * 1e6
    border, beyond = kernel.border(shape), kernel.beyond(cpu.isa)
    ranges: list[tuple[int, int | None, KernelRate]] = [(1, border, kernel.few)]
    if border is not None and beyond is not None:
        ranges.append((border + 1, None, beyond))
    return DatasheetCpu(
        name=cpu.name,
        source=f"{cpu.source}; arithmetic: {cpu.arithmetic_source}",
        adjustments=cpu.adjustments,
        method=kernel.method,
        backend=kernel.backend,
        threads=count,
        numa_nodes=nodes,
        cores=cpu.cores,
        clock_ghz=cpu.clock_ghz,
        bandwidth_bytes_per_s=cpu.bandwidth_bytes_per_s,
        shape=shape,
        bytes_per_expert=bytes_per_expert,
        cost=SideCost(
            tuple(
                _regime(rate, shape, kernel.block_columns, read_us, cycles_per_us, count, least, most)
                for least, most, rate in ranges
            ),
            Provenance.DATASHEET,
        ),
        border_tokens=border,
        efficiency=_factors(nodes, border, ranges),
        evidence=tuple(dict.fromkeys(rate.source for _, _, rate in ranges)),
        band=BAND,
        nodes_there=cpu.numa_nodes,
    )


def unused_nodes(cpu: CpuDatasheet, method: str, shape: ExpertShape, nodes: int) -> str | None:
    """Why ``method`` runs on ``nodes`` memory nodes where ``cpu`` has more, and what of it counts then; else None."""
    there = cpu.numa_nodes
    if nodes == there:
        return None
    needs = CPU_METHOD_NEEDS.get(method)
    whole = "" if needs is None else f" of whole {needs.multiple}s"
    cores, bytes_per_s = cpu.cores * nodes // there, cpu.bandwidth_bytes_per_s
    return (
        f"{method} cannot cut expert width {shape.expert_intermediate_size:,} into {there} shares{whole}: it runs on "
        f"{nodes} of the {there} memory nodes of {cpu.name}, with {cores} of {cpu.cores} cores and "
        f"{bytes_per_s * nodes / there / 1e9:,.0f} of {bytes_per_s / 1e9:,.0f} GB/s"
    )


def _factors(
    nodes: int, border: int | None, ranges: list[tuple[int, int | None, KernelRate]]
) -> dict[str, float]:
    """The factors of the roofline by name."""
    found = {"share of peak bandwidth": BANDWIDTH_SHARE}
    if nodes > 1:
        found["share of both over two or more sockets"] = NUMA_SHARE
    for least, _, rate in ranges:
        where = (
            "" if border is None else f" to {border} tokens:" if least == 1 else f" from {least} tokens on:"
        )
        found[f"operations per core and cycle{where}"] = rate.ops_per_cycle
    return found


def _regime(
    rate: KernelRate,
    shape: ExpertShape,
    block_columns: int,
    read_us: float,
    cycles_per_us: float,
    threads: int,
    least: int,
    most: int | None,
) -> Regime:
    row_us = 2 * shape.parameters / (rate.ops_per_cycle * cycles_per_us)
    tile_us = rate.tile * row_us
    residue_us = tuple(share * tile_us for share in rate.residue_tiles)
    expert_us = rate.expert_rows * row_us
    one_row_us = expert_us + (residue_us[1] if rate.tile > 1 else tile_us)
    # A single expert keeps few threads busy, but it does not read its weights slower than those threads can.
    alone = lone_expert_factor(shape, threads, block_columns) * min(1.0, one_row_us / read_us)
    token_us = rate.token_us_per_hidden * shape.hidden_size / threads
    return Regime(
        min_tokens=least,
        max_tokens=most,
        fixed_us=rate.fixed_us + JOBS * JOIN_US * math.log2(threads),
        token_us=token_us,
        expert_us=expert_us,
        tile=rate.tile,
        tile_us=tile_us,
        residue_us=residue_us,
        heaviest_factor=alone if alone > 1.0 else 0.0,
        max_rows=MAX_ROWS,
        floor_us=read_us,
        idle_us=rate.fixed_us,
        idle_token_us=token_us,
    )


def lone_expert_factor(shape: ExpertShape, threads: int, block_columns: int = 256) -> float:
    """How much longer an expert takes alone than its share of a busy call: 1 with one thread.

    Gate and up, two thirds of the work, are cut into blocks of columns, then down, after a barrier. With fewer blocks
    than threads some threads have nothing to do; the last round of blocks may be partly empty.
    """
    first = 2 * -(-shape.expert_intermediate_size // block_columns)
    second = -(-shape.hidden_size // block_columns)
    rounds = 2 / 3 * -(-first // threads) / first + 1 / 3 * -(-second // threads) / second
    return max(1.0, threads * rounds)
