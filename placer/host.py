"""The host-memory ledger of kt-kernel: every expert is held in host memory, hot ones too."""

from dataclasses import dataclass

from placer.model.spec import ModelSpec

CPU_FORMATS = {"RAWINT4": "rawint4", "AMXINT4": "amxint4", "AMXINT8": "amxint8", "torch": "torch_int4"}
"""Expert format that each CPU method keeps in host memory (`ModelSpec.expert_bytes`)."""


@dataclass(frozen=True)
class HostLedger:
    """Host bytes by purpose."""

    lines: dict[str, int]

    @property
    def total_bytes(self) -> int:
        """Sum of all lines."""
        return sum(self.lines.values())


def host_ledger(model: ModelSpec, *, cpu_method: str, chunk_tokens: int, numa_nodes: int) -> HostLedger:
    """Host memory of a server.

    kt-kernel allocates and fills all experts of every layer, whatever is hot
    (operators/amx/moe_base.hpp, init); its per-node scratch for a largest call of C tokens is
    2·C·k·(2H + 2I') + rows·(H + I') + 4·rows·(2I' + H) with rows = C·k + 32·E and I' = I / nodes.
    Pinned staging: input and output in bf16 twice (double buffer), ids and weights.
    """
    H, E, k = model.hidden_size, model.experts, model.top_k
    inner = -(-model.expert_intermediate_size // numa_nodes)
    rows = chunk_tokens * k + 32 * E
    scratch = (
        2 * chunk_tokens * k * (2 * H + 2 * inner) + rows * (H + inner) + 4 * rows * (2 * inner + H)
    ) * numa_nodes
    each = model.expert_bytes(CPU_FORMATS[cpu_method], numa_nodes=numa_nodes)
    experts = len(model.moe_layers) * E * each
    staging = 2 * chunk_tokens * (2 * H * 2 + k * (8 + 4))
    return HostLedger({"experts": experts, "scratch": scratch, "staging": staging})
