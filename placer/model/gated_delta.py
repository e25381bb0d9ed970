"""Gated delta-rule attention (Qwen3-Next, Qwen3.5): a recurrent state per request instead of a cache."""

from dataclasses import dataclass

from placer.model.config import Config
from placer.model.kv import CacheGroup, RequestState
from placer.model.module import Module, Split

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class GatedDelta:
    """Linear attention by the gated delta rule.

    Attributes
    ----------
    fused
        Whether the checkpoint packs q, k, v and z, and b and a, into one matrix each (Qwen3-Next) or holds
        qkv, z, b and a (Qwen3.5).
    """

    fused: bool

    def modules(self, config: Config, layer: str) -> list[Module]:
        """Input projections, the convolution, the decay parameters, the gated norm and the output.

        Source: transformers/models/qwen3_next/modeling_qwen3_next.py, qwen3_5_moe/modeling_qwen3_5_moe.py.
        """
        hidden = config.count("hidden_size")
        value_heads = config.count("linear_num_value_heads")
        value_head = config.count("linear_value_head_dim")
        keys, values = self._keys(config), value_heads * value_head
        at = f"{layer}.linear_attn"
        inputs = (
            (("in_proj_qkvz", 2 * keys + 2 * values), ("in_proj_ba", 2 * value_heads))
            if self.fused
            else (
                ("in_proj_qkv", 2 * keys + values),
                ("in_proj_z", values),
                ("in_proj_b", value_heads),
                ("in_proj_a", value_heads),
            )
        )
        kernel = config.count("linear_conv_kernel_dim")
        matrices = [
            Module(f"{at}.{name}", "attention", (rows, hidden), Split.OUTPUT, linear=True)
            for name, rows in inputs
        ]
        return [
            *matrices,
            Module(f"{at}.conv1d", "attention", (2 * keys + values, 1, kernel), Split.CHANNELS),
            Module(at, "attention", (value_heads,), Split.OUTPUT, parameter="dt_bias"),
            Module(at, "attention", (value_heads,), Split.OUTPUT, dtype="F32", parameter="A_log"),
            Module(f"{at}.norm", "norms", (value_head,)),
            Module(f"{at}.out_proj", "attention", (hidden, values), Split.INPUT, linear=True),
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
        """The last inputs of the convolution in bf16, and a key by value matrix per value head.

        Source: sglang/srt/configs/mamba_utils.py, Mamba2StateShape; ``mamba_ssm_dtype`` is float32 unless
        config.json says otherwise.
        """
        value_heads = config.count("linear_num_value_heads")
        key, value = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
        channels = 2 * self._keys(config) + value_heads * value
        convolution = channels * (config.count("linear_conv_kernel_dim") - 1) * 2
        name = config.text("mamba_ssm_dtype", default="float32")
        if name not in _STATE_BYTES:
            raise config.error("mamba_ssm_dtype", name, f"one of {', '.join(_STATE_BYTES)}")
        matrices = value_heads * key * value * _STATE_BYTES[name]
        return (RequestState(layers, convolution, True), RequestState(layers, matrices, True))

    def kv_heads(self, config: Config) -> None:
        """None."""
        del config

    def _keys(self, config: Config) -> int:
        return config.count("linear_num_key_heads") * config.count("linear_key_head_dim")
