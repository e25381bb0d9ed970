"""Which kernels outside the routed experts are timed for a model, at which sizes, and what stays untimed."""

from dataclasses import dataclass

from placer.kernels.attention import AttentionShape
from placer.kernels.dense_product import ALIGNMENT, ProductShape
from placer.kernels.layer_glue import LayerGlue
from placer.model.spec import ModelSpec
from placer.profiler.attention_layers import AttentionLayers, attention_layers
from placer.profiler.base import step_weights_bytes

ROUNDS = 15
"""As many as a lower quartile needs."""
_CLASSES = ("attention", "router", "shared_experts", "dense", "embedding")
_FP8, _PLAIN = ("F8_E4M3",), ("BF16", "F16")


@dataclass(frozen=True)
class BaseGrid:
    """Sizes that are timed; held-out ones report an error and fit nothing.

    Attributes
    ----------
    tokens, heldout_tokens
        Tokens of a step, for projections, glue and sums.
    decode, heldout_decode
        (requests, cached entries of each).
    prefill, heldout_prefill
        (tokens of a chunk, entries that its last token sees).
    """

    tokens: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
    heldout_tokens: tuple[int, ...] = (3, 12, 48, 192, 768, 3072)
    decode: tuple[tuple[int, int], ...] = tuple(
        (B, T) for B in (1, 4, 16, 64, 256) for T in (128, 512, 2048, 8192, 32768) if B * T <= 1 << 20
    )
    heldout_decode: tuple[tuple[int, int], ...] = ((2, 1000), (8, 300), (12, 3000), (32, 1500), (96, 700))
    prefill: tuple[tuple[int, int], ...] = tuple(
        (C, C + before) for C in (64, 256, 1024, 4096, 8192) for before in (0, 2048, 16384)
    )
    heldout_prefill: tuple[tuple[int, int], ...] = ((128, 128), (512, 3000), (2048, 4096), (3000, 9000))


@dataclass(frozen=True)
class PlannedPart:
    """A projection or the glue of layers, launched ``count`` times in a step."""

    name: str
    count: int
    sampled_only: bool
    work: ProductShape | LayerGlue


@dataclass(frozen=True)
class PlannedAttention:
    """Layers that attend alike, and the shapes that decoding and prefill take there; None where none is timed."""

    layers: AttentionLayers
    decode: AttentionShape | None
    prefill: AttentionShape | None


@dataclass(frozen=True)
class BasePlan:
    """What is timed for one GPU of ``tp``; see `placer.profiler.base_cost.BaseCost` for the words.

    ``rounds`` are aimed at within ``max_seconds``; one more comes first and is discarded.
    """

    tp: int
    layers: int
    hidden_size: int
    parts: tuple[PlannedPart, ...]
    attention: tuple[PlannedAttention, ...]
    untimed_weights_bytes: int
    state_request_bytes: int
    notes: tuple[str, ...]
    grid: BaseGrid
    seed: int
    max_seconds: float
    rounds: int = ROUNDS


def base_plan(
    model: ModelSpec, tp: int, *, seed: int = 0, max_seconds: float = 60.0, grid: BaseGrid | None = None
) -> BasePlan:
    """The plan for ``model``: every projection of its weights by its cut under tp, its attention and its glue.

    Raises
    ------
    BadInputError
        When ``tp`` does not divide the attention heads.
    """
    step_bytes = step_weights_bytes(model, tp)
    parts = _products(model, tp)
    timed = sum(part.count * part.work.bytes for part in parts if isinstance(part.work, ProductShape))
    attention = tuple(_planned(layers, tp) for layers in attention_layers(model))
    notes = ["a projection's inputs are rounded by the kernel before it in a server: not timed"]
    if any(each.decode is not None for each in attention):
        notes.append("attention is timed on bf16 entries; FP8 entries are charged as much, which is too much")
    if any(each.decode is None for each in attention):
        notes.append("compressed or index attention is not timed: bytes and operations at the measured rates")
    if model.states:
        notes.append("recurrent layers' states are not timed: read and written at the measured bandwidth")
    return BasePlan(
        tp=tp,
        layers=model.num_layers,
        hidden_size=model.hidden_size,
        parts=(*parts, *_glue(model, tp, attention)),
        attention=attention,
        untimed_weights_bytes=max(0, step_bytes - timed),
        state_request_bytes=sum(state.bytes_per_gpu(tp) for state in model.states),
        notes=tuple(notes),
        grid=grid or BaseGrid(),
        seed=seed,
        max_seconds=max_seconds,
    )


def _products(model: ModelSpec, tp: int) -> list[PlannedPart]:
    parts = []
    for group in model.weights:
        sides = group.sides_per_gpu(tp, model.kv_heads)
        if group.weight_class not in _CLASSES or len(sides) != 2 or group.dtype not in (*_FP8, *_PLAIN):
            continue
        rows, columns = sides
        fp8 = group.dtype in _FP8
        if fp8 and (rows % ALIGNMENT or columns % ALIGNMENT):
            continue
        head = group.weight_class == "embedding"
        name = f"{'output head' if head else group.weight_class} {rows}x{columns} {'FP8' if fp8 else 'bf16'}"
        count = 1 if head else group.count
        parts.append(PlannedPart(name, count, head, ProductShape(rows, columns, fp8)))
    heads = [part for part in parts if part.sampled_only]
    # Input and output table are alike, or the larger of the two is the head.
    extra = sorted(heads, key=_bytes)[:-1]
    return [part for part in parts if part not in extra]


def _bytes(part: PlannedPart) -> int:
    return part.work.bytes if isinstance(part.work, ProductShape) else 0


def _planned(layers: AttentionLayers, tp: int) -> PlannedAttention:
    if layers.kind == "other":
        return PlannedAttention(layers, None, None)
    query, kv = layers.query_heads_per_gpu(tp), layers.kv_heads_per_gpu(tp)
    latent = layers.kind == "latent"
    return PlannedAttention(
        layers,
        AttentionShape(query, kv, layers.cached_width, layers.cached_value_width, shared=latent),
        AttentionShape(query, query if latent else kv, layers.key_width, layers.value_width),
    )


def _glue(model: ModelSpec, tp: int, attention: tuple[PlannedAttention, ...]) -> list[PlannedPart]:
    """One part for MoE layers, one for dense layers."""
    rotated = max(
        (
            shape.query_heads * shape.key_width + shape.kv_heads * shape.key_width
            for shape in (each.decode for each in attention)
            if shape is not None
        ),
        default=model.hidden_size,
    )
    moe, dense = len(model.moe_layers), model.num_layers - len(model.moe_layers)
    shared, inner = (
        -(-width // tp) for width in (model.shared_intermediate_size, model.dense_intermediate_size)
    )
    parts = [
        PlannedPart(
            "norms, rotation, routing", moe, False,
            LayerGlue(model.hidden_size, rotated, model.experts, model.top_k, shared),
        ),
        PlannedPart(
            "norms, rotation of dense layers", dense, False, LayerGlue(model.hidden_size, rotated, 0, 0, inner)
        ),
    ]  # fmt: skip
    return [part for part in parts if part.count]
