"""Timed kernels beside what a CPU's datasheet says of them: the table of docs/datasheets.md.

Run as ``python -m placer.examples.datasheet_check``.
"""

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.cpu_datasheet import CpuDatasheet
from placer.examples.ending import end_with
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cold_roofline import roofline_cold

QWEN30 = ExpertShape(2048, 768, 128, 8)
QWEN480 = ExpertShape(6144, 2560, 48, 8)
"""Qwen3-30B-A3B's experts, and Qwen3-Coder-480B's, of which 48 were loaded."""
BYTES_PER_WEIGHT = {"RAWINT4": 0.625, "torch": 0.625, "LLAMAFILE": 0.5625}


def part_of_a_server(name: str, *, cores: int, ghz: float, gb_per_s: float) -> CpuDatasheet:
    """A virtual machine's cores, behind one memory channel as fast as what they were seen to read."""
    return CpuDatasheet(
        name=name,
        sockets=1,
        cores=cores,
        clock_ghz=ghz,
        base_ghz=ghz,
        memory_channels=1,
        memory_mts=round(gb_per_s * 1e3 / 8),
        cache_bytes=1 << 25,
        int8_ops_per_cycle=256,
        bf16_ops_per_cycle=128,
        isa=("avx2", "avx512f", "avx512bw"),
        pcie_generation=5,
        source="measured in the same run",
        arithmetic_source="measured in the same run",
    )


EMERALD = part_of_a_server("Emerald Rapids, 1 core", cores=1, ghz=2.83, gb_per_s=16.4)
EMERALD_2 = part_of_a_server("Emerald Rapids, 2 cores", cores=2, ghz=2.83, gb_per_s=33.0)
ZEN4 = part_of_a_server("Zen 4, 1 core", cores=1, ghz=3.45, gb_per_s=24.2)


@dataclass(frozen=True)
class TimedKernel:
    """Microseconds of an expert by its rows, weights from memory, in calls of ``tokens``.

    Attributes
    ----------
    model, cpu, method
        Sizes, machine and kernel.
    measured_us
        By rows per expert.
    """

    model: str
    shape: ExpertShape
    cpu: CpuDatasheet
    method: str
    tokens: int
    measured_us: dict[int, float]

    def predicted_us(self) -> NDArray[np.float64]:
        """What the datasheet roofline says, in the order of ``measured_us``."""
        size = int(self.shape.parameters * BYTES_PER_WEIGHT[self.method])
        found = roofline_cold(self.cpu, self.shape, size, method=self.method, threads=self.cpu.cores)
        return found.cost.regime(self.tokens).rows_us(np.array(list(self.measured_us)))

    def ratios(self) -> NDArray[np.float64]:
        """Measured over predicted: what `DatasheetCpu.band` is about."""
        return np.array(list(self.measured_us.values())) / self.predicted_us()


def _q30(cpu: CpuDatasheet, method: str, tokens: int, measured_us: dict[int, float]) -> TimedKernel:
    return TimedKernel("Qwen3-30B-A3B", QWEN30, cpu, method, tokens, measured_us)


def _q480(cpu: CpuDatasheet, method: str, tokens: int, measured_us: dict[int, float]) -> TimedKernel:
    return TimedKernel("Qwen3-Coder-480B", QWEN480, cpu, method, tokens, measured_us)


TIMED = (
    _q30(EMERALD, "RAWINT4", 64, {1: 382, 2: 656, 4: 1120, 8: 2130, 16: 4310, 32: 8240, 64: 16190}),
    _q30(EMERALD, "RAWINT4", 65, {1: 437, 2: 480, 3: 733, 4: 612, 8: 914, 16: 1718, 32: 3209, 64: 6354}),
    _q480(EMERALD, "RAWINT4", 24, {1: 3770, 2: 6230, 4: 10970, 8: 20800, 16: 40030}),
    _q480(EMERALD, "RAWINT4", 25, {32: 28170, 64: 60680}),
    _q30(EMERALD, "LLAMAFILE", 9, {1: 345, 2: 611, 4: 1013, 8: 1786, 9: 1958}),
    _q30(EMERALD, "LLAMAFILE", 10, {10: 1028, 16: 1507, 32: 3031, 64: 6084}),
    _q30(EMERALD, "torch", 64, {1: 375, 2: 467, 4: 647, 8: 1227, 16: 2366, 32: 4634, 64: 9147}),
    _q480(EMERALD, "torch", 64, {1: 3474, 2: 4347, 4: 6232, 8: 11876, 16: 23140, 64: 91100}),
    _q30(EMERALD_2, "torch", 64, {1: 227, 2: 275, 4: 371, 8: 676, 16: 1252, 32: 2409, 64: 4690}),
    _q30(ZEN4, "RAWINT4", 64, {1: 238, 2: 455, 4: 863, 8: 1673, 32: 6530, 64: 13007}),
    _q30(ZEN4, "RAWINT4", 65, {1: 401, 2: 445, 3: 658, 4: 570, 8: 866, 16: 1510, 64: 5372}),
)
"""kt-kernel 0.7.2 and torch 2.13; the rates of `placer.profiler.cold_kernel` come from some of these."""


def table() -> str:
    """The table as Markdown."""
    lines = [
        "| machine | kernel | sizes | tokens of a call | rows per expert | measured / predicted |",
        "|---|---|---|---|---|---|",
    ]
    for timed in TIMED:
        rows, ratios = list(timed.measured_us), timed.ratios()
        lines.append(
            f"| {timed.cpu.name} | {timed.method} | {timed.model} | {timed.tokens} | {min(rows)} to {max(rows)} | "
            f"{ratios.min():.2f} to {ratios.max():.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table."""
    sys.stdout.write(table())
    return 0


if __name__ == "__main__":
    end_with(main)
