"""`placer calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.option import JsonOption, SeedOption
from placer.cli.terminal import print_json, show
from placer.errors import BadInputError


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
    if placement is None or model is None or trace is None:
        given = {"--placement placement.json": placement, "--model DIR": model, "--trace TRACE": trace}
        missing = [flag for flag, value in given.items() if value is None]
        raise BadInputError(
            "a server's TPOT, TTFT and throughput depend on which experts were hot and on the routing, which are not "
            "known",
            f"add {' '.join(missing)}",
        )
    from placer.answer.calibration import calibration_answer
    from placer.api.calibrate import calibrate as calibrate_profile

    result = calibrate_profile(
        profile,
        placement=placement,
        model=model,
        trace=None if trace == "none" else trace,
        benchmark=benchmark or (),
        kt_log=kt_log,
        factors=factors,
        scheduler=scheduler,
        force=force,
        seed=seed,
        output=output,
    )
    if json_output:
        print_json(result.document())
    else:
        show(calibration_answer(result, str(output)))
