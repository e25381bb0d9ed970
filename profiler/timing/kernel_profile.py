"""What a campaign and a fit say together about one kernel: the profile of one side."""

from dataclasses import dataclass

import numpy as np

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cost import SideCost
from placer.profiler.fit import FitReport, call_us, fit_side, heldout_halves
from placer.profiler.timing.call import Call, Role
from placer.profiler.timing.machine import Arithmetic, Bandwidth, Machine
from placer.profiler.timing.samples import ESTIMATOR_QUANTILE, Samples
from placer.profiler.timing.spec import CampaignSpec
from placer.profiler.timing.thread_timing import ThreadTiming

STREAMING_EXPERTS = 8
"""Least active experts of the calls whose reading speed is stated."""


@dataclass(frozen=True)
class TimedPoint:
    """One call: quantiles of its samples in microseconds, and what the fitted model says.

    Attributes
    ----------
    rows, tokens, role, source
        Those of `Call`.
    predicted_us
        The fitted model, against ``p25_us``.
    use
        "fit" (coefficients), "choose" (form), "report" (error) or "idle"; "" in profiles of earlier versions.
    extrapolated
        Whether it has more rows per expert, or more tokens, than any call that coefficients were fitted to.
    """

    rows: tuple[int, ...]
    tokens: int
    role: str
    source: str
    p10_us: float
    p25_us: float
    p50_us: float
    p90_us: float
    predicted_us: float
    use: str = ""
    extrapolated: bool = False


@dataclass(frozen=True)
class KernelProfile:
    """The measured and fitted cost of one side on one machine; `dataclasses.asdict` of it is plain JSON.

    Attributes
    ----------
    side
        "cpu" or "gpu".
    method, backend, variant, version
        Weight format, kernel name, code path and library: a plan made with one method is exported for it.
    reason
        Why this backend was chosen.
    threads, numa_nodes
        Kernel threads, and the memory nodes they were spread over.
    shape
        The experts timed; on a GPU one GPU's share of them.
    cost, report
        The fitted model and its held-out error.
    border_tokens, border_how
        Last tokens-of-call of the first regime (None: one regime), and how it was found.
    border_contrast
        Ratio of the times on both sides of the border (see `Border`); None in profiles of earlier versions.
    points
        Every timed call.
    machine, bandwidth
        What it ran on, and the memory speed in the same run.
    achieved_bytes_per_s, achieved_share
        Weights read per second where every active expert has one row, and its share of the bandwidth that
        as many threads reached.
    resident_bytes
        Distinct expert weights that samples were drawn from.
    quiet_warning
        A sentence when the machine was busy.
    other_cores, stolen_share
        Cores that other programs kept busy meanwhile; share of the processor time that the host withheld.
    rounds, seconds
        Samples per call, and wall time of the campaign.
    notes
        One sentence for everything that gave way.
    arithmetic
        Dense products of the same run, what a kernel's arithmetic is held against.
    bytes_per_expert
        Bytes that one loaded expert of ``shape`` takes and that reading it moves; 0 in profiles of earlier versions.
    output_error
        Relative error of the kernel's output on random weights, against float32, when it was loaded; None in
        profiles of earlier versions.
    sweep
        Thread counts that were tried; empty where the count was given.
    """

    side: str
    method: str
    backend: str
    variant: str
    version: str
    reason: str
    threads: int
    numa_nodes: int
    shape: ExpertShape
    cost: SideCost
    report: FitReport
    border_tokens: int | None
    border_how: str
    points: tuple[TimedPoint, ...]
    machine: Machine
    bandwidth: tuple[Bandwidth, ...]
    achieved_bytes_per_s: float
    achieved_share: float
    resident_bytes: int
    quiet_warning: str | None
    rounds: int
    seconds: float
    notes: tuple[str, ...]
    other_cores: float = 0.0
    stolen_share: float = 0.0
    arithmetic: tuple[Arithmetic, ...] = ()
    bytes_per_expert: int = 0
    output_error: float | None = None
    sweep: tuple[ThreadTiming, ...] = ()
    border_contrast: float | None = None

    @property
    def device(self) -> str:
        """Name of the CPU that it was timed on, or beside."""
        return self.machine.cpu

    @property
    def provenance_text(self) -> str:
        """Origin of figures fitted to it, in words."""
        return f"fitted to kernels measured on {self.machine.cpu} ({self.method})"


def kernel_profile(
    spec: CampaignSpec, samples: Samples, reason: str, notes: tuple[str, ...] = ()
) -> KernelProfile:
    """Fit ``samples`` and put everything together; raises what `fit_side` raises."""
    bound = spec.threads if spec.device == "cpu" else None
    cost, report = fit_side(samples.timed(), border=samples.border, threads=bound, seed=spec.seed)
    achieved = _streaming_bytes_per_s(samples)
    device = "cpu" if spec.device == "cpu" else "cuda"
    threads = spec.threads if spec.device == "cpu" else 0
    limit = next(b.bytes_per_s for b in samples.bandwidth if (b.device, b.threads) == (device, threads))
    return KernelProfile(
        side=spec.device,
        method=samples.kernel.method,
        backend=spec.backend,
        variant=samples.kernel.variant,
        version=samples.kernel.version,
        reason=reason,
        threads=spec.threads,
        numa_nodes=spec.subpools,
        shape=spec.shape,
        cost=cost,
        report=report,
        border_tokens=samples.border,
        border_how=samples.border_how,
        points=_points(samples, cost, spec.seed),
        machine=samples.machine,
        bandwidth=samples.bandwidth,
        achieved_bytes_per_s=achieved,
        achieved_share=achieved / limit,
        resident_bytes=samples.kernel.resident_bytes,
        quiet_warning=samples.quiet_warning(),
        rounds=int(samples.times_us.shape[0]),
        seconds=samples.seconds,
        notes=(*notes, *samples.notes),
        other_cores=samples.used.other_cores,
        stolen_share=samples.used.stolen_share,
        arithmetic=samples.arithmetic,
        bytes_per_expert=samples.kernel.bytes_per_expert,
        output_error=samples.kernel.output_error,
        border_contrast=samples.border_contrast,
    )


def _predicted_us(call: Call, cost: SideCost) -> float:
    if call.role is Role.IDLE:
        return float(cost.idle_us(np.array([call.tokens]))[0])
    return call_us(cost, np.array(call.rows), call.tokens)


def _streaming_bytes_per_s(samples: Samples) -> float:
    """Bytes of weights per second in calls whose experts have one row each: the best of them."""
    streaming = [t for t in samples.timed() if set(t.call.rows) == {1}]
    wide = [t for t in streaming if len(t.call.rows) >= STREAMING_EXPERTS] or streaming
    return max(len(t.call.rows) * samples.kernel.bytes_per_expert / t.time_us * 1e6 for t in wide)


def _points(samples: Samples, cost: SideCost, seed: int) -> tuple[TimedPoint, ...]:
    quantiles = np.quantile(samples.times_us, (0.1, ESTIMATOR_QUANTILE, 0.5, 0.9), axis=0).T
    halves = heldout_halves(samples.timed(), border=samples.border, seed=seed)
    uses = {
        t.call: use
        for half in halves
        for use, part in zip(("choose", "report"), half, strict=True)
        for t in part
    }
    return tuple(
        TimedPoint(
            rows=call.rows,
            tokens=call.tokens,
            role=str(call.role),
            source=call.source,
            p10_us=float(p10),
            p25_us=float(p25),
            p50_us=float(p50),
            p90_us=float(p90),
            predicted_us=_predicted_us(call, cost),
            use="idle" if call.role is Role.IDLE else uses.get(call, "fit"),
            extrapolated=bool(
                cost.is_extrapolated(np.array([[call.rows or (0,)]]), np.array([call.tokens]))[0]
            ),
        )
        for call, (p10, p25, p50, p90) in zip(samples.calls, quantiles, strict=True)
    )
