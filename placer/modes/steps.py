"""Compared steps: the replayed steps that every way of running a model is costed on, each size made once."""

from placer.model.spec import ModelSpec
from placer.profiler.replay import replay_decode, replay_prefill
from placer.profiler.steps import StepKind, Steps
from placer.profiler.trace.importing import check_trace_of
from placer.profiler.trace.split import split_requests
from placer.profiler.trace.trace import Trace
from placer.replays import SPLIT_SHARES
from placer.untraced import uniform_trace

_SAMPLED_TOKENS = 1024
_LEAST_STEPS = 32
_MOST_STEPS = 128
_CHUNKS = 8


def judged_trace(model: ModelSpec, trace: Trace | None, seed: int) -> Trace:
    """The requests of ``trace`` that no placement is solved on; None is uniform routing.

    Raises
    ------
    BadInputError
        When the trace belongs to another model.
    """
    if trace is None:
        return uniform_trace(model, seed)
    check_trace_of(trace, model)
    return split_requests(trace, SPLIT_SHARES, seed=seed)[-1]


class ComparedSteps:
    """Steps of ``trace`` by kind and size; decode tokens stand in for prompts that it does not hold."""

    def __init__(self, trace: Trace, seed: int) -> None:
        self._trace = trace
        self._seed = seed
        self._steps: dict[tuple[StepKind, int], Steps] = {}

    def of(self, kind: StepKind, size: int) -> Steps:
        """Decode steps of ``size`` requests, or chunks of ``size`` tokens."""
        if (kind, size) not in self._steps:
            if kind is StepKind.DECODE:
                count = min(_MOST_STEPS, max(_LEAST_STEPS, _SAMPLED_TOKENS // size))
                made = replay_decode(self._trace, size, count, seed=self._seed)
            else:
                made = replay_prefill(self._trace, size, _CHUNKS, seed=self._seed, from_decode=True)
            self._steps[kind, size] = made
        return self._steps[kind, size]

    def notes(self) -> tuple[str, ...]:
        """What the steps made so far assume."""
        return tuple(dict.fromkeys(steps.approximate for steps in self._steps.values() if steps.approximate))
