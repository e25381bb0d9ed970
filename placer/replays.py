"""The steps that a trace is replayed into for a level, made once per concurrency and per chunk."""

from dataclasses import replace

import numpy as np

from placer.errors import BadInputError
from placer.level import Level
from placer.level_cost import LevelCosts, level_costs, prompt_steps
from placer.model.spec import ModelSpec
from placer.profiler.cost import CostModel
from placer.profiler.deferred import immediate_experts
from placer.profiler.replay import played_decode, replay_decode, replay_prefill
from placer.profiler.steps import StepKind, Steps
from placer.profiler.trace.trace import CountTrace, Trace
from placer.sampling import decode_steps, prefill_steps, whole_trace_steps
from placer.workload import Workload

SPLIT_SHARES = (0.5, 0.2, 0.3)
"""Shares of requests to solve on, to choose between plans on, and only to report on."""
EVALUATION_SEED = 1
"""Replay seed of the choosing and reporting steps: other draws than the solving ones."""
EVALUATION_STEPS = 4
"""Steps of the choosing and reporting parts, in multiples of a solve's: they are only summed."""
PROMPTS_LEFT_OUT = "prompts are left out (--prefill-from none): tokens/s counts them as free, TTFT is unknown"
"""Note of a placement that was solved so."""


class Replays:
    """Replayed steps of one part of a trace.

    Parameters
    ----------
    prefill_from
        "trace", "decode" (decode tokens stand in where the trace has no prompts) or "none".
    step_factor
        How many times the steps of a solve are replayed, at least one.
    """

    def __init__(self, trace: Trace, seed: int, prefill_from: str, *, step_factor: float = 1) -> None:
        self._trace = trace
        self._seed = seed
        self._prefill_from = prefill_from
        self._step_factor = step_factor
        self._decode: dict[int, Steps] = {}
        self._prefill: dict[int, Steps | None] = {}

    def decode(self, concurrency: int) -> Steps:
        """Decode steps at ``concurrency``."""
        if concurrency not in self._decode:
            steps = max(1, round(self._step_factor * decode_steps(concurrency)))
            self._decode[concurrency] = replay_decode(self._trace, concurrency, steps, seed=self._seed)
        return self._decode[concurrency]

    def prefill(self, chunk_tokens: int) -> Steps | None:
        """Prefill chunks, or None where prompts are left out."""
        if self._prefill_from == "none":
            return None
        if chunk_tokens not in self._prefill:
            self._prefill[chunk_tokens] = replay_prefill(
                self._trace,
                chunk_tokens,
                max(1, round(self._step_factor * prefill_steps(chunk_tokens))),
                seed=self._seed,
                from_decode=self._prefill_from == "decode",
            )
        return self._prefill[chunk_tokens]

    def whole(self, tokens: int, kind: StepKind) -> Steps:
        """Steps of ``tokens`` tokens that play the trace once: what the sampled steps are corrected to."""
        L, E = len(self._trace.header.layers), self._trace.header.experts
        steps = whole_trace_steps(self._trace.tokens, tokens, L * E)
        seed = self._seed + EVALUATION_SEED
        if kind is StepKind.DECODE:
            return replay_decode(self._trace, tokens, steps, seed=seed)
        return replay_prefill(
            self._trace, tokens, steps, seed=seed, from_decode=self._prefill_from == "decode"
        )

    def sample(self, kind: StepKind, tokens: int, steps: int, *, deferred_experts: int = 0) -> Steps:
        """``steps`` decode steps of ``tokens`` requests, or prefill chunks of ``tokens``; not kept.

        Raises
        ------
        BadInputError
            When experts are deferred and the trace holds counts alone.
        """
        if kind is StepKind.PREFILL:
            stand_in = self._prefill_from == "decode"
            return replay_prefill(self._trace, tokens, steps, seed=self._seed, from_decode=stand_in)
        replayed = replay_decode(self._trace, tokens, steps, seed=self._seed)
        if not deferred_experts:
            return replayed
        if isinstance(self._trace, CountTrace):
            raise BadInputError(
                "--deferred-experts needs to know which selections a token makes together, which a count trace lacks",
                "record a token trace ('placer trace record'), or leave --deferred-experts out",
            )
        played = played_decode(self._trace, tokens, steps, np.random.default_rng(self._seed))
        return replace(replayed, immediate=immediate_experts(self._trace, played, deferred_experts))

    def costs(
        self, model: ModelSpec, cost: CostModel, level: Level, workload: Workload, tp: int
    ) -> LevelCosts:
        """What the replayed steps cost at ``level``."""
        prompt = prompt_steps(level.settings, workload)
        return level_costs(
            model,
            cost,
            self.decode(level.settings.max_running_requests),
            self.prefill(prompt.chunk_tokens),
            level.settings,
            workload,
            tp,
            rest=self.prefill(prompt.rest_tokens) if prompt.rest_tokens else None,
        )

    def notes(self) -> tuple[str, ...]:
        """What the steps made so far assume."""
        steps = [*self._decode.values(), *(step for step in self._prefill.values() if step is not None)]
        return tuple(dict.fromkeys(step.approximate for step in steps if step.approximate))
