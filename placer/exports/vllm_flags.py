"""The vLLM flags that a placement decides: its KV pool to the byte, and an offload of whole layers.

Names and rules are those of vLLM 0.33 (config/cache.py, config/offload.py, model_executor/offloader/uva.py).
"""

import math
from dataclasses import dataclass

from placer.datasheet import GpuDatasheet, datasheet_of_device, gpu_datasheet
from placer.errors import BadInputError
from placer.exports.flag import Flag
from placer.exports.layer_choice import LayerChoice, base_step_ms, known_layers, room_bytes
from placer.exports.runtime_scheduler import scheduler_note
from placer.placement import PlacementDocument
from placer.profiler.roofline import BANDWIDTH_EFFICIENCY
from placer.units import GIB

VLLM = "vLLM 0.33"
BLOCK_TOKENS = 16
"""Tokens of a KV block where --block-size is left to vLLM's default on CUDA."""


@dataclass(frozen=True)
class Offload:
    """The layers whose experts vLLM leaves in host memory.

    Attributes
    ----------
    layers
        MoE layers (checkpoint indices): the first of the model, as vLLM fills its budget in order.
    bytes_per_gpu
        What they take in the checkpoint's own format.
    pinned_bytes
        Host memory that they take, all GPUs together: each pinned tensor is rounded up to a power of two.
    choice
        The layers that stay on the GPU, and the predicted decode step.
    """

    layers: tuple[int, ...]
    bytes_per_gpu: int
    pinned_bytes: int
    choice: LayerChoice


def layer_offload(placement: PlacementDocument) -> Offload:
    """What must leave the GPU so that the plan's KV pool keeps its room."""
    whole, model = known_layers(placement), placement.model
    share = -(-whole.checkpoint_expert_bytes // placement.tp)
    layer_bytes = model.experts * share
    resident = min(len(model.layers), room_bytes(placement) // layer_bytes)
    offloaded = model.layers[: len(model.layers) - resident]
    return Offload(
        layers=offloaded,
        bytes_per_gpu=len(offloaded) * layer_bytes,
        pinned_bytes=placement.tp * len(offloaded) * _pinned(layer_bytes),
        choice=LayerChoice(model.layers[len(offloaded) :], *_step_ms(placement, len(offloaded), share)),
    )


def _pinned(layer_bytes: int) -> int:
    """A layer's experts as pinned host memory: gate and up are two thirds of them in one tensor, down the third."""
    return sum(1 << math.ceil(math.log2(max(1, part))) for part in (layer_bytes * 2 // 3, layer_bytes // 3))


def _step_ms(
    placement: PlacementDocument, offloaded: int, share_bytes: int
) -> tuple[float | None, str | None]:
    """The decode step with the first ``offloaded`` MoE layers read over the host link, or why it is not known."""
    whole, base = known_layers(placement), base_step_ms(placement)
    gpu = _gpu(placement)
    if base is None:
        return None, "the placement holds no per-layer times"
    if gpu is None:
        return (
            None,
            f"no datasheet says how fast {placement.hardware.get('gpu', {}).get('name')!r} reads host memory",
        )
    read_ms = share_bytes / (gpu.pcie_bytes_per_s * BANDWIDTH_EFFICIENCY) * 1e3
    planned = placement.hbm.expert_bytes or whole.checkpoint_expert_bytes
    # A kernel that reads weights once takes as long as their bytes.
    widened = max(1.0, whole.checkpoint_expert_bytes / planned)
    streamed = sum(
        max(active * read_ms, hot_ms)
        for active, hot_ms in zip(whole.active_experts[:offloaded], whole.all_hot_ms, strict=False)
    )
    return base + streamed + widened * sum(whole.all_hot_ms[offloaded:]), None


def _gpu(placement: PlacementDocument) -> GpuDatasheet | None:
    name = str((placement.hardware.get("gpu") or {}).get("name", ""))
    try:
        return gpu_datasheet(name)
    except BadInputError:
        return datasheet_of_device(name)


def kv_cache_bytes(placement: PlacementDocument) -> int:
    """Bytes of the plan's KV pool per GPU: whole blocks, and one more that vLLM keeps for itself."""
    kv = placement.kv
    blocks = -(-kv.tokens // BLOCK_TOKENS) + 1
    if kv.pools is not None and len(kv.pools) > 1:
        # Layers of several kinds share blocks by a rule that is not modelled here: the plan's bytes stand.
        return placement.hbm.ledger["kv_pool"] + placement.hbm.ledger.get("request_state", 0)
    return blocks * BLOCK_TOKENS * kv.bytes_per_token_per_gpu


def serving_flags(placement: PlacementDocument) -> tuple[Flag, ...]:
    """The flags of the KV pool and the scheduler, which hold wherever the experts are.

    Raises
    ------
    BadInputError
        When the plan drafts, which is not exported for vLLM.
    """
    kv, workload = placement.kv, placement.workload
    if kv.speculation is not None:
        raise BadInputError(
            "the plan keeps room for drafting with the MTP layer, which is not exported for vLLM",
            "solve again without --speculative",
        )
    return (
        Flag("tensor-parallel-size", placement.tp, "GPUs."),
        Flag(
            "kv-cache-memory-bytes",
            kv_cache_bytes(placement),
            f"The plan's {kv.tokens:,} KV tokens per GPU; gpu-memory-utilization is then ignored.",
        ),
        Flag("block-size", BLOCK_TOKENS, "Tokens of a KV block, in which the pool is counted."),
        Flag("kv-cache-dtype", "auto" if kv.dtype == "bf16" else "fp8", "Precision of the KV pool."),
        Flag("max-num-seqs", kv.max_running_requests, "Requests that decode together."),
        Flag(
            "max-num-batched-tokens",
            max(kv.chunked_prefill_size, kv.max_running_requests),
            "Most tokens of a step: the prefill chunk.",
        ),
        Flag(
            "max-model-len",
            min(kv.context_length or kv.tokens, kv.tokens),
            f"Longest request; planned for {workload.prompt_tokens + workload.output_tokens:,} tokens.",
        ),
    )


def vllm_flags(placement: PlacementDocument, offload: Offload) -> tuple[Flag, ...]:
    """Every flag that the plan depends on.

    Raises
    ------
    BadInputError
        As `serving_flags` does.
    """
    flags = [*serving_flags(placement)]
    if offload.layers:
        flags += [
            Flag("offload-backend", "uva", "The GPU reads offloaded weights in host memory where they lie."),
            Flag(
                "cpu-offload-gb",
                offload_gib(offload.bytes_per_gpu),
                f"GiB per GPU: the experts of the first {len(offload.layers)} MoE layers.",
            ),
            Flag(
                "cpu-offload-params",
                ("experts",),
                "Only experts leave the GPU; without it dense weights go first.",
            ),
        ]
    return tuple(flags)


def offload_gib(offloaded_bytes: int) -> float:
    """The budget in GiB, rounded down: vLLM stops once it is reached, so half a byte too many costs a tensor."""
    return math.floor((offloaded_bytes - 1) / GIB * 1e6) / 1e6


def vllm_notes(placement: PlacementDocument, offload: Offload) -> tuple[str, ...]:
    """What stock vLLM alters of the plan, and its traps, one sentence each."""
    whole, planned_ms = known_layers(placement), placement.predicted.decode_step_ms
    notes = [
        "stock vLLM places experts by the layer, in the checkpoint's own precision "
        f"({whole.checkpoint_format}), and runs none on the CPU: it does not follow the plan's hot experts"
    ]
    if not offload.layers:
        notes.append("every expert fits on the GPU beside the plan's KV pool: nothing is offloaded")
    else:
        first, last = offload.layers[0], offload.layers[-1]
        notes.append(
            f"vLLM offloads in the order of the layers, from layer {first} to layer {last}, whichever are hot; no flag "
            "names layers, and one that does matches nothing without a word"
        )
        notes.append(
            f"pinned memory is rounded up to powers of two for each tensor: {offload.pinned_bytes / GIB:,.1f} GiB of "
            f"RAM for {placement.tp * offload.bytes_per_gpu / GIB:,.1f} GiB of experts"
        )
    if offload.choice.decode_step_ms is None:
        notes.append(f"the loss against the plan is not stated: {offload.choice.reason}")
    elif offload.layers:
        lost = offload.choice.decode_step_ms - planned_ms
        notes.append(
            f"predicted decode step {offload.choice.decode_step_ms:,.1f} ms against {planned_ms:,.1f} ms of the plan, "
            f"{abs(lost):,.1f} ms {'slower' if lost >= 0 else 'faster'}: experts in use times their bytes over the "
            f"host link's datasheet bandwidth at {BANDWIDTH_EFFICIENCY:.0%}, not measured"
        )
    if placement.kv.pools is not None and len(placement.kv.pools) > 1:
        notes.append(
            "layers of this model cache different numbers of tokens, and vLLM shares its blocks between them by "
            "its own rule: the bytes are the plan's, the tokens may differ (logged as 'GPU KV cache size')"
        )
    if whole.checkpoint_format.startswith(_REPACKED):
        notes.append(
            f"{whole.checkpoint_format} experts may be repacked after loading, which has undone offloading and run out "
            "of memory (vLLM issues 58178, 21864): compare the log line 'Total CPU offloaded parameters'"
        )
    if (scheduler := scheduler_note(placement, "vllm")) is not None:
        notes.append(scheduler)
    return tuple(notes)


_REPACKED = ("mxfp4", "nvfp4", "gptq", "awq", "int4")
