"""KV-cache bytes: per token where attention sees the whole context, per request where it sees a window."""

from dataclasses import dataclass

from placer.errors import BadInputError

KV_DTYPES = ("bf16", "fp8")


@dataclass(frozen=True)
class CacheGroup:
    """Layers that cache alike.

    Attributes
    ----------
    layers
        How many.
    kv_heads
        KV heads that tensor parallelism divides; None for one latent vector that every GPU holds whole.
    bf16_bytes, fp8_bytes
        Bytes per token, layer and KV head (or latent vector).
    window_tokens
        Tokens that a layer keeps per request; None for all of them.
    """

    layers: int
    kv_heads: int | None
    bf16_bytes: int
    fp8_bytes: int
    window_tokens: int | None = None

    def bytes_per_token(self, tp: int, dtype: str) -> int:
        """Bytes of one token in all layers of the group, on one GPU.

        max(1, heads // tp) heads: with more GPUs than KV heads, heads repeat
        (sglang/srt/configs/model_config.py, get_num_kv_heads).

        Raises
        ------
        BadInputError
            When ``dtype`` is not a KV dtype.
        """
        if dtype not in KV_DTYPES:
            raise BadInputError(f"unknown KV dtype {dtype!r}", f"use one of {', '.join(KV_DTYPES)}")
        heads = 1 if self.kv_heads is None else max(1, self.kv_heads // tp)
        return self.layers * heads * (self.bf16_bytes if dtype == "bf16" else self.fp8_bytes)


def token_bytes(groups: tuple[CacheGroup, ...], tp: int, dtype: str) -> int:
    """Bytes that every cached token costs one GPU: the layers that see the whole context."""
    return sum(group.bytes_per_token(tp, dtype) for group in groups if group.window_tokens is None)


def request_bytes(groups: tuple[CacheGroup, ...], tp: int, dtype: str) -> int:
    """Bytes that every running request costs one GPU, whatever its length: full sliding windows."""
    return sum(
        group.window_tokens * group.bytes_per_token(tp, dtype)
        for group in groups
        if group.window_tokens is not None
    )
