"""What entries of several families have in common: routers, experts, switches of config.json."""

from collections.abc import Callable

from placer.model.config import Config
from placer.model.family import Experts, Router
from placer.model.shared_experts import SharedExperts

QKVO = ("q_proj", "k_proj", "v_proj", "o_proj")
MIXTRAL_EXPERTS = Experts("block_sparse_moe.experts", ("w1", "w3", "w2"))


def flag(name: str, *, default: bool) -> Callable[[Config], bool]:
    """The truth value under ``name``."""
    return lambda config: config.flag(name, default=default)


def auxiliary_free(config: Config) -> bool:
    """Whether the router has score corrections, as DeepSeek-V3's does unless ``topk_method`` differs."""
    return config.text("topk_method", default="noaux_tc") == "noaux_tc"


DEEPSEEK_ROUTER = Router("mlp.gate", correction_at="mlp.gate", has_correction=auxiliary_free)
QWEN_SHARED = SharedExperts(
    None,
    ("shared_expert_intermediate_size",),
    whole_width=True,
    at="mlp.shared_expert",
    gate="mlp.shared_expert_gate",
)
