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
    if plan["split_problem"] is not None:
        # Without it the verdict would be of a server that cannot be started.
        parts.append(
            VerdictLine(
                f"warning: no runtime is known that runs it so: {plan['split_problem']} ('placer compare' shows every "
                "way of running the model)"
            )
        )
    for remedy in plan["remedies"]:
        parts.append(Text(f"  would fit: {remedy['advice']}"))
    parts += [Text(""), *_ledger(plan), Text("")]
    # Flags of a plan that does not fit would only be copied.
    if plan["binding_line"] is None:
        parts.append(Text("\n".join(_runtime_lines(plan))))
    parts.append(Text(_host_line(plan, every_expert_hot=plan["hot_per_layer"] == experts)))
    parts += note_lines(plan["notes"])
    return Group(*parts)


def _verdict(plan: dict[str, Any], experts: int) -> str:
    settings, ledger = plan["settings"], plan["hbm"]["ledger"]
    asked = (
        f"{plan['hot_per_layer']} of {experts} experts hot per layer ({plan['hot_experts']:,} in all) with "
        f"{settings['kv_tokens']:,} {settings['kv_dtype']} KV tokens"
    )
    host_lacks = plan["host"]["fits"] is False and plan["hot_per_layer"] < experts
    most = plan["largest_hot_per_layer"]
    largest = (
        "nothing fits even without hot experts" if most is None else f"the most that fits is {most} per layer"
    )
    if plan["binding_line"] is not None:
        short = gib(-ledger["unused"])
        too = f"; host memory is too small too: {_of_host(plan)}" if host_lacks else ""
        return f"does not fit: {asked} is {short} short at line '{plan['binding_line']}'; {largest}{too}"
    if host_lacks:
        return (
            f"does not fit in host memory: {_of_host(plan)} (kt-kernel holds every expert there); on the GPU {asked} "
            "fits"
        )
    return f"fits: {asked} leaves {gib(ledger['unused'])} per GPU; {largest}"


def _of_host(plan: dict[str, Any]) -> str:
    return f"{gib(plan['host']['total_bytes'])} of {gib(plan['host']['memory_bytes'])}"


def _ledger(plan: dict[str, Any]) -> list[RenderableType]:
    hbm, sizes = plan["hbm"], plan["parallelism"]
    names = " ".join(f"{name} {sizes[name]}" for name in ("tp", "ep", "pp", "dp") if sizes[name] > 1)
    title = f"HBM per GPU of {sizes['gpus']} ({names})" if names else "HBM per GPU"
    return ledger_parts(title, hbm["ledger"], hbm["budget_bytes_per_gpu"])


def _runtime_lines(plan: dict[str, Any]) -> list[str]:
    """What to tell the runtimes; no flags of SGLang where it does not split the experts so."""
    settings, reserve = plan["settings"], plan["reserve"]
    sglang, problem = reserve["sglang"], plan["sglang_problem"]
    fraction = plan["mem_fraction_static"]
    default = sglang["mem_fraction_static"]
    share = f" (fraction {default:g})" if default > 0 else ", more than there is,"
    enough = "enough" if sglang["holds_the_plan"] else "too few"
    flags = "" if fraction is None else f"--mem-fraction-static {fraction:g} "
    hbm = plan["hbm"]
    sglang_lines = (
        f"SGLang: {flags}--max-total-tokens {settings['max_total_tokens']} "
        f"--chunked-prefill-size {settings['chunk_tokens']}{_pool_flags(settings)}\n"
        f"  by default it would keep {gib(sglang['reserve_bytes'])} free{share} and hold "
        f"{sglang['kv_tokens']:,} tokens: {enough}\n"
        f"  placer keeps {gib(reserve['placer_bytes'])} for activations, graphs, fragmentation and staging"
    )
    return [
        f"weights {gib(hbm['weights_bytes'])} and KV {gib(hbm['kv_bytes'])} leave {gib(hbm['left_bytes'])} of the "
        f"{gib(hbm['free_bytes_after_start'])} free after start",
        sglang_lines if problem is None else f"SGLang: no flags, as {problem}",
        f"vLLM: --kv-cache-memory-bytes {reserve['vllm']['kv_cache_memory_bytes']}",
    ]


def _pool_flags(settings: dict[str, Any]) -> str:
    """Flags that only some models' pools need."""
    flags = {
        "page-size": None if settings["page_tokens"] == 1 else settings["page_tokens"],
        "swa-full-tokens-ratio": settings["window_ratio"],
        "max-mamba-cache-size": settings["max_mamba_cache_size"],
    }
    return "".join(f"\n  --{name} {value}" for name, value in flags.items() if value is not None)


def _host_line(plan: dict[str, Any], *, every_expert_hot: bool) -> str:
    host = plan["host"]
    lines = ", ".join(f"{name} {gib(size)}" for name, size in host["ledger"].items())
    nodes = f"; {gib(host['bytes_per_numa_node'])} on each of {host['numa_nodes']} NUMA nodes"
    of = "" if host["memory_bytes"] is None else f" of {gib(host['memory_bytes'])}"
    none = "not needed with every expert hot (vLLM, or SGLang without its --kt flags); with CPU experts "
    return (
        f"host memory ({host['cpu_method']}): {none if every_expert_hot else ''}"
        f"{gib(host['total_bytes'])}{of} = {lines}{nodes if host['numa_nodes'] > 1 else ''}"
    )
