"""Small placement documents for tests: every figure made up, every rule of the schema kept."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from placer.placement import PlacementDocument

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def figures() -> dict[str, Any]:
    return {
        "decode_step_ms": 20.0,
        "tpot_ms": {"mean": 21.0, "p95": 24.0},
        "ttft_ms": {"mean": None, "p95": None},
        "output_tokens_per_s": 400.0,
        "cold_share": 0.25,
        "per_layer_ms": None,
    }


def placement_dict(
    hot: Mapping[int, Sequence[int]], *, layers: Sequence[int], experts: int, top_k: int = 2, **changes: Any
) -> dict[str, Any]:
    """A valid document as plain JSON values; ``changes`` replace top-level fields."""
    hot_bytes = 60 if any(hot.values()) else 0
    # 5,120 tokens of 64 bytes and one more, which padded tokens write to.
    ledger = {"hot_experts": hot_bytes, "kv_pool": 5121 * 64, "unused": 10}
    document = {
        "schema": "placer.placement/1",
        "placer_version": "0.1.0",
        "created": "2026-11-29T12:00:00+00:00",
        "model": {
            "name": "tiny-moe",
            "architecture": "TinyMoeForCausalLM",
            "config_sha256": "0" * 64,
            "layers": list(layers),
            "experts": experts,
            "top_k": top_k,
        },
        "hardware": {
            "gpu": {"name": "h100-sxm", "provenance": "datasheet"},
            "cpu": {"name": "a CPU", "provenance": "measured"},
        },
        "workload": {
            "prompt_tokens": 512,
            "output_tokens": 128,
            "concurrency": 8,
            "slo": {"tpot_ms": 50.0, "ttft_ms": None},
        },
        "tp": 1,
        "hbm": {"budget_bytes_per_gpu": sum(ledger.values()), "ledger": ledger},
        "host": {"ledger": {"experts": 1000, "staging": 24}},
        "kv": {
            "dtype": "bf16",
            "bytes_per_token_per_gpu": 64,
            "tokens": 5120,
            "max_running_requests": 8,
            "chunked_prefill_size": 2048,
            "cuda_graph_max_bs": 8,
        },
        "cpu_method": "RAWINT4",
        "hot": {str(layer): list(ids) for layer, ids in hot.items()},
        "hot_total": sum(len(ids) for ids in hot.values()),
        "predicted": {**figures(), "provenance": {"cold": "fitted", "hot": "datasheet"}},
        "baselines": {"uniform": figures()},
        "heldout": {"coverage": 0.75, "uniform_null": 0.5, "verdict": "static placement helps"},
        "solver": {
            "name": "structured",
            "status": "optimal",
            "objective_us": 100.0,
            "bound_us": 99.5,
            "gap": 0.005,
            "seconds": 1.5,
        },
        "mem_fraction_static": 0.874,
        "kt": {"threads": 32, "subpools": 2},
        "null_reasons": {
            "workload.slo.ttft_ms": "no target was given",
            "predicted": "prefill was not replayed",
            "baselines": "prefill was not replayed",
        },
    }
    return copy.deepcopy({**document, **changes})


def placement(
    hot: Mapping[int, Sequence[int]], *, layers: Sequence[int], experts: int, top_k: int = 2, **changes: Any
) -> PlacementDocument:
    return PlacementDocument.model_validate(
        placement_dict(hot, layers=layers, experts=experts, top_k=top_k, **changes)
    )
