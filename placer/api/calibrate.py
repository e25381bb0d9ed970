"""`placer.calibrate`: a profile under what a running server measured."""

from collections.abc import Sequence
from pathlib import Path

from placer.api.checked import checked
from placer.api.choice import choice, names
from placer.api.number import check_seed
from placer.api.opened import Source, opened, paths_of
from placer.api.routing import Routing, routing
from placer.calibrating import Calibrated, CalibrateRequest
from placer.calibrating import calibrate as calibrate_profile
from placer.errors import BadInputError
from placer.model.spec import ModelSpec, read_model
from placer.output import checked_output
from placer.placement import PlacementDocument, read_placement
from placer.profiler.benchmark_file import read_benchmark_file
from placer.profiler.factor import FactorName
from placer.profiler.kt_timing_log import read_kt_timing_log
from placer.profiler.profile import Profile, read_profile, write_profile
from placer.profiler.serving.server import Scheduler


@checked
def calibrate(
    profile: Profile | Source,
    *,
    placement: PlacementDocument | Source,
    model: ModelSpec | Source,
    trace: Routing | None,
    benchmark: Sequence[Source] = (),
    kt_log: Source | None = None,
    factors: str | Sequence[str] = "auto",
    scheduler: str = "auto",
    force: bool = False,
    seed: int = 0,
    output: Source | None = None,
) -> Calibrated:
    """Compare predictions with what a running server measured, and put named factors on ``profile``.

    A step's time depends on which experts are hot and on the routing, so the ``placement`` that the server ran, the
    ``model`` and a ``trace`` of the traffic are needed beside the measurements; None is uniform routing.

    Raises
    ------
    BadInputError
        When they belong to different models, nothing was measured or is to be fitted, or a server does not match the
        placement.
    """
    check_seed(seed)
    fitted = None
    if factors != "auto":
        known = {name.value: name for name in FactorName}
        fitted = tuple(choice(name, known, "--factors") for name in names(factors))
        if not fitted:
            raise BadInputError("--factors names no factor", f"give auto, or some of {', '.join(known)}")
    schedulers: dict[str, Scheduler | None] = {"auto": None, **{each.value: each for each in Scheduler}}
    served_by = choice(scheduler, schedulers, "--scheduler")
    if output is not None:
        checked_output(Path(output), paths_of(placement, trace, *benchmark, kt_log))
    files = [read_benchmark_file(Path(path)) for path in benchmark]
    log = None if kt_log is None else read_kt_timing_log(Path(kt_log))
    result = calibrate_profile(
        opened(profile, read_profile),
        opened(placement, read_placement),
        opened(model, read_model),
        None if trace is None else routing(trace),
        files,
        log,
        CalibrateRequest(fitted, served_by, force, seed),
    )
    if output is not None:
        write_profile(result.profile, Path(output))
    return result
