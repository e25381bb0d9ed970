"""What sglang-kt 0.7.2 does with a plan that its users should know before they start it."""

from collections.abc import Iterator, Mapping
from typing import Any

from placer.exports.kt_record import unrecordable
from placer.exports.kt_selection import KtLayout, unwrapped
from placer.exports.runtime_scheduler import scheduler_note
from placer.placement import PlacementDocument
from placer.units import counted

_CLAMPS = ("swiglu_limit", "swiglu_alpha")


def warnings(placement: PlacementDocument, config: Mapping[str, Any], layout: KtLayout) -> tuple[str, ...]:
    """Every warning that applies, one sentence or two each."""
    return tuple(_warnings(placement, config, layout))


def _warnings(placement: PlacementDocument, config: Mapping[str, Any], layout: KtLayout) -> Iterator[str]:
    model, text = placement.model, unwrapped(config)
    phantom = sorted(set(layout.moe_layers) - set(model.layers))
    if phantom:
        yield (
            f"the runtime counts {len(layout.moe_layers)} MoE layers, the model has {len(model.layers)}: the "
            f"ratio is of the runtime's {layout.total_experts:,} experts, and "
            f"{counted(len(phantom), 'layer')} dense in truth must rank below every expert"
        )
    quantization = config.get("quantization_config") or text.get("quantization_config") or {}
    if quantization.get("quant_method") != "fp8" or not quantization.get("weight_block_size"):
        yield (
            "the config.json that was planned for is not of a block-FP8 checkpoint: start with the FP8 "
            "checkpoint of the same model (launch.sh refuses any other)"
        )
    if any(not placement.hot.get(str(layer)) for layer in model.layers):
        yield (
            "some layers have no expert on the GPU: fine with block-FP8 weights, but Marlin-packed ones fail "
            "to load (solve with --min-hot 1 to avoid it)"
        )
    if (share := mla_promise(text)) is not None:
        yield (
            f"the runtime's own estimate promises {share:.1f} times the KV tokens that fit (it counts other widths "
            "than its MLA pool stores): without --max-total-tokens it would run out of memory, so leave it set"
        )
    if hashed := text.get("num_hash_layers") or 0:
        yield (
            f"the first {hashed} layers are hash layers: they choose experts by token id, so which of theirs are "
            "hot follows the vocabulary of the traffic; the runtime counts them as MoE layers, as the plan does"
        )
    if placement.kv.speculation is not None:
        yield (
            "the draft's MTP layer has all its experts on the GPU: the runtime keeps KT off for drafts, and the "
            "ledger has them in its line mtp"
        )
    if clamp := next((name for name in _CLAMPS if text.get(name)), None):
        yield (
            f"the model clamps its experts' activations ({clamp} {text[clamp]:g}), and the runtime drops that for "
            f"{placement.cpu_method}: cold experts compute without it, hot ones with it; check the outputs"
        )
    if (scheduler := scheduler_note(placement, "sglang-kt")) is not None:
        yield scheduler
    runtime = placement.runtime
    if runtime is not None and runtime.deferred_experts:
        yield (
            f"the plan defers {counted(runtime.deferred_experts, 'selection')} of each token by a layer, which "
            "changes what the model computes: check the outputs"
        )
    if runtime is not None and runtime.skip_idle_cold:
        yield (
            "the plan was predicted for a runtime that leaves the CPU alone where no cold expert has rows "
            "(--skip-idle-cold); this one calls it in every layer: solve without the option for its times"
        )
    if placement.cpu_method == "AMXINT4":
        yield (
            "AMXINT4 rounds weights to 4 bits by row: kt-kernel's README warns of lower accuracy on some models "
            "(Qwen3-30B-A3B); measure yours, or plan with AMXINT8 or RAWINT4"
        )
    if why := unrecordable(config):
        yield (
            f"{why}; there is no record.sh: record with ./launch.sh --enable-return-routed-experts and "
            "'placer trace record --server'"
        )


def mla_promise(text: Mapping[str, Any]) -> float | None:
    """How many times its pool the runtime promises for an MLA model; None where it does not promise too much.

    get_cell_size_per_token counts qk_nope_head_dim + qk_rope_head_dim values a layer, and the pool stores
    kv_lora_rank + qk_rope_head_dim; both count an indexer alike (model_runner_kv_cache_mixin.py, memory_pool.py).
    """
    lora, rope, nope = (text.get(name) for name in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"))
    if not (isinstance(lora, int) and isinstance(rope, int) and isinstance(nope, int)):
        return None
    if text.get("compress_ratios") or str(text.get("model_type", "")).startswith("glm5_next"):
        return None
    # bf16; the indexer of sparse attention is a byte per value and a scale of four per 128.
    index = text.get("index_head_dim") or 0
    indexer = index + index // 128 * 4 if isinstance(index, int) else 0
    share = (2 * (lora + rope) + indexer) / (2 * (nope + rope) + indexer)
    return share if share > 1 else None
