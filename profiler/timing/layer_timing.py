"""The cold side of single layer-steps, run by the real kernel and set beside what the cost model predicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.kernels.cores import usable_cores
from placer.kernels.thread_needs import cores_needed
from placer.profiler.datasheet_cpu import CpuSide, DatasheetCpu
from placer.profiler.fit import call_us
from placer.profiler.steps import StepKind, Steps
from placer.profiler.timing.anchor import RegimeDrift, anchors, regime_drifts
from placer.profiler.timing.call import Call, Role, least_tokens
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.machine import this_machine
from placer.profiler.timing.samples import ESTIMATOR_QUANTILE
from placer.profiler.timing.spec import CampaignSpec
from placer.units import counted

ROUNDS, LEAST_ROUNDS = 15, 9
"""Interleaved repeats of every layer-step: as many as a lower quartile needs, and the fewest it is taken from."""
LOADING_SHARE = 0.35
"""Part of the wall time left for loading weights and for the discarded first round."""
ANCHOR_SHARE = 0.15
"""Part of the wall time for calls of the profile that are timed again."""


@dataclass(frozen=True)
class LayerStep:
    """One MoE layer of one step: which, and the rows of its cold experts.

    Attributes
    ----------
    step, layer
        Indices into the steps, and into the MoE layers.
    rows
        Rows of every active cold expert, heaviest first.
    tokens
        Tokens of the call.
    kind
        Whether the step decodes or prefills.
    """

    step: int
    layer: int
    rows: tuple[int, ...]
    tokens: int
    kind: StepKind = StepKind.DECODE


@dataclass(frozen=True)
class TimedLayerStep:
    """A layer-step with its measured quantiles and the prediction, microseconds.

    ``drift`` is that of the machine since it was profiled, in the regime of the step.
    """

    layer_step: LayerStep
    p25_us: float
    p50_us: float
    predicted_us: float
    drift: float = 0.0

    @property
    def error(self) -> float:
        """(predicted - measured) / measured, against the lower quartile."""
        return self.predicted_us / self.p25_us - 1.0

    @property
    def net_error(self) -> float:
        """The same for the prediction of a machine that changed as the anchors did."""
        return self.predicted_us * (1.0 + self.drift) / self.p25_us - 1.0


@dataclass(frozen=True)
class LayerTimings:
    """What a run of layer-steps found.

    Attributes
    ----------
    timed
        Every layer-step that was run.
    drifts
        How the machine changed since it was profiled, by regime.
    repeats
        Samples of each.
    quiet_warning
        A sentence when the machine was busy meanwhile.
    notes
        What gave way to the wall time.
    """

    timed: tuple[TimedLayerStep, ...]
    drifts: tuple[RegimeDrift, ...]
    repeats: int
    quiet_warning: str | None
    notes: tuple[str, ...]


def cold_layer_steps(steps: Steps, hot: NDArray[np.bool_], *, seed: int) -> list[LayerStep]:
    """The layer-steps of ``steps`` that leave the CPU anything to do, in a random order that spreads layers.

    ``hot`` is bool [L, E]. The first L of them are of L different layers, and so on.
    """
    S, L, _ = steps.rows.shape
    generator = np.random.default_rng(seed)
    order = []
    turns = np.stack([generator.permutation(S) for _ in range(L)])
    for turn in range(S):
        order += [(int(turns[layer, turn]), int(layer)) for layer in generator.permutation(L)]
    found = []
    for step, layer in order:
        cold = np.where(hot[layer], 0, steps.rows[step, layer])
        heaviest_first = np.sort(cold[cold > 0])[::-1]
        if heaviest_first.size:
            rows = tuple(heaviest_first.tolist())
            found.append(LayerStep(step, layer, rows, int(steps.tokens[step]), steps.kind))
    return found


def affordable(
    groups: Sequence[Sequence[LayerStep]], kernel: CpuSide, *, most: int, seconds: float
) -> list[LayerStep]:
    """The first layer-steps of every group whose repeats are predicted to fit into ``seconds``.

    Each group has an equal part of ``most`` layer-steps and of the time, and at least one layer-step; what the
    cheaper groups leave of the time goes to the dearer ones.
    """
    left_us, left = seconds * 1e6 / (ROUNDS + 1), most
    taken: list[LayerStep] = []
    filled = [group for group in groups if group]
    for number, group in enumerate(sorted(filled, key=lambda group: predicted_us(kernel, group[0]))):
        rest = len(filled) - number
        share_us, share = left_us / rest, max(1, -(-left // rest))
        spent_us, count = 0.0, 0
        for candidate in group[:share]:
            cost_us = predicted_us(kernel, candidate)
            if count and spent_us + cost_us > share_us:
                break
            spent_us, count = spent_us + cost_us, count + 1
            taken.append(candidate)
        left_us, left = left_us - spent_us, left - count
    return taken


def predicted_us(kernel: CpuSide, layer_step: LayerStep) -> float:
    """What the profile says that the CPU takes for ``layer_step``."""
    return call_us(kernel.cost, np.array(layer_step.rows), layer_step.tokens)


def time_layer_steps(
    groups: Sequence[Sequence[LayerStep]],
    kernel: CpuSide,
    *,
    most: int,
    max_seconds: float,
    seed: int,
    resident_bytes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> LayerTimings:
    """Run layer-steps with the kernel, threads and memory nodes that ``kernel`` was profiled with.

    Anchors of the profile are timed among them; a datasheet has none, and is held against any machine that runs
    as many threads.

    Parameters
    ----------
    groups
        Layer-steps of each kind and size of step, in order of preference; up to ``most`` of them together, as
        many as fit into ``max_seconds``.
    resident_bytes
        Distinct expert weights to draw from; None for three times the last-level cache.

    Raises
    ------
    BadInputError
        When there is nothing to run, or this is not the machine that was profiled.
    MissingComponentError
        When the kernel cannot run, crashes or hangs.
    """
    if not any(groups):
        raise BadInputError(
            "every expert that these steps use is hot: the CPU has nothing to run",
            "verify a placement with cold experts",
        )
    here = this_machine().cpu
    if not isinstance(kernel, DatasheetCpu) and here != kernel.device:
        raise BadInputError(
            f"the profile was made on {kernel.device}, this machine is {here}",
            "verify on the profiled machine, or run placer profile here first",
        )
    _check_cores(kernel)
    steps_seconds = (1 - LOADING_SHARE - ANCHOR_SHARE) * max_seconds
    chosen = affordable(groups, kernel, most=most, seconds=steps_seconds)
    calls = [Call(each.rows, each.tokens, Role.HELDOUT, "verify") for each in chosen]
    top_k = kernel.shape.top_k
    for each in chosen:
        if least_tokens(each.rows, top_k) > each.tokens:
            raise BadInputError(
                f"step {each.step} sends {sum(each.rows)} rows from {each.tokens} tokens, more than top-{top_k} "
                "allows",
                "use a trace of this model",
            )
    profiled = anchors(
        kernel,
        {
            regime: [
                predicted_us(kernel, each) for each in chosen if kernel.cost.regime(each.tokens) is regime
            ]
            for regime in kernel.cost.regimes
        },
    )
    samples = time_campaign(
        CampaignSpec(
            device="cpu",
            backend=kernel.backend,
            threads=kernel.threads,
            subpools=kernel.numa_nodes,
            shape=kernel.shape,
            seed=seed,
            max_seconds=max_seconds,
            rounds=ROUNDS,
            min_rounds=LEAST_ROUNDS,
            extra_calls=tuple(dict.fromkeys((*calls, *(anchor.call for anchor in profiled)))),
            only_extra=True,
            resident_bytes=resident_bytes,
        ),
        progress,
    )
    quantiles = np.quantile(samples.times_us, (ESTIMATOR_QUANTILE, 0.5), axis=0).T
    measured = {
        call: (float(p25), float(p50)) for call, (p25, p50) in zip(samples.calls, quantiles, strict=True)
    }
    drifts = regime_drifts(kernel, profiled, {call: p25 for call, (p25, _) in measured.items()})
    by_regime = {
        regime.min_tokens: drift.drift for regime, drift in zip(kernel.cost.regimes, drifts, strict=True)
    }
    timed = tuple(
        TimedLayerStep(
            each,
            *measured[call],
            predicted_us(kernel, each),
            by_regime[kernel.cost.regime(each.tokens).min_tokens],
        )
        for each, call in zip(chosen, calls, strict=True)
        if call in measured
    )
    notes = list(samples.notes)
    if len(chosen) < min(most, sum(len(group) for group in groups)):
        notes.append(f"{len(chosen)} layer-steps instead of {most} fitted into {max_seconds:.0f} s")
    return LayerTimings(timed, drifts, int(samples.times_us.shape[0]), samples.quiet_warning(), tuple(notes))


def _check_cores(kernel: CpuSide) -> None:
    """Refuse a machine with fewer cores than the kernel was planned with: its times would be of another pool."""
    cores = usable_cores()
    if cores_needed(kernel.backend, kernel.threads) <= cores:
        return
    planned = kernel.device or kernel.backend
    raise BadInputError(
        f"this plan assumes {counted(kernel.threads, 'thread')} of {planned}, and this process may use "
        f"{counted(cores, 'core')}",
        "verify on that server, or run placer profile here and solve again",
    )
