"""What all block-FP8 GPU backends share: stacked weights on the device, their bytes and their gate."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

import torch
from torch import Tensor

from placer.kernels.block_fp8 import BLOCK, BlockExpert, BlockMatrix, BlockSource
from placer.kernels.expert_mlp import ExpertMLP, ExpertWeights, Problem
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.gpu_needs import GpuNeeds, cuda_capability


class BlockFp8Experts(ExpertMLP):
    """Every layer holds a `BlockExpert` of stacks: ``gate_up`` [E, 2I, H] and ``down`` [E, H, I].

    ``device`` is "cuda" in use; a backend whose kernels can be interpreted runs on "cpu" in tests.
    """

    method: ClassVar[str] = "FP8"
    device: ClassVar[str] = "cuda"
    error_limit: ClassVar[float] = 0.08
    needs: ClassVar[GpuNeeds]

    def __init__(self, device: str = "cuda") -> None:
        self._device = torch.device(device)
        self._shape = ExpertShape(BLOCK, BLOCK, 1, 1)
        self._layers: list[BlockExpert] = []

    @classmethod
    def open(cls, threads: int, subpools: int) -> Self:
        """See `ExpertMLP.open`."""
        return cls()

    @classmethod
    def problem(cls, shape: ExpertShape, threads: int) -> Problem | None:
        """See `ExpertMLP.problem`; no package is imported."""
        return cls.needs.problem(shape, cuda_capability())

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """A byte per weight, and a float32 scale per block of 128x128."""
        return shape.parameters + 4 * shape.parameters // BLOCK**2

    def variant(self) -> str:
        """See `ExpertMLP.variant`."""
        if self._device.type == "cpu":
            return f"{self._kind()}, CPU"
        major, minor = torch.cuda.get_device_capability(self._device)
        return f"{self._kind()}, {torch.cuda.get_device_name(self._device)}, sm{major}{minor}"

    def load(self, shape: ExpertShape, layers: int, weights: BlockSource, *, max_tokens: int) -> None:
        """Stack ``layers`` layers of weights on the device; ``max_tokens`` plays no part."""
        self._shape = shape
        self._layers = []
        for layer in range(layers):
            experts = [weights(layer, index) for index in range(shape.experts)]
            self._layers.append(
                BlockExpert(
                    gate_up=self._stack([expert.gate_up for expert in experts]),
                    down=self._stack([expert.down for expert in experts]),
                )
            )

    def load_random(self, shape: ExpertShape, layers: int, *, seed: int, max_tokens: int) -> None:
        """See `ExpertMLP.load_random`; values are drawn on the device."""
        self._shape = shape
        hidden, inner, E = shape.hidden_size, shape.expert_intermediate_size, shape.experts
        generator = torch.Generator(self._device).manual_seed(seed)

        def stack(rows: int, columns: int) -> BlockMatrix:
            # One expert at a time: float32 values of a whole layer would take four times its bytes.
            values = torch.empty(E, rows, columns, dtype=torch.float8_e4m3fn, device=self._device)
            for expert in range(E):
                drawn = torch.randn(rows, columns, generator=generator, device=self._device)
                values[expert] = drawn.to(torch.float8_e4m3fn)
            scale = torch.full((E, rows // BLOCK, columns // BLOCK), columns**-0.5, device=self._device)
            return BlockMatrix(values, scale)

        self._layers = [BlockExpert(stack(2 * inner, hidden), stack(hidden, inner)) for _ in range(layers)]

    def loaded(self, layer: int, expert: int) -> ExpertWeights:
        """See `ExpertMLP.loaded`."""
        stacks = self._layers[layer]
        one = BlockExpert(
            *(
                BlockMatrix(stack.values[expert].cpu(), stack.scale[expert].cpu())
                for stack in (stacks.gate_up, stacks.down)
            )
        )
        return one.dequantise()

    def forward(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        """See `ExpertMLP.forward`."""
        return self.bound(layer, x, ids, weights)()

    @abstractmethod
    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`."""

    @abstractmethod
    def _kind(self) -> str:
        """What runs, without the device."""

    def _stack(self, matrices: list[BlockMatrix]) -> BlockMatrix:
        return BlockMatrix(
            torch.stack([matrix.values for matrix in matrices]).to(self._device),
            torch.stack([matrix.scale for matrix in matrices]).to(self._device),
        )
