"""What share of its roofline a timed kernel reached, by rows per expert."""

from dataclasses import dataclass

from placer.datasheet import gpu_datasheet
from placer.profiler.profile import Profile
from placer.profiler.timing.kernel_profile import KernelProfile, TimedPoint


@dataclass(frozen=True)
class Attained:
    """One timed call whose experts all have the same rows, beside the least time that it could take.

    Attributes
    ----------
    side, kernel
        "cpu" or "gpu"; backend and method.
    tokens, rows, active
        Tokens of the call, rows of each expert, active experts.
    measured_us
        Lower quartile of the call.
    memory_us, arithmetic_us
        Reading the weights at the bandwidth, and computing 6·H·I operations per row at the dense peak.
    peak
        What the dense peak is: the faster of torch's products in the same run, or a datasheet.
    """

    side: str
    kernel: str
    tokens: int
    rows: int
    active: int
    measured_us: float
    memory_us: float
    arithmetic_us: float
    peak: str

    @property
    def bound(self) -> str:
        """Which of the two sets the roofline."""
        return "memory" if self.memory_us >= self.arithmetic_us else "arithmetic"

    @property
    def share(self) -> float:
        """Roofline time over measured time."""
        return max(self.memory_us, self.arithmetic_us) / self.measured_us


def attained(profile: Profile) -> tuple[Attained, ...]:
    """Every rows-per-expert of the grid of both sides, at the most active experts timed with it.

    Empty for profiles of versions that did not keep bytes and arithmetic, and for sides by datasheet.
    """
    found = _of_cpu(profile.cpu) if isinstance(profile.cpu, KernelProfile) else []
    if profile.gpu.kernel is not None:
        sheet = gpu_datasheet(profile.gpu.name)
        peak = f"FP8 peak of the {sheet.name} datasheet"
        found += _of_kernel(profile.gpu.kernel, "cuda", 0, sheet.fp8_flops, peak)
    return tuple(found)


def _of_cpu(kernel: KernelProfile) -> list[Attained]:
    products = [each for each in kernel.arithmetic if each.threads == kernel.threads]
    if not products:
        return []
    best = max(products, key=lambda product: product.flops)
    return _of_kernel(kernel, "cpu", kernel.threads, best.flops, f"torch {best.dtype}, same run")


def _of_kernel(
    kernel: KernelProfile, device: str, threads: int, peak_flops: float, peak: str
) -> list[Attained]:
    speed = next((b for b in kernel.bandwidth if (b.device, b.threads) == (device, threads)), None)
    if speed is None or not kernel.bytes_per_expert:
        return []
    row_flops = 6 * kernel.shape.hidden_size * kernel.shape.expert_intermediate_size
    return [
        Attained(
            side=kernel.side,
            kernel=f"{kernel.backend} {kernel.method}",
            tokens=point.tokens,
            rows=point.rows[0],
            active=len(point.rows),
            measured_us=point.p25_us,
            memory_us=len(point.rows) * kernel.bytes_per_expert / speed.bytes_per_s * 1e6,
            arithmetic_us=sum(point.rows) * row_flops / peak_flops * 1e6,
            peak=peak,
        )
        for point in _equal_rows(kernel)
    ]


def _equal_rows(kernel: KernelProfile) -> list[TimedPoint]:
    """Per regime and rows per expert the grid call with the most active experts, fewest rows first."""
    widest: dict[tuple[int, int], TimedPoint] = {}
    for point in kernel.points:
        if point.role != "grid" or point.source == "tokens" or len(set(point.rows)) != 1:
            continue
        key = (kernel.cost.regime(point.tokens).min_tokens, point.rows[0])
        if key not in widest or len(point.rows) > len(widest[key].rows):
            widest[key] = point
    return [widest[key] for key in sorted(widest)]
