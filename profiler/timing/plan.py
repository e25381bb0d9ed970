"""How large a grid the time allows: price its calls from a few, and thin it until enough rounds fit."""

from collections.abc import Callable
from dataclasses import dataclass

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import Call, Role, least_tokens
from placer.profiler.timing.grid import grid_calls, idle_calls, regime_ranges, zipf_calls
from placer.profiler.timing.spec import CampaignSpec

ENOUGH_ROUNDS = 15
"""Samples from which a lower quartile is good to a percent or two."""
MOST_HALVINGS = 2
"""A grid thinned further would say little about many active experts."""
MOST_DRAWS = 3
"""Draws of every made-up step where there is time: the error of a fit is only as sure as its steps are many."""
PRICED_ROWS = 8
"""Rows of the second call that a regime is priced from; the first has one."""


ESSENTIAL = {Role.GRID: 12, Role.HELDOUT: 6}
"""Calls of each role that a regime keeps however short the time is."""


@dataclass(frozen=True)
class RegimePrice:
    """Rough microseconds of an active expert and of each of its rows, for calls of up to ``max_tokens``."""

    max_tokens: int | None
    expert_us: float
    row_us: float


def price_regimes(
    shape: ExpertShape, border: int | None, time_us: Callable[[Call], float]
) -> tuple[RegimePrice, ...]:
    """Prices from two calls in every regime."""
    prices = []
    for least, most in regime_ranges(border):
        rows = min(PRICED_ROWS, most or PRICED_ROWS)
        count = min(4, shape.experts)
        one, many = (_cheapest((m,) * count, least, shape.top_k) for m in (1, rows))
        one_us = time_us(one) / count
        row_us = max(0.0, time_us(many) / count - one_us) / max(1, rows - 1)
        prices.append(RegimePrice(most, max(0.0, one_us - row_us), row_us))
    return tuple(prices)


def affordable_calls(
    spec: CampaignSpec, border: int | None, prices: tuple[RegimePrice, ...], seconds: float
) -> tuple[tuple[Call, ...], str | None]:
    """The fullest grid of which `ENOUGH_ROUNDS` rounds fit into ``seconds``, and a note if it was thinned."""
    sizes = [*((0, draws) for draws in range(MOST_DRAWS, 1, -1)), *((n, 1) for n in range(MOST_HALVINGS + 1))]
    for halvings, draws in sizes:
        calls = all_calls(spec, border, halvings, draws)
        # One round more than the kept ones: the first is discarded.
        if round_seconds(calls, prices) * (min(ENOUGH_ROUNDS, spec.rounds) + 1) <= seconds:
            break
    note = f"the grid was thinned {halvings} times to fit into {spec.max_seconds:.0f} s" if halvings else None
    return calls, note


def all_calls(spec: CampaignSpec, border: int | None, halvings: int, draws: int = 1) -> tuple[Call, ...]:
    """Extra calls, grid, made-up steps and calls without rows, without repeats."""
    grid = grid_calls(spec.shape, border, halvings)
    made_up = zipf_calls(spec.shape, border, spec.seed, halvings, draws)
    return tuple(dict.fromkeys((*spec.extra_calls, *grid, *made_up, *idle_calls(border))))


def essential_calls(calls: tuple[Call, ...], border: int | None) -> frozenset[int]:
    """Indices of the cheapest calls that a fit and its error need in every regime, whatever they cost."""
    essential: set[int] = set()
    for least, most in regime_ranges(border):
        for role, count in ESSENTIAL.items():
            inside = [
                index
                for index, call in enumerate(calls)
                if call.role is role and least <= call.tokens and (most is None or call.tokens <= most)
            ]
            essential.update(sorted(inside, key=lambda index: sum(calls[index].rows))[:count])
    return frozenset(essential)


def round_seconds(calls: tuple[Call, ...], prices: tuple[RegimePrice, ...]) -> float:
    """Rough seconds of timing every call once."""
    total_us = 0.0
    for call in calls:
        price = next(p for p in prices if p.max_tokens is None or call.tokens <= p.max_tokens)
        total_us += len(call.rows) * price.expert_us + sum(call.rows) * price.row_us
    return total_us / 1e6


def _cheapest(rows: tuple[int, ...], least: int, top_k: int) -> Call:
    return Call(rows, max(least, least_tokens(rows, top_k)), Role.GRID, "price")
