"""Fields of a placement that cannot both be true: each is said as one sentence that names the two."""

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from placer.carried_config import carried_config
from placer.compressed_pool import PAGE_TOKENS, CompressedPools
from placer.hbm import HbmLedger, free_memory_share, request_table_bytes
from placer.model.kv import token_bytes
from placer.pool import Pool, pools_bytes
from placer.sampling_contradiction import sampling_contradictions
from placer.window_pool import TwoPools

if TYPE_CHECKING:
    from placer.placement import PlacementDocument

_ROUNDING = 0.001
"""``mem_fraction_static`` is rounded up to this."""


def contradictions(document: "PlacementDocument") -> Iterator[str]:
    """Every pair of fields that disagree, as "field: what it says, but what the other one says".

    What the document leaves out is not checked: the factors of the ledger's lines are optional.
    """
    return chain(
        _hot(document),
        _hot_bytes(document),
        _whole_layers(document),
        _settings(document),
        _kv_pool(document),
        _flags(document),
        _states(document),
        _drafting(document),
        _fraction(document),
        _host(document),
        sampling_contradictions(document),
        _model(document),
    )


def _hot(document: "PlacementDocument") -> Iterator[str]:
    layers, experts = {str(layer) for layer in document.model.layers}, document.model.experts
    for layer, ids in document.hot.items():
        if layer not in layers:
            yield f"hot.{layer}: is not one of model.layers"
        if out := [expert for expert in ids if not 0 <= expert < experts]:
            yield f"hot.{layer}: expert {out[0]} is not in 0 to {experts - 1} (model.experts)"
        if len(set(ids)) != len(ids):
            yield f"hot.{layer}: names an expert twice"
    for layer, place in (document.pinned or {}).items():
        held = len(document.hot.get(layer, ()))
        if layer not in layers:
            yield f"pinned.{layer}: is not one of model.layers"
        elif held != (experts if place == "all" else 0):
            yield f"pinned.{layer}: is {place!r}, but hot.{layer} names {held:,} of {experts:,} experts"
    if (asked := document.hot_per_layer) is not None:
        for layer in sorted(layers - set(document.pinned or {}), key=int):
            held = len(document.hot.get(layer, ()))
            if not asked.min <= held <= asked.max:
                yield f"hot_per_layer: is {asked.min} to {asked.max}, but hot.{layer} names {held:,} experts"
    named = sum(len(ids) for ids in document.hot.values())
    if named != document.hot_total:
        yield f"hot_total: is {document.hot_total:,}, but hot names {named:,} experts"
    if document.model.top_k > experts:
        yield f"model.top_k: {document.model.top_k} is more than the {experts} experts of model.experts"


def _hot_bytes(document: "PlacementDocument") -> Iterator[str]:
    held, whole = document.hbm.ledger.get("hot_experts"), document.hbm.expert_bytes
    if held is None:
        return
    if whole is not None:
        share = -(-whole // document.tp)
        if held != document.hot_total * share:
            yield (
                f"hbm.ledger.hot_experts: is {held:,} bytes, but hot_total {document.hot_total:,} experts of "
                f"hbm.expert_bytes {whole:,} over tp {document.tp} take {document.hot_total * share:,}"
            )
    elif (held == 0) != (document.hot_total == 0):
        yield f"hbm.ledger.hot_experts: is {held:,} bytes, but hot_total is {document.hot_total:,}"


def _whole_layers(document: "PlacementDocument") -> Iterator[str]:
    whole = document.whole_layers
    if whole is None:
        return
    layers, experts = len(document.model.layers), document.model.experts
    for name, most in (("all_hot_ms", math.inf), ("all_cold_ms", math.inf), ("active_experts", experts)):
        means = getattr(whole, name)
        if len(means) != layers:
            yield f"whole_layers.{name}: has {len(means)} entries for {layers} MoE layers"
        elif not all(0 <= mean <= most for mean in means):
            yield f"whole_layers.{name}: an entry is not between 0 and {most:g}"


def _settings(document: "PlacementDocument") -> Iterator[str]:
    kv, workload = document.kv, document.workload
    running, chunk = kv.max_running_requests, kv.chunked_prefill_size
    step = running * (kv.speculation.draft_tokens if kv.speculation else 1)
    if step > chunk:
        yield (
            f"kv.max_running_requests: a decode step of {step:,} tokens is larger than the prefill chunk of "
            f"kv.chunked_prefill_size {chunk:,}, which kt-kernel refuses"
        )
    if running > workload.concurrency:
        yield f"kv.max_running_requests: is {running:,}, but workload.concurrency is {workload.concurrency:,}"
    if kv.cuda_graph_max_bs < running:
        yield (
            f"kv.cuda_graph_max_bs: is {kv.cuda_graph_max_bs:,}, but kv.max_running_requests {running:,} decode "
            "in one step, which is predicted with a CUDA graph"
        )
    request = workload.prompt_tokens + workload.output_tokens
    if kv.tokens < running * request:
        yield (
            f"kv.tokens: is {kv.tokens:,}, but {running:,} requests of workload.prompt_tokens + output_tokens "
            f"{request:,} need {running * request:,}"
        )
    if kv.page_tokens is not None and chunk % kv.page_tokens:
        yield f"kv.chunked_prefill_size: {chunk:,} is not a multiple of kv.page_tokens {kv.page_tokens}"
    staging, hidden = document.hbm.ledger.get("runtime_staging"), document.model.hidden_size
    if staging is not None and hidden is not None and staging != chunk * hidden * 2:
        yield (
            f"hbm.ledger.runtime_staging: is {staging:,} bytes, but kv.chunked_prefill_size {chunk:,} x "
            f"model.hidden_size {hidden:,} in bf16 take {chunk * hidden * 2:,}"
        )
    yield from _longest(document, request)
    yield from _threads(document)


def _longest(document: "PlacementDocument", request: int) -> Iterator[str]:
    kv, held = document.kv, document.hbm.ledger.get("request_table")
    if kv.context_length is None:
        return
    if kv.context_length < request:
        yield (
            f"kv.context_length: is {kv.context_length:,}, but workload.prompt_tokens + output_tokens are "
            f"{request:,}"
        )
    table = request_table_bytes(kv.max_running_requests, kv.context_length)
    if held is not None and held != table:
        yield (
            f"hbm.ledger.request_table: is {held:,} bytes, but kv.max_running_requests "
            f"{kv.max_running_requests:,} of kv.context_length {kv.context_length:,} take {table:,}"
        )


def _threads(document: "PlacementDocument") -> Iterator[str]:
    cpu = document.hardware.get("cpu")
    how = "timed" if document.datasheet_cpu is None else "estimated"
    if isinstance(cpu, Mapping) and cpu.get("method", document.cpu_method) != document.cpu_method:
        yield f"cpu_method: is {document.cpu_method}, but hardware.cpu.method, which was {how}, is {cpu['method']}"
    if document.kt is None or not isinstance(cpu, Mapping):
        return
    for name, ours in (("threads", document.kt.threads), ("numa_nodes", document.kt.subpools)):
        if name in cpu and cpu[name] != ours:
            field = "kt.threads" if name == "threads" else "kt.subpools"
            yield f"{field}: is {ours:,}, but hardware.cpu.{name}, with which it was {how}, is {cpu[name]}"


def _kv_pool(document: "PlacementDocument") -> Iterator[str]:
    kv, held = document.kv, document.hbm.ledger.get("kv_pool")
    if held is None:
        return
    if kv.pools is None:
        least = kv.tokens * kv.bytes_per_token_per_gpu
        if held < least:
            yield (
                f"hbm.ledger.kv_pool: is {held:,} bytes, but kv.tokens {kv.tokens:,} x "
                f"kv.bytes_per_token_per_gpu {kv.bytes_per_token_per_gpu:,} take {least:,}"
            )
        return
    if (total := pools_bytes(kv.pools)) != held:
        yield f"hbm.ledger.kv_pool: is {held:,} bytes, but kv.pools sum to {total:,}"
    if (room := max(pool.tokens for pool in kv.pools)) != kv.tokens:
        yield f"kv.tokens: is {kv.tokens:,}, but kv.pools hold {room:,}"
    first = kv.pools[0]
    if first.name == "full" and first.slot_bytes != kv.bytes_per_token_per_gpu:
        yield (
            f"kv.bytes_per_token_per_gpu: is {kv.bytes_per_token_per_gpu:,}, but a slot of kv.pools takes "
            f"{first.slot_bytes:,}"
        )


def _flags(document: "PlacementDocument") -> Iterator[str]:
    """The flags that are exported against the pools that they make."""
    kv = document.kv
    if kv.pools is None or kv.page_tokens is None or kv.max_total_tokens is None:
        return
    pools = {pool.name: pool for pool in kv.pools}
    if not set(pools) <= {"full", "window"}:
        yield from _compressed(document, kv.max_total_tokens, kv.page_tokens)
        return
    for pool in kv.pools:
        if pool.slots != pool.tokens + kv.page_tokens:
            yield (
                f"kv.pools.{pool.name}: has {pool.slots:,} slots for {pool.tokens:,} tokens and a page of "
                f"kv.page_tokens {kv.page_tokens}"
            )
    each = sum(pool.slot_bytes for pool in kv.pools)
    if kv.claimed_bytes is not None and kv.claimed_bytes != kv.max_total_tokens * each:
        yield (
            f"kv.max_total_tokens: {kv.max_total_tokens:,} x {each:,} bytes in all layers is not kv.claimed_bytes "
            f"{kv.claimed_bytes:,}"
        )
    if kv.swa_full_tokens_ratio is None:
        if kv.max_total_tokens != kv.tokens:
            yield f"kv.max_total_tokens: is {kv.max_total_tokens:,}, but kv.tokens is {kv.tokens:,}"
        return
    made = _two_pools(pools, kv.page_tokens, kv.swa_full_tokens_ratio).tokens(kv.max_total_tokens)
    planned = tuple(pools[name].tokens if name in pools else 0 for name in ("full", "window"))
    if made != planned:
        yield (
            f"kv.swa_full_tokens_ratio: {kv.swa_full_tokens_ratio} and kv.max_total_tokens "
            f"{kv.max_total_tokens:,} make pools of {made[0]:,} and {made[1]:,} tokens, but kv.pools hold "
            f"{planned[0]:,} and {planned[1]:,}"
        )


def _compressed(document: "PlacementDocument", max_total_tokens: int, page_tokens: int) -> Iterator[str]:
    """The flags of a compressed cache, whose pools follow from the model's config."""
    kv, carried = document.kv, document.model.config or {}
    fields = carried.get("text_config") or carried
    if page_tokens != PAGE_TOKENS:
        yield f"kv.page_tokens: is {page_tokens}, but kv.pools of a compressed cache have {PAGE_TOKENS}"
    if kv.swa_full_tokens_ratio is None:
        yield "kv.swa_full_tokens_ratio: is absent, but kv.pools are those of a compressed cache"
        return
    try:
        made = CompressedPools.of(
            fields, ratio=kv.swa_full_tokens_ratio, speculative=kv.speculation is not None
        )
    except (KeyError, TypeError, ValueError):
        # Without the config that the plan was made of there is nothing to compare with.
        return
    if not set(made.ratios) <= {0, 4, 128} or made.window < 1:
        yield "model.config: describes no compressed cache, but kv.pools are those of one"
    elif made.pools(max_total_tokens) != kv.pools or made.claimed_bytes(max_total_tokens) != kv.claimed_bytes:
        yield (
            f"kv.max_total_tokens: {max_total_tokens:,} at kv.swa_full_tokens_ratio {kv.swa_full_tokens_ratio} "
            "does not make the kv.pools that model.config asks for"
        )


def _two_pools(pools: Mapping[str, Pool], page_tokens: int, ratio: float) -> TwoPools:
    nothing = Pool("", 0, 0, 0, 0)
    full, window = pools.get("full", nothing), pools.get("window", nothing)
    return TwoPools(
        full_bytes=full.slot_bytes,
        full_layers=full.layers,
        window_layer_bytes=window.slot_bytes // max(1, window.layers),
        window_layers=window.layers,
        page_tokens=page_tokens,
        ratio=ratio,
    )


def _states(document: "PlacementDocument") -> Iterator[str]:
    kv, held = document.kv, document.hbm.ledger.get("request_state")
    if kv.states is None:
        if kv.max_mamba_cache_size is not None:
            yield f"kv.max_mamba_cache_size: is {kv.max_mamba_cache_size:,}, but kv.states is absent"
        if kv.pools is not None and held:
            yield f"hbm.ledger.request_state: is {held:,} bytes, but kv.states is absent"
        return
    if (total := pools_bytes(kv.states)) != held:
        yield f"hbm.ledger.request_state: is {held} bytes, but kv.states sum to {total:,}"
    slots, running = kv.states[0].slots - 1, kv.max_running_requests
    if slots != kv.max_mamba_cache_size:
        yield (
            f"kv.max_mamba_cache_size: is {kv.max_mamba_cache_size}, but kv.states hold {slots:,} beside the "
            "spare one"
        )
    if slots not in ((running,) if kv.speculation else (running, 3 * running)):
        yield f"kv.max_running_requests: is {running:,}, which kv.states with {slots:,} slots is not made for"
    if kv.speculation is not None:
        drafts = (running + 1) * kv.speculation.draft_tokens
        if len(kv.states) < 2 or kv.states[1].slots != drafts:
            yield f"kv.speculation.draft_tokens: need {drafts:,} slots of drafts, which kv.states do not hold"


def _drafting(document: "PlacementDocument") -> Iterator[str]:
    speculation, held = document.kv.speculation, document.hbm.ledger.get("mtp", 0)
    if held and speculation is None:
        yield f"hbm.ledger.mtp: is {held:,} bytes, but kv.speculation, which would use them, is absent"
    if speculation is None:
        return
    if not held:
        yield "kv.speculation: drafts tokens, but hbm.ledger.mtp holds nothing"
    if speculation.branches != 1 or speculation.draft_tokens != speculation.steps + 1:
        yield (
            f"kv.speculation.draft_tokens: is {speculation.draft_tokens}, but kv.speculation.steps "
            f"{speculation.steps} in {speculation.branches} branch(es) verify {speculation.steps + 1}"
        )


def _fraction(document: "PlacementDocument") -> Iterator[str]:
    hbm, device = document.hbm, document.hbm.device_bytes
    gpu = document.hardware.get("gpu")
    if device is None:
        return
    if isinstance(gpu, Mapping) and gpu.get("usable_bytes", device) != device:
        yield f"hbm.device_bytes: is {device:,}, but hardware.gpu.usable_bytes is {gpu['usable_bytes']}"
    if hbm.budget_bytes_per_gpu > device:
        yield f"hbm.budget_bytes_per_gpu: {hbm.budget_bytes_per_gpu:,} is more than hbm.device_bytes {device:,}"
    fraction = document.mem_fraction_static
    if fraction is None or not hbm.is_complete:
        return
    if (lost := hbm.ledger["free_memory_loss"]) >= device:
        yield f"hbm.ledger.free_memory_loss: {lost:,} bytes leave nothing of hbm.device_bytes {device:,}"
        return
    least, most = free_memory_share(
        HbmLedger(hbm.budget_bytes_per_gpu, hbm.ledger),
        device_bytes=device,
        claimed_bytes=document.kv.claimed_bytes or 0,
    )
    if not least <= fraction < max(most, least) + _ROUNDING:
        yield (
            f"mem_fraction_static: is {fraction:g}, but by hbm.ledger weights and KV need {least:.4f} of the "
            f"memory that is free after start, and the rest leaves {most:.4f}"
        )


def _host(document: "PlacementDocument") -> Iterator[str]:
    total = document.host.total_bytes
    if total is not None and (summed := sum(document.host.ledger.values())) != total:
        yield f"host.total_bytes: is {total:,}, but host.ledger sums to {summed:,}"


def _model(document: "PlacementDocument") -> Iterator[str]:
    """The document against the config.json that it carries."""
    carried = document.model.config
    config = None if carried is None else carried_config(carried)
    if config is None:
        return
    counts, model, kv = config.counts, document.model, document.kv
    for name, ours, theirs in (
        ("layers", model.layers, counts.moe_layers),
        ("experts", model.experts, counts.experts),
        ("top_k", model.top_k, counts.top_k),
        ("hidden_size", model.hidden_size, counts.hidden_size),
    ):
        if ours is not None and ours != theirs:
            yield f"model.{name}: is {_short(ours)}, but model.config makes it {_short(theirs)}"
    if any(group.window_tokens for group in config.cache) and kv.pools is not None:
        # Which layers keep what depends on the runtime; the pools are checked among themselves.
        return
    each = token_bytes(config.cache, document.tp, kv.dtype)
    if each != kv.bytes_per_token_per_gpu:
        yield (
            f"kv.bytes_per_token_per_gpu: is {kv.bytes_per_token_per_gpu:,}, but model.config caches {each:,} "
            f"bytes in kv.dtype {kv.dtype} over tp {document.tp}"
        )
    if kv.states:
        state = sum(state.bytes_per_gpu(document.tp) for state in config.states)
        if kv.states[0].slot_bytes != state:
            yield (
                f"kv.states: a slot takes {kv.states[0].slot_bytes:,} bytes, but a state of model.config over tp "
                f"{document.tp} takes {state:,}"
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 40 else f"{text[:37]}..."
