"""What would meet latency targets that nothing met: single changes of the request, each of them tried."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from placer.level import MOST_RUNNING, chunk_grid
from placer.objective import Objective
from placer.prediction import Prediction
from placer.remedy import largest
from placer.solve_request import SolveRequest
from placer.targets import Reached, duration_beside, relaxed
from placer.units import GIB, parse_size, rounded_down
from placer.workload import LEAST_RATE, Workload

Check = Callable[[SolveRequest], Prediction | None]
"""Figures of a plan that serves a request, or None where none is found."""
_LEAST_CHUNK = 64
_RATE_HALVINGS = 7
_BUDGET_HALVINGS = 5
_MOST_TIMES = 8
"""More requests at a time that are tried, as a multiple of those asked for."""
_NEIGHBOURS = 2
"""Larger numbers of clients that are tried beyond the one found: latencies need not grow with every client."""


@dataclass(frozen=True)
class _Change:
    """A change in words, and what it reaches; ``figures`` None where it does not meet the targets."""

    text: str
    figures: Prediction | None


def target_advice(
    request: SolveRequest,
    reached: Sequence[Reached],
    check: Check,
    progress: Callable[[str], None],
    *,
    out_of_reach: str | None = None,
) -> str:
    """Every kind of single change that meets the targets, with what it reaches; and the kinds that do not.

    Each change is tried by ``check``, the smallest of its kind first found by bisection, for as long together as the
    solver's time limit. Where targets are ``out_of_reach`` of any change (`below_floor`), that is said and none is
    tried.
    """
    # Goodput asks for a single request that keeps them; who changes something for that wants most of them to.
    request = replace(request, objective=Objective.THROUGHPUT)
    until = time.monotonic() + request.time_limit_s
    met = [text for text in (relaxed(request.workload, reached),) if text]
    if out_of_reach is not None:
        only = f"; {'nothing' if not met else 'nothing else'} helps on this hardware: out of reach of any plan is "
        return "".join(met or ["ask for what the server can reach"]) + only + out_of_reach
    in_vain: list[str] = []
    untried: list[str] = []
    for kind, changes in _kinds(reached).items():
        if time.monotonic() > until:
            untried.append(kind)
            continue
        progress(f"looking for what would meet the targets: {kind}")

        def within(changed: SolveRequest) -> Prediction | None:
            return check(changed) if time.monotonic() <= until else None

        for change in changes(request, within):
            if change.figures is None:
                in_vain.append(change.text)
            else:
                met.append(f"{change.text} ({_figures_text(change.figures, request.workload)})")
    said = ("any one of these meets the targets, each tried: " if len(met) > 1 else "") + "; ".join(met)
    if not met:
        said = "ask for what the server can reach: no single change that was tried meets the targets"
    if in_vain:
        said += ". Tried in vain: " + ", ".join(in_vain)
    if untried:
        said += f". Not tried within --time-limit: {', '.join(untried)}"
    return said


def _clients(request: SolveRequest, check: Check) -> Iterator[_Change]:
    clients = request.workload.concurrency
    if request.workload.is_open_loop or clients < 2:
        return

    def fewer(count: int) -> SolveRequest:
        most = None if request.max_running is None else min(request.max_running, count)
        return replace(request, workload=replace(request.workload, concurrency=count), max_running=most)

    def text(count: int) -> str:
        # A command that asks for more running requests than clients is refused.
        lowered = request.max_running is not None and count < request.max_running
        return f"--concurrency {count}" + (f" --max-running {count}" if lowered else "")

    found: dict[int, Prediction] = {}

    def serves(count: int) -> bool:
        figures = check(fewer(count))
        if figures is not None:
            found[count] = figures
        return figures is not None

    # One client must do before any other number is tried; then the largest that does.
    count = largest(1, clients - 1, serves)
    if count is None:
        yield _Change(text(1), None)
        return
    for larger in range(count + 1, min(count + _NEIGHBOURS, clients - 1) + 1):
        if serves(larger):
            count = larger
    yield _Change(text(count), found[count])


def _places(request: SolveRequest, check: Check) -> Iterator[_Change]:
    """Twice as many requests of an open loop at a time, and twice that, until it does."""
    if not request.workload.is_open_loop or request.max_running is not None:
        return
    change, most = None, 2 * request.workload.concurrency
    while most <= min(MOST_RUNNING, _MOST_TIMES * request.workload.concurrency) and (
        change is None or change.figures is None
    ):
        wider = replace(request.workload, concurrency=most)
        change = _Change(f"--concurrency {most}", check(replace(request, workload=wider)))
        most *= 2
    if change is not None:
        yield change


def _rate(request: SolveRequest, check: Check, *, capacity_per_s: float) -> Iterator[_Change]:
    """The highest rate that holds, by bisection, rounded down; every rate is tried as it is told.

    Between nothing and what the fastest server finishes: beyond that every server is full.
    """
    rate = request.workload.rate_per_s
    if rate is None:
        return
    low, high = 0.0, min(rate, capacity_per_s)
    best = None
    for _ in range(_RATE_HALVINGS):
        middle = (low + high) / 2
        tried = rounded_down(middle, 2)
        if tried <= low or tried < LEAST_RATE:
            break
        figures = check(replace(request, workload=replace(request.workload, rate_per_s=tried)))
        if figures is None:
            high = middle
            best = best or _Change(f"--rate {tried:g}", None)
        else:
            low, best = tried, _Change(f"--rate {tried:g}", figures)
    if best is not None:
        yield best if best.figures is not None else _Change(f"--rate {rounded_down(high, 2):g}", None)


def _running(request: SolveRequest, check: Check) -> Iterator[_Change]:
    if request.max_running is not None:
        yield _Change("--max-running auto", check(replace(request, max_running=None)))


def _budget(request: SolveRequest, check: Check) -> Iterator[_Change]:
    whole = request.device_bytes
    if whole is None or whole <= request.budget_bytes:
        return
    figures, text = check(replace(request, budget_bytes=whole)), "--hbm-budget 100%"
    if figures is None:
        yield _Change(text, None)
        return
    low, high = (size * 100 // GIB for size in (request.budget_bytes, whole))
    for _ in range(_BUDGET_HALVINGS):
        # What is tried is the size as it is told.
        middle = (low + high) // 2
        size = f"{middle / 100:g}GiB"
        found = check(replace(request, budget_bytes=parse_size(size))) if middle > low else None
        if found is None:
            low = middle
        else:
            high, figures, text = middle, found, f"--hbm-budget {size}"
    yield _Change(text, figures)


def _kv_dtype(request: SolveRequest, check: Check) -> Iterator[_Change]:
    if "fp8" not in request.kv_dtypes:
        yield _Change("--kv-dtype fp8", check(replace(request, kv_dtypes=("fp8",))))


def _chunk(request: SolveRequest, check: Check) -> Iterator[_Change]:
    if request.chunk_tokens is not None:
        yield _Change("--chunk auto", check(replace(request, chunk_tokens=None)))
    chunk = request.chunk_tokens or min(
        chunk_grid(request.workload.prompt_tokens, request.max_running or 1, request.scheduler)
    )
    change = None
    while change is None or change.figures is None:
        chunk //= 2
        if chunk < max(_LEAST_CHUNK, request.max_running or 1):
            break
        change = _Change(f"--chunk {chunk}", check(replace(request, chunk_tokens=chunk)))
    if change is not None:
        yield change


def _kinds(reached: Sequence[Reached]) -> dict[str, Callable[[SolveRequest, Check], Iterator[_Change]]]:
    """Kinds of change, in the order they are tried."""
    servings = [each.figures.serving for each in reached]
    capacities = [each.capacity_per_s for each in servings if each is not None and each.capacity_per_s]
    return {
        "FP8 KV": _kv_dtype,
        "running requests": _running,
        "fewer clients": _clients,
        "a lower rate": partial(_rate, capacity_per_s=max(capacities, default=math.inf)),
        "more requests at a time": _places,
        "a larger budget": _budget,
        "a smaller chunk": _chunk,
    }


def _figures_text(figures: Prediction, workload: Workload) -> str:
    tpot = duration_beside(figures.tpot_ms_p95, workload.slo_tpot_ms, 3)
    ttft_ms = figures.ttft_ms_p95
    ttft = "" if ttft_ms is None else f", TTFT {duration_beside(ttft_ms, workload.slo_ttft_ms, 3)}"
    return f"TPOT {tpot}{ttft} at p95"
