"""`placer hardware`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.option import JsonOption
from placer.cli.terminal import print_json, show


@app.command()
def hardware(
    json_output: JsonOption = False,
    list_names: Annotated[bool, typer.Option("--list", help="List what --cpu and --gpu take.")] = False,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", help="Also say what share of its roofline each kernel reached."),
    ] = None,
) -> None:
    """Show this machine: CPU, caches, memory, and which kernels run here."""
    if list_names:
        from placer.answer.sheets import sheets_answer
        from placer.api.hardware_list import hardware_list

        sheets = hardware_list().document()
        if json_output:
            print_json(sheets)
        else:
            show(sheets_answer(sheets))
        return

    from placer.answer.hardware import hardware_answer
    from placer.api.hardware import hardware as this_hardware

    document = this_hardware(profile=profile).document()
    if json_output:
        print_json(document)
    else:
        show(hardware_answer(document))
