"""Placement documents as `placer solve` writes them, for any model and settings, without a solve."""

from collections.abc import Mapping, Sequence
from typing import Any

from placements import placement_dict

from placer.demand import MemoryDemand
from placer.host import host_ledger
from placer.memory_sections import memory_sections
from placer.model.spec import ModelSpec
from placer.parallelism import Parallelism
from placer.placement import PlacementDocument

GIB = 2**30


def planned(
    model: ModelSpec, hot: Mapping[int, Sequence[int]] | None = None, **changes: Any
) -> PlacementDocument:
    """A placement with these hot experts (none by default) for a server of these settings."""
    demand = MemoryDemand(
        **{
            "model": model,
            "parallel": Parallelism(1),
            "budget_bytes": 400 * GIB,
            "running": 4,
            "chunk_tokens": 512,
            "kv_dtype": "fp8",
            "min_kv_tokens": 0,
            "request_tokens": 640,
            **changes,
        }
    )
    document = placement_dict(
        hot or {}, layers=model.moe_layers, experts=model.experts, top_k=model.top_k, tp=demand.parallel.tp
    )
    sections = memory_sections(
        model,
        settings=demand.settings,
        tp=demand.parallel.tp,
        hot_experts=document["hot_total"],
        budget_bytes=demand.budget_bytes,
        device_bytes=demand.budget_bytes,
        host=host_ledger(model, cpu_method="RAWINT4", chunk_tokens=demand.chunk_tokens, numa_nodes=2),
    )
    document["workload"] |= {
        "concurrency": demand.running,
        "prompt_tokens": demand.request_tokens - 2,
        "output_tokens": 2,
    }
    document["model"] |= {
        "architecture": model.architecture,
        "hidden_size": model.hidden_size,
        "config": model.config,
    }
    document["hardware"]["gpu"]["usable_bytes"] = demand.budget_bytes
    document["hardware"]["cpu"] |= {"threads": 32, "numa_nodes": 2}
    return PlacementDocument.model_validate({**document, **sections})
