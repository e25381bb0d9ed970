"""Families of generated instances: one for each kind of placement problem that behaves in a way of its own."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from placer.errors import BadInputError
from placer.known_name import unknown_value
from placer.solvers.bench.expert_rows import Router
from placer.solvers.bench.instance import Instance, InstanceLevel
from placer.solvers.problem import FixedCharge

COLD_US = (60.0, 4.0)
"""Line of a cold expert, as INT4 on a server CPU: about 60 µs to read its weights, 4 µs for each row."""


@dataclass(frozen=True)
class Size:
    """Layers, experts of each, and sampled steps."""

    layers: int
    experts: int
    steps: int


@dataclass(frozen=True)
class Family:
    """A kind of instance: what sets it apart, its size unless another is asked for, and how it is made."""

    name: str
    character: str
    size: Size
    make: Callable[[np.random.RandomState, Size], tuple[InstanceLevel, ...]]


def generated(family: str, *, seed: int = 0, size: Size | None = None) -> Instance:
    """The instance of ``family`` (see `FAMILIES`) for ``seed``; equal arguments give equal instances.

    Raises
    ------
    BadInputError
        When the family is not known or no instance has the size.
    """
    if family not in FAMILIES:
        raise unknown_value("family", family, FAMILIES)
    chosen = FAMILIES[family]
    size = size or chosen.size
    if not 1 <= size.layers <= 1024 or not 16 <= size.experts <= 4096 or not 1 <= size.steps <= 4096:
        raise BadInputError(
            f"size {size.layers} layers x {size.experts} experts x {size.steps} steps",
            "give 1 to 1024 layers, 16 to 4096 experts and 1 to 4096 steps",
        )
    if not 0 <= seed < 2**32:
        raise BadInputError(f"seed {seed}", "give 0 to 2^32 - 1")
    levels = chosen.make(np.random.RandomState(seed), size)
    return Instance(f"{family}-{size.layers}x{size.experts}x{size.steps}-{seed}", levels)


def _level(
    random: np.random.RandomState,
    size: Size,
    *,
    tokens: int,
    share: float,
    hot_us: tuple[float, float],
    c0_us: float = 80.0,
    h0_us: float = 30.0,
    charges: tuple[FixedCharge, FixedCharge] = (FixedCharge.ANY_ACTIVE, FixedCharge.ALWAYS),
) -> InstanceLevel:
    """Top-8 steps of ``tokens`` tokens, a ``share`` of all experts hot; ``charges``: the cold side's first."""
    S, L, E = size.steps, size.layers, size.experts
    return InstanceLevel(
        rows=Router(random, layers=L, experts=E, top_k=8).rows(S, tokens),
        cold_us=np.tile(COLD_US, (S, L, 1)),
        hot_us=np.tile(hot_us, (S, L, 1)),
        c0_us=np.full((S, L), c0_us),
        h0_us=np.full((S, L), h0_us),
        cold_charge=charges[0],
        hot_charge=charges[1],
        weight=np.full(S, 1.0 / S),
        expert_bytes=np.ones(L, dtype=np.int64),
        budget_bytes=int(share * L * E),
        min_hot=np.zeros(L, dtype=np.int64),
        max_hot=np.full(L, E, dtype=np.int64),
        constant_us=0.0,
    )


def _cpu_bound(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    return (_level(random, size, tokens=64, share=0.6, hot_us=(1.5, 0.2)),)


def _balanced(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    return (_level(random, size, tokens=64, share=0.7, hot_us=(20.0, 0.2)),)


def _high_share(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    return (_level(random, size, tokens=64, share=0.95, hot_us=(1.5, 0.2)),)


def _small_batch_1(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    return (_level(random, size, tokens=1, share=0.7, hot_us=(12.0, 0.2), c0_us=40.0),)


def _small_batch_4(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    return (_level(random, size, tokens=4, share=0.7, hot_us=(12.0, 0.2)),)


def _jumps(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    """A side is paid for as soon as the layer has an expert on it; h0 is 150 to 2400 µs, by layer.

    All cold, a layer-step takes about 1600 µs: layers with a dear hot side stay without hot experts, some of
    the others are filled.
    """
    member = (FixedCharge.ANY_MEMBER, FixedCharge.ANY_MEMBER)
    level = _level(random, size, tokens=2, share=0.4, hot_us=(12.0, 0.2), c0_us=600.0, charges=member)
    h0_us = 150.0 * 2.0 ** (np.arange(size.layers) % 5)
    return (replace(level, h0_us=np.tile(h0_us, (size.steps, 1))),)


def _unequal_layers(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    """Every third layer has experts of twice the width, every fourth stays in a wider format when hot."""
    level = _level(random, size, tokens=16, share=0.0, hot_us=(12.0, 0.2))
    index = np.arange(size.layers)
    width = 1.0 + (index % 3 == 2)
    expert_bytes = (width * (1 + (index % 4 == 3))).astype(np.int64)
    scale = width[None, :, None]
    return (
        replace(
            level,
            cold_us=level.cold_us * scale,
            hot_us=level.hot_us * scale,
            expert_bytes=expert_bytes,
            budget_bytes=int(0.6 * size.experts * expert_bytes.sum()),
            min_hot=np.where(index < 2, size.experts // 8, 0),
            max_hot=np.where(index % 5 == 4, size.experts // 2, size.experts),
        ),
    )


def _prefill_heavy(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    """Prompts of 4096 tokens in chunks of 512, 128 output tokens, 16 running requests.

    A quarter of the steps are chunks. They weigh P/(O·C) per output token together, the decode steps 1/R.
    A row of a chunk costs a tenth of one of a decode step on the cold side: kernels for many rows.
    """
    prompt, output, chunk, running = 4096, 128, 512, 16
    S, L, E = size.steps, size.layers, size.experts
    chunks = max(1, S // 4)
    decodes = max(1, S - chunks)
    router = Router(random, layers=L, experts=E, top_k=8)
    level = _level(random, Size(L, E, chunks + decodes), tokens=1, share=0.6, hot_us=(6.0, 0.05))
    cold = level.cold_us.copy()
    cold[:chunks] = (90.0, 0.4 * COLD_US[1])
    return (
        replace(
            level,
            rows=np.concatenate([router.rows(chunks, chunk), router.rows(decodes, running)]),
            cold_us=cold,
            weight=np.repeat(
                [prompt / (output * chunk * chunks), 1.0 / (running * decodes)], [chunks, decodes]
            ),
        ),
    )


def _levels(random: np.random.RandomState, size: Size) -> tuple[InstanceLevel, ...]:
    """4, 16 or 64 running requests: each weighs a step 1/R, and takes its KV cache from the hot experts."""
    levels = []
    for running, share in ((4, 0.85), (16, 0.75), (64, 0.35)):
        level = _level(random, size, tokens=running, share=share, hot_us=(12.0, 0.2))
        base_us = size.layers * (40.0 + 0.4 * running) / running
        levels.append(replace(level, weight=level.weight / running, constant_us=base_us))
    return tuple(levels)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("cpu-bound", "only the cold side counts", Size(62, 160, 32), _cpu_bound),
        Family("balanced", "both sides count", Size(62, 160, 32), _balanced),
        Family("high-share", "95 % of the experts are hot", Size(62, 160, 32), _high_share),
        Family("small-batch-1", "steps of one token", Size(48, 128, 128), _small_batch_1),
        Family("small-batch-4", "steps of four tokens", Size(48, 128, 64), _small_batch_4),
        Family("jumps", "a layer pays for having any hot, and any cold, expert", Size(48, 128, 64), _jumps),
        Family(
            "unequal-layers", "layers differ in bytes, cost and bounds", Size(48, 128, 32), _unequal_layers
        ),
        Family("prefill-heavy", "most of the time is prefill", Size(48, 128, 32), _prefill_heavy),
        Family("multi-level", "the number of running requests is chosen too", Size(48, 128, 32), _levels),
        Family("large", "both sides count, at the size of the largest models", Size(92, 896, 32), _balanced),
    )
}
"""By name."""
