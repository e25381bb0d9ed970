"""What `placer hardware` prints."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine, note_lines
from placer.answer.visible import all_visible
from placer.units import counted, duration, gib, operations, percent


def hardware_answer(document: dict[str, Any]) -> RenderableType:
    """The `hardware` document, one line per fact."""
    document = all_visible(document)
    cpu, bandwidth = document["cpu"], document["memory_bandwidth_bytes_per_s"]
    lines = [
        f"{cpu['cpu']}: {counted(cpu['usable_cores'], 'usable core')}, {counted(cpu['numa_nodes'], 'NUMA node')}, "
        f"{gib(cpu['memory_bytes'])} memory, {gib(cpu['last_level_cache_bytes'])} last-level cache",
        f"instruction sets: {', '.join(cpu['isa']) or 'none of those that INT4 kernels use'}",
        f"memory bandwidth (measured): {bandwidth['1_thread'] / 1e9:.1f} GB/s with one thread, "
        f"{bandwidth['all_threads'] / 1e9:.1f} GB/s with all",
    ]
    dense = document["dense_flops"]
    lines.append(
        "dense arithmetic (measured): "
        + ", ".join(
            f"{name} {operations(flops)} ({operations(dense['1_thread'][name])} with one thread)"
            for name, flops in dense["all_threads"].items()
        )
    )
    lines += [
        f"NUMA node {node['node']}: cores {node['cores']}, {gib(node['memory_bytes'])}"
        for node in document["numa_nodes"]
    ]
    lines += [f"GPU: {gpu['name']}, {gib(gpu['usable_bytes'])} usable" for gpu in document["gpus"]]
    if not document["gpus"]:
        lines.append("GPU: none here; profile with --gpu NAME (placer hardware --list)")
    table = Table(title="kernels", title_justify="left", box=None, pad_edge=False)
    for header in ("kernel", "method", "side", "here"):
        table.add_column(header)
    for kernel in document["kernels"]:
        table.add_row(kernel["name"], kernel["method"], kernel["side"], kernel["problem"] or "works")
    roofline = (Text(""), *_roofline(document["roofline"])) if document["roofline"] else ()
    head, *rest = lines
    busy = document["quiet_warning"]
    warned = note_lines([f"warning: {busy}"] if busy else [])
    return Group(VerdictLine(head), *[Text(line) for line in rest], *warned, Text(""), table, *roofline)


def _roofline(roofline: dict[str, Any]) -> tuple[RenderableType, ...]:
    """What share of its roofline every kernel of a profile reached."""
    title = Text(
        f"roofline: {roofline['model']} as profiled on {roofline['cpu']}, {counted(roofline['threads'], 'thread')}"
    )
    if roofline["reason"]:
        return title, Text(f"  none: {roofline['reason']}")
    table = Table(box=None, pad_edge=False)
    for header in ("kernel", "rows", "active", "call tokens", "measured", "at best", "bound by", "share"):
        table.add_column(header, justify="left" if header in ("kernel", "bound by") else "right")
    for call in roofline["calls"]:
        table.add_row(
            call["kernel"],
            str(call["rows"]),
            str(call["active"]),
            str(call["tokens"]),
            duration(call["measured_us"]),
            duration(max(call["memory_us"], call["arithmetic_us"])),
            call["bound"],
            percent(call["share"]),
        )
    peaks = sorted({f"{call['side']}: {call['peak']}" for call in roofline["calls"]})
    return title, table, Text(f"dense peak of {', '.join(peaks)}", style="dim")
