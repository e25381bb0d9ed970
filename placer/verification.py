"""Measured against predicted: the real kernel runs a placement's cold side on steps of held-out requests."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from placer.errors import BadInputError
from placer.matching import check_matching, profile_notes
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument
from placer.profiler.datasheet_cpu import CpuSide, DatasheetCpu
from placer.profiler.fit import ErrorFigures
from placer.profiler.profile import Profile
from placer.profiler.profile_use import MOST_MAPE
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.steps import StepKind, Steps
from placer.profiler.timing.anchor import DRIFT_LIMIT, RegimeDrift
from placer.profiler.timing.layer_timing import TimedLayerStep, cold_layer_steps, time_layer_steps
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.replays import SPLIT_SHARES
from placer.sampling import decode_steps, prefill_steps
from placer.units import counted

KERNELS_ALONE = (
    "kernels alone are compared: the profile's calibration, which is of a whole server, is left out"
)
BY_DATASHEET = (
    "the prediction is a datasheet roofline of {}, what was measured is this machine: 'placer profile' here "
    "replaces it"
)
TRUSTED_TIMES, TRUSTED_MAPE = 2.0, 0.05
"""A mean error up to so many times the profile's own held-out error is expected, and any up to so much; none beyond
`MOST_MAPE`, with which nothing is planned."""
ROUGH_MAPE = 0.1
"""A mean error above which times are rough, however large the profile's own is."""
WORST = 10
"""Layer-steps listed with the largest errors."""
PREFILL_TOKENS = 256
"""Tokens of the prefill chunk that is run unless others are asked for, or the plan's chunk is smaller: the last
chunk of a prompt. A whole chunk of thousands of tokens takes a CPU seconds per layer."""


@dataclass(frozen=True)
class VerifyRequest:
    """How to verify.

    Attributes
    ----------
    layer_steps
        Layer-steps to run, at most.
    running
        Running requests of the decode steps; None for `default_running`.
    prefill_tokens
        Tokens of the prefill chunks, empty for none; None for `PREFILL_TOKENS` or the placement's chunk.
    max_seconds
        Wall time of the run.
    seed
        Draws requests, steps, layers and experts.
    """

    layer_steps: int = 200
    running: tuple[int, ...] | None = None
    prefill_tokens: tuple[int, ...] | None = None
    max_seconds: float = 120.0
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = {
            "--layer-steps": (self.layer_steps,),
            "--running": self.running or (),
            "--prefill": self.prefill_tokens or (),
        }
        for flag, values in numbers.items():
            for value in values:
                if value < 1:
                    raise BadInputError(f"{flag} is {value}", "give a number from 1 on")
        if not 0 < self.max_seconds < 1e6:
            raise BadInputError(f"--max-seconds is {self.max_seconds}", "give seconds above 0")
        if self.running == () and self.prefill_tokens == ():
            raise BadInputError("neither decode steps nor prefill chunks were asked for", "ask for either")


def default_running(placement_running: int, border: int | None) -> tuple[int, ...]:
    """The placement's running requests; where they lie beyond ``border``, half of it beside them.

    A server that is not full runs fewer requests than its plan: both regimes are part of every plan that
    reaches the second.
    """
    if border is None or placement_running <= border:
        return (placement_running,)
    return (max(1, border // 2), placement_running)


@dataclass(frozen=True)
class PartErrors:
    """Measured and predicted over a part of the layer-steps.

    Attributes
    ----------
    name
        What the part is.
    measured_us, predicted_us
        Mean of a layer-step.
    errors
        Of the predictions against lower quartiles.
    net_errors
        The same for a machine that changed as the anchors did.
    """

    name: str
    measured_us: float
    predicted_us: float
    errors: ErrorFigures
    net_errors: ErrorFigures

    @classmethod
    def of(cls, name: str, timed: Sequence[TimedLayerStep]) -> "PartErrors":
        """The figures of ``timed``, at least one."""
        return cls(
            name,
            float(np.mean([each.p25_us for each in timed])),
            float(np.mean([each.predicted_us for each in timed])),
            ErrorFigures.of(np.array([each.error for each in timed])),
            ErrorFigures.of(np.array([each.net_error for each in timed])),
        )

    def document(self) -> dict[str, Any]:
        """Its part of the ``verify --json`` document."""
        return {
            "layer_steps": self.errors.calls,
            "measured_us": self.measured_us,
            "predicted_us": self.predicted_us,
            **_plain(self.errors),
            "net": _plain(self.net_errors),
        }


@dataclass(frozen=True)
class Verification:
    """The cold side of a placement, run and predicted.

    Attributes
    ----------
    timed
        Every layer-step that was run, with indices among the MoE layers.
    layers
        The checkpoint's index of each MoE layer.
    drifts
        How the machine changed since it was profiled, by regime.
    median_errors
        Relative errors of the predictions against the median.
    repeats, kernel
        Samples of each layer-step; kernel, code path, threads.
    approximate
        What the replay assumed about the trace, or None.
    quiet_warning, notes
        Whether the machine was busy; what gave way to the wall time.
    heldout_mape
        The profile's own mean error on calls that took no part in its fit; None where nothing was timed.
    """

    timed: tuple[TimedLayerStep, ...]
    layers: tuple[int, ...]
    drifts: tuple[RegimeDrift, ...]
    median_errors: ErrorFigures
    repeats: int
    kernel: str
    approximate: str | None
    quiet_warning: str | None
    notes: tuple[str, ...]
    heldout_mape: float | None = None

    @property
    def overall(self) -> PartErrors:
        """Figures of all layer-steps."""
        return PartErrors.of("all", self.timed)

    def by_step(self) -> dict[tuple[StepKind, int], PartErrors]:
        """Figures by kind and tokens of the step."""
        found: dict[tuple[StepKind, int], list[TimedLayerStep]] = {}
        for each in self.timed:
            found.setdefault((each.layer_step.kind, each.layer_step.tokens), []).append(each)
        return {key: PartErrors.of(_step_name(*key), found[key]) for key in sorted(found)}

    def by_regime(self) -> list[tuple[RegimeDrift, PartErrors | None]]:
        """Every regime of the kernel with its drift, and with figures where layer-steps were run in it."""
        found = []
        for drift in self.drifts:
            most = drift.max_tokens or np.inf
            inside = [each for each in self.timed if drift.min_tokens <= each.layer_step.tokens <= most]
            found.append((drift, PartErrors.of(_regime_name(drift), inside) if inside else None))
        return found

    @property
    def drift(self) -> float | None:
        """Change of the machine's times since it was profiled, weighed by layer-steps; None without anchors."""
        if any(drift.anchors == 0 and part is not None for drift, part in self.by_regime()):
            return None
        return float(np.mean([each.drift for each in self.timed]))

    @property
    def drift_advice(self) -> str | None:
        """What to do when the machine is no longer the one that was profiled; None while it is."""
        run = [drift for drift, part in self.by_regime() if part]
        most = max(run, key=lambda drift: abs(drift.drift))
        if abs(most.drift) <= DRIFT_LIMIT:
            return None
        where = "" if len(run) == 1 else f" in {_regime_name(most)}"
        return (
            f"this machine is now {abs(most.drift):.0%} {'slower' if most.drift > 0 else 'faster'}{where} than when "
            "it was profiled: run placer profile again"
        )

    @property
    def judgement(self) -> str:
        """Whether the times predicted for the cold side can be relied on: one sentence."""
        off, own = self.overall.errors.mape, self.heldout_mape
        if own is None:
            return (
                f"the predicted times are off by {off:.1%} on average, and of a profile for which nothing was timed: "
                "run placer profile here before you rely on them"
            )
        if off > min(max(TRUSTED_TIMES * own, TRUSTED_MAPE), MOST_MAPE):
            said = "do not rely on the predicted times of the cold side"
        elif off > ROUGH_MAPE:
            said = "the predicted times of the cold side are rough, as the profile is"
        else:
            said = "trust the predicted times of the cold side"
        return f"{said}: off by {off:.1%} on average, where the profile's own held-out error is {own:.1%}"

    def worst(self) -> list[TimedLayerStep]:
        """The layer-steps with the largest errors, largest first."""
        return sorted(self.timed, key=lambda each: -abs(each.error))[:WORST]

    def document(self) -> dict[str, Any]:
        """The ``verify --json`` document."""
        overall = self.overall
        null_reasons = {} if self.drift is not None else {"drift.time": "the profile holds no anchor calls"}
        return {
            "steps": len(
                {(each.layer_step.kind, each.layer_step.tokens, each.layer_step.step) for each in self.timed}
            ),
            "layers": len({each.layer_step.layer for each in self.timed}),
            **overall.document(),
            "median": _plain(self.median_errors),
            "drift": {
                "time": self.drift,
                "limit": DRIFT_LIMIT,
                "advice": self.drift_advice,
            },
            "by_step": [
                {"kind": str(kind), "tokens": tokens, **part.document()}
                for (kind, tokens), part in self.by_step().items()
            ],
            "by_regime": [
                {**asdict(drift), **({"layer_steps": 0} if part is None else part.document())}
                for drift, part in self.by_regime()
            ],
            "worst": [
                {
                    "kind": str(each.layer_step.kind),
                    "tokens": each.layer_step.tokens,
                    "step": each.layer_step.step,
                    "layer": self.layers[each.layer_step.layer],
                    "cold_experts": len(each.layer_step.rows),
                    "rows": sum(each.layer_step.rows),
                    "measured_us": each.p25_us,
                    "median_us": each.p50_us,
                    "predicted_us": each.predicted_us,
                    "error": each.error,
                }
                for each in self.worst()
            ],
            "repeats": self.repeats,
            "side": "cold",
            "kernel": self.kernel,
            "approximate": self.approximate,
            "quiet_warning": self.quiet_warning,
            "notes": list(self.notes),
            "null_reasons": null_reasons,
        }


def verify(
    placement: PlacementDocument,
    model: ModelSpec,
    trace: Trace,
    profile: Profile,
    request: VerifyRequest,
    *,
    resident_bytes: int | None = None,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Verification:
    """Run cold layer-steps of the reporting requests of ``trace`` and compare them with the cost model.

    A measured layer-step is the lower quartile of at least nine interleaved repeats, each on expert weights
    that are not in the cache.

    Raises
    ------
    BadInputError
        When trace, profile or placement belong to another model, method or machine, no expert is cold, or a
        step is larger than the placement's.
    MissingComponentError
        When the kernel cannot run, crashes or hangs.
    """
    check_matching(placement, model, profile, trace)
    _check_sizes(placement, request)
    if placement.cpu_method != profile.cpu.method:
        raise BadInputError(
            f"the placement is for CPU method {placement.cpu_method}, the profile is of {profile.cpu.method}",
            "give the profile that the placement was solved with",
        )
    _, _, reporting = split_requests(trace, SPLIT_SHARES, seed=request.seed)
    groups = _step_groups(placement, reporting, profile, request)
    timings = time_layer_steps(
        [cold_layer_steps(steps, placement.hot_mask(), seed=request.seed) for steps in groups],
        profile.cpu,
        most=request.layer_steps,
        max_seconds=request.max_seconds,
        seed=request.seed,
        resident_bytes=resident_bytes,
        progress=lambda done: progress(f"verify: {done.stage}", done.done / max(1, done.total)),
    )
    timed = timings.timed
    predicted = np.array([each.predicted_us for each in timed])
    return Verification(
        timed=timed,
        layers=tuple(model.moe_layers),
        drifts=timings.drifts,
        median_errors=ErrorFigures.of(predicted / np.array([each.p50_us for each in timed]) - 1.0),
        repeats=timings.repeats,
        kernel=_kernel(profile.cpu),
        approximate="; ".join(dict.fromkeys(steps.approximate for steps in groups if steps.approximate))
        or None,
        quiet_warning=timings.quiet_warning,
        notes=(
            *profile_notes(placement, profile),
            *timings.notes,
            *((BY_DATASHEET.format(profile.cpu.device),) if profile.cpu_by_datasheet else ()),
            *(() if profile.calibration is None else (KERNELS_ALONE,)),
        ),
        heldout_mape=None if profile.heldout_error is None else profile.heldout_error.mape,
    )


def _kernel(cpu: CpuSide) -> str:
    variant = "" if isinstance(cpu, DatasheetCpu) else f" {cpu.variant},"
    return f"{cpu.backend} {cpu.method},{variant} {counted(cpu.threads, 'thread')}"


def _check_sizes(placement: PlacementDocument, request: VerifyRequest) -> None:
    """Refuse steps that a server of ``placement`` never runs: their kernels may take minutes for a single call."""
    kv = placement.kv
    for flag, asked, most, what in (
        ("--running", request.running, kv.max_running_requests, "runs {} requests at most"),
        ("--prefill", request.prefill_tokens, kv.chunked_prefill_size, "has chunks of {} tokens at most"),
    ):
        if max(asked or (), default=0) > most:
            raise BadInputError(
                f"{flag} is {max(asked or ()):,}; the placement {what.format(f'{most:,}')}",
                f"give {flag} from 1 to {most}, or none",
            )


def _step_groups(
    placement: PlacementDocument, trace: Trace, profile: Profile, request: VerifyRequest
) -> list[Steps]:
    """Steps of every kind and size to run, replayed from ``trace``."""
    running = request.running
    if running is None:
        running = default_running(placement.kv.max_running_requests, profile.cpu.border_tokens)
    chunks = request.prefill_tokens
    if chunks is None:
        # A quarter beyond the border: whatever kernel, chunks show its second regime.
        wanted = max(PREFILL_TOKENS, (profile.cpu.border_tokens or 0) * 5 // 4)
        chunks = (min(wanted, placement.kv.chunked_prefill_size),)
    seed = request.seed + 2
    return [
        *(replay_decode(trace, count, decode_steps(count), seed=seed) for count in dict.fromkeys(running)),
        *(
            replay_prefill(trace, count, prefill_steps(count), seed=seed + 1, from_decode=True)
            for count in dict.fromkeys(chunks)
        ),
    ]


def _step_name(kind: StepKind, tokens: int) -> str:
    return f"decode, {tokens} running" if kind is StepKind.DECODE else f"prefill, {tokens} tokens"


def _regime_name(drift: RegimeDrift) -> str:
    if drift.max_tokens is None:
        return f"calls of {counted(drift.min_tokens, 'token')} or more"
    return f"calls of {drift.min_tokens} to {drift.max_tokens} tokens"


def _plain(errors: ErrorFigures) -> dict[str, float]:
    return {"mape": errors.mape, "p90_error": errors.p90_error, "bias": errors.bias}
