"""Which calls a campaign times: a grid to fit on, and steps held out to choose and judge the fit."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.steps import Steps
from placer.profiler.timing.call import Call, Role, least_tokens

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 48, 64)
"""Rows per expert."""
ACTIVE, ACTIVE_HEAVY, HEAVY_FROM = 8, 4, 20
"""Active experts of those calls: enough to average over experts; fewer from `HEAVY_FROM` rows on, which cost
most of a campaign's time and vary least."""
ACTIVE_COUNTS = (1, 2, 4, 16, 32, 64)
"""Active experts, each timed at few rows: many threads gain less when few experts are active."""
HEAVY_ROWS = (128, 256)
"""Rows of a prefill chunk's experts, timed with two experts; only where a call may hold so many tokens."""
MOST_TOKENS = 1024
"""Tokens of the largest call, a prefill chunk whose rows are mostly another side's."""
MIXES = (
    (16, 1, 1, 1, 1, 1, 1, 1),
    (32, 1, 1, 1),
    (8, 8) + (1,) * 14,
    (16, 8, 4, 2, 1, 1, 1, 1),
    (5, 4, 3, 3, 2, 2) + (1,) * 10,
)
"""Skewed rows: one expert may hold a whole call back when threads are many."""
ZIPF_EXPONENTS = (0.0, 0.7, 1.2)
"""Skew of the popularity of experts in made-up steps: none, moderate, strong."""
HELDOUT_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Concurrencies of made-up decode steps below a border, or where there is none."""
HELDOUT_TOKENS_BEYOND = (1.1, 1.25, 1.5, 2.0, 3.0)
"""The same above a border, as multiples of it."""
CHEAP_TOKENS = 16
"""Up to so many tokens every skew is timed with all experts; beyond, one skew whole and the others halved."""
DECODE_TOKENS = 8
"""Running requests of a typical decode call."""
LARGEST_TRACE_TOKENS = 512
"""Steps of a trace with more tokens take seconds each on a CPU, and are left out of timing."""


def regime_ranges(border: int | None) -> tuple[tuple[int, int | None], ...]:
    """(least, most) tokens of a call in each regime; ``border`` is the last token count of the first."""
    return ((1, None),) if border is None else ((1, border), (border + 1, None))


def grid_calls(shape: ExpertShape, border: int | None, halvings: int = 0) -> tuple[Call, ...]:
    """The calls that fit the coefficients of every regime, without repeats.

    Each of ``halvings`` halves the active experts of the expensive calls, and leaves their rows as they are.
    """
    calls: list[Call] = []
    for least, most in regime_ranges(border):
        for rows, source in _grid_rows(shape, halvings):
            tokens = max(least, least_tokens(rows, shape.top_k))
            if most is None or tokens <= most:
                calls.append(Call(rows, tokens, Role.GRID, source))
        few = (1,) * min(4, shape.experts)
        base = max(least, least_tokens(few, shape.top_k))
        # The same few rows in ever larger calls: what a token costs by itself.
        for tokens in _token_counts(base, most):
            calls.append(Call(few, tokens, Role.GRID, "tokens"))
    return tuple(dict.fromkeys(calls))


def idle_calls(border: int | None) -> tuple[Call, ...]:
    """Calls without any row, of several token counts in every regime."""
    return tuple(
        Call((), tokens, Role.IDLE, "idle")
        for least, most in regime_ranges(border)
        for tokens in dict.fromkeys(_token_counts(least, most))
    )


def _grid_rows(shape: ExpertShape, halvings: int) -> Iterator[tuple[tuple[int, ...], str]]:
    E = shape.experts
    for m in ROWS:
        active = ACTIVE if m < HEAVY_FROM else ACTIVE_HEAVY
        yield (m,) * min(max(1, active >> halvings), E), "rows"
    for m in (1, 4):
        for count in ACTIVE_COUNTS:
            if count <= min(E, ACTIVE_COUNTS[-1] >> halvings):
                yield (m,) * count, "active"
    for m in HEAVY_ROWS:
        yield (m,) * min(max(1, 2 >> halvings), E), "rows"
    for mix in MIXES:
        if len(mix) <= E:
            yield mix, "mix"


def _token_counts(base: int, most: int | None) -> Iterable[int]:
    if most is None:
        return (base, 2 * base, 4 * base, MOST_TOKENS) if base > 16 else (base, 16, 64, 256, MOST_TOKENS)
    return (base, max(base, most // 2), most)


def zipf_calls(
    shape: ExpertShape, border: int | None, seed: int, halvings: int = 0, draws: int = 1
) -> tuple[Call, ...]:
    """Made-up steps, held out: every concurrency and skew, many without the more popular half of the experts.

    A token draws k distinct experts with probabilities proportional to 1/rank^s. Taking the most popular
    half away is what a placement does to the CPU's side. Each of ``halvings`` halves the largest calls;
    ``draws`` says how often every step is drawn.
    """
    generator = np.random.default_rng(seed)
    calls = []
    for least, most in regime_ranges(border) * draws:
        counts = _heldout_tokens(least, most, halvings)
        cheap_tokens = CHEAP_TOKENS >> halvings
        for index, tokens in enumerate(counts):
            for turn, exponent in enumerate(ZIPF_EXPONENTS):
                popularity = np.arange(1, shape.experts + 1) ** -exponent
                rows = _zipf_rows(popularity, tokens, shape.top_k, generator)
                in_turn = (index + turn) % len(ZIPF_EXPONENTS) == 0
                if tokens <= cheap_tokens or in_turn:
                    calls.append(_heldout(rows, tokens, "zipf"))
                if (tokens <= cheap_tokens) == in_turn:
                    calls.append(_heldout(rows[shape.experts // 2 :], tokens, "zipf"))
    return tuple(dict.fromkeys(call for call in calls if call.rows))


def _heldout_tokens(least: int, most: int | None, halvings: int) -> tuple[int, ...]:
    if least > 1:
        factors = HELDOUT_TOKENS_BEYOND[: len(HELDOUT_TOKENS_BEYOND) - halvings]
        return tuple(int(np.ceil((least - 1) * factor)) for factor in factors)
    largest = HELDOUT_TOKENS[-1] >> halvings if most is None else most
    return tuple(tokens for tokens in HELDOUT_TOKENS if tokens <= largest)


def _zipf_rows(
    popularity: NDArray[np.floating], tokens: int, top_k: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    # Gumbel noise on log-probabilities: the k largest are a draw without replacement.
    keys = np.log(popularity) + generator.gumbel(size=(tokens, len(popularity)))
    chosen = np.argpartition(-keys, top_k - 1, axis=1)[:, :top_k]
    return np.bincount(chosen.ravel(), minlength=len(popularity))


def trace_calls(shape: ExpertShape, steps: Steps, seed: int, limit: int = 16) -> tuple[Call, ...]:
    """Up to ``limit`` layer-steps of a trace, held out: half whole, half without the layer's busiest experts.

    ``steps.rows`` is int [S, L, E]. Steps with more than `LARGEST_TRACE_TOKENS` tokens are passed over.

    Raises
    ------
    BadInputError
        When the trace's experts or rows cannot come from layers of ``shape``.
    """
    _, L, E = steps.rows.shape
    if shape.experts != E:
        raise BadInputError(
            f"the trace has {E} experts per layer and the model {shape.experts}", "use a trace of this model"
        )
    usable = np.flatnonzero(steps.tokens <= LARGEST_TRACE_TOKENS)
    generator = np.random.default_rng(seed)
    busiest_first = np.argsort(-steps.rows.sum(axis=0), axis=1, kind="stable")
    calls = []
    for draw in range(limit if len(usable) else 0):
        step, layer = int(generator.choice(usable)), int(generator.integers(L))
        rows = steps.rows[step, layer].astype(np.int64)
        tokens = int(steps.tokens[step])
        if least_tokens(tuple(rows.tolist()), shape.top_k) > tokens:
            raise BadInputError(
                f"step {step} of the trace sends {int(rows.sum())} rows from {tokens} tokens "
                f"in layer {layer}, more than top-{shape.top_k} allows",
                "use a trace of this model",
            )
        if draw % 2:
            rows = rows[busiest_first[layer, E // 2 :]]
        calls.append(_heldout(rows, tokens, "trace"))
    return tuple(dict.fromkeys(call for call in calls if call.rows))


def decode_call(shape: ExpertShape, of_trace: tuple[Call, ...], seed: int) -> Call:
    """A typical decode call: the median of the trace's calls by active experts, or a made-up one.

    The made-up one is `DECODE_TOKENS` tokens over moderately skewed experts.
    """
    if of_trace:
        return sorted(of_trace, key=lambda call: len(call.rows))[len(of_trace) // 2]
    popularity = np.arange(1, shape.experts + 1) ** -ZIPF_EXPONENTS[1]
    rows = _zipf_rows(popularity, DECODE_TOKENS, shape.top_k, np.random.default_rng(seed))
    return _heldout(rows, DECODE_TOKENS, "zipf")


def _heldout(rows: NDArray[np.int64], tokens: int, source: str) -> Call:
    heaviest_first = np.sort(rows[rows > 0])[::-1]
    return Call(tuple(heaviest_first.tolist()), tokens, Role.HELDOUT, source)
