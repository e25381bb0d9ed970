"""Multi-matrix factorised attention (Step-3): one group of keys and values, low-rank queries."""

from dataclasses import dataclass

from placer.model.config import Config
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module, Split


@dataclass(frozen=True)
class FactorisedAttention:
    """Queries through a shared narrow projection; one key and one value head for all of them.

    Source: sglang/srt/models/step3_vl.py, Step3TextAttention.
    """

    def modules(self, config: Config, layer: str) -> list[Module]:
        """q, k and v (whole on every GPU), the norm of q, its up-projection and o."""
        hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
        head = config.count("head_dim")
        config.require("share_q_dim")
        rank = config.count("share_q_dim", default=head)
        at = f"{layer}.self_attn"
        return [
            Module(f"{at}.q_proj", "attention", (rank, hidden), linear=True),
            Module(f"{at}.k_proj", "attention", (head, hidden), linear=True),
            Module(f"{at}.v_proj", "attention", (head, hidden), linear=True),
            Module(f"{at}.inter_norm", "norms", (rank,)),
            Module(f"{at}.wq", "attention", (heads * head, rank), Split.OUTPUT, linear=True),
            Module(f"{at}.o_proj", "attention", (hidden, heads * head), Split.INPUT, linear=True),
        ]

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """None."""
        del config, layer
        return []

    def cache(self, config: Config, layers: int) -> tuple[CacheGroup, ...]:
        """One key and one value per token."""
        head = config.count("head_dim")
        return (CacheGroup(layers, self.kv_heads(config), 2 * 2 * head, 2 * head),)

    def states(self, config: Config, layers: int) -> tuple[RequestState, ...]:
        """None."""
        del config, layers
        return ()

    def kv_heads(self, config: Config) -> int:
        """One; more groups have no rule."""
        return config.count("num_attention_groups", most=1, default=1)
