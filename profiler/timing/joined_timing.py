"""Both sides of single layer-steps, run at once by the real kernels and set beside the larger of two predictions."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.cost import CostModel
from placer.profiler.fit import call_us
from placer.profiler.timing.campaign import Progress
from placer.profiler.timing.joined_step import JoinedStep
from placer.profiler.timing.samples import ESTIMATOR_QUANTILE
from placer.profiler.timing.worker_process import run_worker

ROUNDS, LEAST_ROUNDS = 15, 5


@dataclass(frozen=True)
class JoinedSpec:
    """What is run, as it travels to the worker.

    Attributes
    ----------
    device
        "cuda"; "cpu" runs a CPU kernel in the GPU's place, for tests.
    cold_backend, threads, subpools, cold_shape
        The CPU's kernel, its threads and memory nodes, and its experts.
    hot_backend, hot_shape
        The GPU's kernel and one GPU's share of the experts.
    steps
        Layer-steps to run.
    resident_bytes
        Distinct weights of either side to draw from; None for three times the caches.
    """

    device: str
    cold_backend: str
    threads: int
    subpools: int
    cold_shape: ExpertShape
    hot_backend: str
    hot_shape: ExpertShape
    steps: tuple[JoinedStep, ...]
    seed: int
    max_seconds: float
    resident_bytes: int | None = None


@dataclass(frozen=True)
class TimedJoinedStep:
    """A layer-step, the lower quartile of its runs with both sides at once, and either side as predicted."""

    joined_step: JoinedStep
    measured_us: float
    hot_us: float
    cold_us: float

    @property
    def predicted_us(self) -> float:
        """The longer side: what the cost model says that the layer takes."""
        return max(self.hot_us, self.cold_us)

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted_us / self.measured_us - 1.0


def predicted_sides_us(cost: CostModel, step: JoinedStep) -> tuple[float, float]:
    """What the hot and the cold side take, the cold one with its transfers: microseconds."""
    transfers = cost.rates.transfer_call_us + cost.rates.transfer_token_us * step.tokens
    return (
        call_us(cost.hot, np.array(step.hot_rows), step.tokens),
        call_us(cost.cold, np.array(step.cold_rows), step.tokens) + transfers,
    )


def time_joined(
    spec: JoinedSpec, cost: CostModel, progress: Callable[[Progress], None] | None = None
) -> tuple[tuple[TimedJoinedStep, ...], int, str]:
    """Every layer-step of ``spec`` measured and predicted, the runs of each, and what ran.

    Raises
    ------
    BadInputError
        When the layer-steps do not fit into the time.
    MissingComponentError
        When a kernel cannot run, returns wrong numbers, crashes or hangs.
    """
    done = run_worker(
        "placer.profiler.timing.joined_worker",
        json.dumps(asdict(spec)),
        what="running hot and cold experts at once",
        cure="verify the cold side alone",
        progress=progress,
    )
    quartiles = np.quantile(np.array(done["times_us"]), ESTIMATOR_QUANTILE, axis=0)
    timed = tuple(
        TimedJoinedStep(step, float(us), *predicted_sides_us(cost, step))
        for step, us in zip(spec.steps, quartiles, strict=True)
    )
    return timed, len(done["times_us"]), " beside ".join(done["kernels"])


def longest_first(timed: Sequence[TimedJoinedStep]) -> list[TimedJoinedStep]:
    """The layer-steps with the largest errors, largest first."""
    return sorted(timed, key=lambda each: -abs(each.error))
