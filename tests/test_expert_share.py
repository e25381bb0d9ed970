"""What a GPU holds of an expert that is cut over several, by weight format."""

from pathlib import Path
from typing import Any

import pytest
from test_model import GPT_OSS_20B, QWEN3_30B, read

from placer.model.expert_share import cut_problem, expert_share_bytes
from placer.model.spec import ModelSpec
from placer.modes.mode import Cache, Mode
from placer.modes.served_experts import experts_origin, paging_problem, served_model, split_problem

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64}
INT4 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "type": "int",
                "num_bits": 4,
                "strategy": "group",
                "group_size": 32,
                "symmetric": True,
            },
        }
    },
}


def quantised(folder: Path, section: dict[str, Any]) -> ModelSpec:
    return read(folder, QWEN3_30B, quantization_config=section)


@pytest.mark.parametrize(("tp", "width"), [(1, 2880), (2, 1440), (4, 736), (8, 384)])
def test_mxfp4_is_cut_in_whole_blocks_of_32_and_padded_on_its_hidden_side(
    tmp_path: Path, tp: int, width: int
) -> None:
    model = read(tmp_path, GPT_OSS_20B)
    # 2,880 columns are 90 blocks: 45, 23 and 12 at most on each of 2, 4 and 8 GPUs. 2,880 rows are held as 3,072.
    weights, biases = 3 * width * 3072, 2 * (2 * width + 3072)
    assert expert_share_bytes(model, tp, "mxfp4") == weights // 2 + weights // 32 + biases


def test_mxfp4_can_be_cut_as_long_as_every_gpu_holds_a_block(tmp_path: Path) -> None:
    model = served_model(read(tmp_path, GPT_OSS_20B), Mode.GPU_ONLY)
    assert [tp for tp in (1, 2, 3, 8, 16, 30, 32, 64) if cut_problem(model, tp) is None] == [1, 2, 3, 8, 30]
    # Blocks of 32: six on each of 16 GPUs, which 15 of them have used up.
    assert cut_problem(model, 16) == "tp 16 leaves GPUs without a block of 32 of the experts' 2,880 columns"


@pytest.mark.parametrize(
    ("section", "form", "cuts"),
    [
        (GPTQ, "gptq4_g128", [1, 2, 3, 6]),
        (AWQ, "awq4_g64", [1, 2, 3, 4, 6, 12]),
        (INT4, "int4_g32", [1, 2, 3, 4, 6, 12]),
    ],
)
def test_a_cut_leaves_groups_of_scales_and_marlins_tiles_whole(
    tmp_path: Path, section: dict[str, Any], form: str, cuts: list[int]
) -> None:
    model = served_model(quantised(tmp_path, section), Mode.GPU_ONLY)
    assert model.gpu_format == form
    # 768 columns in wholes of 128, or of 64, the least that Marlin takes.
    assert [tp for tp in range(1, 13) if cut_problem(model, tp) is None] == cuts


@pytest.mark.parametrize("section", [GPTQ, AWQ, INT4])
def test_four_bits_are_served_as_stored_where_gpus_compute_every_expert(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    model = quantised(tmp_path, section)
    for mode in (Mode.GPU_ONLY, Mode.STREAMED):
        served = served_model(model, mode)
        assert expert_share_bytes(served, 1) == pytest.approx(model.checkpoint_expert_bytes, rel=0.001)
        assert (
            experts_origin(model, mode)
            == f"experts in {model.checkpoint_format} (Marlin's fused experts), as stored"
        )
    assert served_model(model, Mode.HOT_COLD).gpu_format == "fp8_block"
    assert f"this one's {model.checkpoint_format} has to be converted" in experts_origin(model, Mode.HOT_COLD)


def test_a_plain_checkpoint_is_taken_as_quantised_and_says_so(tmp_path: Path) -> None:
    model = read(tmp_path, QWEN3_30B)
    assert served_model(model, Mode.GPU_ONLY).gpu_format == "fp8_block"
    assert experts_origin(model, Mode.GPU_ONLY).endswith("the checkpoint's bf16 is taken as quantised to FP8")


def test_a_cache_of_experts_runs_on_one_gpu_in_formats_that_are_paged(tmp_path: Path) -> None:
    gptq, int4 = quantised(tmp_path, GPTQ), quantised(tmp_path, INT4)
    assert paging_problem(gptq, Cache.LRU, 1) is None
    assert "one GPU only" in str(paging_problem(gptq, Cache.LRU, 2))
    assert "do not take int4_g32" in str(paging_problem(int4, Cache.LRU, 1))
    assert paging_problem(int4, Cache.NONE, 8) is None


@pytest.mark.parametrize(
    ("config", "method", "tp", "said"),
    [
        (QWEN3_30B, "RAWINT4", 2, None),
        # The plugin runs torch's kernel, on one GPU.
        (QWEN3_30B, "torch", 1, None),
        (
            QWEN3_30B,
            "torch",
            2,
            "sglang-kt does not run torch's CPU kernel, and placer's vLLM plugin runs on one GPU",
        ),
        (QWEN3_30B, "VLLM-BF16", 1, "placer's vLLM plugin does not run VLLM-BF16"),
        (GPT_OSS_20B, "AMXINT8", 1, "sglang-kt runs experts of multiples of 128 only"),
        (GPT_OSS_20B, "torch", 1, "placer's vLLM plugin does not run GptOssForCausalLM"),
    ],
)
def test_a_split_runs_where_a_runtime_has_the_kernel_and_the_model(
    tmp_path: Path, config: dict[str, Any], method: str, tp: int, said: str | None
) -> None:
    problem = split_problem(read(tmp_path, config), method, tp)
    assert problem is None if said is None else said in str(problem)
