"""Streamed experts: all in host memory, fetched over PCIe when a step needs them, with or without a cache."""

import numpy as np

from placer.model.expert_share import expert_share_bytes
from placer.model.spec import ModelSpec
from placer.modes.gpu_only import GpuLayers
from placer.modes.layer_times import Floats, LayerTimes
from placer.modes.mode import Cache
from placer.modes.steps import ComparedSteps
from placer.parallelism import Parallelism
from placer.profiler.steps import StepKind
from placer.profiler.trace.lru import LruHits, lru_hits
from placer.profiler.trace.trace import Trace

ORIGIN = {
    Cache.NONE: (
        "kernels read the experts that a step needs from pinned host memory in place, as vLLM's UVA offload lets "
        "them: a layer takes its kernel calls, and the longer of that read and what it computes of experts"
    ),
    Cache.LRU: (
        "missing experts are copied to a layer's slots before it computes, as SGLang's paged experts do: a layer "
        "takes the sum of both"
    ),
}


def expert_fetch_us(model: ModelSpec, bytes_per_s: float, parallel: Parallelism) -> float:
    """One expert: each GPU that it is cut over fetches its share, at ``bytes_per_s`` each."""
    return expert_share_bytes(model, parallel.expert_tp) / bytes_per_s * 1e6


def host_bytes(model: ModelSpec, cache: Cache, parallel: Parallelism) -> dict[str, int]:
    """Pinned host memory: every expert in the GPU's format.

    torch pins a power of two of bytes; vLLM's offload pins the two expert tensors of a layer on each GPU by themselves.
    """
    L, share = len(model.moe_layers), expert_share_bytes(model, parallel.expert_tp)
    tensors = model.experts // parallel.ep * share
    lines = {"experts": L * parallel.tp * tensors}
    if cache is Cache.NONE:
        gate_up = 2 * tensors // 3
        pinned = sum(1 << (each - 1).bit_length() for each in (gate_up, tensors - gate_up))
        lines["pinned_rounding"] = L * parallel.tp * (pinned - tensors)
    return lines


class HitShares:
    """Share of the experts that a step needs which an LRU cache holds, by size of the step and slots per layer."""

    def __init__(self, model: ModelSpec, trace: Trace | None, seed: int) -> None:
        self._experts = model.experts
        self._layers = len(model.moe_layers)
        self._trace = trace
        self._seed = seed
        self._decode: dict[int, LruHits] = {}

    def of(self, kind: StepKind, size: int, slots: int) -> Floats:
        """Float [L]. Residents of a layer are as likely needed as others under uniform routing: slots / E.

        That is also taken for chunks of prompts, which need nearly all experts.
        """
        if self._trace is None or kind is not StepKind.DECODE:
            return np.full(self._layers, slots / self._experts)
        if size not in self._decode:
            self._decode[size] = lru_hits(self._trace, size, self._seed)
        return self._decode[size].hit_share(slots)


class StreamedLayers:
    """Layer times of a model whose experts are fetched from host memory, ``slots`` of each layer being cached."""

    def __init__(
        self,
        computed: GpuLayers,
        steps: ComparedSteps,
        hits: HitShares,
        *,
        fetch_us: float,
        slots: int,
        groups: int,
    ) -> None:
        self._computed = computed
        self._steps = steps
        self._hits = hits
        self._fetch_us = fetch_us
        self._slots = slots
        self._groups = groups

    def __call__(self, kind: StepKind, size: int) -> LayerTimes:
        """Times of steps of ``size`` tokens: fetched while experts are computed without slots, before it with them."""
        used = self._steps.of(kind, size).rows > 0
        S, L, E = used.shape
        # GPUs that share out whole experts wait for the one that fetches most.
        needed = used.reshape(S, L, self._groups, E // self._groups).sum(axis=3).max(axis=2)
        missing = needed * (1.0 - self._hits.of(kind, size, self._slots))
        return LayerTimes(
            self._computed.compute_us(kind, size),
            missing * self._fetch_us,
            overlapped=not self._slots,
            call_us=self._computed.call_us(kind, size),
        )
