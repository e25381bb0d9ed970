"""The calls that a layer's base is timed by: projections on cold copies, glue, and attention on a buffer of entries."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from placer.errors import MissingComponentError
from placer.kernels.attention import Attention, AttentionShape
from placer.kernels.dense_product import DenseProducts, ProductShape
from placer.kernels.layer_glue import LayerGlue
from placer.profiler.timing.base_plan import BaseGrid, BasePlan, PlannedPart

CACHES, MOST_COPIES = 3, 8
"""Copies of a projection that one call reads: three times the cache, as for experts, and what shares one start."""
CACHE_BYTES = 4 << 30
"""Cached entries that attention is timed on, at most."""
WEIGHTS_SHARE, ENTRIES_SHARE = 0.5, 0.25
"""Parts of the free memory for either."""


@dataclass(frozen=True)
class AttentionSize:
    """``requests`` with ``queries`` tokens each, the last of which sees ``entries`` cached entries."""

    requests: int
    queries: int
    entries: int


Work = ProductShape | LayerGlue | AttentionShape
Size = int | AttentionSize
"""Tokens, or an attention size."""


@dataclass(frozen=True)
class BasePoint:
    """One thing to time.

    Attributes
    ----------
    work, size
        What runs, and tokens or an attention size: results are found by these two.
    bind
        Makes the call, with its host-side work done.
    layers
        How many layers one call stands for.
    """

    work: Work
    size: Size
    bind: Callable[[], Callable[[], Tensor]]
    layers: int = 1


def part_tokens(part: PlannedPart, grid: BaseGrid) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens that fit and that judge the curve of ``part``: an output head never sees a whole chunk."""
    most = 512 if part.sampled_only else max(grid.tokens)
    fitting, judging = ([q for q in tokens if q <= most] for tokens in (grid.tokens, grid.heldout_tokens))
    return tuple(fitting), tuple(judging)


def attention_sizes(grid: BaseGrid, *, decoding: bool) -> tuple[list[AttentionSize], list[AttentionSize]]:
    """Sizes that fit and that judge attention, decoding or on a chunk."""
    if decoding:
        fitting, judging = grid.decode, grid.heldout_decode
        return [AttentionSize(B, 1, T) for B, T in fitting], [AttentionSize(B, 1, T) for B, T in judging]
    fitting, judging = grid.prefill, grid.heldout_prefill
    return [AttentionSize(1, C, T) for C, T in fitting], [AttentionSize(1, C, T) for C, T in judging]


def base_points(
    plan: BasePlan,
    kernels: Mapping[AttentionShape, Attention],
    *,
    device: str,
    cache_bytes: int,
    free_bytes: int,
) -> tuple[list[BasePoint], list[str]]:
    """Every point of ``plan``, and a sentence for what memory did not allow.

    Raises
    ------
    MissingComponentError
        When not even one copy of every projection fits.
    """
    notes: list[str] = []
    points = list(_part_points(plan, device, _copies(plan, cache_bytes, free_bytes, notes)))
    entries = CachedEntries(min(CACHE_BYTES, int(ENTRIES_SHARE * free_bytes)), device, plan.seed)
    left_out = 0
    for shape, decoding in attention_shapes(plan):
        for sizes in attention_sizes(plan.grid, decoding=decoding):
            for size in sizes:
                if entries.hold(shape, size):
                    points.append(BasePoint(shape, size, entries.binder(kernels[shape], shape, size)))
                else:
                    left_out += 1
    if left_out:
        notes.append(f"{left_out} attention sizes did not fit the memory and were left out")
    return points, notes


def attention_shapes(plan: BasePlan) -> list[tuple[AttentionShape, bool]]:
    """Every shape to time once, with whether it decodes."""
    shapes = [(each.decode, True) for each in plan.attention] + [
        (each.prefill, False) for each in plan.attention
    ]
    return list(dict.fromkeys((shape, decoding) for shape, decoding in shapes if shape is not None))


def _copies(plan: BasePlan, cache_bytes: int, free_bytes: int, notes: list[str]) -> dict[ProductShape, int]:
    shapes = list(dict.fromkeys(part.work for part in plan.parts if isinstance(part.work, ProductShape)))
    least, room = sum(shape.bytes for shape in shapes), int(WEIGHTS_SHARE * free_bytes)
    if least > room:
        raise MissingComponentError(
            f"one layer's projections take {least / 2**30:.1f} GiB, {room / 2**30:.1f} GiB may be used",
            "close other programs, or profile where more memory is free",
        )
    copies = {shape: min(MOST_COPIES, max(1, -(-CACHES * cache_bytes // shape.bytes))) for shape in shapes}
    if sum(shape.bytes * count for shape, count in copies.items()) > room:
        notes.append("memory holds one copy of every projection: some samples may find weights in the cache")
        return dict.fromkeys(shapes, 1)
    return copies


def _part_points(plan: BasePlan, device: str, copies: Mapping[ProductShape, int]) -> Iterator[BasePoint]:
    tokens: dict[ProductShape | LayerGlue, set[int]] = {}
    for part in plan.parts:
        tokens.setdefault(part.work, set()).update(*part_tokens(part, plan.grid))
    for work, sizes in tokens.items():
        if isinstance(work, LayerGlue):
            for q in sorted(sizes):
                yield BasePoint(work, q, _glue_binder(work, q, device, plan.seed))
        else:
            count = copies[work]
            products = DenseProducts(work, count, device=device, seed=plan.seed, most_tokens=max(sizes))
            for q in sorted(sizes):
                yield BasePoint(work, q, _product_binder(products, count, q), count)


def _glue_binder(glue: LayerGlue, tokens: int, device: str, seed: int) -> Callable[[], Callable[[], Tensor]]:
    return lambda: glue.bound(tokens, device=device, seed=seed)


def _product_binder(products: DenseProducts, copies: int, tokens: int) -> Callable[[], Callable[[], Tensor]]:
    def bind() -> Callable[[], Tensor]:
        calls = [products.bound(copy, tokens) for copy in range(copies)]
        return lambda: [call() for call in calls][-1]

    return bind


class CachedEntries:
    """One buffer of random numbers that keys and values of any shape are cut from."""

    def __init__(self, most_bytes: int, device: str, seed: int) -> None:
        self._device = device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._most = most_bytes // 2
        self._numbers = torch.empty(0, dtype=torch.bfloat16, device=device)

    def hold(self, shape: AttentionShape, size: AttentionSize) -> bool:
        """Whether the buffer may hold entries of ``size``; it grows to."""
        keys, values = self._numbers_of(shape, size)
        if keys + values > self._most:
            return False
        if keys + values > self._numbers.numel():
            self._numbers = torch.empty(keys + values, dtype=torch.bfloat16, device=self._device)
            self._numbers.normal_(generator=self._generator)
        return True

    def binder(
        self, kernel: Attention, shape: AttentionShape, size: AttentionSize
    ) -> Callable[[], Callable[[], Tensor]]:
        """Binds ``kernel`` to entries of the buffer, which `hold` has made room for, and to random queries."""

        def bind() -> Callable[[], Tensor]:
            keys, values = self._numbers_of(shape, size)
            heads = (size.requests, size.entries, shape.kv_heads)
            k = self._numbers[:keys].view(*heads, shape.key_width)
            if shape.shared:
                v = k[..., : shape.value_width]
            else:
                v = self._numbers[keys : keys + values].view(*heads, shape.value_width)
            q = torch.empty(
                size.requests, size.queries, shape.query_heads, shape.key_width,
                dtype=torch.bfloat16, device=self._device,
            )  # fmt: skip
            return kernel.bound(shape, q.normal_(generator=self._generator), k, v)

        return bind

    @staticmethod
    def _numbers_of(shape: AttentionShape, size: AttentionSize) -> tuple[int, int]:
        heads = size.requests * size.entries * shape.kv_heads
        return heads * shape.key_width, 0 if shape.shared else heads * shape.value_width
