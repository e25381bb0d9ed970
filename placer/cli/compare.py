"""`placer compare`."""

from pathlib import Path
from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.argument import check_budget, choice, numbers, refuse_flags
from placer.cli.cpu import (
    ClockOption,
    CoresOption,
    CpuMethodOption,
    CpuOption,
    MemoryChannelsOption,
    MemoryMtsOption,
    TurboOffOption,
    named_cpu,
)
from placer.cli.interruption import stop_if_interrupted
from placer.cli.option import (
    ArrivalsOption,
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
from placer.cli.traffic import workload
from placer.errors import BadInputError, InfeasibleError


@app.command()
def compare(
    context: typer.Context,
    model: ModelOption,
    gpus: Annotated[str, typer.Option("--gpus", help="Numbers of GPUs, between commas.")] = "1,2,4,8",
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
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Mean prompt length.")] = 1024,
    output_tokens: Annotated[int, typer.Option("--output-tokens", help="Mean output length.")] = 512,
    concurrency: Annotated[int, typer.Option("--concurrency", help="Clients.")] = 16,
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
    from placer.cpu_datasheet import CpuAdjustment
    from placer.host import CPU_FORMATS
    from placer.kv_pool import holds_kv_dtype
    from placer.model.spec import read_model
    from placer.modes.comparison import compare as compare_ways
    from placer.modes.document import comparison_document
    from placer.modes.hardware import datasheet_hardware, profiled_hardware
    from placer.modes.request import CompareRequest
    from placer.profiler.profile import read_profile
    from placer.profiler.serving.server import Scheduler
    from placer.profiler.trace.file import read_trace
    from placer.runtime_behaviour import RuntimeBehaviour
    from placer.units import parse_size

    spec = read_model(model)
    sheet = named_cpu(cpu, CpuAdjustment(cores, clock, turbo_off, memory_channels, memory_mts))
    if sheet is not None:
        if gpu is None or profile is not None:
            raise BadInputError(
                "--cpu NAME takes datasheets: it goes with --gpu NAME, and without --profile",
                "add --gpu NAME (placer hardware --list), or give --profile FILE alone",
            )
        known = {name: name for name in CPU_FORMATS}
        method = None if cpu_method is None else choice(cpu_method, known, "--cpu-method")
        hardware = datasheet_hardware(spec, sheet, gpu, method)
    elif profile is not None:
        refuse_flags(
            context,
            ("cpu_method",),
            "--profile FILE holds the CPU and the method that it was made with",
            "leave it out, or make a profile with that method (placer profile)",
        )
        hardware = profiled_hardware(spec, read_profile(profile), gpu)
    else:
        raise BadInputError(
            "compare needs a CPU", "add --cpu NAME (placer hardware --list) or --profile FILE"
        )
    kv_choices = {
        name: name for name in ("bf16", "fp8") if kv_dtype is not None or holds_kv_dtype(spec, name)
    }
    usable = hardware.usable_bytes
    budget = parse_size(hbm_budget, whole_bytes=usable, name="--hbm-budget")
    check_budget(
        budget, usable, hardware.gpu.name, hbm_budget, "lower it, or name the GPU that you mean (--gpu NAME)"
    )
    memory = hardware.profile.host_memory_bytes
    request = CompareRequest(
        workload=workload(
            prompt_tokens,
            output_tokens,
            concurrency,
            slo_tpot=slo_tpot,
            slo_ttft=slo_ttft,
            rate=rate,
            arrivals=arrivals,
            length_variation=length_variation,
            prefix_hit=prefix_hit,
        ),
        gpus=tuple(sorted(set(numbers("--gpus", gpus) or ()))),
        budget_bytes=budget,
        device_bytes=usable,
        kv_tokens=kv_tokens,
        kv_dtype=choice(kv_dtype or next(iter(kv_choices)), kv_choices, "--kv-dtype"),
        host_memory_bytes=memory if host_memory is None else parse_size(host_memory, name="--host-memory"),
        seed=seed,
        scheduler=choice(scheduler, {each.value: each for each in Scheduler}, "--scheduler"),
        behaviour=RuntimeBehaviour(deferred_experts, skip_idle_cold),
    )
    with ProgressBar() as bar:
        comparison = compare_ways(
            spec, hardware, None if trace == "none" else read_trace(Path(trace)), request, bar
        )
    stop_if_interrupted()
    document = comparison_document(comparison)
    if json_output:
        print_json(document)
    else:
        show(comparison_answer(document))
    if comparison.best is None:
        raise typer.Exit(InfeasibleError.exit_code)
