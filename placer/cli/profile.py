"""`placer profile` and `placer profile merge`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import profile_app
from placer.cli.argument import choice, given_flags, refuse_flags
from placer.cli.cpu import (
    ClockOption,
    CoresOption,
    CpuMethodOption,
    CpuOption,
    MemoryChannelsOption,
    MemoryMtsOption,
    TurboOffOption,
    named_cpu,
)
from placer.cli.interruption import stop_if_interrupted
from placer.cli.option import GpuOption, JsonOption, SeedOption, TpOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import add, print_json, say, show
from placer.errors import BadInputError
from placer.output import checked_output

_CPU_TIMING = ("trace", "cpu_kernel", "sweep_threads", "points")
_TIMING = (*_CPU_TIMING, "quick", "max_seconds", "keep_samples", "seed")
"""Options that say how this machine is timed: its CPU, and anything."""


@profile_app.callback()
def profile(
    context: typer.Context,
    model: Annotated[
        Path | None, typer.Option("--model", help="Checkpoint directory (config.json is enough).")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Trace whose held-out steps test the fit.")
    ] = None,
    cpu_kernel: Annotated[
        str,
        typer.Option(
            "--cpu-kernel", help="auto, kt (RAWINT4), kt-amxint4, kt-amxint8, kt-llamafile or torch."
        ),
    ] = "auto",
    gpu_kernel: Annotated[
        str | None,
        typer.Option("--gpu-kernel", help="Time this GPU: auto, sglang, vllm, deep_gemm, triton or torch."),
    ] = None,
    gpu: GpuOption = None,
    cpu: CpuOption = None,
    cpu_method: CpuMethodOption = None,
    cores: CoresOption = None,
    clock: ClockOption = None,
    turbo_off: TurboOffOption = False,
    memory_channels: MemoryChannelsOption = None,
    memory_mts: MemoryMtsOption = None,
    tp: TpOption = 1,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads (default: cores - 1).")
    ] = None,
    sweep_threads: Annotated[
        bool, typer.Option("--sweep-threads", help="Try thread counts and NUMA spreads, take the best.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A rougher profile in at most 90 s.")] = False,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", help="Wall time of what is timed (default: 300; --quick: 70)."),
    ] = None,
    keep_samples: Annotated[
        Path | None,
        typer.Option("--keep-samples", help="Folder for raw samples; the same command goes on from them."),
    ] = None,
    points: Annotated[
        Path | None, typer.Option("--points", help="Also write every timed call as CSV, to plot.")
    ] = None,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Profile to write.")] = Path("profile.json"),
) -> None:
    """Time this machine's kernels at the model's shapes and fit the cost model; or take datasheets."""
    if context.invoked_subcommand is not None:
        if flags := given_flags(context):
            raise BadInputError(
                f"{', '.join(flags)} before {context.invoked_subcommand!r} would change nothing",
                f"give options after it (see 'placer profile {context.invoked_subcommand} --help')",
            )
        return
    from placer.answer.profile import profile_answer
    from placer.cpu_datasheet import CpuAdjustment
    from placer.host import CPU_FORMATS
    from placer.model.spec import read_model
    from placer.points import write_points
    from placer.profiler.profile import write_profile
    from placer.profiler.profiling import FULL_SECONDS, QUICK_SECONDS, ProfileRequest, profile_model
    from placer.profiler.trace.file import read_trace

    if model is None:
        raise BadInputError("profile needs a model", "add --model DIR (see 'placer profile --help')")
    if quick and max_seconds is not None:
        raise BadInputError("--quick and --max-seconds were both given", "give one of the two")
    if cpu_method is not None:
        cpu_method = choice(cpu_method, {name: name for name in CPU_FORMATS}, "--cpu-method")
    adjustment = CpuAdjustment(cores, clock, turbo_off, memory_channels, memory_mts)
    sheet = named_cpu(cpu, adjustment)
    if sheet is not None:
        refuse_flags(
            context,
            _CPU_TIMING if gpu is None or gpu_kernel is not None else _TIMING,
            "--cpu NAME is a datasheet, and no CPU is timed",
            "leave it out, or leave --cpu out to time this machine; --cpu-method names the kernel of a datasheet",
        )
    spec = read_model(model)
    inputs = [] if trace is None else [trace]
    checked_output(output, inputs)
    if points is not None:
        checked_output(points, [*inputs, output], "--points")
    request = ProfileRequest(
        tp=tp,
        cpu_kernel=cpu_kernel,
        cpu=sheet,
        cpu_method=cpu_method,
        gpu_kernel=gpu_kernel,
        gpu_name=gpu,
        threads=threads,
        sweep_threads=sweep_threads,
        max_seconds=max_seconds if max_seconds is not None else QUICK_SECONDS if quick else FULL_SECONDS,
        seed=seed,
        keep_samples=keep_samples,
    )
    try:
        with ProgressBar() as bar:
            result = profile_model(spec, None if trace is None else read_trace(trace), request, progress=bar)
        stop_if_interrupted()
    except KeyboardInterrupt:
        if keep_samples is not None:
            say(f"samples so far are in {keep_samples}: the same command goes on from there")
        raise
    write_profile(result, output)
    if points is not None:
        write_points(result, points)
    if json_output:
        print_json(result.document())
    else:
        show(profile_answer(result))


@profile_app.command("merge")
def profile_merge(
    cpu: Annotated[Path, typer.Argument(help="Profile whose CPU is meant.")],
    gpu: Annotated[Path, typer.Argument(help="Profile whose GPU is meant.")],
    json_output: JsonOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Profile to write.")] = Path("profile.json"),
) -> None:
    """Put the CPU's side of one profile beside the GPU's side of another."""
    from placer.answer.profile import profile_answer
    from placer.profiler.merged_profile import merge_profiles
    from placer.profiler.profile import read_profile, write_profile

    sides = {path: read_profile(path) for path in (cpu, gpu)}
    result = merge_profiles(sides[cpu], sides[gpu])
    checked_output(output, [cpu, gpu])
    write_profile(result, output)
    if sides[cpu].cpu_by_datasheet and not sides[gpu].cpu_by_datasheet:
        add(f"note: the CPU of {gpu} was timed, that of {cpu} is a datasheet: is the order meant?")
    for path, side in sides.items():
        if side.calibration is not None:
            add(f"note: the calibration of {path} is left out: it is of one server with both sides")
    if json_output:
        print_json(result.document())
    else:
        show(profile_answer(result))
