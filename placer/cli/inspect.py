"""`placer inspect`."""

from typing import Annotated

import typer

from placer.cli.application import app
from placer.cli.argument import check_budget, choice
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
from placer.errors import BadInputError, InfeasibleError


@app.command()
def inspect(
    model: ModelOption,
    tp: TpOption = 1,
    plan: Annotated[
        int | None,
        typer.Option("--plan", min=0, help="Do so many hot experts per layer fit? Shows both ledgers."),
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
            help="RAWINT4, AMXINT4, AMXINT8, LLAMAFILE or torch.",
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
    from placer.datasheet import gpu_datasheet
    from placer.demand import MemoryDemand
    from placer.hbm import given_loss_bytes
    from placer.host import CPU_FORMATS
    from placer.memory_plan import memory_plan_document
    from placer.model.inspect import inspect_document
    from placer.model.spec import read_model
    from placer.parallelism import Parallelism
    from placer.units import parse_size

    spec = read_model(model)
    parallel = Parallelism(tp, ep, pp, dp)
    if spec.checkpoint_format == "fp8_block":
        parallel.check(spec)
    document = inspect_document(spec, parallel.attention_tp, expert_tp=parallel.expert_tp)
    if plan is not None:
        whole = None if gpu is None else gpu_datasheet(gpu).usable_bytes
        if whole is None and hbm_budget is None:
            raise BadInputError(
                "--plan needs to know the GPU", "add --gpu NAME (placer hardware --list) or --hbm-budget SIZE"
            )
        budget = parse_size(
            hbm_budget or "100%", whole_bytes=whole, whole_name="the GPU's memory", name="--hbm-budget"
        )
        device = budget if whole is None else whole
        cure = "lower it, or name the GPU that you mean (--gpu NAME)"
        check_budget(budget, device, gpu or "the GPU", hbm_budget or "100%", cure)
        free = None if gpu_free is None else parse_size(gpu_free, name="--gpu-free")
        demand = MemoryDemand(
            model=spec,
            parallel=parallel,
            budget_bytes=budget,
            running=running,
            chunk_tokens=chunk,
            kv_dtype=choice(kv_dtype, {name: name for name in ("bf16", "fp8")}, "--kv-dtype"),
            min_kv_tokens=kv_tokens,
            hot_per_layer=plan,
            speculative=speculative,
            loss_bytes=given_loss_bytes(device_bytes=device, gpu_free_bytes=free),
            device_bytes=whole,
        )
        document["plan"] = memory_plan_document(
            demand,
            device_bytes=device,
            cpu_method=choice(cpu_method, {name: name for name in CPU_FORMATS}, "--cpu-method"),
            numa_nodes=numa_nodes,
            host_memory_bytes=None if host_memory is None else parse_size(host_memory, name="--host-memory"),
        )
    if json_output:
        print_json(document)
    elif plan is not None:
        show(memory_plan_answer(document["plan"], experts=spec.experts))
    else:
        show(model_answer(document))
    if plan is not None and not document["plan"]["fits"]:
        raise typer.Exit(InfeasibleError.exit_code)
