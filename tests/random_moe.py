"""Small checkpoints of random weights, one of each model class that vLLM's plugin takes, as transformers saves them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

EXPERT_BYTES = 3 * 256 * 128 * 4
"""Every expert here is 256 wide, 128 inside, in float32."""
_COMMON: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "num_experts_per_tok": 4,
}
_SHARED = {
    "n_routed_experts": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
_LATENT = {
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
}
_OWN: dict[str, dict[str, Any]] = {
    # A dense layer, shared experts, sigmoid routing with a bias.
    "Glm4Moe": {**_SHARED, "moe_intermediate_size": 128, "head_dim": 64, "n_routed_experts": 64},
    # The same with groups of experts and latent attention.
    "DeepseekV3": {**_SHARED, **_LATENT, "moe_intermediate_size": 128, "num_key_value_heads": 4, "n_group": 4}
    | {"topk_group": 2},
    # A gated shared expert, weights that are not normalised.
    "Qwen2Moe": {"num_experts": 32, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 256},
    "Olmoe": {"num_experts": 32, "intermediate_size": 128},
    # Other names of an expert's matrices.
    "Mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 128},
}
CLASSES = tuple(_OWN)


def save_random_moe(name: str, folder: Path) -> dict[str, Any]:
    """Save a checkpoint of the class, and return its ``layers``, ``experts`` and ``top_k``."""
    transformers = pytest.importorskip("transformers")
    own = {**_COMMON, **_OWN[name]}
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**own)
    network = getattr(transformers, f"{name}ForCausalLM")(config).float()
    for tensor_name, tensor in network.state_dict().items():
        if not tensor_name.endswith("norm.weight"):
            tensor.normal_(std=0.08)
    network.save_pretrained(folder)
    if name == "DeepseekV3":
        # Published checkpoints say this, and vLLM reads it; transformers knows no other way.
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"topk_method": "noaux_tc"}))
    experts = next(own[key] for key in ("n_routed_experts", "num_experts", "num_local_experts") if key in own)
    first = own.get("first_k_dense_replace", 0)
    return {"layers": tuple(range(first, 4)), "experts": experts, "top_k": own["num_experts_per_tok"]}
