"""Small random models of several families, and their published routing rules written again in numpy."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Selected = NDArray[np.bool_]
"""bool [tokens, experts]: which experts a token takes."""
Rule = Callable[[NDArray[np.float64], dict[str, NDArray[np.float64]], NDArray[np.int64]], Selected]
"""(router input [T, H], router's tensors by name, token ids [T]) -> selection."""

SHARED: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": None,
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def top(scores: NDArray[np.float64], k: int) -> Selected:
    """The k highest of each row."""
    selected = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(selected, np.argsort(-scores, axis=1)[:, :k], True, axis=1)
    return selected


def softmax_top_k(k: int) -> Rule:
    """Softmax rises with the logits, so the highest logits win; gpt-oss adds a bias to them."""
    return lambda x, router, _: top(x @ router["weight"].T + router.get("bias", 0.0), k)


def grouped_sigmoid(k: int, groups: int, kept: int) -> Rule:
    """DeepSeek-V3: corrected sigmoid scores; of ``groups``, the ``kept`` with the largest sum of two best."""

    def rule(x: NDArray[np.float64], router: dict[str, NDArray[np.float64]], _: object) -> Selected:
        scores = 1 / (1 + np.exp(-x @ router["weight"].T)) + router["e_score_correction_bias"]
        within = scores.reshape(len(x), groups, -1)
        best = top(np.sort(within, axis=2)[:, :, -2:].sum(axis=2), kept)
        return top(np.where(best[:, :, None], within, -np.inf).reshape(scores.shape), k)

    return rule


def hash_then_softplus(k: int) -> Rule:
    """DeepSeek-V4: the first layers look experts up by token, later ones take corrected sqrt(softplus)."""

    def rule(
        x: NDArray[np.float64], router: dict[str, NDArray[np.float64]], tokens: NDArray[np.int64]
    ) -> Selected:
        if "tid2eid" in router:
            selected = np.zeros((len(x), len(router["weight"])), dtype=bool)
            np.put_along_axis(selected, router["tid2eid"][tokens].astype(int), True, axis=1)
            return selected
        scores = np.sqrt(np.logaddexp(0.0, x @ router["weight"].T)) + router["e_score_correction_bias"]
        return top(scores, k)

    return rule


@dataclass(frozen=True)
class RoutedFamily:
    """A family: its transformers classes' prefix, config fields, MoE layers, and routing rule.

    ``published`` fields of config.json are those that transformers does not write.
    """

    prefix: str
    fields: dict[str, Any]
    layers: tuple[int, ...]
    rule: Rule
    published: dict[str, Any] = field(default_factory=dict)

    def model(self, seed: int = 0) -> Any:
        """A random model in float32; corrections, biases and tables are random too, so that they matter."""
        import transformers

        torch.manual_seed(seed)
        fields = {**SHARED, **self.fields}
        if self.prefix == "Olmoe":
            del fields["head_dim"]
        config = getattr(transformers, f"{self.prefix}Config")(**fields)
        model = getattr(transformers, f"{self.prefix}ForCausalLM")(config).eval()
        random = torch.Generator().manual_seed(seed)
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("tid2eid"):
                keys = torch.rand((len(tensor), config.n_routed_experts), generator=random)
                tensor.data.copy_(keys.argsort(dim=1)[:, : tensor.shape[1]])
            elif name.endswith(("e_score_correction_bias", "router.bias")):
                tensor.data.copy_(0.1 * torch.randn(tensor.shape, generator=random))
            elif name.endswith(("gate.weight", "router.weight")):
                tensor.data.copy_(torch.randn(tensor.shape, generator=random))
        return model

    def save(self, folder: Path, seed: int = 0) -> Path:
        """The random model as a checkpoint in ``folder``."""
        self.model(seed).save_pretrained(folder)
        path = folder / "config.json"
        # transformers writes its own names for what published checkpoints of DeepSeek-V4 call these.
        config = json.loads(path.read_text()) | self.published
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
        return folder


FAMILIES = {
    "Qwen3-MoE, first layer dense": RoutedFamily(
        "Qwen3Moe",
        {
            "num_experts": 12,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 16,
            "intermediate_size": 32,
            "mlp_only_layers": [0],
        },
        (1, 2),
        softmax_top_k(3),
    ),
    "OLMoE": RoutedFamily(
        "Olmoe",
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "intermediate_size": 16,
            "num_key_value_heads": 2,
        },
        (0, 1, 2),
        softmax_top_k(2),
    ),
    "Mixtral": RoutedFamily(
        "Mixtral",
        {"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 16},
        (0, 1, 2),
        softmax_top_k(2),
    ),
    "gpt-oss": RoutedFamily(
        "GptOss",
        {"num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 16},
        (0, 1, 2),
        softmax_top_k(3),
    ),
    "DeepSeek-V3": RoutedFamily(
        "DeepseekV3",
        {
            **LATENT,
            "n_routed_experts": 16,
            "num_experts_per_tok": 4,
            "n_group": 4,
            "topk_group": 2,
            "moe_intermediate_size": 16,
            "intermediate_size": 32,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
        },
        (1, 2),
        grouped_sigmoid(4, groups=4, kept=2),
    ),
    "GLM-4.5": RoutedFamily(
        "Glm4Moe",
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "intermediate_size": 32,
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
        },
        (1, 2),
        grouped_sigmoid(2, groups=1, kept=1),
    ),
    "DeepSeek-V4": RoutedFamily(
        "DeepseekV4",
        {
            "head_dim": 32,
            "q_lora_rank": 16,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "num_hash_layers": 1,
            "layer_types": [
                "heavily_compressed_attention",
                "heavily_compressed_attention",
                "compressed_sparse_attention",
            ],
            "o_groups": 2,
            "o_lora_rank": 8,
            "index_n_heads": 2,
            "index_head_dim": 16,
            "index_topk": 4,
            "hc_mult": 2,
            "partial_rotary_factor": 0.5,
        },
        (0, 1, 2),
        hash_then_softplus(2),
        {
            "compress_ratios": [128, 128, 4],
            "num_hash_layers": 1,
            "layer_types": None,
            "mlp_layer_types": None,
        },
    ),
}
