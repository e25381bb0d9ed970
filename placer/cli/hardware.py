"""`placer hardware`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.option import JsonOption
from placer.cli.terminal import print_json, show


@app.command()
def hardware(
    json_output: JsonOption = False,
    list_names: Annotated[bool, typer.Option("--list", help="List the GPU names that --gpu takes.")] = False,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", help="Also say what share of its roofline each kernel reached."),
    ] = None,
) -> None:
    """Show this machine: CPU, caches, memory, and which kernels run here."""
    from placer.answer.hardware import hardware_answer
    from placer.datasheet import GPU_NAMES
    from placer.hardware import hardware_document
    from placer.profiler.profile import read_profile

    if list_names and json_output:
        print_json({"gpus": list(GPU_NAMES)})
        return
    if list_names:
        sys.stdout.write("\n".join(GPU_NAMES) + "\n")
        return
    document = hardware_document(None if profile is None else read_profile(profile))
    if json_output:
        print_json(document)
    else:
        show(hardware_answer(document))
