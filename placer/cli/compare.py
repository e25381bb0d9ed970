"""`placer compare`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.argument import gpu_counts
from placer.cli.cpu import (
    ClockOption,
    CoresOption,
    CpuMethodOption,
    CpuOption,
    MemoryChannelsOption,
    MemoryMtsOption,
    TurboOffOption,
)
from placer.cli.interruption import stop_if_interrupted
from placer.cli.option import (
    ArrivalsOption,
    ConcurrencyOption,
    DeferredExpertsOption,
    HostMemoryOption,
    JsonOption,
    LengthVariationOption,
    ModelOption,
    PrefixHitOption,
    RateOption,
    SchedulerOption,
    SeedOption,
    SkipIdleColdOption,
)
from placer.cli.progress import ProgressBar
from placer.cli.terminal import print_json, show
from placer.errors import InfeasibleError


@app.command()
def compare(
    model: ModelOption,
    gpus: Annotated[
        str, typer.Option("--gpus", help="Numbers of GPUs between commas, 1 to 64 each.")
    ] = "1,2,4,8",
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="GPU by datasheet (placer hardware --list).")
    ] = None,
    cpu: CpuOption = None,
    cpu_method: CpuMethodOption = None,
    cores: CoresOption = None,
    clock: ClockOption = None,
    turbo_off: TurboOffOption = False,
    memory_channels: MemoryChannelsOption = None,
    memory_mts: MemoryMtsOption = None,
    profile: Annotated[
        Path | None, typer.Option("--profile", help="Profile of `placer profile` in place of --cpu.")
    ] = None,
    trace: Annotated[str, typer.Option("--trace", help="Trace file, or none: uniform routing.")] = "none",
    prompt_tokens: Annotated[
        int | None, typer.Option("--prompt-tokens", help="Mean prompt length.", show_default="1024")
    ] = None,
    output_tokens: Annotated[
        int | None, typer.Option("--output-tokens", help="Mean output length.", show_default="512")
    ] = None,
    concurrency: ConcurrencyOption = 16,
    kv_tokens: Annotated[int, typer.Option("--kv-tokens", help="Least KV pool, tokens.")] = 0,
    slo_tpot: Annotated[float | None, typer.Option("--slo-tpot", help="p95 target, ms.")] = None,
    slo_ttft: Annotated[float | None, typer.Option("--slo-ttft", help="p95 target, ms.")] = None,
    kv_dtype: Annotated[
        str | None,
        typer.Option("--kv-dtype", help="bf16 or fp8 (default: bf16 where the model can be served with it)."),
    ] = None,
    hbm_budget: Annotated[str, typer.Option("--hbm-budget", help="Per GPU: 72GiB, 80GB or 75%.")] = "100%",
    rate: RateOption = None,
    arrivals: ArrivalsOption = None,
    length_variation: LengthVariationOption = 0.0,
    prefix_hit: PrefixHitOption = 0.0,
    scheduler: SchedulerOption = "sglang",
    deferred_experts: DeferredExpertsOption = 0,
    skip_idle_cold: SkipIdleColdOption = False,
    host_memory: HostMemoryOption = None,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
) -> None:
    """GPU-only, streamed experts or hot/cold: which way to run the model, on how many GPUs."""
    from placer.answer.comparison import comparison_answer
    from placer.api.compare import compare as compare_ways

    with ProgressBar() as bar:
        compared = compare_ways(
            model,
            gpus=gpu_counts("--gpus", gpus),
            gpu=gpu,
            cpu=cpu,
            cpu_method=cpu_method,
            cores=cores,
            clock=clock,
            turbo_off=turbo_off,
            memory_channels=memory_channels,
            memory_mts=memory_mts,
            profile=profile,
            trace=None if trace == "none" else trace,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency,
            kv_tokens=kv_tokens,
            slo_tpot=slo_tpot,
            slo_ttft=slo_ttft,
            kv_dtype=kv_dtype,
            hbm_budget=hbm_budget,
            rate=rate,
            arrivals=arrivals,
            length_variation=length_variation,
            prefix_hit=prefix_hit,
            scheduler=scheduler,
            deferred_experts=deferred_experts,
            skip_idle_cold=skip_idle_cold,
            host_memory=host_memory,
            seed=seed,
            progress=bar,
        )
    stop_if_interrupted()
    document = compared.document()
    if json_output:
        print_json(document)
    else:
        show(comparison_answer(document))
    if not compared.keeps_targets:
        raise typer.Exit(InfeasibleError.exit_code)
