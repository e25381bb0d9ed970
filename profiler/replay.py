"""A trace replayed into steps: decode steps at a concurrency, and prefill chunks."""

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.profiler.independence import independent_rows
from placer.profiler.steps import StepKind, Steps
from placer.profiler.trace.selection import selection_share
from placer.profiler.trace.trace import CountTrace, Phase, TokenTrace, Trace

_BLOCK_IDS = 4_000_000
"""Ids summed at a time: bounds the memory of a replay beside its result."""

SAMPLED = {
    StepKind.DECODE: (
        "decode steps were sampled from counts as if tokens chose experts independently; on gpt-oss-20b's tokens "
        "that keeps distinct experts within 2 % and the heaviest expert within 5 % of replayed steps, but shows "
        "a third of the spread between steps, so p95 figures are too low"
    ),
    StepKind.PREFILL: (
        "prefill chunks were sampled from counts as if tokens chose experts independently; on 512 consecutive tokens "
        "of gpt-oss-20b that gives 8 % too many distinct experts and makes the heaviest expert 35 % too light"
    ),
    StepKind.MIXED: (
        "mixed steps were sampled from counts as if tokens chose experts independently; on gpt-oss-20b's tokens that "
        "makes the heaviest expert of a chunk of 512 35 % too light"
    ),
}
"""What is assumed, and wrong by how much, where a trace holds counts alone (`independence_error`)."""
_DECODE_FOR_PREFILL = "the trace holds no prompts: decode tokens stand in for prefill tokens"


def replay_decode(
    trace: Trace, concurrency: int, steps: int, seed: int, *, spacing: int | None = None
) -> Steps:
    """Decode steps of a server that keeps ``concurrency`` requests running: rows [steps, L, E].

    The run makes passes over the trace. In each, the requests are put end to end in random order, R slots
    start evenly spaced on that line from a random point, and every slot plays on token by token, taking the
    next request where one ends. So a request's share of the run is its length, every step is a stationary
    one (each decode token is equally likely in each slot), and no token is played twice in a pass. ``steps``
    are taken ``spacing`` steps apart; by default as far as one pass allows, so that few steps see the whole
    trace. A trace shorter than the run is played again in another order.

    Raises
    ------
    BadInputError
        When the trace holds no decode tokens, or ``concurrency``, ``steps`` or ``spacing`` is below 1.
    """
    _at_least_one(concurrency=concurrency, steps=steps, spacing=1 if spacing is None else spacing)
    random = np.random.default_rng(seed)
    tokens = np.full(steps, concurrency, dtype=np.int64)
    if isinstance(trace, CountTrace):
        rows = independent_rows(selection_share(trace), concurrency, steps, random)
        return Steps(rows, tokens, StepKind.DECODE, SAMPLED[StepKind.DECODE])
    played = played_decode(trace, concurrency, steps, random, spacing=spacing)
    requests = np.unique(trace.request[trace.phase == Phase.DECODE]).size
    shared = f"the trace holds {requests} requests with output, which {concurrency} running requests share"
    approximate = shared if concurrency > requests else None
    return Steps(rows_of(trace, played), tokens, StepKind.DECODE, approximate)


def played_decode(
    trace: TokenTrace,
    concurrency: int,
    steps: int,
    random: np.random.Generator,
    *,
    spacing: int | None = None,
) -> NDArray[np.int64]:
    """The tokens of `replay_decode`'s steps: int64 [steps, R] into ``trace``, a column per running request."""
    decode = np.flatnonzero(trace.phase == Phase.DECODE)
    if not decode.size:
        raise BadInputError("the trace holds no decode tokens", "record while the server generates output")
    T = decode.size
    pass_steps = max(1, T // concurrency)
    apart = max(1, pass_steps // steps) if spacing is None else spacing
    played = np.empty((steps, concurrency), dtype=np.int64)
    passes, offset = np.divmod(np.arange(steps, dtype=np.int64) * apart, pass_steps)
    slots = np.arange(concurrency) * (T / concurrency)
    for number in np.unique(passes):
        line = _line(trace, decode, random)
        here = passes == number
        start = np.floor(slots + random.random() * T).astype(np.int64)
        played[here] = line[(start[None, :] + offset[here, None]) % T]
    return played


def replay_prefill(
    trace: Trace, chunk_tokens: int, steps: int, seed: int, from_decode: bool = False
) -> Steps:
    """Prefill chunks of exactly ``chunk_tokens`` consecutive prompt tokens: rows [steps, L, E].

    Prompts are put end to end in random order and cut: a long prompt fills several chunks, short ones share
    one, as a server packs them. Chunks are evenly spaced over the trace, which is played again in another
    order when it is shorter than all chunks. With ``from_decode``, decode tokens stand in where the trace has
    no prompts, and ``approximate`` says so.

    Raises
    ------
    BadInputError
        When the trace holds no prompts and ``from_decode`` is False, or a number is below 1.
    """
    _at_least_one(chunk_tokens=chunk_tokens, steps=steps)
    random = np.random.default_rng(seed)
    tokens = np.full(steps, chunk_tokens, dtype=np.int64)
    if isinstance(trace, CountTrace):
        rows = independent_rows(selection_share(trace), chunk_tokens, steps, random)
        return Steps(rows, tokens, StepKind.PREFILL, SAMPLED[StepKind.PREFILL])
    chunks, assumed = played_prefill(trace, chunk_tokens, steps, random, from_decode=from_decode)
    return Steps(rows_of(trace, chunks), tokens, StepKind.PREFILL, assumed)


def played_prefill(
    trace: TokenTrace, chunk_tokens: int, steps: int, random: np.random.Generator, *, from_decode: bool
) -> tuple[NDArray[np.int64], str | None]:
    """The tokens of `replay_prefill`'s chunks, int64 [steps, C] into ``trace``, and what is assumed, or None."""
    prompt = np.flatnonzero(trace.phase == Phase.PREFILL)
    assumed = []
    if not prompt.size:
        if not from_decode:
            raise BadInputError(
                "the trace holds no prompt tokens",
                "record prompts too, or let decode tokens stand in for them",
            )
        prompt = np.flatnonzero(trace.phase == Phase.DECODE)
        assumed.append(_DECODE_FOR_PREFILL)
    T = prompt.size
    if chunk_tokens > T:
        assumed.append(f"the trace holds {T} such tokens, which a chunk of {chunk_tokens} repeats")
    wanted = chunk_tokens * steps
    passes = -(-wanted // T)
    line = np.concatenate([np.roll(_line(trace, prompt, random), random.integers(T)) for _ in range(passes)])
    start = np.arange(steps) * (line.size // steps)
    return line[start[:, None] + np.arange(chunk_tokens)[None, :]], "; ".join(assumed) or None


def replay_mixed(
    trace: Trace, concurrency: int, chunk_tokens: int, steps: int, seed: int, from_decode: bool = False
) -> Steps:
    """Mixed steps: one token of each of ``concurrency`` running requests beside a chunk of a prompt.

    What a server runs that prefills while it decodes (SGLang's --enable-mixed-chunk, vLLM by default). The parts
    are those of `replay_decode` and `replay_prefill`, and raise what they raise.
    """
    decode = replay_decode(trace, concurrency, steps, seed)
    prefill = replay_prefill(trace, chunk_tokens, steps, seed + 1, from_decode)
    if isinstance(trace, CountTrace):
        approximate: str | None = SAMPLED[StepKind.MIXED]
    else:
        approximate = "; ".join(part for part in (decode.approximate, prefill.approximate) if part) or None
    return Steps(decode.rows + prefill.rows, decode.tokens + prefill.tokens, StepKind.MIXED, approximate)


def _line(trace: TokenTrace, tokens: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """The token indices ``tokens`` with whole requests in random order: int64 [T]."""
    request = trace.request[tokens]
    starts = np.flatnonzero(np.diff(request, prepend=request[0] - np.int64(1)))
    lengths = np.diff(starts, append=tokens.size)
    order = random.permutation(starts.size)
    lengths = lengths[order]
    ends = np.cumsum(lengths)
    within = np.arange(tokens.size) - np.repeat(ends - lengths, lengths)
    return np.asarray(tokens[np.repeat(starts[order], lengths) + within])


def rows_of(trace: TokenTrace, played: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rows int32 [S, L, E] of steps that hold the tokens ``played`` int64 [S, B]."""
    S, B = played.shape
    _, L, K = trace.topk_ids.shape
    width = trace.header.experts + 1
    rows = np.zeros((S, L, width), dtype=np.int32)
    # A slot behind the last expert of each layer takes the padding.
    layer_base = (np.arange(L, dtype=np.int64) * width)[:, None]
    step_block = max(1, min(_BLOCK_IDS // (B * L * K), _BLOCK_IDS // (L * width)))
    token_block = max(1, _BLOCK_IDS // (L * K))
    for start in range(0, S, step_block):
        count = min(step_block, S - start)
        step_base = (np.arange(count, dtype=np.int64) * (L * width))[:, None, None, None]
        for first in range(0, B, token_block):
            ids = trace.topk_ids[played[start : start + count, first : first + token_block]]
            slots = np.minimum(ids, width - 1) + layer_base + step_base
            summed = np.bincount(slots.ravel(), minlength=count * L * width)
            rows[start : start + count] += summed.reshape(count, L, width).astype(np.int32)
    return np.ascontiguousarray(rows[:, :, :-1])


def _at_least_one(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise BadInputError(f"{name.replace('_', ' ')} is {number}", "give at least 1")
