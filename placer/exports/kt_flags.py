"""The sglang-kt flags that a placement decides, each with what it does for the plan.

Names, value forms and defaults are those of sglang/srt/server_args.py in sglang-kt 0.7.2.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from placer.errors import BadInputError
from placer.exports.flag import Flag, yaml_lines
from placer.exports.kt_drafting import drafting_flags
from placer.exports.kt_pools import pool_flags
from placer.exports.kt_selection import RUNTIME, unwrapped
from placer.placement import PlacementDocument
from placer.profiler.serving.graph_batch import captured_batches

COUNTS_FILE = "init_expert_location.pt"
KV_DTYPES = {"bf16": "bf16", "fp8": "fp8_e4m3"}
TOKEN_RECORDER_TOP_K = 8
"""Expert ids that the runtime's per_token recorder keeps per token (eplb/expert_distribution.py)."""

_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)

DEFERRAL = "kt-max-deferred-experts-per-token"

LEFT_UNSET = {
    "kt-num-gpu-experts": "the ratio replaces it",
    "kt-gpu-prefill-token-threshold": (
        "large batches would copy whole layers into GPU memory that the plan does not reserve"
    ),
    "kt-enable-dynamic-expert-update": "it would replace the plan's hot experts by those of the last prefill",
    DEFERRAL: "it postpones experts by a layer, which changes the outputs",
    "enable-eplb": "it moves experts between GPUs, and KT knows none of it",
    "enable-dp-attention": "attention and KV were counted without it",
    "moe-a2a-backend": "its backends switch expert parallelism on, which KT does not run",
    "enable-mixed-chunk": "prefill and decode tokens together can exceed the chunk that the CPU buffers hold",
    "cpu-offload-gb": "weights would leave the GPU that the plan counts there",
    "disable-cuda-graph": "every decode step would launch its kernels one by one",
    "quantization": "hot experts are counted in the checkpoint's own block-FP8",
}
"""Flags that must stay unset for the plan to hold, and why."""


def server_flags(
    placement: PlacementDocument,
    config: Mapping[str, Any],
    *,
    ratio: float,
    mem_fraction_static: float,
    model_path: str | None,
    kt_weight_path: str | None,
) -> tuple[Flag, ...]:
    """Every flag that the plan depends on; paths that are not given are left to the launch script.

    Raises
    ------
    BadInputError
        When the placement lacks what a flag needs, or its settings are ones that the runtime refuses.
    """
    kv, kt = placement.kv, placement.kt
    if kt is None:
        raise BadInputError(
            "the placement does not say with how many CPU threads it was timed (field kt)",
            "solve again with a profile that says so",
        )
    how = (
        "as profiled" if placement.datasheet_cpu is None else f"by the datasheet of {placement.datasheet_cpu}"
    )
    if not 0 < mem_fraction_static < 1:
        raise BadInputError(
            f"mem_fraction_static is {mem_fraction_static:g}; {RUNTIME} takes a share between 0 and 1",
            "plan with an --hbm-budget below the whole GPU",
        )
    paths = [
        Flag(
            "model-path",
            model_path,
            "The checkpoint; its experts must be block-FP8, as the plan counts them.",
        )
        if model_path
        else None,
        Flag("kt-weight-path", kt_weight_path, "All experts in the CPU method's own file format.")
        if kt_weight_path
        else None,
    ]
    plan = [
        Flag("kt-method", placement.cpu_method, "The CPU kernel that the plan was timed with."),
        Flag(
            "kt-expert-placement-strategy",
            "frequency",
            f"Rank experts by {COUNTS_FILE}; the default, uniform, would ignore it.",
        ),
        Flag("init-expert-location", COUNTS_FILE, "The ranking; launch.sh gives its full path."),
        Flag(
            "kt-gpu-experts-ratio",
            ratio,
            "Cuts the ranking exactly after the last hot expert.",
        ),
        Flag("kt-cpuinfer", kt.threads, f"CPU threads, {how}."),
        Flag("kt-threadpool-count", kt.subpools, f"CPU pools, one per NUMA node, {how}."),
        Flag("tensor-parallel-size", placement.tp, "GPUs; every GPU holds a share of every hot expert."),
        Flag("ep-size", 1, "The hot/cold split does not work under expert parallelism."),
        Flag(
            "mem-fraction-static",
            mem_fraction_static,
            "Share of the GPU for weights and KV: enough for the plan's pool, the rest for activations.",
        ),
        *pool_flags(placement, config),
        Flag("max-running-requests", kv.max_running_requests, "Requests that decode together."),
        Flag("chunked-prefill-size", kv.chunked_prefill_size, "Prefill chunk; also the largest CPU batch."),
        Flag("cuda-graph-max-bs", kv.cuda_graph_max_bs, "Largest decode batch that runs as a CUDA graph."),
        Flag(
            "cuda-graph-bs",
            captured_batches(kv.cuda_graph_max_bs),
            "Batches to capture; the runtime's own list leaves out a largest batch that is not in its steps.",
        ),
        Flag("kv-cache-dtype", KV_DTYPES[kv.dtype], "Precision that the KV bytes are counted in."),
    ]
    if deferred := planned_deferral(placement):
        why = (
            "Weakest selections of a token that wait a layer, as the plan was predicted; changes the outputs."
        )
        plan.append(Flag(DEFERRAL, deferred, why))
    plan += drafting_flags(placement, config)
    _check_graphs(placement)
    lengths = (longest_context(config), kv.context_length)
    if any(lengths):
        limit = min(*(length for length in lengths if length), kv.tokens)
        request = placement.workload.prompt_tokens + placement.workload.output_tokens
        if limit < request:
            raise BadInputError(
                f"config.json: its context of {limit:,} tokens is shorter than the requests that were planned for, "
                f"{request:,} tokens (workload.prompt_tokens + output_tokens)",
                "give the config.json of the model that was planned for",
            )
        why = "Longest request; the per-request token table is this long, so an unused length costs memory."
        plan.append(Flag("context-length", limit, why))
    return (*(flag for flag in paths if flag is not None), *plan)


def _check_graphs(placement: PlacementDocument) -> None:
    """Raise BadInputError for CUDA graphs that the runtime cannot capture.

    kt-kernel's buffers hold a prefill chunk, and a larger pass raises (_check_qlen_fits_cpp_buffers in
    kt_kernel/experts_base.py); the placement itself answers for decode steps.
    """
    kv = placement.kv
    largest = kv.cuda_graph_max_bs * (1 if kv.speculation is None else kv.speculation.draft_tokens)
    if largest > kv.chunked_prefill_size:
        raise BadInputError(
            f"the largest CUDA graph of {largest:,} tokens (kv.cuda_graph_max_bs) is larger than "
            f"kv.chunked_prefill_size, {kv.chunked_prefill_size:,}: kt-kernel's CPU buffers hold no more",
            "solve again with a larger --chunk",
        )


def left_unset(placement: PlacementDocument) -> dict[str, str]:
    """Flags that must stay unset for the plan to hold, and why."""
    unset = dict(LEFT_UNSET)
    if planned_deferral(placement):
        del unset[DEFERRAL]
    if placement.kv.speculation is None:
        unset["speculative-algorithm"] = "the plan keeps no memory for a draft, and its times are without one"
    return unset


def planned_deferral(placement: PlacementDocument) -> int:
    """Selections of each token that the plan's times defer by a layer."""
    return 0 if placement.runtime is None else placement.runtime.deferred_experts


def recording_flags(top_k: int) -> tuple[Flag, ...]:
    """Flags that switch the runtime's expert recorder on, in the finest mode that top-k allows."""
    mask = Flag(
        "record-kt-gpu-expert-distribution",
        True,
        "Also records which experts are on the GPU, to check the mask.",
    )
    if top_k <= TOKEN_RECORDER_TOP_K:
        why = "Records every token's experts; the server allocates a buffer on each GPU for it."
        return (Flag("expert-distribution-recorder-mode", "per_token", why), mask)
    return (
        mask,
        Flag(
            "expert-distribution-recorder-mode",
            "stat",
            f"Records counts per pass: per_token holds {TOKEN_RECORDER_TOP_K} experts a token, not {top_k}.",
        ),
        Flag("expert-distribution-recorder-buffer-size", -1, "Keeps every pass, in order."),
    )


def longest_context(config: Mapping[str, Any]) -> int | None:
    """The longest context that the runtime accepts for a config.json, or None where it does not say.

    The runtime reads the first of these keys; their least is never above it. A rope factor, which would
    raise the limit, is not counted on.
    """
    text = unwrapped(config)
    lengths = [text[key] for key in _CONTEXT_KEYS if isinstance(text.get(key), int) and text[key] > 0]
    return min(lengths, default=None)


def render_config(flags: Sequence[Flag]) -> str:
    """The flags as the YAML file that ``python -m sglang.launch_server --config`` reads."""
    lines = [
        f"# Flags of {RUNTIME} that the placement depends on; README.md says what each one does.",
        "# launch.sh adds the paths: model-path, kt-weight-path and init-expert-location in full.",
    ]
    return "\n".join([*lines, *yaml_lines(flags)]) + "\n"
