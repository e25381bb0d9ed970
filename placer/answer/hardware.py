"""What `placer hardware` prints."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.visible import all_visible
from placer.units import gib


def hardware_answer(document: dict[str, Any]) -> RenderableType:
    """The `hardware` document, one line per fact."""
    document = all_visible(document)
    cpu, bandwidth = document["cpu"], document["memory_bandwidth_bytes_per_s"]
    lines = [
        f"{cpu['cpu']}: {cpu['usable_cores']} usable cores, {cpu['numa_nodes']} NUMA node(s), "
        f"{gib(cpu['memory_bytes'])} memory, {gib(cpu['last_level_cache_bytes'])} last-level cache",
        f"instruction sets: {', '.join(cpu['isa']) or 'none of those that INT4 kernels use'}",
        f"memory bandwidth (measured): {bandwidth['1_thread'] / 1e9:.1f} GB/s with one thread, "
        f"{bandwidth['all_threads'] / 1e9:.1f} GB/s with all",
    ]
    lines += [f"GPU: {gpu['name']}, {gib(gpu['usable_bytes'])} usable" for gpu in document["gpus"]]
    if not document["gpus"]:
        lines.append("GPU: none here; profile with --gpu NAME (placer hardware --list)")
    table = Table(title="kernels", title_justify="left", box=None, pad_edge=False)
    for header in ("kernel", "method", "side", "here"):
        table.add_column(header)
    for kernel in document["kernels"]:
        table.add_row(kernel["name"], kernel["method"], kernel["side"], kernel["problem"] or "works")
    return Group(*[Text(line) for line in lines], Text(""), table)
