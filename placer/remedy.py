"""Single changes that make an infeasible server fit, each the smallest of its kind that the ledger grants."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from placer.demand import MemoryDemand
from placer.errors import BadInputError
from placer.kv_pool import sglang_page_tokens
from placer.model.spec import ModelSpec
from placer.units import GIB, enough_gib

_MAX_GPUS = 64
_CHUNK_STEP = 64
"""Chunks are advised in this many tokens, or in whole pages where those are larger."""


@dataclass(frozen=True)
class Remedy:
    """One change.

    Attributes
    ----------
    kind
        Which of `KINDS`.
    value
        What the setting becomes.
    advice
        The change in words, with its flag and the value as it is typed.
    demand
        The server after the change, which fits.
    """

    kind: str
    value: int | str
    advice: str
    demand: MemoryDemand


KINDS = (
    "kv_tokens",
    "request_tokens",
    "kv_dtype",
    "hot_per_layer",
    "running",
    "chunk_tokens",
    "tp",
    "ep",
    "pp",
    "budget_bytes",
)
"""Kinds of change, in the order they are told: what costs a service least comes first."""


def remedies(demand: MemoryDemand, flags: Mapping[str, str]) -> tuple[Remedy, ...]:
    """Every kind of single change that makes ``demand`` fit, the smallest of each kind.

    ``flags`` names the flag of every kind that the caller's user can change (for the two lengths of a request, both);
    other kinds are left out. Each
    change is found by evaluating the ledger (bisection where it is ordered), so the next smaller one does
    not fit. Empty when ``demand`` fits.
    """
    if demand.fits:
        return ()
    found = (remedy for kind in KINDS if kind in flags for remedy in _SEARCHES[kind](demand, flags[kind]))
    return tuple(found)


def largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number in low..high that ``fits``, which holds up to some number and not beyond; or None."""
    if low > high or not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _kv_tokens(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    # More than the running requests can fill is of use all the same: the pool keeps prefixes for later ones.
    tokens = largest(
        max(1, demand.running * demand.request_tokens),
        demand.min_kv_tokens - 1,
        lambda tokens: replace(demand, min_kv_tokens=tokens).fits,
    )
    if tokens is not None:
        changed = replace(demand, min_kv_tokens=tokens)
        yield Remedy("kv_tokens", tokens, f"{flag} of at most {tokens}", changed)


def _request_tokens(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    # The shortest request is one prompt token and the two output tokens that TPOT needs.
    tokens = largest(3, demand.request_tokens - 1, lambda tokens: replace(demand, request_tokens=tokens).fits)
    if tokens is not None:
        changed = replace(demand, request_tokens=tokens)
        yield Remedy("request_tokens", tokens, f"{flag} of at most {tokens} together", changed)


def _kv_dtype(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    changed = replace(demand, kv_dtype="fp8")
    if demand.kv_dtype != "fp8" and changed.fits:
        yield Remedy("kv_dtype", "fp8", f"{flag} fp8", changed)


def _hot_per_layer(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    count = largest(0, demand.hot_per_layer - 1, lambda count: replace(demand, hot_per_layer=count).fits)
    if count is not None:
        changed = replace(demand, hot_per_layer=count)
        yield Remedy("hot_per_layer", count, f"{flag} of at most {count} per layer", changed)


def _running(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    running = largest(1, demand.running - 1, lambda running: replace(demand, running=running).fits)
    if running is not None:
        yield Remedy("running", running, f"{flag} of at most {running}", replace(demand, running=running))


def chunk_step(model: ModelSpec) -> int:
    """Multiples that chunks are advised in."""
    return max(_CHUNK_STEP, sglang_page_tokens(model))


def _chunk_tokens(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    # kt-kernel refuses a decode step larger than the chunk.
    step = chunk_step(demand.model)
    low = -(-max(demand.running, 1) // step)
    # No prompt is longer than the context.
    high = max(low, demand.model.max_context_tokens // step)
    steps = largest(
        low,
        min(high, (demand.chunk_tokens - 1) // step),
        lambda steps: replace(demand, chunk_tokens=steps * step).fits,
    )
    if steps is not None:
        chunk = steps * step
        yield Remedy("chunk_tokens", chunk, f"{flag} of at most {chunk}", replace(demand, chunk_tokens=chunk))


def _tp(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    parallel = demand.parallel
    for tp in range(parallel.tp + 1, _MAX_GPUS // parallel.pp + 1):
        if (changed := _spread(demand, tp=tp)) is not None:
            gpus = changed.parallel.gpus
            yield Remedy("tp", tp, f"{flag} {tp} ({gpus} GPUs)", changed)
            return


def _ep(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    """More GPUs that share out whole experts, each cut no finer than now; only where all experts are hot."""
    parallel = demand.parallel
    if demand.hot_per_layer < demand.model.experts:
        return
    for ep in range(parallel.ep + 1, _MAX_GPUS // parallel.expert_tp + 1):
        tp = parallel.expert_tp * ep
        if (changed := _spread(demand, tp=tp, ep=ep)) is not None:
            yield Remedy("ep", ep, f"{flag} {ep} --tp {tp} ({changed.parallel.gpus} GPUs)", changed)
            return


def _pp(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    """More pipeline stages; only where all experts are hot, as no runtime is known to split them with pp."""
    parallel = demand.parallel
    if demand.hot_per_layer < demand.model.experts:
        return
    for pp in range(parallel.pp + 1, _MAX_GPUS // parallel.tp + 1):
        if (changed := _spread(demand, pp=pp)) is not None:
            yield Remedy("pp", pp, f"{flag} {pp} ({changed.parallel.gpus} GPUs)", changed)
            return


def _spread(demand: MemoryDemand, **sizes: int) -> MemoryDemand | None:
    """The demand at other sizes if the model can be spread so and fits, else None."""
    try:
        wider = replace(demand.parallel, **sizes)
        changed = replace(demand, parallel=wider)
        return changed if wider.problem(demand.model) is None and changed.fits else None
    except BadInputError:
        # This many GPUs do not divide the model's heads, or the groups among them.
        return None


def _budget_bytes(demand: MemoryDemand, flag: str) -> Iterator[Remedy]:
    needed = demand.ledger().needed_bytes
    size = enough_gib(needed)
    whole = demand.device_bytes
    if whole is not None and needed > whole:
        advice = f"a GPU with {size:,.2f} GiB usable"
    elif whole is not None and size * GIB > whole:
        advice = f"{flag} 100%"
    else:
        advice = f"{flag} of at least {size:.2f}GiB"
    yield Remedy("budget_bytes", needed, advice, replace(demand, budget_bytes=needed))


_SEARCHES: dict[str, Callable[[MemoryDemand, str], Iterator[Remedy]]] = {
    "kv_tokens": _kv_tokens,
    "request_tokens": _request_tokens,
    "kv_dtype": _kv_dtype,
    "hot_per_layer": _hot_per_layer,
    "running": _running,
    "chunk_tokens": _chunk_tokens,
    "tp": _tp,
    "ep": _ep,
    "pp": _pp,
    "budget_bytes": _budget_bytes,
}
