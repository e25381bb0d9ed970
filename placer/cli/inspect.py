"""`placer inspect`."""

from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.completion import cpu_methods
from placer.cli.option import (
    GpuFreeOption,
    GpuOption,
    HostMemoryOption,
    JsonOption,
    ModelOption,
    SpeculativeOption,
    TpOption,
)
from placer.cli.terminal import print_json, show
from placer.errors import InfeasibleError


@app.command()
def inspect(
    model: ModelOption,
    tp: TpOption = 1,
    plan: Annotated[
        int | None,
        typer.Option("--plan", min=0, help="Hot experts per layer: do so many fit? Shows both ledgers."),
    ] = None,
    gpu: GpuOption = None,
    hbm_budget: Annotated[
        str | None, typer.Option("--hbm-budget", help="Per GPU: 72GiB, 80GB, or 75% of --gpu.")
    ] = None,
    gpu_free: GpuFreeOption = None,
    kv_tokens: Annotated[int, typer.Option("--kv-tokens", min=1, help="KV pool, tokens.")] = 32768,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", help="bf16 or fp8.")] = "bf16",
    chunk: Annotated[int, typer.Option("--chunk", min=1, help="Prefill chunk, tokens.")] = 8192,
    running: Annotated[int, typer.Option("--running", min=1, help="Running requests.")] = 64,
    ep: Annotated[int, typer.Option("--ep", min=1, help="Expert-parallel size, within tp.")] = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline stages of tp GPUs each.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, help="Data-parallel attention groups, within tp.")] = 1,
    speculative: SpeculativeOption = False,
    cpu_method: Annotated[
        str,
        typer.Option(
            "--cpu-method",
            help="RAWINT4, AMXINT4, AMXINT8, LLAMAFILE, torch or VLLM-BF16.",
            autocompletion=cpu_methods,
        ),
    ] = "RAWINT4",
    numa_nodes: Annotated[int, typer.Option("--numa", min=1, help="NUMA nodes of the host.")] = 1,
    host_memory: HostMemoryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show what a checkpoint says of its shape and bytes; with --plan, whether a server of it fits."""
    from placer.answer.memory_plan import memory_plan_answer
    from placer.answer.model import model_answer
    from placer.api.inspect import inspect as inspect_model

    result = inspect_model(
        model,
        tp=tp,
        plan=plan,
        gpu=gpu,
        hbm_budget=hbm_budget,
        gpu_free=gpu_free,
        kv_tokens=kv_tokens,
        kv_dtype=kv_dtype,
        chunk=chunk,
        running=running,
        ep=ep,
        pp=pp,
        dp=dp,
        speculative=speculative,
        cpu_method=cpu_method,
        numa=numa_nodes,
        host_memory=host_memory,
    )
    if json_output:
        print_json(result.document())
    elif result.plan is not None:
        show(memory_plan_answer(result.plan, experts=result.model.experts))
    else:
        show(model_answer(result.document()))
    if result.fits is False:
        raise typer.Exit(InfeasibleError.exit_code)
