"""`placer calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.argument import choice
from placer.cli.option import JsonOption, SeedOption
from placer.cli.terminal import print_json, show
from placer.errors import BadInputError
from placer.output import checked_output


@app.command()
def calibrate(
    profile: Annotated[Path, typer.Option("--profile", help="Profile to calibrate.")],
    benchmark: Annotated[
        list[Path] | None,
        typer.Option(
            "--benchmark",
            help="What sglang.bench_serving --output-file or vllm bench serve --save-result wrote; repeatable.",
        ),
    ] = None,
    kt_log: Annotated[
        Path | None, typer.Option("--kt-log", help="Log of a server with SGLANG_KT_HYBRID_TIMING.")
    ] = None,
    placement: Annotated[
        Path | None, typer.Option("--placement", help="The placement that the server ran; needed.")
    ] = None,
    model: Annotated[Path | None, typer.Option("--model", help="Checkpoint directory; needed.")] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", help="Trace of the traffic, or none for uniform routing; needed."),
    ] = None,
    factors: Annotated[
        str, typer.Option("--factors", help="May be fitted: auto, or some of cold,hot,base,transfer,step_us.")
    ] = "auto",
    scheduler: Annotated[
        str,
        typer.Option(
            "--scheduler", help="Whose server: auto (as the benchmark's client says), sglang or vllm."
        ),
    ] = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Take a server that does not match the placement all the same.")
    ] = False,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Profile to write.")] = Path("profile.json"),
) -> None:
    """Compare predictions with what a running server measured, and put named factors on the profile.

    A step's time depends on which experts are hot and on the routing, so --placement, --model and --trace are
    needed beside the measurements. The kernels' measurements in the profile stay as they are.
    """
    from placer.answer.calibration import calibration_answer
    from placer.calibrating import CalibrateRequest
    from placer.calibrating import calibrate as calibrate_profile
    from placer.model.spec import read_model
    from placer.placement import read_placement
    from placer.profiler.benchmark_file import read_benchmark_file
    from placer.profiler.factor import FactorName
    from placer.profiler.kt_timing_log import read_kt_timing_log
    from placer.profiler.profile import read_profile, write_profile
    from placer.profiler.serving.server import Scheduler
    from placer.profiler.trace.file import read_trace

    measured = read_profile(profile)
    files = [read_benchmark_file(path) for path in benchmark or []]
    log = None if kt_log is None else read_kt_timing_log(kt_log)
    if placement is None or model is None or trace is None:
        given = {"--placement placement.json": placement, "--model DIR": model, "--trace TRACE": trace}
        missing = [flag for flag, value in given.items() if value is None]
        raise BadInputError(
            "a server's TPOT, TTFT and throughput depend on which experts were hot and on the routing, which are not "
            "known",
            f"add {' '.join(missing)}",
        )
    known = {name.value: name for name in FactorName}
    names = (
        None if factors == "auto" else tuple(choice(name, known, "--factors") for name in factors.split(","))
    )
    schedulers: dict[str, Scheduler | None] = {"auto": None, **{each.value: each for each in Scheduler}}
    inputs = [placement, *(benchmark or []), *([kt_log] if kt_log else [])]
    checked_output(output, [*inputs, Path(trace)])
    result = calibrate_profile(
        measured,
        read_placement(placement),
        read_model(model),
        None if trace == "none" else read_trace(Path(trace)),
        files,
        log,
        CalibrateRequest(names, choice(scheduler, schedulers, "--scheduler"), force, seed),
    )
    write_profile(result.profile, output)
    if json_output:
        print_json(result.document())
    else:
        show(calibration_answer(result, str(output)))
