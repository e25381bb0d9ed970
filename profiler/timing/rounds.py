"""Rounds of a campaign: every call once per round in random order, within the time there is."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from placer.errors import BadInputError
from placer.profiler.timing.call import Call
from placer.profiler.timing.processor_time import ProcessorTime, processor_time
from placer.profiler.timing.quiet import anchor_movement, undisturbed

ANCHOR_REPEATS = 8
"""Samples of the anchor call in each round."""
OVERRUN, LEAST_ROUNDS = 1.15, 3
"""When other programs slow the rounds beyond their price, even the least rounds give way at this multiple of
the time; with so few rounds no quartile would be left."""
EXTENSION = 2
"""On a machine that is not quiet, or was not in some rounds, rounds may grow by this factor while time is left."""


@dataclass
class Tally:
    """What rounds have produced so far.

    Attributes
    ----------
    kept
        Indices of the calls that are timed; the others were too expensive for the time there was.
    times_us
        One list per round, in the order of ``kept``.
    anchor_us
        One list per round: repeated samples of the anchor call.
    used
        Processor time of every round.
    notes
        One sentence for every call or round that gave way.
    """

    kept: tuple[int, ...]
    times_us: list[list[float]] = field(default_factory=list)
    anchor_us: list[list[float]] = field(default_factory=list)
    used: list[ProcessorTime] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_rounds(
    calls: tuple[Call, ...],
    time_us: Callable[[Call], float],
    *,
    deadline: float,
    rounds: int,
    min_rounds: int,
    essential: frozenset[int] = frozenset(),
    earlier: Tally | None = None,
    generator: np.random.Generator,
    on_round: Callable[[Tally], None],
    on_progress: Callable[[int, int], None],
    now: Callable[[], float] = time.monotonic,
) -> Tally:
    """Time ``calls`` until ``rounds`` rounds are done or ``deadline`` (on the clock ``now``) is near.

    A first round is discarded as a sample (first-call allocations) and used as a price list: it visits the
    calls from the cheapest on, and calls that would not fit into ``min_rounds`` rounds before the deadline
    are dropped, the most expensive first, but none of the indices in ``essential``. Rounds of an ``earlier``
    run count, and its calls are kept; they are visited once before the first new round.

    Raises
    ------
    BadInputError
        When not even the cheapest call fits.
    """
    started = now()
    if earlier is None:
        tally = Tally(kept=_affordable(calls, time_us, deadline - now(), min_rounds, essential, now))
    else:
        tally = earlier
        for index in tally.kept:
            time_us(calls[index])
    dropped = len(calls) - len(tally.kept)
    if dropped:
        tally.notes.append(f"{dropped} of {len(calls)} calls cost too much for the time and were left out")
    if not tally.kept:
        raise BadInputError(
            f"no call fits into the time with {min_rounds} rounds of it", "give the profile more seconds"
        )
    anchor = _anchor(calls, tally.kept)
    total = len(tally.kept) + ANCHOR_REPEATS
    last_round_s = 0.0
    while True:
        done = len(tally.times_us)
        enough = done >= EXTENSION * rounds or (done >= rounds and _calm(tally, rounds))
        late = now() + last_round_s > deadline
        far_over = now() > started + OVERRUN * (deadline - started)
        if enough or (late and done >= min_rounds) or (far_over and done >= LEAST_ROUNDS):
            break
        began, used = now(), processor_time()
        times = dict.fromkeys(tally.kept, 0.0)
        anchors: list[float] = []
        # -1 stands for the anchor, spread over the round so that it sees what the calls see.
        order = generator.permutation(np.array(tally.kept + (-1,) * ANCHOR_REPEATS))
        for position, index in enumerate(order.tolist()):
            if index < 0:
                anchors.append(time_us(anchor))
            else:
                times[index] = time_us(calls[index])
            timed = done * total + position + 1
            time_share = (now() - started) / (deadline - started) if deadline > started else 1.0
            planned = max(rounds, done + 1) * total
            on_progress(timed, calls_in_all(timed, planned, min_rounds * total, time_share))
        tally.times_us.append([times[index] for index in tally.kept])
        tally.anchor_us.append(anchors)
        tally.used.append(processor_time().since(used))
        last_round_s = now() - began
        on_round(tally)
    if len(tally.times_us) < rounds:
        tally.notes.append(f"{len(tally.times_us)} rounds instead of {rounds} fitted into the time")
    elif len(tally.times_us) > rounds:
        tally.notes.append(f"{len(tally.times_us)} rounds instead of {rounds}: the machine was not quiet")
    return tally


def calls_in_all(timed: int, planned: int, least: int, time_share: float) -> int:
    """Calls of a run that ends once ``planned`` are timed, or once its time is over and ``least`` of them are.

    ``timed`` of them took ``time_share`` of the time. So the share that is done follows what will end the run.
    """
    by_time = planned if time_share <= 0.0 else math.ceil(timed / time_share)
    return max(timed, least, min(planned, by_time))


def _affordable(
    calls: tuple[Call, ...],
    time_us: Callable[[Call], float],
    seconds: float,
    min_rounds: int,
    essential: frozenset[int],
    now: Callable[[], float],
) -> tuple[int, ...]:
    cheapest_first = sorted(
        range(len(calls)), key=lambda i: (i not in essential, sum(calls[i].rows), calls[i].tokens)
    )
    started = now()
    prices_s: dict[int, float] = {}
    for index in cheapest_first:
        before = now()
        time_us(calls[index])
        prices_s[index] = now() - before
        # This round counts too.
        if (now() - started) * (min_rounds + 1) > seconds and essential <= prices_s.keys():
            break
    left = seconds - (now() - started)
    affordable = set(essential)
    spent = sum(prices_s[index] for index in essential) * min_rounds
    for index in sorted(prices_s.keys() - essential, key=lambda index: prices_s[index]):
        spent += prices_s[index] * min_rounds
        if spent > left:
            break
        affordable.add(index)
    return tuple(sorted(affordable))


def _calm(tally: Tally, rounds: int) -> bool:
    """Whether enough rounds were undisturbed, and the anchor did not move in them."""
    used = undisturbed(tally.used)
    return len(used) >= rounds and anchor_movement([tally.anchor_us[index] for index in used]).quiet


def _anchor(calls: tuple[Call, ...], kept: tuple[int, ...]) -> Call:
    """A middling call: the lower median of the kept ones by rows."""
    working = [index for index in kept if calls[index].rows] or list(kept)
    by_rows = sorted(working, key=lambda index: sum(calls[index].rows))
    return calls[by_rows[(len(by_rows) - 1) // 2]]
