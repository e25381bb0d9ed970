"""The per-layer cost model: what a side of a layer-step costs, by rows per expert and tokens of the call."""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.profiler.base_cost import BaseCost
from placer.profiler.factor import Factors
from placer.profiler.uncertainty import Uncertainty
from placer.runtime_behaviour import DEFAULT_BEHAVIOUR, RuntimeBehaviour


class Provenance(StrEnum):
    """How a number was obtained."""

    MEASURED = "measured"
    FITTED = "fitted"
    EXTRAPOLATED = "extrapolated"
    DATASHEET = "datasheet"


def _scaled_times(costs: "Regime | SideCost", factor: float) -> dict[str, Any]:
    """The fields of ``costs`` that are known microseconds, multiplied by ``factor``."""
    times: dict[str, Any] = {
        field.name: getattr(costs, field.name) for field in fields(costs) if field.name.endswith("_us")
    }
    times = {name: time for name, time in times.items() if time is not None}
    return {
        name: tuple(each * factor for each in time) if isinstance(time, tuple) else time * factor
        for name, time in times.items()
    }


@dataclass(frozen=True)
class Regime:
    """Cost of one side while the tokens of the call lie in [min_tokens, max_tokens].

    w(m) = max(floor_us, expert_us + tile_us * floor(m / tile) + residue_us[m mod tile])   for m > 0, else 0
    side = fixed_us + token_us * B + max(sum_e w(m_e), heaviest_factor * max_e w(m_e))

    Attributes
    ----------
    min_tokens, max_tokens
        Inclusive range of tokens of a call; None is open.
    fixed_us, token_us
        Paid once per call, and per token of the call.
    expert_us, tile, tile_us, residue_us
        The tile-residue form above; ``residue_us`` has ``tile`` entries, the first being 0.
    heaviest_factor
        0 where the sum alone explains the time (one thread).
    max_rows
        Largest rows per expert that was measured; beyond it a prediction is extrapolated.
    floor_us
        Least cost of an expert with rows: the weights' read time of a roofline, 0 in a fit.
    timed_tokens
        Largest call that was measured; beyond it a prediction is extrapolated. None: no limit is known.
    idle_us, idle_token_us
        What a call costs, once and per token, in which every slot is skipped; None where it was not timed.
    """

    min_tokens: int
    max_tokens: int | None
    fixed_us: float
    token_us: float
    expert_us: float
    tile: int
    tile_us: float
    residue_us: tuple[float, ...]
    heaviest_factor: float
    max_rows: int
    floor_us: float = 0.0
    timed_tokens: int | None = None
    idle_us: float | None = None
    idle_token_us: float = 0.0

    def rows_us(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """w(m) of every entry of ``rows`` (any shape); 0 where there are no rows."""
        most = int(rows.max(initial=0))
        if most < rows.size:
            # Counts repeat: each is costed once.
            return np.asarray(self._counted_us(np.arange(most + 1))[rows])
        return self._counted_us(rows)

    def _counted_us(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        tiles, rest = np.divmod(rows, self.tile)
        cost = self.expert_us + self.tile_us * tiles + np.asarray(self.residue_us)[rest]
        return np.where(rows > 0, np.maximum(cost, self.floor_us), 0.0)

    def scaled(self, factor: float) -> "Regime":
        """This regime with every time multiplied by ``factor``."""
        return replace(self, **_scaled_times(self, factor))


@dataclass(frozen=True)
class SideCost:
    """Cost of one side (hot on the GPU, cold on the CPU), by regime.

    ``regimes`` are ordered, touch each other and cover every token count from 1.
    """

    regimes: tuple[Regime, ...]
    provenance: Provenance

    def scaled(self, factor: float) -> "SideCost":
        """This side with every time multiplied by ``factor``."""
        regimes = tuple(each.scaled(factor) for each in self.regimes)
        return replace(self, regimes=regimes, **_scaled_times(self, factor))

    def regime(self, tokens: int) -> Regime:
        """The regime of a call of ``tokens`` tokens (after CUDA-graph padding)."""
        for regime in self.regimes:
            if regime.max_tokens is None or tokens <= regime.max_tokens:
                return regime
        return self.regimes[-1]

    def expert_us(self, rows: NDArray[np.integer], tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        """Cost that each expert adds: float [S, L, E] from rows [S, L, E] and tokens of the calls [S]."""
        cost = np.empty(rows.shape, dtype=np.float64)
        for count in np.unique(tokens):
            chosen = tokens == count
            cost[chosen] = self.regime(int(count)).rows_us(rows[chosen])
        return cost

    def fixed_us(self, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        """Cost paid once per call: float [S] from tokens of the calls [S]."""
        regimes = [self.regime(int(count)) for count in tokens]
        fixed = np.array([regime.fixed_us for regime in regimes])
        per_token = np.array([regime.token_us for regime in regimes])
        return np.asarray(fixed + per_token * tokens)

    def idle_us(self, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
        """Cost of a call in which every slot is skipped: float [S] from tokens of the calls [S].

        Never above `fixed_us`, and equal to it where no such call was timed.
        """
        regimes = [self.regime(int(count)) for count in tokens]
        once = np.array([np.inf if regime.idle_us is None else regime.idle_us for regime in regimes])
        per_token = np.array([regime.idle_token_us for regime in regimes])
        return np.asarray(np.minimum(self.fixed_us(tokens), once + per_token * tokens))

    def is_extrapolated(self, rows: NDArray[np.integer], tokens: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether a step asks for more rows per expert, or for more tokens, than were measured: bool [S]."""
        regimes = [self.regime(int(count)) for count in tokens]
        most_rows = np.array([regime.max_rows for regime in regimes])
        most_tokens = np.array([np.inf if r.timed_tokens is None else r.timed_tokens for r in regimes])
        return np.asarray((rows.max(axis=(1, 2)) > most_rows) | (np.asarray(tokens) > most_tokens))


@dataclass(frozen=True)
class GpuRates:
    """What the GPU sustains, for the parts of a step outside the experts.

    Attributes
    ----------
    bytes_per_s, bf16_flops
        Sustained memory bandwidth and dense arithmetic.
    layer_call_us
        Fixed cost of one layer outside its experts.
    transfer_call_us, transfer_token_us
        Fixed and per-token cost of moving hidden states to the host and back (c0 and c1 beside the kernel).
    layer_token_us
        What a token more adds to the sums over GPUs of one layer; 0 on one GPU.
    """

    bytes_per_s: float
    bf16_flops: float
    layer_call_us: float
    transfer_call_us: float
    transfer_token_us: float
    provenance: Provenance
    layer_token_us: float = 0.0

    def with_transfers(self, factor: float) -> "GpuRates":
        """These rates with the times of moving hidden states multiplied by ``factor``."""
        return replace(
            self,
            transfer_call_us=self.transfer_call_us * factor,
            transfer_token_us=self.transfer_token_us * factor,
        )


@dataclass(frozen=True)
class CostModel:
    """Both sides of a layer and what surrounds them, for one model on one machine.

    Attributes
    ----------
    base
        Measured time outside the routed experts; None where it follows from ``rates``.
    base_factor, step_us
        Of a calibration: what the time outside the experts is multiplied by, and what every step adds.
    behaviour
        How the runtime puts the sides together.
    uncertainty
        How far the parts may be off; None where that is not known.
    """

    cold: SideCost
    hot: SideCost
    rates: GpuRates
    base: BaseCost | None = None
    base_factor: float = 1.0
    step_us: float = 0.0
    behaviour: RuntimeBehaviour = DEFAULT_BEHAVIOUR
    uncertainty: Uncertainty | None = None

    def calibrated(self, factors: Factors) -> "CostModel":
        """This cost model under the ``factors`` of a calibration."""
        return replace(
            self,
            cold=self.cold.scaled(factors.cold),
            hot=self.hot.scaled(factors.hot),
            rates=self.rates.with_transfers(factors.transfer),
            base_factor=self.base_factor * factors.base,
            step_us=self.step_us + factors.step_us,
        )
