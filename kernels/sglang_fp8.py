"""GPU experts in block FP8 on SGLang's fused_experts: the Triton kernel that SGLang with KTransformers serves with."""

import importlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.block_fp8 import BLOCK
from placer.kernels.block_fp8_experts import BlockFp8Experts
from placer.kernels.foreign_call import accepts
from placer.kernels.gpu_needs import GpuNeeds

_MOE = "sglang.srt.layers.moe"
_ARGUMENTS = ("hidden_states", "w1", "w2", "topk_output", "moe_runner_config", "use_fp8_w8a8",
              "w1_scale", "w2_scale", "block_shape")  # fmt: skip


class SglangFp8(BlockFp8Experts):
    """Sorting, both products, SwiGLU and the sum over slots, as `fused_experts` of sglang-kt 0.7.2 does them.

    SGLang looks its tile sizes up by the number of experts on the GPU: a placement that keeps another number
    there may run with other tiles than were timed.
    """

    name: ClassVar[str] = "sglang"
    needs: ClassVar[GpuNeeds] = GpuNeeds(multiple=BLOCK, packages=("sglang", "triton"))

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        try:
            arguments = importlib.import_module("sglang.srt.server_args")
            # Tile lookup reads the server's arguments; "dummy" is the model path that SGLang's own benchmarks give.
            arguments.set_global_server_args_for_scheduler(arguments.ServerArgs(model_path="dummy"))
            self._fused: Any = importlib.import_module(f"{_MOE}.fused_moe_triton.fused_moe").fused_experts
            self._config: Any = importlib.import_module(f"{_MOE}.moe_runner").MoeRunnerConfig
            self._topk: Any = importlib.import_module(f"{_MOE}.topk").StandardTopKOutput
        except (ImportError, AttributeError, TypeError, ValueError, RuntimeError, OSError) as error:
            raise MissingComponentError(
                f"sglang {_version()} cannot be used here: {error}", "use another --gpu-kernel"
            ) from None
        accepts(self._fused, _ARGUMENTS, f"sglang {_version()}'s fused_experts")

    def version(self) -> str:
        """See `ExpertMLP.version`."""
        return f"sglang {_version()}, torch {torch.__version__}"

    def bound(self, layer: int, x: Tensor, ids: Tensor, weights: Tensor) -> Callable[[], Tensor]:
        """See `ExpertMLP.bound`: only moving and conversion are done here."""
        stacks, E = self._layers[layer], self._shape.experts
        inputs = x.to(self._device).contiguous()
        topk = self._topk(
            weights.to(self._device, torch.float32).contiguous(),
            ids.to(self._device, torch.int32).contiguous(),
            None,
        )
        # Counts that differ make it leave out slots of -1, as it does for the experts on the CPU.
        config = self._config(num_experts=E + 1, num_local_experts=E, inplace=False)

        def run() -> Tensor:
            result: Tensor = self._fused(
                inputs,
                stacks.gate_up.values,
                stacks.down.values,
                topk,
                config,
                use_fp8_w8a8=True,
                w1_scale=stacks.gate_up.scale,
                w2_scale=stacks.down.scale,
                block_shape=[BLOCK, BLOCK],
            )
            return result

        return run

    def _kind(self) -> str:
        return "SGLang fused_experts, block FP8"


def _version() -> str:
    for package in ("sglang-kt", "sglang"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"
