"""`placer.preflight`: is this machine ready to start the server that a placement plans?"""

import os
from pathlib import Path

from placer.api.checked import checked
from placer.api.opened import Source, path_as_text
from placer.api.progress import Progress, silent
from placer.readiness.check import Preflight
from placer.readiness.preflight import preflight as check_machine


@checked
def preflight(
    placement: Source,
    *,
    runtime: str = "sglang-kt",
    model_path: Source | None = None,
    kt_weight_path: Source | None = None,
    python: Source = "python",
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
        model_path=path_as_text(model_path),
        kt_weight_path=path_as_text(kt_weight_path),
        python=os.fspath(python),
        progress=progress,
    )
