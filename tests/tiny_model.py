"""A small MoE model that tests plan for, and a cost model whose figures can be worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from placer.model.spec import ModelSpec, read_model
from placer.profiler.cost import CostModel, GpuRates, Provenance, Regime, SideCost

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def tiny_model(folder: Path, **changes: Any) -> ModelSpec:
    """The tiny model, its config.json written to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**TINY_CONFIG, **changes}))
    return read_model(folder)


def line(fixed_us: float, expert_us: float, row_us: float) -> Regime:
    """One regime in which an expert with m rows costs expert_us + row_us · m."""
    return Regime(
        min_tokens=1,
        max_tokens=None,
        fixed_us=fixed_us,
        token_us=0.0,
        expert_us=expert_us,
        tile=1,
        tile_us=row_us,
        residue_us=(0.0,),
        heaviest_factor=0.0,
        max_rows=64,
    )


def tiny_cost(
    *, cold: Regime | None = None, hot: Regime | None = None, heaviest_factor: float = 0.0
) -> CostModel:
    """Cold experts cost 100 µs and 10 per row, hot ones 2 and 1; no bytes, no transfers."""
    cold = replace(cold or line(20.0, 100.0, 10.0), heaviest_factor=heaviest_factor)
    hot = hot or line(5.0, 2.0, 1.0)
    rates = GpuRates(
        bytes_per_s=1e15,
        bf16_flops=1e18,
        layer_call_us=10.0,
        transfer_call_us=0.0,
        transfer_token_us=0.0,
        provenance=Provenance.DATASHEET,
    )
    return CostModel(SideCost((cold,), Provenance.FITTED), SideCost((hot,), Provenance.DATASHEET), rates)
