"""GPU experts in block FP8 on vLLM's fused_experts: the Triton kernel that vLLM serves with."""

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.block_fp8 import BLOCK
from placer.kernels.block_fp8_experts import BlockFp8Experts
from placer.kernels.expert_mlp import SKIP
from placer.kernels.foreign_call import accepts
from placer.kernels.gpu_needs import GpuNeeds

_MOE = "vllm.model_executor.layers.fused_moe"
_ARGUMENTS = ("hidden_states", "w1", "w2", "topk_weights", "topk_ids", "global_num_experts", "expert_map",
              "quant_config")  # fmt: skip
_CONFIG_ARGUMENTS = ("w1_scale", "w2_scale", "block_shape")


class VllmFp8(BlockFp8Experts):
    """Sorting, both products, SwiGLU and the sum over slots, as `fused_experts` of vLLM 0.33 does them.

    A skipped slot names one expert more than there are, which the expert map says is elsewhere.
    """

    name: ClassVar[str] = "vllm"
    needs: ClassVar[GpuNeeds] = GpuNeeds(multiple=BLOCK, packages=("vllm", "triton"))

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        try:
            self._fused: Any = importlib.import_module(f"{_MOE}.fused_moe").fused_experts
            self._quantised: Any = importlib.import_module(f"{_MOE}.config").fp8_w8a8_moe_quant_config
        except (ImportError, AttributeError, RuntimeError, OSError) as error:
            raise MissingComponentError(
                f"{self.version()} cannot be used here: {error}", "use another --gpu-kernel"
            ) from None
        accepts(self._fused, _ARGUMENTS, f"{self.version()}'s fused_experts")
        accepts(self._quantised, _CONFIG_ARGUMENTS, f"{self.version()}'s fp8_w8a8_moe_quant_config")

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"vllm {importlib.metadata.version('vllm')}, torch {torch.__version__}"

    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`: only moving and conversion are done here."""
        stacks, E = self._layers[layer], self._shape.experts
        inputs = x.to(self._device).contiguous()
        factors = weights.to(self._device, torch.float32).contiguous()
        chosen = torch.where(ids == SKIP, E, ids).to(self._device, torch.int32).contiguous()
        expert_map = torch.arange(E + 1, dtype=torch.int32, device=self._device)
        expert_map[E] = -1
        config = self._quantised(
            w1_scale=stacks.gate_up.scale, w2_scale=stacks.down.scale, block_shape=[BLOCK, BLOCK]
        )

        def run() -> Tensor:
            result: Tensor = self._fused(
                hidden_states=inputs,
                w1=stacks.gate_up.values,
                w2=stacks.down.values,
                topk_weights=factors,
                topk_ids=chosen,
                global_num_experts=E + 1,
                expert_map=expert_map,
                quant_config=config,
            )
            return result

        return run

    def _kind(self) -> str:
        return "vLLM fused_experts, block FP8"
