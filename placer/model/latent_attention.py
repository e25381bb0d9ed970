"""Multi-head latent attention (DeepSeek-V3), and its sparse form that an indexer selects tokens for."""

from dataclasses import dataclass

from placer.model.config import Config
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module, Split

_FP8_TILE = 128
"""Latent values per float32 scale in SGLang's FP8 layout for sparse attention."""


@dataclass(frozen=True)
class Indexer:
    """The lightning indexer of DeepSeek sparse attention: it scores cached tokens by a key of its own.

    Attributes
    ----------
    stored
        Whether the layer holds indexer weights; layers that share another layer's selection do not.
    """

    stored: bool = True

    def modules(self, config: Config, layer: str) -> list[Module]:
        """wq_b, wk, weights_proj and the LayerNorm of keys, whole on every GPU.

        Source: sglang/srt/layers/attention/nsa/nsa_indexer.py.
        """
        if not self.stored:
            config.ignore(("index_n_heads", "index_head_dim", "index_topk"))
            return []
        heads, width = config.count("index_n_heads"), config.count("index_head_dim")
        hidden, rank = config.count("hidden_size"), config.count("q_lora_rank")
        at = f"{layer}.self_attn.indexer"
        return [
            Module(f"{at}.wq_b", "attention", (heads * width, rank), linear=True),
            Module(f"{at}.wk", "attention", (width, hidden), linear=True),
            Module(f"{at}.weights_proj", "attention", (heads, hidden)),
            Module(f"{at}.k_norm", "norms", (width,), bias=True),
        ]

    def token_bytes(self, config: Config) -> int:
        """An FP8 key and its float32 scale per 128 values, whatever the KV dtype.

        SGLang allocates it in every layer (sglang/srt/mem_cache/memory_pool.py, NSATokenToKVPool).
        """
        config.ignore(("index_topk",))
        width = config.count("index_head_dim")
        return width + -(-width // _FP8_TILE) * 4


@dataclass(frozen=True)
class LatentAttention:
    """One compressed vector per token, whole on every GPU.

    Attributes
    ----------
    biased
        Projections that hold a bias when ``attention_bias`` is true.
    indexer
        Selects the tokens that attention reads; None where it reads all.
    gate_field
        Field that gives the output a gate of its own width (Kimi-K3).
    """

    biased: tuple[str, ...] = ()
    indexer: Indexer | None = None
    gate_field: str | None = None

    def modules(self, config: Config, layer: str) -> list[Module]:
        """Down- and up-projections of queries and of the latent, their norms, o, and the indexer."""
        hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
        latent, rope = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
        nope, value = config.count("qk_nope_head_dim"), config.count("v_head_dim")
        biased = self.biased if config.flag("attention_bias", default=False) else ()
        at = f"{layer}.self_attn"
        shapes: list[tuple[str, tuple[int, int], Split]] = [
            ("kv_a_proj_with_mqa", (latent + rope, hidden), Split.REPLICATED),
            ("kv_b_proj", (heads * (nope + value), latent), Split.OUTPUT),
            ("o_proj", (hidden, heads * value), Split.INPUT),
        ]
        norms = [Module(f"{at}.kv_a_layernorm", "norms", (latent,))]
        if self.gate_field is not None and config.flag(self.gate_field, default=False):
            shapes.append(("g_proj", (heads * value, hidden), Split.OUTPUT))
        # Null means that queries have no down-projection; a config that lacks the field may mean any rank.
        config.require("q_lora_rank")
        if config.has("q_lora_rank"):
            rank = config.count("q_lora_rank")
            shapes.append(("q_a_proj", (rank, hidden), Split.REPLICATED))
            shapes.append(("q_b_proj", (heads * (nope + rope), rank), Split.OUTPUT))
            norms.append(Module(f"{at}.q_a_layernorm", "norms", (rank,)))
        else:
            shapes.append(("q_proj", (heads * (nope + rope), hidden), Split.OUTPUT))
        matrices = [
            Module(f"{at}.{name}", "attention", shape, split, bias=name in biased, linear=True)
            for name, shape, split in shapes
        ]
        return matrices + norms + (self.indexer.modules(config, layer) if self.indexer else [])

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """w_kc and w_vc: kv_b_proj once more in bf16, transposed for decoding.

        Source: sglang/srt/models/deepseek_common/deepseek_weight_loader.py.
        """
        heads, latent = config.count("num_attention_heads"), config.count("kv_lora_rank")
        width = config.count("qk_nope_head_dim") + config.count("v_head_dim")
        return [
            Module(
                f"{layer}.self_attn.w_kc_vc", "attention", (heads * width, latent), Split.OUTPUT, stored=False
            )
        ]

    def cache(self, config: Config, layers: int) -> tuple[CacheGroup, ...]:
        """The latent and one rotary key per token, and the indexer's key.

        With an indexer, SGLang's FP8 layout keeps a float32 scale per 128 latent values and the rotary key
        in bf16 (sglang/srt/mem_cache/memory_pool.py, NSATokenToKVPool).
        """
        latent, rope = config.count("kv_lora_rank"), config.count("qk_rope_head_dim")
        if self.indexer is None:
            return (CacheGroup(layers, None, 2 * (latent + rope), latent + rope),)
        index = self.indexer.token_bytes(config)
        fp8 = latent + -(-latent // _FP8_TILE) * 4 + 2 * rope
        return (CacheGroup(layers, None, 2 * (latent + rope) + index, fp8 + index),)

    def states(self, config: Config, layers: int) -> tuple[RequestState, ...]:
        """None."""
        del config, layers
        return ()

    def kv_heads(self, config: Config) -> None:
        """None: the latent is not divided."""
        config.ignore(("num_key_value_heads",))
