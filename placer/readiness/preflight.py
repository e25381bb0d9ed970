"""`placer preflight`: every check of this machine against a placement, in the order in which to fix what fails."""

from collections.abc import Callable
from pathlib import Path

from placer.exports.kt_selection import RUNTIME
from placer.exports.runtimes import planned_config, prepared_runtime
from placer.placement import read_placement
from placer.readiness.check import Preflight, Verdict
from placer.readiness.checkpoint import check_checkpoint
from placer.readiness.cores import check_cores, cores
from placer.readiness.cpu_weights import check_cpu_weights
from placer.readiness.disk import check_disk
from placer.readiness.gpu_memory import check_gpus, gpus
from placer.readiness.host_memory import check_host_memory, host_memory
from placer.readiness.versions import check_versions, installed


def preflight(
    placement_path: Path,
    *,
    runtime: str,
    model_path: str | None = None,
    kt_weight_path: str | None = None,
    python: str,
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Preflight:
    """All checks for the placement at ``placement_path``; ``python`` is the interpreter of the server.

    Raises
    ------
    BadInputError
        When the runtime is unknown, or the placement or the checkpoint's config.json invalid.
    """
    prepared_runtime(runtime)
    placement = read_placement(placement_path)
    config = planned_config(placement, model_path)
    progress("asking the runtime", 0.0)
    checks = [*check_versions(installed(python))]
    progress("reading the checkpoint's headers", 0.4)
    checks += check_checkpoint(placement, config, model_path)
    progress("reading the CPU experts' headers", 0.6)
    weights = list(check_cpu_weights(placement, config, kt_weight_path, model_path))
    checks += weights
    present = all(check.verdict is not Verdict.FAIL for check in weights)
    checks += check_disk(placement, kt_weight_path, present=present)
    checks += check_host_memory(placement, host_memory())
    checks += check_cores(placement, cores())
    progress("asking the GPUs", 0.9)
    checks += check_gpus(placement, gpus())
    return Preflight(RUNTIME, tuple(checks))
