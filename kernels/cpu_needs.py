"""What a CPU kernel needs of a processor and of an expert's sizes, as data."""

from dataclasses import dataclass
from pathlib import Path

from placer.kernels.expert_shape import ExpertShape
from placer.kernels.problem import Problem

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class CpuNeeds:
    """Instruction sets and sizes.

    Attributes
    ----------
    flags
        Instruction sets, as Linux calls them, that the slowest code path of the kernel executes.
    multiple
        What hidden size and expert width must be multiples of.
    because
        What happens with other sizes.
    otherwise
        What to do on a machine or with a model that the kernel cannot run.
    cut_over_nodes
        Whether an expert is cut over the memory nodes; if not, threads of all nodes run it whole.
    """

    flags: tuple[str, ...]
    multiple: int
    because: str
    otherwise: str
    cut_over_nodes: bool = False

    def problem(self, shape: ExpertShape, flags: frozenset[str]) -> Problem | None:
        """What is not met by ``shape`` or by a CPU with ``flags``; None when everything is."""
        missing = [flag for flag in self.flags if flag not in flags]
        if missing:
            return Problem(f"this CPU lacks {', '.join(missing)}", self.otherwise)
        for name, size in (
            ("hidden size", shape.hidden_size),
            ("expert width", shape.expert_intermediate_size),
        ):
            if size % self.multiple:
                what = f"{name} {size} is not a multiple of {self.multiple}: {self.because}"
                return Problem(what, self.otherwise)
        return None

    def memory_nodes(self, shape: ExpertShape, wanted: int) -> int:
        """Of ``wanted`` nodes, those with an equal share of the width, a multiple of `multiple`, where it is cut."""
        if not self.cut_over_nodes:
            return wanted
        width = shape.expert_intermediate_size
        return max(n for n in range(1, wanted + 1) if n == 1 or width % (self.multiple * n) == 0)


def cpu_flags(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """Instruction sets of this machine's first CPU; empty where Linux does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
