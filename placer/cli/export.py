"""`placer export`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.completion import runtimes
from placer.cli.option import JsonOption
from placer.cli.terminal import add, print_json, say, show
from placer.errors import BadInputError

DIFFERS = 1
"""Exit code of `export --check-log` and `--check-dump` when the server does not run the plan."""


@app.command()
def export(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    dumps: Annotated[
        list[Path] | None, typer.Argument(help="Further dumps, as --check-dump takes them.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder to write.")] = None,
    runtime: Annotated[
        str,
        typer.Option("--runtime", help="sglang-kt, vllm, vllm-plugin or llama.cpp.", autocompletion=runtimes),
    ] = "sglang-kt",
    model_path: Annotated[
        str | None,
        typer.Option(
            "--model-path",
            help="Checkpoint on the server: block-FP8 for sglang-kt, a GGUF file for llama.cpp.",
        ),
    ] = None,
    kt_weight_path: Annotated[
        str | None, typer.Option("--kt-weight-path", help="INT4 expert weights on the server.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Start the server with the recorder on.")] = False,
    check_log: Annotated[
        Path | None, typer.Option("--check-log", help="Server log: does it run the plan? Writes nothing.")
    ] = None,
    check_dump: Annotated[
        Path | None,
        typer.Option(
            "--check-dump", help="gpu_expert_distribution_*.pt, one or more: is the mask the plan's, exactly?"
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write exactly what the serving runtime consumes, read back through its own selection rule.

    With --check-log or --check-dump: compare what a server runs with the plan. Exit code 1: it differs.
    """
    from placer.answer.applied import applied_answer
    from placer.answer.console import command_line
    from placer.api.export import export as export_placement
    from placer.api.export_check import export_check

    if dumps and check_dump is None:
        raise BadInputError(
            f"{dumps[0]} stands behind the placement",
            "dumps follow --check-dump; an export takes one placement",
        )
    if check_log is not None or check_dump is not None:
        if output is not None:
            raise BadInputError("-o and a check were both given", "export and check one after the other")
        masks = None if check_dump is None else [check_dump, *(dumps or ())]
        found = export_check(placement, runtime=runtime, check_log=check_log, check_dump=masks)
        if json_output:
            print_json(found.document())
        else:
            for check in found.checks:
                show(applied_answer(check))
        if not found.same:
            raise typer.Exit(DIFFERS)
        return
    if output is None:
        raise BadInputError("export needs a folder to write", "add -o DIR")
    result = export_placement(
        placement,
        output=output,
        runtime=runtime,
        model_path=model_path,
        kt_weight_path=kt_weight_path,
        record=record,
    )
    if json_output:
        print_json(result.document())
        return
    for note in result.notes:
        add(f"note: {note}")
    say(f"{output}: {', '.join(result.files)}")
    show(command_line("launch:", result.launch_line))
