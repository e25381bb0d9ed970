"""Time the parts of a layer outside its routed experts: the same code on a GPU and, in tests, on a CPU."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from placer.datasheet import datasheet_of_device
from placer.errors import BadInputError, MissingComponentError
from placer.kernels.all_reduce import all_reduce_problem, time_all_reduce
from placer.kernels.attention import Attention, AttentionShape, random_cache, reference_attention
from placer.kernels.flashinfer_attention import FlashInferAttention
from placer.kernels.torch_attention import TorchAttention
from placer.profiler.base_cost import BaseCost, TokenCurve
from placer.profiler.roofline import sums_us
from placer.profiler.timing.base_fit import fit_attention, fit_part
from placer.profiler.timing.base_plan import BasePlan
from placer.profiler.timing.base_points import BasePoint, attention_shapes, base_points
from placer.profiler.timing.rounds import calls_in_all
from placer.profiler.timing.samples import ESTIMATOR_QUANTILE
from placer.profiler.timing.stopwatch import Stopwatch
from placer.units import duration

ATTENTION_ERROR = 0.02
"""bfloat16 inputs and outputs explain 0.003 to 0.005; a kernel that is off by more computes something else."""
LEAST_ROUNDS = 5
"""Fewest rounds that a quartile is taken from when time is short."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Device:
    """Where to time, and how.

    Attributes
    ----------
    kind, name
        "cuda" in profiles; "cpu" in tests alone, which no profile is made from. And what it is called.
    stopwatch
        Times one call.
    cache_bytes, free_bytes
        Its last-level cache, and the memory that is free.
    attention
        Attention kernels in order of preference.
    notes
        Kernels that are not among them, and why.
    """

    kind: str
    name: str
    stopwatch: Stopwatch
    cache_bytes: int
    free_bytes: int
    attention: tuple[Attention, ...]
    notes: tuple[str, ...] = ()


def cuda_device(stopwatch: Stopwatch) -> Device:
    """The first GPU, with FlashInfer's attention where it is installed and torch's behind it."""
    properties = torch.cuda.get_device_properties(0)
    kernels: list[Attention] = []
    notes: list[str] = []
    try:
        kernels.append(FlashInferAttention())
    except MissingComponentError as error:
        notes.append(f"{error.what}: torch's attention is timed, which servers are faster than")
    return Device(
        kind="cuda",
        name=properties.name,
        stopwatch=stopwatch,
        cache_bytes=properties.L2_cache_size,
        free_bytes=torch.cuda.mem_get_info()[0],
        attention=(*kernels, TorchAttention()),
        notes=tuple(notes),
    )


def time_base(
    plan: BasePlan, device: Device, progress: Progress = lambda _stage, _done, _total: None
) -> BaseCost:
    """Time every point of ``plan`` once per round in random order, and fit.

    Raises
    ------
    MissingComponentError
        When no attention kernel computes what it should, or memory is short.
    BadInputError
        When one round takes all the time, or too few sizes fit the memory.
    """
    deadline = time.monotonic() + plan.max_seconds
    progress("checking attention", 0, 1)
    kernels = {shape: checked_attention(shape, device, plan.seed) for shape, _ in attention_shapes(plan)}
    progress("loading projections", 0, 1)
    points, notes = base_points(
        plan, kernels, device=device.kind, cache_bytes=device.cache_bytes, free_bytes=device.free_bytes
    )
    quartiles = _rounds(points, device, plan, deadline, progress)
    times = {(point.work, point.size): float(us) for point, us in zip(points, quartiles, strict=True)}
    progress("timing sums over GPUs", 0, 1)
    all_reduce, assumed_us, reduce_notes = sums_over_gpus(plan, device)
    bandwidth, flops = _sustained(device)
    return BaseCost(
        device=device.kind,
        machine=device.name,
        kernels="; ".join(dict.fromkeys(kernel.version() for kernel in kernels.values())) or "none",
        tp=plan.tp,
        layers=plan.layers,
        parts=tuple(fit_part(part, plan.grid, times) for part in plan.parts),
        attention=tuple(fit_attention(each, plan.grid, times) for each in plan.attention),
        all_reduce=all_reduce,
        assumed_layer_us=assumed_us,
        untimed_weights_bytes=plan.untimed_weights_bytes,
        state_request_bytes=plan.state_request_bytes,
        bytes_per_s=bandwidth,
        bf16_flops=flops,
        notes=(*plan.notes, *device.notes, *notes, *reduce_notes),
    )


def checked_attention(shape: AttentionShape, device: Device, seed: int) -> Attention:
    """The first kernel that runs ``shape`` and agrees with the formula, decoding and on a chunk.

    Raises
    ------
    MissingComponentError
        When there is none; the message says why of each.
    """
    reasons = []
    for kernel in device.attention:
        problem = kernel.problem(shape) if device.kind == "cuda" else None
        if problem is not None:
            reasons.append(f"{kernel.name}: {problem}")
            continue
        try:
            error = max(
                _error(kernel, shape, sizes, device.kind, seed) for sizes in ((3, 1, 40), (1, 16, 48))
            )
        except (RuntimeError, ValueError, NotImplementedError) as failure:
            reasons.append(f"{kernel.name}: {str(failure).splitlines()[0]}")
            continue
        # A comparison with NaN fails, which is what it should do.
        if error <= ATTENTION_ERROR:
            return kernel
        reasons.append(f"{kernel.name} is off by {error:.1%}")
    raise MissingComponentError(
        f"no attention kernel computes {shape}: {'; '.join(reasons)}", "use --gpu NAME for its datasheet"
    )


def _error(
    kernel: Attention, shape: AttentionShape, sizes: tuple[int, int, int], device: str, seed: int
) -> float:
    B, Q, T = sizes
    generator = torch.Generator(device).manual_seed(seed)
    k, v = random_cache(shape, B, T, device=device, generator=generator)
    size = (B, Q, shape.query_heads, shape.key_width)
    q = torch.randn(size, generator=generator, device=device).to(torch.bfloat16)
    expected = reference_attention(shape, q, k, v)
    found = kernel.bound(shape, q, k, v)().to(torch.float32)
    return float((found - expected).norm() / expected.norm())


def _rounds(
    points: Sequence[BasePoint], device: Device, plan: BasePlan, deadline: float, progress: Progress
) -> NDArray[np.float64]:
    """Lower quartile of every point's samples, one per round in random order; a first round is discarded."""
    generator = np.random.default_rng(plan.seed)
    least, most = min(LEAST_ROUNDS, plan.rounds), plan.rounds
    rounds: list[NDArray[np.float64]] = []
    started = time.monotonic()
    while len(rounds) <= least or (len(rounds) <= most and time.monotonic() < deadline):
        us = np.empty(len(points))
        for done, index in enumerate(generator.permutation(len(points)).tolist()):
            point = points[index]
            us[index] = device.stopwatch(point.bind()) / point.layers
            timed = len(rounds) * len(points) + done + 1
            time_share = (time.monotonic() - started) / max(deadline - started, 1e-3)
            planned, needed = (most + 1) * len(points), (least + 1) * len(points)
            progress("timing", timed, calls_in_all(timed, planned, needed, time_share))
        rounds.append(us)
        if len(rounds) == 1 and time.monotonic() > deadline:
            raise BadInputError(
                "one round of attention, projections and norms takes all the time there is",
                "give the profile more seconds",
            )
    return np.asarray(np.quantile(np.stack(rounds[1:]), ESTIMATOR_QUANTILE, axis=0))


def sums_over_gpus(plan: BasePlan, device: Device) -> tuple[TokenCurve | None, float, list[str]]:
    """The curve of one sum by tokens; else the datasheet's assumption per layer, with a note."""
    if plan.tp == 1:
        return None, 0.0, []
    problem = all_reduce_problem(plan.tp) if device.kind == "cuda" else None
    if problem is not None:
        assumed_us = sums_us(datasheet_of_device(device.name), plan.tp)
        note = f"sums over GPUs are not timed ({problem}): {duration(assumed_us, 3)} per layer assumed"
        return None, assumed_us, [note]
    widths = [tokens * plan.hidden_size for tokens in plan.grid.tokens]
    samples = time_all_reduce(plan.tp, widths, samples=plan.rounds, device=device.kind)
    quartiles = tuple(float(np.quantile(each, ESTIMATOR_QUANTILE)) for each in samples)
    note = "sums over GPUs are NCCL's; a server's own kernels are faster on few tokens"
    return TokenCurve(plan.grid.tokens, quartiles), 0.0, [note]


def _sustained(device: Device) -> tuple[float, float]:
    """Bytes per second of a copy, read and write counted, and operations per second of a bf16 product."""
    side, size = (4096, 1 << 28) if device.kind == "cuda" else (256, 1 << 22)
    source = torch.ones(size, dtype=torch.uint8, device=device.kind)
    target = torch.empty_like(source)
    matrix = torch.ones(side, side, dtype=torch.bfloat16, device=device.kind)
    copy_us = min(device.stopwatch(lambda: target.copy_(source)) for _ in range(LEAST_ROUNDS))
    product_us = min(device.stopwatch(lambda: matrix @ matrix) for _ in range(LEAST_ROUNDS))
    return 2 * size / copy_us * 1e6, 2 * side**3 / product_us * 1e6
