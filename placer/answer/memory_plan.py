"""What `placer inspect --plan` prints: does it fit, where every byte goes, and what to change."""

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from placer.answer.ledger import ledger_parts
from placer.answer.part import VerdictLine, note_lines
from placer.answer.visible import all_visible
from placer.units import gib


def memory_plan_answer(plan: dict[str, Any], *, experts: int) -> RenderableType:
    """The ``plan`` section as a verdict, one table, and the flags; ``experts`` is E of a layer."""
    plan = all_visible(plan)
    parts: list[RenderableType] = [VerdictLine(_verdict(plan, experts))]
    for remedy in plan["remedies"]:
        parts.append(Text(f"  would fit: {remedy['advice']}"))
    parts += [Text(""), *_ledger(plan), Text("")]
    # Flags of a plan that does not fit would only be copied.
    if plan["binding_line"] is None:
        parts.append(Text(_runtime_lines(plan)))
    parts.append(Text(_host_line(plan)))
    parts += note_lines(plan["notes"])
    return Group(*parts)


def _verdict(plan: dict[str, Any], experts: int) -> str:
    settings, ledger = plan["settings"], plan["hbm"]["ledger"]
    asked = (
        f"{plan['hot_per_layer']} of {experts} experts hot per layer ({plan['hot_experts']:,} in all) with "
        f"{settings['kv_tokens']:,} {settings['kv_dtype']} KV tokens"
    )
    most = plan["largest_hot_per_layer"]
    largest = (
        "nothing fits even without hot experts" if most is None else f"the most that fits is {most} per layer"
    )
    if plan["binding_line"] is not None:
        short = gib(-ledger["unused"])
        return f"does not fit: {asked} is {short} short at line '{plan['binding_line']}'; {largest}"
    if plan["host"]["fits"] is False:
        host = plan["host"]
        return (
            f"does not fit in host memory: {gib(host['total_bytes'])} of {gib(host['memory_bytes'])} "
            f"(kt-kernel holds every expert there); on the GPU {asked} fits"
        )
    return f"fits: {asked} leaves {gib(ledger['unused'])} per GPU; {largest}"


def _ledger(plan: dict[str, Any]) -> list[RenderableType]:
    hbm, sizes = plan["hbm"], plan["parallelism"]
    names = " ".join(f"{name} {sizes[name]}" for name in ("tp", "ep", "pp", "dp") if sizes[name] > 1)
    title = f"HBM per GPU of {sizes['gpus']} ({names})" if names else "HBM per GPU"
    return ledger_parts(title, hbm["ledger"], hbm["budget_bytes_per_gpu"])


def _runtime_lines(plan: dict[str, Any]) -> str:
    settings, reserve = plan["settings"], plan["reserve"]
    sglang = reserve["sglang"]
    fraction = plan["mem_fraction_static"]
    default = sglang["mem_fraction_static"]
    share = f" (fraction {default:g})" if default > 0 else ", more than there is,"
    enough = "enough" if sglang["holds_the_plan"] else "too few"
    flags = "" if fraction is None else f"--mem-fraction-static {fraction:g} "
    hbm = plan["hbm"]
    return (
        f"weights {gib(hbm['weights_bytes'])} and KV {gib(hbm['kv_bytes'])} leave {gib(hbm['left_bytes'])} of the "
        f"{gib(hbm['free_bytes_after_start'])} free after start\n"
        f"SGLang: {flags}--max-total-tokens {settings['max_total_tokens']} "
        f"--chunked-prefill-size {settings['chunk_tokens']}{_pool_flags(settings)}\n"
        f"  by default it would keep {gib(sglang['reserve_bytes'])} free{share} and hold "
        f"{sglang['kv_tokens']:,} tokens: {enough}\n"
        f"  placer keeps {gib(reserve['placer_bytes'])} for activations, graphs, fragmentation and staging\n"
        f"vLLM: --kv-cache-memory-bytes {reserve['vllm']['kv_cache_memory_bytes']}"
    )


def _pool_flags(settings: dict[str, Any]) -> str:
    """Flags that only some models' pools need."""
    flags = {
        "page-size": None if settings["page_tokens"] == 1 else settings["page_tokens"],
        "swa-full-tokens-ratio": settings["window_ratio"],
        "max-mamba-cache-size": settings["max_mamba_cache_size"],
    }
    return "".join(f"\n  --{name} {value}" for name, value in flags.items() if value is not None)


def _host_line(plan: dict[str, Any]) -> str:
    host = plan["host"]
    lines = ", ".join(f"{name} {gib(size)}" for name, size in host["ledger"].items())
    nodes = f"; {gib(host['bytes_per_numa_node'])} on each of {host['numa_nodes']} NUMA nodes"
    of = "" if host["memory_bytes"] is None else f" of {gib(host['memory_bytes'])}"
    return (
        f"host memory ({host['cpu_method']}): {gib(host['total_bytes'])}{of} = {lines}"
        f"{nodes if host['numa_nodes'] > 1 else ''}"
    )
