"""`placer.trace_info`: what a trace is worth."""

from placer.api.checked import checked
from placer.api.facts import Facts
from placer.api.routing import Routing, routing
from placer.profiler.trace import info


@checked
def trace_info(trace: Routing) -> Facts:
    """The skew of ``trace`` against the uniform null, reuse, domains, and what it can be used for.

    Raises
    ------
    BadInputError
        When the trace cannot be read, or a layer has no selection in one of its phases.
    """
    return Facts(info.trace_info(routing(trace)))
