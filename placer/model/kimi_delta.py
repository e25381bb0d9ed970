"""Kimi delta attention (Kimi-Linear, Kimi-K3): a recurrent state per request, with a gate per channel."""

from dataclasses import dataclass

from placer.model.config import MAX_LAYERS, Config
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module, Split

_SECTION = "linear_attn_config"


def delta_kinds(config: Config, num_layers: int) -> tuple[str, ...]:
    """``linear`` where ``linear_attn_config`` lists a layer under ``kda_layers``, else ``full``.

    The lists count layers from one (sglang/srt/configs/kimi_linear.py, is_kda_layer).
    """
    section = config.section(_SECTION)
    layers = [section.items(name) for name in ("kda_layers", "full_attn_layers")]
    if any(type(entry) is not int for entries in layers for entry in entries) or sorted(
        layers[0] + layers[1]
    ) != list(range(1, num_layers + 1)):
        raise config.error(
            _SECTION, "kda_layers and full_attn_layers", f"each of the {num_layers} layers once, from 1"
        )
    linear = set(layers[0])
    return tuple("linear" if layer + 1 in linear else "full" for layer in range(num_layers))


@dataclass(frozen=True)
class KimiDelta:
    """Linear attention by the delta rule with a decay per channel.

    Source: sglang/srt/models/kimi_linear.py, KimiDeltaAttention.
    """

    def modules(self, config: Config, layer: str) -> list[Module]:
        """q, k and v with a convolution each, decay, beta, output gate, gated norm and o."""
        heads, head, kernel, full_rank = self._shape(config)
        hidden, width = config.count("hidden_size"), heads * head
        at = f"{layer}.self_attn"
        matrices: list[tuple[str, tuple[int, int], Split]] = [
            *((f"{name}_proj", (width, hidden), Split.OUTPUT) for name in ("q", "k", "v")),
            ("f_a_proj", (head, hidden), Split.REPLICATED),
            ("f_b_proj", (width, head), Split.OUTPUT),
            ("b_proj", (heads, hidden), Split.OUTPUT),
            ("o_proj", (hidden, width), Split.INPUT),
        ]
        if full_rank:
            matrices.append(("g_proj", (width, hidden), Split.OUTPUT))
        else:
            matrices.append(("g_a_proj", (head, hidden), Split.REPLICATED))
            matrices.append(("g_b_proj", (width, head), Split.OUTPUT))
        return [
            *(
                Module(f"{at}.{name}", "attention", shape, split, linear=True)
                for name, shape, split in matrices
            ),
            *(
                Module(f"{at}.{name}_conv1d", "attention", (width, 1, kernel), Split.CHANNELS)
                for name in ("q", "k", "v")
            ),
            Module(at, "attention", (width,), Split.OUTPUT, dtype="F32", parameter="dt_bias"),
            Module(at, "attention", (1, 1, heads, 1), Split.OUTPUT, dtype="F32", parameter="A_log"),
            Module(f"{at}.o_norm", "norms", (head,)),
        ]

    def runtime_copies(self, config: Config, layer: str) -> list[Module]:
        """None."""
        del config, layer
        return []

    def cache(self, config: Config, layers: int) -> tuple[CacheGroup, ...]:
        """None: no token is cached."""
        del config, layers
        return ()

    def states(self, config: Config, layers: int) -> tuple[RequestState, ...]:
        """The last inputs of three convolutions in bf16, and a float32 matrix per head.

        Source: sglang/srt/configs/mamba_utils.py, KimiLinearStateShape.
        """
        heads, head, kernel, _ = self._shape(config)
        convolutions = 3 * heads * head * (kernel - 1) * 2
        return (
            RequestState(layers, convolutions, True),
            RequestState(layers, heads * head * head * 4, True),
        )

    def kv_heads(self, config: Config) -> None:
        """None."""
        del config

    def _shape(self, config: Config) -> tuple[int, int, int, bool]:
        section = config.section(_SECTION)
        return (
            section.count("num_heads"),
            section.count("head_dim"),
            section.count("short_conv_kernel_size", most=MAX_LAYERS),
            section.flag("use_full_rank_gate", default=False),
        )
