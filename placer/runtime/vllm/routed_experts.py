"""vLLM's container of routed experts, holding the hot ones on the device and handing the cold ones to the CPU."""

from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.layers.fused_moe.runner.shared_experts import SharedExpertsOrder
from vllm.model_executor.models.utils import extract_layer_index

from placer.kernels.expert_mlp import SKIP
from placer.kernels.expert_shape import ExpertShape
from placer.runtime.vllm.applied import AppliedLayer, hot_digest
from placer.runtime.vllm.cold_experts import ColdExperts
from placer.runtime.vllm.cold_pool import ColdCalls
from placer.runtime.vllm.refusal import Refusal
from placer.runtime.vllm.session import session
from placer.runtime.vllm.support import check_kernel, check_layer

_MATRIX = {"w1": "gate", "w3": "up", "w2": "down"}
"""vLLM's names of an expert's three matrices."""


class PlacedRoutedExperts(RoutedExperts):
    """The engine's own weights and kernel, sized for the hot experts alone; cold results are added to theirs.

    A layer without hot experts holds one slot while it is loaded, since the engine's loader counts on its
    parameters being there, and none afterwards.
    """

    def __init__(
        self,
        layer_name: str,
        params_dtype: torch.dtype,
        moe_config: Any,
        quant_config: Any,
        expert_map_manager: Any,
        **arguments: Any,
    ) -> None:
        opened = session()
        layer = extract_layer_index(layer_name)
        check_layer(layer, moe_config, arguments, opened.placement)
        experts, hot = moe_config.num_experts, opened.placement.hot[layer]
        slots = {expert: slot for slot, expert in enumerate(hot)}
        if len(hot) < experts:
            # What the engine itself does for experts that live on another device: a slot per id, -1 for none.
            expert_map_manager._expert_map = torch.tensor(
                [slots.get(expert, -1) for expert in range(experts)], dtype=torch.int32
            )
            expert_map_manager._local_num_experts = moe_config.num_local_experts = max(len(hot), 1)
        super().__init__(
            layer_name,
            params_dtype,
            moe_config,
            quant_config,
            expert_map_manager=expert_map_manager,
            **arguments,
        )
        self.placed_layer = layer
        self._hot = hot
        self._loaded: set[tuple[int, str]] = set()
        self._ready = False
        self._cold: ColdExperts | None = None
        self._cold_index: dict[int, int] = {}
        self._on_gpu = torch.device(moe_config.device).type != "cpu"
        self._check_slots()
        if len(hot) == experts:
            return
        cold = [expert for expert in range(experts) if expert not in slots]
        self._cold_index = {expert: index for index, expert in enumerate(cold)}
        hot_slots = torch.tensor([slots.get(expert, 0) for expert in range(experts)])
        cold_slots = torch.tensor([self._cold_index.get(expert, SKIP) for expert in range(experts)])
        self.register_buffer("_hot_slots", hot_slots, persistent=False)
        self.register_buffer("_cold_slots", cold_slots, persistent=False)
        shape = ExpertShape(
            moe_config.hidden_dim,
            moe_config.intermediate_size_per_partition,
            experts,
            moe_config.experts_per_token,
        )
        calls = ColdCalls(shape, moe_config.max_num_tokens, params_dtype, self._on_gpu)
        with torch.device("cpu"):
            self._cold = opened.cold_pool(calls).layer(len(cold))
        opened.layers[layer_name] = self

    def weight_loader(
        self,
        param: torch.nn.Parameter,
        loaded_weight: Tensor,
        weight_name: str,
        shard_id: str,
        expert_id: int,
        return_success: bool = False,
    ) -> bool | None:
        """A matrix of one expert, as the checkpoint holds it: to its slot, or to the cold experts."""
        index = self._cold_index.get(expert_id)
        scale = "scale" in weight_name
        if index is None:
            loaded = super().weight_loader(param, loaded_weight, weight_name, shard_id, expert_id, True)
            if loaded and not scale:
                self._loaded.add((expert_id, shard_id))
            return loaded if return_success else None
        if not weight_name.endswith(("weight", "weight_scale_inv")) or not loaded_weight.is_floating_point():
            raise Refusal(
                f"{weight_name} of expert {expert_id} is neither a matrix nor the scales of one",
                "give a checkpoint in bf16 or in FP8 by blocks",
            )
        assert self._cold is not None
        self._cold.put(index, _MATRIX[shard_id], loaded_weight, scale=scale)
        return True if return_success else None

    weight_loader.supports_moe_loading = True  # type: ignore[attr-defined]

    def forward_modular(
        self,
        x: Tensor,
        topk_weights: Tensor,
        topk_ids: Tensor,
        shared_experts: Any = None,
        shared_experts_input: Tensor | None = None,
    ) -> Tensor:
        """The hot experts' weighted sum as the engine computes it, plus the cold ones'."""
        if not self._ready:
            raise Refusal(f"layer {self.placed_layer} runs before its weights were checked", "report this")
        shared = (shared_experts, shared_experts_input)
        if self._cold is None:
            return self._device_sum(x, topk_weights, topk_ids, *shared)
        cold_ids = self._cold_slots[topk_ids.long()]
        if self._on_gpu:
            # Queued on the stream: the hot experts run while the CPU works on the cold ones.
            self._cold.submit(x, cold_ids, topk_weights)
            hot = self._device_sum(x, topk_weights, topk_ids, *shared) if self._hot else None
            cold = self._cold.collect()
        else:
            cold = cold_experts(x, topk_weights, cold_ids, self.layer_name)
            # The CPU's kernel knows no expert map: cold slots point to a hot expert, with weight zero.
            weights = torch.where(cold_ids == SKIP, topk_weights, torch.zeros_like(topk_weights))
            ids = self._hot_slots[topk_ids.long()].to(topk_ids.dtype)
            hot = self._device_sum(x, weights, ids, *shared) if self._hot else None
        if hot is None:
            if shared_experts is not None:
                # The engine's kernel does the same, and it runs them only where nobody else has.
                shared_experts(shared_experts_input, SharedExpertsOrder.MK_INTERNAL_OVERLAPPED)
            return cold.to(x.dtype)
        return (hot.float() + cold).to(x.dtype)

    def _device_sum(
        self,
        x: Tensor,
        weights: Tensor,
        ids: Tensor,
        shared_experts: Any,
        shared_experts_input: Tensor | None,
    ) -> Tensor:
        """What the engine's own kernel makes of the experts on the device."""
        result = super().forward_modular(x, weights, ids, shared_experts, shared_experts_input)
        assert isinstance(
            result, Tensor
        )  # The plugin adds to it; no kernel that puts the sum off is let through.
        return result

    def forward_monolithic(self, *args: Any, **kwargs: Any) -> Tensor:
        """Never: such a kernel routes by itself, past the cold experts."""
        check_kernel(self.placed_layer, self.quant_method, self._on_gpu)
        raise Refusal(f"layer {self.placed_layer} runs a kernel that routes by itself", "report this")

    def finish(self) -> AppliedLayer:
        """Check the loaded layer against the plan, and let it run.

        Raises
        ------
        Refusal
            When a weight is missing, a parameter has another number of slots, or the kernel ignores the split.
        """
        layer, missing = self.placed_layer, 3 * len(self._hot) - len(self._loaded)
        if missing or {expert for expert, _ in self._loaded} != set(self._hot):
            raise Refusal(f"layer {layer} got {len(self._loaded)} of {3 * len(self._hot)} hot matrices")
        if self._cold is not None and self._cold.missing:
            raise Refusal(f"layer {layer} got no whole weights for {self._cold.missing} cold experts")
        check_kernel(layer, self.quant_method, self._on_gpu)
        self._check_slots()
        if not self._hot:
            for _, parameter in self._slotted():
                parameter.data = parameter.data.new_empty(0)
        self._ready = True
        return AppliedLayer(
            layer,
            self.global_num_experts,
            len(self._hot),
            len(self._cold_index),
            device_bytes=sum(parameter.nbytes for _, parameter in self._slotted()),
            host_bytes=self._cold.host_bytes if self._cold is not None else 0,
            hot_sha256=hot_digest(self._hot),
        )

    def _slotted(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Parameters with a slot per expert; the router's own ones may be held here too."""
        return [(name, each) for name, each in self.named_parameters() if name.startswith(("w13_", "w2_"))]

    def _check_slots(self) -> None:
        slots, expert_map = max(len(self._hot), 1), self.expert_map_manager.expert_map
        for name, parameter in self._slotted():
            if parameter.shape[0] != slots:
                raise Refusal(
                    f"{name} of layer {self.placed_layer} has {parameter.shape[0]} slots for {slots} hot experts"
                )
        mapped = list(range(self.global_num_experts)) if expert_map is None else expert_map.tolist()
        if sorted((slot, expert) for expert, slot in enumerate(mapped) if slot >= 0) != [
            (slot, expert) for slot, expert in enumerate(self._hot if expert_map is not None else mapped)
        ]:
            raise Refusal(f"the expert map of layer {self.placed_layer} is not that of the plan")


@torch.library.custom_op("placer::cold_experts", mutates_args=())
def cold_experts(x: Tensor, weights: Tensor, ids: Tensor, layer: str) -> Tensor:
    """float32 [q, H] of the cold experts of ``layer``; one operator to torch.compile, which cannot look inside."""
    cold = session().layers[layer]._cold
    assert cold is not None
    cold.submit(x, ids, weights)
    return cold.collect()


@cold_experts.register_fake
def _(x: Tensor, weights: Tensor, ids: Tensor, layer: str) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32)
