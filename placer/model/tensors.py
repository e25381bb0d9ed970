"""Every weight outside the routed experts, computed from config.json: class, size, precision, sharding."""

from collections.abc import Iterator
from dataclasses import dataclass

BLOCK = 128


@dataclass(frozen=True)
class Tensor:
    """One weight (or ``count`` equal ones).

    Attributes
    ----------
    kind
        "attention", "router", "shared_experts", "dense", "embedding" or "norms".
    rows, columns
        Output and input width; ``columns`` 0 for a vector.
    shards
        "tp" (divided by tp), "kv" (by min(tp, KV heads)), or "none" (replicated).
    quantised
        Whether a quantised checkpoint quantises it.
    value_bytes
        Bytes of a value where it is not quantised.
    """

    kind: str
    rows: int
    columns: int = 0
    shards: str = "none"
    quantised: bool = False
    count: int = 1
    value_bytes: int = 2

    @property
    def values(self) -> int:
        """Number of parameters."""
        return self.count * self.rows * (self.columns or 1)

    def gpu_bytes(self, tp: int, kv_heads: int, fp8: bool) -> int:
        """Bytes on one GPU; FP8 carries a 4-byte scale per 128 x 128 block."""
        divisor = {"tp": tp, "kv": min(tp, kv_heads), "none": 1}[self.shards]
        if fp8 and self.quantised:
            scales = -(-self.rows // BLOCK) * -(-self.columns // BLOCK) * 4
            return self.count * -(-(self.rows * self.columns + scales) // divisor)
        return self.count * -(-(self.rows * (self.columns or 1) * self.value_bytes) // divisor)


@dataclass(frozen=True)
class Attention:
    """Attention widths; the MLA fields are 0 for grouped-query attention."""

    kind: str
    heads: int
    kv_heads: int
    head_dim: int
    bias: bool
    output_bias: bool
    sinks: bool
    qk_norm: str
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0


def attention_tensors(attention: Attention, hidden: int) -> Iterator[Tensor]:
    """Weights of one layer's attention, its norms included."""
    heads, kv_heads, width = attention.heads, attention.kv_heads, attention.head_dim
    yield Tensor("norms", hidden, count=2)
    if attention.kind == "mla":
        nope, rope, value = attention.qk_nope_head_dim, attention.qk_rope_head_dim, attention.v_head_dim
        q_rank, kv_rank = attention.q_lora_rank, attention.kv_lora_rank
        if q_rank:
            yield Tensor("attention", q_rank, hidden, quantised=True)
            yield Tensor("norms", q_rank)
        yield Tensor("attention", heads * (nope + rope), q_rank or hidden, "tp", True)
        yield Tensor("attention", kv_rank + rope, hidden, quantised=True)
        yield Tensor("norms", kv_rank)
        yield Tensor("attention", heads * (nope + value), kv_rank, "tp", True)
        yield Tensor("attention", hidden, heads * value, "tp", True)
        return
    yield Tensor("attention", heads * width, hidden, "tp", True)
    yield Tensor("attention", kv_heads * width, hidden, "kv", True, count=2)
    yield Tensor("attention", hidden, heads * width, "tp", True)
    if attention.bias:
        yield Tensor("attention", heads * width, shards="tp")
        yield Tensor("attention", kv_heads * width, shards="kv", count=2)
        if attention.output_bias:
            yield Tensor("attention", hidden)
    if attention.sinks:
        yield Tensor("attention", heads, shards="tp")
    if attention.qk_norm == "head":
        yield Tensor("norms", width, count=2)
    elif attention.qk_norm == "full":
        yield Tensor("norms", heads * width)
        yield Tensor("norms", kv_heads * width)


def mlp_tensors(kind: str, hidden: int, inner: int) -> Iterator[Tensor]:
    """Gate, up and down of a dense MLP or of the shared experts together."""
    yield Tensor(kind, inner, hidden, "tp", True, count=2)
    yield Tensor(kind, hidden, inner, "tp", True)
