"""One MoE layer as a hybrid runtime runs it: hot experts on one device while cold ones run on the other, then a sum.

The order is that of sglang-kt 0.7.2 (kt_ep_wrapper.apply): copy the hidden states to the host, start the CPU's
experts, launch the GPU's, wait for the CPU, copy its sum back and add.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from placer.kernels.expert_mlp import ExpertMLP


@dataclass(frozen=True, eq=False)
class JoinedInputs:
    """A call of q tokens: ``x`` bfloat16 [q, H], ``weights`` float32 [q, k], and ids [q, k] of either side.

    ``hot_ids`` and ``cold_ids`` are int64 and skip (-1) the slots of the other side.
    """

    x: Tensor
    weights: Tensor
    hot_ids: Tensor
    cold_ids: Tensor


class JoinedLayer:
    """Loaded hot and cold backends; ``close`` ends the thread that a hot side without a GPU runs in."""

    def __init__(self, hot: ExpertMLP, cold: ExpertMLP, *, device: str = "cuda") -> None:
        self._hot, self._cold, self._device = hot, cold, device
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hot") if device == "cpu" else None
        self._memory = None if device == "cpu" else torch.cuda.graph_pool_handle()

    def bound(self, hot_layer: int, cold_layer: int, inputs: JoinedInputs) -> Callable[[], Tensor]:
        """The call, ready to be timed; it returns bfloat16 [q, H], the sum of both sides, when all is done."""
        if self._pool is not None:
            return self._threaded(self._pool, hot_layer, cold_layer, inputs)
        return self._overlapped(hot_layer, cold_layer, inputs)

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()

    def _threaded(
        self, pool: ThreadPoolExecutor, hot_layer: int, cold_layer: int, inputs: JoinedInputs
    ) -> Callable[[], Tensor]:
        hot = self._hot.bound(hot_layer, inputs.x, inputs.hot_ids, inputs.weights)

        def run() -> Tensor:
            launched = pool.submit(hot)
            cold = self._cold.forward(cold_layer, inputs.x, inputs.cold_ids, inputs.weights)
            return launched.result() + cold

        return run

    def _overlapped(self, hot_layer: int, cold_layer: int, inputs: JoinedInputs) -> Callable[[], Tensor]:
        cuda: Any = torch.cuda
        on_gpu = inputs.x.to(self._device)
        on_host = torch.empty(inputs.x.shape, dtype=torch.bfloat16, pin_memory=True)
        back = torch.empty(inputs.x.shape, dtype=torch.bfloat16, pin_memory=True)
        returned = torch.empty_like(on_gpu)
        call = self._hot.bound(hot_layer, on_gpu, inputs.hot_ids, inputs.weights)
        stream = cuda.Stream()
        with cuda.stream(stream):
            call()  # Compiles, and fills caches of kernels, before the graph is captured.
            stream.synchronize()
            # `torch.cuda.graph` would collect garbage and empty the allocator around every capture.
            graph = cuda.CUDAGraph()
            graph.capture_begin(pool=self._memory)
            hot = call()
            graph.capture_end()
        copied = cuda.Event()

        def run() -> Tensor:
            with cuda.stream(stream):
                on_host.copy_(on_gpu, non_blocking=True)
                copied.record(stream)
                # The graph is launched before the CPU's experts block this thread; it runs while they do.
                graph.replay()
                copied.synchronize()
                back.copy_(self._cold.forward(cold_layer, on_host, inputs.cold_ids, inputs.weights))
                returned.copy_(back, non_blocking=True)
                total: Tensor = hot + returned
                stream.synchronize()
            return total

        return run
