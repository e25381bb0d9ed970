"""Routing traces as functions take them, and the model that one must belong to."""

from placer.api.opened import Source, opened
from placer.model.spec import ModelSpec, read_model
from placer.profiler.trace.file import read_trace
from placer.profiler.trace.known_model import KnownModel
from placer.profiler.trace.shortfall import noting_shortfall
from placer.profiler.trace.trace import CountTrace, TokenTrace, Trace

Routing = Trace | Source
"""A trace, or the path of a trace file."""


def routing(trace: Routing) -> Trace:
    """The trace that ``trace`` is or names, warned where its counts miss selections; errors as `read_trace`."""
    read = trace if isinstance(trace, TokenTrace | CountTrace) else opened(trace, read_trace)
    return noting_shortfall(read) if isinstance(read, CountTrace) else read


def known_model(model: ModelSpec | Source | None) -> KnownModel:
    """What a trace must belong to: all of it from the checkpoint, nothing without one."""
    if model is None:
        return KnownModel()
    spec = opened(model, read_model)
    return KnownModel(spec.name, spec.moe_layers, spec.num_layers, spec.experts, spec.top_k)
