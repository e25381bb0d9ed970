"""What kt-kernel's expert classes share: when they run, their thread pool, and the call."""

import importlib
import importlib.metadata
import importlib.util
from abc import abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.cores import usable_cores
from placer.kernels.cpu_method_needs import TORCH_INSTEAD
from placer.kernels.cpu_needs import CpuNeeds, cpu_flags
from placer.kernels.expert_mlp import ExpertMLP
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.problem import Problem

ROW_KERNEL_TOKENS_PER_EXPERT = 4
"""The AMX classes leave their row-at-a-time kernel when a call holds more than 4·E/k tokens
(kt-kernel operators/amx/moe.hpp, do_gate_up_gemm)."""
CALL_STEP = 32
"""The AMX classes hold rows in steps of this (operators/amx/la/amx_buffers.hpp, M_STEP)."""


class KtMoe(ExpertMLP):
    """A native class of kt-kernel, called directly: no checkpoint files, no GPU, no wrapper.

    ``subpools`` is the number of NUMA nodes that share each expert (``--kt-threadpool-count``); ``threads``
    are spread over them (``--kt-cpuinfer``).
    """

    device: ClassVar[str] = "cpu"
    needs: ClassVar[CpuNeeds]

    def __init__(self, threads: int = 1, subpools: int = 1) -> None:
        torch.set_num_threads(1)  # kt-kernel has a pool of its own; torch's would compete with it.
        self._ext = _import_kt()
        self._kernel: Any = self._kernel_class()
        if self._kernel is None:
            raise MissingComponentError(
                f"kt-kernel's build for this CPU has no {self.method} class", TORCH_INSTEAD
            )
        pool = self._ext.WorkerPoolConfig()
        pool.subpool_count = subpools
        pool.subpool_numa_map = list(range(subpools))
        pool.subpool_thread_count = [threads // subpools + (i < threads % subpools) for i in range(subpools)]
        self._infer = self._ext.CPUInfer(pool)
        self._subpools = subpools
        self._layers: list[Any] = []
        # Native code holds bare addresses of these.
        self._kept: list[Tensor] = []
        self._out = torch.empty(0)
        self._tokens = torch.zeros(1, dtype=torch.int32)

    @classmethod
    def open(cls, threads: int, subpools: int) -> Self:
        """See `ExpertMLP.open`."""
        return cls(threads, subpools)

    @classmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """See `ExpertMLP.problem`; nothing native is imported."""
        if importlib.util.find_spec("kt_kernel") is None:
            return Problem(
                "kt-kernel is not installed",
                f"run 'pip install --no-deps kt-kernel==0.7.2', or {TORCH_INSTEAD}",
            )
        if problem := cls.needs.problem(shape, cpu_flags()):
            return problem
        cores = usable_cores()
        if threads >= cores:
            return Problem(
                f"{threads} threads were asked for and this process may use {cores} cores: kt-kernel "
                "keeps one more thread spinning than it is given, so it needs a core beside them",
                f"use --threads {cores - 1} or fewer" if cores > 1 else TORCH_INSTEAD,
            )
        return None

    @classmethod
    def memory_nodes(cls, shape: ExpertShape, wanted: int) -> int:
        """See `ExpertMLP.memory_nodes`: each node takes an equal share of the width, a multiple of its own."""
        return cls.needs.memory_nodes(shape, wanted)

    def variant(self) -> str:
        """See `ExpertMLP.variant`."""
        return f"{self._kernel.__name__}, {getattr(self._ext, '__cpu_variant__', 'unnamed variant')}"

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"kt-kernel {importlib.metadata.version('kt-kernel')}"

    def forward(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """See `ExpertMLP.forward`."""
        x, ids, weights = x.contiguous(), ids.contiguous(), weights.contiguous()
        out = self._out[: x.shape[0]]
        self._tokens[0] = x.shape[0]
        self._layers[layer].forward(
            self._tokens.data_ptr(),
            ids.shape[1],
            ids.data_ptr(),
            weights.data_ptr(),
            x.data_ptr(),
            out.data_ptr(),
            False,
        )
        return out

    def submit(
        self,
        layer: int,
        tokens: Tensor,
        x: Tensor,
        ids: Tensor,
        weights: Tensor,
        out: Tensor,
        stream: int | None = None,
    ) -> None:
        """Queue a call and return at once: `wait` ends it, and until then every tensor must stay as it is.

        ``tokens`` is int32 [1], the rows q of the call; ``x`` and ``out`` are bfloat16 [q, H], the others as in
        `ExpertMLP.forward`, all contiguous and on the CPU. With ``stream``, a CUDA stream, the call is queued when
        the stream gets there, which a CUDA graph can capture.
        """
        task = self._layers[layer].forward_task(
            tokens.data_ptr(),
            ids.shape[1],
            ids.data_ptr(),
            weights.data_ptr(),
            x.data_ptr(),
            out.data_ptr(),
            False,
        )
        if stream is None:
            self._infer.submit(task)
        else:
            self._infer.submit_with_cuda_stream(stream, task)

    def wait(self, stream: int | None = None) -> None:
        """Wait until all that was queued is done; with ``stream`` the CUDA stream waits, not the caller."""
        if stream is None:
            self._infer.sync()
        else:
            self._infer.sync_with_cuda_stream(stream)

    @abstractmethod
    def _kernel_class(self) -> Any:
        """The native class, or None where this CPU's build of kt-kernel has none."""

    def _start(self, hidden_size: int, max_tokens: int) -> None:
        """Forget all layers and set aside what calls of up to ``max_tokens`` need."""
        self._out = torch.zeros(max_tokens, hidden_size, dtype=torch.bfloat16)
        self._layers, self._kept = [], []

    def _config(self, shape: ExpertShape, layer: int, max_tokens: int) -> Any:
        """A native configuration without weights; no expert is on a GPU."""
        on_gpu = torch.zeros(shape.experts, dtype=torch.bool)
        self._kept.append(on_gpu)
        config = self._ext.moe.MOEConfig(
            shape.experts,
            shape.top_k,
            shape.hidden_size,
            shape.expert_intermediate_size,
            on_gpu.data_ptr(),
        )
        config.layer_idx = layer
        config.pool = self._infer.backend_
        config.max_len = -(-max_tokens // CALL_STEP) * CALL_STEP
        return config

    def _built(self, config: Any, experts: int) -> Any:
        """The native layer of ``config``, its weights loaded.

        Raises
        ------
        MissingComponentError
            When the class refuses the sizes.
        """
        physical = torch.arange(experts, dtype=torch.int64)
        self._kept.append(physical)
        try:
            kernel = self._kernel(config)
        except RuntimeError as error:
            raise MissingComponentError(
                f"kt-kernel's {self.method} refuses these sizes: {str(error).splitlines()[0]}", TORCH_INSTEAD
            ) from None
        self._infer.submit(kernel.load_weights_task(physical.data_ptr()))
        self._infer.sync()
        return kernel


def row_kernel_tokens(shape: ExpertShape) -> int:
    """Tokens of a call up to which the AMX classes run their row-at-a-time kernel."""
    return ROW_KERNEL_TOKENS_PER_EXPERT * shape.experts // shape.top_k


def _import_kt() -> Any:
    try:
        importlib.import_module("kt_kernel")
        return importlib.import_module("kt_kernel.kt_kernel_ext")
    except (ImportError, AttributeError, RuntimeError, OSError) as error:
        raise MissingComponentError(
            f"kt-kernel cannot be used here: {error}", f"{TORCH_INSTEAD}, or reinstall kt-kernel==0.7.2"
        ) from None
