"""This machine as `placer hardware` states it: CPU, memory bandwidth, GPUs, and which kernels run here."""

from dataclasses import asdict
from typing import Any

import torch

from placer.kernels.backends import CPU_BACKENDS, GPU_BACKENDS
from placer.kernels.expert_shape import ExpertShape
from placer.profiler.attained import attained
from placer.profiler.datasheet_cpu import DatasheetCpu
from placer.profiler.profile import Profile
from placer.profiler.timing.machine import numa_nodes, this_machine
from placer.profiler.timing.machine_speed import dense_arithmetic, read_bandwidth_bytes_per_s
from placer.profiler.timing.processor_time import processor_time
from placer.profiler.timing.quiet import busy_warning

_PROBE = ExpertShape(hidden_size=2048, expert_intermediate_size=768, experts=128, top_k=8)
"""Shapes that every backend accepts: a refusal of them is about the machine."""


def hardware_document(profile: Profile | None = None) -> dict[str, Any]:
    """The `hardware --json` document; bandwidth and arithmetic are measured when it is called, and
    ``quiet_warning`` says what else kept the machine busy meanwhile.

    With ``profile`` it also says what share of its roofline every kernel of that profile reached.
    """
    machine = this_machine()
    cache = machine.last_level_cache_bytes
    cores = machine.usable_cores
    before = processor_time()
    bandwidth = {
        "1_thread": int(read_bandwidth_bytes_per_s(1, cache)),
        "all_threads": int(read_bandwidth_bytes_per_s(cores, cache)),
    }
    arithmetic = {
        name: {product.dtype: int(product.flops) for product in dense_arithmetic(threads)}
        for name, threads in (("1_thread", 1), ("all_threads", cores))
    }
    used = processor_time().since(before)
    return {
        "cpu": {
            **asdict(machine),
            "isa": list(machine.isa),
            "provenance": "reported by the operating system",
        },
        "memory_bandwidth_bytes_per_s": {**bandwidth, "provenance": "measured"},
        "dense_flops": {**arithmetic, "provenance": "measured (square products of torch)"},
        "quiet_warning": busy_warning(used),
        "numa_nodes": [asdict(node) for node in numa_nodes()],
        "gpus": [
            {
                "name": torch.cuda.get_device_name(index),
                "usable_bytes": int(torch.cuda.get_device_properties(index).total_memory),
                "provenance": "reported by CUDA",
            }
            for index in range(torch.cuda.device_count())
        ],
        "kernels": [
            {
                "name": backend.name,
                "method": backend.method,
                "side": side,
                "problem": None if why is None else str(why),
            }
            for side, backends in (("cpu", CPU_BACKENDS), ("gpu", GPU_BACKENDS))
            for backend in backends
            for why in [backend.problem(_PROBE, 1)]
        ],
        "roofline": None if profile is None else _roofline(profile),
    }


def _roofline(profile: Profile) -> dict[str, Any]:
    reached = attained(profile)
    return {
        "model": profile.model.name,
        "cpu": profile.cpu.device,
        "threads": profile.cpu.threads,
        "provenance": "measured calls over bandwidth and arithmetic of the same run",
        "reason": None if reached else _no_roofline(profile),
        "calls": [{**asdict(each), "bound": each.bound, "share": each.share} for each in reached],
    }


def _no_roofline(profile: Profile) -> str:
    if isinstance(profile.cpu, DatasheetCpu):
        return "the profile is made of datasheets: nothing was timed"
    return "the profile is of a version that did not keep bytes and arithmetic"
