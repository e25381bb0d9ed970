"""`placer explain`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.option import JsonOption
from placer.cli.terminal import print_json, show


@app.command()
def explain(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    layer: Annotated[int, typer.Option("--layer", help="Index of the layer in the checkpoint.")],
    expert: Annotated[int | None, typer.Option("--expert", help="One expert of it.")] = None,
    json_output: JsonOption = False,
) -> None:
    """Say why experts are hot or cold: value, rank, and what moving one would cost."""
    from placer.answer.explanation import explanation_answer
    from placer.api.explain import explain as explain_placement

    result = explain_placement(placement, layer=layer, expert=expert)
    if json_output:
        print_json(result.document())
    else:
        show(explanation_answer(result))
