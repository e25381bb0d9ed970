"""What the stopwatch in vLLM's engine recorded, read as forward passes: their base, their share of experts, a trace."""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from placer.errors import BadInputError
from placer.examples.vllm_probe import Mark
from placer.examples.vllm_stopwatch import HEADER
from placer.model.spec import ModelSpec
from placer.profiler.base_cost import BaseCost, BasePart, TokenCurve
from placer.profiler.timing.samples import ESTIMATOR_QUANTILE
from placer.profiler.trace.trace import Phase, TokenTrace, TraceHeader

Ids = NDArray[np.uint16]


@dataclass(frozen=True)
class ForwardPass:
    """One forward pass of the engine.

    Attributes
    ----------
    start_s
        When its first MoE layer began.
    experts_us
        In the expert kernel, over all layers.
    between_us
        From the end of one layer's experts to the start of the next one's: attention, norms and router.
    ids
        uint16 [q, L, K], chosen experts of its tokens.
    """

    start_s: float
    experts_us: float
    between_us: float
    ids: Ids

    @property
    def tokens(self) -> int:
        """q."""
        return len(self.ids)


@dataclass(frozen=True)
class EngineSteps:
    """What a probe measured.

    Attributes
    ----------
    prompt_base_us, decode_base_us
        By tokens of a prompt that ran alone, and by requests that decoded side by side: time of a step outside the
        expert kernel (lower quartile).
    experts_share
        By requests that decoded: share of the step in the expert kernel.
    trace
        Routing of the requests that decoded, with their prompts.
    """

    prompt_base_us: dict[int, float]
    decode_base_us: dict[int, float]
    experts_share: dict[int, float]
    trace: TokenTrace

    def base_cost(self, machine: str) -> BaseCost:
        """The base as the cost model takes it: what tokens cost, and what each further decoding request adds."""
        tokens = TokenCurve(*_sorted({**self.prompt_base_us, 1: self.decode_base_us[1]}))
        extra = {
            requests: max(0.0, base_us - tokens.at(requests))
            for requests, base_us in self.decode_base_us.items()
        }
        return BaseCost(
            device="cpu",
            machine=machine,
            kernels="vLLM's engine without its expert kernel",
            tp=1,
            layers=len(self.trace.header.layers),
            parts=(
                BasePart("step of a prompt", 1, False, tokens, 0.0),
                BasePart("decoding requests", 1, True, TokenCurve(*_sorted(extra)), 0.0),
            ),
            attention=(),
            all_reduce=None,
            assumed_layer_us=0.0,
            untimed_weights_bytes=0,
            state_request_bytes=0,
            bytes_per_s=1.0,
            bf16_flops=1.0,
            notes=(),
        )


def _sorted(times: dict[int, float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    keys = sorted(times)
    return tuple(keys), tuple(times[key] for key in keys)


def read_engine_steps(record: Path, marks: Path, model: ModelSpec) -> EngineSteps:
    """What the stopwatch wrote into ``record`` while `vllm_probe` ran, which wrote ``marks``.

    A pass is followed by the next one as soon as the engine can, so the time between their starts is that of a
    step; what differs before the first layer's experts is taken from between the layers.

    Raises
    ------
    BadInputError
        When the record is not of this model, or holds no usable pass.
    """
    added: list[Mark] = json.loads(marks.read_text(encoding="utf-8"))
    passes = [each for each in _passes(record, len(model.moe_layers)) if each.start_s > added[0][0]]
    times = np.array([mark[0] for mark in added])
    # Passes with the last request that was added before them; -1 would be a warm-up.
    latest = np.searchsorted(times, [each.start_s for each in passes]) - 1
    base: dict[tuple[bool, int], list[float]] = {}
    share: dict[int, list[float]] = {}
    for place, (now, after) in enumerate(pairwise(passes)):
        _, prompt_tokens, batch, _ = added[latest[place]]
        if latest[place] != latest[place + 1]:
            continue
        period_us = (after.start_s - now.start_s) * 1e6
        alone_us = period_us - now.experts_us + now.between_us - after.between_us
        if batch == 0 and now.tokens == prompt_tokens > 1:
            base.setdefault((True, now.tokens), []).append(alone_us)
        elif batch and now.tokens == after.tokens == batch:
            base.setdefault((False, batch), []).append(alone_us)
            share.setdefault(batch, []).append(now.experts_us / period_us)
    if not {(False, 1), *((False, mark[2]) for mark in added if mark[2])} <= base.keys():
        raise BadInputError("the engine's record lacks decode steps of some size", "run the probe again")
    quartiles = {key: float(np.quantile(each, ESTIMATOR_QUANTILE)) for key, each in base.items()}
    return EngineSteps(
        prompt_base_us={size: us for (prompt, size), us in quartiles.items() if prompt},
        decode_base_us={size: us for (prompt, size), us in quartiles.items() if not prompt},
        experts_share={size: float(np.median(each)) for size, each in share.items()},
        trace=_trace(passes, latest.tolist(), added, model),
    )


def _passes(record: Path, layers: int) -> list[ForwardPass]:
    raw = record.read_bytes()
    calls: list[tuple[float, float, Ids]] = []
    at = 0
    while at < len(raw):
        start, end, tokens, top_k = HEADER.unpack_from(raw, at)
        at += HEADER.size
        ids = np.frombuffer(raw, "<u2", tokens * top_k, at).reshape(tokens, top_k)
        at += ids.nbytes
        calls.append((start, end, ids))
    if not calls or len(calls) % layers:
        raise BadInputError(
            f"the engine's record holds {len(calls)} calls, which are no passes of {layers} layers",
            "run the probe again",
        )
    return [_pass(calls[first : first + layers]) for first in range(0, len(calls), layers)]


def _pass(calls: list[tuple[float, float, Ids]]) -> ForwardPass:
    start, end = (np.array([call[place] for call in calls]) for place in (0, 1))
    return ForwardPass(
        start_s=float(start[0]),
        experts_us=float((end - start).sum()) * 1e6,
        between_us=float((start[1:] - end[:-1]).mean()) * 1e6 if len(calls) > 1 else 0.0,
        ids=np.stack([call[2] for call in calls], axis=1),
    )


def _trace(passes: list[ForwardPass], latest: list[int], added: list[Mark], model: ModelSpec) -> TokenTrace:
    """Requests of the batches: a pass holds a token of each that decodes, then the prompt of one that joins."""
    tokens: dict[int, list[Ids]] = {}
    running: list[int] = []
    ended = True
    for now, request in zip(passes, latest, strict=True):
        _, prompt_tokens, batch, place = added[request]
        joins = request not in tokens
        if joins and not place:
            running, ended = [], not batch
        # Once a request has ended, rows change places.
        ended = ended or now.tokens not in (len(running), len(running) + joins * prompt_tokens)
        if ended:
            continue
        for row, each in enumerate(running):
            tokens[each].append(now.ids[row : row + 1])
        if joins and now.tokens > len(running):
            tokens[request] = [now.ids[len(running) :]]
            running.append(request)
    ids = [np.concatenate(parts) for parts in tokens.values()]
    lengths = [len(each) for each in ids]
    position = np.concatenate([np.arange(length) for length in lengths])
    starts = np.repeat([added[request][1] for request in tokens], lengths)
    header = TraceHeader(
        model.name,
        tuple(model.moe_layers),
        model.experts,
        model.top_k,
        "vLLM's engine, recorded at its expert kernel",
    )
    return TokenTrace(
        header=header,
        topk_ids=np.concatenate(ids),
        request=np.repeat(np.arange(len(ids), dtype=np.int32), lengths),
        position=position.astype(np.int32),
        phase=np.where(position < starts, Phase.PREFILL, Phase.DECODE).astype(np.uint8),
    )
