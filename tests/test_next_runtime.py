"""The export that an answer names next is one that takes the plan."""

from typing import Any

import pytest
from placements import FP8, placement

from placer.exports.next_runtime import next_runtime
from placer.placement import PlacementDocument

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 1,
    "num_experts": 2,
    "hidden_size": 256,
    "moe_intermediate_size": 128,
    "quantization_config": FP8,
}
WHOLE = {
    "all_hot_ms": [1.0],
    "all_cold_ms": [2.0],
    "active_experts": [2.0],
    "checkpoint_format": "bf16",
    "checkpoint_expert_bytes": 60,
}


def planned(config: dict[str, Any], **changes: Any) -> PlacementDocument:
    document = placement({0: [0]}, layers=[0], experts=2)
    given = document.model_dump(mode="json", by_alias=True)
    given["model"] = {**given["model"], "config": config, "architecture": config["architectures"][0]}
    given["hbm"] = {**given["hbm"], "expert_bytes": 60}
    return PlacementDocument.model_validate({**given, "whole_layers": WHOLE, **changes})


def test_a_plan_that_sglang_kt_takes_goes_to_it() -> None:
    found = next_runtime(planned(CONFIG))
    assert (found.name, found.refused) == ("sglang-kt", None)


def test_a_plan_of_torchs_kernel_goes_to_the_plugin_where_it_knows_the_model() -> None:
    assert next_runtime(planned(CONFIG, cpu_method="torch")).name == "vllm-plugin"


@pytest.mark.parametrize("method", ["AMXINT8", "torch"])
def test_sizes_that_no_splitting_runtime_takes_go_to_one_of_whole_layers(method: str) -> None:
    """gpt-oss-20b's hidden size of 2,880 is 22.5 blocks of 128."""
    config = {**CONFIG, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880}
    found = next_runtime(planned(config, cpu_method=method))
    assert found.name == "llama.cpp"
    assert found.whole_layers
    assert found.refused is not None
