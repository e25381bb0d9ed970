"""The CPU's side of a profile that nothing was timed for: a roofline of its datasheet."""

from dataclasses import dataclass

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cost import SideCost
from placer.profiler.timing.kernel_profile import KernelProfile
from placer.units import counted

BAND_REASON = "a datasheet roofline: kernels timed on other machines, many threads and full memory not at all"
"""Where `DatasheetCpu.band` comes from, in words."""
MOST_FACTOR = 1000.0
"""No band of any use is wider."""


@dataclass(frozen=True)
class DatasheetCpu:
    """The cold side of a layer on a CPU known by its datasheet; `dataclasses.asdict` of it is plain JSON.

    Attributes
    ----------
    name, source, adjustments
        The datasheet, where its figures come from, and what was changed against it.
    method, backend
        Weight format and the kernel whose rates were taken: a plan made with one method is exported for it.
    threads, numa_nodes, cores
        Kernel threads, the memory nodes they are spread over, and the cores that are there.
    clock_ghz, bandwidth_bytes_per_s
        Clock of all cores and peak memory bandwidth that the roofline stands on.
    shape, bytes_per_expert
        The experts, and the bytes that reading one of them moves.
    cost
        The roofline.
    border_tokens
        Last tokens-of-call of the first regime; None: one regime.
    efficiency, evidence
        Factors between peaks and the roofline by name, and where the kernels' come from.
    band
        What the true time may be of the predicted, at least and at most.
    provenance
        "datasheet": tells it from a timed kernel in profile.json.
    nodes_there
        The memory nodes that the server has; None in profiles that did not say.
    notes
        What differs from what the sheet lets expect.
    """

    name: str
    source: str
    adjustments: tuple[str, ...]
    method: str
    backend: str
    threads: int
    numa_nodes: int
    cores: int
    clock_ghz: float
    bandwidth_bytes_per_s: float
    shape: ExpertShape
    bytes_per_expert: int
    cost: SideCost
    border_tokens: int | None
    efficiency: dict[str, float]
    evidence: tuple[str, ...]
    band: tuple[float, float]
    provenance: str = "datasheet"
    nodes_there: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """What it is called where a timed machine has its CPU's name."""
        return f"{self.name} ({', '.join(self.adjustments)})" if self.adjustments else self.name

    @property
    def used_share(self) -> float:
        """The part of the server's cores and memory speed that the kernel uses."""
        return 1.0 if self.nodes_there is None else self.numa_nodes / self.nodes_there

    @property
    def nodes_text(self) -> str:
        """The memory nodes that the kernel runs on, in words."""
        if self.nodes_there in (None, self.numa_nodes):
            return counted(self.numa_nodes, "memory node")
        return f"{self.numa_nodes} of {counted(self.nodes_there or 0, 'memory node')}"

    @property
    def fault(self) -> str | None:
        """What makes the figures unusable, or None."""
        low, high = self.band
        if not 0 < low <= 1 <= high < MOST_FACTOR:
            return f"band {low:g} to {high:g} does not hold 1"
        if self.nodes_there is not None and not 1 <= self.numa_nodes <= self.nodes_there:
            return f"{self.numa_nodes} of {self.nodes_there} memory nodes"
        return None if self.cores >= 1 else f"{self.cores} cores"

    @property
    def provenance_text(self) -> str:
        """Origin of cold-side figures, in words."""
        factors = ", ".join(f"{name} {value:g}" for name, value in self.efficiency.items())
        low, high = self.band
        on = "" if self.used_share == 1 else f" on {self.nodes_text}"
        return (
            f"datasheet roofline of {self.device} for {self.method}, {counted(self.threads, 'thread')}{on} ({factors}; "
            f"true times {low:g} to {high:g} times that)"
        )


CpuSide = KernelProfile | DatasheetCpu
"""The CPU's side of a profile: timed, or by datasheet."""
