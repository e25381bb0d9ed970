"""A Qwen3-MoE checkpoint of any size with random weights: near uniform routing, and steps as a trained one's."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

TOKENIZER = Path(__file__).parent / "tiny-moe"
"""The bundled model, whose tokenizer and other settings are taken."""


@dataclass(frozen=True)
class RandomMoe:
    """Sizes of a checkpoint; every layer is a MoE layer."""

    hidden_size: int
    expert_width: int
    experts: int
    top_k: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int = 64

    def config(self) -> dict[str, Any]:
        """config.json."""
        bundled: dict[str, Any] = json.loads((TOKENIZER / "config.json").read_text(encoding="utf-8"))
        return bundled | {
            "hidden_size": self.hidden_size,
            "moe_intermediate_size": self.expert_width,
            "num_experts": self.experts,
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.top_k,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
        }


def write_random_moe(folder: Path, sizes: RandomMoe, *, seed: int = 0) -> None:
    """Write the checkpoint into ``folder``: bfloat16 weights that keep the scale of what goes through them."""
    folder.mkdir(parents=True)
    config = sizes.config()
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    save_file(
        _weights(sizes, config["vocab_size"], seed), folder / "model.safetensors", metadata={"format": "pt"}
    )


def _weights(sizes: RandomMoe, vocabulary: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    H, width, head = sizes.hidden_size, sizes.expert_width, sizes.head_dim

    def random(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator).mul_(columns**-0.5).to(torch.bfloat16)

    def ones(size: int) -> Tensor:
        return torch.ones(size, dtype=torch.bfloat16)

    weights = {
        "model.embed_tokens.weight": torch.randn(vocabulary, H, generator=generator).to(torch.bfloat16),
        "model.norm.weight": ones(H),
        "lm_head.weight": random(vocabulary, H),
    }
    for layer in range(sizes.layers):
        at = f"model.layers.{layer}"
        weights |= {
            f"{at}.{name}.weight": ones(H) for name in ("input_layernorm", "post_attention_layernorm")
        }
        weights |= {f"{at}.self_attn.{name}.weight": ones(head) for name in ("q_norm", "k_norm")}
        weights |= {
            f"{at}.self_attn.{name}_proj.weight": random(*shape)
            for name, shape in {
                "q": (sizes.heads * head, H),
                "k": (sizes.kv_heads * head, H),
                "v": (sizes.kv_heads * head, H),
                "o": (H, sizes.heads * head),
            }.items()
        }
        weights[f"{at}.mlp.gate.weight"] = random(sizes.experts, H)
        for expert in range(sizes.experts):
            weights |= {
                f"{at}.mlp.experts.{expert}.{name}_proj.weight": random(*shape)
                for name, shape in {"gate": (width, H), "up": (width, H), "down": (H, width)}.items()
            }
    return weights
