"""`placer profile` and `placer profile merge`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import profile_app
from placer.cli.argument import given_flags
from placer.cli.cpu import (
    ClockOption,
    CoresOption,
    CpuMethodOption,
    CpuOption,
    MemoryChannelsOption,
    MemoryMtsOption,
    TurboOffOption,
)
from placer.cli.option import GpuOption, JsonOption, SeedOption, TpOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import add, print_json, say, show
from placer.errors import BadInputError
from placer.output import checked_output


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
        str | None,
        typer.Option(
            "--cpu-kernel",
            help="auto (default), kt (RAWINT4), kt-amxint4, kt-amxint8, kt-llamafile or torch.",
        ),
    ] = None,
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
    from placer.api.profile import profile as profile_machine

    if model is None:
        raise BadInputError("profile needs a model", "add --model DIR (see 'placer profile --help')")
    try:
        with ProgressBar() as bar:
            result = profile_machine(
                model,
                trace=trace,
                cpu_kernel=cpu_kernel,
                gpu_kernel=gpu_kernel,
                gpu=gpu,
                cpu=cpu,
                cpu_method=cpu_method,
                cores=cores,
                clock=clock,
                turbo_off=turbo_off,
                memory_channels=memory_channels,
                memory_mts=memory_mts,
                tp=tp,
                threads=threads,
                sweep_threads=sweep_threads,
                quick=quick,
                max_seconds=max_seconds,
                keep_samples=keep_samples,
                points=points,
                seed=seed,
                output=output,
                progress=bar,
            )
    except KeyboardInterrupt:
        if keep_samples is not None:
            say(f"samples so far are in {keep_samples}: the same command goes on from there")
        raise
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
    from placer.api.profile_merge import profile_merge as merge_profiles
    from placer.profiler.profile import read_profile

    sides = {path: read_profile(path) for path in (cpu, gpu)}
    checked_output(output, [cpu, gpu])
    result = merge_profiles(sides[cpu], sides[gpu], output=output)
    if sides[cpu].cpu_by_datasheet and not sides[gpu].cpu_by_datasheet:
        add(f"note: the CPU of {gpu} was timed, that of {cpu} is a datasheet: is the order meant?")
    for path, side in sides.items():
        if side.calibration is not None:
            add(f"note: the calibration of {path} is left out: it is of one server with both sides")
    if json_output:
        print_json(result.document())
    else:
        show(profile_answer(result))
