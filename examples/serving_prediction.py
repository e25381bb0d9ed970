"""What placer predicts of vLLM's CPU engine under a benchmark's own requests, and what constant steps predict."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from placer.benchmark_figures import benchmark_traffic
from placer.hbm import ServerSettings
from placer.model.spec import ModelSpec
from placer.placement_times import PlacementTimes
from placer.profiler.base_cost import BaseCost
from placer.profiler.cost import CostModel, GpuRates, Provenance, Regime, SideCost
from placer.profiler.factor import UNCALIBRATED, FactorName, Factors
from placer.profiler.factor_fit import FittedFigure, fit_factors
from placer.profiler.serving.served import Served
from placer.profiler.serving.server import Server
from placer.profiler.serving.simulation import simulate
from placer.profiler.serving.step_time import (
    ConstantStepTimes,
    SampledStepTimes,
    StepSamples,
    StepTimes,
    Times,
)
from placer.profiler.serving_benchmark import ServingBenchmark
from placer.profiler.step_load import StepLoad
from placer.profiler.steps import StepKind
from placer.profiler.trace.trace import Trace
from placer.replays import Replays
from placer.workload import Workload

FITTED = (FactorName.COLD, FactorName.BASE, FactorName.STEP)
"""What there is to fit where no GPU takes part; `placer calibrate` fits these and the GPU's."""
_TURNS = 4


@dataclass(frozen=True)
class Figures:
    """What a benchmark client states of a run, or a prediction of it."""

    output_tokens_per_s: float
    tpot_ms: float
    tpot_p95_ms: float
    ttft_ms: float

    @classmethod
    def of(cls, served: Served) -> "Figures":
        """The figures of simulated requests."""
        tpot = served.tpot_ms()
        return cls(served.output_tokens_per_s, tpot.mean, tpot.p95, served.ttft_ms().mean)


def cpu_cost_model(experts: SideCost, base: BaseCost) -> CostModel:
    """A server whose experts all run on the CPU: there is no hot side, and nothing is copied."""
    nothing = SideCost((Regime(1, None, 0.0, 0.0, 0.0, 1, 0.0, (0.0,), 0.0, 1),), Provenance.MEASURED)
    return CostModel(experts, nothing, GpuRates(1.0, 1.0, 0.0, 0.0, 0.0, Provenance.MEASURED), base)


@dataclass(frozen=True)
class Calibrated:
    """What one run's TPOT and TTFT say: factors of the cost model, and a client's time before each request."""

    factors: Factors
    client_us: float


AS_TIMED = Calibrated(UNCALIBRATED, 0.0)


@dataclass(frozen=True)
class MixedStepTimes:
    """``sampled`` times, and in steps with prompts what the requests that decode there add to the base."""

    sampled: SampledStepTimes
    base: BaseCost
    base_factor: float

    def decode_us(self, requests: int, kv_tokens: int, steps: int) -> Times:
        """See `StepTimes`."""
        return self.sampled.decode_us(requests, kv_tokens, steps)

    def prefill_us(self, requests: int, prompt_tokens: int, kv_tokens: int) -> float:
        """See `StepTimes`."""
        mixed, alone = (
            self.base.step_us(load, kv_dtype="bf16")
            for load in (
                StepLoad(batch=requests, chunk_tokens=prompt_tokens),
                StepLoad(chunk_tokens=requests + prompt_tokens),
            )
        )
        return self.sampled.prefill_us(requests, prompt_tokens, kv_tokens) + self.base_factor * (
            mixed - alone
        )


class Predictor:
    """Predictions for runs of ``server`` on the replayed steps of ``trace``."""

    def __init__(
        self, model: ModelSpec, cost: CostModel, trace: Trace, server: Server, *, seed: int = 0
    ) -> None:
        self._model = model
        self._cost = cost
        assert cost.base is not None
        self._base = cost.base
        self._server = server
        self._seed = seed
        self._replays = Replays(trace, seed, "trace")

    def calibrated(self, run: ServingBenchmark) -> Calibrated:
        """The factor that ``run``'s TPOT says, as `placer calibrate` fits it, and what its TTFT says of its clients.

        On a model this small TTFT is mostly HTTP and tokenisation, which no factor of a step explains. Either depends
        a little on the other, so they are found in turn.
        """
        found = AS_TIMED
        for _ in range(_TURNS):
            client_us = found.client_us

            def tpot_ms(factors: Factors, client_us: float = client_us) -> float:
                return self.figures(run, Calibrated(factors, client_us)).tpot_ms

            fit = fit_factors(
                [FittedFigure(run.mean_tpot_ms, tpot_ms)],
                step_scale_us=run.mean_tpot_ms * 1e3,
                names=FITTED,
            )
            lacking_ms = run.mean_ttft_ms - self.figures(run, Calibrated(fit.factors, client_us)).ttft_ms
            found = Calibrated(fit.factors, max(0.0, client_us + lacking_ms * 1e3))
        return found

    def figures(self, run: ServingBenchmark, calibrated: Calibrated) -> Figures:
        """The run's requests, played on sampled steps."""
        return self._played(run, self.step_times(run, calibrated), calibrated.client_us)

    def step_times(self, run: ServingBenchmark, calibrated: Calibrated) -> StepTimes:
        """What the simulation of ``run`` draws from."""
        return self._step_times(self._times(run), calibrated.factors)

    def null_times(self, run: ServingBenchmark) -> ConstantStepTimes:
        """The constant step times under which ``run`` has the TPOT and TTFT that were measured.

        In a closed loop both are linear in the two times.
        """
        units = [self._played(run, ConstantStepTimes(*unit)) for unit in ((1e3, 0.0), (0.0, 1e3))]
        matrix = np.array([[each.tpot_ms for each in units], [each.ttft_ms for each in units]])
        measured = np.array([run.mean_tpot_ms, run.mean_ttft_ms])
        # Relative errors count.
        found, _ = nnls(matrix / measured[:, None], np.ones(2))
        return ConstantStepTimes(*(1e3 * found).tolist())

    def null_figures(self, run: ServingBenchmark, times: ConstantStepTimes) -> Figures:
        """The run's requests, played on constant steps."""
        return self._played(run, times)

    def _played(self, run: ServingBenchmark, times: StepTimes, client_us: float = 0.0) -> Figures:
        traffic = replace(benchmark_traffic(run), client_us=client_us)
        return Figures.of(simulate(traffic, self._server, times))

    def _times(self, run: ServingBenchmark) -> PlacementTimes:
        workload = Workload(_mean(run.input_tokens), _mean(run.output_tokens), run.clients)
        server = self._server
        settings = ServerSettings(server.max_running, server.kv_tokens, server.chunk_tokens, "bf16")
        hot = np.zeros((len(self._model.moe_layers), self._model.experts), dtype=np.bool_)
        return PlacementTimes(self._model, self._cost, hot, self._replays, settings, workload, tp=1)

    def _step_times(self, times: PlacementTimes, factors: Factors) -> StepTimes:
        """Every decode size, because nothing is padded on a CPU, and chunks of an eighth of the largest apart."""
        chunk = self._server.chunk_tokens
        chunks = sorted({max(1, chunk * part // 8) for part in range(9)})

        def samples(kind: StepKind, size: int) -> StepSamples:
            sides = times.sides(kind, size)
            base_us = factors.base * sides.base_us + factors.step_us
            return StepSamples(size, sides.layer_us(factors).sum(axis=1), base_us, 0.0)

        sampled = SampledStepTimes(
            [samples(StepKind.DECODE, size) for size in range(1, self._server.max_running + 1)],
            [samples(StepKind.PREFILL, size) for size in chunks],
            self._seed,
        )
        return MixedStepTimes(sampled, self._base, factors.base)


def _mean(tokens: Sequence[int]) -> int:
    return max(1, round(sum(tokens) / len(tokens)))
