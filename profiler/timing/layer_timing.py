"""The cold side of single layer-steps, run by the real kernel and set beside what the cost model predicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.fit import call_us
from placer.profiler.steps import Steps
from placer.profiler.timing.call import Call, Role, least_tokens
from placer.profiler.timing.campaign import Progress, time_campaign
from placer.profiler.timing.kernel_profile import KernelProfile
from placer.profiler.timing.machine import this_machine
from placer.profiler.timing.samples import ESTIMATOR_QUANTILE
from placer.profiler.timing.spec import CampaignSpec

ROUNDS, LEAST_ROUNDS = 15, 9
"""Interleaved repeats of every layer-step: as many as a lower quartile needs, and the fewest it is taken from."""
LOADING_SHARE = 0.35
"""Part of the wall time left for loading weights and for the discarded first round."""


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
    """

    step: int
    layer: int
    rows: tuple[int, ...]
    tokens: int


@dataclass(frozen=True)
class TimedLayerStep:
    """A layer-step with its measured quantiles over ``repeats`` samples and the prediction, microseconds."""

    layer_step: LayerStep
    p25_us: float
    p50_us: float
    predicted_us: float

    @property
    def error(self) -> float:
        """(predicted - measured) / measured, against the lower quartile."""
        return self.predicted_us / self.p25_us - 1.0


@dataclass(frozen=True)
class LayerTimings:
    """What a run of layer-steps found.

    Attributes
    ----------
    timed
        Every layer-step that was run.
    repeats
        Samples of each.
    quiet_warning
        A sentence when the machine was busy meanwhile.
    notes
        What gave way to the wall time.
    """

    timed: tuple[TimedLayerStep, ...]
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
        rows = np.where(hot[layer], 0, steps.rows[step, layer])
        heaviest_first = np.sort(rows[rows > 0])[::-1]
        if heaviest_first.size:
            found.append(LayerStep(step, layer, tuple(heaviest_first.tolist()), int(steps.tokens[step])))
    return found


def affordable(candidates: Sequence[LayerStep], kernel: KernelProfile, seconds: float) -> list[LayerStep]:
    """The first of ``candidates`` whose repeats are predicted to fit into ``seconds``; at least one."""
    left_us = seconds * 1e6 / (ROUNDS + 1)
    taken: list[LayerStep] = []
    for candidate in candidates:
        left_us -= predicted_us(kernel, candidate)
        if left_us < 0 and taken:
            break
        taken.append(candidate)
    return taken


def predicted_us(kernel: KernelProfile, layer_step: LayerStep) -> float:
    """What the profile says that the CPU takes for ``layer_step``."""
    return call_us(kernel.cost, np.array(layer_step.rows), layer_step.tokens)


def time_layer_steps(
    candidates: Sequence[LayerStep],
    kernel: KernelProfile,
    *,
    most: int,
    max_seconds: float,
    seed: int,
    resident_bytes: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> LayerTimings:
    """Run layer-steps with the kernel, threads and memory nodes that ``kernel`` was profiled with.

    Parameters
    ----------
    candidates
        Layer-steps in order of preference; up to ``most`` of them, as many as fit into ``max_seconds``.
    resident_bytes
        Distinct expert weights to draw from; None for three times the last-level cache.

    Raises
    ------
    BadInputError
        When there is nothing to run, or this is not the machine that was profiled.
    MissingComponentError
        When the kernel cannot run, crashes or hangs.
    """
    if not candidates:
        raise BadInputError(
            "every expert that these steps use is hot: the CPU has nothing to run",
            "verify a placement with cold experts",
        )
    here = this_machine().cpu
    if here != kernel.machine.cpu:
        raise BadInputError(
            f"the profile was made on {kernel.machine.cpu}, this machine is {here}",
            "verify on the profiled machine, or run placer profile here first",
        )
    chosen = affordable(candidates[:most], kernel, (1 - LOADING_SHARE) * max_seconds)
    calls = [Call(each.rows, each.tokens, Role.HELDOUT, "verify") for each in chosen]
    top_k = kernel.shape.top_k
    for each in chosen:
        if least_tokens(each.rows, top_k) > each.tokens:
            raise BadInputError(
                f"step {each.step} sends {sum(each.rows)} rows from {each.tokens} tokens, more than top-{top_k} "
                "allows",
                "use a trace of this model",
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
            extra_calls=tuple(dict.fromkeys(calls)),
            only_extra=True,
            resident_bytes=resident_bytes,
        ),
        progress,
    )
    quantiles = np.quantile(samples.times_us, (ESTIMATOR_QUANTILE, 0.5), axis=0).T
    measured = {
        call: (float(p25), float(p50)) for call, (p25, p50) in zip(samples.calls, quantiles, strict=True)
    }
    timed = tuple(
        TimedLayerStep(each, *measured[call], predicted_us(kernel, each))
        for each, call in zip(chosen, calls, strict=True)
        if call in measured
    )
    notes = list(samples.notes)
    if len(chosen) < min(most, len(candidates)):
        notes.append(f"{len(chosen)} layer-steps instead of {most} fitted into {max_seconds:.0f} s")
    return LayerTimings(timed, int(samples.times_us.shape[0]), samples.quiet_warning(), tuple(notes))
