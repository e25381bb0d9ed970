"""GPU experts in FP8 on torch's own scaled matmuls, row-wise scales on both sides."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.fp8 import Fp8Matrix, Fp8Source, quantise_fp8
from placer.kernels.gpu_experts import GpuExperts
from placer.kernels.gpu_needs import ELSEWHERE, GpuNeeds

ALIGNMENT = 16
"""Both sizes of an FP8 matrix must be multiples of this (torch._scaled_mm)."""

Stack = tuple[Tensor, Tensor]
"""The same matrix of every expert: float8 [E, N, K] and float32 scales [E, N]."""
Product = Callable[[Fp8Matrix, Stack, Tensor, Sequence[int]], Tensor]
"""bfloat16 [P, N] from rows sorted by expert [P, K], a stack, and where each expert's rows end: int32 [E] on
the device, and the rows per expert on the host."""


def product_by_expert(rows: Fp8Matrix, stack: Stack, ends: Tensor, counts: Sequence[int]) -> Tensor:
    """One `torch._scaled_mm` per active expert: runs on CPUs too."""
    values, scale = stack
    parts = []
    begin = 0
    for expert, count in enumerate(counts):
        if count:
            end = begin + count
            part: Tensor = torch._scaled_mm(
                rows.values[begin:end],
                values[expert].t(),
                scale_a=rows.scale[begin:end],
                scale_b=scale[expert][None],
                out_dtype=torch.bfloat16,
            )
            parts.append(part)
            begin = end
    return torch.cat(parts) if parts else rows.values.new_empty((0, values.shape[1]), dtype=torch.bfloat16)


def product_grouped(rows: Fp8Matrix, stack: Stack, ends: Tensor, counts: Sequence[int]) -> Tensor:
    """One grouped matmul for all experts (`torch._scaled_grouped_mm`: compute capability 9.0)."""
    values, scale = stack
    result: Tensor = torch._scaled_grouped_mm(
        rows.values,
        values.transpose(1, 2),
        rows.scale.squeeze(1),
        scale,
        offs=ends,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
    return result


class TorchFp8(GpuExperts):
    """Gather, quantise, matmul, SwiGLU, quantise, matmul, scatter; grouped over experts where torch can."""

    name: ClassVar[str] = "torch"
    needs: ClassVar[GpuNeeds] = GpuNeeds(multiple=ALIGNMENT)

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        self._layers: list[tuple[Stack, Stack]] = []
        self._product: Product = product_by_expert
        if self._device.type == "cuda":
            self._product = _probe_product(self._device)

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """A byte per weight, and a float32 scale per output row."""
        return shape.parameters + 4 * (2 * shape.expert_intermediate_size + shape.hidden_size)

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"torch {torch.__version__}, CUDA {torch.version.cuda}"

    def load(self, shape: ExpertShape, layers: int, weights: Fp8Source, *, max_tokens: int) -> None:
        """Stack ``layers`` layers of weights on the device."""
        self._layers = []
        for layer in range(layers):
            experts = [weights(layer, index) for index in range(shape.experts)]
            gate_up = _stack([(expert.gate, expert.up) for expert in experts])
            down = _stack([(expert.down,) for expert in experts])
            self._layers.append((self._moved(gate_up), self._moved(down)))

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`; values are drawn on the device."""
        hidden, inner, E = shape.hidden_size, shape.expert_intermediate_size, shape.experts
        generator = torch.Generator(self._device).manual_seed(seed)

        def stack(rows: int, columns: int) -> Stack:
            values = self._random_values(E, rows, columns, generator)
            return values, torch.full((E, rows), columns**-0.5, device=self._device)

        self._layers = [(stack(2 * inner, hidden), stack(hidden, inner)) for _ in range(layers)]

    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """See `ExpertMLP.loaded`."""
        gate_up, down = (
            (values[expert].to(torch.float32) * scale[expert][:, None]).cpu()
            for values, scale in self._layers[layer]
        )
        gate, up = gate_up.chunk(2)
        return gate, up, down

    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`: sorting is done here, the rest launches kernels only."""
        gate_up, down = self._layers[layer]
        flat = ids.reshape(-1).cpu()
        order = torch.argsort(flat, stable=True)
        counts = torch.bincount(flat + 1, minlength=gate_up[0].shape[0] + 1)
        slots = order[int(counts[0]) :]
        rows_per_expert: list[int] = counts[1:].tolist()
        ends = torch.cumsum(counts[1:], 0).to(torch.int32).to(self._device)
        tokens = (slots // ids.shape[1]).to(self._device)
        inputs = x.to(self._device)
        scales = weights.reshape(-1)[slots.to(weights.device)].to(self._device)[:, None]

        def run() -> Tensor:
            # float32 sums, as the reference has them; a row appears once per expert of its token.
            out = torch.zeros(inputs.shape, dtype=torch.float32, device=self._device)
            both = self._product(quantise_fp8(inputs[tokens]), gate_up, ends, rows_per_expert)
            gate, up = both.chunk(2, dim=1)
            hidden = quantise_fp8(torch.nn.functional.silu(gate) * up)
            rows = self._product(hidden, down, ends, rows_per_expert)
            out.index_add_(0, tokens, rows * scales)
            return out.to(torch.bfloat16)

        return run

    def _kind(self) -> str:
        kind = "grouped" if self._product is product_grouped else "expert by expert"
        return f"row-wise scaled_mm, {kind}"

    def _moved(self, stack: Stack) -> Stack:
        return stack[0].to(self._device), stack[1].to(self._device)


def _stack(experts: Sequence[tuple[Fp8Matrix, ...]]) -> Stack:
    values = torch.stack([torch.cat([part.values for part in parts]) for parts in experts])
    scales = torch.stack([torch.cat([part.scale for part in parts]).squeeze(1) for parts in experts])
    return values, scales


def _probe_product(device: torch.device) -> Product:
    """The grouped matmul where it runs and agrees with the one by expert, else the one by expert."""
    generator = torch.Generator().manual_seed(0)
    rows = quantise_fp8(torch.randn(24, 128, generator=generator).to(device))
    stack = _stack([(quantise_fp8(torch.randn(64, 128, generator=generator)),) for _ in range(3)])
    stack = stack[0].to(device), stack[1].to(device)
    counts = (5, 0, 19)
    ends = torch.tensor((5, 5, 24), dtype=torch.int32, device=device)
    try:
        expected = product_by_expert(rows, stack, ends, counts).to(torch.float32)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        raise MissingComponentError(
            f"torch's FP8 matmul does not run on this GPU: {str(error).splitlines()[0]}", ELSEWHERE
        ) from None
    try:
        found = product_grouped(rows, stack, ends, counts).to(torch.float32)
    except (RuntimeError, NotImplementedError, ValueError, AttributeError):
        return product_by_expert
    agrees = bool((found - expected).norm() <= 0.01 * expected.norm())
    return product_grouped if agrees else product_by_expert
