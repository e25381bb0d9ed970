"""Which architectures sglang-kt 0.7.2 can split between GPU and CPU, and which of them it can record."""

from collections.abc import Mapping
from typing import Any

SPLIT_ARCHITECTURES = frozenset(
    {
        "BailingMoEForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "BailingMoeV2_5ForCausalLM",
        "DeepseekOCRForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV4ForCausalLM",
        "DeepseekVL2ForCausalLM",
        "DotsVLMForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Ernie4_5_VLMoeForConditionalGeneration",
        "ExaoneMoEForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "Glm4vMoeForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "GptOssForCausalLM",
        "GraniteMoeForCausalLM",
        "Grok1ForCausalLM",
        "Grok1ModelForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "InternS1ForConditionalGeneration",
        "InternS1ProForConditionalGeneration",
        "InternVLChatModel",
        "KimiK25ForConditionalGeneration",
        "KimiLinearForCausalLM",
        "KimiVLForConditionalGeneration",
        "LLaDA2MoeModelLM",
        "Lfm2MoeForCausalLM",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiniMaxM2ForCausalLM",
        "MiniMaxM3SparseForCausalLM",
        "MiniMaxM3SparseForConditionalGeneration",
        "MistralLarge3ForCausalLM",
        "MixtralForCausalLM",
        "NemotronHForCausalLM",
        "OlmoeForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "SDARMoeForCausalLM",
        "Step3VLForConditionalGeneration",
        "Step3p5ForCausalLM",
    }
)
"""Architectures with a class in sglang/srt/models whose experts are a FusedMoE, the layer that KT wraps.

Others run through the Transformers fallback or experts of their own: KT is then silently absent.
"""

UNRECORDED_ARCHITECTURES = frozenset(
    {
        "DeepseekOCRForCausalLM",
        "DeepseekV4ForCausalLM",
        "DeepseekVL2ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Ernie4_5_VLMoeForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "Glm5NextForConditionalGeneration",
        "GraniteMoeForCausalLM",
        "Grok1ForCausalLM",
        "Grok1ModelForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "InternS1ForConditionalGeneration",
        "InternVLChatModel",
        "KimiLinearForCausalLM",
        "KimiVLForConditionalGeneration",
        "Lfm2MoeForCausalLM",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "MixtralForCausalLM",
        "NemotronHForCausalLM",
        "OlmoeForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen3OmniMoeForConditionalGeneration",
        "Step3VLForConditionalGeneration",
        "Step3p5ForCausalLM",
    }
)
"""Those of `SPLIT_ARCHITECTURES` with which a recorder cannot start, or sees no layer.

The recorder needs get_model_config_for_expert_location of the class, and its layers must enter
with_current_layer (sglang/srt/eplb/expert_distribution.py).
"""


def architecture_of(config: Mapping[str, Any]) -> str | None:
    """The architecture that a config.json names first, or None."""
    architectures = config.get("architectures")
    return str(architectures[0]) if isinstance(architectures, list) and architectures else None
