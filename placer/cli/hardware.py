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
        from placer.sheets import sheets_document

        sheets = sheets_document()
        if json_output:
            print_json(sheets)
        else:
            show(sheets_answer(sheets))
        return

    from placer.answer.hardware import hardware_answer
    from placer.hardware_document import hardware_document
    from placer.profiler.profile import read_profile

    document = hardware_document(None if profile is None else read_profile(profile))
    if json_output:
        print_json(document)
    else:
        show(hardware_answer(document))
