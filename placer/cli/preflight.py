"""`placer preflight`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.interruption import stop_if_interrupted
from placer.cli.option import JsonOption
from placer.cli.progress import ProgressBar
from placer.cli.terminal import print_json, show


@app.command()
def preflight(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    runtime: Annotated[str, typer.Option("--runtime", help="sglang-kt")] = "sglang-kt",
    model_path: Annotated[str | None, typer.Option("--model-path", help="Block-FP8 checkpoint.")] = None,
    kt_weight_path: Annotated[
        str | None, typer.Option("--kt-weight-path", help="All experts for the CPU method.")
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="The interpreter that starts the server.")
    ] = "python",
    json_output: JsonOption = False,
) -> None:
    """Is this machine ready to start the server that a placement plans?

    Exit code 0: nothing failed (warnings and unknowns are named). 3: it does not fit. 4: a component is missing.
    """
    from placer.answer.preflight import preflight_answer
    from placer.api.preflight import preflight as check_machine

    with ProgressBar() as bar:
        result = check_machine(
            placement,
            runtime=runtime,
            model_path=model_path,
            kt_weight_path=kt_weight_path,
            python=python,
            progress=bar,
        )
    stop_if_interrupted()
    if json_output:
        print_json(result.document())
    else:
        show(preflight_answer(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)
