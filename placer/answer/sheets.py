"""What `placer hardware --list` prints: CPUs beside GPUs, and where their figures come from."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from placer.answer.part import VerdictLine


def sheets_answer(document: dict[str, Any]) -> RenderableType:
    """Two tables and their sources, numbered where they stand in the table."""
    sources = list(
        dict.fromkeys(
            sheet[field]
            for kind, field in (
                ("cpu_sheets", "source"),
                ("cpu_sheets", "arithmetic_source"),
                ("gpu_sheets", "source"),
            )
            for sheet in document[kind]
        )
    )
    number = {source: str(index) for index, source in enumerate(sources, start=1)}
    return Group(
        VerdictLine("by datasheet, for --cpu and --gpu; two sockets: NAMEx2"),
        Text(""),
        _cpus(document["cpu_sheets"], number),
        Text(""),
        _gpus(document["gpu_sheets"], number),
        Text(""),
        Text("sources"),
        *(Text(f"{number[source]:>3}  {source}", style="dim") for source in sources),
    )


def _cpus(sheets: list[dict[str, Any]], number: dict[str, str]) -> Table:
    table = _table("CPU", "cores", "GHz (base)", "channels", "GB/s", "INT8", "BF16", "cache", "sources")
    for cpu in sheets:
        table.add_row(
            cpu["name"],
            str(cpu["cores"]),
            f"{cpu['clock_ghz']:g} ({cpu['base_ghz']:g})",
            f"{cpu['memory_channels']} x {cpu['memory_mts']}",
            f"{cpu['bandwidth_bytes_per_s'] / 1e9:,.0f}",
            f"{cpu['int8_flops'] / 1e12:,.1f} T",
            f"{cpu['bf16_flops'] / 1e12:,.1f} T",
            f"{cpu['cache_bytes'] / 2**20:,.0f} MiB",
            f"{number[cpu['source']]}, {number[cpu['arithmetic_source']]}",
        )
    return table


def _gpus(sheets: list[dict[str, Any]], number: dict[str, str]) -> Table:
    table = _table("GPU", "usable", "GB/s", "FP8", "BF16", "PCIe", "NVLink GB/s", "source")
    for gpu in sheets:
        table.add_row(
            gpu["name"],
            f"{gpu['usable_bytes'] / 2**30:.1f} GiB",
            f"{gpu['bandwidth_bytes_per_s'] / 1e9:,.0f}",
            f"{gpu['fp8_flops'] / 1e12:,.0f} T",
            f"{gpu['bf16_flops'] / 1e12:,.0f} T",
            f"{gpu['pcie_generation']}.0 ({gpu['pcie_bytes_per_s'] / 1e9:g} GB/s)",
            f"{gpu['nvlink_bytes_per_s'] / 1e9:,.0f}" if gpu["nvlink_bytes_per_s"] else "none",
            number[gpu["source"]],
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for header in others:
        table.add_column(header, justify="right")
    return table
