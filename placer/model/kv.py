"""Cache bytes: per token where attention sees the whole context, per request where it sees a window."""

from dataclasses import dataclass
from fractions import Fraction

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
        Bytes per cached entry, layer and KV head (or latent vector).
    window_tokens
        Tokens that a layer keeps per request; None for all of them.
    tokens_per_entry
        Tokens that one entry stands for: 1, or the ratio of a compressed cache (DeepSeek-V4).
    """

    layers: int
    kv_heads: int | None
    bf16_bytes: int
    fp8_bytes: int
    window_tokens: int | None = None
    tokens_per_entry: int = 1

    def bytes_per_token(self, tp: int, dtype: str) -> int:
        """Bytes of one entry (a token, unless entries are compressed) in all layers of the group, on one GPU.

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


@dataclass(frozen=True)
class RequestState:
    """What layers keep per running request, however long it is: recurrent states, rings of a compressor.

    Attributes
    ----------
    layers
        How many layers keep it.
    state_bytes
        Bytes per layer and request.
    divided
        Whether tensor parallelism divides it, by heads.
    """

    layers: int
    state_bytes: int
    divided: bool

    def bytes_per_gpu(self, tp: int) -> int:
        """Bytes of one request in all layers, on one of ``tp`` GPUs."""
        return self.layers * (-(-self.state_bytes // tp) if self.divided else self.state_bytes)


def token_bytes(groups: tuple[CacheGroup, ...], tp: int, dtype: str) -> int:
    """Bytes that every cached token costs one GPU: the layers that see the whole context.

    Compressed entries count by the token, their sum rounded down to a byte.
    """
    return int(
        sum(
            Fraction(group.bytes_per_token(tp, dtype), group.tokens_per_entry)
            for group in groups
            if group.window_tokens is None
        )
    )


def request_bytes(
    groups: tuple[CacheGroup, ...], states: tuple[RequestState, ...], tp: int, dtype: str
) -> int:
    """Bytes that every running request costs one GPU, whatever its length: full sliding windows and states."""
    windows = sum(
        group.window_tokens * group.bytes_per_token(tp, dtype)
        for group in groups
        if group.window_tokens is not None
    )
    return windows + sum(state.bytes_per_gpu(tp) for state in states)
