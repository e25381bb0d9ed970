"""`placer evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.option import JsonOption, MixOption, ModelOption, SeedOption
from placer.cli.terminal import print_json, show


@app.command()
def evaluate(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    model: ModelOption,
    trace: Annotated[Path, typer.Option("--trace", help="Trace file.")],
    profile: Annotated[Path, typer.Option("--profile", help="Profile.")],
    mix: MixOption = None,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """Compare a placement with the runtime's own strategies on any trace."""
    from placer.answer.evaluation import evaluation_answer
    from placer.api.evaluate import evaluate as evaluate_placement
    from placer.profiler.trace.mix import parse_mix

    result = evaluate_placement(
        placement,
        model=model,
        trace=trace,
        profile=profile,
        mix=None if mix is None else parse_mix(mix),
        seed=seed,
    )
    if json_output:
        print_json(result.document())
    else:
        show(evaluation_answer(result))
