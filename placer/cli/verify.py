"""`placer verify`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.argument import numbers
from placer.cli.interruption import stop_if_interrupted
from placer.cli.option import JsonOption, ModelOption, SeedOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import print_json, show
from placer.errors import BadInputError


@app.command()
def verify(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    model: ModelOption,
    trace: Annotated[Path, typer.Option("--trace", help="Trace file.")],
    profile: Annotated[Path, typer.Option("--profile", help="Profile of this machine.")],
    layer_steps: Annotated[
        int | None,
        typer.Option("--layer-steps", help="Layer-steps to run, as far as the time allows (default: 200)."),
    ] = None,
    running: Annotated[
        str | None,
        typer.Option(
            "--running",
            help="Running requests of decode steps: 8 or 4,16,64, none, or auto (the placement's, and fewer "
            "where those use the kernel's other algorithm; default).",
        ),
    ] = None,
    prefill: Annotated[
        str | None,
        typer.Option(
            "--prefill", help="Tokens of prefill chunks: 512 or 128,512, none, or auto (up to 256; default)."
        ),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", help="Wall time of the run (default: 120).")
    ] = None,
    kt_log: Annotated[
        Path | None,
        typer.Option(
            "--kt-log", help="Compare with this log of a server with SGLANG_KT_HYBRID_TIMING instead."
        ),
    ] = None,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Run a placement's layers with the real kernels and compare with what was predicted.

    With --kt-log nothing is run: the layers that sglang-kt timed itself are compared.
    """
    if kt_log is not None:
        of_a_run = {"--layer-steps": layer_steps, "--running": running, "--prefill": prefill}
        for flag, value in {**of_a_run, "--max-seconds": max_seconds}.items():
            if value is not None:
                raise BadInputError(
                    f"--kt-log and {flag} were both given: a log is compared whole, nothing is run",
                    "give one of the two",
                )
        from placer.answer.runtime_verification import runtime_verification_answer
        from placer.api.verify_kt_log import verify_kt_log

        compared = verify_kt_log(placement, kt_log, model=model, trace=trace, profile=profile, seed=seed)
        if json_output:
            print_json(compared.document())
        else:
            show(runtime_verification_answer(compared))
        return
    from placer.answer.joined_verification import joined_answer
    from placer.answer.verification import verification_answer
    from placer.api.verify import verify as verify_placement

    with ProgressBar() as bar:
        result = verify_placement(
            placement,
            model=model,
            trace=trace,
            profile=profile,
            layer_steps=200 if layer_steps is None else layer_steps,
            running=numbers("--running", running or "auto"),
            prefill=numbers("--prefill", prefill or "auto"),
            max_seconds=120.0 if max_seconds is None else max_seconds,
            seed=seed,
            progress=bar,
        )
    stop_if_interrupted()
    if json_output:
        print_json(result.document())
    else:
        show(verification_answer(result.cold))
        show(joined_answer(result.joined))
