"""Logs of a sglang-kt 0.7.2 server that runs the small plan of the tests; formats as its source writes them."""

from collections.abc import Mapping
from typing import Any

from placer.placement import PlacementDocument

ARGUMENTS: dict[str, Any] = {
    "model_path": "'/m, tp_size=9'",
    "kt_method": "'RAWINT4'",
    "kt_cpuinfer": 32,
    "kt_threadpool_count": 2,
    "kt_gpu_prefill_token_threshold": None,
    "kt_enable_dynamic_expert_update": False,
    "kt_max_deferred_experts_per_token": None,
    "kt_expert_placement_strategy": "'frequency'",
    "tp_size": 1,
    "ep_size": 1,
    "chunked_prefill_size": 2048,
    "cuda_graph_max_bs": 8,
    "cuda_graph_bs": [1, 2, 4, 8],
    "kv_cache_dtype": "'bf16'",
    "speculative_algorithm": None,
}


def server_log(
    placement: PlacementDocument,
    *,
    hot: Mapping[int, int] = {},
    tokens: int | None = None,
    running: int | None = None,
    weights_gib: float = 0.0,
    cache_gib: float = 0.0,
    without: tuple[str, ...] = (),
    extra: tuple[str, ...] = (),
    **arguments: Any,
) -> str:
    """A log in which the plan runs; ``hot`` replaces layers' counts, ``without`` leaves out lines that hold a text."""
    kv = placement.kv
    counts = {layer: len(placement.hot.get(str(layer), ())) for layer in placement.model.layers} | dict(hot)
    printed = ", ".join(f"{name}={value}" for name, value in (ARGUMENTS | arguments).items())
    lines = [
        f"[2026-11-29 12:00:00] server_args=ServerArgs({printed})",
        "[2026-11-29 12:00:05 TP0] Load weight begin. avail mem=78.43 GB",
        *(
            f"[2026-11-29 12:00:06 TP0] KT GPU experts: layer {layer} (MoE) has {count} GPU experts"
            for layer, count in counts.items()
        ),
        "[2026-11-29 12:00:06 TP0] Generated KT GPU experts masks using 'frequency' strategy: 3 MoE layers (out of "
        f"4 total layers) x 4 experts, total GPU experts in MoE layers = {sum(counts.values())}",
        "[2026-11-29 12:01:00 TP0] Load weight end. elapsed=55.00 s, type=TinyMoe, dtype=torch.bfloat16, "
        f"avail mem=60.00 GB, mem usage={weights_gib:.2f} GB.",
        *extra,
        f"[2026-11-29 12:01:01 TP0] KV Cache is allocated. #tokens: {kv.tokens}, K size: {cache_gib / 2:.2f} GB, "
        f"V size: {cache_gib / 2:.2f} GB",
        "[2026-11-29 12:01:01 TP0] Memory pool end. avail mem=50.00 GB",
        f"[2026-11-29 12:02:00 TP0] max_total_num_tokens={kv.tokens if tokens is None else tokens}, "
        f"chunked_prefill_size={kv.chunked_prefill_size}, max_prefill_tokens=16384, "
        f"max_running_requests={kv.max_running_requests if running is None else running}, context_len=5120, "
        "available_gpu_mem=45.00 GB",
        "[2026-11-29 12:02:01] The server is fired up and ready to roll!",
    ]
    return "\n".join(line for line in lines if not any(text in line for text in without)) + "\n"
