"""Whether a machine was quiet while calls were timed: three signs, each beyond what chance alone would show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placer.profiler.timing.processor_time import ProcessorTime

QUIET_MOVEMENT = 0.05
"""On a quiet machine the same call moves less than this from round to round, beyond its sampling error."""
FALSE_ALARM = 0.01
"""How often a machine whose samples do not depend on the round is said to move."""
SHUFFLES = 400
"""Random reassignments of samples to rounds; the movement they show is sampling error."""
QUIET_CORES = 0.25
"""Other programs that take more than this slow a campaign steadily, which no movement would show."""
QUIET_STOLEN_SHARE = 0.05
"""A host that withholds more than this of the processor time slows a campaign by as much."""
TICKS_S = 0.03
"""Processor time is counted in ticks of 10 ms: so much may be an error of counting."""
LEAST_UNDISTURBED = 9
"""Rounds that must be left when disturbed ones are dropped: fewer give no lower quartile."""


@dataclass(frozen=True)
class Movement:
    """How far the anchor call moved between rounds, as a share of its time.

    Attributes
    ----------
    seen
        (p90 - p10) / p50 over the rounds' lower quartiles.
    chance
        What `FALSE_ALARM` of random reassignments of the samples to rounds exceed.
    beyond_chance
        sqrt(seen² - mean square of the reassignments): the part that is no sampling error.
    """

    seen: float
    chance: float
    beyond_chance: float

    @property
    def quiet(self) -> bool:
        """Whether this is no more than a quiet machine shows."""
        return self.seen <= self.chance or self.beyond_chance <= QUIET_MOVEMENT


def undisturbed(used: Sequence[ProcessorTime]) -> tuple[int, ...]:
    """Indices of the rounds to use: those in which neither other programs nor the host took much time.

    What is dropped is told by the processor time of others, never by the samples themselves, so nothing is
    chosen for being fast. All rounds where fewer than `LEAST_UNDISTURBED` would be left: a machine that is
    busy throughout is measured as it is, and `quiet_warning` says so.
    """
    calm = tuple(index for index, round_used in enumerate(used) if not _disturbed(round_used))
    return calm if len(calm) >= LEAST_UNDISTURBED else tuple(range(len(used)))


def _disturbed(used: ProcessorTime) -> bool:
    return (
        used.others_s > QUIET_CORES * used.wall_s + TICKS_S
        or used.stolen_s > QUIET_STOLEN_SHARE * (used.own_s + used.stolen_s) + TICKS_S
    )


def anchor_movement(anchor_us: ArrayLike) -> Movement:
    """Movement of samples float [rounds, repeats] of one call.

    A permutation test: the lower quartile of a few samples moves by itself, and by how much is read off the
    samples, dealt to the rounds at random.
    """
    samples = np.asarray(anchor_us, dtype=np.float64)
    # One seed: the same samples always give the same verdict.
    shuffled = np.random.default_rng(0).permuted(np.tile(samples.ravel(), (SHUFFLES, 1)), axis=1)
    by_chance = _spread(shuffled.reshape(SHUFFLES, *samples.shape))
    seen = float(_spread(samples))
    return Movement(
        seen=seen,
        chance=float(np.quantile(by_chance, 1 - FALSE_ALARM)),
        beyond_chance=float(np.sqrt(max(0.0, seen**2 - float(np.mean(by_chance**2))))),
    )


def _spread(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """(p90 - p10) / p50 of the rounds' lower quartiles: float [...] from [..., rounds, repeats]."""
    low, middle, high = np.quantile(np.quantile(samples, 0.25, axis=-1), (0.1, 0.5, 0.9), axis=-1)
    return np.asarray((high - low) / middle)


def quiet_warning(movement: Movement, used: ProcessorTime) -> str | None:
    """A sentence that names every sign that the machine was not quiet, and the cure; None when there is none."""
    moved = [] if movement.quiet else [f"the same call moved by {movement.seen:.0%} from round to round"]
    return _warning(moved, used)


def busy_warning(used: ProcessorTime) -> str | None:
    """`quiet_warning` of what was not timed in rounds: by processor time alone."""
    return _warning([], used)


def _warning(moved: list[str], used: ProcessorTime) -> str | None:
    signs, cures = list(moved), []
    if used.other_cores > QUIET_CORES:
        signs.append(f"other programs kept {used.other_cores:.1f} cores busy")
        cures.append("close them")
    if used.stolen_share > QUIET_STOLEN_SHARE:
        signs.append(f"the host withheld {used.stolen_share:.0%} of the processor time")
        cures.append("wait until the host is less busy")
    if not signs:
        return None
    cure = (
        f"{', '.join(cures)}, then repeat"
        if cures
        else "nothing else ran here, so look at clocks or at the host"
    )
    return f"the machine was not quiet: {' and '.join(signs)}; {cure}"
