"""`placer.trace`: the routing that a runtime recorded, as a trace in memory."""

from pathlib import Path

from placer.api.checked import checked
from placer.api.choice import choice
from placer.api.opened import Source
from placer.api.routing import known_model
from placer.model.spec import ModelSpec
from placer.profiler.trace.importing import import_known
from placer.profiler.trace.trace import Phase, Trace

PHASES: dict[str, Phase | None] = {"all": None, "prefill": Phase.PREFILL, "decode": Phase.DECODE}


@checked
def trace(
    source: Source, *, model: ModelSpec | Source | None = None, format: str = "auto", phase: str = "all"
) -> Trace:
    """The routing in one file of any kind that ``placer trace import`` reads, a trace file among them.

    ``model`` is the checkpoint that it must match; ``trace_import`` joins several files on disk.

    Raises
    ------
    BadInputError
        When the file is of no known format, is unsound, or belongs to another model.
    MissingComponentError
        When the format needs a package that is not installed.
    """
    kept = choice(phase, PHASES, "--phase")
    return import_known(Path(source), known_model(model), format=format, phase=kept)
