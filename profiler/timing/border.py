"""Where a kernel changes its algorithm: the token count of a call up to which the first one runs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from placer.kernels.expert_shape import ExpertShape
from placer.profiler.timing.call import least_tokens
from placer.units import duration

CONTRAST = 1.3
"""Least ratio of two times, at the same rows, that tells two algorithms apart (RAWINT4 shows 2 to 3)."""
SAMPLES, MORE_SAMPLES = 9, 27
"""Samples of each token count, taken in turns; more of them before a hint is given up."""


@dataclass(frozen=True)
class Border:
    """``tokens`` is the last count of the first regime, None where there is one regime; ``how`` says why.

    ``contrast`` is the ratio of the longer to the shorter of the times just below and just above it, at the
    same rows: how sure the border is. `CONTRAST` is the least that counts as clear; None without a border.
    """

    tokens: int | None
    how: str
    contrast: float | None = None


def probe_rows(shape: ExpertShape, hint: int) -> tuple[int, ...]:
    """Rows to look for a border with: up to four experts with up to eight rows that fit ``hint`` tokens."""
    count = min(4, shape.experts)
    fitting = [m for m in range(1, 9) if least_tokens((m,) * count, shape.top_k) <= hint]
    return (max(fitting, default=1),) * count


def probe_border(sample_us: Callable[[int], float], hint: int, least: int, most: int) -> Border:
    """Find the border by timing the same rows in calls of different token counts.

    Parameters
    ----------
    sample_us
        One sample of the time of fixed rows in a call of so many tokens.
    hint
        Where to look first: a border after this count, as the kernel's source says.
    least, most
        Smallest and largest call to try.

    The hint is confirmed by its two sides, timed in turns so that a slower spell hits both. Otherwise the
    ends are compared and, if they differ by `CONTRAST`, bisected (slow growth with the tokens shifts a
    bisection by nothing as long as each side stays nearer, in ratio, to its own end). Noise can bisect to
    anywhere and hide any border, so the hint, what was found and the ends are then timed again, side by side
    and with more samples. The hint is kept unless it shows no jump, its samples agree with each other, and
    either the other does show one or the ends are alike.
    """
    known = least <= hint < most
    if known:
        (below, above), _ = _quartiles(sample_us, (hint, hint + 1), SAMPLES)
        if _ratio(below, above) >= CONTRAST:
            return _border("probed", hint, below, above)
    (low_us, high_us), _ = _quartiles(sample_us, (least, most), SAMPLES)
    bisected = None
    if _ratio(low_us, high_us) >= CONTRAST:
        bisected = _bisect(sample_us, least, most)
    counts = [count for count in (hint if known else None, bisected) if count is not None]
    sides = [side for count in counts for side in (count, count + 1)]
    again, spread = _quartiles(sample_us, (*sides, least, most), MORE_SAMPLES)
    jumps = {
        count: (again[2 * index], again[2 * index + 1])
        for index, count in enumerate(counts)
        if _ratio(again[2 * index], again[2 * index + 1]) >= CONTRAST
    }
    if known and hint in jumps:
        return _border("probed again", hint, *jumps[hint])
    if bisected in jumps and (spread < CONTRAST or not known):
        return _border("bisected", bisected, *jumps[bisected], f" (not at {hint})")
    if known and (spread >= CONTRAST or _ratio(again[-2], again[-1]) >= CONTRAST):
        how = "not sure: no clear jump was found, the border of the kernel's source was taken"
        return _border(how, hint, again[0], again[1])
    return Border(None, f"probed: no change of algorithm between {least} and {most} tokens")


def _border(how: str, tokens: int, below_us: float, above_us: float, remark: str = "") -> Border:
    seen = f"{duration(below_us, 3)} at {tokens} tokens, {duration(above_us, 3)} at {tokens + 1}"
    return Border(tokens, f"{how}: {seen}{remark}", _ratio(below_us, above_us))


def _bisect(sample_us: Callable[[int], float], least: int, most: int) -> int:
    low, high = least, most
    while high - low > 1:
        middle = (low + high) // 2
        # The ends are timed again beside the middle: the machine may have changed since.
        (first_us, found_us, last_us), _ = _quartiles(sample_us, (least, middle, most), SAMPLES)
        if abs(math.log(found_us / first_us)) < abs(math.log(found_us / last_us)):
            low = middle
        else:
            high = middle
    return low


def _quartiles(
    sample_us: Callable[[int], float], counts: tuple[int, ...], samples: int
) -> tuple[list[float], float]:
    """Lower quartile of every count's samples, taken in turns, and the largest ratio of median to it."""
    for count in dict.fromkeys(counts):
        sample_us(count)  # The first call of a size may allocate.
    rounds = [[sample_us(count) for count in counts] for _ in range(samples)]
    quartiles, medians = np.quantile(rounds, (0.25, 0.5), axis=0)
    return [float(us) for us in quartiles], float((medians / quartiles).max())


def _ratio(first_us: float, second_us: float) -> float:
    return max(first_us, second_us) / min(first_us, second_us)
