"""CPU experts in INT4 on kt-kernel's RAWINT4 classes: what SGLang with KTransformers runs."""

import importlib
import importlib.metadata
import importlib.util
from typing import Any, ClassVar

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.cores import usable_cores
from placer.kernels.expert_mlp import ExpertMLP, Problem
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import GROUP, Int4Matrix, Int4Source, repeated_int4

BLOCK = 128
"""Sizes that RAWINT4 handles are multiples of this; with others it reads past the ends of its weights
(seen with 2880: right results or a segmentation fault, depending on what lies beside them in memory)."""
ROW_KERNEL_TOKENS_PER_EXPERT = 4
"""RAWINT4 leaves its row-at-a-time kernel when a call holds more than 4·E/k tokens (kt-kernel 0.7.2)."""


class KtRawInt4(ExpertMLP):
    """kt-kernel's own class, called directly: no checkpoint files, no GPU, no wrapper.

    ``subpools`` is the number of NUMA nodes that share each expert (``--kt-threadpool-count``); ``threads``
    are spread over them (``--kt-cpuinfer``). Weights are copied into the class.
    """

    name: ClassVar[str] = "kt"
    method: ClassVar[str] = "RAWINT4"
    device: ClassVar[str] = "cpu"

    def __init__(self, threads: int = 1, subpools: int = 1) -> None:
        torch.set_num_threads(1)  # kt-kernel has a pool of its own; torch's would compete with it.
        self._ext, kernel = _import_kt()
        self._kernel: Any = kernel
        pool = self._ext.WorkerPoolConfig()
        pool.subpool_count = subpools
        pool.subpool_numa_map = list(range(subpools))
        pool.subpool_thread_count = [threads // subpools + (i < threads % subpools) for i in range(subpools)]
        self._infer = self._ext.CPUInfer(pool)
        self._layers: list[Any] = []
        # Native code holds bare addresses of these.
        self._kept: list[Tensor] = []
        self._out = torch.empty(0)
        self._tokens = torch.zeros(1, dtype=torch.int32)

    @classmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """See `ExpertMLP.problem`; nothing native is imported."""
        if importlib.util.find_spec("kt_kernel") is None:
            return Problem(
                "kt-kernel is not installed",
                "run 'pip install --no-deps kt-kernel==0.7.2', or use --cpu-kernel torch",
            )
        for name, size in (
            ("hidden size", shape.hidden_size),
            ("expert width", shape.expert_intermediate_size),
        ):
            if size % BLOCK:
                return Problem(
                    f"{name} {size} is not a multiple of {BLOCK}: kt-kernel's RAWINT4 "
                    "would read out of the bounds of its weights",
                    "use --cpu-kernel torch",
                )
        cores = usable_cores()
        if threads >= cores:
            return Problem(
                f"{threads} threads were asked for and this process may use {cores} cores: kt-kernel "
                "keeps one more thread spinning than it is given, so it needs a core beside them",
                f"use --threads {cores - 1} or fewer" if cores > 1 else "use --cpu-kernel torch",
            )
        return None

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """Half a byte per weight, and a scale per group of 32 that the class widens to float32."""
        return shape.parameters // 2 + shape.parameters // GROUP * 4

    @classmethod
    def border_hint(cls, shape: ExpertShape) -> int | None:
        """4·E/k tokens (see `ROW_KERNEL_TOKENS_PER_EXPERT`)."""
        return ROW_KERNEL_TOKENS_PER_EXPERT * shape.experts // shape.top_k

    def variant(self) -> str:
        """See `ExpertMLP.variant`."""
        return f"{self._kernel.__name__}, {getattr(self._ext, '__cpu_variant__', 'unnamed variant')}"

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"kt-kernel {importlib.metadata.version('kt-kernel')}"

    def load(self, shape: ExpertShape, layers: int, weights: Int4Source, *, max_tokens: int) -> None:
        """Hand ``layers`` layers of weights to the class; no later call holds more than ``max_tokens``."""
        self._out = torch.zeros(max_tokens, shape.hidden_size, dtype=torch.bfloat16)
        on_gpu = torch.zeros(shape.experts, dtype=torch.bool)
        physical = torch.arange(shape.experts, dtype=torch.int64)
        self._kept = [on_gpu, physical]
        self._layers = []
        packed: dict[int, _Words] = {}
        for layer in range(layers):
            experts = [weights(layer, index) for index in range(shape.experts)]
            config = self._ext.moe.MOEConfig(
                shape.experts,
                shape.top_k,
                shape.hidden_size,
                shape.expert_intermediate_size,
                on_gpu.data_ptr(),
            )
            config.layer_idx = layer
            config.pool = self._infer.backend_
            config.max_len = max_tokens
            config.quant_config.bits = 4
            config.quant_config.group_size = GROUP
            config.quant_config.zero_point = False
            sources: list[Tensor] = []
            for matrix in ("gate", "up", "down"):
                words = [_words(packed, getattr(expert, matrix)) for expert in experts]
                sources += [tensor for each in words for tensor in (each.words, each.scale)]
                setattr(config, f"{matrix}_projs", [[each.words.data_ptr() for each in words]])
                setattr(config, f"{matrix}_scales", [[each.scale.data_ptr() for each in words]])
            kernel = self._kernel(config)
            self._infer.submit(kernel.load_weights_task(physical.data_ptr()))
            self._infer.sync()
            self._layers.append(kernel)
            if self._kernel.__name__.startswith("AVX2"):
                self._kept += sources  # The AVX2 class copies nothing: it reads these at every call.

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`."""
        self.load(shape, layers, repeated_int4(shape, seed), max_tokens=max_tokens)

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


class _Words:
    """A matrix in the layout that the class reads: packed words and bfloat16 scales, both contiguous."""

    def __init__(self, matrix: Int4Matrix) -> None:
        self.matrix = matrix  # Held so that its id stays its own while this is cached under it.
        self.words = matrix.packed_words().contiguous()
        self.scale = matrix.scale.contiguous()


def _words(packed: dict[int, _Words], matrix: Int4Matrix) -> _Words:
    key = id(matrix)
    if key not in packed:
        packed[key] = _Words(matrix)
    return packed[key]


def _import_kt() -> tuple[Any, Any]:
    """(the native extension, the RAWINT4 class that kt-kernel itself would choose here)."""
    try:
        importlib.import_module("kt_kernel")
        extension = importlib.import_module("kt_kernel.kt_kernel_ext")
        choose = importlib.import_module("kt_kernel.utils.amx")._select_rawint4_backend
        kernel = choose(GROUP)
    except (ImportError, AttributeError, RuntimeError, OSError) as error:
        raise MissingComponentError(
            f"kt-kernel cannot be used here: {error}", "use --cpu-kernel torch, or reinstall kt-kernel==0.7.2"
        ) from None
    if kernel is None:
        raise MissingComponentError(
            "kt-kernel has no RAWINT4 class for this CPU",
            "use --cpu-kernel torch",
        )
    return extension, kernel
