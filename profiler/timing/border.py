"""Where a kernel changes its algorithm: the token count of a call up to which the first one runs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import least_tokens

CONTRAST = 1.3
"""Least ratio of two times, at the same rows, that tells two algorithms apart (RAWINT4 shows 2 to 3)."""


@dataclass(frozen=True)
class Border:
    """``tokens`` is the last count of the first regime, None where there is one regime; ``how`` says why."""

    tokens: int | None
    how: str


def probe_rows(shape: ExpertShape, hint: int) -> tuple[int, ...]:
    """Rows to look for a border with: up to four experts with up to eight rows that fit ``hint`` tokens."""
    count = min(4, shape.experts)
    fitting = [m for m in range(1, 9) if least_tokens((m,) * count, shape.top_k) <= hint]
    return (max(fitting, default=1),) * count


def probe_border(time_us: Callable[[int], float], hint: int, least: int, most: int) -> Border:
    """Find the border by timing the same rows in calls of different token counts.

    Parameters
    ----------
    time_us
        Time of fixed rows in a call of so many tokens.
    hint
        Where to look first: a border after this count.
    least, most
        Smallest and largest call to try.

    The hint is confirmed by its two sides; otherwise the ends are compared and, if they differ by
    `CONTRAST`, bisected. Slow growth with the tokens shifts a bisection by nothing as long as each side
    stays nearer, in ratio, to its own end.
    """
    if least <= hint < most:
        below, above = time_us(hint), time_us(hint + 1)
        if _differ(below, above):
            return Border(hint, f"probed: {below:.0f} us at {hint} tokens, {above:.0f} us at {hint + 1}")
    low, high = least, most
    low_us, high_us = time_us(low), time_us(high)
    if not _differ(low_us, high_us):
        return Border(None, f"probed: no change of algorithm between {least} and {most} tokens")
    first_us, last_us = low_us, high_us
    while high - low > 1:
        middle = (low + high) // 2
        found = time_us(middle)
        if abs(math.log(found / first_us)) < abs(math.log(found / last_us)):
            low, low_us = middle, found
        else:
            high, high_us = middle, found
    elsewhere = "" if low == hint else f" (not at {hint})"
    return Border(low, f"bisected: {low_us:.0f} us at {low} tokens, {high_us:.0f} us at {high}{elsewhere}")


def _differ(first_us: float, second_us: float) -> bool:
    return max(first_us, second_us) >= CONTRAST * min(first_us, second_us)
