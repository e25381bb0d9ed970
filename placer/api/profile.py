"""`placer.profile`: this machine's kernels at the model's shapes, timed; or datasheets."""

from placer.api.checked import checked
from placer.api.choice import datasheet_method
from placer.api.cpu import named_cpu
from placer.api.number import at_least, check_seed
from placer.api.opened import Source, opened, path_or_none, paths_of
from placer.api.progress import Progress, silent
from placer.api.routing import Routing, routing
from placer.api.unused import refuse_unused
from placer.errors import BadInputError
from placer.kernels.backends import AUTO
from placer.model.spec import ModelSpec, read_model
from placer.output import checked_output
from placer.points import write_points
from placer.profiler.profile import Profile, write_profile
from placer.profiler.profiling import FULL_SECONDS, QUICK_SECONDS, ProfileRequest, profile_model


@checked
def profile(
    model: ModelSpec | Source,
    *,
    trace: Routing | None = None,
    cpu_kernel: str | None = None,
    gpu_kernel: str | None = None,
    gpu: str | None = None,
    cpu: str | None = None,
    cpu_method: str | None = None,
    cores: int | None = None,
    clock: float | None = None,
    turbo_off: bool = False,
    memory_channels: int | None = None,
    memory_mts: int | None = None,
    tp: int = 1,
    threads: int | None = None,
    sweep_threads: bool = False,
    quick: bool = False,
    max_seconds: float | None = None,
    keep_samples: Source | None = None,
    points: Source | None = None,
    seed: int = 0,
    output: Source | None = None,
    progress: Progress = silent,
) -> Profile:
    """Time this machine's kernels at the shapes of ``model`` and fit the cost model; or take datasheets.

    ``cpu`` and ``gpu`` name those. Steps of ``trace`` that were held out test the fit. ``keep_samples`` is a folder
    from which the same call goes on after an interruption.

    Raises
    ------
    BadInputError
        When a name is not known, parameters exclude each other, or the trace is of another model.
    MissingComponentError
        When no CPU kernel runs here, or there is no GPU and none is named.
    """
    at_least(1, tp=tp, threads=threads)
    check_seed(seed)
    if quick and max_seconds is not None:
        raise BadInputError("--quick and --max-seconds were both given", "give one of the two")
    if cpu_method is not None:
        cpu_method = datasheet_method(cpu_method)
    sheet = named_cpu(
        cpu,
        cores=cores,
        clock=clock,
        turbo_off=turbo_off,
        memory_channels=memory_channels,
        memory_mts=memory_mts,
    )
    if sheet is not None:
        times_gpu = gpu is None or gpu_kernel is not None
        refuse_unused(
            {
                "--trace": trace is not None,
                "--cpu-kernel": cpu_kernel is not None,
                "--sweep-threads": sweep_threads,
                "--points": points is not None,
                "--quick": quick and not times_gpu,
                "--max-seconds": max_seconds is not None and not times_gpu,
                "--keep-samples": keep_samples is not None and not times_gpu,
                "--seed": seed != 0 and not times_gpu,
            },
            "--cpu NAME is a datasheet, and no CPU is timed",
            "leave it out, or leave --cpu out to time this machine; --cpu-method names the kernel of a datasheet",
        )
    spec = opened(model, read_model)
    target, points_path, inputs = path_or_none(output), path_or_none(points), paths_of(trace)
    if target is not None:
        checked_output(target, inputs)
    if points_path is not None:
        checked_output(points_path, [*inputs, *paths_of(output)], "--points")
    request = ProfileRequest(
        tp=tp,
        cpu_kernel=cpu_kernel or AUTO,
        cpu=sheet,
        cpu_method=cpu_method,
        gpu_kernel=gpu_kernel,
        gpu_name=gpu,
        threads=threads,
        sweep_threads=sweep_threads,
        max_seconds=max_seconds if max_seconds is not None else QUICK_SECONDS if quick else FULL_SECONDS,
        seed=seed,
        keep_samples=path_or_none(keep_samples),
    )
    result = profile_model(spec, None if trace is None else routing(trace), request, progress=progress)
    progress("writing the profile", 1.0)
    if target is not None:
        write_profile(result, target)
    if points_path is not None:
        write_points(result, points_path)
    return result
