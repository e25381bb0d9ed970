"""Memory levels: the server settings worth trying, each with the HBM room it leaves for hot experts."""

from dataclasses import dataclass, replace

from placer.errors import BadInputError, InfeasibleError
from placer.hbm import HbmLedger, ServerSettings, expert_share_bytes, hbm_ledger
from placer.model.spec import ModelSpec
from placer.units import gib
from placer.workload import Workload

CHUNK_TOKENS = (512, 1024, 2048, 4096, 8192)
"""Prefill chunks worth trying; SGLang's own defaults are 2048, 4096 and 8192."""

_LOAD_ORDER = (
    "free_memory_loss",
    "attention",
    "router",
    "shared_experts",
    "dense",
    "embedding",
    "norms",
    "other",
    "cuda_graphs",
    "activations",
    "fragmentation",
    "runtime_staging",
    "request_state",
    "kv_pool",
)


@dataclass(frozen=True)
class Level:
    """One point of the grid: settings, the ledger without hot experts, and how many hot experts fit."""

    settings: ServerSettings
    ledger: HbmLedger
    room_experts: int


def running_grid(clients: int) -> tuple[int, ...]:
    """Numbers of running requests worth trying: powers of two below ``clients``, and ``clients``."""
    powers = [1 << exponent for exponent in range(clients.bit_length())]
    return tuple(sorted({power for power in powers if power < clients} | {clients}))


def chunk_grid(prompt_tokens: int, running: int) -> tuple[int, ...]:
    """Prefill chunks worth trying for a prompt: a chunk beyond the prompt only costs memory.

    Chunks below an eighth of the prompt are left out: they read every cold expert more than eight times. No
    chunk is smaller than the decode batch, which kt-kernel refuses.
    """
    covering = next((chunk for chunk in CHUNK_TOKENS if chunk >= prompt_tokens), CHUNK_TOKENS[-1])
    least = max(running, min(prompt_tokens / 8, covering))
    inside = [chunk for chunk in CHUNK_TOKENS if least <= chunk <= covering]
    larger = [chunk for chunk in CHUNK_TOKENS if chunk >= running]
    return tuple(inside or larger[:1] or [running])


def levels(
    model: ModelSpec,
    workload: Workload,
    *,
    tp: int,
    budget_bytes: int,
    max_running: int | None,
    min_kv_tokens: int,
    kv_dtypes: tuple[str, ...],
) -> tuple[Level, ...]:
    """Every level that fits the budget, in a fixed order.

    Raises
    ------
    BadInputError
        When the request cannot be served at any budget (longer than the model's context, tp impossible).
    InfeasibleError
        When no level fits: names the line that breaks the budget and the smallest budget that would do.
    """
    if problem := model.fp8_tp_problem(tp):
        raise BadInputError(problem, "choose a tensor-parallel size that keeps FP8 blocks whole")
    if workload.request_tokens > model.max_context_tokens:
        raise BadInputError(
            f"a request of {workload.request_tokens:,} tokens exceeds the model's context of "
            f"{model.max_context_tokens:,}",
            "lower --prompt-tokens or --output-tokens",
        )
    running = (max_running,) if max_running is not None else running_grid(workload.concurrency)
    tried = [
        _level(
            model,
            tp=tp,
            budget_bytes=budget_bytes,
            settings=ServerSettings(
                max_running_requests=requests,
                kv_tokens=max(min_kv_tokens, requests * workload.request_tokens),
                chunk_tokens=chunk,
                kv_dtype=dtype,
            ),
        )
        for dtype in kv_dtypes
        for requests in running
        for chunk in chunk_grid(workload.prompt_tokens, requests)
    ]
    fitting = tuple(level for level in tried if level.ledger.unused_bytes >= 0)
    if not fitting:
        raise _infeasible(model, workload, tried, tp=tp, min_kv_tokens=min_kv_tokens)
    return fitting


def _level(model: ModelSpec, *, tp: int, budget_bytes: int, settings: ServerSettings) -> Level:
    ledger = hbm_ledger(model, tp=tp, budget_bytes=budget_bytes, settings=settings, hot_experts=0)
    every = len(model.moe_layers) * model.experts
    room = max(0, ledger.unused_bytes) // expert_share_bytes(model, tp)
    return Level(settings, ledger, min(every, room))


def breaking_line(ledger: HbmLedger) -> str:
    """The ledger line at which the budget runs out when lines are filled in load order."""
    filled = 0
    for name in _LOAD_ORDER:
        filled += ledger.lines[name]
        if filled > ledger.budget_bytes:
            return name
    return "hot_experts"


def _infeasible(
    model: ModelSpec, workload: Workload, tried: list[Level], *, tp: int, min_kv_tokens: int
) -> InfeasibleError:
    closest = max(tried, key=lambda level: level.ledger.unused_bytes)
    short = -closest.ledger.unused_bytes
    settings = closest.settings
    line = breaking_line(closest.ledger)
    what = (
        f"does not fit: the budget of {gib(closest.ledger.budget_bytes)} per GPU breaks at line {line!r} "
        f"({gib(closest.ledger.lines[line])}), {gib(short)} short even with {settings.max_running_requests} "
        f"running request(s), chunk {settings.chunk_tokens} and {settings.kv_tokens:,} {settings.kv_dtype} KV tokens"
    )
    cures = [f"--hbm-budget of at least {gib(closest.ledger.budget_bytes + short)}"]
    if settings.kv_dtype == "bf16":
        halved = replace(settings, kv_dtype="fp8")
        level = _level(model, tp=tp, budget_bytes=closest.ledger.budget_bytes, settings=halved)
        if level.ledger.unused_bytes >= 0:
            cures.insert(0, "--kv-dtype fp8")
    # Fewer KV tokens at the same settings: what the shortage leaves of the pool.
    per_token = model.kv_bytes_per_token_per_gpu(tp, settings.kv_dtype)
    tokens = settings.kv_tokens - -(-short // per_token)
    if tokens >= 2:
        flag = (
            "--min-kv-tokens"
            if min_kv_tokens > workload.request_tokens
            else "--prompt-tokens + --output-tokens"
        )
        cures.insert(0, f"{flag} of at most {tokens:,}")
    return InfeasibleError(what, "any one of these fits: " + "; ".join(cures))
