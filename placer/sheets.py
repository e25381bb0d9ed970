"""`placer hardware --list`: the CPUs and GPUs that are known by their datasheets."""

from dataclasses import asdict
from typing import Any

from placer.cpu_datasheet import CPU_NAMES, cpu_datasheet
from placer.datasheet import GPU_NAMES, gpu_datasheet


def sheets_document() -> dict[str, Any]:
    """The `hardware --list --json` document: names, then the figures of each with their source."""
    cpus = [cpu_datasheet(name) for name in CPU_NAMES]
    gpus = [gpu_datasheet(name) for name in GPU_NAMES]
    return {
        "gpus": list(GPU_NAMES),
        "cpus": list(CPU_NAMES),
        "gpu_sheets": [{**asdict(gpu), "device_words": list(gpu.device_words)} for gpu in gpus],
        "cpu_sheets": [
            {
                **asdict(cpu),
                "isa": list(cpu.isa),
                "adjustments": list(cpu.adjustments),
                "bandwidth_bytes_per_s": cpu.bandwidth_bytes_per_s,
                "int8_flops": cpu.int8_flops,
                "bf16_flops": cpu.bf16_flops,
            }
            for cpu in cpus
        ],
        "provenance": "datasheet",
    }
