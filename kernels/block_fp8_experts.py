"""What all block-FP8 GPU backends share: stacked weights on the device, and their bytes."""

import torch

from placer.kernels.block_fp8 import BLOCK, BlockExpert, BlockMatrix, BlockSource
from placer.kernels.expert_mlp import ExpertWeights
from placer.kernels.expert_shape import ExpertShape
from placer.kernels.gpu_experts import GpuExperts


class BlockFp8Experts(GpuExperts):
    """Every layer holds a `BlockExpert` of stacks: ``gate_up`` [E, 2I, H] and ``down`` [E, H, I]."""

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        self._shape = ExpertShape(BLOCK, BLOCK, 1, 1)
        self._layers: list[BlockExpert] = []

    @classmethod
    def bytes_per_expert(cls, shape: ExpertShape) -> int:
        """A byte per weight, and a float32 scale per block of 128x128."""
        return shape.parameters + 4 * shape.parameters // BLOCK**2

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
            values = self._random_values(E, rows, columns, generator)
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

    def _stack(self, matrices: list[BlockMatrix]) -> BlockMatrix:
        return BlockMatrix(
            torch.stack([matrix.values for matrix in matrices]).to(self._device),
            torch.stack([matrix.scale for matrix in matrices]).to(self._device),
        )
