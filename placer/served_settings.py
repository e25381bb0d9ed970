"""What a server said of itself, against the placement that it is said to run."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from placer.exports.kt_selection import hot_experts, kt_layout
from placer.model.spec import ModelSpec
from placer.placement import PlacementDocument

_KV_DTYPES = {"bf16": ("auto", "bf16", "bfloat16"), "fp8": ("fp8_e4m3", "fp8_e5m2")}
_ONE_RUN = "give the benchmark of the server that ran this placement"


def served_mismatches(
    served_model: str | None, server: Mapping[str, Any] | None, placement: PlacementDocument, model: ModelSpec
) -> Iterator[tuple[str, str]]:
    """(what does not match, what to do), for everything that can be seen.

    ``served_model`` is what the benchmark calls it: names are compared without their folders and without regard to
    case. ``server`` holds SGLang's arguments; those that are absent or null are not compared.
    """
    planned = placement.model.name
    if served_model is not None and _bare(served_model) != _bare(planned):
        yield (
            f"the benchmark is of model {served_model}, the placement is for {planned}",
            f"{_ONE_RUN}, or add --force where both are one checkpoint",
        )
    if server is None:
        return
    kv, kt = placement.kv, placement.kt
    for name, expected in (
        ("tp_size", placement.tp),
        ("pp_size", 1),
        ("dp_size", 1),
        ("ep_size", 1),
        ("kt_method", placement.cpu_method),
        ("kt_cpuinfer", None if kt is None else kt.threads),
        ("kt_threadpool_count", None if kt is None else kt.subpools),
        ("max_running_requests", kv.max_running_requests),
        ("chunked_prefill_size", kv.chunked_prefill_size),
        ("max_total_tokens", kv.max_total_tokens or kv.tokens),
        ("enable_mixed_chunk", False),
        ("kt_enable_dynamic_expert_update", False),
        ("disable_cuda_graph", False),
    ):
        found = server.get(name)
        if found is not None and expected is not None and found != expected:
            yield f"the server ran with {name} {found}, the placement is for {expected}", _ONE_RUN
    # What the server found room for; of layers with a window it counts otherwise.
    pool = server.get("max_total_num_tokens")
    if isinstance(pool, int) and kv.max_total_tokens in (None, kv.tokens) and pool < kv.tokens:
        yield f"the server's KV pool holds {pool:,} tokens, the placement's {kv.tokens:,}", _ONE_RUN
    dtype = server.get("kv_cache_dtype")
    if dtype is not None and dtype not in _KV_DTYPES[kv.dtype]:
        yield f"the server ran with kv_cache_dtype {dtype}, the placement is for {kv.dtype}", _ONE_RUN
    yield from _hot_mismatches(server, placement, model)


def _hot_mismatches(
    server: Mapping[str, Any], placement: PlacementDocument, model: ModelSpec
) -> Iterator[tuple[str, str]]:
    """What the server says of its hot experts, counted as the runtime counts them."""
    if "kt_weight_path" in server and server["kt_weight_path"] is None:
        yield "the server ran without kt-kernel (kt_weight_path is not set)", _ONE_RUN
        return
    layout = kt_layout(model.config)
    planned = sum(len(placement.hot.get(str(layer), ())) for layer in layout.moe_layers)
    ratio, per_layer = server.get("kt_gpu_experts_ratio"), server.get("kt_num_gpu_experts")
    served = None
    if isinstance(ratio, int | float):
        served = hot_experts(layout, ratio)
    elif isinstance(per_layer, int):
        served = per_layer * len(layout.moe_layers)
    if served is not None and served != planned:
        yield f"the server kept {served:,} experts hot, the placement {planned:,}", _ONE_RUN
    strategy = server.get("kt_expert_placement_strategy")
    if strategy not in (None, "frequency") and not _first_of_each_layer(placement):
        yield (
            f"the server placed experts by {strategy}, which does not read the plan as frequency does",
            _ONE_RUN,
        )
    if server.get("kt_max_deferred_experts_per_token"):
        yield "the server deferred experts by a layer, which is not modelled", _ONE_RUN


def _first_of_each_layer(placement: PlacementDocument) -> bool:
    """Whether the plan is what the runtime's default, uniform, makes too."""
    held = {len(ids) for ids in placement.hot.values()}
    return len(held) <= 1 and all(sorted(ids) == list(range(len(ids))) for ids in placement.hot.values())


def _bare(name: str) -> str:
    return PurePosixPath(name.rstrip("/")).name.casefold()
