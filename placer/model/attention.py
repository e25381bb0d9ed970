"""The two kinds of attention: their weights and what they cache."""

from dataclasses import dataclass
from typing import Protocol

from placer.errors import BadInputError
from placer.model.config import MAX_TOKENS, Config
from placer.model.kv import CacheGroup
from placer.model.module import Module, Split


class Attention(Protocol):
    """What a kind of attention answers about a config."""

    def modules(self, config: Config, layer: str) -> list[Module]:
        """Weights of the attention of the layer named ``layer`` (``model.layers.3``)."""
        ...

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """Weights that the runtime derives while loading and keeps beside the checkpoint's own."""
        ...

    def cache(self, config: Config, num_layers: int) -> tuple[CacheGroup, ...]:
        """What the layers keep per token and per request."""
        ...

    def kv_heads(self, config: Config) -> int | None:
        """KV heads that tensor parallelism divides; None where there is one latent vector."""
        ...


@dataclass(frozen=True)
class GroupedQuery:
    """Query heads that share KV heads; multi-head attention where there are as many.

    Attributes
    ----------
    biased
        Projections that hold a bias when ``attention_bias`` is true.
    norm
        What q_norm and k_norm span: "head", "projection" (all heads), or None for no norms.
    norm_field
        Field that switches the norms on; always on when None.
    sinks
        Whether a learned sink per query head exists.
    windowed
        Whether ``layer_types`` and ``sliding_window`` decide what a layer keeps. Other families' windows
        change no bytes: SGLang's pool keeps their whole context.
    derived_head_dim
        Whether an absent ``head_dim`` means hidden_size / num_attention_heads.
    """

    biased: tuple[str, ...] = ()
    norm: str | None = None
    norm_field: str | None = None
    sinks: bool = False
    windowed: bool = False
    derived_head_dim: bool = False

    def modules(self, config: Config, layer: str) -> list[Module]:
        """q, k, v and o, the norms and the sinks."""
        heads, head, kv = self._heads(config), self._head_dim(config), self.kv_heads(config)
        hidden = config.count("hidden_size")
        biased = self.biased if self.biased and config.flag("attention_bias", default=False) else ()
        at = f"{layer}.self_attn"
        modules = [
            Module(f"{at}.{name}", "attention", shape, split, bias=name in biased, linear=True)
            for name, shape, split in (
                ("q_proj", (heads * head, hidden), Split.OUTPUT),
                ("k_proj", (kv * head, hidden), Split.KV_HEADS),
                ("v_proj", (kv * head, hidden), Split.KV_HEADS),
                ("o_proj", (hidden, heads * head), Split.INPUT),
            )
        ]
        if self.norm and (self.norm_field is None or config.flag(self.norm_field, default=False)):
            q_width, k_width = (head, head) if self.norm == "head" else (heads * head, kv * head)
            modules.append(Module(f"{at}.q_norm", "norms", (q_width,)))
            modules.append(Module(f"{at}.k_norm", "norms", (k_width,)))
        if self.sinks:
            modules.append(Module(at, "attention", (heads,), Split.OUTPUT, parameter="sinks"))
        return modules

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """None."""
        del config, layer
        return []

    def cache(self, config: Config, num_layers: int) -> tuple[CacheGroup, ...]:
        """A key and a value of head_dim per KV head and token."""
        head, kv = self._head_dim(config), self.kv_heads(config)
        if not self.windowed:
            return (CacheGroup(num_layers, kv, 2 * 2 * head, 2 * head),)
        kinds = config.items("layer_types")
        if len(kinds) != num_layers or any(k not in ("full_attention", "sliding_attention") for k in kinds):
            raise config.error(
                "layer_types",
                kinds,
                f"full_attention or sliding_attention for each of the {num_layers} layers",
            )
        sliding = kinds.count("sliding_attention")
        window = config.count("sliding_window", most=MAX_TOKENS) if sliding else None
        groups = (
            CacheGroup(num_layers - sliding, kv, 2 * 2 * head, 2 * head),
            CacheGroup(sliding, kv, 2 * 2 * head, 2 * head, window),
        )
        return tuple(group for group in groups if group.layers)

    def kv_heads(self, config: Config) -> int:
        """num_key_value_heads."""
        heads, kv = self._heads(config), config.count("num_key_value_heads")
        if heads % kv:
            raise config.error("num_key_value_heads", kv, f"a divisor of the {heads} attention heads")
        return kv

    def _heads(self, config: Config) -> int:
        return config.count("num_attention_heads")

    def _head_dim(self, config: Config) -> int:
        if not self.derived_head_dim or config.has("head_dim"):
            return config.count("head_dim")
        hidden, heads = config.count("hidden_size"), self._heads(config)
        if hidden % heads:
            raise BadInputError(
                f"{config.path}: without head_dim, {heads} attention heads must divide hidden_size {hidden}",
                "give the config.json that came with the checkpoint",
            )
        return hidden // heads


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V3): one compressed vector per token, whole on every GPU.

    Attributes
    ----------
    biased
        Projections that hold a bias when ``attention_bias`` is true.
    """

    biased: tuple[str, ...] = ()

    def modules(self, config: Config, layer: str) -> list[Module]:
        """Down- and up-projections of queries and of the latent, their norms, and o."""
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
        if config.has("q_lora_rank"):
            rank = config.count("q_lora_rank")
            shapes.append(("q_a_proj", (rank, hidden), Split.REPLICATED))
            shapes.append(("q_b_proj", (heads * (nope + rope), rank), Split.OUTPUT))
            norms.append(Module(f"{at}.q_a_layernorm", "norms", (rank,)))
        else:
            shapes.append(("q_proj", (heads * (nope + rope), hidden), Split.OUTPUT))
        return [
            Module(f"{at}.{name}", "attention", shape, split, bias=name in biased, linear=True)
            for name, shape, split in shapes
        ] + norms

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

    def cache(self, config: Config, num_layers: int) -> tuple[CacheGroup, ...]:
        """The latent and one rotary key per token."""
        width = config.count("kv_lora_rank") + config.count("qk_rope_head_dim")
        return (CacheGroup(num_layers, None, 2 * width, width),)

    def kv_heads(self, config: Config) -> None:
        """None: the latent is not divided."""
        config.ignore(("num_key_value_heads",))
