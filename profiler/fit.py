"""Fit the cost model of one side to timed calls, and say how wrong it is on calls it has not seen.

The form is `Regime`'s. Coefficients come from the grid by relative non-negative least squares; held-out calls
are split once, one half chooses the tile and the heaviest-expert term, the other half is only reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from placer.errors import BadInputError
from placer.profiler.cost import Provenance, Regime, SideCost
from placer.profiler.timing.call import Role, TimedCall
from placer.profiler.timing.grid import regime_ranges

TILES = (1, 4, 8, 16, 64)
"""Candidates for the rows a kernel handles at a time; 1 is a straight line, 64 a curve through what was timed
(GPU kernels handle 16 to 128 rows at a time)."""
HEAVIEST_FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""Candidates for `Regime.heaviest_factor` beside 0."""
TILE_GAIN, HEAVIEST_GAIN = 0.98, 0.9
"""A larger tile, or the heaviest-expert term, must bring the selection error below this share of the error
without it: next to nothing for a tile, which kernels are known to have, more for a term most do not need."""
FREE_GAIN = 0.8
"""A call's own cost is what a call without rows takes, unless coefficients of their own bring the selection error
below this share of the error with those."""
ROUNDING = 1e-4
"""Differences of errors below a hundredth of a percent choose nothing."""
PASSES = 4
"""Refits while the calls bound by their heaviest expert are found."""
LEAST_GRID, LEAST_HELDOUT = 8, 4
"""Fewest calls of either role that a regime is fitted and judged on."""
LAYER_SIZES = ((1, 4), (5, 16), (17, 64), (65, None))
"""Classes of calls by active experts: a nearly hot layer, one request, some, a layer in full use."""


@dataclass(frozen=True)
class ErrorFigures:
    """Relative errors (predicted - measured) / measured over ``calls`` held-out calls, as fractions.

    ``mape`` is the mean and ``p90_error`` the 90th percentile of magnitudes; ``bias`` is the signed mean.
    """

    calls: int
    mape: float
    p90_error: float
    bias: float

    @classmethod
    def of(cls, errors: NDArray[np.float64]) -> "ErrorFigures":
        """The figures of relative errors, float [N] with N > 0."""
        magnitudes = np.abs(errors)
        return cls(
            calls=len(errors),
            mape=float(magnitudes.mean()),
            p90_error=float(np.quantile(magnitudes, 0.9)),
            bias=float(errors.mean()),
        )


@dataclass(frozen=True)
class RegimeReport:
    """How one regime was fitted.

    Attributes
    ----------
    min_tokens, max_tokens
        Its range of tokens of a call.
    grid_calls
        Calls that the coefficients were fitted to.
    grid_mape
        Mean error on those: how well the form can follow its own data; no measure of prediction.
    selection_mape
        Mean error of each tile on the selection half, in the order of `TILES`.
    reported
        Error on the half that neither fitted nor chose.
    """

    min_tokens: int
    max_tokens: int | None
    grid_calls: int
    grid_mape: float
    selection_mape: tuple[float, ...]
    reported: ErrorFigures


@dataclass(frozen=True)
class SourceReport:
    """Error on the reported calls of one source ("zipf" or "trace")."""

    source: str
    reported: ErrorFigures


@dataclass(frozen=True)
class SizeReport:
    """Error on the reported calls with ``min_active`` to ``max_active`` active experts (None is open)."""

    min_active: int
    max_active: int | None
    reported: ErrorFigures


@dataclass(frozen=True)
class FitReport:
    """Held-out error, overall, by regime, by where the calls come from and by how many experts are active."""

    overall: ErrorFigures
    regimes: tuple[RegimeReport, ...]
    sources: tuple[SourceReport, ...]
    sizes: tuple[SizeReport, ...] = ()


def call_us(cost: SideCost, rows: NDArray[np.integer], tokens: int) -> float:
    """Predicted microseconds of one call: ``rows`` int [A], rows of each expert; ``tokens`` of the call."""
    regime = cost.regime(tokens)
    each = regime.rows_us(rows)
    heaviest = float(each.max(initial=0.0))
    experts_us = max(float(each.sum()), regime.heaviest_factor * heaviest)
    return regime.fixed_us + regime.token_us * tokens + experts_us


def fit_side(
    timed: Sequence[TimedCall], *, border: int | None, threads: int | None = None, seed: int = 0
) -> tuple[SideCost, FitReport]:
    """Fit every regime and report the error on calls that played no part in it.

    Parameters
    ----------
    timed
        Grid and held-out calls with their times.
    border
        Tokens of a call up to which the first regime holds; None for one regime.
    threads
        Kernel threads: one expert alone cannot take more than so many times its share of a busy call, so this
        bounds the heaviest-expert factor. None on a GPU: no bound.
    seed
        Splits the held-out calls.

    Raises
    ------
    BadInputError
        When a regime has too few calls to be fitted or judged.
    """
    fitted: list[Regime] = []
    reports: list[RegimeReport] = []
    judged: list[tuple[TimedCall, float]] = []
    halves = heldout_halves(timed, border=border, seed=seed)
    for (least, most), (selection, reported) in zip(regime_ranges(border), halves, strict=True):
        grid = [t for t in _inside(timed, least, most) if t.call.role is Role.GRID]
        heldout = len(selection) + len(reported)
        if len(grid) < LEAST_GRID or heldout < LEAST_HELDOUT:
            raise BadInputError(
                f"{len(grid)} calls to fit and {heldout} held out from {least} tokens on are too few",
                "give the profile more seconds",
            )
        idle = _idle_cost([t for t in _inside(timed, least, most) if t.call.role is Role.IDLE])
        regime, selection_mape = _best_regime(grid, selection, least, most, threads, idle)
        side = SideCost((regime,), Provenance.FITTED)
        errors = _errors(side, reported)
        fitted.append(regime)
        judged += zip(reported, errors.tolist(), strict=True)
        reports.append(
            RegimeReport(
                min_tokens=least,
                max_tokens=most,
                grid_calls=len(grid),
                grid_mape=float(np.abs(_errors(side, grid)).mean()),
                selection_mape=selection_mape,
                reported=ErrorFigures.of(errors),
            )
        )
    return SideCost(tuple(fitted), Provenance.FITTED), _report(tuple(reports), judged)


def heldout_halves(
    timed: Sequence[TimedCall], *, border: int | None, seed: int
) -> list[tuple[list[TimedCall], list[TimedCall]]]:
    """For every regime the held-out calls that choose its form, and those that only report its error.

    The halves alternate through calls sorted by source and size, after a random start.
    """
    generator = np.random.default_rng(seed)
    halves = []
    for least, most in regime_ranges(border):
        heldout = [t for t in _inside(timed, least, most) if t.call.role is Role.HELDOUT]
        ordered = sorted(heldout, key=lambda t: (t.call.source, t.call.tokens, t.call.rows))
        first = int(generator.integers(2))
        halves.append((ordered[first::2], ordered[1 - first :: 2]))
    return halves


def _inside(timed: Sequence[TimedCall], least: int, most: int | None) -> list[TimedCall]:
    return [t for t in timed if least <= t.call.tokens and (most is None or t.call.tokens <= most)]


def _report(regimes: tuple[RegimeReport, ...], judged: list[tuple[TimedCall, float]]) -> FitReport:
    errors = np.array([error for _, error in judged])
    source = np.array([t.call.source for t, _ in judged])
    active = np.array([len(t.call.rows) for t, _ in judged])
    sizes = []
    for least, most in LAYER_SIZES:
        inside = (active >= least) & (active <= (most or np.inf))
        if inside.any():
            sizes.append(SizeReport(least, most, ErrorFigures.of(errors[inside])))
    return FitReport(
        overall=ErrorFigures.of(errors),
        regimes=regimes,
        sources=tuple(
            SourceReport(name, ErrorFigures.of(errors[source == name]))
            for name in sorted(set(source.tolist()))
        ),
        sizes=tuple(sizes),
    )


Fixed = tuple[float, float]
"""Microseconds of a call, once and per token."""


def _best_regime(
    grid: list[TimedCall],
    selection: list[TimedCall],
    least: int,
    most: int | None,
    threads: int | None,
    idle: Fixed | None,
) -> tuple[Regime, tuple[float, ...]]:
    """The simplest fixed cost, tile and heaviest-expert term that no richer one clearly beats on ``selection``."""
    best_error, best, by_tile = _best_tile(grid, selection, least, most, None)
    if idle is not None:
        error, regime, errors = _best_tile(grid, selection, least, most, idle)
        if best_error >= FREE_GAIN * error - ROUNDING:
            best_error, best, by_tile = error, regime, errors
        else:
            best = replace(best, idle_us=idle[0], idle_token_us=idle[1])
    plain_error, plain = best_error, best
    fixed = (plain.fixed_us, plain.token_us) == idle
    for factor in HEAVIEST_FACTORS:
        if threads is not None and factor > threads:
            break
        regime = _fit_regime(grid, least, most, plain.tile, factor, idle if fixed else None)
        error = _mape(regime, selection)
        if error < HEAVIEST_GAIN * plain_error and error < best_error:
            best_error = error
            best = replace(regime, idle_us=plain.idle_us, idle_token_us=plain.idle_token_us)
    return best, by_tile


def _best_tile(
    grid: list[TimedCall], selection: list[TimedCall], least: int, most: int | None, fixed: Fixed | None
) -> tuple[float, Regime, tuple[float, ...]]:
    """Selection error, regime, and the errors of every tile of `TILES`."""
    heaviest_rows = max(max(t.call.rows) for t in grid)
    regimes = [_fit_regime(grid, least, most, min(tile, heaviest_rows), 0.0, fixed) for tile in TILES]
    errors = [_mape(regime, selection) for regime in regimes]
    best = 0
    for index, error in enumerate(errors):
        if error < TILE_GAIN * errors[best] - ROUNDING:
            best = index
    return errors[best], regimes[best], tuple(errors)


def _idle_cost(idle: list[TimedCall]) -> Fixed | None:
    """What calls without rows cost, by relative non-negative least squares; None where none was timed."""
    if not idle:
        return None
    times = np.array([t.time_us for t in idle])
    design = np.column_stack((np.ones(len(idle)), [t.call.tokens for t in idle]))
    (once, per_token), _ = nnls(design / times[:, None], np.ones(len(idle)))
    return float(once), float(per_token)


def _fit_regime(
    grid: list[TimedCall], least: int, most: int | None, tile: int, factor: float, fixed: Fixed | None
) -> Regime:
    """Relative non-negative least squares for a given tile, heaviest-expert factor and, if given, fixed cost.

    Which calls are bound by their heaviest expert depends on the coefficients, so it is found by refitting.
    """
    rests = sorted({m % tile for t in grid for m in t.call.rows} - {0})
    knots = np.array([0, *rests])
    times = np.array([t.time_us for t in grid])
    tokens = np.array([t.call.tokens for t in grid], dtype=np.float64)
    per_row = [_row_features(np.array(t.call.rows), tile, knots) for t in grid]
    weights = [np.ones(len(t.call.rows)) for t in grid]
    own = np.column_stack((np.ones(len(grid)), tokens))
    known_us = np.zeros(len(grid)) if fixed is None else own @ np.array(fixed)
    once, per_token = (0.0, 0.0) if fixed is None else fixed
    experts = np.zeros(2 + len(rests))
    for _ in range(PASSES if factor > 0 else 1):
        sums = np.stack([w @ features for w, features in zip(weights, per_row, strict=True)])
        design = sums if fixed is not None else np.column_stack((own, sums))
        coefficients, _ = nnls(design / times[:, None], np.maximum(0.0, 1.0 - known_us / times))
        experts = coefficients[-sums.shape[1] :]
        if fixed is None:
            once, per_token = coefficients[:2]
        weights = [_bound_by(features @ experts, factor) for features in per_row]
    residue = np.interp(np.arange(tile), knots, np.concatenate(([0.0], experts[2:])))
    return Regime(
        min_tokens=least,
        max_tokens=most,
        fixed_us=float(once),
        token_us=float(per_token),
        expert_us=float(experts[0]),
        tile=tile,
        tile_us=float(experts[1]),
        residue_us=tuple(float(us) for us in residue),
        heaviest_factor=factor,
        max_rows=max(max(t.call.rows) for t in grid),
        timed_tokens=max(t.call.tokens for t in grid),
        idle_us=None if fixed is None else float(once),
        idle_token_us=0.0 if fixed is None else float(per_token),
    )


def _row_features(rows: NDArray[np.int64], tile: int, knots: NDArray[np.int64]) -> NDArray[np.float64]:
    """Factors of expert_us, tile_us and the residue at every knot but 0: float [A, 2 + knots - 1].

    Residues between measured ones are interpolated, those beyond the last are held at it.
    """
    tiles, rest = np.divmod(rows, tile)
    hats = [np.interp(rest, knots, unit) for unit in np.eye(len(knots))[1:]]
    return np.column_stack((np.ones(len(rows)), tiles, *hats))


def _bound_by(each_us: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Ones where the sum of experts is the time, else ``factor`` at the heaviest and 0 elsewhere."""
    if factor * each_us.max() <= each_us.sum():
        return np.ones(len(each_us))
    heaviest = np.zeros(len(each_us))
    heaviest[int(each_us.argmax())] = factor
    return heaviest


def _mape(regime: Regime, timed: list[TimedCall]) -> float:
    return float(np.abs(_errors(SideCost((regime,), Provenance.FITTED), timed)).mean())


def _errors(side: SideCost, timed: list[TimedCall]) -> NDArray[np.float64]:
    predicted = np.array([call_us(side, np.array(t.call.rows), t.call.tokens) for t in timed])
    measured = np.array([t.time_us for t in timed])
    errors: NDArray[np.float64] = (predicted - measured) / measured
    return errors
