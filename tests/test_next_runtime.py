"""The export that an answer names next is one that takes the plan."""

from typing import Any

import pytest
from placements import FP8, placement

from placer.exports.next_runtime import next_runtime
from placer.exports.runtime_scheduler import scheduler_note
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


def scheduled(scheduler: str) -> dict[str, Any]:
    return {"runtime": {"scheduler": scheduler, "deferred_experts": 0, "skip_idle_cold": False}}


def test_a_plan_for_vllms_scheduler_goes_to_vllm_where_the_plugin_takes_it() -> None:
    found = next_runtime(planned(CONFIG, **scheduled("vllm")))
    assert (found.name, found.refused, found.first) == ("vllm-plugin", None, "vllm-plugin")
    assert next_runtime(planned(CONFIG, **scheduled("sglang"))).name == "sglang-kt"


def test_a_plan_for_vllms_scheduler_that_the_plugin_refuses_goes_to_sglang_kt_with_a_word() -> None:
    plan = planned(CONFIG, cpu_method="AMXINT8", **scheduled("vllm"))
    found = next_runtime(plan)
    assert (found.name, found.first) == ("sglang-kt", "vllm-plugin")
    assert "timed with AMXINT8, which placer's vLLM plugin does not run" in str(found.refused)
    assert scheduler_note(plan, "sglang-kt") == (
        "the plan's tokens/s, TPOT and TTFT are predicted for vLLM's scheduler, and sglang-kt runs SGLang's: "
        "solve with --scheduler sglang for its times"
    )


def test_drafting_is_never_sent_to_the_plugin() -> None:
    """Its export refuses the plan, so the answer must not name it."""
    plan = planned(CONFIG, **scheduled("vllm")).model_dump(mode="json", by_alias=True)
    plan["kv"]["speculation"] = {"steps": 3, "branches": 1, "draft_tokens": 4}
    plan["hbm"]["ledger"] |= {"mtp": 6, "unused": 4}
    found = next_runtime(PlacementDocument.model_validate(plan))
    assert (found.name, found.first) == ("llama.cpp", "vllm-plugin")
    assert "drafting with the MTP layer" in str(found.refused)


@pytest.mark.parametrize("runtime", ["vllm", "vllm-plugin"])
def test_vllm_says_that_it_is_not_the_scheduler_of_an_sglang_plan(runtime: str) -> None:
    note = scheduler_note(planned(CONFIG, **scheduled("sglang")), runtime)
    assert note is not None
    assert f"SGLang's scheduler, and {runtime} runs vLLM's: solve with --scheduler vllm" in note
    assert scheduler_note(planned(CONFIG, **scheduled("vllm")), runtime) is None
    assert scheduler_note(planned(CONFIG), runtime) is None


def test_llama_cpps_scheduler_is_not_predicted() -> None:
    note = scheduler_note(planned(CONFIG, **scheduled("sglang")), "llama.cpp")
    assert note is not None
    assert note.endswith("llama.cpp has one of its own: measure it")
