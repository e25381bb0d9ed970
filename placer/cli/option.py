"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.completion import gpu_names

ModelOption = Annotated[Path, typer.Option("--model", help="Checkpoint directory (config.json is enough).")]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", help="GPU by datasheet (placer hardware --list).", autocompletion=gpu_names),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
TpOption = Annotated[int, typer.Option("--tp", min=1, help="Tensor-parallel size.")]
ProveOption = Annotated[
    bool, typer.Option("--prove", help="Go on to the time limit where the gap is still open.")
]
GpuFreeOption = Annotated[
    str | None,
    typer.Option(
        "--gpu-free", help="Free per GPU once the process group is up, as the server logs it: 77GiB."
    ),
]
SpeculativeOption = Annotated[
    bool, typer.Option("--speculative", help="Keep room for the MTP layer, all its experts on the GPU.")
]
HostMemoryOption = Annotated[str | None, typer.Option("--host-memory", help="RAM of the server: 512GiB.")]
RateOption = Annotated[
    float | None, typer.Option("--rate", help="Requests per second that arrive by themselves (Poisson).")
]
ConcurrencyOption = Annotated[
    int,
    typer.Option(
        "--concurrency", help="Clients; with --rate or --arrivals, the most requests that run at once."
    ),
]
ArrivalsOption = Annotated[
    Path | None,
    typer.Option(
        "--arrivals",
        help="Arrival times: one a line in seconds, or CSV arrival_s[,prompt_tokens,output_tokens].",
    ),
]
LengthVariationOption = Annotated[
    float, typer.Option("--length-variation", help="Standard deviation of lengths over their mean.")
]
PrefixHitOption = Annotated[
    float, typer.Option("--prefix-hit", help="Share of prompt tokens that the prefix cache holds.")
]
SchedulerOption = Annotated[
    str, typer.Option("--scheduler", help="Whose rules the server schedules by: sglang or vllm.")
]
DeferredExpertsOption = Annotated[
    int,
    typer.Option(
        "--deferred-experts",
        help="Selections per token whose CPU work runs beside the next layer (changes outputs).",
    ),
]
SkipIdleColdOption = Annotated[
    bool, typer.Option("--skip-idle-cold", help="The runtime leaves the CPU alone where nothing is cold.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of every random draw.")]
MixOption = Annotated[
    str | None, typer.Option("--mix", help="Share of the tokens of each domain: code=0.7,chat=0.3.")
]
PrefillFromOption = Annotated[
    str, typer.Option("--prefill-from", help="decode: decode tokens stand in for missing prompts; none.")
]
