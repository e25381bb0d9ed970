"""The host-memory ledger of kt-kernel: every expert is held in host memory, hot ones too."""

from dataclasses import dataclass

from placer.errors import BadInputError, InfeasibleError
from placer.model.spec import ModelSpec
from placer.units import enough_gib, gib

CPU_FORMATS = {
    "RAWINT4": "rawint4",
    "AMXINT4": "amxint4",
    "AMXINT8": "amxint8",
    "LLAMAFILE": "q4_k",
    "torch": "torch_int4",
    "VLLM-BF16": "bf16",
}
"""Expert format that each CPU method keeps in host memory (`ModelSpec.expert_bytes`)."""


@dataclass(frozen=True)
class HostLedger:
    """Host bytes by purpose, over all NUMA nodes that the experts are cut over."""

    lines: dict[str, int]
    numa_nodes: int = 1

    @property
    def total_bytes(self) -> int:
        """Sum of all lines."""
        return sum(self.lines.values())

    @property
    def node_bytes(self) -> int:
        """What each NUMA node must hold: its part of every expert and its own scratch, without staging."""
        return -(-(self.lines["experts"] + self.lines["scratch"]) // self.numa_nodes)


def host_ledger(model: ModelSpec, *, cpu_method: str, chunk_tokens: int, numa_nodes: int) -> HostLedger:
    """Host memory of a server.

    kt-kernel allocates and fills all experts of every layer, whatever is hot
    (operators/amx/moe_base.hpp, init); its per-node scratch for a largest call of C tokens is
    2·C·k·(2H + 2I') + rows·(H + I') + 4·rows·(2I' + H) with rows = C·k + 32·E and I' = I / nodes.
    LLAMAFILE's own scratch (operators/llamafile/moe.hpp) stays below that.
    Pinned staging: input and output in bf16 twice (double buffer), ids and weights.
    """
    H, E, k = model.expert_hidden_size, model.experts, model.top_k
    inner = -(-model.expert_intermediate_size // numa_nodes)
    rows = chunk_tokens * k + 32 * E
    scratch = (
        2 * chunk_tokens * k * (2 * H + 2 * inner) + rows * (H + inner) + 4 * rows * (2 * inner + H)
    ) * numa_nodes
    if cpu_method not in CPU_FORMATS:
        raise BadInputError(
            f"no host memory is known for CPU method {cpu_method!r:.40}",
            f"use one of: {', '.join(CPU_FORMATS)}",
        )
    each = model.expert_bytes(CPU_FORMATS[cpu_method], numa_nodes=numa_nodes)
    experts = len(model.moe_layers) * E * each
    staging = 2 * chunk_tokens * (2 * H * 2 + k * (8 + 4))
    return HostLedger({"experts": experts, "scratch": scratch, "staging": staging}, numa_nodes)


@dataclass(frozen=True)
class HostRoom:
    """A server's RAM, and how kt-kernel holds experts there; ``memory_bytes`` None is not checked."""

    cpu_method: str
    numa_nodes: int
    memory_bytes: int | None

    def ledger(self, model: ModelSpec, chunk_tokens: int) -> HostLedger:
        """What ``model`` takes there with prefill chunks of so many tokens."""
        return host_ledger(
            model, cpu_method=self.cpu_method, chunk_tokens=chunk_tokens, numa_nodes=self.numa_nodes
        )

    def holds(self, model: ModelSpec, chunk_tokens: int) -> bool:
        """Whether that fits."""
        return self.memory_bytes is None or self.ledger(model, chunk_tokens).total_bytes <= self.memory_bytes


def check_host_memory(host: HostLedger, memory_bytes: int | None, cure: str | None = None) -> None:
    """Raise InfeasibleError when ``host`` needs more than ``memory_bytes``; None is not checked.

    ``cure`` is a change of the request that would fit, if there is one.
    """
    if memory_bytes is not None and host.total_bytes > memory_bytes:
        line = max(host.lines, key=lambda name: host.lines[name])
        raise InfeasibleError(
            f"host memory of {gib(memory_bytes)} is too small: kt-kernel holds every expert there, hot ones too; "
            f"line {line!r} needs {gib(host.lines[line])}, all lines {gib(host.total_bytes)}",
            f"{'' if cure is None else f'any one of these fits: {cure}; or '}plan for a server with at least "
            f"{enough_gib(host.total_bytes):.2f}GiB (--host-memory SIZE)",
        )
