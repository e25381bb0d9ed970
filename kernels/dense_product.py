"""One projection of a layer, rows [q, K] times weights [N, K] that every token reads: bfloat16 or FP8."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from placer.kernels.fp8 import quantise_fp8

ALIGNMENT = 16
"""FP8 products need both sizes in multiples of this (torch._scaled_mm)."""


_Operand = tuple[Tensor, Tensor | None]
"""Values, and their scale per row where they are FP8."""


@dataclass(frozen=True)
class ProductShape:
    """Weights [rows, columns] of one GPU; ``fp8`` where the checkpoint holds a byte per weight."""

    rows: int
    columns: int
    fp8: bool

    @property
    def bytes(self) -> int:
        """Bytes of the weights, scales left out."""
        return self.rows * self.columns * (1 if self.fp8 else 2)


class DenseProducts:
    """Copies of one projection, each with memory of its own, so that every call can read cold weights."""

    def __init__(self, shape: ProductShape, copies: int, *, device: str, seed: int, most_tokens: int) -> None:
        generator = torch.Generator(device).manual_seed(seed)

        def drawn(rows: int) -> _Operand:
            wide = torch.randn(rows, shape.columns, generator=generator, device=device)
            if not shape.fp8:
                return wide.to(torch.bfloat16), None
            rounded = quantise_fp8(wide)
            return rounded.values, rounded.scale

        self._weights = [drawn(shape.rows) for _ in range(copies)]
        # A server rounds a projection's inputs in the kernel before it, so rounding is not part of a call.
        self._inputs = drawn(most_tokens)

    def operands(self, copy: int, tokens: int) -> tuple[Tensor, Tensor]:
        """Inputs [q, K] and weights [N, K] in float32, as they are rounded."""
        inputs, weights = (
            values.to(torch.float32) * (1.0 if scale is None else scale)
            for values, scale in (self._inputs, self._weights[copy])
        )
        return inputs[:tokens], weights

    def bound(self, copy: int, tokens: int) -> Callable[[], Tensor]:
        """bfloat16 [q, N] from the first ``tokens`` inputs and the weights of ``copy``."""
        (values, scale), (weights, factors) = self._inputs, self._weights[copy]
        rows = values[:tokens]
        if scale is None or factors is None:
            return lambda: torch.nn.functional.linear(rows, weights)
        row_scale, column_scale = scale[:tokens], factors.t().contiguous()

        def scaled() -> Tensor:
            result: Tensor = torch._scaled_mm(
                rows, weights.t(), scale_a=row_scale, scale_b=column_scale, out_dtype=torch.bfloat16
            )
            return result

        return scaled
