"""`placer.preflight`: is this machine ready to start the server that a placement plans?"""

from pathlib import Path

from placer.api.opened import Source
from placer.api.progress import Progress, silent
from placer.readiness.check import Preflight
from placer.readiness.preflight import preflight as check_machine


def preflight(
    placement: Source,
    *,
    runtime: str = "sglang-kt",
    model_path: str | None = None,
    kt_weight_path: str | None = None,
    python: str = "python",
    progress: Progress = silent,
) -> Preflight:
    """Every check of this machine against the placement in the file ``placement``.

    ``python`` is the interpreter that starts the server.

    Raises
    ------
    BadInputError
        When the runtime is unknown, or the placement or the checkpoint's config.json invalid.
    """
    return check_machine(
        Path(placement),
        runtime=runtime,
        model_path=model_path,
        kt_weight_path=kt_weight_path,
        python=python,
        progress=progress,
    )
