"""`placer.trace_import`: what runtimes recorded, as a trace file."""

from collections.abc import Sequence
from pathlib import Path

from placer.api.checked import checked
from placer.api.choice import choice
from placer.api.number import at_least
from placer.api.opened import Source
from placer.api.progress import Progress, silent
from placer.api.routing import known_model
from placer.api.trace import PHASES
from placer.model.spec import ModelSpec
from placer.profiler.trace.fleet import Imported, ImportRequest, import_files


@checked
def trace_import(
    sources: Sequence[Source],
    *,
    output: Source,
    model: ModelSpec | Source | None = None,
    format: str = "auto",
    phase: str = "all",
    keep: str = "auto",
    windows: int = 64,
    broken: str = "stop",
    dask: str | None = None,
    progress: Progress = silent,
) -> Imported:
    """Join the files and folders ``sources`` to one trace, written to ``output`` whole or not at all.

    Files are joined on disk, whatever their size, which is why there is always an output.

    Raises
    ------
    BadInputError
        When a file cannot be used and ``broken`` is "stop", or none can.
    MissingComponentError
        When a format, or the cluster, needs a package that is not installed.
    """
    at_least(1, windows=windows)
    request = ImportRequest(
        model=known_model(model),
        format=format,
        phase=choice(phase, PHASES, "--phase"),
        keep=keep,
        windows=windows,
        broken=broken,
        dask=dask,
    )
    return import_files([Path(source) for source in sources], Path(output), request, progress)
