"""`placer solve`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.argument import count_or_auto, pins_of
from placer.cli.option import (
    ArrivalsOption,
    ConcurrencyOption,
    DeferredExpertsOption,
    GpuFreeOption,
    HostMemoryOption,
    JsonOption,
    LengthVariationOption,
    MixOption,
    ModelOption,
    PrefillFromOption,
    PrefixHitOption,
    ProveOption,
    RateOption,
    SchedulerOption,
    SeedOption,
    SkipIdleColdOption,
    SpeculativeOption,
    TpOption,
)
from placer.cli.progress import ProgressBar
from placer.cli.terminal import print_json, show


@app.command()
def solve(
    model: ModelOption,
    trace: Annotated[str, typer.Option("--trace", help="Trace file, or none to plan before any exists.")],
    profile: Annotated[Path, typer.Option("--profile", help="Profile of `placer profile`.")],
    hbm_budget: Annotated[str, typer.Option("--hbm-budget", help="Per GPU: 72GiB, 80GB or 75%.")] = "100%",
    tp: TpOption = 1,
    concurrency: ConcurrencyOption = 16,
    max_running: Annotated[str, typer.Option("--max-running", help="Running requests, or auto.")] = "auto",
    min_kv_tokens: Annotated[int, typer.Option("--min-kv-tokens", help="Least KV pool, tokens.")] = 0,
    prompt_tokens: Annotated[
        int | None, typer.Option("--prompt-tokens", help="Mean prompt length.", show_default="1024")
    ] = None,
    output_tokens: Annotated[
        int | None, typer.Option("--output-tokens", help="Mean output length.", show_default="512")
    ] = None,
    slo_tpot: Annotated[float | None, typer.Option("--slo-tpot", help="p95 target, ms.")] = None,
    slo_ttft: Annotated[float | None, typer.Option("--slo-ttft", help="p95 target, ms.")] = None,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", help="bf16, fp8 or auto.")] = "bf16",
    solver: Annotated[str, typer.Option("--solver", help="auto, highs or cbc.")] = "auto",
    gap: Annotated[float, typer.Option("--gap", help="Relative gap to stop at.")] = 0.005,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            help="Solver seconds of the best level, and of all others together (30; 120 with --prove).",
        ),
    ] = None,
    prove: ProveOption = False,
    prefill_from: PrefillFromOption = "decode",
    chunk: Annotated[str, typer.Option("--chunk", help="Prefill chunk, tokens, or auto.")] = "auto",
    min_hot: Annotated[
        int, typer.Option("--min-hot", min=0, help="Hot experts per layer to leave room for, at least.")
    ] = 0,
    gpu_free: GpuFreeOption = None,
    speculative: SpeculativeOption = False,
    host_memory: HostMemoryOption = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="CPU threads of the server (default: the profile's)."),
    ] = None,
    cpu_method: Annotated[
        str | None, typer.Option("--cpu-method", help="CPU method of the server (default: the profile's).")
    ] = None,
    force_profile: Annotated[
        bool,
        typer.Option(
            "--force-profile",
            help="Take a profile of other shapes, tp or threads, or of large error, all the same.",
        ),
    ] = False,
    seed: SeedOption = 0,
    json_output: JsonOption = False,
    pin: Annotated[
        list[str] | None, typer.Option("--pin", help="LAYER=all or LAYER=none: fix a layer; repeatable.")
    ] = None,
    min_hot_per_layer: Annotated[
        int, typer.Option("--min-hot-per-layer", help="Hot experts that every layer must have.")
    ] = 0,
    max_hot_per_layer: Annotated[
        int | None, typer.Option("--max-hot-per-layer", help="Hot experts that no layer may exceed.")
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Show the best plan for every number of running requests.")
    ] = False,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Show what other settings, GPUs and memory would do to the plan."),
    ] = False,
    write_lp: Annotated[
        Path | None, typer.Option("--write-lp", help="Write the chosen level as an integer program (LP).")
    ] = None,
    mix: MixOption = None,
    robust: Annotated[
        str | None,
        typer.Option(
            "--robust", help="Plan for the worst domain: by its time, or by regret (over its own plan)."
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="throughput, latency (least TPOT), or goodput (tokens/s of requests that keep the targets).",
        ),
    ] = "throughput",
    rate: RateOption = None,
    arrivals: ArrivalsOption = None,
    length_variation: LengthVariationOption = 0.0,
    prefix_hit: PrefixHitOption = 0.0,
    scheduler: SchedulerOption = "sglang",
    deferred_experts: DeferredExpertsOption = 0,
    skip_idle_cold: SkipIdleColdOption = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Placement to write.")] = Path(
        "placement.json"
    ),
) -> None:
    """Decide hot experts and KV together, with a proven gap."""
    from placer.answer.placement import placement_answer
    from placer.api.solve import solve as solve_placement
    from placer.profiler.trace.mix import parse_mix

    with ProgressBar() as bar:
        document = solve_placement(
            model,
            trace=None if trace == "none" else trace,
            profile=profile,
            hbm_budget=hbm_budget,
            tp=tp,
            concurrency=concurrency,
            max_running=count_or_auto(max_running, "--max-running"),
            min_kv_tokens=min_kv_tokens,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            slo_tpot=slo_tpot,
            slo_ttft=slo_ttft,
            kv_dtype=kv_dtype,
            solver=solver,
            gap=gap,
            time_limit=time_limit,
            prove=prove,
            prefill_from=prefill_from,
            chunk=count_or_auto(chunk, "--chunk"),
            min_hot=min_hot,
            gpu_free=gpu_free,
            speculative=speculative,
            host_memory=host_memory,
            threads=threads,
            cpu_method=cpu_method,
            force_profile=force_profile,
            seed=seed,
            pin=pins_of(pin or []),
            min_hot_per_layer=min_hot_per_layer,
            max_hot_per_layer=max_hot_per_layer,
            frontier=frontier,
            what_if=what_if,
            write_lp=write_lp,
            mix=None if mix is None else parse_mix(mix),
            robust=robust,
            objective=objective,
            rate=rate,
            arrivals=arrivals,
            length_variation=length_variation,
            prefix_hit=prefix_hit,
            scheduler=scheduler,
            deferred_experts=deferred_experts,
            skip_idle_cold=skip_idle_cold,
            output=output,
            progress=bar,
        )
    if json_output:
        print_json(document.document())
    else:
        show(placement_answer(document, str(output)))
