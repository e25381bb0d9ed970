"""CPU experts in INT4 on torch's own packed matmul: slower than a fused kernel, and always there."""

from typing import ClassVar, Self

import torch
from torch import Tensor

from placer.kernels.cpu_method_needs import CPU_METHOD_NEEDS
from placer.kernels.cpu_needs import CpuNeeds, cpu_flags
from placer.kernels.expert_mlp import ExpertMLP, ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.int4 import GROUP, Int4Expert, Int4Matrix, Int4Source, repeated_int4
from placer.kernels.problem import Problem
from placer.kernels.thread_needs import threads_problem

_CONVERT = "_convert_weight_to_int4pack_for_cpu"
_MATMUL = "_weight_int4pack_mm_for_cpu"


class TorchInt4(ExpertMLP):
    """Each active expert gathers its rows, multiplies twice and scatters its weighted result.

    ``threads`` sets torch's intra-op pool, which is one per process.
    """

    name: ClassVar[str] = "torch"
    method: ClassVar[str] = "torch"
    device: ClassVar[str] = "cpu"
    error_limit: ClassVar[float] = 0.015
    needs: ClassVar[CpuNeeds] = CPU_METHOD_NEEDS["torch"]
    _weights: Int4Source

    def __init__(self, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self._layers: list[list[PackedExpert]] = []
        self._out = torch.empty(0)

    @classmethod
    def open(cls, threads: int, subpools: int) -> Self:
        """See `ExpertMLP.open`."""
        return cls(threads)

    @classmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """See `ExpertMLP.problem`."""
        if not hasattr(torch.ops.aten, _MATMUL):
            return Problem(
                f"torch {torch.__version__} has no INT4 matmul for CPUs", "install torch 2.6 or newer"
            )
        if problem := cls.needs.problem(shape, cpu_flags()):
            return problem
        return threads_problem(threads)

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """Half a byte per weight, and a bfloat16 scale and zero per group of 32."""
        return shape.parameters // 2 + shape.parameters // GROUP * 4

    def variant(self) -> str:
        """See `ExpertMLP.variant`."""
        return f"aten int4pack g{GROUP}, {torch.backends.cpu.get_cpu_capability()}"

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"torch {torch.__version__}"

    def load(self, shape: ExpertShape, layers: int, weights: Int4Source, *, max_tokens: int) -> None:
        """Pack ``layers`` layers of weights; ``max_tokens`` is the most tokens a later call may hold."""
        self.begin(shape.hidden_size, max_tokens)
        self._weights = weights
        last: tuple[Int4Expert, PackedExpert] | None = None
        for layer in range(layers):
            loaded = []
            for index in range(shape.experts):
                expert = weights(layer, index)
                if last is not None and last[0] is expert:
                    # Packing costs milliseconds, a copy much less; the copy has its own memory.
                    packed = (last[1][0].clone(), last[1][1].clone())
                else:
                    packed = pack(expert)
                last = (expert, packed)
                loaded.append(packed)
            self._layers.append(loaded)

    def begin(self, hidden_size: int, max_tokens: int) -> None:
        """Forget all layers and take calls of up to ``max_tokens`` for those that `add_layer` adds."""
        self._out = torch.zeros(max_tokens, hidden_size, dtype=torch.float32)
        self._layers = []

    def add_layer(self, experts: list["PackedExpert"]) -> int:
        """Add a layer of experts, as `pack` made them, and return its index; layers may differ in number."""
        self._layers.append(experts)
        return len(self._layers) - 1

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`."""
        self.load(shape, layers, repeated_int4(shape, seed), max_tokens=max_tokens)

    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """See `ExpertMLP.loaded`."""
        return self._weights(layer, expert).dequantise()

    def forward(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """See `ExpertMLP.forward`."""
        experts = self._layers[layer]
        top_k = ids.shape[1]
        flat = ids.reshape(-1)
        order = torch.argsort(flat, stable=True)
        # Skipped slots sort first; counting ids + 1 gives their number and every expert's rows at once.
        counts = torch.bincount(flat + 1, minlength=len(experts) + 1).tolist()
        flat_weights = weights.reshape(-1)
        out = self._out[: x.shape[0]].zero_()
        begin = counts[0]
        for (gate_up, down), count in zip(experts, counts[1:], strict=True):
            if not count:
                continue
            slots = order[begin : begin + count]
            begin += count
            tokens = slots // top_k
            gate, up = gate_up.apply(x[tokens]).chunk(2, dim=1)
            rows = down.apply(torch.nn.functional.silu(gate) * up)
            out.index_add_(0, tokens, rows * flat_weights[slots, None])
        return out.to(torch.bfloat16)


class _Packed:
    """One matrix [N, K] in torch's layout: packed nibbles, and (scale, zero) per group as [K/32, N, 2]."""

    def __init__(self, nibbles: Tensor, scale_zero: Tensor) -> None:
        self._nibbles = nibbles
        self._scale_zero = scale_zero

    @classmethod
    def of(cls, *matrices: Int4Matrix) -> "_Packed":
        """Pack matrices of the same K, stacked along N."""
        values = torch.cat([matrix.values for matrix in matrices])
        scale = torch.cat([matrix.scale for matrix in matrices]).T.contiguous()
        nibbles = getattr(torch.ops.aten, _CONVERT)(values.to(torch.int32), 1)
        return cls(nibbles, torch.stack((scale, torch.zeros_like(scale)), dim=2).contiguous())

    @property
    def nbytes(self) -> int:
        """Bytes that the matrix takes."""
        return self._nibbles.nbytes + self._scale_zero.nbytes

    def clone(self) -> "_Packed":
        """The same values in memory of their own."""
        return _Packed(self._nibbles.clone(), self._scale_zero.clone())

    def apply(self, rows: Tensor) -> Tensor:
        """bfloat16 [m, N] from bfloat16 [m, K]."""
        result: Tensor = getattr(torch.ops.aten, _MATMUL)(rows, self._nibbles, GROUP, self._scale_zero)
        return result


PackedExpert = tuple[_Packed, _Packed]
"""One expert in torch's layout: gate and up stacked, and down."""


def pack(expert: Int4Expert) -> PackedExpert:
    """``expert`` in torch's layout."""
    return _Packed.of(expert.gate, expert.up), _Packed.of(expert.down)
